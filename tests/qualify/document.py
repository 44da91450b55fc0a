"""docs/qualification.md: the tables, and the method of the measurements."""

TEXT = """# Qualification of the F-engine

```sh
make qualify-f                                          # measures, prints, writes this page; a few minutes on two cores
CBF_TEST_DEVICE=cuda make qualify-f                     # the same on a GPU
make qualify-f QUALIFY_FLAGS="--channels 512 --quick"   # a minute at most, prints only; part of make check-all
```

Measured on {date} with commit {commit}, device {device}, in {seconds} s. The first column gives the number of the
array's requirement (CBF-REQ-...), if the row measures one. A *goal* is this project's own. A row passes if it meets
both.

## Channels

The filter uses 16 taps, a Hann window and cut-off 1. The sample rate is 1712 MHz. `fgpu` reads 16-bit samples and
writes 8-bit voltages with uniform dither.

{channels}
{plots}## Narrow bands
{narrow}
The next table shows the filters alone. It uses the taps that fgpu designs, in float32 as fgpu stores them:

{ddc}
## How it is measured

The real `fgpu` replays packets that `tests/qualify` writes. The output is compared with the requirement or with a model
in float64 (`tests/models/fmodel.py`), never with the output of `fgpu` itself. The exit status is 0 if every row passes.
Failures that this page explains do not change the exit status.

**Below one step of 8 bits.** A spur of -80 dB is 0.01 steps high if the tone is 110 steps high. Two methods make the
spur visible. Six copies of the input are multiplied by gains from 1 to 7776, each 6 times the gain before. Gains are
applied between filter bank and rounding. Every channel is read at the highest gain at which the channel does not
saturate. Dither and rounding then matter as little as near full scale. The second method averages spectra: power for
spurs, complex values for shape and phase. The remaining error is noise of the input: the samples are dithered and
rounded to 16 bits. The tables give the noise of the measurement beside each figure. With 10-bit samples this noise
alone would be 36 dB higher.

**Spurs and leakage.** The input contains tones at the centres of 11 channels all over the band. Further tones lie at
128 offsets from their channels' centres, 32 tones at a time. The tones are 1/32 of the band apart. The prototype filter
limits both figures. The response of the filter is -80.4 dB at the centre of the neighbouring channel, and lower further
away.

**Phases.** The input contains a tone at the centre of every channel and is known exactly. The phase of every channel is
compared with the phase of the same signal, delayed (interpolated in float64). This delay leaves the phase at the centre
of the band unchanged. The noise of each phase comes from dither and rounding. In each component this noise is 0.41 of
110 steps, divided by the root of the number of spectra. The phase of channel 0 is undefined.

In each channel the delay becomes one phase, and this phase is right at the channel's centre. At a channel's edges the
phase is wrong by up to the phase of half a sample over half a channel. This error is 45 / channels degrees (0.044
degrees with 1024 channels).

**Rates.** One polarisation receives the drifting signal. The other polarisation receives the same signal without drift,
and a model adds the drift. Their phases must agree. A delay model is evaluated once for each spectrum, at the
spectrum's timestamp. The timestamp is the *first* sample of the window. The filter bank responds for the middle of the
window. The middle is (taps x 2 channels - 1) / 2 samples later, the group delay. The models here therefore give the
delay of the middle. A model that gives the delay of the window's start lags the middle by half a window. The row "model
at the window's start" shows the resulting constant phase (at 32768 channels and 2.56 ns/s, 0.14 degrees rms).

**Levels.** There are four inputs:

* Random gains in every channel.
* Voltages of 0.2 to 3 steps. Their dither must be right on average, no noisier than necessary, and independent between
  parts, polarisations, channels and spectra.
* Voltages beyond full scale. fgpu's counters must give their number exactly.
* An impulse. The phases of its spectrum show its place among the samples.

**Narrow bands.** The input contains the same tones with the same delays. The input also contains tones of full scale
outside the band, at frequencies that fold into the band. Delays are compared with the polarisation without delay, with
a tone in every second channel. Folded tones are far below the visible range. The strongest of hundreds of thousands of
figures is well above the mean of the noise. At the highest gain dither lifted this figure by a step or two.

Rows 0187 and 0188 fail if a spectrum is longer than 0.4 ms. A model's value holds for a whole spectrum, and there is
one value for each spectrum. The row follows from the sample rate. The row therefore names each band in which it fails,
besides the measured band (L). The sample rate of band U is the lowest.

**Not here.** Requests and their times (0066, 0119: all gains set within 30 s) belong to the control
interface.

Next: [decisions](decisions/README.md) lists the choices and their evidence.
"""


def write(path, tables, about, plots):
    pictures = ("![The shape of a channel](images/qualification-shape.svg)\n\n"
                "![A tone and its spurs](images/qualification-spurs.svg)\n\n") if plots else ""
    path.write_text(TEXT.format(channels=tables[0], ddc=tables[2],
                                narrow=f"\n{tables[1]}" if tables[1] else "", plots=pictures, **about))
