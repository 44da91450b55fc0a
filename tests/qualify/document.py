"""docs/qualification.md: the tables, and the method of the measurements."""

TEXT = """# Qualification of the F-engine

```sh
make qualify-f                                          # measures, prints, writes this page; a few minutes on two cores
CBF_TEST_DEVICE=cuda make qualify-f                     # the same on a GPU
make qualify-f QUALIFY_FLAGS="--channels 512 --quick"   # a minute at most, prints only; part of make check-all
```

Measured on {date} with commit {commit}, device {device}, in {seconds} s. The requirement is the number of the array's
requirement that a row serves (CBF-REQ-...), where there is one; a *goal* is ours. A row passes if it meets both.

## Channels

16 taps, Hann window, cut-off 1; 1712 MHz; 16-bit samples in, 8-bit voltages out, uniform dither.

{channels}
{plots}## Narrow bands
{narrow}
The filters by themselves, from the taps that fgpu designs, in the float32 in which it stores them:

{ddc}
## How it is measured

The real `fgpu` replays packets made by `tests/qualify`, and what it sends is compared with the requirement or with a
model in float64 (`tests/models/fmodel.py`), never with its own output. The exit status
says whether every row passes, but for misses that are explained here.

**Below one step of 8 bits.** A spur of -80 dB is 0.01 steps beside a tone of 110. Two things make it visible. Six
copies of the input have gains from 1 to 7776, each 6 times the one before; gains are applied between filter bank and
rounding, so every channel is read at the highest gain at which it does not saturate, and dither and rounding count
for as little as they do near full scale. And spectra are averaged: power for spurs, complex values for shape and
phase. The rest is noise of the input: the samples have 16 bits and dither, and the tables give the noise of the
measurement beside each figure. With 10-bit samples that noise alone would be 36 dB higher.

**Spurs and leakage.** Tones at the centres of 11 channels all over the band, and tones at 128 offsets from their
channels' centres, 32 at a time, 1/32 of the band apart. The prototype filter limits both figures: it has
-80.4 dB at the centre of the neighbouring channel; everything further away is below.

**Phases.** The input has a tone at the centre of every channel and is known exactly. The phase of every channel is
compared with the phase of the same signal delayed (interpolated in float64), in which the delay leaves the centre of
the band as it is. The noise of each phase is that of dither and rounding, 0.41 steps of 110 in each component, over
the root of the number of spectra. Channel 0 has no phase.

The delay is one phase in each channel, right at its centre: at a channel's edges a delay is off by up to half a
sample's phase over half a channel, 45 / channels degrees (0.044 with 1024).

**Rates.** One polarisation has the drifting signal, the other the same signal still, and a model that lets it drift;
their phases must agree. A delay model is evaluated once for each spectrum, at its timestamp, which is that of the
*first* sample of its window, and the filter bank answers for the middle: (taps x 2 channels - 1) / 2 samples later,
the group delay. So the models here give the delay of that middle. A model that does not is late by half a window; the
row "model at the window's start" shows what that costs, a constant phase (at 32768 channels and 2.56 ns/s, 0.14
degrees rms).

**Levels.** Random gains in every channel; voltages of 0.2 to 3 steps, of which dither must be right on average, no
noisier than it has to be and independent between parts, polarisations, channels and spectra; voltages beyond full
scale, whose number fgpu's counters must give exactly; and an impulse, whose place among the samples the phases of its
spectrum show.

**Narrow bands.** The same tones and delays, and tones of full scale outside the band at frequencies that fold into
it. Delays are held against the polarisation without one, with a tone in every second channel. Folded tones are far below
what can be seen: the strongest of hundreds of thousands of figures is one that dither has lifted by a step or two at
the highest gain, well above the mean of the noise. Rows 0187 and 0188 miss where a spectrum is longer than 0.4 ms: a
model's value holds for a whole spectrum, and there are no more of them. The row follows from the sample rate, so it
names each band in which it fails, not only the one that is measured here (L): U has the lowest sample rate.

**Not here.** Requests and their times (0066, 0119: all gains set within 30 s) belong to the control
interface.

Next: [decisions](decisions/README.md) has the choices and their evidence.
"""


def write(path, tables, about, plots):
    pictures = ("![The shape of a channel](images/qualification-shape.svg)\n\n"
                "![A tone and its spurs](images/qualification-spurs.svg)\n\n") if plots else ""
    path.write_text(TEXT.format(channels=tables[0], ddc=tables[2],
                                narrow=f"\n{tables[1]}" if tables[1] else "", plots=pictures, **about))
