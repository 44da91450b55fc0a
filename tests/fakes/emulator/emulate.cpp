/* emulate.cpp - runs one CUDA kernel on the CPU.  device_emulated.c compiles this file once for each kernel and set of
 * constants.
 *
 * Flow:      launch -> blocks, one after another in random order -> threads of a block.  Each thread has its own stack.
 *            Threads are switched where they wait for each other: at a barrier of the block, at a barrier with a
 *            number, at a barrier in shared memory, or with some lanes of a warp.
 * Finds:     a missing barrier (between barriers the threads run in random order); shared memory read before it is
 *            written (filled with NaN before each block) or accessed beyond the size of the launch (guarded); a
 *            misaligned access or an index beyond an array (compiled in: the program ends with SIGILL); threads that
 *            wait for threads at another barrier; a barrier in shared memory that is not initialised, or waited for
 *            wrongly.  Each of these ends the program with a sentence.
 * Misses:    mistakes that show only if blocks run at the same time; reorderings that the memory model allows and x86
 *            does not; speed.
 *
 * KERNEL is the kernel's name, KERNEL_FILE its source, KERNEL_ARGS its struct of arguments; sizes are -D constants, as
 * NVRTC gets them. */
#include "tests/fakes/emulator/cuda_on_cpu.h"

#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>

#include "common/device/device.h"

#define MAX_THREADS   1024
#define WARP          32
#define SHARED_BYTES  232448 /* the most that a block can have on any device, 227 KiB */
#define GUARD_BYTES   4096
#define STACK_BYTES   (128 << 10)
#define GUARD_BYTE    0xA5
#define SHARED_POISON 0xFFC5A5A5u /* as a float it is not a number */

#define MAX_COPIES 512 /* of a thread, on their way */

uint3 threadIdx, blockIdx, blockDim, gridDim;
uint32_t emulate_registers[32][32][6];
alignas(1024) float4 shared_memory[(SHARED_BYTES + GUARD_BYTES) / sizeof(float4)];

#include KERNEL_FILE

#define STRING_OF(x) #x
#define STRING(x)    STRING_OF(x)

/* ---- Switching stacks -------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
struct context {
    void *stack_pointer;
};

/* Saves what the calling convention keeps on this stack, leaves its top in *from, and goes on where *to was left. */
extern "C" void emulate_switch(struct context *from, const struct context *to);
__asm__(".text\n"
        ".type emulate_switch, @function\n"
        "emulate_switch:\n"
        "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
        "    mov %rsp, (%rdi)\n"
        "    mov (%rsi), %rsp\n"
        "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n"
        "    ret\n"
        ".size emulate_switch, .-emulate_switch\n");

static void context_init(struct context *context, uint8_t *stack, void (*entry)())
{
    void **top = (void **)(stack + STACK_BYTES);

    *--top = NULL; /* where 'entry' would return to; it never does */
    *--top = (void *)entry;
    for (int i = 0; i < 6; i++)
        *--top = NULL;
    context->stack_pointer = top;
}
#else
#include <ucontext.h>

struct context {
    ucontext_t saved;
};

static void emulate_switch(struct context *from, const struct context *to)
{
    swapcontext(&from->saved, &to->saved);
}

static void context_init(struct context *context, uint8_t *stack, void (*entry)())
{
    getcontext(&context->saved);
    context->saved.uc_stack.ss_sp = stack;
    context->saved.uc_stack.ss_size = STACK_BYTES;
    makecontext(&context->saved, entry, 0);
}
#endif

/* ---- Threads of the block ---------------------------------------------------------------------------------------- */

enum state { READY, AT_BLOCK_BARRIER, AT_NAMED_BARRIER, AT_MEMORY_BARRIER, AT_WARP, ENDED };

struct copy {
    void *to;
    const void *from;
    unsigned bytes, group;
};

struct thread {
    struct context context;
    struct copy copies[MAX_COPIES]; /* in order */
    unsigned n_copies, group;
    enum state state;
    enum emulate_warp_kind kind;
    unsigned mask, source;   /* of AT_NAMED_BARRIER: its number */
    uint64_t value;          /* in: this lane's; out: the result */
    const uint64_t *barrier; /* of AT_MEMORY_BARRIER */
};

/* Threads that have come to a barrier with a number since it last opened. */
#define N_NAMED 16 /* as PTX has them */
static struct {
    unsigned n_arrived, n_expected;
} named[N_NAMED];

static struct thread threads[MAX_THREADS];
static struct thread *current;
static struct context scheduler;
static uint8_t *stacks;
static KERNEL_ARGS kernel_args;
static uint64_t random_state;

[[noreturn]] static void fail(const char *what)
{
    fprintf(stderr, "emulated kernel " STRING(KERNEL) ", block (%u, %u, %u), thread %d: %s\n", blockIdx.x, blockIdx.y,
            blockIdx.z, current ? (int)(current - threads) : -1, what);
    abort();
}

/* SplitMix64, as in test_random.h. */
static size_t random_below(size_t n)
{
    uint64_t z = random_state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (size_t)((z ^ (z >> 31)) % n);
}

template <typename T> static void shuffle(T *items, size_t n)
{
    for (size_t i = n; i > 1; i--) {
        size_t j = random_below(i);
        T item = items[i - 1];
        items[i - 1] = items[j];
        items[j] = item;
    }
}

static void leave(enum state state)
{
    current->state = state;
    emulate_switch(&current->context, &scheduler);
}

static void thread_main()
{
    KERNEL(kernel_args);
    leave(ENDED);
}

void emulate_block_barrier()
{
    leave(AT_BLOCK_BARRIER);
}

void emulate_barrier_wait(unsigned barrier, unsigned n_threads)
{
    if (barrier >= N_NAMED || n_threads % WARP || (named[barrier].n_arrived && named[barrier].n_expected != n_threads))
        fail("a barrier that there is not, or that others expect other numbers at");
    current->source = barrier;
    current->state = AT_NAMED_BARRIER;
    named[barrier].n_expected = n_threads;
    if (++named[barrier].n_arrived == n_threads) {
        named[barrier].n_arrived = 0;
        for (unsigned i = 0; i < blockDim.x; i++)
            if (threads[i].state == AT_NAMED_BARRIER && threads[i].source == barrier)
                threads[i].state = READY;
    }
    leave(current->state);
}

/* What is in a barrier's 8 bytes. */
struct memory_barrier {
    uint16_t magic, n_threads, n_arrived, n_openings;
};
#define BARRIER_MAGIC 0xBA44

static struct memory_barrier load_barrier(const uint64_t *barrier)
{
    struct memory_barrier loaded;

    memcpy(&loaded, barrier, sizeof(loaded));
    if (loaded.magic != BARRIER_MAGIC)
        fail("a barrier in shared memory is used before it is made");
    return loaded;
}

void emulate_memory_barrier_init(uint64_t *barrier, uint32_t n_threads)
{
    const struct memory_barrier made = {BARRIER_MAGIC, (uint16_t)n_threads, 0, 0};

    memcpy(barrier, &made, sizeof(made));
}

void emulate_memory_barrier_arrive(uint64_t *barrier)
{
    struct memory_barrier loaded = load_barrier(barrier);

    if (++loaded.n_arrived == loaded.n_threads) {
        loaded.n_arrived = 0;
        loaded.n_openings++;
        for (unsigned i = 0; i < blockDim.x; i++)
            if (threads[i].state == AT_MEMORY_BARRIER && threads[i].barrier == barrier)
                threads[i].state = READY;
    }
    memcpy(barrier, &loaded, sizeof(loaded));
}

void emulate_memory_barrier_wait(uint64_t *barrier, uint32_t opening)
{
    uint16_t n_open = load_barrier(barrier).n_openings;

    if (n_open != (uint16_t)opening && n_open != (uint16_t)(opening + 1))
        fail("a thread waits for an opening of a barrier that is neither the last nor the next");
    if (n_open == (uint16_t)(opening + 1))
        return;
    current->barrier = barrier;
    leave(AT_MEMORY_BARRIER);
}

uint64_t emulate_warp(enum emulate_warp_kind kind, unsigned mask, unsigned source, uint64_t value)
{
    struct thread *self = current;

    if (!(mask >> (threadIdx.x % WARP) & 1))
        fail("a lane is not in the mask of its own warp operation");
    self->kind = kind;
    self->mask = mask;
    self->source = source;
    self->value = value;
    leave(AT_WARP);
    return self->value;
}

/* Copies that have not been waited for until they are: in a thread that ends, never. */
void emulate_copy_async(void *to, const void *from, unsigned bytes)
{
    if (current->n_copies == MAX_COPIES)
        fail("it has more asynchronous copies on their way than the emulator takes");
    if ((uintptr_t)to % bytes || (uintptr_t)from % bytes)
        fail("an asynchronous copy is not aligned to its size");
    current->copies[current->n_copies++] = {to, from, bytes, current->group};
}

void emulate_copies_commit()
{
    current->group++;
}

void emulate_copies_wait(unsigned n)
{
    struct thread *self = current;
    unsigned n_left = 0;

    for (unsigned i = 0; i < self->n_copies; i++) {
        const struct copy &copy = self->copies[i];
        if (copy.group + n < self->group)
            memcpy(copy.to, copy.from, copy.bytes);
        else
            self->copies[n_left++] = copy;
    }
    self->n_copies = n_left;
}

/* Lets the lanes go on that wait with 'first' of 'warp', if all of them do that have not ended. */
static void complete_warp(struct thread *warp, unsigned n_lanes, unsigned first)
{
    unsigned mask = warp[first].mask, present = 0, ballot = 0;
    uint64_t values[WARP];

    for (unsigned lane = 0; lane < n_lanes; lane++) {
        const struct thread *thread = &warp[lane];
        if (!(mask >> lane & 1) || thread->state == ENDED)
            continue;
        if (thread->state != AT_WARP || thread->mask != mask || thread->kind != warp[first].kind)
            return;
        present |= 1u << lane;
        ballot |= (unsigned)(thread->value != 0) << lane;
        values[lane] = thread->value;
    }
    for (unsigned lane = 0; lane < n_lanes; lane++) {
        struct thread *thread = &warp[lane];
        if (!(present >> lane & 1))
            continue;
        if (thread->kind == WARP_BALLOT)
            thread->value = ballot;
        else if (thread->kind == WARP_SHUFFLE) /* undefined from a lane that takes no part */
            thread->value = present >> thread->source & 1 ? values[thread->source] : UINT64_C(0xFFC5A5A5FFC5A5A5);
        thread->state = READY;
    }
}

/* Lets each thread of a warp run that can until it waits or ends, in random order, and those go on that need wait no
 * longer for each other.  Says whether there was any. */
static bool run_warp(unsigned first)
{
    unsigned n_lanes = blockDim.x - first < WARP ? blockDim.x - first : WARP, n_ready = 0;
    uint16_t order[WARP];
    bool any;

    for (unsigned lane = 0; lane < n_lanes; lane++)
        if (threads[first + lane].state == READY)
            order[n_ready++] = (uint16_t)(first + lane);
    any = n_ready > 0;
    shuffle(order, n_ready);
    for (unsigned i = 0; i < n_ready; i++) {
        current = &threads[order[i]];
        threadIdx.x = order[i];
        emulate_switch(&scheduler, &current->context);
    }
    current = NULL;
    for (unsigned lane = 0; lane < n_lanes; lane++)
        if (threads[first + lane].state == AT_WARP) {
            complete_warp(threads + first, n_lanes, lane);
            any |= threads[first + lane].state == READY;
        }
    return any;
}

/* Lets warps run, in random order, each for as long as it likes: often ahead of the others to the next barrier. */
static bool run_warps()
{
    unsigned n_warps = (blockDim.x + WARP - 1) / WARP;
    uint16_t order[MAX_THREADS / WARP];
    bool any = false;

    for (unsigned i = 0; i < n_warps; i++)
        order[i] = (uint16_t)i;
    shuffle(order, n_warps);
    for (unsigned i = 0; i < n_warps; i++) {
        bool ran;
        do {
            ran = run_warp(order[i] * WARP);
            any |= ran;
        } while (ran && random_below(16) > 0);
    }
    return any;
}

/* All threads that have not ended wait at the block's barrier: lets them go on.  Says whether there were any. */
static bool complete_block()
{
    size_t n_waiting = 0, n_warp = 0, n_named = 0;

    for (unsigned i = 0; i < blockDim.x; i++) {
        n_waiting += threads[i].state == AT_BLOCK_BARRIER;
        n_warp += threads[i].state == AT_WARP;
        n_named += threads[i].state == AT_NAMED_BARRIER || threads[i].state == AT_MEMORY_BARRIER;
    }
    if (n_warp > 0)
        fail("lanes wait in a warp operation for others that wait elsewhere");
    if (n_named > 0)
        fail("threads wait at a barrier with a number or in shared memory that too few come to");
    if (n_waiting > 0 && n_waiting < blockDim.x)
        fail("only some of the threads wait at a barrier; the others have ended");
    for (unsigned i = 0; i < blockDim.x; i++)
        if (threads[i].state == AT_BLOCK_BARRIER)
            threads[i].state = READY;
    return n_waiting > 0;
}

/* ---- Blocks ------------------------------------------------------------------------------------------------------ */

static void check_guard(uint32_t shared_bytes, size_t guard_bytes)
{
    const uint8_t *guard = (const uint8_t *)shared_memory + shared_bytes;

    for (size_t i = 0; i < guard_bytes; i++)
        if (guard[i] != GUARD_BYTE) {
            fprintf(stderr, "byte %zu of shared memory is written, of %u\n", shared_bytes + i, shared_bytes);
            fail("it writes beyond the launch's shared memory");
        }
}

static void run_block(uint32_t shared_bytes)
{
    uint32_t *words = (uint32_t *)shared_memory;

    for (size_t i = 0; i < shared_bytes / 4; i++)
        words[i] = SHARED_POISON;
    for (unsigned i = 0; i < blockDim.x; i++) {
        threads[i].state = READY;
        threads[i].n_copies = threads[i].group = 0;
        context_init(&threads[i].context, stacks + (size_t)i * STACK_BYTES, thread_main);
    }
    while (run_warps() || complete_block())
        continue;
    check_guard(shared_bytes, GUARD_BYTES);
}

static void prepare(const struct kernel_grid *grid)
{
    if (grid->threads < 1 || grid->threads > MAX_THREADS || grid->shared_bytes > SHARED_BYTES ||
        grid->shared_bytes % 4 || grid->blocks[0] < 1 || grid->blocks[0] > INT32_MAX || grid->blocks[1] < 1 ||
        grid->blocks[1] > 65535 || grid->blocks[2] < 1 || grid->blocks[2] > 65535) {
        fprintf(stderr, "blocks (%u, %u, %u) of %u threads, %u bytes shared\n", grid->blocks[0], grid->blocks[1],
                grid->blocks[2], grid->threads, grid->shared_bytes);
        fail("no device can launch this");
    }
    if (!stacks) {
        stacks = (uint8_t *)mmap(NULL, (size_t)MAX_THREADS * STACK_BYTES, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stacks == MAP_FAILED)
            fail("there is no memory for its stacks");
    }
    blockDim = {grid->threads, 1, 1};
    gridDim = {grid->blocks[0], grid->blocks[1], grid->blocks[2]};
    memset((uint8_t *)shared_memory + grid->shared_bytes, GUARD_BYTE, sizeof(shared_memory) - grid->shared_bytes);
}

extern "C" void emulate_launch(const struct kernel_grid *grid, const void *args, uint64_t seed)
{
    size_t n = (size_t)grid->blocks[0] * grid->blocks[1] * grid->blocks[2];
    size_t *order = (size_t *)malloc(n * sizeof(*order));

    random_state = seed;
    prepare(grid);
    memcpy(&kernel_args, args, sizeof(kernel_args));
    for (size_t i = 0; i < n; i++)
        order[i] = i;
    shuffle(order, n);
    for (size_t i = 0; i < n; i++) {
        blockIdx.x = (unsigned)(order[i] % gridDim.x);
        blockIdx.y = (unsigned)(order[i] / gridDim.x % gridDim.y);
        blockIdx.z = (unsigned)(order[i] / gridDim.x / gridDim.y);
        run_block(grid->shared_bytes);
    }
    check_guard(grid->shared_bytes, sizeof(shared_memory) - grid->shared_bytes);
    free(order);
}
