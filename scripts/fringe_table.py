#!/usr/bin/env python3
"""Recovers the delays between antennas from the fringes in a UVH5 file of visrec, and checks them.

The signal of antenna a has a delay of d_a samples, so e_a(f) ~ exp(-2 pi i f d_a).  The phase of the correlation
<e_a1 conj(e_a2)> changes by -2 pi (d_a1 - d_a2) / samples_between_spectra from channel to channel.  The exit status
is 1 if a result differs from the expected value.
"""

import argparse
import pathlib
import sys

import numpy as np

import visfile

TOLERANCE_SAMPLES = 0.02
TOLERANCE_SAMPLES_PER_S = 0.02
EDGE_FRACTION = 0.05  # fraction of the band, at each end, that is not fitted
TONE_GUARD_CHANNELS = 4  # channels on each side of the tone that are not fitted
PADDING = 16  # factor of zero padding in the transform that finds the approximate delay
POLS = ("xx", "yy")
TRACKED_PARTS = 8  # parts of the band; the phase is averaged over each part of each dump
TRACKED_RMS_DEG = 1.0


def usable_channels(n_chan, tone_channel):
    usable = np.ones(n_chan, dtype=bool)
    edge = max(1, round(EDGE_FRACTION * n_chan))
    usable[:edge] = usable[n_chan - edge:] = False
    if tone_channel is not None:
        usable[max(0, tone_channel - TONE_GUARD_CHANNELS):tone_channel + TONE_GUARD_CHANNELS + 1] = False
    return usable


def fit_delay(spectrum, usable, samples_between_spectra):
    """Returns the delay of <e_a1 conj(e_a2)> in samples, and its standard error from the scatter of the phases.

    Each channel is scaled to amplitude 1, so neither the band's shape nor an overlooked tone has an influence.  A
    zero-padded transform finds the approximate delay without unwrapping phases.  A line through the remaining phases
    refines the delay.
    """
    n_chan = len(spectrum)
    usable = usable & ~np.ma.getmaskarray(spectrum) & (np.abs(spectrum.filled(0)) > 0)
    if usable.sum() < 8:
        return np.nan, np.nan
    phasors = np.where(usable, np.exp(1j * np.angle(spectrum.filled(1))), 0)
    n_padded = PADDING * n_chan
    peak = int(np.argmax(np.abs(np.fft.ifft(phasors, n_padded))))
    turns_per_channel = (peak if peak < n_padded // 2 else peak - n_padded) / n_padded

    channel = np.flatnonzero(usable)
    centred = channel - channel.mean()
    error = np.nan
    for _ in range(2):  # the second round starts close to the result, so no phase is near +-pi
        rest = phasors[channel] * np.exp(2j * np.pi * turns_per_channel * channel)
        phase = np.angle(rest * np.conj(rest.mean()))
        slope = (centred * phase).sum() / (centred**2).sum()
        turns_per_channel -= slope / (2 * np.pi)
        residual = phase - phase.mean() - slope * centred
        error = np.sqrt((residual**2).sum() / (len(channel) - 2) / (centred**2).sum()) / (2 * np.pi)
    return turns_per_channel * samples_between_spectra, error * samples_between_spectra


def delay_rows(data, delays, tone_channel, samples_between_spectra):
    """Yields (a1, a2, expected delay, recovered delay, error) of each baseline, for one polarisation product."""
    usable = usable_channels(data.vis.shape[2], tone_channel)
    for a1, a2 in data.baselines:
        if a1 != a2:
            spectrum = data.vis[:, data.index(a1, a2)].mean(axis=0).conj()  # the file has conj(e_a1) e_a2
            recovered, error = fit_delay(spectrum, usable, samples_between_spectra)
            yield a1, a2, delays[a1] - delays[a2], recovered, error


def fit_drift(data, a1, a2, tone_channel, samples_between_spectra):
    """Returns the drift of a baseline's delay in samples/s: the slope of a line through the delays of all dumps."""
    usable = usable_channels(data.vis.shape[2], tone_channel)
    delays = np.array([fit_delay(dump.conj(), usable, samples_between_spectra)[0]
                       for dump in data.vis[:, data.index(a1, a2)]])
    known = np.isfinite(delays)
    return np.polyfit(data.unix_s[known] - data.unix_s[0], delays[known], 1)[0] if known.sum() > 1 else np.nan


def print_drifts(sets, drifts, args):
    """Prints the baselines whose delays should drift.  Returns True if all these delays drift as expected."""
    all_good = True
    for a1, a2 in sets[0].baselines:
        expected = drifts[a1] - drifts[a2]
        if a1 == a2 or expected == 0:
            continue
        found = [fit_drift(data, a1, a2, args.tone_channel, args.samples_between_spectra) for data in sets]
        good = all(abs(rate - expected) <= TOLERANCE_SAMPLES_PER_S for rate in found)
        print(f"{sets[0].label(a1, a2)} drifts by {expected:+g} samples/s; recovered "
              + ", ".join(f"{data.pol} {rate:+.4f}" for data, rate in zip(sets, found)) + ("" if good else "  WRONG"))
        all_good = all_good and good
    return all_good


def print_delays(sets, delays, drifts, args):
    """Prints the table; returns True if all delays are as expected."""
    rows = [[row for row in delay_rows(data, delays, args.tone_channel, args.samples_between_spectra)
             if drifts[row[0]] == drifts[row[1]]] for data in sets]
    width = max(len(data.label(a1, a2)) for data in sets[:1] for a1, a2 in data.baselines)
    all_good = True
    print("Delay between antennas, in ADC samples")
    print(f"{'baseline':<{width}}  {'expected':>8}" + "".join(f"  {'recovered ' + data.pol:>22}" for data in sets))
    for per_pol in zip(*rows):
        a1, a2, expected = per_pol[0][:3]
        line = f"{sets[0].label(a1, a2):<{width}}  {expected:>8g}"
        good = True
        for _, _, _, recovered, error in per_pol:
            good = good and abs(recovered - expected) <= TOLERANCE_SAMPLES
            line += f"  {recovered:>12.4f} ± {error:<7.4f}"
        print(line + ("" if good else "  WRONG"))
        all_good = all_good and good
    return all_good


def print_tone(sets, tone_channel):
    """Prints the channel in which each antenna's power peaks.  Returns True if this is always the tone's channel."""
    all_good = True
    print(f"\nChannel in which the power peaks (tone: {tone_channel})")
    for ant, name in enumerate(sets[0].names):
        spectra = [data.vis[:, data.index(ant, ant)].mean(axis=0).filled(0).real for data in sets]
        peaks = [int(np.argmax(spectrum)) if spectrum.any() else None for spectrum in spectra]
        good = all(peak == tone_channel for peak in peaks)
        print(f"{name:<12}" + "".join(f"  {data.pol} {peak!s:>5}" for data, peak in zip(sets, peaks))
              + ("" if good else "  WRONG"))
        all_good = all_good and good
    return all_good


def print_tracked(sets, ant, tone_channel):
    """Prints how stable the phase between an antenna and the first antenna is.  Returns True if the phase stays near
    zero."""
    all_good = True
    for data in sets:
        vis = data.vis[:, data.index(0, ant)][:, usable_channels(data.vis.shape[2], tone_channel)]
        n = vis.shape[1] // TRACKED_PARTS * TRACKED_PARTS
        parts = vis[:, :n].reshape(len(vis), TRACKED_PARTS, -1).filled(0).mean(axis=2)
        phases = np.degrees(np.angle(parts[np.all(parts != 0, axis=1)]))  # flagged data have no phase
        if len(phases) == 0:
            print(f"{data.label(0, ant)}  {data.pol}: all data are flagged  WRONG")
            return False
        rms = np.sqrt(np.mean(phases**2))
        good = bool(rms <= TRACKED_RMS_DEG)
        print(f"{data.label(0, ant)}  {data.pol}: phase {rms:.2f} deg rms over time and band; {phases[0].mean():+.2f} "
              f"deg in the first dump, {phases[-1].mean():+.2f} in the last" + ("" if good else "  WRONG"))
        all_good = all_good and good
    return all_good


def parse_numbers(text):
    try:
        return [float(item) for item in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: not a list of numbers such as 0,5,-3,17") from None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path, help="UVH5 file")
    parser.add_argument("--delays", type=parse_numbers, required=True,
                        help="expected delay of each antenna in samples, e.g. --delays=0,5,-3,17")
    parser.add_argument("--drifts", type=parse_numbers,
                        help="drift of each antenna's delay in samples/s; default: no drift")
    parser.add_argument("--tone-channel", type=int, help="channel in which a tone was injected")
    parser.add_argument("--tracked", type=int, action="append",
                        help="number of an antenna whose delay model removes the drift; the antenna's phase must be 0")
    parser.add_argument("--samples-between-spectra", type=int,
                        help="ADC samples between spectra; default: 2 * channels, as in a wideband stream")
    parser.add_argument("--lost-heaps", type=int, help="number of lost heaps to print; any lost heap is an error")
    args = parser.parse_args()
    try:
        sets = [visfile.load(args.file, pol) for pol in POLS]
    except visfile.Unreadable as error:
        print(error, file=sys.stderr)
        return 2
    drifts = args.drifts or [0.0] * len(args.delays)
    for option, values in (("delays", args.delays), ("drifts", drifts)):
        if len(values) != len(sets[0].names):
            print(f"--{option}: {len(values)} given for {len(sets[0].names)} antennas", file=sys.stderr)
            return 2
    args.samples_between_spectra = args.samples_between_spectra or 2 * len(sets[0].freqs_hz)

    good = print_delays(sets, args.delays, drifts, args)
    good = print_drifts(sets, drifts, args) and good
    if args.tone_channel is not None:
        good = print_tone(sets, args.tone_channel) and good
    if args.tracked:
        print("\nFringes stopped by a delay model")
        for ant in args.tracked:
            good = print_tracked(sets, ant, args.tone_channel) and good
    flagged = np.mean([np.ma.getmaskarray(data.vis).mean() for data in sets])
    print(f"\n{len(sets[0].unix_s)} dumps of {sets[0].integration_s:.4g} s, {100 * flagged:.3g} % flagged"
          + (f", {args.lost_heaps} heaps lost" if args.lost_heaps is not None else ""))
    good = good and not args.lost_heaps
    print("All as expected." if good else "NOT as expected.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
