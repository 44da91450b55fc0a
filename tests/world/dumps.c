/* dumps.c - see dumps.h. */
#include "tests/world/dumps.h"

#include "tests/world/sched.h"

#include <string.h>

struct dumps dumps;

/* The recorder's window, as far as it is certain. */
static struct {
    bool started;
    bool known;        /* a heap is complete, so the recorder knows when data are due */
    bool is_uncertain; /* nothing is promised until the next epoch */
    bool settles;      /* an epoch has begun, and the recorder may not have followed yet */
    unsigned epoch;
    int64_t oldest; /* dumps with this number and later numbers are certainly accepted */
    bool was_heard[DUMPS_MAX_SUBSTREAMS];
    int64_t heard_ns[DUMPS_MAX_SUBSTREAMS]; /* last packet near the window */
} window;

/* ---- Contents --------------------------------------------------------------------------------------------------- */

enum what { VISIBILITY, MARK, WEIGHT, SELECTED };

/* A pseudo-random word. */
static uint32_t word(enum what what, unsigned dump, unsigned substream, unsigned chan, unsigned baseline, unsigned part)
{
    uint64_t z = ((((uint64_t)what * 64 + dump) * 8 + substream) * 8 + chan) * 1024 + baseline * 16 + part;

    z = (z + 1) * 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return (uint32_t)(z >> 32);
}

/* Returns the real (part 0) or imaginary part of product p as 32 bits. */
static uint32_t visibility(unsigned dump, unsigned s, unsigned chan, unsigned baseline, unsigned p, unsigned part,
                           bool is_forged)
{
    bool is_marked = !is_forged && baseline > 0 && word(MARK, dump, s, 0, baseline, 0) % 16 == 0;
    int32_t value = (int32_t)word(VISIBILITY, dump, s, chan, baseline, 2 * p + part) / 2 + is_forged;
    float real = (float)(value / 256);
    uint32_t bits;

    if (!dumps.shape.real)
        return !is_marked ? (uint32_t)value : part == 0 ? 0x80000000 : 1;
    memcpy(&bits, &real, sizeof(bits));
    return is_marked ? 0x7FC00000 : is_forged ? bits ^ 1 : bits;
}

/* Returns the number of spectra of a baseline, or of a gate in a channel. */
static uint32_t count(enum what what, unsigned dump, unsigned s, unsigned chan, unsigned baseline)
{
    uint32_t random = word(what, dump, s, chan, baseline, 0);

    /* The first value of a heap is never flagged, so that the file shows whether the heap is missing. */
    return random % 8 == 0 && (chan > 0 || baseline > 0) ? 0
           : random % 4 == 0                             ? DUMPS_N_SPECTRA
                                                         : 1 + random / 8 % DUMPS_N_SPECTRA;
}

static uint8_t *put(uint8_t *out, uint32_t value)
{
    for (int byte = 0; byte < 4; byte++)
        *out++ = (uint8_t)(value >> 8 * byte);
    return out;
}

size_t dumps_weights_offset(void)
{
    return (size_t)dumps.shape.n_chan * dumps.shape.n_baselines * 32;
}

static unsigned n_weight_rows(void)
{
    return !dumps.shape.weights ? 0 : dumps.shape.gate_channels ? dumps.shape.n_chan : 1;
}

size_t dumps_gate_offset(void)
{
    return dumps_weights_offset() + (size_t)n_weight_rows() * dumps.shape.n_baselines * 4;
}

void dumps_fill_heap(unsigned dump, unsigned substream, bool is_forged, uint8_t *out)
{
    const struct dumps_shape *shape = &dumps.shape;

    for (unsigned chan = 0; chan < shape->n_chan; chan++)
        for (unsigned baseline = 0; baseline < shape->n_baselines; baseline++)
            for (unsigned i = 0; i < 8; i++)
                out = put(out, visibility(dump, substream, chan, baseline, i / 2, i % 2, is_forged));
    for (unsigned row = 0; row < n_weight_rows(); row++)
        for (unsigned baseline = 0; baseline < shape->n_baselines; baseline++)
            out = put(out, count(WEIGHT, dump, substream, row, baseline));
    for (unsigned chan = 0; shape->gate && chan < shape->n_chan; chan++)
        out = put(out, count(SELECTED, dump, substream, chan, 0));
}

struct dumps_value dumps_expect(unsigned dump, unsigned substream, unsigned chan, unsigned ant_1, unsigned ant_2,
                                unsigned pol, bool is_forged)
{
    static const unsigned products[4] = {0, 3, 2, 1}; /* p1 + 2 * p2 of xx, yy, xy, yx */
    const struct dumps_shape *shape = &dumps.shape;
    unsigned baseline = ant_2 * (ant_2 + 1) / 2 + ant_1, p = products[pol];
    uint32_t re = visibility(dump, substream, chan, baseline, p, 0, is_forged);
    uint32_t im = visibility(dump, substream, chan, baseline, p, 1, is_forged);
    uint32_t n = shape->weights ? count(WEIGHT, dump, substream, shape->gate_channels ? chan : 0, baseline)
                 : shape->gate  ? count(SELECTED, dump, substream, chan, 0)
                                : DUMPS_N_SPECTRA;
    bool is_marked = shape->real ? re == 0x7FC00000 : re == 0x80000000 && im == 1;

    if (is_marked || n == 0)
        return (struct dumps_value){.is_flagged = true};
    im = shape->real ? im ^ 0x80000000 : 0u - im;
    return (struct dumps_value){re, im, false, (float)n / DUMPS_N_SPECTRA};
}

void dumps_begin(const struct dumps_shape *wanted, unsigned n_parts)
{
    struct dumps_shape *shape = &dumps.shape;

    memset(&dumps, 0, sizeof(dumps));
    memset(&window, 0, sizeof(window));
    *shape = *wanted;
    shape->n_baselines = shape->n_ants * (shape->n_ants + 1) / 2;
    shape->heap_bytes = dumps_gate_offset() + (shape->gate ? shape->n_chan * 4 : 0);
    shape->part_bytes = (shape->heap_bytes / n_parts + 7) / 8 * 8;
    shape->n_parts = (unsigned)((shape->heap_bytes + shape->part_bytes - 1) / shape->part_bytes);
}

/* ---- Fates ------------------------------------------------------------------------------------------------------ */

static unsigned all_parts(void)
{
    return (1u << dumps.shape.n_parts) - 1;
}

bool dumps_arrived(unsigned dump, unsigned substream)
{
    const struct dumps_heap *heap = &dumps.heaps[dump][substream];

    return (heap->read | heap->forged) == all_parts();
}

bool dumps_promised(unsigned dump, unsigned substream)
{
    const struct dumps_heap *heap = &dumps.heaps[dump][substream];

    return dumps.shape.is_prompt && heap->in_time == all_parts() && heap->forged == 0;
}

bool dumps_contested(unsigned dump, unsigned substream)
{
    const struct dumps_heap *heap = &dumps.heaps[dump][substream];

    size_t part_bytes = dumps.shape.part_bytes;

    /* The last parts may have no visibilities.  Their forged copies are then the same. */
    unsigned differing = (1u << (dumps_weights_offset() + part_bytes - 1) / part_bytes) - 1;
    return dumps.shape.is_prompt && (heap->in_time & heap->forged_in_time & differing) != 0;
}

/* After a jump, the recorder needs heaps of three dumps, and a silence of a window at the old time.  The dump in which
 * it follows may be incomplete. */
static unsigned n_settling(void)
{
    return (dumps.shape.window > 2 ? dumps.shape.window : 2) + 2;
}

/* Returns true if all heaps arrived of the dumps in which the recorder follows the jump before 'dump'. */
static bool settled_cleanly(unsigned dump)
{
    for (unsigned i = dump; i > 0 && dumps.epochs[i - 1] == dumps.epochs[dump];) {
        i--;
        for (unsigned s = 0; s < dumps.shape.n_substreams; s++)
            if (dumps.heaps[i][s].read != all_parts() || dumps.heaps[i][s].forged != 0)
                return false;
    }
    return true;
}

static unsigned first_of_epoch(unsigned dump)
{
    while (dump > 0 && dumps.epochs[dump - 1] == dumps.epochs[dump])
        dump--;
    return dump;
}

/* Follows a jump.  Returns true once the recorder has certainly followed. */
static bool has_settled(unsigned dump)
{
    if (dumps.epochs[dump] > window.epoch) {
        window.epoch = dumps.epochs[dump];
        window.settles = true;
        window.is_uncertain = true;
    }
    if (window.settles && dump >= first_of_epoch(dump) + n_settling()) {
        window.settles = false;
        window.is_uncertain = !settled_cleanly(dump);
        window.oldest = dumps.numbers[dump];
        window.started = window.known = true;
        world_note(window.is_uncertain ? "jumps with losses" : "jumps followed in time");
    }
    return !window.settles;
}

/* Moves the window to a dump as the recorder does.  Returns true if the dump is certainly accepted. */
static bool accept_dump(unsigned dump)
{
    int64_t number = dumps.numbers[dump], n = dumps.shape.window;

    if (dumps.epochs[dump] < window.epoch || !has_settled(dump))
        return false;
    if (!window.started)
        window.oldest = number;
    window.started = true;
    if (number > window.oldest + n && !window.known)
        window.is_uncertain = true; /* perhaps too far ahead for the recorder */
    if (number >= window.oldest + n)
        window.oldest = number == window.oldest + n ? window.oldest + 1 : number;
    return number >= window.oldest && !window.is_uncertain;
}

static void take_data(const struct dumps_packet *packet, int64_t read_ns)
{
    struct dumps_heap *heap = &dumps.heaps[packet->dump][packet->substream];
    unsigned bit = 1u << packet->part;
    bool is_in_time = accept_dump(packet->dump);

    heap->last_read_ns = read_ns;
    *(packet->kind == DUMPS_FORGED ? &heap->forged : &heap->read) |= bit;
    if (is_in_time)
        *(packet->kind == DUMPS_FORGED ? &heap->forged_in_time : &heap->in_time) |= bit;
    if (heap->in_time == all_parts() && heap->forged == 0)
        window.known = true;
    if (is_in_time) {
        window.was_heard[packet->substream] = true;
        window.heard_ns[packet->substream] = read_ns;
    }
}

static bool was_heard(unsigned substream, int64_t since_ns)
{
    return window.was_heard[substream] && window.heard_ns[substream] > since_ns;
}

static bool was_heard_lately(unsigned substream, int64_t now_ns)
{
    return was_heard(substream, now_ns - (int64_t)dumps.shape.window * DUMPS_NS * 9 / 10);
}

/* The clock refuses a false time while the recorder's window agrees with the clock. */
static bool clock_refuses(int64_t now_ns)
{
    bool agrees = false;

    for (unsigned s = 0; s < dumps.shape.n_substreams; s++)
        agrees |= was_heard(s, now_ns - DUMPS_CLOCK_NS);
    return dumps.shape.has_clock && agrees;
}

/* A false time is safe to ignore while its substream has been heard at the true time, or another substream in the case
 * of a single substream that went astray. */
static void take_far(const struct dumps_packet *packet, int64_t read_ns)
{
    bool is_safe = clock_refuses(read_ns) || (!packet->is_astray && was_heard_lately(packet->substream, read_ns));

    for (unsigned s = 0; packet->is_astray && s < dumps.shape.n_substreams; s++)
        is_safe |= s != packet->substream && was_heard_lately(s, read_ns);
    if (is_safe && dumps.shape.is_prompt && !window.is_uncertain)
        return;
    dumps.is_unsafe = window.is_uncertain = true;
}

void dumps_seen(void *arg, const struct network_delivery *delivery)
{
    const struct dumps_packet *packet = arg;

    if (!delivery->was_read)
        return;
    if (packet->kind == DUMPS_STRANGER || delivery->is_whole)
        dumps.n_read[packet->kind]++; /* a stranger's packet is not looked at */
    else if (delivery->is_flipped)
        dumps.n_flipped++;
    else
        dumps.n_read[DUMPS_MALFORMED]++; /* truncated */
    if (!delivery->is_whole)
        return;
    if (packet->kind == DUMPS_FAR)
        take_far(packet, delivery->read_ns);
    else if (packet->kind == DUMPS_GENUINE || packet->kind == DUMPS_FORGED)
        take_data(packet, delivery->read_ns);
}
