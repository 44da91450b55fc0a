"""Sends a sky of satellites through the real programs: a recording --dsim--> capture --fgpu--> records."""
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from fengine import harness

sys.path.append(str(harness.ROOT / "scripts"))
import gnsscal_read  # noqa: E402

FIRST_PACKET = 10
PACKET = 4096  # ADC samples
CHUNK_S = 0.01  # about: that of an array
SYNC_S = 1700000000
DIGITISER_NOISE = 20.0  # steps of 8 bits
# The stream's filter is 32 ADC samples late, so fgpu's samples are those of the recording.  The recording has
# unfiltered chips.  Between its samples the chips' aliases look early or late: 64 taps would move L5 by 0.025 chip.
N_TAPS = 65
PASS = 0.85  # of the recording's rate; dsim's interpolation is exact in 0.9 of it
TIMEOUT_S = 3600
SIGNALS = ["L1CA", "L5I", "L5Q", "E1B", "E1C"]  # as records number them


@dataclass
class Band:
    """A digitiser's band: a recording of 'rate_hz' complex samples a second becomes one of twice as many real ones."""
    rate_hz: float
    zero_hz: float  # the sky's frequency in the middle of the band

    @property
    def adc_hz(self):
        return 2 * self.rate_hz

    @property
    def clock(self):
        return {"sync_time": SYNC_S, "adc_sample_rate": self.adc_hz}

    def seconds(self, records):
        """Seconds from the first sample of the recording to the records' middle samples."""
        return (records["timestamp"] - FIRST_PACKET * PACKET + (N_TAPS - 1) / 2) / self.adc_hz


def feeds(**keys):
    return [{"name": "m000", "pol0": f"239.108.0.0:{harness.PORT}", "pol1": f"239.108.0.1:{harness.PORT}"} | keys]


def run(work, program, config):
    """Returns the seconds that it took."""
    path, began = work / f"{program}.yaml", time.monotonic()
    path.write_text(yaml.safe_dump(config))
    done = subprocess.run([harness.BUILD / program, path], cwd=work, capture_output=True, text=True, timeout=TIMEOUT_S,
                          check=False)
    if done.returncode:
        raise RuntimeError(f"{program} ended with {done.returncode}:\n{done.stderr[-4000:]}")
    return time.monotonic() - began


def play(work, band, recording, noise):
    """dsim's capture of a recording of two polarisations, whose noise has 'noise' steps."""
    return run(work, "dsim", {
        "time": band.clock,
        "digitiser": {"packet_samples": PACKET, "sample_bits": 8, "loop": False,
                      "first_timestamp": FIRST_PACKET * PACKET},
        "recordings": [{"kind": "ci16", "file": str(recording), "scale": DIGITISER_NOISE / noise, "columns": 2,
                        "column": pol} for pol in range(2)],
        "antennas": feeds(digitiser_id=0), "send": {"pcap_file": str(work / "in.pcap")}})


def follow(work, band, satellites, **gnss):
    """fgpu's run through in.pcap. 'satellites' and 'gnss' are keys of its configuration. fgpu needs an output: a narrow
    one without a reader costs least."""
    stream = {"name": "gnss", "destination": f"239.108.2.0:{harness.PORT}", "centre_frequency": band.adc_hz / 4,
              "decimation": 1, "pass_bandwidth": PASS * band.rate_hz, "ddc_taps": N_TAPS,
              "sky_frequency": band.zero_hz}
    return run(work, "fgpu", {
        "time": band.clock | {"timebase": "packets"}, "device": {"kind": harness.DEVICE, "threads": 1},
        "recv": {"pcap_file": str(work / "in.pcap"), "sample_bits": 8, "packet_samples": PACKET,
                 "chunk_samples": round(CHUNK_S * band.adc_hz / PACKET) * PACKET, "max_delay_diff": 0},
        "antennas": feeds(feng_id=0),
        "outputs": [{"kind": "narrowband", "name": "narrow", "channels": 64, "taps": 1, "decimation": 64,
                     "centre_frequency": band.adc_hz / 4, "destinations": f"239.108.1.0:{harness.PORT}"}],
        "gnss": [stream | gnss], "satellites": satellites,
        "send": {"pcap_file": str(work / "out.pcap"), "array_size": 1}})


def read_records(work):
    array = gnsscal_read.load_array([work / "fgpu.yaml"])
    return gnsscal_read.read(array, [work / "out.pcap"])["m000"]


def records_of(records, signal, prn):
    return records[(records["prn"] == prn) & (records["signal"] == SIGNALS.index(signal))]


def remove(*paths):
    for path in paths:
        Path(path).unlink(missing_ok=True)


def wrapped(values, period=1.0):
    return values - period * np.rint(values / period)
