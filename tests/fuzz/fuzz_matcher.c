/* fuzz_matcher.c - chunks of several members, whose times jump, stand still and end, and the resulting sets.
 *
 * Input: members, window, wait, jump members; then a byte for each event: a member and the change of its time.
 * Every chunk goes exactly once, into a set or back to its pool.  A set has chunks of one time, each from its own
 * member.  Sets come in order of time, except behind a chunk that is far back.  The number of held chunks stays within
 * matcher_depth(). */
#include "common/recv/matcher.h"

#include "tests/fuzz/fuzz_input.h"

#define MEMBERS_MAX   5
#define N_CHUNKS      80 /* more than can be held */
#define CHUNK_SAMPLES 4096

static struct inbox *home;
static struct chunk chunks[N_CHUNKS];
static struct counter late_chunks;
static struct matcher *matcher;
static struct matcher_config config;

static struct {
    int64_t times[MEMBERS_MAX]; /* of each member's next chunk, in chunks */
    bool ended[MEMBERS_MAX];
    size_t n_out; /* chunks that the matcher has */
    bool had_set;
    int64_t last_samples; /* of the last set */
    bool went_back;       /* a chunk far behind it has come since */
} state;

static void create(struct fuzz_input *input)
{
    if (!home) {
        int err = inbox_create(N_CHUNKS, &home);
        assert(!err);
        for (size_t i = 0; i < N_CHUNKS; i++) {
            buffer_ref_init(&chunks[i].ref, home, (struct inbox_item){.object = &chunks[i]});
            inbox_push(home, &(struct inbox_item){.object = &chunks[i]});
        }
    }
    memset(&state, 0, sizeof(state));
    config = (struct matcher_config){
        .n_members = 1 + fuzz_u8(input) % MEMBERS_MAX,
        .window_chunks = 1 + fuzz_u8(input) % 4,
        .jump_members = 1 + fuzz_u8(input) % 3,
        .chunk_samples = CHUNK_SAMPLES,
        .max_chunks = N_CHUNKS,
        .late_chunks = &late_chunks,
    };
    config.wait_chunks = config.window_chunks + fuzz_u8(input) % 4;
    for (unsigned m = 0; m < config.n_members; m++)
        state.times[m] = 1000;
    int err = matcher_create(&config, &matcher);
    assert(!err);
}

/* Chunks that have come home leave the matcher's count. */
static size_t count_home(void)
{
    static struct inbox_item items[N_CHUNKS];
    size_t n = 0;

    while (inbox_try_pop(home, &items[n]) == 0)
        n++;
    for (size_t i = 0; i < n; i++)
        inbox_push(home, &items[i]);
    return n;
}

static void check_set(struct chunk *const *set, int64_t timestamp_samples)
{
    size_t n = 0;

    for (unsigned m = 0; m < config.n_members; m++) {
        if (!set[m])
            continue;
        assert(set[m]->member == m && set[m]->timestamp_samples == timestamp_samples);
        buffer_ref_put(&set[m]->ref);
        n++;
    }
    assert(n > 0);
    assert(!state.had_set || timestamp_samples > state.last_samples || state.went_back);
    state.had_set = true;
    state.last_samples = timestamp_samples;
    state.went_back = false;
}

static void take_sets(void)
{
    struct chunk *set[MEMBERS_MAX];
    int64_t timestamp_samples;

    while (matcher_next(matcher, set, &timestamp_samples))
        check_set(set, timestamp_samples);
    assert(N_CHUNKS - count_home() <= config.n_members * (size_t)matcher_depth(&config));
}

static void add(unsigned member, int64_t step)
{
    struct inbox_item item;
    int64_t far_samples = 2 * (int64_t)config.window_chunks * CHUNK_SAMPLES;
    int err = inbox_try_pop(home, &item);
    struct chunk *chunk = item.object;

    assert(!err);
    state.times[member] += step;
    chunk->member = member;
    chunk->timestamp_samples = state.times[member] * CHUNK_SAMPLES;
    state.went_back |= state.had_set && chunk->timestamp_samples < state.last_samples - far_samples;
    buffer_ref_set(&chunk->ref, 1);
    matcher_add(matcher, member, chunk);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const int64_t steps[] = {1, 1, 1, 1, 1, 2, 3, 5, 9, 40, 100000, -1, -3, -20, -90000, 1 << 20};
    struct fuzz_input input = {data, n_bytes};

    create(&input);
    while (!fuzz_ended(&input)) {
        unsigned event = fuzz_u8(&input), member = (event & 15) % config.n_members;
        if (event == 255 && !state.ended[member]) {
            matcher_end(matcher, member);
            state.ended[member] = true;
        } else if (!state.ended[member]) {
            add(member, steps[event >> 4]);
        }
        take_sets();
    }
    size_t n_dropped = matcher_drop(matcher), n_home = count_home();
    assert(n_home == N_CHUNKS && n_dropped <= config.n_members * (size_t)matcher_depth(&config));
    matcher_destroy(matcher);
    return 0;
}
