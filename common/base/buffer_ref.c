/* buffer_ref.c - returns chunks and output buffers to the inbox of free buffers.  See buffer_ref.h. */
#include "common/base/buffer_ref.h"

#include <assert.h>

void buffer_ref_init(struct buffer_ref *ref, struct inbox *return_to, struct inbox_item item)
{
    atomic_init(&ref->n_readers, 0);
    ref->return_to = return_to;
    ref->item = item;
}

void buffer_ref_set(struct buffer_ref *ref, int n_readers)
{
    assert(n_readers > 0);
    /* Relaxed order suffices: the hand-over through an inbox or a stream orders this store before any
     * buffer_ref_put(). */
    int n_before = atomic_exchange_explicit(&ref->n_readers, n_readers, memory_order_relaxed);
    assert(n_before == 0);
}

void buffer_ref_put(void *ref)
{
    struct buffer_ref *self = ref;
    /* Release: this reader has read the buffer before it lowers the count.  Acquire: all readers have read the buffer
     * before the last reader pushes the buffer to the inbox. */
    int n_before = atomic_fetch_sub_explicit(&self->n_readers, 1, memory_order_acq_rel);

    assert(n_before > 0);
    if (n_before == 1)
        inbox_push(self->return_to, &self->item);
}
