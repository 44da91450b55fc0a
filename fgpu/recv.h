/* recv.h - fgpu's receive side: inputs dealt to receive threads.
 *
 * Flow:      digitiser packets --receiver threads--> chunks of one input each --> worker's inbox
 * An input is one polarisation of one antenna; its endpoints say whose a packet is, and bit 0 of the digitiser id must
 * agree.
 * Threads:   created and destroyed by main; counters readable from any thread. */
#ifndef FGPU_RECV_H
#define FGPU_RECV_H

#include "common/recv/assemble.h"
#include "common/base/inbox.h"
#include "common/recv/receiver.h"
#include "fgpu/layout.h"

struct fgpu_recv;

struct fgpu_recv_config {
    const struct fgpu_config *config;
    const struct fgpu_layout *layout;
    struct device *device; /* has the chunks */
    struct inbox *worker;
    int full_kind; /* {full_kind, 0, chunk}; chunk->member is the input */
    int end_kind;  /* {end_kind, 0, NULL} when a receiver's file has ended */
};

/* Opens all sources and allocates all chunks.  Returns 0 or negative errno with one sentence in 'why'. */
int fgpu_recv_create(const struct fgpu_recv_config *config, struct fgpu_recv **recv, char *why, size_t why_bytes);

int fgpu_recv_start(struct fgpu_recv *recv);

/* Has packets come.  Returns 0 or negative errno with one sentence in 'why'. */
int fgpu_recv_enable(struct fgpu_recv *recv, char *why, size_t why_bytes);

/* Number of receive threads: how many end items there can be. */
size_t fgpu_recv_n_threads(const struct fgpu_recv *recv);

/* Once a receive thread has told of its end: true if any ended because its source died, not its file. */
bool fgpu_recv_failed(const struct fgpu_recv *recv);

/* True where packets come from a file, which waits for us. */
bool fgpu_recv_can_wait(const struct fgpu_recv *recv);

/* Ends the threads; open chunks go to the worker.  Idempotent. */
void fgpu_recv_stop(struct fgpu_recv *recv);

/* Logs what each input received and refused. */
void fgpu_recv_log(const struct fgpu_recv *recv);

/* The worker must have given all chunks back.  NULL is accepted. */
void fgpu_recv_destroy(struct fgpu_recv *recv);

/* Whose packet it is; public for its test. */
struct fgpu_recv_context {
    const unsigned *input_of_endpoint; /* [endpoint] member index in the receiver */
    const unsigned *pol_of_member;     /* [member] */
};
#define FGPU_RECV_N_WANTED 3
extern const uint16_t fgpu_recv_wanted[FGPU_RECV_N_WANTED];
enum reject fgpu_recv_identify(const void *context, unsigned endpoint, const struct spead_packet *packet,
                               struct receiver_identity *identity);

#endif
