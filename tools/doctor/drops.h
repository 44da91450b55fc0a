/* drops.h - reads the host's counters of packets on their way to a socket.  The caller reads the counters twice and
 * compares the values. */
#ifndef TOOLS_DOCTOR_DROPS_H
#define TOOLS_DOCTOR_DROPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Stages of a packet's path, in the order in which the packet passes the stages. */
enum drops_stage { STAGE_CABLE, STAGE_NIC, STAGE_QUEUE, STAGE_SOFTNET, STAGE_IP, STAGE_SOCKET, N_DROPS_STAGES };

struct drops_counter {
    enum drops_stage stage;
    bool loss; /* true: the counter counts lost packets; false: it only explains losses */
    char name[96];
    uint64_t value;
};

struct drops {
    size_t n;
    struct drops_counter items[64];
};

/* Reads the counters of an interface ("": no interface) and of the host.  Omits counters that cannot be read. */
void drops_read(const char *root, const char *interface, struct drops *drops);

/* Returns the difference between the counter 'after' and the same counter in 'before'.  Returns 0 if 'before' does
 * not contain the counter, or if the counter was reset. */
uint64_t drops_grew(const struct drops *before, const struct drops_counter *after);

#endif
