/* fuzz_katcp_client.c - any bytes from a client to a real server over loopback.  The server must neither crash nor stop
 * answering, and all its output is KATCP.  The server answers every request of a client that has sent a request before.
 * The server may drop a stranger instead.
 *
 * Input: pieces of the client's bytes, each after a byte that holds its length.  An odd length marks a piece from a
 * stranger. */
#include "common/katcp/message.h"
#include "tests/fuzz/fuzz_connect.h"
#include "tests/fuzz/fuzz_count.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_katcp_server.h"

static int connect_client(void)
{
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_addr = {htonl(INADDR_LOOPBACK)},
                                        .sin_port = htons((uint16_t)katcp_server_port(server, false))};

    return fuzz_connect(&address);
}

/* Returns whether the server has closed the connection. */
static bool read_all(int fd, struct katcp_text *got)
{
    char buffer[4096];
    ssize_t n;

    while ((n = recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT)) > 0)
        katcp_text_add(got, buffer, (size_t)n);
    return n == 0 || (errno != EAGAIN && errno != EINTR);
}

static const char last_answer[] = "\n!watchdog[2147483647] ok\n";

static bool is_answered(const struct katcp_text *got)
{
    return got->n > 0 && memmem(got->bytes, got->n, last_answer, sizeof(last_answer) - 1);
}

/* All lines that have come are messages. */
static void check_lines(struct katcp_text *got)
{
    struct katcp_message message = {0};
    char *end;

    for (char *at = got->bytes; (end = memchr(at, '\n', (size_t)(got->bytes + got->n - at))); at = end + 1) {
        const char *why = katcp_message_parse(at, (size_t)(end - at), &message);
        assert(!why && (message.type == '!' || message.type == '#'));
    }
    katcp_message_fini(&message);
}

static void serve(const uint8_t *data, size_t n_bytes)
{
    static const char first[] = "?watchdog\n", last[] = "\n?watchdog[2147483647]\n";
    struct fuzz_input input = {data, n_bytes};
    struct katcp_text got = {0};
    int fd = connect_client();
    bool is_stranger = n_bytes % 2, closed = false;

    if (!is_stranger) {
        ssize_t sent = send(fd, first, sizeof(first) - 1, MSG_NOSIGNAL);
        assert(sent == sizeof(first) - 1);
    }
    while (!fuzz_ended(&input) && !closed) {
        uint8_t piece[255];
        size_t n = fuzz_bytes(&input, fuzz_u8(&input), piece);
        ssize_t sent = send(fd, piece, n, MSG_NOSIGNAL);
        assert(sent == (ssize_t)n || is_stranger);
        ev_run(loop, EVRUN_NOWAIT);
        closed = read_all(fd, &got);
    }
    ssize_t sent = send(fd, last, sizeof(last) - 1, MSG_NOSIGNAL);
    assert(sent == sizeof(last) - 1 || is_stranger);
    for (int i = 0; !is_answered(&got) && !closed && i < 1000000; i++) {
        ev_run(loop, EVRUN_NOWAIT);
        closed = read_all(fd, &got);
    }
    assert(is_answered(&got) || (closed && is_stranger));
    check_lines(&got);
    fuzz_count("clients", 1);
    katcp_text_fini(&got);
    close(fd);
    ev_run(loop, EVRUN_NOWAIT);
    ev_run(loop, EVRUN_NOWAIT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    if (!server)
        open_server();
    serve(data, n_bytes);
    return 0;
}
