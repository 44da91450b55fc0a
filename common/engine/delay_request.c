/* delay_request.c - parses the arguments of the requests ?delays and ?beam-delays. */
#include "common/engine/delay_request.h"

#include "common/katcp/python_number.h"
#include "common/katcp/server.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define MAX_PART_BYTES 400

/* Parses "a,b" or "a,b,c" into *numbers[0], *numbers[1] and *numbers[2].  *numbers[2] keeps its value if the text has
 * only two numbers.  Returns false if the text has another form. */
static bool parse_part(const char *text, size_t n_bytes, double *numbers[3])
{
    char part[MAX_PART_BYTES], *rest = part, *field;
    size_t n = 0;

    if (n_bytes >= sizeof(part))
        return false;
    memcpy(part, text, n_bytes);
    part[n_bytes] = '\0';
    while ((field = strsep(&rest, ","))) {
        if (n == 3 || !python_number_float(field, numbers[n]))
            return false;
        n++;
    }
    return n >= 2;
}

const char *delay_request_parse(const char *text, double numbers[DELAY_N_NUMBERS])
{
    const char *colon = strchr(text, ':');
    double *delay[] = {&numbers[DELAY_S], &numbers[DELAY_RATE], &numbers[DELAY_ACCELERATION]};
    double *phase[] = {&numbers[DELAY_PHASE], &numbers[DELAY_PHASE_RATE], &numbers[DELAY_PHASE_ACCELERATION]};

    numbers[DELAY_ACCELERATION] = numbers[DELAY_PHASE_ACCELERATION] = 0;
    if (!colon || !parse_part(text, (size_t)(colon - text), delay) || !parse_part(colon + 1, strlen(colon + 1), phase))
        return "a model must be delay,rate:phase,phase_rate or "
               "delay,rate,acceleration:phase,phase_rate,phase_acceleration";
    return NULL;
}

bool delay_request_start(struct katcp_call *call, int i, const struct timebase *timebase, int64_t *start_samples)
{
    const char *text = katcp_arg(call, i);
    double seconds;
    int64_t unix_ns;

    if (timebase_parse_unix_ns(text, &unix_ns)) {
        if (!python_number_float(text, &seconds) || !(fabs(seconds) < 9e9)) {
            katcp_fail(call, "the start time must be a UNIX time in seconds, not '%.64s'", text);
            return false;
        }
        unix_ns = llrint(seconds * 1e9);
    }
    *start_samples = timebase_samples_nearest(timebase, unix_ns);
    if (*start_samples < 0)
        katcp_fail(call, "the start time is before the sync time");
    return *start_samples >= 0;
}
