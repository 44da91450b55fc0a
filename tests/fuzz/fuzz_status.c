/* fuzz_status.c - any query of /status.json to an xbgpu that has dumps.  The answer is JSON and speaks only of streams,
 * baselines and channels that exist.
 *
 * Input: queries, a line each, their stream, baseline and channels separated by '&'.  The query leaves out an empty
 * part.  A dump comes between two queries, a second later. */
#include "common/base/units.h"
#include "tests/fuzz/fuzz_clock.h"
#include "tests/fuzz/fuzz_input.h"
#include "xbgpu/status.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define N_ANTS      5
#define N_BASELINES 15
#define N_CHAN      24
#define MIN_WEIGHT  512

static const char configuration[] =
    "time: {sync_time: 1000, adc_sample_rate: 48000}\n"
    "recv: {sources: 239.9.9.9, antennas: 5, channels: 96, channels_per_substream: 24, channel_offset: 48,\n"
    "       spectra_per_heap: 32, samples_between_spectra: 192, batches_per_chunk: 2}\n"
    "outputs: [{kind: correlate, name: first, integration_batches: 16, destination: 239.8.8.8},\n"
    "          {kind: correlate, name: second, integration_batches: 16, destination: 239.8.8.9}]\n";
static struct xbgpu_config config;
static struct xbgpu_layout layout;
static struct xbgpu_status *status;
static int32_t visibilities[N_CHAN][N_BASELINES][N_POL_PRODUCTS][2];
static uint32_t weights[N_BASELINES];

static void begin(void)
{
    static struct config *book; /* the values refer to it */
    char path[64];
    int fd = memfd_create("config", MFD_CLOEXEC);

    assert(fd >= 0 && write(fd, configuration, sizeof(configuration) - 1) == (ssize_t)sizeof(configuration) - 1);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int err = config_load(&xbgpu_config_table, path, &config, &book);
    if (err)
        config_print_errors(book, stderr);
    close(fd);
    assert(!err);
    xbgpu_layout_init(&layout, &config);
    err = xbgpu_status_create(&config, &layout, &status);
    assert(!err);
    for (size_t c = 0; c < N_CHAN; c++)
        for (size_t b = 0; b < N_BASELINES; b++)
            for (size_t p = 0; p < N_POL_PRODUCTS; p++)
                visibilities[c][b][p][0] = (int32_t)(1 + c * b * p);
    for (size_t b = 0; b < N_BASELINES; b++)
        weights[b] = b % 4 ? MIN_WEIGHT : 0;
}

static void look(size_t output)
{
    struct xbgpu_stream stream = {.output = xbgpu_config_output(&config, output)};
    const struct xbgpu_dump dump = {.stream = &stream,
                                    .visibilities = visibilities,
                                    .weights = weights,
                                    .min_weight = MIN_WEIGHT,
                                    .timestamp_samples = 96000};

    fuzz_clock_advance(NS_PER_S + NS_PER_MS);
    xbgpu_status_sample(status, &dump);
}

static void check_answer(json_t *json)
{
    json_t *spectrum = json_object_get(json, "spectrum");
    char *text = json_dumps(json, 0);

    assert(text);
    free(text);
    if (!json_is_object(spectrum))
        return;
    for (size_t i = 0; i < 2; i++) {
        json_t *ant = json_array_get(json_object_get(spectrum, "baseline"), i);
        assert(json_is_integer(ant) && json_integer_value(ant) >= 0 && json_integer_value(ant) < N_ANTS);
    }
}

/* Cuts the text at the first 'delimiter'.  Returns what is behind, or NULL. */
static char *cut(char *text, char delimiter)
{
    char *end = text ? strchr(text, delimiter) : NULL;

    if (!end)
        return NULL;
    *end = '\0';
    return end + 1;
}

static void ask(char *line)
{
    char *baseline = cut(line, '&'), *channels = cut(baseline, '&');
    const struct status_query query = {.stream = *line ? line : NULL,
                                       .baseline = baseline && *baseline ? baseline : NULL,
                                       .channels = channels && *channels ? channels : NULL};
    json_t *json = json_object();

    xbgpu_status_describe(status, &query, json);
    check_answer(json);
    json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    if (!status)
        begin();
    char *text = (char *)fuzz_exact(n_bytes + 1);
    if (n_bytes > 0)
        memcpy(text, data, n_bytes);
    text[n_bytes] = '\0';
    size_t n = 0;
    for (char *line = text, *next; line; line = next) {
        next = cut(line, '\n');
        ask(line);
        look(n++ % 2);
    }
    free(text);
    return 0;
}
