/* fake_clock.c - a preloaded library that replaces the kernel's clock for one process.
 *
 * The file $CBF_FAKE_CLOCK holds struct fake_clock: the offsets of the clocks and the state of their synchronisation.
 * A test may change the file at any time. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

struct fake_clock {
    int64_t offset_s;           /* of CLOCK_REALTIME */
    int64_t state;              /* TIME_OK to TIME_ERROR, as adjtimex(2) returns */
    int64_t monotonic_offset_s; /* of CLOCK_MONOTONIC */
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
    if (err == 0 && id == CLOCK_MONOTONIC && fake)
        now->tv_sec += fake->monotonic_offset_s;
    return err;
}

static struct timespec real(const struct timespec *fake_time)
{
    return (struct timespec){fake_time->tv_sec - (fake ? fake->monotonic_offset_s : 0), fake_time->tv_nsec};
}

/* Of absolute times of CLOCK_MONOTONIC alone, as common/base/clock.c waits. */
int clock_nanosleep(clockid_t id, int flags, const struct timespec *until, struct timespec *left)
{
    const struct timespec time = real(until);

    return syscall(SYS_clock_nanosleep, id, flags, &time, left) ? errno : 0;
}

/* The programs' conditions have CLOCK_MONOTONIC (common/base/lock.h). */
int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until)
{
    const struct timespec time = real(until);

    return pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, &time);
}

int adjtimex(struct timex *timex)
{
    timex->esterror = timex->maxerror = 0;
    return (int)fake->state;
}
