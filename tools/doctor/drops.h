/* drops.h - counters of the host on a packet's way to a socket, read twice and compared. */
#ifndef TOOLS_DOCTOR_DROPS_H
#define TOOLS_DOCTOR_DROPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Stages in the order in which packets pass them. */
enum drops_stage { STAGE_CABLE, STAGE_NIC, STAGE_QUEUE, STAGE_SOFTNET, STAGE_IP, STAGE_SOCKET, N_DROPS_STAGES };

struct drops_counter {
    enum drops_stage stage;
    bool loss; /* true: growth means loss; false: for information */
    char name[96];
    uint64_t value;
};

struct drops {
    size_t n;
    struct drops_counter items[64];
};

/* Reads the drop counters of this interface ("": none) and of the host.  Counters that cannot be read are left out. */
void drops_read(const char *root, const char *interface, struct drops *drops);

/* Returns the growth of a counter of 'after'; 0 if 'before' lacks the counter, or if the counter was reset. */
uint64_t drops_grew(const struct drops *before, const struct drops_counter *after);

#endif
