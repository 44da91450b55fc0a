/* recv.h - xbgpu's receive side: F-engines distributed to receive threads.
 *
 * Flow:      channelised voltages --receiver threads--> chunks of a member's F-engines --> worker's inbox
 * Members:   a member is a range of F-engines with its own assembler.  Each thread that receives from the network has
 *            one member.  The thread that reads a capture file has all members.  All F-engines send to the same
 *            multicast groups.  So a thread's sockets also receive packets of other threads' F-engines, and the thread
 *            ignores these packets.
 * Threads:   created and destroyed by main; any thread may read the counters. */
#ifndef XBGPU_RECV_H
#define XBGPU_RECV_H

#include "common/recv/assemble.h"
#include "common/recv/receiver.h"
#include "xbgpu/config/layout.h"

struct engine;
struct xbgpu_fengs;
struct xbgpu_recv;

/* Opens all sources, allocates all chunks, and gives the engine its receivers.  chunk->member is the index of the
 * member.  The receivers count each F-engine's heaps in 'fengs'.  Returns 0, or negative errno with one sentence in
 * 'why'. */
int xbgpu_recv_create(const struct xbgpu_config *config, const struct xbgpu_layout *layout, struct engine *engine,
                      const struct xbgpu_fengs *fengs, struct xbgpu_recv **recv, char *why, size_t why_bytes);

/* Logs the counts of each member's received and refused data. */
void xbgpu_recv_log(const struct xbgpu_recv *recv);

/* Destroys the receive side.  The worker must have returned all chunks.  NULL is accepted. */
void xbgpu_recv_destroy(struct xbgpu_recv *recv);

/* Ranges of antennas by which a thread identifies packets; public for a test. */
struct xbgpu_recv_context {
    uint64_t n_ants;
    uint64_t chan_offset;
    size_t n_members;           /* members of this thread */
    const size_t *first_ant;    /* [n_members + 1] member i has antennas first_ant[i] to first_ant[i + 1] - 1 */
    struct packet_fanout share; /* fraction of packets that the kernel passes to this thread */
};
#define XBGPU_RECV_N_WANTED 3
extern const uint16_t xbgpu_recv_wanted[XBGPU_RECV_N_WANTED];
enum reject xbgpu_recv_identify(const void *context, unsigned endpoint, const struct spead_packet *packet,
                                struct receiver_identity *identity);

#endif
