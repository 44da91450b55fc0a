/* format.c - writes values of a configuration as text, and describes valid values in words.
 *
 * Errors and the example file use the same description of a key, from config_expected(). */
#include "common/config/internal.h"

#include "common/net/endpoint.h"
#include "common/time/timebase.h"
#include "common/base/units.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *config_unit_name(enum config_unit unit)
{
    switch (unit) {
    case UNIT_NONE: return NULL;
    case UNIT_HZ: return "Hz";
    case UNIT_S: return "s";
    case UNIT_BYTES: return "bytes";
    case UNIT_SAMPLES: return "samples";
    case UNIT_SPECTRA: return "spectra";
    case UNIT_BITS: return "bits";
    case UNIT_CHANNELS: return "channels";
    case UNIT_BATCHES: return "batches";
    case UNIT_CHUNKS: return "chunks";
    case UNIT_M: return "m";
    case UNIT_DEG: return "degrees";
    }
    return NULL;
}

/* ---- Descriptions of valid values -------------------------------------------------------------------------------- */

char *config_number_format(double number, char *text, size_t text_bytes)
{
    if (number == floor(number) && fabs(number) < 9.2e18 /* fits int64_t */)
        snprintf(text, text_bytes, "%" PRId64, (int64_t)number);
    else
        snprintf(text, text_bytes, "%.15g", number);
    return text;
}

bool config_key_bounded(const struct config_key *key)
{
    return key->min != 0 || key->max != 0;
}

/* Writes the permitted number of characters or addresses: "1 to 64 characters" or "at most 1 address". */
static void put_count(FILE *out, const struct config_key *key, const char *one, const char *many)
{
    char min[32], max[32];

    config_number_format(key->min, min, sizeof(min));
    config_number_format(key->max, max, sizeof(max));
    if (key->min == key->max)
        fprintf(out, "%s", min);
    else if (key->min == 0)
        fprintf(out, "at most %s", max);
    else
        fprintf(out, "%s to %s", min, max);
    fprintf(out, " %s", key->max == 1 ? one : many);
}

static void put_number(FILE *out, const struct config_key *key, const char *what)
{
    const char *unit = config_unit_name(key->unit);
    char min[32], max[32];

    config_number_format(key->min, min, sizeof(min));
    config_number_format(key->max, max, sizeof(max));
    if (!config_key_bounded(key))
        fprintf(out, "%s", what);
    else if (key->min == key->max)
        fprintf(out, "%s", min);
    else
        fprintf(out, "%s from %s to %s", what, min, max);
    if (unit)
        fprintf(out, " %s%s%s", config_key_bounded(key) ? "" : "(", unit, config_key_bounded(key) ? "" : ")");
}

char *config_expected(const struct config_key *key, char *text, size_t text_bytes)
{
    FILE *out = fmemopen(text, text_bytes, "w");

    if (!out) {
        snprintf(text, text_bytes, "something else");
        return text;
    }
    switch (key->type) {
    case CFG_INT: put_number(out, key, "an integer"); break;
    case CFG_POW2: put_number(out, key, "a power of two"); break;
    case CFG_DOUBLE:
    case CFG_DECIMAL:
    case CFG_FINE: put_number(out, key, "a number"); break;
    case CFG_INT_LIST: put_number(out, key, "a list of integers"); break;
    case CFG_POSITION: put_number(out, key, "a list of three numbers"); break;
    case CFG_BOOL: fputs("true or false", out); break;
    case CFG_STRING:
        fputs("a text", out);
        if (config_key_bounded(key)) {
            fputs(" of ", out);
            put_count(out, key, "character", "characters");
        }
        break;
    case CFG_ENUM:
        for (size_t i = 0; key->choices[i]; i++)
            fprintf(out, "%s%s", i == 0 ? "" : key->choices[i + 1] ? ", " : " or ", key->choices[i]);
        break;
    case CFG_ENDPOINTS:
        if (config_key_bounded(key))
            put_count(out, key, "address", "addresses");
        else
            fputs("addresses", out);
        fprintf(out, " (a.b.c.d%s[:port])", key->max == 1 ? "" : "[+n]");
        break;
    }
    fclose(out);
    return text;
}

char *config_quote(const char *value, char *text, size_t text_bytes)
{
    int limit = 60;

    /* Cuts the text between characters, not inside a character of several bytes. */
    if (strlen(value) > (size_t)limit) {
        while (limit > 0 && ((unsigned char)value[limit] & 0xc0) == 0x80)
            limit--;
        snprintf(text, text_bytes, "'%.*s...'", limit, value);
    } else {
        snprintf(text, text_bytes, "'%s'", value);
    }
    /* Replaces control characters by blanks, so that the sentence stays on one line. */
    for (char *c = text; *c; c++) {
        if ((unsigned char)*c < ' ')
            *c = ' ';
    }
    return text;
}

/* ---- Values as text ---------------------------------------------------------------------------------------------- */

void config_text_print(const char *text, FILE *out)
{
    fputc('"', out);
    for (; *text; text++) {
        switch (*text) {
        case '\n': fputs("\\n", out); break;
        case '\t': fputs("\\t", out); break;
        case '"':
        case '\\': fputc('\\', out); /* fall through */
        default: fputc(*text, out);
        }
    }
    fputc('"', out);
}

/* Writes a YAML string.  Omits the quotes only if every YAML parser reads the text as a string. */
static void print_yaml_text(const char *text, FILE *out)
{
    static const char *const words[] = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"};
    bool plain = (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z');

    for (const char *c = text; *c; c++)
        plain = plain && strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./", *c);
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        plain = plain && strcasecmp(text, words[i]) != 0;
    if (plain)
        fputs(text, out);
    else
        config_text_print(text, out);
}

/* Writes the shortest text that converts back to the same double. */
static void print_double(double value, FILE *out)
{
    char text[40];

    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    fputs(text, out);
}

static void print_decimal(struct decimal decimal, FILE *out)
{
    uint64_t magnitude = decimal.mantissa < 0 ? -(uint64_t)decimal.mantissa : (uint64_t)decimal.mantissa;
    uint64_t scale = 1;

    for (int i = 0; i < decimal.n_decimals; i++)
        scale *= 10;
    fprintf(out, "%s%" PRIu64, decimal.mantissa < 0 ? "-" : "", magnitude / scale);
    if (decimal.n_decimals > 0)
        fprintf(out, ".%0*" PRIu64, decimal.n_decimals, magnitude % scale);
}

/* Writes a list of endpoints.  Writes consecutive addresses with the same port in the form "a.b.c.d+n:port", as
 * configurations do. */
static void print_endpoints(const struct endpoint_list *list, FILE *out)
{
    fputc('[', out);
    for (size_t i = 0, next; i < list->n; i = next) {
        const struct endpoint *first = &list->items[i];
        uint32_t address = ntohl(first->address.s_addr);
        char text[32], *port;

        for (next = i + 1; next < list->n; next++) {
            const struct endpoint *follower = &list->items[next];

            if (ntohl(follower->address.s_addr) != address + (next - i) || follower->port != first->port)
                break;
        }
        endpoint_format(first, text, sizeof(text));
        port = strchr(text, ':');
        fprintf(out, "%s\"%.*s", i ? ", " : "", (int)(port - text), text);
        if (next - i > 1)
            fprintf(out, "+%zu", next - i - 1);
        fprintf(out, "%s\"", port);
    }
    fputc(']', out);
}

static void print_int_list(const struct config_int_list *list, FILE *out)
{
    fputc('[', out);
    for (size_t i = 0; i < list->n; i++)
        fprintf(out, "%s%" PRId64, i ? ", " : "", list->items[i]);
    fputc(']', out);
}

static void print_position(const double *position, FILE *out)
{
    for (size_t i = 0; i < CONFIG_POSITION_N; i++) {
        fputs(i ? ", " : "[", out);
        print_double(position[i], out);
    }
    fputc(']', out);
}

void config_value_print(const struct config_key *key, const void *field, bool json, FILE *out)
{
    const char *text = NULL;

    switch (key->type) {
    case CFG_INT:
    case CFG_POW2: fprintf(out, "%" PRId64, *(const int64_t *)field); break;
    case CFG_DOUBLE: print_double(*(const double *)field, out); break;
    case CFG_DECIMAL:
    case CFG_FINE: print_decimal(*(const struct decimal *)field, out); break;
    case CFG_BOOL: fputs(*(const bool *)field ? "true" : "false", out); break;
    case CFG_STRING: text = *(char *const *)field ? *(char *const *)field : ""; break;
    case CFG_ENUM: text = key->choices[*(const int *)field]; break;
    case CFG_ENDPOINTS: print_endpoints(field, out); break;
    case CFG_INT_LIST: print_int_list(field, out); break;
    case CFG_POSITION: print_position(field, out); break;
    }
    if (text && json)
        config_text_print(text, out);
    else if (text)
        print_yaml_text(text, out);
}
