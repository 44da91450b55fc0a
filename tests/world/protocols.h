/* protocols.h - the scenarios of the program explore, one function per protocol.
 *
 * Each function explores all its scenarios, and prints a line for each.  With 'quick', scenarios that take long have
 * fewer interruptions. */
#ifndef TESTS_WORLD_PROTOCOLS_H
#define TESTS_WORLD_PROTOCOLS_H

#include <stdbool.h>

void protocol_inbox(bool quick);
void protocol_loans(bool quick);
void protocol_commands(bool quick);
void protocol_sender(bool quick);
void protocol_engine(bool quick);

#endif
