/* check_config.c - files with every mistake that an operator can make, and the sentence for each. */
#include "common/config/config.h"

#include "common/net/endpoint.h"
#include "common/time/timebase.h"
#include "common/base/units.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- A table with every type and every form of section ----------------------------------------------------------- */

struct test_basic {
    int64_t count;
    int64_t size;
    double factor;
    struct decimal rate;
    bool flag;
    char *name;
    int colour;
    struct endpoint_list to;
    struct config_int_list cpus;
    double position[3];
};

struct test_item {
    int kind;
    char *name;
    int64_t width;
    int64_t height;
};

struct test_http {
    struct endpoint_list listen;
};

struct test_values {
    struct test_basic basic;
    struct config_array items;
    struct test_http http;
};

static const char *const colours[] = {"red", "green", "blue", NULL};
static const char *const kinds[] = {"flat", "tall", NULL};

#define KEYS_OF struct test_basic
static const struct config_key basic_keys[] = {
    KEY_INT("count", count, KEY_REQUIRED, UNIT_CHUNKS, 2, 4294967296.0, "How many.", .example = "3"),
    KEY_POW2("size", size, "16", UNIT_BYTES, 4, 64, "How large."),
    KEY_DOUBLE("factor", factor, "0.1", UNIT_NONE, -1.5, 1e9, "How much."),
    KEY_DECIMAL("rate", rate, "1712e6", UNIT_HZ, 1, 1e10, "How often."),
    KEY_BOOL("flag", flag, false, "Whether at all."),
    KEY_STRING("name", name, "", 0, 8, "Who, \"exactly\"."),
    KEY_ENUM("colour", colour, "green", colours, "What it looks like."),
    KEY_ENDPOINTS("to", to, "10.0.0.1+2", 1, 20, "Where to."),
    KEY_INT_LIST("cpus", cpus, "4, 5", UNIT_NONE, -1, 99, "Where."),
    KEY_POSITION("position", position, "1, 2.5, -3", UNIT_M, -1e7, 1e7, "Where on Earth."),
};
#undef KEYS_OF

#define KEYS_OF struct test_item
static const struct config_key item_keys[] = {
    KEY_ENUM("kind", kind, "flat", kinds, "Which sort."),
    KEY_STRING("name", name, KEY_REQUIRED, 1, 8, "Who."),
    KEY_INT("width", width, KEY_REQUIRED, UNIT_NONE, 0, 0, "How wide.", .variants = 1u << 0),
    KEY_POW2("height", height, "8", UNIT_NONE, 0, 0, "How tall.", .variants = 1u << 1),
};
#undef KEYS_OF

#define KEYS_OF struct test_http
static const struct config_key http_keys[] = {
    KEY_ENDPOINTS("listen", listen, "", 0, 1, "Where to listen."),
};
#undef KEYS_OF

static const struct config_section sections[] = {
    CONFIG_SECTION(struct test_values, basic, basic_keys, "What everybody needs."),
    CONFIG_LIST(struct test_values, items, struct test_item, item_keys, 0, 3, "Several things.", .optional = true,
                .example = "  - name: a\n    width: 1\n"),
    CONFIG_SECTION(struct test_values, http, http_keys, "Monitoring.", .optional = true),
};

static const struct config_table table = {
    .program = "test", .help = "A program under test.", .sections = sections, .n_sections = ARRAY_LEN(sections)};

/* ---- Files ------------------------------------------------------------------------------------------------------- */

static char directory[] = "/tmp/check_config.XXXXXX";
static char path[64];

static void write_file(const char *text, size_t n)
{
    FILE *out = fopen(path, "wb");

    ck_assert_ptr_nonnull(out);
    ck_assert_uint_eq(fwrite(text, 1, n, out), n);
    ck_assert_int_eq(fclose(out), 0);
}

static struct test_values values;
static struct config *config;
static char *errors; /* of the configuration */

static void unload(void)
{
    free(errors);
    errors = NULL;
    config_free(&table, &values, config);
    memset(&values, 0, sizeof(values));
    config = NULL;
}

/* Loads 'text' in place of the one before. */
static int load(const char *text, size_t n)
{
    unload();
    write_file(text, n);
    return config_load(&table, path, &values, &config);
}

/* The errors as "line:column: sentence\n"..., with the file's name left out. */
static const char *errors_of(void)
{
    char *printed = NULL;
    size_t n, prefix = strlen(path) + 1;
    FILE *out = open_memstream(&printed, &n);
    FILE *stripped;

    config_print_errors(config, out);
    fclose(out);
    free(errors);
    stripped = open_memstream(&errors, &n);
    for (char *line = printed, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        ck_assert_ptr_nonnull(end);
        ck_assert_msg(!strncmp(line, path, prefix - 1) && line[prefix - 1] == ':', "no file name in: %s", line);
        fwrite(line + prefix, 1, end + 1 - line - prefix, stripped);
    }
    fclose(stripped);
    free(printed);
    return errors;
}

static void check_errors(const char *text, size_t n, const char *expected)
{
    int err = load(text, n);

    ck_assert_msg(!strcmp(errors_of(), expected), "file:\n%s\nerrors:\n%s\nexpected:\n%s", text, errors, expected);
    ck_assert_int_eq(err, *expected ? -EINVAL : 0);
}

/* ---- What is right ----------------------------------------------------------------------------------------------- */

static const char good_file[] = "# every key\n"
                                "basic:\n"
                                "  count: 4294967296\n"
                                "  size: 64\n"
                                "  factor: -0.12345678901234567\n"
                                "  rate: \"1712000000.000000001\"\n"
                                "  flag: yes\n"
                                "  name: \"a'b\\\"\\\\\\n\xc3\xa4#\"\n"
                                "  colour: blue\n"
                                "  to: [239.1.0.255+1, '10.0.0.1:5 10.0.0.2:5']\n"
                                "  cpus: 7\n"
                                "  position: [1, -2e3, .5]\n"
                                "items:\n"
                                "  - &first\n"
                                "    name: x\n"
                                "    width: -5\n"
                                "  - {kind: tall, name: no}\n"
                                "  - *first\n"
                                "http: {listen: 127.0.0.1:80}\n";

static void check_endpoint(const struct endpoint *endpoint, const char *expected)
{
    char text[32];

    ck_assert_str_eq(endpoint_format(endpoint, text, sizeof(text)), expected);
}

static void check_good_values(void)
{
    const struct test_basic *basic = &values.basic;
    const struct test_item *items = values.items.items;

    ck_assert_int_eq(basic->count, INT64_C(4294967296));
    ck_assert_int_eq(basic->size, 64);
    ck_assert_double_eq(basic->factor, -0.12345678901234567);
    ck_assert_int_eq(basic->rate.mantissa, INT64_C(1712000000000000001));
    ck_assert_int_eq(basic->rate.n_decimals, 9);
    ck_assert(basic->flag);
    ck_assert_str_eq(basic->name, "a'b\"\\\n\xc3\xa4#");
    ck_assert_int_eq(basic->colour, 2);
    ck_assert_uint_eq(basic->to.n, 4);
    check_endpoint(&basic->to.items[0], "239.1.0.255:7148");
    check_endpoint(&basic->to.items[1], "239.1.1.0:7148");
    check_endpoint(&basic->to.items[2], "10.0.0.1:5");
    check_endpoint(&basic->to.items[3], "10.0.0.2:5");
    ck_assert_uint_eq(basic->cpus.n, 1);
    ck_assert_int_eq(basic->cpus.items[0], 7);
    ck_assert_double_eq(basic->position[0], 1);
    ck_assert_double_eq(basic->position[1], -2000);
    ck_assert_double_eq(basic->position[2], 0.5);

    ck_assert_uint_eq(values.items.n, 3);
    ck_assert_int_eq(items[0].kind, 0);
    ck_assert_str_eq(items[0].name, "x");
    ck_assert_int_eq(items[0].width, -5);
    ck_assert_int_eq(items[0].height, 0);
    ck_assert_int_eq(items[1].kind, 1);
    ck_assert_str_eq(items[1].name, "no");
    ck_assert_int_eq(items[1].width, 0);
    ck_assert_int_eq(items[1].height, 8);
    ck_assert_str_eq(items[2].name, "x");
    ck_assert_ptr_ne(items[2].name, items[0].name);
    ck_assert_uint_eq(values.http.listen.n, 1);
    check_endpoint(&values.http.listen.items[0], "127.0.0.1:80");
}

TEST(every_type)
{
    ck_assert_int_eq(load(good_file, strlen(good_file)), 0);
    ck_assert_uint_eq(config_n_errors(config), 0);
    check_good_values();
    ck_assert(config_given(config, &values.http.listen));
}

TEST(defaults)
{
    static const char file[] = "basic: {count: 2e0}\n";

    ck_assert_int_eq(load(file, strlen(file)), 0);
    ck_assert_int_eq(values.basic.count, 2);
    ck_assert_int_eq(values.basic.size, 16);
    ck_assert_double_eq(values.basic.factor, 0.1);
    ck_assert_int_eq(values.basic.rate.mantissa, 1712000000);
    ck_assert_int_eq(values.basic.rate.n_decimals, 0);
    ck_assert(!values.basic.flag);
    ck_assert_ptr_null(values.basic.name);
    ck_assert_int_eq(values.basic.colour, 1);
    ck_assert_uint_eq(values.basic.to.n, 3);
    check_endpoint(&values.basic.to.items[2], "10.0.0.3:7148");
    ck_assert_uint_eq(values.basic.cpus.n, 2);
    ck_assert_int_eq(values.basic.cpus.items[1], 5);
    ck_assert_double_eq(values.basic.position[2], -3);
    ck_assert_uint_eq(values.items.n, 0);
    ck_assert_uint_eq(values.http.listen.n, 0);
    ck_assert(config_given(config, &values.basic.count));
    ck_assert(!config_given(config, &values.basic.size));
    ck_assert(!config_given(config, &values.http.listen));
}

/* What config_print writes loads again, to the same values and the same text. */
TEST(print_is_a_fixed_point)
{
    char *first, *second;
    size_t first_bytes, second_bytes;
    FILE *out;

    ck_assert_int_eq(load(good_file, strlen(good_file)), 0);
    out = open_memstream(&first, &first_bytes);
    config_print(&table, &values, out);
    fclose(out);

    ck_assert_int_eq(load(first, first_bytes), 0);
    check_good_values();
    out = open_memstream(&second, &second_bytes);
    config_print(&table, &values, out);
    fclose(out);
    ck_assert_str_eq(first, second);
    ck_assert_ptr_nonnull(strstr(first, "\n  to: [\"239.1.0.255+1:7148\", \"10.0.0.1+1:5\"]\n"));
    ck_assert_ptr_nonnull(strstr(first, "\n  rate: 1712000000.000000001  # Hz\n"));
    ck_assert_ptr_nonnull(strstr(first, "\n  - kind: tall\n    name: \"no\"\n    height: 8\n"));
    free(first);
    free(second);
}

TEST(example_loads)
{
    char *example;
    size_t n;
    FILE *out = open_memstream(&example, &n);

    config_print_example(&table, out);
    fclose(out);
    check_errors(example, n, "");
    ck_assert_int_eq(load(example, n), 0);
    ck_assert_int_eq(values.basic.count, 3);
    ck_assert_uint_eq(values.items.n, 1);
    ck_assert_ptr_nonnull(strstr(example, "\n  # An integer from 2 to 4294967296 chunks.\n  count: 3\n"));
    ck_assert_ptr_nonnull(strstr(example, "\n  # True or false.\n  #flag: false\n"));
    ck_assert_ptr_nonnull(strstr(example, "\n  # Only with kind tall.\n  #height: 8\n"));
    free(example);
}

/* Returns the schema of a key, an object of JSON Schema. */
static json_t *schema_of(const json_t *schema, const char *section, const char *key)
{
    json_t *place = json_object_get(json_object_get(schema, "properties"), section);

    if (json_object_get(place, "items"))
        place = json_object_get(place, "items");
    return json_object_get(json_object_get(place, "properties"), key);
}

TEST(schema_of_every_type)
{
    /* The members that JSON Schema requires for these types and ranges, without descriptions and defaults. */
    static const struct {
        const char *section, *key, *members;
    } rows[] = {
        {"basic", "count", "{\"type\": \"integer\", \"minimum\": 2, \"maximum\": 4294967296}"},
        {"basic", "size", "{\"enum\": [4, 8, 16, 32, 64]}"},
        {"basic", "flag", "{\"type\": \"boolean\"}"},
        {"basic", "colour", "{\"enum\": [\"red\", \"green\", \"blue\"]}"},
        {"basic", "name", "{\"type\": \"string\", \"maxLength\": 8}"},
        {"basic", "position",
         "{\"type\": \"array\", \"minItems\": 3, \"maxItems\": 3, \"items\": {\"type\": \"number\", \"minimum\": "
         "-10000000, "
         "\"maximum\": 10000000}}"},
        {"items", "width", "{\"type\": \"integer\"}"},
    };
    char *text;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    json_error_t error;

    config_print_schema(&table, out);
    fclose(out);
    json_t *schema = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(schema, "line %d: %s\n%s", error.line, error.text, text);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        json_t *expected = json_loads(rows[i].members, 0, &error), *value, *key = NULL;
        const char *member;
        key = schema_of(schema, rows[i].section, rows[i].key);
        ck_assert_ptr_nonnull(expected);
        json_object_foreach(expected, member, value)
        {
            const json_t *given = json_object_get(key, member);
            /* 2 and 2.0 are the same number */
            bool same =
                json_is_number(value) ? json_number_value(value) == json_number_value(given) : json_equal(value, given);
            ck_assert_msg(same, "%s.%s has another %s in:\n%s", rows[i].section, rows[i].key, member, text);
        }
        json_decref(expected);
    }
    json_decref(schema);
    free(text);
}

/* ---- What is wrong ----------------------------------------------------------------------------------------------- */

/* A file that is good but for the lines that follow. */
#define COUNT "basic:\n  count: 2\n"

static const struct {
    const char *file, *errors;
} mistakes[] = {
    /* Names. */
    {COUNT "basics: {}\n", "3:1: unknown section 'basics'; did you mean 'basic'?\n"},
    {COUNT "htpt: {}\n", "3:1: unknown section 'htpt'; did you mean 'http'?\n"},
    {COUNT "monitoring: {}\n", "3:1: unknown section 'monitoring'; the sections are basic, items, http\n"},
    {COUNT "  facotr: 1\n", "3:3: unknown key 'facotr' in basic; did you mean 'factor'?\n"},
    {COUNT "  color: red\n", "3:3: unknown key 'color' in basic; did you mean 'colour'?\n"},
    {COUNT "  temperature: 1\n",
     "3:3: unknown key 'temperature' in basic; its keys are count, size, factor, rate, flag, "
     "name, colour, to, cpus, position\n"},
    {COUNT "  <<: {size: 4}\n", "3:3: unknown key '<<' in basic; its keys are count, size, factor, rate, flag, name, "
                                "colour, to, cpus, position\n"},
    {COUNT "items:\n  - naem: a\n    width: 1\n", "4:5: unknown key 'naem' in items; did you mean 'name'?\n4:5: "
                                                  "items[0].name is missing and has no default (Who)\n"},
    /* A long value is cut between two characters: byte 60 is the second byte of a character. */
    {COUNT "  size: aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeefffffffff\xc3\xa4ggg\n",
     "3:9: basic.size must be a power of two from 4 to 64 bytes, but "
     "'aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeefffffffff...' is given\n"},
    {COUNT "  count: 3\n", "3:3: basic.count was already given in line 2\n"},
    {COUNT "http: {}\nbasic: {}\n", "4:1: the section basic was already given in line 1\n"},
    {COUNT "  [a]: 3\n", "3:3: a key of basic must be a word\n"},
    {COUNT "? {a: b}\n: c\n", "3:3: the name of a section must be a word\n"},
    /* What is not there. */
    {"http: {}\n\nbasic:\n  size: 8\n", "3:1: basic.count is missing and has no default (How many)\n"},
    {"http: {}\nbasic:\n", "2:1: basic.count is missing and has no default (How many)\n"},
    {"", " the file is empty; see test --print-example\n"},
    {"# nothing\n", " the file is empty; see test --print-example\n"},
    {"---\n...\n", " the file is empty; see test --print-example\n"},
    {"{}", "1:1: the section basic is missing: What everybody needs.\n"},
    {COUNT "  size:\n", "3:8: basic.size must be a power of two from 4 to 64 bytes, but nothing is given\n"},
    {COUNT "  name: null\n", "3:9: basic.name must be a text of at most 8 characters, but nothing is given\n"},
    {COUNT "  cpus: [1, ~]\n", "3:13: basic.cpus must be a list of integers from -1 to 99, but nothing is given\n"},
    /* Forms. */
    {"- basic\n", "1:1: the file must be a group of keys (lines \"key: value\"), but a list is given\n"},
    {"hello", "1:1: the file must be a group of keys (lines \"key: value\"), but 'hello' is given\n"},
    {"basic: [1]\n", "1:8: basic must be a group of keys (lines \"key: value\"), but a list is given\n"},
    {"basic: 5\n", "1:8: basic must be a group of keys (lines \"key: value\"), but '5' is given\n"},
    {COUNT "items: {name: a}\n",
     "3:8: items must be a list (each item beginning with \"- \"), but a group of keys is given\n"},
    {COUNT "items:\n  - 5\n  -\n",
     "4:5: items[0] must be a group of keys (lines \"key: value\"), but '5' is given\n"
     "5:4: items[1] must be a group of keys (lines \"key: value\"), but nothing is given\n"},
    {COUNT "  size: {a: 1}\n",
     "3:9: basic.size must be a power of two from 4 to 64 bytes, but a group of keys is given\n"},
    {COUNT "  size: [8]\n", "3:9: basic.size must be a power of two from 4 to 64 bytes, but a list is given\n"},
    {COUNT "  cpus: [1, [2]]\n", "3:13: basic.cpus must be a list of integers from -1 to 99, but a list is given\n"},
    {COUNT "  to: {a: b}\n",
     "3:7: basic.to must be 1 to 20 addresses (a.b.c.d[+n][:port]), but a group of keys is given\n"},
    /* Numbers. */
    {"basic: {count: 1}\n", "1:16: basic.count must be an integer from 2 to 4294967296 chunks, but '1' is given\n"},
    {"basic: {count: 4294967297}\n",
     "1:16: basic.count must be an integer from 2 to 4294967296 chunks, but '4294967297' is given\n"},
    {"basic: {count: 99999999999999999999}\n",
     "1:16: basic.count must be an integer from 2 to 4294967296 chunks, but '99999999999999999999' is given\n"},
    {"basic: {count: 2.5}\n", "1:16: basic.count must be an integer from 2 to 4294967296 chunks, but '2.5' is given\n"},
    {"basic: {count: 12abc}\n", "1:16: basic.count must be an integer from 2 to 4294967296 chunks, but '12abc' is "
                                "given; write the number without a unit, like 1e6\n"},
    {"basic: {count: 0x10}\n",
     "1:16: basic.count must be an integer from 2 to 4294967296 chunks, but '0x10' is given\n"},
    {"basic: {count: 3 4}\n", "1:16: basic.count must be an integer from 2 to 4294967296 chunks, but '3 4' is given\n"},
    {COUNT "  size: 48\n", "3:9: basic.size must be a power of two from 4 to 64 bytes, but '48' is given\n"},
    {COUNT "  size: 128\n", "3:9: basic.size must be a power of two from 4 to 64 bytes, but '128' is given\n"},
    {COUNT "  size: -8\n", "3:9: basic.size must be a power of two from 4 to 64 bytes, but '-8' is given\n"},
    {COUNT "items: [{kind: tall, name: a, height: 0}, {kind: tall, name: a, height: -9223372036854775808}]\n",
     "3:39: items[0].height must be a power of two, but '0' is given\n"
     "3:73: items[1].height must be a power of two, but '-9223372036854775808' is given\n"},
    {COUNT "  factor: 1,5\n", "3:11: basic.factor must be a number from -1.5 to 1000000000, but '1,5' is given; write "
                              "the number without separators, like 1.5 or 1e6\n"},
    {COUNT "  factor: nan\n", "3:11: basic.factor must be a number from -1.5 to 1000000000, but 'nan' is given\n"},
    {COUNT "  factor: 1e999\n", "3:11: basic.factor must be a number from -1.5 to 1000000000, but '1e999' is given\n"},
    {COUNT "  factor: -1.6\n", "3:11: basic.factor must be a number from -1.5 to 1000000000, but '-1.6' is given\n"},
    {COUNT "  rate: 0.9\n", "3:9: basic.rate must be a number from 1 to 10000000000 Hz, but '0.9' is given\n"},
    {COUNT "  rate: 1.0000000001\n",
     "3:9: basic.rate must be a number from 1 to 10000000000 Hz, but '1.0000000001' is given\n"},
    {COUNT "  rate: 1 GHz\n", "3:9: basic.rate must be a number from 1 to 10000000000 Hz, but '1 GHz' is given; write "
                              "the number without a unit, like 1e6\n"},
    {COUNT "  cpus: [1, 2,\n         100]\n",
     "4:10: basic.cpus must be a list of integers from -1 to 99, but '100' is given\n"},
    {COUNT "  position: [1, 2]\n",
     "3:14: basic.position must be a list of three numbers from -10000000 to 10000000 m, but 2 are given\n"},
    {COUNT "  position: [1, 2, up]\n",
     "3:20: basic.position must be a list of three numbers from -10000000 to 10000000 m, but 'up' is given\n"},
    /* Words. */
    {COUNT "  flag: maybe\n", "3:9: basic.flag must be true or false, but 'maybe' is given\n"},
    {COUNT "  colour: Red\n", "3:11: basic.colour must be red, green or blue, but 'Red' is given\n"},
    {COUNT "  name: 123456789\n", "3:9: basic.name must be a text of at most 8 characters, but '123456789' is given\n"},
    {COUNT "  name: \xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\n", ""},
    {COUNT "  name: \"a\\0b\"\n", "3:9: basic.name must not contain control characters\n"},
    {COUNT "  name: \"12345\\n6789\"\n",
     "3:9: basic.name must be a text of at most 8 characters, but '12345 6789' is given\n"},
    {COUNT "items: [{name: '', width: 1}]\n",
     "3:16: items[0].name must be a text of 1 to 8 characters, but '' is given\n"},
    /* Addresses. */
    {COUNT "  to: 1.2.3\n",
     "3:7: basic.to is not valid: \"1.2.3\" is not an endpoint of the form a.b.c.d[+n][:port]\n"},
    {COUNT "  to:\n    - 1.2.3.4\n    - 1.2.3.4:0\n",
     "5:7: basic.to is not valid: \"1.2.3.4:0\": the port must be a number from 1 to 65535\n"},
    {COUNT "  to: []\n", "3:7: basic.to must be 1 to 20 addresses (a.b.c.d[+n][:port]), but 0 are given\n"},
    {COUNT "  to: ''\n", "3:7: basic.to must be 1 to 20 addresses (a.b.c.d[+n][:port]), but 0 are given\n"},
    {COUNT "  to: 1.2.3.4+20\n", "3:7: basic.to must be 1 to 20 addresses (a.b.c.d[+n][:port]), but 21 are given\n"},
    {COUNT "http: {listen: '1.2.3.4, 1.2.3.5'}\n",
     "3:16: http.listen must be at most 1 address (a.b.c.d[:port]), but 2 are given\n"},
    {COUNT "http: {listen: '1.2.3.4+1:80'}\n",
     "3:16: http.listen is not valid: \"1.2.3.4+1:80\" is not an endpoint of the form a.b.c.d[:port]\n"},
    {COUNT "http: {listen: 'localhost:80'}\n",
     "3:16: http.listen is not valid: \"localhost:80\" is not an endpoint of the form a.b.c.d[:port]; "
     "write the address as a number: 127.0.0.1:80\n"},
    {COUNT "http: {listen: 'gpu7:80'}\n",
     "3:16: http.listen is not valid: \"gpu7:80\" is not an endpoint of the form a.b.c.d[:port]; "
     "write the address as a number, not as a name\n"},
    /* Lists of sections, and their kinds. */
    {COUNT "items: [{}, {}, {}, {}]\n", "3:1: items must have 0 to 3 items, but 4 are given\n"},
    {COUNT "items: [{name: a, width: 1, height: 2}]\n",
     "3:29: items[0].height belongs to kind tall, but the kind is flat\n"},
    {COUNT "items: [{height: 2, name: a, kind: tall, width: 1}]\n",
     "3:42: items[0].width belongs to kind flat, but the kind is tall\n"},
    {COUNT "items: [{name: a}]\n", "3:9: items[0].width is missing and has no default (How wide)\n"},
    {COUNT "items: [{name: a, kind: round, width: 1, height: 1}]\n",
     "3:25: items[0].kind must be flat or tall, but 'round' is given\n"},
    /* All at once, in the order of the file. */
    {"items:\n  - kind: tall\n  - width: x\nbasic:\n  size: 3\n  tow: 1\n",
     "2:5: items[0].name is missing and has no default (Who)\n"
     "3:5: items[1].name is missing and has no default (Who)\n"
     "3:12: items[1].width must be an integer, but 'x' is given\n"
     "4:1: basic.count is missing and has no default (How many)\n"
     "5:9: basic.size must be a power of two from 4 to 64 bytes, but '3' is given\n"
     "6:3: unknown key 'tow' in basic; did you mean 'to'?\n"},
    /* Not YAML, or not one file. */
    {COUNT "\tsize: 4\n", "3:1: the line is indented with a tab; YAML requires spaces\n"},
    {COUNT "  size: 4\n bad: 5\n",
     "4:2: this is not valid YAML: did not find expected key while parsing a block mapping "
     "that begins in line 1\n"},
    {COUNT "  size: *none\n", "3:9: this is not valid YAML: found undefined alias\n"},
    {COUNT "  name: \"abc\n", "4:1: this is not valid YAML: found unexpected end of stream while scanning a quoted "
                              "scalar that begins in line 3\n"},
    {COUNT "---\n" COUNT, "3:1: a second YAML document begins here; a configuration is one document\n"},
    {COUNT "---\n'\n",
     "5:1: this is not valid YAML: found unexpected end of stream while scanning a quoted scalar that "
     "begins in line 4\n"},
    {COUNT "  name: \xc3\xa4\xff\n", "3:10: the file is not plain UTF-8 text here (invalid leading UTF-8 octet)\n"},
};

TEST(mistake, .end = ARRAY_LEN(mistakes))
{
    check_errors(mistakes[_i].file, strlen(mistakes[_i].file), mistakes[_i].errors);
}

TEST(nul_in_file)
{
    static const char file[] = COUNT "  name: a\0b\n";

    check_errors(file, sizeof(file) - 1,
                 "3:10: the file is not plain UTF-8 text here (control characters are not allowed)\n");
}

TEST(alias_of_itself)
{
    static const char file[] = "basic: &b\n  count: 2\n  cpus: *b\nitems: &i [*i, *i]\n";

    check_errors(file, strlen(file),
                 "1:8: basic.cpus must be a list of integers from -1 to 99, but a group of keys is given\n"
                 "4:8: items[0] must be a group of keys (lines \"key: value\"), but a list is given\n"
                 "4:8: items[1] must be a group of keys (lines \"key: value\"), but a list is given\n");
}

/* 'n' times 'what', with 'before' in front and 'behind' at the end; caller frees. */
static char *repeat(const char *before, const char *what, size_t n, const char *behind)
{
    char *text = NULL;
    size_t n_bytes;
    FILE *out = open_memstream(&text, &n_bytes);

    fputs(before, out);
    for (size_t i = 0; i < n; i++)
        fputs(what, out);
    fputs(behind, out);
    fclose(out);
    return text;
}

#define TOO_DEEP  ": lists and groups of keys are nested more than 32 levels deep here; a configuration needs 4\n"
#define TOO_NAMED ": the file has more than 1000 anchors, aliases and directives; write the values without them\n"

/* Megabytes of what takes libyaml a time that grows with the square: it must not be asked. */
static const struct {
    const char *before, *what;
    size_t n;
    const char *behind, *errors;
} extents[] = {
    {"", "[", 4000000, "", "1:33" TOO_DEEP},
    {"", "{", 4000000, "", "1:33" TOO_DEEP},
    {"", "- ", 2000000, "a", "1:65" TOO_DEEP},
    {"", "? ", 2000000, "a", "1:65" TOO_DEEP},
    {COUNT "http:\n", "  [\n", 1000000, "", "35:3" TOO_DEEP},
    {"", "- &a\n", 800000, "", "1001:3" TOO_NAMED},
    {"- &a x\n", "- *a\n", 800000, "", "1001:3" TOO_NAMED},
    {"", "%TAG !a! x:\n", 300000, "--- a\n", "1001:1" TOO_NAMED},
    /* The most that may be. */
    {COUNT "http: {listen: ", "[", 30, "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}\n",
     "3:17: http.listen must be at most 1 address (a.b.c.d[:port]), but a list is given\n"},
    {COUNT "  cpus: [&a 7", ",*a", 998, ",*a]\n", ""},
};

TEST(extent, .end = ARRAY_LEN(extents))
{
    char *text = repeat(extents[_i].before, extents[_i].what, extents[_i].n, extents[_i].behind);

    check_errors(text, strlen(text), extents[_i].errors);
    free(text);
}

/* 4 MiB of misspelt keys: the first errors are said, the others counted. */
TEST(many_errors)
{
    enum { N_KEYS = 200000 };
    char *text = repeat("basic:\n", "  cuont: 1\n", N_KEYS, "");
    size_t n_lines = 0;

    ck_assert_int_eq(load(text, strlen(text)), -EINVAL);
    ck_assert_uint_gt(config_n_errors(config), N_KEYS);
    for (const char *at = errors_of(); (at = strchr(at, '\n')); at++)
        n_lines++;
    ck_assert_uint_eq(n_lines, CONFIG_SAID_ERRORS + 1);
    const char *last = strrchr(errors, ' ') - strlen("and 123456 more");
    ck_assert_msg(strstr(last, "more errors") != NULL, "%s", last);
    ck_assert_msg(strstr(errors, "unknown key 'cuont' in basic; did you mean 'count'?") != NULL, "%s", errors);
    free(text);
}

TEST(unreadable)
{
    unlink(path);
    ck_assert_int_eq(config_load(&table, path, &values, &config), -ENOENT);
    ck_assert_str_eq(errors_of(), " the file cannot be read: No such file or directory\n");
    unload();
    ck_assert_int_eq(config_load(&table, directory, &values, &config), -EISDIR);
    ck_assert_uint_eq(config_n_errors(config), 1);
    config_free(&table, NULL, NULL);
}

/* ---- Checks across keys ------------------------------------------------------------------------------------------ */

TEST(errors_of_checks)
{
    static const char file[] = "items:\n  - {name: a, width: 1}\n  - {name: b, width: 2}\nbasic:\n  count: 2\n"
                               "  position: [0, 0, 0]\nhttp:\n";
    struct test_item *items;

    ck_assert_int_eq(load(file, strlen(file)), 0);
    items = values.items.items;
    config_error(config, &values, "of nothing known %d", 1);
    config_error(config, &values.http.listen, "of a key that is defaulted");
    config_error(config, &values.basic.position[1], "of a part of a value");
    config_error(config, &items[1].width, "of an item's key");
    config_error(config, &items[1].height, "of an item");
    config_error(config, &values.items, "of a list");
    config_error(config, &config, "of an address elsewhere");
    ck_assert_uint_eq(config_n_errors(config), 7);
    ck_assert_str_eq(errors_of(), "1:1: of a list\n"
                                  "1:1: of an address elsewhere\n"
                                  "3:5: of an item\n"
                                  "3:22: of an item's key\n"
                                  "5:10: of nothing known 1\n"
                                  "6:13: of a part of a value\n"
                                  "7:1: of a key that is defaulted\n");
    ck_assert(config_given(config, &items[1].width));
    ck_assert(!config_given(config, &items[1].kind));
}

/* ---- Files that nobody wrote ------------------------------------------------------------------------------------- */

/* Changes a few bytes of 'text', favouring those that mean something to YAML; returns the new length. */
static size_t mutate(char *text, size_t n)
{
    static const char special[] = "\n\t :-[]{},&*!|>'\"#%@?~0e.+\\\xff\xc3\0";

    for (size_t changes = 1 + random_below(4); changes > 0; changes--) {
        size_t at = random_below(n);
        char c = random_below(4) ? special[random_below(sizeof(special) - 1)] : (char)random_u64();
        size_t cut = 1 + random_below(8);

        switch (random_below(4)) {
        case 0: /* another byte */ text[at] = c; break;
        case 1: /* one more */
            memmove(text + at + 1, text + at, n - at);
            text[at] = c;
            n++;
            break;
        case 2: /* some less */
            cut = cut < n - at ? cut : n - at - 1;
            memmove(text + at, text + at + cut, n - at - cut);
            n -= cut;
            break;
        case 3: /* a piece moved elsewhere */
            cut = cut < n - at ? cut : n - at;
            memmove(text + random_below(n - cut + 1), text + at, cut);
            break;
        }
    }
    return n;
}

/* The places of what only the start finds wrong. */
TEST(located)
{
    static const char yaml[] = COUNT "  size: 8\nitems:\n  - {name: a, width: 1}\n  - {name: b, width: 2}\n";
    static const struct {
        const char *sentence, *place;
    } rows[] = {
        {"basic.size: too much", ":3:9: "},
        {"basic.size", ":3:9: "},
        {"basic.size, basic.name: too much", ":3:9: "},
        {"items[1].name is no good", ":6:12: "},
        {"items[1]: no good", ":6:5: "},
        {"items: no good", ":4:1: "},
        {"basic: no good", ":1:1: "},
        {"basic.flag: not given, so its section", ":1:1: "},
        {"basic.siz: no key", ": "},
        {"items[2].name: not there", ": "},
        {"out of memory", ": "},
        {"", ": "},
    };
    char text[128];

    int err = load(yaml, sizeof(yaml) - 1);
    ck_assert_msg(!err, "%s", errors_of());
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        config_locate(config, rows[i].sentence, text, sizeof(text));
        ck_assert(!strncmp(text, path, strlen(path)));
        ck_assert_msg(!strcmp(text + strlen(path), rows[i].place), "%s: %s", rows[i].sentence, text);
    }
}

TEST(mutations)
{
    size_t n_good = strlen(good_file);
    int n_loaded = 0, n_refused = 0;

    for (int trial = 0; trial < 9000; trial++) {
        char text[sizeof(good_file) + 8];
        int err;

        memcpy(text, good_file, n_good);
        err = load(text, mutate(text, n_good));
        ck_assert(err == 0 || err == -EINVAL);
        ck_assert((err != 0) == (config_n_errors(config) > 0));
        errors_of();
        n_loaded += !err;
        n_refused += !!err;
    }
    /* Both must happen, else the mutations prove little.  195 load as a rule, with a standard deviation of 15. */
    ck_assert_int_gt(n_loaded, 50);
    ck_assert_int_gt(n_refused, 500);
}

TEST(noise)
{
    for (int trial = 0; trial < 500; trial++) {
        unsigned char text[200];
        size_t n = random_below(sizeof(text));

        random_bytes(text, n);
        ck_assert_int_eq(load((char *)text, n), -EINVAL);
        ck_assert_uint_gt(config_n_errors(config), 0);
    }
}

static void start(void)
{
    random_start();
    if (!mkdtemp(directory))
        abort();
    snprintf(path, sizeof(path), "%s/test.yaml", directory);
}

static void finish(void)
{
    unlink(path);
    rmdir(directory);
}

SUITE(.timeout_s = 60, .teardown = unload, .start = start, .finish = finish);
