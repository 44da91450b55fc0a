/* fuzz_walk.c - an output's path through inputs of any times, gaps and losses, while delays, gains and restarts come
 * between.  The target checks which batches are made, sent and dropped, and the voltages in them.
 *
 * The model here places one spectrum after the other.  The input is constant.  So the channel at 0 Hz is the sum of the
 * filter's weights times the gain, turned by pi / 2 for each sample of delay, plus the phase.
 * Input: commands. */
#include "common/device/device.h"
#include "common/base/inbox.h"
#include "fgpu/input/presence.h"
#include "common/base/units.h"
#include "common/engine/engine.h"
#include "fgpu/input/device_input.h"
#include "fgpu/output.h"
#include "tests/fuzz/fuzz_input.h"

#include <complex.h>
#include <math.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    COMMANDS_MAX = 60,
    N_CHAN = 64,
    N_TAPS = 2,
    SPACING = 128,
    WINDOW = 256,
    SPECTRA = 16,
    BUFFER_BATCHES = 2,
    PACKET = 256,
    SAMPLE = 20,
    N_BUFFERS = 16,
    MADE_MAX = 64
};
#define BATCH (INT64_C(1) * SPACING * SPECTRA)
#define CHUNK INT64_C(8192)

static const char yaml[] = "time: {sync_time: 0, adc_sample_rate: 1e9}\n"
                           "device: {kind: cpu}\n"
                           "recv: {packet_samples: 256, chunk_samples: 8192, max_delay_diff: 512, sample_bits: 8}\n"
                           "antennas: [{name: a, feng_id: 0, pol0: 239.1.0.0, pol1: 239.1.0.1}]\n"
                           "outputs: [{name: w, channels: 64, spectra_per_heap: 16, taps: 2, buffers: 16,\n"
                           "           dither: none, gain: 1, batches_per_buffer: 2, destinations: 239.2.0.0}]\n"
                           "send: {pcap_file: /dev/null}\n";

static struct fgpu_config config;
static struct config *book; /* the values refer to it */
static struct fgpu_layout layout;
static struct device *device;
static struct device_stream *compute, *download;
static struct inbox *worker;
static struct fgpu_stream *stream;
static struct fgpu_output *walk;
static struct fgpu_device_input input;
static size_t n_heaps;

/* ---- Making ------------------------------------------------------------------------------------------------------ */

static void load(void)
{
    char path[64];
    int fd = memfd_create("config", MFD_CLOEXEC);

    assert(fd >= 0 && write(fd, yaml, sizeof(yaml) - 1) == (ssize_t)sizeof(yaml) - 1);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int err = config_load(&fgpu_config_table, path, &config, &book);
    config_print_errors(book, stderr);
    close(fd);
    assert(!err);
}

static void make_input(void)
{
    size_t bytes = fgpu_device_input_bytes(&layout);

    n_heaps = layout.history_heaps + layout.heaps_per_chunk;
    for (unsigned pol = 0; pol < N_POLS; pol++) {
        input.samples[pol] = device_alloc(device, bytes);
        input.present[pol] = malloc(n_heaps);
        input.sums[pol] = calloc(n_heaps + 1, sizeof(uint32_t));
        assert(input.samples[pol] && input.present[pol] && input.sums[pol]);
        memset(input.samples[pol], SAMPLE, bytes); /* the CPU device's memory is ours */
    }
}

static void begin(void)
{
    static const struct fgpu_choice no_choice;
    static struct sensors *sensors;
    static struct fgpu_send *send;
    static struct engine engine;
    char why[600] = "";

    load();
    int err = device_open(&(struct device_config){.kind = DEVICE_CPU, .n_threads = 1}, &device, why, sizeof(why));
    assert(!err);
    fgpu_layout_init(&layout, &config);
    err = device_stream_create(device, "compute", &compute) || device_stream_create(device, "download", &download) ||
          inbox_create(2 * N_BUFFERS, &worker) || sensors_create(&sensors);
    assert(!err);
    engine = (struct engine){.c = {.device = device, .sensors = sensors}, .inbox = worker, .download = download};
    err = fgpu_send_create(&config, &layout, &engine, &send, why, sizeof(why));
    assert(!err);
    stream = fgpu_send_stream(send, 0, 0);
    const struct fgpu_output_config walk_config = {.config = &config,
                                                   .layout = &layout,
                                                   .device = device,
                                                   .compute = compute,
                                                   .download = download,
                                                   .stream = stream,
                                                   .choice = &no_choice};
    err = fgpu_output_create(&walk_config, &walk);
    assert(!err && stream->buffers[0].job.n_groups == BUFFER_BATCHES);
    make_input();
}

/* ---- The model --------------------------------------------------------------------------------------------------- */

struct made {
    int64_t timestamp_samples;
    size_t n_spectra;
    bool missing[BUFFER_BATCHES];
    double complex channel_0[BUFFER_BATCHES * SPECTRA][N_POLS];
};

static struct {
    bool started, filling;
    int64_t next, done;
    struct made buffer;            /* where 'filling' */
    struct made made[MADE_MAX];    /* what ought to come out, and has not */
    size_t n_made, n_free;         /* output buffers that nobody has */
    double gain, new_gain;         /* channel 0 of an input without delay; 0: no new one */
    uint64_t n_dropped, n_skipped; /* batches */
    int64_t skipped_until;
    struct fgpu_delays delays;
} model;

static void model_finish(void)
{
    assert(model.n_made < MADE_MAX);
    model.made[model.n_made++] = model.buffer;
    for (size_t b = 0; b < model.buffer.n_spectra / SPECTRA; b++)
        model.n_skipped += model.buffer.missing[b];
    model.filling = false;
}

static void model_flush(void)
{
    if (!model.filling)
        return;
    if (model.buffer.n_spectra >= SPECTRA) {
        model_finish();
    } else {
        model.filling = false;
        model.n_free++;
    }
}

static void model_restart(void)
{
    model_flush();
    model.started = false;
    model.done = model.skipped_until = 0;
}

static int64_t window_at(int64_t time, unsigned pol)
{
    return time - fgpu_delay_queue_at(&model.delays.pols[pol], time, 1).coarse_samples;
}

static int64_t first_of(unsigned pol)
{
    if (!model.started)
        return input.first_samples[pol];
    return input.timestamp_samples + (input.has_history ? 0 : layout.history_samples);
}

static bool is_early(int64_t time)
{
    return window_at(time, 0) < first_of(0) || window_at(time, 1) < first_of(1);
}

static bool is_late(int64_t time)
{
    return window_at(time, 0) + WINDOW > input.end_samples[0] || window_at(time, 1) + WINDOW > input.end_samples[1];
}

/* Begins at the next batch that there is input for.  Returns whether there is one. */
static bool model_skip(void)
{
    const struct fgpu_delay_queue *const queues[] = {&model.delays.pols[0], &model.delays.pols[1]};
    const int64_t firsts[] = {first_of(0), first_of(1)};
    int64_t next = fgpu_delay_skip(queues, firsts, N_POLS, 1, model.started ? model.next : 0, BATCH);

    model_flush();
    if (next == INT64_MAX)
        return false;
    /* A batch that a wrong delay skipped may be made when that is taken back, but is not counted a second time. */
    int64_t from = model.next / BATCH * BATCH;
    from = from > model.skipped_until ? from : model.skipped_until;
    if (model.started && next > from)
        model.n_skipped += (uint64_t)((next - from) / BATCH);
    model.started = true;
    model.next = next;
    model.skipped_until = next > model.skipped_until ? next : model.skipped_until;
    return true;
}

static bool is_missing(int64_t time, unsigned pol)
{
    int64_t first = (window_at(time, pol) - input.timestamp_samples) / PACKET;
    int64_t last = (window_at(time, pol) + WINDOW - 1 - input.timestamp_samples) / PACKET;
    bool missing = false;

    for (int64_t i = first; i <= last; i++)
        missing |= !input.present[pol][i];
    return missing;
}

static void model_append(void)
{
    size_t s = model.buffer.n_spectra++;

    for (unsigned pol = 0; pol < N_POLS; pol++) {
        struct fgpu_delay_values values = fgpu_delay_queue_at(&model.delays.pols[pol], model.next, 1);
        double turn = M_PI / 2 * ((double)(values.coarse_samples % 4) + values.fine_samples) + values.phase_rad;
        model.buffer.channel_0[s][pol] = model.gain * cexp(I * turn);
        model.buffer.missing[s / SPECTRA] |= is_missing(model.next, pol);
    }
    model.next += SPACING;
    model.done = model.next;
    if (model.buffer.n_spectra == BUFFER_BATCHES * SPECTRA)
        model_finish();
}

/* There is no buffer: all batches that begin in the input, two at a time, are dropped. */
static void model_drop(void)
{
    int64_t n = 0;

    while (n < BUFFER_BATCHES * SPECTRA && !is_early(model.next + n * SPACING) && !is_late(model.next + n * SPACING))
        n++;
    int64_t n_batches = (n + SPECTRA - 1) / SPECTRA;
    model.n_dropped += (uint64_t)n_batches;
    model.next += n_batches * BATCH;
    model.done = model.next;
}

static void model_advance(void)
{
    if (!model.started && !model_skip())
        return;
    for (;;) {
        if (is_early(model.next)) {
            if (!model_skip())
                return;
        } else if (is_late(model.next)) {
            return;
        } else if (model.filling) {
            model_append();
        } else if (model.n_free > 0) {
            model.n_free--;
            model.filling = true;
            model.buffer = (struct made){.timestamp_samples = model.next};
            model.gain = model.new_gain != 0 ? model.new_gain : model.gain;
            model.new_gain = 0;
            model_append();
        } else {
            model_drop();
        }
    }
}

/* ---- What comes out ---------------------------------------------------------------------------------------------- */

static struct fgpu_buffer *held[N_BUFFERS];
static size_t n_held;

static void give_back(size_t n_kept)
{
    while (n_held > n_kept) {
        outbuf_give(&held[--n_held]->base);
        model.n_free++;
    }
}

/* Every buffer that is finished is the next of the model's. */
static void collect(void)
{
    struct inbox_item item;
    size_t n = 0;

    device_stream_wait(compute);
    device_stream_wait(download);
    for (; inbox_try_pop(worker, &item) == 0; n++) {
        struct fgpu_buffer *buffer = item.object;
        const struct made *made = &model.made[n];
        const int8_t *values = (const int8_t *)buffer->voltages; /* [batch][chan][spectrum][pol][2] */
        assert(n < model.n_made && buffer->timestamp_samples == made->timestamp_samples);
        assert(buffer->timestamp_samples % BATCH == 0 && buffer->n_filled == made->n_spectra);
        for (size_t b = 0; b < BUFFER_BATCHES; b++) {
            bool is_sent = b < made->n_spectra / SPECTRA && !made->missing[b];
            assert(buffer->job.groups[b].send == is_sent);
            for (size_t i = 0; i < SPECTRA * N_POLS && is_sent; i++) {
                const int8_t *value = values + b * N_CHAN * SPECTRA * N_POLS * 2 + 2 * i;
                double complex expected = made->channel_0[b * SPECTRA + i / N_POLS][i % N_POLS];
                assert(fabs(value[0] - creal(expected)) <= 0.51 && fabs(value[1] - cimag(expected)) <= 0.51);
            }
        }
        held[n_held++] = buffer;
    }
    assert(n == model.n_made);
    model.n_made = 0;
}

/* ---- Commands ---------------------------------------------------------------------------------------------------- */

/* Sum of the weights, from their definition. */
static double weights_sum(void)
{
    double sum = 0, squares = 0;
    int n = N_TAPS * 2 * N_CHAN;

    for (int i = 0; i < n; i++) {
        double x = M_PI * ((i + 0.5) / (2 * N_CHAN) - N_TAPS / 2.0), s = sin(M_PI * i / (n - 1));
        sum += s * s * sin(x) / x;
        squares += pow(s * s * sin(x) / x, 2);
    }
    return sum / sqrt(squares);
}

static void set_gain(double gain)
{
    struct fgpu_gains *gains = fgpu_output_take_gains(walk);
    int64_t expected = model.started ? model.next : 0;

    assert(gains);
    for (size_t i = 0; i < N_CHAN * N_POLS; i++) {
        gains->values[2 * i] = (float)(gain / (SAMPLE * weights_sum()));
        gains->values[2 * i + 1] = 0;
    }
    if (model.filling)
        expected = model.buffer.timestamp_samples + BUFFER_BATCHES * BATCH;
    model.new_gain = gain;
    assert(fgpu_output_set_gains(walk, gains) == expected);
    assert(fgpu_output_steady_samples(walk) >= expected);
}

/* A delay of some samples, or one that no input has. */
static void set_delay(struct fuzz_input *in, int64_t now)
{
    unsigned how = fuzz_u8(in);
    struct fgpu_delay_model delay = {.start_samples = now + fuzz_i8(in) * (INT64_C(1) << how % 12)};

    delay.start_samples = delay.start_samples < 0 ? 0 : delay.start_samples;
    delay.delay_samples = fuzz_i8(in) * (how & 16 ? 1e10 : how & 32 ? 0.25 : 16);
    delay.rate = fuzz_i8(in) / (how & 64 ? 256.0 : 1e6);
    delay.phase_rad = fuzz_i8(in) / 32.0;
    for (unsigned pol = 0; pol < N_POLS; pol++)
        if ((how & 128) == 0 || pol == 0)
            fgpu_delay_queue_add(&model.delays.pols[pol], &delay);
    int64_t holds = fgpu_output_set_delays(walk, &model.delays);
    if (model.started && !model.filling)
        model.next = (model.done + BATCH - 1) / BATCH * BATCH;
    assert(holds == (model.started ? model.next : 0));
}

/* What arrived of the input, on each polarisation: all, or not those packets, and none behind the end. */
static void draw_presence(struct fuzz_input *in, bool keeps, int64_t n_behind)
{
    for (unsigned pol = 0; pol < N_POLS; pol++) {
        if (keeps)
            memmove(input.present[pol], input.present[pol] + layout.heaps_per_chunk, layout.history_heaps);
        else
            memset(input.present[pol], 0, layout.history_heaps);
        memset(input.present[pol] + layout.history_heaps, 1, layout.heaps_per_chunk);
        for (unsigned n = fuzz_u8(in) & fuzz_u8(in) & 3; n > 0; n--)
            input.present[pol][layout.history_heaps + fuzz_u8(in) % layout.heaps_per_chunk] = 0;
        memset(input.present[pol] + n_heaps - n_behind, 0, (size_t)n_behind);
        fgpu_presence_sums(input.present[pol], n_heaps, input.sums[pol]);
    }
}

/* A chunk at 'timestamp', behind the one before where 'follows'. */
static void advance_to(struct fuzz_input *in, int64_t timestamp, bool follows)
{
    int64_t n_behind = fuzz_u8(in) % 16 == 0 ? fuzz_u8(in) % 32 : 0;

    draw_presence(in, follows, n_behind);
    input.timestamp_samples = timestamp - layout.history_samples;
    input.has_history = follows;
    for (unsigned pol = 0; pol < N_POLS; pol++) {
        int64_t n_leading = 0;
        while (n_leading < (int64_t)layout.heaps_per_chunk && !input.present[pol][layout.history_heaps + n_leading])
            n_leading++;
        input.first_samples[pol] = timestamp + n_leading * PACKET;
        input.end_samples[pol] = timestamp + CHUNK - n_behind * PACKET;
    }
    model_advance();
    assert(fgpu_output_advance(walk, &input, false));
    collect();
    if (fuzz_u8(in) & 128)
        give_back(fuzz_u8(in) % N_BUFFERS);
    else
        give_back(0);
}

static void run(struct fuzz_input *in)
{
    int64_t now = CHUNK * 1000;
    bool follows = false;

    for (int i = 0; i < COMMANDS_MAX && !fuzz_ended(in); i++) {
        unsigned command = fuzz_u8(in) & 7;
        if (command == 0) {
            set_gain(20 + fuzz_u8(in) % 100);
        } else if (command == 1) {
            set_delay(in, now);
        } else if (command <= 3) { /* the time is anything now */
            now += fuzz_i8(in) * CHUNK * (INT64_C(1) << fuzz_u8(in) % 20);
            now = now < CHUNK ? CHUNK : now;
            if (command == 2)
                fgpu_output_flush(walk);
            fgpu_output_restart(walk);
            model_restart();
            follows = false;
        } else if (command == 4) { /* a gap */
            now += fuzz_u8(in) * CHUNK;
            follows = false;
        } else {
            advance_to(in, now, follows);
            now += CHUNK;
            follows = true;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct fuzz_input in = {data, n_bytes};

    if (!walk)
        begin();
    fgpu_output_restart(walk);
    model.started = model.filling = false;
    model.done = model.skipped_until = 0;
    model.n_free = stream->pool.n_free;
    assert(model.n_free == N_BUFFERS && n_held == 0);
    for (unsigned pol = 0; pol < N_POLS; pol++)
        fgpu_delay_queue_init(&model.delays.pols[pol]);
    fgpu_output_set_delays(walk, &model.delays);
    set_gain(50);
    model.n_dropped = model.n_skipped = 0;
    uint64_t n_dropped = counter_get(&stream->dropped_heaps), n_skipped = counter_get(&stream->skipped_heaps);
    run(&in);
    fgpu_output_restart(walk);
    model_restart();
    collect();
    give_back(0);
    assert(counter_get(&stream->dropped_heaps) - n_dropped == model.n_dropped);
    assert(counter_get(&stream->skipped_heaps) - n_skipped == model.n_skipped);
    assert(model.n_free == N_BUFFERS && stream->pool.n_free == N_BUFFERS);
    return 0;
}
