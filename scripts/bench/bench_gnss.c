/* bench_gnss.c - measures the rates of the correlation with replicas of satellites' signals on a device.
 *
 * Usage: bench_gnss [--device auto|cpu|cuda] [--antennas N[,N...]] [--radius-m R[,R...]] [--arrays]
 *                   [--repetitions N] [--once]
 *   --antennas: numbers of antennas of the arrays; default: 1, 8 and 64.
 *   --radius-m: radii of the arrays in metres; default: 0, which means that all offsets are 0.
 *   --arrays:   only arrays, and only the variant for arrays.
 *   --once:     no timing: runs each size once to warm up and once more, for a profiler.
 *
 * A launch has random samples of both polarisations, 3 taps, and one piece of each satellite.  One antenna has L1 C/A
 * and E1B satellites, in launches of 5000 to 100 000 samples.  Arrays have 32 satellites of E1B in launches of 26 750
 * and 107 000 samples, which are 1 ms and 4 ms of a narrow band.  Devices that compile kernels run both variants.
 * The antennas of an array are at random places of a horizontal disc.  The directions of the satellites are random, and
 * at least 10 degrees above the horizon.  Each offset is the delay of the satellite's wave at the antenna, in samples.
 *
 * A Gsample/s is 10^9 combinations of sample, input and satellite a second.  Each combination includes the products
 * for all taps.  "us" is the shortest time of a launch, if launches follow each other without a pause.  On the cpu
 * device the ceiling is a plain loop of int8 multiplications and additions on one core, with 4 multiplications for
 * each tap.  Before a size is timed, its sums are compared with the sums of the plain C version. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/units.h"
#include "kernels/gnss/gnss_codes.h"
#include "kernels/gnss/gnss_correlate.h"
#include "kernels/util/clones.h"
#include "scripts/bench/bench.h"
#include "tests/unit/test_random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPETITION_NS  (50 * NS_PER_MS)
#define MAX_SIZES      8
#define N_TAPS         3
#define CARRIER_BYTES  (2 * GNSS_CARRIER_ENTRIES)
#define SAMPLE_RATE_HZ 26.75e6
#define SPEED_OF_LIGHT 299792458.0 /* m/s */
#define LEAST_SINE     0.17        /* sine of the lowest elevation of a satellite */

struct options {
    struct device_config device;
    unsigned n_ants[MAX_SIZES], radii_m[MAX_SIZES];
    size_t n_arrays, n_radii, n_repetitions;
    bool arrays, once;
};

struct bed {
    struct device *device;
    struct device_stream *stream;
    double int8_madds; /* int8 multiply-adds on one core, in 10^9/s; 0 on a GPU */
};

struct size {
    unsigned n_ants, n_l1ca, n_e1b, n_samples, radius_m;
};

static const struct size of_one_antenna[] = {{1, 4, 0, 5000, 0},   {1, 16, 0, 5000, 0},  {1, 0, 4, 25000, 0},
                                             {1, 0, 16, 25000, 0}, {1, 0, 4, 100000, 0}, {1, 0, 16, 100000, 0},
                                             {1, 4, 4, 25000, 0},  {1, 8, 8, 25000, 0},  {1, 8, 8, 100000, 0}};

/* The data of a launch on the host, and a copy on the device. */
struct work {
    const struct bed *bed;
    const struct kernel *variant;
    struct device_kernel *kernel;
    struct gnss_correlate_args host, args;
    size_t samples_bytes, codes_bytes, sums_bytes;
    uint32_t n_satellites;
};

/* ---- A size ------------------------------------------------------------------------------------------------------ */

static void *alloc_host(const struct bed *bed, size_t bytes)
{
    void *memory = device_alloc_pinned(bed->device, bytes);

    if (!memory)
        bench_fail("there is not enough memory on the host");
    memset(memory, 0, bytes);
    return memory;
}

static const void *upload(const struct bed *bed, const void *pinned, size_t bytes)
{
    void *memory = bench_alloc(bed->device, bytes);

    if (device_upload(bed->device, memory, pinned, bytes))
        bench_fail("an upload failed");
    return memory;
}

/* Returns the largest offset of an array. */
static int32_t max_offset(const struct size *size)
{
    return (int32_t)ceil(size->radius_m / SPEED_OF_LIGHT * SAMPLE_RATE_HZ);
}

/* Writes the offsets [satellite][ant].  A wave from a direction arrives earlier at antennas on that side. */
static void make_offsets(const struct size *size, uint32_t n_satellites, int32_t *offsets)
{
    double east_m[GNSS_MAX_ANTS], north_m[GNSS_MAX_ANTS];

    for (unsigned ant = 0; ant < size->n_ants; ant++) {
        double distance_m = size->radius_m * sqrt(random_between(0, 1)), azimuth = random_between(0, 2 * M_PI);
        east_m[ant] = distance_m * sin(azimuth);
        north_m[ant] = distance_m * cos(azimuth);
    }
    for (uint32_t s = 0; s < n_satellites; s++) {
        double sine = random_between(LEAST_SINE, 1), azimuth = random_between(0, 2 * M_PI);
        for (unsigned ant = 0; ant < size->n_ants; ant++) {
            double nearer_m = (east_m[ant] * sin(azimuth) + north_m[ant] * cos(azimuth)) * sqrt(1 - sine * sine);
            offsets[s * size->n_ants + ant] = (int32_t)lrint(-nearer_m / SPEED_OF_LIGHT * SAMPLE_RATE_HZ);
        }
    }
}

/* Returns the largest difference between the offsets of two satellites at the same antenna. */
static uint32_t max_spread(const struct size *size, uint32_t n_satellites, const int32_t *offsets)
{
    int32_t spread = 0;

    for (size_t ant = 0; ant < size->n_ants; ant++) {
        int32_t low = offsets[ant], high = offsets[ant];
        for (size_t s = 1; s < n_satellites; s++) {
            const int32_t offset = offsets[s * size->n_ants + ant];
            low = offset < low ? offset : low;
            high = offset > high ? offset : high;
        }
        spread = high - low > spread ? high - low : spread;
    }
    return (uint32_t)spread;
}

static void make_satellites(struct work *w, const struct size *size, int8_t *codes, struct gnss_satellite *satellites,
                            struct gnss_piece *pieces)
{
    uint32_t at = 0;

    for (uint32_t s = 0; s < w->n_satellites; s++) {
        bool is_e1b = s >= size->n_l1ca;
        uint32_t n_subchips = is_e1b ? GNSS_MAX_SUBCHIPS : 1023;
        satellites[s] = (struct gnss_satellite){.table = at, .n_subchips = n_subchips};
        for (int tap = 0; tap < N_TAPS; tap++)
            satellites[s].taps[tap] = gnss_code_phase((tap - 1) * (is_e1b ? 6 : 0.5), n_subchips);
        for (uint32_t i = 0; i < n_subchips; i++)
            codes[at + i] = (int8_t)((random_below(2) ? 1 : -1) * (is_e1b ? 1 + (int)random_below(2) : 1));
        at += n_subchips;
        pieces[s] = (struct gnss_piece){.code_phase = gnss_code_phase(random_between(0, 1000), n_subchips),
                                        .code_step = gnss_code_step(1.023e6 * (is_e1b ? 12 : 1) / SAMPLE_RATE_HZ),
                                        .carrier_phase = random_u64(),
                                        .carrier_step = random_u64(),
                                        .first = max_offset(size),
                                        .n_samples = size->n_samples,
                                        .satellite = s,
                                        .integration = s};
    }
}

static void work_init(struct work *w, const struct bed *bed, const struct size *size, const struct kernel *variant)
{
    struct kernel_constant constants[GNSS_CORRELATE_N_CONSTANTS];
    uint32_t n_satellites = size->n_l1ca + size->n_e1b;
    uint64_t pitch = (size->n_samples + 2 * (uint32_t)max_offset(size) + 7) / 8 * 8;

    *w = (struct work){.bed = bed, .variant = variant, .n_satellites = n_satellites};
    w->samples_bytes = size->n_ants * N_POLS * pitch * 2;
    w->codes_bytes = size->n_l1ca * 1023 + (size_t)size->n_e1b * GNSS_MAX_SUBCHIPS;
    w->sums_bytes = (size_t)n_satellites * N_TAPS * size->n_ants * N_POLS * 2 * sizeof(int64_t);
    size_t satellites_bytes = n_satellites * sizeof(struct gnss_satellite);
    size_t pieces_bytes = n_satellites * sizeof(struct gnss_piece);
    size_t offsets_bytes = n_satellites * size->n_ants * sizeof(int32_t);
    int8_t *samples = alloc_host(bed, w->samples_bytes), *codes = alloc_host(bed, w->codes_bytes);
    int8_t *carrier = alloc_host(bed, CARRIER_BYTES);
    struct gnss_satellite *satellites = alloc_host(bed, satellites_bytes);
    struct gnss_piece *pieces = alloc_host(bed, pieces_bytes);
    int32_t *offsets = alloc_host(bed, offsets_bytes);
    random_bytes(samples, w->samples_bytes);
    gnss_carrier_table(carrier);
    make_satellites(w, size, codes, satellites, pieces);
    make_offsets(size, n_satellites, offsets);
    w->host = (struct gnss_correlate_args){samples,
                                           pitch,
                                           carrier,
                                           codes,
                                           satellites,
                                           offsets,
                                           pieces,
                                           alloc_host(bed, w->sums_bytes),
                                           n_satellites,
                                           size->n_samples,
                                           size->n_ants,
                                           N_TAPS,
                                           max_spread(size, n_satellites, offsets),
                                           0};
    w->args = w->host;
    w->args.samples = upload(bed, samples, w->samples_bytes);
    w->args.carrier = upload(bed, carrier, CARRIER_BYTES);
    w->args.codes = upload(bed, codes, w->codes_bytes);
    w->args.satellites = upload(bed, satellites, satellites_bytes);
    w->args.offsets = upload(bed, offsets, offsets_bytes);
    w->args.pieces = upload(bed, pieces, pieces_bytes);
    w->args.sums = (int64_t *)upload(bed, w->host.sums, w->sums_bytes);
    gnss_correlate_constants(variant, &w->args, device_shared_bytes(bed->device), constants);
    if (device_kernel_create(bed->device, variant, constants, GNSS_CORRELATE_N_CONSTANTS, &w->kernel))
        bench_fail("cannot create the correlation kernel");
}

static void work_fini(struct work *w)
{
    const struct gnss_correlate_args *all[] = {&w->args, &w->host};
    void (*const free_memory[])(struct device *, void *) = {device_free, device_free_pinned};

    device_kernel_destroy(w->kernel);
    for (size_t i = 0; i < 2; i++) {
        free_memory[i](w->bed->device, (void *)all[i]->samples);
        free_memory[i](w->bed->device, (void *)all[i]->carrier);
        free_memory[i](w->bed->device, (void *)all[i]->codes);
        free_memory[i](w->bed->device, (void *)all[i]->satellites);
        free_memory[i](w->bed->device, (void *)all[i]->offsets);
        free_memory[i](w->bed->device, (void *)all[i]->pieces);
        free_memory[i](w->bed->device, all[i]->sums);
    }
}

static int64_t time_work(void *what, size_t n)
{
    const struct work *w = what;
    struct kernel_grid grid = gnss_correlate_grid(w->variant, &w->args, device_shared_bytes(w->bed->device),
                                                  device_multiprocessors(w->bed->device));
    int64_t start_ns = clock_monotonic_ns();

    for (size_t i = 0; i < n; i++)
        device_launch(w->bed->stream, w->kernel, &grid, &w->args);
    device_stream_wait(w->bed->stream);
    return clock_monotonic_ns() - start_ns;
}

/* Returns true if one launch adds the same sums as the C version. */
static bool is_right(struct work *w)
{
    int64_t *sums = alloc_host(w->bed, w->sums_bytes);

    time_work(w, 1);
    device_copy(w->bed->stream, sums, w->args.sums, w->sums_bytes);
    device_stream_wait(w->bed->stream);
    gnss_correlate_kernel.cpu(&w->host, 1);
    bool right = memcmp(sums, w->host.sums, w->sums_bytes) == 0;
    device_free_pinned(w->bed->device, sums);
    return right;
}

static bool bench_size(const struct options *options, const struct bed *bed, const struct size *size,
                       const struct kernel *variant)
{
    double amount = (double)size->n_samples * size->n_ants * N_POLS * (size->n_l1ca + size->n_e1b);
    char label[80], bound[80];
    struct work w;

    work_init(&w, bed, size, variant);
    snprintf(label, sizeof(label), "%2u antennas, %4u m, %2u + %2u satellites, %6u%s", size->n_ants, size->radius_m,
             size->n_l1ca, size->n_e1b, size->n_samples,
             !device_compiles(bed->device)       ? ""
             : variant == &gnss_correlate_kernel ? ""
                                                 : " mma");
    bool ok = is_right(&w);
    if (options->once) {
        time_work(&w, 1);
    } else {
        struct bench_stat rate =
            bench_measure(time_work, &w, amount, options->n_repetitions, REPETITION_NS, DEVICE_STREAM_DEPTH / 4);
        snprintf(bound, sizeof(bound), "%s%.1f us", bed->int8_madds > 0 ? "int8 multiply and add; " : "",
                 amount / rate.max / 1e3);
        bench_print_row(label, rate, bed->int8_madds / (4 * N_TAPS), bound);
    }
    if (!ok)
        printf("    WRONG: the sums differ from the C version's\n");
    work_fini(&w);
    return ok;
}

/* ---- The ceiling of the cpu device ------------------------------------------------------------------------------- */

#define MADDS 4096

KERNEL_CLONES static int multiply_add(const int8_t *a, const int8_t *b)
{
    int sum = 0;

    for (size_t i = 0; i < MADDS; i++)
        sum += a[i] * b[i];
    return sum;
}

static int64_t time_madds(void *what, size_t n)
{
    const int8_t *values = what;
    int64_t start_ns = clock_monotonic_ns();
    volatile int sum = 0;

    for (size_t i = 0; i < n; i++)
        sum = multiply_add(values + i % 64, values + MADDS);
    (void)sum;
    return clock_monotonic_ns() - start_ns;
}

static double find_int8_madds(const struct options *options)
{
    int8_t values[2 * MADDS + 64];

    random_bytes(values, sizeof(values));
    return bench_measure(time_madds, values, MADDS, options->n_repetitions, REPETITION_NS, SIZE_MAX).max;
}

/* ---- All --------------------------------------------------------------------------------------------------------- */

static void read_antennas(const char *text, void *value)
{
    struct options *options = value;

    options->n_arrays =
        bench_read_list(text, 1, GNSS_MAX_ANTS, options->n_ants, MAX_SIZES, "--antennas: 1 to 64 were expected");
}

static void read_radii(const char *text, void *value)
{
    struct options *options = value;

    options->n_radii =
        bench_read_list(text, 0, 100000, options->radii_m, MAX_SIZES, "--radius-m: 0 to 100000 metres were expected");
}

static bool bench_array(const struct options *options, const struct bed *bed, unsigned n_ants, unsigned radius_m)
{
    static const unsigned n_samples[] = {26750, 107000}; /* 1 ms and 4 ms */
    bool ok = true;

    for (size_t i = 0; i < ARRAY_LEN(n_samples); i++) {
        struct size size = {n_ants, 0, 32, n_samples[i], radius_m};
        if (!options->arrays || !device_compiles(bed->device))
            ok = bench_size(options, bed, &size, &gnss_correlate_kernel) && ok;
        if (device_compiles(bed->device))
            ok = bench_size(options, bed, &size, &gnss_correlate_mma_kernel) && ok;
    }
    return ok;
}

static bool bench_all(const struct options *options, const struct bed *bed)
{
    bool ok = true;

    bench_print_head("Correlation with replicas, 3 taps", "Gsample/s");
    for (size_t i = 0; i < ARRAY_LEN(of_one_antenna) && !options->arrays; i++)
        ok = bench_size(options, bed, &of_one_antenna[i], &gnss_correlate_kernel) && ok;
    for (size_t i = 0; i < options->n_arrays; i++)
        for (size_t k = 0; k < options->n_radii; k++)
            ok = bench_array(options, bed, options->n_ants[i], options->radii_m[k]) && ok;
    return ok;
}

int main(int argc, char **argv)
{
    struct options options = {.device = {.kind = DEVICE_AUTO, .n_threads = 1},
                              .n_ants = {1, 8, 64},
                              .n_arrays = 3,
                              .n_radii = 1,
                              .n_repetitions = BENCH_REPETITIONS};
    const struct bench_option table[] = {{"--device", bench_read_device, &options.device.kind},
                                         {"--antennas", read_antennas, &options},
                                         {"--radius-m", read_radii, &options},
                                         {"--arrays", NULL, &options.arrays},
                                         {"--repetitions", bench_read_size, &options.n_repetitions},
                                         {"--once", NULL, &options.once}};
    struct bed bed = {0};
    char why[400] = "";

    log_init("bench_gnss", LOG_LEVEL_WARNING);
    bench_options(argc, argv, table, ARRAY_LEN(table));
    bench_print_machine();
    if (device_open(&options.device, &bed.device, why, sizeof(why)))
        bench_fail(why);
    if (device_stream_create(bed.device, "bench", &bed.stream))
        bench_fail("the device has no stream");
    bed.int8_madds = device_n_threads(bed.device) ? find_int8_madds(&options) : 0;
    bool ok = bench_all(&options, &bed);
    device_stream_destroy(bed.stream);
    device_close(bed.device);
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
