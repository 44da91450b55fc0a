"""The same capture through fgpu on the cpu and on the GPU: the same heaps, and nearly all of the same values.

Both devices round sums of float32, in different orders.  So a value may rarely fall on the other side of a step, by one
step.  The dither has the same bits on both devices.  Otherwise half of the values would differ.
"""
import numpy as np
import pytest

import harness
import scenario
from harness import merge

LEAST_EQUAL = 0.999


def config_of(bits_in, outputs):
    config = scenario.fgpu_config(
        outputs=[{"taps": 16, "dither": "uniform", "dither_seed": 20 + i, "substreams": 4} | output
                 for i, output in enumerate(outputs)],
        recv={"sample_bits": bits_in, "packet_samples": 4096}, send={"packet_payload": 4096, "array_size": 1})
    scenario.chunk_for(config)
    for output in config["outputs"]:
        # White noise of rms s has rms s / sqrt(2) in each component.
        input_rms = max((2**(bits_in - 1) - 1) / 4, 0.9)
        output["gain"] = float(output.pop("rms") * np.sqrt(2) / input_rms)
    return config


def streams_of(config, name, kind, source, daemon, work):
    config = merge(config, {"device": {"kind": kind}})
    found = scenario.run_capture(daemon, "fgpu", config, source, work / f"{name}.out.pcap", name)
    return scenario.fgpu_streams(config, found)


def compare(bits_in, outputs, n_samples, daemon, work, rng, record_property):
    config = config_of(bits_in, outputs)
    n_samples = max([n_samples, *(scenario.model_of(o).reach for o in config["outputs"])])
    n_samples = -(-n_samples // 4096) * 4096
    samples = scenario.noise(rng, 1, n_samples, bits_in)
    source = work / "in.pcap"
    harness.write_heaps(source, scenario.digitiser_heaps(config, samples, 0))
    on_cpu = streams_of(config, "cpu", "cpu", source, daemon, work)
    on_gpu = streams_of(config, "gpu", harness.DEVICE, source, daemon, work)
    assert on_cpu.keys() == on_gpu.keys()
    for (o, a), cpu in on_cpu.items():
        gpu, model = on_gpu[o, a], scenario.model_of(config["outputs"][o])
        assert list(cpu) == list(gpu) and len(cpu) > 0
        x, y = (np.stack(list(s.values())).astype(np.int16) for s in (cpu, gpu))
        off = np.abs(x - y)
        n_different = np.count_nonzero(off)
        rms = np.std(x[:, 1:])
        line = (f"{model.channels:5} channels, {model.taps:2} taps, {bits_in:2} bits in, {model.sample_bits} out, "
                f"rms {rms:4.1f}: {100 * (1 - n_different / off.size):.4f} % of {off.size} equal, "
                f"{n_different} differ, by {off.max()} at most")
        print(line)
        record_property("measured", line)
        low, high = (20, 40) if model.sample_bits == 8 else (1, 3)
        assert low <= rms <= high, line
        assert off.max() <= 1 and n_different <= (1 - LEAST_EQUAL) * off.size, line


@pytest.mark.parametrize("channels", [64, 1024, 4096, 8192, 32768, 65536])
def test_sizes(channels, daemon, work, rng, record_property):
    """10 bits in, 8 out, at 20 to 40 steps."""
    heap = {64: 256, 1024: 256, 4096: 64, 8192: 64}.get(channels, 16)
    output = {"channels": channels, "spectra_per_heap": heap, "rms": rng.uniform(22, 36)}
    compare(10, [output], 2**21, daemon, work, rng, record_property)


@pytest.mark.parametrize("channels", [1024, 32768])
def test_four_bits_out(channels, daemon, work, rng, record_property):
    output = {"channels": channels, "spectra_per_heap": 16, "sample_bits": 4, "rms": rng.uniform(1.2, 2.4)}
    compare(10, [output], 2**21, daemon, work, rng, record_property)


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 7, 8, 9, 12, 16])
def test_widths(bits, daemon, work, rng, record_property):
    """Two outputs of different sizes of the same input."""
    outputs = [{"channels": 256, "spectra_per_heap": 32, "taps": 5, "rms": rng.uniform(22, 36)},
               {"channels": 4096, "spectra_per_heap": 16, "taps": 8, "rms": rng.uniform(22, 36)}]
    compare(bits, outputs, 2**19, daemon, work, rng, record_property)


@pytest.mark.parametrize("channels, decimation, keep", [(64, 16, 0), (256, 5, 0.8), (1024, 8, 0), (4096, 8, 0.6),
                                                        (16384, 16, 0), (32768, 8, 0)])
def test_narrow(channels, decimation, keep, daemon, work, rng, record_property):
    """A narrow band that is kept by half or whole, beside a wide one of the same input."""
    narrow = {"kind": "narrowband", "channels": channels, "spectra_per_heap": 16, "decimation": decimation, "ddc_taps": 0,
              "centre_frequency": 257000000.25, "rms": rng.uniform(22, 36)}
    if keep:
        narrow["pass_bandwidth"] = keep * 856e6 / decimation
    wide = {"channels": 512, "spectra_per_heap": 32, "rms": rng.uniform(22, 36)}
    compare(10, [narrow, wide], 2**20, daemon, work, rng, record_property)
