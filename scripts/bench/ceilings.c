/* ceilings.c - the limits of kernels on the cpu device.  See ceilings.h. */
#include "scripts/bench/ceilings.h"

#include <string.h>

#define COPY_BLOCK_BYTES ((size_t)1 << 20)
#define N_LOOPS          2000000 /* the loops take some ms, much longer than the start and the end of the threads */

/* Numbers of independent chains of operations: large enough to hide the latencies, and small enough for the registers
 * (16, or 32 with AVX-512).  The chains must differ; otherwise the compiler computes only one chain. */
#define N_CHAINS     12
#define N_CHAINS_512 16

static void copy_cpu(const void *args, int n_threads)
{
    const struct ceiling_args *a = args;

#pragma omp parallel for num_threads(n_threads)
    for (size_t at = 0; at < CEILING_COPY_BYTES; at += COPY_BLOCK_BYTES)
        memcpy(a->dst + at, a->src + at, COPY_BLOCK_BYTES);
}

static float float_chains_16(float factor)
{
    float __attribute__((vector_size(16))) sums[N_CHAINS] = {{0}};

    for (int k = 0; k < N_CHAINS; k++)
        sums[k] += (float)(k + 3);
    for (int i = 0; i < N_LOOPS; i++)
        for (int k = 0; k < N_CHAINS; k++)
            sums[k] = sums[k] * factor + 1.0f;
    for (int k = 1; k < N_CHAINS; k++)
        sums[0] += sums[k];
    return sums[0][0];
}

#ifdef __x86_64__
#include <immintrin.h>

__attribute__((target("avx2"))) static float float_chains_32(float factor)
{
    float __attribute__((vector_size(32))) sums[N_CHAINS] = {{0}};

    for (int k = 0; k < N_CHAINS; k++)
        sums[k] += (float)(k + 3);
    for (int i = 0; i < N_LOOPS; i++)
        for (int k = 0; k < N_CHAINS; k++)
            sums[k] = sums[k] * factor + 1.0f;
    for (int k = 1; k < N_CHAINS; k++)
        sums[0] += sums[k];
    return sums[0][0];
}

__attribute__((target("avx512bw"))) static float float_chains_64(float factor)
{
    float __attribute__((vector_size(64))) sums[N_CHAINS_512] = {{0}};

    for (int k = 0; k < N_CHAINS_512; k++)
        sums[k] += (float)(k + 3);
    for (int i = 0; i < N_LOOPS; i++)
        for (int k = 0; k < N_CHAINS_512; k++)
            sums[k] = sums[k] * factor + 1.0f;
    for (int k = 1; k < N_CHAINS_512; k++)
        sums[0] += sums[k];
    return sums[0][0];
}

__attribute__((target("avx2"))) static int int16_chains_32(int16_t factor)
{
    __m256i factors = _mm256_set1_epi16(factor), sums[N_CHAINS];

    for (int k = 0; k < N_CHAINS; k++)
        sums[k] = _mm256_set1_epi16((int16_t)k);
    for (int i = 0; i < N_LOOPS; i++)
        for (int k = 0; k < N_CHAINS; k++)
            sums[k] = _mm256_add_epi32(sums[k], _mm256_madd_epi16(sums[k], factors));
    for (int k = 1; k < N_CHAINS; k++)
        sums[0] = _mm256_add_epi32(sums[0], sums[k]);
    return _mm256_extract_epi32(sums[0], 0);
}

__attribute__((target("avx512bw"))) static int int16_chains_64(int16_t factor)
{
    __m512i factors = _mm512_set1_epi16(factor), sums[N_CHAINS_512];

    for (int k = 0; k < N_CHAINS_512; k++)
        sums[k] = _mm512_set1_epi16((int16_t)k);
    for (int i = 0; i < N_LOOPS; i++)
        for (int k = 0; k < N_CHAINS_512; k++)
            sums[k] = _mm512_add_epi32(sums[k], _mm512_madd_epi16(sums[k], factors));
    for (int k = 1; k < N_CHAINS_512; k++)
        sums[0] = _mm512_add_epi32(sums[0], sums[k]);
    return _mm_cvtsi128_si32(_mm512_castsi512_si128(sums[0]));
}

int ceiling_vector_bytes(void)
{
    return __builtin_cpu_supports("avx512bw") ? 64 : __builtin_cpu_supports("avx2") ? 32 : 16;
}

static float run_float(void)
{
    return ceiling_vector_bytes() == 64   ? float_chains_64(0.5f)
           : ceiling_vector_bytes() == 32 ? float_chains_32(0.5f)
                                          : float_chains_16(0.5f);
}

static int run_int16(void)
{
    return ceiling_vector_bytes() == 64 ? int16_chains_64(3) : ceiling_vector_bytes() == 32 ? int16_chains_32(3) : 0;
}
#else
int ceiling_vector_bytes(void)
{
    return 16;
}

static float run_float(void)
{
    return float_chains_16(0.5f);
}

static int run_int16(void)
{
    return 0;
}
#endif

/* Returns the number of bytes that a thread multiplies. */
static double work_bytes(void)
{
    return (double)N_LOOPS * ceiling_vector_bytes() * (ceiling_vector_bytes() == 64 ? N_CHAINS_512 : N_CHAINS);
}

double ceiling_float_madds(void)
{
    return work_bytes() / (double)sizeof(float);
}

double ceiling_int16_madds(void)
{
    return ceiling_vector_bytes() == 16 ? 0 : work_bytes() / (double)sizeof(int16_t);
}

static void float_cpu(const void *args, int n_threads)
{
    const struct ceiling_args *a = args;

#pragma omp parallel for num_threads(n_threads)
    for (int t = 0; t < n_threads; t++)
        *a->sink = run_float();
}

static void int16_cpu(const void *args, int n_threads)
{
    const struct ceiling_args *a = args;

#pragma omp parallel for num_threads(n_threads)
    for (int t = 0; t < n_threads; t++)
        *a->sink = (float)run_int16();
}

const struct kernel ceiling_copy = {
    .name = "copy",
    .args_bytes = sizeof(struct ceiling_args),
    .cpu = copy_cpu,
};

const struct kernel ceiling_float = {
    .name = "float",
    .args_bytes = sizeof(struct ceiling_args),
    .cpu = float_cpu,
};

const struct kernel ceiling_int16 = {
    .name = "int16",
    .args_bytes = sizeof(struct ceiling_args),
    .cpu = int16_cpu,
};
