/* receiver_set.c - creates, starts and stops the receivers of a daemon. */
#include "common/recv/receiver_set.h"

#include "common/recv/receiver_metrics.h"
#include "common/telemetry/stats.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int receiver_set_init(struct receiver_set *set, size_t max_receivers)
{
    set->n = 0;
    set->receivers = calloc(max_receivers, sizeof(struct receiver *));
    return set->receivers ? 0 : -ENOMEM;
}

int receiver_set_add(struct receiver_set *set, const struct receiver_config *config,
                     const struct config_int_list *affinity, const char *prefix, char *why, size_t why_bytes)
{
    struct receiver_config named = *config;
    char name[32];

    snprintf(name, sizeof(name), "recv%zu", set->n);
    named.thread_name = name;
    named.cpu = affinity->n ? (int)affinity->items[set->n % affinity->n] : -1;
    int err = receiver_create(&named, &set->receivers[set->n], why, why_bytes);
    if (err)
        return err;
    receiver_metrics_add(prefix, name, receiver_get_stats(set->receivers[set->n]));
    receiver_metrics_add_drops(prefix, name, set->receivers[set->n]);
    set->n++;
    return 0;
}

int receiver_set_start(struct receiver_set *set)
{
    int err = 0;

    for (size_t t = 0; !err && t < set->n; t++)
        err = receiver_start(set->receivers[t]);
    return err;
}

int receiver_set_enable(struct receiver_set *set, char *why, size_t why_bytes)
{
    int err = 0;

    for (size_t t = 0; !err && t < set->n; t++)
        err = receiver_enable(set->receivers[t], why, why_bytes);
    return err;
}

bool receiver_set_failed(const struct receiver_set *set)
{
    for (size_t t = 0; t < set->n; t++)
        if (receiver_get_error(set->receivers[t]) != 0)
            return true;
    return false;
}

bool receiver_set_can_wait(const struct receiver_set *set)
{
    return receiver_can_wait(set->receivers[0]);
}

void receiver_set_stop(struct receiver_set *set)
{
    for (size_t t = 0; t < set->n; t++)
        receiver_halt(set->receivers[t]);
    /* Chunks of all receivers leave in order of time.  If one receiver handed on all of its chunks first, the matcher
     * would treat the other receivers' chunks as late. */
    for (;;) {
        struct receiver *oldest = set->receivers[0];
        for (size_t t = 1; t < set->n; t++)
            if (receiver_oldest_samples(set->receivers[t]) < receiver_oldest_samples(oldest))
                oldest = set->receivers[t];
        if (receiver_oldest_samples(oldest) == INT64_MAX)
            return;
        receiver_flush_oldest(oldest);
    }
}

void receiver_set_fini(struct receiver_set *set)
{
    /* removes the metrics first, because a concurrent request of /metrics would read from the receivers' sources */
    stats_reset();
    for (size_t t = 0; t < set->n; t++)
        receiver_destroy(set->receivers[t]);
    free(set->receivers);
}
