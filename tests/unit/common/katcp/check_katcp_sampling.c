/* check_katcp_sampling.c - the readings that each strategy sends, and their times. */
#include "tests/unit/katcp_fixture.h"
#include "tests/unit/test_main.h"

static void set_integer(int64_t value)
{
    sensor_set_integer(&integer, clock_unix_ns(), SENSOR_NOMINAL, value);
}

/* Samples the integer sensor as said, and takes the first reading and the reply. */
static struct client *sample(const char *strategy)
{
    char line[200], reply[200];
    struct client *client = connect_greeted(false);

    fake_ns = 0;
    set_integer(0);
    snprintf(line, sizeof(line), "?sensor-sampling[4] integer %s\n", strategy);
    say(client, line);
    expect(client, "#sensor-status 1700000000.000000 1 integer nominal 0");
    snprintf(reply, sizeof(reply), "!sensor-sampling[4] ok integer %s", strategy);
    expect(client, reply);
    return client;
}

TEST(automatic)
{
    struct client *client = sample("auto");
    expect_nothing(client);
    pass(1);
    set_integer(0); /* the same once more is a reading too */
    expect(client, "#sensor-status 1700000001.000000 1 integer nominal 0");
    say(client, "?sensor-sampling integer none\n?sensor-sampling integer\n");
    expect(client, "!sensor-sampling ok integer none");
    expect(client, "!sensor-sampling ok integer none");
    set_integer(1);
    expect_nothing(client);
}

/* A fast sensor's 'auto' has a shortest interval of 1 s. */
TEST(automatic_rate)
{
    struct client *client = connect_greeted(false);
    fake_ns = 0;
    sensor_set_integer(&slow, START_NS, SENSOR_NOMINAL, 5);
    say(client, "?sensor-sampling slow auto\n");
    expect(client, "#sensor-status 1700000000.000000 1 slow nominal 5");
    expect(client, "!sensor-sampling ok slow auto");
    pass(0.9);
    sensor_set_integer(&slow, clock_unix_ns(), SENSOR_NOMINAL, 6);
    expect_nothing(client);
    pass(0.2);
    expect(client, "#sensor-status 1700000000.900000 1 slow nominal 6");
    sensor_set_integer(&slow, clock_unix_ns(), SENSOR_NOMINAL, 6);
    pass(5);
    expect_nothing(client);
    pass(95); /* its time-out, 100 s after it was set */
    expect(client, "#sensor-status 1700000101.100000 1 slow error 6");
}

TEST(event)
{
    struct client *client = sample("event");
    set_integer(0);
    pass(1);
    set_integer(0);
    expect_nothing(client);
    set_integer(1);
    expect(client, "#sensor-status 1700000001.000000 1 integer nominal 1");
    sensor_set_integer(&integer, clock_unix_ns(), SENSOR_WARN, 1);
    expect(client, "#sensor-status 1700000001.000000 1 integer warn 1");
    say(client, "?sensor-sampling text event\n");
    expect(client, "#sensor-status 1700000000.000000 1 text nominal \\@");
    expect(client, "!sensor-sampling ok text event");
    ck_assert_int_eq(sensors_set_text(sensors, &text, START_NS, SENSOR_NOMINAL, "(1, 2)\n"), 0);
    expect(client, "#sensor-status 1700000000.000000 1 text nominal (1,\\_2)\\n");
    ck_assert_int_eq(sensors_set_text(sensors, &text, START_NS, SENSOR_NOMINAL, "(1, 2)\n"), 0);
    expect_nothing(client);
    say(client, "?sensor-sampling-clear\n");
    expect(client, "!sensor-sampling-clear ok");
    set_integer(99);
    expect_nothing(client);
}

TEST(period)
{
    struct client *client = sample("period 2.5");
    set_integer(8);
    pass(2.4);
    expect_nothing(client);
    pass(0.2);
    expect(client, "#sensor-status 1700000000.000000 1 integer nominal 8");
    pass(2.3); /* 4.9: the beat is kept */
    expect_nothing(client);
    pass(0.1);
    expect(client, "#sensor-status 1700000000.000000 1 integer nominal 8");
    pass(100); /* but beats that were missed are not made up for */
    expect(client, "#sensor-status 1700000000.000000 1 integer nominal 8");
    expect_nothing(client);
}

TEST(differential)
{
    struct client *client = sample("differential 2");
    set_integer(2);
    expect_nothing(client);
    set_integer(3);
    expect(client, "#sensor-status 1700000000.000000 1 integer nominal 3");
    set_integer(1);
    expect_nothing(client);
    set_integer(0);
    expect(client, "#sensor-status 1700000000.000000 1 integer nominal 0");
    sensor_set_integer(&integer, START_NS, SENSOR_ERROR, 0);
    expect(client, "#sensor-status 1700000000.000000 1 integer error 0");
    say(client, "?sensor-sampling real differential 0.5\n");
    expect(client, "#sensor-status 1700000000.000000 1 real nominal 0");
    expect(client, "!sensor-sampling ok real differential 0.5");
    sensor_set_real(&real, START_NS, SENSOR_NOMINAL, -0.5);
    expect_nothing(client);
    sensor_set_real(&real, START_NS, SENSOR_NOMINAL, -0.75);
    expect(client, "#sensor-status 1700000000.000000 1 real nominal -0.75");
    sensor_set_real(&real, START_NS, SENSOR_NOMINAL, NAN);
    expect_begin(client, "#sensor-status 1700000000.000000 1 real nominal ");
}

TEST(event_rate)
{
    struct client *client = sample("event-rate 1 10");
    set_integer(1);
    pass(0.9);
    expect_nothing(client);
    set_integer(2);
    pass(0.2);
    expect(client, "#sensor-status 1700000000.900000 1 integer nominal 2");
    pass(9.8);
    expect_nothing(client);
    pass(0.3);
    expect(client, "#sensor-status 1700000000.900000 1 integer nominal 2");
    set_integer(3); /* a while after, though not after the last change */
    expect_nothing(client);
    pass(1);
    expect_begin(client, "#sensor-status ");
    say(client, "?sensor-sampling integer event-rate 0 inf\n");
    expect_begin(client, "#sensor-status ");
    expect(client, "!sensor-sampling ok integer event-rate 0 inf");
    pass(1e6);
    expect_nothing(client);
}

TEST(differential_rate)
{
    struct client *client = sample("differential-rate 5 1 10");
    pass(2);
    set_integer(5);
    expect_nothing(client);
    set_integer(6);
    expect(client, "#sensor-status 1700000002.000000 1 integer nominal 6");
    set_integer(12);
    expect_nothing(client);
    pass(1);
    expect(client, "#sensor-status 1700000002.000000 1 integer nominal 12");
    pass(10);
    expect(client, "#sensor-status 1700000002.000000 1 integer nominal 12");
}

TEST(refused_sampling)
{
    static const char *const requests_and_replies[][2] = {
        {"?sensor-sampling none event", "!sensor-sampling fail Unknown\\_sensor\\_'none'"},
        {"?sensor-sampling integer,none event", "!sensor-sampling fail Unknown\\_sensor\\_'none'"},
        {"?sensor-sampling integer, event", "!sensor-sampling fail Unknown\\_sensor\\_''"},
        {"?sensor-sampling integer,real,integer event", "!sensor-sampling fail sensor\\_integer\\_is\\_named\\_twice"},
        {"?sensor-sampling integer,text differential 1", "!sensor-sampling fail strategy\\_differential\\_is"},
        {"?sensor-sampling integer,real", "!sensor-sampling fail Unknown\\_sensor\\_'integer,real'"},
        {"?sensor-sampling integer often", "!sensor-sampling fail unknown\\_strategy\\_often"},
        {"?sensor-sampling integer event 1", "!sensor-sampling fail strategy\\_event\\_takes\\_0\\_parameters"},
        {"?sensor-sampling integer period", "!sensor-sampling fail strategy\\_period\\_takes\\_1"},
        {"?sensor-sampling integer period 0", "!sensor-sampling fail the\\_period"},
        {"?sensor-sampling integer period -1", "!sensor-sampling fail the\\_period"},
        {"?sensor-sampling integer period inf", "!sensor-sampling fail the\\_period"},
        {"?sensor-sampling integer differential -1", "!sensor-sampling fail the\\_difference"},
        {"?sensor-sampling integer event-rate 2 1", "!sensor-sampling fail the\\_longest"},
        {"?sensor-sampling integer event-rate inf inf", "!sensor-sampling fail the\\_shortest"},
        {"?sensor-sampling integer event-rate 0 0", "!sensor-sampling fail the\\_longest"},
        {"?sensor-sampling integer differential-rate 1 2 x", "!sensor-sampling fail the\\_longest"},
        {"?sensor-sampling", "!sensor-sampling fail too\\_few"},
        {"?sensor-sampling integer a b c d e", "!sensor-sampling fail too\\_many"},
    };

    struct client *client = connect_greeted(false);
    for (size_t i = 0; i < ARRAY_LEN(requests_and_replies); i++) {
        say(client, requests_and_replies[i][0]);
        say(client, "\n?sensor-sampling integer\n");
        expect_begin(client, requests_and_replies[i][1]);
        expect(client, "!sensor-sampling ok integer none"); /* nothing has changed */
    }
}

SUITE(.timeout_s = 120, .setup = open_server, .teardown = close_server);
