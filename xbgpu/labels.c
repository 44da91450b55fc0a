/* labels.c - names of inputs, for control.c and stream_info.c. */
#include "xbgpu/labels.h"

#include "common/config/config.h"
#include "common/base/units.h"
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

/* Names as the text has them; where it is empty, name(i) of each. */
static int fill(const char *text, char **names, size_t n, char *(*name)(const struct xbgpu_labels *labels, size_t i),
                const struct xbgpu_labels *labels)
{
    if (text)
        return split(text, names, n) < 0 ? -ENOMEM : 0;
    for (size_t i = 0; i < n; i++)
        if (!(names[i] = name(labels, i)))
            return -ENOMEM;
    return 0;
}

static char *antenna_name(const struct xbgpu_labels *labels, size_t i)
{
    char *name;

    return asprintf(&name, "a%zu", i) < 0 ? NULL : name;
}

static char *input_label(const struct xbgpu_labels *labels, size_t i)
{
    char *label;

    return asprintf(&label, "%s%c", labels->antennas[i / N_POLS], "vh"[i % N_POLS]) < 0 ? NULL : label;
}

static bool is_number(const char *text)
{
    return *text && !text[strspn(text, "0123456789")];
}

/* What the two labels of an antenna begin with, without a separator at its end, as a copy; NULL if there is no memory. */
static char *stem_of(const char *label1, const char *label2)
{
    size_t n = 0;

    while (label1[n] && label1[n] == label2[n])
        n++;
    while (n > 0 && strchr(".-_", label1[n - 1]))
        n--;
    return strndup(label1, n);
}

/* Calls antennas by what their labels begin with, if that tells them apart.  Returns 0 or -ENOMEM. */
static int name_by_labels(struct xbgpu_labels *labels)
{
    size_t n = labels->n / N_POLS;
    char **stems = calloc(n, sizeof(char *));
    bool good = stems != NULL, enough = stems != NULL;

    for (size_t i = 0; enough && i < n; i++) {
        stems[i] = stem_of(labels->labels[N_POLS * i], labels->labels[N_POLS * i + 1]);
        enough = stems[i] != NULL;
        good = good && enough && stems[i][0] && !is_number(stems[i]);
        for (size_t k = 0; good && k < i; k++)
            good = strcmp(stems[k], stems[i]) != 0;
    }
    for (size_t i = 0; stems && i < n; i++) {
        char *name = labels->antennas[i];
        if (enough && good) {
            labels->antennas[i] = stems[i];
            stems[i] = name;
        }
        free(stems[i]);
    }
    free(stems);
    return enough ? 0 : -ENOMEM;
}

int xbgpu_labels_init(struct xbgpu_labels *labels, const struct xbgpu_config *config)
{
    size_t n_ants = (size_t)config->recv.n_ants, n = n_ants * N_POLS;

    *labels = (struct xbgpu_labels){calloc(n, sizeof(char *)), calloc(n_ants, sizeof(char *)), n};
    if (!labels->labels || !labels->antennas)
        return -ENOMEM;
    int err = fill(config->recv.antenna_names, labels->antennas, n_ants, antenna_name, labels);
    if (!err)
        err = fill(config->recv.input_labels, labels->labels, n, input_label, labels);
    return err || config->recv.antenna_names || !config->recv.input_labels ? err : name_by_labels(labels);
}

void xbgpu_labels_fini(struct xbgpu_labels *labels)
{
    for (size_t i = 0; labels->labels && i < labels->n; i++)
        free(labels->labels[i]);
    for (size_t i = 0; labels->antennas && i < labels->n / N_POLS; i++)
        free(labels->antennas[i]);
    free(labels->labels);
    free(labels->antennas);
    *labels = (struct xbgpu_labels){0};
}

long xbgpu_labels_find(const struct xbgpu_labels *labels, const char *text)
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

void xbgpu_labels_write(const struct xbgpu_labels *labels, FILE *out)
{
    for (size_t i = 0; i < labels->n; i++)
        fprintf(out, "%s'%s'", i ? ", " : "[", labels->labels[i]);
    fputc(']', out);
}

void xbgpu_labels_write_products(const struct xbgpu_labels *labels, FILE *out)
{
    const char *between = "[";

    for (size_t a2 = 0; a2 < labels->n / N_POLS; a2++)
        for (size_t a1 = 0; a1 <= a2; a1++)
            for (size_t product = 0; product < N_POL_PRODUCTS; product++, between = ", ")
                fprintf(out, "%s('%s', '%s')", between, labels->labels[a1 * N_POLS + product % N_POLS],
                        labels->labels[a2 * N_POLS + product / N_POLS]);
    fputc(']', out);
}

bool xbgpu_label_is_name(const char *text)
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

/* How one of the two lists is spoken of. */
struct name_list {
    const char *key, *each, *one, *two;
};

static void check_list(const struct name_list *list, const char *const *field, size_t n, int64_t n_ants,
                       struct config *errors)
{
    char **names = *field ? calloc(n, sizeof(char *)) : NULL;

    if (!names)
        return;
    long n_given = split(*field, names, n);
    if (n_given >= 0 && (size_t)n_given != n) {
        config_error(errors, field, "%s must be %zu, one for each %s%lld antennas, not %ld", list->key, n, list->each,
                     (long long)n_ants, n_given);
    } else if (n_given >= 0) {
        qsort(names, n, sizeof(char *), compare_labels);
        for (size_t i = 0; i < n; i++) {
            if (!xbgpu_label_is_name(names[i]) || is_number(names[i]))
                config_error(errors, field,
                             "%s has letters, digits, '.', '-' and '_', and not digits only, but '%s' is given",
                             list->one, names[i]);
            if (i > 0 && strcmp(names[i], names[i - 1]) == 0)
                config_error(errors, field, "two %s %s", list->two, names[i]);
        }
    }
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

void xbgpu_labels_check(const struct xbgpu_config *config, struct config *errors)
{
    static const struct name_list antennas = {"antenna_names", "of ", "an antenna's name", "antennas have the name"};
    static const struct name_list inputs = {"input_labels", "polarisation of ", "an input label",
                                            "inputs have the label"};
    int64_t n_ants = config->recv.n_ants;

    check_list(&antennas, (const char *const *)&config->recv.antenna_names, (size_t)n_ants, n_ants, errors);
    check_list(&inputs, (const char *const *)&config->recv.input_labels, (size_t)n_ants * N_POLS, n_ants, errors);
}
