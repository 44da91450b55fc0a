/* explore.c - tries all orders of the steps of a scenario, depth first.  See explore.h.
 *
 * A run is a path in a tree.  Each node is a choice between the actions that are possible after the steps so far: one
 * thread takes its next step, the time passes, or a wait ends without a signal.  nodes[] is the current path. */
#include "tests/world/explore.h"

#include <link.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>

#define MAX_TASKS   12
#define MAX_ACTIONS (2 * MAX_TASKS + 1)
#define MAX_TOUCHED 40
#define MAX_STEPS   2000
#define STACK_BYTES (128 << 10)
#define TLS_BYTES   4096

enum kind { RUN, TIME, SPURIOUS, CHOICE };

struct action {
    uint8_t kind;
    uint8_t task; /* for CHOICE: the number chosen */
    uint8_t n_delays;
};

/* The objects that a step reads or changes. */
struct touched {
    size_t n;
    struct {
        const void *object;
        bool is_write;
    } items[MAX_TOUCHED];
};

struct asleep {
    struct action action;
    struct touched touched;
};

struct node {
    size_t n_actions, at; /* actions[at] is the present choice; the actions before it are done */
    struct action actions[MAX_ACTIONS];
    struct touched touched[MAX_ACTIONS];
    size_t n_asleep; /* actions that need not be tried here, because an equivalent order has been tried */
    struct asleep asleep[MAX_ACTIONS];
};

struct task {
    const char *name, *step; /* the step that follows */
    bool (*can_run)(const void *object);
    const void *object;
    const void *condition; /* that the task waits for; NULL: none */
    int64_t deadline_ns;
    bool is_woken, timed_out, has_ended;
    void *(*run)(void *arg);
    void *arg;
    ucontext_t context;
    uint8_t tls[TLS_BYTES]; /* the thread-local variables of the program while another task runs */
};

static const struct explore_scenario *scenario;
static struct node nodes[MAX_STEPS];
static size_t n_nodes;     /* length of the path */
static uint64_t n_runs;    /* runs of this scenario so far */
static uint64_t n_doubles; /* runs that turned out to be equivalent to earlier runs */

/* The run in progress. */
static struct {
    size_t depth;
    struct node *step; /* node of the step in progress; NULL: none is recorded */
    bool is_double;    /* the rest of this run is equivalent to an earlier run */
    unsigned n_delays, n_spurious;
    int64_t now_ns;
    struct task tasks[MAX_TASKS];
    unsigned n_tasks, self;
    ucontext_t driver;
    size_t n_trace;
    struct {
        struct action action;
        const char *step;
        const void *object;
    } trace[MAX_STEPS];
} run;

static uint8_t stacks[MAX_TASKS][STACK_BYTES];
static struct {
    uint8_t *block; /* the thread-local variables of the program */
    size_t n_bytes;
    uint8_t initial[TLS_BYTES];
} tls;

/* ---- Reports --------------------------------------------------------------------------------------------------- */

static void print_trace(void)
{
    static const char *const kinds[] = {"", "time passes", "wakes without a signal", ""};

    for (size_t i = 0; i < run.n_trace; i++) {
        struct action action = run.trace[i].action;
        if (action.kind == CHOICE)
            fprintf(stderr, "    choice %u\n", action.task);
        else if (action.kind == TIME)
            fprintf(stderr, "    %s\n", kinds[TIME]);
        else
            fprintf(stderr, "    %s: %s%s %p\n", run.tasks[action.task].name, kinds[action.kind], run.trace[i].step,
                    run.trace[i].object);
    }
}

_Noreturn void explore_fail(const char *format, ...)
{
    va_list args;

    fflush(stdout);
    fprintf(stderr, "explore: %s, run %llu: ", scenario->name, (unsigned long long)n_runs);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "; the steps were:\n");
    print_trace();
    _Exit(1);
}

static void on_abort(int signal_number)
{
    explore_fail("an assertion failed in thread %s", run.tasks[run.self].name);
}

static void note(struct action action)
{
    if (run.n_trace == MAX_STEPS)
        explore_fail("more than %d steps", MAX_STEPS);
    run.trace[run.n_trace].action = action;
    run.trace[run.n_trace].step = action.kind == CHOICE ? NULL : run.tasks[action.task].step;
    run.trace[run.n_trace++].object = action.kind == CHOICE ? NULL : run.tasks[action.task].object;
}

/* ---- Steps that touch the same objects ------------------------------------------------------------------------- */

void explore_touch(const void *object, bool is_write)
{
    if (!run.step || scenario->n_delays != EXPLORE_ALL)
        return;
    struct touched *touched = &run.step->touched[run.step->at];
    for (size_t i = 0; i < touched->n; i++)
        if (touched->items[i].object == object) {
            touched->items[i].is_write |= is_write;
            return;
        }
    if (touched->n == MAX_TOUCHED)
        explore_fail("a step touches more than %d objects", MAX_TOUCHED);
    touched->items[touched->n].object = object;
    touched->items[touched->n++].is_write = is_write;
}

static bool depend(const struct touched *a, const struct touched *b)
{
    for (size_t i = 0; i < a->n; i++)
        for (size_t k = 0; k < b->n; k++)
            if (a->items[i].object == b->items[k].object && (a->items[i].is_write || b->items[k].is_write))
                return true;
    return false;
}

static void fall_asleep(struct node *node, const struct action *action, const struct touched *touched)
{
    node->asleep[node->n_asleep].action = *action;
    node->asleep[node->n_asleep].touched.n = touched->n;
    memcpy(node->asleep[node->n_asleep++].touched.items, touched->items, touched->n * sizeof(touched->items[0]));
}

/* Copies the sleeping actions of the last step's node that the last step does not wake.  The actions that have been
 * tried there before this step also sleep. */
static void inherit_asleep(struct node *node, const struct node *last)
{
    const struct touched *step = &last->touched[last->at];

    node->n_asleep = 0;
    for (size_t i = 0; i < last->n_asleep; i++)
        if (!depend(&last->asleep[i].touched, step))
            fall_asleep(node, &last->asleep[i].action, &last->asleep[i].touched);
    for (size_t i = 0; i < last->at; i++)
        if (!depend(&last->touched[i], step))
            fall_asleep(node, &last->actions[i], &last->touched[i]);
}

static bool is_asleep(const struct node *node, struct action action)
{
    for (size_t i = 0; i < node->n_asleep; i++)
        if (node->asleep[i].action.kind == action.kind && node->asleep[i].action.task == action.task)
            return true;
    return false;
}

/* ---- Possible actions ------------------------------------------------------------------------------------------ */

static bool is_ready(const struct task *task)
{
    return !task->has_ended && (!task->condition || task->is_woken) && task->can_run(task->object);
}

static bool has_deadline(const struct task *task)
{
    return !task->has_ended && task->condition && !task->is_woken && task->deadline_ns != EXPLORE_NEVER;
}

bool explore_has_deadlines(void)
{
    for (unsigned t = 0; t < run.n_tasks; t++)
        if (has_deadline(&run.tasks[t]))
            return true;
    return false;
}

/* Lists the possible actions.  The first action needs no delay: the running task continues, or else the next task that
 * can.  Each further task needs one delay more.  Time that passes and a wait that ends need one delay. */
static size_t list_actions(struct action *actions)
{
    size_t n = 0;

    for (unsigned k = 0; k < run.n_tasks; k++) {
        unsigned t = (run.self + k) % run.n_tasks;
        if (is_ready(&run.tasks[t])) {
            actions[n] = (struct action){RUN, (uint8_t)t, (uint8_t)n};
            n++;
        }
    }
    bool could_run = n > 0;
    if (explore_has_deadlines())
        actions[n++] = (struct action){.kind = TIME, .n_delays = could_run};
    for (unsigned t = 0; t < run.n_tasks && run.n_spurious < scenario->n_spurious; t++)
        if (run.tasks[t].condition && !run.tasks[t].is_woken && !run.tasks[t].has_ended)
            actions[n++] = (struct action){SPURIOUS, (uint8_t)t, 1};
    return n;
}

static void report_deadlock(void)
{
    for (unsigned t = 0; t < run.n_tasks; t++)
        if (!run.tasks[t].has_ended)
            fprintf(stderr, "explore: thread %s waits: %s %p\n", run.tasks[t].name, run.tasks[t].step,
                    run.tasks[t].object);
    explore_fail("deadlock");
}

/* ---- Choices --------------------------------------------------------------------------------------------------- */

static struct node *add_node(void)
{
    if (n_nodes == MAX_STEPS)
        explore_fail("more than %d steps", MAX_STEPS);
    struct node *node = &nodes[n_nodes++];
    node->n_actions = node->at = node->n_asleep = 0;
    run.depth++;
    return node;
}

static void add_action(struct node *node, struct action action)
{
    node->touched[node->n_actions].n = 0;
    node->actions[node->n_actions++] = action;
}

/* Makes the node of a new choice.  Returns its first action. */
static struct action choose_new(const struct action *possible, size_t n)
{
    const struct node *last = run.step;
    struct node *node = add_node();

    if (last && scenario->n_delays == EXPLORE_ALL)
        inherit_asleep(node, last);
    for (size_t i = 0; i < n; i++)
        if (!is_asleep(node, possible[i]) && run.n_delays + possible[i].n_delays <= scenario->n_delays)
            add_action(node, possible[i]);
    if (node->n_actions > 0) {
        run.step = node;
        return node->actions[0];
    }
    n_nodes--;
    n_doubles++;
    run.is_double = true;
    run.step = NULL;
    return possible[0];
}

static struct action choose(void)
{
    struct action possible[MAX_ACTIONS], chosen;
    size_t n = list_actions(possible);

    if (n == 0 || possible[0].kind == SPURIOUS)
        report_deadlock();
    if (run.is_double) {
        chosen = possible[0];
    } else if (run.depth < n_nodes) {
        run.step = &nodes[run.depth++];
        chosen = run.step->actions[run.step->at];
    } else {
        chosen = choose_new(possible, n);
    }
    run.n_delays += scenario->n_delays == EXPLORE_ALL ? 0 : chosen.n_delays;
    note(chosen);
    return chosen;
}

unsigned explore_choose(unsigned n)
{
    struct action chosen = {.kind = CHOICE};

    if (n > MAX_ACTIONS)
        explore_fail("a choice of more than %d", MAX_ACTIONS);
    if (!run.is_double && run.depth < n_nodes) {
        chosen = nodes[run.depth].actions[nodes[run.depth].at];
        run.depth++;
    } else if (!run.is_double) {
        struct node *node = add_node();
        for (unsigned i = 0; i < n; i++)
            add_action(node, (struct action){CHOICE, (uint8_t)i, 0});
    }
    note(chosen);
    return chosen.task;
}

/* Moves to the next path.  Returns false if all paths are done. */
static bool next_path(void)
{
    while (n_nodes > 0 && ++nodes[n_nodes - 1].at == nodes[n_nodes - 1].n_actions)
        n_nodes--;
    return n_nodes > 0;
}

/* ---- Tasks ----------------------------------------------------------------------------------------------------- */

static void wake_task(struct task *task)
{
    if (task->deadline_ns != EXPLORE_NEVER)
        explore_touch(&run.now_ns, false);
    explore_touch(task->condition, true);
    task->is_woken = true;
}

static void pass_time(void)
{
    int64_t first_ns = EXPLORE_NEVER;

    for (unsigned t = 0; t < run.n_tasks; t++)
        if (has_deadline(&run.tasks[t]) && run.tasks[t].deadline_ns < first_ns)
            first_ns = run.tasks[t].deadline_ns;
    explore_touch(&run.now_ns, true);
    run.now_ns = first_ns > run.now_ns ? first_ns : run.now_ns;
    for (unsigned t = 0; t < run.n_tasks; t++)
        if (has_deadline(&run.tasks[t]) && run.tasks[t].deadline_ns <= run.now_ns) {
            wake_task(&run.tasks[t]);
            run.tasks[t].timed_out = true;
        }
}

/* Takes actions until a task takes a step.  Returns its number. */
static unsigned next_task(void)
{
    for (;;) {
        struct action action = choose();
        if (action.kind == RUN)
            return action.task;
        if (action.kind == TIME) {
            pass_time();
        } else {
            explore_touch(&run.n_spurious, true);
            run.n_spurious++;
            wake_task(&run.tasks[action.task]);
        }
    }
}

static void enter(unsigned next)
{
    run.self = next;
    memcpy(tls.block, run.tasks[next].tls, tls.n_bytes);
}

static void switch_task(void)
{
    struct task *from = &run.tasks[run.self];
    unsigned next = next_task();

    if (next == run.self)
        return;
    memcpy(from->tls, tls.block, tls.n_bytes);
    enter(next);
    swapcontext(&from->context, &run.tasks[next].context);
}

static bool always(const void *object)
{
    return true;
}

void explore_block(const char *step, bool (*can_run)(const void *object), const void *object)
{
    struct task *task = &run.tasks[run.self];

    task->step = step;
    task->can_run = can_run ? can_run : always;
    task->object = object;
    task->condition = NULL;
    switch_task();
}

bool explore_wait(const void *condition, int64_t deadline_ns, bool (*can_run)(const void *object), const void *object)
{
    struct task *task = &run.tasks[run.self];

    explore_touch(condition, true);
    if (deadline_ns != EXPLORE_NEVER)
        explore_touch(&run.now_ns, false);
    task->step = "continue after a wait with";
    task->can_run = can_run ? can_run : always;
    task->object = object;
    task->condition = condition;
    task->deadline_ns = deadline_ns;
    task->is_woken = task->timed_out = false;
    switch_task();
    task->condition = NULL;
    return !task->timed_out;
}

void explore_wake(const void *condition, bool all)
{
    unsigned waiting[MAX_TASKS], n = 0;

    explore_touch(condition, true);
    for (unsigned t = 0; t < run.n_tasks; t++)
        if (!run.tasks[t].has_ended && run.tasks[t].condition == condition && !run.tasks[t].is_woken)
            waiting[n++] = t;
    if (n == 0)
        return;
    unsigned one = all || n == 1 ? 0 : explore_choose(n);
    for (unsigned k = 0; k < n; k++)
        if (all || k == one)
            wake_task(&run.tasks[waiting[k]]);
}

void explore_access(const void *data, bool is_write)
{
    explore_block(is_write ? "write" : "read", NULL, data);
    explore_touch(data, is_write);
}

int64_t explore_now_ns(void)
{
    explore_touch(&run.now_ns, false);
    return run.now_ns;
}

unsigned explore_self(void)
{
    return run.self;
}

static bool has_ended(const void *object)
{
    return ((const struct task *)object)->has_ended;
}

static void run_task(void)
{
    struct task *task = &run.tasks[run.self];

    task->run(task->arg);
    task->has_ended = true;
    explore_touch(task, true);
    for (unsigned t = 0; t < run.n_tasks; t++)
        if (!run.tasks[t].has_ended) {
            unsigned next = next_task();
            enter(next);
            setcontext(&run.tasks[next].context);
        }
    setcontext(&run.driver);
}

unsigned explore_start(const char *name, void *(*start)(void *arg), void *arg)
{
    if (run.n_tasks == MAX_TASKS)
        explore_fail("more than %d threads", MAX_TASKS);
    unsigned number = run.n_tasks++;
    struct task *task = &run.tasks[number];
    task->name = name;
    task->run = start;
    task->arg = arg;
    task->step = "begin";
    task->can_run = always;
    task->object = task->condition = NULL;
    task->has_ended = false;
    memcpy(task->tls, tls.initial, tls.n_bytes);
    getcontext(&task->context);
    task->context.uc_stack.ss_sp = stacks[number];
    task->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&task->context, run_task, 0);
    explore_touch(task, true);
    return number;
}

void explore_join(unsigned number)
{
    explore_block("join", has_ended, &run.tasks[number]);
    explore_touch(&run.tasks[number], true);
}

/* ---- Runs ------------------------------------------------------------------------------------------------------ */

static void *run_scenario(void *arg)
{
    scenario->run();
    return NULL;
}

static void run_once(void)
{
    run.depth = run.n_delays = run.n_spurious = run.n_tasks = 0;
    run.n_trace = 0;
    run.step = NULL;
    run.is_double = false;
    run.now_ns = EXPLORE_START_NS;
    explore_memory_begin();
    explore_start("main", run_scenario, NULL);
    enter(0);
    swapcontext(&run.driver, &run.tasks[0].context);
    memcpy(tls.block, tls.initial, tls.n_bytes);
    explore_memory_end();
    n_runs++;
}

/* Finds the thread-local variables of the program, in the first of the loaded objects. */
static int find_tls(struct dl_phdr_info *info, size_t n_bytes, void *arg)
{
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_TLS) {
            tls.block = info->dlpi_tls_data;
            tls.n_bytes = info->dlpi_phdr[i].p_memsz;
        }
    return 1;
}

uint64_t explore(const struct explore_scenario *chosen)
{
    struct timespec start, end;

    scenario = chosen;
    n_nodes = 0;
    n_runs = n_doubles = 0;
    signal(SIGABRT, on_abort);
    dl_iterate_phdr(find_tls, NULL);
    if (tls.n_bytes > TLS_BYTES)
        explore_fail("the thread-local variables have more than %d bytes", TLS_BYTES);
    memcpy(tls.initial, tls.block, tls.n_bytes);
    clock_gettime(CLOCK_MONOTONIC, &start);
    do
        run_once();
    while (next_path());
    clock_gettime(CLOCK_MONOTONIC, &end);
    double seconds = (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) * 1e-9;
    printf("%-28s %9llu schedules", chosen->name, (unsigned long long)(n_runs - n_doubles));
    if (chosen->n_delays == EXPLORE_ALL)
        printf(", all that differ");
    else
        printf(", all with at most %u delays", chosen->n_delays);
    printf(", %.2f s\n", seconds);
    return n_runs - n_doubles;
}
