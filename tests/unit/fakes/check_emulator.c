/* check_emulator - the device that runs CUDA kernels on the CPU.  It computes as a GPU does, and finds the mistakes
 * that its header lists. */
#include "common/base/units.h"
#include "tests/fakes/emulator/device_emulated.h"
#include "tests/fakes/emulator/emulator_example.h"
#include "tests/fakes/emulator/kernel_cache.h"

#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_BLOCKS 20
#define MAX_N      500

static const struct kernel example = {.name = "emulator_example", .args_bytes = sizeof(struct emulator_example_args)};

/* out[block][]; returns false where there is no compiler. */
static bool run(enum emulator_mistake mistake, uint32_t threads, uint32_t n_blocks, uint32_t n, const uint32_t *in,
                uint64_t *out)
{
    const struct kernel_constant constants[] = {{"MISTAKE", (long)mistake}, {"THREADS", (long)threads}};
    struct emulator_example_args args = {.in = in, .out = out, .n = n};
    struct kernel_grid grid = {{n_blocks, 1, 1}, threads, 2 * threads * sizeof(uint32_t)};
    struct device *device;
    struct device_stream *stream;
    struct device_kernel *kernel;
    int err = device_emulated_open(&device);

    if (err == -ENOPKG)
        return false;
    ck_assert_int_eq(err, 0);
    ck_assert_int_eq(device_stream_create(device, "test", &stream), 0);
    ck_assert_int_eq(device_kernel_create(device, &example, constants, 2, &kernel), 0);
    device_launch(stream, kernel, &grid, &args);
    device_stream_wait(stream);
    device_kernel_destroy(kernel);
    device_stream_destroy(stream);
    device_close(device);
    return true;
}

/* One run on random input: how many of the sums are wrong.  A block whose 8 warps miss a barrier is right in 1 of 128
 * random orders, so runs with a mistake have many blocks. */
static size_t n_wrong(enum emulator_mistake mistake, uint32_t threads)
{
    uint32_t n_blocks = mistake == MISTAKE_NONE ? 1 + (uint32_t)random_below(MAX_BLOCKS) : MAX_BLOCKS;
    uint32_t n = 1 + (uint32_t)random_below(MAX_N);
    uint32_t *in = malloc(n_blocks * n * sizeof(*in));
    uint64_t *out = malloc(n_blocks * EXAMPLE_N_SUMS * sizeof(*out));
    size_t wrong = 0;

    ck_assert(in && out);
    for (size_t i = 0; i < n_blocks * n; i++)
        in[i] = (uint32_t)random_below(1 << 20);
    memset(out, 0xa5, n_blocks * EXAMPLE_N_SUMS * sizeof(*out));
    if (run(mistake, threads, n_blocks, n, in, out))
        for (size_t block = 0; block < n_blocks; block++) {
            uint64_t sum = 0;
            for (size_t i = 0; i < n; i++)
                sum += in[block * n + i];
            for (size_t i = 0; i < EXAMPLE_N_SUMS; i++)
                wrong += out[block * EXAMPLE_N_SUMS + i] != sum;
        }
    free(out);
    free(in);
    return wrong;
}

static bool has_compiler(void)
{
    uint32_t in[32] = {0};
    uint64_t out[EXAMPLE_N_SUMS];

    return run(MISTAKE_NONE, 32, 1, 32, in, out);
}

TEST(sums)
{
    static const uint32_t threads[] = {32, 128, 512};

    for (int trial = 0; trial < 30; trial++)
        ck_assert_uint_eq(n_wrong(MISTAKE_NONE, threads[random_below(3)]), 0);
}

/* Threads run in random order between barriers, and warps as far as they can alone, so a barrier that is missing shows. */
TEST(missing_barrier, .end = 2)
{
    static const enum emulator_mistake mistakes[] = {MISTAKE_NO_BARRIER, MISTAKE_WARP_AHEAD};

    if (has_compiler())
        ck_assert_uint_gt(n_wrong(mistakes[_i], 256), 0);
}

TEST(unwritten_shared_memory)
{
    uint32_t in[64] = {0}, bits;
    uint64_t out[EXAMPLE_N_SUMS];
    float value;

    if (!run(MISTAKE_SHARED_UNWRITTEN, 64, 1, 64, in, out))
        return;
    bits = (uint32_t)out[0];
    memcpy(&value, &bits, sizeof(value));
    ck_assert(isnan(value));
}

/* Those end the process with a sentence. */
static const struct {
    enum emulator_mistake mistake;
    const char *sentence;
} ends[] = {
    {MISTAKE_SHARED_OVERRUN, "it writes beyond the launch's shared memory"},
    {MISTAKE_EARLY_EXIT, "only some of the threads wait at a barrier; the others have ended"},
    {MISTAKE_LONE_LANE, "lanes wait in a warp operation for others that wait elsewhere"},
    {MISTAKE_BARRIER_UNMADE, "a barrier in shared memory is used before it is made"},
    {MISTAKE_BARRIER_TOO_FEW, "threads wait at a barrier with a number or in shared memory that too few come to"},
    {MISTAKE_BARRIER_AHEAD, "a thread waits for an opening of a barrier that is neither the last nor the next"},
    {MISTAKE_BARRIER_BEHIND, "a thread waits for an opening of a barrier that is neither the last nor the next"},
};

TEST(ends_the_process, .end = ARRAY_LEN(ends))
{
    FILE *file = tmpfile();
    char said[1000];
    int status;
    pid_t pid;

    ck_assert(file);
    if (!has_compiler())
        return;
    pid = fork();
    if (pid == 0) {
        dup2(fileno(file), STDERR_FILENO);
        n_wrong(ends[_i].mistake, 64);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    rewind(file);
    said[fread(said, 1, sizeof(said) - 1, file)] = '\0';
    fclose(file);
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "it goes on, and says: %s", said);
    ck_assert_msg(strstr(said, ends[_i].sentence), "%s", said);
}

/* Those end it with a signal; where there is no compiler, so does this. */
TEST(traps, .end = 2, .signal = SIGILL)
{
    static const enum emulator_mistake mistakes[] = {MISTAKE_MISALIGNED, MISTAKE_INDEX};

    if (!has_compiler())
        raise(SIGILL);
    n_wrong(mistakes[_i], 64);
}

#ifdef __SANITIZE_ADDRESS__
TEST(global_overrun, .exit_status = 1)
{
    if (!has_compiler())
        exit(1);
    n_wrong(MISTAKE_GLOBAL_OVERRUN, 64);
}
#endif

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    ck_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* What the object's function returns. */
static int load_value(const char *command)
{
    void *object = kernel_cache_load("example", command);
    int (*value)(void), got;

    ck_assert_ptr_nonnull(object);
    *(void **)&value = dlsym(object, "value");
    ck_assert(value);
    got = value();
    dlclose(object);
    return got;
}

/* A command of the test writes a byte into this file. */
static long n_compilations(void)
{
    struct stat file;

    return stat("compiled", &file) == 0 ? (long)file.st_size : 0;
}

TEST(compiled_once_until_a_file_changes)
{
    const char *command = "printf x >>compiled && g++ -shared -fPIC value.cpp";
    char directory[] = "/tmp/check_emulator-XXXXXX";
    pid_t children[4];

    if (!kernel_cache_has_compiler())
        return;
    ck_assert(mkdtemp(directory) && chdir(directory) == 0);
    write_text("value.cpp", "#include \"value.h\"\nextern \"C\" int value() { return VALUE; }\n");
    write_text("value.h", "#ifndef VALUE\n#define VALUE 1\n#endif\n");
    ck_assert_int_eq(load_value(command), 1);
    ck_assert_int_eq(load_value(command), 1);
    ck_assert_int_eq(n_compilations(), 1);
    ck_assert_int_eq(load_value("printf x >>compiled && g++ -shared -fPIC value.cpp -DVALUE=2"), 2);
    ck_assert_int_eq(n_compilations(), 2);

    write_text("value.h", "#define VALUE 3\n");
    for (size_t i = 0; i < ARRAY_LEN(children); i++) { /* together: each finds a whole object, whoever compiles it */
        children[i] = fork();
        if (children[i] == 0)
            _exit(load_value(command));
    }
    for (size_t i = 0; i < ARRAY_LEN(children); i++) {
        int status;
        ck_assert_int_eq(waitpid(children[i], &status, 0), children[i]);
        ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    }
    ck_assert_int_ge(n_compilations(), 3);

    write_text("value.h", "no C\n");
    ck_assert_ptr_null(kernel_cache_load("example", command));
    write_text("value.h", "#define VALUE 4\n");
    ck_assert_int_eq(load_value(command), 4);
    ck_assert_int_eq(system("rm value.* compiled build-emulated/example-* && rmdir build-emulated"), 0); /* no more */
    ck_assert(chdir("/") == 0 && rmdir(directory) == 0);
}

SUITE(.timeout_s = 60, .start = random_start);
