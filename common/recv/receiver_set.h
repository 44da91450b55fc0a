/* receiver_set.h - the receivers (receive threads) of a daemon.
 *
 * Threads:   main, except receiver_set_failed() and receiver_set_can_wait() (worker). */
#ifndef COMMON_RECV_RECEIVER_SET_H
#define COMMON_RECV_RECEIVER_SET_H

#include "common/config/config.h"
#include "common/recv/receiver.h"

struct receiver_set {
    struct receiver **receivers; /* [n] */
    size_t n;                    /* number of receivers created so far */
};

int receiver_set_init(struct receiver_set *set, size_t max_receivers);

/* Creates the next receiver and registers its metrics under 'prefix'.  The thread is named "recvN" and runs on the next
 * CPU of 'affinity'.  The thread's name and CPU in 'config' are ignored.  Returns 0 or negative errno with one sentence
 * in 'why'. */
int receiver_set_add(struct receiver_set *set, const struct receiver_config *config,
                     const struct config_int_list *affinity, const char *prefix, char *why, size_t why_bytes);

int receiver_set_start(struct receiver_set *set);

/* Calls receiver_enable() of all receivers.  Returns 0 or negative errno with one sentence in 'why'. */
int receiver_set_enable(struct receiver_set *set, char *why, size_t why_bytes);

/* Returns true if a receiver ended because its source died.  Returns false if all ended receivers ended because they
 * had read their files.  Call after a receiver has reported its end. */
bool receiver_set_failed(const struct receiver_set *set);

/* Returns true if packets come from a file, so that receivers may wait. */
bool receiver_set_can_wait(const struct receiver_set *set);

/* Stops all receivers.  Their last chunks reach the worker in order of time.  Idempotent. */
void receiver_set_stop(struct receiver_set *set);

/* Destroys the receivers.  A zeroed set is accepted. */
void receiver_set_fini(struct receiver_set *set);

#endif
