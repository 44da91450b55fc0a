/* fuzz_pcap.c - a file made of the input, read as a capture.  No packet may be larger than it was, and nothing is
 * written beyond the slots.
 *
 * Input: the sizes of the slots, then the file. */
#include "common/recv/source.h"
#include "tests/fuzz/fuzz_input.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { N_SLOTS = 5 };

/* The file is in memory and is opened by the name that it has among our descriptors. */
static int make_file(const struct fuzz_input *input, char *path, size_t path_bytes)
{
    int fd = memfd_create("capture", 0);

    assert(fd >= 0);
    assert(write(fd, input->at, input->n_left) == (ssize_t)input->n_left);
    snprintf(path, path_bytes, "/proc/self/fd/%d", fd);
    return fd;
}

static void check_packet(const struct packet_slot *slot, size_t n_endpoints)
{
    size_t room = slot->header_bytes + slot->payload_bytes + slot->spill_bytes;

    assert(slot->packet_bytes < PACKET_BYTES_MAX);
    assert(slot->truncated == (slot->packet_bytes > room));
    assert(slot->endpoint < n_endpoints);
    size_t n = slot->truncated ? room : slot->packet_bytes;
    uint8_t *copy = fuzz_exact(n);
    recv_packet_copy(slot, 0, n, copy);
    recv_packet_copy(slot, n / 3, n - n / 3, copy);
    free(copy);
}

static void read_all(struct recv_source *source, const size_t sizes[3], size_t n_endpoints)
{
    struct packet_slot slots[N_SLOTS];
    int n;

    for (size_t i = 0; i < N_SLOTS; i++)
        slots[i] = (struct packet_slot){fuzz_exact(sizes[0]), sizes[0], fuzz_exact(sizes[1]), sizes[1],
                                        fuzz_exact(sizes[2]), sizes[2]};
    while ((n = recv_source_recv(source, slots, N_SLOTS, 0)) >= 0) {
        assert(n > 0 && n <= N_SLOTS);
        for (int i = 0; i < n; i++)
            check_packet(&slots[i], n_endpoints);
    }
    assert(n == -ENODATA || n == -EIO);
    assert(recv_source_recv(source, slots, N_SLOTS, 0) == n); /* the end is for good */
    for (size_t i = 0; i < N_SLOTS; i++) {
        free(slots[i].header);
        free(slots[i].payload);
        free(slots[i].spill);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static struct endpoint_list endpoints;
    struct fuzz_input input = {data, n_bytes};
    struct recv_source *source;
    char path[64], why[512] = "";

    if (endpoints.n == 0)
        assert(endpoint_list_parse("239.1.2.3+2:7148,127.0.0.1:7148,239.1.2.3:7149", &endpoints, why, sizeof(why)) ==
               0);
    size_t sizes[3];
    for (size_t i = 0; i < 3; i++)
        sizes[i] = 8 * fuzz_u8(&input);
    int fd = make_file(&input, path, sizeof(path));
    const struct recv_source_config config = {.endpoints = &endpoints, .pcap_file = path};
    int err = recv_source_open(&config, &source, why, sizeof(why));
    if (err) {
        assert(why[0] && strlen(why) < sizeof(why));
    } else {
        assert(recv_source_can_wait(source));
        read_all(source, sizes, endpoints.n);
        recv_source_close(source);
    }
    close(fd);
    return 0;
}
