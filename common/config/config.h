/* config.h - reads YAML files into structs that are described by tables of keys.
 *
 * The tables also determine --check-config, --print-schema, --print-config, the annotated examples in config/ and the
 * manual pages (scripts/manpages.py).  A file is a mapping of sections.  A section is a mapping of keys, or a list of
 * such mappings if the table says 'repeats'.  A section may have variants chosen by the key `kind:`.
 *
 * Errors: config_load() collects all errors of a file and then fails.  Each error has file:line:column, one sentence,
 * and the nearest valid key if a key is misspelt.  After an error the caller uses no value and exits with
 * EXIT_CONFIG. */
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
    CFG_DECIMAL,   /* struct decimal (timebase.h): the exact number, with at most 9 decimals */
    CFG_FINE,      /* struct decimal with at most 18 decimals, for frequencies of pulsars */
    CFG_BOOL,      /* bool */
    CFG_STRING,    /* char *; NULL if empty; freed by config_free */
    CFG_ENUM,      /* int, index in 'choices' */
    CFG_ENDPOINTS, /* struct endpoint_list; each endpoint's 'key' exists as long as the struct config */
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

/* One key.  The default is a text that is parsed like a value in the file, with commas between the items of a list.
 * NULL: the key is required.  The default "" of a CFG_STRING, CFG_ENDPOINTS or CFG_INT_LIST means no value (NULL or n =
 * 0). */
struct config_key {
    const char *name;
    enum config_type type;
    enum config_unit unit;
    double min, max; /* inclusive bounds of the value, or of the length of a CFG_STRING; both 0: no bounds */
    const char *default_text;
    size_t offset;              /* offset of the value in the section's struct */
    const char *const *choices; /* names of the choices of a CFG_ENUM, ended by NULL */
    const char *help;           /* one sentence about the key, for the example file and the schema */
    /* bit i: the key is valid with choice i of the section's first key, `kind`; 0: always valid */
    unsigned variants;
    /* value in the example file; NULL: default.  A required key needs an example unless the section is a list */
    const char *example;
    uint16_t port; /* CFG_ENDPOINTS: default port; 0: SPEAD_DEFAULT_PORT */
};

/* ---- Rows of a table of keys: struct config_key --------------------------------------------------------------------
 *
 * The file of a table defines KEYS_OF, the struct of the section.  A row has the key's name, the member that takes the
 * value, the default (KEY_REQUIRED: none), the bounds or choices, and the help.  Further members may follow the help:
 * KEY_INT("bins", n_bins, "8", UNIT_NONE, 1, 64, "Bins of a turn.", .variants = PHASE).
 * A row does not compile if the type of the member differs from the type of the key. */
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

/* Arguments: (key, member, fallback, unit, min, max, help, ...). */
#define KEY_INT(key, member, ...)      KEY_NUMBER(key, member, CFG_INT, int64_t, __VA_ARGS__)
#define KEY_POW2(key, member, ...)     KEY_NUMBER(key, member, CFG_POW2, int64_t, __VA_ARGS__)
#define KEY_DOUBLE(key, member, ...)   KEY_NUMBER(key, member, CFG_DOUBLE, double, __VA_ARGS__)
#define KEY_DECIMAL(key, member, ...)  KEY_NUMBER(key, member, CFG_DECIMAL, struct decimal, __VA_ARGS__)
#define KEY_FINE(key, member, ...)     KEY_NUMBER(key, member, CFG_FINE, struct decimal, __VA_ARGS__)
#define KEY_INT_LIST(key, member, ...) KEY_NUMBER(key, member, CFG_INT_LIST, struct config_int_list, __VA_ARGS__)
#define KEY_POSITION(key, member, ...) KEY_NUMBER(key, member, CFG_POSITION, double *, __VA_ARGS__)
/* Arguments: (key, member, fallback, min, max, help, ...).  min and max are numbers of characters (KEY_STRING) or of
 * addresses (KEY_ENDPOINTS). */
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
    size_t struct_bytes; /* size of one instance, in bytes */
    /* offset of the section's struct in the struct of the whole file; if 'repeats' is true, offset of the section's
     * struct config_array */
    size_t offset;
    bool repeats;
    size_t min_n, max_n; /* smallest and largest number of instances, if 'repeats' is true */
    bool optional;       /* true if the section is optional; if the file lacks it, all keys have their defaults */
    const char *example; /* if 'repeats' is true: YAML of list items for the example file, or NULL */
};

/* ---- Rows of a table of sections: struct config_section ------------------------------------------------------------
 *
 * 'whole' is the struct of the whole file.  Its member for the section has the section's name.  After the help, a row
 * may set further members of struct config_section. */
#define CONFIG_SECTION(whole, member, table, ...)                                                                      \
    CONFIG_SECTION_PART(whole, member, table, ARRAY_LEN(table), __VA_ARGS__)
/* A section that has only the first 'n' keys of a table of keys. */
#define CONFIG_SECTION_PART(whole, member, table, n, ...)                                                              \
    {                                                                                                                  \
        .name = #member, .keys = table, .n_keys = (n), .struct_bytes = sizeof(((whole *)0)->member),                   \
        .offset = offsetof(whole, member), .help = __VA_ARGS__                                                         \
    }
/* A section that is a list of 'least' to 'most' items.  Each item is a struct 'item'. */
#define CONFIG_LIST(whole, member, item, table, least, most, ...)                                                      \
    {                                                                                                                  \
        .name = #member, .keys = table, .n_keys = ARRAY_LEN(table), .struct_bytes = sizeof(item),                      \
        .offset = offsetof(whole, member), .repeats = true, .min_n = least, .max_n = most, .help = __VA_ARGS__         \
    }

struct config_array {
    size_t n;
    void *items; /* [n] instances of the section's struct */
};

struct config_table {
    const char *program; /* "fgpu" */
    const char *help;
    const struct config_section *sections;
    size_t n_sections;
    bool tunes; /* true if the program has the option --tune */
};

/* The errors that have been found in a configuration, and the place of each value in the file. */
struct config;

/* Reads the file 'path' into 'out', the struct that the table describes.  The caller must zero 'out' before the call.
 * Returns 0, -EINVAL after errors (see config_print_errors), -ENOMEM if an allocation failed, or another negative errno
 * if the file cannot be read.  The list of errors also contains the failure to read the file. */
int config_load(const struct config_table *table, const char *path, void *out, struct config **config);

/* Adds an error at the place of the value stored at 'field' (an address inside 'out'), for checks that involve several
 * keys.  If the file lacks the value, the error is at the value's section.  The sentence names the fault and the
 * remedy. */
void config_error(struct config *config, const void *field, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds a warning about a legal value that is probably a mistake.  config_print_errors() prints warnings, but
 * config_n_errors() does not count them. */
void config_warning(struct config *config, const void *field, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Writes "FILE:line:column: ", the place of the value whose key is at the beginning of 'sentence' ("recv.interface:
 * ...", "antennas[0].pol0: ...").  This function is for errors that the program finds only at its start.  The function
 * that finds the error begins its sentence with the key.  The function that reports the error writes the place before
 * the sentence.  If the file does not have the key, the function writes the place of the key's section.  If the
 * sentence does not begin with a key, the text is "FILE: ".  Returns 'text'. */
char *config_locate(const struct config *config, const char *sentence, char *text, size_t text_bytes);

/* Records that an allocation failed, for checks that allocate memory.  A check that runs out of memory skips the rest of
 * its work. */
void config_lacks_memory(struct config *config);

/* Returns the path of the file, as given to config_load(). */
const char *config_path(const struct config *config);

/* Returns true if the value at 'field' comes from the file, not from the default. */
bool config_given(const struct config *config, const void *field);

/* Number of errors that are printed; further errors are only counted. */
#define CONFIG_SAID_ERRORS 100

/* Returns 0 if no error has been found, -EINVAL after errors, or -ENOMEM if an allocation failed.  -ENOMEM takes
 * precedence, because the errors may then be the result of the failed allocation. */
int config_result(const struct config *config);

/* Returns the number of errors found so far, and counts failed allocations as one error.  config_print_errors() prints
 * the errors and warnings, sorted by line, as "file:line:column: [warning: ]sentence". */
size_t config_n_errors(const struct config *config);
void config_print_errors(const struct config *config, FILE *out);

/* Creates a struct config without a file, for errors in values that arrive at run time.  Returns NULL if there is no
 * memory.  Free the struct with config_free(NULL, NULL, config).  config_first_error() returns the sentence of the
 * first error, or NULL. */
struct config *config_create_book(void);
const char *config_first_error(const struct config *config);

/* Returns true if a key is valid when the section's key `kind` has the value 'kind'. */
bool config_key_applies(const struct config_key *key, int kind);

/* Size in bytes of a buffer for any sentence about one value. */
#define CONFIG_SENTENCE_BYTES 640

/* Parses 'text' into 'field', and frees the old value.  'text' is one value, or a list with commas between its items.
 * Returns 0, -ENOMEM, or -EINVAL with the rest of a sentence about the key in 'why' ("must be ..., but ... is
 * given").  After a failure 'field' has its old value. */
int config_value_set(const struct config_key *key, const char *text, void *field, char *why, size_t why_bytes);

void config_value_free(const struct config_key *key, void *field);

/* Writes the value in the form that config_value_set() reads.  Values in a file have the same form, except that lists
 * in a file have brackets and may have blanks. */
void config_value_write(const struct config_key *key, const void *field, FILE *out);

/* Prints the effective values with their units, as YAML that can be loaded again. */
void config_print(const struct config_table *table, const void *values, FILE *out);

/* Prints the JSON Schema (draft 2020-12) of the file. */
void config_print_schema(const struct config_table *table, FILE *out);

/* Prints the annotated example: every key with unit, range, default and help. */
void config_print_example(const struct config_table *table, FILE *out);

/* Frees the memory that config_load() allocated for 'values' and for 'config'.  NULL is accepted. */
void config_free(const struct config_table *table, void *values, struct config *config);

#endif
