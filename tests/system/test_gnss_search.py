"""fgpu's searches for satellites on signals of dsim: the results lie within the loops' pull-in range."""
import subprocess

import numpy as np
import yaml

import harness
from harness import BUILD, SEED

RATE = 8e6
PULL_IN_TURNS = 1 / 8  # of the carrier a code period: fgpu/gnss/gnss_track.h
PERIOD_S = 4e-3  # of E1
CARRIER_HZ = 2.1e6
GROUP = "239.102.2.0"
N_SATELLITES = 8


def write_codes(path, random):
    """Random memory codes in the form of the ICD's annex."""
    path.write_text("".join(f"E1C Code No {prn}\n{''.join(random.choice(list('0123456789ABCDEF'), 1023))}\n-----\n"
                            for prn in range(1, N_SATELLITES + 1)))


def run(work, program, config):
    (work / f"{program}.yaml").write_text(yaml.safe_dump(config))
    done = subprocess.run([BUILD / program, f"{program}.yaml"], cwd=work, capture_output=True, text=True,
                          timeout=2 * harness.TIMEOUT_S)
    assert done.returncode == 0, done.stderr


def test_secondary_code(work):
    """A secondary code turns the signal between code periods.  Blocks of a search begin with a code period, so no turn
    comes within a block.  A turn within a block would split the peak and move the Doppler by more than the loops can
    pull in."""
    random = np.random.default_rng(SEED)
    write_codes(work / "e1.txt", random)
    dopplers = {prn: random.uniform(-900, 900) for prn in range(1, N_SATELLITES + 1)}
    signals = " + ".join(f"gnss(E1C, {prn}, 48, 0.1, {CARRIER_HZ}, {random.uniform(0, 32000):.3f}, {doppler:.3f}, 0)"
                         for prn, doppler in dopplers.items())
    feeds = {"name": "m000", "pol0": f"239.102.0.0:{harness.PORT}", "pol1": f"239.102.0.1:{harness.PORT}"}
    time = {"sync_time": 1700000000, "adc_sample_rate": RATE}
    run(work, "dsim", {
        "time": time,
        "digitiser": {"packet_samples": 4096, "sample_bits": 8, "duration": 1.2, "first_timestamp": 40960,
                      "period": 4096 * 512, "dither_seed": 1},
        "signals": {"code_file": "e1.txt",
                    "specification": f"sky = {signals};\nsky + wgn(0.1, 1);\nsky + wgn(0.1, 2);\n"},
        "antennas": [feeds | {"digitiser_id": 0}], "send": {"pcap_file": str(work / "in.pcap")}})
    run(work, "fgpu", {
        "time": time, "device": {"kind": harness.DEVICE, "threads": 1},
        "recv": {"pcap_file": str(work / "in.pcap"), "sample_bits": 8, "packet_samples": 4096, "chunk_samples": 32768,
                 "max_delay_diff": 0},
        "antennas": [feeds | {"feng_id": 0}],
        "outputs": [{"name": "wide", "channels": 64, "spectra_per_heap": 256, "taps": 4,
                     "destinations": f"239.102.1.0:{harness.PORT}"}],
        "gnss": [{"name": "l1", "destination": f"{GROUP}:{harness.PORT}", "centre_frequency": 2000000, "decimation": 1,
                  "pass_bandwidth": 3000000, "sky_frequency": 1575320000, "codes": "e1.txt"}],
        "satellites": [{"signal": "E1C", "prns": list(dopplers), "doppler_range": 1000}],
        "send": {"pcap_file": str(work / "out.pcap"), "array_size": 1, "packet_payload": 8192}})
    heaps = [heap.items for heap in harness.decode_pcap(work / "out.pcap")[GROUP, harness.PORT] if heap.kind == "data"]
    records = np.concatenate([heap["gnss_sums"] for heap in heaps])
    errors = {}
    for prn, doppler in dopplers.items():
        of = records[(records["prn"] == prn) & (records["n_starts"] == 1)]
        assert len(of) > 0, prn
        errors[prn] = of["doppler"][0] - doppler
    assert max(map(abs, errors.values())) < PULL_IN_TURNS / PERIOD_S, errors
