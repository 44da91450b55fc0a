/* reduce.cu - see reduce.h.
 *
 * An item is one load of a lane.  Neighbouring lanes have neighbouring items.  Without totals an item is two
 * visibilities, 16 bytes of sums.  With totals an item is one visibility with 16 bytes of totals.  A thread loads all
 * its items before its first store.  A launch with a dump stores to the sums, the totals and the dump.  All these
 * stores are marked as streaming.  Without this mark the L2 cache is three times slower.
 *
 * Constants: see reduce_constants(). */
#include "kernels/correlate/reduce.h"

#define FULL_WARP 0xffffffffu

#if REAL
typedef double2 wide; /* a visibility's parts */

static __device__ __forceinline__ wide widen(int re, int im)
{
    return make_double2((double)__int_as_float(re), (double)__int_as_float(im));
}

static __device__ __forceinline__ int2 convert(wide sum, bool missing, uint32_t &n_clipped)
{
    return missing ? make_int2(REDUCE_MISSING_NAN, REDUCE_MISSING_NAN)
                   : make_int2(__float_as_int((float)sum.x), __float_as_int((float)sum.y));
}
#else
typedef longlong2 wide;

static __device__ __forceinline__ wide widen(int re, int im)
{
    return make_longlong2(re, im);
}

static __device__ __forceinline__ int2 convert(wide sum, bool missing, uint32_t &n_clipped)
{
    const long long limit = 0x7FFFFFFF;
    long long re = max(-limit, min(limit, sum.x)), im = max(-limit, min(limit, sum.y));

    n_clipped += !missing && (re != sum.x || im != sum.y);
    return missing ? make_int2((int)REDUCE_MISSING_RE, REDUCE_MISSING_IM) : make_int2((int)re, (int)im);
}
#endif

static __device__ __forceinline__ wide add(wide total, int2 sum)
{
    const wide more = widen(sum.x, sum.y);

    total.x += more.x;
    total.y += more.y;
    return total;
}

/* ---- A thread's items -------------------------------------------------------------------------------------------- */

/* The items of a thread: every REDUCE_THREADS-th item of the thread's block. */
struct items {
    uint64_t first, n; /* index of the thread's first item, and number of items of the launch */
    uint32_t chan_n;   /* number of items of a channel */
    uint32_t in_chan;  /* index of the thread's first item within a channel; may be beyond the channel's end */
};

static __device__ __forceinline__ struct items find_items(const struct reduce_args &args, uint32_t baseline_items)
{
    const uint64_t of_block = (uint64_t)blockIdx.x * (REDUCE_THREADS * REDUCE_ITEMS);
    struct items items;

    items.chan_n = args.n_baselines * baseline_items;
    items.n = (uint64_t)args.n_chan * items.chan_n;
    items.first = of_block + threadIdx.x;
    items.in_chan = (uint32_t)(of_block % items.chan_n) + threadIdx.x;
    return items;
}

static __device__ __forceinline__ bool is_there(const struct items &items, uint32_t i)
{
    return items.first + i * REDUCE_THREADS < items.n;
}

/* Returns the thread's i-th item.  The launch's last item replaces items beyond the end, so that loads need no
 * branch. */
static __device__ __forceinline__ uint64_t find_item(const struct items &items, uint32_t i)
{
    return is_there(items, i) ? items.first + i * REDUCE_THREADS : items.n - 1;
}

static __device__ __forceinline__ uint32_t load_weight(const struct reduce_args &args, const struct items &items,
                                                       uint32_t i, uint32_t baseline_items)
{
    uint32_t in_chan = (items.in_chan + i * REDUCE_THREADS) % items.chan_n;

    return args.weights[in_chan / baseline_items];
}

/* ---- Totals and dumps -------------------------------------------------------------------------------------------- */

static __device__ __forceinline__ void add_to_totals(const struct reduce_args &args)
{
    const struct items items = find_items(args, 4);
    int2 *const sums = (int2 *)args.sums.integer;
    wide *const totals = (wide *)args.totals.integer;
    int2 read[REDUCE_ITEMS];
    wide total[REDUCE_ITEMS];

#pragma unroll
    for (uint32_t i = 0; i < REDUCE_ITEMS; i++) {
        read[i] = sums[find_item(items, i)];
        total[i] = totals[find_item(items, i)];
    }
#pragma unroll
    for (uint32_t i = 0; i < REDUCE_ITEMS; i++)
        if (is_there(items, i)) {
            sums[find_item(items, i)] = make_int2(0, 0);
            totals[find_item(items, i)] = add(total[i], read[i]);
        }
}

static __device__ __forceinline__ uint32_t dump_totals(const struct reduce_args &args)
{
    const struct items items = find_items(args, 4);
    int2 *const sums = (int2 *)args.sums.integer;
    wide *const totals = (wide *)args.totals.integer;
    int2 read[REDUCE_ITEMS];
    wide total[REDUCE_ITEMS];
    uint32_t weights[REDUCE_ITEMS];
    uint32_t n_clipped = 0;

#pragma unroll
    for (uint32_t i = 0; i < REDUCE_ITEMS; i++) {
        read[i] = sums[find_item(items, i)];
        total[i] = totals[find_item(items, i)];
        weights[i] = load_weight(args, items, i, 4);
    }
#pragma unroll
    for (uint32_t i = 0; i < REDUCE_ITEMS; i++)
        if (is_there(items, i)) {
            __stcs(&sums[find_item(items, i)], make_int2(0, 0));
            __stcs(&totals[find_item(items, i)], wide{0, 0});
            __stcs(&((int2 *)args.out.integer)[find_item(items, i)],
                   convert(add(total[i], read[i]), weights[i] < args.min_weight, n_clipped));
        }
    return n_clipped;
}

static __device__ __forceinline__ uint32_t dump_sums(const struct reduce_args &args)
{
    const struct items items = find_items(args, 2);
    int4 *const sums = (int4 *)args.sums.integer;
    int4 read[REDUCE_ITEMS];
    uint32_t weights[REDUCE_ITEMS];
    uint32_t n_clipped = 0;

#pragma unroll
    for (uint32_t i = 0; i < REDUCE_ITEMS; i++) {
        read[i] = sums[find_item(items, i)];
        weights[i] = load_weight(args, items, i, 2);
    }
#pragma unroll
    for (uint32_t i = 0; i < REDUCE_ITEMS; i++)
        if (is_there(items, i)) {
            const bool missing = weights[i] < args.min_weight;
            int2 first = convert(widen(read[i].x, read[i].y), missing, n_clipped);
            int2 second = convert(widen(read[i].z, read[i].w), missing, n_clipped);
            __stcs(&sums[find_item(items, i)], make_int4(0, 0, 0, 0));
            __stcs(&((int4 *)args.out.integer)[find_item(items, i)], make_int4(first.x, first.y, second.x, second.y));
        }
    return n_clipped;
}

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

extern "C" __global__ void __launch_bounds__(REDUCE_THREADS) reduce(const struct reduce_args args)
{
    uint32_t n_clipped = 0;

    if (!args.out.integer)
        add_to_totals(args);
    else if (args.totals.integer)
        n_clipped = dump_totals(args);
    else
        n_clipped = dump_sums(args);
    if (!__any_sync(FULL_WARP, n_clipped > 0))
        return;
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2)
        n_clipped += __shfl_xor_sync(FULL_WARP, n_clipped, lanes);
    if (threadIdx.x % 32 == 0)
        atomicAdd((unsigned long long *)args.n_saturated, (unsigned long long)n_clipped);
}
