"""Satellites' signals of dsim, as spead2 reads them from captures, against a model (tests/models/gnsssignals.py)."""
import numpy as np
import pytest
import yaml

import harness
from gnsssignals import Signal, amplitude, l1ca, write_codes
from harness import EXIT_CONFIG
from test_dsim import check_samples, endpoints, group, make_config, read_capture, run

PACKET = 4096
BITS = 16


def samples_of(tmp_path, specification, n_outputs, fs, first, n_packets, **signals):
    """The samples of each output, [output][sample]; there are two for each antenna."""
    config = make_config(
        time={"adc_sample_rate": fs}, signals={"specification": specification, **signals},
        digitiser={"packet_samples": PACKET, "period": 256 * PACKET, "duration": (n_packets + 0.5) * PACKET / fs,
                   "first_timestamp": first, "sample_bits": BITS},
        send={"pcap_file": str(tmp_path / "out.pcap")})
    config["antennas"] = [{"name": f"a{i}", "digitiser_id": 2 * i, "pol0": endpoints(2 * i), "pol1": endpoints(2 * i + 1)}
                          for i in range(n_outputs // 2)]
    done = run(tmp_path, config)
    assert done.returncode == 0, done.stderr
    return [np.concatenate([samples for heap, samples in read_capture(tmp_path / "out.pcap", group(g))
                            if samples is not None and not heap.descriptors]).astype(float) for g in range(n_outputs)]


SATELLITES = [  # signal, PRN, carrier, delay, Doppler, Doppler rate
    ("L1CA", 1, 2.5e6, 0, 0, 0),
    ("L1CA", 32, 1575.42e6, 1234.5, -4321.25, 0.75),
    ("L5I", 3, -4e6, -77777.125, 2500, -5),
    ("L5Q", 32, 1e6, 1e9, 1e4, 3),
    ("E1B", 4, 3.3e6, 12.75, 1999.5, 0.5),
    ("E1C", 50, 3.3e6, 0.25, -1e3, 1),
]


@pytest.mark.parametrize("first", [0, 10 ** 10 // PACKET * PACKET, 2 ** 46])
def test_samples(tmp_path, first):
    """Phases after hours equal rational arithmetic."""
    seed = np.random.SeedSequence().entropy
    print(f"seed {seed}")
    random = np.random.default_rng(seed)
    fs, cn0, noise, n_packets = 10e6, 60, 0.5, 5
    memory = write_codes(tmp_path / "codes.txt", random)
    specification = "".join(
        f"nodither(gnss({name}, {prn}, {cn0}, {noise}, {carrier}, {delay}, {doppler}, {rate}));\n"
        for name, prn, carrier, delay, doppler, rate in SATELLITES)
    received = samples_of(tmp_path, specification, len(SATELLITES), fs, first, n_packets,
                          code_file=str(tmp_path / "codes.txt"))
    scale = amplitude(cn0, noise, fs) * (2 ** (BITS - 1) - 1)
    for samples, (name, prn, *arguments) in zip(received, SATELLITES):
        signal = Signal(name, prn, memory)
        assert len(samples) == n_packets * PACKET
        for i in random.choice(len(samples), 1500, replace=False):
            near, cosine = signal.at(first + int(i), fs, *arguments)
            error = min(abs(samples[i] - scale * level * cosine) for level in near)
            *_, doppler, rate = arguments
            seconds = (first + i) / fs
            theta = abs(doppler) * seconds + abs(rate) * seconds ** 2 / 2
            turns = 2.1e6 * abs(rate) / fs ** 2 + 5.5e-20 * (first + i) + 1.1e-19 * theta  # as dsim/gnss.h says
            allowed = 2 * np.pi * scale * turns
            assert error < 0.501 + allowed, f"{name} {prn} sample {i}: {samples[i]}, {scale * near[0] * cosine}"


def test_repeats(tmp_path):
    """repeat() gives the samples of the first period again and again."""
    g = "gnss(L1CA, 32, 60, 0.5, 1.5e6, 1234.5, -4321.25, 0.75, 9)"
    once, _ = samples_of(tmp_path, f"nodither({g}); 0;", 2, 10e6, 0, 256)
    repeated, shifted = samples_of(tmp_path, f"g = repeat({g}); nodither(g); nodither(delay(g, 5));", 2, 10e6, 0, 300)
    assert np.std(once) > 100
    assert np.array_equal(repeated, np.resize(once, 300 * PACKET))
    assert np.array_equal(shifted[5:], repeated[:-5])


def test_acquisition(tmp_path):
    """The peak of a search in delay and Doppler is at the arguments' values, and C/N0 equals the requested one."""
    fs, n_ms, cn0, noise, carrier, delay, doppler = 4e6, 200, 45.0, 0.1, 1.1e6, 1234.5, 1750.0
    x, alone = (samples / (2 ** (BITS - 1) - 1) for samples in samples_of(
        tmp_path, f"s = gnss(L1CA, 19, {cn0}, {noise}, {carrier}, {delay}, {doppler}, 0, 3); s + wgn({noise}, 8); s;",
        2, fs, 0, n_ms * 4000 // PACKET + 1))
    x, t = x[:n_ms * 4000], np.arange(n_ms * 4000) / fs
    chips = l1ca(19)
    code = np.fft.fft(chips[np.floor(np.arange(4000) * 1.023 / 4).astype(int)])
    power = {}
    for d in np.arange(-5000, 5001, 250.0):
        wiped = (x * np.exp(-2j * np.pi * (carrier + d) * t)).reshape(n_ms, 4000)
        power[d] = np.sum(np.abs(np.fft.ifft(np.fft.fft(wiped) * np.conj(code))) ** 2, axis=0)
    found = max(power, key=lambda d: power[d].max())
    assert found == doppler and np.argmax(power[found]) in (1234, 1235)
    seconds = t - delay / fs
    replica = chips[np.floor((1 + doppler / 1575.42e6) * 1.023e6 * seconds).astype(int) % 1023] * np.exp(
        -2j * np.pi * ((carrier + doppler) * seconds))
    first = 1235 + 4000 * 20  # symbols last 20 ms
    prompt = (x * replica)[first:first + 8 * 80000].reshape(8 * 20, 4000).mean(axis=1)
    a = 2 * np.mean(np.abs(prompt.reshape(8, 20).mean(axis=1).real))
    measured = 10 * np.log10(a ** 2 / 2 / (2 * (np.var(x) - a ** 2 / 2) / fs))
    print(f"C/N0 {measured:.3f} dB-Hz")
    assert measured == pytest.approx(cn0, abs=0.3)
    assert 10 * np.log10(np.var(alone) / (2 * noise ** 2 / fs)) == pytest.approx(cn0, abs=0.05)


@pytest.mark.parametrize("specification, says", [
    ("gnss(E1B, 1, 45, 0.1, 0, 0, 0, 0);", "needs a file of codes, signals.code_file"),
    ("gnss(L5I, 1, 45, 0.1, 0, 0, 0, 0);", "needs an adc_sample_rate of at least 3410000 Hz"),
])
def test_refused(tmp_path, specification, says):
    fs = 3e6 if "L5I" in specification else 10e6
    done = run(tmp_path, make_config(time={"adc_sample_rate": fs}, signals={"specification": specification}))
    assert done.returncode == EXIT_CONFIG and says in done.stderr


def test_code_that_is_not_there(tmp_path):
    write_codes(tmp_path / "codes.txt", np.random.default_rng(1))
    signals = {"specification": "gnss(E1B, 5, 45, 0.1, 0, 0, 0, 0);", "code_file": str(tmp_path / "codes.txt")}
    done = run(tmp_path, make_config(time={"adc_sample_rate": 10e6}, signals=signals))
    assert done.returncode == EXIT_CONFIG and "there is no E1B Code No 5" in done.stderr


def test_documentation(tmp_path):
    """The example of the manual is sent as it is."""
    write_codes(tmp_path / "e1.txt", np.random.default_rng(1))
    page = (harness.ROOT / "docs" / "satellites.md").read_text()
    config = yaml.safe_load(page.split("```yaml\n")[1].split("```")[0])
    config["signals"]["code_file"] = str(tmp_path / "e1.txt")
    done = run(tmp_path, harness.merge(config, {"digitiser": {"duration": 0.001},
                                                "send": {"pcap_file": str(tmp_path / "out.pcap")}}))
    assert done.returncode == 0, done.stdout + done.stderr
