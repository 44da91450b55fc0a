/* record_recv.h - counts the packets that a recorder refused, and explains the refusals in a line of text. */
#ifndef TOOLS_SHARED_RECORD_RECV_H
#define TOOLS_SHARED_RECORD_RECV_H

#include "common/recv/receiver.h"

/* Returns the number of data packets that a receiver or an assembler refused, because of their contents or because the
 * writer was too slow.  'rejects' [N_REJECTS] are the counters of the receiver or assembler.  Excludes descriptors and
 * stop heaps. */
uint64_t record_recv_count_refused(const struct counter *rejects);

/* Writes one line for an operator whose data do not arrive: the number of packets received, and the reasons for
 * refusals.  Returns 'text'. */
char *record_recv_explain(const struct receiver_stats *receiver, const struct assembler_stats *assembler, char *text,
                          size_t text_bytes);

#endif
