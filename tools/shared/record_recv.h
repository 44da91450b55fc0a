/* record_recv.h - packets that a recorder refused: their number, and a line of text. */
#ifndef TOOLS_SHARED_RECORD_RECV_H
#define TOOLS_SHARED_RECORD_RECV_H

#include "common/recv/receiver.h"

/* Counts the data packets that a receiver or an assembler refused, because of their contents or because the writer was
 * behind.  'rejects' are its counters [N_REJECTS].  Descriptors and stop heaps do not count. */
uint64_t record_recv_count_refused(const struct counter *rejects);

/* Writes one line for an operator whose data do not arrive: the number of packets received, and the reasons for
 * refusals.  Returns 'text'. */
char *record_recv_explain(const struct receiver_stats *receiver, const struct assembler_stats *assembler, char *text,
                          size_t text_bytes);

#endif
