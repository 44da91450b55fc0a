/* delay_request.h - delay models and start times in the form of requests.
 *
 *     delay,rate[,acceleration]:phase,phase rate[,phase acceleration]      s, s/s, s/s^2; rad, rad/s, rad/s^2
 *
 * Threads: pure functions. */
#ifndef COMMON_ENGINE_DELAY_REQUEST_H
#define COMMON_ENGINE_DELAY_REQUEST_H

#include "common/time/timebase.h"

#include <stdbool.h>
#include <stdint.h>

struct katcp_call;

/* A model's numbers in seconds and radians, in this order. */
enum delay_number { DELAY_S, DELAY_RATE, DELAY_PHASE, DELAY_PHASE_RATE, DELAY_ACCELERATION, DELAY_PHASE_ACCELERATION };
#define DELAY_N_NUMBERS 6

/* Limit of rates in requests, in s/s.  The sky needs 3e-9; a larger rate is a typing error. */
#define DELAY_MAX_REQUEST_RATE 1e-3

/* Reads the text of a request; numbers that the text lacks are 0.  Returns NULL, or a sentence about the fault. */
const char *delay_request_parse(const char *text, double numbers[DELAY_N_NUMBERS]);

/* Converts argument 'i', UNIX seconds, to the nearest sample.  Exact if the text has no decimals below a nanosecond.
 * Returns false after it has failed the call. */
bool delay_request_start(struct katcp_call *call, int i, const struct timebase *timebase, int64_t *start_samples);

#endif
