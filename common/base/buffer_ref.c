/* buffer_ref.c - how chunks and output buffers get back to their free inbox.  See buffer_ref.h. */
#include "common/base/buffer_ref.h"

#include <assert.h>

void loan_init(struct loan *loan, struct inbox *home, struct inbox_item item)
{
    atomic_init(&loan->n_readers, 0);
    loan->home = home;
    loan->item = item;
}

void loan_out(struct loan *loan, int n_readers)
{
    int n_before;

    assert(n_readers > 0);
    /* Relaxed: the hand-over itself, through an inbox or a stream, orders this before any put. */
    n_before = atomic_exchange_explicit(&loan->n_readers, n_readers, memory_order_relaxed);
    assert(n_before == 0);
}

void loan_put(void *loan)
{
    struct loan *self = loan;
    /* Release: our reads end before the last put.  Acquire: if ours is the last, everybody's reads ended before the
     * push that gives the buffer away. */
    int n_before = atomic_fetch_sub_explicit(&self->n_readers, 1, memory_order_acq_rel);

    assert(n_before > 0);
    if (n_before == 1)
        inbox_push(self->home, &self->item);
}
