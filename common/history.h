/* history.h - the last hour of a program's troubles: counters that ought to stand still and moved, and flows that stopped.
 *
 * Flow:      the registry of stats.h --a look each second--> rows --> /status.json
 * Rows:      one for each counter that a rule names, with its labels: how much it moved in the last minute and in the last
 *            hour, and when last.  A flow is a counter that ought to move.  It is quiet when it has moved
 *            a few times, and stands still for more than two seconds and twice as long as it ever did before.
 * Threads:   history_look() main's; history_describe() any.   Blocking: a lock, held for one look. */
#ifndef COMMON_HISTORY_H
#define COMMON_HISTORY_H

#include <jansson.h>
#include <stdint.h>

struct history;

/* Returns 0 or -ENOMEM. */
int history_create(struct history **history);

/* Looks at all counters, of which none is registered after the first look.  Both times go on; 'now_ns' is monotonic. */
void history_look(struct history *history, int64_t now_ns, int64_t unix_ns);

/* An array, the worst and latest first, of what moved in the last hour or is quiet now: where, stage, what, level ("warn",
 * "bad"), n_minute, n_hour, total, since (of what is quiet, or of moves less than a minute apart), last, quiet, advice. */
json_t *history_describe(struct history *history);

/* NULL is accepted. */
void history_destroy(struct history *history);

#endif
