/* buffer_ref.h - the reference count of a buffer, and the inbox that receives the buffer after the last reader has
 * released it.
 *
 * Flow:      owner --buffer_ref_set(n)--> n readers --buffer_ref_put() each--> the last put pushes 'item' to
 *            'return_to'
 * Ownership: nobody may change the buffer between buffer_ref_set and the last put.  The thread that pops the buffer
 *            from the inbox then owns it.
 * Property:  each buffer returns exactly once per buffer_ref_set(), after its last reader's put.  `build/tests/explore`
 *            checks this (protocol_loans).
 * Threads:   buffer_ref_set by the owner before hand-over; buffer_ref_put from any thread, device callbacks included.
 * Blocking:  never. */
#ifndef COMMON_BASE_BUFFER_REF_H
#define COMMON_BASE_BUFFER_REF_H

#include "common/base/inbox.h"

#include <stdatomic.h>

struct buffer_ref {
    atomic_int n_readers;
    struct inbox *return_to; /* [const] */
    struct inbox_item item;  /* [const] item that the last buffer_ref_put() pushes; item.object is the buffer */
};

/* Initialises 'ref' with the inbox that the buffer returns to.  The buffer starts with no readers. */
void buffer_ref_init(struct buffer_ref *ref, struct inbox *return_to, struct inbox_item item);

/* Sets the reference count to 'n_readers' (> 0), before the owner hands the buffer to its readers.  The buffer must
 * have no readers before the call. */
void buffer_ref_set(struct buffer_ref *ref, int n_readers);

/* Releases one reader's reference.  'ref' is a struct buffer_ref *.  Its type is void *, because device_then() calls
 * this function. */
void buffer_ref_put(void *ref);

#endif
