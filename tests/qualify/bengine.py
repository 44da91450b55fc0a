"""Runs the real xbgpu on voltages of all antennas and returns its beams."""
from dataclasses import dataclass

import numpy as np
from fengine import RATE_HZ, harness, scenario
from test_beams import beams_config
from test_beams_katcp import steer
from test_xbgpu_katcp import Fed

HEAP = 32  # spectra
FIRST_BATCH = 1 << 20


@dataclass
class Beam:
    """A beam: its polarisation, and for each antenna weight, delay in s and phase in rad."""
    pol: int
    weights: np.ndarray
    delays: np.ndarray | None = None
    phases: np.ndarray | None = None
    gain: float = 1.0

    def steer(self, client, name):
        none = np.zeros(len(self.weights))
        steer(client, name, self.weights, none if self.delays is None else self.delays,
              none if self.phases is None else self.phases, self.gain)


def frequencies(channels):
    """Frequencies of the channels of the whole band, from its centre, in Hz."""
    return (np.arange(channels) - channels / 2) * RATE_HZ / 2 / channels


def config(beams, n_ants, channels, heap=HEAP, recv=None):
    """Configuration of an engine for the whole band, or for the channels of 'recv'."""
    recv = {"antennas": n_ants, "channels": channels, "channels_per_substream": channels, "channel_offset": 0,
            "spectra_per_heap": heap, "samples_between_spectra": 2 * channels, "batches_per_chunk": 2} | (recv or {})
    beams = [{"pol": beam.pol, "dither_seed": i} for i, beam in enumerate(beams)]
    return beams_config(beams, [{"integration_batches": 16}], recv=recv, device={"threads": 2})


class Engine(Fed):
    """An xbgpu that reads the data written to it.  It ends with the block."""

    def __init__(self, work, name, settings):
        super().__init__(lambda program, config, name: harness.Daemon(program, config, work, name), settings, work,
                         name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()

    def beams(self):
        """Ends the stream.  Returns the data heaps of each beam."""
        found = self.end()
        where = [harness.endpoints(beam["destination"])[0] for beam in self.config["beams"]]
        self.sink.unlink()
        return [[heap for heap in found[endpoint] if heap.kind == "data"] for endpoint in where]


def samples(heaps):
    """complex64 [channel][spectrum] of the heaps of a beam."""
    parts = np.concatenate([heap.items["bf_raw"] for heap in heaps], 1).astype(np.float32)
    return parts.view(np.complex64)[..., 0]


def run(work, name, beams, voltages, first_batch=FIRST_BATCH):
    """Beams of voltages[batch][ant][channel][spectrum][pol][re, im]: complex64 [channel][spectrum] of each."""
    settings = config(beams, *voltages.shape[1:4])
    with Engine(work, name, settings) as engine:
        with engine.client() as client:
            for i, beam in enumerate(beams):
                beam.steer(client, f"beam{i}")
        engine.write(scenario.feng_heaps(settings, first_batch, voltages))
        return [samples(heaps) for heaps in engine.beams()]


def in_batches(voltages):
    """int8 [batch][ant][channel][spectrum][pol][re, im] of complex whole numbers [pol][ant][channel][spectrum]."""
    n_pols, n_ants, channels, n = voltages.shape
    parts = np.stack([voltages.real, voltages.imag], -1).astype(np.int8)
    return parts.reshape(n_pols, n_ants, channels, n // HEAP, HEAP, 2).transpose(3, 1, 2, 4, 0, 5)
