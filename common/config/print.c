/* print.c - prints the values of a configuration as YAML, and a table of keys as JSON Schema or as an annotated
 * example. */
#include "common/config/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define EXAMPLE_COLUMNS 100

/* ---- The effective values ---------------------------------------------------------------------------------------- */

static void print_item(const struct config_section *section, const void *item, FILE *out)
{
    int kind = config_kind(section, item);
    bool first = true;

    for (size_t k = 0; k < section->n_keys; k++) {
        const struct config_key *key = &section->keys[k];
        const char *unit = config_unit_name(key->unit);

        if (!config_key_applies(key, kind))
            continue;
        fprintf(out, "%s%s: ", !section->repeats ? "  " : first ? "  - " : "    ", key->name);
        config_value_print(key, (const char *)item + key->offset, false, out);
        if (unit)
            fprintf(out, "  # %s", unit);
        fputc('\n', out);
        first = false;
    }
}

void config_print(const struct config_table *table, const void *values, FILE *out)
{
    for (size_t s = 0; s < table->n_sections; s++) {
        const struct config_section *section = &table->sections[s];
        size_t n = config_section_n(section, values);

        fprintf(out, "%s:%s\n", section->name, n ? "" : " []");
        for (size_t i = 0; i < n; i++)
            print_item(section, config_section_item(section, values, i), out);
    }
}

/* Writes the default.  Parses the default first, so that it is written in the same form as any other value. */
static void print_default(const struct config_key *key, bool json, FILE *out)
{
    void *field = calloc(1, config_value_bytes(key->type));

    if (field && config_value_default(key, field) == 0) {
        config_value_print(key, field, json, out);
        config_value_free(key, field);
    }
    free(field);
}

/* ---- JSON Schema ------------------------------------------------------------------------------------------------- */

/* Writes a comma and a bound, for example: , "minimum": 2 */
static void schema_bound(const char *name, double bound, FILE *out)
{
    char text[40];

    fprintf(out, ", \"%s\": %s", name, config_number_format(bound, text, sizeof(text)));
}

/* Writes the type of a value and its bounds.  'min' and 'max' are the names of the bounds in JSON Schema. */
static void schema_type(const struct config_key *key, const char *type, const char *min, const char *max, FILE *out)
{
    fprintf(out, "\"type\": \"%s\"", type);
    if (config_key_bounded(key)) {
        schema_bound(min, key->min, out);
        schema_bound(max, key->max, out);
    }
}

static void schema_numbers(const struct config_key *key, const char *type, FILE *out)
{
    schema_type(key, type, "minimum", "maximum", out);
}

static void schema_powers_of_two(const struct config_key *key, FILE *out)
{
    const char *separator = "";

    fputs("\"enum\": [", out);
    for (int64_t power = 1; power <= INT64_C(1) << 61; power *= 2) {
        if (config_key_bounded(key) && ((double)power < key->min || (double)power > key->max))
            continue;
        fprintf(out, "%s%" PRId64, separator, power);
        separator = ", ";
    }
    fputc(']', out);
}

static void schema_choices(const struct config_key *key, FILE *out)
{
    fputs("\"enum\": [", out);
    for (size_t i = 0; key->choices[i]; i++) {
        fputs(i ? ", " : "", out);
        config_text_print(key->choices[i], out);
    }
    fputc(']', out);
}

/* Writes the JSON Schema of one value. */
static void schema_value(const struct config_key *key, FILE *out)
{
    switch (key->type) {
    case CFG_INT: schema_numbers(key, "integer", out); break;
    case CFG_POW2: schema_powers_of_two(key, out); break;
    case CFG_DOUBLE:
    case CFG_DECIMAL:
    case CFG_FINE: schema_numbers(key, "number", out); break;
    case CFG_BOOL: fputs("\"type\": \"boolean\"", out); break;
    case CFG_STRING: schema_type(key, "string", "minLength", "maxLength", out); break;
    case CFG_ENUM: schema_choices(key, out); break;
    case CFG_ENDPOINTS:
        /* One string may contain several addresses, so the schema can only require that the string is not empty. */
        fprintf(out, "\"anyOf\": [{\"type\": \"string\", \"minLength\": %d}, ", key->min > 0);
        fprintf(out, "{\"type\": \"array\", \"items\": {\"type\": \"string\"}, \"minItems\": %d}]", key->min > 0);
        break;
    case CFG_INT_LIST:
        fputs("\"anyOf\": [{", out);
        schema_numbers(key, "integer", out);
        fputs("}, {\"type\": \"array\", \"items\": {", out);
        schema_numbers(key, "integer", out);
        fputs("}}]", out);
        break;
    case CFG_POSITION:
        fputs("\"type\": \"array\", \"items\": {", out);
        schema_numbers(key, "number", out);
        fprintf(out, "}, \"minItems\": %d, \"maxItems\": %d", CONFIG_POSITION_N, CONFIG_POSITION_N);
        break;
    }
}

static void schema_key(const struct config_key *key, FILE *out)
{
    const char *unit = config_unit_name(key->unit);
    char description[400];

    snprintf(description, sizeof(description), "%s%s%s%s", key->help, unit ? " Unit: " : "", unit ? unit : "",
             unit ? "." : "");
    fputs("          ", out);
    config_text_print(key->name, out);
    fputs(": {\"description\": ", out);
    config_text_print(description, out);
    fputs(", ", out);
    schema_value(key, out);
    if (key->default_text) {
        fputs(", \"default\": ", out);
        print_default(key, true, out);
    }
    fputc('}', out);
}

static void schema_required_keys(const struct config_section *section, FILE *out)
{
    const char *separator = "";

    fputs("        \"required\": [", out);
    for (size_t k = 0; k < section->n_keys; k++) {
        /* The schema does not require keys that are required only with some kinds.  Only --check-config checks these
         * keys. */
        if (section->keys[k].default_text || section->keys[k].variants)
            continue;
        fprintf(out, "%s\"%s\"", separator, section->keys[k].name);
        separator = ", ";
    }
    fputs("],\n", out);
}

/* Returns true if the value of the section may be null, because no key is required.  In the example file, such a
 * section is a heading without a value, which is null in YAML. */
static bool may_be_null(const struct config_section *section)
{
    for (size_t k = 0; k < section->n_keys; k++) {
        if (!section->keys[k].default_text)
            return false;
    }
    return !section->repeats;
}

static void schema_section(const struct config_section *section, FILE *out)
{
    fputs("    ", out);
    config_text_print(section->name, out);
    fputs(": {\n      \"description\": ", out);
    config_text_print(section->help, out);
    if (section->repeats)
        fprintf(out, ",\n      \"type\": %s, \"minItems\": %zu, \"maxItems\": %zu, \"items\": {\n",
                section->min_n == 0 ? "[\"array\", \"null\"]" : "\"array\"", section->min_n, section->max_n);
    else
        fputs(",\n", out);
    fprintf(out, "        \"type\": %s, \"additionalProperties\": false,\n",
            may_be_null(section) ? "[\"object\", \"null\"]" : "\"object\"");
    schema_required_keys(section, out);
    fputs("        \"properties\": {\n", out);
    for (size_t k = 0; k < section->n_keys; k++) {
        schema_key(&section->keys[k], out);
        fputs(k + 1 < section->n_keys ? ",\n" : "\n", out);
    }
    fputs(section->repeats ? "        }\n      }\n    }" : "        }\n    }", out);
}

void config_print_schema(const struct config_table *table, FILE *out)
{
    const char *separator = "";

    fputs("{\n  \"$schema\": \"https://json-schema.org/draft/2020-12/schema\",\n  \"title\": ", out);
    config_text_print(table->program, out);
    fputs(",\n  \"description\": ", out);
    config_text_print(table->help, out);
    fputs(",\n  \"type\": \"object\", \"additionalProperties\": false,\n  \"required\": [", out);
    for (size_t s = 0; s < table->n_sections; s++) {
        if (table->sections[s].optional)
            continue;
        fprintf(out, "%s\"%s\"", separator, table->sections[s].name);
        separator = ", ";
    }
    fputs("],\n  \"properties\": {\n", out);
    for (size_t s = 0; s < table->n_sections; s++) {
        schema_section(&table->sections[s], out);
        fputs(s + 1 < table->n_sections ? ",\n" : "\n", out);
    }
    fputs("  }\n}\n", out);
}

/* ---- The annotated example --------------------------------------------------------------------------------------- */

/* Writes 'text' as comment lines, broken between words. */
static void example_comment(const char *indent, const char *text, FILE *out)
{
    size_t room = EXAMPLE_COLUMNS - strlen(indent) - 2;

    while (*text) {
        size_t n = strlen(text);

        if (n > room) {
            for (n = room; n > 0 && text[n] != ' '; n--)
                ;
            /* A word that is longer than a line gets a separate line. */
            n = n ? n : strcspn(text, " ");
        }
        fprintf(out, "%s# %.*s\n", indent, (int)n, text);
        text += n;
        text += strspn(text, " ");
    }
}

/* Writes the description of a valid value, for example "An integer from 2 to 16 bits.". */
static void example_expected(const struct config_key *key, FILE *out)
{
    char expected[400], sentence[480];

    config_expected(key, expected, sizeof(expected));
    if (key->type != CFG_ENUM && expected[0] >= 'a' && expected[0] <= 'z')
        expected[0] += 'A' - 'a';
    snprintf(sentence, sizeof(sentence), "%s%s.", key->type == CFG_ENUM ? "Choices: " : "", expected);
    example_comment("  ", sentence, out);
}

/* Writes the kinds with which the key is valid, for example "Only with kind cuda or auto.".  Writes nothing if the key
 * is always valid. */
static void example_kinds(const struct config_section *section, const struct config_key *key, FILE *out)
{
    const char *separator = "  # Only with kind ";

    if (!key->variants)
        return;
    for (int i = 0; section->keys[0].choices[i]; i++) {
        if (!config_key_applies(key, i))
            continue;
        fprintf(out, "%s%s", separator, section->keys[0].choices[i]);
        separator = " or ";
    }
    fputs(".\n", out);
}

/* Writes a key with its help.  A key without an example value becomes a comment, with its default or "(required)". */
static void example_key(const struct config_section *section, const struct config_key *key, FILE *out)
{
    fputs("\n", out);
    example_comment("  ", key->help, out);
    example_expected(key, out);
    example_kinds(section, key, out);
    if (key->example) {
        fprintf(out, "  %s: %s", key->name, key->example);
    } else if (key->default_text) {
        fprintf(out, "  #%s: ", key->name);
        print_default(key, false, out);
    } else {
        fprintf(out, "  #%s: (required)", key->name);
    }
    fputc('\n', out);
}

void config_print_example(const struct config_table *table, FILE *out)
{
    fprintf(out, "# %s.yaml - an example with every key.\n#\n", table->program);
    example_comment("", table->help, out);
    fputs("#\n", out);
    example_comment(
        "", "Keys after # have their default values, unless they are marked (required). Check a file before use:", out);
    fprintf(out, "#   %s --check-config FILE\n", table->program);
    for (size_t s = 0; s < table->n_sections; s++) {
        const struct config_section *section = &table->sections[s];

        fputc('\n', out);
        example_comment("", section->help, out);
        if (section->repeats)
            fprintf(out, "# A list of %zu to %zu items, each with the keys described here.\n", section->min_n,
                    section->max_n);
        fprintf(out, "%s:\n", section->name);
        for (size_t k = 0; k < section->n_keys; k++)
            example_key(section, &section->keys[k], out);
        if (section->repeats)
            fprintf(out, "\n%s", section->example ? section->example : "");
    }
}
