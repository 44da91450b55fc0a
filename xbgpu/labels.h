/* labels.h - what antennas and inputs are called: an input by a label, or by its number 2 * ant + pol.
 *
 * Threads: any; nothing changes after xbgpu_labels_init(). */
#ifndef XBGPU_LABELS_H
#define XBGPU_LABELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct config;
struct xbgpu_config;

struct xbgpu_labels {
    char **labels;   /* [n] of inputs */
    char **antennas; /* [n / 2] */
    size_t n;
};

/* Names as configured; else what the two labels of an antenna begin with, if labels are configured and that tells all
 * antennas apart; else a0, a1...  Labels as configured, else the antenna's name with v for polarisation 0 and h for
 * 1.  Returns 0 or -ENOMEM; fini follows in either case. */
int xbgpu_labels_init(struct xbgpu_labels *labels, const struct xbgpu_config *config);
void xbgpu_labels_fini(struct xbgpu_labels *labels);

/* The input that is called so, or -1. */
long xbgpu_labels_find(const struct xbgpu_labels *labels, const char *text);

/* Writes them as a list in Python. */
void xbgpu_labels_write(const struct xbgpu_labels *labels, FILE *out);

/* Writes the order of a dump's products as a list of pairs of labels in Python: that of the input that is taken as it
 * is, and of the one that is conjugated. */
void xbgpu_labels_write_products(const struct xbgpu_labels *labels, FILE *out);

/* For xbgpu_config_check(): as many names as antennas and labels as inputs, no two alike, none a number. */
void xbgpu_labels_check(const struct xbgpu_config *config, struct config *errors);

/* Letters, digits, '.', '-' and '_': what sensors may be called, and so all that they are of. */
bool xbgpu_label_is_name(const char *text);

#endif
