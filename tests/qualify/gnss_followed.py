"""Satellites with Dopplers, Doppler rates, data and secondary codes, followed for a minute: fgpu's records against the
sky's model."""
import time
from dataclasses import dataclass

import gnss_sky
import numpy as np
from gnss_engine import FIRST_PACKET, PACKET, Band, follow, play, read_records, records_of, remove, wrapped
from report import Row

CN0 = 45  # dB-Hz of each part
BLOCK_S = 0.02  # of a carrier's phase: a data bit of L1CA, as gnsscal takes it
LOCKED, HALF_TURN = 3, 4  # flags of a record
TRACKING = 3  # stage
LOCK_LIMIT_S = 10.0
CODE_LIMIT, CARRIER_LIMIT = 0.02, 5.0  # chips, degrees; both rms
END_S = 0.1  # before the end of the recording: the last chunks cut integrations
SETTLE_S = 1.0  # after lock: the phase loop turns a pilot's replica by half a turn once its secondary code is known
SLIP = 0.25  # turns from the median
PARTS = {"L1": ("L1CA", "E1B", "E1C"), "L5": ("L5I", "L5Q")}
BANDS = {"L1": Band(8e6, 1575.32e6), "L5": Band(21e6, 1176.35e6)}
ABSENT = {"L1": {"L1CA": [32]}, "L5": {"L5Q": [32]}}


@dataclass
class Found:
    """Figures of one signal of one satellite."""
    name: str
    n_starts: int
    lock_s: float  # when it was locked for good, from the first sample on
    n_records: int  # from then on
    n_expected: int
    code: float  # chips rms
    carrier: float  # degrees rms of the phase of 20 ms, and of the replica
    replica: float
    slip: float  # largest distance of a phase from the median, in turns
    doppler: float  # Hz rms
    cn0: float  # dB-Hz, mean

    @property
    def is_followed(self):
        return self.n_starts == 1 and self.lock_s < LOCK_LIMIT_S and self.n_records == self.n_expected


def make_sky(band_name, n, work, seed):
    """n satellites in turns of L1CA and E1, or of L5; and fgpu's list of them, with some that are not there."""
    rng = np.random.default_rng(seed)
    systems = ("L1CA", "E1") if band_name == "L1" else ("L5",)
    prns = [int(prn) for prn in 1 + rng.permutation(12)[:n]]
    memory = gnss_sky.write_codes(work / "codes.txt", prns, rng)
    dopplers = np.linspace(-4000, 4000, n) + rng.uniform(-200, 200, n)
    rates = np.linspace(-1, 1, n)
    rng.shuffle(rates)
    sky = [gnss_sky.Satellite(systems[i % len(systems)], prn, CN0, rng.uniform(0, 0.004),
                              np.clip(dopplers[i], -4000, 4000), rates[i], memory) for i, prn in enumerate(prns)]
    wanted = {part: list(ABSENT[band_name].get(part, [])) for part in PARTS[band_name]}
    for satellite in sky:
        for part in satellite.codes:
            wanted[part].append(satellite.prn)
    return sky, [{"signal": part, "prns": numbers, "doppler_range": 4500}
                 for part, numbers in wanted.items() if numbers]


def phases(records, band, satellite, part):
    """Errors of a signal's records: turns of the replica's carrier, counted through, and phasors of the prompt sums
    relative to the model, without data and secondary code."""
    t = band.seconds(records)
    model = satellite.turns(t, band.zero_hz) + np.angle(gnss_sky.FACTORS[part]) / (2 * np.pi)
    whole = np.floor(model)
    replica = (records["carrier_cycles"] - whole) + (records["carrier_phase"] - (model - whole))
    periods = np.floor(satellite.chips(t) / satellite.n_chips).astype(int)
    sums = records["sums"][:, 1, 0, 0] + 1j * records["sums"][:, 1, 0, 1]
    return replica, sums * satellite.signs(part, periods) * np.exp(2j * np.pi * (replica % 1))


def compare(records, band, satellite, part, end):
    """Found of a signal with records up to the timestamp 'end'."""
    name = f"{part}-{satellite.prn}"
    mine = records_of(records, part, satellite.prn)
    mine = mine[mine["timestamp"] < end]
    wanted = LOCKED | (0 if part in gnss_sky.SYMBOL_PERIODS else HALF_TURN)
    good = (mine["stage"] == TRACKING) & (mine["flags"] & wanted == LOCKED)
    if not len(mine) or not good[-1]:
        return Found(name, int(mine["n_starts"].max(initial=0)), np.inf, 0, 1, *[np.nan] * 6)
    n_starts, mine = int(mine["n_starts"].max()), mine[np.flatnonzero(~good).max(initial=-1) + 1:]
    t, period_s = band.seconds(mine), satellite.n_chips / satellite.code.chip_rate
    lock_s, n_expected, n_records = t[0], round((t[-1] - t[0]) / period_s) + 1, len(mine)
    mine, t = mine[t > lock_s + SETTLE_S], t[t > lock_s + SETTLE_S]
    code = wrapped(mine["code_phase"] - satellite.chips(t) % satellite.n_chips, satellite.n_chips)
    replica, sums = phases(mine, band, satellite, part)
    n = round(BLOCK_S / period_s)
    blocks = sums[:len(sums) // n * n].reshape(-1, n).sum(axis=1)
    # A Costas loop does not know half a turn; a whole number of turns counts from the acquisition.
    period = 0.5 if np.any(mine["flags"] & HALF_TURN) else 1.0
    carrier = np.unwrap(np.angle(blocks)) / (2 * np.pi)
    slip = max(np.abs(phase - np.median(phase)).max() for phase in (replica, carrier))

    def rms_degrees(turns):
        return 360 * np.sqrt(np.mean((turns - period * np.rint(np.median(turns) / period))**2))

    return Found(name, n_starts, lock_s, n_records, n_expected, np.sqrt(np.mean(code**2)),
                 rms_degrees(carrier), rms_degrees(replica), slip,
                 np.sqrt(np.mean((mine["doppler"] - satellite.doppler(t))**2)), float(np.mean(mine["cn0"][-1000:, 0])))


def table(found):
    lines = ["| satellite | locked after | code, chips rms | carrier of 20 ms | replica's carrier | farthest phase | "
             "Doppler | C/N0 |", "|---" * 8 + "|"]
    for f in found:
        lines.append(f"| {f.name}{'' if f.is_followed else ' **LOST**'} | {f.lock_s:.1f} s | {f.code:.4f} | "
                     f"{f.carrier:.2f}° rms | {f.replica:.2f}° rms | {360 * f.slip:.0f}° | {f.doppler:.2f} Hz rms | "
                     f"{f.cn0:.1f} dB-Hz |")
    return "\n".join(lines) + "\n"


def rows_of(part, found, n_false):
    n_followed, n_slips = sum(f.is_followed for f in found), sum(not f.slip < SLIP for f in found)
    code, carrier, replica = (np.max([getattr(f, key) for f in found]) for key in ("code", "carrier", "replica"))
    return [Row(part, f"satellites locked within {LOCK_LIMIT_S:.0f} s and followed without a gap to the end", "all",
                f"{n_followed} of {len(found)}", n_followed == len(found)),
            Row(part, "satellites with a cycle slip", "0", f"{n_slips}", n_slips == 0),
            Row(part, "code phase, worst satellite, chips rms", f"<= {CODE_LIMIT}", f"{code:.4f}", code <= CODE_LIMIT),
            Row(part, "carrier phase of 20 ms, worst satellite, degrees rms", f"<= {CARRIER_LIMIT:.0f}",
                f"{carrier:.2f}", carrier <= CARRIER_LIMIT),
            Row(part, "carrier phase of the replica alone, worst satellite, degrees rms", "", f"{replica:.2f}"),
            Row(part, "records of satellites that are not in the sky", "0", f"{n_false}", n_false == 0)]


def observe(band_name, seconds, n_satellites, work, seed=1):
    """(sky, fgpu's records of it, seconds that each step took)"""
    band, took = BANDS[band_name], {}
    sky, wanted = make_sky(band_name, n_satellites, work, seed)
    began = time.monotonic()
    recording = gnss_sky.write(work / "sky", sky, band.rate_hz, seconds, band.zero_hz, seed)
    took["numpy"] = time.monotonic() - began
    took["dsim"] = play(work, band, recording, gnss_sky.NOISE)
    remove(recording)
    took["fgpu"] = follow(work, band, wanted, **({"codes": str(work / "codes.txt")} if band_name == "L1" else {}))
    remove(work / "in.pcap")
    records = read_records(work)
    remove(work / "out.pcap")
    return sky, records, took


def judge(band_name, seconds, sky, records):
    """(rows, table of the satellites)"""
    band, rows, all_found = BANDS[band_name], [], []
    end = FIRST_PACKET * PACKET + (seconds - END_S) * band.adc_hz
    for part in PARTS[band_name]:
        found = [compare(records, band, satellite, part, end) for satellite in sky if part in satellite.codes]
        n_false = sum(len(records_of(records, part, prn)) for prn in ABSENT[band_name].get(part, []))
        rows += rows_of(part, found, n_false) if found else []
        all_found += found
    return rows, table(all_found)


def measure(band_name, seconds, n_satellites, work):
    """(rows, table of the satellites, seconds that each step took)"""
    sky, records, took = observe(band_name, seconds, n_satellites, work)
    return *judge(band_name, seconds, sky, records), took
