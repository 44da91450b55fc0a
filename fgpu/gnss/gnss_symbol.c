/* gnss_symbol.c - searches for the start of data symbols.  gnss_track.c passes sums to the search while the carrier is
 * locked. */
#include "fgpu/gnss/gnss_symbol.h"

#include "common/base/units.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define SEARCH_SECONDS 1.0
/* minimum difference between the best and the second best agreement, in units of a period's power */
#define MIN_LEAD 0.4

static uint32_t modulo(int64_t value, uint32_t n)
{
    return (uint32_t)(value - round_down(value, n));
}

void fgpu_gnss_symbol_init(struct fgpu_gnss_symbol *symbol, enum gnss_signal signal)
{
    const struct gnss_signal_facts *facts = gnss_signal_facts(signal);
    const uint32_t n_secondary = (uint32_t)strlen(facts->secondary);
    const uint32_t n = facts->symbol_periods ? facts->symbol_periods : n_secondary;
    const double period_s = facts->n_chips / facts->chip_rate_hz;

    assert(n <= FGPU_GNSS_MAX_SYMBOL);
    *symbol = (struct fgpu_gnss_symbol){.n_periods = n, .first = n == 1 ? 0 : -1};
    for (uint32_t i = 0; i < n; i++)
        symbol->chips[i] = facts->secondary[i % n_secondary] == '0' ? 1 : -1;
    for (uint32_t i = 0; i < n; i++)
        symbol->products[i] = (int8_t)(symbol->chips[i] * symbol->chips[(i + n - 1) % n]);
    if (facts->symbol_periods)
        symbol->products[0] = 0;
    symbol->n_wanted = n * (uint32_t)lrint(SEARCH_SECONDS / (n * period_s));
}

/* Assumes that the symbols begin with period 'first'.  Returns how well the sums agree with this assumption; larger
 * values are better. */
static double agreement(const struct fgpu_gnss_symbol *symbol, uint32_t first)
{
    double sum = 0;

    for (uint32_t i = 0; i < symbol->n_periods; i++)
        sum += symbol->products[i] * symbol->sums[(first + i) % symbol->n_periods];
    return sum;
}

static void decide(struct fgpu_gnss_symbol *symbol)
{
    double best = -INFINITY, second = -INFINITY;
    uint32_t first = 0, n_products = 0;

    for (uint32_t i = 0; i < symbol->n_periods; i++) {
        const double value = agreement(symbol, i);
        n_products += symbol->products[i] != 0;
        second = fmax(second, fmin(value, best));
        if (value > best)
            first = i;
        best = fmax(best, value);
    }
    if (best > 0 && best - second >= MIN_LEAD * best / n_products)
        symbol->first = (int)first;
}

void fgpu_gnss_symbol_add(struct fgpu_gnss_symbol *symbol, int64_t period, double product)
{
    if (symbol->first >= 0)
        return;
    symbol->sums[modulo(period, symbol->n_periods)] += product;
    if (++symbol->n_added < symbol->n_wanted)
        return;
    decide(symbol);
    memset(symbol->sums, 0, sizeof(symbol->sums));
    symbol->n_added = 0;
}

int fgpu_gnss_symbol_place(const struct fgpu_gnss_symbol *symbol, int64_t period)
{
    return symbol->first < 0 ? -1 : (int)modulo(period - symbol->first, symbol->n_periods);
}
