/* values.c - converts one value of a configuration from text to memory. */
#include "common/config/internal.h"

#include "common/net/endpoint.h"
#include "common/time/timebase.h"
#include "common/base/units.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DECIMAL_MAX_DECIMALS 9
#define FINE_MAX_DECIMALS    18
#define DEFAULT_MAX_ITEMS    16

bool config_type_is_list(enum config_type type)
{
    return type == CFG_ENDPOINTS || type == CFG_INT_LIST || type == CFG_POSITION;
}

size_t config_value_bytes(enum config_type type)
{
    switch (type) {
    case CFG_INT:
    case CFG_POW2: return sizeof(int64_t);
    case CFG_DOUBLE: return sizeof(double);
    case CFG_DECIMAL:
    case CFG_FINE: return sizeof(struct decimal);
    case CFG_BOOL: return sizeof(bool);
    case CFG_STRING: return sizeof(char *);
    case CFG_ENUM: return sizeof(int);
    case CFG_ENDPOINTS: return sizeof(struct endpoint_list);
    case CFG_INT_LIST: return sizeof(struct config_int_list);
    case CFG_POSITION: return sizeof(double[CONFIG_POSITION_N]);
    }
    return 0;
}

static bool is_numeric(enum config_type type)
{
    return type == CFG_INT || type == CFG_POW2 || type == CFG_DOUBLE || type == CFG_DECIMAL || type == CFG_FINE ||
           type == CFG_INT_LIST || type == CFG_POSITION;
}

/* Returns advice about frequent mistakes: a unit or separators in a number ("1 MHz", "1,000"), or a date instead of
 * seconds.  Returns "" if it has no advice. */
static const char *hint_of(const struct config_key *key, const char *item)
{
    size_t n_digits = strspn(item, "+-.0123456789"), n_year = strspn(item, "0123456789");

    if (!is_numeric(key->type))
        return "";
    if (key->unit == UNIT_S && n_year == 4 && item[4] == '-')
        return "; write seconds since 1970, as \"date +%s -d 2026-01-31T12:00Z\" prints";
    const char *rest = item + n_digits + strspn(item + n_digits, " ");
    if (n_digits == 0)
        return "";
    if (*rest == ',' || *rest == '_')
        return "; write the number without separators, like 1.5 or 1e6";
    return isalpha((unsigned char)*rest) && !strchr("eExX", *rest) ? "; write the number without a unit, like 1e6" : "";
}

/* Writes for example "must be an integer from 2 to 16 bits, but '17' is given" into 'why'.  Returns -EINVAL. */
static int reject(const struct config_key *key, const char *item, char *why, size_t why_bytes)
{
    char expected[400], quoted[80];

    snprintf(why, why_bytes, "must be %s, but %s is given%s", config_expected(key, expected, sizeof(expected)),
             config_quote(item, quoted, sizeof(quoted)), hint_of(key, item));
    return -EINVAL;
}

static bool in_range(const struct config_key *key, double value)
{
    return !config_key_bounded(key) || (value >= key->min && value <= key->max);
}

/* Parses an integer.  The text may have an exponent (1712e6). */
static bool parse_int(const struct config_key *key, const char *item, int64_t *value)
{
    struct decimal decimal;

    if (timebase_parse_decimal(item, 0, &decimal) != 0 || !in_range(key, (double)decimal.mantissa))
        return false;
    *value = decimal.mantissa;
    return true;
}

/* Parses a decimal number.  strtod() alone would also accept hexadecimal numbers, infinities and NaN. */
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

static bool parse_decimal(const struct config_key *key, const char *item, int max_decimals, struct decimal *value)
{
    struct decimal decimal;

    if (timebase_parse_decimal(item, max_decimals, &decimal) != 0 ||
        !in_range(key, timebase_decimal_to_double(decimal)))
        return false;
    *value = decimal;
    return true;
}

/* Returns the number of characters, not bytes, of valid UTF-8. */
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
    double values[CONFIG_POSITION_N];

    if (n_items != CONFIG_POSITION_N) {
        char expected[200];

        snprintf(why, why_bytes, "must be %s, but %zu %s given", config_expected(key, expected, sizeof(expected)),
                 n_items, n_items == 1 ? "is" : "are");
        return -EINVAL;
    }
    for (size_t i = 0; i < CONFIG_POSITION_N; i++) {
        if (!parse_double(key, items[i], &values[i])) {
            *bad_item = i;
            return reject(key, items[i], why, why_bytes);
        }
    }
    memcpy(position, values, sizeof(values));
    return 0;
}

/* Parses 'item' and appends its endpoints to 'all'.  Returns 0, or negative errno with a sentence in 'why'. */
static int append_endpoints(const struct config_key *key, const char *item, struct endpoint_list *all, char *why,
                            size_t why_bytes)
{
    struct endpoint_list list = {0};
    struct endpoint *items;
    uint16_t port = key->port ? key->port : SPEAD_DEFAULT_PORT;
    int err = key->max == 1 ? endpoint_list_parse_single(item, port, &list, why, why_bytes)
                            : endpoint_list_parse(item, &list, why, why_bytes);

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

    /* A single empty item means that there is no address, as in the default "". */
    if (n_items == 1 && !*items[0])
        n_items = 0;
    for (size_t i = 0; i < n_items && !err && all.n <= ENDPOINT_LIST_MAX; i++) {
        *bad_item = i;
        err = append_endpoints(key, items[i], &all, reason, sizeof(reason));
    }
    config_expected(key, expected, sizeof(expected));
    if (err == -EINVAL) {
        snprintf(why, why_bytes, "is not valid: %s", reason);
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
    case CFG_STRING: return parse_string(key, items[0], field, why, why_bytes);
    case CFG_INT_LIST: return parse_int_list(key, items, n_items, field, why, why_bytes, bad_item);
    case CFG_POSITION: return parse_position(key, items, n_items, field, why, why_bytes, bad_item);
    case CFG_ENDPOINTS: return parse_endpoints(key, items, n_items, field, why, why_bytes, bad_item);
    case CFG_INT: ok = parse_int(key, items[0], field); break;
    case CFG_DOUBLE: ok = parse_double(key, items[0], field); break;
    case CFG_DECIMAL: ok = parse_decimal(key, items[0], DECIMAL_MAX_DECIMALS, field); break;
    case CFG_FINE: ok = parse_decimal(key, items[0], FINE_MAX_DECIMALS, field); break;
    case CFG_BOOL: ok = parse_bool(items[0], field); break;
    case CFG_ENUM: ok = parse_enum(key, items[0], field); break;
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

int config_value_set(const struct config_key *key, const char *text, void *field, char *why, size_t why_bytes)
{
    size_t n_items = 0, max_items = 1, bad_item;
    char *copy = strdup(text), *rest = NULL;

    for (const char *c = text; *c; c++)
        max_items += *c == ',';
    const char **items = calloc(max_items, sizeof(*items));
    int err = copy && items ? 0 : -ENOMEM;
    if (!err && key->type == CFG_INT_LIST)
        for (char *item = strtok_r(copy, ",", &rest); item; item = strtok_r(NULL, ",", &rest))
            items[n_items++] = item;
    else if (!err)
        items[n_items++] = copy;
    union {
        int64_t integer;
        double position[CONFIG_POSITION_N];
        struct decimal decimal;
        struct endpoint_list endpoints;
        struct config_int_list list;
        char *text;
    } value = {0};
    if (!err)
        err = config_value_parse(key, items, n_items, &value, why, why_bytes, &bad_item);
    if (!err) {
        config_value_free(key, field);
        memcpy(field, &value, config_value_bytes(key->type));
    }
    free(items);
    free(copy);
    return err;
}

void config_value_write(const struct config_key *key, const void *field, FILE *out)
{
    const struct config_int_list *list = field;

    if (key->type != CFG_INT_LIST) {
        config_value_print(key, field, false, out);
        return;
    }
    for (size_t i = 0; i < list->n; i++)
        fprintf(out, "%s%" PRId64, i ? "," : "", list->items[i]);
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
