/* refusals.c - KATCP clients that a daemon's server must refuse.  See refusals.h. */
#include "tests/world/refusals.h"

#include "common/base/units.h"
#include "tests/world/lines.h"
#include "tests/world/run.h"
#include "tests/world/sched.h"

#include <string.h>

#define MAX_CLIENTS  24
#define MAX_OF_HOST  16              /* connections of one host, docs/katcp.md */
#define LIMIT_NS     (30 * NS_PER_S) /* longest time for a line, and without reading */
#define LATE_NS      (2 * NS_PER_S)  /* the server looks at its clients each second */
#define UNREAD_NS    (200 * NS_PER_S)
#define LONG_BYTES   (9 << 20) /* the server's buffer then has 16 MiB */
#define FEW_BYTES    (3 << 20)
#define MEMORY_BYTES (2 << 20)
#define N_LONG_FIT   15 /* buffers of 16 MiB that fit into 256 MiB beside other buffers */

enum reason {
    SERVED,
    NOT_ALLOWED,
    TOO_MANY,
    TOO_MANY_OF_HOST,
    RESERVED,
    NO_KATCP,
    UNFINISHED,
    UNREAD,
    STALLED,
    TOO_MUCH,
    NO_MEMORY,
    N_REASONS
};

/* Label of the counter, and a word of the text that the client may get. */
static const struct {
    const char *label, *word;
} reasons[N_REASONS] = {
    [NOT_ALLOWED] = {"not_allowed", "katcp.allow"},
    [TOO_MANY] = {"too_many", "already\\_connected"},
    [TOO_MANY_OF_HOST] = {"too_many_of_host", "16\\_connections"},
    [RESERVED] = {"reserved", "reserved"},
    [NO_KATCP] = {"no_katcp", "not\\_a\\_KATCP\\_request"},
    [UNFINISHED] = {"unfinished_line", "finished\\_a\\_line"},
    [UNREAD] = {"unread", "read\\_its\\_replies"},
    [STALLED] = {"stalled", "read\\_nothing"},
    [TOO_MUCH] = {"too_much_memory", "too\\_much\\_memory"},
    [NO_MEMORY] = {"no_memory", "no\\_memory"},
};

/* A client, and the reason for which the server refuses it after the accept. */
struct client {
    const char *host;
    enum reason behaviour;
    struct lines *lines;
    char told[200]; /* the inform #disconnect */
    unsigned n_answers;
};

static struct client clients[MAX_CLIENTS];
static unsigned n_clients, max_clients;
static const char *long_request;
static char names[1 << 16]; /* of all sensors, for the client that does not read samplings */
static int64_t sampled_ns;  /* when the sampling began; 0: not yet */

/* ---- The scenario ------------------------------------------------------------------------------------------------ */

static void add(unsigned n, const char *host, enum reason behaviour)
{
    for (unsigned i = 0; i < n; i++)
        clients[n_clients++] = (struct client){.host = host, .behaviour = behaviour};
}

void refusals_draw(const char *request)
{
    unsigned what = (unsigned)run_draw("refusals", 500), n = (unsigned)run_draw("strangers", 5);

    n_clients = 0;
    max_clients = 40;
    long_request = request;
    names[0] = '\0';
    sampled_ns = 0;
    if (what < 370) {
        max_clients = 4;
        add(n, "127.0.0.1", NO_KATCP);
    } else if (what < 405) {
        add(n, "192.168.1.1", SERVED);
    } else if (what < 440) {
        add(MAX_OF_HOST + n, "10.0.0.7", SERVED);
    } else if (what < 475) {
        max_clients = 8;
        add(6 + n, "10.0.0.7", SERVED);
        add(2, "10.0.0.8", SERVED);
    } else if (what < 485) {
        add(1 + n / 3, "10.0.0.7", UNFINISHED);
        add(n, "10.0.0.8", STALLED);
    } else if (what < 497) {
        add(1 + n, "10.0.0.7", NO_MEMORY);
    } else if (what == 497) {
        add(1, "10.0.0.7", UNREAD);
    } else {
        add(1, "127.0.0.1", SERVED);
        add(N_LONG_FIT + n, "127.0.0.1", TOO_MUCH);
    }
}

void refusals_write_config(FILE *file)
{
    fprintf(file, "katcp: {listen: [\"127.0.0.1:7147\"], max_clients: %u, allow: \"127.0.0.0/8, 10.0.0.0/8\"}\n",
            max_clients);
}

/* ---- Clients ----------------------------------------------------------------------------------------------------- */

static void add_name(const char *line)
{
    char name[128];

    if (sscanf(line, "#sensor-list %127s", name) == 1 && strlen(names) + strlen(name) + 2 < sizeof(names)) {
        strcat(names, names[0] ? "," : "");
        strcat(names, name);
    }
}

static void sample_all(struct lines *lines)
{
    static const char begin[] = "?sensor-sampling ", end[] = " period 0.01\n";

    lines_send_bytes(lines, begin, strlen(begin));
    lines_send_bytes(lines, names, strlen(names));
    lines_send_bytes(lines, end, strlen(end));
}

static void on_line(void *arg, const char *line)
{
    struct client *client = arg;

    if (strncmp(line, "#disconnect", strlen("#disconnect")) == 0)
        snprintf(client->told, sizeof(client->told), "%s", line);
    if (client->behaviour == UNREAD)
        add_name(line);
    if (line[0] != '!')
        return;
    if (client->behaviour == NO_KATCP)
        world_fail("a client that does not speak KATCP got '%s'", line);
    client->n_answers++;
    if (!strstr(line, " ok"))
        world_fail("a client got '%s'", line);
    if (strncmp(line, "!sensor-list", strlen("!sensor-list")) == 0)
        sample_all(client->lines);
    if (strncmp(line, "!sensor-sampling", strlen("!sensor-sampling")) == 0)
        sampled_ns = world_now_ns();
}

/* Sends 'n_bytes' bytes of a line that does not end. */
static void send_long(struct lines *lines, size_t n_bytes)
{
    lines_send_bytes(lines, "?", 1);
    lines_send_bytes(lines, long_request, strlen(long_request));
    lines_send_bytes(lines, " ", 1);
    lines_send_fill(lines, n_bytes);
}

static void act(const struct client *client)
{
    switch (client->behaviour) {
    case NO_KATCP: lines_send(client->lines, "GET / HTTP/1.1"); return;
    case UNFINISHED: lines_send_bytes(client->lines, "?watchdog\n?watch", 16); return;
    case STALLED:
        lines_send(client->lines, "?help");
        lines_read_only(client->lines, world_random(200));
        return;
    case TOO_MUCH: send_long(client->lines, LONG_BYTES); return;
    case NO_MEMORY: send_long(client->lines, FEW_BYTES); return;
    case UNREAD: return; /* refusals_check() begins */
    default: lines_send(client->lines, "?watchdog");
    }
}

void refusals_connect(void)
{
    for (unsigned i = 0; i < n_clients; i++) {
        clients[i].lines = lines_connect_from(clients[i].host, on_line, &clients[i]);
        act(&clients[i]);
        if (clients[i].behaviour == NO_MEMORY)
            lines_limit_memory(MEMORY_BYTES);
    }
}

/* ---- Refusals ---------------------------------------------------------------------------------------------------- */

/* Returns the reason for which the server refuses the connection at once, or SERVED. */
static enum reason at_accept(const struct client *client, const struct lines_fate *fate)
{
    unsigned reserve = max_clients / 8 < 4 ? max_clients / 8 : 4;
    bool is_local = strncmp(client->host, "127.", 4) == 0;

    if (!is_local && strncmp(client->host, "10.", 3) != 0)
        return NOT_ALLOWED;
    if (fate->n_open >= max_clients)
        return TOO_MANY;
    if (fate->n_of_host > 0 && fate->n_open >= max_clients - reserve)
        return RESERVED;
    return !is_local && fate->n_of_host >= MAX_OF_HOST ? TOO_MANY_OF_HOST : SERVED;
}

/* Reads a byte every 10 s, so that the client is slow and not stalled. */
static void read_slowly(struct client *client)
{
    static int64_t next_ns;

    if (sampled_ns == 0 || world_now_ns() < sampled_ns + NS_PER_S) {
        next_ns = 0;
        return;
    }
    if (world_now_ns() < next_ns)
        return;
    lines_read_only(client->lines, 1);
    next_ns = world_now_ns() + 10 * NS_PER_S;
}

/* Returns true if the server has done everything that it does with the client. */
static bool is_settled(struct client *client)
{
    struct lines_fate fate = lines_fate(client->lines);

    if (fate.closed_ns)
        return true;
    if (client->behaviour == UNREAD)
        read_slowly(client);
    if (fate.accepted_ns == 0 || client->behaviour == TOO_MUCH)
        return fate.accepted_ns > 0 && fate.n_unread_bytes == 0;
    return client->behaviour == SERVED && client->n_answers > 0;
}

static bool are_settled(void)
{
    bool settled = true;

    for (unsigned i = 0; i < n_clients; i++)
        settled &= is_settled(&clients[i]);
    return settled;
}

static void check_time(const struct lines_fate *fate, enum reason reason)
{
    int64_t age_ns = fate->closed_ns - fate->accepted_ns;

    if ((reason == UNFINISHED || reason == STALLED) && (age_ns < LIMIT_NS || age_ns > LIMIT_NS + LATE_NS))
        world_fail("a KATCP client was refused as %s after %.3f s", reasons[reason].label, (double)age_ns * 1e-9);
}

/* Checks a client.  Returns the reason of its refusal. */
static enum reason check_client(const struct client *client)
{
    struct lines_fate fate = lines_fate(client->lines);
    enum reason reason = at_accept(client, &fate);

    if (fate.accepted_ns == 0)
        world_fail("a KATCP connection was not accepted");
    if (!reason) {
        reason = client->behaviour == TOO_MUCH && !fate.closed_ns ? SERVED : client->behaviour;
        check_time(&fate, reason);
    }
    if ((reason != SERVED) != (fate.closed_ns != 0))
        world_fail("a KATCP client of %s %s", client->host, fate.closed_ns ? "was refused" : "was not refused");
    if (client->told[0] && (!reason || !strstr(client->told, reasons[reason].word)))
        world_fail("a KATCP client was told '%s' instead of %s", client->told, reason ? reasons[reason].label : "");
    if (reason == SERVED && client->behaviour == SERVED && client->n_answers != 1)
        world_fail("a KATCP client got %u answers", client->n_answers);
    return reason;
}

void refusals_check(void)
{
    unsigned n_refused[N_REASONS] = {0}, n_long = 0;
    int64_t end_ns = world_now_ns() + UNREAD_NS;

    for (unsigned i = 0; i < n_clients; i++)
        if (clients[i].behaviour == UNREAD)
            lines_send(clients[i].lines, "?sensor-list");
    while (!run_has_ended() && !are_settled() && world_now_ns() < end_ns)
        run_sleep(NS_PER_S / 4);
    if (run_has_ended())
        return;
    for (unsigned i = 0; i < n_clients; i++) {
        n_refused[check_client(&clients[i])]++;
        n_long += clients[i].behaviour == TOO_MUCH;
    }
    if (n_long > N_LONG_FIT && n_refused[TOO_MUCH] != n_long - N_LONG_FIT)
        world_fail("%u of %u KATCP clients with long lines were refused", n_refused[TOO_MUCH], n_long);
    for (enum reason reason = SERVED + 1; reason < N_REASONS; reason++) {
        char label[64];
        snprintf(label, sizeof(label), "reason=\"%s\"", reasons[reason].label);
        uint64_t n_counted = run_counter("katcp_refused_connections_total", label);
        if (n_counted != n_refused[reason])
            world_fail("%u KATCP clients were refused as %s, and the counter says %llu", n_refused[reason],
                       reasons[reason].label, (unsigned long long)n_counted);
    }
}
