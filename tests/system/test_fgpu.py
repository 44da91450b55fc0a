"""fgpu against the float64 model, on captures: exactly the expected heaps, with the right voltages."""
import os
import re

import numpy as np
import pytest

import fmodel
import harness
import scenario
from harness import SEED, WIRE, endpoints, frame, merge, packets, stop_heap

CASES = int(os.environ.get("CBF_RANDOM_CASES", "300"))
OUTPUTS_PER_RUN = 5


def check(config, found, samples, start, present=None, what=""):
    """Compares all outputs with the model; present[ant][pol][packet].  Returns how many heaps were compared."""
    recv = config["recv"]
    streams = scenario.fgpu_streams(config, found)
    n_batches = 0
    for (o, a), got in streams.items():
        output = scenario.model_of(config["outputs"][o], config)
        if present is None:
            expected = list(fmodel.batches(start, samples.shape[2], output))
        else:
            expected = fmodel.batches_present(start, present[a], recv["packet_samples"], output)
        name = f"{what} antenna {a} of {config['outputs'][o]}"
        assert list(got) == [b * output.batch % WIRE for b in expected], name
        if not expected:
            continue
        every = range(expected[0], expected[-1] + 1)
        models = fmodel.voltages(start, samples[a], output, every)
        expected_values = np.stack([models[b] for b in expected])
        scenario.compare_voltages(np.stack(list(got.values())), expected_values, output.limit, name)
        n_batches += len(expected)
    return n_batches


# ---- Random configurations -------------------------------------------------------------------------------------------


def random_output(rng, log2_channels, sample_bits_in, odd):
    """An output section.  The gain makes the components' rms 20 to 40 steps, or so large that many components saturate.

    Spectra per heap are 16 'odd' times a power of two, because packets must align with the channels of all outputs.
    """
    channels = 2**log2_channels
    window_budget = max(2**17, 32 * 2 * channels if log2_channels > 13 else 0)
    taps = int(rng.integers(1, min(32, window_budget // (2 * channels)) + 1))
    heap = 16 * odd * 2**int(rng.integers(0, 5))
    while heap > 16 * odd and heap * 2 * channels > 2**17:
        heap //= 2
    bits_out = int(rng.choice([8, 8, 4]))
    rms = rng.uniform(20, 40) if bits_out == 8 else rng.uniform(1.2, 2.4)
    if rng.random() < 0.15:
        rms *= rng.choice([3, 10])
    # White noise of rms s has rms s / sqrt(2) in each component.
    input_rms = max((2**(sample_bits_in - 1) - 1) / 4, 0.9)
    return {
        "channels": channels,
        "spectra_per_heap": heap,
        "batches_per_buffer": int(rng.integers(1, 5)),
        "buffers": int(rng.integers(2, 5)),
        "taps": taps,
        "w_cutoff": float(rng.choice([1.0, 1.0, rng.uniform(0, 1.5), 0.0])),
        "window_function": str(rng.choice(["hann", "hann", "rect"])),
        "gain": float(rms * np.sqrt(2) / input_rms),
        "sample_bits": bits_out,
        "substreams": 2**int(rng.integers(0, min(log2_channels, 4) + 1)),
    }


def random_case(rng, index):
    """Configuration, samples, start of one run: few antennas, several outputs of similar sizes."""
    # Mostly small; each size of 2^13 channels and above comes by every few dozen runs.
    middle = 13 + index // 10 % 4 if index % 10 == 9 else int(rng.integers(6, 13))
    bits = int(rng.choice([2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16]))
    n_outputs = OUTPUTS_PER_RUN if middle < 13 else 2
    sizes = [int(np.clip(middle - rng.integers(0, 4), 6, 16)) for _ in range(n_outputs - 1)] + [middle]
    n_ants = int(rng.integers(1, 4)) if middle < 13 else 1
    odd = int(rng.choice([1, 1, 1, 3, 5])) if middle < 13 else 1
    array_size = int(rng.integers(n_ants, 9))
    config = scenario.fgpu_config(
        outputs=[random_output(rng, size, bits, odd) for size in sizes],
        feng_ids=rng.choice(array_size, n_ants, replace=False),
        pol_groups=int(rng.integers(1, 4)),
        recv={"sample_bits": bits, "packet_samples": int(rng.choice([256, 512, 1024, 4096])),
              "max_delay_diff": int(rng.choice([0, 0, 8, 1000])), "window": int(rng.integers(1, 4)),
              "threads": int(rng.integers(0, 3))},
        send={"array_size": array_size, "packet_payload": 32 * odd * 2**int(rng.integers(3, 8)),
              "threads": int(rng.integers(1, 3))},
    )
    recv = config["recv"]
    recv["chunks"] = 2 * recv["window"] + 4 + int(rng.integers(0, 3))
    scenario.chunk_for(config, multiple=int(rng.integers(1, 4)) if middle < 13 else 1)
    models = [scenario.model_of(o) for o in config["outputs"]]
    # Long enough for a batch of every output wherever it starts, and for one or two chunk boundaries.
    n_samples = max(max(m.batch + m.reach for m in models), int(1.7 * recv["chunk_samples"]) if middle < 13 else 0)
    n_samples = -(-n_samples // recv["packet_samples"]) * recv["packet_samples"]
    start = int(rng.choice([0, rng.integers(0, 2**20), rng.integers(2**40, 2**47)]))
    start -= start % recv["packet_samples"]
    return config, scenario.noise(rng, n_ants, n_samples, bits), start


@pytest.mark.parametrize("index", range(-(-CASES // OUTPUTS_PER_RUN)))
def test_random(index, daemon, work):
    rng = np.random.default_rng([SEED, index])
    config, samples, start = random_case(rng, index)
    found = scenario.run_pcap(daemon, "fgpu", config, work, scenario.digitiser_heaps(config, samples, start))
    assert check(config, found, samples, start, what=f"CBF_SEED={SEED} case {index}, start {start}") > 0


# ---- Which heaps -----------------------------------------------------------------------------------------------------


def small_config(**overrides):
    """Two outputs whose batches are 2048 and 12288 samples long, of chunks of 16 packets."""
    return scenario.fgpu_config(
        outputs=[{"channels": 64, "spectra_per_heap": 16, "taps": 4, "gain": 0.4},
                 {"channels": 128, "spectra_per_heap": 48, "taps": 7, "gain": 0.4, "batches_per_buffer": 3}],
        recv={"packet_samples": 512, "chunk_samples": 8192}, send={"packet_payload": 1536}, **overrides)


@pytest.mark.parametrize("start_packet", [0, 1, 5, 15, 16, 23, 24, 1000003])
def test_stream_may_start_anywhere(start_packet, daemon, work, rng):
    """Timestamps are multiples of the batch, whatever the first sample is.  The first whole batch is present."""
    config = small_config()
    samples = scenario.noise(rng, 1, 40960, 10)
    start = start_packet * 512
    found = scenario.run_pcap(daemon, "fgpu", config, work, scenario.digitiser_heaps(config, samples, start))
    assert check(config, found, samples, start) > 15


def test_too_short_for_a_batch(daemon, work, rng):
    """A window that lacks one packet gives nothing but descriptors and stop heaps; with the packet, one batch."""
    config = scenario.fgpu_config(outputs=[{"taps": 8}], recv={"packet_samples": 256, "chunk_samples": 4096})
    output = scenario.model_of(config["outputs"][0])
    assert output.reach % 256 == 128  # the last packet is needed for half of its samples
    for n_packets, n_batches in [(output.reach // 256, 0), (output.reach // 256 + 1, 1)]:
        samples = scenario.noise(rng, 1, n_packets * 256, 10)
        sent = scenario.digitiser_heaps(config, samples, 0)
        found = scenario.run_pcap(daemon, "fgpu", config, work, sent, f"n{n_packets}")
        assert check(config, found, samples, 0) == n_batches


@pytest.mark.parametrize("loss", [0.003, 0.01, 0.05])
def test_lost_packets(loss, daemon, work, rng):
    """Exactly the batches whose windows touch a lost packet, of either polarisation, are absent."""
    config = small_config(feng_ids=(0, 1, 3))
    n_packets = 600
    samples = scenario.noise(rng, 3, n_packets * 512, 10)
    present = rng.random((3, 2, n_packets)) >= loss
    sent = scenario.digitiser_heaps(config, samples, 512 * 37, present)
    found = scenario.run_pcap(daemon, "fgpu", config, work, sent)
    assert check(config, found, samples, 512 * 37, present) > 20


@pytest.mark.parametrize("who", ["pol0", "pol1", "antenna", "all"])
@pytest.mark.parametrize("first, n", [(32, 16), (35, 16), (32, 31), (47, 2)])
def test_lost_chunks(who, first, n, daemon, work, rng):
    """Whole chunks lost (16 packets each), up to what the window bridges."""
    config = small_config(feng_ids=(0, 2))
    n_packets = 16 * 12
    samples = scenario.noise(rng, 2, n_packets * 512, 10)
    present = np.ones((2, 2, n_packets), bool)
    sides = {"pol0": np.s_[0, 0], "pol1": np.s_[0, 1], "antenna": np.s_[0], "all": np.s_[:]}[who]
    present[sides][..., first:first + n] = False
    sent = scenario.digitiser_heaps(config, samples, 0, present)
    found = scenario.run_pcap(daemon, "fgpu", config, work, sent)
    assert check(config, found, samples, 0, present) > 30


def test_long_gap(daemon, work, rng):
    """A gap longer than the window is a jump: believed after 8 heaps of an input, of which nothing more is lost."""
    config = small_config()
    output = scenario.model_of(config["outputs"][0])
    n_packets, gap = 16 * 40, range(16 * 5, 16 * 25)
    samples = scenario.noise(rng, 1, n_packets * 512, 10)
    present = np.ones((1, 2, n_packets), bool)
    present[..., gap] = False
    sent = scenario.digitiser_heaps(config, samples, 0, present)
    streams = scenario.fgpu_streams(config, scenario.run_pcap(daemon, "fgpu", config, work, sent))
    all_good = fmodel.batches_present(0, present[0], 512, output)
    present[..., gap.stop:gap.stop + 8] = False
    sure = fmodel.batches_present(0, present[0], 512, output)
    got = [t // output.batch for t in streams[0, 0]]
    assert set(sure) <= set(got) <= set(all_good)
    assert got == sorted(got)
    models = fmodel.voltages(0, samples[0], output)
    for batch in got:
        scenario.compare_voltages(streams[0, 0][batch * output.batch], models[batch], 127, f"batch {batch}")


def test_disorder_duplicates_and_rubbish(daemon, work, rng):
    """Faults of the network, and packets of other senders, change nothing."""
    config = small_config(feng_ids=(0, 1))
    samples = scenario.noise(rng, 2, 200 * 512, 10)
    sent = scenario.digitiser_heaps(config, samples, 8192)
    # Packets arrive up to ten packets of their input late; a tenth comes twice.
    late = sorted(range(len(sent)), key=lambda i: i + rng.uniform(0, 40))
    twice = 0 if harness.DIRECT else 0.1  # there each second copy contests its heap
    late = [i for i in late for _ in range(1 + (rng.random() < twice))]
    sent = [sent[i] for i in late]
    here, other_pol = endpoints(config["antennas"][0]["pol0"])[0], endpoints(config["antennas"][1]["pol1"])[0]
    good = packets(sent[0].heap, 2, 9000)[0]
    wrong_time = bytearray(good)
    wrong_time[40:48] = (0x9600 << 48 | 8192 + 100).to_bytes(8, "big")
    assert good[40:42] == b"\x96\0"
    far_future = good[:42] + (2**46).to_bytes(6, "big") + good[48:]
    rubbish = [b"", b"S", good[:7], good[:40], good[:-1], good[:72], good + b"\0", rng.bytes(1000), bytes(wrong_time),
               b"\x53\x04\x02\x06\0\0\xff\xff" + good[8:], b"\x53\x04\x03\x05" + good[4:], b"\x54" + good[1:],
               good.replace(b"\x96\0", b"\x96\1", 1), far_future, packets(stop_heap(), 7, 9000)[0]]
    extra = [(int(rng.integers(5, len(sent))), where, junk) for junk in rubbish for where in (here, other_pol)]
    elsewhere = ("239.104.255.254", here[1])
    extra += [(50, elsewhere, good), (50, (here[0], here[1] + 1), good)]
    found = scenario.run_pcap(daemon, "fgpu", config, work, sent, extra=extra)
    assert check(config, found, samples, 8192) > 60


def test_capture_cut_off(daemon, work, rng):
    """A recording that ends inside a packet is processed up to there, but is no success; the file is named, once."""
    config = small_config()
    n_packets, n_whole = 100, 61
    samples = scenario.noise(rng, 1, n_packets * 512, 10)
    sent = scenario.digitiser_heaps(config, samples, 0)
    source, sink = work / "cut.in.pcap", work / "cut.out.pcap"
    harness.write_heaps(source, sent[:2 * n_whole])
    size = source.stat().st_size
    harness.write_heaps(source, sent)
    assert source.stat().st_size > size + 100
    os.truncate(source, size + 100)
    config = merge(config, {"recv": {"pcap_file": str(source)}, "send": {"pcap_file": str(sink)}})
    process = daemon("fgpu", config).wait_end(code=1)
    assert process.log.read_text().count(str(source)) == 1, process.tail()
    present = np.ones((1, 2, n_packets), bool)
    present[..., n_whole:] = False
    assert check(config, harness.decode_pcap(sink), samples, 0, present) > 10


def test_capture_to_a_full_disk(daemon, work, rng):
    """A replay that lost its output is no success, even if only the descriptors and stop heaps were lost."""
    for n_samples in (40960, 512):
        config = small_config()
        source = work / f"full{n_samples}.in.pcap"
        harness.write_heaps(source, scenario.digitiser_heaps(config, scenario.noise(rng, 1, n_samples, 10), 0))
        config = merge(config, {"recv": {"pcap_file": str(source)}, "send": {"pcap_file": "/dev/full"}})
        process = daemon("fgpu", config, f"full{n_samples}").wait_end(code=1)
        assert "No space left on device" in process.log.read_text(), process.tail()


@pytest.mark.parametrize("section", ["recv", "send"])
def test_capture_that_cannot_be_opened(section, daemon, work):
    """A restart cannot help, and the init system is told this."""
    process = daemon("fgpu", merge(small_config(), {section: {"pcap_file": str(work / "none" / "file")}})).wait_end(code=78)
    assert process.log.read_text().count("none/file") == 1, process.tail()


def test_other_traffic_in_the_capture(daemon, work, rng):
    """Frames that are not IPv4 UDP are passed over."""
    import struct
    config = small_config()
    samples = scenario.noise(rng, 1, 40960, 10)
    import harness
    source = work / "mixed.in.pcap"
    harness.write_heaps(source, scenario.digitiser_heaps(config, samples, 0))
    capture = source.read_bytes()
    arp = b"\xff" * 12 + b"\x08\x06" + bytes(28)
    tcp = bytearray(frame(("127.0.0.1", 80), bytes(20)))
    tcp[23] = 6
    strange = b"".join(struct.pack("<IIII", 0, 0, len(f), len(f)) + f for f in (arp, bytes(tcp), b"\0" * 10))
    source.write_bytes(capture[:24] + strange + capture[24:])
    found = scenario.run_capture(daemon, "fgpu", config, source, work / "mixed.out.pcap")
    assert check(config, found, samples, 0) > 0


# ---- Dither ----------------------------------------------------------------------------------------------------------


def dithered(daemon, work, rng_samples, seed, name="run", start=0):
    """Values of two antennas and two equal outputs with dither, and their values before it: both as
    [batch][channel][spectrum][pol][part], without channel 0, whose imaginary part is always 0."""
    section = {"channels": 64, "spectra_per_heap": 32, "taps": 4, "gain": 0.1, "dither": "uniform", "dither_seed": seed}
    config = scenario.fgpu_config(outputs=[section, section], feng_ids=(0, 1),
                                  recv={"packet_samples": 512, "chunk_samples": 8192})
    one = rng_samples
    samples = np.stack([np.stack([one, one])] * 2)
    sent = scenario.digitiser_heaps(config, samples, start)
    streams = scenario.fgpu_streams(config, scenario.run_pcap(daemon, "fgpu", config, work, sent, name))
    output = scenario.model_of(section)
    models = fmodel.voltages(start, samples[0], output)
    model = np.stack(list(models.values()))[:, 1:]
    exact = np.stack([model.real, model.imag], -1)
    assert np.abs(exact).max() < 100
    values = {key: np.stack(list(got.values()))[:, 1:] for key, got in streams.items()}
    for key, got in streams.items():
        assert list(got) == [b * output.batch for b in models], key
    return values, exact


def test_dither_statistics(daemon, work, rng):
    """Dither keeps the mean of every fraction, doubles the variance of rounding, and does not repeat."""
    values, exact = dithered(daemon, work, scenario.noise(rng, 1, 2**18, 10)[0, 0], 1234)
    errors = {key: v - exact for key, v in values.items()}
    n = exact.size
    for key, error in errors.items():
        assert np.abs(error).max() < 1 + 1e-3, key
        assert abs(error.mean()) < 5 * np.sqrt(1 / 6 / n), key
        assert error.var() == pytest.approx(1 / 6, rel=0.01), key
        fraction = (exact - np.floor(exact)) * 16
        for part in range(16):
            inside = error[fraction.astype(int) == part]
            assert abs(inside.mean()) < 5 * 0.5 / np.sqrt(inside.size), f"{key}: mean at fraction {part}/16"
    # The same input everywhere, so that equal dithers would give equal errors.
    e = errors[0, 0]
    pairs = {
        "antennas": (e, errors[0, 1]), "outputs": (e, errors[1, 0]), "polarisations": (e[..., 0, :], e[..., 1, :]),
        "parts": (e[..., 0], e[..., 1]), "spectra": (e[:, :, :-1], e[:, :, 1:]), "channels": (e[:, :-1], e[:, 1:]),
        "batches": (e[:-1], e[1:]),
    }
    for name, (x, y) in pairs.items():
        correlation = np.mean(x * y) * 6
        assert abs(correlation) < 5 / np.sqrt(x.size), f"dithers of neighbouring {name} correlate: {correlation}"


def test_dither_seed(daemon, work, rng):
    """The same seed gives the same bits, wherever the stream starts; another seed others."""
    samples = scenario.noise(rng, 1, 2**15, 10)[0, 0]
    first, exact = dithered(daemon, work, samples, 7, "first")
    again, _ = dithered(daemon, work, samples, 7, "again")
    other, _ = dithered(daemon, work, samples, 8, "other")
    for key in first:
        assert np.array_equal(first[key], again[key])
        assert 0.1 < np.mean(first[key] != other[key]) < 0.9


def test_dither_keeps_integers(daemon, work):
    """Silence stays silence: dither never moves an exact integer."""
    values, exact = dithered(daemon, work, np.zeros(2**14, np.int16), 99)
    assert not exact.any()
    for key, v in values.items():
        assert not v.any(), key


# ---- Levels ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits_out, limit", [(8, 127), (4, 7)])
def test_saturation_is_symmetric(bits_out, limit, daemon, work, rng):
    """Everything far too large ends at +-Q; -128 and -8 never leave.  (A gain at which a float is exact to a step.)"""
    config = scenario.fgpu_config(outputs=[{"channels": 64, "taps": 4, "gain": 1e4, "sample_bits": bits_out}])
    samples = scenario.noise(rng, 1, 32768, 10)
    found = scenario.run_pcap(daemon, "fgpu", config, work, scenario.digitiser_heaps(config, samples, 0))
    assert check(config, found, samples, 0) > 5
    values = np.stack(list(scenario.fgpu_streams(config, found)[0, 0].values()))
    assert values.min() == -limit and values.max() == limit
    assert np.mean(np.abs(values[:, 1:]) == limit) > 0.999  # the imaginary part of channel 0 is 0


@pytest.mark.parametrize("bits", [2, 8, 10, 12, 16])
def test_full_scale_inputs(bits, daemon, work):
    """The most negative sample is a legal one: a square wave between the extremes, and DC at either."""
    low, high = -2**(bits - 1), 2**(bits - 1) - 1
    config = scenario.fgpu_config(outputs=[{"channels": 64, "taps": 2, "gain": 1.0 / 2**(bits - 2)}],
                                  recv={"sample_bits": bits, "packet_samples": 256, "chunk_samples": 4096})
    samples = np.empty((1, 2, 16384), np.int16)
    samples[0, 0] = np.where(np.arange(16384) // 9 % 2, low, high)
    samples[0, 1] = np.where(np.arange(16384) < 8192, low, high)
    found = scenario.run_pcap(daemon, "fgpu", config, work, scenario.digitiser_heaps(config, samples, 0))
    assert check(config, found, samples, 0) > 5


# ---- What is said of the inputs --------------------------------------------------------------------------------------


def input_power(daemon, work, config, sent, name):
    """Figures of the log's last lines: dBFS of both polarisations, and whether that second was complete."""
    source, sink = work / f"{name}.in.pcap", work / f"{name}.out.pcap"
    harness.write_heaps(source, sent)
    config = merge(config, {"recv": {"pcap_file": str(source)}, "send": {"pcap_file": str(sink)}})
    text = daemon("fgpu", config, name).wait_end().log.read_text()
    found = re.search(r"input power of polarisations 0 and 1: (\S+) and (\S+) dBFS in the last of (\d+) measured seconds"
                      r"( \(samples are missing\))?", text)
    assert found, text
    return float(found[1]), float(found[2]), int(found[3]), not found[4]


def check_input_power(bits, pol0, pol1, samples1):
    """dBFS of a constant, the highest or 200 in 10 bits, and of other samples."""
    assert pol0 == pytest.approx(-5.137518132774 if bits == 10 else 10 * np.log10(2), abs=1e-6)
    power = np.mean(samples1.astype(float)**2) / ((2**(bits - 1) - 1)**2 / 2)
    assert pol1 == pytest.approx(10 * np.log10(power), abs=1e-6)


@pytest.mark.parametrize("bits", [2, 8, 10, 12, 16])
def test_input_power(bits, daemon, work, rng):
    """Levels of the last whole second, exactly: of a constant (the level of 200 in 10 bits is known), and of noise."""
    batch = 16 * 128  # of the first output, by which seconds are counted
    config = merge(small_config(), {"recv": {"sample_bits": bits}, "time": {"adc_sample_rate": 4 * batch}})
    config["outputs"][0]["batches_per_buffer"] = 2
    samples = scenario.noise(rng, 1, batch * 33 // 512 * 512, bits)
    samples[0, 0] = 200 if bits == 10 else 2**(bits - 1) - 1
    # Windows begin with the samples that a window of the filter begins with, so the 28 batches from 4 on are whole.
    pol0, pol1, n, valid = input_power(daemon, work, config, scenario.digitiser_heaps(config, samples, 0), "whole")
    assert valid and n >= 6
    check_input_power(bits, pol0, pol1, samples[0, 1, (n - 1) * 4 * batch:n * 4 * batch])
    present = np.ones((1, 2, samples.shape[2] // 512), bool)
    present[0, 0, (n - 1) * 4 * batch // 512 + 5] = False
    sent = scenario.digitiser_heaps(config, samples, 0, present)
    assert input_power(daemon, work, config, sent, "lost")[2:] == (n, False)
    present[0, 0] = True
    present[0, 1, (n - 3) * 4 * batch // 512 + 5] = False
    sent = scenario.digitiser_heaps(config, samples, 0, present)
    assert input_power(daemon, work, config, sent, "before") == (pol0, pol1, n, True)
