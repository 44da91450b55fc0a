"""Phase and coherence of a baseline over frequency, put together from the answers of a stream's X-engines.

An X-engine collects a baseline only while somebody asks for it, and at most four baselines at a time.  So the first
answer for a baseline has no curves.  The controller keeps each answer for a second.
"""

import asyncio
import cmath
import math
import time

import aiohttp

KEPT_S = 1.0
MAX_PAIRS = 4  # number of baselines that X-engines collect at a time
FORGOTTEN_S = 10.0  # a baseline is dropped if nobody has asked for it in this time
MAX_POINTS = 1024


class Refused(Exception):
    """A query cannot be answered.  The text is a sentence for the client."""


def stream_of(config, name):
    """Returns (stream of visibilities, its stream of voltages).  Without a name, returns the first stream of
    visibilities."""
    streams = {s["name"]: s for s in config["streams"]}
    stream = streams.get(name) or next((s for s in config["streams"] if s["kind"] == "visibilities" and not name), None)
    if not stream or stream["kind"] != "visibilities":
        known = ", ".join(n for n, s in streams.items() if s["kind"] == "visibilities")
        raise Refused(f"stream: {name!r} is not a stream of visibilities; there are {known or 'none'}")
    return stream, streams[stream["source"]]


def pair_of(config, text):
    """Returns the indices (feng_id) of the antennas in a text such as "m000,m001", the lower index first."""
    names = [a["name"] for a in config["antennas"]]
    asked = text.split(",") if text else names[:2]
    if len(asked) != 2 or not set(asked) <= set(names):
        raise Refused("baseline: two names of antennas are needed, such as " + ",".join((names * 2)[:2]))
    return tuple(sorted(config["antennas"][names.index(a)].get("feng_id", names.index(a)) for a in asked))


def band_of(source, text):
    """Returns (first, last): the channels in a text such as "256,511"; the whole band if the text is empty."""
    n = source["channels"]
    try:
        first, last = map(int, text.split(",")) if text else (0, n - 1)
    except ValueError:
        raise Refused("channels: two numbers are needed, such as 256,511") from None
    if not 0 <= first <= last < n:
        raise Refused(f"channels: {text} is not within 0,{n - 1}")
    return first, last


def curve_values(spectrum, pols):
    """Returns [(first channel, number of channels, phasor or None)] of the points in one X-engine's answer."""
    axis = spectrum["axis"]
    curve = next((c for c in spectrum["curves"] if c["kind"] == "cross" and c["pols"] == pols), None)
    if curve is None:
        return []
    out, end = [], axis["first_channel"] + axis["channels"]
    for i, (phase, coherence) in enumerate(zip(curve["phase_deg"], curve["coherence"])):
        first = axis["first_channel"] + i * axis["channels_per_point"]
        n = min(axis["channels_per_point"], end - first)
        out.append(
            (first, n, None if phase is None or coherence is None else cmath.rect(coherence, math.radians(phase)))
        )
    return out


def join(spectra, pols, first, last):
    """Returns (phase_deg, coherence): the values of each point for the channels first to last.  A point is the mean
    phasor of its channels.  If no channel of a point has a value, the point's values are None."""
    width = -(-(last - first + 1) // MAX_POINTS)
    n = -(-(last - first + 1) // width)
    sums, weights = [0j] * n, [0] * n
    for spectrum in spectra:
        for channel, n_chan, value in curve_values(spectrum, pols):
            for c in range(channel, channel + n_chan) if value is not None else ():
                if first <= c <= last:
                    sums[(c - first) // width] += value
                    weights[(c - first) // width] += 1
    means = [s / w if w else None for s, w in zip(sums, weights)]
    return (
        [None if m is None else round(math.degrees(cmath.phase(m)), 1) for m in means],
        [None if m is None else round(min(1.0, abs(m)), 4) for m in means],
    )


def axis_of(source, first, last):
    """Returns (axis of the plot, sky frequency of each point in Hz).  If the sky frequency falls as the channel's
    number rises, the axis shows frequencies in the digitiser's band."""
    n_all, bandwidth = source["channels"], source["bandwidth"]
    centre, width = source["centre_frequency"], -(-(last - first + 1) // MAX_POINTS)
    step, sky = bandwidth / n_all, source.get("sky_centre_frequency", centre)
    lower = source.get("sideband", "upper") == "lower"
    begin = (centre if lower else sky) - bandwidth / 2
    n = -(-(last - first + 1) // width)
    middles = [first + width * i + (min(width, last + 1 - first - width * i) - 1) / 2 for i in range(n)]
    hz = [sky + (-1 if lower else 1) * (c * step - bandwidth / 2) for c in middles]
    return {
        "points": n,
        "channels": last - first + 1,
        "channels_per_point": width,
        "first_channel": first,
        "first_hz": begin + first * step,
        "step_hz": step,
        "of": n_all,
        "digitised": lower,
    }, hz


class Fringes:
    def __init__(self, watch):
        self.watch = watch
        # {(stream, pair, band): [time of the newest query, start time of the task, task that gets the answer]}
        self.answers = {}

    async def get(self, query):
        """Returns the answer for a query {"stream", "baseline", "channels"}.  Raises Refused."""
        config = self.watch.config
        stream, source = stream_of(config, query.get("stream"))
        pair, band = pair_of(config, query.get("baseline")), band_of(source, query.get("channels"))
        key, now = (stream["name"], pair, band), time.monotonic()
        self.answers = {k: v for k, v in self.answers.items() if now - v[0] < FORGOTTEN_S}
        others = {k[1] for k in self.answers if k[0] == stream["name"]} - {pair}
        if len(others) >= MAX_PAIRS or len(self.answers) >= 4 * MAX_PAIRS and key not in self.answers:
            raise Refused(
                f"others look at {len(others)} other baselines now, and X-engines collect at most {MAX_PAIRS} baselines"
            )
        entry = self.answers.get(key)
        if not entry or entry[2].done() and now - entry[1] > KEPT_S:
            entry = self.answers[key] = [now, now, asyncio.create_task(self._ask(stream, source, pair, band))]
        entry[0] = now
        return await asyncio.shield(entry[2])

    async def _ask(self, stream, source, pair, band):
        first, last = band
        asked, answers = [], []
        for page in self.watch.pages:
            begin = page.place.get("first_channel", 0)
            low, high = max(first, begin), min(last, begin + page.place.get("channels", 0) - 1)
            if page.program == "xbgpu" and page.place.get("stream") == source["name"] and low <= high:
                query = {"stream": stream["name"], "baseline": f"{pair[0]},{pair[1]}", "channels": f"{low},{high}"}
                asked.append(page)
                answers.append(self.watch.read(page, query))
        answers = await asyncio.gather(*answers, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(
                answer, (TimeoutError, aiohttp.ClientError, ValueError)
            ):
                raise answer
        spectra = [a.get("spectrum") if isinstance(a, dict) else None for a in answers]
        known = [s for s in spectra if s and s.get("stream") == stream["name"]]
        axis, hz = axis_of(source, first, last)
        curves = []
        for pols in ([0, 0], [1, 1]) if known else ():
            phase_deg, coherence = await asyncio.to_thread(join, known, pols, first, last)
            curves.append({"pols": pols, "phase_deg": phase_deg, "coherence": coherence})
        names = [a["name"] for a in sorted(self.watch.config["antennas"], key=lambda a: a.get("feng_id", 0))]
        return {
            "stream": stream["name"],
            "baseline": [names[i] for i in pair],
            "time": min((s["time"] for s in known), default=None),
            "axis": axis,
            "hz": hz,
            "curves": curves,
            "missing": [p.full_name() for p, s in zip(asked, spectra) if not s],
        }
