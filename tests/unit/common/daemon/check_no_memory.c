/* check_no_memory - programs read a configuration while each allocation fails in turn.  The table of keys, the checks
 * across keys and libyaml are the daemons' own.  A lack of memory must end a daemon with exit code 1, because a restart
 * may help.  Only an error of the file may end a daemon with EXIT_CONFIG. */
#include "common/base/units.h"
#include "common/config/config.h"
#include "common/daemon/command_line.h"
#include "common/daemon/service.h"
#include "fgpu/config/config.h"
#include "fgpu/config_check.h"
#include "tests/unit/test_file.h"
#include "tests/unit/test_main.h"
#include "tests/unit/test_no_memory.h"
#include "xbgpu/config/config.h"
#include "xbgpu/config_check.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- Runs -------------------------------------------------------------------------------------------------------- */

struct program {
    const struct config_table *table;
    void (*check)(void *values, struct config *config);
};
static const struct program fgpu = {&fgpu_config_table, fgpu_config_check};
static const struct program xbgpu = {&xbgpu_config_table, xbgpu_config_check};

union values {
    struct fgpu_config fgpu;
    struct xbgpu_config xbgpu;
};

/* Exit code, the text on stderr, and the values in effect if the daemon would run. */
struct result {
    int exit_code;
    char said[8 << 10], values[64 << 10];
};

static int said_fd; /* the file in memory that takes the place of stderr during a run */

/* Runs the program with the file at 'path' while 'n' allocations fail, the first after 'first' calls. */
static void run(const struct program *program, char *path, size_t first, size_t n, struct result *result)
{
    char name[16], *argv[] = {name, path, NULL};
    int stderr_fd = dup(STDERR_FILENO);
    union values values = {0};
    struct config *config;

    snprintf(name, sizeof(name), "%s", program->table->program);
    ck_assert_int_eq(ftruncate(said_fd, 0), 0);
    ck_assert_int_eq(lseek(said_fd, 0, SEEK_SET), 0);
    dup2(said_fd, STDERR_FILENO);
    memory_fails(first, n);
    result->exit_code = command_line_main(program->table, 2, argv, program->check, &values, &config);
    memory_suffices();
    dup2(stderr_fd, STDERR_FILENO);
    close(stderr_fd);
    size_t n_said = (size_t)pread(said_fd, result->said, sizeof(result->said) - 1, 0);
    ck_assert_uint_lt(n_said, sizeof(result->said) - 1);
    result->said[n_said] = '\0';
    result->values[0] = '\0';
    if (result->exit_code != CONFIG_RUN)
        return;
    FILE *out = fmemopen(result->values, sizeof(result->values), "w");
    ck_assert_ptr_nonnull(out);
    config_print(program->table, &values, out);
    ck_assert_int_eq(fclose(out), 0);
    config_free(program->table, &values, config);
}

/* ---- Cases ------------------------------------------------------------------------------------------------------- */

#define TIME          "time: {sync_time: 0, adc_sample_rate: 1712e6}\n"
#define EIGHT(x)      x x x x x x x x
#define DEEP(bracket) EIGHT(bracket) EIGHT(bracket) EIGHT(bracket) EIGHT(bracket) /* deeper than a file may nest */

/* Files with and without errors.  A 'yaml' of NULL is the program's example, which has every key. */
static const struct {
    const struct program *program;
    const char *yaml;
    int exit_code;
} files[] = {
    {&fgpu, NULL, CONFIG_RUN},
    {&xbgpu, NULL, CONFIG_RUN},
    {&fgpu, TIME "outputs: [{name: w, channels: 8192\n", EXIT_CONFIG},
    {&fgpu, TIME "---\n" TIME, EXIT_CONFIG},
    {&fgpu, TIME "recv: " DEEP("[") DEEP("]") "\n", EXIT_CONFIG},
    {&fgpu,
     TIME
     "antennas: [{name: a, feng_id: 0, pol0: 239.1.0.0, pol1: 239.1.0.1}, {name: a, feng_id: 0, pol0: 239.1.0.0}]\n"
     "outputs: [{name: w, channels: 8192, destinations: 239.2.0.0+300}, {title: x, channels: 8191}]\n",
     EXIT_CONFIG},
    {&xbgpu,
     TIME
     "recv: {sources: 239.2.0.3, antennas: 2, antenna_names: 'a, a', channels: 8192, channels_per_substream: 128,\n"
     "       channel_offset: 384, spectra_per_heap: 128, samples_between_spectra: 16384}\n"
     "outputs: [{name: v, integration_time: 0.5, destination: 239.3.0.3}]\n",
     EXIT_CONFIG},
};

/* Writes the file to 'path'. */
static void make_yaml(const struct program *program, const char *yaml, char *path)
{
    char *example = NULL;
    size_t n_bytes;

    if (!yaml) {
        FILE *out = open_memstream(&example, &n_bytes);
        ck_assert_ptr_nonnull(out);
        config_print_example(program->table, out);
        ck_assert_int_eq(fclose(out), 0);
    }
    write_file(path, yaml ? yaml : example);
    free(example);
}

static size_t n_lines(const char *text)
{
    size_t n = 0;

    for (; *text; text++)
        n += *text == '\n';
    return n;
}

/* A run with a lack of memory says so and ends with 1.  If the failed allocation was dispensable, the run has the exit
 * code, the values and the number of errors of the run without a lack of memory.  The sentence of an error may then lack
 * the description of valid values. */
static void check_result(const struct result *result, const struct result *normal, size_t first)
{
    if (result->exit_code == 1) {
        ck_assert_msg(strstr(result->said, "out of memory") || strstr(result->said, "Cannot allocate memory"),
                      "allocation %zu: no lack of memory in: %s", first, result->said);
        return;
    }
    ck_assert_msg(result->exit_code == normal->exit_code, "allocation %zu: exit code %d: %s", first, result->exit_code,
                  result->said);
    ck_assert_msg(n_lines(result->said) == n_lines(normal->said), "allocation %zu: %s\ninstead of: %s", first,
                  result->said, normal->said);
    ck_assert_str_eq(result->values, normal->values);
}

static void try_each(const struct program *program, char *path, size_t n_failing, int exit_code)
{
    static struct result normal, result;
    size_t n_failed = 0;

    run(program, path, SIZE_MAX, 0, &normal); /* also makes glibc allocate the buffers that it keeps */
    run(program, path, SIZE_MAX, 0, &normal);
    ck_assert_msg(normal.exit_code == exit_code, "exit code %d: %s", normal.exit_code, normal.said);
    size_t n = n_allocations;
    for (size_t i = 0; i < n; i++) {
        size_t n_before = n_blocks;
        run(program, path, i, n_failing, &result);
        ck_assert_msg(n_blocks == n_before, "allocation %zu: %zd blocks too many", i, (ssize_t)(n_blocks - n_before));
        check_result(&result, &normal, i);
        n_failed += result.exit_code == 1;
    }
    ck_assert_uint_gt(n_failed, n / 2);
}

NO_MEMORY_SUITE(.timeout_s = 20);

TEST(files_without_memory, .end = 2 * ARRAY_LEN(files))
{
    char path[] = "/tmp/check_no_memory.XXXXXX";
    size_t f = (size_t)_i / 2;

    said_fd = memfd_create("said", 0);
    ck_assert_int_ge(said_fd, 0);
    make_yaml(files[f].program, files[f].yaml, path);
    try_each(files[f].program, path, _i % 2 ? SIZE_MAX : 1, files[f].exit_code);
    unlink(path);
    close(said_fd);
}
