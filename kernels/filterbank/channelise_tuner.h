/* channelise_tuner - the candidate shapes of channelise's CUDA kernels (common/device/tuner.h).
 *
 * The front and the back of a wide band are measured separately.  Both depend on front_rows.  front_rows and the
 * radices decide the order of sums, so they are the same in all candidates.  In a narrow band only the front has
 * several shapes.  The stages have no candidates. */
#ifndef KERNELS_FILTERBANK_CHANNELISE_TUNER_H
#define KERNELS_FILTERBANK_CHANNELISE_TUNER_H

#include "common/device/tuner.h"
#include "kernels/filterbank/channelise_fused.h"
#include "kernels/filterbank/channelise_narrow.h"

/* All three tuners get their sizes as a struct channelise_config.  The tuners ignore some fields of this struct:
 * method, shapes, unzip, filter, power and the dither's numbers.  The shapes of the first two tuners are struct
 * channelise_shape.  Each of these two tuners sets the fields of one kernel, and leaves default values in the fields of
 * the other kernel.  The shapes of the third tuner are struct channelise_narrow_shape. */
extern const struct tuner_kernel channelise_front_tuner, channelise_back_tuner, channelise_narrow_tuner;

/* Shapes of one output.  A shape of zeros means the default. */
struct channelise_choice {
    struct channelise_shape shape;
    struct channelise_narrow_shape narrow;
};

/* Makes the shapes of 'config' point to the shapes in 'choice'. */
void channelise_choice_apply(const struct channelise_choice *choice, struct channelise_config *config);

/* Lists valid shapes for 'kernel'.  'kernel' is the front's tuner or the back's tuner.  A listed shape differs from
 * 'base' only in the fields of this kernel.  The list begins with 'base'.  Returns the number of shapes, at most
 * TUNER_MAX_SHAPES. */
size_t channelise_candidates(const struct tuner_kernel *kernel, const struct channelise_config *config,
                             size_t shared_bytes, const struct channelise_shape *base, struct channelise_shape *shapes);

#endif
