/* data_time.c - see data_time.h.  The assembler calls these functions once per chunk, and for packets that would move
 * the window.  It does not call them for other packets. */
#include "common/telemetry/data_time.h"

#include "common/base/clock.h"
#include "common/time/clock_state.h"
#include "common/base/log.h"
#include "common/telemetry/stats.h"
#include "common/base/units.h"

#include <stdatomic.h>
#include <stdio.h>

#define PERIOD_NS     (30 * NS_PER_S)
#define DRIFT_DIVISOR 4096 /* assumption: the clock rates of sender and host differ by less than 1/4096 = 244 ppm */
#define WIRE_PERIOD   (INT64_C(1) << TIMESTAMP_WIRE_BITS)
/* Without this margin, a stream whose time is wrong by about half a period of 2^48 samples would jump back and forth
 * between two periods. */
#define HYSTERESIS (INT64_C(1) << (TIMESTAMP_WIRE_BITS - 4))

/* Warns that the host's clock may be wrong.  This clock determines the upper bits of timestamps.  Warns at most once
 * per process. */
static void warn_of_clock(const struct timebase *timebase)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;

    if (clock_state_is_synchronised() || atomic_flag_test_and_set(&warned))
        return;
    log_warning("the kernel reports that this host's clock is not synchronised: if the clock is wrong by more than "
                "%.1f days, timestamps are wrong by 2^48 samples until the clock is synchronised",
                (double)timebase_duration_ns(timebase, WIRE_PERIOD / 2) / (24 * 3600.0 * (double)NS_PER_S));
}

void data_time_init(struct data_time *time, const struct timebase *timebase, int64_t chunk_samples,
                    int64_t tolerance_ns)
{
    if (!timebase->from_packets)
        warn_of_clock(timebase);
    *time = (struct data_time){
        .timebase = timebase,
        .margin_samples = chunk_samples / 2,
        .tolerance_ns = timebase->from_packets ? 0 : tolerance_ns,
    };
}

static int64_t is_synchronised(const void *arg)
{
    return clock_state_is_synchronised();
}

void data_time_metrics(const char *program, bool from_packets)
{
    char name[64];

    if (from_packets)
        return;
    snprintf(name, sizeof(name), "%s_clock_synchronised", program);
    stats_gauge_read(name,
                     "1 while the Linux kernel reports that the host's clock is synchronised, otherwise 0. Absent with "
                     "timebase: packets, which does not use the clock.",
                     NULL, is_synchronised, NULL);
}

void data_time_forget(struct data_time *time)
{
    time->known = false;
}

static int64_t lead_of(const struct data_time *time, int64_t timestamp, int64_t arrival_ns)
{
    return timestamp - timebase_duration_samples(time->timebase, arrival_ns);
}

void data_time_confirm(struct data_time *time, int64_t timestamp, int64_t arrival_ns)
{
    int64_t lead = lead_of(time, timestamp, arrival_ns);

    if (!time->known) {
        time->known = true;
        time->leads[0] = time->leads[1] = lead;
        time->period_ns = arrival_ns;
    } else if (arrival_ns - time->period_ns >= PERIOD_NS) {
        time->leads[1] = time->leads[0];
        time->leads[0] = lead;
        time->period_ns = arrival_ns;
    } else if (lead > time->leads[0]) {
        time->leads[0] = lead;
    }
    time->confirmed_ns = arrival_ns;
}

int64_t data_time_at(const struct data_time *time, int64_t arrival_ns)
{
    int64_t lead = time->leads[0] > time->leads[1] ? time->leads[0] : time->leads[1];

    return lead + timebase_duration_samples(time->timebase, arrival_ns);
}

bool data_time_is_due(const struct data_time *time, int64_t timestamp, int64_t arrival_ns)
{
    int64_t drift_ns = (arrival_ns - time->confirmed_ns) / DRIFT_DIVISOR;

    return timestamp <= data_time_at(time, arrival_ns) + time->margin_samples +
                            timebase_duration_samples(time->timebase, drift_ns);
}

bool data_time_clock_refuses(const struct data_time *time, int64_t claim, int64_t window)
{
    if (time->tolerance_ns == 0 || !clock_state_is_synchronised())
        return false;
    int64_t now = timebase_samples_at(time->timebase, clock_unix_ns());
    int64_t tolerance = timebase_duration_samples(time->timebase, time->tolerance_ns);
    return (claim - now > tolerance || now - claim > tolerance) && window - now <= tolerance &&
           now - window <= tolerance;
}

int64_t data_time_wrong_periods(const struct data_time *time, int64_t timestamp)
{
    if (time->timebase->from_packets || !clock_state_is_synchronised())
        return 0;
    int64_t ahead = timestamp - timebase_samples_at(time->timebase, clock_unix_ns());
    int64_t distance = ahead < 0 ? -ahead : ahead;
    if (distance <= WIRE_PERIOD / 2 + HYSTERESIS)
        return 0;
    int64_t n_periods = (distance + WIRE_PERIOD / 2) / WIRE_PERIOD;
    return ahead < 0 ? -n_periods : n_periods;
}
