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
