"""Satellites in a run of scripts/bench/realtime: the satellites' signals that dsim repeats, and a check of the
correlation sums that fgpu sends.

A period of 32 ms holds a whole number of L1CA's code periods, and a whole number of cycles of each carrier.  numpy
computes the baseband of dsim's samples in float64.  For each checked integration, numpy computes the sums from this
baseband, with the code and carrier phases in the integration's record.
"""
import threading

import numpy as np
import spead2
import spead2.recv

import fmodel
import gnssmodel
from gnsssignals import Signal

PERIOD_S = 0.032
GRID_HZ = 128_000         # sample rates are multiples of this rate, so that a period has a whole number of packets
BAND_HZ = 20e6            # lowest sample rate of the baseband; a narrower band of the digitiser is used whole
CN0_DB_HZ, NOISE = 45, 0.05
AMPLITUDE, L1_HZ, CHIP_HZ, N_CHIPS = 63, 1575.42e6, 1.023e6, 1023
LOCKED = 3                # flags: the loops of code and carrier are locked
SUMS = 0x4400
CHECKED = 50              # number of integrations of each satellite that are checked
TOLERANCE = 0.05          # allowed rms error, relative to the prompt sum: samples and replicas have only 8 bits
PIECE = 1 << 14           # number of complex samples that the model filters together


class Sky:
    """The signals of n satellites in the middle of the digitiser's band: L1CA without data bits."""

    def __init__(self, rate, n):
        self.rate, self.n = rate, n
        self.period = round(rate * PERIOD_S)
        self.decimation = 1
        while rate / (4 * self.decimation) >= BAND_HZ:
            self.decimation *= 2
        self.step = 2 * self.decimation
        self.centre_hz = rate / 4
        self.pass_hz = 0.75 * rate / self.step
        self.codes = {prn: Signal("L1CA", prn).levels for prn in self.prns()}

    def specification(self):
        """Returns dsim's signals.  A satellite's Doppler is a whole number of cycles in a period."""
        signals = " + ".join(f"gnss(L1CA, {prn}, {CN0_DB_HZ}, {NOISE}, {self.centre_hz!r}, {1234.5 * prn}, {(prn % 5 - 2) / PERIOD_S}, 0)"
                             for prn in self.prns())
        return f"sky = repeat({signals}); " + " ".join(f"sky + wgn({NOISE}, {seed});" for seed in (1, 2))

    def prns(self):
        return range(1, self.n + 1)

    def sections(self, destination):
        """fgpu's sections."""
        return {"gnss": [{"name": "gnss", "destination": destination, "centre_frequency": self.centre_hz,
                          "decimation": self.decimation, "pass_bandwidth": self.pass_hz, "sky_frequency": L1_HZ}],
                "satellites": [{"signal": "L1CA", "prns": list(self.prns()), "doppler_range": 200}]}

    def baseband(self, samples):
        """Returns the baseband of periodic samples: complex [pol][period / step], in fgpu's units."""
        output = fmodel.output_of({"kind": "narrowband", "channels": 1, "spectra_per_heap": 1, "centre_frequency": self.centre_hz,
                                   "decimation": self.decimation, "pass_bandwidth": self.pass_hz}, self.rate)
        h = fmodel.ddc_filter(self.step, output.n_ddc_taps, output.weight_pass,
                              output.pass_bandwidth / (self.rate / self.step)).reshape(-1, self.step)
        n, n_rows = self.period // self.step, len(h)
        mixer = np.exp(-2j * np.pi * np.arange(4) / 4)  # the centre frequency is a quarter of the sample rate
        found = np.empty((len(samples), n), complex)
        for at in range(0, n, PIECE):
            n_out = min(PIECE, n - at)
            t = at * self.step + np.arange((n_out + n_rows - 1) * self.step)
            for pol, x in enumerate(samples):
                rows = (x[t % self.period] * mixer[t % 4]).reshape(-1, self.step) @ h.T
                found[pol, at:at + n_out] = sum(rows[b:b + n_out, b] for b in range(n_rows))
        return found

    def sums(self, baseband, record, carrier_rate):
        """Returns the sums of an integration: complex [tap][pol].  'carrier_rate' is the replica's carrier in cycles
        per sample."""
        n = int(record["n_samples"])
        k = np.arange(n) - n // 2
        chips = record["code_phase"] + k * (CHIP_HZ + record["doppler"] * CHIP_HZ / L1_HZ) * self.step / self.rate
        turns = record["carrier_phase"] + k * carrier_rate
        mixed = baseband[:, (record["timestamp"] // self.step + k) % baseband.shape[1]] * np.exp(-2j * np.pi * turns)
        levels = self.codes[int(record["prn"])]
        return np.array([mixed @ levels[np.floor(chips + tap * gnssmodel.TAP_CHIPS).astype(int) % N_CHIPS]
                         for tap in (1, 0, -1)]) * AMPLITUDE


class Records:
    """Receives fgpu's records."""

    def __init__(self, endpoint):
        address, port = endpoint.split(":")
        self.lock, self.heaps = threading.Lock(), []
        config = spead2.recv.StreamConfig(max_heaps=4, stop_on_stop_item=False)
        self.stream = spead2.recv.Stream(spead2.ThreadPool(), config, spead2.recv.RingStreamConfig(heaps=64))
        self.stream.add_udp_reader(address, int(port), buffer_size=64 << 20, interface_address="127.0.0.1")
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        for heap in self.stream:
            for item in heap.get_items():
                if item.id == SUMS:
                    with self.lock:
                        self.heaps.append(np.frombuffer(item, gnssmodel.RECORD).copy())

    def count(self):
        with self.lock:
            return len(self.heaps)

    def between(self, first, end):
        """Returns the records of the heaps with indices 'first' to 'end' - 1."""
        with self.lock:
            records = np.concatenate([np.zeros(0, gnssmodel.RECORD), *self.heaps[max(first, 0):end]])
        return records[records["prn"] > 0]

    def stop(self):
        self.stream.stop()
        self.thread.join()


def judge_sums(sky, baseband, records):
    """Returns (sentences about faults, {PRN: rms error of its checked sums, relative to the rms prompt sum}).  Only
    whole integrations with an integration before and after them are checked."""
    why, errors, random = [], {}, np.random.default_rng()
    for prn in sky.prns():
        mine = records[records["prn"] == prn]
        if len(mine) < 3:
            why.append(f"PRN {prn}: {len(mine)} integrations came out")
            continue
        n = mine["n_samples"].astype(int)
        start = mine["timestamp"] // sky.step - n // 2
        follows = start[1:] == start[:-1] + n[:-1]
        if not np.all(follows):
            why.append(f"PRN {prn}: integrations do not follow each other in {np.count_nonzero(~follows)} places")
        if np.any(mine["flags"] & LOCKED != LOCKED) or np.any(mine["n_starts"] != mine["n_starts"][0]):
            why.append(f"PRN {prn}: lost")
        if np.any(mine["n_present"] != mine["n_samples"]):
            why.append(f"PRN {prn}: samples were missing")
        whole = np.flatnonzero(follows[:-1] & follows[1:] & (mine["n_present"] == mine["n_samples"])[1:-1]) + 1
        if not len(whole):
            continue
        cycles = mine["carrier_cycles"] + mine["carrier_phase"]
        chosen = random.choice(whole, min(CHECKED, len(whole)), replace=False)
        rates = (cycles[chosen + 1] - cycles[chosen - 1]) / (mine["timestamp"][chosen + 1] - mine["timestamp"][chosen - 1]) * sky.step
        expected = np.array([sky.sums(baseband, mine[i], rate) for i, rate in zip(chosen, rates)])
        found = mine["sums"][chosen][..., 0] + 1j * mine["sums"][chosen][..., 1]
        errors[prn] = float(np.sqrt(np.mean(np.abs(found - expected) ** 2) / np.mean(np.abs(expected[:, 1]) ** 2)))
        if not errors[prn] <= TOLERANCE:
            why.append(f"PRN {prn}: sums differ from numpy's by {errors[prn]:.3f} of the prompt sum")
    return why, errors
