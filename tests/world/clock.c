/* clock.c - the host's clock, which may be wrong.  See clock.h. */
#include "tests/world/clock.h"

#include "common/base/clock.h"
#include "tests/world/sched.h"

#include <sys/timex.h>

struct world_clock world_clock;

int __wrap_adjtimex(struct timex *timex);

int64_t world_clock_ns(void)
{
    return world_unix_ns() + world_clock.error_ns + (int64_t)(world_clock.drift * (double)world_now_ns());
}

int64_t clock_unix_ns(void)
{
    return world_clock_ns();
}

int __wrap_adjtimex(struct timex *timex)
{
    timex->esterror = timex->maxerror = 0;
    return world_clock.state;
}
