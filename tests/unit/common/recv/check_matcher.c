/* check_matcher.c - scenarios written as text, and random interleavings against the expected sets.
 *
 * A scenario lists the chunks that the worker gets: "A5" is member A's chunk 5, "A." the end of A.  The resulting sets
 * are written as "AB5 -B6": '-' is an absent member. */
#include "common/recv/matcher.h"
#include "common/base/units.h"
#include "tests/unit/test_main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK_SAMPLES = 4096, N_CHUNKS = 64, MEMBERS_MAX = 5 };

static struct inbox *return_to;
static struct chunk chunks[N_CHUNKS];
static struct counter late;
static struct matcher *matcher;
static struct matcher_config config;

static void make_matcher(unsigned n_members, unsigned window_chunks, unsigned wait_chunks, unsigned jump_members)
{
    late.value = 0;
    memset(chunks, 0, sizeof(chunks));
    ck_assert_int_eq(inbox_create(N_CHUNKS, &return_to), 0);
    for (size_t i = 0; i < N_CHUNKS; i++) {
        struct inbox_item item = {.object = &chunks[i]};

        buffer_ref_init(&chunks[i].ref, return_to, item);
        inbox_push(return_to, &item);
    }
    config = (struct matcher_config){
        .n_members = n_members,
        .window_chunks = window_chunks,
        .wait_chunks = wait_chunks,
        .jump_members = jump_members,
        .chunk_samples = CHUNK_SAMPLES,
        .max_chunks = N_CHUNKS,
        .late_chunks = &late,
    };
    ck_assert_int_eq(matcher_create(&config, &matcher), 0);
}

/* Whatever happened, every chunk is home once all that is held has been put back. */
static void destroy_matcher(void)
{
    size_t n_held = N_CHUNKS - inbox_length(return_to);

    ck_assert_uint_le(n_held, config.n_members * matcher_depth(&config));
    matcher_destroy(matcher);
    ck_assert_uint_eq(inbox_length(return_to), N_CHUNKS);
    inbox_destroy(return_to);
}

static void add_chunk(unsigned member, int64_t index)
{
    struct inbox_item item;

    ck_assert_int_eq(inbox_try_pop(return_to, &item), 0);
    struct chunk *chunk = item.object;
    chunk->member = member;
    chunk->timestamp_samples = index * CHUNK_SAMPLES;
    buffer_ref_set(&chunk->ref, 1);
    matcher_add(matcher, member, chunk);
}

/* Takes the next set and puts it back; its members as bits, 0 if none is ready. */
static unsigned next_set(int64_t *index)
{
    struct chunk *set[MEMBERS_MAX];
    int64_t timestamp = -1;
    unsigned members = 0;

    memset(set, 0xa5, sizeof(set));
    if (!matcher_next(matcher, set, &timestamp))
        return 0;
    for (unsigned i = 0; i < config.n_members; i++) {
        if (!set[i])
            continue;
        ck_assert_uint_eq(set[i]->member, i);
        ck_assert_int_eq(set[i]->timestamp_samples, timestamp);
        buffer_ref_put(&set[i]->ref);
        members |= 1u << i;
    }
    ck_assert_int_eq(timestamp % CHUNK_SAMPLES, 0);
    *index = timestamp / CHUNK_SAMPLES;
    ck_assert_uint_ne(members, 0);
    return members;
}

static void append_sets(char *text, size_t text_bytes)
{
    unsigned members;
    int64_t index;

    while ((members = next_set(&index)) != 0) {
        size_t n = strlen(text);

        if (n > 0)
            text[n++] = ' ';
        for (unsigned i = 0; i < config.n_members; i++)
            text[n++] = members & 1u << i ? (char)('A' + i) : '-';
        snprintf(text + n, text_bytes - n, "%lld", (long long)index);
    }
}

static const struct scenario {
    const char *what;
    unsigned n_members, window_chunks, jump_members;
    const char *in;
    const char *out;
    uint64_t n_late;
    unsigned wait_chunks; /* 0: window_chunks */
} scenarios[] = {
    {"one member waits for nobody", 1, 2, 2, "A5 A6 A8", "A5 A6 A8", 0},
    {"one member is believed at once", 1, 2, 2, "A5 A6 A1000 A1001 A7 A8", "A5 A6 A1000 A1001 A7 A8", 0},
    {"pairs", 2, 2, 2, "A5 B5 B6 A6", "AB5 AB6", 0},
    {"one behind the other", 2, 2, 2, "A5 A6 B5 A7 B6 A8 B7", "AB5 AB6 AB7", 0},
    {"nothing is given up within the window", 2, 3, 2, "A5 A6 A7", "", 0},
    {"a window ahead", 2, 3, 2, "A5 A6 A7 A8", "A-5", 0},
    {"a silent member", 2, 2, 2, "A5 B5 A6 A7 A8 A9", "AB5 A-6 A-7", 0},
    {"a later chunk says that the earlier one will not come", 2, 4, 2, "A5 B6 A6", "A-5 AB6", 0},
    {"late", 2, 2, 2, "A5 A6 A7 B5 B6 B7", "A-5 AB6 AB7", 1},
    {"later start", 2, 2, 2, "A5 B6 A6 A7 B7", "A-5 AB6 AB7", 0},
    {"earlier start", 2, 2, 2, "B6 A5 A6", "A-5 AB6", 0},
    {"end of one", 2, 4, 2, "A5 B5 A6 B. A7 A8", "AB5 A-6 A-7 A-8", 0},
    {"end of both", 2, 4, 2, "A5 A6 B5 B. A.", "AB5 A-6", 0},
    {"end of both before anything was matched", 2, 4, 2, "A5 A100 A. B.", "A-5 A-100", 0},
    {"end of both with a jump not believed", 2, 2, 2, "A5 B5 A100 A. B.", "AB5 A-100", 0},
    {"three members, one late", 3, 2, 2, "A5 B5 C5 A6 B6 A7 B7 A8 B8 C7 C8", "ABC5 AB-6 ABC7 ABC8", 0},
    {"both jump ahead", 2, 2, 2, "A5 B5 A1000 B1000 B1001 A1001", "AB5 AB1000 AB1001", 0},
    {"both jump ahead, in turns", 2, 3, 2, "A5 B5 A1000 A1001 A1002 B1000 B1001", "AB5 AB1000 AB1001", 0},
    {"what is older goes first", 2, 3, 2, "A5 B5 A6 A1000 B1000", "AB5 A-6 AB1000", 0},
    {"a gap, after which the other member only adds what was open before", 2, 2, 2, "A5 B5 B1000 A6 B1001 B1002 B1003",
     "AB5 A-6 -B1000 -B1001", 0},
    {"one mad clock ahead, which recovers", 2, 2, 2, "A5 B5 A1000 B6 A1001 B7 A1002 B8 A1003 B9 A10 B10",
     "AB5 -B6 -B7 -B8 -B9 AB10", 4},
    {"one mad clock behind, which recovers", 2, 2, 2, "A1005 B1005 A5 B1006 A6 B1007 A7 B1008 A1009 B1009",
     "AB1005 -B1006 -B1007 -B1008 AB1009", 3},
    {"one clock three chunks fast, until it is right again", 2, 2, 2,
     "A5 B5 A9 B6 A10 B7 A11 B8 A12 B9 B10 B11 B12 A13 B13", "AB5 -B6 -B7 A-9 A-10 AB11 AB12 AB13", 3},
    {"alone, a jump ahead is believed in the end", 2, 2, 2, "A5 B5 A1000 A1001 A1002 A1003", "AB5 A-1000 A-1001", 0},
    {"alone, a jump back is believed in the end", 2, 2, 2, "A1005 B1005 A5 A6 A7 A8 A9", "AB1005 A-7", 2},
    {"the last one alive is believed at once", 2, 2, 2, "A5 B5 B. A1000 A7", "AB5 A-1000 A-7", 0},
    {"both jump back", 2, 2, 2, "A1005 B1005 A5 B5 A6 B6 A7 B7", "AB1005 -B5 AB6 AB7", 1},
    {"two of three jump ahead", 3, 2, 2, "A5 B5 C5 A1000 C1000 B6 A1001 C1001 B7 A1002 C1002 B8",
     "ABC5 -B-6 -B-7 A-C1000", 1},
    {"two of three jump back", 3, 2, 2, "A1005 B1005 C1005 A5 C5 B1006 A6 C6 B1007 A7 C7 B1008 A8 C8",
     "ABC1005 --C5 A-C6 A-C7 A-C8", 1},
    {"one of three is mad", 3, 2, 2, "A5 B5 C5 A1000 B6 C6 A1001 B7 C7 A1002 B8 C8", "ABC5 -BC6 -BC7 -BC8", 0},
    {"halves that contradict each other", 4, 2, 2, "A5 B5 C5 D5 A1000 B6 C1000 D6 A1001 B7 C1001 D7 A1002 B8 C1002 D8",
     "ABCD5 -B-D6 -B-D7 -B-D8", 0},
    {"one that is waited for beyond the window", 2, 2, 2, "A5 B5 A6 A7 A8 A9 A10 B6 B7 A11 B8", "AB5 AB6 AB7 AB8", 0,
     5},
    {"one that is not waited for any more", 2, 2, 2, "A5 B5 A6 A7 A8 A9 A10 A11 B6 B7", "AB5 A-6 AB7", 1, 5},
    {"ahead by what is waited for and a window is near", 3, 2, 3, "A5 B5 C5 A12 B12 C.", "ABC5 AB-12", 0, 5},
    {"further ahead is far", 3, 2, 3, "A5 B5 C5 A13 B13 C.", "ABC5", 0, 5},
    {"a window that is left out is a jump, and what waits is not lost", 3, 1, 2, "A6 A7 A8 C5 C6 A9 C7 C8 A11 A12",
     "--C5 A-C6 A-C7 A-C8", 0, 4},
    {"alone after a gap that is nearly a jump", 2, 2, 2, "A5 B5 A8 A9 A10 A11", "AB5 A-8 A-9", 0},
    {"behind by more than two windows is far, whatever is waited for", 2, 2, 2, "A1005 B1005 A1000 B1000 A1001 B1001",
     "AB1005 -B1000 AB1001", 1, 5},
};

TEST(scenario_gives_its_sets, .end = ARRAY_LEN(scenarios))
{
    const struct scenario *scenario = &scenarios[_i];
    char text[1000] = "";
    const char *in = scenario->in;

    make_matcher(scenario->n_members, scenario->window_chunks,
                 scenario->wait_chunks ? scenario->wait_chunks : scenario->window_chunks, scenario->jump_members);
    while (*in) {
        unsigned member = (unsigned)(*in++ - 'A');

        if (*in == '.') {
            matcher_end(matcher, member);
            in++;
        } else {
            char *end;

            add_chunk(member, strtoll(in, &end, 10));
            in = end;
        }
        append_sets(text, sizeof(text));
        in += *in == ' ';
    }
    ck_assert_msg(strcmp(text, scenario->out) == 0, "%s: got \"%s\"", scenario->what, text);
    ck_assert_msg(late.value == scenario->n_late, "%s: %d late", scenario->what, (int)late.value);
    destroy_matcher();
}

TEST(what_is_dropped_is_counted)
{
    int64_t index;

    make_matcher(2, 2, 2, 2);
    for (int64_t i = 5; i < 10; i++)
        add_chunk(0, i);
    add_chunk(1, 8); /* sets of one chunk, a set of two, a chunk that waits */
    ck_assert_uint_eq(next_set(&index), 1);
    ck_assert_uint_eq(matcher_drop(matcher), 5);
    ck_assert_uint_eq(inbox_length(return_to), N_CHUNKS);
    ck_assert_uint_eq(matcher_drop(matcher), 0);
    ck_assert_uint_eq(next_set(&index), 0);
    for (int64_t i = 10; i < 200; i++) { /* around the ring of sets, and more */
        add_chunk(0, i);
        add_chunk(1, i);
        ck_assert_uint_eq(matcher_drop(matcher), 2);
    }
    for (int64_t i = 200; i < 205; i++) { /* and goes on */
        add_chunk(0, i);
        add_chunk(1, i);
        ck_assert_uint_eq(next_set(&index), 3);
        ck_assert_int_eq(index, i);
    }
    ck_assert_uint_eq(late.value, 0);
    destroy_matcher();
}

/* Members lose chunks and end at random, but none gets as far ahead of another as is waited for: then each chunk must come
 * out once, with all others of its time, whatever the interleaving.  Where more is waited for than a window, a whole window
 * that is lost may be a jump (the table has those), so less is lost in a row. */
static void check_interleaving(unsigned *seed)
{
    enum { N_TIMES = 40 };
    unsigned n_members = 1 + (unsigned)rand_r(seed) % MEMBERS_MAX;
    unsigned window_chunks = 1 + (unsigned)rand_r(seed) % 4, wait_chunks = window_chunks + (unsigned)rand_r(seed) % 4;
    int64_t base = rand_r(seed);
    unsigned expected[N_TIMES] = {0};
    int next[MEMBERS_MAX];    /* the time that the member brings next */
    int n_times[MEMBERS_MAX]; /* it ends there */
    unsigned n_ended = 0;
    int last = -1;

    make_matcher(n_members, window_chunks, wait_chunks, 2);
    for (unsigned i = 0; i < n_members; i++) {
        next[i] = rand_r(seed) % (int)wait_chunks;
        n_times[i] = N_TIMES - rand_r(seed) % 20;
        unsigned n_lost = 0, most_lost = wait_chunks > window_chunks ? window_chunks - 1 : N_TIMES;
        for (int t = next[i]; t < n_times[i]; t++) {
            n_lost = n_lost < most_lost && rand_r(seed) % 10 == 0 ? n_lost + 1 : 0;
            expected[t] |= n_lost ? 0 : 1u << i;
        }
    }
    while (n_ended < n_members) {
        unsigned member = (unsigned)rand_r(seed) % n_members;
        unsigned members;
        int64_t index;

        while (next[member] < n_times[member] && !(expected[next[member]] & 1u << member))
            next[member]++;
        bool may_go = next[member] <= n_times[member];
        for (unsigned i = 0; i < n_members; i++)
            may_go = may_go && (next[i] > n_times[i] || next[member] < next[i] + (int)wait_chunks);
        if (!may_go)
            continue;
        if (next[member] == n_times[member]) {
            matcher_end(matcher, member);
            n_ended++;
        } else {
            add_chunk(member, base + next[member]);
        }
        next[member]++;
        while ((members = next_set(&index)) != 0) {
            for (last++; last < index - base; last++)
                ck_assert_uint_eq(expected[last], 0);
            ck_assert_uint_eq(members, expected[last]);
        }
    }
    for (last++; last < N_TIMES; last++)
        ck_assert_uint_eq(expected[last], 0);
    ck_assert_uint_eq(late.value, 0);
    destroy_matcher();
}

TEST(any_interleaving_gives_the_same_sets)
{
    unsigned seed = (unsigned)getpid();

    fprintf(stderr, "seed %u\n", seed); /* at once: a failure ends the process */
    for (int i = 0; i < 3000; i++)
        check_interleaving(&seed);
}

/* Clocks that jump about: whatever comes, nothing is lost track of, no set is taken apart, the depth holds, and once
 * all agree again it matches. */
static void check_chaos(unsigned *seed)
{
    unsigned n_members = 1 + (unsigned)rand_r(seed) % MEMBERS_MAX;
    unsigned window_chunks = 1 + (unsigned)rand_r(seed) % 4, wait_chunks = window_chunks + (unsigned)rand_r(seed) % 3;
    int64_t now[MEMBERS_MAX], index;

    make_matcher(n_members, window_chunks, wait_chunks, 1 + (unsigned)rand_r(seed) % 3);
    for (unsigned i = 0; i < n_members; i++)
        now[i] = 100000;
    for (int n = 0; n < 500; n++) {
        unsigned member = (unsigned)rand_r(seed) % n_members;

        if (rand_r(seed) % 20 == 0)
            now[member] = 100000 + rand_r(seed) % 3 * 1000 + rand_r(seed) % 10;
        add_chunk(member, now[member]++);
        while (next_set(&index))
            ck_assert_uint_ge(inbox_length(return_to), N_CHUNKS - n_members * matcher_depth(&config));
    }
    unsigned members = 0;
    for (int64_t t = 200000; t < 200000 + 4 * matcher_depth(&config); t++)
        for (unsigned i = 0; i < n_members; i++) {
            unsigned newest;

            add_chunk(i, t);
            while ((newest = next_set(&index)) != 0)
                members = newest;
        }
    ck_assert_uint_eq(members, (1u << n_members) - 1);
    ck_assert_int_eq(index, 200000 + 4 * matcher_depth(&config) - 1);
    destroy_matcher();
}

TEST(chaos_passes)
{
    unsigned seed = (unsigned)getpid();

    fprintf(stderr, "seed %u\n", seed); /* at once: a failure ends the process */
    for (int i = 0; i < 1000; i++)
        check_chaos(&seed);
}

SUITE(.timeout_s = 60);
