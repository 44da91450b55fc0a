/* clock_state.c - see clock_state.h.  The file of the clock's state has one line: the UNIX time in seconds, the
 * state, and the estimated and maximum error in microseconds. */
#include "common/time/clock_state.h"

#include "common/base/clock.h"
#include "common/base/units.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/timex.h>

#define KEPT_S (4 * CLOCK_STATE_PERIOD_S)

static int ask(int *state, int64_t *esterror_us, int64_t *maxerror_us)
{
    struct timex timex = {0};

    *state = adjtimex(&timex);
    if (*state < 0)
        return -errno;
    *esterror_us = timex.esterror;
    *maxerror_us = timex.maxerror;
    return 0;
}

static int read_file(const char *path, int *state, int64_t *esterror_us, int64_t *maxerror_us)
{
    FILE *file = fopen(path, "re");
    int64_t written_s;

    if (!file)
        return -errno;
    int n = fscanf(file, "%" SCNd64 " %d %" SCNd64 " %" SCNd64, &written_s, state, esterror_us, maxerror_us);
    fclose(file);
    if (n != 4 || *state < TIME_OK || *state > TIME_ERROR)
        return -EINVAL;
    /* A file whose time lies in the future was written before somebody set the clock back. */
    int64_t now_s = clock_unix_ns() / NS_PER_S;
    return written_s < now_s - KEPT_S || written_s > now_s + KEPT_S ? -ESTALE : 0;
}

int clock_state_get(const char *path, struct clock_state *state)
{
    int64_t esterror_us = 0, maxerror_us = 0;
    int found;
    int err = ask(&found, &esterror_us, &maxerror_us);

    if (err)
        err = read_file(path, &found, &esterror_us, &maxerror_us);
    *state = err ? (struct clock_state){.state = TIME_ERROR}
                 : (struct clock_state){found, (double)esterror_us * 1e-6, (double)maxerror_us * 1e-6};
    return err;
}

static atomic_bool synchronised;

void clock_state_read(void)
{
    struct clock_state now;
    int err = clock_state_get(CLOCK_STATE_FILE, &now);

    atomic_store_explicit(&synchronised, err == 0 && now.state != TIME_ERROR, memory_order_relaxed);
}

bool clock_state_is_synchronised(void)
{
    return atomic_load_explicit(&synchronised, memory_order_relaxed);
}

int clock_state_write(const char *path)
{
    int64_t esterror_us = 0, maxerror_us = 0;
    char new_path[PATH_MAX];
    int state;
    int err = ask(&state, &esterror_us, &maxerror_us);

    if (err)
        return err;
    snprintf(new_path, sizeof(new_path), "%s.new", path);
    FILE *file = fopen(new_path, "we");
    if (!file)
        return -errno;
    fprintf(file, "%" PRId64 " %d %" PRId64 " %" PRId64 "\n", clock_unix_ns() / NS_PER_S, state, esterror_us,
            maxerror_us);
    if (fclose(file) || rename(new_path, path))
        return -errno;
    return 0;
}
