/* name_pattern.c - compiles the regular expressions of ?sensor-list and ?sensor-value, and searches names with them.
 * Any client can send an expression, and the main thread executes it, so the run time must be limited. */
#include "common/katcp/name_pattern.h"

#include <assert.h>
#include <string.h>

enum { CODE_SET, CODE_CHOICE, CODE_JUMP, CODE_BEGIN, CODE_END, CODE_FOUND };

/* ---- Compiling --------------------------------------------------------------------------------------------------- */

struct parser {
    const char *at, *end;
    struct name_pattern *pattern;
    const char *why; /* the first error; NULL: no error so far */
};

static void refuse(struct parser *p, const char *why)
{
    if (!p->why)
        p->why = why;
}

static bool more(const struct parser *p)
{
    return !p->why && p->at < p->end;
}

static bool is_letter_or_digit(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static void set_range(uint64_t set[4], unsigned from, unsigned to)
{
    for (unsigned c = from; c <= to; c++)
        set[c / 64] |= UINT64_C(1) << c % 64;
}

static struct name_pattern_code *append(struct parser *p, uint8_t kind)
{
    assert(p->pattern->n < NAME_PATTERN_MAX_CODE);
    struct name_pattern_code *code = &p->pattern->code[p->pattern->n++];
    *code = (struct name_pattern_code){.kind = kind, .to = 1};
    return code;
}

/* Inserts a choice before the code that begins at 'place'.  The code can be moved, because its jumps are relative. */
static struct name_pattern_code *insert_choice(struct parser *p, size_t place)
{
    struct name_pattern *pattern = p->pattern;

    append(p, CODE_CHOICE);
    memmove(&pattern->code[place + 1], &pattern->code[place], (pattern->n - 1 - place) * sizeof(pattern->code[0]));
    pattern->code[place] = (struct name_pattern_code){.kind = CODE_CHOICE, .to = 1};
    return &pattern->code[place];
}

/* Parses the character after a backslash, and adds the character's meaning to 'set'.  Returns the character.  If the
 * character means a list of characters (\d, \w), returns -1. */
static int parse_escaped(struct parser *p, uint64_t set[4])
{
    if (p->at == p->end) {
        refuse(p, "an expression must not end in a single backslash");
        return -1;
    }
    unsigned char c = (unsigned char)*p->at++;
    if (c == 'd' || c == 'w')
        set_range(set, '0', '9');
    if (c == 'w') {
        set_range(set, 'a', 'z');
        set_range(set, 'A', 'Z');
        set_range(set, '_', '_');
    }
    if (c == 'd' || c == 'w')
        return -1;
    if (is_letter_or_digit(c) || c >= 0x80)
        refuse(p, "d and w are the only letters and digits permitted after a backslash");
    if (c == '<' || c == '>' || c == '`' || c == '\'')
        refuse(p, "\\< \\> \\` and \\' are not permitted in an expression");
    set_range(set, c, c);
    return c;
}

/* Parses a single character, or one end of a range, and adds it to 'set'.  Returns the character, or -1 for a list of
 * characters such as \d. */
static int parse_listed(struct parser *p, uint64_t set[4])
{
    unsigned char c = (unsigned char)*p->at++;

    if (c == '\\')
        return parse_escaped(p, set);
    if (c == '[' && p->at < p->end && (*p->at == ':' || *p->at == '.' || *p->at == '='))
        refuse(p, "[:classes:] are not permitted in a list");
    set_range(set, c, c);
    return c;
}

/* Parses the rest of a list after its '[', for example "^a-z]", into 'set'. */
static void parse_list(struct parser *p, uint64_t set[4])
{
    bool negated = more(p) && *p->at == '^';

    p->at += negated;
    for (bool first = true; more(p) && (first || *p->at != ']'); first = false) {
        int from = parse_listed(p, set);
        if (p->end - p->at < 2 || p->at[0] != '-' || p->at[1] == ']')
            continue;
        p->at++;
        int to = parse_listed(p, set);
        if (from < 0 || to < from)
            refuse(p, "a range must lead from a character to the same or a later character");
        else
            set_range(set, (unsigned)from, (unsigned)to);
    }
    if (p->at == p->end)
        refuse(p, "a list must end in ]");
    p->at++;
    for (size_t i = 0; negated && i < 4; i++)
        set[i] = ~set[i];
}

static void parse_choices(struct parser *p);

static void parse_group(struct parser *p)
{
    parse_choices(p);
    if (p->at == p->end)
        refuse(p, "a group must end in )");
    p->at++;
}

/* Parses one character, list, anchor or group, and appends its code.  Returns true if the item may be repeated. */
static bool parse_item(struct parser *p)
{
    unsigned char c = (unsigned char)*p->at++;
    uint64_t set[4] = {0};

    switch (c) {
    case '(': parse_group(p); return true;
    case '^': append(p, CODE_BEGIN); return false;
    case '$': append(p, CODE_END); return false;
    case '*':
    case '+':
    case '?': refuse(p, "a repetition must follow a character, a list or a group"); return false;
    case '{': refuse(p, "{...} is not permitted in an expression"); return false;
    case '.': set_range(set, 0, 255); break;
    case '[': parse_list(p, set); break;
    case '\\': parse_escaped(p, set); break;
    default: set_range(set, c, c); break;
    }
    memcpy(append(p, CODE_SET)->set, set, sizeof(set));
    return true;
}

/* Parses a repetition sign, if there is one, and applies it to the code that begins at 'place'. */
static void parse_repetition(struct parser *p, size_t place)
{
    char c = more(p) ? *p->at : '\0';
    int n = (int)(p->pattern->n - place);

    if (c == '+')
        *append(p, CODE_CHOICE) = (struct name_pattern_code){.kind = CODE_CHOICE, .to = 1, .or_to = (int16_t)-n};
    else if (c == '?')
        insert_choice(p, place)->or_to = (int16_t)(n + 1);
    else if (c == '*')
        insert_choice(p, place)->or_to = (int16_t)(n + 2);
    else
        return;
    if (c == '*')
        append(p, CODE_JUMP)->to = (int16_t)(-n - 1);
    p->at++;
}

/* Parses "x|y|z", up to a ')' or the end of the expression. */
static void parse_choices(struct parser *p)
{
    size_t begin = p->pattern->n;

    while (more(p) && *p->at != ')' && *p->at != '|') {
        size_t item = p->pattern->n;
        if (parse_item(p))
            parse_repetition(p, item);
    }
    if (!more(p) || *p->at != '|')
        return;
    p->at++;
    insert_choice(p, begin);
    size_t jump = p->pattern->n;
    append(p, CODE_JUMP);
    p->pattern->code[begin].or_to = (int16_t)(jump + 1 - begin);
    parse_choices(p);
    p->pattern->code[jump].to = (int16_t)(p->pattern->n - jump);
}

const char *name_pattern_compile(const char *text, size_t n_bytes, struct name_pattern *pattern)
{
    struct parser p = {.at = text, .end = text + n_bytes, .pattern = pattern};

    if (n_bytes > NAME_PATTERN_MAX_BYTES)
        return "an expression must have at most 255 characters";
    pattern->n = 0;
    parse_choices(&p);
    if (more(&p))
        refuse(&p, "a ) has no matching (");
    append(&p, CODE_FOUND);
    return p.why;
}

/* ---- Searching --------------------------------------------------------------------------------------------------- */

/* Indices of instructions.  The search compares the next character of the name with these instructions. */
struct states {
    size_t n;
    int16_t at[NAME_PATTERN_MAX_CODE];
};

struct search {
    const struct name_pattern *pattern;
    bool at_begin, at_end; /* true while the search is at the name's beginning, or at its end */
    bool seen[NAME_PATTERN_MAX_CODE];
    int16_t stack[NAME_PATTERN_MAX_CODE];
    size_t n_stacked, n_steps;
};

static void push(struct search *search, int at)
{
    if (!search->seen[at])
        search->stack[search->n_stacked++] = (int16_t)at;
    search->seen[at] = true;
}

/* Starts at instruction 'from', follows choices, jumps and other instructions that match no character, and stores the
 * states that it reaches.  Returns true if the end of the pattern is reached. */
static bool follow(struct search *search, int from, struct states *states)
{
    push(search, from);
    while (search->n_stacked > 0) {
        int at = search->stack[--search->n_stacked];
        const struct name_pattern_code *code = &search->pattern->code[at];
        search->n_steps++;
        switch (code->kind) {
        case CODE_FOUND: return true;
        case CODE_SET: states->at[states->n++] = (int16_t)at; break;
        case CODE_CHOICE:
            push(search, at + code->or_to);
            push(search, at + code->to);
            break;
        case CODE_BEGIN:
            if (search->at_begin)
                push(search, at + 1);
            break;
        case CODE_END:
            if (search->at_end)
                push(search, at + 1);
            break;
        case CODE_JUMP: push(search, at + code->to); break;
        }
    }
    return false;
}

bool name_pattern_matches(const struct name_pattern *pattern, const char *name, size_t *n_steps)
{
    struct states states[2] = {{0}}, *now = &states[0], *next = &states[1];
    struct search search = {.pattern = pattern, .at_begin = true};
    bool found = false;

    now->n = 0;
    for (;; name++) {
        unsigned char c = (unsigned char)*name, before = search.at_begin ? 0 : (unsigned char)name[-1];
        memset(search.seen, 0, pattern->n * sizeof(search.seen[0]));
        search.at_end = !c;
        next->n = 0;
        for (size_t i = 0; i < now->n && !found; i++)
            if (pattern->code[now->at[i]].set[before / 64] >> before % 64 & 1)
                found = follow(&search, now->at[i] + 1, next);
        found = found || follow(&search, 0, next); /* a match may begin at any character of the name */
        if (found || !c)
            break;
        struct states *swap = now;
        now = next;
        next = swap;
        search.at_begin = false;
    }
    *n_steps += search.n_steps;
    return found;
}
