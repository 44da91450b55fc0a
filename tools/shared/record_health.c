/* record_health.c - called by the main thread, which polls the counters of the receive and writer threads. */
#include "tools/shared/record_health.h"

#include <limits.h>

void record_health_init(struct record_health *health, unsigned limit)
{
    *health = (struct record_health){.limit = limit, .since_loss = limit, .since_refusal = limit};
}

/* Returns the number of polls since a count last rose.  'since' is this number at the previous poll. */
static unsigned count_looks(unsigned since, uint64_t before, uint64_t now)
{
    if (now != before)
        return 0;
    return since < UINT_MAX ? since + 1 : since;
}

void record_health_poll(struct record_health *health, const struct record_health_counts *counts)
{
    health->since_dump = count_looks(health->since_dump, health->counts.n_dumps, counts->n_dumps);
    health->since_loss = count_looks(health->since_loss, health->counts.n_lost, counts->n_lost);
    health->since_refusal = count_looks(health->since_refusal, health->counts.n_refused, counts->n_refused);
    health->counts = *counts;
}

static bool is_refusing(const struct record_health *health)
{
    return health->since_dump >= health->limit && health->since_refusal < health->limit;
}

bool record_health_is_good(const struct record_health *health)
{
    return health->since_loss >= health->limit && !is_refusing(health);
}

bool record_health_is_silent(const struct record_health *health)
{
    return health->since_dump > 0 && health->since_dump % health->limit == 0;
}

bool record_health_was_refusing(const struct record_health *health)
{
    return is_refusing(health) || (health->counts.n_dumps == 0 && health->counts.n_refused > 0);
}
