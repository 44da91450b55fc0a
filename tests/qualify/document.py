"""docs/qualification.md: the tables, and the method of the measurements."""

TEXT = """# Qualification of the F-engine

```sh
make qualify-f                                          # measures, prints, writes this page; a few minutes on two cores
CBF_TEST_DEVICE=cuda make qualify-f                     # the same on a GPU
make qualify-f QUALIFY_FLAGS="--channels 512 --quick"   # a minute at most, prints only; part of make check-all
```

Measured on {date} with commit {commit}, device {device}, in {seconds} s. The first column gives the number of the
requirement for the array (CBF-REQ-...), if the row measures a requirement. A *goal* is a limit of this project. A row
passes if it meets the requirement and the goal.

## Channels

The filter uses 16 taps, a Hann window and cut-off 1. The sample rate is 1712 MHz. `fgpu` reads 16-bit samples and
writes 8-bit voltages with uniform dither.

{channels}
{plots}## Narrow bands
{narrow}
The next table shows the filters alone. The filters use the taps that fgpu designs, rounded to float32 as in fgpu:

{ddc}
## How it is measured

The real `fgpu` replays packets that `tests/qualify` writes. The output is compared with the requirement or with a model
in float64 (`tests/models/fmodel.py`), never with the output of `fgpu` itself. The exit status is 0 if every row passes.
A failure that this page explains does not change the exit status.

**Below one step of 8 bits.** If a tone has an amplitude of 110 steps, a spur of -80 dB has an amplitude of 0.01 steps.
Two methods make the spur visible. The first method gives six copies of the input gains from 1 to 7776, each 6 times the
previous gain. Gains are applied between filter bank and rounding. Every channel is read at the highest gain at which
the channel does not saturate. The relative effect of dither and rounding is then as small as for a tone near full
scale. The second method averages many spectra. For spurs it averages their power, and for shape and phase their complex
values. The remaining error is noise of the input, because the samples are dithered and rounded to 16 bits. The tables
give the noise of the measurement beside each figure. With 10-bit samples this noise alone would be 36 dB higher.

**Spurs and leakage.** The input contains tones at the centres of 11 channels across the band. Further tones lie at 128
offsets from their channels' centres, 32 tones at a time. The tones are 1/32 of the band apart. The prototype filter
limits both the spurs and the leakage. The response of the filter is -80.4 dB at the centre of the neighbouring channel,
and lower at greater distances.

**Phases.** The input contains a tone at the centre of every channel. All tones are known exactly. The reference is the
same signal, delayed by interpolation in float64. The phase of every channel is compared with the reference. The delay
does not change the phase at the centre of the band. The noise of each phase comes from dither and rounding. In each
component this noise is 0.41 steps (at an amplitude of 110 steps), divided by the square root of the number of spectra.
The phase of channel 0 is undefined.

In each channel `fgpu` applies the fractional-sample delay as one phase, which is exact at the channel's centre. At the
channel's edges the phase error is at most the phase of half a sample over half a channel. This error is 45 / channels
degrees (0.044 degrees with 1024 channels).

**Rates.** One polarisation receives the drifting signal. The other polarisation receives the same signal without drift,
and a model adds the drift. The phases of both polarisations must agree. A delay model is evaluated once for each
spectrum, at the spectrum's timestamp. The timestamp is the *first* sample of the window. The output of the filter bank
belongs to the middle of the window. The middle of the window is later than its first sample by the group delay, (taps x
2 channels - 1) / 2 samples. The models of this test therefore give the delay at the middle. If a model gives the delay
at the start of the window instead, its delays are half a window old. The row "model at the window's start" shows the
resulting constant phase (at 32768 channels and 2.56 ns/s, 0.14 degrees rms).

**Levels.** There are four inputs:

* Random gains in every channel.
* Voltages of 0.2 to 3 steps. The dither must have the right mean and add no more noise than necessary. The dither must
  be independent between real and imaginary parts, polarisations, channels and spectra.
* Voltages beyond full scale. The counters of fgpu must give the exact number of these voltages.
* An impulse. The phases of its spectrum show its position in the samples.

**Narrow bands.** The input contains the same tones with the same delays. The input also contains tones of full scale
outside the band, at frequencies that fold into the band. Delays are measured relative to the polarisation without
delay, with a tone in every second channel. Folded tones are far below the noise of the measurement. The table gives the
largest of hundreds of thousands of values, which is well above the mean of the noise. At the highest gain, dither
raised this value by a step or two.

Rows 0187 and 0188 fail if a spectrum is longer than 0.4 ms. `fgpu` evaluates a model once for each spectrum. The result
of these rows follows from the sample rate. The rows therefore also name each band in which they would fail, in addition
to the measured band (L). The sample rate of band U is the lowest.

**Not measured here.** Requests and their durations (0066, 0119: all gains must be set within 30 s) belong to the
control interface.

Next: [decisions](decisions/README.md) lists the choices and their evidence.
"""


def write(path, tables, about, plots):
    pictures = ("![The shape of a channel](images/qualification-shape.svg)\n\n"
                "![A tone and its spurs](images/qualification-spurs.svg)\n\n") if plots else ""
    path.write_text(TEXT.format(channels=tables[0], ddc=tables[2],
                                narrow=f"\n{tables[1]}" if tables[1] else "", plots=pictures, **about))
