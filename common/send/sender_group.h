/* sender_group.h - the senders (send threads) of a daemon, which share its streams.
 *
 * Threads:   main. */
#ifndef COMMON_SEND_SENDER_GROUP_H
#define COMMON_SEND_SENDER_GROUP_H

#include "common/send/keys.h"
#include "common/send/sender.h"

struct sender_group;

/* Creates the configured number of senders, but at most 'n_streams'.  Each sender has room for all streams and their
 * jobs. */
int sender_group_create(const struct config_send *config, size_t n_streams, size_t max_jobs,
                        struct sender_group **group);

/* Adds a stream to the next sender in turn, with sender_add_stream(). */
int sender_group_add_stream(struct sender_group *group, const struct send_stream_config *config,
                            struct send_stream **stream, char *why, size_t why_bytes);

int sender_group_start(struct sender_group *group);

/* Sets the deadline of all senders; see sender_set_deadline(). */
void sender_group_set_deadline(struct sender_group *group, int64_t give_up_ns);

/* Stops all senders, one after the other; see sender_stop().  Idempotent. */
void sender_group_stop(struct sender_group *group);

/* Returns true if packets are missing in a capture.  Call after sender_group_stop().  (On the network, unsent packets
 * are no error, because receivers must tolerate lost packets anyway.) */
bool sender_group_capture_failed(const struct sender_group *group);

/* Returns the number of heaps that were not sent before the deadline.  Call after sender_group_stop(). */
uint64_t sender_group_n_given_up(const struct sender_group *group);

/* NULL is accepted. */
void sender_group_destroy(struct sender_group *group);

#endif
