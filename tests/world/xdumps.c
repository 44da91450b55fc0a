/* xdumps.c - computes xbgpu's dumps with integers, and compares them with the dumps that xbgpu sent.  See xworld.h. */
#include "tests/world/faults.h"
#include "tests/world/run.h"
#include "tests/world/sched.h"
#include "tests/world/wire.h"
#include "tests/world/xworld.h"

#include <string.h>

#define MAX_DUMP_BYTES (MAX_CHANS * MAX_ANTS * (MAX_ANTS + 1) / 2 * 4 * 8 + 256) /* with other items */

struct dump {
    bool began;
    uint64_t n_bytes_left;
    int32_t values[MAX_DUMP_BYTES / 4];
};
static struct dump dumps[2][MAX_BATCHES]; /* before and after the jump, by window from first_window() on */

void dumps_forget(void)
{
    memset(dumps, 0, sizeof(dumps));
}

/* Returns the window before the first batch, or before the first batch after the jump: a negative shift moves spectra of
 * this batch to the batch before it. */
static int64_t first_window(bool is_after)
{
    return (batch_of(is_after ? s.jump_at : 0) - 1) / s.length;
}

/* Returns the dump of a window, or NULL. */
static struct dump *find_dump(int64_t window)
{
    for (int is_after = s.jump_batches > 0; is_after >= 0; is_after--) {
        int64_t i = window - first_window(is_after);
        if (i >= 0 && i < MAX_BATCHES)
            return &dumps[is_after][i];
    }
    return NULL;
}

/* Returns the number of visibilities of which a part is clipped.  No other sum has the largest value. */
static uint64_t count_clipped(const struct dump *dump)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < s.n_chan * s.n_ants * (s.n_ants + 1) / 2 * 4; i++) {
        int32_t re = dump->values[2 * i], im = dump->values[2 * i + 1];
        n += re == INT32_MAX || re == -INT32_MAX || im == INT32_MAX || im == -INT32_MAX;
    }
    return n;
}

void dumps_check_substream(const struct wire_packet *packet)
{
    const struct wire_item *frequency = wire_find(packet, WIRE_FREQUENCY);
    uint64_t n_substreams = N_STREAM_CHANS / s.n_chan;

    if (!frequency || frequency->value != s.first_chan || packet->heap_cnt % n_substreams != s.first_chan / s.n_chan)
        world_fail("the heap with the count %llu does not belong to channel %u", (unsigned long long)packet->heap_cnt,
                   s.first_chan);
}

int64_t dumps_newest_end(void)
{
    int64_t newest = 0;

    for (int is_after = 0; is_after <= (s.jump_batches > 0); is_after++)
        for (unsigned i = 0; i < MAX_BATCHES; i++)
            if (dumps[is_after][i].began)
                newest = (first_window(is_after) + i + 1) * s.length * s.batch_samples;
    return newest;
}

static void on_dump_packet(void *arg, const uint8_t *bytes, size_t n_bytes)
{
    struct wire_packet packet;

    if (!wire_read(bytes, n_bytes, &packet))
        world_fail("xbgpu sent a packet that is not SPEAD");
    const struct wire_item *timestamp = wire_find(&packet, WIRE_TIMESTAMP);
    if (!timestamp || !wire_find(&packet, WIRE_XENG_RAW))
        return; /* a descriptor or a stop */
    dumps_check_substream(&packet);
    s.n_dump_packets += !network_was_refused();
    int64_t window = (int64_t)timestamp->value / s.batch_samples / s.length;
    struct dump *dump = find_dump(window);
    if (s.time_flipped && !dump)
        return; /* the dump of the packet with the wrong timestamp */
    if ((int64_t)timestamp->value % (s.batch_samples * s.length) != 0 || !dump)
        world_fail("a dump has the timestamp %llu", (unsigned long long)timestamp->value);
    if (!dump->began)
        dump->n_bytes_left = packet.heap_bytes;
    dump->began = true;
    if (packet.offset + packet.payload_bytes > MAX_DUMP_BYTES || packet.payload_bytes > dump->n_bytes_left)
        world_fail("dump %lld has too many bytes", (long long)window);
    memcpy((uint8_t *)dump->values + packet.offset, packet.payload, packet.payload_bytes);
    dump->n_bytes_left -= packet.payload_bytes;
    if (dump->n_bytes_left == 0)
        s.n_clipped += count_clipped(dump);
}

static int64_t clip_sum(int64_t sum)
{
    return sum > INT32_MAX ? INT32_MAX : sum < -INT32_MAX ? -INT32_MAX : sum;
}

/* Adds x(ant1) * conj(x(ant2)) of a batch to sums[product][re, im] of a channel. */
static void add_products(unsigned ant1, unsigned ant2, int64_t batch, unsigned chan, int64_t sums[4][2])
{
    for (unsigned t = 0; t < s.n_spectra; t++)
        for (unsigned p = 0; p < 4 && (!s.has_gate || requests_gate_takes(batch * s.batch_samples + t * STEP)); p++) {
            int64_t ar = voltage(VIS_SHIFTS, ant1, batch, chan, t, p & 1, 0),
                    ai = voltage(VIS_SHIFTS, ant1, batch, chan, t, p & 1, 1);
            int64_t br = voltage(VIS_SHIFTS, ant2, batch, chan, t, p >> 1, 0),
                    bi = voltage(VIS_SHIFTS, ant2, batch, chan, t, p >> 1, 1);
            sums[p][0] += ar * br + ai * bi;
            sums[p][1] += ai * br - ar * bi;
        }
}

/* Checks the four products of a baseline in all channels: all are flagged, or all are exact.  Returns whether they are flagged. */
static bool check_baseline(const struct dump *dump, int64_t window, unsigned ant1, unsigned ant2, bool must_be_exact)
{
    unsigned n_baselines = s.n_ants * (s.n_ants + 1) / 2, baseline = ant2 * (ant2 + 1) / 2 + ant1, n_flagged = 0;

    for (unsigned chan = 0; chan < s.n_chan; chan++) {
        const int32_t(*found)[2] = (const void *)&dump->values[(chan * n_baselines + baseline) * 8];
        int64_t sums[4][2] = {{0}};
        for (unsigned i = 0; i < s.length; i++)
            add_products(ant1, ant2, window * s.length + i, chan, sums);
        for (unsigned p = 0; p < 4; p++) {
            bool is_flagged = found[p][0] == INT32_MIN && found[p][1] == 1;
            n_flagged += is_flagged;
            if (must_be_exact && !is_flagged &&
                (found[p][0] != clip_sum(sums[p][0]) || found[p][1] != clip_sum(sums[p][1])))
                world_fail("window %lld, antennas %u and %u, channel %u, product %u: (%d, %d) instead of (%lld, %lld)",
                           (long long)window, ant1, ant2, chan, p, found[p][0], found[p][1], (long long)sums[p][0],
                           (long long)sums[p][1]);
        }
    }
    if (n_flagged != 0 && n_flagged != 4 * s.n_chan)
        world_fail("window %lld, antennas %u and %u: only %u values are flagged", (long long)window, ant1, ant2,
                   n_flagged);
    return n_flagged > 0;
}

/* Expected fate of an antenna's part of a window. */
struct verdict {
    bool whole;   /* all heaps arrived in time */
    bool lacks;   /* a heap did not arrive */
    bool suspect; /* a heap may have wrong values, or count as missing */
};

/* xbgpu found a wrong sum in the dump, and flagged the whole dump. */
static void count_flagged_dump(int64_t window, unsigned n_flagged)
{
    if (n_flagged != s.n_ants * (s.n_ants + 1) / 2)
        world_fail("window %lld: a baseline is flagged, and all heaps arrived in time", (long long)window);
    if (++s.n_flagged_dumps > device_faults_n_flips())
        world_fail("window %lld: all baselines are flagged, and no bit of the dump flipped", (long long)window);
    world_note("dumps flagged because a bit flipped");
}

/* Adds a heap from which a batch of the window comes to the verdict. */
static void judge_heap(struct verdict *v, unsigned ant, int64_t batch, int64_t source)
{
    int64_t b = place_of(source);
    bool inside = b >= 0 && b < s.n_batches;

    v->whole &= inside && !is_near_jump(b) && heaps_in_time(ant, (unsigned)b);
    v->whole &= source == batch || (source >= heaps_begun() && heaps_have_chunk(batch));
    v->lacks |= !inside || !heaps_arrived(ant, (unsigned)b);
    v->suspect |= heaps_suspect(ant, source);
}

static void judge_window(int64_t window, struct verdict verdicts[MAX_ANTS])
{
    for (unsigned ant = 0; ant < s.n_ants; ant++) {
        struct verdict *v = &verdicts[ant];
        *v = (struct verdict){.whole = s.is_prompt && !s.time_flipped && !s.is_overloaded};
        for (int64_t batch = window * s.length; batch < (window + 1) * s.length; batch++)
            for (int64_t source = batch - 1; source <= batch + 1; source++)
                if (heaps_feed(VIS_SHIFTS, ant, batch, source))
                    judge_heap(v, ant, batch, source);
        v->whole &= !v->suspect;
    }
}

/* Returns true if all heaps from which a batch of an antenna comes arrived, or arrived in time. */
static bool has_batch(unsigned ant, int64_t batch, bool in_time)
{
    struct verdict v = {.whole = s.is_prompt && !s.time_flipped && !s.is_overloaded};

    for (int64_t source = batch - 1; source <= batch + 1; source++)
        if (heaps_feed(VIS_SHIFTS, ant, batch, source))
            judge_heap(&v, ant, batch, source);
    return in_time ? v.whole && !v.suspect : !v.lacks;
}

/* Returns true if a window before this window certainly has a heap. */
static bool has_begun(int64_t window)
{
    for (unsigned b = 0; b < s.n_batches && batch_of(b) < window * s.length; b++)
        for (unsigned ant = 0; ant < s.n_ants; ant++)
            if (has_batch(ant, batch_of(b), true))
                return true;
    return false;
}

/* xbgpu does not send the first window with a heap if a part of an antenna's heaps is missing.  Returns true if this may
 * happen to a window. */
static bool may_be_left_out(int64_t window, const struct verdict verdicts[MAX_ANTS])
{
    bool is_part = false;

    for (unsigned ant = 0; ant < s.n_ants; ant++)
        for (int64_t batch = window * s.length; batch < (window + 1) * s.length; batch++)
            is_part |= !verdicts[ant].whole && has_batch(ant, batch, false);
    return is_part && !has_begun(window);
}

static void check_window(int64_t window, bool must_exist)
{
    const struct dump *dump = find_dump(window);
    struct verdict verdicts[MAX_ANTS];
    unsigned n_flagged = 0, n_unexplained = 0;
    bool any_whole = false;
    /* the dump is complete after the last batch of its window, at the latest when all open chunks have left */
    int64_t end_ns = s.begin_ns + place_of((window + 1) * s.length - 1) * BATCH_NS;
    enum presence sends = requests_sends(0, window * s.length * s.batch_samples, end_ns,
                                         end_ns + 2 * (s.window + 4) * s.chunk_batches * BATCH_NS + NS_PER_S);

    judge_window(window, verdicts);
    for (unsigned ant = 0; ant < s.n_ants; ant++)
        any_whole |= verdicts[ant].whole;
    if (!dump->began) {
        if (must_exist && any_whole && sends == PRESENT && !s.has_failed && !s.is_overloaded &&
            !may_be_left_out(window, verdicts) &&
            (s.missing_dump != SKIP || ++s.n_flagged_dumps > device_faults_n_flips()))
            world_fail("window %lld: all heaps of an antenna arrived in time, and there is no dump", (long long)window);
        world_note("no dump of a window");
        return;
    }
    if (dump->n_bytes_left > 0 && s.has_failed)
        return; /* the sender stopped within the dump */
    if (dump->n_bytes_left > 0)
        world_fail("window %lld: %llu bytes of the dump are missing", (long long)window,
                   (unsigned long long)dump->n_bytes_left);
    if (sends == ABSENT)
        world_fail("window %lld: there is a dump, and the stream was stopped", (long long)window);
    world_note("dumps");
    for (unsigned ant2 = 0; ant2 < s.n_ants; ant2++)
        for (unsigned ant1 = 0; ant1 <= ant2; ant1++) {
            const struct verdict *v1 = &verdicts[ant1], *v2 = &verdicts[ant2];
            bool is_suspect = v1->suspect || v2->suspect;
            bool is_flagged = check_baseline(dump, window, ant1, ant2, !is_suspect);
            world_note(is_suspect ? "suspect baselines" : is_flagged ? "flagged baselines" : "exact baselines");
            n_flagged += is_flagged;
            n_unexplained += is_flagged && v1->whole && v2->whole;
            if (!is_flagged && !is_suspect && (v1->lacks || v2->lacks))
                world_fail("window %lld, antennas %u and %u: not flagged, and heaps are missing", (long long)window,
                           ant1, ant2);
        }
    if (n_unexplained > 0)
        count_flagged_dump(window, n_flagged);
}

void dumps_listen(void)
{
    network_listen(network_port(DESTINATION), on_dump_packet, NULL);
}

/* Compares the counters of sent packets and of wrong dumps with the packets and the flips. */
void dumps_check_counters(void)
{
    const struct network_port *destination = network_port(DESTINATION);
    uint64_t n_sent = run_counter("xbgpu_output_x_packets_total", ""),
             n_failed = run_counter("xbgpu_output_x_failed_packets_total", ""),
             n_wrong = run_counter("xbgpu_output_x_wrong_accs_total", "");

    if (n_sent != s.n_dump_packets || n_failed != network_n_refused(destination))
        world_fail("%u packets were sent and %llu refused, and the counters say %llu and %llu", s.n_dump_packets,
                   (unsigned long long)network_n_refused(destination), (unsigned long long)n_sent,
                   (unsigned long long)n_failed);
    uint64_t n_clipped = run_counter("xbgpu_output_x_clipped_visibilities_total", "");
    if (n_clipped != s.n_clipped && !s.time_flipped)
        world_fail("%llu visibilities are clipped, and the counter says %llu", (unsigned long long)s.n_clipped,
                   (unsigned long long)n_clipped);
    if (n_wrong != device_faults_n_flips())
        world_fail("bits of %u dumps flipped, and the counter says %llu", device_faults_n_flips(),
                   (unsigned long long)n_wrong);
    if (run_counter("xbgpu_audit_failures_total", "") > 16 * n_wrong)
        world_fail("more audits failed than samples of wrong dumps");
}

/* Checks the windows that have ended, before and after the jump. */
void dumps_check(void)
{
    int64_t n_before = s.jump_batches > 0 ? s.jump_at : s.n_batches;

    for (int64_t window = first_window(false); window < (s.first_batch + n_before) / s.length; window++)
        check_window(window, window * s.length >= heaps_begun());
    if (s.jump_batches == 0)
        return;
    for (int64_t window = first_window(true); window < (batch_of(s.n_batches - 1) + 1) / s.length; window++)
        check_window(window, true);
}
