/* internal.h - functions that are shared by the files of common/config.
 *
 * Flow: config/file.c (file -> YAML) -> config/load.c (YAML -> values); config/print.c writes values as YAML.  Only
 *       config/values.c (text -> memory) and config/format.c (memory -> text) contain the text form of each type. */
#ifndef COMMON_CONFIG_INTERNAL_H
#define COMMON_CONFIG_INTERNAL_H

#include "common/config/config.h"

#include <yaml.h>

/* A place in the file.  Line and column count from 1; line 0 is the file as a whole. */
struct config_mark {
    size_t line, column;
};

/* ---- config.c: the errors, and the places of sections and values in the file ------------------------------------- */

struct config *config_create(const char *path);

/* Adds an error at 'mark'.  After CONFIG_SAID_ERRORS errors, only counts the error. */
void config_error_at(struct config *config, struct config_mark mark, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns true if further errors are only counted.  The caller then need not prepare the sentences of these
 * errors. */
bool config_is_full(const struct config *config);

/* Records that the 'n_bytes' bytes at 'field' come from the place 'mark' in the file.  'given' is true for the value of
 * a key, and false for a section. */
void config_add_place(struct config *config, const void *field, size_t n_bytes, struct config_mark mark, bool given);

/* Records that the value or section with the full name 'name' ("antennas[0].pol0", "recv") is at 'mark'.  Returns a
 * copy of the name that lives as long as the config, or NULL if there is no memory. */
const char *config_add_name(struct config *config, const char *name, struct config_mark mark);

/* Return the number of instances of a section in 'values', and a pointer to instance 'i'. */
size_t config_section_n(const struct config_section *section, const void *values);
void *config_section_item(const struct config_section *section, const void *values, size_t i);

/* Returns the value of the key `kind` in the section instance 'item', or 0 if the section has no variants. */
int config_kind(const struct config_section *section, const void *item);

/* ---- config/load.c: the sections and keys of a YAML document ----------------------------------------------------- */

/* Fills the zeroed 'values' from the document, and reports errors.  Returns 0 or -ENOMEM. */
int config_load_document(struct config *config, const struct config_table *table, yaml_document_t *document,
                         void *values);

/* ---- config/values.c: one value from text ------------------------------------------------------------------------ */

/* Length of the list of numbers in a CFG_POSITION. */
#define CONFIG_POSITION_N 3

/* Returns true for types whose values are lists.  A list of one item may be written without brackets. */
bool config_type_is_list(enum config_type type);

size_t config_value_bytes(enum config_type type);

/* Parses 'items', the scalars of one value, into 'field'.  A value that is not a list has exactly one item.  Returns 0,
 * -ENOMEM or -EINVAL.  After -EINVAL, 'why' has the rest of a sentence about the key ("must be ..., but ... is given").
 * '*bad_item' is then the index of the wrong item, or 0 if there are no items.  After -EINVAL, 'field' is unchanged. */
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

/* Writes a bound of a range, with an exponent only if necessary.  Returns 'text'. */
char *config_number_format(double number, char *text, size_t text_bytes);

/* Writes 'value' in quotes for a message, and cuts a long value.  Returns 'text'. */
char *config_quote(const char *value, char *text, size_t text_bytes);

/* Writes the value as JSON if 'json' is true, otherwise as YAML. */
void config_value_print(const struct config_key *key, const void *field, bool json, FILE *out);

/* Writes a text as a JSON string, which is also a YAML string. */
void config_text_print(const char *text, FILE *out);

#endif
