/* config.c - stores the errors of a configuration, and the place of each value in the file. */
#include "common/config/config.h"

#include "common/config/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct config_fault {
    struct config_mark mark;
    size_t order; /* number of faults added before this fault, to sort faults at the same place */
    bool is_warning;
    char *sentence;
};

/* The range of addresses at which a value is stored, and the place in the file from which the value comes.  The range
 * of a section contains the ranges of its keys.  So among all ranges that contain an address, the range of a key is
 * the smallest. */
struct config_place {
    uintptr_t start;
    size_t n_bytes;
    struct config_mark mark;
    bool given;
};

/* The full name of a value or section and its place in the file, for config_locate(). */
struct config_name {
    char *name;
    struct config_mark mark;
};

struct config {
    char *path;
    struct config_fault *faults;
    size_t n_faults, n_warnings; /* n_faults includes n_warnings */
    size_t n_unsaid;             /* number of errors after the first CONFIG_SAID_ERRORS errors */
    struct config_place *places;
    size_t n_places;
    struct config_name *names;
    size_t n_names;
    bool out_of_memory; /* true if an allocation failed; config_n_errors() counts this failure as one error */
};

struct config *config_create(const char *path)
{
    struct config *config = calloc(1, sizeof(*config));

    if (!config)
        return NULL;
    config->path = strdup(path);
    if (!config->path) {
        free(config);
        return NULL;
    }
    return config;
}

const char *config_path(const struct config *config)
{
    return config->path;
}

struct config *config_create_book(void)
{
    return config_create("");
}

const char *config_first_error(const struct config *config)
{
    for (size_t i = 0; i < config->n_faults; i++)
        if (!config->faults[i].is_warning)
            return config->faults[i].sentence;
    return config->out_of_memory ? "there is no memory" : NULL;
}

/* Makes room for one more item in an array of 'n' items.  Reallocates the array if 'n' is 0 or a power of two,
 * because the array is then full. */
static void *grow(void *items, size_t n, size_t item_bytes)
{
    if (n & (n - 1))
        return items;
    return reallocarray(items, n ? 2 * n : 1, item_bytes);
}

static void add_fault(struct config *config, struct config_mark mark, bool is_warning, const char *format, va_list args)
{
    struct config_fault *faults = grow(config->faults, config->n_faults, sizeof(*faults));
    struct config_fault *fault;

    if (!faults) {
        config->out_of_memory = true;
        return;
    }
    config->faults = faults;
    fault = &faults[config->n_faults];
    fault->is_warning = is_warning;
    fault->mark = mark;
    fault->order = config->n_faults;
    if (vasprintf(&fault->sentence, format, args) < 0) {
        config->out_of_memory = true;
        return;
    }
    config->n_faults++;
    config->n_warnings += is_warning;
}

void config_error_at(struct config *config, struct config_mark mark, const char *format, ...)
{
    va_list args;

    if (config_is_full(config)) {
        config->n_unsaid++;
        return;
    }
    va_start(args, format);
    add_fault(config, mark, false, format, args);
    va_end(args);
}

bool config_is_full(const struct config *config)
{
    return config->n_faults - config->n_warnings >= CONFIG_SAID_ERRORS;
}

void config_add_place(struct config *config, const void *field, size_t n_bytes, struct config_mark mark, bool given)
{
    struct config_place *places = grow(config->places, config->n_places, sizeof(*places));

    if (!places) {
        config->out_of_memory = true;
        return;
    }
    config->places = places;
    places[config->n_places++] = (struct config_place){(uintptr_t)field, n_bytes, mark, given};
}

/* Returns the place with the smallest range that contains 'field', or NULL.  If a section has only one key, section and
 * key have the same range.  The function then returns the key's place, which was added after the section's place. */
static const struct config_place *find_place(const struct config *config, const void *field)
{
    const struct config_place *best = NULL;

    for (size_t i = 0; i < config->n_places; i++) {
        const struct config_place *place = &config->places[i];

        if ((uintptr_t)field - place->start < place->n_bytes && (!best || place->n_bytes <= best->n_bytes))
            best = place;
    }
    return best;
}

const char *config_add_name(struct config *config, const char *name, struct config_mark mark)
{
    struct config_name *names = grow(config->names, config->n_names, sizeof(*names));
    char *copy = strdup(name);

    if (names)
        config->names = names;
    if (!names || !copy) {
        config->out_of_memory = true;
        free(copy);
        return NULL;
    }
    names[config->n_names++] = (struct config_name){copy, mark};
    return copy;
}

char *config_locate(const struct config *config, const char *sentence, char *text, size_t text_bytes)
{
    size_t n = strcspn(sentence, ": ,");

    snprintf(text, text_bytes, "%s: ", config->path);
    for (size_t i = 0; i < config->n_names; i++) {
        const struct config_name *name = &config->names[i];

        if (strncmp(name->name, sentence, n) == 0 && name->name[n] == '\0')
            snprintf(text, text_bytes, "%s:%zu:%zu: ", config->path, name->mark.line, name->mark.column);
    }
    return text;
}

static void add_fault_at_field(struct config *config, const void *field, bool is_warning, const char *format,
                               va_list args)
{
    const struct config_place *place = find_place(config, field);
    struct config_mark file = {1, 1};

    add_fault(config, place ? place->mark : file, is_warning, format, args);
}

void config_error(struct config *config, const void *field, const char *format, ...)
{
    va_list args;

    if (config_is_full(config)) {
        config->n_unsaid++;
        return;
    }
    va_start(args, format);
    add_fault_at_field(config, field, false, format, args);
    va_end(args);
}

void config_warning(struct config *config, const void *field, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    add_fault_at_field(config, field, true, format, args);
    va_end(args);
}

bool config_given(const struct config *config, const void *field)
{
    const struct config_place *place = find_place(config, field);

    return place && place->given;
}

void config_lacks_memory(struct config *config)
{
    config->out_of_memory = true;
}

size_t config_n_errors(const struct config *config)
{
    return config->n_faults - config->n_warnings + config->n_unsaid + config->out_of_memory;
}

int config_result(const struct config *config)
{
    if (config->out_of_memory)
        return -ENOMEM;
    return config_n_errors(config) ? -EINVAL : 0;
}

static int compare_faults(const void *a, const void *b)
{
    const struct config_fault *x = a, *y = b;

    if (x->mark.line != y->mark.line)
        return x->mark.line < y->mark.line ? -1 : 1;
    if (x->mark.column != y->mark.column)
        return x->mark.column < y->mark.column ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

void config_print_errors(const struct config *config, FILE *out)
{
    if (config->n_faults)
        qsort(config->faults, config->n_faults, sizeof(*config->faults), compare_faults);
    for (size_t i = 0; i < config->n_faults; i++) {
        const struct config_fault *fault = &config->faults[i];

        fputs(config->path, out);
        if (fault->mark.line)
            fprintf(out, ":%zu:%zu", fault->mark.line, fault->mark.column);
        fprintf(out, ": %s%s\n", fault->is_warning ? "warning: " : "", fault->sentence);
    }
    if (config->n_unsaid)
        fprintf(out, "%s: and %zu more errors\n", config->path, config->n_unsaid);
    if (config->out_of_memory)
        fprintf(out, "%s: out of memory\n", config->path);
}

size_t config_section_n(const struct config_section *section, const void *values)
{
    const struct config_array *array = (const void *)((const char *)values + section->offset);

    return section->repeats ? array->n : 1;
}

void *config_section_item(const struct config_section *section, const void *values, size_t i)
{
    const struct config_array *array = (const void *)((const char *)values + section->offset);

    return section->repeats ? (char *)array->items + i * section->struct_bytes : (char *)values + section->offset;
}

/* A section with variants begins with the key `kind` (config.h). */
int config_kind(const struct config_section *section, const void *item)
{
    const struct config_key *key = &section->keys[0];

    for (size_t k = 0; k < section->n_keys; k++) {
        if (section->keys[k].variants) {
            assert(!strcmp(key->name, "kind") && key->type == CFG_ENUM && !key->variants);
            return *(const int *)((const char *)item + key->offset);
        }
    }
    return 0;
}

bool config_key_applies(const struct config_key *key, int kind)
{
    return !key->variants || key->variants >> kind & 1;
}

static void free_values(const struct config_table *table, void *values)
{
    for (size_t s = 0; s < table->n_sections; s++) {
        const struct config_section *section = &table->sections[s];

        for (size_t i = 0; i < config_section_n(section, values); i++) {
            for (size_t k = 0; k < section->n_keys; k++)
                config_value_free(&section->keys[k],
                                  (char *)config_section_item(section, values, i) + section->keys[k].offset);
        }
        if (section->repeats) {
            struct config_array *array = (void *)((char *)values + section->offset);

            free(array->items);
            *array = (struct config_array){0};
        }
    }
}

void config_free(const struct config_table *table, void *values, struct config *config)
{
    if (values)
        free_values(table, values);
    if (!config)
        return;
    for (size_t i = 0; i < config->n_faults; i++)
        free(config->faults[i].sentence);
    free(config->faults);
    free(config->places);
    for (size_t i = 0; i < config->n_names; i++)
        free(config->names[i].name);
    free(config->names);
    free(config->path);
    free(config);
}
