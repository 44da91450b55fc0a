"""Satellites of 30 dB-Hz: fgpu finds them by 50 blocks of 20 code periods, within +-500 Hz, and no other satellite."""
from gnss_engine import Band, follow, play, read_records, records_of, remove
from report import Row

import gnss_sky
import numpy as np

CN0 = 30  # dB-Hz
BAND = Band(4e6, 1575.42e6)
N_SATELLITES, N_ABSENT = 12, 8
RANGE_HZ = 500
PERIODS, BLOCKS = 20, 50  # of a search
SEARCH_S = 4  # of data at most: a wide search and a narrow one; half of it of a satellite that is not there
DOPPLER_LIMIT_HZ, CODE_LIMIT = 125, 0.25  # what the loops pull in: fgpu/gnss/gnss_track.h


def make_sky(seed):
    """Satellites, and fgpu's list of them: one search for each, in this order, the absent ones between."""
    rng = np.random.default_rng(seed)
    prns = [int(prn) for prn in 1 + rng.permutation(32)[:N_SATELLITES + N_ABSENT]]
    sky, wanted = [], []
    for i, prn in enumerate(prns):
        doppler = rng.uniform(-4000, 4000)
        wanted.append({"signal": "L1CA", "prns": [prn], "doppler": float(round(doppler + rng.uniform(-450, 450))),
                       "doppler_range": RANGE_HZ})
        if i < N_SATELLITES:
            sky.append(gnss_sky.Satellite("L1CA", prn, CN0, rng.uniform(0, 0.001), doppler, rng.uniform(-0.5, 0.5)))
    return sky, [wanted[i] for i in rng.permutation(len(wanted))]


def first_records(records, sky):
    """{PRN: its first record}"""
    mine = {s.prn: records_of(records, "L1CA", s.prn) for s in sky}
    return {prn: of[0] for prn, of in mine.items() if len(of)}


def found_first(starts, order):
    """PRNs that were found by their first search: satellites take turns, so their starts have the list's order."""
    found = [prn for prn in order if prn in starts]
    return [prn for i, prn in enumerate(found) if all(starts[prn]["timestamp"] < starts[later]["timestamp"]
                                                      for later in found[i + 1:])]


def measure(work, seed=1):
    """(rows, lines of a table)"""
    sky, wanted = make_sky(seed)
    seconds = SEARCH_S * (N_SATELLITES + N_ABSENT / 2)
    recording = gnss_sky.write(work / "weak", sky, BAND.rate_hz, seconds, BAND.zero_hz, seed)
    play(work, BAND, recording, gnss_sky.NOISE)
    follow(work, BAND, wanted, acquire_periods=PERIODS, acquire_blocks=BLOCKS)
    records = read_records(work)
    remove(recording, work / "in.pcap", work / "out.pcap")
    starts = first_records(records, sky)
    at_once = found_first(starts, [entry["prns"][0] for entry in wanted])
    false = set(records["prn"].tolist()) - {s.prn for s in sky}
    lines, errors = ["| satellite | first search | Doppler's error | code's error |", "|---|---|---|---|"], [(0.0, 0.0)]
    for s in sky:
        if s.prn not in starts:
            lines.append(f"| L1CA-{s.prn} | not found | | |")
            continue
        one = starts[s.prn]
        t = BAND.seconds(one)
        code = (one["code_phase"] - s.chips(t) + s.n_chips / 2) % s.n_chips - s.n_chips / 2
        errors.append((abs(one["doppler"] - s.doppler(t)), abs(code)))
        when = "found" if s.prn in at_once else "later"
        lines.append(f"| L1CA-{s.prn} | {when} | {one['doppler'] - s.doppler(t):+.1f} Hz | {code:+.3f} chips |")
    doppler, code = np.max(errors, axis=0)
    n = len(at_once)
    part = f"{CN0} dB-Hz"
    return [Row(part, "satellites found by their first search", "all", f"{n} of {len(sky)}", n == len(sky)),
            Row(part, f"satellites found, of {N_ABSENT} that are not in the sky", "0", f"{len(false)}", not false),
            Row(part, "largest error of the Doppler at the start, Hz", f"<= {DOPPLER_LIMIT_HZ}", f"{doppler:.1f}",
                doppler <= DOPPLER_LIMIT_HZ),
            Row(part, "largest error of the code phase at the start, chips", f"<= {CODE_LIMIT}", f"{code:.3f}",
                code <= CODE_LIMIT)], "\n".join(lines) + "\n"
