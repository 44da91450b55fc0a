"""Gains of channels, polarisations and antennas, against the float64 model."""
import numpy as np
import pytest

import fmodel
import harness
import scenario
from harness import merge


def gains_config(**overrides):
    config = scenario.fgpu_config(
        outputs=[{"channels": 64, "spectra_per_heap": 16, "taps": 4, "gain": 0.3},
                 {"channels": 128, "spectra_per_heap": 48, "taps": 7, "gain": 0.2, "batches_per_buffer": 3}],
        feng_ids=(0, 1), recv={"packet_samples": 512, "chunk_samples": 8192}, send={"packet_payload": 1536})
    return merge(config, overrides)


def test_gains_of_channels(daemon, work, rng):
    """Every channel of every polarisation of one antenna has a separate gain.  The other antenna has the outputs'
    gain."""
    config = gains_config()
    tables, lines = [], ["# output pol channel re im"]
    for output in config["outputs"]:
        n = output["channels"]
        table = (rng.normal(0, 0.3, (n, 2)) + 1j * rng.normal(0, 0.3, (n, 2))).astype(np.complex64)
        table[:, 1] = output["gain"]  # but for what is named
        table[5:9, 1] = 0.125 - 0.5j
        table[7, 1] = 0
        lines += [f"{output['name']} 0 {c} {g.real!r} {g.imag!r}" for c, g in enumerate(table[:, 0].tolist())]
        lines += [f"{output['name']} 1 5-8 0.125 -0.5", f"{output['name']}\t1 7 0 0 # a dead channel"]
        tables.append(table)
    path = work / "m000.gains"
    path.write_text("\n".join(lines))
    config["antennas"][0]["gains"] = str(path)
    samples = scenario.noise(rng, 2, 512 * 100, 10)
    sent = scenario.digitiser_heaps(config, samples, 0)
    streams = scenario.fgpu_streams(config, scenario.run_pcap(daemon, "fgpu", config, work, sent))
    for (o, a), got in streams.items():
        output = scenario.model_of(config["outputs"][o])
        models = fmodel.voltages(0, samples[a], output)
        assert [t // output.batch for t in got] == list(models) and len(got) > 3
        factor = tables[o] / output.gain if a == 0 else np.ones_like(tables[o])
        expected = np.stack(list(models.values())) * factor[:, None, :]
        scenario.compare_voltages(np.stack(list(got.values())), expected, output.limit, f"output {o}, antenna {a}")


@pytest.mark.parametrize("line, why", [
    ("wide0 0 * 1", "a line must have five fields: output"),
    ("wide9 0 * 1 0", "the first field must be the name of an output, not wide9"),
    ("wide0 2 * 1 0", "the polarisation must be 0 or 1, not 2"),
    ("wide0 0 64 1 0", "channels must be *, one channel of the output, or first-last, not 64"),
    ("wide0 0 -1 1 0", "channels must be"),
    ("wide0 0 9-8 1 0", "channels must be"),
    ("wide0 0 1-2-3 1 0", "channels must be"),
    ("wide0 0 99999999999 1 0", "channels must be"),
    ("wide0 0 * nan 0", "the real part must be a number, not nan"),
    ("wide0 0 * 1 1e999", "the imaginary part must be a number"),
    ("wide0 0 * 1e9 1e6", "the gain must have a magnitude of at most 1e9"),
])
def test_bad_file(line, why, daemon, work):
    config = gains_config(recv={"pcap_file": str(work / "none.pcap")}, send={"pcap_file": str(work / "out.pcap")})
    harness.write_pcap(work / "none.pcap", [])
    (work / "bad.gains").write_text(f"wide1 0 * 1 0\n\n{line}\n")
    config["antennas"][1]["gains"] = str(work / "bad.gains")
    text = daemon("fgpu", config).wait_end(code=78).log.read_text()
    assert f"antennas[1].gains: {work}/bad.gains:3: {why}" in text, text
