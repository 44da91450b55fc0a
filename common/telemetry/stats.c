/* stats.c - the registry of counters and gauges, and the text of /metrics.
 *
 * The counters are atomics in the structs of their owners.  The lock guards only the lists of families and samples. */
#include "common/telemetry/stats.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/units.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One line of /metrics: a counter or a gauge with its labels. */
struct sample {
    struct sample *next;
    char *labels; /* NULL: none */
    const struct counter *counter;
    const struct gauge *gauge;
    /* function that returns the value of a gauge; if NULL, 'counter' or 'gauge' has the value */
    int64_t (*read)(const void *arg);
    const void *read_arg;
    uint64_t factor; /* factor by which the counter's value is multiplied */
    uint64_t before; /* value of the counter when rates were last calculated */
    double per_s;    /* NAN: not known */
};

/* All samples with the same name.  /metrics must list them together. */
struct family {
    struct family *next;
    int64_t created_ns; /* UNIX time */
    char *name;         /* name of the metric, with _total if it is a counter */
    char *help;
    bool is_counter;
    double scale; /* factor by which a gauge's value is multiplied; 1: the value is written as an integer */
    struct sample *first, **last;
};

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct family *families; /* [registry_lock] in order of registration */
static int64_t rates_ns;        /* [registry_lock] monotonic time of the last calculation of rates; 0: none yet */

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_:"

static bool is_metric_name(const char *name)
{
    return strcspn(name, LETTERS) == 0 && *name && name[strspn(name, LETTERS "0123456789")] == '\0';
}

static void family_free(struct family *family)
{
    if (!family)
        return;
    for (struct sample *sample = family->first, *next; sample; sample = next) {
        next = sample->next;
        free(sample->labels);
        free(sample);
    }
    free(family->name);
    free(family->help);
    free(family);
}

/* Finds the family called 'name', or appends a new one to the list.  Returns NULL if out of memory. */
static struct family *find_family(const char *name, const char *help, bool is_counter, double scale)
{
    struct family **at = &families, *family;

    for (; *at; at = &(*at)->next) {
        if (!strcmp((*at)->name, name)) {
            assert((*at)->is_counter == is_counter && (*at)->scale == scale);
            return *at;
        }
    }
    family = calloc(1, sizeof(*family));
    if (!family)
        return NULL;
    family->name = strdup(name);
    family->help = strdup(help);
    family->created_ns = clock_unix_ns();
    family->is_counter = is_counter;
    family->scale = scale;
    family->last = &family->first;
    if (!family->name || !family->help) {
        family_free(family);
        return NULL;
    }
    *at = family;
    return family;
}

static uint64_t total(const struct sample *sample)
{
    return counter_get(sample->counter) * sample->factor;
}

static int add_sample(struct family *family, const char *labels, const struct sample *what)
{
    struct sample *sample = calloc(1, sizeof(*sample));

    if (!sample)
        return -1;
    *sample = *what;
    if (labels && *labels) {
        sample->labels = strdup(labels);
        if (!sample->labels) {
            free(sample);
            return -1;
        }
    }
    sample->before = sample->counter ? total(sample) : 0;
    sample->per_s = NAN;
    *family->last = sample;
    family->last = &sample->next;
    return 0;
}

/* Registers a sample.  If memory runs out, the metric is missing in /metrics, but the program continues. */
static void add(const char *name, const char *help, const char *labels, const struct sample *what, double scale)
{
    assert(is_metric_name(name));
    pthread_mutex_lock(&registry_lock);
    struct family *family = find_family(name, help, what->counter != NULL, scale);
    int err = family ? add_sample(family, labels, what) : -1;
    pthread_mutex_unlock(&registry_lock);
    if (err)
        log_error("out of memory: metric %s will not be shown", name);
}

void stats_counter(const char *name, const char *help, const char *labels, const struct counter *counter)
{
    stats_counter_times(name, help, labels, counter, 1);
}

void stats_counter_times(const char *name, const char *help, const char *labels, const struct counter *counter,
                         uint64_t factor)
{
    char full_name[256];
    int n = snprintf(full_name, sizeof(full_name), "%s_total", name);

    assert(n < (int)sizeof(full_name));
    add(full_name, help, labels, &(struct sample){.counter = counter, .factor = factor}, 1.0);
}

void stats_gauge(const char *name, const char *help, const char *labels, const struct gauge *gauge)
{
    add(name, help, labels, &(struct sample){.gauge = gauge}, 1.0);
}

void stats_gauge_read(const char *name, const char *help, const char *labels, int64_t (*read)(const void *arg),
                      const void *arg)
{
    add(name, help, labels, &(struct sample){.read = read, .read_arg = arg}, 1.0);
}

void stats_gauge_scaled(const char *name, const char *help, const char *labels, const struct gauge *gauge, double scale)
{
    add(name, help, labels, &(struct sample){.gauge = gauge}, scale);
}

/* Returns the escape of a backslash, a newline or, with 'quote', a double quote.  Returns NULL for other characters. */
static const char *escape_of(char c, bool quote)
{
    if (c == '"')
        return quote ? "\\\"" : NULL;
    return c == '\n' ? "\\n" : c == '\\' ? "\\\\" : NULL;
}

static void put_escaped(FILE *out, const char *text)
{
    for (; *text; text++) {
        const char *escape = escape_of(*text, false);

        if (escape)
            fputs(escape, out);
        else
            fputc(*text, out);
    }
}

/* Allocates no memory, because a metric without its label would look like another metric. */
char *stats_label(char *labels, size_t labels_bytes, const char *name, const char *value)
{
    size_t n = strlen(labels);

    n += (size_t)snprintf(labels + n, labels_bytes - n, "%s%s=\"", n ? "," : "", name);
    for (; *value; value++) {
        const char one[] = {*value, '\0'}, *escape = escape_of(*value, true);

        assert(n < labels_bytes);
        n += (size_t)snprintf(labels + n, labels_bytes - n, "%s", escape ? escape : one);
    }
    assert(n + 1 < labels_bytes);
    memcpy(labels + n, "\"", 2);
    return labels;
}

static int64_t read_gauge(const struct sample *sample)
{
    return sample->read ? sample->read(sample->read_arg) : gauge_get(sample->gauge);
}

static double gauge_value(const struct family *family, const struct sample *sample)
{
    return (double)read_gauge(sample) * family->scale;
}

static void put_series(FILE *out, const char *name, size_t name_bytes, const char *suffix, const struct sample *sample)
{
    fprintf(out, "%.*s%s", (int)name_bytes, name, suffix);
    if (sample->labels)
        fprintf(out, "{%s}", sample->labels);
}

static void put_sample(FILE *out, const struct family *family, const struct sample *sample)
{
    put_series(out, family->name, strlen(family->name), "", sample);
    if (family->is_counter)
        fprintf(out, " %" PRIu64 "\n", total(sample));
    else if (family->scale == 1.0)
        fprintf(out, " %" PRId64 "\n", read_gauge(sample));
    else
        fprintf(out, " %.15g\n", gauge_value(family, sample));
}

static void put_head(FILE *out, const char *name, size_t name_bytes, const char *suffix, const char *help,
                     const char *type)
{
    fprintf(out, "# HELP %.*s%s ", (int)name_bytes, name, suffix);
    put_escaped(out, help);
    fprintf(out, "\n# TYPE %.*s%s %s\n", (int)name_bytes, name, suffix, type);
}

/* Writes the times at which the counters of 'family' began to count.  These times are a family of their own. */
static void put_created(FILE *out, const struct family *family)
{
    size_t name_bytes = strlen(family->name) - strlen("_total");

    put_head(out, family->name, name_bytes, "_created", "UNIX time at which the counter of this name began to count.",
             "gauge");
    for (const struct sample *sample = family->first; sample; sample = sample->next) {
        put_series(out, family->name, name_bytes, "_created", sample);
        fprintf(out, " %.3f\n", (double)family->created_ns / NS_PER_S);
    }
}

void stats_write(FILE *out)
{
    pthread_mutex_lock(&registry_lock);
    for (const struct family *family = families; family; family = family->next) {
        put_head(out, family->name, strlen(family->name), "", family->help, family->is_counter ? "counter" : "gauge");
        for (const struct sample *sample = family->first; sample; sample = sample->next)
            put_sample(out, family, sample);
        if (family->is_counter)
            put_created(out, family);
    }
    pthread_mutex_unlock(&registry_lock);
}

void stats_make_rates(int64_t now_ns)
{
    pthread_mutex_lock(&registry_lock);
    double seconds = (double)(now_ns - rates_ns) / NS_PER_S;
    bool known = rates_ns != 0 && now_ns - rates_ns <= STATS_RATES_MAX_NS;
    bool due = rates_ns == 0 || now_ns - rates_ns >= STATS_RATES_MIN_NS;
    for (struct family *family = families; family && due; family = family->next) {
        for (struct sample *sample = family->first; sample && family->is_counter; sample = sample->next) {
            uint64_t value = total(sample);
            sample->per_s = known ? (double)(value - sample->before) / seconds : NAN;
            sample->before = value;
        }
    }
    if (due)
        rates_ns = now_ns;
    pthread_mutex_unlock(&registry_lock);
}

void stats_each(void (*visit)(void *arg, const struct stats_value *value), void *arg)
{
    pthread_mutex_lock(&registry_lock);
    for (const struct family *family = families; family; family = family->next) {
        for (const struct sample *sample = family->first; sample; sample = sample->next) {
            struct stats_value value = {
                .name = family->name, .labels = sample->labels ? sample->labels : "", .is_counter = family->is_counter};
            if (family->is_counter)
                value.total = total(sample);
            else
                value.gauge = gauge_value(family, sample);
            value.per_s = sample->per_s;
            visit(arg, &value);
        }
    }
    pthread_mutex_unlock(&registry_lock);
}

void stats_reset(void)
{
    pthread_mutex_lock(&registry_lock);
    for (struct family *family = families, *next; family; family = next) {
        next = family->next;
        family_free(family);
    }
    families = NULL;
    rates_ns = 0;
    pthread_mutex_unlock(&registry_lock);
}
