/* direct_guard.c - see direct_guard.h. */
#include "direct_guard.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define PAGE_BYTES    4096
#define N_REGIONS_MAX 1024
#define ERROR_WRITE   0x2   /* in a page fault's error code */
#define FLAG_TRAP     0x100 /* the processor traps after the next instruction */

struct region {
    _Atomic uintptr_t begin, end;
};

static struct region regions[N_REGIONS_MAX];
static _Atomic unsigned long n_writes;
static _Thread_local void *opened;
static _Thread_local size_t opened_bytes;

static const struct region *find(uintptr_t address)
{
    for (size_t i = 0; i < N_REGIONS_MAX; i++)
        if (address >= regions[i].begin && address < regions[i].end)
            return &regions[i];
    return NULL;
}

static void faulted(int number, siginfo_t *info, void *context)
{
    static const char sentence[] = "direct_guard: the host reads direct memory\n";
    ucontext_t *c = context;
    uintptr_t address = (uintptr_t)info->si_addr, page = address & ~(uintptr_t)(PAGE_BYTES - 1);
    const struct region *region = find(address);

    if (!region) { /* not ours: as if we were not here, when it faults again */
        signal(number, SIG_DFL);
        return;
    }
    if (!(c->uc_mcontext.gregs[REG_ERR] & ERROR_WRITE)) {
        if (write(STDERR_FILENO, sentence, sizeof(sentence) - 1) > 0)
            _exit(DIRECT_GUARD_EXIT_CODE);
        abort();
    }
    /* A store may reach into the page behind. */
    opened = (void *)page;
    opened_bytes = page + PAGE_BYTES < region->end ? 2 * PAGE_BYTES : PAGE_BYTES;
    mprotect(opened, opened_bytes, PROT_READ | PROT_WRITE);
    c->uc_mcontext.gregs[REG_EFL] |= FLAG_TRAP;
    n_writes++;
}

static void trapped(int number, siginfo_t *info, void *context)
{
    ucontext_t *c = context;

    if (opened)
        mprotect(opened, opened_bytes, PROT_NONE);
    opened = NULL;
    c->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)FLAG_TRAP;
}

/* In front of the C library's: a thread that blocks the signals of its own faults is killed by them. */
int pthread_sigmask(int how, const sigset_t *set, sigset_t *before)
{
    sigset_t others;

    if (set) {
        others = *set;
        sigdelset(&others, SIGSEGV);
        sigdelset(&others, SIGTRAP);
        set = &others;
    }
    return syscall(SYS_rt_sigprocmask, how, set, before, NSIG / 8) ? errno : 0;
}

void direct_guard(void *memory, size_t bytes)
{
    struct sigaction fault = {.sa_sigaction = faulted, .sa_flags = SA_SIGINFO};
    struct sigaction trap = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO};
    size_t i = 0;

    while (i < N_REGIONS_MAX && regions[i].begin)
        i++;
    if (i == N_REGIONS_MAX)
        abort();
    regions[i].end = (uintptr_t)memory + (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    regions[i].begin = (uintptr_t)memory;
    sigaction(SIGSEGV, &fault, NULL);
    sigaction(SIGTRAP, &trap, NULL);
    if (mprotect(memory, bytes, PROT_NONE))
        abort();
}

void direct_unguard(void *memory)
{
    for (size_t i = 0; i < N_REGIONS_MAX; i++)
        if (regions[i].begin == (uintptr_t)memory)
            regions[i].begin = regions[i].end = 0;
}

unsigned long direct_guard_writes(void)
{
    return n_writes;
}
