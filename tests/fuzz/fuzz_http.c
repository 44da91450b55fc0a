/* fuzz_http.c - any bytes from a client to a real HTTP server over loopback.  Every answer begins with a status line
 * that HTTP permits.  Afterwards the server still answers.
 *
 * Input: the bytes of a connection, except the end of the last header, which the target adds.  The server waits some
 * seconds for the rest of an incomplete request; the target does not. */
#include "common/http/http.h"
#include "common/http/status.h"
#include "tests/fuzz/fuzz_connect.h"
#include "tests/fuzz/fuzz_count.h"
#include "tests/fuzz/fuzz_input.h"

#include <sys/time.h>

enum { ANSWER_BYTES_MAX = 1 << 20, N_UNTIL_CHECK = 256 };

static struct http *http;

static void open_server(void)
{
    static struct endpoint endpoint = {.address.s_addr = 0x0100007f};
    static struct config_http config = {.listen = {1, &endpoint}};
    static struct gauge healthy;
    static struct status *status;
    char why[400];

    gauge_set(&healthy, 1);
    assert(status_create("fuzzed", NULL, &healthy, &status) == 0);
    status_set_state(status, STATUS_RUNNING);
    assert(http_open(&config, &healthy, status, &http, why, sizeof(why)) == 0);
}

/* Sends bytes and the end of a header.  Returns how many bytes of the answer came before the server closed, or before
 * the patience ended; '*is_closed' tells which. */
static size_t ask(const void *bytes, size_t n_bytes, char *answer, bool *is_closed)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = 0x0100007f, .sin_port = htons((uint16_t)http_port(http))};
    static const char end[] = "\r\nConnection: close\r\n\r\n";
    struct timeval patience = {0, 20000};
    size_t n = 0;
    ssize_t got;
    int fd = fuzz_connect(&address);

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (send(fd, bytes, n_bytes, MSG_NOSIGNAL) < 0 || send(fd, end, sizeof(end) - 1, MSG_NOSIGNAL) < 0 ||
        shutdown(fd, SHUT_WR))
        assert(errno == ECONNRESET || errno == EPIPE || errno == ENOTCONN);
    while ((got = recv(fd, answer + n, ANSWER_BYTES_MAX - n, 0)) > 0 || (got < 0 && errno == EINTR))
        n += got > 0 ? (size_t)got : 0;
    assert(got == 0 || errno == ECONNRESET || errno == EAGAIN);
    *is_closed = got == 0;
    close(fd);
    return n;
}

static unsigned status_of(const char *answer, size_t n)
{
    if (n < 13)
        return 0;
    assert(memcmp(answer, "HTTP/1.", 7) == 0 && answer[8] == ' ');
    return (unsigned)strtoul(answer + 9, NULL, 10);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const char good[] = "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1";
    static char answer[ANSWER_BYTES_MAX];
    static unsigned n_inputs;
    bool is_closed;

    if (!http)
        open_server();
    unsigned status = status_of(answer, ask(data, n_bytes, answer, &is_closed));
    assert(status == 0 || (status >= 100 && status < 600));
    for (int i = 0;
         n_inputs % N_UNTIL_CHECK == 0 && status_of(answer, ask(good, sizeof(good) - 1, answer, &is_closed)) != 200;
         i++)
        assert(!is_closed && i < 500);
    n_inputs++;
    fuzz_count("clients", 1);
    return 0;
}
