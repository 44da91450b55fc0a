/* config.h - YAML file + key tables -> structs.
 *
 * The tables are the single source: --check-config, --print-schema, --print-config, the annotated example in config/
 * and the manual pages (scripts/manpages.py) come from them.  A file is a mapping of sections; a section is a mapping
 * of keys, or, where the table says 'repeats', a list of them.  A section may have variants chosen by the key `kind:`.
 *
 * Errors: all of a file are collected, each with file:line:column, one sentence, and the nearest valid key for a
 * misspelt one; config_load() then fails.  Nothing is half-applied: the caller exits with EXIT_CONFIG. */
#ifndef COMMON_CONFIG_CONFIG_H
#define COMMON_CONFIG_CONFIG_H

#include "common/base/units.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum config_type {
    CFG_INT,       /* int64_t */
    CFG_POW2,      /* int64_t, a power of two */
    CFG_DOUBLE,    /* double */
    CFG_DECIMAL,   /* struct decimal (timebase.h): kept exactly as written, with at most 9 decimals */
    CFG_FINE,      /* likewise with at most 18, as frequencies of pulsars have */
    CFG_BOOL,      /* bool */
    CFG_STRING,    /* char *; NULL where it is empty; freed by config_free */
    CFG_ENUM,      /* int, index in 'choices' */
    CFG_ENDPOINTS, /* struct endpoint_list; each endpoint's 'key' lives as long as the struct config */
    CFG_INT_LIST,  /* struct config_int_list: [1, 2, 3], or a single integer */
    CFG_POSITION,  /* double[3]: a list of three numbers */
};

enum config_unit {
    UNIT_NONE,
    UNIT_HZ,
    UNIT_S,
    UNIT_BYTES,
    UNIT_SAMPLES,
    UNIT_SPECTRA,
    UNIT_BITS,
    UNIT_CHANNELS,
    UNIT_BATCHES,
    UNIT_CHUNKS,
    UNIT_M,
    UNIT_DEG,
};

struct config_int_list {
    size_t n;
    int64_t *items;
};

/* One key.  A default is text, parsed like the file's own, lists as items between commas; NULL: the key is required;
 * "" of a CFG_STRING, CFG_ENDPOINTS or CFG_INT_LIST: absent (NULL, n = 0). */
struct config_key {
    const char *name;
    enum config_type type;
    enum config_unit unit;
    double min, max; /* inclusive; both 0: no bound.  For a CFG_STRING: of its length */
    const char *default_text;
    size_t offset;              /* of the value in the section's struct */
    const char *const *choices; /* CFG_ENUM: NULL-terminated */
    const char *help;           /* one sentence: what it is, for the example file and the schema */
    unsigned variants;          /* bit i: valid with choice i of the section's `kind`, its first key; 0: always */
    const char *example;        /* value in the example file; needed by required keys of a section that is no list */
    uint16_t port;              /* CFG_ENDPOINTS: of an address without one; 0: SPEAD_DEFAULT_PORT */
};

/* ---- Rows of a table of keys: struct config_key --------------------------------------------------------------------
 *
 * The file of a table defines KEYS_OF, the struct of the section.  A row has the key's name, the member that takes the
 * value, the default (KEY_REQUIRED: none), what the value may be, and the help.  Further members may follow the help:
 * KEY_INT("bins", n_bins, "8", UNIT_NONE, 1, 64, "Bins of a turn.", .variants = PHASE).
 * A member of another type than the key's does not compile. */
#define KEY_REQUIRED NULL

#define KEY_MEMBER(type, member) _Generic(((KEYS_OF *)0)->member, type : offsetof(KEYS_OF, member))

#define KEY_OF_TYPE(key, member, config_type, c_type, fallback, ...)                                                   \
    {                                                                                                                  \
        .name = key, .type = config_type, .offset = KEY_MEMBER(c_type, member), .default_text = fallback, __VA_ARGS__  \
    }
#define KEY_BOUNDED(key, member, config_type, c_type, fallback, least, most, ...)                                      \
    KEY_OF_TYPE(key, member, config_type, c_type, fallback, .min = least, .max = most, .help = __VA_ARGS__)
#define KEY_NUMBER(key, member, config_type, c_type, fallback, its_unit, least, most, ...)                             \
    KEY_OF_TYPE(key, member, config_type, c_type, fallback, .unit = its_unit, .min = least, .max = most,               \
                .help = __VA_ARGS__)

/* (key, member, fallback, unit, min, max, help, ...) */
#define KEY_INT(key, member, ...)      KEY_NUMBER(key, member, CFG_INT, int64_t, __VA_ARGS__)
#define KEY_POW2(key, member, ...)     KEY_NUMBER(key, member, CFG_POW2, int64_t, __VA_ARGS__)
#define KEY_DOUBLE(key, member, ...)   KEY_NUMBER(key, member, CFG_DOUBLE, double, __VA_ARGS__)
#define KEY_DECIMAL(key, member, ...)  KEY_NUMBER(key, member, CFG_DECIMAL, struct decimal, __VA_ARGS__)
#define KEY_FINE(key, member, ...)     KEY_NUMBER(key, member, CFG_FINE, struct decimal, __VA_ARGS__)
#define KEY_INT_LIST(key, member, ...) KEY_NUMBER(key, member, CFG_INT_LIST, struct config_int_list, __VA_ARGS__)
#define KEY_POSITION(key, member, ...) KEY_NUMBER(key, member, CFG_POSITION, double *, __VA_ARGS__)
/* (key, member, fallback, min, max, help, ...): min and max count characters, or addresses. */
#define KEY_STRING(key, member, ...)    KEY_BOUNDED(key, member, CFG_STRING, char *, __VA_ARGS__)
#define KEY_ENDPOINTS(key, member, ...) KEY_BOUNDED(key, member, CFG_ENDPOINTS, struct endpoint_list, __VA_ARGS__)
#define KEY_ENUM(key, member, fallback, names, ...)                                                                    \
    KEY_OF_TYPE(key, member, CFG_ENUM, int, fallback, .choices = names, .help = __VA_ARGS__)
#define KEY_BOOL(key, member, fallback, ...)                                                                           \
    KEY_OF_TYPE(key, member, CFG_BOOL, bool, (fallback) ? "true" : "false", .help = __VA_ARGS__)

struct config_section {
    const char *name;
    const char *help;
    const struct config_key *keys;
    size_t n_keys;
    size_t struct_bytes; /* of one instance */
    size_t offset;       /* of the instance in the whole; of a struct config_array where it repeats */
    bool repeats;
    size_t min_n, max_n; /* instances, where it repeats */
    bool optional;       /* the section may be left out: all keys then have their defaults */
    const char *example; /* YAML of the list items in the example file, where it repeats and defaults do not tell */
};

/* ---- Rows of a table of sections: struct config_section ------------------------------------------------------------
 *
 * 'whole' is the struct of the whole file; its member has the section's name.  The help, and further members,
 * follow. */
#define CONFIG_SECTION(whole, member, table, ...)                                                                      \
    CONFIG_SECTION_PART(whole, member, table, ARRAY_LEN(table), __VA_ARGS__)
/* Only the first 'n' keys of the table. */
#define CONFIG_SECTION_PART(whole, member, table, n, ...)                                                              \
    {                                                                                                                  \
        .name = #member, .keys = table, .n_keys = (n), .struct_bytes = sizeof(((whole *)0)->member),                   \
        .offset = offsetof(whole, member), .help = __VA_ARGS__                                                         \
    }
/* A list of 'least' to 'most' items, each a struct 'item'. */
#define CONFIG_LIST(whole, member, item, table, least, most, ...)                                                      \
    {                                                                                                                  \
        .name = #member, .keys = table, .n_keys = ARRAY_LEN(table), .struct_bytes = sizeof(item),                      \
        .offset = offsetof(whole, member), .repeats = true, .min_n = least, .max_n = most, .help = __VA_ARGS__         \
    }

struct config_array {
    size_t n;
    void *items; /* [n] of the section's struct */
};

struct config_table {
    const char *program; /* "fgpu" */
    const char *help;
    const struct config_section *sections;
    size_t n_sections;
    bool tunes; /* the program has --tune */
};

/* Where a value came from, and the errors so far. */
struct config;

/* Reads 'path' into 'out' (zeroed by the caller; layout by the table).  Returns 0, -EINVAL after errors (see
 * config_print_errors), or another negative errno when the file cannot be read (that, too, is an error in the list). */
int config_load(const struct config_table *table, const char *path, void *out, struct config **config);

/* Adds an error at the place of the value stored at 'field' (an address inside 'out'); without one in the file, at its
 * section.  For checks across keys.  The sentence names what is wrong and what would be right. */
void config_error(struct config *config, const void *field, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* As config_error, for what is legal but hardly meant: printed with the errors, marked so, and not counted. */
void config_warning(struct config *config, const void *field, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* "FILE:line:column: " of the value whose key the sentence begins with ("recv.interface: ..."), for what only the start
 * finds wrong: whoever finds it names the key ("antennas[0].pol0" in a list), and who reports it puts this in front.
 * Where the file leaves the key out it is the place of the section; without a key only "FILE: ".  Returns 'text'. */
char *config_locate(const struct config *config, const char *sentence, char *text, size_t text_bytes);

/* The path of the file, as it was given. */
const char *config_path(const struct config *config);

/* True if the value at 'field' was given in the file (not defaulted). */
bool config_given(const struct config *config, const void *field);

/* Errors that are printed; of any more the number is. */
#define CONFIG_SAID_ERRORS 100

/* Number of errors so far; prints them, and warnings, sorted by line as "file:line:column: [warning: ]sentence". */
size_t config_n_errors(const struct config *config);
void config_print_errors(const struct config *config, FILE *out);

/* A book of errors of no file, for checks of what comes while running; NULL where there is no memory.  To be freed by
 * config_free(NULL, NULL, config).  And the first sentence in a book, or NULL. */
struct config *config_create_book(void);
const char *config_first_error(const struct config *config);

/* Whether a key is valid with a choice of `kind`. */
bool config_key_applies(const struct config_key *key, int kind);

/* Room for any sentence about one value. */
#define CONFIG_SENTENCE_BYTES 640

/* Parses one value, or a list with commas between its items, into 'field', and frees the old value.  Returns 0, -ENOMEM
 * or, with 'field' untouched, -EINVAL and a predicate in 'why' ("must be ..., but ... is given"). */
int config_value_set(const struct config_key *key, const char *text, void *field, char *why, size_t why_bytes);

void config_value_free(const struct config_key *key, void *field);

/* The other way round: as the file has it, but a list without brackets and blanks. */
void config_value_write(const struct config_key *key, const void *field, FILE *out);

/* The effective values with their units, as YAML that could be loaded again. */
void config_print(const struct config_table *table, const void *values, FILE *out);

/* JSON Schema (draft 2020-12) of the file. */
void config_print_schema(const struct config_table *table, FILE *out);

/* The annotated example: every key with unit, range, default and help. */
void config_print_example(const struct config_table *table, FILE *out);

/* Frees what config_load allocated in 'values' and the bookkeeping.  NULL is accepted. */
void config_free(const struct config_table *table, void *values, struct config *config);

#endif
