/* check_fgpu_status.c - powers of voltages on the status page, against the definition. */
#include "fgpu/status.h"

#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <stdlib.h>

/* A component of a sample: number 'i' of the batch, counted in components. */
static int component(const uint8_t *voltages, int sample_bits, size_t i)
{
    if (sample_bits == 8)
        return voltages[i] < 128 ? voltages[i] : voltages[i] - 256;
    int nibble = i % 2 ? voltages[i / 2] & 15 : voltages[i / 2] >> 4; /* the real part in the high one */
    return nibble < 8 ? nibble : nibble - 16;
}

static void check_power(int sample_bits, size_t n_chan, size_t n_heap_spectra, size_t n_spectra)
{
    size_t bytes = n_chan * n_heap_spectra * N_POLS * 2 * (size_t)sample_bits / 8;
    uint8_t *voltages = malloc(bytes);
    float *power[N_POLS];

    random_bytes(voltages, bytes);
    for (size_t i = 0; i < bytes && i < 64; i++)
        voltages[i] = sample_bits == 8 ? 0x80 : 0x88; /* the most negative */
    for (size_t pol = 0; pol < N_POLS; pol++) {
        power[pol] = malloc(n_chan * sizeof(float));
        for (size_t c = 0; c < n_chan; c++)
            power[pol][c] = -1;
    }
    fgpu_status_power(voltages, sample_bits, n_chan, n_heap_spectra, n_spectra, power);
    for (size_t c = 0; c < n_chan; c++)
        for (size_t pol = 0; pol < N_POLS; pol++) {
            double sum = 0;
            for (size_t s = 0; s < n_spectra; s++)
                for (size_t part = 0; part < 2; part++) {
                    double v = component(voltages, sample_bits, ((c * n_heap_spectra + s) * N_POLS + pol) * 2 + part);
                    sum += v * v;
                }
            ck_assert_float_eq_tol(power[pol][c], (float)(sum / (double)n_spectra), 1e-2f);
        }
    for (size_t pol = 0; pol < N_POLS; pol++)
        free(power[pol]);
    free(voltages);
}

TEST(power, .end = 2)
{
    static const int bits[] = {8, 4};

    check_power(bits[_i], 37, 16, 16);
    check_power(bits[_i], 5, 48, 7); /* only some of a heap's spectra */
    check_power(bits[_i], 1, 256, 256);
    check_power(bits[_i], 1000, 16, 1);
}

SUITE(.start = random_start);
