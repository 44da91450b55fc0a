/* time.c - checks the host's clock, and the times in the configurations. */
#include "common/base/clock.h"
#include "common/base/units.h"
#include "tools/doctor/doctor.h"
#include "tools/doctor/sys.h"

#include <math.h>
#include <string.h>
#include <sys/timex.h>
#include <time.h>

/* Thresholds of the KATCP sensors time.esterror and time.maxerror. */
#define ESTERROR_WARN_US 1000
#define ESTERROR_FAIL_US 5000
#define MAXERROR_WARN_US 10000
#define MAXERROR_FAIL_US 100000

#define SYNC_EARLIEST_S INT64_C(946684800) /* 2000-01-01; no running digitiser was synchronised before this date */
#define WRAP_SOON_S     3600

static const char *disciplined_by(const struct doctor *doctor)
{
    static const char *const programs[] = {"phc2sys", "chronyd", "ntpd", "systemd-timesyn", "ptp4l"};

    for (size_t i = 0; i < ARRAY_LEN(programs); i++)
        if (sys_process(doctor->root, programs[i], NULL))
            return programs[i];
    return NULL;
}

static enum finding_status by_limits(long value_us, long warn_us, long fail_us)
{
    return value_us >= fail_us ? FINDING_FAIL : value_us >= warn_us ? FINDING_WARN : FINDING_OK;
}

static void add_error(struct doctor *doctor, const char *id, const char *what, long us, long warn_us, long fail_us)
{
    struct finding *f = doctor_add(doctor, by_limits(us, warn_us, fail_us), id, "");

    SAY(f->found, "the kernel's %s of the clock is %.3f ms", what, (double)us / 1000);
    SAY(f->expected, "below %g ms; %g ms or more is an error", (double)warn_us / 1000, (double)fail_us / 1000);
    SAY(f->why, "this clock sets the first timestamp of a stream, the times of delays and the times of dumps");
    SAY(f->fix, "chronyc tracking; chronyc sources   # or: pmc -u -b 0 'GET CURRENT_DATA_SET'");
}

static void check_clock(struct doctor *doctor)
{
    struct timex t = {0};
    const char *by = disciplined_by(doctor);

    if (doctor->root[0])
        return; /* with --root, the host to check is another host, and this host's clock is not checked */
    int state = adjtimex(&t);
    if (state < 0) {
        doctor_note(doctor, FINDING_SKIPPED, "time.clock", "", "the kernel refuses adjtimex() here");
        return;
    }
    bool unsynchronised = state == TIME_ERROR || (t.status & STA_UNSYNC);
    struct finding *f = doctor_add(doctor, unsynchronised ? FINDING_WARN : FINDING_OK, "time.clock", "");
    SAY(f->found, "the kernel says that the clock is %ssynchronised%s%s", unsynchronised ? "not " : "",
        by ? "; the clock is set by " : "; no program that sets the clock runs", by ? by : "");
    SAY(f->expected, "synchronised by chronyd, ntpd or ptp4l with phc2sys");
    SAY(f->why, "timestamps and the times of delays depend on this clock");
    SAY(f->fix, "sudo apt install chrony && chronyc waitsync 30");
    if (unsynchronised)
        return; /* the kernel's estimates have no meaning for an unsynchronised clock */
    add_error(doctor, "time.esterror", "estimated error", t.esterror, ESTERROR_WARN_US, ESTERROR_FAIL_US);
    add_error(doctor, "time.maxerror", "largest possible error", t.maxerror, MAXERROR_WARN_US, MAXERROR_FAIL_US);
}

static void check_ptp(struct doctor *doctor)
{
    bool hardware = sys_exists(doctor->root, "/sys/class/ptp/ptp0"), runs = sys_process(doctor->root, "ptp4l", NULL);
    bool sets = sys_process(doctor->root, "phc2sys", NULL);
    struct finding *f = doctor_add(doctor, runs && hardware && !sets ? FINDING_WARN : FINDING_OK, "time.ptp", "");

    SAY(f->found, "%s, ptp4l %s, phc2sys %s", hardware ? "a PTP clock" : "no PTP clock", runs ? "runs" : "does not run",
        sets ? "runs" : "does not run");
    SAY(f->expected, "phc2sys in addition to ptp4l");
    SAY(f->why, "ptp4l sets only the NIC's clock, not the host's");
    SAY(f->fix, "sudo systemctl enable --now phc2sys");
}

static void check_sync(struct doctor *doctor, const struct doctor_file *file)
{
    struct timebase timebase = {file->time->sync_time_s, file->time->adc_sample_rate_hz, false};
    int64_t now_ns = clock_unix_ns(), samples = timebase_samples_at(&timebase, now_ns);
    double sync_s = timebase_decimal_to_double(file->time->sync_time_s), now_s = (double)now_ns / (double)NS_PER_S;
    struct finding *f;
    char text[64];
    time_t whole = (time_t)sync_s;
    struct tm tm;

    if (file->time->timebase == CONFIG_TIMEBASE_PACKETS) {
        f = doctor_add(doctor, file->recv->pcap_file ? FINDING_OK : FINDING_WARN, "time.sync", file->name);
        SAY(f->found, "time.timebase is packets: the clock is not used");
        SAY(f->expected, "time.timebase is clock, unless the engine replays a capture");
        SAY(f->why, "if an F-engine starts before a wrap of the 48-bit timestamps and an X-engine after it, their "
                    "times disagree");
        SAY(f->fix, "remove timebase from %s", file->name);
        return;
    }
    strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", gmtime_r(&whole, &tm));
    bool future = sync_s > now_s, old = sync_s < (double)SYNC_EARLIEST_S;
    f = doctor_add(doctor, future ? FINDING_FAIL : old ? FINDING_WARN : FINDING_OK, "time.sync", file->name);
    SAY(f->found, "sync_time is %s, %.4g days %s", text, fabs(now_s - sync_s) / 86400, future ? "ahead" : "ago");
    SAY(f->expected, "a time between 2000 and now");
    SAY(f->why, future ? "sync_time is in the future: this clock or sync_time is wrong"
                       : "no digitiser has run since sync_time: sync_time differs from the digitisers' time");
    SAY(f->fix, "date -u   # then compare sync_time of %s with the digitisers'", file->name);
    if (future || old)
        return;
    double left_s =
        (double)((INT64_C(1) << TIMESTAMP_WIRE_BITS) - (samples & ((INT64_C(1) << TIMESTAMP_WIRE_BITS) - 1))) /
        file->rate_hz;
    f = doctor_add(doctor, left_s < WRAP_SOON_S ? FINDING_WARN : FINDING_OK, "time.wrap", file->name);
    SAY(f->found, "the 48-bit timestamps begin again at 0 in %.4g hours", left_s / 3600);
    SAY(f->expected, "more than %d minutes", WRAP_SOON_S / 60);
    SAY(f->why, "fgpu and xbgpu continue, but receivers of other makers may mistake the wrap for a jump back");
    SAY(f->fix,
        "begin long observations after the wrap, or synchronise the digitisers again and change sync_time everywhere");
}

void doctor_check_time(struct doctor *doctor)
{
    check_clock(doctor);
    check_ptp(doctor);
    for (const struct doctor_file *file = NULL; (file = doctor_next(doctor, DOCTOR_ANY, file));)
        check_sync(doctor, file);
}
