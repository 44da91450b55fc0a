/* check_fengs - states of F-engines as their counters change: dead, silent, losing, receiving; the time since when; and
 * sensors. */
#include "common/telemetry/stats.h"
#include "common/base/units.h"
#include "xbgpu/fengs.h"
#include "common/engine/labels.h"
#include "tests/unit/test_main.h"

#define SILENT_NS (2 * NS_PER_S)
#define UNIX_NS   (INT64_C(1700000000) * NS_PER_S)

enum { N_ANTS = 3 };

static char *antennas[N_ANTS] = {"m000", "m001", "m002"};
static char *inputs[N_ANTS * N_POLS] = {"m000v", "m000h", "m001v", "m001h", "m002x", "m002y"};

static struct fixture {
    struct labels labels;
    struct xbgpu_fengs fengs;
    struct sensors *sensors;
    struct ev_loop *loop;
    int64_t now_ns;
} f;

static void setup(void)
{
    f = (struct fixture){.labels = {.labels = inputs, .antennas = antennas, .n = N_ANTS * N_POLS},
                         .now_ns = 1000 * NS_PER_S};
    f.loop = ev_loop_new(0);
    ck_assert_int_eq(sensors_create(&f.sensors), 0);
    ck_assert_int_eq(xbgpu_fengs_init(&f.fengs, &f.labels, f.sensors, f.loop, SILENT_NS), 0);
}

static void teardown(void)
{
    stats_reset();
    xbgpu_fengs_fini(&f.fengs);
    sensors_destroy(f.sensors);
    ev_loop_destroy(f.loop);
}

/* A second passes, in which these heaps came and these were missing. */
static void pass(const unsigned heaps[N_ANTS], const unsigned missing[N_ANTS])
{
    for (int i = 0; i < N_ANTS; i++) {
        counter_add(&f.fengs.stats[i].heaps, heaps[i]);
        counter_add(&f.fengs.stats[i].missing_heaps, missing[i]);
    }
    f.now_ns += NS_PER_S;
    xbgpu_fengs_poll(&f.fengs, f.now_ns, UNIX_NS + f.now_ns);
}

static void check_state(int i, enum xbgpu_feng_state state, enum sensor_status status, int64_t since_s)
{
    char name[64];

    snprintf(name, sizeof(name), "%s.rx.state", antennas[i]);
    struct sensor_reading reading = sensors_read(f.sensors, sensors_find(f.sensors, name), NULL);
    ck_assert_int_eq(gauge_get(&f.fengs.items[i].state), state);
    ck_assert_int_eq(reading.value.integer, state);
    ck_assert_int_eq(reading.status, status);
    int64_t since_ns = gauge_get(&f.fengs.items[i].since_unix_ns);
    ck_assert_int_eq(since_ns, since_s == 0 ? 0 : UNIX_NS + since_s * NS_PER_S);
}

TEST(states)
{
    static const unsigned none[N_ANTS] = {0}, all[N_ANTS] = {10, 10, 0}, one_lost[N_ANTS] = {0, 1, 0};
    static const unsigned first_only[N_ANTS] = {10, 0, 0}, two[N_ANTS] = {0, 10, 10};

    pass(none, none); /* 1001: nobody is to blame while nothing comes at all */
    for (int i = 0; i < N_ANTS; i++)
        check_state(i, XBGPU_FENG_DEAD, SENSOR_UNKNOWN, 0);
    pass(all, none); /* 1002 */
    check_state(0, XBGPU_FENG_RECEIVING, SENSOR_NOMINAL, 1002);
    check_state(2, XBGPU_FENG_DEAD, SENSOR_ERROR, 0);
    pass(all, one_lost); /* 1003 */
    check_state(0, XBGPU_FENG_RECEIVING, SENSOR_NOMINAL, 1002);
    check_state(1, XBGPU_FENG_LOSING, SENSOR_WARN, 1003);
    pass(first_only, none); /* 1004 */
    check_state(1, XBGPU_FENG_LOSING, SENSOR_WARN, 1003);
    pass(first_only, one_lost); /* 1005: what is missing of one that is silent makes it no loser */
    check_state(1, XBGPU_FENG_SILENT, SENSOR_ERROR, 1003);
    pass(two, none); /* 1006 */
    check_state(0, XBGPU_FENG_RECEIVING, SENSOR_NOMINAL, 1002);
    check_state(1, XBGPU_FENG_LOSING, SENSOR_WARN, 1006);
    check_state(2, XBGPU_FENG_RECEIVING, SENSOR_NOMINAL, 1006);
    for (int s = 1007; s < 1010; s++) {
        pass(two, none);
        check_state(1, XBGPU_FENG_LOSING, SENSOR_WARN, 1006);
    }
    pass(two, none); /* 1010: five seconds after the last loss */
    check_state(1, XBGPU_FENG_RECEIVING, SENSOR_NOMINAL, 1010);
    check_state(0, XBGPU_FENG_SILENT, SENSOR_ERROR, 1005);
}

/* Who sends heaps that are late or refused is not dead or silent, but loses them where none is complete. */
TEST(useless_heaps_are_heard)
{
    static const unsigned none[N_ANTS] = {0}, all[N_ANTS] = {0, 10, 10}, last[N_ANTS] = {0, 0, 10};

    for (int s = 1001; s < 1010; s++) {
        counter_add(&f.fengs.stats[0].late_heaps, 3);
        if (s > 1002)
            counter_add(&f.fengs.stats[1].refused_heaps, 3);
        counter_add(&f.fengs.stats[2].refused_heaps, 3); /* copies beside complete heaps do no harm */
        pass(s <= 1002 ? all : last, none);
        check_state(0, XBGPU_FENG_LOSING, SENSOR_WARN, 1001);
        if (s < 1004) /* two seconds after the last that was complete */
            check_state(1, XBGPU_FENG_RECEIVING, SENSOR_NOMINAL, 1001);
        else
            check_state(1, XBGPU_FENG_LOSING, SENSOR_WARN, 1004);
        check_state(2, XBGPU_FENG_RECEIVING, SENSOR_NOMINAL, 1001);
    }
    pass(last, none); /* 1010 */
    check_state(1, XBGPU_FENG_LOSING, SENSOR_WARN, 1004);
    pass(last, none); /* 1011 */
    check_state(0, XBGPU_FENG_SILENT, SENSOR_ERROR, 1009);
    check_state(1, XBGPU_FENG_SILENT, SENSOR_ERROR, 1009);
}

TEST(counts_are_told)
{
    static const unsigned heaps[N_ANTS] = {7, 0, 9}, missing[N_ANTS] = {0, 3, 1};

    counter_add(&f.fengs.stats[2].late_heaps, 5);
    counter_add(&f.fengs.stats[0].refused_heaps, 6);
    pass(heaps, missing);
    static const struct {
        const char *name;
        int64_t value;
    } expected[] = {{"m000.rx.heaps", 7},
                    {"m001.rx.missing-heaps", 3},
                    {"m002.rx.late-heaps", 5},
                    {"m000.rx.refused-heaps", 6},
                    {"m001.rx.heaps", 0}};
    for (size_t i = 0; i < ARRAY_LEN(expected); i++) {
        struct sensor_reading reading = sensors_read(f.sensors, sensors_find(f.sensors, expected[i].name), NULL);
        ck_assert_int_eq(reading.value.integer, expected[i].value);
        ck_assert_int_eq(reading.status, SENSOR_NOMINAL);
    }
    json_t *json = json_pack("{s:[{}, {}, {}]}", "fengs");
    xbgpu_fengs_describe(&f.fengs, json);
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(json_object_get(json, "fengs"), 1), "state")),
                     "dead");
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(json_object_get(json, "fengs"), 0), "state")),
                     "receiving");
    json_t *labels = json_object_get(json_array_get(json_object_get(json, "fengs"), 2), "labels");
    ck_assert_uint_eq(json_array_size(labels), 2);
    ck_assert_str_eq(json_string_value(json_array_get(labels, 1)), "m002y");
    json_decref(json);
}

SUITE(.setup = setup, .teardown = teardown);
