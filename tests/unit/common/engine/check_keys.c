/* check_keys - mistakes in combinations of the keys of fgpu and xbgpu.  Each mistake changes one text of a good file.
 * The sentence must name the fault, and must point to the line of the changed value. */
#include "common/base/units.h"
#include "common/config/config.h"
#include "fgpu/config/layout.h"
#include "fgpu/config_check.h"
#include "tests/unit/test_config.h"
#include "tests/unit/test_main.h"
#include "xbgpu/config/layout.h"
#include "xbgpu/config_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIME "time: {sync_time: 1700000000, adc_sample_rate: 1712e6}\n"

static const char fgpu_yaml[] =
    TIME "recv: {packet_samples: 256, chunk_samples: 8192, max_delay_diff: 512, sample_bits: 8}\n"
         "antennas:\n"
         "  - {name: m000, feng_id: 0, pol0: 239.1.0.0, pol1: 239.1.0.1}\n"
         "  - {name: m001, feng_id: 1, pol0: 239.1.0.2, pol1: 239.1.0.3}\n"
         "outputs:\n"
         "  - {name: wide, channels: 64, spectra_per_heap: 16, taps: 2, destinations: 239.2.0.0+1}\n"
         "send: {array_size: 4}\n";
static const char xbgpu_yaml[] =
    TIME "recv: {sources: 239.2.0.0, antennas: 2, channels: 64, channels_per_substream: 8, channel_offset: 8,\n"
         "       spectra_per_heap: 16, samples_between_spectra: 128, sample_bits: 8}\n"
         "outputs:\n"
         "  - {name: all, integration_batches: 3, destination: 239.3.0.0}\n"
         "  - {name: few, integration_batches: 1, destination: 239.3.0.1}\n"
         "beams:\n"
         "  - {name: east, pol: 0, destination: 239.4.0.0}\n"
         "  - {name: west, pol: 1, destination: 239.4.0.1}\n"
         "detected:\n"
         "  - {name: powers, channels: 8, destination: 239.4.0.2}\n"
         "  - {name: sums, channels: 8, destination: 239.4.0.3}\n";

static const struct {
    bool is_fgpu;
    const char *good, *wrong;
    int line;
    const char *sentence;
} rows[] = {
    {true, "packet_samples: 256", "packet_samples: 252", 2, "packet_samples must be a multiple of 8, not 252"},
    {true, "chunk_samples: 8192", "chunk_samples: 8000", 2,
     "chunk_samples (8000) must be a multiple of packet_samples (256)"},
    {true, "feng_id: 1", "feng_id: 0", 5, "feng_id 0 is already used by antenna m000"},
    {true, "feng_id: 1", "feng_id: 4", 5, "feng_id 4 must be below the array_size of 4"},
    {true, "m001", "m000", 5, "two antennas are called m000"},
    {true, "239.1.0.3", "239.1.0.0", 5, "239.1.0.0:7148 is already used by antenna m000 pol0"},
    {true, "name: wide", "name: 'wi de'", 7, "name must consist of letters, digits, '.', '-' and '_', not wi de"},
    {true, "spectra_per_heap: 16", "spectra_per_heap: 24", 7, "spectra_per_heap must be a multiple of 16, not 24"},
    {true, "239.2.0.0+1", "239.2.0.0+2", 7, "64 channels cannot be divided among 3 destinations"},
    {false, "channel_offset: 8", "channel_offset: 4", 2,
     "channel_offset must be a multiple of channels_per_substream (8) below channels (64), not 4"},
    {false, "name: few", "name: all", 6, "two outputs are called all"},
    {false, "name: few", "name: 'f w'", 6,
     "an output's name may have only letters, digits, '.', '-' and '_', but is 'f w'"},
    {false, "integration_batches: 3", "integration_batches: 3, integration_time: 1", 5,
     "output all needs one of integration_batches and integration_time, not both"},
    {false, "integration_batches: 1, ", "", 6, "output few needs one of integration_batches and integration_time"},
    {false, "name: west", "name: few", 9, "an output and a beam are called few"},
    {false, "name: west", "name: east", 9, "two beams are called east"},
    {false, "name: west", "name: 'w'''", 9,
     "a beam's name may have only letters, digits, '.', '-' and '_', but is 'w''"},
    {false, "239.4.0.1", "239.4.0.0", 9, "beams east and west have the same destination"},
    {false, "sample_bits: 8", "sample_bits: 16", 8, "beams need recv.sample_bits of 4 or 8, not 16"},
    {false, "sample_bits: 8", "sample_bits: 16", 11, "beams need recv.sample_bits of 4 or 8, not 16"},
    {false, "name: sums", "name: powers", 12, "two streams of detected beams are called powers"},
    {false, "name: sums", "name: all", 12, "an output and a stream of detected beams have the same name, all"},
    {false, "name: sums", "name: 'a b'", 12,
     "a beam's name may have only letters, digits, '.', '-' and '_', but is 'a b'"},
    {false, "name: sums, channels: 8", "name: sums, channels: 3", 12,
     "the key channels of sums must be a divisor of recv.channels_per_substream"},
};

/* Loads and checks a file.  Returns its errors and warnings as "file:line:column: sentence\n"..., which the caller
 * frees. */
static char *errors_of(bool is_fgpu, const char *yaml)
{
    union {
        struct fgpu_config fgpu;
        struct xbgpu_config xbgpu;
    } values = {0};
    const struct config_table *table = is_fgpu ? &fgpu_config_table : &xbgpu_config_table;
    struct config *config;
    char *text = NULL;
    size_t n_bytes;
    FILE *out = open_memstream(&text, &n_bytes);

    load_config(table, yaml, &values, &config);
    (is_fgpu ? fgpu_config_check : xbgpu_config_check)(&values, config);
    config_print_errors(config, out);
    fclose(out);
    config_free(table, &values, config);
    return text;
}

TEST(good_files, .end = 2)
{
    char *errors = errors_of(_i, _i ? fgpu_yaml : xbgpu_yaml);

    ck_assert_str_eq(errors, "");
    free(errors);
}

TEST(mistake, .end = ARRAY_LEN(rows))
{
    const char *base = rows[_i].is_fgpu ? fgpu_yaml : xbgpu_yaml, *at = strstr(base, rows[_i].good);
    char yaml[2000], place[16], *rest = NULL;
    bool found = false;

    ck_assert_ptr_nonnull(at);
    snprintf(yaml, sizeof(yaml), "%.*s%s%s", (int)(at - base), base, rows[_i].wrong, at + strlen(rows[_i].good));
    snprintf(place, sizeof(place), ":%d:", rows[_i].line);
    char *errors = errors_of(rows[_i].is_fgpu, yaml), *copy = strdup(errors);
    for (char *line = strtok_r(copy, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        const char *sentence = strstr(line, ": ") + 2;
        found = found || (strstr(line, place) && strcmp(sentence, rows[_i].sentence) == 0);
    }
    ck_assert_msg(found, "%s\ngives\n%s\nwithout line %d: %s", yaml, errors, rows[_i].line, rows[_i].sentence);
    free(copy);
    free(errors);
}
