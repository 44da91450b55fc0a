/* check_status.c - the registry as JSON: metrics of an input, of a stream, and of neither. */
#include "common/http/status.h"

#include "common/telemetry/sensor.h"
#include "common/telemetry/stats.h"
#include "common/base/units.h"
#include "tests/unit/test_main.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct counter counters[12];
static struct gauge gauges[4];

static struct status *create(const struct gauge *healthy)
{
    struct status *status = NULL;

    ck_assert_int_eq(status_create("fgpu", "/etc/cbf/m000.low.yaml", healthy, &status), 0);
    status_set_state(status, STATUS_RUNNING);
    return status;
}

static json_t *ask(struct status *status, const struct status_query *query)
{
    static const struct status_query none = {0};
    char *text = status_format(status, query ? query : &none);
    json_error_t error;
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, &error);

    ck_assert_msg(json != NULL, "%s in %s", error.text, text);
    free(text);
    return json;
}

/* Compares a part of the answer with JSON text. */
static void check_part(const json_t *json, const char *key, const char *expected)
{
    json_error_t error;
    json_t *wanted = json_loads(expected, JSON_DECODE_ANY, &error), *found = json_object_get(json, key);
    char *text = json_dumps(found, JSON_ENCODE_ANY | JSON_COMPACT);

    ck_assert_msg(wanted != NULL, "%s in %s", error.text, expected);
    ck_assert_msg(json_equal(found, wanted), "%s: %s, not %s", key, text ? text : "nothing", expected);
    free(text);
    json_decref(wanted);
}

TEST(sections)
{
    struct status *status = create(NULL);
    char awkward[64] = "";

    for (size_t i = 0; i < ARRAY_LEN(counters); i++)
        counter_add(&counters[i], 10 * i);
    gauge_set(&gauges[0], -21500000);
    gauge_set(&gauges[1], 1);
    gauge_set(&gauges[2], 1500000);
    gauge_set(&gauges[3], 44);
    stats_label(awkward, sizeof(awkward), "antenna", "a\"b\\n,=\nc");
    stats_label(awkward, sizeof(awkward), "pol", "0");
    stats_counter("fgpu_input_heaps", "-", "antenna=\"m0\",pol=\"0\"", &counters[1]);
    stats_counter("fgpu_input_heaps", "-", "antenna=\"m0\",pol=\"1\"", &counters[2]);
    stats_counter("fgpu_input_heaps", "-", awkward, &counters[3]);
    stats_counter("fgpu_input_rejected_packets", "-", "antenna=\"m0\",pol=\"1\",reason=\"jump\"", &counters[4]);
    stats_gauge_scaled("fgpu_input_power_dbfs", "-", "antenna=\"m0\",pol=\"0\"", &gauges[0], 1e-6);
    stats_gauge("fgpu_input_power_valid", "-", "antenna=\"m0\"", &gauges[1]);
    stats_counter("fgpu_late_chunks", "-", "antenna=\"m0\"", &counters[5]);
    stats_counter("fgpu_input_packets", "-", "thread=\"recv0\"", &counters[6]);
    stats_counter("fgpu_input_malformed_packets", "-", "thread=\"recv0\",error=\"bad_magic\"", &counters[7]);
    stats_counter("fgpu_output_heaps", "-", "antenna=\"m0\",stream=\"wide\"", &counters[8]);
    stats_gauge_scaled("fgpu_output_latency_seconds", "-", "antenna=\"m0\",stream=\"wide\"", &gauges[2], 1e-9);
    stats_counter("fgpu_output_clipped_samples", "-", "antenna=\"m0\",stream=\"wide\",pol=\"0\"", &counters[9]);
    stats_counter("fgpu_output_clipped_samples", "-", "antenna=\"m0\",stream=\"wide\",pol=\"1\"", &counters[10]);
    stats_gauge("fgpu_gnss_cn0_db_hz", "-", "antenna=\"m0\",stream=\"wide\",satellite=\"E1B-3\",pol=\"1\"", &gauges[3]);
    stats_counter("fgpu_jokes", "-", NULL, &counters[11]);
    json_t *json = ask(status, NULL);
    check_part(
        json, "inputs",
        "[{\"antenna\": \"m0\", \"pol\": \"0\", \"heaps\": {\"total\": 10, \"per_s\": null}, \"power_dbfs\": -21.5},"
        " {\"antenna\": \"m0\", \"pol\": \"1\", \"heaps\": {\"total\": 20, \"per_s\": null},"
        "  \"rejected_packets\": {\"jump\": {\"total\": 40, \"per_s\": null}}},"
        " {\"antenna\": \"a\\\"b\\\\n,=\\nc\", \"pol\": \"0\", \"heaps\": {\"total\": 30, \"per_s\": null}}]");
    check_part(json, "antennas",
               "[{\"antenna\": \"m0\", \"power_valid\": 1.0, \"late_chunks\": {\"total\": 50, \"per_s\": null}}]");
    check_part(json, "receivers",
               "[{\"thread\": \"recv0\", \"packets\": {\"total\": 60, \"per_s\": null},"
               "  \"malformed_packets\": {\"bad_magic\": {\"total\": 70, \"per_s\": null}}}]");
    check_part(json, "streams",
               "[{\"antenna\": \"m0\", \"stream\": \"wide\", \"heaps\": {\"total\": 80, \"per_s\": null},"
               "  \"latency_seconds\": 0.0015, \"clipped_samples\": {\"0\": {\"total\": 90, \"per_s\": null},"
               "                                                 \"1\": {\"total\": 100, \"per_s\": null}},"
               "  \"cn0_db_hz\": {\"E1B-3\": {\"1\": 44.0}}}]");
    check_part(json, "other", "{\"jokes\": {\"total\": 110, \"per_s\": null}}");
    json_decref(json);
    status_destroy(status);
    stats_reset();
}

static void describe(void *arg, const struct status_query *query, json_t *into)
{
    int *n_calls = arg;

    ++*n_calls;
    json_object_set_new(into, "asked", json_pack("[s?, s?, s?]", query->stream, query->antenna, query->baseline));
    json_object_set_new(into, "numbers", json_pack("[o, o]", status_number(0.25), status_number(-INFINITY)));
}

TEST(process)
{
    struct gauge healthy = {1};
    struct status *status = create(&healthy);
    const struct status_query query = {.stream = "wide", .baseline = "0,1"};
    int n_calls = 0;

    status_set_state(status, STATUS_STARTING);
    json_t *json = ask(status, NULL);
    check_part(json, "program", "\"fgpu\"");
    check_part(json, "engine", "\"m000.low\"");
    check_part(json, "state", "\"starting\"");
    check_part(json, "healthy", "true");
    ck_assert_ptr_null(json_object_get(json, "device"));
    ck_assert_ptr_null(json_object_get(json, "asked"));
    double time = json_real_value(json_object_get(json, "time"));
    double start = json_real_value(json_object_get(json, "start_time"));
    ck_assert_double_gt(start, 1.7e9);
    ck_assert_double_ge(time, start);
    ck_assert_double_ge(json_real_value(json_object_get(json, "uptime_s")), 0);
    json_decref(json);

    status_set_state(status, STATUS_RUNNING);
    status_set_source(status, describe, &n_calls);
    gauge_set(&healthy, 0);
    json = ask(status, &query);
    check_part(json, "state", "\"running\"");
    check_part(json, "healthy", "false");
    check_part(json, "asked", "[\"wide\", null, \"0,1\"]");
    check_part(json, "numbers", "[0.25, null]");
    json_decref(json);
    status_set_state(status, STATUS_DRAINING);
    status_set_source(status, NULL, NULL);
    json = ask(status, NULL);
    check_part(json, "state", "\"draining\"");
    json_decref(json);
    ck_assert_int_eq(n_calls, 1);
    status_destroy(status);
    status_destroy(NULL);
}

static void write_pair(const union sensor_value *value, char *text, size_t text_bytes)
{
    snprintf(text, text_bytes, "(%g, %g)", value->numbers[0], value->numbers[1]);
}

static bool includes_all(const char *name)
{
    return true;
}

TEST(sensors)
{
    static const char *const words[] = {"red", "green", NULL};
    struct status *status = create(NULL);
    struct sensors *set;
    struct sensor all[8];
    const struct sensor_desc abouts[] = {
        {.name = "a.integer", .description = "-", .units = "", .type = SENSOR_INTEGER},
        {.name = "b.float", .description = "-", .units = "dB", .type = SENSOR_FLOAT},
        {.name = "c.boolean", .description = "-", .units = "", .type = SENSOR_BOOLEAN},
        {.name = "d.time", .description = "-", .units = "", .type = SENSOR_TIMESTAMP},
        {.name = "e.word", .description = "-", .units = "", .type = SENSOR_DISCRETE, .words = words},
        {.name = "f.pair", .description = "-", .units = "", .type = SENSOR_STRING, .format = write_pair},
        {.name = "g.text", .description = "-", .units = "", .type = SENSOR_STRING},
        {.name = "h.all",
         .description = "-",
         .units = "",
         .type = SENSOR_DISCRETE,
         .words = sensor_aggregate_words,
         .includes = includes_all},
    };

    ck_assert_int_eq(sensors_create(&set), 0);
    memset(all, 0, sizeof(all));
    for (size_t i = 0; i < ARRAY_LEN(abouts); i++)
        ck_assert_int_eq(sensors_add(set, &all[i], &abouts[i], (struct sensor_reading){0, SENSOR_UNKNOWN, {0}}), 0);
    sensor_set_integer(&all[0], 1700000000250000000, SENSOR_NOMINAL, -281474976710656);
    sensor_set_real(&all[1], 0, SENSOR_WARN, -33.5);
    sensor_set_integer(&all[2], 0, SENSOR_ERROR, 1);
    sensor_set_real(&all[3], 0, SENSOR_FAILURE, 1.5);
    sensor_set_integer(&all[4], 0, SENSOR_NOMINAL, 1);
    sensor_set(&all[5], (struct sensor_reading){0, SENSOR_NOMINAL, {.numbers = {0.5, -2}}});
    json_t *json = ask(status, NULL);
    ck_assert_ptr_null(json_object_get(json, "sensors"));
    json_decref(json);
    status_set_sensors(status, set);
    json = ask(status, &(struct status_query){.no_sensors = true});
    ck_assert_ptr_null(json_object_get(json, "sensors"));
    json_decref(json);
    json = ask(status, NULL);
    check_part(json, "sensors",
               "{\"a.integer\": {\"value\": -281474976710656, \"units\": \"\", \"status\": \"nominal\","
               "                \"time\": 1700000000.25},"
               " \"b.float\": {\"value\": -33.5, \"units\": \"dB\", \"status\": \"warn\", \"time\": 0.0},"
               " \"c.boolean\": {\"value\": true, \"units\": \"\", \"status\": \"error\", \"time\": 0.0},"
               " \"d.time\": {\"value\": 1.5, \"units\": \"\", \"status\": \"failure\", \"time\": 0.0},"
               " \"e.word\": {\"value\": \"green\", \"units\": \"\", \"status\": \"nominal\", \"time\": 0.0},"
               " \"f.pair\": {\"value\": \"(0.5, -2)\", \"units\": \"\", \"status\": \"nominal\", \"time\": 0.0}}");
    json_decref(json);
    status_set_sensors(status, NULL);
    sensors_destroy(set);
    status_destroy(status);
}
