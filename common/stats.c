/* stats.c - between the counters of the data path and /metrics: who is registered, and how it is written down.
 *
 * Counters themselves are atomics in the structs of their owners; the lock guards only the lists. */
#include "common/stats.h"

#include "common/log.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One line of the page: a counter or a gauge with its labels. */
struct sample {
    struct sample *next;
    char *labels; /* NULL: none */
    const struct counter *counter;
    const struct gauge *gauge;
};

/* All samples of one name, which the text format wants together. */
struct family {
    struct family *next;
    char *name; /* with _total, for a counter */
    char *help;
    bool is_counter;
    double scale; /* of a gauge; 1: shown as the integer that it is */
    struct sample *first, **last;
};

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct family *families; /* [registry_lock] in order of registration */

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

/* The family called 'name', made at the end of the list if there is none yet; NULL if out of memory. */
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

static int add_sample(struct family *family, const char *labels, const struct counter *counter,
                      const struct gauge *gauge)
{
    struct sample *sample = calloc(1, sizeof(*sample));

    if (!sample)
        return -1;
    if (labels && *labels) {
        sample->labels = strdup(labels);
        if (!sample->labels) {
            free(sample);
            return -1;
        }
    }
    sample->counter = counter;
    sample->gauge = gauge;
    *family->last = sample;
    family->last = &sample->next;
    return 0;
}

/* A metric that cannot be registered is missed on the page, but no reason not to observe. */
static void add(const char *name, const char *help, const char *labels, const struct counter *counter,
                const struct gauge *gauge, double scale)
{
    struct family *family;
    int err;

    assert(is_metric_name(name));
    pthread_mutex_lock(&registry_lock);
    family = find_family(name, help, counter != NULL, scale);
    err = family ? add_sample(family, labels, counter, gauge) : -1;
    pthread_mutex_unlock(&registry_lock);
    if (err)
        log_error("out of memory: metric %s will not be shown", name);
}

void stats_counter(const char *name, const char *help, const char *labels, const struct counter *counter)
{
    char full_name[256];
    int n = snprintf(full_name, sizeof(full_name), "%s_total", name);

    assert(n < (int)sizeof(full_name));
    add(full_name, help, labels, counter, NULL, 1.0);
}

void stats_gauge(const char *name, const char *help, const char *labels, const struct gauge *gauge)
{
    add(name, help, labels, NULL, gauge, 1.0);
}

void stats_gauge_scaled(const char *name, const char *help, const char *labels, const struct gauge *gauge, double scale)
{
    add(name, help, labels, NULL, gauge, scale);
}

/* Writes 'text' with a backslash before backslashes and, if 'quote', double quotes; a newline becomes \n. */
static void put_escaped(FILE *out, const char *text, bool quote)
{
    for (; *text; text++) {
        if (*text == '\n') {
            fputs("\\n", out);
            continue;
        }
        if (*text == '\\' || (quote && *text == '"'))
            fputc('\\', out);
        fputc(*text, out);
    }
}

char *stats_label(char *labels, size_t labels_bytes, const char *name, const char *value)
{
    size_t used = strlen(labels);
    size_t room = labels_bytes - used;
    char *escaped = NULL;
    size_t escaped_bytes;
    FILE *out = open_memstream(&escaped, &escaped_bytes);

    if (!out)
        return labels;
    fprintf(out, "%s%s=\"", used ? "," : "", name);
    put_escaped(out, value, true);
    fputc('"', out);
    if (fclose(out) == 0) {
        assert(escaped_bytes < room);
        memcpy(labels + used, escaped, escaped_bytes + 1);
    }
    free(escaped);
    return labels;
}

static void put_sample(FILE *out, const struct family *family, const struct sample *sample)
{
    fputs(family->name, out);
    if (sample->labels)
        fprintf(out, "{%s}", sample->labels);
    if (family->is_counter)
        fprintf(out, " %" PRIu64 "\n", counter_get(sample->counter));
    else if (family->scale == 1.0)
        fprintf(out, " %" PRId64 "\n", gauge_get(sample->gauge));
    else
        fprintf(out, " %.15g\n", (double)gauge_get(sample->gauge) * family->scale);
}

char *stats_format(void)
{
    char *text = NULL;
    size_t text_bytes;
    FILE *out = open_memstream(&text, &text_bytes);
    bool failed;

    if (!out)
        return NULL;
    pthread_mutex_lock(&registry_lock);
    for (const struct family *family = families; family; family = family->next) {
        fprintf(out, "# HELP %s ", family->name);
        put_escaped(out, family->help, false);
        fprintf(out, "\n# TYPE %s %s\n", family->name, family->is_counter ? "counter" : "gauge");
        for (const struct sample *sample = family->first; sample; sample = sample->next)
            put_sample(out, family, sample);
    }
    pthread_mutex_unlock(&registry_lock);
    failed = ferror(out);
    if (fclose(out) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}

void stats_reset(void)
{
    pthread_mutex_lock(&registry_lock);
    for (struct family *family = families, *next; family; family = next) {
        next = family->next;
        family_free(family);
    }
    families = NULL;
    pthread_mutex_unlock(&registry_lock);
}
