/* recv.h - fgpu's receive side: inputs distributed to receive threads.
 *
 * Flow:      digitiser packets --receiver threads--> chunks of one input each --> worker's inbox
 * Inputs:    an input is one polarisation of one antenna.  The endpoint determines a packet's input; bit 0 of the
 *            digitiser id must agree with the polarisation.
 * Threads:   main creates and destroys; counters are readable from any thread. */
#ifndef FGPU_RECV_H
#define FGPU_RECV_H

#include "common/recv/assemble.h"
#include "common/recv/receiver.h"
#include "fgpu/config/layout.h"

struct engine;
struct fgpu_recv;

/* Opens all sources, allocates all chunks, and gives the engine its receivers.  chunk->member is the input.  Returns
 * 0 or negative errno with one sentence in 'why'. */
int fgpu_recv_create(const struct fgpu_config *config, const struct fgpu_layout *layout, struct engine *engine,
                     struct fgpu_recv **recv, char *why, size_t why_bytes);

/* Logs the numbers of packets that each input received and refused. */
void fgpu_recv_log(const struct fgpu_recv *recv);

/* Destroys the receive side.  The worker must have returned all chunks.  NULL is accepted. */
void fgpu_recv_destroy(struct fgpu_recv *recv);

/* Determines a packet's input.  This function is public for its test. */
struct fgpu_recv_context {
    const unsigned *input_of_endpoint; /* [endpoint]: index of the receiver's member */
    const unsigned *pol_of_member;     /* shape [member] */
};
#define FGPU_RECV_N_WANTED 3
extern const uint16_t fgpu_recv_wanted[FGPU_RECV_N_WANTED];
enum reject fgpu_recv_identify(const void *context, unsigned endpoint, const struct spead_packet *packet,
                               struct receiver_identity *identity);

#endif
