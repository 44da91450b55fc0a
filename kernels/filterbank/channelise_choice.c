/* channelise_choice.c - the file that keeps a choice: what makes it the right one, its writing and its careful reading. */
#include "kernels/filterbank/channelise_choice.h"

#include "common/base/hash.h"
#include "common/device/cuda/texts.h"
#include "common/base/file.h"
#include "common/base/trust.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_BYTES  4096 /* more than any file of ours */
#define VALUE_BYTES 256

/* ---- What a file says -------------------------------------------------------------------------------------------- */

/* What it is for, which must be as expected. */
enum fact { FACT_GPU, FACT_KERNELS, FACT_SIZES, N_FACTS };
static const char *const fact_names[N_FACTS] = {"gpu", "kernels", "sizes"};
static const char *const fact_complaints[N_FACTS] = {
    "was measured on another GPU",
    "was measured with other kernels than this program has",
    "was measured for other sizes",
};

/* What was chosen: unsigned numbers, by where they lie in the struct. */
struct number {
    const char *name;
    size_t offset;
};
#define CHOICE(member) offsetof(struct channelise_choice, member)
#define SHAPE(member)                                                                                                  \
    {                                                                                                                  \
#member, CHOICE(shape.member)                                                                                  \
    }
static const struct number numbers[] = {
    {"unzip", CHOICE(unzip)}, SHAPE(front_rows),   SHAPE(front_columns), SHAPE(front_spectra), SHAPE(front_per_thread),
    SHAPE(front_radix),       SHAPE(front_stages), SHAPE(front_blocks),  SHAPE(front_tensors), SHAPE(front_section),
    SHAPE(back_radix),        SHAPE(back_spectra), SHAPE(back_pairs),    SHAPE(back_tiles),    SHAPE(back_bulk),
    SHAPE(back_threads),      SHAPE(back_blocks),
};
#define N_NUMBERS ARRAY_LEN(numbers)
_Static_assert(N_NUMBERS == 1 + sizeof(struct channelise_shape) / sizeof(uint32_t),
               "every member of the shape is kept");
_Static_assert(sizeof(unsigned) == sizeof(uint32_t), "so that unzip is one of them");

static const char *const method_names[] = {[CHANNELISE_FUSED] = "fused", [CHANNELISE_STAGES] = "stages"};

static void put(char *to, size_t bytes, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void put(char *to, size_t bytes, const char *format, ...)
{
    size_t n = strlen(to);
    va_list args;

    va_start(args, format);
    if (n < bytes)
        vsnprintf(to + n, bytes - n, format, args);
    va_end(args);
}

/* Of all texts: what else than the kernel itself makes it fast or slow is hard to tell. */
static void put_kernels(char *to, size_t bytes)
{
    struct hash hash = HASH_START;

    for (size_t k = 0; k < n_kernel_texts; k++) {
        hash_text(&hash, kernel_texts[k].name);
        hash_text(&hash, kernel_texts[k].text);
    }
    put(to, bytes, "%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
}

static void find_facts(const struct device *device, const struct channelise_work *work,
                       char facts[N_FACTS][VALUE_BYTES])
{
    const struct channelise_config *c = &work->config;

    for (int i = 0; i < N_FACTS; i++)
        facts[i][0] = '\0';
    put(facts[FACT_GPU], VALUE_BYTES, "%s", device_model(device));
    put_kernels(facts[FACT_KERNELS], VALUE_BYTES);
    put(facts[FACT_SIZES], VALUE_BYTES,
        "%u channels, %u taps, %u to %u bits, %s, %u heaps of %u spectra, %zu appended at a time", c->n_chan, c->n_taps,
        c->sample_bits, c->out_bits, c->dither ? "dither" : "no dither", c->n_batches, c->spectra_per_heap,
        work->append_spectra);
}

/* Names what is in 'facts', but for the kernels: a new version's choice takes the place of the old one's. */
static void name_of(const struct device *device, const struct channelise_work *work, char *name, size_t bytes)
{
    const struct channelise_config *c = &work->config;

    snprintf(name, bytes, "%s-%uch-%utaps-%uto%ubits-%s-%ux%u-%zu.tuned", device_model(device), c->n_chan, c->n_taps,
             c->sample_bits, c->out_bits, c->dither ? "dither" : "plain", c->n_batches, c->spectra_per_heap,
             work->append_spectra);
    for (char *at = name; *at; at++)
        if (!isalnum((unsigned char)*at) && *at != '.')
            *at = '-';
}

void channelise_choice_path(struct device *device, const struct channelise_work *work, char *path, size_t path_bytes)
{
    const char *directory = device_cache_directory(device);
    char name[NAME_MAX + 1];

    name_of(device, work, name, sizeof(name));
    snprintf(path, path_bytes, "%s%s%s", directory ? directory : "", directory ? "/" : "", directory ? name : "");
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

static uint32_t *number_at(struct channelise_choice *choice, const struct number *number)
{
    return (uint32_t *)(void *)((char *)choice + number->offset);
}

int channelise_choice_store(struct device *device, const struct channelise_work *work,
                            const struct channelise_choice *choice)
{
    char text[FILE_BYTES] = "# How fgpu cuts this work on this GPU, as fgpu --tune has measured.  May be removed.\n";
    char facts[N_FACTS][VALUE_BYTES], name[NAME_MAX + 1];
    struct channelise_choice copy = *choice;

    if (!device_cache_directory(device))
        return -ENOENT;
    find_facts(device, work, facts);
    for (int i = 0; i < N_FACTS; i++)
        put(text, sizeof(text), "%s: %s\n", fact_names[i], facts[i]);
    put(text, sizeof(text), "method: %s\n", method_names[choice->method]);
    for (size_t i = 0; i < N_NUMBERS; i++)
        put(text, sizeof(text), "%s: %" PRIu32 "\n", numbers[i].name, *number_at(&copy, &numbers[i]));
    name_of(device, work, name, sizeof(name));
    return file_replace(device_cache_directory(device), name, &(struct file_part){text, strlen(text)}, 1);
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

static int find_name(const char *const *names, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return (int)i;
    return -1;
}

static int read_number(const char *key, const char *value, struct channelise_choice *choice, unsigned *seen)
{
    char *end;

    for (size_t i = 0; i < N_NUMBERS; i++) {
        if (strcmp(key, numbers[i].name) != 0)
            continue;
        errno = 0;
        unsigned long long parsed = strtoull(value, &end, 10);
        if (!isdigit((unsigned char)value[0]) || *end || errno || parsed > UINT32_MAX)
            return -EINVAL;
        *number_at(choice, &numbers[i]) = (uint32_t)parsed;
        *seen |= 1u << i;
        return 0;
    }
    return -EINVAL;
}

/* One line; 'seen' and 'stale' collect what there was and which facts are not as expected. */
static int read_line(char *line, char facts[N_FACTS][VALUE_BYTES], struct channelise_choice *choice, unsigned *seen,
                     unsigned *stale)
{
    char *value = strstr(line, ": ");
    int found;

    if (line[0] == '#' || line[0] == '\0')
        return 0;
    if (!value)
        return -EINVAL;
    *value = '\0';
    value += 2;
    if ((found = find_name(fact_names, N_FACTS, line)) >= 0) {
        *stale |= (unsigned)(strcmp(value, facts[found]) != 0) << found;
        *seen |= 1u << (N_NUMBERS + 1 + (unsigned)found);
        return 0;
    }
    if (strcmp(line, "method") != 0)
        return read_number(line, value, choice, seen);
    if ((found = find_name(method_names, ARRAY_LEN(method_names), value)) < 0)
        return -EINVAL;
    choice->method = (enum channelise_method)found;
    *seen |= 1u << N_NUMBERS;
    return 0;
}

static bool is_valid(const struct device *device, const struct channelise_config *config,
                     const struct channelise_choice *choice)
{
    if (choice->method == CHANNELISE_STAGES)
        return choice->unzip == 0 || choice->unzip == 1 || choice->unzip == 2 || choice->unzip == 4;
    return channelise_shape_valid(config, &choice->shape, device_shared_bytes(device));
}

static int parse(const struct device *device, const struct channelise_work *work, char *text,
                 struct channelise_choice *choice, char *why, size_t why_bytes)
{
    const unsigned all = (1u << (N_NUMBERS + 1 + N_FACTS)) - 1;
    char facts[N_FACTS][VALUE_BYTES], *line;
    struct channelise_choice read = {0};
    unsigned seen = 0, stale = 0, number = 1, bad_line = 0;

    find_facts(device, work, facts);
    for (; (line = strsep(&text, "\n")); number++)
        if (read_line(line, facts, &read, &seen, &stale) && bad_line == 0)
            bad_line = number;
    for (int i = 0; i < N_FACTS; i++)
        if (stale & 1u << i) {
            snprintf(why, why_bytes, "%s", fact_complaints[i]);
            return -ESTALE;
        }
    if (bad_line) {
        snprintf(why, why_bytes, "has a line %u that is none of its own", bad_line);
        return -EINVAL;
    }
    if (seen != all || !is_valid(device, &work->config, &read)) {
        snprintf(why, why_bytes, seen != all ? "lacks some lines" : "has numbers that do not go together");
        return -EINVAL;
    }
    *choice = read;
    return 0;
}

static int read_file(const char *directory, const char *name, char *text, size_t bytes)
{
    int fd = trust_open(directory, name);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");

    if (fd < 0)
        return fd;
    if (!file) {
        close(fd);
        return -ENOMEM;
    }
    errno = EIO;
    size_t n = fread(text, 1, bytes, file);
    int err = ferror(file) ? -errno : n == bytes || memchr(text, '\0', n) ? -EINVAL : 0;
    fclose(file);
    if (!err)
        text[n] = '\0';
    return err;
}

int channelise_choice_load(struct device *device, const struct channelise_work *work, struct channelise_choice *choice,
                           char *why, size_t why_bytes)
{
    char path[PATH_MAX], name[NAME_MAX + 1], text[FILE_BYTES], what[200] = "is not one of its kind";

    if (!device_compiles(device) || !device_cache_directory(device))
        return -ENOENT;
    channelise_choice_path(device, work, path, sizeof(path));
    name_of(device, work, name, sizeof(name));
    int err = read_file(device_cache_directory(device), name, text, sizeof(text));
    if (err == -ENOENT)
        return err;
    if (err == -EPERM)
        snprintf(what, sizeof(what), "cannot be trusted: " TRUST_CURE);
    else if (err && err != -EINVAL)
        snprintf(what, sizeof(what), "cannot be read: %s", strerror(-err));
    if (!err)
        err = parse(device, work, text, choice, what, sizeof(what));
    if (err)
        snprintf(why, why_bytes, "%s is ignored, as it %s", path, what);
    return err;
}

/* ---- Use --------------------------------------------------------------------------------------------------------- */

int channelise_choice_parse(const struct channelise_config *config, size_t shared_bytes, char *text,
                            struct channelise_choice *choice)
{
    const char *rows = strstr(text, "front_rows=");
    unsigned long n_rows = rows ? strtoul(strchr(rows, '=') + 1, NULL, 10) : 0;
    unsigned seen = 0;

    if (rows && (n_rows < 8 || n_rows > 256 || n_rows > config->n_chan / 8))
        return -EINVAL;
    choice->shape = rows ? channelise_shape_of_rows(config, (uint32_t)n_rows, shared_bytes)
                         : channelise_fused_shape(config, shared_bytes);
    for (char *word; (word = strsep(&text, " \n"));) {
        char *value = strchr(word, '=');
        if (!*word)
            continue;
        if (!value)
            return -EINVAL;
        *value++ = '\0';
        if (read_number(word, value, choice, &seen))
            return -EINVAL;
    }
    return 0;
}

void channelise_choice_format(const struct channelise_choice *choice, char *text, size_t text_bytes)
{
    struct channelise_choice copy = *choice;

    snprintf(text, text_bytes, "%s", method_names[choice->method]);
    for (size_t i = 0; i < N_NUMBERS; i++)
        put(text, text_bytes, ", %s %" PRIu32, numbers[i].name, *number_at(&copy, &numbers[i]));
}

void channelise_choice_apply(const struct channelise_choice *choice, struct channelise_config *config)
{
    config->method = choice->method;
    config->unzip = choice->unzip;
    config->shape = choice->shape.front_rows > 0 ? &choice->shape : NULL;
}
