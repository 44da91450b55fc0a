/* fgnss.c - requests about satellites, and the heaps of satellites' sums.  See fworld.h.
 *
 * fgpu makes one round for the chunks of all antennas at the same time.  The rounds of a run follow from the heaps,
 * because each antenna with samples in a round sends a heap.  ftrack.c judges the records. */
#include "tests/world/faults.h"
#include "tests/world/fgnss.h"
#include "tests/world/lines.h"
#include "tests/world/run.h"
#include "tests/world/sched.h"
#include "tests/world/wire.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STREAM     "sums"
#define MAX_ORDERS 16
#define MAX_HEAPS  192
#define MAX_DELAY  6 /* largest delay between antennas, in complex samples */

struct gnss gnss = {.prns = {SATELLITE, 13}};

static struct heap heaps[MAX_ANTS][MAX_HEAPS];
static unsigned n_heaps[MAX_ANTS];
static struct arrival {
    unsigned ant, heap;
} arrivals[MAX_ANTS * MAX_HEAPS]; /* the heaps of all antennas, in the order in which they arrived */
static unsigned n_arrivals;
static struct round rounds[MAX_ANTS * MAX_HEAPS];
static uint8_t partial[MAX_ANTS][MAX_RECORDS * sizeof(struct record)];
static uint64_t n_bytes_left[MAX_ANTS];

static struct order orders[MAX_ORDERS];
static unsigned n_orders;
static bool awaits_reply;
/* When the counters were read: heaps that arrived, and heaps that the daemon did not make. */
static unsigned n_counted_heaps[MAX_ANTS];
static uint64_t n_not_made[MAX_ANTS];
static struct lines *client;

/* Draws a request.  Most requests of a run are for the same satellite.  Requests in sequence often are for different
 * antennas. */
static void draw_order(struct order *order, unsigned due, unsigned index, unsigned ant)
{
    *order = (struct order){.kind = s.is_calm || world_random(4) ? STEER
                                    : world_random(2)            ? DROP
                                                                 : ADD,
                            .ant = s.is_calm || world_random(3) ? ant : (unsigned)world_random(s.n_ants),
                            .index = s.is_calm || world_random(4) ? index : !index,
                            .due = due,
                            .n_before = UINT32_MAX,
                            .n_after = UINT32_MAX};
    order->timestamp = (s.first_packet + faults_time(due)) * PACKET + random_between(-6000, 6000);
    order->chips = fmod(sums_true_chips(order->ant, (double)(order->timestamp % (PERIOD * BATCH))) + CODE_CHIPS +
                            1e-7 * (double)random_between(-3000000, 3000000),
                        CODE_CHIPS);
    if (!s.is_calm && world_random(4) == 0)
        order->chips = 1e-6 * (double)random_between(0, CODE_CHIPS * INT64_C(1000000) - 1);
    order->doppler_hz = sums_true_offset_hz() - CARRIER_HZ + 1e-3 * (double)random_between(-100000, 100000) + 1e-4 / 3;
}

/* Draws the number of packets from one request to the next.  The first requests come soon after each other. */
static unsigned draw_wait(unsigned most)
{
    if (s.is_calm && n_orders > 1)
        return s.n_packets;
    return (unsigned)world_random(n_orders > 1 && world_random(3) ? most : 20);
}

/* Adds the events of shared loops to the report. */
static void begin_report(void)
{
    static const char *const rows[] = {"satellites: an antenna joins by a request",
                                       "satellites: an antenna joins by a search",
                                       "satellites: a request with too large a delay restarts the loops",
                                       "satellites: samples of an antenna are late",
                                       "satellites: an antenna leaves",
                                       "satellites: the offset of an antenna changes",
                                       "satellites: the delay of an antenna becomes too large"};

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        world_note_times(rows[i], 0);
}

void gnss_draw(void)
{
    n_orders = gnss.n_sent = n_arrivals = gnss.n_rounds = 0;
    awaits_reply = false;
    client = NULL;
    gnss.rounds = rounds;
    gnss.orders = orders;
    memset(n_heaps, 0, sizeof(n_heaps));
    memset(n_bytes_left, 0, sizeof(n_bytes_left));
    memset(n_not_made, 0, sizeof(n_not_made));
    memset(n_counted_heaps, 0, sizeof(n_counted_heaps));
    begin_report();
    if (!s.has_gnss)
        return;
    world_note("satellites");
    gnss.is_inverted = world_random(4) == 0;
    gnss.has_search = world_random(2);
    gnss.delay_samples = s.n_ants > 1 && world_random(3) ? random_between(1, MAX_DELAY) : 0;
    unsigned index = (unsigned)world_random(MAX_PRNS), most = world_random(3) ? 200 : 2000;
    for (unsigned due = 0; due < s.n_packets && n_orders < MAX_ORDERS; due += draw_wait(most)) {
        draw_order(&orders[n_orders], due, index, n_orders % s.n_ants);
        n_orders++;
    }
}

void gnss_write_config(FILE *file)
{
    double delay_s = gnss.delay_samples == 0 ? 0 : ((double)gnss.delay_samples - 0.5) / (double)GNSS_RATE_HZ;

    fprintf(file,
            "gnss:\n"
            "  - {name: " STREAM ", destination: \"" SUMS "\", centre_frequency: %lld, decimation: 1,\n"
            "     pass_bandwidth: %lld, ddc_taps: %d, sky_frequency: %.12g, inverted: %s, acquire_blocks: 2,\n"
            "     max_antenna_delay: %.9g}\n"
            "satellites:\n"
            "  - {signal: L1CA, prns: [%u], acquire: %s, doppler: 100, doppler_range: 1500}\n"
            "  - {signal: L1CA, prns: [%u], acquire: false}\n",
            (long long)RATE_HZ / 4, (long long)RATE_HZ * 3 / 8, DDC_TAPS, L1_HZ - CARRIER_HZ,
            gnss.is_inverted ? "true" : "false", delay_s, gnss.prns[0], gnss.has_search ? "true" : "false",
            gnss.prns[1]);
}

static void on_line(void *arg, const char *line)
{
    if (strncmp(line, "!gnss", 5) != 0)
        return;
    if (!awaits_reply || !strstr(line, " ok"))
        world_fail("the reply is '%s'", line);
    orders[gnss.n_sent - 1].n_after = n_heaps[orders[gnss.n_sent - 1].ant];
    awaits_reply = false;
}

static void send_order(struct order *order)
{
    static const char *const names[] = {"steer", "drop", "add"};
    char line[256], more[128] = "";

    if (order->kind == STEER)
        snprintf(more, sizeof(more), " %lld %.12g %.15g", (long long)(order->timestamp % WIRE_PERIOD), order->chips,
                 order->doppler_hz);
    snprintf(line, sizeof(line), "?gnss-%s " STREAM " L1CA-%u m%u%s", names[order->kind], gnss.prns[order->index],
             order->ant, more);
    order->n_before = n_heaps[order->ant];
    order->n_arrivals = n_arrivals;
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
    if (!awaits_reply && gnss.n_sent < n_orders && p >= orders[gnss.n_sent].due)
        send_order(&orders[gnss.n_sent++]);
}

/* ---- Heaps ------------------------------------------------------------------------------------------------------- */

int64_t gnss_unwrap(uint64_t wire)
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
    int64_t chunk = s.chunk_packets * PACKET, samples = gnss_unwrap(timestamp);
    int64_t reach = DDC_TAPS - SUBSAMPLING, first = samples % grid() == 0 ? samples : samples + reach;

    if (n_heaps[ant] == MAX_HEAPS)
        world_fail("more than %d heaps of sums", MAX_HEAPS);
    if (first % grid() != 0)
        world_fail("a heap of sums has the timestamp %lld", (long long)samples);
    struct heap *heap = &heaps[ant][n_heaps[ant]++];
    heap->begin = samples / SUBSAMPLING;
    heap->end = (first + chunk - reach) / SUBSAMPLING;
    heap->is_continued = n_heaps[ant] > 1 && heap[-1].end == heap->begin;
    heap->continues_samples = samples % grid() != 0;
    heap->arrival = n_arrivals;
    arrivals[n_arrivals++] = (struct arrival){ant, n_heaps[ant] - 1};
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

/* Each heap that the daemon did not make is in a counter. */
static void count_not_made(unsigned ant)
{
    char label[32];

    snprintf(label, sizeof(label), "antenna=\"m%u\"", ant);
    uint64_t n_dropped = run_counter("fgpu_gnss_dropped_heaps_total", label);
    uint64_t n_late = run_counter("fgpu_gnss_late_heaps_total", label);
    n_not_made[ant] = n_dropped + n_late;
    n_counted_heaps[ant] = n_heaps[ant];
    if (n_dropped > 0)
        world_note("satellites: a heap found no free buffer");
    if (n_late > 0)
        world_note("satellites: samples of an antenna are late");
}

void gnss_check_counters(void)
{
    uint64_t n_samples = 0, n_counted;

    if (!s.has_gnss)
        return;
    for (unsigned ant = 0; ant < s.n_ants; ant++) {
        for (unsigned h = 0; h < n_heaps[ant]; h++)
            n_samples += (uint64_t)(heaps[ant][h].end - heaps[ant][h].begin);
        count_not_made(ant);
    }
    n_counted = run_counter("fgpu_gnss_samples_total", "") + run_counter("fgpu_gnss_missing_samples_total", "");
    if (n_counted != n_samples)
        world_fail("the heaps of sums have %llu samples, and the counters say %llu", (unsigned long long)n_samples,
                   (unsigned long long)n_counted);
}

int64_t gnss_order_sample(const struct order *order)
{
    return (int64_t)floor(((double)(order->timestamp - s.first_packet * PACKET) - DELAY) / SUBSAMPLING) +
           s.first_packet * PACKET / SUBSAMPLING;
}

/* ---- Rounds ------------------------------------------------------------------------------------------------------ */

bool gnss_may_restart(void)
{
    return faults.digitiser != RUNNING || faults.clock >= UNSYNCHRONISED || faults.pause_at > 0;
}

/* Returns the place of the heap's round in the order of time.  The heaps of an antenna arrive in order, but the heaps
 * of another antenna may arrive later. */
static unsigned place_of(unsigned ant, int64_t end, bool *is_new)
{
    unsigned place = gnss.n_rounds;

    while (place > 0 && !rounds[place - 1].heaps[ant])
        place--;
    for (unsigned i = place; i < gnss.n_rounds; i++)
        if (rounds[i].end == end) {
            *is_new = false;
            return i;
        }
    *is_new = true;
    while (place < gnss.n_rounds && rounds[place].end < end &&
           (place == 0 || rounds[place].end > rounds[place - 1].end || rounds[place - 1].end >= end))
        place++;
    return place;
}

static void add_to_rounds(unsigned ant, struct heap *heap)
{
    bool is_new;
    unsigned place = place_of(ant, heap->end, &is_new);
    struct round *round = &rounds[place];

    if (is_new) {
        memmove(round + 1, round, (gnss.n_rounds++ - place) * sizeof(*round));
        *round = (struct round){.begin = heap->begin, .end = heap->end};
    }
    round->heaps[ant] = heap;
    round->begin = heap->begin < round->begin ? heap->begin : round->begin;
}

static void make_rounds(void)
{
    unsigned n_before[MAX_ANTS] = {0};

    for (unsigned i = 0; i < n_arrivals; i++)
        add_to_rounds(arrivals[i].ant, &heaps[arrivals[i].ant][arrivals[i].heap]);
    for (unsigned i = 0; i < gnss.n_rounds; i++) {
        struct round *round = &rounds[i];
        round->begin -= gnss.delay_samples;
        round->end -= gnss.delay_samples;
        round->is_continued = i > 0 && round[-1].end == round->begin;
        round->went_back = i > 0 && round->begin < round[-1].end;
        memcpy(round->n_before, n_before, sizeof(n_before));
        for (unsigned ant = 0; ant < s.n_ants; ant++)
            n_before[ant] += round->heaps[ant] != NULL;
    }
}

/* ---- Judging a run ----------------------------------------------------------------------------------------------- */

/* Checks that unused records are zeros and follow the used records. */
static void check_heap(const struct heap *heap)
{
    static const struct record zero;
    bool is_used = true;

    for (unsigned i = 0; i < MAX_RECORDS; i++) {
        is_used &= heap->records[i].prn != 0;
        if (is_used ? heap->records[i].prn != gnss.prns[0] && heap->records[i].prn != gnss.prns[1]
                    : memcmp(&heap->records[i], &zero, sizeof(zero)) != 0)
            world_fail("record %u of the heap of sums from sample %lld on is wrong", i, (long long)heap->begin);
    }
}

/* Checks that heaps are missing only if the daemon counted them. */
static void check_heaps(unsigned ant)
{
    uint64_t n_missing = 0;

    for (unsigned h = 0; h < n_heaps[ant]; h++) {
        check_heap(&heaps[ant][h]);
        n_missing += h < n_counted_heaps[ant] && heaps[ant][h].continues_samples && !heaps[ant][h].is_continued;
    }
    if (n_missing > n_not_made[ant] && !device_faults_failed())
        world_fail("antenna %u: heaps of sums are missing in %llu places, and the counters say %llu", ant,
                   (unsigned long long)n_missing, (unsigned long long)n_not_made[ant]);
}

/* Returns true if another request may end the effect of a request before a heap.  A request that comes before an
 * antenna's first data applies when these data come. */
static bool may_revoke(const struct order *other, const struct order *order, const struct heap *heap)
{
    return other != order && other->index == order->index &&
           (other->kind != ADD || (other->ant == order->ant && order->n_after == 0)) &&
           (other > order || (other->ant != order->ant && other->n_before == 0)) && other->n_arrivals <= heap->arrival;
}

/* Fails the run if a request to follow a satellite had no effect within MARGIN_HEAPS. */
static void check_order(unsigned i)
{
    const struct order *order = &orders[i];
    unsigned last = order->n_after + MARGIN_HEAPS;

    if (order->kind != STEER || gnss_may_restart() || order->has_begun || order->n_after == UINT32_MAX ||
        last >= n_heaps[order->ant])
        return;
    for (unsigned k = 0; k < gnss.n_sent; k++)
        if (may_revoke(&orders[k], order, &heaps[order->ant][last]))
            return;
    for (unsigned h = order->n_after + 1; h <= last; h++)
        if (!heaps[order->ant][h].is_continued)
            return;
    if (gnss_order_sample(order) + 2 * CODE_SAMPLES + gnss.delay_samples < heaps[order->ant][last].begin)
        world_fail("antenna %u, L1CA-%u: request %u had no effect", order->ant, gnss.prns[order->index], i);
}

void gnss_judge(void)
{
    if (!s.has_gnss)
        return;
    make_rounds();
    for (unsigned ant = 0; ant < s.n_ants; ant++)
        check_heaps(ant);
    for (unsigned index = 0; index < MAX_PRNS; index++)
        gnss_judge_satellite(index);
    for (unsigned i = 0; i < gnss.n_sent; i++)
        check_order(i);
}

void gnss_show(void)
{
    if (getenv("ROUNDS")) {
        make_rounds();
        for (unsigned i = 0; i < gnss.n_rounds; i++) {
            fprintf(stderr, "round %u: [%lld, %lld) %s%s\n", i, (long long)rounds[i].begin, (long long)rounds[i].end,
                    rounds[i].is_continued ? "continued" : "", rounds[i].went_back ? "back" : "");
            for (unsigned ant = 0; ant < s.n_ants; ant++)
                for (unsigned k = 0; rounds[i].heaps[ant] && (k == 0 || rounds[i].heaps[ant]->records[k].prn); k++) {
                    struct record *r = &rounds[i].heaps[ant]->records[k];
                    fprintf(stderr,
                            "   ant %u heap %u begin %lld: prn %u start %u flags %u sample %lld period %lld chips %.7f "
                            "turns %lld %.7f n %u/%u doppler %.9f\n",
                            ant, rounds[i].n_before[ant], (long long)rounds[i].heaps[ant]->begin, r->prn, r->n_starts,
                            r->flags, (long long)(gnss_unwrap(r->timestamp) / 2), (long long)r->code_period,
                            r->code_phase, (long long)r->carrier_cycles, r->carrier_phase, r->n_present, r->n_samples,
                            r->doppler);
                }
        }
        gnss.n_rounds = 0;
    }
    for (unsigned i = 0; s.has_gnss && i < gnss.n_sent; i++)
        fprintf(
            stderr,
            "request %d: antenna %u, L1CA-%u, %.9f chips at %lld samples, %.9f Hz; sent after %u heaps, reply after "
            "%u heaps\n",
            (int)orders[i].kind, orders[i].ant, gnss.prns[orders[i].index], orders[i].chips,
            (long long)orders[i].timestamp, orders[i].doppler_hz, orders[i].n_before, orders[i].n_after);
}
