/* labels.h - what antennas and inputs are called: an input by a label, or by its number 2 * ant + pol.
 *
 * Threads: any; nothing changes after labels_init(). */
#ifndef COMMON_ENGINE_LABELS_H
#define COMMON_ENGINE_LABELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct config;

struct labels {
    char **labels;   /* [n] of inputs */
    char **antennas; /* [n / 2] */
    size_t n;
};

/* Names as the texts have them, separated by commas or spaces.  Without antenna_names (NULL), an antenna's name is what
 * its two labels begin with, if labels are given and that tells all antennas apart; else a0, a1...  Without input_labels,
 * a label is the antenna's name with v for polarisation 0 and h for 1.  Returns 0 or -ENOMEM; fini follows in either
 * case. */
int labels_init(struct labels *labels, size_t n_ants, const char *antenna_names, const char *input_labels);

/* The same with antennas that are called name(arg, ant). */
int labels_init_named(struct labels *labels, size_t n_ants, const char *(*name)(const void *arg, size_t ant),
                      const void *arg);

void labels_fini(struct labels *labels);

/* The input that the 'n' characters at 'text' call by its number or its label, or -1. */
long labels_find(const struct labels *labels, const char *text, size_t n);

/* Writes them as a list in Python. */
void labels_write(const struct labels *labels, FILE *out);

/* Writes the order of a dump's products as a list of pairs of labels in Python: that of the input that is taken as it
 * is, and of the one that is conjugated. */
void labels_write_products(const struct labels *labels, FILE *out);

/* For a check of the configuration's two keys: as many names as antennas and labels as inputs, no two alike, none a
 * number. */
void labels_check(const char *const *antenna_names, const char *const *input_labels, size_t n_ants,
                  struct config *errors);

/* Letters, digits, '.', '-' and '_': what sensors may be called, and so all that they are of. */
bool labels_is_name(const char *text);

#endif
