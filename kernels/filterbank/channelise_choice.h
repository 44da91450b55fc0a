/* channelise_choice - how channelise works best for given sizes on the GPU found, as measured once (channelise_tune.h).
 *
 * Kept as a small text file for each model of GPU and set of sizes, in the directory that also keeps compiled kernels:
 * lines "key: value", which say what they are for and what was chosen.  Written wholly or not at all, so processes may
 * write the same one at once.  Whatever may be in it by accident, an older version or somebody's hand, what is taken from
 * it is valid; else it is ignored.  It can be removed at any time.
 *
 * Threads: any. */
#ifndef KERNELS_FILTERBANK_CHANNELISE_CHOICE_H
#define KERNELS_FILTERBANK_CHANNELISE_CHOICE_H

#include "kernels/filterbank/channelise.h"
#include "kernels/filterbank/channelise_fused.h"

/* Zeroed, it stands for the defaults. */
struct channelise_choice {
    enum channelise_method method;
    unsigned unzip; /* stages; 0: the default */
    struct channelise_shape shape;
};

/* What a choice is for. */
struct channelise_work {
    struct channelise_config config; /* its method, shape and unzip, the filter and the dither's numbers do not count */
    size_t append_spectra;           /* that are usually appended at a time */
};

/* Sets method, unzip and shape of 'config', which then points to the choice. */
void channelise_choice_apply(const struct channelise_choice *choice, struct channelise_config *config);

/* A shape out of "NAME=VALUE ...", which is changed: numbers by their names, on top of what is good for the number of rows
 * given, or for the default's.  Returns 0, or -EINVAL where there is no such name or a value is none; the shape need not be
 * valid. */
int channelise_choice_parse(const struct channelise_config *config, size_t shared_bytes, char *text,
                            struct channelise_choice *choice);

/* "fused, front_rows 64, ...", for people. */
void channelise_choice_format(const struct channelise_choice *choice, char *text, size_t text_bytes);

/* The file's path, for people.  "" where the device has no directory. */
void channelise_choice_path(struct device *device, const struct channelise_work *work, char *path, size_t path_bytes);

/* Returns 0, -ENOENT where there is none, or other negative errno where there is one of no use, with a sentence in
 * 'why'. */
int channelise_choice_load(struct device *device, const struct channelise_work *work, struct channelise_choice *choice,
                           char *why, size_t why_bytes);

/* The directory must be there.  Returns 0 or negative errno. */
int channelise_choice_store(struct device *device, const struct channelise_work *work,
                            const struct channelise_choice *choice);

#endif
