/* http.c - sends GET requests, and parses Prometheus text. */
#include "tools/doctor/http.h"

#include "common/base/clock.h"
#include "common/base/units.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define TIMEOUT_S      2
#define PAGE_BYTES_MAX (64 << 20)
#define NAME_BYTES     256
#define LABELS_BYTES   1024
#define MAX_ABSENT     64

/* Hosts that have not answered a request for a connection.  A run of cbf-doctor asks them only once, because each
 * request would wait for TIMEOUT_S. */
static struct {
    size_t n;
    in_addr_t hosts[MAX_ABSENT];
} absent;

static bool is_absent(in_addr_t host)
{
    for (size_t i = 0; i < absent.n; i++)
        if (absent.hosts[i] == host)
            return true;
    return false;
}

static int open_connection(const struct endpoint *listen)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(listen->port), .sin_addr = listen->address};
    const struct timeval timeout = {.tv_sec = TIMEOUT_S};
    int fd = is_absent(listen->address.s_addr) ? -1 : socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    if (to.sin_addr.s_addr == htonl(INADDR_ANY))
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int64_t begin_ns = clock_monotonic_ns();
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0)
        return fd;
    /* A firewall or a closed port answers at once. */
    if (clock_monotonic_ns() - begin_ns > TIMEOUT_S * NS_PER_S / 2 && absent.n < MAX_ABSENT)
        absent.hosts[absent.n++] = listen->address.s_addr;
    close(fd);
    return -1;
}

static char *read_page(int fd)
{
    size_t used = 0, room = 65536;
    char *page = malloc(room);

    while (page) {
        ssize_t n = read(fd, page + used, room - used - 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        used += (size_t)n;
        if (used + 1 < room)
            continue;
        char *more = room < PAGE_BYTES_MAX ? realloc(page, room *= 2) : NULL;
        if (!more)
            break;
        page = more;
    }
    if (page)
        page[used] = '\0';
    return page;
}

static char *get(const struct endpoint *listen, const char *path)
{
    char request[128];
    int fd = open_connection(listen);
    char *page = NULL;

    if (fd < 0)
        return NULL;
    int n = snprintf(request, sizeof(request), "GET %s HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n", path);
    if (send(fd, request, (size_t)n, MSG_NOSIGNAL) == n)
        page = read_page(fd);
    close(fd);
    const char *body = page ? strstr(page, "\r\n\r\n") : NULL;
    if (!body || strncmp(page, "HTTP/1.", 7) != 0 || strncmp(page + 8, " 200", 4) != 0) {
        free(page);
        return NULL;
    }
    memmove(page, body + 4, strlen(body + 4) + 1);
    return page;
}

char *doctor_metrics_get(const struct endpoint *listen)
{
    return get(listen, "/metrics");
}

json_t *doctor_status_get(const struct endpoint *listen)
{
    char *page = get(listen, "/status.json");
    json_t *status = page ? json_loads(page, 0, NULL) : NULL;

    free(page);
    return status;
}

void doctor_metrics_each(const char *page, void (*each)(void *arg, const char *name, const char *labels, double value),
                         void *arg)
{
    char name[NAME_BYTES], labels[LABELS_BYTES];

    for (const char *line = page; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        size_t n_line = strcspn(line, "\n"), n_name = strcspn(line, "{ \n");
        const char *brace = line + n_name, *end = brace;
        if (line[0] == '#' || n_name == 0 || n_name >= sizeof(name))
            continue;
        labels[0] = '\0';
        if (*brace == '{') { /* search for the last closing brace, because a label's value may contain a brace */
            for (end = line + n_line; end > brace && *end != '}';)
                end--;
            if (end == brace || (size_t)(end - brace) > sizeof(labels))
                continue;
            memcpy(labels, brace + 1, (size_t)(end - brace - 1));
            labels[end - brace - 1] = '\0';
            end++;
        }
        memcpy(name, line, n_name);
        name[n_name] = '\0';
        each(arg, name, labels, strtod(end, NULL));
    }
}

struct sum {
    const char *name, *labels;
    double value;
};

static void add_sample(void *arg, const char *name, const char *labels, double value)
{
    struct sum *sum = arg;

    if (strcmp(name, sum->name) == 0 && (!sum->labels || strstr(labels, sum->labels)))
        sum->value += value;
}

double doctor_metrics_sum(const char *page, const char *name, const char *labels)
{
    struct sum sum = {name, labels, 0};

    doctor_metrics_each(page, add_sample, &sum);
    return sum.value;
}
