/* labels.c - names of antennas and inputs. */
#include "common/engine/labels.h"

#include "common/config/config.h"
#include "common/base/units.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Splits the text and copies its first 'max' labels to labels[].  Returns the number of labels in the text, or
 * -ENOMEM. */
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

/* Fills names[n] from the text.  If 'text' is NULL, sets names[i] to the result of name(labels, i).  Returns 0 or
 * -ENOMEM. */
static int fill(const char *text, char **names, size_t n, char *(*name)(const struct labels *labels, size_t i),
                const struct labels *labels)
{
    if (text)
        return split(text, names, n) < 0 ? -ENOMEM : 0;
    for (size_t i = 0; i < n; i++)
        if (!(names[i] = name(labels, i)))
            return -ENOMEM;
    return 0;
}

static char *antenna_name(const struct labels *labels, size_t i)
{
    char *name;

    return asprintf(&name, "a%zu", i) < 0 ? NULL : name;
}

static char *input_label(const struct labels *labels, size_t i)
{
    char *label;

    return asprintf(&label, "%s%c", labels->antennas[i / N_POLS], "vh"[i % N_POLS]) < 0 ? NULL : label;
}

static bool is_number(const char *text)
{
    return *text && !text[strspn(text, "0123456789")];
}

/* Returns a copy of the common beginning of an antenna's two labels, without '.', '-' and '_' at its end.  Returns NULL
 * if there is no memory. */
static char *stem_of(const char *label1, const char *label2)
{
    size_t n = 0;

    while (label1[n] && label1[n] == label2[n])
        n++;
    while (n > 0 && strchr(".-_", label1[n - 1]))
        n--;
    return strndup(label1, n);
}

/* Names each antenna by the common beginning of the antenna's two labels.  If a beginning is empty or a number, or if
 * two antennas have the same beginning, changes no name.  Returns 0 or -ENOMEM. */
static int name_by_labels(struct labels *labels)
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

static int make_room(struct labels *labels, size_t n_ants)
{
    *labels = (struct labels){calloc(n_ants * N_POLS, sizeof(char *)), calloc(n_ants, sizeof(char *)), n_ants * N_POLS};
    return labels->labels && labels->antennas ? 0 : -ENOMEM;
}

int labels_init(struct labels *labels, size_t n_ants, const char *antenna_names, const char *input_labels)
{
    int err = make_room(labels, n_ants);

    if (!err)
        err = fill(antenna_names, labels->antennas, n_ants, antenna_name, labels);
    if (!err)
        err = fill(input_labels, labels->labels, labels->n, input_label, labels);
    return err || antenna_names || !input_labels ? err : name_by_labels(labels);
}

int labels_init_named(struct labels *labels, size_t n_ants, const char *(*name)(const void *arg, size_t ant),
                      const void *arg)
{
    int err = make_room(labels, n_ants);

    for (size_t i = 0; !err && i < n_ants; i++)
        if (!(labels->antennas[i] = strdup(name(arg, i))))
            err = -ENOMEM;
    return err ? err : fill(NULL, labels->labels, labels->n, input_label, labels);
}

void labels_fini(struct labels *labels)
{
    for (size_t i = 0; labels->labels && i < labels->n; i++)
        free(labels->labels[i]);
    for (size_t i = 0; labels->antennas && i < labels->n / N_POLS; i++)
        free(labels->antennas[i]);
    free(labels->labels);
    free(labels->antennas);
    *labels = (struct labels){0};
}

long labels_find(const struct labels *labels, const char *text, size_t n)
{
    size_t number = 0, n_digits = 0;

    for (; n_digits < n && isdigit((unsigned char)text[n_digits]); n_digits++)
        number = number < labels->n ? number * 10 + (size_t)(text[n_digits] - '0') : number;
    if (n > 0 && n_digits == n)
        return number < labels->n ? (long)number : -1;
    for (size_t i = 0; i < labels->n; i++)
        if (strlen(labels->labels[i]) == n && memcmp(labels->labels[i], text, n) == 0)
            return (long)i;
    return -1;
}

void labels_write(const struct labels *labels, FILE *out)
{
    for (size_t i = 0; i < labels->n; i++)
        fprintf(out, "%s'%s'", i ? ", " : "[", labels->labels[i]);
    fputc(']', out);
}

void labels_write_products(const struct labels *labels, FILE *out)
{
    const char *between = "[";

    for (size_t a2 = 0; a2 < labels->n / N_POLS; a2++)
        for (size_t a1 = 0; a1 <= a2; a1++)
            for (size_t product = 0; product < N_POL_PRODUCTS; product++, between = ", ")
                fprintf(out, "%s('%s', '%s')", between, labels->labels[a1 * N_POLS + product % N_POLS],
                        labels->labels[a2 * N_POLS + product / N_POLS]);
    fputc(']', out);
}

bool labels_is_name(const char *text)
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

/* Words that differ between messages about antenna_names and messages about input_labels. */
struct name_list {
    const char *key, *each, *one, *two;
};

static void check_list(const struct name_list *list, const char *const *field, size_t n, size_t n_ants,
                       struct config *errors)
{
    if (!*field)
        return;
    char **names = calloc(n, sizeof(char *));
    long n_given = names ? split(*field, names, n) : -ENOMEM;
    if (n_given < 0) {
        config_lacks_memory(errors);
    } else if ((size_t)n_given != n) {
        config_error(errors, field, "%s must have %zu items, one for each %s%zu antennas, not %ld", list->key, n,
                     list->each, n_ants, n_given);
    } else {
        qsort(names, n, sizeof(char *), compare_labels);
        for (size_t i = 0; i < n; i++) {
            if (!labels_is_name(names[i]) || is_number(names[i]))
                config_error(
                    errors, field,
                    "%s must consist of letters, digits, '.', '-' and '_', and not of digits only, but '%s' is given",
                    list->one, names[i]);
            if (i > 0 && strcmp(names[i], names[i - 1]) == 0)
                config_error(errors, field, "two %s %s", list->two, names[i]);
        }
    }
    for (size_t i = 0; names && i < n; i++)
        free(names[i]);
    free(names);
}

void labels_check(const char *const *antenna_names, const char *const *input_labels, size_t n_ants,
                  struct config *errors)
{
    static const struct name_list antennas = {"antenna_names", "of ", "an antenna's name", "antennas have the name"};
    static const struct name_list inputs = {"input_labels", "polarisation of ", "an input label",
                                            "inputs have the label"};

    check_list(&antennas, antenna_names, n_ants, n_ants, errors);
    check_list(&inputs, input_labels, n_ants * N_POLS, n_ants, errors);
}
