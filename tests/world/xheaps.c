/* xheaps.c - the voltages of xworld's F-engines, and the fates of their heaps.  See xworld.h. */
#include "tests/world/network.h"
#include "tests/world/sched.h"
#include "tests/world/wire.h"
#include "tests/world/xworld.h"

#include <string.h>

#define HEAP_BYTES (MAX_SPECTRA * 4)

/* A heap that an F-engine sent. */
struct heap {
    int64_t sent_ns, last_read_ns;
    unsigned parts_read; /* bit k: part k was read whole */
    unsigned parts_late; /* bit k: every copy of part k that was read was read late */
    bool is_suspect;     /* without a CRC, a packet with a flipped bit may have become a part of this heap */
};

struct part {
    struct heap *heap;
    unsigned number;
    unsigned socket; /* of the receive thread that processes the F-engine */
};

static struct heap heaps[MAX_ANTS][MAX_BATCHES];
static struct part parts[MAX_ANTS][MAX_BATCHES][MAX_PARTS];

void heaps_forget(void)
{
    memset(heaps, 0, sizeof(heaps));
}

int64_t batch_of(unsigned b)
{
    return s.first_batch + b + (b >= s.jump_at ? s.jump_batches : 0);
}

int64_t place_of(int64_t batch)
{
    int64_t b = batch - s.first_batch, before_jump = s.jump_at;

    if (s.jump_batches == 0)
        return b;
    if (b < before_jump + s.jump_batches / 2)
        return b < before_jump ? b : MAX_BATCHES;
    return b - s.jump_batches >= before_jump ? b - s.jump_batches : -1;
}

/* ---- Voltages -------------------------------------------------------------------------------------------------------- */

/* The byte that the F-engine sends. */
static int8_t sent_voltage(unsigned ant, int64_t batch, unsigned chan, unsigned spectrum, unsigned pol, unsigned part)
{
    if (s.is_loud && pol == 0)
        return 127;
    uint64_t z = (uint64_t)batch * 0x9E3779B97F4A7C15 + (((ant * 64 + chan) * 64 + spectrum) * 4 + pol * 2 + part);

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return (int8_t)((int)((z >> 40) % 255) - 127);
}

static int shift_of(enum shift_set set, unsigned ant, unsigned pol, int64_t batch)
{
    return set == VIS_SHIFTS && s.has_vis_shifts ? s.vis_shifts[ant][pol] : requests_shift(ant, pol, batch);
}

int8_t voltage(enum shift_set set, unsigned ant, int64_t batch, unsigned chan, unsigned spectrum, unsigned pol,
               unsigned part)
{
    int64_t from = batch * s.n_spectra + spectrum - shift_of(set, ant, pol, batch);

    return sent_voltage(ant, from / s.n_spectra, chan, (unsigned)(from % s.n_spectra), pol, part);
}

static void fill_heap(unsigned ant, int64_t batch, uint8_t *out)
{
    for (unsigned chan = 0; chan < s.n_chan; chan++)
        for (unsigned spectrum = 0; spectrum < s.n_spectra; spectrum++)
            for (unsigned pol = 0; pol < 2; pol++)
                for (unsigned part = 0; part < 2; part++)
                    *out++ = (uint8_t)sent_voltage(ant, batch, chan, spectrum, pol, part);
}

/* ---- F-engines ------------------------------------------------------------------------------------------------------- */

/* Largest age at which a packet is certainly in time: the window, without the chunk that leaves and half a chunk. */
int64_t heaps_in_time_ns(void)
{
    return ((int64_t)s.window - 2) * s.chunk_batches * BATCH_NS + s.chunk_batches * BATCH_NS / 2;
}

/* Without a CRC, xbgpu cannot notice every flipped bit.  Marks the heap that the packet belongs to now. */
static void on_flipped(const struct part *part, const struct network_delivery *delivery)
{
    struct wire_packet packet;

    s.n_flipped_read += s.n_threads == 1; /* other threads ignore the packet before they check its CRC */
    part->heap->is_suspect |= !s.has_crc;
    if (s.has_crc || !wire_read(delivery->bytes, delivery->n_bytes, &packet))
        return;
    const struct wire_item *feng_id = wire_find(&packet, WIRE_FENG_ID), *time = wire_find(&packet, WIRE_TIMESTAMP);
    if (!feng_id || !time || feng_id->value >= s.n_ants || time->value % s.batch_samples != 0)
        return;
    int64_t b = place_of((int64_t)(time->value / s.batch_samples));
    s.time_flipped |= b != (part->heap - heaps[0]) % MAX_BATCHES;
    if (b >= 0 && b < MAX_BATCHES)
        heaps[feng_id->value][b].is_suspect = true;
}

static void on_seen(void *arg, const struct network_delivery *delivery)
{
    const struct part *part = arg;
    struct heap *heap = part->heap;

    if (delivery->was_read && delivery->is_flipped)
        on_flipped(part, delivery);
    if (!delivery->was_read || !delivery->is_whole || delivery->socket != part->socket)
        return;
    heap->parts_read |= 1u << part->number;
    if (delivery->read_ns - heap->sent_ns <= heaps_in_time_ns())
        heap->parts_late &= ~(1u << part->number);
}

/* Threads share F-engines as evenly as possible. */
unsigned thread_of(unsigned ant)
{
    unsigned thread = 0;

    while ((thread + 1) * s.n_ants / s.n_threads <= ant)
        thread++;
    return thread;
}

void heaps_send(struct network_port *port, unsigned ant, unsigned b)
{
    static uint8_t voltages[HEAP_BYTES], bytes[HEAP_BYTES + 256];
    size_t heap_bytes = (size_t)s.n_chan * s.n_spectra * 4, part_bytes = heap_bytes / s.n_parts;
    int64_t batch = batch_of(b);

    heaps[ant][b] = (struct heap){
        .sent_ns = world_now_ns(), .parts_late = (1u << s.n_parts) - 1, .is_suspect = heaps[ant][b].is_suspect};
    fill_heap(ant, batch, voltages);
    for (unsigned k = 0; k < s.n_parts; k++) {
        struct wire_packet packet = {
            .heap_cnt = (uint64_t)b * s.n_ants + ant,
            .heap_bytes = heap_bytes,
            .offset = k * part_bytes,
            .payload_bytes = part_bytes,
            .payload = voltages + k * part_bytes,
            .n_items = s.has_crc ? 5 : 4,
            .items = {{WIRE_TIMESTAMP, false, (uint64_t)(batch * s.batch_samples)},
                      {WIRE_FENG_ID, false, ant},
                      {WIRE_FREQUENCY, false, s.first_chan},
                      {WIRE_FENG_RAW, true, 0},
                      {WIRE_CRC, false, 0}},
        };
        size_t n_bytes = wire_write(&packet, bytes);
        wire_add_crc(bytes, n_bytes);
        parts[ant][b][k] = (struct part){&heaps[ant][b], k, thread_of(ant)};
        network_send(port, bytes, n_bytes, on_seen, &parts[ant][b][k]);
    }
}

bool heaps_were_read(unsigned ant, unsigned b)
{
    return heaps[ant][b].parts_read != 0;
}

bool heaps_arrived(unsigned ant, unsigned b)
{
    return heaps[ant][b].parts_read == (1u << s.n_parts) - 1;
}

bool heaps_heard(unsigned thread, unsigned end)
{
    for (unsigned ant = 0; ant < s.n_ants; ant++)
        for (unsigned b = 0; thread_of(ant) == thread && b < end; b++)
            if (heaps[ant][b].parts_read != 0)
                return true;
    return false;
}

/* Returns the first batch of which a heap arrived. */
static unsigned first_arrived(void)
{
    for (unsigned b = 0; b < s.n_batches; b++)
        for (unsigned ant = 0; ant < s.n_ants; ant++)
            if (heaps_arrived(ant, b))
                return b;
    return s.n_batches;
}

/* The open chunks of an F-engine that falls silent leave while the other F-engines advance by a chunk.  If the network
 * loses whole chunks, these chunks may be late for their sets.  The same holds if the last heaps are lost before all
 * F-engines fall silent.  Returns true if no heap of a chunk's duration arrived within a window after the batch. */
static bool is_before_silence(unsigned ant, unsigned b)
{
    unsigned end = b + (s.window + 2) * s.chunk_batches, n_absent = 0;

    for (unsigned i = b; i < end && (i < s.n_batches || n_absent > 0); i++) {
        n_absent = i < s.n_batches && heaps_arrived(ant, i) ? 0 : n_absent + 1;
        if (n_absent == s.chunk_batches)
            return true;
    }
    return false;
}

/* If the F-engines fall silent at different times, and nothing arrives for longer than a window, the first chunks after
 * the outage may be late, too (docs/reliability.md).  Returns true if an outage ended within a window before the batch. */
static bool is_after_outage(unsigned b)
{
    unsigned reach = (s.window + 2) * s.chunk_batches, n_absent = 0, n_since = UINT32_MAX / 2;

    for (unsigned i = 0; i < b; i++) {
        bool any = false;
        for (unsigned ant = 0; ant < s.n_ants; ant++)
            any |= heaps_arrived(ant, i);
        n_since = n_absent >= s.window * s.chunk_batches ? 0 : n_since + 1;
        n_absent = any ? 0 : n_absent + 1;
    }
    return n_absent >= s.window * s.chunk_batches || n_since < reach;
}

/* A receive thread learns when data are due from half of a chunk's heaps of an F-engine.  After an interruption before,
 * the thread refuses heaps (docs/reliability.md).  Returns true if the thread knows it before the batch's chunk. */
static bool knows_time(unsigned thread, unsigned b)
{
    int64_t chunk = batch_of(b) / s.chunk_batches;

    for (unsigned ant = 0; ant < s.n_ants; ant++) {
        unsigned n = 0; /* heaps of a chunk */
        for (unsigned i = 0; thread_of(ant) == thread && i < b && batch_of(i) / s.chunk_batches < chunk; i++) {
            n = batch_of(i) % s.chunk_batches == 0 ? 0 : n;
            n += heaps_arrived(ant, i);
            if (n >= (s.chunk_batches + 1) / 2)
                return true;
        }
    }
    return false;
}

bool heaps_in_time(unsigned ant, unsigned b)
{
    return heaps_arrived(ant, b) && heaps[ant][b].parts_late == 0 &&
           !(s.is_lossy &&
             (!knows_time(thread_of(ant), b) || is_before_silence(ant, b) || (s.has_silence && is_after_outage(b))));
}

/* The chunk of the first packet that is read becomes the oldest.  Jitter may delay packets of earlier chunks. */
int64_t heaps_begun(void)
{
    return s.first_batch + first_arrived() + network_faults(network_port(SOURCE))->jitter_ns / BATCH_NS + 1 +
           s.chunk_batches;
}

/* A jump is believed after 8 heaps of each F-engine and a window, at the latest.  Then the open chunks leave. */
bool is_near_jump(int64_t b)
{
    int64_t chunk = s.chunk_batches, jitter = network_faults(network_port(SOURCE))->jitter_ns / BATCH_NS + 1;

    return s.jump_batches > 0 && b >= s.jump_at - (s.window + 2) * chunk - jitter &&
           b < s.jump_at + 8 + (2 * s.window + 4) * chunk + 2 * jitter;
}

/* ---- Shifted batches --------------------------------------------------------------------------------------------- */

bool heaps_feed(enum shift_set set, unsigned ant, int64_t batch, int64_t source)
{
    for (unsigned pol = 0; pol < 2; pol++) {
        int64_t first = batch * s.n_spectra - shift_of(set, ant, pol, batch), last = first + s.n_spectra - 1;
        if (source >= first / s.n_spectra && source <= last / s.n_spectra)
            return true;
    }
    return false;
}

bool heaps_have_chunk(int64_t batch)
{
    int64_t first = batch / s.chunk_batches * s.chunk_batches;

    for (int64_t in_chunk = first; in_chunk < first + s.chunk_batches; in_chunk++) {
        int64_t b = place_of(in_chunk);
        for (unsigned ant = 0; b >= 0 && b < s.n_batches && ant < s.n_ants; ant++)
            if (heaps_in_time(ant, (unsigned)b))
                return true;
    }
    return false;
}

bool heaps_suspect(unsigned ant, int64_t batch)
{
    int64_t b = place_of(batch);

    return b >= 0 && b < MAX_BATCHES && heaps[ant][b].is_suspect;
}

static enum presence heap_presence(unsigned ant, int64_t batch)
{
    int64_t b = place_of(batch);

    if (heaps_suspect(ant, batch))
        return UNSURE;
    if (b < 0 || b >= s.n_batches || !heaps_arrived(ant, (unsigned)b))
        return ABSENT;
    return s.is_prompt && !s.time_flipped && !s.is_overloaded && batch >= heaps_begun() && !is_near_jump(b) &&
                   heaps_in_time(ant, (unsigned)b)
               ? PRESENT
               : UNSURE;
}

bool is_suspect(unsigned ant, int64_t batch)
{
    bool suspect = false;

    for (int64_t source = batch - 1; source <= batch + 1; source++)
        suspect |= heaps_feed(BEAM_SHIFTS, ant, batch, source) && heaps_suspect(ant, source);
    return suspect;
}

enum presence presence(unsigned ant, int64_t batch)
{
    enum presence result = heaps_have_chunk(batch) ? PRESENT : UNSURE;

    for (int64_t source = batch - 1; source <= batch + 1; source++) {
        if (!heaps_feed(BEAM_SHIFTS, ant, batch, source))
            continue;
        enum presence of_heap = heap_presence(ant, source);
        result = of_heap == ABSENT || result == ABSENT ? ABSENT : of_heap == UNSURE ? UNSURE : result;
    }
    return result;
}
