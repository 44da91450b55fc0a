/* sender_group.c - creates the senders of a daemon, and distributes streams among them. */
#include "common/send/sender_group.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct sender_group {
    bool to_capture;
    size_t n_senders; /* number of senders created so far */
    size_t n_streams; /* number of streams added so far */
    struct sender *senders[];
};

int sender_group_create(const struct config_send *config, size_t n_streams, size_t max_jobs,
                        struct sender_group **group)
{
    size_t n_senders = (size_t)config->n_threads < n_streams ? (size_t)config->n_threads : n_streams;
    struct sender_group *g = calloc(1, sizeof(*g) + n_senders * sizeof(struct sender *));

    if (!g)
        return -ENOMEM;
    g->to_capture = config->pcap_file != NULL;
    for (size_t t = 0; t < n_senders; t++) {
        char name[32];
        snprintf(name, sizeof(name), "send%zu", t);
        int cpu = config->affinity.n ? (int)config->affinity.items[t % config->affinity.n] : -1;
        int err = sender_create(name, cpu, n_streams, max_jobs, &g->senders[t]);
        if (err) {
            sender_group_destroy(g);
            return err;
        }
        g->n_senders++;
    }
    *group = g;
    return 0;
}

int sender_group_add_stream(struct sender_group *group, const struct send_stream_config *config,
                            struct send_stream **stream, char *why, size_t why_bytes)
{
    struct sender *sender = group->senders[group->n_streams++ % group->n_senders];

    return sender_add_stream(sender, config, stream, why, why_bytes);
}

int sender_group_start(struct sender_group *group)
{
    int err = 0;

    for (size_t t = 0; !err && t < group->n_senders; t++)
        err = sender_start(group->senders[t]);
    return err;
}

void sender_group_set_deadline(struct sender_group *group, int64_t give_up_ns)
{
    for (size_t t = 0; t < group->n_senders; t++)
        sender_set_deadline(group->senders[t], give_up_ns);
}

void sender_group_stop(struct sender_group *group)
{
    for (size_t t = 0; t < group->n_senders; t++)
        sender_stop(group->senders[t]);
}

bool sender_group_capture_failed(const struct sender_group *group)
{
    uint64_t n_failed = 0;

    for (size_t t = 0; t < group->n_senders; t++)
        n_failed += sender_n_failed(group->senders[t]);
    return group->to_capture && n_failed > 0;
}

uint64_t sender_group_n_given_up(const struct sender_group *group)
{
    uint64_t n_given_up = 0;

    for (size_t t = 0; t < group->n_senders; t++)
        n_given_up += sender_n_given_up(group->senders[t]);
    return n_given_up;
}

void sender_group_destroy(struct sender_group *group)
{
    if (!group)
        return;
    for (size_t t = 0; t < group->n_senders; t++)
        sender_destroy(group->senders[t]);
    free(group);
}
