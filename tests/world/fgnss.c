/* fgnss.c - requests about satellites, and the judge of the heaps of satellites' sums.  See fworld.h.
 *
 * Each record is compared with a model of its satellite's tracking (docs/gnss.md, fgpu/gnss_model.h).  The model begins
 * with a request's code phase and Doppler, or with the first record after a search.  After each record, the sums of the
 * record correct the model.  The replica of a later integration follows from the model after one of the records before
 * it, because sums arrive some chunks later.  All integrations of a run last less than 0.4 s, so the stage is pull-in. */
#include "tests/world/faults.h"
#include "tests/world/fworld.h"
#include "tests/world/lines.h"
#include "tests/world/run.h"
#include "tests/world/sched.h"
#include "tests/world/wire.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STREAM       "sums"
#define MAX_PRNS     2
#define MAX_ORDERS   16
#define MAX_RECORDS  16
#define MAX_HEAPS    192
#define MAX_MODELS   32
#define MARGIN_HEAPS 10    /* after a reply, heaps that may be older than the request */
#define SLOP         1e-6L /* chips and turns: error of a model in long double */
#define L1_HZ        1575.42e6
#define CARRIER_HZ   30123.4 /* in the baseband, without Doppler */
#define GNSS_RATE_HZ (SATELLITE_RATE_HZ / SUBSAMPLING)
#define CODE_SAMPLES (GNSS_RATE_HZ / 1000)  /* complex samples of a code period */
#define DELAY        ((DDC_TAPS - 1) / 2.0) /* ADC samples from the timestamp of a complex sample to its signal */

/* A record, as the descriptor's dtype says. */
struct record {
    int64_t timestamp, code_period;
    double code_phase;
    int64_t carrier_cycles;
    double carrier_phase, doppler, doppler_rate, sums[N_SATELLITE_TAPS][2][2];
    float cn0[2];
    uint32_t n_samples, n_present;
    uint16_t prn, signal, stage, flags;
    int32_t symbol_period;
    uint32_t n_starts;
};

struct heap {
    int64_t begin, end; /* complex samples since the sync time */
    bool is_continued;  /* the heap before this heap ends where this heap begins */
    struct record records[MAX_RECORDS];
};

static struct heap heaps[MAX_ANTS][MAX_HEAPS];
static unsigned n_heaps[MAX_ANTS];
static uint8_t partial[MAX_ANTS][MAX_RECORDS * sizeof(struct record)];
static uint64_t n_bytes_left[MAX_ANTS];

static struct order {
    enum { STEER, DROP, ADD } kind;
    unsigned ant, index, due; /* index of the satellite in 'prns' */
    int64_t timestamp;        /* samples since the sync time */
    double chips, doppler_hz;
    bool has_begun;             /* a record follows from the request */
    unsigned n_before, n_after; /* number of the antenna's heaps before the request, and before its reply */
} orders[MAX_ORDERS];
static unsigned n_orders, n_sent;
static bool awaits_reply, is_inverted, has_search;
static bool has_dropped; /* a heap found no free buffer */
static const unsigned prns[MAX_PRNS] = {SATELLITE, 13};
static struct lines *client;

/* ---- Configuration and requests ---------------------------------------------------------------------------------- */

static void draw_order(struct order *order, unsigned due)
{
    *order = (struct order){.kind = world_random(4)   ? STEER
                                    : world_random(2) ? DROP
                                                      : ADD,
                            .ant = (unsigned)world_random(s.n_ants),
                            .index = (unsigned)world_random(MAX_PRNS),
                            .due = due,
                            .n_before = UINT32_MAX,
                            .n_after = UINT32_MAX};
    order->timestamp = (s.first_packet + faults_time(due)) * PACKET + random_between(-6000, 6000);
    order->chips = fmod(sums_true_chips(order->ant, (double)(order->timestamp % (PERIOD * BATCH))) + CODE_CHIPS +
                            1e-7 * (double)random_between(-3000000, 3000000),
                        CODE_CHIPS);
    if (world_random(4) == 0)
        order->chips = 1e-6 * (double)random_between(0, CODE_CHIPS * INT64_C(1000000) - 1);
    order->doppler_hz =
        sums_true_offset_hz(order->ant) - CARRIER_HZ + 1e-3 * (double)random_between(-100000, 100000) + 1e-4 / 3;
}

void gnss_draw(void)
{
    n_orders = n_sent = 0;
    awaits_reply = has_dropped = false;
    client = NULL;
    memset(n_heaps, 0, sizeof(n_heaps));
    memset(n_bytes_left, 0, sizeof(n_bytes_left));
    if (!s.has_gnss)
        return;
    world_note("satellites");
    is_inverted = world_random(4) == 0;
    has_search = world_random(2);
    for (unsigned due = 0; due < s.n_packets && n_orders < MAX_ORDERS; due += (unsigned)world_random(200))
        draw_order(&orders[n_orders++], due);
}

void gnss_write_config(FILE *file)
{
    fprintf(file,
            "gnss:\n"
            "  - {name: " STREAM ", destination: \"" SUMS "\", centre_frequency: %lld, decimation: 1,\n"
            "     pass_bandwidth: %lld, ddc_taps: %d, sky_frequency: %.12g, inverted: %s, acquire_blocks: 2}\n"
            "satellites:\n"
            "  - {signal: L1CA, prns: [%u], acquire: %s, doppler: 100, doppler_range: 1500}\n"
            "  - {signal: L1CA, prns: [%u], acquire: false}\n",
            (long long)RATE_HZ / 4, (long long)RATE_HZ * 3 / 8, DDC_TAPS, L1_HZ - CARRIER_HZ,
            is_inverted ? "true" : "false", prns[0], has_search ? "true" : "false", prns[1]);
}

static void on_line(void *arg, const char *line)
{
    if (strncmp(line, "!gnss", 5) != 0)
        return;
    if (!awaits_reply || !strstr(line, " ok"))
        world_fail("the reply is '%s'", line);
    orders[n_sent - 1].n_after = n_heaps[orders[n_sent - 1].ant];
    awaits_reply = false;
}

static void send_order(struct order *order)
{
    static const char *const names[] = {"steer", "drop", "add"};
    char line[256], more[128] = "";

    if (order->kind == STEER)
        snprintf(more, sizeof(more), " %lld %.12g %.15g", (long long)(order->timestamp % WIRE_PERIOD), order->chips,
                 order->doppler_hz);
    snprintf(line, sizeof(line), "?gnss-%s " STREAM " L1CA-%u m%u%s", names[order->kind], prns[order->index],
             order->ant, more);
    order->n_before = n_heaps[order->ant];
    lines_send(client, line);
    awaits_reply = true;
}

void gnss_begin(void)
{
    if (s.has_gnss)
        client = lines_connect(on_line, NULL);
}

void gnss_step(unsigned p)
{
    if (!awaits_reply && n_sent < n_orders && p >= orders[n_sent].due)
        send_order(&orders[n_sent++]);
}

/* ---- Heaps ------------------------------------------------------------------------------------------------------- */

/* Returns the value nearest to the run's first timestamp that has these low 48 bits. */
static int64_t unwrap(uint64_t wire)
{
    int64_t near = s.first_packet * PACKET;
    int64_t ahead = (int64_t)((wire - (uint64_t)near) << 16) >> 16;

    return near + ahead;
}

/* Returns the step of the chunks' timestamps, which are multiples of this step.  If the upper bits of timestamps are
 * wrong, and a third of a chunk is a power of 2, the chunks' timestamps are only multiples of this third. */
static int64_t grid(void)
{
    return s.chunk_packets * PACKET / (s.chunk_packets % 3 == 0 && faults.clock >= UNSYNCHRONISED ? 3 : 1);
}

/* A chunk yields the complex samples whose filter windows end in the chunk.  Without the chunk before it, the first
 * windows are missing. */
static void add_heap(unsigned ant, uint64_t timestamp)
{
    int64_t chunk = s.chunk_packets * PACKET, samples = unwrap(timestamp);
    int64_t reach = DDC_TAPS - SUBSAMPLING, first = samples % grid() == 0 ? samples : samples + reach;

    if (n_heaps[ant] == MAX_HEAPS)
        world_fail("more than %d heaps of sums", MAX_HEAPS);
    if (first % grid() != 0)
        world_fail("a heap of sums has the timestamp %lld", (long long)samples);
    struct heap *heap = &heaps[ant][n_heaps[ant]++];
    heap->begin = samples / SUBSAMPLING;
    heap->end = (first + chunk - reach) / SUBSAMPLING;
    heap->is_continued = n_heaps[ant] > 1 && heap[-1].end == heap->begin;
    memcpy(heap->records, partial[ant], sizeof(heap->records));
}

void gnss_take(void *unused, const uint8_t *bytes, size_t n_bytes)
{
    struct wire_packet packet;

    if (!wire_read(bytes, n_bytes, &packet))
        world_fail("fgpu sent a packet that is not SPEAD");
    const struct wire_item *timestamp = wire_find(&packet, WIRE_TIMESTAMP), *feng = wire_find(&packet, WIRE_FENG_ID);
    if (!timestamp || !feng || !wire_find(&packet, WIRE_GNSS_SUMS))
        return; /* a descriptor or a stop */
    unsigned ant = (unsigned)feng->value;
    if (ant >= s.n_ants || packet.heap_bytes > sizeof(partial[0]) || packet.heap_bytes % sizeof(struct record) != 0)
        world_fail("a heap of sums of F-engine %u has %llu bytes", ant, (unsigned long long)packet.heap_bytes);
    if (n_bytes_left[ant] == 0) {
        memset(partial[ant], 0, sizeof(partial[ant]));
        n_bytes_left[ant] = packet.heap_bytes;
    }
    if (packet.payload_bytes > n_bytes_left[ant] || packet.offset != packet.heap_bytes - n_bytes_left[ant])
        world_fail("a heap of sums has a packet for byte %llu, and %llu bytes are missing",
                   (unsigned long long)packet.offset, (unsigned long long)n_bytes_left[ant]);
    memcpy(partial[ant] + packet.offset, packet.payload, packet.payload_bytes);
    n_bytes_left[ant] -= packet.payload_bytes;
    if (n_bytes_left[ant] == 0)
        add_heap(ant, timestamp->value);
}

void gnss_check_counters(void)
{
    uint64_t n_samples = 0, n_counted;

    if (!s.has_gnss)
        return;
    for (unsigned ant = 0; ant < s.n_ants; ant++)
        for (unsigned h = 0; h < n_heaps[ant]; h++)
            n_samples += (uint64_t)(heaps[ant][h].end - heaps[ant][h].begin);
    n_counted = run_counter("fgpu_gnss_samples_total", "") + run_counter("fgpu_gnss_missing_samples_total", "");
    if (n_counted != n_samples)
        world_fail("the heaps of sums have %llu samples, and the counters say %llu", (unsigned long long)n_samples,
                   (unsigned long long)n_counted);
    has_dropped = run_counter("fgpu_gnss_dropped_heaps_total", "") > 0;
    if (has_dropped)
        world_note("satellites: a heap found no free buffer");
}

/* ---- The model of a satellite's tracking ------------------------------------------------------------------------- */

struct model {
    int64_t sample;
    long double chips, turns; /* since the start */
    double doppler_hz;
};

struct run {
    int64_t begin, end; /* consecutive samples */
};

/* State of the model of a satellite's tracking after some heaps. */
struct track {
    unsigned ant, index;
    bool is_active;
    uint32_t n_starts;
    int next_order;    /* the requests before this one are used up */
    int64_t next;      /* first sample after all integrations so far */
    struct run run;    /* of the current heap */
    struct run cut;    /* run in which a gap has cut an integration whose record has not come; 0, 0: none */
    unsigned n_models; /* since the start; the last MAX_MODELS are kept */
    struct model models[MAX_MODELS];
    int64_t last_period; /* of 'last'; -1: none */
    double last[2][2];
    unsigned n_used;                     /* records in the moments for C/N0 */
    double data_s, mean_s, m2[2], m4[2]; /* of the moments */
};

static long double turns_step(double doppler_hz)
{
    return ((long double)CARRIER_HZ + doppler_hz) / GNSS_RATE_HZ;
}

static long double chips_step(double doppler_hz)
{
    return (long double)CHIP_RATE_HZ * (1 + doppler_hz / (long double)L1_HZ) / GNSS_RATE_HZ;
}

static struct model moved(const struct model *model, int64_t sample)
{
    long double n = (long double)(sample - model->sample);

    return (struct model){sample, model->chips + n * chips_step(model->doppler_hz),
                          model->turns + n * turns_step(model->doppler_hz), model->doppler_hz};
}

static struct model *newest(struct track *track)
{
    return &track->models[(track->n_models - 1) % MAX_MODELS];
}

static void add_model(struct track *track, struct model model)
{
    track->models[track->n_models++ % MAX_MODELS] = model;
}

/* A record's phases in the units of a model. */
static struct model phases_of(const struct record *r)
{
    return (struct model){.sample = unwrap((uint64_t)r->timestamp) / SUBSAMPLING,
                          .chips = (long double)r->code_period * CODE_CHIPS + r->code_phase,
                          .turns = (long double)r->carrier_cycles + r->carrier_phase};
}

/* Returns true if the record's replica follows from the model.  fgpu rounds the code's step to 2^-48 chips, and the sky
 * frequency to 2^-22 Hz (double precision). */
static bool follows(const struct record *r, const struct model *model)
{
    struct model phases = phases_of(r), m = moved(model, phases.sample);
    long double n = (long double)llabs(phases.sample - model->sample);

    return fabsl(m.chips - phases.chips) < SLOP + n * 0x1p-49L &&
           fabsl(m.turns - phases.turns) < SLOP + n * 0x1p-23L / GNSS_RATE_HZ;
}

/* Returns the model from which the record's replica follows, or NULL. */
static const struct model *find_model(const struct track *track, const struct record *r)
{
    unsigned n = track->n_models < MAX_MODELS ? track->n_models : MAX_MODELS;

    for (unsigned i = 1; i <= n; i++)
        if (follows(r, &track->models[(track->n_models - i) % MAX_MODELS]))
            return &track->models[(track->n_models - i) % MAX_MODELS];
    return NULL;
}

/* Corrects the newest model with a record: the code by a loop of 2 Hz, the Doppler by a loop of 4 Hz.  K = 4 B T. */
static void correct(struct track *track, const struct record *r)
{
    struct model replica = phases_of(r), model = moved(newest(track), replica.sample);
    double data_s = r->n_present / (double)GNSS_RATE_HZ, powers[N_SATELLITE_TAPS] = {0}, now[2][2], dot = 0, cross = 0;
    double angle = 2 * M_PI * (double)(replica.turns - model.turns);
    bool is_used = 2 * r->n_present >= r->n_samples;

    for (unsigned k = 0; k < 2 * N_SATELLITE_TAPS; k++)
        powers[k / 2] += pow(r->sums[k / 2][k % 2][0], 2) + pow(r->sums[k / 2][k % 2][1], 2);
    for (unsigned pol = 0; pol < 2; pol++) {
        const double *prompt = r->sums[1][pol];
        now[pol][0] = prompt[0] * cos(angle) - prompt[1] * sin(angle);
        now[pol][1] = prompt[0] * sin(angle) + prompt[1] * cos(angle);
        dot += now[pol][0] * track->last[pol][0] + now[pol][1] * track->last[pol][1];
        cross += now[pol][1] * track->last[pol][0] - now[pol][0] * track->last[pol][1];
        double power = pow(hypot(prompt[0], prompt[1]), 2) * r->n_samples / r->n_present;
        double weight = data_s / (track->data_s + data_s);
        if (is_used) {
            track->m2[pol] += weight * (power - track->m2[pol]);
            track->m4[pol] += weight * (power * power - track->m4[pol]);
        }
    }
    if (is_used) {
        double error = 0.375 * (powers[0] - powers[2]) / (powers[0] + powers[2]);
        model.chips += 4 * 2 * data_s * (error + (double)(replica.chips - model.chips));
        if (track->last_period >= 0 && r->code_period == track->last_period + 1)
            model.doppler_hz += 4 * 4 * data_s * atan(cross / dot) / (2 * M_PI * 1e-3);
        memcpy(track->last, now, sizeof(track->last));
        track->last_period = r->code_period;
        track->data_s += data_s;
        track->mean_s += data_s / track->data_s * (data_s - track->mean_s);
        track->n_used++;
    }
    if (fabs(model.doppler_hz - r->doppler) > 1e-6)
        world_fail("antenna %u, L1CA-%u: the Doppler after sample %lld is %.9f Hz, not %.9f Hz", track->ant, r->prn,
                   (long long)model.sample, r->doppler, model.doppler_hz);
    model.doppler_hz = r->doppler;
    add_model(track, model);
}

/* ---- Records ----------------------------------------------------------------------------------------------------- */

_Noreturn static void fail(const struct track *track, const struct record *r, const char *why)
{
    world_fail("antenna %u, L1CA-%u, start %u: the record of sample %lld, code period %lld, with %u of %u samples: %s",
               track->ant, prns[track->index], r->n_starts, (long long)phases_of(r).sample, (long long)r->code_period,
               r->n_present, r->n_samples, why);
}

static void check_constants(const struct track *track, const struct record *r)
{
    if (r->timestamp % SUBSAMPLING != 0 || r->doppler_rate != 0 || r->signal != 0 || r->stage != 1 || r->flags != 5 ||
        r->symbol_period != -1 || r->n_present > r->n_samples || !(r->code_phase >= 0 && r->code_phase < CODE_CHIPS) ||
        !(r->carrier_phase >= 0 && r->carrier_phase < 1))
        fail(track, r, "the state is wrong");
}

/* C/N0 from the second and fourth moments of the prompt sums. */
static void check_cn0(const struct track *track, const struct record *r)
{

    for (unsigned pol = 0; pol < 2; pol++) {
        double m2 = track->m2[pol], square = 2 * m2 * m2 - track->m4[pol], signal = sqrt(fmax(square, 0));
        bool is_clear = track->n_used > 1 && square > 1e-6 * m2 * m2 && m2 - signal > 1e-6 * m2;
        if (square < -1e-6 * m2 * m2 && r->cn0[pol] != -INFINITY)
            fail(track, r, "there is no signal, and C/N0 is finite");
        if (is_clear && fabs(r->cn0[pol] - 10 * log10(signal / (m2 - signal) / track->mean_s)) > 1e-3)
            fail(track, r, "C/N0 is wrong");
    }
}

/* Checks that the integration is the first one after track->next or after the begin of 'run': it begins with the first
 * sample of a code period, or less than a chip later. */
static void check_begin(const struct track *track, const struct record *r, const struct model *model, int64_t next)
{
    int64_t begin = phases_of(r).sample - r->n_samples / 2;
    long double period = (long double)r->code_period * CODE_CHIPS;
    long double step = chips_step(model->doppler_hz), first = phases_of(r).chips - r->n_samples / 2 * step;
    long double at_next = first - (begin - next) * step, end = first + r->n_samples * step;

    (void)track;
    if (begin < next || (begin > next && first - step >= period + SLOP) || first < period - SLOP ||
        first > period + 1 + SLOP || at_next <= period - CODE_CHIPS + 1 - SLOP)
        fail(track, r, "it begins at the wrong sample");
    if (end < period + CODE_CHIPS - SLOP || end - step >= period + CODE_CHIPS + SLOP)
        fail(track, r, "it ends at the wrong sample");
}

/* Compares the sums with the samples of the run. */
static void check_sums(const struct track *track, struct record *r, const struct model *model, struct run run)
{
    int64_t middle = phases_of(r).sample, first = middle - r->n_samples / 2, end = first + r->n_samples;
    struct integration g = {.ant = track->ant,
                            .prn = r->prn,
                            .is_inverted = is_inverted,
                            .first = first,
                            .end = end < run.end ? end : run.end,
                            .middle = middle,
                            .n_chunks = 1,
                            .carrier = (uint64_t)ldexp(r->carrier_phase, 64),
                            .carrier_step = (uint64_t)(__int128)rintl(turns_step(model->doppler_hz) * 0x1p64L),
                            .code = (uint64_t)ldexp(r->code_phase, 48),
                            .code_step = (uint64_t)rintl(chips_step(model->doppler_hz) * 0x1p48L),
                            .n_present = r->n_present};

    for (const struct heap *heap = heaps[track->ant]; heap < heaps[track->ant] + n_heaps[track->ant]; heap++)
        if (heap->begin > (g.n_chunks > 1 ? g.chunks[g.n_chunks - 1] : g.first) && heap->begin < g.end &&
            g.n_chunks < MAX_CHUNKS)
            g.chunks[g.n_chunks++] = heap->begin;
    if (!sums_match(&g, r->sums))
        fail(track, r, "the sums or the number of present samples is wrong");
    world_note(r->n_present == r->n_samples ? "satellites: sums"
               : r->n_present > 0           ? "satellites: sums, some samples are missing"
                                            : "satellites: sums, all samples are missing");
}

/* ---- Starts ------------------------------------------------------------------------------------------------------ */

/* The state that a request gives: the code phase at the last complex sample whose signal is from this time or before. */
static struct model steered(const struct order *order)
{
    int64_t sample = (int64_t)floor(((double)(order->timestamp - s.first_packet * PACKET) - DELAY) / SUBSAMPLING) +
                     s.first_packet * PACKET / SUBSAMPLING;
    long double later = (long double)(sample * SUBSAMPLING - order->timestamp) + DELAY;
    long double chips = order->chips + later / SUBSAMPLING * chips_step(order->doppler_hz);

    return (struct model){
        .sample = sample, .chips = chips - floorl(chips / CODE_CHIPS) * CODE_CHIPS, .doppler_hz = order->doppler_hz};
}

/* Returns true if a search may have found this state: the signal, or a peak of the noise at another Doppler.  Noise has
 * high peaks, because samples repeat.  The signal's code has no Doppler, but the replica's code has. */
static bool is_found(const struct track *track, const struct record *r)
{
    struct model phases = phases_of(r);
    double truth = sums_true_chips(track->ant, (double)(phases.sample * SUBSAMPLING % (PERIOD * BATCH)) + DELAY);
    double error = fabs(truth - r->code_phase), most = 0.5 + 1e-3 * (double)r->code_period * (1000 + 150) / 1540;
    bool is_signal = fabs(r->doppler - (sums_true_offset_hz(track->ant) - CARRIER_HZ)) < 250;

    /* a wide search's grid goes beyond the range by 500 Hz, a narrow search's grid by up to 250 Hz more */
    if (!has_search || track->index != 0 || fabs(r->doppler - 100) > 1500 + 500 + 250)
        return false;
    world_note(is_signal && !is_inverted ? "satellites: found" : "satellites: noise found");
    return !is_signal || is_inverted || fmin(error, CODE_CHIPS - error) < most;
}

static bool is_meant(const struct track *track, const struct order *order)
{
    return order->ant == track->ant && order->index == track->index;
}

/* Begins a start with its first record, which is in heap 'h'. */
static void start(struct track *track, const struct record *r, unsigned h)
{
    if (r->n_starts <= track->n_starts)
        fail(track, r, "the tracking had ended");
    track->is_active = true;
    track->n_starts = r->n_starts;
    track->n_models = 0;
    track->last_period = -1;
    track->data_s = track->mean_s = 0;
    track->n_used = 0;
    track->cut = (struct run){0, 0};
    memset(track->m2, 0, sizeof(track->m2));
    memset(track->m4, 0, sizeof(track->m4));
    for (unsigned i = (unsigned)track->next_order; i < n_sent; i++) {
        struct model model = steered(&orders[i]);
        if (orders[i].kind != STEER || !is_meant(track, &orders[i]) || orders[i].n_before > h || !follows(r, &model))
            continue;
        orders[i].has_begun = true;
        track->next_order = (int)i + 1;
        track->next = model.sample;
        model = phases_of(r); /* without the rounding since the request */
        model.doppler_hz = orders[i].doppler_hz;
        add_model(track, model);
        world_note("satellites: steered");
        return;
    }
    if (!is_found(track, r))
        world_fail("antenna %u, L1CA-%u, start %u: no request and no signal has %.9f chips and a Doppler of %.3f Hz at "
                   "sample %lld, code period %lld",
                   track->ant, r->prn, r->n_starts, r->code_phase, r->doppler, (long long)phases_of(r).sample,
                   (long long)r->code_period);
    track->next = INT64_MIN;
    struct model model = phases_of(r);
    model.doppler_hz = r->doppler;
    add_model(track, model);
}

/* Checks that the first integration of a start is the first one of some heap's samples. */
static int64_t first_next(const struct track *track, const struct record *r)
{
    int64_t begin = phases_of(r).sample - r->n_samples / 2, next = track->next;

    for (unsigned h = 0; h < n_heaps[track->ant]; h++)
        if (heaps[track->ant][h].begin <= begin && heaps[track->ant][h].begin > next &&
            begin - heaps[track->ant][h].begin <= CODE_SAMPLES + 4)
            next = heaps[track->ant][h].begin;
    return next > begin - CODE_CHIPS - 4 ? next : begin;
}

/* Returns the run that contains the sample, of the heaps up to 'h'. */
static struct run run_of(const struct track *track, const struct record *r, unsigned h, int64_t sample)
{
    const struct heap *all = heaps[track->ant];
    unsigned first = h, last;

    while (first > 0 && (sample < all[first].begin || sample >= all[first].end))
        first--;
    if (sample < all[first].begin || sample >= all[first].end)
        fail(track, r, "it begins in no heap");
    for (last = first; last < h && all[last + 1].is_continued; last++)
        continue;
    while (first > 0 && all[first].is_continued)
        first--;
    return (struct run){all[first].begin, all[last].end};
}

/* ---- Judging a run ----------------------------------------------------------------------------------------------- */

static void judge_record(struct track *track, struct record *r, unsigned h)
{
    int64_t begin = phases_of(r).sample - r->n_samples / 2, end = begin + r->n_samples, next;
    struct run run = run_of(track, r, h, begin);
    bool is_first = !track->is_active || r->n_starts != track->n_starts;

    check_constants(track, r);
    if (is_first)
        start(track, r, h);
    if (track->cut.end > 0 && run.begin != track->cut.begin)
        fail(track, r, "the sums before a gap are missing");
    if (run.begin != track->run.begin)
        world_note("satellites: a gap cuts an integration");
    track->cut = (struct run){0, 0};
    next = is_first ? first_next(track, r) : track->next > run.begin ? track->next : run.begin;
    const struct model *model = find_model(track, r);
    if (!model)
        fail(track, r, "the replica does not follow from the records before it");
    check_begin(track, r, model, next);
    check_sums(track, r, model, run);
    if (run.end == heaps[track->ant][h].end && (end > run.end || end <= heaps[track->ant][h].begin))
        fail(track, r, "it does not end in this heap");
    track->next = end < run.end ? end : run.end;
    correct(track, r);
    check_cn0(track, r);
}

/* Returns the first sample of the next integration after 'from', about. */
static int64_t predict_begin(struct track *track, int64_t from)
{
    struct model model = moved(newest(track), from);
    long double period = ceill((model.chips - 1) / CODE_CHIPS) * CODE_CHIPS;

    return period > model.chips ? from + (int64_t)ceill((period - model.chips) / chips_step(model.doppler_hz)) : from;
}

/* Returns true if timestamps may jump.  fgpu stops all tracking at a jump. */
static bool may_restart(void)
{
    return faults.digitiser != RUNNING || faults.clock >= UNSYNCHRONISED || faults.pause_at > 0;
}

/* Returns true if the tracking may have ended before the end of heap 'h', or if a new start may have followed. */
static bool may_end(const struct track *track, unsigned h)
{
    if (may_restart())
        return true;
    for (unsigned i = (unsigned)track->next_order; i < n_sent; i++)
        if (is_meant(track, &orders[i]) && orders[i].kind != ADD && orders[i].n_before <= h)
            return true;
    return false;
}

/* Returns true if a later request may have started the tracking again before heap 'h'. */
static bool is_revoked(const struct track *track, unsigned drop, unsigned h)
{
    for (unsigned i = drop + 1; i < n_sent; i++)
        if (is_meant(track, &orders[i]) && orders[i].kind != DROP && orders[i].n_before <= h)
            return true;
    return false;
}

/* Fails the run if the satellite is tracked MARGIN_HEAPS heaps after a drop. */
static void check_drops(const struct track *track, const struct record *r, unsigned h)
{
    for (unsigned i = (unsigned)track->next_order; i < n_sent; i++)
        if (is_meant(track, &orders[i]) && orders[i].kind == DROP && orders[i].n_after < h &&
            h - orders[i].n_after > MARGIN_HEAPS && r->n_starts == track->n_starts && !is_revoked(track, i, h))
            fail(track, r, "it was dropped");
}

static void judge_heap_of(struct track *track, unsigned h)
{
    struct heap *heap = &heaps[track->ant][h];
    int64_t from;

    if (!heap->is_continued) {
        from = track->next > track->run.begin ? track->next : track->run.begin;
        if (track->is_active && track->cut.end == 0 && predict_begin(track, from) < track->run.end)
            track->cut = track->run;
        track->run.begin = heap->begin;
    }
    if (h > 0 && heap->begin < heap[-1].end) { /* timestamps have jumped back */
        track->is_active = false;
        track->cut = (struct run){0, 0};
    }
    track->run.end = heap->end;
    for (unsigned i = 0; i < MAX_RECORDS; i++)
        if (heap->records[i].prn == prns[track->index]) {
            check_drops(track, &heap->records[i], h);
            judge_record(track, &heap->records[i], h);
        }
    from = track->next > track->run.begin ? track->next : track->run.begin;
    if (!track->is_active || predict_begin(track, from) + CODE_SAMPLES + 4 > heap->end)
        return;
    if (!may_end(track, h))
        world_fail("antenna %u, L1CA-%u: the record of the code period from sample %lld on is missing in heap %u",
                   track->ant, prns[track->index], (long long)predict_begin(track, from), h);
    track->is_active = false;
}

/* Checks that a heap is missing only if there was no free buffer.  Checks that unused records are zeros and follow the
 * used records. */
static void check_heap(const struct heap *heap)
{
    static const struct record zero;
    bool is_used = true, needs_last = heap->begin * SUBSAMPLING % grid() != 0;

    if (needs_last && !heap->is_continued && !has_dropped && !device_faults_failed())
        world_fail("a heap of sums begins with sample %lld, and the heap before it is missing", (long long)heap->begin);

    for (unsigned i = 0; i < MAX_RECORDS; i++) {
        is_used &= heap->records[i].prn != 0;
        if (is_used ? heap->records[i].prn != prns[0] && heap->records[i].prn != prns[1]
                    : memcmp(&heap->records[i], &zero, sizeof(zero)) != 0)
            world_fail("record %u of the heap of sums from sample %lld on is wrong", i, (long long)heap->begin);
    }
}

/* Fails the run if a request to follow a satellite had no effect within MARGIN_HEAPS. */
static void check_order(unsigned i)
{
    const struct order *order = &orders[i];
    unsigned last = order->n_after + MARGIN_HEAPS;

    if (order->kind != STEER || may_restart() || order->has_begun || order->n_after == UINT32_MAX ||
        last >= n_heaps[order->ant])
        return;
    for (unsigned k = i + 1; k < n_sent; k++)
        if (orders[k].ant == order->ant && orders[k].index == order->index && orders[k].n_before <= last)
            return;
    for (unsigned h = order->n_after + 1; h <= last; h++)
        if (!heaps[order->ant][h].is_continued)
            return;
    if (steered(order).sample + 2 * CODE_SAMPLES < heaps[order->ant][last].begin)
        world_fail("antenna %u, L1CA-%u: request %u had no effect", order->ant, prns[order->index], i);
}

void gnss_judge(void)
{
    for (unsigned ant = 0; s.has_gnss && ant < s.n_ants; ant++) {
        for (unsigned h = 0; h < n_heaps[ant]; h++)
            check_heap(&heaps[ant][h]);
        for (unsigned index = 0; index < MAX_PRNS; index++) {
            struct track track = {.ant = ant, .index = index};
            for (unsigned h = 0; h < n_heaps[ant]; h++)
                judge_heap_of(&track, h);
        }
    }
    for (unsigned i = 0; i < n_sent; i++)
        check_order(i);
}

void gnss_show(void)
{
    for (unsigned i = 0; s.has_gnss && i < n_sent; i++)
        fprintf(
            stderr,
            "request %d: antenna %u, L1CA-%u, %.9f chips at %lld samples, %.9f Hz; sent after %u heaps, reply after "
            "%u heaps\n",
            (int)orders[i].kind, orders[i].ant, prns[orders[i].index], orders[i].chips, (long long)orders[i].timestamp,
            orders[i].doppler_hz, orders[i].n_before, orders[i].n_after);
}
