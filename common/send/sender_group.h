/* sender_group.h - the send threads of a daemon, among which its streams are distributed.
 *
 * Threads:   main. */
#ifndef COMMON_SEND_SENDER_GROUP_H
#define COMMON_SEND_SENDER_GROUP_H

#include "common/send/keys.h"
#include "common/send/sender.h"

struct sender_group;

/* Creates the senders that the section asks for, but no more than there will be streams.  Each sender has room for all
 * streams and all their jobs. */
int sender_group_create(const struct config_send *config, size_t n_streams, size_t max_jobs,
                        struct sender_group **group);

/* Adds a stream as sender_add_stream() does.  Streams go to the senders alternately. */
int sender_group_add_stream(struct sender_group *group, const struct send_stream_config *config,
                            struct send_stream **stream, char *why, size_t why_bytes);

int sender_group_start(struct sender_group *group);

/* Sets the deadline of all senders at once; see sender_set_deadline(). */
void sender_group_set_deadline(struct sender_group *group, int64_t give_up_ns);

/* Stops one sender after the other; see sender_stop().  Idempotent. */
void sender_group_stop(struct sender_group *group);

/* Returns true if a capture lacks packets.  After stop.  (On the network, an unsent packet is just one more lost
 * packet.) */
bool sender_group_capture_failed(const struct sender_group *group);

/* Returns the heaps of all senders that were not sent before the deadline.  After stop. */
uint64_t sender_group_n_given_up(const struct sender_group *group);

/* NULL is accepted. */
void sender_group_destroy(struct sender_group *group);

#endif
