/* check_name_pattern.c - the expressions of ?sensor-list: the names that they match, the expressions that are refused,
 * and the number of steps of the worst.  NAME_PATTERN_ROUNDS=10000000 is the long run. */
#include "common/katcp/name_pattern.h"

#include "common/base/units.h"
#include "tests/unit/test_main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool found(const char *text, const char *name)
{
    static struct name_pattern pattern;
    size_t n_steps = 0;

    const char *why = name_pattern_compile(text, strlen(text), &pattern);
    ck_assert_msg(!why, "/%s/ is refused: %s", text, why);
    bool is_found = name_pattern_matches(&pattern, name, &n_steps);
    ck_assert_uint_le(n_steps, (strlen(name) + 1) * pattern.n);
    return is_found;
}

TEST(finds)
{
    static const struct {
        const char *text, *name;
        bool found;
    } rows[] = {
        {"", "a", true},
        {"", "", true},
        {"b", "abc", true},
        {"^b", "abc", false},
        {"c$", "abc", true},
        {"b$", "abc", false},
        {"^$", "", true},
        {"^$", "a", false},
        {"$^", "", true},
        {"a.c", "abc", true},
        {"a\\.c", "abc", false},
        {"a\\.c", "xa.cx", true},
        {"[a-c]x", "bx", true},
        {"[^a-c]x", "bx", false},
        {"[]a]", "]", true},
        {"[^]a]", "]", false},
        {"[a-]", "-", true},
        {"[a\\]x]b", "]b", true},
        {"[\\d.]z", "7z", true},
        {"\\d\\w", "7_", true},
        {"\\w", ".-", false},
        {"ab*c", "ac", true},
        {"ab*c", "abbbc", true},
        {"ab+c", "ac", false},
        {"ab+c", "abbc", true},
        {"^ab?c$", "abbc", false},
        {"^(ab|c)+d$", "abcabd", true},
        {"^(ab|c)+d$", "abcbd", false},
        {"^(|a|bc)d", "bcd", true},
        {"^(a|)$", "", true},
        {"a|", "x", true},
        {"x|y|zz", "azz", true},
        {"x|y|zz", "az", false},
        {"^x|y$", "ay", true},
        {"()", "", true},
        {"(^a|b$|^$)*c", "xc", true},
        {"(^)*a", "ba", true},
        {"((a*)*)*b", "aab", true},
        {"^input\\d+\\.(rx|dig)", "input12.rx.timestamp", true},
        {"]}", "]}", true},
        {"\xe9", "caf\xe9", true},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        ck_assert_msg(found(rows[i].text, rows[i].name) == rows[i].found, "/%s/ in \"%s\"", rows[i].text, rows[i].name);
}

TEST(refuses)
{
    static const char *const rows[][2] = {
        {"(", "a group must end in )"},
        {"a(b|(c)", "a group must end in )"},
        {")", "a ) has no matching ("},
        {"a)b", "a ) has no matching ("},
        {"*a", "a repetition must follow"},
        {"a|*", "a repetition must follow"},
        {"(+)", "a repetition must follow"},
        {"a**", "a repetition must follow"},
        {"a+?", "a repetition must follow"},
        {"(a)?*", "a repetition must follow"},
        {"^*", "a repetition must follow"},
        {"$+", "a repetition must follow"},
        {"(?:a)", "a repetition must follow"},
        {"a{3}", "{...} is not permitted"},
        {"{", "{...} is not permitted"},
        {"(a)\\1", "d and w are the only letters and digits permitted"},
        {"\\bx", "d and w are the only letters and digits permitted"},
        {"\\B", "d and w are the only letters and digits permitted"},
        {"\\<a", "\\< \\> \\` and \\' are not permitted"},
        {"a\\>", "\\< \\> \\` and \\' are not permitted"},
        {"\\`", "\\< \\> \\` and \\' are not permitted"},
        {"\\'", "\\< \\> \\` and \\' are not permitted"},
        {"a\\", "an expression must not end in"},
        {"[a", "a list must end in ]"},
        {"[", "a list must end in ]"},
        {"[^", "a list must end in ]"},
        {"[]", "a list must end in ]"},
        {"[a\\", "an expression must not end in"},
        {"[z-a]", "a range must lead from"},
        {"[\\d-z]", "a range must lead from"},
        {"[a-\\w]", "a range must lead from"},
        {"[[:digit:]]", "[:classes:] are not permitted"},
        {"[[.a.]]", "[:classes:] are not permitted"},
        {"[\\x]", "d and w are the only letters and digits permitted"},
    };
    struct name_pattern *pattern = malloc(sizeof(*pattern));
    char longest[NAME_PATTERN_MAX_BYTES + 1];

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *why = name_pattern_compile(rows[i][0], strlen(rows[i][0]), pattern);
        ck_assert_msg(why && !strncmp(why, rows[i][1], strlen(rows[i][1])), "/%s/: %s", rows[i][0],
                      why ? why : "taken");
    }
    memset(longest, 'a', sizeof(longest));
    ck_assert_ptr_null(name_pattern_compile(longest, sizeof(longest) - 1, pattern));
    ck_assert_ptr_nonnull(name_pattern_compile(longest, sizeof(longest), pattern));
    free(pattern);
}

/* Patterns that make other matchers slow take no more steps than any others. */
TEST(bounded)
{
    static const char *const worst[] = {"(^a|b$|^$)*", "(^|$)*", "(a*)*", "(a|a)*", "(.*.*)*",
                                        "a?",          ".*",     "(|)",   "|",      "(((((((((.?)?)?)?)?)?)?)?)?)?"};
    static const char name[] = "wide.input0.feng-clip-cnt.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    char text[NAME_PATTERN_MAX_BYTES + 1];

    for (size_t i = 0; i < ARRAY_LEN(worst); i++) {
        text[0] = '\0';
        while (strlen(text) + strlen(worst[i]) < sizeof(text))
            strcat(text, worst[i]);
        found(text, name);
    }
    memset(text, '(', 127);
    memset(text + 127, ')', 127);
    text[254] = '\0';
    ck_assert(found(text, name));
}

/* ---- Many made at random ----------------------------------------------------------------------------------------- */

static uint64_t state;

static unsigned draw(unsigned n)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)((state >> 33) % n);
}

static void put(char text[], size_t *n, const char *more)
{
    size_t length = strlen(more);

    if (*n + length > NAME_PATTERN_MAX_BYTES)
        return;
    memcpy(text + *n, more, length);
    *n += length;
}

/* An expression of the grammar; too long ones lose pieces, and may be refused for that. */
static void make(char text[], size_t *n, int depth)
{
    static const char *const atoms[] = {"a", "b", ".", "[ab]", "[^a]", "\\d",  "\\.",
                                        "^", "$", "0", "-",    "\\w",  "(^|$)"};
    static const char *const repetitions[] = {"", "", "*", "+", "?"};

    for (unsigned i = draw(5); i > 0; i--) {
        if (depth > 0 && draw(3) == 0) {
            put(text, n, "(");
            make(text, n, depth - 1);
            put(text, n, ")");
        } else {
            put(text, n, atoms[draw(ARRAY_LEN(atoms))]);
        }
        put(text, n, repetitions[draw(ARRAY_LEN(repetitions))]);
        if (draw(6) == 0)
            put(text, n, "|");
    }
}

TEST(random_ones)
{
    static const char letters[] = "ab.^$*+?()[]|\\{}-d0w";
    static const char *const names[] = {"", "wide.input0.feng-clip-cnt", "aabbaabbaabbaabbaabbaabbaabbaabbaabbaabb"};
    const char *rounds = getenv("NAME_PATTERN_ROUNDS"), *seed = getenv("SEED");
    struct name_pattern *pattern = malloc(sizeof(*pattern));
    long n_rounds = rounds ? atol(rounds) : 20000, n_taken = 0;
    double worst = 0;

    state = seed ? strtoull(seed, NULL, 10) : 20261123;
    printf("SEED=%llu\n", (unsigned long long)state);
    for (long i = 0; i < n_rounds; i++) {
        char text[NAME_PATTERN_MAX_BYTES];
        size_t n = 0;
        if (i % 2)
            make(text, &n, 1 + (int)draw(6));
        for (unsigned k = i % 2 ? 0 : draw(30); k > 0; k--)
            text[n++] = letters[draw(sizeof(letters) - 1)];
        if (name_pattern_compile(text, n, pattern))
            continue;
        n_taken++;
        for (size_t k = 0; k < ARRAY_LEN(names); k++) {
            size_t n_steps = 0, most = (strlen(names[k]) + 1) * pattern->n;
            name_pattern_matches(pattern, names[k], &n_steps);
            ck_assert_msg(n_steps <= most, "/%.*s/: %zu steps of %zu", (int)n, text, n_steps, most);
            worst = (double)n_steps / (double)most > worst ? (double)n_steps / (double)most : worst;
        }
    }
    printf("%ld of %ld expressions were taken; the worst took %.0f %% of the steps that are allowed\n", n_taken,
           n_rounds, 100 * worst);
    ck_assert_int_gt(n_taken, n_rounds / 10);
    free(pattern);
}

/* ---- A model: what an expression means, by sets of places -------------------------------------------------------- */

enum kind { EMPTY, SET, BEGIN, END, GROUP, SEQUENCE, EITHER, ANY_NUMBER, AT_LEAST_ONE, AT_MOST_ONE };

struct node {
    enum kind kind;
    const char *members; /* of a set, among 'signs' */
    struct node *a, *b;
};

static const char signs[] = "ab0.-_";
static struct node nodes[1000];
static size_t n_nodes;

static struct node *new_node(enum kind kind, struct node *a, struct node *b)
{
    ck_assert_uint_lt(n_nodes, ARRAY_LEN(nodes));
    nodes[n_nodes] = (struct node){kind, NULL, a, b};
    return &nodes[n_nodes++];
}

/* The places where the name may go on behind 'node', by bits, of those where it may begin. */
static unsigned ends(const struct node *node, const char *name, size_t n, unsigned begins)
{
    unsigned places = 0, all = begins;

    switch (node->kind) {
    case EMPTY: return begins;
    case SET:
        for (size_t i = 0; i < n; i++)
            if (begins >> i & 1 && strchr(node->members, name[i]))
                places |= 2u << i;
        return places;
    case BEGIN: return begins & 1u;
    case END: return begins & 1u << n;
    case GROUP: return ends(node->a, name, n, begins);
    case SEQUENCE: return ends(node->b, name, n, ends(node->a, name, n, begins));
    case EITHER: return ends(node->a, name, n, begins) | ends(node->b, name, n, begins);
    case AT_MOST_ONE: return begins | ends(node->a, name, n, begins);
    case ANY_NUMBER:
    case AT_LEAST_ONE: break;
    }
    if (node->kind == AT_LEAST_ONE)
        all = ends(node->a, name, n, begins);
    do {
        places = all;
        all |= ends(node->a, name, n, all);
    } while (all != places);
    return all;
}

static struct node *grow_item(int depth)
{
    static const char *const sets[] = {"a", "b", "ab0.-_", "ab", "b0.-_", "0", ".", "ab0_"};
    unsigned which = draw(10);

    if (depth > 0 && draw(2))
        return new_node(GROUP, NULL, NULL);
    if (which >= ARRAY_LEN(sets))
        return new_node(which % 2 ? BEGIN : END, NULL, NULL);
    struct node *set = new_node(SET, NULL, NULL);
    set->members = sets[which];
    return set;
}

static struct node *grow(int depth)
{
    struct node *all = new_node(EMPTY, NULL, NULL);

    for (unsigned i = draw(4); i > 0; i--) {
        struct node *item = grow_item(depth);
        unsigned repetition = draw(6);
        if (item->kind == GROUP)
            item->a = grow(depth - 1);
        if (repetition < 3 && item->kind != BEGIN && item->kind != END)
            item = new_node((enum kind)(ANY_NUMBER + (int)repetition), item, NULL);
        all = new_node(SEQUENCE, all, item);
    }
    return draw(3) ? all : new_node(EITHER, all, grow(depth > 0 ? depth - 1 : 0));
}

static char *write_node(const struct node *node, char *to)
{
    static const struct {
        const char *members, *text;
    } sets[] = {{"ab0.-_", "."}, {"ab", "[ab]"}, {"b0.-_", "[^a]"}, {"0", "\\d"}, {".", "\\."}, {"ab0_", "\\w"}};

    switch (node->kind) {
    case EMPTY: return to;
    case SET:
        for (size_t i = 0; i < ARRAY_LEN(sets); i++)
            if (!strcmp(sets[i].members, node->members))
                return stpcpy(to, sets[i].text);
        return stpcpy(to, node->members);
    case BEGIN: return stpcpy(to, "^");
    case END: return stpcpy(to, "$");
    case GROUP: return stpcpy(write_node(node->a, stpcpy(to, "(")), ")");
    case SEQUENCE: return write_node(node->b, write_node(node->a, to));
    case EITHER: return write_node(node->b, stpcpy(write_node(node->a, to), "|"));
    case ANY_NUMBER: return stpcpy(write_node(node->a, to), "*");
    case AT_LEAST_ONE: return stpcpy(write_node(node->a, to), "+");
    case AT_MOST_ONE: return stpcpy(write_node(node->a, to), "?");
    }
    return to;
}

TEST(as_the_model)
{
    static struct name_pattern pattern;
    static char text[10000];
    const char *seed = getenv("SEED");
    size_t n_found = 0, n_compared = 0, n_steps = 0;

    state = seed ? strtoull(seed, NULL, 10) : 20261124;
    printf("SEED=%llu\n", (unsigned long long)state);
    while (n_compared < 200000) {
        char name[12];
        n_nodes = 0;
        const struct node *model = grow(3);
        *write_node(model, text) = '\0';
        if (strlen(text) > NAME_PATTERN_MAX_BYTES)
            continue;
        const char *why = name_pattern_compile(text, strlen(text), &pattern);
        ck_assert_msg(!why, "/%s/ is refused: %s", text, why);
        for (int k = 0; k < 10; k++, n_compared++) {
            size_t n = draw(sizeof(name));
            for (size_t i = 0; i < n; i++)
                name[i] = signs[draw(sizeof(signs) - 1)];
            name[n] = '\0';
            bool expected = ends(model, name, n, (2u << n) - 1) != 0;
            n_found += expected;
            ck_assert_msg(name_pattern_matches(&pattern, name, &n_steps) == expected, "/%s/ in \"%s\": %d is expected",
                          text, name, expected);
        }
    }
    ck_assert_uint_lt(n_found, n_compared * 9 / 10);
    ck_assert_uint_gt(n_found, n_compared / 10);
}

SUITE(.timeout_s = 3600);
