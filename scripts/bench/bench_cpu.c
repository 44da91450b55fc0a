/* bench_cpu.c - measures the kernels on the cpu device: the F-engine's chain and its stages, and the correlator.
 *
 * All work runs as in the daemons: as operations of a device stream, with the sizes of the default configuration (one
 * batch of 256 spectra, 16 taps, 10-bit samples, dither; 8 heaps of 256 spectra).  The ceilings are kernels, too.
 * Work on one core is timed by the CPU time of the stream's thread.  Work on several cores is timed by the wall
 * clock. */
#include "common/base/clock.h"
#include "common/base/units.h"
#include "kernels/filterbank/channelise.h"
#include "kernels/correlate/checksum.h"
#include "kernels/correlate/correlate.h"
#include "kernels/filterbank/pfb_fir.h"
#include "kernels/filterbank/postproc.h"
#include "kernels/correlate/reduce.h"
#include "scripts/bench/bench.h"
#include "scripts/bench/ceilings.h"
#include "tests/unit/test_random.h"

#include <math.h>
#include <string.h>

#define N_SPECTRA     256 /* of a heap */
#define N_TAPS        16
#define SAMPLE_BITS   10
#define N_BATCHES     8 /* batches in a chunk of the X-engine */
#define REPETITION_NS (50 * NS_PER_MS)

/* The device on which a table's work runs, and the ceilings of this device. */
struct bed {
    int n_threads;
    struct device *device;
    struct device_stream *stream;
    double copy_mbytes; /* read rate of a copy in 10^6 bytes/s; the write rate is the same */
    double float_madds; /* millions of float multiplications per second, each with an addition */
    double int16_madds; /* millions of int16 multiply-adds per second, with sums in int32; 0: not known */
};

/* Work to time: a function that enqueues the work, and the amount of work in the table's unit. */
struct work {
    void (*enqueue)(const struct bed *bed, const void *what);
    const void *what;
    double amount;
};

/* Memory that alloc() returned since the last free_all(). */
static struct {
    size_t n;
    void *items[20];
} memories;

static void *alloc(const struct bed *bed, size_t bytes)
{
    void *memory = memories.items[memories.n++] = bench_alloc(bed->device, bytes);

    memset(memory, 0, bytes); /* makes the kernel map all pages before the time is measured */
    return memory;
}

static void free_all(const struct bed *bed)
{
    while (memories.n > 0)
        device_free(bed->device, memories.items[--memories.n]);
}

/* ---- Timing ------------------------------------------------------------------------------------------------------ */

struct moment {
    int64_t wall_ns, cpu_ns;
};

/* Reads the clocks.  Runs in the stream's thread. */
static void take_moment(void *arg)
{
    struct moment *moment = arg;

    moment->wall_ns = clock_monotonic_ns();
    moment->cpu_ns = clock_thread_cpu_ns();
}

static int64_t time_runs_ns(const struct bed *bed, const struct work *work, int64_t n_runs)
{
    struct moment begin, end;

    device_then(bed->stream, take_moment, &begin);
    for (int64_t i = 0; i < n_runs; i++)
        work->enqueue(bed, work->what);
    device_then(bed->stream, take_moment, &end);
    device_stream_wait(bed->stream);
    return bed->n_threads == 1 ? end.cpu_ns - begin.cpu_ns : end.wall_ns - begin.wall_ns;
}

/* Launches a kernel.  The cpu device's kernels need no preparation, so launch() fills struct device_kernel itself. */
static void launch(const struct bed *bed, const struct kernel *kernel, const void *args)
{
    struct device_kernel ready = {bed->device, kernel};

    device_launch(bed->stream, &ready, NULL, args);
}

/* Returns the rate in 10^6 units of work per second.  The first run warms up.  The duration of the first run determines
 * the number of runs in a repetition, so that a repetition is long enough for the clock's resolution. */
static struct bench_stat measure(const struct bed *bed, const struct work *work)
{
    int64_t n_runs = 1 + REPETITION_NS / (time_runs_ns(bed, work, 1) + 1);
    double rates[BENCH_REPETITIONS];

    for (size_t i = 0; i < BENCH_REPETITIONS; i++)
        rates[i] = 1e3 * work->amount * (double)n_runs / (double)time_runs_ns(bed, work, n_runs);
    return bench_stat_of(rates, BENCH_REPETITIONS);
}

struct launch {
    const struct kernel *kernel;
    const void *args;
};

static void enqueue_launch(const struct bed *bed, const void *what)
{
    const struct launch *l = what;

    launch(bed, l->kernel, l->args);
}

static struct bench_stat measure_kernel(const struct bed *bed, const struct kernel *kernel, const void *args,
                                        double amount)
{
    return measure(bed, &(struct work){enqueue_launch, &(struct launch){kernel, args}, amount});
}

/* ---- Ceilings ---------------------------------------------------------------------------------------------------- */

/* Measures and prints one ceiling.  Returns its largest rate. */
static double find_ceiling(const struct bed *bed, const struct kernel *kernel, const struct ceiling_args *args,
                           double amount, const char *label, const char *what)
{
    struct bench_stat stat = measure_kernel(bed, kernel, args, amount);

    bench_print_row(label, stat, 0, what);
    return stat.max;
}

static void find_ceilings(struct bed *bed)
{
    float sink;
    char title[40];
    struct ceiling_args args = {alloc(bed, CEILING_COPY_BYTES), alloc(bed, CEILING_COPY_BYTES), &sink};

    snprintf(title, sizeof(title), "Ceilings, in vectors of %d bytes", ceiling_vector_bytes());
    bench_print_head(title, "10^6/s");
    bed->copy_mbytes = find_ceiling(bed, &ceiling_copy, &args, (double)CEILING_COPY_BYTES, "memory copy",
                                    "bytes read (and the same number written)");
    bed->float_madds = find_ceiling(bed, &ceiling_float, &args, bed->n_threads * ceiling_float_madds(),
                                    "float multiply and add", "multiplications, each with an addition; registers");
    if (ceiling_int16_madds() > 0)
        bed->int16_madds = find_ceiling(bed, &ceiling_int16, &args, bed->n_threads * ceiling_int16_madds(),
                                        "int16 multiply and add", "multiplications (vpmaddwd, vpaddd), in registers");
    free_all(bed);
}

/* ---- The F-engine ------------------------------------------------------------------------------------------------ */

/* One antenna's output buffer, and the arguments of the stages.  channelise passes the same arguments. */
struct f_engine {
    struct channelise_config config;
    struct channelise *channelise;
    struct channelise_buffer buffer;
    const uint8_t *input[N_POLS];
    struct channelise_spectrum spectra[N_SPECTRA];
    float *gain;
    float *filtered, *transformed;
    struct device_fft *fft;
    struct pfb_fir_args pfb_fir;
    struct postproc_args postproc;
};

static void enqueue_chain(const struct bed *bed, const void *what)
{
    const struct f_engine *f = what;
    const struct channelise_spectrum *spectra[N_POLS] = {f->spectra, f->spectra};

    channelise_append(f->channelise, bed->stream, f->input, &f->buffer, 0, N_SPECTRA, spectra);
    channelise_finish(f->channelise, bed->stream, &f->buffer, f->gain, 0);
}

static void enqueue_pfb_fir(const struct bed *bed, const void *what)
{
    const struct f_engine *f = what;
    struct pfb_fir_args args = f->pfb_fir;

    for (size_t pol = 0; pol < N_POLS; pol++) {
        args.in = f->input[pol];
        args.out = f->filtered + pol * N_SPECTRA * channelise_spacing_samples(&f->config);
        launch(bed, &pfb_fir_kernel, &args);
    }
}

static void enqueue_fft(const struct bed *bed, const void *what)
{
    const struct f_engine *f = what;

    device_fft_run(bed->stream, f->fft, f->filtered, f->transformed);
}

static void f_engine_init(struct f_engine *f, const struct bed *bed, unsigned n_chan)
{
    size_t rotation_bytes = N_POLS * N_SPECTRA * 2 * sizeof(float), spacing = 2 * (size_t)n_chan;
    size_t input_bytes = (N_SPECTRA + N_TAPS) * spacing * SAMPLE_BITS / 8;
    struct channelise_config config = {.n_chan = n_chan,
                                       .n_taps = N_TAPS,
                                       .w_cutoff = 1,
                                       .sample_bits = SAMPLE_BITS,
                                       .spectra_per_heap = N_SPECTRA,
                                       .n_batches = 1,
                                       .out_bits = 8,
                                       .dither = true};
    float *weights = alloc(bed, N_TAPS * spacing * sizeof(float));

    *f = (struct f_engine){.config = config};
    if (channelise_create(bed->device, &config, &f->channelise) ||
        device_fft_create(bed->device, n_chan, N_POLS * N_SPECTRA, &f->fft))
        bench_fail("set-up failed");
    f->buffer =
        (struct channelise_buffer){alloc(bed, channelise_voltage_bytes(&config)), alloc(bed, N_POLS * sizeof(uint32_t)),
                                   alloc(bed, rotation_bytes), alloc(bed, rotation_bytes)};
    for (size_t pol = 0; pol < N_POLS; pol++) {
        uint8_t *input = alloc(bed, input_bytes);
        random_bytes(input, input_bytes);
        f->input[pol] = input;
    }
    for (size_t s = 0; s < N_SPECTRA; s++)
        f->spectra[s].offset = (int64_t)(s * spacing);
    f->gain = alloc(bed, n_chan * N_POLS * 2 * sizeof(float));
    for (size_t i = 0; i < n_chan * N_POLS; i++)
        f->gain[2 * i] = 0.2f; /* with this gain, full-scale noise fills 8 bits and hardly saturates */
    f->filtered = alloc(bed, N_POLS * N_SPECTRA * spacing * sizeof(float));
    f->transformed = alloc(bed, N_POLS * N_SPECTRA * spacing * sizeof(float));
    design_pfb(spacing, N_TAPS, config.w_cutoff, config.window, weights);
    f->pfb_fir = (struct pfb_fir_args){.weights = weights,
                                       .n_spectra = N_SPECTRA,
                                       .n_chan = n_chan,
                                       .n_taps = N_TAPS,
                                       .sample_bits = SAMPLE_BITS,
                                       .unzip = 1};
    f->postproc = (struct postproc_args){.fft = f->transformed,
                                         .rotation = f->buffer.rotation_device,
                                         .gain = f->gain,
                                         .out = f->buffer.voltages,
                                         .saturated = f->buffer.saturated,
                                         .n_spectra = N_SPECTRA,
                                         .spectra_per_heap = N_SPECTRA,
                                         .n_chan = n_chan,
                                         .unzip = 1,
                                         .out_bits = 8,
                                         .dither = true};
}

/* Prints a stage's row, with its ceiling and its share of the time of all three stages. */
static void print_stage(const char *label, struct bench_stat stat, double stages_rate, double ceiling,
                        const char *bound)
{
    char text[100];

    snprintf(text, sizeof(text), "%s; %.0f %% of the time", bound, 100 * stages_rate / stat.max);
    bench_print_row(label, stat, ceiling, text);
}

static void bench_f_engine(const struct bed *bed, unsigned n_chan)
{
    double n_samples = 2.0 * n_chan * N_SPECTRA;
    struct bench_stat chain, pfb_fir, fft, postproc;
    struct f_engine f;
    char label[40];
    double fft_madds = 2.5 * log2(n_chan), stages; /* per dual-polarisation sample, which is one point of the FFT */

    f_engine_init(&f, bed, n_chan);
    chain = measure(bed, &(struct work){enqueue_chain, &f, n_samples});
    pfb_fir = measure(bed, &(struct work){enqueue_pfb_fir, &f, n_samples});
    fft = measure(bed, &(struct work){enqueue_fft, &f, n_samples});
    postproc = measure_kernel(bed, &postproc_kernel, &f.postproc, n_samples);
    stages = 1 / (1 / pfb_fir.max + 1 / fft.max + 1 / postproc.max);
    snprintf(label, sizeof(label), "%u channels: channelise", n_chan);
    bench_print_row(label, chain, stages, "its stages, each alone");
    print_stage("    pfb_fir", pfb_fir, stages, bed->float_madds / (N_TAPS * N_POLS), "float multiply and add");
    print_stage("    FFT", fft, stages, bed->float_madds / fft_madds, "float multiply and add");
    print_stage("    postproc", postproc, stages, bed->copy_mbytes * 2 / (8 + 2), "memory copy"); /* 8 B in, 2 B out */
    device_fft_destroy(f.fft);
    channelise_destroy(f.channelise);
    free_all(bed);
}

/* ---- The X-engine ------------------------------------------------------------------------------------------------ */

struct x_engine {
    struct correlate_args correlate;
    struct checksum_args checksum;
    struct reduce_args reduce;
};

/* Enqueues the kernels for a dump of one chunk. */
static void enqueue_dump(const struct bed *bed, const void *what)
{
    const struct x_engine *x = what;

    launch(bed, &correlate_kernel, &x->correlate);
    launch(bed, &reduce_kernel, &x->reduce);
}

static void x_engine_init(struct x_engine *x, const struct bed *bed, unsigned n_ants, unsigned n_chan)
{
    size_t n_voltages = (size_t)N_BATCHES * n_ants * n_chan * N_SPECTRA * N_POLS * 2;
    size_t n_baselines = correlate_n_baselines(n_ants), n_parts = n_chan * n_baselines * N_POL_PRODUCTS * 2;
    int8_t *voltages = alloc(bed, n_voltages);
    uint32_t *weights = alloc(bed, n_baselines * sizeof(*weights));
    int32_t *sums = alloc(bed, n_parts * sizeof(*sums));

    random_bytes(voltages, n_voltages);
    for (size_t i = 0; i < n_baselines; i++)
        weights[i] = N_BATCHES * N_SPECTRA;
    x->correlate = (struct correlate_args){.voltages = voltages,
                                           .sums = {sums},
                                           .format = VOLTAGES_8_BITS,
                                           .n_ants = n_ants,
                                           .n_chan = n_chan,
                                           .n_spectra = N_SPECTRA,
                                           .n_batches = N_BATCHES};
    x->checksum = (struct checksum_args){.voltages = voltages,
                                         .rows = {alloc(bed, (size_t)n_chan * n_ants * N_POLS * 2 * sizeof(int64_t))},
                                         .format = VOLTAGES_8_BITS,
                                         .n_ants = n_ants,
                                         .n_chan = n_chan,
                                         .n_spectra = N_SPECTRA,
                                         .n_batches = N_BATCHES};
    x->reduce = (struct reduce_args){.sums = {sums},
                                     .weights = weights,
                                     .out = {alloc(bed, n_parts * sizeof(int32_t))},
                                     .n_saturated = alloc(bed, sizeof(uint64_t)),
                                     .format = VOLTAGES_8_BITS,
                                     .min_weight = 1,
                                     .n_baselines = (uint32_t)n_baselines,
                                     .n_chan = n_chan};
}

static void bench_x_engine(const struct bed *bed, unsigned n_ants, unsigned n_chan)
{
    double n_jones = (double)N_BATCHES * n_ants * n_chan * N_SPECTRA;
    double n_visibilities = (double)correlate_n_baselines(n_ants) * n_chan * N_POL_PRODUCTS;
    double madds_per_jones = 16 * (n_ants + 1) / 2.0, copies_per_jones = n_visibilities * (8 + 8 + 8) / 2 / n_jones;
    struct bench_stat correlate, checksum, reduce, dump;
    struct x_engine x;
    char label[40];

    x_engine_init(&x, bed, n_ants, n_chan);
    correlate = measure_kernel(bed, &correlate_kernel, &x.correlate, n_jones);
    checksum = measure_kernel(bed, &checksum_kernel, &x.checksum, n_jones);
    reduce = measure_kernel(bed, &reduce_kernel, &x.reduce, n_jones);
    dump = measure(bed, &(struct work){enqueue_dump, &x, n_jones});
    snprintf(label, sizeof(label), "%u antennas: correlate", n_ants);
    bench_print_row(label, correlate, bed->int16_madds / madds_per_jones, "int16 multiply and add");
    bench_print_row("    checksum", checksum, bed->int16_madds / (N_POLS * 2 * 2), "int16 multiply and add");
    bench_print_row("    reduce", reduce, bed->copy_mbytes / copies_per_jones, "memory copy");
    bench_print_row("    both", dump, 1 / (1 / correlate.max + 1 / reduce.max), "correlate and reduce, each alone");
    free_all(bed);
}

/* ------------------------------------------------------------------------------------------------------------------ */

static void bench_on(int n_threads)
{
    struct device_config config = {.kind = DEVICE_CPU, .n_threads = n_threads};
    struct bed bed = {.n_threads = n_threads};
    char why[200];

    bench_pin(n_threads == 1 ? bench_last_cpu() : -1);
    if (device_open(&config, &bed.device, why, sizeof(why)) || device_stream_create(bed.device, "bench", &bed.stream))
        bench_fail("device failed");
    printf("\n==== %d core%s ====\n", n_threads, n_threads == 1 ? ", CPU time" : "s, wall clock");
    find_ceilings(&bed);

    bench_print_head("F-engine", "10^6 dual-pol samples/s");
    bench_f_engine(&bed, 1024);
    bench_f_engine(&bed, 4096);
    bench_f_engine(&bed, 32768);

    bench_print_head("X-engine", "10^6 jones/s");
    bench_x_engine(&bed, 4, 256);
    bench_x_engine(&bed, 16, 64);
    bench_x_engine(&bed, 64, 16);

    device_stream_destroy(bed.stream);
    device_close(bed.device);
}

int main(void)
{
    bench_print_machine();
    printf("%d repetitions; the ratio is the best rate / the best ceiling\n", BENCH_REPETITIONS);
    bench_on(1);
    if (bench_n_cpus() > 1)
        bench_on(bench_n_cpus());
    printf("\nShares refer to the total time of the three stages if each runs alone.\n");
    printf("F-engine: %d spectra of both polarisations, %d-bit samples, %d taps, dither, no delay.\n", N_SPECTRA,
           SAMPLE_BITS, N_TAPS);
    printf("X-engine: a jones is a sample of both polarisations of one channel of one antenna.  So 10^6 jones/s are\n"
           "MHz of bandwidth x antennas.  Dumps have %d heaps of %d spectra; longer dumps need fewer reductions.\n",
           N_BATCHES, N_SPECTRA);
    return 0;
}
