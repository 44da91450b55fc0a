/* man.c - the tables as manual pages (mdoc), which tools/manpage.c puts together. */
#include "common/config/internal.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* One character of a line of text. */
static void put_char(char c, bool first, FILE *out)
{
    if (c == '\\')
        fputs("\\e", out);
    else if (first && (c == '.' || c == '\''))
        fprintf(out, "\\&%c", c); /* else it would be a macro */
    else
        fputc(c, out);
}

void config_print_man_text(const char *text, FILE *out)
{
    bool first = true;

    for (const char *c = text; *c; c++) {
        bool ends = strchr(".?!:", c[0]) && c[1] == ' ' && (isupper((unsigned char)c[2]) || c[0] != ':');
        put_char(*c, first, out);
        first = ends && c[0] != ':';
        if (!first)
            continue;
        fputc('\n', out);
        c += strspn(c + 1, " ");
    }
    fputc('\n', out);
}

void config_print_man_options(const struct config_table *table, FILE *out)
{
    fputs(".Bl -tag -width Fl\n", out);
    for (const struct config_option *option = config_options + !table->tunes; option->name; option++) {
        fprintf(out, ".It Fl Fl %s%s\n%c", option->name, option->needs_file ? " Ar file" : "",
                toupper((unsigned char)option->help[0]));
        fprintf(out, "%s.\n", option->help + 1);
    }
    fputs(".El\n", out);
}

static void print_default(const struct config_key *key, FILE *out)
{
    void *field = calloc(1, config_value_bytes(key->type));
    const char *unit = config_unit_name(key->unit);

    if (field && config_value_default(key, field) == 0) {
        fputs("Default:\n.Li \"", out);
        config_value_print(key, field, false, out);
        fprintf(out, "\"%s%s .\n", unit ? " " : "", unit ? unit : "");
        config_value_free(key, field);
    }
    free(field);
}

static bool default_is_empty(const struct config_key *key)
{
    return key->default_text && key->default_text[0] == '\0';
}

static void print_key(const struct config_section *section, const struct config_key *key, FILE *out)
{
    char expected[400];

    fprintf(out, ".It Ic %s\n", key->name);
    config_print_man_text(key->help, out);
    config_expected(key, expected, sizeof(expected));
    if (key->type != CFG_ENUM)
        expected[0] = (char)toupper((unsigned char)expected[0]);
    fprintf(out, "%s%s.\n", key->type == CFG_ENUM ? "One of: " : "", expected);
    config_kinds_print("", section, key, out);
    if (!key->default_text)
        fputs("Must be given.\n", out);
    else if (!default_is_empty(key))
        print_default(key, out);
}

static void print_section(const struct config_section *section, FILE *out)
{
    fprintf(out, ".Ss %s\n", section->name);
    config_print_man_text(section->help, out);
    if (section->repeats)
        fprintf(out, "A list of %zu to %zu items, each with the keys that follow.\n", section->min_n, section->max_n);
    if (section->optional)
        fputs("This section may be left out.\n", out);
    fputs(".Bl -tag -width Ds\n", out);
    for (size_t k = 0; k < section->n_keys; k++)
        print_key(section, &section->keys[k], out);
    fputs(".El\n", out);
}

void config_print_man_keys(const struct config_table *table, FILE *out)
{
    for (size_t s = 0; s < table->n_sections; s++)
        print_section(&table->sections[s], out);
}

static bool section_in_example(const struct config_section *section)
{
    for (size_t k = 0; k < section->n_keys; k++) {
        if (!section->keys[k].default_text || section->keys[k].example)
            return true;
    }
    return false;
}

/* Literal text, line by line. */
static void print_literal(const char *text, FILE *out)
{
    bool first = true;

    for (; *text; text++) {
        put_char(*text, first, out);
        first = *text == '\n';
    }
}

void config_print_man_example(const struct config_table *table, FILE *out)
{
    fputs(".Bd -literal\n", out);
    for (size_t s = 0; s < table->n_sections; s++) {
        const struct config_section *section = &table->sections[s];
        if (section->optional || !section_in_example(section))
            continue;
        fprintf(out, "%s:\n", section->name);
        if (section->repeats)
            print_literal(section->example ? section->example : "", out);
        for (size_t k = 0; !section->repeats && k < section->n_keys; k++) {
            if (!section->keys[k].example)
                continue;
            fprintf(out, "  %s: ", section->keys[k].name);
            print_literal(section->keys[k].example, out);
            fputc('\n', out);
        }
    }
    fputs(".Ed\n", out);
}
