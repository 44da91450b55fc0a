/* config_values.c - one value of a configuration: text to memory and back, and what it is allowed to be.
 *
 * Errors and the example file describe a key in the same words, because both take them from config_expected(). */
#include "common/config_internal.h"

#include "common/endpoint.h"
#include "common/timebase.h"
#include "common/units.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DECIMAL_MAX_DECIMALS 9
#define POSITION_N 3
#define DEFAULT_MAX_ITEMS 16

bool config_type_is_list(enum config_type type)
{
    return type == CFG_ENDPOINTS || type == CFG_INT_LIST || type == CFG_POSITION;
}

size_t config_value_bytes(enum config_type type)
{
    switch (type) {
    case CFG_INT:
    case CFG_POW2:      return sizeof(int64_t);
    case CFG_DOUBLE:    return sizeof(double);
    case CFG_DECIMAL:   return sizeof(struct decimal);
    case CFG_BOOL:      return sizeof(bool);
    case CFG_STRING:    return sizeof(char *);
    case CFG_ENUM:      return sizeof(int);
    case CFG_ENDPOINTS: return sizeof(struct endpoint_list);
    case CFG_INT_LIST:  return sizeof(struct config_int_list);
    case CFG_POSITION:  return sizeof(double[POSITION_N]);
    }
    return 0;
}

const char *config_unit_name(enum config_unit unit)
{
    switch (unit) {
    case UNIT_NONE:     return NULL;
    case UNIT_HZ:       return "Hz";
    case UNIT_S:        return "s";
    case UNIT_BYTES:    return "bytes";
    case UNIT_SAMPLES:  return "samples";
    case UNIT_SPECTRA:  return "spectra";
    case UNIT_BITS:     return "bits";
    case UNIT_CHANNELS: return "channels";
    case UNIT_BATCHES:  return "batches";
    case UNIT_CHUNKS:   return "chunks";
    case UNIT_M:        return "m";
    case UNIT_DEG:      return "degrees";
    }
    return NULL;
}

/* ---- What a value must be ------------------------------------------------------------------------------------------ */

char *config_number_format(double number, char *text, size_t text_bytes)
{
    if (number == floor(number) && fabs(number) < 1e18)
        snprintf(text, text_bytes, "%" PRId64, (int64_t)number);
    else
        snprintf(text, text_bytes, "%.15g", number);
    return text;
}

static bool is_bounded(const struct config_key *key)
{
    return key->min != 0 || key->max != 0;
}

/* "1 to 64 characters", "8 bits", "at most 1 address". */
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
    if (!is_bounded(key))
        fprintf(out, "%s", what);
    else if (key->min == key->max)
        fprintf(out, "%s", min);
    else
        fprintf(out, "%s from %s to %s", what, min, max);
    if (unit)
        fprintf(out, " %s%s%s", is_bounded(key) ? "" : "(", unit, is_bounded(key) ? "" : ")");
}

char *config_expected(const struct config_key *key, char *text, size_t text_bytes)
{
    FILE *out = fmemopen(text, text_bytes, "w");

    if (!out) {
        snprintf(text, text_bytes, "something else");
        return text;
    }
    switch (key->type) {
    case CFG_INT:      put_number(out, key, "an integer"); break;
    case CFG_POW2:     put_number(out, key, "a power of two"); break;
    case CFG_DOUBLE:
    case CFG_DECIMAL:  put_number(out, key, "a number"); break;
    case CFG_INT_LIST: put_number(out, key, "a list of integers"); break;
    case CFG_POSITION: put_number(out, key, "a list of three numbers"); break;
    case CFG_BOOL:     fputs("true or false", out); break;
    case CFG_STRING:
        fputs("a text", out);
        if (is_bounded(key)) {
            fputs(" of ", out);
            put_count(out, key, "character", "characters");
        }
        break;
    case CFG_ENUM:
        for (size_t i = 0; key->choices[i]; i++)
            fprintf(out, "%s%s", i == 0 ? "" : key->choices[i + 1] ? ", " : " or ", key->choices[i]);
        break;
    case CFG_ENDPOINTS:
        if (is_bounded(key))
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

    /* Do not cut a character of several bytes in two. */
    if (strlen(value) > (size_t)limit) {
        while (limit > 0 && ((unsigned char)value[limit] & 0xc0) == 0x80)
            limit--;
        snprintf(text, text_bytes, "'%.*s...'", limit, value);
    } else {
        snprintf(text, text_bytes, "'%s'", value);
    }
    return text;
}

/* ---- Text to memory ------------------------------------------------------------------------------------------------ */

/* "must be an integer from 2 to 16 bits, but '17' is given" into 'why'. */
static int reject(const struct config_key *key, const char *item, char *why, size_t why_bytes)
{
    char expected[400], quoted[80];

    snprintf(why, why_bytes, "must be %s, but %s is given", config_expected(key, expected, sizeof(expected)),
             config_quote(item, quoted, sizeof(quoted)));
    return -EINVAL;
}

static bool in_range(const struct config_key *key, double value)
{
    return !is_bounded(key) || (value >= key->min && value <= key->max);
}

/* Integers may be written with an exponent, 1712e6, as long as they are integers. */
static bool parse_int(const struct config_key *key, const char *item, int64_t *value)
{
    struct decimal decimal;

    if (decimal_parse(item, 0, &decimal) != 0 || !in_range(key, (double)decimal.mantissa))
        return false;
    *value = decimal.mantissa;
    return true;
}

/* Decimal numbers only: strtod() would take hexadecimal, infinities and NaN, too. */
static bool parse_double(const struct config_key *key, const char *item, double *value)
{
    char *end;
    double number;

    if (!*item || item[strspn(item, "0123456789+-.eE")])
        return false;
    number = strtod(item, &end);
    if (*end || !isfinite(number) || !in_range(key, number))
        return false;
    *value = number;
    return true;
}

static bool parse_bool(const char *item, bool *value)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on"};

    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (!strcasecmp(item, words[i])) {
            *value = i % 2;
            return true;
        }
    }
    return false;
}

static bool parse_enum(const struct config_key *key, const char *item, int *value)
{
    for (int i = 0; key->choices[i]; i++) {
        if (!strcmp(item, key->choices[i])) {
            *value = i;
            return true;
        }
    }
    return false;
}

static bool parse_decimal(const struct config_key *key, const char *item, struct decimal *value)
{
    struct decimal decimal;

    if (decimal_parse(item, DECIMAL_MAX_DECIMALS, &decimal) != 0 || !in_range(key, decimal_to_double(decimal)))
        return false;
    *value = decimal;
    return true;
}

/* Characters, not bytes, of valid UTF-8. */
static size_t count_characters(const char *text)
{
    size_t n = 0;

    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static int parse_string(const struct config_key *key, const char *item, char **value, char *why, size_t why_bytes)
{
    if (!in_range(key, (double)count_characters(item)))
        return reject(key, item, why, why_bytes);
    if (*item) {
        char *copy = strdup(item);

        if (!copy)
            return -ENOMEM;
        *value = copy;
    }
    return 0;
}

static int parse_int_list(const struct config_key *key, const char *const *items, size_t n_items,
                          struct config_int_list *list, char *why, size_t why_bytes, size_t *bad_item)
{
    int64_t *values = n_items ? calloc(n_items, sizeof(*values)) : NULL;

    if (n_items && !values)
        return -ENOMEM;
    for (size_t i = 0; i < n_items; i++) {
        if (!parse_int(key, items[i], &values[i])) {
            free(values);
            *bad_item = i;
            return reject(key, items[i], why, why_bytes);
        }
    }
    *list = (struct config_int_list){n_items, values};
    return 0;
}

static int parse_position(const struct config_key *key, const char *const *items, size_t n_items, double *position,
                          char *why, size_t why_bytes, size_t *bad_item)
{
    double values[POSITION_N];

    if (n_items != POSITION_N) {
        char expected[200];

        snprintf(why, why_bytes, "must be %s, but %zu are given", config_expected(key, expected, sizeof(expected)),
                 n_items);
        return -EINVAL;
    }
    for (size_t i = 0; i < POSITION_N; i++) {
        if (!parse_double(key, items[i], &values[i])) {
            *bad_item = i;
            return reject(key, items[i], why, why_bytes);
        }
    }
    memcpy(position, values, sizeof(values));
    return 0;
}

/* Appends the endpoints of 'item' to 'all'. */
static int append_endpoints(const char *item, struct endpoint_list *all, char *why, size_t why_bytes)
{
    struct endpoint_list list = {0};
    struct endpoint *items;
    int err = endpoint_list_parse(item, &list, why, why_bytes);

    if (err || list.n == 0)
        return err;
    items = reallocarray(all->items, all->n + list.n, sizeof(*items));
    if (items) {
        memcpy(items + all->n, list.items, list.n * sizeof(*items));
        all->items = items;
        all->n += list.n;
    }
    endpoint_list_fini(&list);
    return items ? 0 : -ENOMEM;
}

static int parse_endpoints(const struct config_key *key, const char *const *items, size_t n_items,
                           struct endpoint_list *list, char *why, size_t why_bytes, size_t *bad_item)
{
    struct endpoint_list all = {0};
    char expected[200], reason[300];
    int err = 0;

    /* A single empty text is no address, as the default "" says. */
    if (n_items == 1 && !*items[0])
        n_items = 0;
    for (size_t i = 0; i < n_items && !err && all.n <= ENDPOINT_LIST_MAX; i++) {
        *bad_item = i;
        err = append_endpoints(items[i], &all, reason, sizeof(reason));
    }
    config_expected(key, expected, sizeof(expected));
    if (err == -EINVAL) {
        snprintf(why, why_bytes, "must be %s: %s", expected, reason);
    } else if (!err && !in_range(key, (double)all.n)) {
        *bad_item = 0;
        snprintf(why, why_bytes, "must be %s, but %zu %s given", expected, all.n, all.n == 1 ? "is" : "are");
        err = -EINVAL;
    }
    if (err) {
        endpoint_list_fini(&all);
        return err;
    }
    *list = all;
    return 0;
}

int config_value_parse(const struct config_key *key, const char *const *items, size_t n_items, void *field, char *why,
                       size_t why_bytes, size_t *bad_item)
{
    bool ok = false;

    *bad_item = 0;
    switch (key->type) {
    case CFG_STRING:    return parse_string(key, items[0], field, why, why_bytes);
    case CFG_INT_LIST:  return parse_int_list(key, items, n_items, field, why, why_bytes, bad_item);
    case CFG_POSITION:  return parse_position(key, items, n_items, field, why, why_bytes, bad_item);
    case CFG_ENDPOINTS: return parse_endpoints(key, items, n_items, field, why, why_bytes, bad_item);
    case CFG_INT:       ok = parse_int(key, items[0], field); break;
    case CFG_DOUBLE:    ok = parse_double(key, items[0], field); break;
    case CFG_DECIMAL:   ok = parse_decimal(key, items[0], field); break;
    case CFG_BOOL:      ok = parse_bool(items[0], field); break;
    case CFG_ENUM:      ok = parse_enum(key, items[0], field); break;
    case CFG_POW2: {
        int64_t value;

        ok = parse_int(key, items[0], &value) && value > 0 && (value & (value - 1)) == 0;
        if (ok)
            *(int64_t *)field = value;
        break;
    }
    }
    return ok ? 0 : reject(key, items[0], why, why_bytes);
}

int config_value_default(const struct config_key *key, void *field)
{
    const char *items[DEFAULT_MAX_ITEMS] = {key->default_text};
    char why[CONFIG_SENTENCE_BYTES];
    size_t n_items = 1, bad_item;
    char *copy, *rest = NULL;
    int err;

    if (!config_type_is_list(key->type) || key->type == CFG_ENDPOINTS) {
        err = config_value_parse(key, items, 1, field, why, sizeof(why), &bad_item);
    } else {
        copy = strdup(key->default_text);
        if (!copy)
            return -ENOMEM;
        n_items = 0;
        for (char *item = strtok_r(copy, ", ", &rest); item; item = strtok_r(NULL, ", ", &rest)) {
            assert(n_items < DEFAULT_MAX_ITEMS);
            items[n_items++] = item;
        }
        err = config_value_parse(key, items, n_items, field, why, sizeof(why), &bad_item);
        free(copy);
    }
    assert(err != -EINVAL);
    return err;
}

/* ---- Memory to text ------------------------------------------------------------------------------------------------ */

void config_text_print(const char *text, FILE *out)
{
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

/* A YAML text without quotes, where no YAML reader could take it for something else. */
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

/* The shortest text that reads back as the same double. */
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

/* Consecutive addresses with one port as "a.b.c.d+n:port", as an operator writes them. */
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
    for (size_t i = 0; i < POSITION_N; i++) {
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
    case CFG_POW2:      fprintf(out, "%" PRId64, *(const int64_t *)field); break;
    case CFG_DOUBLE:    print_double(*(const double *)field, out); break;
    case CFG_DECIMAL:   print_decimal(*(const struct decimal *)field, out); break;
    case CFG_BOOL:      fputs(*(const bool *)field ? "true" : "false", out); break;
    case CFG_STRING:    text = *(char *const *)field ? *(char *const *)field : ""; break;
    case CFG_ENUM:      text = key->choices[*(const int *)field]; break;
    case CFG_ENDPOINTS: print_endpoints(field, out); break;
    case CFG_INT_LIST:  print_int_list(field, out); break;
    case CFG_POSITION:  print_position(field, out); break;
    }
    if (text && json)
        config_text_print(text, out);
    else if (text)
        print_yaml_text(text, out);
}

void config_value_free(const struct config_key *key, void *field)
{
    if (key->type == CFG_STRING) {
        free(*(char **)field);
        *(char **)field = NULL;
    } else if (key->type == CFG_ENDPOINTS) {
        endpoint_list_fini(field);
    } else if (key->type == CFG_INT_LIST) {
        free(((struct config_int_list *)field)->items);
        *(struct config_int_list *)field = (struct config_int_list){0};
    }
}
