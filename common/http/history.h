/* history.h - the last hour of a program's troubles: counters that moved, flows that stopped, gauges out of range.
 *
 * Flow:      the registry of stats.h --a look each second--> rows --> /status.json
 * Rows:      one for each metric that a rule names, with its labels.
 *            A losses row has a counter that ought to stand still: by how much it moved in the last minute and hour.
 *            A flow row has a counter that ought to move.  The flow is in trouble when the counter has moved a few times,
 *            and stands still for more than two seconds and twice as long as it ever did before.
 *            A range row has a gauge, which is in trouble while it lies outside a range.
 *            Rows of flows and ranges count the seconds of their troubles.
 * Threads:   history_sample() main's; history_describe() any.   Blocking: a lock, held for one look. */
#ifndef COMMON_HTTP_HISTORY_H
#define COMMON_HTTP_HISTORY_H

#include <jansson.h>
#include <stdint.h>

struct history;

/* Returns 0 or -ENOMEM. */
int history_create(struct history **history);

/* Looks at all counters, of which none is registered after the first look.  Both times go on; 'now_ns' is monotonic. */
void history_sample(struct history *history, int64_t now_ns, int64_t unix_ns);

/* An array of the troubles of the last hour, the worst and latest first: where, stage, what, level ("warn", "bad"),
 * n_minute, n_hour, total, unit ("" or "s", of these three), ongoing (of flows and ranges), since (when the trouble began, of
 * which moments less than a minute apart are one), last, advice. */
json_t *history_describe(struct history *history);

/* NULL is accepted. */
void history_destroy(struct history *history);

#endif
