/* bench_fgpu.c - measures the rates of the F-engine on a device, and compares them with the device's limits.
 * Measures the kernels alone, and the chain of uploads, kernels and downloads.
 *
 * Usage: bench_fgpu [--device auto|cpu|cuda] [--channels N[,N...]] [--samples N] [--buffer-samples N]
 *                   [--chunk-samples N] [--repetitions N] [--taps N] [--sample-bits N] [--json FILE]
 *                   [--once | --shapes FILE]
 *   --samples:        samples of each polarisation in one run of the kernels.
 *   --buffer-samples: samples of each polarisation that are transformed together (a whole number of heaps).
 *   --chunk-samples:  samples of each polarisation in one upload of the chain.
 *   --shapes:         measures both kernels together and each kernel alone, with the default shape and with each
 *                     shape in FILE.  A line "CHANNELS NAME=VALUE ..." of FILE names the fields that differ from the
 *                     default shape.  If a line has front_rows, the base is the default shape for this front_rows.
 *   --once:           no timing: runs the kernels once to warm up and once more, for a profiler that counts launches.
 * By default the filter has 16 taps, and input samples have 10 bits.  The output has 8 bits, uniform dither and heaps
 * of 256 spectra.  The input is random.  The default sizes suit a GPU; on the cpu device the sizes are smaller.  A
 * Gsample/s is 10^9 sampling instants of the ADC a second, for both polarisations. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/units.h"
#include "common/base/version.h"
#include "kernels/filterbank/channelise_tuner.h"
#include "scripts/bench/bench.h"
#include "scripts/bench/fgpu_runs.h"
#include "tests/unit/test_random.h"

#include <math.h>
#include <string.h>

#define MAX_SIZES        8
#define SPECTRA_PER_HEAP 256
#define SPECTRA_MIN      16
#define OUT_BITS         8
#define KERNELS_NS       (50 * NS_PER_MS)  /* duration of a repetition */
#define CHAIN_NS         (200 * NS_PER_MS) /* duration of a repetition: much longer than the pipeline's start */
#define RMS_MIN          15.0
#define RMS_MAX          30.0

struct options {
    struct device_config device;
    unsigned n_chan[MAX_SIZES];
    size_t n_sizes;
    size_t run_samples, buffer_samples, chunk_samples; /* 0: a default that depends on the device */
    size_t n_repetitions;
    size_t copy_bytes;
    unsigned n_taps, sample_bits;
    const char *json, *shapes;
    bool once;
};

struct ceilings {
    struct bench_stat copy, up, down, both; /* 10^9 bytes/s; copy: reads + writes; both: in each direction */
};

struct result {
    unsigned n_chan, spectra_per_heap;
    size_t buffer_samples, run_samples, chunk_samples, chain_buffer_samples;
    struct bench_stat kernels, chain, fft; /* 10^9 samples/s */
    double output_rms;
};

static struct bench_stat measure(const struct options *options, bench_time time, void *what, double amount,
                                 int64_t repetition_ns)
{
    return bench_measure(time, what, amount, options->n_repetitions, repetition_ns, SIZE_MAX);
}

/* ---- Ceilings ---------------------------------------------------------------------------------------------------- */

struct copy {
    struct device_stream *stream;
    void *to;
    const void *from;
    size_t n_bytes;
};

static int64_t time_copy(void *what, size_t n)
{
    const struct copy *c = what;
    int64_t start_ns = clock_monotonic_ns();

    for (size_t i = 0; i < n; i++)
        device_copy(c->stream, c->to, c->from, c->n_bytes);
    device_stream_wait(c->stream);
    return clock_monotonic_ns() - start_ns;
}

/* Copies in both directions at the same time.  Returns the time of the slower direction. */
static int64_t time_both(void *what, size_t n)
{
    const struct copy *up = what, *down = up + 1;
    int64_t start_ns = clock_monotonic_ns();

    for (size_t i = 0; i < n; i++) {
        device_copy(up->stream, up->to, up->from, up->n_bytes);
        device_copy(down->stream, down->to, down->from, down->n_bytes);
    }
    device_stream_wait(up->stream);
    device_stream_wait(down->stream);
    return clock_monotonic_ns() - start_ns;
}

static void find_ceilings(const struct options *options, struct device *device, struct ceilings *ceilings)
{
    size_t n = options->copy_bytes;
    void *device_from = bench_alloc(device, n), *device_to = bench_alloc(device, n);
    void *host_from = device_alloc_pinned(device, n), *host_to = device_alloc_pinned(device, n);
    struct device_stream *a, *b;

    if (!host_from || !host_to || device_stream_create(device, "up", &a) || device_stream_create(device, "down", &b))
        bench_fail("there is no memory to measure copies");
    fgpu_runs_fill_random(device, a, device_from, n, RANDOM_BITS);
    device_copy(a, host_from, device_from, n);
    device_stream_wait(a);
    struct copy within = {a, device_to, device_from, n};
    struct copy ways[] = {{a, device_from, host_from, n}, {b, host_to, device_to, n}};
    ceilings->copy = measure(options, time_copy, &within, 2 * (double)n, KERNELS_NS);
    ceilings->up = measure(options, time_copy, &ways[0], (double)n, KERNELS_NS);
    ceilings->down = measure(options, time_copy, &ways[1], (double)n, KERNELS_NS);
    ceilings->both = measure(options, time_both, ways, (double)n, KERNELS_NS);
    device_stream_destroy(a);
    device_stream_destroy(b);
    device_free(device, device_from);
    device_free(device, device_to);
    device_free_pinned(device, host_from);
    device_free_pinned(device, host_to);
}

/* Returns the bytes that cross the device memory's bus per dual-polarisation sample: samples in, voltages out, and
 * n_round_trips intermediate results.  Each intermediate result is written and read as 8 bytes (float2). */
static double bytes_per_sample(const struct options *options, unsigned n_round_trips)
{
    return N_POLS * (options->sample_bits / 8.0 + OUT_BITS / 8.0) + 16.0 * n_round_trips;
}

static void print_ceilings(const struct options *options, const struct ceilings *ceilings)
{
    bench_print_head("Ceilings", "10^9 bytes/s");
    bench_print_row("device copy", ceilings->copy, 0, "read + written");
    bench_print_row("upload", ceilings->up, 0, "pinned memory to device");
    bench_print_row("download", ceilings->down, 0, "device to pinned memory");
    bench_print_row("both at once", ceilings->both, 0, "each way");
    printf("\nGsamples/s that the device copy rate allows:\n");
    for (unsigned n = 0; n <= 2; n++)
        printf("    %.0f  at %.1f bytes of device memory a sample: %s\n",
               ceilings->copy.max / bytes_per_sample(options, n), bytes_per_sample(options, n),
               n == 0   ? "all in one kernel"
               : n == 1 ? "two kernels"
                        : "filter, FFT in one pass, post-processing");
    printf("    %.1f  upload and download, both at once\n",
           ceilings->both.max / (N_POLS * (options->sample_bits > OUT_BITS ? options->sample_bits : OUT_BITS) / 8.0));
}

/* ---- A size ------------------------------------------------------------------------------------------------------ */

struct transform {
    struct device_stream *stream;
    struct device_fft *fft;
    void *in, *out;
};

static int64_t time_fft(void *what, size_t n)
{
    const struct transform *t = what;
    int64_t start_ns = clock_monotonic_ns();

    for (size_t i = 0; i < n; i++)
        device_fft_run(t->stream, t->fft, t->in, t->out);
    device_stream_wait(t->stream);
    return clock_monotonic_ns() - start_ns;
}

/* Measures the FFT library of the device on an output buffer.  Two real samples of a polarisation form one complex
 * point. */
static struct bench_stat bench_fft(const struct options *options, const struct fgpu_runs_config *config)
{
    size_t n_chan = config->channelise.n_chan, n_samples = fgpu_runs_buffer_samples(config);
    size_t n_transforms = N_POLS * n_samples / 2 / n_chan, n_bytes = N_POLS * n_samples * sizeof(float);
    struct transform t = {.in = device_alloc(config->device, n_bytes), .out = device_alloc(config->device, n_bytes)};

    if (!t.in || !t.out || device_stream_create(config->device, "fft", &t.stream) ||
        device_fft_create(config->device, n_chan, n_transforms, &t.fft))
        bench_fail("there is no memory for the FFT alone");
    fgpu_runs_fill_random(config->device, t.stream, t.in, n_bytes, RANDOM_FLOATS);
    struct bench_stat stat = measure(options, time_fft, &t, (double)n_samples, KERNELS_NS);
    device_fft_destroy(t.fft);
    device_stream_destroy(t.stream);
    device_free(config->device, t.in);
    device_free(config->device, t.out);
    return stat;
}

static int64_t time_kernels(void *what, size_t n)
{
    return kernel_runs_time_ns(what, n);
}

static int64_t time_chain(void *what, size_t n)
{
    return chain_runs_time_ns(what, n);
}

/* Chooses sizes that fit together.  With many channels, heaps have fewer spectra and buffers are larger. */
static struct fgpu_runs_config configure(const struct options *options, struct device *device, unsigned n_chan)
{
    size_t spacing = 2 * (size_t)n_chan, n_spectra = SPECTRA_PER_HEAP;
    size_t window = options->n_taps * spacing, chunk_samples = options->chunk_samples;

    while (n_spectra > SPECTRA_MIN && n_spectra * spacing > options->buffer_samples)
        n_spectra /= 2;
    size_t n_batches = options->buffer_samples / (n_spectra * spacing);
    n_batches = n_batches > CHANNELISE_CUDA_SPECTRA / n_spectra ? CHANNELISE_CUDA_SPECTRA / n_spectra : n_batches;
    n_batches = n_batches > 0 ? n_batches : 1;
    size_t n_buffers = options->run_samples / (n_batches * n_spectra * spacing);
    return (struct fgpu_runs_config){
        .device = device,
        .channelise = {.n_chan = n_chan,
                       .n_taps = options->n_taps,
                       .w_cutoff = 1,
                       .sample_bits = options->sample_bits,
                       .spectra_per_heap = (unsigned)n_spectra,
                       .n_batches = (unsigned)n_batches,
                       .out_bits = OUT_BITS,
                       .dither = true,
                       .seed = random_u64(),
                       .append_spectra = (unsigned)(n_batches * n_spectra)},
        .n_buffers_per_run = n_buffers > 0 ? n_buffers : 1,
        .chunk_samples = chunk_samples > window ? chunk_samples : window,
    };
}

/* If a buffer holds more samples than a chunk, returns the configuration with smaller buffers.  A chunk of the chain
 * then fills at least one buffer. */
static struct fgpu_runs_config configure_chain(struct fgpu_runs_config config)
{
    size_t batch_samples = fgpu_runs_buffer_samples(&config) / config.channelise.n_batches;
    size_t n_batches = config.chunk_samples / batch_samples;

    if (n_batches < config.channelise.n_batches)
        config.channelise.n_batches = n_batches > 0 ? (unsigned)n_batches : 1;
    return config;
}

static struct bench_stat bench_kernels(const struct options *options, const struct fgpu_runs_config *config)
{
    struct kernel_runs *runs = kernel_runs_create(config);
    double n_samples = (double)(config->n_buffers_per_run * fgpu_runs_buffer_samples(config));
    struct bench_stat stat = measure(options, time_kernels, runs, n_samples, KERNELS_NS);

    kernel_runs_destroy(runs);
    return stat;
}

static struct result bench_size(const struct options *options, struct device *device, unsigned n_chan)
{
    struct fgpu_runs_config config = configure(options, device, n_chan), chain_config = configure_chain(config);
    struct result result = {
        .n_chan = n_chan,
        .spectra_per_heap = config.channelise.spectra_per_heap,
        .buffer_samples = fgpu_runs_buffer_samples(&config),
        .run_samples = config.n_buffers_per_run * fgpu_runs_buffer_samples(&config),
        .chunk_samples = config.chunk_samples,
        .chain_buffer_samples = fgpu_runs_buffer_samples(&chain_config),
    };

    result.kernels = bench_kernels(options, &config);
    struct chain_runs *chain = chain_runs_create(&chain_config);
    result.chain = measure(options, time_chain, chain, (double)fgpu_runs_buffer_samples(&chain_config), CHAIN_NS);
    result.output_rms = chain_runs_output_rms(chain);
    chain_runs_destroy(chain);
    result.fft = bench_fft(options, &config);
    return result;
}

static void print_result(const struct options *options, const struct ceilings *ceilings, const struct result *result)
{
    char label[48];

    snprintf(label, sizeof(label), "%u channels: kernels alone", result->n_chan);
    bench_print_row(label, result->kernels, result->fft.max, "the FFT alone");
    bench_print_row("    chain with copies", result->chain, ceilings->both.max / (N_POLS * options->sample_bits / 8.0),
                    "upload beside download");
    bench_print_row("    FFT alone", result->fft, ceilings->copy.max / 16, "device copy");
    if (result->output_rms < RMS_MIN || result->output_rms > RMS_MAX)
        printf("    WRONG: the output has an rms of %.1f\n", result->output_rms);
}

/* Runs two rounds of the kernels.  Nothing else is launched except the copies of the gains and weights. */
static void run_once(const struct options *options, struct device *device)
{
    for (size_t i = 0; i < options->n_sizes; i++) {
        struct fgpu_runs_config config = configure(options, device, options->n_chan[i]);
        struct kernel_runs *runs = kernel_runs_create(&config);
        kernel_runs_time_ns(runs, 1);
        kernel_runs_time_ns(runs, 1);
        kernel_runs_destroy(runs);
        printf("{\"channels\": %u, \"rounds\": 2, \"samples\": %zu}\n", options->n_chan[i],
               config.n_buffers_per_run * fgpu_runs_buffer_samples(&config));
    }
}

static bool is_n_chan(unsigned n_chan)
{
    return n_chan >= 64 && n_chan <= 65536 && (n_chan & (n_chan - 1)) == 0;
}

/* ---- Shapes given ------------------------------------------------------------------------------------------------- */

/* Sets 'shape' from 'text', "NAME=VALUE ...".  Fields that 'text' does not name come from the default shape for the
 * given front_rows, or from the default shape.  Returns true if each name is a field and has a value.  The resulting
 * shape need not be valid. */
static bool parse_shape(const struct channelise_config *config, size_t shared_bytes, char *text,
                        struct channelise_shape *shape)
{
    const char *const *front = channelise_front_tuner.numbers, *const *back = channelise_back_tuner.numbers;
    const char *rows = strstr(text, "front_rows=");
    unsigned long n_rows = rows ? strtoul(strchr(rows, '=') + 1, NULL, 10) : 0;

    if (rows && (n_rows < 8 || n_rows > 256 || n_rows > config->n_chan / 8))
        return false;
    *shape = rows ? channelise_shape_of_rows(config, (uint32_t)n_rows, shared_bytes)
                  : channelise_fused_shape(config, shared_bytes);
    for (char *word; (word = strsep(&text, " \n"));) {
        char *value = strchr(word, '='), *end;
        size_t i = 0, n = channelise_front_tuner.n_numbers;
        if (!*word)
            continue;
        if (!value)
            return false;
        *value++ = '\0';
        while (i < n && strcmp(word, front[i] ? front[i] : back[i]) != 0)
            i++;
        if (i == n)
            return false;
        ((uint32_t *)shape)[i] = (uint32_t)strtoul(value, &end, 10);
        if (end == value || *end)
            return false;
    }
    return true;
}

/* Measures the kernels together, and each kernel alone, in 10^9 samples/s. */
static void bench_shape(const struct options *options, struct device *device, unsigned n_chan, char *text)
{
    struct fgpu_runs_config config = configure(options, device, n_chan);
    const struct tuner_job front = {.kernel = &channelise_front_tuner, .sizes = &config.channelise},
                           back = {.kernel = &channelise_back_tuner, .sizes = &config.channelise};
    double n_samples = (double)fgpu_runs_buffer_samples(&config), front_ns, back_ns;
    struct channelise_shape shape;
    char label[24], formatted[TUNER_TEXT_BYTES], formatted_back[TUNER_TEXT_BYTES];

    if (!parse_shape(&config.channelise, device_shared_bytes(device), text, &shape))
        bench_fail(
            "--shapes: a line is CHANNELS NAME=VALUE ..., with names of the members of the shape; front_rows is 8 to "
            "256, "
            "and an eighth of the channels at most");
    tuner_format(&channelise_front_tuner, &shape, formatted);
    tuner_format(&channelise_back_tuner, &shape, formatted_back);
    if (!channelise_shape_valid(&config.channelise, &shape, device_shared_bytes(device))) {
        printf("%u channels: this shape is not valid\n    %s, %s\n", n_chan, formatted, formatted_back);
        return;
    }
    if (tuner_measure(device, &front, &shape, INFINITY, &front_ns) ||
        tuner_measure(device, &back, &shape, INFINITY, &back_ns))
        bench_fail("a shape cannot be measured");
    config.channelise.shape = &shape;
    snprintf(label, sizeof(label), "%u channels", n_chan);
    bench_print_row(label, bench_kernels(options, &config), 0, "");
    printf("    front alone %.1f, back alone %.1f; %s, %s\n", n_samples / front_ns, n_samples / back_ns, formatted,
           formatted_back);
    fflush(stdout);
}

static void bench_shapes(const struct options *options, struct device *device)
{
    FILE *file = fopen(options->shapes, "re");
    char line[512], *rest;
    unsigned n_chan_before = 0;

    if (!file)
        bench_fail("--shapes: the file cannot be read");
    while (fgets(line, sizeof(line), file)) {
        char by_default[1] = "";
        unsigned n_chan = (unsigned)strtoul(line, &rest, 10);
        if (line[0] == '#' || line[0] == '\n')
            continue;
        if (!is_n_chan(n_chan))
            bench_fail("--shapes: a line begins with a number of channels");
        if (n_chan != n_chan_before)
            bench_shape(options, device, n_chan, by_default);
        bench_shape(options, device, n_chan, rest);
        n_chan_before = n_chan;
    }
    fclose(file);
}

/* ---- The file ---------------------------------------------------------------------------------------------------- */

static void write_stat(FILE *file, const char *name, struct bench_stat stat, const char *end)
{
    fprintf(file, "\"%s\": {\"min\": %.6g, \"median\": %.6g, \"max\": %.6g}%s", name, stat.min, stat.median, stat.max,
            end);
}

static void write_json(const struct options *options, const char *device, const struct ceilings *ceilings,
                       const struct result *results)
{
    FILE *file = fopen(options->json, "w");

    if (!file)
        bench_fail("the JSON file cannot be written");
    fprintf(file, "{\"build\": \"%s\", \"device\": \"%s\", \"taps\": %u, \"sample_bits\": %u, \"repetitions\": %zu,\n",
            cbf_build_id, device, options->n_taps, options->sample_bits, options->n_repetitions);
    fprintf(file, " \"ceilings_gbytes_per_s\": {");
    write_stat(file, "copy", ceilings->copy, ", ");
    write_stat(file, "upload", ceilings->up, ", ");
    write_stat(file, "download", ceilings->down, ", ");
    write_stat(file, "both_ways_each", ceilings->both, "},\n \"gsamples_per_s\": [\n");
    for (size_t i = 0; i < options->n_sizes; i++) {
        const struct result *r = &results[i];
        fprintf(file,
                "  {\"channels\": %u, \"spectra_per_heap\": %u, \"run_samples\": %zu, \"buffer_samples\": %zu, "
                "\"chunk_samples\": %zu, \"chain_buffer_samples\": %zu, \"output_rms\": %.2f, ",
                r->n_chan, r->spectra_per_heap, r->run_samples, r->buffer_samples, r->chunk_samples,
                r->chain_buffer_samples, r->output_rms);
        write_stat(file, "kernels", r->kernels, ", ");
        write_stat(file, "chain", r->chain, ", ");
        write_stat(file, "fft", r->fft, i + 1 < options->n_sizes ? "},\n" : "}\n");
    }
    fprintf(file, " ]}\n");
    if (fclose(file))
        bench_fail("the JSON file cannot be written");
}

/* ---- Options ----------------------------------------------------------------------------------------------------- */

static void read_channels(const char *text, void *value)
{
    static const char what[] = "--channels is a list of up to 8 powers of two from 64 to 65536";
    struct options *options = value;

    options->n_sizes = bench_read_list(text, 64, 65536, options->n_chan, MAX_SIZES, what);
    for (size_t i = 0; i < options->n_sizes; i++)
        if (!is_n_chan(options->n_chan[i]))
            bench_fail(what);
}

static void parse(struct options *options, int argc, char **argv)
{
    const struct bench_option rows[] = {
        {"--once", NULL, &options->once},
        {"--device", bench_read_device, &options->device.kind},
        {"--channels", read_channels, options},
        {"--samples", bench_read_size, &options->run_samples},
        {"--buffer-samples", bench_read_size, &options->buffer_samples},
        {"--chunk-samples", bench_read_size, &options->chunk_samples},
        {"--repetitions", bench_read_size, &options->n_repetitions},
        {"--taps", bench_read_unsigned, &options->n_taps},
        {"--sample-bits", bench_read_unsigned, &options->sample_bits},
        {"--shapes", bench_read_text, &options->shapes},
        {"--json", bench_read_text, &options->json},
    };

    bench_options(argc, argv, rows, ARRAY_LEN(rows));
    if (options->n_repetitions < 1 || options->n_repetitions > BENCH_MAX_REPETITIONS)
        bench_fail("--repetitions is 1 to 99");
    if (options->n_taps < 1 || options->n_taps > 32)
        bench_fail("--taps is 1 to 32");
}

/* Sets the sizes that the command line did not give.  The sizes depend on the device. */
static void set_defaults(struct options *options, bool is_cpu)
{
    size_t run_samples = (size_t)1 << (is_cpu ? 21 : 27);

    if (options->run_samples == 0)
        options->run_samples = run_samples;
    if (options->buffer_samples == 0)
        options->buffer_samples = options->run_samples;
    if (options->chunk_samples == 0)
        options->chunk_samples = options->run_samples / 4;
    options->copy_bytes = (size_t)1 << (is_cpu ? 25 : 30);
}

int main(int argc, char **argv)
{
    static const unsigned sizes[] = {1024, 4096, 8192, 32768, 65536};
    struct options options = {.n_sizes = ARRAY_LEN(sizes), .n_repetitions = 9, .n_taps = 16, .sample_bits = 10};
    struct result results[MAX_SIZES];
    struct ceilings ceilings;
    struct device *device;
    char why[400] = "";

    log_init("bench_fgpu", LOG_LEVEL_WARNING);
    memcpy(options.n_chan, sizes, sizeof(sizes));
    parse(&options, argc, argv);
    if (device_open(&options.device, &device, why, sizeof(why)))
        bench_fail(why);
    set_defaults(&options, strcmp(device_name(device), "cpu") == 0);
    if (options.once) {
        run_once(&options, device);
        device_close(device);
        return 0;
    }
    bench_print_machine();
    if (options.shapes) {
        if (device_compiles(device))
            bench_print_head("Kernels of the F-engine", "10^9 dual-pol samples/s");
        else
            printf("the %s device has no shapes\n", device_name(device));
        if (device_compiles(device))
            bench_shapes(&options, device);
        device_close(device);
        return 0;
    }
    printf("device: %s; %zu repetitions; %u taps, %u bits in, %d bits out, dither\n", device_name(device),
           options.n_repetitions, options.n_taps, options.sample_bits, OUT_BITS);
    find_ceilings(&options, device, &ceilings);
    print_ceilings(&options, &ceilings);
    bench_print_head("F-engine", "10^9 dual-pol samples/s");
    for (size_t i = 0; i < options.n_sizes; i++) {
        results[i] = bench_size(&options, device, options.n_chan[i]);
        print_result(&options, &ceilings, &results[i]);
    }
    if (options.json)
        write_json(&options, device_name(device), &ceilings, results);
    device_close(device);
    for (size_t i = 0; i < options.n_sizes; i++)
        if (results[i].output_rms < RMS_MIN || results[i].output_rms > RMS_MAX)
            return 1;
    return 0;
}
