/* buffer_ref.h - a count of a buffer's readers, and the inbox that the buffer returns to after the last one.
 *
 * Flow:      owner --buffer_ref_set(n)--> n readers --buffer_ref_put() each--> last one pushes 'item' to 'return_to'
 * Ownership: between buffer_ref_set and the last put nobody may change the buffer; after it, its popper owns it.
 * Threads:   buffer_ref_set by the owner before hand-over; buffer_ref_put from any thread, device callbacks included.
 * Blocking:  never. */
#ifndef COMMON_BASE_BUFFER_REF_H
#define COMMON_BASE_BUFFER_REF_H

#include "common/base/inbox.h"

#include <stdatomic.h>

struct buffer_ref {
    atomic_int n_readers;
    struct inbox *return_to; /* [const] */
    struct inbox_item item;  /* [const] message that is pushed to 'return_to'; its object is the buffer */
};

/* Sets where the buffer returns to.  Starts with no readers. */
void buffer_ref_init(struct buffer_ref *ref, struct inbox *return_to, struct inbox_item item);

/* Hands the buffer to 'n_readers' (> 0); it must have none. */
void buffer_ref_set(struct buffer_ref *ref, int n_readers);

/* One reader is done.  The signature is that of a device_then() callback; 'ref' is a struct buffer_ref. */
void buffer_ref_put(void *ref);

#endif
