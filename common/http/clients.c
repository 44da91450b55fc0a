/* clients.c - limits the duration and the number of HTTP connections.  The time-out of libmicrohttpd is not sufficient,
 * because this time-out starts again at each byte. */
#include "common/http/clients.h"

#include <assert.h>
#include <stddef.h>
#include <sys/socket.h>

/* Returns the address by which connections of a host are counted: the same address for all loopback addresses. */
static struct in_addr host_of(struct in_addr address)
{
    bool loopback = ntohl(address.s_addr) >> 24 == IN_LOOPBACKNET;

    return loopback ? (struct in_addr){htonl(INADDR_LOOPBACK)} : address;
}

static bool is_open(const struct http_client *client)
{
    return client->used && !client->closing;
}

static void shut_down(struct http_client *client)
{
    shutdown(client->fd, SHUT_RDWR);
    client->closing = true;
}

static size_t count_open(const struct http_clients *clients)
{
    size_t n = 0;

    for (size_t i = 0; i < HTTP_CLIENTS_SLOTS; i++)
        n += is_open(&clients->slots[i]);
    return n;
}

static size_t count_of_host(const struct http_clients *clients, struct in_addr host)
{
    size_t n = 0;

    for (size_t i = 0; i < HTTP_CLIENTS_SLOTS; i++)
        n += is_open(&clients->slots[i]) && clients->slots[i].host.s_addr == host.s_addr;
    return n;
}

/* Returns the connection that must be shut down to make room for a new connection.  At least one connection must be
 * open. */
static struct http_client *choose_victim(struct http_clients *clients)
{
    struct http_client *victim = NULL;
    size_t n_most = 0;

    for (size_t i = 0; i < HTTP_CLIENTS_SLOTS; i++) {
        struct http_client *client = &clients->slots[i];
        size_t n = is_open(client) ? count_of_host(clients, client->host) : 0;
        if (n == 0 || n < n_most || (n == n_most && client->deadline_ns >= victim->deadline_ns))
            continue;
        victim = client;
        n_most = n;
    }
    return victim;
}

static struct http_client *find_slot(struct http_clients *clients)
{
    for (size_t i = 0; i < HTTP_CLIENTS_SLOTS; i++)
        if (!clients->slots[i].used)
            return &clients->slots[i];
    return NULL;
}

struct http_client *http_clients_add(struct http_clients *clients, struct in_addr address, int fd, int64_t now_ns)
{
    struct http_client *client = find_slot(clients);

    assert(client);
    if (count_open(clients) == HTTP_CLIENTS_MAX)
        shut_down(choose_victim(clients));
    *client =
        (struct http_client){.used = true, .host = host_of(address), .fd = fd, .deadline_ns = now_ns + HTTP_REQUEST_NS};
    return client;
}

void http_client_answering(struct http_client *client, int64_t now_ns)
{
    client->deadline_ns = now_ns + HTTP_ANSWER_NS;
}

void http_client_remove(struct http_client *client)
{
    client->used = false;
}

void http_clients_close_late(struct http_clients *clients, int64_t now_ns)
{
    for (size_t i = 0; i < HTTP_CLIENTS_SLOTS; i++)
        if (is_open(&clients->slots[i]) && clients->slots[i].deadline_ns <= now_ns)
            shut_down(&clients->slots[i]);
}
