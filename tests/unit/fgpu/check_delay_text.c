/* check_delay_text - delay models to text and back: requests, sensors, and saved files. */
#include "common/base/units.h"
#include "fgpu/delay_text.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <math.h>
#include <string.h>

static const struct timebase timebase = {{INT64_C(17000000005), 1}, {1712000000, 0}, false};

TEST(requests)
{
    struct fgpu_delay_model model = {.start_samples = 77};

    ck_assert_ptr_null(fgpu_delay_text_parse("1e-6,-2e-9:4,1e3", 2e9, &model));
    ck_assert_int_eq(model.start_samples, 77);
    ck_assert_double_eq(model.delay_samples, 1e-6 * 2e9);
    ck_assert_double_eq(model.rate, -2e-9);
    ck_assert_double_eq_tol(model.phase_rad, 4 - 2 * M_PI, 1e-15);
    ck_assert_double_eq(model.phase_rate_rad, 1e3 / 2e9);
    ck_assert(model.acceleration == 0 && model.phase_acceleration_rad == 0);
    ck_assert_ptr_null(fgpu_delay_text_parse(" -3 , .5,1_0e-3 :0,0,-8", 2e9, &model));
    ck_assert(model.delay_samples == -6e9 && model.rate == 0.5 && model.phase_rad == 0);
    ck_assert_double_eq_tol(model.acceleration, 5e-12, 1e-27);
    ck_assert_double_eq_tol(model.phase_acceleration_rad, -2e-18, 1e-33);
    ck_assert_ptr_null(fgpu_delay_text_parse("0,0,1:0,0", 1, &model)); /* either may be quadratic alone */
    ck_assert_ptr_null(fgpu_delay_text_parse("0,0:0,0,1", 1, &model));
}

TEST(requests_refused)
{
    static const struct {
        const char *text, *why;
    } table[] = {
        {"", "a model must be"},
        {"0,0", "a model must be"},
        {"0:0", "a model must be"},
        {"0,0:0", "a model must be"},
        {"0,0,0,0:0,0", "a model must be"},
        {"0,0:0,0,0,0", "a model must be"},
        {"0,0:0,0:0,0", "a model must be"},
        {"0,:0,0", "a model must be"},
        {"0,0:0,1x", "a model must be"},
        {"0,nan:0,0", "delays, phases and their rates must be finite"},
        {"0,0:inf,0", "delays, phases"},
        {"0,0:0,1e400", "delays, phases"},
        {"0,0,-inf:0,0", "delays, phases"},
        {"4503600,0:0,0", "the magnitude of a delay must be at most 2^53 samples"},
        {"0,1:0,0", "a delay rate must be between -1 and 1"},
        {"0,-1:0,0", "a delay rate must be"},
    };
    static char too_long[1000];

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct fgpu_delay_model model = {.start_samples = 5, .rate = 0.25};
        const char *why = fgpu_delay_text_parse(table[i].text, 2e9, &model);
        ck_assert_msg(why && strncmp(why, table[i].why, strlen(table[i].why)) == 0, "%s: %s", table[i].text,
                      why ? why : "accepted");
        ck_assert(model.start_samples == 5 && model.rate == 0.25);
    }
    memset(too_long, '0', sizeof(too_long) - 10);
    strcat(too_long, ",0:0,0");
    struct fgpu_delay_model model = {0};
    ck_assert_ptr_nonnull(fgpu_delay_text_parse(too_long, 2e9, &model));
}

/* As the reference computes them and Python writes them. */
TEST(sensors)
{
    const struct fgpu_delay_model none = {.start_samples = -1};
    const struct fgpu_delay_model linear = {(INT64_C(1) << 60) + 1, 1712.0, 1e-10, 0, -0.5, 0.25 / 1712e6, 0};
    const struct fgpu_delay_model quadratic = {12345, 171.2, 0, 3.5e-12 / 1712e6, 0, 0, 0};
    char text[512];

    struct sensor_reading reading = fgpu_delay_text_reading(&none, &timebase, 0);
    fgpu_delay_text_format(&reading.value, text, sizeof(text));
    ck_assert_str_eq(text, "(-1, 0.0, 0.0, 0.0, 0.0)");
    ck_assert_int_eq(reading.unix_ns, INT64_C(1700000000500000000));
    ck_assert_int_eq(reading.status, SENSOR_NOMINAL);
    reading = fgpu_delay_text_reading(&linear, &timebase, INT64_C(1712000000) * 3);
    fgpu_delay_text_format(&reading.value, text, sizeof(text));
    ck_assert_str_eq(text, "(1152921504606846977, 1e-06, 1e-10, -0.5, 0.25)"); /* a start that no double has */
    ck_assert_int_eq(reading.unix_ns, INT64_C(1700000003500000000));
    reading = fgpu_delay_text_reading(&quadratic, &timebase, 0);
    fgpu_delay_text_format(&reading.value, text, sizeof(text));
    ck_assert_str_eq(text, "(12345, 1e-07, 0.0, 0.0, 0.0, 3.5e-12, 0.0)");
    for (size_t n = 1; n < 60; n++) { /* never beyond its room */
        memset(text, '!', sizeof(text));
        fgpu_delay_text_format(&reading.value, text, n);
        ck_assert(memchr(text, '\0', n) && text[n] == '!');
    }
}

/* What is kept is the same model again, to the last bit; the start, to the nanosecond that a sample is shorter than. */
TEST(kept)
{
    struct fgpu_delay_queue pols[N_POLS], read[N_POLS];
    const double rate_hz = timebase_decimal_to_double(timebase.adc_sample_rate_hz);
    char path[] = "/tmp/check_delay_text-XXXXXX", why[256] = "";

    for (unsigned pol = 0; pol < N_POLS; pol++) {
        fgpu_delay_queue_init(&pols[pol]);
        for (int i = 0; i < 200; i++) {
            double scale = pow(10, random_between(-12, 0));
            const double numbers[] = {
                scale * random_between(-1, 1),     random_between(-1, 1) * scale,       random_between(-9, 9),
                random_between(-1e4, 1e4) * scale, random_between(-1e-9, 1e-9) * scale, random_between(-1, 1) * scale};
            struct fgpu_delay_model model = {.start_samples = INT64_C(5000000000000000) + i * INT64_C(1000001)};
            ck_assert_ptr_null(fgpu_delay_from_seconds(numbers, rate_hz, &model));
            ck_assert_int_eq(fgpu_delay_queue_add(&pols[pol], &model), 0);
        }
    }
    int fd = mkstemp(path);
    FILE *file = fdopen(fd, "w");
    fgpu_delay_text_write_file(file, &timebase, pols);
    fclose(file);
    ck_assert_msg(fgpu_delay_text_read_file(path, &timebase, 1, read, why, sizeof(why)) == 0, "%s", why);
    unlink(path);
    for (unsigned pol = 0; pol < N_POLS; pol++) {
        ck_assert_uint_eq(read[pol].n, 201);
        for (size_t i = 0; i < 201; i++) {
            struct fgpu_delay_model *got = &read[pol].models[i], *want = &pols[pol].models[i];
            ck_assert_int_le(llabs(got->start_samples - want->start_samples), 1);
            got->start_samples = want->start_samples;
            ck_assert_msg(memcmp(got, want, sizeof(*got)) == 0, "model %zu: %.17g", i, want->delay_samples);
        }
    }
}

SUITE(.start = random_start);
