/* check_katcp_server.c - requests that are answered at once or later, misbehaving clients, and the log. */
#include "common/katcp/internal.h"

#include "tests/unit/katcp_fixture.h"
#include "tests/unit/test_main.h"

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

TEST(own_requests)
{
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
}

TEST(read_only)
{
    struct client *client = connect_greeted(true);
    say(client,
        "?echo a\n?echo a b\n?add 1 2\n?halt\n?restart\n?log-level\n?log-level off\n?sensor-sampling integer auto\n");
    expect(client, "#echo a");
    expect(client, "!echo ok a");
    expect(client, "!echo fail this\\_server\\_port\\_is\\_read-only");
    expect(client, "!add fail this\\_server\\_port\\_is\\_read-only");
    expect(client, "!halt fail this\\_server\\_port\\_is\\_read-only");
    expect(client, "!restart fail this\\_server\\_port\\_is\\_read-only");
    expect(client, "!log-level ok warn");
    expect(client, "!log-level fail this\\_server\\_port\\_is\\_read-only");
    expect(client, "#sensor-status 1700000000.000000 1 integer nominal 0");
    expect(client, "!sensor-sampling ok integer auto");
    ck_assert_int_eq(n_halts + n_restarts, 0);
}

/* A call that is kept holds up its own client only; it may outlive the connection. */
TEST(answered_later, .teardown = test_no_setup)
{
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

TEST(expressions)
{
    struct client *client = connect_greeted(false);
    say(client, "?sensor-value /^(int|te)/\n?sensor-value /e{3}/\n?sensor-value /(e)\\\\1/\n?sensor-value "
                "/(/\n?sensor-value //\n"
                "?sensor-list /x\\\\./\n?sensor-value /\n?sensor-value /(e+g)+\\\\w*r$/\n");
    expect(client, "#sensor-value 1700000000.000000 1 integer nominal 0");
    expect(client, "#sensor-value 1700000000.000000 1 text nominal \\@");
    expect(client, "!sensor-value ok 2");
    expect_begin(client, "!sensor-value fail {...}\\_is\\_not\\_permitted");
    expect_begin(client, "!sensor-value fail d\\_and\\_w");
    expect(client, "!sensor-value fail a\\_group\\_must\\_end\\_in\\_)");
    for (int i = 0; i < 4; i++)
        expect_begin(client, "#sensor-value ");
    expect(client, "!sensor-value ok 4");
    expect(client, "!sensor-list ok 0");
    expect(client, "!sensor-value fail Unknown\\_sensor\\_'/'");
    expect(client, "#sensor-value 1700000000.000000 1 integer nominal 0");
    expect(client, "!sensor-value ok 1");
}

/* ---- Clients that do not behave ---------------------------------------------------------------------------------- */

TEST(no_messages)
{
    struct client *client = connect_greeted(false);
    say(client, "\r\n \n?watchdog\nhello\n\r\n?a[0]\n?watchdog \\q\n!watchdog ok\n#inform\n   \n?watchdog[1]\n");
    expect(client, "!watchdog ok");
    for (int i = 0; i < 5; i++)
        expect_begin(client, "#log error 17000");
    expect(client, "!watchdog[1] ok");
    ck_assert_int_eq(send(client->fd, "?watchdog a\0b\n?watchdog\r", 24, 0), 24);
    expect_begin(client, "#log error 17000");
    expect(client, "!watchdog ok");
}

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

/* What others than KATCP clients say first. */
static const struct {
    const char *bytes;
    size_t n;
} strangers_bytes[] = {
#define ROW(text)                                                                                                      \
    {                                                                                                                  \
        text "\n?halt\n", sizeof(text "\n?halt\n") - 1                                                                 \
    }
    ROW("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03xxxx\x20"),
    ROW("\x16\x03\x01"),
    ROW("\x80\x2e\x01\x03\x01"),
    ROW("POST / HTTP/1.1\r\nHost: x\r\n\r"),
    ROW("GET /\r"),
    ROW("options * http/1.1\r"),
    ROW("PRI * HTTP/2.0\r\n\r\nSM\r\n\r"),
    ROW("!x / HTTP/1.1\r\nHost: x\r\n\r"),
    ROW("#x / HTTP/1.1\r\nHost: x\r\n\r"),
    ROW("\r\n\r\nGET / HTTP/1.1"),
    ROW("\0\1"),
    ROW("?watchdog \0"),
    ROW("?watchdog \x1b[0m"),
    ROW("?watchdog \x01"),
    ROW("?watchdog \\q"),
    ROW("?a[0]"),
    ROW("?unknown\nhello"),
    ROW(" ?watchdog"),
    ROW("--boundary"),
    ROW("EHLO x"),
    /* Nor does a line's end have to come. */
    {"G", 1},
    {"\x16", 1},
    {"  x", 3},
    {"?watch\x01", 7},
    {"\0", 1},
#undef ROW
};

/* A connection that does not begin with a request of KATCP is closed before anything behind it is carried out.  A page
 * could make a browser send such bytes: TLS with a session's name of the page's choice, and the like. */
TEST(strangers)
{
    for (size_t i = 0; i < ARRAY_LEN(strangers_bytes); i++) {
        struct client *client = connect_greeted(false);
        ck_assert_int_eq(send(client->fd, strangers_bytes[i].bytes, strangers_bytes[i].n, 0),
                         (ssize_t)strangers_bytes[i].n);
        const char *line = next_line(client);
        if (!strncmp(line, "!unknown invalid", 16))
            line = next_line(client);
        ck_assert_msg(!*line ||
                          !strcmp(line, "#disconnect the\\_client's\\_first\\_line\\_is\\_not\\_a\\_KATCP\\_request"),
                      "row %zu: %s", i, line);
        while (*line)
            line = next_line(client);
        leave(client);
    }
    ck_assert_int_eq(n_halts, 0);
    /* In pieces, too. */
    struct client *client = connect_greeted(false);
    say(client, "\r\n?wat");
    turn();
    say(client, "chdog\nhello\n?watchdog[2]\n");
    expect(client, "!watchdog ok");
    expect_begin(client, "#log error 17");
    expect(client, "!watchdog[2] ok");
}

/* 16 MiB only where a request takes them, and only where it may be carried out; else 64 KiB. */
TEST(long_lines)
{
    size_t most = 16u << 20, most_short = 64u << 10;
    char *line = malloc(most + 2);

    struct client *client = connect_greeted(false);
    say(client, "?log-level off\n"); /* which would tell of those that are dropped */
    expect(client, "!log-level ok off");
    memset(line, 'x', most + 2);
    memcpy(line, "?add ", 5);
    line[most] = '\n';
    leave(client);
    client = connect_greeted(false); /* whose first line that may be */
    say_much(client, line, most + 1);
    expect(client, "!add fail too\\_few\\_arguments:\\_1\\_of\\_at\\_least\\_2");
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
    for (int i = 0; i < 2; i++) { /* here, and where it could not be carried out */
        memcpy(line, i ? "?add xxxxx" : "?watchdog ", 10);
        line[most_short] = '\n';
        say_much(client, line, most_short + 1);
        expect_begin(client, i ? "!add fail too\\_few" : "!watchdog fail too\\_many");
        line[most_short] = 'x';
        line[most_short + 1] = '\n';
        say_much(client, line, most_short + 2);
        say(client, "?watchdog[1]\n");
        expect_begin(client, "#log error 17000");
        expect(client, "!watchdog[1] ok");
        leave(client);
        client = connect_greeted(true);
        line[most_short + 1] = 'x';
    }
    leave(client);
    client = connect_greeted(false);
    memcpy(line, "?watchdog ", 10); /* whose first line nobody would send */
    say_much(client, line, most_short + 100);
    expect(client, "#disconnect the\\_client's\\_first\\_line\\_is\\_not\\_a\\_KATCP\\_request");
    expect(client, "");
    leave(client);
    client = connect_greeted(false);
    /* Nor does it matter how much there is in all. */
    memcpy(line + (1 << 15), "\n", 2);
    for (int i = 0; i < 300; i++) {
        say_much(client, line, (1 << 15) + 1);
        expect(client, "!watchdog fail too\\_many\\_arguments:\\_1\\_of\\_at\\_most\\_0");
    }
    free(line);
}

/* A line has 30 s, whatever comes of it; a client that has begun none may wait. */
TEST(unfinished_lines)
{
    struct client *dribble = connect_greeted(false), *idle = connect_greeted(false);
    expect_begin(dribble, "#client-connected ");
    say(dribble, "?watchdog\n?watch");
    expect(dribble, "!watchdog ok");
    for (int i = 0; i < 3; i++) {
        pass(9.9);
        say(dribble, "d");
        turn();
        katcp_clients_check(server);
    }
    say(dribble, "og\n");
    expect(dribble, "!watchdddog invalid unknown\\_request\\_watchdddog");
    say(dribble, "?watch");
    turn();
    pass(29);
    katcp_clients_check(server);
    say(dribble, "d");
    turn();
    pass(2);
    katcp_clients_check(server);
    expect(dribble, "#disconnect the\\_client\\_has\\_not\\_finished\\_a\\_line\\_for\\_30\\_s");
    expect(dribble, "");
    expect_begin(idle, "#log warn ");
    expect_nothing(idle);
}

/* Whether a client that comes from 'host' is served; it stays until leave_all(). */
static bool is_served(const char *host, bool reads, const char *why)
{
    come_from(host);
    struct client *client = connect_to(katcp_server_port(server, reads));
    const char *line = next_line(client);
    bool served_one = line[0] == '#' && line[1] == 'v';

    ck_assert_msg(served_one || (why && !strncmp(line + strlen("#disconnect "), why, strlen(why))), "%s", line);
    come_from(NULL);
    return served_one;
}

/* As 'config' says now. */
static void reopen_server(void)
{
    char why[200];

    katcp_server_close(server);
    ck_assert_int_eq(katcp_server_open(&config, loop, &served, &server, why, sizeof(why)), 0);
}

static void open_server_for(int64_t n_clients)
{
    config.max_clients = n_clients;
    reopen_server();
}

/* Each listener has places of its own; no host takes more than 16, and the last ones are for those who have none. */
TEST(quotas)
{
    char host[32];

    open_server_for(40);
    for (int i = 0; i < 16; i++)
        ck_assert(is_served("10.0.0.1", true, NULL));
    ck_assert(!is_served("10.0.0.1", true, "the\\_client's\\_host\\_already\\_has\\_16"));
    for (int i = 0; i < 16; i++)
        ck_assert(is_served("10.0.0.2", true, NULL));
    for (int i = 0; i < 4; i++)
        ck_assert(is_served("10.0.0.3", true, NULL));
    ck_assert(!is_served("10.0.0.3", true, "the\\_last\\_connections"));
    for (int i = 4; i < 8; i++) {
        snprintf(host, sizeof(host), "10.0.0.%d", i);
        ck_assert(is_served(host, true, NULL));
    }
    ck_assert(!is_served("10.0.0.8", true, "katcp.max_clients\\_clients"));
    /* None of which keeps operators out; on this host they have no bound of their own, and are one host. */
    for (int i = 0; i < 36; i++)
        ck_assert(is_served(i % 2 ? "127.0.0.1" : "127.0.0.2", false, NULL));
    ck_assert(!is_served("127.0.0.3", false, "the\\_last\\_connections"));
    ck_assert(is_served("10.0.0.1", false, NULL));
}

TEST(too_many_clients)
{
    struct client *clients[3];

    for (int i = 0; i < 3; i++)
        clients[i] = connect_greeted(false);
    struct client *refused = connect_to(katcp_server_port(server, false));
    expect_begin(refused, "#disconnect katcp.max_clients\\_clients");
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
}

/* From another host the program is started again, unless the file says otherwise; here it stays down. */
TEST(halts)
{
    static const struct {
        const char *host;
        bool stays;
        const char *answer;
        int n_halts, n_restarts;
    } rows[] = {
        {NULL, false, "!halt ok", 1, 0},
        {"127.9.9.9", false, "!halt ok", 1, 0},
        {"10.0.0.1", false, "!halt ok the\\_program\\_restarts\\_because\\_katcp.halt_stays\\_is\\_not\\_set", 0, 1},
        {"10.0.0.1", true, "!halt ok", 1, 0},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        config.halt_stays = rows[i].stays;
        reopen_server();
        n_halts = n_restarts = 0;
        come_from(rows[i].host);
        struct client *client = connect_greeted(false);
        say(client, "?halt\n");
        expect(client, rows[i].answer);
        ck_assert_int_eq(n_halts, rows[i].n_halts);
        ck_assert_int_eq(n_restarts, rows[i].n_restarts);
        leave(client);
    }
}

TEST(networks)
{
    static const struct {
        char allow[32];
        bool is_allowed;
    } rows[] = {{"10.0.0.0/8, 127.0.0.2", false}, {"any", true}, {"127.0.0.1", true}, {"0.0.0.0/0", true}};

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char allow[32];
        config.allow = strcpy(allow, rows[i].allow);
        reopen_server();
        ck_assert(is_served(NULL, false, "katcp.allow") == rows[i].is_allowed);
        leave_all();
    }
}

/* One that asks for much and reads nothing is dropped; the other does not notice. */
TEST(deaf_client)
{
    char *large = malloc((4u << 20) + 1);

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
    katcp_clients_check(server);
    say(other, "?client-list\n");
    expect_begin(other, "#client-list ");
    expect(other, "!client-list ok 1");
    free(large);
}

/* Requests come faster than answers are read: the server stops reading, and loses none. */
TEST(impatient_client)
{
    enum { N = 20000 };
    static char all[N * 8 + 1];
    size_t sent = 0;
    int n = 0;

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
}

/* All clients together have a bound: the one that takes most goes, and the others stay. */
TEST(much_memory)
{
    enum { N = 17 };
    struct client *clients[N];
    size_t most = (8u << 20) + 100; /* for which 16 MiB are allocated */
    char *line = malloc(most);
    int n_ended = 0;

    open_server_for(100);
    memset(line, 'x', most);
    memcpy(line, "?add ", 5);
    for (int i = 0; i < N; i++) {
        clients[i] = connect_greeted(false);
        say(clients[i], "?log-level off\n");
        say_much(clients[i], line, i ? most : most - 200);
        ck_assert_uint_le(server->n_bytes, KATCP_TOTAL_BYTES);
    }
    /* The kernel holds some of what was sent last. */
    for (int t = 0; t < 100000 && n_ended == 0; t++) {
        turn();
        for (int i = 0; i < N; i++) {
            receive(clients[i]);
            n_ended += memmem(clients[i]->bytes, clients[i]->n, "#disconnect the\\_clients", 24) != NULL;
        }
    }
    ck_assert_int_eq(n_ended, 1);
    for (int i = 0; i < N; i++)
        leave(clients[i]);
    for (int i = 0; i < 100000 && server->clients; i++)
        turn();
    ck_assert_uint_eq(server->n_bytes, 0);
    free(line);
}

/* Whatever clients ask for, and however many they are, a turn of the loop does no more than its steps and the last
 * thing that was begun; and one who asks for little waits for no more than a slice of each of the others. */
TEST(turns)
{
    enum { N = 40, N_SENSORS = 1500 };
    static struct sensor many[N_SENSORS];
    static const char *const asked[] = {
        "?help\n", "?sensor-list\n", "?client-list\n", "?sensor-sampling-clear\n", "?nothing\n", "?watchdog \\q\n",
        "\n"};
    static char pattern[300], all[60000], names[50000], large[100001];
    struct client *clients[N];
    char name[32];
    int n_turns;

    katcp_server_close(server);
    server = NULL;
    for (int i = 0; i < N_SENSORS; i++) {
        snprintf(name, sizeof(name), "wide.input%d.feng-clip-cnt", i);
        add_sensor(&many[i], (struct sensor_desc){name, .type = SENSOR_INTEGER});
        sprintf(names + strlen(names), "%s%s", i ? "," : "?sensor-sampling ", name);
    }
    strcat(names, ",text period 0.001\n");
    memset(large, 'x', sizeof(large) - 1);
    ck_assert_int_eq(sensors_set_text(sensors, &text, START_NS, SENSOR_NOMINAL, large), 0);
    strcpy(pattern, "?sensor-value /");
    while (strlen(pattern) < 255)
        strcat(pattern, "(^a|b$|^$)*");
    strcat(pattern, "~/\n");
    open_server_for(100);
    struct client *modest = connect_greeted(false);
    say(modest, "?log-level off\n");
    for (int i = 0; i < N; i++) {
        clients[i] = connect_greeted(i % 2);
        const char *line = i < (int)ARRAY_LEN(asked) ? asked[i] : i % 4 < 2 ? pattern : names;
        for (all[0] = '\0'; strlen(all) + strlen(line) < sizeof(all);)
            strcat(all, line);
        say(clients[i], "?watchdog\n");
        say(clients[i], all);
    }
    turn();
    for (int round = 0; round < 5; round++) {
        say(modest, "?watchdog[77]\n");
        for (n_turns = 0; !modest->n || !memmem(modest->bytes, modest->n, "!watchdog[77] ok\n", 17); n_turns++) {
            pass(0.01);
            turn();
            ck_assert_int_ge(server->steps_left, -KATCP_LOOK_STEPS - 4 * (int64_t)sizeof(large));
            receive(modest);
            for (int i = 0; i < N; i++)
                receive(clients[i]), clients[i]->n = 0;
            ck_assert_int_lt(n_turns, 3 * N);
        }
        modest->n = 0;
    }
}

/* A client that has said all closes its side, and gets all answers all the same. */
TEST(half_closed)
{
    struct client *client = connect_greeted(false);
    say(client, "?watchdog[1]\n?watchdog[2]\n?watchdog[3]");
    shutdown(client->fd, SHUT_WR);
    expect(client, "!watchdog[1] ok");
    expect(client, "!watchdog[2] ok");
    expect(client, "");
}

/* ---- The log ----------------------------------------------------------------------------------------------------- */

static void *log_many(void *arg)
{
    for (int i = 0; i < 1000; i++)
        log_warning("message %d", i);
    return NULL;
}

TEST(logged)
{
    pthread_t thread;
    int n_told = 0, n_left_out = 0;

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
    log_error("after its end");
}

TEST(port_in_use)
{
    struct katcp_server *second = NULL;
    struct endpoint endpoint = {.address = {htonl(INADDR_LOOPBACK)}};
    char why[200], expected[200];

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
}

SUITE(.timeout_s = 120, .setup = open_server, .teardown = close_server);
