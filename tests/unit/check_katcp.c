/* check_katcp.c - requests, also such that are answered later, clients that do not behave, and the log. */
#include "tests/unit/katcp_fixture.h"

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

START_TEST(own_requests)
{
    open_server();
    struct client *client = connect_greeted(false);
    say(client, "?echo[7] a\\_b \\@\n?echo\r?echo x x x x\n?nothing[2]\n");
    expect(client, "#echo[7] a\\_b \\@");
    expect(client, "!echo[7] ok a\\_b \\@");
    expect(client, "#echo");
    expect(client, "!echo ok");
    expect(client, "!echo fail too\\_many\\_arguments:\\_4\\_of\\_at\\_most\\_3");
    expect(client, "!nothing[2] invalid unknown\\_request\\_nothing");
    say(client, "?add 1\n?add 1 2.5\n?add -3 1e1\n?add 1.5 2\n?add 1 nan\n?add 1 0x10\n?add 9999999999999999999 1\n");
    expect(client, "!add fail too\\_few\\_arguments:\\_1\\_of\\_at\\_least\\_2");
    expect(client, "!add ok 3.5");
    expect(client, "!add ok 7");
    expect(client, "!add fail the\\_first\\_must\\_be\\_an\\_integer,\\_not\\_'1.5'");
    expect(client, "!add fail the\\_second\\_must\\_be\\_a\\_finite\\_number,\\_not\\_'nan'");
    expect(client, "!add fail the\\_second\\_must\\_be\\_a\\_finite\\_number,\\_not\\_'0x10'");
    expect(client, "!add fail the\\_first\\_must\\_be\\_an\\_integer,\\_not\\_'9999999999999999999'");
    say(client, "?echo \\0\n?help echo\n?request-timeout-hint echo\n");
    expect(client, "!echo invalid an\\_argument\\_contains\\_a\\_NUL");
    expect(client, "#help echo Says\\_it\\_again.\\n?echo\\_[word...]");
    expect(client, "!help ok 1");
    expect(client, "#request-timeout-hint echo 1.5");
    expect(client, "!request-timeout-hint ok 1");
    say(client, "?halt\n?restart[3]\n");
    expect(client, "!halt ok");
    expect(client, "!restart[3] ok");
    ck_assert_int_eq(n_halts, 1);
    ck_assert_int_eq(n_restarts, 1);
    leave(client);
    close_server();
}
END_TEST

START_TEST(read_only)
{
    open_server();
    struct client *client = connect_greeted(true);
    say(client,
        "?echo a\n?echo a b\n?add 1 2\n?halt\n?restart\n?log-level\n?log-level off\n?sensor-sampling integer auto\n");
    expect(client, "#echo a");
    expect(client, "!echo ok a");
    expect(client, "!echo fail this\\_address\\_is\\_for\\_reading\\_only");
    expect(client, "!add fail this\\_address\\_is\\_for\\_reading\\_only");
    expect(client, "!halt fail this\\_address\\_is\\_for\\_reading\\_only");
    expect(client, "!restart fail this\\_address\\_is\\_for\\_reading\\_only");
    expect(client, "!log-level ok warn");
    expect(client, "!log-level fail this\\_address\\_is\\_for\\_reading\\_only");
    expect(client, "#sensor-status 1700000000.000000 1 integer nominal 0");
    expect(client, "!sensor-sampling ok integer auto");
    ck_assert_int_eq(n_halts + n_restarts, 0);
    leave(client);
    close_server();
}
END_TEST

/* A call that is kept holds up its own client only; it may outlive the connection. */
START_TEST(answered_later)
{
    open_server();
    struct client *client = connect_greeted(false), *other = connect_greeted(false);
    expect_begin(client, "#client-connected 127.0.0.1:");
    say(client, "?keep[5] x\n?watchdog\n");
    say(other, "?watchdog\n");
    expect(other, "!watchdog ok");
    ck_assert_ptr_nonnull(kept);
    ck_assert_str_eq(katcp_arg(kept, 0), "x");
    katcp_inform(kept, 1, (const char *[]){"so far"});
    katcp_ok(kept, 1, (const char *[]){"y"});
    kept = NULL;
    expect(client, "#keep[5] so\\_far");
    expect(client, "!keep[5] ok y");
    expect(client, "!watchdog ok");
    say(client, "?keep gone\n");
    while (!kept)
        turn();
    /* It resets the connection, which is noticed as soon as something is sent. */
    setsockopt(client->fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
    leave(client);
    for (int i = 0; i < 100; i++) {
        katcp_inform(kept, 0, NULL);
        turn();
    }
    say(other, "?client-list\n");
    expect_begin(other, "#client-list 127.0.0.1:");
    expect(other, "!client-list ok 1");
    ck_assert_str_eq(katcp_arg(kept, 0), "gone");
    katcp_fail(kept, "late");
    kept = NULL;
    /* What is still open at the end fails. */
    say(other, "?keep\n");
    while (!kept)
        turn();
    katcp_server_close(server);
    expect(other, "!keep fail the\\_program\\_is\\_ending");
    expect(other, "#disconnect the\\_program\\_is\\_ending");
    expect(other, "");
    leave(other);
    sensors_destroy(sensors);
    ev_loop_destroy(loop);
}
END_TEST

START_TEST(expressions)
{
    open_server();
    struct client *client = connect_greeted(false);
    say(client, "?sensor-value /^(int|te)/\n?sensor-value /e{3}/\n?sensor-value /(e)\\\\1/\n?sensor-value "
                "/(/\n?sensor-value //\n"
                "?sensor-list /x\\\\./\n?sensor-value /\n");
    expect(client, "#sensor-value 1700000000.000000 1 integer nominal 0");
    expect(client, "#sensor-value 1700000000.000000 1 text nominal \\@");
    expect(client, "!sensor-value ok 2");
    expect_begin(client, "!sensor-value fail an\\_expression");
    expect_begin(client, "!sensor-value fail an\\_expression");
    expect_begin(client, "!sensor-value fail /(/\\_is\\_no\\_regular\\_expression:");
    for (int i = 0; i < 4; i++)
        expect_begin(client, "#sensor-value ");
    expect(client, "!sensor-value ok 4");
    expect(client, "!sensor-list ok 0");
    expect(client, "!sensor-value fail Unknown\\_sensor\\_'/'");
    /* Each plus of such a one doubles what it compiles to. */
    say(client, "?sensor-value /x+++++++++++++++++++++++++++/\n?sensor-value "
                "/((((((((((((((((((((((((((x+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+/\n"
                "?sensor-value /(x+y+)+/\n?sensor-value /e+[g+]+e\\\\+*r+/\n");
    for (int i = 0; i < 3; i++)
        expect_begin(client, "!sensor-value fail an\\_expression");
    expect(client, "#sensor-value 1700000000.000000 1 integer nominal 0");
    expect(client, "!sensor-value ok 1");
    leave(client);
    close_server();
}
END_TEST

/* ---- Clients that do not behave ---------------------------------------------------------------------------------- */

START_TEST(no_messages)
{
    open_server();
    struct client *client = connect_greeted(false);
    say(client, "hello\n\r\n?a[0]\n?watchdog \\q\n!watchdog ok\n#inform\n   \n?watchdog[1]\n");
    for (int i = 0; i < 5; i++)
        expect_begin(client, "#log error 17000");
    expect(client, "!watchdog[1] ok");
    ck_assert_int_eq(send(client->fd, "?watchdog a\0b\n?watchdog\r", 24, 0), 24);
    expect_begin(client, "#log error 17000");
    expect(client, "!watchdog ok");
    leave(client);
    close_server();
}
END_TEST

/* Sends while the server reads. */
static void say_much(struct client *client, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(client->fd, bytes, n, MSG_DONTWAIT);
        ck_assert(sent > 0 || errno == EAGAIN);
        bytes += sent > 0 ? sent : 0;
        n -= sent > 0 ? (size_t)sent : 0;
        turn();
    }
}

/* What a web page could make a browser send does not get as far as its body. */
START_TEST(browser)
{
    open_server();
    struct client *client = connect_greeted(false);
    say(client, "?log-level off\n"); /* which would tell the next of it */
    expect(client, "!log-level ok off");
    say(client, "POST / HTTP/1.1\r\nHost: x\r\n\r\n?halt\n");
    expect(client, "");
    leave(client);
    /* However long its address is: browsers take a MiB or two. */
    for (size_t n = 1u << 16; n <= 1u << 21; n <<= 5) {
        char *request = malloc(n + 100);
        client = connect_greeted(false);
        memset(request, 'a', n);
        memcpy(request, "POST /", 6);
        strcpy(request + n, " HTTP/1.1\r\nHost: x\r\n\r\n?halt\n");
        say_much(client, request, strlen(request));
        expect(client, "");
        leave(client);
        free(request);
    }
    ck_assert_int_eq(n_halts, 0);
    close_server();
}
END_TEST

START_TEST(long_lines)
{
    size_t most = 16u << 20;
    char *line = malloc(most + 2);

    open_server();
    struct client *client = connect_greeted(false);
    memset(line, 'x', most + 2);
    memcpy(line, "?watchdog ", 10);
    line[most] = '\n';
    say_much(client, line, most + 1);
    expect(client, "!watchdog fail too\\_many\\_arguments:\\_1\\_of\\_at\\_most\\_0");
    line[most] = 'x';
    line[most + 1] = '\n';
    say_much(client, line, most + 2);
    say(client, "?watchdog[1]\n");
    expect_begin(client, "#log error 17000");
    expect(client, "!watchdog[1] ok");
    for (int i = 0; i < 3; i++)
        say_much(client, line, most + 1);
    say(client, "\n?watchdog[2]\n");
    expect_begin(client, "#log error 17000");
    expect(client, "!watchdog[2] ok");
    /* Nor does it matter how much there is in all. */
    memcpy(line + (1 << 16), "\n", 2);
    for (int i = 0; i < 300; i++) {
        say_much(client, line, (1 << 16) + 1);
        expect(client, "!watchdog fail too\\_many\\_arguments:\\_1\\_of\\_at\\_most\\_0");
    }
    leave(client);
    free(line);
    close_server();
}
END_TEST

START_TEST(too_many_clients)
{
    struct client *clients[3];

    open_server();
    for (int i = 0; i < 3; i++)
        clients[i] = connect_greeted(i == 1);
    struct client *refused = connect_to(katcp_server_port(server, false));
    expect_begin(refused, "#disconnect there");
    expect(refused, "");
    leave(refused);
    say(clients[2], "?client-list\n");
    for (int i = 0; i < 3; i++)
        expect_begin(clients[2], "#client-list 127.0.0.1:");
    expect(clients[2], "!client-list ok 3");
    leave(clients[0]);
    while (true) {
        say(clients[2], "?client-list\n");
        while (strncmp(next_line(clients[2]), "#", 1) == 0)
            continue;
        clients[0] = connect_to(katcp_server_port(server, false));
        if (!strcmp(next_line(clients[0]), "#version-connect katcp-protocol 5.1-MIBT"))
            break;
        leave(clients[0]);
    }
    for (int i = 0; i < 3; i++)
        leave(clients[i]);
    close_server();
}
END_TEST

START_TEST(networks)
{
    char allow[] = "10.0.0.0/8, 127.0.0.2";
    char why[200];

    open_server();
    katcp_server_close(server);
    config.allow = allow;
    ck_assert_int_eq(katcp_server_open(&config, loop, &served, &server, why, sizeof(why)), 0);
    struct client *refused = connect_to(katcp_server_port(server, false));
    expect_begin(refused, "#disconnect katcp.allow");
    expect(refused, "");
    leave(refused);
    close_server();
}
END_TEST

/* One that asks for much and reads nothing is dropped; the other does not notice. */
START_TEST(deaf_client)
{
    char *large = malloc((4u << 20) + 1);

    open_server();
    memset(large, 'x', 4u << 20);
    large[4u << 20] = '\0';
    struct client *deaf = connect_greeted(false), *other = connect_greeted(false);
    expect_begin(deaf, "#client-connected ");
    say(deaf, "?log-level off\n"); /* which would tell the other of it */
    expect(deaf, "!log-level ok off");
    say(deaf, "?sensor-sampling text auto\n");
    expect_nothing(other);
    for (int i = 0; i < 20; i++) {
        large[0] = (char)('a' + i);
        ck_assert_int_eq(sensors_set_text(sensors, &text, START_NS, SENSOR_NOMINAL, large), 0);
        expect_nothing(other);
    }
    say(other, "?client-list\n");
    expect_begin(other, "#client-list ");
    expect(other, "!client-list ok 1");
    leave(deaf);
    /* Nor may it wait for ever with a little. */
    deaf = connect_greeted(false);
    expect_begin(other, "#client-connected ");
    say(deaf, "?sensor-value\n?sensor-value\n?sensor-value\n");
    for (int i = 0; i < 5; i++)
        expect_nothing(other);
    pass(31);
    ck_assert_int_eq(sensors_set_text(sensors, &text, START_NS, SENSOR_NOMINAL, "x"), 0);
    for (int i = 0; i < 1500 / 12; i++)
        expect_nothing(other);
    say(other, "?client-list\n");
    expect_begin(other, "#client-list ");
    expect(other, "!client-list ok 1");
    leave(deaf);
    leave(other);
    free(large);
    close_server();
}
END_TEST

/* Requests come faster than answers are read: the server stops reading, and loses none. */
START_TEST(impatient_client)
{
    enum { N = 20000 };
    static char all[N * 8 + 1];
    size_t sent = 0;
    int n = 0;

    open_server();
    struct client *client = connect_greeted(false);
    for (int i = 0; i < N; i++)
        memcpy(all + (size_t)i * 6, "?help\n", 6);
    while (n < N) {
        ssize_t more = send(client->fd, all + sent, (size_t)N * 6 - sent, MSG_DONTWAIT);
        sent += more > 0 ? (size_t)more : 0;
        n += !strcmp(next_line(client), "!help ok 15");
        while (client->n > 0 && memchr(client->bytes, '\n', client->n)) /* the rest without copying it about */
            n += !strcmp(next_line(client), "!help ok 15");
    }
    ck_assert_uint_eq(sent, (size_t)N * 6);
    expect_nothing(client);
    leave(client);
    close_server();
}
END_TEST

/* A client that has said all closes its side, and gets all answers all the same. */
START_TEST(half_closed)
{
    open_server();
    struct client *client = connect_greeted(false);
    say(client, "?watchdog[1]\n?watchdog[2]\n?watchdog[3]");
    shutdown(client->fd, SHUT_WR);
    expect(client, "!watchdog[1] ok");
    expect(client, "!watchdog[2] ok");
    expect(client, "");
    leave(client);
    close_server();
}
END_TEST

/* ---- The log ----------------------------------------------------------------------------------------------------- */

static void *log_many(void *arg)
{
    for (int i = 0; i < 1000; i++)
        log_warning("message %d", i);
    return NULL;
}

START_TEST(logged)
{
    pthread_t thread;
    int n_told = 0, n_left_out = 0;

    open_server();
    ck_assert_ptr_nonnull(freopen("/dev/null", "w", stderr));
    struct client *client = connect_greeted(false);
    fake_ns = 0;
    log_info("not at this level");
    log_error("bad %s", "news");
    expect(client, "#log error 1700000000.000000 root bad\\_news");
    say(client, "?log-level\n?log-level loud\n?log-level info\n");
    expect(client, "!log-level ok warn");
    expect_begin(client, "!log-level fail unknown\\_level\\_loud");
    expect(client, "!log-level ok info");
    log_debug("not at this level");
    log_info("good news");
    expect(client, "#log info 1700000000.000000 root good\\_news");
    say(client, "?log-level off\n");
    expect(client, "!log-level ok off");
    log_error("nobody hears of it");
    expect_nothing(client);
    say(client, "?log-level all\n");
    expect(client, "!log-level ok all");
    log_debug("a detail");
    expect(client, "#log debug 1700000000.000000 root a\\_detail");
    ck_assert_int_eq(pthread_create(&thread, NULL, log_many, NULL), 0);
    pthread_join(thread, NULL);
    for (int i = 0; i < 64; i++, n_told++)
        expect_begin(client, "#log warn 1700000000.000000 root message\\_");
    ck_assert_int_eq(sscanf(next_line(client), "#log warn 1700000000.000000 root %d\\_messages", &n_left_out), 1);
    ck_assert_int_eq(n_told + n_left_out, 1000);
    leave(client);
    close_server();
    log_error("after its end");
}
END_TEST

START_TEST(port_in_use)
{
    struct katcp_server *second = NULL;
    struct endpoint endpoint = {.address = {htonl(INADDR_LOOPBACK)}};
    char why[200], expected[200];

    open_server();
    struct config_katcp again = config;
    endpoint.port = (uint16_t)katcp_server_port(server, true);
    again.read_only_listen = (struct endpoint_list){1, &endpoint};
    ck_assert_int_eq(katcp_server_open(&again, loop, &served, &second, why, sizeof(why)), -EADDRINUSE);
    ck_assert_ptr_null(second);
    snprintf(expected, sizeof(expected),
             "katcp.read_only_listen: cannot serve KATCP on 127.0.0.1:%u: Address already in use; another program "
             "listens there: stop it, or choose another port",
             endpoint.port);
    ck_assert_str_eq(why, expected);
    close_server();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {own_requests,     read_only,   answered_later,   expressions, no_messages,
                                  browser,          long_lines,  too_many_clients, networks,    deaf_client,
                                  impatient_client, half_closed, logged,           port_in_use};
    Suite *suite = suite_create("katcp");
    TCase *tcase = tcase_create("all");
    SRunner *runner = srunner_create(suite);

    tcase_set_timeout(tcase, 120);
    for (size_t i = 0; i < ARRAY_LEN(tests); i++)
        tcase_add_test(tcase, tests[i]);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
