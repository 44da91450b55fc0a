/* internal.h - functions that the files of config share: single values, and tables applied to structs.
 *
 * Flow: config/file.c (file -> YAML) -> config/load.c (YAML -> values); config/print.c goes the other way.  Only
 *       config/values.c (text -> memory) and config/format.c (memory -> text) know the form of each type. */
#ifndef COMMON_CONFIG_INTERNAL_H
#define COMMON_CONFIG_INTERNAL_H

#include "common/config/config.h"

#include <yaml.h>

/* A place in the file.  Line and column count from 1; line 0 is the file as a whole. */
struct config_mark {
    size_t line, column;
};

/* ---- config.c: the book of errors and places --------------------------------------------------------------------- */

struct config *config_create(const char *path);

/* Adds an error at 'mark'.  Beyond CONFIG_SAID_ERRORS, errors are only counted. */
void config_error_at(struct config *config, struct config_mark mark, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns whether further errors are only counted, so that their sentences need no preparation. */
bool config_is_full(const struct config *config);

/* Records that the 'n_bytes' at 'field' come from 'mark'; 'given' distinguishes a key's value from a section. */
void config_add_place(struct config *config, const void *field, size_t n_bytes, struct config_mark mark, bool given);

/* Records the place of the value or section with this full name: "antennas[0].pol0", "recv".  Returns a copy of the
 * name that lives as long as the config, or NULL if there is no memory. */
const char *config_add_name(struct config *config, const char *name, struct config_mark mark);

/* Return the number of instances of a section in 'values', and instance 'i'. */
size_t config_section_n(const struct config_section *section, const void *values);
void *config_section_item(const struct config_section *section, const void *values, size_t i);

/* Returns the choice of a section instance's `kind`, or 0 if the section has no variants. */
int config_kind(const struct config_section *section, const void *item);

/* ---- config/load.c: the sections and keys of a YAML document ----------------------------------------------------- */

/* Fills the zeroed 'values', and reports errors.  Returns 0 or -ENOMEM. */
int config_load_document(struct config *config, const struct config_table *table, yaml_document_t *document,
                         void *values);

/* ---- config/values.c: one value from text ------------------------------------------------------------------------ */

/* Count of numbers in a CFG_POSITION. */
#define CONFIG_POSITION_N 3

/* Returns true for types whose values are lists.  A list of one item may be written without brackets. */
bool config_type_is_list(enum config_type type);

size_t config_value_bytes(enum config_type type);

/* Parses the scalars 'items' of a value (exactly one unless the type is a list) into 'field'.  Returns 0, -ENOMEM or
 * -EINVAL.  On -EINVAL 'why' has a predicate ("must be ..., but ... is given"), *bad_item is the index of the wrong
 * item (< n_items, or 0), and 'field' is untouched. */
int config_value_parse(const struct config_key *key, const char *const *items, size_t n_items, void *field, char *why,
                       size_t why_bytes, size_t *bad_item);

/* Parses the key's default text, which must be valid.  Returns 0 or -ENOMEM. */
int config_value_default(const struct config_key *key, void *field);

/* ---- config/format.c: one value to text -------------------------------------------------------------------------- */

bool config_key_bounded(const struct config_key *key);

/* Writes the description of a valid value: "an integer from 2 to 16 bits".  Returns 'text'. */
char *config_expected(const struct config_key *key, char *text, size_t text_bytes);

/* Returns the unit's name, such as "Hz", or NULL for UNIT_NONE. */
const char *config_unit_name(enum config_unit unit);

/* Writes a bound of a range, without a needless exponent.  Returns 'text'. */
char *config_number_format(double number, char *text, size_t text_bytes);

/* Writes 'value' in quotes for a message, and cuts a long value.  Returns 'text'. */
char *config_quote(const char *value, char *text, size_t text_bytes);

/* Writes the value as YAML, or as JSON. */
void config_value_print(const struct config_key *key, const void *field, bool json, FILE *out);

/* Writes a text as a JSON string, which is YAML, too. */
void config_text_print(const char *text, FILE *out);

#endif
