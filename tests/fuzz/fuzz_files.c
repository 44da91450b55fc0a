/* fuzz_files.c - any bytes as a file or a text of an operator or an earlier run.  The first byte chooses the kind.
 *
 * No input may crash the target.  Every refusal has a sentence.  Contents that were read and can be written read the
 * same again. */
#include "common/config/config.h"
#include "common/device/cuda/cache.h"
#include "common/net/endpoint.h"
#include "common/http/names.h"
#include "common/katcp/python_number.h"
#include "common/base/units.h"
#include "fgpu/config/config.h"
#include "fgpu/delay_text.h"
#include "fgpu/config/gain_file.h"
#include "fgpu/config/layout.h"
#include "tests/fuzz/fuzz_input.h"

#include <math.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define N_CHAN 64

static const char configuration[] = "time: {sync_time: 1700000000, adc_sample_rate: 1712e6}\n"
                                    "antennas: [{name: m0, feng_id: 0, pol0: 239.1.1.1, pol1: 239.1.1.2}]\n"
                                    "outputs: [{kind: wideband, name: wide, channels: 64, destinations: 239.2.1.1},\n"
                                    "          {kind: wideband, name: other, channels: 64, destinations: 239.2.1.2}]\n";
static struct fgpu_config config;
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

    fd = memfd_create("file", MFD_CLOEXEC);
    assert(fd >= 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    put(configuration, sizeof(configuration) - 1);
    int err = config_load(&fgpu_config_table, path, &config, &book);
    if (err)
        config_print_errors(book, stderr);
    assert(!err);
}

/* A sentence that begins with where. */
static void check_refusal(int err, const char *why)
{
    assert(err < 0 && strncmp(why, path, strlen(path)) == 0 && strlen(why) > strlen(path) + 2);
}

static void read_gains(void)
{
    static float first[N_CHAN * N_POLS * 2], second[N_CHAN * N_POLS * 2];
    float *gains[] = {first, second};
    char why[400] = "";
    int err = fgpu_gain_file_read(path, &config, gains, why, sizeof(why));

    if (err)
        check_refusal(err, why);
    for (size_t i = 0; !err && i < ARRAY_LEN(first); i++)
        assert(isfinite(first[i]) && isfinite(second[i]));
}

static void read_delays(void)
{
    static struct fgpu_delay_queue pols[N_POLS], again[N_POLS];
    const struct timebase timebase = fgpu_timebase(&config);
    char why[400] = "", *text = NULL;
    size_t n_bytes = 0;

    for (size_t pol = 0; pol < N_POLS; pol++) {
        fgpu_delay_queue_init(&pols[pol]);
        fgpu_delay_queue_init(&again[pol]);
    }
    int err = fgpu_delay_text_read_file(path, &timebase, config.recv.max_delay_s, pols, why, sizeof(why));
    if (err) {
        check_refusal(err, why);
        return;
    }
    FILE *out = open_memstream(&text, &n_bytes);
    assert(out);
    fgpu_delay_text_write_file(out, &timebase, pols);
    fclose(out);
    put(text, n_bytes);
    err = fgpu_delay_text_read_file(path, &timebase, config.recv.max_delay_s, again, why, sizeof(why));
    assert(!err);
    for (size_t pol = 0; pol < N_POLS; pol++) {
        assert(pols[pol].n == again[pol].n);
        for (size_t i = 1; i < pols[pol].n; i++)
            assert(llabs(pols[pol].models[i].start_samples - again[pol].models[i].start_samples) <= 1);
    }
    free(text);
}

static bool same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static void read_numbers(const char *text)
{
    char written[PYTHON_FLOAT_BYTES], both[PYTHON_COMPLEX_BYTES];
    double value, real, imaginary, again, imaginary_again;

    if (python_number_float(text, &value)) {
        bool reads = python_number_float(python_number_float_text(value, written), &again);
        assert(reads && same(value, again));
    }
    if (python_number_complex(text, &real, &imaginary)) {
        bool reads = python_number_complex(python_number_complex_text(real, imaginary, both), &again, &imaginary_again);
        assert(reads && same(real, again) && same(imaginary, imaginary_again));
    }
}

static void read_delay(const char *text)
{
    struct fgpu_delay_model model = {.start_samples = 7};
    double numbers[DELAY_N_NUMBERS];

    if (!fgpu_delay_text_parse(text, 1712e6, &model)) {
        fgpu_delay_to_seconds(&model, 1712e6, numbers);
        for (size_t i = 0; i < DELAY_N_NUMBERS; i++)
            assert(isfinite(numbers[i]));
        assert(!fgpu_delay_from_seconds(numbers, 1712e6, &model));
    }
    assert(model.start_samples == 7);
}

static void read_entry(void)
{
    const struct hash key = {1, 2};
    void *data = NULL;
    size_t n_bytes = 0;

    if (!cache_read_entry(fd, key, &data, &n_bytes))
        free(data);
}

static void read_names(const char *text)
{
    char why[400] = "", *own = http_names_own(path);

    assert(own);
    http_names_accept(own, NULL, text);
    if (!http_names_check(text, why, sizeof(why)))
        http_names_accept(own, text, "a.example:80");
    else
        assert(why[0]);
    free(own);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    if (fd < 0)
        begin();
    if (n_bytes == 0)
        return 0;
    char *text = (char *)fuzz_exact(n_bytes); /* what is behind the first byte, and an end */
    memcpy(text, data + 1, n_bytes - 1);
    text[n_bytes - 1] = '\0';
    put(data + 1, n_bytes - 1);
    switch (data[0] % 6) {
    case 0: read_gains(); break;
    case 1: read_delays(); break;
    case 2: read_numbers(text); break;
    case 3: read_delay(text); break;
    case 4: read_entry(); break;
    case 5: read_names(text); break;
    }
    free(text);
    return 0;
}
