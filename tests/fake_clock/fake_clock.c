/* fake_clock.c - preloaded, it is the kernel's clock for one process: off by as much as a file says, and as well
 * synchronised.
 *
 * The file $CBF_FAKE_CLOCK holds struct fake_clock, and may change at any time.  Only CLOCK_REALTIME is off. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

struct fake_clock {
    int64_t offset_s;
    int64_t state; /* TIME_OK to TIME_ERROR, as adjtimex(2) returns */
};

static const volatile struct fake_clock *fake;

__attribute__((constructor)) static void map_file(void)
{
    int file = open(getenv("CBF_FAKE_CLOCK"), O_RDONLY | O_CLOEXEC);
    void *mapped = mmap(NULL, sizeof(*fake), PROT_READ, MAP_SHARED, file, 0);

    if (file < 0 || mapped == MAP_FAILED)
        abort();
    close(file);
    fake = mapped;
}

int clock_gettime(clockid_t id, struct timespec *now)
{
    int err = (int)syscall(SYS_clock_gettime, id, now);

    if (err == 0 && id == CLOCK_REALTIME && fake)
        now->tv_sec += fake->offset_s;
    return err;
}

int adjtimex(struct timex *timex)
{
    timex->esterror = timex->maxerror = 0;
    return (int)fake->state;
}
