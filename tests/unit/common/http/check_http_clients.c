/* check_http_clients.c - which HTTP connections the server ends, and which host names it answers to. */
#include "common/http/clients.h"

#include "common/http/names.h"
#include "tests/unit/test_main.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define N_FDS 1000

static struct http_clients clients;
static int ends[N_FDS]; /* the clients' ends */
static size_t n_ends;
static struct http_client *added[N_FDS];

static void setup(void)
{
    memset(&clients, 0, sizeof(clients));
    n_ends = 0;
}

/* A connection from 'address' at 'now_s'; returns its number.  A connection that is shut down for it is
 * removed, as its owner does. */
static size_t add(const char *address, int64_t now_s)
{
    int pair[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    ends[n_ends] = pair[0];
    added[n_ends] = http_clients_add(&clients, (struct in_addr){inet_addr(address)}, pair[1], now_s * NS_PER_S);
    for (size_t i = 0; i < HTTP_CLIENTS_SLOTS; i++)
        if (clients.slots[i].used && clients.slots[i].closing) {
            close(clients.slots[i].fd);
            http_client_remove(&clients.slots[i]);
        }
    return n_ends++;
}

static bool is_open(size_t i)
{
    struct pollfd end = {.fd = ends[i], .events = POLLIN};

    return poll(&end, 1, 0) == 0;
}

static size_t count_open(size_t first, size_t end)
{
    size_t n = 0;

    for (size_t i = first; i < end; i++)
        n += is_open(i);
    return n;
}

TEST(deadlines)
{
    size_t late = add("192.0.2.1", 100), answering = add("192.0.2.1", 100);

    http_client_answering(added[answering], 105 * NS_PER_S);
    http_clients_close_late(&clients, 110 * NS_PER_S - 1);
    ck_assert(is_open(late) && is_open(answering));
    http_clients_close_late(&clients, 110 * NS_PER_S);
    ck_assert(!is_open(late));
    http_clients_close_late(&clients, 165 * NS_PER_S - 1);
    ck_assert(is_open(answering));
    http_clients_close_late(&clients, 165 * NS_PER_S);
    ck_assert(!is_open(answering));
}

/* Two hosts that take all they can get: a third gets six at once and keeps them, whatever the two do then. */
TEST(two_hosts_keep_no_other_out)
{
    static const char *const crowd[] = {"192.0.2.1", "192.0.2.2"};

    for (int i = 0; i < 2 * HTTP_CLIENTS_MAX; i++)
        add(crowd[i % 2], i);
    ck_assert_uint_eq(count_open(0, n_ends), HTTP_CLIENTS_MAX);
    ck_assert(!is_open(HTTP_CLIENTS_MAX - 1) && is_open(HTTP_CLIENTS_MAX)); /* the oldest went */
    size_t first = n_ends;
    for (int i = 0; i < 6; i++)
        add("192.0.2.3", 200);
    for (int i = 0; i < 5 * HTTP_CLIENTS_MAX; i++)
        add(crowd[i % 2], 201);
    ck_assert_uint_eq(count_open(first, first + 6), 6);
    ck_assert_uint_eq(count_open(0, n_ends), HTTP_CLIENTS_MAX);
}

/* As many hosts as there are connections, and more: a newcomer still gets one, that of whose deadline is next. */
TEST(many_hosts)
{
    char address[32];

    for (int i = 0; i < 3 * HTTP_CLIENTS_MAX; i++) {
        snprintf(address, sizeof(address), "192.0.%d.%d", i / 100, i % 100 + 1);
        ck_assert(is_open(add(address, i)));
        ck_assert(i < HTTP_CLIENTS_MAX || !is_open((size_t)(i - HTTP_CLIENTS_MAX)));
    }
}

TEST(loopback_is_one_host)
{
    char address[32];

    size_t other = add("192.0.2.3", 0), second = add("192.0.2.3", 0);
    for (int i = 0; i < 3 * HTTP_CLIENTS_MAX; i++) {
        snprintf(address, sizeof(address), "127.0.%d.%d", i / 100, i % 100 + 1);
        add(address, 1);
    }
    ck_assert(is_open(other) && is_open(second));
}

TEST(names_of_the_host)
{
    char path[] = "/tmp/check_http_clients-XXXXXX", host[200] = "";
    FILE *file = fdopen(mkstemp(path), "w");

    ck_assert_int_eq(gethostname(host, sizeof(host) - 1), 0);
    fprintf(file, "# %s no.example\n127.0.0.1 localhost other.example\n127.0.1.1 site.example %s alias # c.example\n",
            host, host);
    fclose(file);
    char *own = http_names_own(path), *without = http_names_own("/nonexistent");
    ck_assert(http_names_accept(own, NULL, host) && http_names_accept(without, NULL, host));
    ck_assert(http_names_accept(own, NULL, "localhost") && http_names_accept(without, NULL, "localhost"));
    ck_assert(http_names_accept(own, NULL, "SITE.example:80") && !http_names_accept(without, NULL, "site.example"));
    ck_assert(http_names_accept(own, NULL, "alias"));
    ck_assert(!http_names_accept(own, NULL, "other.example"));
    ck_assert(!http_names_accept(own, NULL, "no.example") && !http_names_accept(own, NULL, "c.example"));
    free(own);
    free(without);
    unlink(path);
}

TEST(names_in_the_configuration)
{
    char why[200] = "";

    ck_assert_int_eq(http_names_check(NULL, why, sizeof(why)), 0);
    ck_assert_int_eq(http_names_check("a.example, b-1_2\tc.", why, sizeof(why)), 0);
    ck_assert_int_eq(http_names_check("a.example, b:80", why, sizeof(why)), -EINVAL);
    ck_assert_str_eq(why, "\"b:80\" is not a host name, which has only letters, digits, '-', '_' and '.', and no port");
    ck_assert_int_eq(http_names_check("*.example", why, sizeof(why)), -EINVAL);
}

SUITE(.setup = setup);
