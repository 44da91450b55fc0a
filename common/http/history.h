/* history.h - the troubles of a program during the last hour: counters of losses that increased, flows that stopped,
 * gauges out of range.
 *
 * Flow:      the registry of stats.h --a sample each second--> rows --> /status.json
 * Rows:      Each metric (with its labels) that has a rule has one row.  There are three kinds of rows.
 *            A losses row has a counter that should not increase.  The row reports the increases in the last minute and
 *            hour.
 *            A flow row has a counter that should increase.  After a few increases, a pause of the counter can
 *            become a trouble.  A trouble begins if the pause is longer than two seconds, and longer than twice the
 *            longest gap between two increases so far.
 *            A range row has a gauge.  The trouble lasts while the gauge is outside the range.
 *            Flow rows and range rows count the seconds of their troubles.
 * Threads:   history_sample() on the main thread; history_describe() on any thread.   Blocking: a lock, held for one
 *            sample. */
#ifndef COMMON_HTTP_HISTORY_H
#define COMMON_HTTP_HISTORY_H

#include <jansson.h>
#include <stdint.h>

struct history;

/* Creates a history.  Returns 0 or -ENOMEM. */
int history_create(struct history **history);

/* Samples all metrics.  No metric may be registered after the first sample.  Both times must increase from call to
 * call.  'now_ns' is a monotonic time. */
void history_sample(struct history *history, int64_t now_ns, int64_t unix_ns);

/* Returns an array with an object for each trouble of the last hour, the worst and latest first.  The members are
 * where, stage, what, level ("warn" or "bad"), n_minute, n_hour, total, unit (of n_minute, n_hour and total: "" for
 * losses, "s" for seconds), ongoing (for flows and ranges), since, last and advice.  "since" is the time when the
 * trouble began.  Events less than a minute apart belong to one trouble. */
json_t *history_describe(struct history *history);

/* NULL is accepted. */
void history_destroy(struct history *history);

#endif
