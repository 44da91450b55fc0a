/* check_chunk.c - a pool's chunks: their shape, their way home, and starting afresh. */
#include "common/chunk.h"
#include "common/device.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { N_CHUNKS = 3, N_HEAPS = 5, MEMBER = 7, KIND = 42 };

static struct device *device;
static struct inbox *home;
static struct chunk_pool *pool;

static void make_pool(size_t heap_bytes)
{
    char why[200];

    ck_assert_int_eq(
        device_open(&(struct device_config){.kind = DEVICE_CPU, .n_threads = 1}, &device, why, sizeof(why)), 0);
    ck_assert_int_eq(inbox_create(N_CHUNKS, &home), 0);
    ck_assert_int_eq(chunk_pool_create(device, N_CHUNKS, N_HEAPS, heap_bytes, MEMBER, home, KIND, &pool), 0);
}

static void destroy_pool(void)
{
    chunk_pool_destroy(pool);
    inbox_destroy(home);
    device_close(device);
}

static struct chunk *take_chunk(void)
{
    struct inbox_item item;

    ck_assert_int_eq(inbox_try_pop(home, &item), 0);
    ck_assert_int_eq(item.kind, KIND);
    return item.object;
}

START_TEST(chunks_start_at_home)
{
    struct chunk *chunks[N_CHUNKS];
    const size_t heap_bytes = 1000;

    make_pool(heap_bytes);
    ck_assert_uint_eq(inbox_length(home), N_CHUNKS);
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
        loan_out(&chunks[i]->loan, 1);
        loan_put(&chunks[i]->loan);
        ck_assert_ptr_eq(take_chunk(), chunks[i]);
    }
    destroy_pool();
}
END_TEST

START_TEST(reset_clears_all_but_the_payload)
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
    destroy_pool();
}
END_TEST

START_TEST(bytes_cover_the_payload)
{
    size_t payload = 3 * 16 * 5120;

    ck_assert_uint_ge(chunk_pool_bytes(3, 16, 5120), payload + payload / 64);
    ck_assert_uint_le(chunk_pool_bytes(3, 16, 5120), payload + payload / 64 + 2000);
    chunk_pool_destroy(NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chunk");
    TCase *tests = tcase_create("chunk");
    SRunner *runner = srunner_create(suite);
    int n_failed;

    tcase_add_test(tests, chunks_start_at_home);
    tcase_add_test(tests, reset_clears_all_but_the_payload);
    tcase_add_test(tests, bytes_cover_the_payload);
    suite_add_tcase(suite, tests);
    srunner_run_all(runner, CK_ENV);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
