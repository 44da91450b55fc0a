/* fuzz_config.c - any text as the configuration of a program.  The first byte chooses the program.
 *
 * A text that loads without an error is printed as --print-config does.  The printed text must load to the same text
 * again.  Errors are printed, too.  No text makes more than CONFIG_SAID_ERRORS lines of errors, and two. */
#include "common/config/config.h"
#include "fgpu/config/config.h"
#include "fgpu/config_check.h"
#include "tests/fuzz/fuzz_count.h"
#include "tests/fuzz/fuzz_input.h"
#include "tools/beamrec/config.h"
#include "tools/dsim/config.h"
#include "tools/fsim/config.h"
#include "tools/visrec/config.h"
#include "xbgpu/config/config.h"
#include "xbgpu/config_check.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

union values {
    struct fgpu_config fgpu;
    struct xbgpu_config xbgpu;
    struct fsim_config fsim;
    struct visrec_config visrec;
    struct dsim_config dsim;
    struct beamrec_config beamrec;
};

static const struct program {
    const struct config_table *table;
    void (*check)(void *values, struct config *config);
} programs[] = {
    {&fgpu_config_table, fgpu_config_check}, {&xbgpu_config_table, xbgpu_config_check},
    {&fsim_config_table, fsim_config_check}, {&visrec_config_table, visrec_config_check},
    {&dsim_config_table, dsim_config_check}, {&beamrec_config_table, beamrec_config_check},
};
#define N_PROGRAMS (sizeof(programs) / sizeof(programs[0]))

static char path[64]; /* of a file in memory */
static int fd = -1;

static void open_file(void)
{
    fd = memfd_create("config", MFD_CLOEXEC);
    assert(fd >= 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
}

static void put(const void *text, size_t n_bytes)
{
    assert(ftruncate(fd, 0) == 0);
    assert(pwrite(fd, text, n_bytes, 0) == (ssize_t)n_bytes);
}

/* Loads the file as --print-config does.  Returns the text that this prints, to free(), or NULL after errors. */
static char *load(const struct program *program)
{
    union values values = {0};
    struct config *config;
    char *text = NULL;
    size_t n_bytes = 0, n_lines = 0;
    FILE *out = open_memstream(&text, &n_bytes);

    assert(out);
    int err = config_load(program->table, path, &values, &config);
    assert(config);
    if (!err)
        program->check(&values, config);
    bool fits = !err && config_n_errors(config) == 0;
    if (fits)
        config_print(program->table, &values, out);
    else
        config_print_errors(config, out);
    fclose(out);
    for (const char *at = text; !fits && (at = strchr(at, '\n')); at++)
        n_lines++;
    assert(n_lines <= CONFIG_SAID_ERRORS + 2);
    config_free(program->table, &values, config);
    if (!fits) {
        free(text);
        text = NULL;
    }
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    if (n_bytes == 0)
        return 0;
    if (fd < 0)
        open_file();
    const struct program *program = &programs[data[0] % N_PROGRAMS];
    put(data + 1, n_bytes - 1);
    fuzz_count("files", 1);
    char *text = load(program);
    if (!text)
        return 0;
    put(text, strlen(text));
    char *again = load(program);
    assert(again && strcmp(again, text) == 0);
    free(again);
    free(text);
    return 0;
}
