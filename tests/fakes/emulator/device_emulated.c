/* device_emulated.c - see device_emulated.h.  The cpu device does everything but kernels.  An emulated launch is a
 * launch of the cpu device.  In that launch, run_launch() is the kernel's C version, and runs the shared object. */
#include "tests/fakes/emulator/device_emulated.h"

#include "common/device/tensor_map.h"
#include "tests/fakes/emulator/kernel_cache.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
/* Finds what a kernel reads or writes beyond the device's memory.  Checks are calls, which compile twice as fast as
 * checks in the kernel's code. */
#define SANITIZE "-fsanitize=address --param asan-instrumentation-with-call-threshold=0 "
#else
#define SANITIZE ""
#endif

/* A loaded kernel.  Kept for all devices of the process. */
struct module {
    struct module *next;
    char *command; /* that compiles it: the key */
    void (*launch)(const struct kernel_grid *grid, const void *args, uint64_t seed);
    pthread_mutex_t lock; /* its launches share their stacks */
    uint64_t n_launches;  /* [lock] */
};

struct emulated_kernel {
    struct device_kernel base;
    struct device_kernel *plain_c; /* on the cpu device; NULL unless the .cu file is absent or EMULATE=compile */
    struct device_kernel as_cpu;
    struct module *module; /* NULL with 'plain_c' or EMULATE=compile */
};

/* What a launch hands to run_launch(), which frees it. */
struct launch {
    struct module *module;
    struct kernel_grid grid;
    uint8_t args[KERNEL_ARGS_MAX];
};

static const struct device_ops *cpu_ops;
static struct device_ops emulated_ops;
static uint64_t seed; /* of the order in which blocks and threads run */
static struct module *modules;
static pthread_mutex_t modules_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- Launching --------------------------------------------------------------------------------------------------- */

/* Once per process. */
static void choose_seed(void)
{
    const char *given = getenv("EMULATE_SEED");

    if (cpu_ops)
        return;
    if (given)
        seed = strtoull(given, NULL, 0);
    else if (getentropy(&seed, sizeof(seed)))
        abort();
    printf("EMULATE_SEED=%" PRIu64 "\n", seed);
}

static void run_launch(const void *args, int n_threads)
{
    struct launch *launch = *(struct launch *const *)args;

    pthread_mutex_lock(&launch->module->lock);
    launch->module->launch(&launch->grid, launch->args, seed + launch->module->n_launches++);
    pthread_mutex_unlock(&launch->module->lock);
    free(launch);
}

static const struct kernel emulated = {.name = "emulated", .args_bytes = sizeof(struct launch *), .cpu = run_launch};

static void emulated_launch(struct device_stream *stream, struct device_kernel *kernel, const struct kernel_grid *grid,
                            const void *args)
{
    struct emulated_kernel *self = (struct emulated_kernel *)kernel;
    struct launch *launch;

    if (self->plain_c) {
        cpu_ops->launch(stream, self->plain_c, grid, args);
        return;
    }
    if (!self->module)
        return;
    launch = calloc(1, sizeof(*launch));
    assert(launch && grid);
    launch->module = self->module;
    launch->grid = *grid;
    memcpy(launch->args, args, kernel->kernel->args_bytes);
    cpu_ops->launch(stream, &self->as_cpu, NULL, &launch);
}

/* ---- Loading ----------------------------------------------------------------------------------------------------- */

static char *compile_command(const char *file, const char *name, const struct kernel_constant *constants,
                             size_t n_constants)
{
    char *command = NULL;
    size_t bytes;
    FILE *text = open_memstream(&command, &bytes);

    if (!text)
        return NULL;
    /* Without the sanitizer's runtime: what it finds ends the program at once. */
    fprintf(text,
            "g++ -std=c++17 -O1 -g1 -ffp-contract=off -fno-strict-aliasing -Wall -Wextra -Wshadow -Werror "
            "-Wno-unknown-pragmas -Wno-unused-parameter -Wno-unused-function -fsanitize=alignment,bounds "
            "-fsanitize-undefined-trap-on-error " SANITIZE
            "-shared -fPIC -I. -DKERNEL=%s '-DKERNEL_ARGS=struct %s_args' '-DKERNEL_FILE=\"%s\"'",
            name, name, file);
    for (size_t i = 0; i < n_constants; i++)
        fprintf(text, " -D%s=%ld", constants[i].name, constants[i].value);
    fprintf(text, " tests/fakes/emulator/emulate.cpp");
    if (fclose(text)) {
        free(command);
        return NULL;
    }
    return command;
}

static int add_module(const char *name, char *command, struct module **module)
{
    struct module *new = calloc(1, sizeof(*new));
    void *object;

    if (!new)
        return -ENOMEM;
    object = kernel_cache_load(name, command);
    if (!object) {
        free(new);
        return -EINVAL;
    }
    *(void **)&new->launch = dlsym(object, "emulate_launch");
    assert(new->launch);
    new->command = command;
    pthread_mutex_init(&new->lock, NULL);
    new->next = modules;
    modules = new;
    *module = new;
    return 0;
}

/* Takes 'command' over. */
static int find_module(const char *name, char *command, struct module **module)
{
    struct module *found;
    int err = 0;

    pthread_mutex_lock(&modules_lock);
    for (found = modules; found && strcmp(found->command, command) != 0; found = found->next)
        continue;
    if (!found)
        err = add_module(name, command, &found);
    pthread_mutex_unlock(&modules_lock);
    if (err || found->command != command)
        free(command);
    if (!err)
        *module = found;
    return err;
}

bool device_emulated_only_compiles(void)
{
    const char *given = getenv("EMULATE");

    return given && strcmp(given, "compile") == 0;
}

/* Path of the kernel's .cu file; false if it has none. */
static bool find_source(const struct kernel *kernel, char *file, size_t file_bytes)
{
    glob_t found = {0};

    snprintf(file, file_bytes, "tests/fakes/emulator/%s.cu", kernel->name);
    if (access(file, R_OK) != 0)
        snprintf(file, file_bytes, "kernels/*/%s.cu", kernel->name);
    if (glob(file, 0, NULL, &found) == 0)
        snprintf(file, file_bytes, "%s", found.gl_pathv[0]);
    globfree(&found);
    return access(file, R_OK) == 0;
}

/* Takes 'command' over. */
static int only_compile(const char *name, char *command)
{
    bool compiled = kernel_cache_compile(name, command);

    free(command);
    return compiled ? 0 : -EINVAL;
}

static int emulated_kernel_create(struct device *device, const struct kernel *kernel,
                                  const struct kernel_constant *constants, size_t n_constants,
                                  struct device_kernel **made)
{
    struct emulated_kernel *new = calloc(1, sizeof(*new));
    bool only_compiles = device_emulated_only_compiles();
    char file[100];
    int err = 0;

    if (!new)
        return -ENOMEM;
    new->base = (struct device_kernel){device, kernel};
    new->as_cpu = (struct device_kernel){device, &emulated};
    bool has_source = find_source(kernel, file, sizeof(file));
    if (has_source) {
        char *command = compile_command(file, kernel->name, constants, n_constants);
        if (!command)
            err = -ENOMEM;
        else if (only_compiles)
            err = only_compile(kernel->name, command);
        else
            err = find_module(kernel->name, command, &new->module);
    }
    if (!err && (!has_source || (only_compiles && kernel->cpu)))
        err = cpu_ops->kernel_create(device, kernel, constants, n_constants, &new->plain_c);
    if (err) {
        free(new);
        return err;
    }
    *made = &new->base;
    return 0;
}

static void emulated_kernel_destroy(struct device_kernel *kernel)
{
    struct emulated_kernel *self = (struct emulated_kernel *)kernel;

    if (self->plain_c)
        cpu_ops->kernel_destroy(self->plain_c);
    free(self);
}

/* ---- Tensors ----------------------------------------------------------------------------------------------------- */

/* The map is the description itself. */
static void emulated_map_tensor(struct device_stream *stream, const struct device_tensor *tensor,
                                struct device_tensor_map *map)
{
    assert((uintptr_t)tensor->base % 16 == 0 && tensor->pitch[0] % 16 == 0 && tensor->pitch[1] % 16 == 0 &&
           tensor->box[0] % 16 == 0 && tensor->box[0] <= 256 && tensor->box[1] <= 256 && tensor->box[2] <= 256);
    _Static_assert(sizeof(*tensor) <= sizeof(*map), "it has room");
    memset(map, 0, sizeof(*map));
    memcpy(map, tensor, sizeof(*tensor));
}

/* ---- The device -------------------------------------------------------------------------------------------------- */

int device_emulated_open(struct device **device)
{
    const struct device_config config = {.kind = DEVICE_CPU, .n_threads = 1};
    struct device *new;
    int err;

    if (!kernel_cache_has_compiler()) {
        printf("There is no g++, so CUDA kernels are not tested on the CPU; on Debian: apt-get install -y g++\n");
        return -ENOPKG;
    }
    err = device_cpu_open(&config, &new);
    if (err)
        return err;
    choose_seed();
    cpu_ops = new->ops;
    emulated_ops = *cpu_ops;
    emulated_ops.kernel_create = emulated_kernel_create;
    emulated_ops.kernel_destroy = emulated_kernel_destroy;
    emulated_ops.launch = emulated_launch;
    new->ops = &emulated_ops;
    new->name = "emulated";
    new->compiles = true;
    emulated_ops.map_tensor = emulated_map_tensor;
    new->shared_bytes = 227 << 10;
    new->n_multiprocessors = 8;
    snprintf(new->model, sizeof(new->model), "emulated");
    *device = new;
    return 0;
}
