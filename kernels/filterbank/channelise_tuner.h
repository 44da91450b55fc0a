/* channelise_tuner - the candidate shapes of channelise's CUDA kernels (common/device/tuner.h).
 *
 * The front and the back of a wide band are measured one without the other.  Both depend on front_rows.  front_rows and
 * the radices decide the order of sums, so they are the same in all candidates.  In a narrow band only the front has
 * different ways to cut its work.  The stages have none. */
#ifndef KERNELS_FILTERBANK_CHANNELISE_TUNER_H
#define KERNELS_FILTERBANK_CHANNELISE_TUNER_H

#include "common/device/tuner.h"
#include "kernels/filterbank/channelise_fused.h"
#include "kernels/filterbank/channelise_narrow.h"

/* Sizes of all three: struct channelise_config; its method, shapes and unzip, the filter, power and the dither's numbers
 * do not count.  Shapes: struct channelise_shape, of which the other kernel's numbers are the default's; struct
 * channelise_shape; struct channelise_narrow_shape. */
extern const struct tuner_kernel channelise_front_tuner, channelise_back_tuner, channelise_narrow_tuner;

/* The shapes of one output.  Zeroed, it stands for the defaults. */
struct channelise_choice {
    struct channelise_shape shape;
    struct channelise_narrow_shape narrow;
};

/* Sets the shapes of 'config', which then points to the choice. */
void channelise_choice_apply(const struct channelise_choice *choice, struct channelise_config *config);

/* Valid shapes that differ from 'base' only in numbers of 'kernel', the front's tuner or the back's, 'base' first.  Returns
 * how many, at most TUNER_MAX_SHAPES. */
size_t channelise_candidates(const struct tuner_kernel *kernel, const struct channelise_config *config,
                             size_t shared_bytes, const struct channelise_shape *base, struct channelise_shape *shapes);

#endif
