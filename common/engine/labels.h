/* labels.h - names of antennas and labels of inputs.  An input is identified by its label or by its number, 2 * ant +
 * pol.
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

/* Splits the two texts, whose items are separated by commas or spaces.  If antenna_names is NULL, an antenna's name is
 * the common beginning of its two labels.  If input_labels is NULL, too, or if two antennas have the same beginning,
 * the names are a0, a1...  If input_labels is NULL, a label is the antenna's name, followed by v for polarisation 0 or
 * h for polarisation 1.  Returns 0 or -ENOMEM.  Call labels_fini() in either case. */
int labels_init(struct labels *labels, size_t n_ants, const char *antenna_names, const char *input_labels);

/* Initialises labels for antennas whose names are name(arg, ant).  A label is the antenna's name, followed by v or
 * h. */
int labels_init_named(struct labels *labels, size_t n_ants, const char *(*name)(const void *arg, size_t ant),
                      const void *arg);

void labels_fini(struct labels *labels);

/* Finds the input whose number or label equals the 'n' characters at 'text'.  Returns the input's number, or -1 if
 * there is no such input. */
long labels_find(const struct labels *labels, const char *text, size_t n);

/* Writes the labels as a Python list. */
void labels_write(const struct labels *labels, FILE *out);

/* Writes the order of a dump's visibilities as a Python list of pairs of labels.  The second input of each pair is
 * conjugated in the product. */
void labels_write_products(const struct labels *labels, FILE *out);

/* Checks the keys antenna_names and input_labels.  Each antenna needs one name, and each input one label.  Names must
 * be unique and must not be numbers.  Labels must also be unique and must not be numbers. */
void labels_check(const char *const *antenna_names, const char *const *input_labels, size_t n_ants,
                  struct config *errors);

/* Returns true if a text has only letters, digits, '.', '-' and '_', which names of sensors may contain. */
bool labels_is_name(const char *text);

#endif
