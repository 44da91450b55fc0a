/* xbeams.c - computes xbgpu's beams with integers, and compares them with the heaps that xbgpu sent.  See xworld.h.
 *
 * Weights are whole numbers, phases are quarters of a turn and gains are powers of two.  So all sums are exact. */
#include "tests/world/network.h"
#include "tests/world/run.h"
#include "tests/world/sched.h"
#include "tests/world/wire.h"
#include "tests/world/xworld.h"

#include <stdlib.h>
#include <string.h>

#define BF_RAW    0x5000
#define BEAM_ANTS 0x5004
#define POWERS    0x5010
#define FRACTIONS 0x5012
#define BEAM_MASK 0x5080

#define MAX_VOLTAGE_BEAMS 2
#define MAX_HEAP_BYTES    16384

/* A stream: its name, its number in requests_draw(), and its heaps in the order in which they began. */
struct heap {
    int64_t timestamp;
    uint64_t n_bytes, n_bytes_left;
    size_t n_items;
    struct wire_item items[WIRE_MAX_ITEMS];
    uint8_t bytes[MAX_HEAP_BYTES];
};

struct stream {
    const char *name, *endpoint;
    unsigned number, pol;
    bool has_dither;
    struct heap *heaps; /* [n_heaps] */
    size_t n_heaps, max_heaps;
};

static struct {
    struct stream voltages[MAX_VOLTAGE_BEAMS], powers;
    unsigned n_voltages, n_powers; /* n_powers: beams in the stream 'powers'; 0: no such stream */
    bool has_mask;
    unsigned products; /* index of product_names[] */
    unsigned window_spectra, heap_windows, group_channels;
} beams;

static const char *const product_names[] = {"power_0", "power_1", "I", "IQUV"};

/* ---- The scenario ---------------------------------------------------------------------------------------------------- */

static void reset_stream(struct stream *stream, const char *name, const char *endpoint, unsigned number)
{
    *stream = (struct stream){.name = name, .endpoint = endpoint, .number = number};
}

void beams_draw(void)
{
    static const char *const names[] = {"b0", "b1"}, *const endpoints[] = {"239.2.0.2:7148", "239.2.0.3:7148"};
    const char *streams[MAX_STREAMS] = {"vis"}, *steered[MAX_BEAMS];
    unsigned n_streams = 1, n_steered = 0;

    beams.n_voltages = (unsigned)run_draw("beams", MAX_VOLTAGE_BEAMS + 1);
    beams.n_powers = (unsigned)run_draw("detected", 3);
    if (s.is_loud)
        beams.n_voltages = beams.n_powers = 0;
    beams.has_mask = run_draw("mask", 2);
    beams.products = (unsigned)run_draw("products", 4);
    beams.window_spectra = 1 + (unsigned)world_random(40);
    beams.heap_windows = 1 + (unsigned)world_random(4);
    beams.group_channels = 1u << world_random(3);
    while (beams.group_channels > s.n_chan)
        beams.group_channels /= 2;
    for (unsigned i = 0; i < beams.n_voltages; i++) {
        reset_stream(&beams.voltages[i], names[i], endpoints[i], n_streams);
        beams.voltages[i].pol = (unsigned)world_random(2);
        beams.voltages[i].has_dither = world_random(2);
        streams[n_streams++] = steered[n_steered++] = names[i];
    }
    if (beams.n_powers > 0) {
        reset_stream(&beams.powers, "det", "239.2.0.4:7148", n_streams);
        streams[n_streams++] = "det";
    }
    for (unsigned i = 0; i < beams.n_powers; i++)
        steered[n_steered++] = i == 0 ? "det.0" : "det.1";
    requests_draw(streams, n_streams, steered, n_steered);
}

void beams_write_config(FILE *file)
{
    if (beams.n_voltages > 0)
        fprintf(file, "beams:\n");
    for (unsigned i = 0; i < beams.n_voltages; i++)
        fprintf(file, "  - {name: %s, pol: %u, dither: %s, destination: [\"%s\"], send_enabled: true}\n",
                beams.voltages[i].name, beams.voltages[i].pol, beams.voltages[i].has_dither ? "uniform" : "none",
                beams.voltages[i].endpoint);
    if (beams.n_powers > 0)
        fprintf(file,
                "detected:\n"
                "  - {name: det, beams: %u, products: %s, spectra: %u, windows: %u, channels: %u, buffers: %u,\n"
                "     destination: [\"%s\"]}\n",
                beams.n_powers, product_names[beams.products], beams.window_spectra, beams.heap_windows,
                beams.group_channels, s.is_overloaded ? 0 : 600, beams.powers.endpoint);
    fprintf(file, "steering: {antenna_mask: %s, buffers: %u, grid_batches: %u}\n", beams.has_mask ? "true" : "false",
            s.is_overloaded ? 0 : 160, s.grid_batches);
}

static void on_packet(void *arg, const uint8_t *bytes, size_t n_bytes)
{
    struct stream *stream = arg;
    struct wire_packet packet;

    if (!wire_read(bytes, n_bytes, &packet))
        world_fail("%s sent a packet that is not SPEAD", stream->name);
    const struct wire_item *timestamp = wire_find(&packet, WIRE_TIMESTAMP);
    if (!timestamp || (!wire_find(&packet, BF_RAW) && !wire_find(&packet, POWERS)))
        return; /* a descriptor or a stop */
    dumps_check_substream(&packet);
    struct heap *heap = stream->n_heaps > 0 ? &stream->heaps[stream->n_heaps - 1] : NULL;
    if (!heap || heap->n_bytes_left == 0) {
        if (stream->n_heaps == stream->max_heaps) {
            stream->max_heaps = stream->max_heaps ? 2 * stream->max_heaps : 64;
            stream->heaps = realloc(stream->heaps, stream->max_heaps * sizeof(*heap));
            if (!stream->heaps)
                world_fail("out of memory");
        }
        heap = &stream->heaps[stream->n_heaps++];
        *heap = (struct heap){.timestamp = (int64_t)timestamp->value,
                              .n_bytes = packet.heap_bytes,
                              .n_bytes_left = packet.heap_bytes,
                              .n_items = packet.n_items};
        memcpy(heap->items, packet.items, sizeof(heap->items));
    }
    if (packet.offset + packet.payload_bytes > MAX_HEAP_BYTES || packet.payload_bytes > heap->n_bytes_left ||
        (int64_t)timestamp->value != heap->timestamp)
        world_fail("%s: a heap of timestamp %lld has wrong packets", stream->name, (long long)heap->timestamp);
    memcpy(heap->bytes + packet.offset, packet.payload, packet.payload_bytes);
    heap->n_bytes_left -= packet.payload_bytes;
}

void beams_listen(void)
{
    for (unsigned i = 0; i < beams.n_voltages; i++)
        network_listen(network_port(beams.voltages[i].endpoint), on_packet, &beams.voltages[i]);
    if (beams.n_powers > 0)
        network_listen(network_port(beams.powers.endpoint), on_packet, &beams.powers);
}

bool beams_exist(void)
{
    return beams.n_voltages + beams.n_powers > 0;
}

void beams_set_faults(const struct network_faults *faults)
{
    for (unsigned i = 0; i < beams.n_voltages; i++)
        *network_faults(network_port(beams.voltages[i].endpoint)) = *faults;
    if (beams.n_powers > 0)
        *network_faults(network_port(beams.powers.endpoint)) = *faults;
}

static const struct wire_item *find_item(const struct stream *stream, const struct heap *heap, unsigned id)
{
    for (size_t i = 0; i < heap->n_items; i++)
        if (heap->items[i].id == id)
            return &heap->items[i];
    world_fail("%s: the heap of timestamp %lld has no item 0x%x", stream->name, (long long)heap->timestamp, id);
}

/* Returns the heap of a timestamp, or NULL.  Fails the run if there are two. */
static const struct heap *find_heap(const struct stream *stream, int64_t timestamp)
{
    const struct heap *found = NULL;

    for (size_t i = 0; i < stream->n_heaps; i++) {
        if (stream->heaps[i].timestamp != timestamp)
            continue;
        if (found)
            world_fail("%s sent the heap of timestamp %lld twice", stream->name, (long long)timestamp);
        found = &stream->heaps[i];
    }
    if (found && found->n_bytes_left > 0 && s.has_failed)
        return NULL; /* the sender stopped within the heap */
    if (found && found->n_bytes_left > 0)
        world_fail("%s: the heap of timestamp %lld is not whole", stream->name, (long long)timestamp);
    return found;
}

/* ---- The sum over antennas ------------------------------------------------------------------------------------------- */

/* Sets sum[re, im] of one spectrum over the antennas in 'ants', before the gain. */
static void add_antennas(const struct steering *steering, unsigned ants, int64_t batch, unsigned chan, unsigned t,
                         unsigned pol, int64_t sum[2])
{
    static const int cosines[] = {1, 0, -1, 0}, sines[] = {0, 1, 0, -1};

    sum[0] = sum[1] = 0;
    for (unsigned ant = 0; ant < s.n_ants; ant++) {
        int64_t re = voltage(BEAM_SHIFTS, ant, batch, chan, t, pol, 0),
                im = voltage(BEAM_SHIFTS, ant, batch, chan, t, pol, 1);
        int64_t re_steered = steering->weight[ant] * cosines[steering->quarter[ant]];
        int64_t im_steered = steering->weight[ant] * sines[steering->quarter[ant]];
        int gain[2];
        if (!(ants >> ant & 1))
            continue;
        requests_calibration(ant, pol, chan, batch, gain);
        int64_t c = re_steered * gain[0] - im_steered * gain[1], d = re_steered * gain[1] + im_steered * gain[0];
        sum[0] += re * c - im * d;
        sum[1] += re * d + im * c;
    }
}

static int64_t clip(int64_t value, int64_t limit)
{
    return value > limit ? limit : value < -limit ? -limit : value;
}

/* Returns true if 'found' is sum / 2^shift, clipped and rounded. */
static bool rounds_to(int64_t sum, int shift, bool has_dither, int found)
{
    int64_t unit = (int64_t)1 << shift, clipped = clip(sum, 127 * unit), below = clipped >> shift;
    int64_t rest = clipped - below * unit;

    if (has_dither)
        return found == below || (found == below + 1 && rest > 0);
    bool up = 2 * rest > unit || (2 * rest == unit && below % 2 != 0);
    return found == below + up;
}

/* Returns true if heaps may be missing. */
static bool is_incomplete(void)
{
    return s.has_failed || s.is_overloaded;
}

/* ---- Voltage beams --------------------------------------------------------------------------------------------------- */

static bool fits(const struct stream *stream, const struct heap *heap, unsigned ants)
{
    const struct steering *steering = requests_steering(stream->number - 1, heap->timestamp / s.batch_samples);
    const int8_t *found = (const int8_t *)heap->bytes + find_item(stream, heap, BF_RAW)->value;

    for (unsigned chan = 0; chan < s.n_chan; chan++)
        for (unsigned t = 0; t < s.n_spectra; t++) {
            int64_t sum[2];
            add_antennas(steering, ants, heap->timestamp / s.batch_samples, chan, t, stream->pol, sum);
            for (unsigned part = 0; part < 2; part++)
                if (!rounds_to(sum[part], steering->shift, stream->has_dither, *found++))
                    return false;
        }
    return true;
}

/* Checks the heap against each set of antennas that may have been present. */
static void check_values(const struct stream *stream, const struct heap *heap, unsigned sure, unsigned possible)
{
    uint64_t n_ants = find_item(stream, heap, BEAM_ANTS)->value;
    bool found = false;

    for (unsigned ants = 0; ants < 1u << s.n_ants; ants++) {
        bool is_possible =
            (ants & sure) == sure && (ants & ~possible) == 0 && (unsigned)__builtin_popcount(ants) == n_ants;
        if (is_possible && beams.has_mask)
            is_possible = heap->bytes[find_item(stream, heap, BEAM_MASK)->value] == ants;
        found |= is_possible && fits(stream, heap, ants);
    }
    if (!found)
        world_fail("%s: the heap of batch %lld, of %llu antennas, has wrong values", stream->name,
                   (long long)(heap->timestamp / s.batch_samples), (unsigned long long)n_ants);
}

/* Returns the time when the last packet of a batch is sent. */
static int64_t sent_ns(int64_t batch)
{
    return s.begin_ns + place_of(batch) * BATCH_NS;
}

/* Returns the time at which xbgpu has certainly completed the heaps of a batch. */
static int64_t complete_ns(int64_t batch)
{
    return sent_ns(batch) + 2 * (s.window + 4) * s.chunk_batches * BATCH_NS + NS_PER_S;
}

static void check_batch(const struct stream *stream, int64_t batch)
{
    const struct heap *heap = find_heap(stream, batch * s.batch_samples);
    enum presence sends = requests_sends(stream->number, batch * s.batch_samples, sent_ns(batch), complete_ns(batch));
    unsigned sure = 0, possible = 0;
    bool suspect = false;

    for (unsigned ant = 0; ant < s.n_ants; ant++) {
        suspect |= is_suspect(ant, batch);
        sure |= (unsigned)(presence(ant, batch) == PRESENT) << ant;
        possible |= (unsigned)(presence(ant, batch) != ABSENT) << ant;
    }
    if (suspect)
        return;
    if (!heap && sure && sends == PRESENT && !is_incomplete())
        world_fail("%s: there is no heap of batch %lld", stream->name, (long long)batch);
    if (heap && (!possible || sends == ABSENT))
        world_fail("%s: there is a heap of batch %lld, but %s", stream->name, (long long)batch,
                   possible ? "the stream was stopped" : "no antenna's heap arrived");
    world_note(heap ? "beams: exact heaps of voltages" : "beams: no heap of a batch");
    if (heap)
        check_values(stream, heap, sure, possible);
}

/* ---- Detected beams -------------------------------------------------------------------------------------------------- */

static unsigned n_products(void)
{
    return beams.products == 3 ? 4 : 1;
}

/* Adds the powers of one spectrum to sums[product], in squares of 1/256 of a quantisation step. */
static void add_powers(const struct steering *steering, unsigned ants, int64_t batch, unsigned chan, unsigned t,
                       int64_t sums[4])
{
    int64_t x[2], y[2];

    add_antennas(steering, ants, batch, chan, t, 0, x);
    add_antennas(steering, ants, batch, chan, t, 1, y);
    for (unsigned part = 0; part < 2; part++) {
        x[part] = clip(x[part] * (256 >> steering->shift), 32767);
        y[part] = clip(y[part] * (256 >> steering->shift), 32767);
    }
    int64_t xx = x[0] * x[0] + x[1] * x[1], yy = y[0] * y[0] + y[1] * y[1];
    sums[0] += beams.products == 0 ? xx : beams.products == 1 ? yy : xx + yy;
    sums[1] += xx - yy;
    sums[2] += 2 * (x[0] * y[0] + x[1] * y[1]);
    sums[3] += 2 * (x[1] * y[0] - x[0] * y[1]);
}

/* Checks one group of channels of a window.  'ants' are the antennas that are present in each of its batches. */
static void check_powers(const struct heap *heap, unsigned beam, unsigned window, unsigned group,
                         int64_t first_spectrum, const unsigned *ants)
{
    const float *found = (const void *)(heap->bytes + find_item(&beams.powers, heap, POWERS)->value);
    unsigned n_groups = s.n_chan / beams.group_channels;
    int64_t sums[4] = {0};

    for (unsigned i = 0; i < beams.window_spectra; i++) {
        int64_t batch = (first_spectrum + i) / s.n_spectra;
        const struct steering *steering = requests_steering(beams.n_voltages + beam, batch);
        for (unsigned c = 0; c < beams.group_channels; c++)
            add_powers(steering, ants[batch - first_spectrum / s.n_spectra], batch, group * beams.group_channels + c,
                       (unsigned)((first_spectrum + i) % s.n_spectra), sums);
    }
    for (unsigned p = 0; p < n_products(); p++) {
        float value = found[((beam * beams.heap_windows + window) * n_products() + p) * n_groups + group];
        if (value != (float)sums[p])
            world_fail("det.%u, window at spectrum %lld, group %u, product %u: %.9g instead of %lld", beam,
                       (long long)first_spectrum, group, p, (double)value, (long long)sums[p]);
    }
}

static void check_power_window(const struct heap *heap, unsigned window)
{
    const float *fractions = (const void *)(heap->bytes + find_item(&beams.powers, heap, FRACTIONS)->value);
    int64_t first = heap->timestamp / STEP + (int64_t)window * beams.window_spectra, n_present = 0;
    unsigned ants[64] = {0};

    for (unsigned i = 0; i < beams.window_spectra; i++) {
        int64_t batch = (first + i) / s.n_spectra;
        for (unsigned ant = 0; ant < s.n_ants; ant++) {
            if (is_suspect(ant, batch) || presence(ant, batch) == UNSURE) {
                world_note("beams: uncertain windows");
                return;
            }
            ants[batch - first / s.n_spectra] |= (unsigned)(presence(ant, batch) == PRESENT) << ant;
            n_present += presence(ant, batch) == PRESENT;
        }
    }
    float fraction = (float)((double)n_present / (s.n_ants * beams.window_spectra));
    if (fractions[window] - fraction > 1e-6f || fraction - fractions[window] > 1e-6f)
        world_fail("det, window at spectrum %lld: the fraction is %g instead of %g", (long long)first,
                   (double)fractions[window], (double)fraction);
    world_note("beams: exact windows of powers");
    for (unsigned beam = 0; beam < beams.n_powers; beam++)
        for (unsigned group = 0; group < s.n_chan / beams.group_channels; group++)
            check_powers(heap, beam, window, group, first, ants);
}

/* Returns true if a heap of an F-engine is certainly present at this batch or later, before the jump if there is one. */
static bool goes_on(int64_t batch)
{
    for (; place_of(batch) >= 0 && place_of(batch) < s.n_batches; batch++)
        for (unsigned ant = 0; ant < s.n_ants; ant++)
            if (presence(ant, batch) == PRESENT)
                return true;
    return false;
}

/* Checks a heap.  'begun': an earlier heap had data.  The first heap with data is sent only if its first window is whole.
 * The last heap is sent only if data reached its end.  Returns whether the heap certainly has data. */
static bool check_power_heap(int64_t number, bool begun)
{
    int64_t n_spectra = beams.window_spectra * beams.heap_windows, first = number * n_spectra;
    int64_t last_batch = (first + n_spectra - 1) / s.n_spectra;
    const struct heap *heap = find_heap(&beams.powers, first * STEP);
    enum presence sends =
        requests_sends(beams.powers.number, first * STEP, sent_ns(last_batch), complete_ns(last_batch));
    bool any = false;

    for (int64_t batch = first / s.n_spectra; batch <= last_batch; batch++)
        for (unsigned ant = 0; ant < s.n_ants; ant++)
            any |= presence(ant, batch) == PRESENT;
    if (!heap && any && begun && sends == PRESENT && !is_incomplete() && goes_on(last_batch))
        world_fail("det: there is no heap that begins at spectrum %lld", (long long)first);
    if (heap && sends == ABSENT)
        world_fail("det: there is a heap that begins at spectrum %lld, but the stream was stopped", (long long)first);
    for (unsigned window = 0; heap && window < beams.heap_windows; window++)
        check_power_window(heap, window);
    return any;
}

/* Checks the heaps of detected beams in batches that follow each other. */
static void check_power_heaps(int64_t first_batch, int64_t end_batch)
{
    int64_t n_spectra = beams.window_spectra * beams.heap_windows;
    bool begun = false;

    for (int64_t n = first_batch * s.n_spectra / n_spectra; (n + 1) * n_spectra <= end_batch * s.n_spectra; n++)
        begun |= check_power_heap(n, begun);
}

void beams_check(void)
{
    int64_t first_after = batch_of(s.jump_at), n_after = (int64_t)s.n_batches - s.jump_at;

    for (unsigned i = 0; i < beams.n_voltages; i++)
        for (unsigned b = 0; b < s.n_batches; b++)
            check_batch(&beams.voltages[i], batch_of(b));
    if (beams.n_powers == 0)
        return;
    check_power_heaps(s.first_batch, s.first_batch + s.jump_at);
    if (n_after > 0)
        check_power_heaps(first_after, first_after + n_after);
}

static uint64_t count_complete(const struct stream *stream)
{
    uint64_t n = 0;

    for (size_t i = 0; i < stream->n_heaps; i++)
        n += stream->heaps[i].n_bytes_left == 0;
    return n;
}

uint64_t beams_n_sent(void)
{
    uint64_t n = beams.n_powers > 0 ? count_complete(&beams.powers) : 0;

    for (unsigned i = 0; i < beams.n_voltages; i++)
        n += count_complete(&beams.voltages[i]);
    return n;
}

void beams_end(void)
{
    for (unsigned i = 0; i < beams.n_voltages; i++)
        free(beams.voltages[i].heaps);
    if (beams.n_powers > 0)
        free(beams.powers.heaps);
}
