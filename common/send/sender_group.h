/* sender_group.h - the send threads of a daemon, among which its streams are dealt.
 *
 * Threads:   main. */
#ifndef COMMON_SEND_SENDER_GROUP_H
#define COMMON_SEND_SENDER_GROUP_H

#include "common/send/keys.h"
#include "common/send/sender.h"

struct sender_group;

/* Makes the senders that the section asks for, but no more than there will be streams; each has room for all streams
 * and for all their jobs. */
int sender_group_create(const struct config_send *config, size_t n_streams, size_t max_jobs,
                        struct sender_group **group);

/* As sender_add_stream(), with the senders taking turns. */
int sender_group_add_stream(struct sender_group *group, const struct send_stream_config *config,
                            struct send_stream **stream, char *why, size_t why_bytes);

int sender_group_start(struct sender_group *group);

/* As sender_set_deadline(): all of them at once. */
void sender_group_set_deadline(struct sender_group *group, int64_t give_up_ns);

/* As sender_stop(), one after the other.  Idempotent. */
void sender_group_stop(struct sender_group *group);

/* After stop: true if a capture lacks packets.  (On the network, a packet that did not leave is one more that was
 * lost.) */
bool sender_group_capture_failed(const struct sender_group *group);

/* Heaps that were given up, over all senders.  After stop. */
uint64_t sender_group_n_given_up(const struct sender_group *group);

/* NULL is accepted. */
void sender_group_destroy(struct sender_group *group);

#endif
