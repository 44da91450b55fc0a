/* buffer_ref.h - a buffer's way home: a count of readers, and the inbox that it returns to when the last one is done.
 *
 * Flow:      owner --loan_out(n)--> n readers --loan_put() each--> last one pushes 'item' to 'home'
 * Ownership: between loan_out and the last put nobody may change the buffer; after it, the popper of 'home' owns it.
 * Threads:   loan_out by the owner before hand-over; loan_put from any thread, device callbacks included.
 * Blocking:  never. */
#ifndef COMMON_BASE_BUFFER_REF_H
#define COMMON_BASE_BUFFER_REF_H

#include "common/base/inbox.h"

#include <stdatomic.h>

struct loan {
    atomic_int n_readers;
    struct inbox *home;     /* [const] */
    struct inbox_item item; /* [const] what is pushed to 'home'; its object is the buffer */
};

/* Sets where the buffer returns to.  Starts with no readers. */
void loan_init(struct loan *loan, struct inbox *home, struct inbox_item item);

/* Hands the buffer to 'n_readers' (> 0); it must have none. */
void loan_out(struct loan *loan, int n_readers);

/* One reader is done.  The signature is that of a device_then() callback; 'loan' is a struct loan. */
void loan_put(void *loan);

#endif
