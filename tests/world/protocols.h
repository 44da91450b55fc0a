/* protocols.h - the scenarios of the program explore, one function per protocol.
 *
 * Each function explores all scenarios of its protocol, and prints a line for each.  With 'quick', the scenarios of the
 * engine have fewer delays. */
#ifndef TESTS_WORLD_PROTOCOLS_H
#define TESTS_WORLD_PROTOCOLS_H

#include <stdbool.h>

void protocol_inbox(void);
void protocol_loans(void);
void protocol_commands(void);
void protocol_sender(void);
void protocol_engine(bool quick);

/* A thread that lets the time pass to '*deadline_ns' while all other threads run. */
void *protocols_watch_clock(void *deadline_ns);

/* Ends the process with the sentence if a condition on all runs of a scenario is not met. */
void protocols_expect(bool is_met, const char *sentence);

#endif
