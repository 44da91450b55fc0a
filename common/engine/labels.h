/* labels.h - names of antennas and labels of inputs.  A label or the number 2 * ant + pol identifies an input.
 *
 * Threads: any; nothing changes after labels_init(). */
#ifndef COMMON_ENGINE_LABELS_H
#define COMMON_ENGINE_LABELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct config;

struct labels {
    char **labels;   /* [n] labels of inputs */
    char **antennas; /* [n / 2] names of antennas */
    size_t n;
};

/* Takes names and labels from texts, separated by commas or spaces.  Without antenna_names (NULL), an antenna's name is
 * the common beginning of its two labels.  This needs input_labels, and a different beginning for each antenna.
 * Otherwise the names are a0, a1...  Without input_labels, a label is the antenna's name with v for polarisation 0 and
 * h for 1.  Returns 0 or -ENOMEM.  Call labels_fini() in either case. */
int labels_init(struct labels *labels, size_t n_ants, const char *antenna_names, const char *input_labels);

/* Makes labels in the same way for antennas called name(arg, ant). */
int labels_init_named(struct labels *labels, size_t n_ants, const char *(*name)(const void *arg, size_t ant),
                      const void *arg);

void labels_fini(struct labels *labels);

/* Finds an input by its number or its label, the 'n' characters at 'text'.  Returns -1 if there is no such input. */
long labels_find(const struct labels *labels, const char *text, size_t n);

/* Writes the labels as a Python list. */
void labels_write(const struct labels *labels, FILE *out);

/* Writes the order of a dump's products as a Python list of pairs of labels: first the input that is taken as it is,
 * then the conjugated input. */
void labels_write_products(const struct labels *labels, FILE *out);

/* Checks the configuration's two keys: as many names as antennas and labels as inputs, no two alike, none a number. */
void labels_check(const char *const *antenna_names, const char *const *input_labels, size_t n_ants,
                  struct config *errors);

/* Returns whether a text has only letters, digits, '.', '-' and '_'.  Names of sensors contain these names. */
bool labels_is_name(const char *text);

#endif
