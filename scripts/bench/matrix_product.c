/* matrix_product.c - see matrix_product.h.  The functions of cuBLASLt and of the driver are declared as in NVIDIA's
 * reference manuals. */
#include "scripts/bench/matrix_product.h"

#include "common/base/clock.h"
#include "common/device/cuda/library.h"
#include "scripts/bench/fgpu_runs.h"

#include <stdio.h>
#include <string.h>

#define SIDE            8192
#define N_PRODUCTS      20 /* number of products in a repetition, which takes some 15 ms */
#define MAX_REPETITIONS 99
#define WORKSPACE_BYTES ((size_t)64 << 20)

enum { R_32F = 0, R_16F = 2, R_8I = 3, R_32I = 10 };    /* cudaDataType */
enum { COMPUTE_32F = 68, COMPUTE_32I = 72 };            /* cublasComputeType_t */
enum { DESC_TRANSA = 3, PREF_WORKSPACE = 1, OP_T = 1 }; /* attributes of cuBLASLt, and cublasOperation_t */

struct heuristic {
    uint64_t algorithm[8];
    size_t workspace_bytes;
    int status;
    float waves;
    int reserved[4];
};

static struct {
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*desc_create)(void **desc, int compute, int scale);
    int (*desc_set)(void *desc, int attribute, const void *value, size_t bytes);
    int (*desc_destroy)(void *desc);
    int (*layout_create)(void **layout, int type, uint64_t rows, uint64_t columns, int64_t leading);
    int (*layout_destroy)(void *layout);
    int (*pref_create)(void **pref);
    int (*pref_set)(void *pref, int attribute, const void *value, size_t bytes);
    int (*pref_destroy)(void *pref);
    int (*heuristic)(void *handle, void *desc, void *a, void *b, void *c, void *d, void *pref, int n,
                     struct heuristic *found, int *n_found);
    int (*multiply)(void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *b,
                    void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout,
                    const uint64_t *algorithm, void *workspace, size_t workspace_bytes, void *stream);
} lt;
static int (*synchronize)(void);

static int load(char *why, size_t why_bytes)
{
    static const char *const lt_names[] = {"libcublasLt.so.13", "libcublasLt.so.12", NULL};
    static const char *const driver_names[] = {"libcuda.so.1", NULL};
    static const struct library_symbol lt_symbols[] = {
        {"cublasLtCreate", &lt.create},
        {"cublasLtDestroy", &lt.destroy},
        {"cublasLtMatmulDescCreate", &lt.desc_create},
        {"cublasLtMatmulDescSetAttribute", &lt.desc_set},
        {"cublasLtMatmulDescDestroy", &lt.desc_destroy},
        {"cublasLtMatrixLayoutCreate", &lt.layout_create},
        {"cublasLtMatrixLayoutDestroy", &lt.layout_destroy},
        {"cublasLtMatmulPreferenceCreate", &lt.pref_create},
        {"cublasLtMatmulPreferenceSetAttribute", &lt.pref_set},
        {"cublasLtMatmulPreferenceDestroy", &lt.pref_destroy},
        {"cublasLtMatmulAlgoGetHeuristic", &lt.heuristic},
        {"cublasLtMatmul", &lt.multiply},
        {NULL, NULL},
    };
    static const struct library_symbol driver_symbols[] = {{"cuCtxSynchronize", &synchronize}, {NULL, NULL}};
    int err = library_open(lt_names, lt_symbols, NULL, why, why_bytes);

    return err ? err : library_open(driver_names, driver_symbols, NULL, why, why_bytes);
}

struct product {
    void *handle, *desc, *pref, *in_layout, *out_layout; /* of a and b; of c */
    void *a, *b, *c, *workspace;
    struct heuristic found;
    bool real;
};

/* Computes c = a^T b, the form in which cuBLASLt multiplies int8. */
static int multiply(const struct product *p)
{
    const int32_t one = 1, zero = 0;
    const float one_float = 1, zero_float = 0;
    const void *alpha = p->real ? (const void *)&one_float : &one, *beta = p->real ? (const void *)&zero_float : &zero;

    return lt.multiply(p->handle, p->desc, alpha, p->a, p->in_layout, p->b, p->in_layout, beta, p->c, p->out_layout,
                       p->c, p->out_layout, p->found.algorithm, p->workspace, WORKSPACE_BYTES, NULL);
}

static int prepare(struct product *p)
{
    const int transpose = OP_T;
    const size_t workspace_bytes = WORKSPACE_BYTES;
    int n_found = 0;

    if (lt.create(&p->handle) ||
        lt.desc_create(&p->desc, p->real ? COMPUTE_32F : COMPUTE_32I, p->real ? R_32F : R_32I) ||
        lt.desc_set(p->desc, DESC_TRANSA, &transpose, sizeof(transpose)) ||
        lt.layout_create(&p->in_layout, p->real ? R_16F : R_8I, SIDE, SIDE, SIDE) ||
        lt.layout_create(&p->out_layout, p->real ? R_32F : R_32I, SIDE, SIDE, SIDE) || lt.pref_create(&p->pref) ||
        lt.pref_set(p->pref, PREF_WORKSPACE, &workspace_bytes, sizeof(workspace_bytes)) ||
        lt.heuristic(p->handle, p->desc, p->in_layout, p->in_layout, p->out_layout, p->out_layout, p->pref, 1,
                     &p->found, &n_found))
        return -1;
    return n_found == 1 && p->found.status == 0 ? 0 : -1;
}

static int measure(const struct product *p, size_t n_repetitions, struct bench_stat *tops)
{
    double rates[MAX_REPETITIONS];

    for (size_t r = 0; r <= n_repetitions; r++) { /* repetition 0 warms up */
        int64_t start_ns = clock_monotonic_ns();
        for (int i = 0; i < N_PRODUCTS; i++)
            if (multiply(p))
                return -1;
        if (synchronize())
            return -1;
        if (r > 0)
            rates[r - 1] = 2.0 * SIDE * SIDE * SIDE * N_PRODUCTS / (double)(clock_monotonic_ns() - start_ns) * 1e-3;
    }
    *tops = bench_stat_of(rates, n_repetitions);
    return 0;
}

/* Fills the matrices with random bits, because random data cost the most electrical power.  Some of the half floats
 * are NaN. */
static void fill(struct device *device, struct product *p)
{
    size_t bytes = (size_t)SIDE * SIDE * (p->real ? 2 : 1);
    struct device_stream *stream;

    if (device_stream_create(device, "fill", &stream))
        return;
    fgpu_runs_fill_random(device, stream, p->a, bytes, RANDOM_BITS);
    fgpu_runs_fill_random(device, stream, p->b, bytes, RANDOM_BITS);
    device_stream_destroy(stream);
}

int matrix_product_measure(struct device *device, bool real, size_t n_repetitions, struct bench_stat *tops, char *why,
                           size_t why_bytes)
{
    size_t in_bytes = (size_t)SIDE * SIDE * (real ? 2 : 1), out_bytes = (size_t)SIDE * SIDE * 4;
    struct product p = {.real = real};
    int err = -1;

    if (strcmp(device_name(device), "cuda") != 0) {
        snprintf(why, why_bytes, "there is no GPU");
        return -1;
    }
    if (load(why, why_bytes))
        return -1;
    snprintf(why, why_bytes, "cuBLASLt does not multiply");
    p.a = device_alloc(device, in_bytes);
    p.b = device_alloc(device, in_bytes);
    p.c = device_alloc(device, out_bytes);
    p.workspace = device_alloc(device, WORKSPACE_BYTES);
    if (p.a && p.b && p.c && p.workspace) {
        fill(device, &p);
        err = prepare(&p) ? -1 : measure(&p, n_repetitions, tops);
    }
    if (p.pref)
        lt.pref_destroy(p.pref);
    if (p.out_layout)
        lt.layout_destroy(p.out_layout);
    if (p.in_layout)
        lt.layout_destroy(p.in_layout);
    if (p.desc)
        lt.desc_destroy(p.desc);
    if (p.handle)
        lt.destroy(p.handle);
    device_free(device, p.a);
    device_free(device, p.b);
    device_free(device, p.c);
    device_free(device, p.workspace);
    return err;
}
