/* gnss_mma_windows.h - the windows of gnss_correlate_mma: the choice of the slots that share windows, and copies of
 * samples to the windows.
 *
 * This file uses the constants of gnss_correlate_mma.cu. */
#ifndef KERNELS_GNSS_GNSS_MMA_WINDOWS_H
#define KERNELS_GNSS_GNSS_MMA_WINDOWS_H

#include "kernels/gnss/gnss_mma_block.h"

/* Chooses the slots that share windows: slot 'at', and as many of the next slots as fit.  Sets 'low' to the smallest
 * and 'spread' to the largest difference of the offsets of the lane's antenna.  Returns the first slot without room. */
static __device__ __forceinline__ uint32_t choose_slots(uint32_t at, uint32_t n_slots, int32_t &low, uint32_t &spread)
{
    const uint32_t lane = threadIdx.x % 32;
    const int32_t first = head()->slots[at].offsets[lane];
    int32_t high = first;
    uint32_t to = at + 1;

    low = first;
    for (uint32_t i = at + 1; i < n_slots; i++) {
        const int32_t offset = head()->slots[i].offsets[lane];
        low = min(low, offset);
        high = max(high, offset);
    }
    spread = (uint32_t)high - (uint32_t)low;
    if (!__any_sync(EVERY_LANE, spread > MAX_SPREAD))
        return n_slots;
    for (low = high = first; to < n_slots; to++) {
        const int32_t offset = head()->slots[to].offsets[lane];
        const int32_t lower = min(low, offset), higher = max(high, offset);
        if (__any_sync(EVERY_LANE, (uint32_t)higher - (uint32_t)lower > MAX_SPREAD))
            break;
        low = lower;
        high = higher;
    }
    spread = (uint32_t)high - (uint32_t)low;
    return to;
}

/* Places the windows of the slots [at, to): writes the rows' addresses and the positions at which the slots start. */
static __device__ __forceinline__ void place_windows(const struct gnss_correlate_args &args, uint32_t at, uint32_t to,
                                                     int64_t time, int32_t low)
{
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_inputs = args.n_ants * 2;
    const int64_t begin = (time + low) & ~(int64_t)7;

    if (warp < 2 && lane < N_ANTS) {
        const uint32_t input = min(blockIdx.z * N_ROWS + 2 * lane + warp, n_inputs - 1);
        const int64_t word = (int64_t)(input * args.pitch_samples + begin) / 2; /* may be negative */
        const int64_t end = (int64_t)(n_inputs * args.pitch_samples / 2) - 1;
        const int64_t limit = 1 << 30;
        struct mma_row &row = head()->rows[warp][lane];
        row.from = args.samples + 4 * word;
        row.first = (int32_t)max(-word, -limit);
        row.last = (int32_t)min(end - word, limit);
    }
    for (uint32_t i = at + warp; i < to; i += N_WARPS)
        head()->slots[i].starts[lane] = (uint32_t)(time + head()->slots[i].offsets[lane] - begin);
}

/* Starts copies of 'n' consecutive words of GROUP_ANTS antennas.  A warp copies COPY_WORDS words of each antenna at a
 * time. */
static __device__ __forceinline__ void copy_run(const int8_t *from, shared_address to, uint32_t n)
{
    const uint32_t lane = threadIdx.x % COPY_WORDS;

    from += 4 * lane;
    to += 4 * GROUP_ANTS * lane;
#pragma unroll 4
    for (uint32_t word = lane; word < n; word += COPY_WORDS, from += 4 * COPY_WORDS, to += 4 * GROUP_ANTS * COPY_WORDS)
        copy_async_4(to, from);
}

/* As copy_run(), if some of the words are not within the samples.  The replicas are 0 at these words, so other words
 * are copied instead. */
static __device__ __forceinline__ void copy_careful(const struct mma_row &row, int32_t first, shared_address to,
                                                    uint32_t n)
{
#pragma unroll 1
    for (uint32_t word = threadIdx.x % COPY_WORDS; word < n; word += COPY_WORDS)
        copy_async_4(to + 4 * GROUP_ANTS * word,
                     row.from + 4 * (int64_t)min(max(first + (int32_t)word, row.first), row.last));
}

/* As copy_run(), for the words of a chunk. */
static __device__ __forceinline__ void copy_whole_chunk(const int8_t *from, shared_address to)
{
    const uint32_t lane = threadIdx.x % COPY_WORDS;

    from += 4 * lane;
    to += 4 * GROUP_ANTS * lane;
#pragma unroll
    for (uint32_t word = 0; word < CHUNK_WORDS; word += COPY_WORDS)
        if (word + COPY_WORDS <= CHUNK_WORDS || word + lane < CHUNK_WORDS)
            copy_async_4(to + 4 * GROUP_ANTS * word, from + 4 * word);
}

/* Starts copies of 'n' words of all rows, from word 'first' of the windows on.  'place' is the ring's place for the
 * first word.  'n_warps' warps share the work; 'warp' is the number of this warp.  The ring's first words are copied to
 * the ring's end, too. */
static __device__ __forceinline__ void copy_words(int32_t first, uint32_t place, uint32_t n, uint32_t warp,
                                                  uint32_t n_warps)
{
    const uint32_t before = min(n, RING_WORDS - place), after = n - before, word_bytes = 4 * GROUP_ANTS;
    const uint32_t again = place < RUN_WORDS ? min(n, RUN_WORDS - place) : 0;
    const bool is_plain = n == CHUNK_WORDS && after == 0 && again == 0;

#pragma unroll 1
    for (uint32_t i = warp; i < N_ROWS / GROUP_ANTS; i += n_warps) {
        const uint32_t ant = i / 2 * GROUP_ANTS + threadIdx.x % 32 / COPY_WORDS, pol = i % 2;
        const struct mma_row row = head()->rows[pol][ant];
        const shared_address ring = shared_address_of(window_of(ant, pol)), to = ring + place * word_bytes;
        const shared_address end = ring + RING_WORDS * word_bytes;
        const int8_t *from = row.from + 4 * (int64_t)first, *later = from + 4 * before;
        if (first < row.first || first + (int32_t)n - 1 > row.last) {
            copy_careful(row, first, to, before);
            copy_careful(row, first + (int32_t)before, ring, after);
            copy_careful(row, first, end + place * word_bytes, again);
            copy_careful(row, first + (int32_t)before, end, min(after, RUN_WORDS));
        } else if (is_plain) {
            copy_whole_chunk(from, to);
        } else {
            copy_run(from, to, before);
            copy_run(later, ring, after);
            copy_run(from, end + place * word_bytes, again);
            copy_run(later, end, min(after, RUN_WORDS));
        }
    }
}

#endif
