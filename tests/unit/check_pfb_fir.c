/* check_pfb_fir - the filter against a model that reads samples bit by bit; every width, unaligned starts, and input
 * that ends where the address space does. */
#include "kernels/pfb_fir.h"

#include "tests/unit/test_random.h"

#include <check.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>

static const uint32_t widths[] = {2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16};
#define N_WIDTHS (sizeof(widths) / sizeof(widths[0]))
#define GUARD    64 /* values after the output that must stay */

/* Memory of which the byte after the last cannot be read.  Never freed: each test is a process of its own. */
static uint8_t *alloc_to_the_edge(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t inside = (bytes + page - 1) / page * page;
    uint8_t *base = mmap(NULL, inside + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    ck_assert(base != MAP_FAILED);
    ck_assert_int_eq(mprotect(base + inside, page, PROT_NONE), 0);
    return base + inside - bytes;
}

static int sample_at(const uint8_t *in, size_t index, uint32_t bits)
{
    int value = 0;

    for (size_t bit = index * bits; bit < (index + 1) * bits; bit++)
        value = value * 2 + (in[bit / 8] >> (7 - bit % 8) & 1);
    return value >= 1 << (bits - 1) ? value - (1 << bits) : value;
}

/* out[s][p] as the header defines it: in float, in order of taps, and in double. */
static void model(const struct pfb_fir_args *a, size_t s, size_t p, float *exact, double *ideal, double *scale)
{
    *exact = 0;
    *ideal = *scale = 0;
    for (size_t i = 0; i < a->n_taps; i++) {
        int x = sample_at(a->in, (size_t)a->offset + (s + i) * 2 * a->n_chan + p, a->sample_bits);
        float w = a->weights[i * 2 * a->n_chan + p];
        *exact += w * (float)x;
        *ideal += (double)w * x;
        *scale += fabs((double)w * x);
    }
}

/* Where value p of a spectrum is stored. */
static size_t unzipped(const struct pfb_fir_args *a, size_t p)
{
    size_t pair = p / 2;
    return 2 * (pair % a->unzip * (a->n_chan / a->unzip) + pair / a->unzip) + p % 2;
}

static void run_and_compare(struct pfb_fir_args *a, int n_threads)
{
    size_t step = 2 * (size_t)a->n_chan, n_out = a->n_spectra * step;
    size_t n_samples = (size_t)a->offset + (a->n_spectra + a->n_taps - 1) * step;
    size_t in_bytes = (n_samples * a->sample_bits + 7) / 8;
    uint8_t *in = alloc_to_the_edge(in_bytes);
    float *weights = (float *)alloc_to_the_edge(a->n_taps * step * sizeof(float));
    float *out = malloc((n_out + GUARD) * sizeof(float));

    ck_assert_ptr_nonnull(out);
    random_bytes(in, in_bytes);
    for (size_t i = 0; i < a->n_taps * step; i++)
        weights[i] = (float)random_between(-1, 1);
    for (size_t i = 0; i < n_out + GUARD; i++)
        out[i] = NAN;
    a->in = in;
    a->weights = weights;
    a->out = out;
    pfb_fir_kernel.cpu(a, n_threads);
    for (size_t s = 0; s < a->n_spectra; s++)
        for (size_t p = 0; p < step; p++) {
            float exact, got = out[s * step + unzipped(a, p)];
            double ideal, scale;
            model(a, s, p, &exact, &ideal, &scale);
            if (got != exact || !(fabs(got - ideal) <= 2e-6 * scale))
                ck_abort_msg("bits %u chans %u taps %u unzip %u offset %ld: [%zu][%zu] is %g, not %g (%g)",
                             a->sample_bits, a->n_chan, a->n_taps, a->unzip, (long)a->offset, s, p, got, exact, ideal);
        }
    for (size_t i = n_out; i < n_out + GUARD; i++)
        ck_assert(isnan(out[i]));
    free(out);
}

START_TEST(every_width)
{
    for (uint32_t unzip = 1; unzip <= 4; unzip *= 2)
        for (int64_t offset = 0; offset < 9; offset++) {
            struct pfb_fir_args args = {
                .offset = offset, .n_spectra = 5, .n_chan = 64, .n_taps = 4, .sample_bits = widths[_i], .unzip = unzip};
            run_and_compare(&args, 1);
        }
}
END_TEST

START_TEST(random_shapes)
{
    for (int trial = 0; trial < 60; trial++) {
        uint32_t unzip = 1u << random_below(3);
        struct pfb_fir_args args = {
            .offset = (int64_t)random_below(5000),
            .n_spectra = 1 + (uint32_t)random_below(20),
            .n_chan = 2 * unzip << random_below(7),
            .n_taps = 1 + (uint32_t)random_below(32),
            .sample_bits = widths[random_below(N_WIDTHS)],
            .unzip = unzip,
        };
        run_and_compare(&args, 1 + (int)random_below(3));
    }
}
END_TEST

/* More spectra than a thread takes at a time. */
START_TEST(long_runs)
{
    struct pfb_fir_args args = {
        .offset = 3, .n_spectra = 700, .n_chan = 64, .n_taps = 16, .sample_bits = 10, .unzip = 1};
    run_and_compare(&args, 2);
}
END_TEST

START_TEST(no_spectra)
{
    struct pfb_fir_args args = {.n_spectra = 0, .n_chan = 64, .n_taps = 16, .sample_bits = 10, .unzip = 1};
    pfb_fir_kernel.cpu(&args, 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pfb_fir");
    TCase *tcase = tcase_create("all");
    SRunner *runner = srunner_create(suite);

    random_start();
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, every_width, 0, N_WIDTHS);
    tcase_add_test(tcase, random_shapes);
    tcase_add_test(tcase, long_runs);
    tcase_add_test(tcase, no_spectra);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
