/* check_chunk.c - a pool's chunks: their shape, their return to the pool, and their state when they are taken again. */
#include "common/recv/chunk.h"
#include "common/device/device.h"
#include "tests/unit/test_device.h"
#include "tests/unit/test_main.h"

#include <stdlib.h>
#include <string.h>

enum { N_CHUNKS = 3, N_HEAPS = 5, MEMBER = 7, KIND = 42 };

static struct device *device;
static struct inbox *return_to;
static struct chunk_pool *pool;

static char why[200];

static void setup(void)
{
    device = test_open_kind(DEVICE_CPU, 1);
    ck_assert_int_eq(inbox_create(N_CHUNKS, &return_to), 0);
    pool = NULL;
}

static void teardown(void)
{
    chunk_pool_destroy(pool);
    inbox_destroy(return_to);
    device_close(device);
}

static int create_pool(struct chunk_shape shape)
{
    shape.n_chunks = N_CHUNKS;
    return chunk_pool_create(device, &shape, MEMBER, return_to, KIND, &pool, why, sizeof(why));
}

static void make_pool(size_t heap_bytes)
{
    ck_assert_int_eq(create_pool((struct chunk_shape){.n_heaps = N_HEAPS, .heap_bytes = heap_bytes}), 0);
}

static struct chunk *take_chunk(void)
{
    struct inbox_item item;

    ck_assert_int_eq(inbox_try_pop(return_to, &item), 0);
    ck_assert_int_eq(item.kind, KIND);
    return item.object;
}

TEST(chunks_start_at_home)
{
    struct chunk *chunks[N_CHUNKS];
    const size_t heap_bytes = 1000;

    make_pool(heap_bytes);
    ck_assert_uint_eq(inbox_length(return_to), N_CHUNKS);
    for (size_t i = 0; i < N_CHUNKS; i++) {
        struct chunk *chunk = chunks[i] = take_chunk();

        ck_assert_uint_eq(chunk->member, MEMBER);
        ck_assert_uint_eq(chunk->n_heaps, N_HEAPS);
        ck_assert_uint_eq(chunk->heap_bytes, heap_bytes);
        ck_assert_uint_eq(chunk->filled_words, 2); /* 125 bits */
        for (size_t k = 0; k < i; k++)
            ck_assert_ptr_ne(chunks[k], chunk);
    }
    for (size_t i = 0; i < N_CHUNKS; i++) {
        buffer_ref_set(&chunks[i]->ref, 1);
        buffer_ref_put(&chunks[i]->ref);
        ck_assert_ptr_eq(take_chunk(), chunks[i]);
    }
}

TEST(reset_clears_all_but_the_payload)
{
    const size_t heap_bytes = 8 * 64 + 1; /* one bit more than a word */

    make_pool(heap_bytes);
    struct chunk *chunk = take_chunk();
    ck_assert_uint_eq(chunk->filled_words, 2);
    memset(chunk->payload, 0xa5, N_HEAPS * heap_bytes);
    memset(chunk->present, 0xff, N_HEAPS * sizeof(*chunk->present));
    memset(chunk->extra, 0xff, N_HEAPS * sizeof(*chunk->extra));
    memset(chunk->filled_bytes, 0xff, N_HEAPS * sizeof(*chunk->filled_bytes));
    memset(chunk->filled, 0xff, N_HEAPS * chunk->filled_words * sizeof(*chunk->filled));
    chunk->n_present = N_HEAPS;
    chunk_reset(chunk, -12345);
    ck_assert_int_eq(chunk->timestamp_samples, -12345);
    ck_assert_uint_eq(chunk->n_present, 0);
    for (size_t heap = 0; heap < N_HEAPS; heap++) {
        ck_assert_uint_eq(chunk->present[heap], 0);
        ck_assert_uint_eq(chunk->extra[heap], 0);
        ck_assert_uint_eq(chunk->filled_bytes[heap], 0);
    }
    for (size_t i = 0; i < N_HEAPS * heap_bytes; i++)
        ck_assert_uint_eq(chunk->payload[i], 0xa5);
}

/* What is written at one address is there at the other, which is what the device is given. */
TEST(direct_payloads_have_two_addresses)
{
    ck_assert_int_eq(create_pool((struct chunk_shape){.n_heaps = N_HEAPS, .heap_bytes = 1001, .direct = true}), 0);
    for (int i = 0; i < N_CHUNKS; i++) {
        struct chunk *chunk = take_chunk();

        ck_assert_ptr_ne(chunk->payload, chunk->source);
        memset(chunk->payload, i + 1, N_HEAPS * 1001);
        for (size_t k = 0; k < N_HEAPS * 1001; k++)
            ck_assert_uint_eq(chunk->source[k], i + 1);
    }
}

TEST(direct_pool_that_cannot_be_had_says_why)
{
    ck_assert_int_lt(create_pool((struct chunk_shape){.n_heaps = 1, .heap_bytes = SIZE_MAX / 4, .direct = true}), 0);
    ck_assert_msg(strncmp(why, "recv.direct: ", 13) == 0 && strstr(why, "cannot be mapped twice"), "%s", why);
}

/* Heaps in frames of which the beginnings lie elsewhere than the rest, one wholly there; what is not noted stays. */
TEST(frames_are_gathered)
{
    enum { HEAP_BYTES = 1003, N_FIRST = 101 };
    struct device_stream *stream;
    struct device_kernel *gather;
    uint8_t first[N_HEAPS][HEAP_BYTES], rest[N_HEAPS][HEAP_BYTES];

    ck_assert_int_eq(device_stream_create(device, "gather", &stream), 0);
    ck_assert_int_eq(chunk_create_gather(device, &gather), 0);
    const struct chunk_shape shape = {.n_heaps = N_HEAPS, .heap_bytes = HEAP_BYTES, .n_frames_max = N_HEAPS - 1};
    ck_assert_int_eq(create_pool(shape), 0);
    struct chunk *chunk = take_chunk();
    for (int life = 0; life < 2; life++) {
        memset(chunk->payload, 0xe7, N_HEAPS * HEAP_BYTES);
        for (int h = 0; h < N_HEAPS; h++) {
            memset(first[h], 10 * life + h + 1, HEAP_BYTES);
            memset(rest[h], 10 * life + h + 101, HEAP_BYTES);
        }
        for (int h = 1; h < N_HEAPS; h++) {
            size_t n_first = h == 2 ? HEAP_BYTES : h == 3 ? 0 : N_FIRST;
            ck_assert(chunk_has_room(chunk));
            chunk_add_frame(chunk, (uint32_t)(7 * h), chunk->payload + h * HEAP_BYTES, first[h], n_first, rest[h],
                            HEAP_BYTES - n_first);
            ck_assert_uint_eq(chunk->frames[h - 1], 7 * h);
        }
        ck_assert(!chunk_has_room(chunk));
        chunk_gather(chunk, stream, gather);
        device_stream_wait(stream);
        for (int h = 0; h < N_HEAPS; h++)
            for (int k = 0; k < HEAP_BYTES; k++) {
                int n_first = h == 2 ? HEAP_BYTES : h == 3 ? 0 : N_FIRST;
                int expected = h == 0 ? 0xe7 : 10 * life + h + (k < n_first ? 1 : 101);
                ck_assert_int_eq(chunk->source[h * HEAP_BYTES + k], expected);
            }
        chunk_reset(chunk, 0);
        ck_assert(chunk_has_room(chunk) && chunk->n_frames == 0);
        chunk_gather(chunk, stream, gather); /* nothing */
    }
    device_kernel_destroy(gather);
    device_stream_destroy(stream);
}

TEST(bytes_cover_the_payload)
{
    struct chunk_shape pinned = {.n_chunks = 3, .n_heaps = 16, .heap_bytes = 5120};
    struct chunk_shape direct = pinned, gathered = pinned, huge = pinned;
    size_t payload = 3 * 16 * 5120, pieces = 3 * 16 * (2 * sizeof(struct gather_piece) + sizeof(uint32_t));

    direct.direct = true;
    gathered.n_frames_max = 16;
    huge.heap_bytes = 150 << 10; /* 2400 KiB a chunk: two huge pages */
    ck_assert_uint_ge(chunk_pool_host_bytes(&pinned, false), payload + payload / 64);
    ck_assert_uint_le(chunk_pool_host_bytes(&pinned, false), payload + payload / 64 + 2000);
    ck_assert_uint_eq(chunk_pool_device_bytes(&pinned), 0);
    ck_assert_uint_eq(chunk_pool_device_bytes(&direct), 3 * (128 << 10)); /* pages of 64 KiB, of 80 */
    ck_assert_uint_eq(chunk_pool_device_bytes(&gathered), payload);
    ck_assert_uint_eq(chunk_pool_host_bytes(&direct, false) + payload, chunk_pool_host_bytes(&pinned, false));
    ck_assert_uint_eq(chunk_pool_host_bytes(&gathered, false), chunk_pool_host_bytes(&direct, false) + pieces);
    ck_assert_uint_ge(chunk_pool_host_bytes(&huge, true), 3 * 4096 << 10);
    ck_assert_uint_lt(chunk_pool_host_bytes(&huge, false), 3 * 2500 << 10);
    direct.n_chunks = SIZE_MAX;
    ck_assert_uint_eq(chunk_pool_device_bytes(&direct), UINT64_MAX);
    chunk_pool_destroy(NULL);
}

SUITE(.setup = setup, .teardown = teardown);
