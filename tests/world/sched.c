/* sched.c - chooses the thread that runs, and advances the virtual time.  See sched.h.
 *
 * A thread of the world is a thread of the process with a semaphore, its turn.  Only the running thread accesses the
 * data below.  It passes its turn on when it waits, and sometimes at a seam. */
#include "tests/world/sched.h"

#include "common/base/units.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST_NS   (1000 * NS_PER_S) /* no scenario lasts as long */
#define MAX_THREADS  128
#define MAX_NOTES    512
#define MAX_LEFT_OUT 16
#define SEAM_NS      40                  /* virtual time that a seam takes */
#define UNIX_NS      1760000000000000000 /* the UNIX clock at virtual time 0 */

enum state { UNUSED, RUNNABLE, WAITING, ENDED };

struct task {
    enum state state;
    const char *name;
    pthread_t handle;
    sem_t turn;
    const void *object; /* that the task waits for */
    int64_t deadline_ns;
    bool woken;
    void *(*run)(void *arg);
    void *arg;
};

struct event {
    int64_t ns;
    uint64_t order; /* events of the same time run in the order of world_at() */
    void (*run)(void *arg);
    void *arg;
};

static struct {
    uint64_t seed, random, digest, n_events_ever;
    int64_t now_ns;
    struct task tasks[MAX_THREADS];
    unsigned n_tasks;
    struct event *events; /* a heap; the earliest event is first */
    size_t n_events, max_events;
} world;

static struct note {
    char name[128];
    uint64_t n;
} notes[MAX_NOTES];

static struct {
    const char *name, *reason;
} left_out[MAX_LEFT_OUT];
static size_t n_left_out;

static _Thread_local unsigned self;

/* ---- Chance ---------------------------------------------------------------------------------------------------------- */

/* SplitMix64 (Steele, Lea and Flood 2014). */
static uint64_t next_random(void)
{
    uint64_t z = world.random += 0x9E3779B97F4A7C15;

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
}

uint64_t world_random(uint64_t n)
{
    return (uint64_t)((unsigned __int128)next_random() * n >> 64);
}

bool world_chance(double probability)
{
    return probability > 0 && (double)(next_random() >> 11) * 0x1p-53 < probability;
}

void world_note_times(const char *name, uint64_t n)
{
    for (size_t i = 0; i < MAX_NOTES; i++) {
        if (!notes[i].name[0])
            strncat(notes[i].name, name, sizeof(notes[i].name) - 1);
        if (strcmp(notes[i].name, name) == 0) {
            notes[i].n += n;
            return;
        }
    }
    world_fail("more than %d kinds of notes", MAX_NOTES);
}

void world_note(const char *name)
{
    world_note_times(name, 1);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct note *)a)->name, ((const struct note *)b)->name);
}

void world_leave_out(const char *name, const char *reason)
{
    if (n_left_out == MAX_LEFT_OUT)
        world_fail("more than %d rows are left out", MAX_LEFT_OUT);
    left_out[n_left_out].name = name;
    left_out[n_left_out++].reason = reason;
}

/* Returns the reason for which a row is left out, or NULL. */
static const char *find_reason(const struct note *note)
{
    for (size_t i = 0; i < n_left_out; i++)
        if (strcmp(left_out[i].name, note->name) == 0) {
            if (note->n > 0)
                world_fail("%s occurred, although %s", note->name, left_out[i].reason);
            return left_out[i].reason;
        }
    return NULL;
}

void world_report(void)
{
    size_t n = 0;

    while (n < MAX_NOTES && notes[n].name[0])
        n++;
    qsort(notes, n, sizeof(notes[0]), compare_names);
    for (size_t i = 0; i < n; i++) {
        const char *reason = find_reason(&notes[i]);
        if (reason)
            printf("%12s  %s: %s\n", "left out", notes[i].name, reason);
        else if (notes[i].n > 0)
            printf("%12llu  %s\n", (unsigned long long)notes[i].n, notes[i].name);
        else
            printf("%12s  %s\n", "never", notes[i].name);
    }
}

void world_digest_bytes(const void *bytes, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i += 8) {
        uint64_t word = 0;
        memcpy(&word, (const uint8_t *)bytes + i, n_bytes - i < 8 ? n_bytes - i : 8);
        world.digest = (world.digest ^ word) * 0x9E3779B97F4A7C15;
        world.digest ^= world.digest >> 32;
    }
}

uint64_t world_digest(void)
{
    return world.digest;
}

void world_fail(const char *format, ...)
{
    va_list args;

    fflush(stdout);
    fprintf(stderr, "world: seed %llu, %.6f s: ", (unsigned long long)world.seed, (double)world.now_ns * 1e-9);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "; repeat with: --verbose %llu\n", (unsigned long long)world.seed);
    _Exit(1);
}

/* ---- Events ---------------------------------------------------------------------------------------------------------- */

static bool is_earlier(const struct event *a, const struct event *b)
{
    return a->ns < b->ns || (a->ns == b->ns && a->order < b->order);
}

static void swap(struct event *a, struct event *b)
{
    struct event kept = *a;

    *a = *b;
    *b = kept;
}

void world_at(int64_t ns, void (*run)(void *arg), void *arg)
{
    if (world.n_events == world.max_events) {
        world.max_events = world.max_events ? 2 * world.max_events : 1024;
        world.events = realloc(world.events, world.max_events * sizeof(*world.events));
        if (!world.events)
            world_fail("out of memory");
    }
    size_t i = world.n_events++;
    world.events[i] = (struct event){ns, world.n_events_ever++, run, arg};
    for (; i > 0 && is_earlier(&world.events[i], &world.events[(i - 1) / 2]); i = (i - 1) / 2)
        swap(&world.events[i], &world.events[(i - 1) / 2]);
}

static struct event take_event(void)
{
    struct event first = world.events[0];

    world.events[0] = world.events[--world.n_events];
    for (size_t i = 0;;) {
        size_t least = i;
        for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < world.n_events; child++)
            if (is_earlier(&world.events[child], &world.events[least]))
                least = child;
        if (least == i)
            return first;
        swap(&world.events[i], &world.events[least]);
        i = least;
    }
}

/* Runs the events that are due, and makes the threads runnable whose deadlines are past. */
static void pass_time(void)
{
    while (world.n_events > 0 && world.events[0].ns <= world.now_ns) {
        struct event event = take_event();
        event.run(event.arg);
    }
    for (unsigned i = 0; i < world.n_tasks; i++) {
        struct task *task = &world.tasks[i];
        if (task->state == WAITING && task->deadline_ns <= world.now_ns)
            task->state = RUNNABLE;
    }
}

/* ---- Choice of the next thread --------------------------------------------------------------------------------------- */

static void report_deadlock(void)
{
    for (unsigned i = 0; i < world.n_tasks; i++)
        if (world.tasks[i].state == WAITING)
            fprintf(stderr, "world: thread %u, %s, waits\n", i, world.tasks[i].name);
    world_fail("deadlock: no thread can run, and nothing will happen");
}

static int64_t next_time(void)
{
    int64_t next_ns = world.n_events > 0 ? world.events[0].ns : WORLD_NEVER;

    for (unsigned i = 0; i < world.n_tasks; i++)
        if (world.tasks[i].state == WAITING && world.tasks[i].deadline_ns < next_ns)
            next_ns = world.tasks[i].deadline_ns;
    return next_ns;
}

static unsigned choose(void)
{
    unsigned runnable[MAX_THREADS], n = 0;

    if (world.now_ns > LONGEST_NS)
        world_fail("the run has no end");
    pass_time();
    for (;;) {
        for (unsigned i = 0; i < world.n_tasks; i++)
            if (world.tasks[i].state == RUNNABLE)
                runnable[n++] = i;
        if (n > 0)
            return runnable[world_random(n)];
        int64_t next_ns = next_time();
        if (next_ns == WORLD_NEVER)
            report_deadlock();
        world.now_ns = next_ns > world.now_ns ? next_ns : world.now_ns;
        pass_time();
    }
}

static void await_turn(struct task *task)
{
    while (sem_wait(&task->turn))
        ;
}

/* Passes the turn to 'next'. */
static void pass_turn(unsigned next)
{
    world.digest = (world.digest ^ next ^ (uint64_t)world.now_ns) * 0x100000001B3;
    if (next == self)
        return;
    sem_post(&world.tasks[next].turn);
}

static void switch_to(unsigned next)
{
    pass_turn(next);
    if (next != self)
        await_turn(&world.tasks[self]);
}

void world_seam(void)
{
    world.now_ns += SEAM_NS;
    if (world_random(4) == 0)
        switch_to(choose());
}

bool world_wait(const void *object, int64_t deadline_ns)
{
    struct task *task = &world.tasks[self];

    task->state = WAITING;
    task->object = object;
    task->deadline_ns = deadline_ns;
    task->woken = false;
    switch_to(choose());
    return task->woken;
}

void world_wake(const void *object, bool all)
{
    unsigned waiting[MAX_THREADS], n = 0;

    for (unsigned i = 0; i < world.n_tasks; i++)
        if (world.tasks[i].state == WAITING && world.tasks[i].object == object)
            waiting[n++] = i;
    if (n == 0)
        return;
    unsigned one = all ? 0 : waiting[world_random(n)];
    for (unsigned k = 0; k < n; k++)
        if (all || waiting[k] == one) {
            world.tasks[waiting[k]].state = RUNNABLE;
            world.tasks[waiting[k]].woken = true;
        }
}

/* ---- Beginning and end of threads ------------------------------------------------------------------------------------ */

static void *run_task(void *arg)
{
    struct task *task = arg;

    self = (unsigned)(task - world.tasks);
    await_turn(task);
    task->run(task->arg);
    task->state = ENDED;
    world_wake(task, true);
    pass_turn(choose());
    return NULL;
}

unsigned world_start(const char *name, void *(*run)(void *arg), void *arg)
{
    unsigned number = 0;

    while (number < world.n_tasks && world.tasks[number].state != UNUSED)
        number++;
    if (number == MAX_THREADS)
        world_fail("more than %d threads", MAX_THREADS);
    if (number == world.n_tasks)
        world.n_tasks++;
    struct task *task = &world.tasks[number];
    *task = (struct task){.state = RUNNABLE, .name = name, .run = run, .arg = arg};
    sem_init(&task->turn, 0, 0);
    if (pthread_create(&task->handle, NULL, run_task, task))
        world_fail("cannot start a thread");
    return number;
}

void world_join(unsigned number)
{
    struct task *task = &world.tasks[number];

    while (task->state != ENDED)
        world_wait(task, WORLD_NEVER);
    pthread_join(task->handle, NULL);
    sem_destroy(&task->turn);
    task->state = UNUSED;
}

void world_begin(uint64_t seed)
{
    memset(&world, 0, sizeof(world));
    world.seed = world.random = seed;
    world.n_tasks = 1;
    world.tasks[0] = (struct task){.state = RUNNABLE, .name = "director"};
    sem_init(&world.tasks[0].turn, 0, 0);
    self = 0;
}

void world_end(void)
{
    while (world.n_events > 0) { /* the last packets are still on their way */
        struct event event = take_event();
        event.run(event.arg);
    }
    free(world.events);
    world.events = NULL;
    world.max_events = 0;
    for (unsigned i = 1; i < world.n_tasks; i++)
        if (world.tasks[i].state != UNUSED)
            world_fail("thread %u, %s, still exists at the end", i, world.tasks[i].name);
    sem_destroy(&world.tasks[0].turn);
}

/* ---- Time ------------------------------------------------------------------------------------------------------------ */

int64_t world_now_ns(void)
{
    return world.now_ns;
}

int64_t world_unix_ns(void)
{
    return UNIX_NS + world.now_ns;
}
