/* fuzz_models.c - delay models and gates that are set while time jumps.  For each output time the choice equals the
 * choice of a search through all models that are kept.  Earlier questions do not matter.
 *
 * The models here are plain: a list of all settings in their order, and a loop over the list for each question.
 * Input: commands. */
#include "fgpu/delay.h"
#include "tests/fuzz/fuzz_input.h"
#include "xbgpu/config/config.h"
#include "xbgpu/gate_schedule.h"

#include <errno.h>
#include <math.h>

enum { COMMANDS_MAX = 1000, SPECTRA_MAX = 64 };
#define TIME_MAX (INT64_C(1) << 60)

/* A time near 'now', or anywhere. */
static int64_t take_time(struct fuzz_input *input, int64_t now)
{
    unsigned how = fuzz_u8(input);
    int64_t time = now + fuzz_i8(input) * (INT64_C(1) << (how & 63) % 56);

    return time < 0 ? -(time % TIME_MAX) : time % TIME_MAX;
}

/* ---- Delays ------------------------------------------------------------------------------------------------------ */

static struct fgpu_delay_queue queue;
static struct {
    struct fgpu_delay_model model;
    bool kept;
} all[COMMANDS_MAX];
static size_t n_all;

/* The kept model with the latest start at or before that time; NULL: none has started. */
static const struct fgpu_delay_model *find_model(int64_t time)
{
    const struct fgpu_delay_model *found = NULL;

    for (size_t i = 0; i < n_all; i++)
        if (all[i].kept && all[i].model.start_samples <= time &&
            (!found || all[i].model.start_samples > found->start_samples))
            found = &all[i].model;
    return found;
}

static size_t count_kept(void)
{
    size_t n = 0;

    for (size_t i = 0; i < n_all; i++)
        n += all[i].kept;
    return n;
}

static void check_delay(int64_t time)
{
    const struct fgpu_delay_model *expected = find_model(time), *chosen = fgpu_delay_queue_model(&queue, time);
    struct fgpu_delay_values values = fgpu_delay_queue_at(&queue, time, 1);

    assert(chosen->start_samples <= time);
    if (!expected) {
        assert(values.coarse_samples == 0 && values.fine_samples == 0 && values.phase_rad == 0);
        return;
    }
    assert(memcmp(chosen, expected, sizeof(*expected)) == 0);
    long double r = (long double)(time - expected->start_samples);
    long double exact = expected->delay_samples + expected->rate * r;
    long double rounding = 1e-12L * (fabsl(expected->delay_samples) + fabsl(expected->rate * r)) + 1e-9L;
    long double delay = (long double)values.coarse_samples + (long double)values.fine_samples;
    assert(fabsl(delay - exact) <= rounding);
    assert(fabs(values.fine_samples) <= 0.5 && values.phase_rad >= -M_PI && values.phase_rad < M_PI);
}

/* On a grid the window starts at a multiple, and the delay is the same. */
static void check_grid(int64_t time, int64_t grid)
{
    struct fgpu_delay_values plain = fgpu_delay_queue_at(&queue, time, 1),
                             values = fgpu_delay_queue_at(&queue, time, grid);

    assert((time - values.coarse_samples) % grid == 0);
    assert(fabs(values.fine_samples) <= (double)grid / 2);
    assert(fabs((double)(values.coarse_samples - plain.coarse_samples) + values.fine_samples - plain.fine_samples) <
           1e-9);
}

static void set_delay(struct fuzz_input *input, int64_t now)
{
    struct fgpu_delay_model model = {.start_samples = take_time(input, now)};
    size_t n_before = 0;

    model.delay_samples = fuzz_i8(input) * 0.75;
    model.rate = fuzz_i8(input) / 1024.0;
    model.phase_rad = fuzz_i8(input) / 20.0;
    for (size_t i = 0; i < n_all; i++)
        n_before += all[i].kept && all[i].model.start_samples < model.start_samples;
    int err = fgpu_delay_queue_add(&queue, &model);
    assert(err == (n_before + 1 < DELAY_MAX_MODELS ? 0 : -ENOSPC));
    if (err)
        return;
    for (size_t i = 0; i < n_all; i++)
        all[i].kept &= all[i].model.start_samples < model.start_samples;
    all[n_all].model = model;
    all[n_all++].kept = true;
}

/* The oldest goes only where nothing from that time on is decided by it. */
static void forget_delay(int64_t time)
{
    size_t oldest = SIZE_MAX, n_started = 0;

    for (size_t i = 0; i < n_all; i++) {
        if (!all[i].kept)
            continue;
        n_started += all[i].model.start_samples <= time;
        if (oldest == SIZE_MAX || all[i].model.start_samples < all[oldest].model.start_samples)
            oldest = i;
    }
    bool forgotten = fgpu_delay_queue_forget_oldest(&queue, time);
    assert(forgotten == (n_started >= 2));
    if (forgotten)
        all[oldest].kept = false;
}

static void check_skip(struct fuzz_input *input, int64_t start)
{
    const struct fgpu_delay_queue *queues[] = {&queue};
    int64_t first = take_time(input, start), align = 1 + fuzz_u8(input);
    int64_t skipped = fgpu_delay_skip(queues, &first, 1, 1, start, align);

    if (skipped == INT64_MAX)
        return;
    assert(skipped % align == 0 && skipped >= start);
    assert(skipped - fgpu_delay_queue_at(&queue, skipped, 1).coarse_samples >= first);
    /* No earlier multiple would do, where a double counts samples exactly.  Looks at near ones and some far ones. */
    if (skipped >= INT64_C(1) << 50)
        return;
    for (int64_t back = 1; back <= 64; back++) {
        int64_t time = skipped - (back <= 32 ? back : (INT64_C(1) << (back - 32))) * align;
        if (time >= start)
            assert(time - fgpu_delay_queue_at(&queue, time, 1).coarse_samples < first);
    }
}

/* ---- Gates ------------------------------------------------------------------------------------------------------- */

static struct xbgpu_gate_schedule gating;
static struct xbgpu_layout layout;
static struct {
    int64_t from, epoch, period, on_from, on_length;
    bool kept;
} gates[COMMANDS_MAX + 1];
static size_t n_gates;

static struct xbgpu_gate *make_gate(size_t i, const struct xbgpu_config *config)
{
    struct xbgpu_gate *gate;
    const struct xbgpu_config_gate keys = {
        .kind = XBGPU_GATE_SWITCH,
        .epoch_samples = gates[i].epoch,
        .period_samples = gates[i].period,
        .on_from_samples = gates[i].on_from,
        .on_until_samples = (gates[i].on_from + gates[i].on_length) % gates[i].period,
    };

    assert(xbgpu_gate_create(&keys, config, &gate) == 0);
    return gate;
}

/* The kept gate with the latest beginning at or before that time. */
static size_t find_gate(int64_t time)
{
    size_t found = SIZE_MAX;

    for (size_t i = 0; i < n_gates; i++)
        if (gates[i].kept && gates[i].from <= time && (found == SIZE_MAX || gates[i].from > gates[found].from))
            found = i;
    return found;
}

static bool is_taken(int64_t time)
{
    size_t i = find_gate(time);
    int64_t place = (time - gates[i].epoch - gates[i].on_from) % gates[i].period;

    return (place < 0 ? place + gates[i].period : place) < gates[i].on_length;
}

static void draw_gate(struct fuzz_input *input, int64_t from)
{
    int64_t period = 2 + fuzz_u16(input), on_from = fuzz_u16(input) % period;

    gates[n_gates].from = gates[n_gates].epoch = from;
    gates[n_gates].period = period;
    gates[n_gates].on_from = on_from;
    gates[n_gates].on_length = 1 + fuzz_u16(input) % (period - 1);
    gates[n_gates++].kept = true;
}

/* The earliest of the kept gates; SIZE_MAX: there is none. */
static size_t find_earliest(void)
{
    size_t found = SIZE_MAX;

    for (size_t i = 0; i < n_gates; i++)
        if (gates[i].kept && (found == SIZE_MAX || gates[i].from < gates[found].from))
            found = i;
    return found;
}

static void set_gate(struct fuzz_input *input, const struct xbgpu_config *config, int64_t now)
{
    int64_t from = take_time(input, now), listed = take_time(input, now);
    size_t n_kept = 0;

    /* Gates from its time on give way, and those that wait.  The first one begins before all times. */
    for (size_t i = 0; i < n_gates; i++) {
        gates[i].kept &= gates[i].from == INT64_MIN || (gates[i].from < from && gates[i].from <= listed);
        n_kept += gates[i].kept;
    }
    draw_gate(input, from);
    if (n_kept == GATING_MAX_CHANGES) {
        gates[find_earliest()].kept = false;
        gates[find_earliest()].from = INT64_MIN;
    }
    struct xbgpu_gate *gate = make_gate(n_gates - 1, config);
    xbgpu_gate_schedule_set(&gating, 0, &gate, from, listed);
    xbgpu_gate_destroy(gate);
}

static void check_list(struct fuzz_input *input, int64_t time)
{
    const struct xbgpu_gate_schedule_entry *entry = &gating.gates[0];
    size_t n_batches = 1 + fuzz_u8(input) % 3, n_spectra = 1 + fuzz_u8(input) % (SPECTRA_MAX / 3);
    int64_t step = 1 + fuzz_u16(input);
    uint32_t spectra[SPECTRA_MAX], ends[4];
    size_t n = 0;
    size_t most =
        xbgpu_gate_list(entry->changes, entry->n, time, step, n_spectra, n_batches, SPECTRA_MAX, spectra, ends);

    for (size_t i = 0; i < n_batches * n_spectra; i++) {
        if (i % n_spectra == 0)
            assert(ends[i / n_spectra] == n);
        if (is_taken(time + (int64_t)i * step)) {
            assert(n < most && spectra[n] == i);
            n++;
        }
    }
    assert(n == most && ends[n_batches] == n);
}

/* ---- Commands ---------------------------------------------------------------------------------------------------- */

static void run(struct fuzz_input *input, const struct xbgpu_config *config)
{
    int64_t now = 0;

    for (int i = 0; i < COMMANDS_MAX && !fuzz_ended(input); i++)
        switch (fuzz_u8(input) & 7) {
        case 0: now = take_time(input, now); break;
        case 1: set_delay(input, now); break;
        case 2: forget_delay(take_time(input, now)); break;
        case 3: check_delay(take_time(input, now)); break;
        case 4: check_grid(take_time(input, now), 1 + fuzz_u8(input)); break;
        case 5: check_skip(input, take_time(input, now)); break;
        case 6: set_gate(input, config, now); break;
        default: check_list(input, take_time(input, now)); break;
        }
    assert(queue.n == 1 + count_kept());
    check_delay(now);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const struct xbgpu_config_gate configured = {
        .kind = XBGPU_GATE_SWITCH, .period_samples = 1000, .on_until_samples = 400};
    static struct xbgpu_config config = {.gates = {.n = 1, .items = (void *)&configured}};
    struct fuzz_input input = {data, n_bytes};

    config.time.adc_sample_rate_hz = (struct decimal){1000000000, 0};
    layout.n_gates = 1;
    fgpu_delay_queue_init(&queue);
    n_all = 0;
    gates[0].from = INT64_MIN;
    gates[0].epoch = 0;
    gates[0].period = 1000;
    gates[0].on_from = 0;
    gates[0].on_length = 400;
    gates[0].kept = true;
    n_gates = 1;
    assert(xbgpu_gate_schedule_init(&gating, &config, &layout, NULL) == 0);
    run(&input, &config);
    xbgpu_gate_schedule_fini(&gating);
    return 0;
}
