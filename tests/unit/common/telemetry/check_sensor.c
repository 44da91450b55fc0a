/* check_sensor.c - consistent readings of several sensors, the set of sensors, time-outs, aggregates, and values as
 * text. */
#include "common/telemetry/sensor.h"

#include "common/base/units.h"

#include "tests/unit/fake_clock.h"
#include "tests/unit/test_main.h"

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sensors *sensors;

static void setup(void)
{
    fake_unix_ns = INT64_C(1700000000123456789);
    fake_monotonic_ns = 5 * NS_PER_S;
    ck_assert_int_eq(sensors_create(&sensors), 0);
}

static void teardown(void)
{
    sensors_destroy(sensors);
}

static void add(struct sensor *sensor, struct sensor_desc about, struct sensor_reading first)
{
    about.description = about.description ? about.description : "";
    about.units = about.units ? about.units : "";
    ck_assert_int_eq(sensors_add(sensors, sensor, &about, first), 0);
}

static const char *text_of(const char *name)
{
    static char text[SENSOR_TEXT_BYTES];
    const struct sensor_entry *entry = sensors_find(sensors, name);
    struct sensor_reading reading = sensors_read(sensors, entry, NULL);

    return sensor_entry_text(entry, &reading, text);
}

static const struct sensor_reading nothing;

/* ---- Threads ----------------------------------------------------------------------------------------------------- */

#define N_SETS 200000

static void *set_many(void *arg)
{
    for (int64_t i = 1; i <= N_SETS; i++) {
        struct sensor_reading reading = {.unix_ns = i, .status = (enum sensor_status)(i % 7)};
        for (int k = 0; k < SENSOR_N_NUMBERS; k++)
            reading.value.numbers[k] = (double)(i * (k + 1));
        sensor_set(arg, reading);
    }
    return NULL;
}

static bool belongs_together(const struct sensor_reading *reading)
{
    bool right = reading->status == (enum sensor_status)(reading->unix_ns % 7);

    for (int k = 0; k < SENSOR_N_NUMBERS; k++)
        right = right && reading->value.numbers[k] == (double)(reading->unix_ns * (k + 1));
    return right;
}

/* Whatever a reader sees was set at once, and readings only go on. */
TEST(threads)
{
    static struct sensor sensor;
    int64_t last = 0;
    pthread_t writer;

    ck_assert_int_eq(pthread_create(&writer, NULL, set_many, &sensor), 0);
    while (last < N_SETS) {
        struct sensor_reading reading = sensor_read(&sensor);
        ck_assert_msg(belongs_together(&reading), "a mixture at %lld", (long long)reading.unix_ns);
        ck_assert_int_ge(reading.unix_ns, last);
        last = reading.unix_ns;
    }
    pthread_join(writer, NULL);
}

/* ---- The set ----------------------------------------------------------------------------------------------------- */

TEST(names)
{
    static const char *const all[] = {"b", "a.z", "a", "zz", "a-1", "B_2", "a.b.c", "0"};
    static struct sensor many[ARRAY_LEN(all)];

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        add(&many[i], (struct sensor_desc){all[i]},
            (struct sensor_reading){0, SENSOR_NOMINAL, {.integer = (int64_t)i}});
    ck_assert_uint_eq(sensors->n, ARRAY_LEN(all));
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        ck_assert_ptr_eq(sensors_find(sensors, all[i])->sensor, &many[i]);
        ck_assert_uint_eq(sensors->entries[i]->index, i);
        if (i > 0)
            ck_assert_int_lt(strcmp(sensors->entries[i - 1]->about.name, sensors->entries[i]->about.name), 0);
    }
    ck_assert_ptr_null(sensors_find(sensors, ""));
    ck_assert_ptr_null(sensors_find(sensors, "a."));
    ck_assert_ptr_null(sensors_find(sensors, "zzz"));
    sensors_destroy(NULL);
}

static void write_pair(const union sensor_value *value, char *text, size_t text_bytes)
{
    snprintf(text, text_bytes, "(%g, %g)", value->numbers[0], value->numbers[5]);
}

TEST(texts)
{
    static const char *const words[] = {"up", "down", NULL};
    static struct sensor integer, real, boolean, timestamp, discrete, text, pair;
    char *long_text = malloc(3000001);

    add(&integer, (struct sensor_desc){"integer", .type = SENSOR_INTEGER}, nothing);
    add(&real, (struct sensor_desc){"real", .type = SENSOR_FLOAT}, nothing);
    add(&boolean, (struct sensor_desc){"boolean", .type = SENSOR_BOOLEAN}, nothing);
    add(&timestamp, (struct sensor_desc){"timestamp", .type = SENSOR_TIMESTAMP}, nothing);
    add(&discrete, (struct sensor_desc){"discrete", .type = SENSOR_DISCRETE, .words = words}, nothing);
    add(&text, (struct sensor_desc){"text", .type = SENSOR_STRING}, nothing);
    add(&pair, (struct sensor_desc){"pair", .type = SENSOR_STRING, .format = write_pair}, nothing);

    sensor_set_integer(&integer, 7, SENSOR_NOMINAL, INT64_MIN);
    ck_assert_str_eq(text_of("integer"), "-9223372036854775808");
    sensor_set_integer(&boolean, 7, SENSOR_NOMINAL, 1);
    ck_assert_str_eq(text_of("boolean"), "1");
    sensor_set_integer(&discrete, 7, SENSOR_NOMINAL, 1);
    ck_assert_str_eq(text_of("discrete"), "down");
    sensor_set_real(&timestamp, 7, SENSOR_NOMINAL, 1700000000.25);
    ck_assert_str_eq(text_of("timestamp"), "1700000000.250000");
    ck_assert_str_eq(text_of("text"), "");
    sensor_set(&pair, (struct sensor_reading){7, SENSOR_NOMINAL, {.numbers = {1.5, 0, 0, 0, 0, -2}}});
    ck_assert_str_eq(text_of("pair"), "(1.5, -2)");
    memset(long_text, 'x', 3000000);
    long_text[3000000] = '\0';
    ck_assert_int_eq(sensors_set_text(sensors, &text, 8, SENSOR_WARN, long_text), 0);
    ck_assert_str_eq(text_of("text"), long_text);
    uint64_t version = text.entry->text_version;
    ck_assert_int_eq(sensors_set_text(sensors, &text, 9, SENSOR_WARN, long_text), 0);
    ck_assert_uint_eq(text.entry->text_version, version);
    ck_assert_int_eq(sensor_read(&text).unix_ns, 9);
    free(long_text);
}

/* As short as it may be, and the same number again. */
TEST(reals)
{
    static const double values[] = {0,    -0.0,    0.1,     1.0 / 3,  1e23,
                                    -2.5, DBL_MAX, DBL_MIN, 4.9e-324, 1.2345678901234568e17};
    static struct sensor real;

    add(&real, (struct sensor_desc){"real", .type = SENSOR_FLOAT}, nothing);
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        sensor_set_real(&real, 0, SENSOR_NOMINAL, values[i]);
        ck_assert_msg(strtod(text_of("real"), NULL) == values[i], "%s", text_of("real"));
    }
    sensor_set_real(&real, 0, SENSOR_NOMINAL, 0.1);
    ck_assert_str_eq(text_of("real"), "0.1");
    sensor_set_real(&real, 0, SENSOR_NOMINAL, -INFINITY);
    ck_assert_str_eq(text_of("real"), "-inf");
    sensor_set_real(&real, 0, SENSOR_NOMINAL, NAN);
    ck_assert_ptr_nonnull(strstr(text_of("real"), "nan"));
}

/* ---- Time-outs and aggregates ------------------------------------------------------------------------------------ */

TEST(time_outs)
{
    static struct sensor fails, recovers, stays;
    uint64_t before, after;

    add(&fails, (struct sensor_desc){"fails", .timeout_ns = 2 * NS_PER_S},
        (struct sensor_reading){77, SENSOR_NOMINAL, {.integer = 3}});
    add(&recovers, (struct sensor_desc){"recovers", .timeout_ns = NS_PER_S, .recovers = true},
        (struct sensor_reading){78, SENSOR_ERROR, {.integer = 4}});
    add(&stays, (struct sensor_desc){"stays", .timeout_ns = NS_PER_S, .recovers = true},
        (struct sensor_reading){79, SENSOR_UNKNOWN, {.integer = 5}});

    fake_monotonic_ns += 2 * NS_PER_S - 1;
    fake_unix_ns += 2 * NS_PER_S - 1;
    struct sensor_reading reading = sensors_read(sensors, fails.entry, &before);
    ck_assert_int_eq(reading.status, SENSOR_NOMINAL);
    ck_assert_int_eq(reading.unix_ns, 77);
    reading = sensors_read(sensors, recovers.entry, NULL);
    ck_assert_int_eq(reading.status, SENSOR_NOMINAL);
    ck_assert_int_eq(reading.unix_ns, INT64_C(1700000001123456789)); /* when its second was over */
    ck_assert_int_eq(reading.value.integer, 4);
    ck_assert_int_eq(sensors_read(sensors, stays.entry, NULL).status, SENSOR_UNKNOWN);

    fake_monotonic_ns += 1;
    fake_unix_ns += 1;
    reading = sensors_read(sensors, fails.entry, &after);
    ck_assert_int_eq(reading.status, SENSOR_ERROR);
    ck_assert_uint_ne(before, after);
    sensor_set_integer(&fails, 80, SENSOR_NOMINAL, 3);
    reading = sensors_read(sensors, fails.entry, NULL);
    ck_assert_int_eq(reading.status, SENSOR_NOMINAL);
    ck_assert_int_eq(reading.unix_ns, 80);
}

static bool includes_rx(const char *name)
{
    return strstr(name, "rx.") != NULL;
}

static bool includes_all(const char *name)
{
    return true;
}

TEST(aggregates)
{
    static struct sensor rx, other, rx_status, all_status;

    add(&rx_status,
        (struct sensor_desc){"rx.device-status", .type = SENSOR_DISCRETE, .words = sensor_aggregate_words,
                             .includes = includes_rx},
        nothing);
    add(&all_status,
        (struct sensor_desc){"device-status", .type = SENSOR_DISCRETE, .words = sensor_aggregate_words,
                             .includes = includes_all},
        nothing);
    add(&rx, (struct sensor_desc){"input0.rx.timestamp", .timeout_ns = NS_PER_S}, nothing);
    add(&other, (struct sensor_desc){"gain"}, nothing);
    for (enum sensor_status status = SENSOR_UNKNOWN; status <= SENSOR_INACTIVE; status++) {
        bool worse = status >= SENSOR_WARN && status <= SENSOR_UNREACHABLE;
        sensor_set_integer(&other, 0, status, 0);
        ck_assert_str_eq(text_of("device-status"), worse ? "degraded" : "ok");
        ck_assert_str_eq(text_of("rx.device-status"), "ok");
        ck_assert_int_eq(sensors_read(sensors, all_status.entry, NULL).status, worse ? SENSOR_WARN : SENSOR_NOMINAL);
    }
    sensor_set_integer(&other, 0, SENSOR_NOMINAL, 0);
    fake_monotonic_ns += NS_PER_S;
    fake_unix_ns += NS_PER_S;
    ck_assert_str_eq(text_of("rx.device-status"), "degraded");
    ck_assert_str_eq(text_of("device-status"), "degraded");
    ck_assert_int_eq(sensors_read(sensors, all_status.entry, NULL).unix_ns, fake_unix_ns);
}

SUITE(.timeout_s = 60, .setup = setup, .teardown = teardown);
