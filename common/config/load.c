/* load.c - fills the structs of a table from the YAML document of config/file.c, and reports all errors of the file.
 *
 * In libyaml's document each node has its line and column, and aliases are resolved.  The functions descend only from
 * section to key to list item, so an alias that contains itself causes no endless recursion. */
#include "common/config/internal.h"
#include "common/net/endpoint.h"
#include "common/base/units.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#define MAX_KEYS       64
#define NAME_MAX_CHARS 40

struct loader {
    struct config *config;
    yaml_document_t *document;
    bool out_of_memory;
};

static struct config_mark node_mark(const yaml_node_t *node)
{
    return (struct config_mark){node->start_mark.line + 1, node->start_mark.column + 1};
}

/* ---- YAML nodes -------------------------------------------------------------------------------------------------- */

static const char *scalar_text(const yaml_node_t *node)
{
    return (const char *)node->data.scalar.value;
}

/* Returns whether a value is null: "null", "~", or nothing after the colon. */
static bool is_null(const yaml_node_t *node)
{
    static const char *const words[] = {"", "~", "null", "Null", "NULL"};

    if (node->type != YAML_SCALAR_NODE || node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (!strcmp(scalar_text(node), words[i]))
            return true;
    }
    return false;
}

/* Describes a value of the wrong type for an error: "a list", "nothing", "'text'".  Returns 'text'. */
static char *describe_node(const yaml_node_t *node, char *text, size_t text_bytes)
{
    if (node->type == YAML_MAPPING_NODE)
        snprintf(text, text_bytes, "a group of keys");
    else if (node->type == YAML_SEQUENCE_NODE)
        snprintf(text, text_bytes, "a list");
    else if (is_null(node))
        snprintf(text, text_bytes, "nothing");
    else
        config_quote(scalar_text(node), text, text_bytes);
    return text;
}

/* Returns whether a text has control characters other than newline and tab.  YAML permits any character in a text, for
 * example "\0".  The program must refuse them, because it uses texts as C strings, in logs and in metrics. */
static bool has_control_characters(const yaml_node_t *node)
{
    for (size_t i = 0; i < node->data.scalar.length; i++) {
        yaml_char_t c = node->data.scalar.value[i];

        if ((c < ' ' && c != '\n' && c != '\t') || c == 0x7f)
            return true;
    }
    return false;
}

/* ---- Names and their misspellings -------------------------------------------------------------------------------- */

/* Returns the smallest number of insertions, deletions, substitutions and swaps of neighbouring characters that turn
 * one name into the other.  This is the Damerau-Levenshtein distance in the variant "optimal string alignment": no
 * character is edited twice. */
static size_t name_distance(const char *a, const char *b)
{
    size_t rows[3][NAME_MAX_CHARS + 1];
    size_t n_a = strlen(a), n_b = strlen(b);

    if (n_a > NAME_MAX_CHARS || n_b > NAME_MAX_CHARS)
        return NAME_MAX_CHARS;
    for (size_t j = 0; j <= n_b; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        size_t *now = rows[i % 3], *last = rows[(i - 1) % 3], *before = rows[(i + 1) % 3];

        now[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            size_t best = last[j - 1] + (a[i - 1] != b[j - 1]);

            best = last[j] + 1 < best ? last[j] + 1 : best;
            best = now[j - 1] + 1 < best ? now[j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            now[j] = best;
        }
    }
    return rows[n_a % 3][n_b];
}

/* Stores 'name' in *nearest if its distance to 'text' is less than *distance. */
static void consider(const char *text, const char *name, const char **nearest, size_t *distance)
{
    size_t d = name_distance(text, name);

    if (d < *distance) {
        *distance = d;
        *nearest = name;
    }
}

/* Returns the smallest distance at which a name counts as a different name, not as a misspelling of 'text'.  A
 * misspelling has at most one wrong character in three. */
static size_t misspelling_limit(const char *text)
{
    return strlen(text) < 3 ? 2 : strlen(text) / 3 + 1;
}

static void report_unknown_section(struct loader *loader, const struct config_table *table, const yaml_node_t *key)
{
    const char *nearest = NULL;
    size_t distance = misspelling_limit(scalar_text(key));
    char quoted[80], names[CONFIG_SENTENCE_BYTES] = "";

    for (size_t s = 0; s < table->n_sections && !config_is_full(loader->config); s++) {
        size_t used = strlen(names);

        consider(scalar_text(key), table->sections[s].name, &nearest, &distance);
        snprintf(names + used, sizeof(names) - used, "%s%s", s ? ", " : "", table->sections[s].name);
    }
    config_quote(scalar_text(key), quoted, sizeof(quoted));
    if (nearest)
        config_error_at(loader->config, node_mark(key), "unknown section %s; did you mean '%s'?", quoted, nearest);
    else
        config_error_at(loader->config, node_mark(key), "unknown section %s; the sections are %s", quoted, names);
}

static void report_unknown_key(struct loader *loader, const struct config_section *section, const yaml_node_t *key)
{
    const char *nearest = NULL;
    size_t distance = misspelling_limit(scalar_text(key));
    char quoted[80], names[CONFIG_SENTENCE_BYTES] = "";

    for (size_t k = 0; k < section->n_keys && !config_is_full(loader->config); k++) {
        size_t used = strlen(names);

        consider(scalar_text(key), section->keys[k].name, &nearest, &distance);
        snprintf(names + used, sizeof(names) - used, "%s%s", k ? ", " : "", section->keys[k].name);
    }
    config_quote(scalar_text(key), quoted, sizeof(quoted));
    if (nearest)
        config_error_at(loader->config, node_mark(key), "unknown key %s in %s; did you mean '%s'?", quoted,
                        section->name, nearest);
    else
        config_error_at(loader->config, node_mark(key), "unknown key %s in %s; its keys are %s", quoted, section->name,
                        names);
}

/* ---- Keys -------------------------------------------------------------------------------------------------------- */

/* Returns whether 'node' is a scalar without control characters, and reports an error otherwise.  'node' is a key's
 * value, or an item of a value that is a list. */
static bool check_scalar(struct loader *loader, const struct config_key *key, const char *where,
                         const yaml_node_t *node)
{
    char expected[400], given[80];

    if (node->type != YAML_SCALAR_NODE || is_null(node)) {
        config_error_at(loader->config, node_mark(node), "%s.%s must be %s, but %s is given", where, key->name,
                        config_expected(key, expected, sizeof(expected)), describe_node(node, given, sizeof(given)));
        return false;
    }
    if (has_control_characters(node)) {
        config_error_at(loader->config, node_mark(node), "%s.%s must not contain control characters", where, key->name);
        return false;
    }
    return true;
}

/* Parses the scalars 'nodes' [n_nodes] of the value into 'field'. */
static void load_scalars(struct loader *loader, const struct config_key *key, const char *where,
                         const yaml_node_t *value, yaml_node_t **nodes, size_t n_nodes, void *field)
{
    const char **items = calloc(n_nodes + 1, sizeof(*items));
    char why[CONFIG_SENTENCE_BYTES];
    size_t bad_item;
    bool ok = true;
    int err;

    if (!items) {
        loader->out_of_memory = true;
        return;
    }
    for (size_t i = 0; i < n_nodes; i++) {
        ok &= check_scalar(loader, key, where, nodes[i]);
        items[i] = ok ? scalar_text(nodes[i]) : NULL;
    }
    err = ok ? config_value_parse(key, items, n_nodes, field, why, sizeof(why), &bad_item) : 0;
    if (err == -ENOMEM)
        loader->out_of_memory = true;
    else if (err)
        config_error_at(loader->config, node_mark(n_nodes ? nodes[bad_item] : value), "%s.%s %s", where, key->name,
                        why);
    free(items);
}

static void load_value(struct loader *loader, const struct config_key *key, const char *where, yaml_node_t *value,
                       void *field)
{
    yaml_node_t **nodes;
    size_t n = 0;

    config_add_place(loader->config, field, config_value_bytes(key->type), node_mark(value), true);
    if (value->type != YAML_SEQUENCE_NODE || !config_type_is_list(key->type)) {
        load_scalars(loader, key, where, value, &value, 1, field);
        return;
    }
    nodes = calloc(value->data.sequence.items.top - value->data.sequence.items.start + 1, sizeof(*nodes));
    if (!nodes) {
        loader->out_of_memory = true;
        return;
    }
    for (yaml_node_item_t *item = value->data.sequence.items.start; item < value->data.sequence.items.top; item++)
        nodes[n++] = yaml_document_get_node(loader->document, *item);
    load_scalars(loader, key, where, value, nodes, n, field);
    free(nodes);
}

/* Records the value's full name.  Also stores the name in each endpoint of the value, for errors about endpoints that
 * cannot be used. */
static void name_value(struct loader *loader, const struct config_key *key, const char *where, struct config_mark mark,
                       void *field)
{
    char full[160];

    snprintf(full, sizeof(full), "%s.%s", where, key->name);
    const char *name = config_add_name(loader->config, full, mark);
    if (key->type == CFG_ENDPOINTS) {
        struct endpoint_list *list = field;

        for (size_t i = 0; i < list->n; i++)
            list->items[i].key = name;
    }
}

/* Sets the default of a key that the file does not have.  Reports an error at the section if the key has no default. */
static void default_value(struct loader *loader, const struct config_key *key, const char *where,
                          struct config_mark mark, void *field)
{
    if (!key->default_text)
        config_error_at(loader->config, mark, "%s.%s is missing and has no default (%.*s)", where, key->name,
                        (int)strlen(key->help) - 1, key->help); /* prints the help without its full stop */
    else if (config_value_default(key, field) != 0)
        loader->out_of_memory = true;
}

static const struct config_key *find_key(const struct config_section *section, const char *name)
{
    for (size_t k = 0; k < section->n_keys; k++) {
        if (!strcmp(section->keys[k].name, name))
            return &section->keys[k];
    }
    return NULL;
}

/* Sorts the pairs of a section's mapping into the order of the table.  Stores the name and value of key k in keys[k]
 * and values[k], which stay NULL if the file does not have the key. */
static void collect_keys(struct loader *loader, const struct config_section *section, const char *where,
                         const yaml_node_t *mapping, yaml_node_t **keys, yaml_node_t **values)
{
    yaml_node_pair_t *pair;

    for (pair = mapping->data.mapping.pairs.start; pair < mapping->data.mapping.pairs.top; pair++) {
        yaml_node_t *name = yaml_document_get_node(loader->document, pair->key);
        const struct config_key *key;
        size_t k;

        if (name->type != YAML_SCALAR_NODE) {
            config_error_at(loader->config, node_mark(name), "a key of %s must be a word", where);
            continue;
        }
        key = find_key(section, scalar_text(name));
        if (!key) {
            report_unknown_key(loader, section, name);
            continue;
        }
        k = key - section->keys;
        if (values[k]) {
            config_error_at(loader->config, node_mark(name), "%s.%s was already given in line %zu", where, key->name,
                            keys[k]->start_mark.line + 1);
            continue;
        }
        keys[k] = name;
        values[k] = yaml_document_get_node(loader->document, pair->value);
    }
}

/* Reports a key that is not valid with the section's `kind`. */
static void report_other_kind(struct loader *loader, const struct config_section *section, const char *where,
                              const struct config_key *key, int kind, const yaml_node_t *name)
{
    char kinds[200] = "";

    for (int i = 0; section->keys[0].choices[i]; i++) {
        size_t used = strlen(kinds);

        if (config_key_applies(key, i))
            snprintf(kinds + used, sizeof(kinds) - used, "%s%s", used ? " or " : "", section->keys[0].choices[i]);
    }
    config_error_at(loader->config, node_mark(name), "%s.%s belongs to kind %s, but the kind is %s", where, key->name,
                    kinds, section->keys[0].choices[kind]);
}

/* ---- Sections ---------------------------------------------------------------------------------------------------- */

/* Loads one instance of a section.  'mapping' is NULL if the file does not have the instance.  'where' is the name of
 * the instance in errors. */
static void load_keys(struct loader *loader, const struct config_section *section, const char *where,
                      const yaml_node_t *mapping, struct config_mark mark, void *item)
{
    yaml_node_t *keys[MAX_KEYS] = {NULL}, *values[MAX_KEYS] = {NULL};
    size_t n_errors;
    bool kind_known = true;
    int kind = 0;

    assert(section->n_keys <= MAX_KEYS);
    config_add_place(loader->config, item, section->struct_bytes, mark, false);
    config_add_name(loader->config, where, mark);
    if (mapping)
        collect_keys(loader, section, where, mapping, keys, values);
    for (size_t k = 0; k < section->n_keys; k++) {
        const struct config_key *key = &section->keys[k];
        void *field = (char *)item + key->offset;

        if (key->variants && (!kind_known || !config_key_applies(key, kind))) {
            if (kind_known && values[k])
                report_other_kind(loader, section, where, key, kind, keys[k]);
            continue;
        }
        n_errors = config_n_errors(loader->config);
        if (values[k])
            load_value(loader, key, where, values[k], field);
        else
            default_value(loader, key, where, mark, field);
        name_value(loader, key, where, values[k] ? node_mark(values[k]) : mark, field);
        /* `kind` is the first key of a table with variants.  If its value is invalid, keys that depend on it cannot be
         * checked. */
        if (k == 0) {
            kind_known = config_n_errors(loader->config) == n_errors;
            kind = config_kind(section, item);
        }
    }
}

static void report_not_keys(struct loader *loader, const char *where, const yaml_node_t *node)
{
    char given[80];

    config_error_at(loader->config, node_mark(node),
                    "%s must be a group of keys (lines \"key: value\"), but %s is given", where,
                    describe_node(node, given, sizeof(given)));
}

/* Loads a section that is a list of instances. */
static void load_list(struct loader *loader, const struct config_section *section, const yaml_node_t *node,
                      struct config_mark mark, void *values)
{
    struct config_array *array = (void *)((char *)values + section->offset);
    size_t n = 0;

    if (node && !is_null(node) && node->type != YAML_SEQUENCE_NODE) {
        char given[80];

        config_error_at(loader->config, node_mark(node),
                        "%s must be a list (each item beginning with \"- \"), but %s is given", section->name,
                        describe_node(node, given, sizeof(given)));
        return;
    }
    config_add_place(loader->config, array, sizeof(*array), mark, false);
    config_add_name(loader->config, section->name, mark);
    if (node && node->type == YAML_SEQUENCE_NODE)
        n = node->data.sequence.items.top - node->data.sequence.items.start;
    if (n < section->min_n || n > section->max_n) {
        config_error_at(loader->config, mark, "%s must have %zu to %zu items, but %zu %s given", section->name,
                        section->min_n, section->max_n, n, n == 1 ? "is" : "are");
        return;
    }
    array->items = n ? calloc(n, section->struct_bytes) : NULL;
    if (n && !array->items) {
        loader->out_of_memory = true;
        return;
    }
    array->n = n;
    for (size_t i = 0; i < n; i++) {
        const yaml_node_t *item = yaml_document_get_node(loader->document, node->data.sequence.items.start[i]);
        char where[80];

        snprintf(where, sizeof(where), "%s[%zu]", section->name, i);
        if (item->type == YAML_MAPPING_NODE)
            load_keys(loader, section, where, item, node_mark(item), config_section_item(section, values, i));
        else
            report_not_keys(loader, where, item);
    }
}

/* Loads a section; 'node' is NULL if the file does not have the section. */
static void load_section(struct loader *loader, const struct config_section *section, const yaml_node_t *node,
                         struct config_mark mark, void *values)
{
    if (!node && !section->optional)
        config_error_at(loader->config, mark, "the section %s is missing: %s", section->name, section->help);
    else if (section->repeats)
        load_list(loader, section, node, mark, values);
    else if (!node || is_null(node))
        load_keys(loader, section, section->name, NULL, mark, (char *)values + section->offset);
    else if (node->type == YAML_MAPPING_NODE)
        load_keys(loader, section, section->name, node, mark, (char *)values + section->offset);
    else
        report_not_keys(loader, section->name, node);
}

/* Sorts the pairs of the file's mapping into the order of the table, as collect_keys() does for a section. */
static void collect_sections(struct loader *loader, const struct config_table *table, const yaml_node_t *root,
                             yaml_node_t **keys, yaml_node_t **nodes)
{
    yaml_node_pair_t *pair;

    for (pair = root->data.mapping.pairs.start; pair < root->data.mapping.pairs.top; pair++) {
        yaml_node_t *name = yaml_document_get_node(loader->document, pair->key);
        size_t s;

        if (name->type != YAML_SCALAR_NODE) {
            config_error_at(loader->config, node_mark(name), "the name of a section must be a word");
            continue;
        }
        for (s = 0; s < table->n_sections && strcmp(table->sections[s].name, scalar_text(name)) != 0; s++)
            ;
        if (s == table->n_sections) {
            report_unknown_section(loader, table, name);
        } else if (nodes[s]) {
            config_error_at(loader->config, node_mark(name), "the section %s was already given in line %zu",
                            table->sections[s].name, keys[s]->start_mark.line + 1);
        } else {
            keys[s] = name;
            nodes[s] = yaml_document_get_node(loader->document, pair->value);
        }
    }
}

/* Returns the value of a mapping's key, or NULL if 'mapping' does not have this key or is not a mapping. */
static const yaml_node_t *find_value(const struct loader *loader, const yaml_node_t *mapping, const char *name)
{
    if (!mapping || mapping->type != YAML_MAPPING_NODE)
        return NULL;
    for (yaml_node_pair_t *pair = mapping->data.mapping.pairs.start; pair < mapping->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = yaml_document_get_node(loader->document, pair->key);
        if (key->type == YAML_SCALAR_NODE && strcmp(scalar_text(key), name) == 0)
            return yaml_document_get_node(loader->document, pair->value);
    }
    return NULL;
}

/* Returns whether the file has a section ("outputs") or a key of a section ("recv.sources"). */
static bool has(const struct loader *loader, const yaml_node_t *root, const char *name)
{
    char section[32];

    snprintf(section, sizeof(section), "%.*s", (int)strcspn(name, "."), name);
    const char *key = strchr(name, '.');
    const yaml_node_t *value = find_value(loader, root, section);
    return key ? find_value(loader, value, key + 1) : value;
}

/* Guesses the program for which a file was written, from the file's sections and keys.  Returns NULL if no rule
 * matches. */
static const char *guess_program(const struct loader *loader, const yaml_node_t *root)
{
    static const struct {
        const char *names[2], *without, *program;
    } signs[] = {
        {{"hosts", "multicast"}, "recv", "scripts/array"}, {{"telescope", "stream"}, NULL, "visrec"},
        {{"digitiser", "antennas"}, NULL, "dsim"},         {{"signal", "stream"}, NULL, "fsim"},
        {{"outputs", "antennas"}, "gates", "fgpu"},        {{"outputs", "recv.sources"}, NULL, "xbgpu"},
    };

    for (size_t i = 0; i < ARRAY_LEN(signs); i++)
        if (has(loader, root, signs[i].names[0]) && has(loader, root, signs[i].names[1]) &&
            !(signs[i].without && has(loader, root, signs[i].without)))
            return signs[i].program;
    return NULL;
}

/* Returns whether the file was written for another program.  Reports this as one error, instead of one error for each
 * key. */
static bool is_of_another_program(struct loader *loader, const struct config_table *table, const yaml_node_t *root)
{
    const char *program = guess_program(loader, root);

    if (!program || strcmp(program, table->program) == 0)
        return false;
    config_error_at(loader->config, (struct config_mark){1, 1}, "this looks like a configuration of %s, not of %s",
                    program, table->program);
    return true;
}

int config_load_document(struct config *config, const struct config_table *table, yaml_document_t *document,
                         void *values)
{
    struct loader loader = {.config = config, .document = document};
    const yaml_node_t *root = yaml_document_get_root_node(document);
    yaml_node_t *keys[MAX_KEYS] = {NULL}, *nodes[MAX_KEYS] = {NULL};
    struct config_mark file = {1, 1};

    assert(table->n_sections <= MAX_KEYS);
    if (!root || is_null(root)) {
        config_error_at(config, (struct config_mark){0, 0}, "the file is empty; see %s --print-example",
                        table->program);
        return 0;
    }
    if (root->type == YAML_MAPPING_NODE && is_of_another_program(&loader, table, root))
        return 0;
    if (root->type == YAML_MAPPING_NODE) {
        collect_sections(&loader, table, root, keys, nodes);
    } else {
        report_not_keys(&loader, "the file", root);
        return 0;
    }
    for (size_t s = 0; s < table->n_sections; s++)
        load_section(&loader, &table->sections[s], nodes[s], keys[s] ? node_mark(keys[s]) : file, values);
    return loader.out_of_memory ? -ENOMEM : 0;
}
