/* beam_coefficients.cu - see beam_coefficients.h.
 *
 * A warp has one beam in one channel: its lanes take the antennas by turns, once for the largest part, and once more for
 * the coefficients.  The largest part is the same in any order.  'fragments' is not NULL here. */
#include "kernels/beamform/beam_coefficients.h"

extern "C" __global__ void beam_coefficients(const struct beam_coefficients_args args)
{
    const uint64_t warp = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const uint32_t n = beam_coefficients_n(&args), chan = (uint32_t)(warp / n);
    float most = 0;

    if (chan >= args.n_chan)
        return;
    const uint32_t beam = beam_coefficients_beam(&args, (uint32_t)(warp % n));
    const struct beam_steering *model = beam_coefficients_model(&args, beam);
    const uint64_t row = (uint64_t)chan * args.n_beams + beam;
    for (uint32_t ant = threadIdx.x % 32; ant < args.n_ants; ant += 32) {
        const struct beam_complex c = beam_coefficient(&args, &model[ant], beam, ant, chan);
        most = fmaxf(most, fmaxf(fabsf(c.re), fabsf(c.im)));
    }
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2)
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, lanes));
    const int32_t exponent = beam_exponent(most);
    const float scale = beam_power_of_two(exponent);
    if (threadIdx.x % 32 == 0)
        args.exponents[row] = exponent;
    int8_t *fragments = args.fragments + chan * beam_fragments_chan_bytes(args.n_slots, args.n_ants);
    for (uint32_t ant = threadIdx.x % 32; ant < beam_fragments_steps(args.n_ants) * BEAM_STEP_ANTS; ant += 32) {
        short2 value = make_short2(0, 0);
        if (ant < args.n_ants) {
            const struct beam_complex c = beam_coefficient(&args, &model[ant], beam, ant, chan);
            value = make_short2((short)__float2int_rn(c.re * scale), (short)__float2int_rn(c.im * scale));
            ((short2 *)args.coefficients)[row * args.n_ants + ant] = value;
        }
        beam_fragments_put(fragments, args.n_ants, args.slot_of[beam], ant, value.x, value.y);
    }
}
