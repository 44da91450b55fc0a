/* antennas.c - called by the writer: finds the names of absent antennas from the flags of a dump. */
#include "tools/visrec/antennas.h"

#include "common/base/log.h"
#include "common/telemetry/stats.h"
#include "common/base/units.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define NAMES_BYTES 512

struct antenna {
    struct counter flagged;
    size_t baseline;         /* index of the antenna's autocorrelation */
    size_t n_flagged;        /* number of flagged values of the autocorrelation in the current dump */
    bool absent, was_absent; /* true: the antenna is absent from the current dump, and from the previous dump */
};

struct visrec_antennas {
    const struct visrec_array *array;
    struct antenna *all; /* [n_ants] */
    struct log_limit limit;
};

int visrec_antennas_create(const struct visrec_array *array, struct visrec_antennas **out)
{
    struct visrec_antennas *antennas = calloc(1, sizeof(*antennas));

    if (antennas)
        antennas->all = calloc(array->n_ants, sizeof(*antennas->all));
    if (!antennas || !antennas->all) {
        free(antennas);
        return -ENOMEM;
    }
    antennas->array = array;
    for (size_t b = 0; b < array->n_baselines; b++)
        if (array->baselines[b].ant_1 == array->baselines[b].ant_2)
            antennas->all[array->baselines[b].ant_1].baseline = b;
    for (size_t a = 0; a < array->n_ants; a++) {
        char number[24], labels[512] = "";

        snprintf(number, sizeof(number), "%zu", a);
        stats_label(labels, sizeof(labels), "feng", number);
        stats_label(labels, sizeof(labels), "antenna", array->ants[a].name);
        stats_counter("visrec_antenna_flagged_values",
                      "Flagged visibilities in the antenna's autocorrelations that were written.", labels,
                      &antennas->all[a].flagged);
    }
    *out = antennas;
    return 0;
}

void visrec_antennas_destroy(struct visrec_antennas *antennas)
{
    if (!antennas)
        return;
    free(antennas->all);
    free(antennas);
}

static size_t count_flags(const struct visrec_dump *dump, size_t baseline)
{
    size_t n_values = dump->shape.n_chan * N_POL_PRODUCTS, n_flagged = 0;
    const uint8_t *flags = dump->flags + baseline * n_values;

    for (size_t i = 0; i < n_values; i++)
        n_flagged += flags[i];
    return n_flagged;
}

/* Writes the names of absent antennas to a text.  If the text has no room for all names, adds the number of the
 * remaining antennas.  Returns the number of absent antennas. */
static size_t name_absent(const struct visrec_antennas *antennas, char names[NAMES_BYTES])
{
    size_t n_absent = 0, n_named = 0, n = 0;

    names[0] = '\0';
    for (size_t a = 0; a < antennas->array->n_ants; a++) {
        if (!antennas->all[a].absent)
            continue;
        n_absent++;
        if (n + 96 > NAMES_BYTES)
            continue;
        n += (size_t)snprintf(names + n, NAMES_BYTES - n, "%s%s", n_named++ ? ", " : "", antennas->array->ants[a].name);
    }
    if (n_absent > n_named)
        snprintf(names + n, NAMES_BYTES - n, " and %zu more", n_absent - n_named);
    return n_absent;
}

static void log_changes(struct visrec_antennas *antennas)
{
    char names[NAMES_BYTES];

    if (name_absent(antennas, names) > 0)
        log_limited(&antennas->limit, LOG_LEVEL_WARNING, "the dumps have no data of %s", names);
    else
        log_limited(&antennas->limit, LOG_LEVEL_INFO, "the dumps have data of all antennas again");
}

void visrec_antennas_poll(struct visrec_antennas *antennas, const struct visrec_dump *dump)
{
    bool has_data = false, changed = false;

    if (!antennas)
        return;
    for (size_t a = 0; a < antennas->array->n_ants; a++) {
        struct antenna *antenna = &antennas->all[a];

        antenna->n_flagged = count_flags(dump, antenna->baseline);
        counter_add(&antenna->flagged, antenna->n_flagged);
        antenna->absent = antenna->n_flagged == dump->shape.n_chan * N_POL_PRODUCTS;
        has_data = has_data || !antenna->absent;
    }
    if (!has_data) /* no antenna has data, so the whole dump is missing */
        return;
    for (size_t a = 0; a < antennas->array->n_ants; a++) {
        struct antenna *antenna = &antennas->all[a];

        changed = changed || antenna->absent != antenna->was_absent;
        antenna->was_absent = antenna->absent;
    }
    if (changed)
        log_changes(antennas);
}
