/* fjudge.c - decides whether fgpu sent the right batches, from the fate of each packet of the digitisers.  See
 * fworld.h.
 *
 * The timestamps of a run lie in a few stretches of MAX_PACKETS packets.  A new stretch begins where the
 * timestamps leave all stretches that exist. */
#include "tests/world/faults.h"
#include "tests/world/fworld.h"
#include "tests/world/sched.h"
#include "tests/world/wire.h"

#include <stdio.h>
#include <string.h>

#define MAX_STRETCHES 8
#define MAX_EXCUSES   32
#define N_PACKETS     (BATCH / PACKET) /* of a batch */

/* A heap of voltages, as far as its packets have arrived. */
struct heap {
    uint64_t n_bytes_left;
    unsigned n_times; /* how often the heap began to arrive */
    uint8_t bytes[HEAP_BYTES];
};

struct stretch {
    int64_t first; /* number of the first packet, a multiple of N_PACKETS */
    int64_t end;   /* number of the packet after the last packet */
    struct sent sent[MAX_ANTS][2][MAX_PACKETS];
    struct heap heaps[MAX_ANTS][N_HEAPS][MAX_PACKETS / N_PACKETS];
};

static struct stretch stretches[MAX_STRETCHES];
static size_t n_stretches;

static struct excuse {
    unsigned ant;
    int64_t from_ns, to_ns;
} excuses[MAX_EXCUSES];
static size_t n_excuses;
static unsigned n_suspect; /* heaps whose voltages cannot be compared */

bool judge_is_in_time(int64_t age_ns)
{
    return age_ns <= ((int64_t)s.window - 2) * s.chunk_packets * PACKET_NS + s.chunk_packets * PACKET_NS / 2;
}

void judge_begin(void)
{
    n_stretches = n_excuses = n_suspect = 0;
    model_forget_clipped();
}

/* Returns the stretch of a packet, or NULL. */
static struct stretch *find_stretch(int64_t packet)
{
    for (size_t i = 0; i < n_stretches; i++)
        if (packet >= stretches[i].first && packet < stretches[i].first + MAX_PACKETS)
            return &stretches[i];
    return NULL;
}

static struct stretch *add_stretch(int64_t packet)
{
    if (n_stretches == MAX_STRETCHES)
        world_fail("more than %d stretches of timestamps", MAX_STRETCHES);
    struct stretch *stretch = &stretches[n_stretches++];
    stretch->first = stretch->end = packet / N_PACKETS * N_PACKETS;
    memset(stretch->sent, 0, sizeof(stretch->sent));
    for (unsigned ant = 0; ant < MAX_ANTS; ant++)
        for (unsigned substream = 0; substream < N_HEAPS; substream++)
            for (unsigned i = 0; i < MAX_PACKETS / N_PACKETS; i++)
                stretch->heaps[ant][substream][i].n_times = 0;
    return stretch;
}

struct sent *judge_sent(unsigned ant, unsigned pol, int64_t packet)
{
    struct stretch *stretch = find_stretch(packet);

    if (!stretch)
        stretch = add_stretch(packet);
    if (packet >= stretch->end)
        stretch->end = packet + 1;
    return &stretch->sent[ant][pol][packet - stretch->first];
}

/* Returns the record of a packet, or NULL if the packet was not sent. */
static const struct sent *find_sent(unsigned ant, unsigned pol, int64_t packet)
{
    const struct stretch *stretch = find_stretch(packet);

    if (!stretch || stretch->sent[ant][pol][packet - stretch->first].n_sent == 0)
        return NULL;
    return &stretch->sent[ant][pol][packet - stretch->first];
}

void judge_excuse(unsigned ant, int64_t from_ns, int64_t to_ns)
{
    if (n_excuses == MAX_EXCUSES)
        world_fail("more than %d excuses", MAX_EXCUSES);
    excuses[n_excuses++] = (struct excuse){ant, from_ns, to_ns};
}

static bool is_excused(unsigned ant, int64_t sent_ns)
{
    for (size_t i = 0; i < n_excuses; i++)
        if (excuses[i].ant == ant && sent_ns >= excuses[i].from_ns && sent_ns < excuses[i].to_ns)
            return true;
    return false;
}

int64_t judge_first_read_ns(unsigned ant, unsigned pol, int64_t from_ns)
{
    int64_t first_ns = INT64_MAX / 2;

    for (size_t i = 0; i < n_stretches; i++)
        for (unsigned p = 0; p < MAX_PACKETS; p++) {
            const struct sent *sent = &stretches[i].sent[ant][pol][p];
            if (sent->arrived && sent->sent_ns >= from_ns && sent->sent_ns < first_ns)
                first_ns = sent->sent_ns;
        }
    return first_ns;
}

int64_t judge_first_chunk_ns(unsigned ant, unsigned pol)
{
    int64_t chunk = s.chunk_packets, begin = (s.first_packet + chunk - 1) / chunk * chunk;

    for (; begin < s.first_packet + s.n_packets; begin += chunk) {
        unsigned n = 0;
        int64_t last_ns = 0;
        for (int64_t p = begin; p < begin + chunk; p++) {
            const struct sent *sent = find_sent(ant, pol, p);
            if (!sent || !sent->arrived)
                continue;
            n++;
            last_ns = sent->sent_ns;
        }
        if (4 * n >= 3 * s.chunk_packets)
            return last_ns;
    }
    return INT64_MAX / 2;
}

int64_t judge_last_read_ns(unsigned ant, unsigned pol)
{
    int64_t last_ns = INT64_MIN;

    for (size_t i = 0; i < n_stretches; i++)
        for (unsigned p = 0; p < MAX_PACKETS; p++) {
            const struct sent *sent = &stretches[i].sent[ant][pol][p];
            if (sent->arrived && sent->sent_ns > last_ns)
                last_ns = sent->sent_ns;
        }
    return last_ns;
}

bool judge_span(unsigned ant, unsigned pol, int64_t *first, int64_t *last)
{
    *first = INT64_MAX;
    *last = INT64_MIN;
    for (size_t i = 0; i < n_stretches; i++)
        for (int64_t p = 0; p < MAX_PACKETS; p++) {
            const struct sent *sent = &stretches[i].sent[ant][pol][p];
            if (sent->arrived || sent->may_have_arrived || sent->was_contested || sent->half_arrived) {
                *first = stretches[i].first + p < *first ? stretches[i].first + p : *first;
                *last = stretches[i].first + p > *last ? stretches[i].first + p : *last;
            }
        }
    return *first <= *last;
}

/* ---- Heaps of voltages ------------------------------------------------------------------------------------------- */

/* Returns the heap whose timestamp has these low 48 bits, or NULL. */
static struct heap *find_heap(unsigned ant, unsigned substream, uint64_t wire_timestamp)
{
    for (size_t i = 0; i < n_stretches; i++) {
        uint64_t ahead = (wire_timestamp - (uint64_t)stretches[i].first * PACKET) & (WIRE_PERIOD - 1);
        if (ahead < MAX_PACKETS * PACKET)
            return ahead % BATCH == 0 ? &stretches[i].heaps[ant][substream][ahead / BATCH] : NULL;
    }
    return NULL;
}

void judge_take(void *arg, const uint8_t *bytes, size_t n_bytes)
{
    unsigned substream = (unsigned)(uintptr_t)arg;
    struct wire_packet packet;

    if (!wire_read(bytes, n_bytes, &packet))
        world_fail("fgpu sent a packet that is not SPEAD");
    const struct wire_item *timestamp = wire_find(&packet, WIRE_TIMESTAMP), *feng = wire_find(&packet, WIRE_FENG_ID);
    const struct wire_item *frequency = wire_find(&packet, WIRE_FREQUENCY);
    if (!timestamp || !feng || !frequency || !wire_find(&packet, WIRE_FENG_RAW))
        return; /* a descriptor or a stop */
    s.n_voltage_packets += !network_was_refused();
    struct heap *heap = feng->value < s.n_ants ? find_heap((unsigned)feng->value, substream, timestamp->value) : NULL;
    if (!heap || frequency->value != substream % N_SUBSTREAMS * SUB_CHAN || packet.heap_bytes != HEAP_BYTES)
        world_fail("a heap has the timestamp %llu, F-engine %llu, channel %llu, %llu bytes",
                   (unsigned long long)timestamp->value, (unsigned long long)feng->value,
                   (unsigned long long)frequency->value, (unsigned long long)packet.heap_bytes);
    if (heap->n_times == 0 || heap->n_bytes_left == 0) {
        heap->n_times++;
        heap->n_bytes_left = HEAP_BYTES;
    }
    if (packet.offset + packet.payload_bytes > HEAP_BYTES || packet.payload_bytes > heap->n_bytes_left)
        world_fail("a heap of F-engine %llu has more bytes than its length", (unsigned long long)feng->value);
    memcpy(heap->bytes + packet.offset, packet.payload, packet.payload_bytes);
    heap->n_bytes_left -= packet.payload_bytes;
}

int64_t judge_newest_samples(unsigned ant)
{
    int64_t newest = 0;

    for (size_t i = 0; i < n_stretches; i++)
        for (unsigned k = 0; k < MAX_PACKETS / N_PACKETS; k++) {
            int64_t end = (stretches[i].first + (k + 1) * N_PACKETS) * PACKET;
            for (unsigned substream = 0; substream < N_SUBSTREAMS; substream++)
                if (stretches[i].heaps[ant][substream][k].n_times > 0 && end > newest)
                    newest = end;
        }
    return newest;
}

const uint8_t *judge_heap(unsigned ant, unsigned substream, int64_t batch)
{
    const struct heap *heap = find_heap(ant, substream, (uint64_t)batch * BATCH);

    if (!heap || heap->n_times == 0)
        world_fail("antenna %u, batch %lld is not sent", ant, (long long)batch);
    return heap->bytes;
}

/* ---- Judging a run ----------------------------------------------------------------------------------------------- */

/* The open chunks of an input that falls silent leave while the other polarisation advances by a chunk.  If the
 * network loses whole chunks, these chunks may be late.  Returns true if no packet of a chunk's duration arrived
 * within a window after the packet. */
static bool is_before_silence(unsigned ant, unsigned pol, int64_t packet)
{
    int64_t end = packet + (int64_t)(s.window + 2) * s.chunk_packets, last = find_stretch(packet)->end;
    unsigned n_absent = 0;

    for (int64_t p = packet; p < end && p < last; p++) {
        const struct sent *sent = find_sent(ant, pol, p);
        n_absent = sent && sent->arrived ? 0 : n_absent + 1;
        if (n_absent == s.chunk_packets)
            return true;
    }
    return false;
}

/* fgpu discards a chunk of one polarisation if no packet of the other polarisation arrived in the chunk.  Returns true if
 * this happens to the packet. */
static bool is_discarded(unsigned ant, unsigned pol, int64_t packet)
{
    int64_t begin = packet / s.chunk_packets * s.chunk_packets;

    for (int64_t p = begin; p < begin + s.chunk_packets; p++) {
        const struct sent *other = find_sent(ant, !pol, p);
        if (other && other->arrived)
            return false;
    }
    return true;
}

/* Evidence about a batch, from the packets of its filter windows. */
struct evidence {
    bool whole;       /* all packets arrived in time, and no excuse exists */
    bool lacks;       /* a packet did not arrive, or is contested */
    bool is_suspect;  /* wrong samples may have been taken */
    unsigned n_times; /* how often each packet was sent, at least */
};

/* Returns true if two copies of a packet with different samples certainly arrived while their chunk was open.  The
 * packet then counts as missing. */
static bool is_contested(unsigned ant, unsigned pol, int64_t packet, const struct sent *sent)
{
    return sent->was_contested && sent->contested_in_time && sent->arrived && !sent->late && sent->n_sent == 1 &&
           s.is_prompt && !is_excused(ant, sent->sent_ns) && !(s.is_lossy && is_before_silence(ant, pol, packet));
}

/* Adds the packets of samples [begin, end) of an input to the evidence.  Returns false if a packet was not sent. */
static bool weigh_input(struct evidence *e, unsigned ant, unsigned pol, int64_t begin, int64_t end)
{
    for (int64_t packet = begin / PACKET; packet * PACKET < end; packet++) {
        const struct sent *sent = find_sent(ant, pol, packet);
        if (!sent) {
            *e = (struct evidence){.lacks = true};
            return false;
        }
        bool contested = is_contested(ant, pol, packet, sent);
        e->lacks |= contested || (!sent->arrived && !sent->may_have_arrived && !sent->was_contested);
        e->is_suspect |= sent->was_contested && !contested;
        e->whole &= sent->arrived && !sent->late && !sent->was_contested && sent->n_sent == 1 &&
                    !is_excused(ant, sent->sent_ns) && !(s.is_lossy && is_before_silence(ant, pol, packet));
        e->whole = e->whole && !is_discarded(ant, pol, packet);
        e->n_times = sent->n_sent < e->n_times ? sent->n_sent : e->n_times;
    }
    return true;
}

enum presence judge_presence(unsigned ant, int64_t packet)
{
    struct evidence e = {.whole = s.is_prompt, .n_times = UINT32_MAX};

    for (unsigned pol = 0; pol < 2; pol++)
        if (!weigh_input(&e, ant, pol, packet * PACKET, (packet + 1) * PACKET))
            break;
    return e.lacks ? ABSENT : e.is_suspect ? SUSPECT : e.whole ? PRESENT : UNSURE;
}

/* Weighs a batch whose delays are not all 0.  If a delay is not sure, nothing is sure. */
static struct evidence weigh_delayed(unsigned ant, int64_t batch)
{
    struct evidence e = {.whole = s.is_prompt && !settings_lose(ant, batch * BATCH), .n_times = UINT32_MAX};

    for (unsigned i = 0; i < 2 * N_SPECTRA; i++) {
        struct settings settings;
        int64_t time = batch * BATCH + i / 2 * STEP;
        settings_at(2 * ant + i % 2, time, &settings);
        if (settings.n_delays > 1)
            return (struct evidence){.n_times = 1};
        time -= settings.delays[0];
        if (!weigh_input(&e, ant, i % 2, time, time + N_TAPS * STEP))
            break;
    }
    return e;
}

/* Weighs a batch without delays, whose filter windows reach over 'reach' samples. */
static struct evidence weigh_batch(unsigned ant, int64_t batch, int64_t reach)
{
    struct evidence e = {.whole = s.is_prompt, .n_times = UINT32_MAX};

    for (unsigned pol = 0; pol < 2; pol++)
        if (!weigh_input(&e, ant, pol, batch * BATCH, batch * BATCH + reach))
            break;
    return e;
}

static void check_heap(unsigned ant, unsigned substream, int64_t batch, const struct heap *heap, bool is_suspect)
{
    if (heap->n_bytes_left > 0 && device_faults_failed())
        return; /* the senders drop heaps */
    if (heap->n_bytes_left > 0)
        world_fail("antenna %u, batch %lld: %llu bytes are missing", ant, (long long)batch,
                   (unsigned long long)heap->n_bytes_left);
    n_suspect += is_suspect;
    if (is_suspect)
        world_note("heaps of suspect samples");
    else if (settings_exist() && substream < NARROW)
        model_compare(ant, substream, batch, heap->bytes);
    else if (model_is_known && !model_is_exact(ant, substream, batch, heap->bytes))
        world_fail("antenna %u, batch %lld, substream %u: wrong voltages", ant, (long long)batch, substream);
}

/* Compares the number of times that a batch was sent with the evidence. */
static void check_times(unsigned ant, int64_t batch, unsigned n_times, const struct evidence *e, bool is_narrow)
{
    const char *band = is_narrow ? "narrow" : "wide";

    if (n_times > 0 || e->n_times > 0)
        world_note(is_narrow ? n_times ? "batches sent: narrow" : "batches not sent: narrow"
                   : n_times ? "batches sent: wide"
                             : "batches not sent: wide");
    if (n_times > 0 && e->lacks)
        world_fail("antenna %u, %s batch %lld is sent, and packets are missing", ant, band, (long long)batch);
    if (n_times > e->n_times)
        world_fail("antenna %u, %s batch %lld is sent %u times", ant, band, (long long)batch, n_times);
    if (e->whole)
        world_note(is_narrow ? "batches that must be sent: narrow" : "batches that must be sent: wide");
    if (e->whole && n_times == 0)
        world_fail("antenna %u, %s batch %lld is not sent, and all packets arrived in time", ant, band,
                   (long long)batch);
}

static void check_batch(unsigned ant, int64_t batch)
{
    struct evidence wide = settings_exist() ? weigh_delayed(ant, batch) : weigh_batch(ant, batch, REACH);
    struct evidence narrow = s.has_narrow ? weigh_batch(ant, batch, NARROW_REACH) : (struct evidence){0};
    unsigned n_times[N_HEAPS];

    for (unsigned substream = 0; substream < N_HEAPS; substream++) {
        const struct heap *heap = find_heap(ant, substream, (uint64_t)batch * BATCH);
        n_times[substream] = heap->n_times;
        if (heap->n_times > 0)
            check_heap(ant, substream, batch, heap, substream < NARROW ? wide.is_suspect : narrow.is_suspect);
        if (n_times[substream] != n_times[substream / NARROW * NARROW] && !device_faults_failed())
            world_fail("antenna %u, batch %lld is sent to some substreams only", ant, (long long)batch);
    }
    check_times(ant, batch, n_times[0], &wide, false);
    if (!s.has_narrow)
        return;
    check_times(ant, batch, n_times[NARROW], &narrow, true);
}

/* Checks that the daemon counted each contested packet. */
static void check_contested(void)
{
    uint64_t n = 0;

    for (size_t i = 0; i < n_stretches; i++)
        for (unsigned k = 0; k < 2 * s.n_ants; k++)
            for (unsigned p = 0; p < MAX_PACKETS; p++)
                n += is_contested(k / 2, k % 2, stretches[i].first + p, &stretches[i].sent[k / 2][k % 2][p]);
    if (n > s.n_contested && !device_faults_failed())
        world_fail("%llu packets are contested, and the counter says %llu", (unsigned long long)n,
                   (unsigned long long)s.n_contested);
}

/* Compares the counter of clipped voltages with the clipped voltages of the model. */
static void check_clipped(void)
{
    uint64_t n_least, n_most;

    model_count_clipped(&n_least, &n_most);
    if (!settings_exist() || device_faults_failed() || n_suspect > 0)
        return;
    if (s.n_clipped_voltages < n_least || s.n_clipped_voltages > n_most)
        world_fail("%llu to %llu voltages are clipped, and the counter says %llu", (unsigned long long)n_least,
                   (unsigned long long)n_most, (unsigned long long)s.n_clipped_voltages);
}

void judge_all(void)
{
    for (size_t i = 0; i < n_stretches; i++)
        for (unsigned ant = 0; ant < s.n_ants; ant++)
            for (int64_t p = stretches[i].first; p < stretches[i].first + MAX_PACKETS; p += N_PACKETS)
                if (find_stretch(p) == &stretches[i])
                    check_batch(ant, p / N_PACKETS);
    check_contested();
    check_clipped();
}

void judge_show(void)
{
    for (size_t i = 0; i < n_stretches; i++) {
        fprintf(stderr, "packets from %lld on\n", (long long)stretches[i].first);
        for (unsigned k = 0; k < 2 * s.n_ants; k++) {
            for (unsigned p = 0; p < MAX_PACKETS; p++) {
                const struct sent *sent = &stretches[i].sent[k / 2][k % 2][p];
                fputc(!sent->n_sent ? '-' : !sent->arrived ? 'x' : sent->late ? 'l' : '.', stderr);
            }
            fputc('\n', stderr);
        }
    }
}
