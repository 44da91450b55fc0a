/* check_pfb_fir_complex - the filter, C version and CUDA variant, against its definition in double.  Inputs end at the
 * end of the mapped memory. */
#include "kernels/filterbank/pfb_fir_complex.h"

#include "tests/unit/test_kernel.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_samples.h"
#include "tests/unit/test_main.h"

#include <complex.h>
#include <math.h>
#include <string.h>

#define GUARD 64 /* values after the output that must stay */

/* What one call works on; 'out' has GUARD values more than it needs, all of them poisoned. */
struct memory {
    size_t n_in, n_weights, n_out; /* floats */
    float *in, *weights, *out;
};

static void memory_init(const struct pfb_fir_complex_args *a, struct memory *m)
{
    m->n_in = 2 * ((size_t)a->offset + (a->n_spectra + a->n_taps - 1) * (size_t)a->n_bins);
    m->n_weights = a->n_taps * (size_t)a->n_bins;
    m->n_out = 2 * a->n_spectra * (size_t)a->n_bins;
    m->in = alloc_to_the_edge(m->n_in * sizeof(float));
    m->weights = alloc_to_the_edge(m->n_weights * sizeof(float));
    m->out = malloc((m->n_out + GUARD) * sizeof(float));
    ck_assert_ptr_nonnull(m->out);
    for (size_t i = 0; i < m->n_in; i++)
        m->in[i] = (float)random_between(-1000, 1000);
    for (size_t i = 0; i < m->n_weights; i++)
        m->weights[i] = (float)random_between(-1, 1);
    for (size_t i = 0; i < m->n_out + GUARD; i++)
        m->out[i] = NAN;
}

static void compare(const struct pfb_fir_complex_args *a, const struct memory *m)
{
    for (size_t s = 0; s < a->n_spectra; s++)
        for (size_t p = 0; p < a->n_bins; p++) {
            const float *got = m->out + 2 * (s * a->n_bins + p);
            double complex sum = 0;
            double scale = 0;
            for (size_t i = 0; i < a->n_taps; i++) {
                const float *x = m->in + 2 * ((size_t)a->offset + (s + i) * a->n_bins + p);
                double w = m->weights[i * a->n_bins + p];
                sum += w * (x[0] + I * (double)x[1]);
                scale += fabs(w) * 1000;
            }
            if (!(cabs(got[0] + I * (double)got[1] - sum) <= 2e-6 * scale))
                ck_abort_msg("bins %u taps %u offset %ld: [%zu][%zu] is %g %g, not %g %g", a->n_bins, a->n_taps,
                             (long)a->offset, s, p, got[0], got[1], creal(sum), cimag(sum));
        }
    for (size_t i = m->n_out; i < m->n_out + GUARD; i++)
        ck_assert(isnan(m->out[i]));
}

static void run_plain_c(struct pfb_fir_complex_args a, int n_threads)
{
    struct memory m;

    memory_init(&a, &m);
    a.in = m.in;
    a.weights = m.weights;
    a.out = m.out;
    pfb_fir_complex_kernel.cpu(&a, n_threads);
    compare(&a, &m);
    free(m.out);
}

static void run_cuda(struct test_device *d, struct pfb_fir_complex_args a, uint32_t section)
{
    struct memory m;

    memory_init(&a, &m);
    a.in = test_copy_in(d, m.in, m.n_in * sizeof(float));
    a.weights = test_copy_in(d, m.weights, m.n_weights * sizeof(float));
    a.out = test_copy_in(d, m.out, (m.n_out + GUARD) * sizeof(float));
    test_launch(d, pfb_fir_complex_grid(&a, section), &a);
    test_download(d, m.out, a.out, (m.n_out + GUARD) * sizeof(float));
    compare(&a, &m);
    free(m.out);
}

TEST(plain_c)
{
    for (int trial = 0; trial < 60; trial++)
        run_plain_c(
            (struct pfb_fir_complex_args){
                .offset = (int64_t)random_below(300),
                .n_spectra = (uint32_t)random_below(100),
                .n_bins = 2u << random_below(9),
                .n_taps = 1 + (uint32_t)random_below(32),
            },
            1 + (int)random_below(3));
}

TEST_ON_DEVICE(cuda, .end = 5)
{
    static const uint32_t taps[] = {1, 2, 5, 16, 32};
    struct pfb_fir_complex_args a = {.n_bins = 64u << random_below(3), .n_taps = taps[_i]};
    struct kernel_constant constants[PFB_FIR_COMPLEX_N_CONSTANTS];

    pfb_fir_complex_constants(&a, constants);
    test_kernel(d, &pfb_fir_complex_kernel, constants, PFB_FIR_COMPLEX_N_CONSTANTS);
    for (int trial = 0; trial < 6; trial++) {
        a.offset = (int64_t)random_below(100);
        a.n_spectra = 1 + (uint32_t)random_below(150);
        run_cuda(d, a, trial % 2 ? 0 : 1 + (uint32_t)random_below(40));
    }
}

SUITE(.timeout_s = 120, .start = random_start);
