/* gate_config.h - the section `gates` of xbgpu's YAML.  A gate selects spectra for outputs. */
#ifndef XBGPU_CONFIG_GATE_CONFIG_H
#define XBGPU_CONFIG_GATE_CONFIG_H

#include "common/config/config.h"
#include "common/time/timebase.h"

#include <stdint.h>
#include <stdio.h>

#define XBGPU_GATES_MAX 16

enum xbgpu_gate_kind { XBGPU_GATE_PHASE, XBGPU_GATE_SWITCH };

struct xbgpu_config_gate {
    int kind; /* enum xbgpu_gate_kind */
    char *name;
    int64_t epoch_samples;
    struct decimal epoch_time_s; /* 0: epoch_samples */
    /* phase */
    struct decimal frequency_hz;
    struct decimal frequency_derivative; /* Hz/s */
    struct decimal phase_turns;
    int64_t n_bins;
    struct config_int_list bins;
    double dispersion_measure;     /* pc/cm^3; 0: none */
    double reference_frequency_hz; /* 0: infinite */
    double centre_frequency_hz;
    /* switch */
    int64_t period_samples;
    int64_t on_from_samples;
    int64_t on_until_samples;
};

#define XBGPU_N_GATE_KEYS 15
extern const struct config_key xbgpu_gate_keys[XBGPU_N_GATE_KEYS];
extern const char xbgpu_gate_example[];

struct xbgpu_config;

static inline struct xbgpu_config_gate *xbgpu_config_gate(const struct config_array *gates, size_t i)
{
    return (struct xbgpu_config_gate *)gates->items + i;
}

/* Returns the index of the gate with this name, or -1. */
int xbgpu_find_gate(const struct config_array *gates, const char *name);

/* Checks the keys of gates that depend on each other.  xbgpu_config_check() calls this function. */
void xbgpu_gates_check(const struct xbgpu_config *config, struct config *errors);

/* ---- While running: changed gates -------------------------------------------------------------------------------- */

/* Copies a gate with all memory that it points to.  Returns 0 or -ENOMEM. */
int xbgpu_gate_copy(const struct xbgpu_config_gate *gate, struct xbgpu_config_gate *copy);
void xbgpu_gate_free(struct xbgpu_config_gate *gate);

/* Sets one key of a gate.  The gate's kind and name cannot change.  xbgpu_gate_check() refuses a change between shared
 * decisions and separate decisions of the channels, because the memory for the decisions is already allocated.  Returns
 * 0, or -ENOMEM or -EINVAL with one sentence in 'why'. */
int xbgpu_gate_set(struct xbgpu_config_gate *gate, const char *key, const char *value, char *why, size_t why_bytes);

/* Checks whether a gate can replace 'before'.  Returns 0, or -ENOMEM or -EINVAL with one sentence in 'why'. */
int xbgpu_gate_check(const struct xbgpu_config *config, const struct xbgpu_config_gate *before,
                     const struct xbgpu_config_gate *gate, char *why, size_t why_bytes);

/* Writes each key that applies to the gate and can be set, with the key's value, as: 'before' KEY 'between' VALUE
 * 'after'. */
void xbgpu_gate_write(const struct xbgpu_config_gate *gate, const char *before, const char *between, const char *after,
                      FILE *out);

#endif
