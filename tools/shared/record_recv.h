/* record_recv.h - what a recorder did not take, in numbers and in words. */
#ifndef TOOLS_SHARED_RECORD_RECV_H
#define TOOLS_SHARED_RECORD_RECV_H

#include "common/recv/receiver.h"

/* Packets of data that a receiver or an assembler refused, for what they say of themselves or because the writer was
 * behind; 'rejects' are its counters [N_REJECTS].  Descriptors and stop heaps are none. */
uint64_t record_recv_count_refused(const struct counter *rejects);

/* One line for the operator who waits for data in vain: what came, and why it was refused; returns 'text'. */
char *record_recv_explain(const struct receiver_stats *receiver, const struct assembler_stats *assembler, char *text,
                          size_t text_bytes);

#endif
