/* history.h - the troubles of a program's last hour: counters that moved, flows that stopped, gauges out of range.
 *
 * Flow:      the registry of stats.h --a sample each second--> rows --> /status.json
 * Rows:      one for each metric that a rule names, with its labels.
 *            A losses row has a counter that should stand still, with its moves in the last minute and hour.
 *            A flow row has a counter that should move.  The flow is in trouble when the counter has moved a few
 *            times, and stands still for more than two seconds and twice as long as it ever did before.
 *            A range row has a gauge, which is in trouble while it lies outside a range.
 *            Rows of flows and ranges count the seconds of their troubles.
 * Threads:   history_sample() on the main thread; history_describe() on any.   Blocking: a lock, held for one
 *            sample. */
#ifndef COMMON_HTTP_HISTORY_H
#define COMMON_HTTP_HISTORY_H

#include <jansson.h>
#include <stdint.h>

struct history;

/* Creates a history.  Returns 0 or -ENOMEM. */
int history_create(struct history **history);

/* Samples all counters.  No counter may be registered after the first sample.  Both times must increase; 'now_ns' is
 * monotonic. */
void history_sample(struct history *history, int64_t now_ns, int64_t unix_ns);

/* Returns an array of the troubles of the last hour, the worst and latest first.  Its members are where, stage, what,
 * level ("warn", "bad"), n_minute, n_hour, total, unit ("" or "s", for these three), ongoing (for flows and ranges),
 * since, last and advice.  "since" is the time when the trouble began; moments less than a minute apart are one
 * trouble. */
json_t *history_describe(struct history *history);

/* NULL is accepted. */
void history_destroy(struct history *history);

#endif
