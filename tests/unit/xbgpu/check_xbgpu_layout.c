/* check_xbgpu_layout - sizes, memory, rates and buffer counts of X-engines, against figures worked out by hand. */
#include "common/base/units.h"
#include "common/config/config.h"
#include "tests/unit/test_config.h"
#include "tests/unit/test_main.h"
#include "xbgpu/config_check.h"
#include "xbgpu/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The X-engine of a MeerKAT L-band array of 80 antennas: heaps of 12.656 MiB every half second. */
TEST(x_engine)
{
    static const char yaml[] = "time: {sync_time: 0, adc_sample_rate: 1712e6}\n"
                               "recv: {sources: 239.2.0.3, antennas: 80, channels: 8192, channels_per_substream: 128,\n"
                               "       channel_offset: 384, spectra_per_heap: 128, samples_between_spectra: 16384,\n"
                               "       batches_per_chunk: 4, threads: 3}\n"
                               "outputs: [{name: half, integration_time: 0.5, destination: 239.3.0.3},\n"
                               "          {name: short, integration_batches: 3, destination: 239.3.0.4,\n"
                               "           missing: weights}]\n";
    struct xbgpu_config config = {0};
    struct xbgpu_layout layout;
    struct config *errors = load_checked_config(&xbgpu_config_table, yaml, &config, xbgpu_config_check);
    const struct xbgpu_config_output *half = xbgpu_config_output(&config, 0), *fast = xbgpu_config_output(&config, 1);

    xbgpu_layout_init(&layout, &config);
    ck_assert_uint_eq(layout.n_baselines, 3240);
    ck_assert_uint_eq(layout.heap_bytes, 65536);
    ck_assert_uint_eq(layout.vis_bytes, 13271040);
    ck_assert_int_eq(layout.batch_samples, 2097152);
    ck_assert_int_eq(xbgpu_integration_batches(&config, half), 408); /* 0.5 x 1712e6 / 2097152 = 408.17 */
    ck_assert_int_eq(xbgpu_integration_batches(&config, fast), 3);
    ck_assert_uint_eq(xbgpu_dump_bytes(&layout, &config, half), 13271040);
    ck_assert_uint_eq(xbgpu_dump_bytes(&layout, &config, fast), 13271040 + 3240 * 4);
    ck_assert_double_eq_tol(xbgpu_send_rate(&config, &layout, half),
                            1.1 * (13271040 + 1620 * 64) / (408 * 2097152 / 1712e6), 1);
    ck_assert_uint_eq(xbgpu_output_buffers(&config, half), 2 * 1 + 2);
    ck_assert_uint_eq(xbgpu_output_buffers(&config, fast), 2 * 2 + 2); /* 4 batches can end 2 dumps of 3 */
    /* 80 antennas among 3 threads, every one in exactly one. */
    ck_assert_uint_eq(layout.n_members, 3);
    ck_assert_uint_eq(xbgpu_member_first(&layout, 0), 0);
    ck_assert_uint_eq(xbgpu_member_first(&layout, 1), 26);
    ck_assert_uint_eq(xbgpu_member_first(&layout, 2), 53);
    ck_assert_uint_eq(xbgpu_member_first(&layout, 3), 80);
    config_free(&xbgpu_config_table, &config, errors);
}

/* What an X-engine's samples take, and which it refuses. */
TEST(sample_formats, .end = 11)
{
    static const struct {
        const char *keys;
        enum voltage_format format;
        size_t heap_bytes; /* of 4 channels, 32 spectra and 2 polarisations; 0: refused */
        int n_spectra;     /* of a heap, instead */
    } cases[] = {
        {"sample_bits: 4", VOLTAGES_4_BITS, 256},
        {"sample_bits: 4, sample_encoding: offset", VOLTAGES_4_BITS_OFFSET, 256},
        {"sample_encoding: twos_complement", VOLTAGES_8_BITS, 512},
        {"sample_bits: 16", VOLTAGES_16_BITS, 1024},
        {"sample_encoding: offset", VOLTAGES_8_BITS, 0},
        {"sample_bits: 16, sample_encoding: offset", VOLTAGES_16_BITS, 0},
        {"sample_bits: 5", VOLTAGES_8_BITS, 0},
        {"sample_bits: 12", VOLTAGES_8_BITS, 0},
        {"sample_bits: 16", VOLTAGES_16_BITS, 8192 * 32, 8192},
        {"sample_bits: 16", VOLTAGES_16_BITS, 0, 8208}, /* more than a float32 sum holds */
        {"sample_bits: 8", VOLTAGES_8_BITS, 65520 * 16, 65520},
    };
    char yaml[512];
    struct xbgpu_config config = {0};
    struct xbgpu_layout layout;
    struct config *errors;

    snprintf(yaml, sizeof(yaml),
             "time: {sync_time: 0, adc_sample_rate: 1712e6}\n"
             "recv: {sources: 239.2.0.3, antennas: 3, channels: 64, channels_per_substream: 4, spectra_per_heap: %d,\n"
             "       samples_between_spectra: 128, %s}\n"
             "outputs: [{name: a, integration_batches: 3, destination: 239.3.0.4}]\n",
             cases[_i].n_spectra ? cases[_i].n_spectra : 32, cases[_i].keys);
    load_config(&xbgpu_config_table, yaml, &config, &errors);
    xbgpu_config_check(&config, errors);
    config_print_errors(errors, stdout);
    ck_assert_uint_eq(config_n_errors(errors), cases[_i].heap_bytes == 0);
    if (cases[_i].heap_bytes) {
        xbgpu_layout_init(&layout, &config);
        ck_assert_int_eq(layout.format, cases[_i].format);
        ck_assert_uint_eq(layout.heap_bytes, cases[_i].heap_bytes);
    }
    config_free(&xbgpu_config_table, &config, errors);
}

/* Which outputs have 64-bit totals beside their sums, and what they take: 3 baselines of 4 products of 8 or 16 bytes;
 * and what checksums take: rows of 4 inputs, and a verdict of 3 and two words for each channel with each dump. */
TEST(totals)
{
    static const struct {
        int bits, n_spectra, n_batches;
        bool totals;
    } cases[] = {{8, 16, 4095, false}, {8, 16, 4096, true},    {4, 4096, 15, false}, {4, 4096, 16, true},
                 {8, 65520, 1, false}, {8, 65520, 2, true},    {16, 256, 32, false}, {16, 256, 33, true},
                 {16, 8192, 1, false}, {8, 256, 100000, true}, {16, 8192, 2, true}};
    static const char format[] =
        "time: {sync_time: 0, adc_sample_rate: 1712e6}\n"
        "recv: {sources: 239.2.0.3, antennas: 2, channels: 64, channels_per_substream: 8, spectra_per_heap: %d,\n"
        "       samples_between_spectra: 128, sample_bits: %d}\n"
        "outputs: [{name: a, integration_batches: 1, destination: 239.3.0.3, buffers: 20},\n"
        "          {name: b, integration_batches: %d, destination: 239.3.0.4, buffers: 20}]\n";
    char yaml[2000];

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct xbgpu_config config = {0};
        struct xbgpu_layout layout;
        snprintf(yaml, sizeof(yaml), format, cases[i].n_spectra, cases[i].bits, cases[i].n_batches);
        struct config *errors = load_checked_config(&xbgpu_config_table, yaml, &config, xbgpu_config_check);

        xbgpu_layout_init(&layout, &config);
        ck_assert(!xbgpu_output_has_totals(&layout, &config, xbgpu_config_output(&config, 0)));
        ck_assert_int_eq(xbgpu_output_has_totals(&layout, &config, xbgpu_config_output(&config, 1)), cases[i].totals);
        const uint64_t both_bytes = xbgpu_memory(&layout, &config, false, 0).device_bytes;
        config.outputs.n = 1;
        xbgpu_layout_init(&layout, &config);
        const uint64_t one_bytes = xbgpu_memory(&layout, &config, false, 0).device_bytes;
        config.outputs.n = 2;
        ck_assert_uint_eq(both_bytes - one_bytes, 20 * (8 * 3 * 4 * 8 + 3 * 4 + 8) + 8 * 3 * 4 * 8 +
                                                      (cases[i].totals ? 8 * 3 * 4 * 16 : 0) +
                                                      8 * 4 * (cases[i].bits == 16 ? 24 : 16) + 20 * (3 + 8 * 2) * 8);
        xbgpu_config_output(&config, 1)->audit_checksum = false;
        config.outputs.n = 2;
        xbgpu_layout_init(&layout, &config);
        ck_assert_uint_eq(both_bytes - xbgpu_memory(&layout, &config, false, 0).device_bytes,
                          8 * 4 * (cases[i].bits == 16 ? 24 : 16) + 20 * (3 + 8 * 2) * 8);
        config_free(&xbgpu_config_table, &config, errors);
    }
}

/* Shifts: how far outputs lag, and what is kept in front of a chunk; gates: what their dumps and their lists take. */
TEST(shifts_and_gates)
{
    static const struct {
        const char *shifts;
        size_t n_lag, n_history;
        uint32_t first_delay;
    } cases[] = {
        {"[0, 0, 0, 0]", 0, 0, 0},      {"[1, 0, 0, 0]", 0, 1, 1},
        {"[0, 16, 0, 0]", 0, 1, 0},     {"[0, 0, -1, 0]", 1, 1, 16},
        {"[-16, 1, 0, 0]", 1, 2, 0},    {"[16, 0, -16, 0]", 1, 2, 32},
        {"[-3, 0, 0, 0]", 1, 1, 13},    {"[-16, -16, -16, -16]", 1, 1, 0},
        {"[], max_shift: 3", 1, 2, 16}, {"[5, 0, 0, 0], max_shift: 3", 1, 2, 21},
    };
    static const char format[] =
        "time: {sync_time: 0, adc_sample_rate: 1712e6}\n"
        "recv: {sources: 239.2.0.3, antennas: 2, channels: 64, channels_per_substream: 8, chunks: 10,\n"
        "       spectra_per_heap: 16, samples_between_spectra: 128, batches_per_chunk: 5, shifts: %s}\n"
        "gates: [{kind: phase, name: p, frequency: 30, bins: 4, take: [1], dispersion_measure: 1,\n"
        "         centre_frequency: 1284e6},\n"
        "        {kind: switch, name: s, period: 1000, on_until: 500}]\n"
        "outputs: [{name: a, integration_batches: 3, destination: 239.3.0.3, buffers: 4},\n"
        "          {name: b, integration_batches: 3, destination: 239.3.0.4, buffers: 4, missing: weights, gate: p},\n"
        "          {name: c, integration_batches: 3, destination: 239.3.0.5, buffers: 4, missing: weights, gate: s},\n"
        "          {name: d, integration_batches: 3, destination: 239.3.0.6, buffers: 4, gate: s}]\n";
    size_t vis = 8 * 3 * 4 * 8, heap = 8 * 16 * 2 * 2, lists = 3 * (9 * (5 * 16 + 6) * 4); /* 8 rows and 1 */
    size_t checks = 4 * (8 * 4 * 2 * 8 + 4 * (3 + 8 * 2) * 8); /* of the outputs' checksums */
    char yaml[2000];

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct xbgpu_config config = {0};
        struct xbgpu_layout l;
        snprintf(yaml, sizeof(yaml), format, cases[i].shifts);
        struct config *errors = load_checked_config(&xbgpu_config_table, yaml, &config, xbgpu_config_check);

        xbgpu_layout_init(&l, &config);
        ck_assert_uint_eq(l.n_lag, cases[i].n_lag);
        ck_assert_uint_eq(l.n_history, cases[i].n_history);
        ck_assert_uint_eq(xbgpu_delay(&l, xbgpu_config_shift(&config, 0)), cases[i].first_delay);
        ck_assert_int_eq(l.shifted, i > 0);
        const size_t dump_bytes[] = {vis, vis + 8 * 3 * 4 + 8 * 4, vis + 3 * 4 + 8 * 4, vis + 8 * 4};
        for (size_t o = 0; o < 4; o++)
            ck_assert_uint_eq(xbgpu_dump_bytes(&l, &config, xbgpu_config_output(&config, o)), dump_bytes[o]);
        /* 80 spectra of a chunk are 2 heaps of 64. */
        ck_assert_uint_eq(l.n_selected_batches * l.n_selected_spectra, 128);
        ck_assert_uint_eq(xbgpu_memory(&l, &config, false, 0).device_bytes,
                          3 * (5 + cases[i].n_history) * 2 * heap + (i > 0) * (5 * 2 * heap + 3 * (5 * 2 + 4 * 4)) +
                              4 * (4 * (vis + 3 * 4 + 8) + vis) + lists + 128 * 2 * 8 * 4 + checks);
        config_free(&xbgpu_config_table, &config, errors);
    }
}

/* Buffers of beams: 50 ms by default, within bounds, and enough for two chunks; their memory is that of so many. */
TEST(buffers_of_beams)
{
    static const char format[] =
        "time: {sync_time: 0, adc_sample_rate: %s}\n"
        "recv: {sources: 239.2.0.3, antennas: 2, channels: 64, channels_per_substream: 8, spectra_per_heap: 16,\n"
        "       samples_between_spectra: 128, batches_per_chunk: 5}\n" /* 10240 samples */
        "outputs: [{name: a, integration_batches: 3, destination: 239.3.0.3, buffers: 4}]\n"
        "beams: [{name: b, pol: 0, destination: 239.3.0.4}, {name: c, pol: 1, destination: 239.3.0.5}]\n"
        "detected: [{name: d, spectra: %d, windows: 1, destination: 239.3.0.6, buffers: %d}]\n"
        "steering: {buffers: %d}\n";
    static const struct {
        const char *rate;
        int spectra, given;
        size_t beams, detected;
    } cases[] = {
        {"1e6", 64, 0, 8, 8},      /* 10.24 ms and 8.192 ms: 5 and 7 would do */
        {"1e6", 32, 0, 8, 13},     /* 4.096 ms */
        {"1e7", 64, 0, 49, 62},    /* 1.024 ms and 0.8192 ms */
        {"1712e6", 64, 0, 64, 64}, /* the most */
        {"1712e6", 1, 0, 64, 163}, /* 81 heaps in a chunk */
        {"1712e6", 64, 11, 11, 11},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct xbgpu_config config = {0};
        struct xbgpu_layout l;
        char yaml[2000];
        snprintf(yaml, sizeof(yaml), format, cases[i].rate, cases[i].spectra, cases[i].given, cases[i].given);
        struct config *errors = load_checked_config(&xbgpu_config_table, yaml, &config, xbgpu_config_check);

        xbgpu_layout_init(&l, &config);
        size_t n_beams = xbgpu_beam_buffers(&config, &l), n_detected = xbgpu_detected_sizes(&config, &l, 0).n_buffers;
        ck_assert_uint_eq(n_beams, cases[i].beams);
        ck_assert_uint_eq(n_detected, cases[i].detected);
        ck_assert_uint_eq(xbgpu_engine_sizes(&l, &config).n_outbufs, 4 + n_beams + n_detected);
        size_t beams = 5 * 2 * (8 * 16 * 2 + 4), detected = 4 + 8 * 4 + 4;
        size_t dump = l.vis_bytes + 3 * 4 + 8;
        ck_assert_uint_eq(xbgpu_memory(&l, &config, false, 0).buffers_bytes,
                          4 * dump + n_beams * beams + n_detected * detected);
        config_free(&xbgpu_config_table, &config, errors);
    }
}

/* Outputs with shifts of their own: how far all lag, whose shifts are whose, and what that takes. */
TEST(shifts_of_outputs)
{
    static const char yaml[] =
        "time: {sync_time: 0, adc_sample_rate: 1712e6}\n"
        "recv: {sources: 239.2.0.3, antennas: 2, channels: 64, channels_per_substream: 8, chunks: 10,\n"
        "       spectra_per_heap: 16, samples_between_spectra: 128, batches_per_chunk: 5, shifts: [0, 3, 0, 0]}\n"
        "outputs: [{name: a, integration_batches: 3, destination: 239.3.0.3, buffers: 4, shifts: [0, 0, -2, -2]},\n"
        "          {name: b, integration_batches: 3, destination: 239.3.0.4, buffers: 4},\n"
        "          {name: c, integration_batches: 3, destination: 239.3.0.5, buffers: 4, shifts: [5, 0, 0, 0]}]\n";
    static const size_t sets[] = {1, 0, 2};
    size_t vis = 8 * 3 * 4 * 8, heap = 8 * 16 * 2 * 2, checks = 3 * (8 * 4 * 2 * 8 + 4 * (3 + 8 * 2) * 8);
    struct xbgpu_config config = {0};
    struct config *errors = load_checked_config(&xbgpu_config_table, yaml, &config, xbgpu_config_check);
    struct xbgpu_layout l;

    xbgpu_layout_init(&l, &config);
    ck_assert_uint_eq(l.n_shift_sets, 3);
    for (size_t o = 0; o < 3; o++)
        ck_assert_uint_eq(xbgpu_output_shift_set(&config, xbgpu_config_output(&config, o)), sets[o]);
    ck_assert(l.shifted && l.min_shift == -2 && l.max_shift == 5);
    ck_assert_uint_eq(l.n_lag, 1);
    ck_assert_uint_eq(l.n_history, 2);
    ck_assert_uint_eq(xbgpu_memory(&l, &config, false, 0).device_bytes,
                      3 * (5 + 2) * 2 * heap + 5 * 2 * heap + 3 * 3 * (5 * 2 + 4 * 4) +
                          3 * (4 * (vis + 3 * 4 + 8) + vis) + 128 * 2 * 8 * 4 + checks);
    config_free(&xbgpu_config_table, &config, errors);
}
