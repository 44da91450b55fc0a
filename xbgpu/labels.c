/* labels.c - names of inputs, for control.c and facts.c. */
#include "xbgpu/labels.h"

#include "common/config.h"
#include "common/units.h"
#include "xbgpu/config.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The labels in the text that are given, up to 'max' of them, as copies.  Returns how many there are, or -ENOMEM. */
static long split(const char *text, char **labels, size_t max)
{
    char *copy = strdup(text), *rest = NULL;
    long n = 0;

    if (!copy)
        return -ENOMEM;
    for (char *label = strtok_r(copy, ", ", &rest); label && n >= 0; label = strtok_r(NULL, ", ", &rest), n++)
        if ((size_t)n < max && !(labels[n] = strdup(label)))
            n = -ENOMEM - 1;
    free(copy);
    return n;
}

int xlabels_init(struct xlabels *labels, const struct xbgpu_config *config)
{
    size_t n = (size_t)config->recv.n_ants * N_POLS;

    *labels = (struct xlabels){calloc(n, sizeof(char *)), n};
    if (!labels->labels)
        return -ENOMEM;
    if (config->recv.input_labels)
        return split(config->recv.input_labels, labels->labels, n) < 0 ? -ENOMEM : 0;
    for (size_t i = 0; i < n; i++)
        if (asprintf(&labels->labels[i], "a%zu%c", i / N_POLS, "vh"[i % N_POLS]) < 0) {
            labels->labels[i] = NULL;
            return -ENOMEM;
        }
    return 0;
}

void xlabels_fini(struct xlabels *labels)
{
    for (size_t i = 0; labels->labels && i < labels->n; i++)
        free(labels->labels[i]);
    free(labels->labels);
    *labels = (struct xlabels){0};
}

static bool is_number(const char *text)
{
    return *text && !text[strspn(text, "0123456789")];
}

long xlabels_find(const struct xlabels *labels, const char *text)
{
    if (is_number(text)) {
        unsigned long long i = strtoull(text, NULL, 10);
        return i < labels->n ? (long)i : -1;
    }
    for (size_t i = 0; i < labels->n; i++)
        if (strcmp(labels->labels[i], text) == 0)
            return (long)i;
    return -1;
}

void xlabels_write(const struct xlabels *labels, FILE *out)
{
    for (size_t i = 0; i < labels->n; i++)
        fprintf(out, "%s'%s'", i ? ", " : "[", labels->labels[i]);
    fputc(']', out);
}

void xlabels_write_products(const struct xlabels *labels, FILE *out)
{
    const char *between = "[";

    for (size_t a2 = 0; a2 < labels->n / N_POLS; a2++)
        for (size_t a1 = 0; a1 <= a2; a1++)
            for (size_t product = 0; product < N_POL_PRODUCTS; product++, between = ", ")
                fprintf(out, "%s('%s', '%s')", between, labels->labels[a1 * N_POLS + product % N_POLS],
                        labels->labels[a2 * N_POLS + product / N_POLS]);
    fputc(']', out);
}

bool xlabel_is_name(const char *text)
{
    for (; *text; text++)
        if (!isascii(*text) || !(isalnum((unsigned char)*text) || strchr(".-_", *text)))
            return false;
    return true;
}

static int compare_labels(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void xlabels_check(const struct xbgpu_config *config, struct config *errors)
{
    const void *field = &config->recv.input_labels;
    size_t n = (size_t)config->recv.n_ants * N_POLS;
    struct xlabels labels = {calloc(n, sizeof(char *)), n};

    if (!config->recv.input_labels || !labels.labels) {
        free(labels.labels);
        return;
    }
    long n_given = split(config->recv.input_labels, labels.labels, n);
    if (n_given >= 0 && (size_t)n_given != n) {
        config_error(errors, field, "input_labels must be %zu, one for each polarisation of %lld antennas, not %ld", n,
                     (long long)config->recv.n_ants, n_given);
    } else if (n_given >= 0) {
        qsort(labels.labels, n, sizeof(char *), compare_labels);
        for (size_t i = 0; i < n; i++) {
            const char *label = labels.labels[i];
            if (!xlabel_is_name(label) || is_number(label))
                config_error(errors, field,
                             "an input label has letters, digits, '.', '-' and '_', and not digits only, but '%s' is "
                             "given",
                             label);
            if (i > 0 && strcmp(label, labels.labels[i - 1]) == 0)
                config_error(errors, field, "two inputs have the label %s", label);
        }
    }
    xlabels_fini(&labels);
}
