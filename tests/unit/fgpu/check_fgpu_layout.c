/* check_fgpu_layout - sizes, memory, rates and buffer counts of F-engines, against figures worked out by hand. */
#include "common/base/units.h"
#include "common/config/config.h"
#include "fgpu/config_check.h"
#include "fgpu/memory.h"
#include "tests/unit/test_config.h"
#include "tests/unit/test_main.h"

#include <stdio.h>

/* A MeerKAT L-band F-engine: 8192 channels to 64 X-engines, heaps of 128 channels x 128 spectra. */
TEST(f_engine)
{
    static const char yaml[] = "time: {sync_time: 0, adc_sample_rate: 1712e6}\n"
                               "recv: {chunk_samples: 4194304, max_delay_diff: 1000, chunks: 8}\n"
                               "antennas: [{name: a, feng_id: 0, pol0: 239.1.0.0+7, pol1: 239.1.0.8+7}]\n"
                               "outputs: [{name: w, channels: 8192, spectra_per_heap: 128, taps: 16,\n"
                               "           destinations: 239.2.0.0+63}]\n";
    struct fgpu_config config = {0};
    struct fgpu_layout layout;
    struct config *errors = load_checked_config(&fgpu_config_table, yaml, &config, fgpu_config_check);
    const struct fgpu_config_output *output = fgpu_config_output(&config, 0);

    fgpu_layout_init(&layout, &config);
    ck_assert_uint_eq(layout.packet_bytes, 5120);
    ck_assert_uint_eq(layout.heaps_per_chunk, 1024);
    ck_assert_uint_eq(layout.chunk_bytes, 5242880);
    ck_assert_int_eq(layout.history_samples, 262144 + 4096); /* 16 x 16384 + 1000, in whole packets */
    ck_assert_uint_eq(layout.n_recv_threads, 2);
    ck_assert_int_eq(fgpu_batch_samples(output), 2097152);
    ck_assert_uint_eq(fgpu_batch_bytes(output), 64 * 65536);
    /* 8 packets of 8192 + 72 bytes a heap, 64 heaps in 2097152 / 1712e6 s, and a tenth more. */
    ck_assert_double_eq_tol(fgpu_send_rate(&config, output), 1.1 * 64 * 8 * 8264 / (2097152 / 1712e6), 1);
    ck_assert_uint_eq(fgpu_output_buffers(&config, output), 2 * 2 + 2);
    config_free(&fgpu_config_table, &config, errors);
}

/* Two antennas of which a card reads the voltages: they are on the device alone, but for what is looked at. */
TEST(heaps_that_the_card_reads)
{
    static const char format[] =
        "time: {sync_time: 0, adc_sample_rate: 1712e6}\n"
        "antennas: [{name: a, feng_id: 0, pol0: 239.1.0.0, pol1: 239.1.0.1},\n"
        "           {name: b, feng_id: 1, pol0: 239.1.1.0, pol1: 239.1.1.1}]\n"
        "outputs: [{name: w, channels: 8192, buffers: 7, batches_per_buffer: 3, destinations: 239.2.0.0+63},\n"
        "          {name: v, channels: 64, buffers: 200, sample_bits: 4, destinations: 239.2.1.0}]\n"
        "send: {transport: ibverbs, interface: eth0, gpudirect: %s}\n";
    struct memory_use memory[2];
    struct fgpu_layout layout;
    char yaml[1000];

    for (int k = 0; k < 2; k++) {
        struct fgpu_config config = {0};
        snprintf(yaml, sizeof(yaml), format, k ? "true" : "false");
        struct config *errors = load_checked_config(&fgpu_config_table, yaml, &config, fgpu_config_check);
        fgpu_layout_init(&layout, &config);
        memory[k] = fgpu_memory(&layout, &config, 0, NULL, 0);
        ck_assert_uint_eq(fgpu_preview_spectra(fgpu_config_output(&config, 0)), 64);
        ck_assert_uint_eq(fgpu_preview_spectra(fgpu_config_output(&config, 1)), 256); /* all */
        config_free(&fgpu_config_table, &config, errors);
    }
    size_t voltages = 2 * (7 * 3 * 8192 * 256 * 4 + 200 * 64 * 256 * 2), looks = 2 * (8192 * 64 * 4 + 64 * 256 * 2);
    ck_assert_uint_eq(memory[0].host_bytes - memory[1].host_bytes, voltages - looks);
    ck_assert_uint_eq(memory[0].buffers_bytes - memory[1].buffers_bytes, voltages);
    /* The memory of each output of each antenna has at most a page of 64 KiB before it and behind it. */
    ck_assert_uint_eq(memory[1].device_bytes - memory[0].device_bytes, 4 * 2 * 65536);
}
