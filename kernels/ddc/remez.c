/* remez.c - optimal filters; design_ddc.c uses this file once per output.
 *
 * The response of a symmetric filter is a polynomial in cos(2 pi f), times cos(pi f) if the number of taps is even.
 * The code divides the desired response by this factor and multiplies the weight by this factor.  The error of the best
 * polynomial with n coefficients reaches its maximum, with alternating sign, at n + 1 frequencies (the alternation
 * theorem).  The exchange algorithm assumes n + 1 frequencies, and finds the polynomial with an alternating error at
 * these frequencies.  Then the algorithm moves the frequencies to the maxima of the error, and repeats.
 * Sources: McClellan and Parks, IEEE Trans. Circuit Theory 20, 697 (1973); Berrut and Trefethen, "Barycentric Lagrange
 * interpolation", SIAM Review 46, 501 (2004) (values of the polynomial); Filip, ACM TOMS 43, 7 (2016) (sums of
 * logarithms). */
#include "kernels/ddc/remez.h"

#include "kernels/util/clones.h"

#include <assert.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define GRID_DENSITY 16
/* with at least this number of taps, the code first finds the filter with half as many taps */
#define HALVED_TAPS    64
#define MAX_ITERATIONS 250
/* the iteration has converged if the largest error exceeds the alternating error by at most this fraction */
#define CONVERGED     1e-7
#define N_REFINEMENTS 2  /* number of times that find_taps() refines the taps */
#define BLOCK         64 /* number of grid points whose errors are computed together */

struct exchange {
    size_t n; /* number of coefficients; there are n + 1 extrema */
    bool even;
    size_t n_grid;
    double *frequency, *x, *desired, *weight, *error; /* [n_grid]; x = cos(2 pi frequency) */
    size_t *extrema, *found;                          /* grid indices: [n + 1] and [n_grid] */
    double *nodes, *factors, *values;                 /* [n + 1]: x, barycentric weights, values of the polynomial */
    double *wanted, *node_frequency;                  /* [n + 1]: values and frequencies at nodes, for find_taps() */
    /* weighted error at the first extremum, with the sign of the error */
    double deviation;
};

static void exchange_fini(struct exchange *e)
{
    free(e->frequency);
    free(e->extrema);
}

/* Allocates one block of doubles and one block of indices.  Returns 0 or -ENOMEM. */
static int exchange_init(struct exchange *e, size_t n_taps, size_t max_grid)
{
    *e = (struct exchange){.n = (n_taps + 1) / 2, .even = n_taps % 2 == 0};
    e->frequency = calloc(5 * max_grid + 5 * (e->n + 1), sizeof(double));
    e->extrema = calloc(max_grid + e->n + 1, sizeof(size_t));
    if (!e->frequency || !e->extrema) {
        exchange_fini(e);
        return -ENOMEM;
    }
    e->x = e->frequency + max_grid;
    e->desired = e->x + max_grid;
    e->weight = e->desired + max_grid;
    e->error = e->weight + max_grid;
    e->nodes = e->error + max_grid;
    e->factors = e->nodes + e->n + 1;
    e->values = e->factors + e->n + 1;
    e->wanted = e->values + e->n + 1;
    e->node_frequency = e->wanted + e->n + 1;
    e->found = e->extrema + e->n + 1;
    return 0;
}

static void add_point(struct exchange *e, const struct remez_band *band, double frequency)
{
    double factor = e->even ? cos(M_PI * frequency) : 1;

    e->frequency[e->n_grid] = frequency;
    e->x[e->n_grid] = cos(2 * M_PI * frequency);
    e->desired[e->n_grid] = band->gain / factor;
    e->weight[e->n_grid] = band->weight * factor;
    e->n_grid++;
}

static void make_grid(struct exchange *e, const struct remez_band *bands, size_t n_bands)
{
    double step = 0.5 / (double)(GRID_DENSITY * e->n);

    for (size_t band = 0; band < n_bands; band++) {
        double frequency = bands[band].low;
        /* The loop adds one step after another, as other programs do.  So rounding gives the same number of grid
         * points as in these programs.  A multiplication would round differently. */
        for (; frequency + step <= bands[band].high; frequency += step)
            add_point(e, &bands[band], frequency);
        add_point(e, &bands[band], bands[band].high);
    }
    if (e->even && e->frequency[e->n_grid - 1] > 0.5 - step)
        e->n_grid--;
}

/* Computes factors[i] = 1 / product of (nodes[i] - nodes[j]).  All factors are scaled by a common factor to avoid
 * overflow.  This common factor cancels. */
static void find_factors(struct exchange *e)
{
    double least = INFINITY;

    for (size_t i = 0; i <= e->n; i++) {
        double product = 1, logarithm = 0;
        for (size_t j = 0; j <= e->n; j++) {
            if (j == i)
                continue;
            product *= 2 * fabs(e->nodes[i] - e->nodes[j]);
            if (product < 0x1p-400 || product > 0x1p400) {
                logarithm += log(product);
                product = 1;
            }
        }
        e->factors[i] = logarithm + log(product);
        least = fmin(least, e->factors[i]);
    }
    /* The nodes decrease, so the product for node i has i negative factors. */
    for (size_t i = 0; i <= e->n; i++)
        e->factors[i] = (i % 2 ? -1 : 1) * exp(least - e->factors[i]);
}

/* Finds the polynomial whose weighted error alternates at the extrema.  Computes the polynomial's values at the
 * extrema, and the error. */
static void interpolate(struct exchange *e)
{
    double above = 0, below = 0;

    for (size_t i = 0; i <= e->n; i++)
        e->nodes[i] = e->x[e->extrema[i]];
    find_factors(e);
    for (size_t i = 0; i <= e->n; i++) {
        above += e->factors[i] * e->desired[e->extrema[i]];
        below += (i % 2 ? -1 : 1) * e->factors[i] / e->weight[e->extrema[i]];
    }
    e->deviation = above / below;
    for (size_t i = 0; i <= e->n; i++)
        e->values[i] = e->desired[e->extrema[i]] - (i % 2 ? -1 : 1) * e->deviation / e->weight[e->extrema[i]];
}

/* Evaluates the polynomial at x[0..BLOCK).  The result at a node is NaN. */
KERNEL_CLONES static void evaluate_block(const struct exchange *e, const double *restrict x, double *restrict out)
{
    double above[BLOCK] = {0}, below[BLOCK] = {0};

    for (size_t i = 0; i <= e->n; i++) {
        double node = e->nodes[i], factor = e->factors[i], value = e->values[i];
        for (size_t j = 0; j < BLOCK; j++) {
            double term = factor / (x[j] - node);
            above[j] += term * value;
            below[j] += term;
        }
    }
    for (size_t j = 0; j < BLOCK; j++)
        out[j] = above[j] / below[j];
}

static void evaluate(const struct exchange *e, const double *x, size_t n, double *out)
{
    for (size_t first = 0; first < n; first += BLOCK) {
        double in[BLOCK], block[BLOCK];
        size_t count = n - first < BLOCK ? n - first : BLOCK;
        for (size_t j = 0; j < BLOCK; j++)
            in[j] = x[first + (j < count ? j : 0)];
        evaluate_block(e, in, block);
        memcpy(out + first, block, count * sizeof(*out));
    }
    for (size_t j = 0; j < n; j++)
        if (!isfinite(out[j])) /* x[j] equals a node, exactly or except for rounding */
            for (size_t i = 0; i <= e->n; i++)
                if (fabs(e->nodes[i] - x[j]) <= 4 * DBL_EPSILON)
                    out[j] = e->values[i];
}

static void find_errors(struct exchange *e)
{
    evaluate(e, e->x, e->n_grid, e->error);
    for (size_t j = 0; j < e->n_grid; j++)
        e->error[j] = e->weight[j] * (e->desired[j] - e->error[j]);
}

/* Finds the largest error of each run of errors with the same sign.  The errors at found[0..] have alternating signs.
 * Returns the number of runs. */
static size_t find_extrema(struct exchange *e)
{
    size_t n_found = 0;

    for (size_t j = 0; j < e->n_grid; j++) {
        if (n_found == 0 || signbit(e->error[j]) != signbit(e->error[e->found[n_found - 1]]))
            e->found[n_found++] = j;
        else if (fabs(e->error[j]) > fabs(e->error[e->found[n_found - 1]]))
            e->found[n_found - 1] = j;
    }
    return n_found;
}

static size_t remove_found(struct exchange *e, size_t first, size_t n_removed, size_t n_found)
{
    memmove(e->found + first, e->found + first + n_removed, (n_found - first - n_removed) * sizeof(*e->found));
    return n_found - n_removed;
}

/* Reduces the extrema to n + 1.  Removes the smallest extrema so that the signs of the remaining extrema still
 * alternate.  Each step removes one extremum at one of the ends, or two neighbouring extrema. */
static void reduce_extrema(struct exchange *e, size_t n_found)
{
    while (n_found > e->n + 1) {
        const size_t *found = e->found;
        size_t smallest = 0;
        for (size_t i = 0; i + 1 < n_found; i++)
            if (fmax(fabs(e->error[found[i]]), fabs(e->error[found[i + 1]])) <
                fmax(fabs(e->error[found[smallest]]), fabs(e->error[found[smallest + 1]])))
                smallest = i;
        bool last = fabs(e->error[found[n_found - 1]]) < fabs(e->error[found[0]]);
        if (n_found == e->n + 2 || smallest == 0 || smallest == n_found - 2)
            n_found = remove_found(e, last ? n_found - 1 : 0, 1, n_found);
        else
            n_found = remove_found(e, smallest, 2, n_found);
    }
}

/* Iterates, starting with the extrema in e->extrema.  Returns 0, or -EDOM if rounding errors are as large as the
 * filter's errors or the iteration does not converge. */
static int iterate(struct exchange *e)
{
    for (int iteration = 0; iteration < MAX_ITERATIONS; iteration++) {
        double largest = 0;
        interpolate(e);
        find_errors(e);
        for (size_t j = 0; j < e->n_grid; j++)
            largest = isfinite(e->error[j]) ? fmax(largest, fabs(e->error[j])) : INFINITY;
        if (!isfinite(largest) || !isfinite(e->deviation))
            return -EDOM;
        if (largest <= fabs(e->deviation) * (1 + CONVERGED))
            return 0;
        size_t n_found = find_extrema(e);
        if (n_found < e->n + 1)
            return -EDOM;
        reduce_extrema(e, n_found);
        if (memcmp(e->found, e->extrema, (e->n + 1) * sizeof(*e->found)) == 0)
            return 0;
        memcpy(e->extrema, e->found, (e->n + 1) * sizeof(*e->found));
    }
    return -EDOM;
}

/* Removes a node.  n values define a polynomial of n coefficients.  n + 1 rounded values would contradict each other.
 * The function removes the node with the largest factor, because the other nodes determine the value at this node most
 * accurately. */
static void drop_node(struct exchange *e)
{
    size_t dropped = 0;

    for (size_t i = 1; i <= e->n; i++)
        if (fabs(e->factors[i]) > fabs(e->factors[dropped]))
            dropped = i;
    for (size_t i = 0; i <= e->n; i++)
        e->factors[i] *= e->nodes[i] - e->nodes[dropped];
}

/* Computes a filter whose response at the nodes is e->values.  Adds the taps of this filter to taps[n_taps].  The taps
 * are the inverse transform of the polynomial at n_taps equally spaced frequencies.  Overwrites the grid's arrays. */
static void add_taps(struct exchange *e, size_t n_taps, double *taps)
{
    /* the arrays are large enough: 2 n_taps <= 4 n <= n_grid */
    double *x = e->x, *response = e->error, *cosines = e->frequency;
    /* the other points mirror these points; if n_taps is even, the response at frequency 1/2 is 0 */
    size_t n_points = n_taps / 2 + (e->even ? 0 : 1);

    for (size_t j = 0; j < n_points; j++)
        x[j] = cos(2 * M_PI * (double)j / (double)n_taps);
    evaluate(e, x, n_points, response);
    for (size_t j = 0; j < n_points; j++)
        response[j] *= (j ? 2 : 1) * (e->even ? cos(M_PI * (double)j / (double)n_taps) : 1) / (double)n_taps;
    for (size_t i = 0; i < 2 * n_taps; i++)
        cosines[i] = cos(M_PI * (double)i / (double)n_taps);
    for (size_t i = 0; i < (n_taps + 1) / 2; i++) {
        double sum = 0;
        for (size_t j = 0; j < n_points; j++)
            sum += response[j] * cosines[j * (n_taps - 1 - 2 * i) % (2 * n_taps)];
        taps[i] = taps[n_taps - 1 - i] += sum;
    }
}

/* Sets e->values to the differences between the wanted values and the taps' values at the nodes. */
static void find_residuals(struct exchange *e, size_t n_taps, const double *taps)
{
    for (size_t i = 0; i <= e->n; i++) {
        double frequency = e->node_frequency[i], sum = 0;
        for (size_t tap = 0; tap < n_taps; tap++)
            sum += taps[tap] * cos(M_PI * frequency * ((double)(2 * tap) - (double)(n_taps - 1)));
        e->values[i] = e->wanted[i] - sum / (e->even ? cos(M_PI * frequency) : 1);
    }
}

/* Finds the taps.  Between bands that are far apart, interpolation amplifies rounding errors by up to 1e9.  Iterative
 * refinement removes these errors at the nodes, that is within the bands. */
static void find_taps(struct exchange *e, size_t n_taps, double *taps)
{
    for (size_t i = 0; i <= e->n; i++) {
        e->wanted[i] = e->values[i];
        e->node_frequency[i] = e->frequency[e->extrema[i]];
    }
    drop_node(e);
    memset(taps, 0, n_taps * sizeof(*taps));
    add_taps(e, n_taps, taps);
    for (int refinement = 0; refinement < N_REFINEMENTS; refinement++) {
        find_residuals(e, n_taps, taps);
        add_taps(e, n_taps, taps);
    }
}

/* Chooses the first n + 1 extrema.  If n_given > 0, frequencies[0..n_given) are the extrema of another filter for the
 * same bands.  The function then interpolates between these extrema.  Otherwise the function spreads the extrema evenly
 * over the grid. */
static void begin(struct exchange *e, const double *frequencies, size_t n_given)
{
    size_t j = 0;

    for (size_t i = 0; i <= e->n; i++) {
        if (n_given == 0) {
            e->extrema[i] = i * (e->n_grid - 1) / e->n;
            continue;
        }
        double position = (double)(i * (n_given - 1)) / (double)e->n;
        size_t before = (size_t)position < n_given - 2 ? (size_t)position : n_given - 2;
        double frequency =
            frequencies[before] + (position - (double)before) * (frequencies[before + 1] - frequencies[before]);
        while (j + (e->n - i) + 1 < e->n_grid && e->frequency[j] < frequency)
            j++;
        e->extrema[i] = j++;
    }
}

/* Finds the extrema.  First finds the extrema of a filter with half as many taps.  A few iterations from these extrema
 * suffice.  Guessed extrema would fail, because with many taps the error at guessed extrema is smaller than rounding
 * errors. */
static int solve(struct exchange *e, size_t n_taps, const struct remez_band *bands, size_t n_bands)
{
    double width = 0, *frequencies = NULL;
    struct exchange half;
    size_t n_given = 0;
    int err;

    for (size_t i = 0; i < n_bands; i++)
        width += bands[i].high - bands[i].low;
    err = exchange_init(e, n_taps,
                        (size_t)(2 * width * (double)(GRID_DENSITY * ((n_taps + 1) / 2))) + 2 * n_bands + 2 * n_taps);
    if (err)
        return err;
    make_grid(e, bands, n_bands);
    if (n_taps >= HALVED_TAPS && n_taps / 2 >= 2 * n_bands) {
        err = solve(&half, n_taps / 2, bands, n_bands);
        if (err)
            goto undo_exchange;
        n_given = half.n + 1;
        frequencies = half.nodes; /* replaces half.nodes */
        for (size_t i = 0; i < n_given; i++)
            frequencies[i] = half.frequency[half.extrema[i]];
    }
    err = -EDOM;
    if (e->n_grid > e->n) {
        begin(e, frequencies, n_given);
        err = iterate(e);
    }
    if (frequencies)
        exchange_fini(&half);
    if (!err)
        return 0;
undo_exchange:
    exchange_fini(e);
    return err;
}

int remez(size_t n_taps, const struct remez_band *bands, size_t n_bands, double *taps)
{
    struct exchange e;
    int err;

    assert(n_taps >= 4 && n_bands >= 1 && n_bands <= REMEZ_MAX_BANDS);
    for (size_t i = 0; i < n_bands; i++) {
        assert(bands[i].low >= (i ? bands[i - 1].high : 0) && bands[i].low < bands[i].high && bands[i].high <= 0.5);
        assert(bands[i].weight > 0);
    }
    err = solve(&e, n_taps, bands, n_bands);
    if (err)
        return err;
    find_taps(&e, n_taps, taps);
    exchange_fini(&e);
    return 0;
}
