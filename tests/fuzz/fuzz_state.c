/* fuzz_state.c - any bytes as the saved state of xbgpu, and as other text files that programs read.  The first byte
 * chooses the kind of file.
 *
 * No input may crash the target.  State that was read and written again is read as a whole, and gives the same text.
 * Numbers that were read are finite and within their limits. */
#include "xbgpu/beam/calibration.c"

#include "common/telemetry/sensor.h"
#include "kernels/gnss/gnss_codes.h"
#include "tests/fuzz/fuzz_count.h"
#include "tests/fuzz/fuzz_input.h"
#include "tools/doctor/http.h"
#include "xbgpu/beam/beam_settings.h"
#include "xbgpu/config/config.h"
#include "xbgpu/config_check.h"
#include "xbgpu/settings.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

enum { N_BEAMS = 4, N_INPUTS = 4 };

static const char configuration[] =
    "time: {sync_time: 1700000000, adc_sample_rate: 1712e6}\n"
    "recv: {sources: 239.2.0.3, antennas: 2, channels: 64, channels_per_substream: 8, chunks: 10, max_shift: 7,\n"
    "       spectra_per_heap: 16, samples_between_spectra: 128, batches_per_chunk: 5}\n"
    "gates: [{kind: phase, name: p, frequency: 30, bins: 4, take: [1]},\n"
    "        {kind: switch, name: s, period: 1000, on_until: 500, epoch: 3}]\n"
    "outputs: [{name: a, integration_batches: 3, destination: 239.3.0.3, gate: p},\n"
    "          {name: b, integration_batches: 3, destination: 239.3.0.4, gate: s, send_enabled: false}]\n"
    "beams: [{name: v, pol: 0, destination: 239.3.0.5}]\n"
    "detected: [{name: d, beams: 2, spectra: 16, destination: 239.3.0.6},\n"
    "           {name: i, kind: incoherent, spectra: 16, destination: 239.3.0.7}]\n";
static struct xbgpu_config config;
static struct xbgpu_layout layout;
static struct labels labels;
static struct xbgpu_beam_settings beams[N_BEAMS];
static struct xbgpu_beams_settings all_beams = {beams, N_BEAMS, &labels};
static char path[64]; /* of a file in memory */
static int fd = -1;

static void put(const void *text, size_t n_bytes)
{
    assert(ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0);
    assert(pwrite(fd, text, n_bytes, 0) == (ssize_t)n_bytes);
}

static void begin(void)
{
    static struct config *book; /* the values refer to it */
    static struct sensors *sensors;

    fd = memfd_create("file", MFD_CLOEXEC);
    assert(fd >= 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    put(configuration, sizeof(configuration) - 1);
    int err = config_load(&xbgpu_config_table, path, &config, &book);
    if (!err)
        xbgpu_config_check(&config, book);
    config_print_errors(book, stderr);
    assert(!err && config_n_errors(book) == 0);
    xbgpu_layout_init(&layout, &config);
    assert(labels_init(&labels, 2, NULL, NULL) == 0 && sensors_create(&sensors) == 0);
    assert(xbgpu_beam_settings_init(&beams[0], &config, 0, 1, sensors) == 0);
    for (size_t b = 0; b < 2; b++)
        assert(xbgpu_beam_settings_init_detected(&beams[1 + b], &config, xbgpu_config_detected(&config, 0), b,
                                                 sensors) == 0);
    assert(xbgpu_beam_settings_init_detected(&beams[3], &config, xbgpu_config_detected(&config, 1), 0, sensors) == 0);
}

static char *text_of(bool (*write)(FILE *text, void *settings), void *settings)
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *out = open_memstream(&text, &n_bytes);

    assert(out);
    write(out, settings);
    fclose(out);
    return text;
}

/* Reads the file into new settings, and checks the limits.  Returns the settings as text. */
static char *read_settings_once(bool *whole)
{
    struct xbgpu_settings settings;
    char why[400] = "";

    assert(xbgpu_settings_init(&settings, &config, &layout) == 0);
    int err = xbgpu_settings_read(&settings, path, whole, why, sizeof(why));
    assert(err == 0 || why[0]);
    for (size_t i = 0; i < labels.n; i++)
        assert(xbgpu_settings_shift_fits(&settings, settings.shifts[i]));
    char *text = text_of(xbgpu_settings_write, &settings);
    xbgpu_settings_fini(&settings);
    return text;
}

/* Reads the file into the settings of the beams as they were at first, and checks the limits. */
static char *read_beams_once(bool *whole)
{
    char why[400] = "";

    for (size_t b = 0; b < N_BEAMS; b++) {
        struct xbgpu_beam_settings *s = &beams[b];
        s->starts = (struct xbgpu_beam_starts){1, {XBGPU_BEAM_ALWAYS}};
        s->is_set = s->capture_is_set = s->captures = false;
        s->capture_from_samples = 0;
        s->gain = 1;
        memset(s->models, 0, XBGPU_BEAM_MODELS * s->n * sizeof(*s->models));
        for (size_t i = 0; i < s->n; i++)
            s->weights[i] = 1;
    }
    int err = xbgpu_beams_settings_read(&all_beams, path, whole, why, sizeof(why));
    assert(err == 0 || why[0]);
    for (size_t b = 0; b < N_BEAMS; b++) {
        struct beam_steering steering[4];
        assert(isfinite(beams[b].gain) && fabs(beams[b].gain) <= XBGPU_BEAM_MAX);
        for (size_t i = 0; i < beams[b].n; i++)
            assert(fabs(beams[b].weights[i]) <= XBGPU_BEAM_MAX &&
                   (!beams[b].is_incoherent || beams[b].weights[i] >= 0));
        for (size_t m = 0; m < beams[b].starts.n; m++) {
            assert(m == 0 || beams[b].starts.samples[m] > beams[b].starts.samples[m - 1]);
            xbgpu_beam_settings_steer(&beams[b], m, steering);
        }
    }
    return text_of(xbgpu_beams_settings_write, &all_beams);
}

/* The second reading follows the first at once, so the numbers of the beams can be compared. */
static void read_twice(char *(*read_once)(bool *whole))
{
    double gains[N_BEAMS], weights[N_BEAMS][N_INPUTS],
        models[N_BEAMS][XBGPU_BEAM_MODELS * N_INPUTS][XBGPU_BEAM_NUMBERS];
    bool whole = false;
    char *text = read_once(&whole);

    for (size_t b = 0; b < N_BEAMS; b++) {
        gains[b] = beams[b].gain;
        memcpy(weights[b], beams[b].weights, beams[b].n * sizeof(double));
        memcpy(models[b], beams[b].models, XBGPU_BEAM_MODELS * beams[b].n * sizeof(models[b][0]));
    }
    put(text, strlen(text));
    char *again = read_once(&whole);
    assert(whole && strcmp(text, again) == 0);
    for (size_t b = 0; b < N_BEAMS; b++) {
        assert(beams[b].gain == gains[b]);
        assert(memcmp(weights[b], beams[b].weights, beams[b].n * sizeof(double)) == 0);
        assert(memcmp(models[b], beams[b].models, beams[b].starts.n * beams[b].n * sizeof(models[b][0])) == 0);
    }
    free(again);
    free(text);
}

static void read_calibration(void)
{
    static float gains[4 * 8 * 2];
    struct xbgpu_calibration c = {
        .config = &config, .labels = &labels, .n_inputs = 4, .n_chan = layout.n_chan, .gains = gains};
    char why[600] = "";

    assert(layout.n_chan == 8);
    memset(gains, 0, sizeof(gains));
    config.steering.calibration = path;
    int err = read_config(&c, why, sizeof(why));
    config.steering.calibration = NULL;
    assert(err == 0 || why[0]);
    for (size_t i = 0; i < ARRAY_LEN(gains); i++)
        assert(isfinite(gains[i]));
}

static void read_code(unsigned prn)
{
    static int8_t chips[GNSS_MAX_CHIPS];
    const struct gnss_signal_facts *facts = gnss_signal_facts(GNSS_E1B);
    char why[400] = "";

    int err = gnss_code_read(path, GNSS_E1B, prn, chips, why, sizeof(why));
    assert(err == 0 || why[0]);
    for (uint32_t i = 0; err == 0 && i < facts->n_chips; i++)
        assert(chips[i] == 1 || chips[i] == -1);
}

struct sum {
    double value;
};

static void add_sample(void *arg, const char *name, const char *metric_labels, double value)
{
    struct sum *sum = arg;

    if (strcmp(name, "up") == 0 && strstr(metric_labels, "a=\"b\""))
        sum->value += value;
}

/* A page of metrics: the sum over labels is the sum of the samples with these labels. */
static void read_metrics(const char *text)
{
    struct sum sum = {0};

    doctor_metrics_each(text, add_sample, &sum);
    double value = doctor_metrics_sum(text, "up", "a=\"b\"");
    assert(value == sum.value || (isnan(value) && isnan(sum.value)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    if (fd < 0)
        begin();
    if (n_bytes == 0)
        return 0;
    char *text = (char *)fuzz_exact(n_bytes); /* the bytes after the first byte, and an end */
    memcpy(text, data + 1, n_bytes - 1);
    text[n_bytes - 1] = '\0';
    put(data + 1, n_bytes - 1);
    switch (data[0] % 5) {
    case 0: read_twice(read_settings_once); break;
    case 1: read_twice(read_beams_once); break;
    case 2: read_calibration(); break;
    case 3: read_code(1 + data[0] / 5 % 50); break;
    case 4: read_metrics(text); break;
    }
    free(text);
    fuzz_count("files", 1);
    return 0;
}
