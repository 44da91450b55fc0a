"""xbgpu against exact sums, on captures: exactly the expected dumps, with every bit right."""
import numpy as np
import pytest

import harness
import scenario
import xmodel
from harness import endpoints, packets


def run(daemon, work, config, first_batch, voltages, present=None, rng=None, name="run", sent=None, **write):
    """Runs xbgpu over the voltages and compares every output with the model.  Returns the expected dumps by output."""
    recv = config["recv"]
    present = np.ones(voltages.shape[:2], bool) if present is None else present
    if sent is None:
        sent = scenario.feng_heaps(config, first_batch, voltages, present, rng)
    found = scenario.run_pcap(daemon, "xbgpu", config, work, sent, name, **write)
    wanted = {e for o in config["outputs"] for e in endpoints(o["destination"])}
    assert set(found) == wanted
    out = []
    for o, output in enumerate(config["outputs"]):
        expected = {}
        if output["send_enabled"]:
            expected = xmodel.dumps(first_batch, voltages, present, output["integration_batches"],
                                    output.get("missing", "flag"), output.get("missing_dump", "send"),
                                    n_buffers=output.get("buffers", 0))
        (endpoint,) = endpoints(output["destination"])
        scenario.check_dumps(config, o, found[endpoint], expected, f"{name} {recv}")
        out.append(expected)
    return out


def bridge(present, config):
    """Shortens silences that the window of chunks does not bridge.  Other tests cover losses by jumps."""
    recv = config["recv"]
    longest = recv.get("window", 2) * recv["batches_per_chunk"] - 1
    for ant in range(present.shape[1]):
        run = 0
        for batch in range(len(present)):
            run = 0 if present[batch, ant] else run + 1
            if run > longest:
                present[batch, ant], run = True, 0


def is_absent(dump):
    """Whether no antenna was there."""
    return xmodel.is_missing(dump[0]).all() and not dump[1].any()


def n_magic(vis):
    return np.count_nonzero(xmodel.is_missing(vis))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("n_ants", [1, 2, 3, 4, 7, 16, 33])
def test_exact(n_ants, threads, daemon, work, rng):
    """Bit for bit, with heaps missing; several lengths at once, windows that straddle chunks, both policies."""
    config = scenario.xbgpu_config(
        outputs=[{"integration_batches": 1, "missing_dump": "skip"}, {"integration_batches": 3},
                 {"integration_batches": 8, "missing": "weights"}, {"integration_batches": 5, "audit_samples": 16}],
        recv={"antennas": n_ants, "threads": min(threads, n_ants), "batches_per_chunk": int(rng.integers(2, 9)),
              "channels_per_substream": int(rng.choice([1, 2, 4])), "spectra_per_heap": int(rng.choice([16, 32, 48])),
              "samples_between_spectra": int(rng.choice([16, 128, 1000]))},
        send={"packet_payload": int(rng.choice([512, 1000, 8192]))})
    n_batches = 61
    voltages = scenario.random_voltages(rng, config, n_batches)
    voltages[10:12] = -128
    voltages[12] = rng.choice(np.array([-128, 127], np.int8), voltages[12].shape)
    loss = 0.3 / n_ants / 5
    present = rng.random((n_batches, n_ants)) >= loss
    present[30:33, 0] = False
    bridge(present, config)
    first_batch = int(rng.choice([0, 7, 2**30 + 5]))
    dumps = run(daemon, work, config, first_batch, voltages, present, rng, f"{n_ants}-{threads}",
                max_packet=72 + int(rng.choice([256, 1024, 8192])))
    assert len(dumps[1]) >= 18 and sum(n_magic(vis) == 0 for vis, _, _ in dumps[1].values()) >= 5


@pytest.mark.parametrize("bits, encoding", [(4, "twos_complement"), (4, "offset"), (16, "twos_complement")])
@pytest.mark.parametrize("n_ants", [1, 3, 10])
def test_sample_formats(n_ants, bits, encoding, daemon, work, rng):
    """Every format with missing heaps, which count as zero in any format; both policies."""
    config = scenario.xbgpu_config(
        outputs=[{"integration_batches": 3, "missing": "weights", "audit_samples": 16}, {"integration_batches": 4},
                 {"integration_batches": 1, "missing_dump": "skip"}],
        recv={"antennas": n_ants, "sample_bits": bits, "sample_encoding": encoding, "threads": min(n_ants, 2),
              "channels_per_substream": int(rng.choice([1, 4])), "spectra_per_heap": int(rng.choice([16, 48]))},
        send={"packet_payload": int(rng.choice([512, 8192]))})
    voltages = scenario.random_voltages(rng, config, 40)
    voltages[6] = -(2**(bits - 1)) if bits == 4 else -65504  # the lowest that there is
    present = rng.random((40, n_ants)) >= 0.1
    bridge(present, config)
    dumps = run(daemon, work, config, 5, voltages, present, rng, max_packet=72 + int(rng.choice([64, 1024])))
    assert 0 < sum(n_magic(vis) for vis, _, _ in dumps[1].values()) < sum(vis[..., 0].size for vis, _, _ in dumps[1].values())
    assert all(vis.dtype == ("<f4" if bits == 16 else "<i4") for vis, _, _ in dumps[0].values())


@pytest.mark.parametrize("case", range(20))
def test_random(case, daemon, work, rng):
    """Small random configurations: chunks, windows, offsets, losses of single heaps, of antennas and of all for a while."""
    n_ants = int(rng.integers(1, 6))
    channels, cps = 64, int(rng.choice([1, 2, 4, 8]))
    config = scenario.xbgpu_config(
        outputs=[{"integration_batches": int(rng.integers(1, 13)), "missing": str(rng.choice(["flag", "weights"])),
                  "buffers": int(rng.integers(2, 5))} for _ in range(int(rng.integers(1, 4)))]
        + [{"integration_batches": int(rng.integers(1, 13)), "missing_dump": "skip"}],
        recv={"antennas": n_ants, "channels": channels, "channels_per_substream": cps,
              "channel_offset": cps * int(rng.integers(0, channels // cps)), "threads": int(rng.integers(1, n_ants + 1)),
              "batches_per_chunk": int(rng.integers(1, 9)), "spectra_per_heap": 16 * int(rng.integers(1, 5)),
              "samples_between_spectra": int(rng.integers(1, 300)), "window": int(rng.integers(1, 4)), "chunks": 12},
        send={"packet_payload": 8 * int(rng.integers(16, 1025))})
    n_batches = int(rng.integers(20, 60))
    voltages = scenario.random_voltages(rng, config, n_batches)
    present = rng.random((n_batches, n_ants)) >= rng.choice([0, 0.01, 0.1])
    for _ in range(2):
        first, n = int(rng.integers(0, n_batches)), int(rng.integers(1, 6))
        present[first:first + n, rng.integers(0, n_ants)] = False
    # All antennas silent, no longer than the window of chunks bridges.
    first = int(rng.integers(1, n_batches))
    present[first:first + int(rng.integers(0, config["recv"]["batches_per_chunk"] + 1))] = False
    bridge(present, config)
    first_batch = int(rng.integers(0, 100))
    run(daemon, work, config, first_batch, voltages, present, rng, max_packet=72 + 8 * int(rng.integers(16, 1025)))


# ---- Which dumps -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["flag", "weights"])
@pytest.mark.parametrize("first_batch", [0, 1, 5, 6, 11])
def test_first_and_last_windows(first_batch, missing, daemon, work, rng):
    """The first window is not sent if it is a part, and neither is the last, unfinished window."""
    config = scenario.xbgpu_config(outputs=[{"integration_batches": 6, "missing": missing}])
    for n_batches in (20, 23, 24):
        voltages = scenario.random_voltages(rng, config, n_batches)
        (dumps,) = run(daemon, work, config, first_batch, voltages, name=f"n{n_batches}")
        assert list(dumps) == list(range(-(-first_batch // 6), (first_batch + n_batches) // 6))
        assert not any(n_magic(dump[0]) for dump in dumps.values())


def test_first_batch_lacks_an_antenna(daemon, work, rng):
    """An engine that starts within a batch receives only some antennas of it: the window is a part, and is not sent."""
    config = scenario.xbgpu_config(outputs=[{"integration_batches": 4}], recv={"antennas": 3})
    present = np.ones((16, 3), bool)
    present[0, 1] = False
    (dumps,) = run(daemon, work, config, 0, scenario.random_voltages(rng, config, 16), present)
    assert list(dumps) == [1, 2, 3]


def test_first_window_without_an_antenna(daemon, work, rng):
    """An antenna without any heap does not make the first window a part."""
    config = scenario.xbgpu_config(outputs=[{"integration_batches": 4}], recv={"antennas": 3})
    present = np.ones((16, 3), bool)
    present[:, 1] = False
    (dumps,) = run(daemon, work, config, 0, scenario.random_voltages(rng, config, 16), present)
    assert list(dumps) == [0, 1, 2, 3] and 0 < n_magic(dumps[0][0]) < dumps[0][0].size // 2


def test_flags_by_antenna(daemon, work, rng):
    """One lost heap flags the four products of all baselines of its antenna, in all channels, in one dump."""
    config = scenario.xbgpu_config(outputs=[{"integration_batches": 4}], recv={"antennas": 4})
    voltages = scenario.random_voltages(rng, config, 16)
    present = np.ones((16, 4), bool)
    present[5, 2] = False
    (dumps,) = run(daemon, work, config, 0, voltages, present)
    flagged = (dumps[1][0] == xmodel.MAGIC).all(-1)
    baselines = {(a1, a2) for a2 in range(4) for a1 in range(a2 + 1) if flagged[:, 4 * xmodel.baseline(a1, a2)].all()}
    assert baselines == {(0, 2), (1, 2), (2, 2), (2, 3)} and n_magic(dumps[1][0]) == 4 * 16
    assert all(n_magic(dumps[w][0]) == 0 for w in (0, 2, 3))


@pytest.mark.parametrize("missing_dump, n_dumps", [("send", 5), ("skip", 4)])
def test_no_complete_antenna(missing_dump, n_dumps, daemon, work, rng):
    """A window in which every antenna lost a heap has only magic values in it; one without a heap is never sent."""
    config = scenario.xbgpu_config(outputs=[{"integration_batches": 4, "missing_dump": missing_dump}],
                                   recv={"antennas": 3, "batches_per_chunk": 8})
    voltages = scenario.random_voltages(rng, config, 24)
    present = np.ones((24, 3), bool)
    present[4, 0] = present[5, 1] = present[7, 2] = False
    present[12:16] = False
    (dumps,) = run(daemon, work, config, 0, voltages, present)
    assert len(dumps) == n_dumps and 3 not in dumps
    if missing_dump == "send":
        assert n_magic(dumps[1][0]) == dumps[1][0].size // 2


@pytest.mark.parametrize("missing", ["flag", "weights"])
def test_accumulations_without_a_heap(missing, daemon, work, rng):
    """Between others they are sent, all flagged, unless more are in a row than there are buffers; none at the end."""
    how = {"missing": missing, "missing_dump": "always"}
    config = scenario.xbgpu_config(
        outputs=[how | {"integration_batches": 1, "buffers": 12}, how | {"integration_batches": 2, "buffers": 6},
                 how | {"integration_batches": 3, "buffers": 8}, {"integration_batches": 1}],
        recv={"antennas": 3, "batches_per_chunk": 8, "window": 4, "chunks": 16})
    voltages = scenario.random_voltages(rng, config, 120)
    present = np.ones((120, 3), bool)
    present[10:12] = False   # within a chunk
    present[21:33] = False   # over a whole chunk: as many windows as there are buffers
    present[50:63] = False   # one window more
    present[70:75, 1:] = False
    present[80], present[82:84] = False, False
    present[110:] = False
    expected = run(daemon, work, config, 5, voltages, present, rng)
    assert [len(dumps) for dumps in expected[:3]] == [110 - 13, 54, 36] and len(expected[3]) == 110 - 2 - 12 - 13 - 3
    assert [d for d in expected[0] if is_absent(expected[0][d])] == [15, 16, *range(26, 38), 85, 87, 88]


def test_weights(daemon, work, rng):
    """With weights a lost heap costs its spectra only; a baseline without any is flagged."""
    config = scenario.xbgpu_config(outputs=[{"integration_batches": 4, "missing": "weights"}], recv={"antennas": 3})
    voltages = scenario.random_voltages(rng, config, 12)
    present = np.ones((12, 3), bool)
    present[4, 0] = present[5, 1] = present[6:8, 2] = False
    present[8:10, 0] = present[10:12, 1] = False
    (dumps,) = run(daemon, work, config, 0, voltages, present)
    assert dumps[1][1].tolist() == [48, 32, 48, 16, 16, 32]
    assert dumps[2][1].tolist() == [32, 0, 32, 32, 32, 64] and n_magic(dumps[2][0]) == 4 * 4


def test_incomplete_heaps(daemon, work, rng):
    """A heap that lacks a packet is an absent heap; duplicates do not fill its hole."""
    config = scenario.xbgpu_config(outputs=[{"integration_batches": 4}, {"integration_batches": 4, "missing": "weights"}],
                                   recv={"antennas": 3})
    voltages = scenario.random_voltages(rng, config, 24)
    present = np.ones((24, 3), bool)
    sent = scenario.feng_heaps(config, 0, voltages, rng=rng)
    out = []
    for s in sent:
        parts = packets(s.heap, s.cnt, 72 + 64)
        if rng.random() < 0.1:
            batch, ant = s.cnt // 3 - 1, s.cnt % 3
            present[batch, ant] = False
            hole = int(rng.integers(0, len(parts)))
            parts[hole] = parts[hole - 1]
        out += [(s.endpoint, p) for p in parts]
    assert 0 < np.count_nonzero(~present) < 24
    source = work / "holes.in.pcap"
    harness.write_pcap(source, out)
    found = scenario.run_capture(daemon, "xbgpu", config, source, work / "holes.out.pcap")
    for o, output in enumerate(config["outputs"]):
        expected = xmodel.dumps(0, voltages, present, 4, output.get("missing", "flag"))
        scenario.check_dumps(config, o, found[endpoints(output["destination"])[0]], expected)


def test_disorder_and_rubbish(daemon, work, rng):
    """Packets out of order by up to two batches, some twice, and others' packets: the dumps do not change."""
    config = scenario.xbgpu_config(outputs=[{"integration_batches": 5}], recv={"antennas": 4, "batches_per_chunk": 4})
    voltages = scenario.random_voltages(rng, config, 40)
    step = scenario.batch_samples(config)
    sent = scenario.feng_heaps(config, 4, voltages, rng=rng)
    good = [(s.endpoint, p) for s in sent for p in packets(s.heap, s.cnt, 72 + 256)]
    spread = 2 * len(good) / 40
    order = sorted(range(len(good)), key=lambda i: i + rng.uniform(0, spread))
    twice = 0 if harness.DIRECT else 0.1  # there each second copy contests its heap
    mixed = [good[i] for i in order for _ in range(1 + (rng.random() < twice))]
    here = sent[0].endpoint
    heap = np.full(voltages.shape[2:], 77, np.int8)
    wrong = [harness.feng_heap(20 * step, 4, 8, heap), harness.feng_heap(20 * step, 2**40, 8, heap),
             harness.feng_heap(20 * step + 1, 1, 8, heap), harness.feng_heap(20 * step, 1, 12, heap),
             harness.feng_heap(20 * step, 1, 8, heap[:, :8]), harness.feng_heap(2**44 * step, 1, 8, heap),
             harness.stop_heap()]
    for w in wrong:
        at = int(rng.integers(len(mixed) // 8, len(mixed) * 3 // 8))
        mixed[at:at] = [(here, p) for p in packets(w, 1000, 72 + 256)]
    first = packets(harness.feng_heap(12 * step, 1, 8, heap), 5, 9000)[0]
    for junk in (b"", first[:30], first[:-1], rng.bytes(500), b"\x53" + rng.bytes(71), first + b"x"):
        mixed.insert(int(rng.integers(10, len(mixed))), (here, junk))
    mixed[50:50] = [((here[0], here[1] + 1), first), (("239.104.255.254", here[1]), first)]
    source = work / "mixed.in.pcap"
    harness.write_pcap(source, mixed)
    found = scenario.run_capture(daemon, "xbgpu", config, source, work / "mixed.out.pcap")
    expected = xmodel.dumps(4, voltages, np.ones((40, 4), bool), 5)
    scenario.check_dumps(config, 0, found[endpoints(config["outputs"][0]["destination"])[0]], expected)


# ---- Values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_batches, n_clipped", [(15, 0), (16, 1), (17, 1)])
def test_saturation(n_batches, n_clipped, daemon, work):
    """Sums up to, at and beyond 2^31 clip to +-(2^31 - 1): 2 * 128^2 a spectrum, 4096 spectra a heap."""
    config = scenario.xbgpu_config(
        outputs=[{"integration_batches": n_batches}, {"integration_batches": n_batches, "missing": "weights"}],
        recv={"antennas": 2, "channels_per_substream": 2, "spectra_per_heap": 4096, "batches_per_chunk": 2})
    voltages = np.full((n_batches, 2, 2, 4096, 2, 2), -128, np.int8)
    voltages[:, 1] = 127
    voltages[:, 1, 1, :, :, 0] = -127
    dumps = run(daemon, work, config, 0, voltages)
    vis, _, clipped = dumps[0][0]
    assert (clipped > 0) == n_clipped
    if n_batches == 17:
        assert vis.max() == 2**31 - 1 and vis.min() == -2**31 + 1
    if n_batches == 16:
        # Exactly 2^31, and 65536 short of nothing.
        assert vis[0, 0].tolist() == [2**31 - 1, 0]


LONG = {  # lengths in batches: what sums of 32 bits hold, one more, and a few times that
    "many heaps": (4080, 7, [16, 17, 50]),
    "chunks longer than that": (4096, 40, [15, 16, 53]),
    "a heap each": (65520, 2, [1, 2, 5]),
}


@pytest.mark.parametrize("full_scale", [False, True])
@pytest.mark.parametrize("case", LONG)
def test_long_accumulations(case, full_scale, daemon, work, rng):
    """Accumulations that sums of 32 bits just hold, and that fill them several times; saturated on both sides."""
    n_spectra, batches_per_chunk, lengths = LONG[case]
    n_batches = 2 * lengths[-1] + 1
    config = scenario.xbgpu_config(
        outputs=[{"integration_batches": n, "missing": "weights", "audit_samples": 1} for n in lengths],
        recv={"antennas": 2, "channels_per_substream": 1, "spectra_per_heap": n_spectra,
              "batches_per_chunk": batches_per_chunk, "chunks": 7})
    voltages = scenario.random_voltages(rng, config, n_batches)
    present = rng.random((n_batches, 2)) >= 0.05
    if full_scale:
        voltages[:, 0] = -128
        voltages[:, 1] = np.array([[-128, -128], [127, 127]], np.int8)
        present[:] = True
    bridge(present, config)
    dumps = run(daemon, work, config, 0, voltages, present)
    if full_scale:
        assert dumps[0][0][2] == 0 and dumps[0][0][0].max() == lengths[0] * n_spectra * 2**15
        assert (dumps[2][0][0] == 2**31 - 1).any() and (dumps[2][0][0] == -2**31 + 1).any()


@pytest.mark.parametrize("n_spectra, batches_per_chunk, lengths", [(1024, 3, [8, 9, 21]), (8192, 2, [1, 2, 4])])
def test_long_float_accumulations(n_spectra, batches_per_chunk, lengths, daemon, work, rng):
    """Half floats, of which fewer spectra go into float32."""
    n_batches = 2 * lengths[-1] + 1
    config = scenario.xbgpu_config(
        outputs=[{"integration_batches": n, "missing": "weights", "audit_samples": 1} for n in lengths],
        recv={"antennas": 2, "channels_per_substream": 2, "spectra_per_heap": n_spectra, "sample_bits": 16,
              "batches_per_chunk": batches_per_chunk, "chunks": 7})
    present = rng.random((n_batches, 2)) >= 0.05
    bridge(present, config)
    run(daemon, work, config, 0, scenario.random_voltages(rng, config, n_batches), present)


def test_integration_time_rounds_to_batches(daemon, work, rng):
    """Seconds become the nearest number of batches, and at least one."""
    batch_s = 16 * 128 / 1e6
    wanted = {2.4 * batch_s: 2, 2.6 * batch_s: 3, 7.0 * batch_s: 7, 0.9 * batch_s: 1}
    config = scenario.xbgpu_config(outputs=[{"integration_batches": 0, "integration_time": s} for s in wanted],
                                   time={"adc_sample_rate": 1000000})
    voltages = scenario.random_voltages(rng, config, 30)
    sent = scenario.feng_heaps(config, 0, voltages)
    found = scenario.run_pcap(daemon, "xbgpu", config, work, sent)
    for output, length in zip(config["outputs"], wanted.values()):
        output["integration_batches"] = length
    for o, length in enumerate(wanted.values()):
        expected = xmodel.dumps(0, voltages, np.ones((30, 2), bool), length)
        scenario.check_dumps(config, o, found[endpoints(config["outputs"][o]["destination"])[0]], expected)


def test_send_not_enabled(daemon, work, rng):
    """Descriptors and stop heaps only, beside an output that sends."""
    config = scenario.xbgpu_config(outputs=[{"send_enabled": False}, {}, {"send_enabled": False}])
    run(daemon, work, config, 3, scenario.random_voltages(rng, config, 20))


def test_one_antenna_never_comes(daemon, work, rng):
    """With a separate thread and without, an absent antenna flags its baselines for the whole run."""
    for threads in (1, 2):
        config = scenario.xbgpu_config(outputs=[{}, {"missing": "weights"}], recv={"threads": threads})
        voltages = scenario.random_voltages(rng, config, 20)
        present = np.ones((20, 2), bool)
        present[:, 1] = False
        dumps = run(daemon, work, config, 0, voltages, present, name=f"threads{threads}")
        assert len(dumps[0]) == 5


@pytest.mark.parametrize("short", [0, 1, 2])
def test_one_antenna_ends_early(short, daemon, work, rng):
    """Data that an antenna sent before its end count, however many chunks are open then, and whichever antenna ends
    first."""
    for window in (1, 3):
        config = scenario.xbgpu_config(outputs=[{"integration_batches": 1, "missing": "weights"}],
                                       recv={"antennas": 3, "threads": 3, "batches_per_chunk": 2, "window": window,
                                             "chunks": 12})
        voltages = scenario.random_voltages(rng, config, 20)
        for n_missing in range(1, 2 * window + 1):
            present = np.ones((20, 3), bool)
            present[20 - n_missing:, short] = False
            run(daemon, work, config, 0, voltages, present, name=f"window{window}missing{n_missing}")


def test_long_gap(daemon, work, rng):
    """A gap longer than the window is believed after 8 heaps of two F-engines; then nothing more is lost."""
    config = scenario.xbgpu_config(outputs=[{"integration_batches": 4}], recv={"antennas": 3})
    voltages = scenario.random_voltages(rng, config, 160)
    present = np.ones((160, 3), bool)
    present[20:100] = False
    sent = scenario.feng_heaps(config, 0, voltages, present)
    found = scenario.run_pcap(daemon, "xbgpu", config, work, sent)
    heaps = found[endpoints(config["outputs"][0]["destination"])[0]]
    got = [h.items["timestamp"] // (4 * scenario.batch_samples(config)) for h in heaps if h.kind == "data"]
    late = present.copy()
    late[100:109] = False
    sure = {w: d for w, d in xmodel.dumps(0, voltages, late, 4).items() if not (25 <= w < 28)}
    # What came between the jump and its being believed may be missing, flagged or whole.
    assert [w for w in got if not (25 <= w < 28)] == list(sure)
    for heap in heaps:
        window = heap.items["timestamp"] // (4 * scenario.batch_samples(config)) if heap.kind == "data" else None
        if window in sure:
            assert np.array_equal(heap.items["xeng_raw"], sure[window][0])


@pytest.mark.parametrize("n_spectra", [16, 1632])
def test_jump_back_in_a_window(n_spectra, daemon, work, rng):
    """Time begins again within an accumulation.  Earlier and later data never form one dump, even if together they have
    the right number of batches.  Both dumps are flagged."""
    config = scenario.xbgpu_config(outputs=[{"integration_batches": 40, "audit_samples": 4}],
                                   recv={"antennas": 2, "channels_per_substream": 1, "spectra_per_heap": n_spectra,
                                         "batches_per_chunk": 2, "window": 1})
    for n_more in range(14, 24):
        voltages = scenario.random_voltages(rng, config, 70 + n_more)
        behind = scenario.random_voltages(rng, config, 30)
        sent = (scenario.feng_heaps(config, 0, voltages[:70]) + scenario.feng_heaps(config, 42, voltages[70:]) +
                scenario.feng_heaps(config, 80, behind))
        found = scenario.run_pcap(daemon, "xbgpu", config, work, sent, f"more{n_more}")
        dumps = [h for h in found[endpoints(config["outputs"][0]["destination"])[0]] if h.kind == "data"]
        dumps = [h.items["xeng_raw"] for h in dumps if h.items["timestamp"] == 40 * scenario.batch_samples(config)]
        assert len(dumps) == 2 and all(xmodel.is_missing(d).all() for d in dumps), f"{n_more} more"
