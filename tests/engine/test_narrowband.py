"""Narrowband outputs of fgpu against the float64 model, and against what they must do to a tone in closed form."""
import numpy as np
import pytest

import fmodel
import harness
import scenario
from conftest import SEED
from fmodel import Delay
from test_delay import RATE, SYNC, random_models, run
from test_delay import check as check_delayed
from test_fgpu import check

NARROW = {"kind": "narrowband", "channels": 64, "spectra_per_heap": 16, "taps": 4, "gain": 1.0, "dither": "none",
          "centre_frequency": 214000000.25, "decimation": 4}


def narrow_config(outputs, **sections):
    config = scenario.fgpu_config(outputs=[{**NARROW, "name": f"narrow{i}", **o} for i, o in enumerate(outputs)],
                                  **sections)
    scenario.chunk_for(config)
    return config


def test_one_output(daemon, work, rng):
    config = narrow_config([{}])
    samples = scenario.noise(rng, 1, 40 * 1024, 10)
    found = scenario.run_pcap(daemon, "fgpu", config, work, scenario.digitiser_heaps(config, samples, 0))
    assert check(config, found, samples, 0) > 2


def random_output(rng, bits):
    """An output section; gains for some 25 steps in each part, of noise a quarter of the range."""
    keep = bool(rng.random() < 0.5)
    decimation = int(rng.choice([1, 2, 3, 4, 5, 6, 7, 8, 12, 16])) if keep else int(rng.choice([2, 3, 4, 5, 7, 8, 10, 16]))
    channels = 2**int(rng.integers(6, 9))
    step = decimation * (2 if keep else 1)
    band = 1712000000 / 2 / decimation
    rms = 25 if rng.random() < 0.7 else 1.5
    output = {
        "channels": channels, "decimation": decimation, "taps": int(rng.choice([1, 2, 4, 7])),
        "spectra_per_heap": 16 * int(rng.integers(1, 4)), "batches_per_buffer": int(rng.integers(1, 4)),
        "window_function": str(rng.choice(["hann", "rect"])), "w_cutoff": float(rng.choice([1.0, 0.9, 0.0])),
        "sample_bits": 8 if rms > 2 else 4, "substreams": 2**int(rng.integers(0, 4)),
        "centre_frequency": str(round(float(rng.uniform(0, 856e6)), int(rng.integers(0, 10)))),
        "gain": float(rms * np.sqrt(2) / max((2**(bits - 1) - 1) / 4, 0.9)),
    }
    if output["taps"] == 1:
        output["window_function"] = "rect"
    if rng.random() < 0.5:
        output["ddc_taps"] = int(rng.integers(max(4, step), 20 * step))
    if keep:
        output["pass_bandwidth"] = float(rng.uniform(0.3, 0.9) * band)
    return output


@pytest.mark.parametrize("index", range(20))
def test_random(index, daemon, work):
    """Several narrowband outputs beside a wide one: all widths of samples, odd decimations, any place and time."""
    rng = np.random.default_rng([SEED, index])
    bits = [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16][index % 11]
    outputs = [random_output(rng, bits) for _ in range(3)]
    outputs.insert(int(rng.integers(0, 4)), {"kind": "wideband", "channels": 64, "taps": 8, "gain": 0.02})
    for o in outputs:
        if o.get("kind") == "wideband":
            o["gain"] = 25 / max((2**(bits - 1) - 1) / 4, 0.9)
    config = scenario.fgpu_config(
        outputs=[(NARROW if "kind" not in o else {}) | {"name": f"o{i}"} | o for i, o in enumerate(outputs)],
        feng_ids=(0, 2), recv={"sample_bits": bits, "packet_samples": int(rng.choice([512, 1024, 4096])),
                               "max_delay_diff": int(rng.choice([0, 8, 1000]))})
    scenario.chunk_for(config, int(rng.integers(1, 3)))
    models = [scenario.model_of(o, config) for o in config["outputs"]]
    packet = config["recv"]["packet_samples"]
    n_samples = max(max(2 * m.batch + m.window for m in models), int(2.3 * config["recv"]["chunk_samples"]))
    samples = scenario.noise(rng, 2, -(-n_samples // packet) * packet, bits)
    start = int(rng.choice([0, rng.integers(0, 2**20), rng.integers(2**40, 2**47)])) // packet * packet
    found = scenario.run_pcap(daemon, "fgpu", config, work, scenario.digitiser_heaps(config, samples, start))
    assert check(config, found, samples, start, what=f"CBF_SEED={SEED} case {index}, start {start}") > 0
