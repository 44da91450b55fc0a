/* fsettings.c - changes delays and gains through KATCP, and knows the effects of the requests.  See fworld.h.  One
 * request is under way at a time.  After each reply the client reads steady-state-timestamp, the time from which all
 * data show the setting.  Spectra before this time may have the old or the new setting, unless a heap of them had
 * arrived before the request was sent. */
#include "tests/world/fworld.h"
#include "tests/world/lines.h"
#include "tests/world/sched.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CHANGES 16
#define SMALL_DELAY 128 /* samples; changes between such delays lose nothing */
#define LARGE_DELAY 3000

struct change {
    unsigned input, due; /* 'due': number of packets before the request */
    bool is_gain;
    bool may_lose; /* the delays before and after the change differ by more than recv.max_delay_diff */
    double gain;
    int64_t delays[2], start_samples; /* both polarisations' delays change together */
    int64_t unsure_samples,
        sure_samples; /* old or new setting from the first time on, new setting from the second on */
};

static struct change changes[MAX_CHANGES];
static unsigned n_changes, n_sent;
static bool has_large[MAX_ANTS];
static struct lines *client;
static enum { IDLE, AWAITS_REPLY, HAS_REPLY, AWAITS_STEADY } state;

bool settings_exist(void)
{
    return n_changes > 0;
}

static void draw_change(struct change *change, unsigned due)
{
    *change = (struct change){.input = (unsigned)world_random(2 * s.n_ants),
                              .due = due,
                              .is_gain = world_random(2),
                              .unsure_samples = INT64_MAX,
                              .sure_samples = INT64_MAX};
    if (change->is_gain) {
        bool clips = world_random(8) == 0;
        change->gain = GAIN * (double)(INT64_C(1) << (clips ? 5 + world_random(4) : world_random(5)));
        world_note(clips ? "requests: gain that clips" : "requests: gain");
        return;
    }
    int64_t base = world_random(4) ? 0 : random_between(-LARGE_DELAY, LARGE_DELAY);
    change->may_lose = base != 0 || has_large[change->input / 2];
    has_large[change->input / 2] = base != 0;
    for (unsigned pol = 0; pol < 2; pol++)
        change->delays[pol] = base + random_between(-SMALL_DELAY, SMALL_DELAY);
    if (base != 0)
        world_note("requests: large delays");
    change->start_samples =
        (s.first_packet + (int64_t)due + random_between(-20, 120)) * PACKET + random_between(0, 255);
    world_note("requests: delays");
}

void settings_draw(void)
{
    n_changes = n_sent = 0;
    memset(has_large, 0, sizeof(has_large));
    state = IDLE;
    client = NULL;
    if (!model_is_known || s.has_gnss || faults.digitiser != RUNNING || faults.clock >= UNSYNCHRONISED ||
        faults.pause_at > 0 || faults.device == FAILING || world_random(3))
        return;
    for (unsigned due = (unsigned)world_random(60); due < s.n_packets && n_changes < MAX_CHANGES;
         due += 1 + (unsigned)world_random(100))
        draw_change(&changes[n_changes++], due);
}

/* ---- The client -------------------------------------------------------------------------------------------------- */

static void on_line(void *arg, const char *line)
{
    if (strncmp(line, "!gain", 5) == 0 || strncmp(line, "!delays", 7) == 0) {
        if (state != AWAITS_REPLY || !strstr(line, " ok"))
            world_fail("the reply is '%s'", line);
        state = HAS_REPLY;
    }
    if (strncmp(line, "#sensor-value", 13) == 0) {
        struct change *change = &changes[n_sent - 1];
        int64_t steady_samples = strtoll(strrchr(line, ' '), NULL, 10);
        bool starts_later = !change->is_gain && change->start_samples > steady_samples;
        change->sure_samples = starts_later ? change->start_samples : steady_samples;
        if (starts_later)
            change->unsure_samples = change->start_samples;
        world_note(starts_later ? "requests: in effect from the load time" : "requests: in effect at once");
        state = IDLE;
    }
}

static void send_change(struct change *change)
{
    char line[256];
    int64_t start_ns =
        change->start_samples / RATE_HZ * NS_PER_S + change->start_samples % RATE_HZ * NS_PER_S / RATE_HZ;

    if (change->is_gain)
        snprintf(line, sizeof(line), "?gain wide %u %.9g", change->input, change->gain);
    else
        snprintf(line, sizeof(line), "?delays wide %lld.%09lld %u=%.12g,0:0,0 %u=%.12g,0:0,0",
                 (long long)(s.sync_unix_s + start_ns / NS_PER_S), (long long)(start_ns % NS_PER_S),
                 change->input / 2 * 2, (double)change->delays[0] / RATE_HZ, change->input / 2 * 2 + 1,
                 (double)change->delays[1] / RATE_HZ);
    change->unsure_samples = judge_newest_samples(change->input / 2);
    if (!change->is_gain && change->start_samples > change->unsure_samples)
        change->unsure_samples = change->start_samples;
    lines_send(client, line);
    state = AWAITS_REPLY;
}

void settings_begin(void)
{
    if (n_changes > 0)
        client = lines_connect(on_line, NULL);
}

void settings_step(unsigned p)
{
    if (state == HAS_REPLY) {
        state = AWAITS_STEADY;
        lines_send(client, "?sensor-value steady-state-timestamp");
    } else if (state == IDLE && n_sent < n_changes && p >= changes[n_sent].due) {
        send_change(&changes[n_sent++]);
    }
}

void settings_end(void)
{
    if (state == AWAITS_REPLY || state == AWAITS_STEADY)
        world_fail("request %u has no reply", n_sent - 1);
    lines_end();
}

/* ---- Effects ----------------------------------------------------------------------------------------------------- */

void settings_at(unsigned input, int64_t samples, struct settings *settings)
{
    *settings = (struct settings){.n_delays = 1, .n_gains = 1, .gains = {GAIN}};
    for (unsigned i = 0; i < n_sent; i++) {
        const struct change *change = &changes[i];
        bool is_meant = change->is_gain ? change->input == input : change->input / 2 == input / 2;
        if (!is_meant || samples < change->unsure_samples)
            continue;
        bool is_sure = samples >= change->sure_samples;
        unsigned *n = change->is_gain ? &settings->n_gains : &settings->n_delays;
        if (is_sure)
            *n = 0;
        if (*n == MAX_UNSURE)
            world_fail("more than %d settings are under way", MAX_UNSURE);
        if (change->is_gain)
            settings->gains[*n] = change->gain;
        else
            settings->delays[*n] = change->delays[input % 2];
        ++*n;
    }
}

bool settings_may_delay(unsigned input, int64_t samples, int64_t delay)
{
    struct settings settings;

    settings_at(input, samples, &settings);
    for (unsigned i = 0; i < settings.n_delays; i++)
        if (settings.delays[i] == delay)
            return true;
    for (unsigned i = 0; i < n_sent; i++)
        if (!changes[i].is_gain && changes[i].input / 2 == input / 2 && changes[i].sure_samples > samples &&
            changes[i].delays[input % 2] == delay)
            return true;
    return false;
}

bool settings_lose(unsigned ant, int64_t batch_samples)
{
    int64_t reach = 2 * LARGE_DELAY + (int64_t)(s.chunk_packets + 2) * PACKET + REACH;

    for (unsigned i = 0; i < n_sent; i++) {
        const struct change *change = &changes[i];
        if (change->may_lose && change->input / 2 == ant && change->unsure_samples - reach <= batch_samples &&
            (change->sure_samples > INT64_MAX / 2 || batch_samples <= change->sure_samples + reach))
            return true;
    }
    return false;
}

void settings_show(void)
{
    for (unsigned i = 0; i < n_sent; i++) {
        const struct change *change = &changes[i];
        fprintf(stderr, "request: input %u, ", change->input);
        if (change->is_gain)
            fprintf(stderr, "gain %g", change->gain);
        else
            fprintf(stderr, "delays of %lld and %lld samples from %lld on", (long long)change->delays[0],
                    (long long)change->delays[1], (long long)change->start_samples);
        fprintf(stderr, "; may be in effect from %lld on, is from %lld on\n", (long long)change->unsure_samples,
                (long long)change->sure_samples);
    }
}
