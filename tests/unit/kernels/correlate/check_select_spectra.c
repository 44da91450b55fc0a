/* check_select_spectra - both variants against the definition: every sample of the output, in every format.  Cases:
 * with and without shifts, absences and lists, at awkward sizes.  Neither variant writes beside its output. */
#include "kernels/correlate/select_spectra.h"

#include "common/base/units.h"
#include "tests/unit/test_kernel.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <string.h>

#define GUARD 64 /* bytes behind what is written */

/* What a call works on, in host memory. */
struct memory {
    size_t in_bytes, out_bytes, n_delays, n_present, n_listed, n_ends;
    uint8_t *in, *out, *present;
    uint32_t *delays, *spectra, *ends;
};

static const enum voltage_format formats[] = {VOLTAGES_4_BITS, VOLTAGES_4_BITS_OFFSET, VOLTAGES_8_BITS,
                                              VOLTAGES_16_BITS};

static void *make_random(size_t bytes)
{
    void *memory = malloc(bytes + 1);

    ck_assert_ptr_nonnull(memory);
    random_bytes(memory, bytes);
    return memory;
}

/* Lists of wanted spectra of 'n_listed_batches': runs of random length, or none, or all. */
static void make_lists(struct select_spectra_args *a, struct memory *m, size_t n_batches)
{
    static const size_t longest[] = {1, 2, 7, 40, 1000};

    a->row_pitch = (uint32_t)(n_batches * a->n_spectra + random_below(3));
    a->ends_pitch = (uint32_t)(n_batches + 1 + random_below(3));
    m->n_listed = (size_t)a->n_rows * a->row_pitch;
    m->n_ends = (size_t)a->n_rows * a->ends_pitch;
    m->spectra = make_random(m->n_listed * sizeof(uint32_t));
    m->ends = make_random(m->n_ends * sizeof(uint32_t));
    for (size_t row = 0; row < a->n_rows; row++) {
        uint32_t n = 0, *list = m->spectra + row * a->row_pitch, *ends = m->ends + row * a->ends_pitch;
        size_t left = random_below(50), wanted = random_below(2), length = longest[random_below(ARRAY_LEN(longest))];
        for (uint32_t t = 0; t < n_batches * a->n_spectra; t++) {
            if (t % a->n_spectra == 0)
                ends[t / a->n_spectra] = n;
            if (left-- == 0) {
                wanted = !wanted;
                left = random_below(length);
            }
            if (wanted)
                list[n++] = t;
        }
        ends[n_batches] = n;
    }
}

/* The smallest output that will hold what is wanted, or one batch more. */
static void size_output(struct select_spectra_args *a, const struct memory *m)
{
    size_t most = (size_t)a->n_batches * a->n_spectra;

    if (m->spectra) {
        most = 0;
        for (size_t row = 0; row < a->n_rows; row++) {
            const uint32_t *ends = m->ends + row * a->ends_pitch + a->first_batch;
            most = ends[a->n_batches] - ends[0] > most ? ends[a->n_batches] - ends[0] : most;
        }
    }
    a->n_out_batches = (uint32_t)((most + a->n_out_spectra - 1) / a->n_out_spectra + random_below(2));
    if (a->n_out_batches == 0)
        a->n_out_batches = 1;
}

static void make_memory(struct select_spectra_args *a, struct memory *m, bool shifted, bool absent, bool listed)
{
    size_t n_batches = a->first_batch + a->n_batches + random_below(3), bytes = voltage_bytes(a->format) * N_POLS;

    *m = (struct memory){.in_bytes = (a->n_history + n_batches) * a->n_ants * a->n_chan * a->n_spectra * bytes};
    m->in = make_random(m->in_bytes);
    if (shifted) {
        m->n_delays = (size_t)a->n_ants * N_POLS;
        m->delays = make_random(m->n_delays * sizeof(uint32_t));
        for (size_t i = 0; i < m->n_delays; i++)
            m->delays[i] = (uint32_t)random_below((size_t)a->n_history * a->n_spectra + 1);
        m->delays[0] = a->n_history * a->n_spectra;
    }
    if (absent) {
        m->n_present = n_batches * a->n_ants;
        m->present = make_random(m->n_present);
        for (size_t i = 0; i < m->n_present; i++)
            m->present[i] = random_below(4) > 0;
    }
    if (listed)
        make_lists(a, m, n_batches);
    size_output(a, m);
    m->out_bytes = (size_t)a->n_out_batches * a->n_ants * a->n_chan * a->n_out_spectra * bytes;
    m->out = make_random(m->out_bytes + GUARD);
}

static void free_memory(struct memory *m)
{
    free(m->in);
    free(m->out);
    free(m->present);
    free(m->delays);
    free(m->spectra);
    free(m->ends);
}

/* The j-th wanted spectrum of a channel, or -1. */
static int64_t wanted(const struct select_spectra_args *a, const struct memory *m, size_t chan, size_t j)
{
    size_t row = a->n_rows == 1 ? 0 : chan, n = 0;

    if (!m->spectra)
        return j < (size_t)a->n_batches * a->n_spectra ? (int64_t)((size_t)a->first_batch * a->n_spectra + j) : -1;
    for (size_t i = 0; i < m->ends[row * a->ends_pitch + a->first_batch + a->n_batches]; i++) {
        uint32_t t = m->spectra[row * a->row_pitch + i];
        if (t >= a->first_batch * a->n_spectra && n++ == j)
            return t;
    }
    return -1;
}

static void check_sample(const struct select_spectra_args *a, const struct memory *m, size_t j, size_t ant, size_t chan,
                         size_t pol)
{
    size_t bytes = voltage_bytes(a->format);
    size_t out_heap = (j / a->n_out_spectra * a->n_ants + ant) * a->n_chan + chan;
    const uint8_t *found = m->out + ((out_heap * a->n_out_spectra + j % a->n_out_spectra) * N_POLS + pol) * bytes;
    int64_t t = wanted(a, m, chan, j);
    uint8_t expected[4];

    memset(expected, a->format == VOLTAGES_4_BITS_OFFSET ? 0x88 : 0, sizeof(expected));
    if (t >= 0 && (!m->present || m->present[(size_t)t / a->n_spectra * a->n_ants + ant])) {
        size_t from = (size_t)t + (size_t)a->n_history * a->n_spectra - (m->delays ? m->delays[ant * N_POLS + pol] : 0);
        size_t heap = (from / a->n_spectra * a->n_ants + ant) * a->n_chan + chan;
        memcpy(expected, m->in + ((heap * a->n_spectra + from % a->n_spectra) * N_POLS + pol) * bytes, bytes);
    }
    if (memcmp(found, expected, bytes) != 0)
        ck_abort_msg("%u ants %u chans %u spectra, %u out, history %u, format %d: spectrum %zu (%lld) of ant %zu, chan "
                     "%zu, pol %zu is wrong",
                     a->n_ants, a->n_chan, a->n_spectra, a->n_out_spectra, a->n_history, a->format, j, (long long)t,
                     ant, chan, pol);
}

static void check_all(const struct select_spectra_args *a, const struct memory *m, const uint8_t *guard)
{
    for (size_t j = 0; j < (size_t)a->n_out_batches * a->n_out_spectra; j++)
        for (size_t ant = 0; ant < a->n_ants; ant++)
            for (size_t chan = 0; chan < a->n_chan; chan++)
                for (size_t pol = 0; pol < N_POLS; pol++)
                    check_sample(a, m, j, ant, chan, pol);
    ck_assert_mem_eq(m->out + m->out_bytes, guard, GUARD);
}

static void run_plain_c(struct select_spectra_args a, struct memory *m)
{
    uint8_t guard[GUARD];

    memcpy(guard, m->out + m->out_bytes, GUARD);
    a.in = m->in;
    a.out = m->out;
    a.delays = m->delays;
    a.present = m->present;
    a.spectra = m->spectra;
    a.ends = m->ends;
    select_spectra_kernel.cpu(&a, 1 + (int)random_below(3));
    check_all(&a, m, guard);
}

static void run_cuda(struct test_device *d, struct select_spectra_args a, struct memory *m)
{
    struct kernel_constant constants[SELECT_SPECTRA_N_CONSTANTS];
    uint8_t guard[GUARD];

    random_bytes(m->out, m->out_bytes + GUARD);
    memcpy(guard, m->out + m->out_bytes, GUARD);
    a.in = test_copy_in(d, m->in, m->in_bytes);
    a.out = test_copy_in(d, m->out, m->out_bytes + GUARD);
    a.delays = test_copy_in(d, m->delays, m->n_delays * sizeof(uint32_t));
    a.present = test_copy_in(d, m->present, m->n_present);
    a.spectra = test_copy_in(d, m->spectra, m->n_listed * sizeof(uint32_t));
    a.ends = test_copy_in(d, m->ends, m->n_ends * sizeof(uint32_t));
    select_spectra_constants(&a, constants);
    test_kernel(d, &select_spectra_kernel, constants, SELECT_SPECTRA_N_CONSTANTS);
    test_launch(d, select_spectra_grid(&a), &a);
    test_download(d, m->out, a.out, m->out_bytes + GUARD);
    check_all(&a, m, guard);
}

static struct select_spectra_args random_sizes(void)
{
    struct select_spectra_args a = {
        .format = formats[random_below(ARRAY_LEN(formats))],
        .n_ants = 1 + (uint32_t)random_below(20),
        .n_chan = 1 + (uint32_t)random_below(4),
        .n_spectra = 1 + (uint32_t)random_below(70),
        .n_history = (uint32_t)random_below(3),
        .first_batch = (uint32_t)random_below(3),
        .n_batches = 1 + (uint32_t)random_below(4),
        .n_out_spectra = 1 + (uint32_t)random_below(100),
    };

    a.n_rows = random_below(2) ? a.n_chan : 1;
    return a;
}

TEST(plain_c)
{
    for (int trial = 0; trial < 200; trial++) {
        struct select_spectra_args a = random_sizes();
        struct memory m;
        make_memory(&a, &m, random_below(2), random_below(2), random_below(4) > 0);
        run_plain_c(a, &m);
        free_memory(&m);
    }
}

/* Each of the eight ways to call it, in each format. */
TEST_ON_DEVICE(cuda, .end = 8 * (int)ARRAY_LEN(formats))
{
    struct select_spectra_args a = random_sizes();
    struct memory m;

    for (int i = 0; i < _i; i++)
        a = random_sizes(); /* each round is forked off the same state */
    a.format = formats[_i / 8];
    make_memory(&a, &m, _i & 1, _i & 2, _i & 4);
    run_cuda(d, a, &m);
    free_memory(&m);
}

/* More of each axis than a block has. */
TEST_ON_DEVICE(cuda_large)
{
    struct select_spectra_args a = {.format = VOLTAGES_8_BITS,
                                    .n_ants = 33,
                                    .n_chan = 3,
                                    .n_spectra = 144,
                                    .n_history = 2,
                                    .n_batches = 5,
                                    .n_out_spectra = 64,
                                    .n_rows = 3};
    struct memory m;

    make_memory(&a, &m, true, true, true);
    run_cuda(d, a, &m);
    free_memory(&m);
}

TEST(grids)
{
    for (int trial = 0; trial < 10000; trial++) {
        struct select_spectra_args a = {.n_ants = 1 + (uint32_t)random_below(4096),
                                        .n_chan = 1 + (uint32_t)random_below(65536),
                                        .n_out_spectra = 1 + (uint32_t)random_below(3000),
                                        .n_out_batches = 1 + (uint32_t)random_below(1000)};
        struct kernel_grid grid = select_spectra_grid(&a);
        ck_assert(grid.threads >= 32 && grid.threads <= 1024 && grid.threads % 32 == 0);
        ck_assert((uint64_t)grid.blocks[0] * grid.threads >= (uint64_t)a.n_out_spectra * a.n_out_batches);
        ck_assert(grid.blocks[1] >= 1 && grid.blocks[1] <= a.n_ants && grid.blocks[1] <= 65535);
        ck_assert(grid.blocks[2] >= 1 && grid.blocks[2] <= 65535);
    }
}

SUITE(.timeout_s = 300, .start = random_start);
