/* file.c - reads a configuration file as a YAML document, and reports errors if the file is not YAML. */
#include "common/config/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

/* Configurations have a few kilobytes.  A file that exceeds this limit cannot be a configuration. */
#define FILE_MAX_BYTES   (4 << 20)
#define FILE_FIRST_BYTES (16 << 10) /* first size of the buffer, which doubles as long as the file continues */

/* libyaml's run time grows with the square of the depth, and with the square of the number of anchors or directives.  A
 * configuration needs a depth of 4. */
#define MAX_DEPTH 32
#define MAX_NAMES 1000 /* largest total number of anchors, aliases and directives */

/* The file in memory, and the list of its errors.  Functions that explain libyaml's errors read the text again. */
struct source {
    struct config *config;
    char *text;
    size_t text_bytes;
};

static struct config_mark mark_of(yaml_mark_t mark)
{
    return (struct config_mark){mark.line + 1, mark.column + 1};
}

/* Returns whether the indentation of 'line' (from 0) contains a tab.  This is the most frequent mistake, and libyaml's
 * message for it is obscure. */
static bool is_tab_indented(const struct source *source, size_t line)
{
    const char *at = source->text, *end = at + source->text_bytes;

    for (; line && at; line--) {
        at = memchr(at, '\n', end - at);
        if (at)
            at++;
    }
    while (at && at < end && *at == ' ')
        at++;
    return at && at < end && *at == '\t';
}

/* Returns the line and column of the byte at 'offset'.  libyaml reports errors of the encoding only with an offset. */
static struct config_mark offset_mark(const struct source *source, size_t offset)
{
    struct config_mark mark = {1, 1};

    for (size_t i = 0; i < offset && i < source->text_bytes; i++) {
        if (source->text[i] == '\n')
            mark = (struct config_mark){mark.line + 1, 1};
        else if (((unsigned char)source->text[i] & 0xc0) != 0x80)
            mark.column++;
    }
    return mark;
}

/* Returns true if the parser failed because an allocation failed.  Some functions of libyaml then set no error. */
static bool is_out_of_memory(const yaml_parser_t *parser)
{
    return parser->error == YAML_MEMORY_ERROR || parser->error == YAML_NO_ERROR;
}

/* Reports the parser's error.  Returns -EINVAL, or -ENOMEM if the parser ran out of memory. */
static int report_yaml(struct source *source, const yaml_parser_t *parser)
{
    struct config_mark mark = mark_of(parser->problem_mark);

    if (is_out_of_memory(parser))
        return -ENOMEM;
    if (parser->error == YAML_READER_ERROR)
        config_error_at(source->config, offset_mark(source, parser->problem_offset),
                        "the file is not plain UTF-8 text here (%s)", parser->problem);
    else if (is_tab_indented(source, parser->problem_mark.line))
        config_error_at(source->config, mark, "the line is indented with a tab; YAML requires spaces");
    else if (parser->context && parser->context_mark.line != parser->problem_mark.line)
        config_error_at(source->config, mark, "this is not valid YAML: %s %s that begins in line %zu", parser->problem,
                        parser->context, parser->context_mark.line + 1);
    else
        config_error_at(source->config, mark, "this is not valid YAML: %s%s%s", parser->problem,
                        parser->context ? " " : "", parser->context ? parser->context : "");
    return -EINVAL;
}

/* The depth of nesting, and the number of anchors, aliases and directives.  libyaml's run time depends on both
 * numbers. */
struct extent {
    size_t depth, n_names;
};

static void add_token(struct extent *extent, const yaml_token_t *token)
{
    switch (token->type) {
    case YAML_BLOCK_SEQUENCE_START_TOKEN:
    case YAML_BLOCK_MAPPING_START_TOKEN:
    case YAML_FLOW_SEQUENCE_START_TOKEN:
    case YAML_FLOW_MAPPING_START_TOKEN: extent->depth++; break;
    case YAML_BLOCK_END_TOKEN:
    case YAML_FLOW_SEQUENCE_END_TOKEN:
    case YAML_FLOW_MAPPING_END_TOKEN:
        extent->depth -= extent->depth > 0; /* never below 0; the parser later reports a surplus closing bracket */
        break;
    case YAML_ANCHOR_TOKEN:
    case YAML_ALIAS_TOKEN:
    case YAML_TAG_DIRECTIVE_TOKEN:
    case YAML_VERSION_DIRECTIVE_TOKEN: extent->n_names++; break;
    default: break;
    }
}

/* Scans the tokens of the file without parsing them, and stops at the first token that exceeds a limit.  Returns 0,
 * -EINVAL if a limit is exceeded (reported), or -ENOMEM.  Returns 0 even if the tokens are not valid YAML. */
static int check_extent(struct source *source)
{
    struct extent extent = {0, 0};
    yaml_parser_t parser;
    yaml_token_t token;
    bool more = true;
    int err = 0;

    if (!yaml_parser_initialize(&parser))
        return -ENOMEM;
    yaml_parser_set_input_string(&parser, (const unsigned char *)source->text, source->text_bytes);
    while (more && !err && yaml_parser_scan(&parser, &token)) {
        add_token(&extent, &token);
        if (extent.depth > MAX_DEPTH) {
            config_error_at(
                source->config, mark_of(token.start_mark),
                "lists and groups of keys are nested more than %d levels deep here; a configuration needs 4",
                MAX_DEPTH);
            err = -EINVAL;
        } else if (extent.n_names > MAX_NAMES) {
            config_error_at(source->config, mark_of(token.start_mark),
                            "the file has more than %d anchors, aliases and directives; write the values without them",
                            MAX_NAMES);
            err = -EINVAL;
        }
        more = token.type != YAML_STREAM_END_TOKEN;
        yaml_token_delete(&token);
    }
    if (more && !err && is_out_of_memory(&parser))
        err = -ENOMEM;
    yaml_parser_delete(&parser);
    return err;
}

/* Checks that only comments follow the first document.  Returns 0, -EINVAL (reported) or -ENOMEM. */
static int check_single_document(struct source *source, yaml_parser_t *parser)
{
    yaml_document_t document;
    int err = 0;

    if (!yaml_parser_load(parser, &document))
        return report_yaml(source, parser);
    if (yaml_document_get_root_node(&document)) {
        config_error_at(source->config, mark_of(document.start_mark),
                        "a second YAML document begins here; a configuration is one document");
        err = -EINVAL;
    }
    yaml_document_delete(&document);
    return err;
}

/* Parses the text and loads its values.  Returns 0, even after reported errors, or -ENOMEM. */
static int load_text(struct source *source, const struct config_table *table, void *values)
{
    yaml_document_t document;
    yaml_parser_t parser;
    int err = check_extent(source);

    if (err)
        return err == -ENOMEM ? err : 0;
    if (!yaml_parser_initialize(&parser))
        return -ENOMEM;
    yaml_parser_set_input_string(&parser, (const unsigned char *)source->text, source->text_bytes);
    if (!yaml_parser_load(&parser, &document)) {
        err = report_yaml(source, &parser);
        goto undo_parser;
    }
    /* An empty document means that the file is empty, so no other document can follow. */
    if (yaml_document_get_root_node(&document))
        err = check_single_document(source, &parser);
    if (!err)
        err = config_load_document(source->config, table, &document, values);
    yaml_document_delete(&document);
undo_parser:
    yaml_parser_delete(&parser);
    return err == -ENOMEM ? err : 0;
}

/* Reads the whole file into *text, which the caller frees.  Returns 0 or negative errno. */
static int read_file(const char *path, char **text, size_t *text_bytes)
{
    FILE *in = fopen(path, "rb");
    char *buffer = NULL;
    size_t n = 0, n_allocated = 0;
    int err = 0;

    if (!in)
        return -errno;
    while (!err && n == n_allocated && n <= FILE_MAX_BYTES) {
        n_allocated = n_allocated ? 2 * n_allocated : FILE_FIRST_BYTES;
        char *larger = realloc(buffer, n_allocated);
        buffer = larger ? larger : buffer;
        errno = 0;
        n += larger ? fread(buffer + n, 1, n_allocated - n, in) : 0;
        if (!larger)
            err = -ENOMEM;
        else if (ferror(in))
            err = errno ? -errno : -EIO;
    }
    if (!err && n > FILE_MAX_BYTES)
        err = -EFBIG;
    fclose(in);
    if (err) {
        free(buffer);
        return err;
    }
    *text = buffer;
    *text_bytes = n;
    return 0;
}

int config_load(const struct config_table *table, const char *path, void *out, struct config **config)
{
    struct config_mark whole_file = {0, 0};
    struct source source = {0};
    int err;

    *config = config_create(path);
    if (!*config)
        return -ENOMEM;
    source.config = *config;
    err = read_file(path, &source.text, &source.text_bytes);
    if (err == -EFBIG)
        config_error_at(*config, whole_file, "the file is larger than %d MiB, so it is not a configuration",
                        FILE_MAX_BYTES >> 20);
    else if (err)
        config_error_at(*config, whole_file, "the file cannot be read: %s", strerror(-err));
    if (err)
        return err;
    err = load_text(&source, table, out);
    free(source.text);
    if (err)
        config_lacks_memory(*config);
    return config_result(*config);
}
