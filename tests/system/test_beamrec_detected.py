"""beamrec with detected beams: heaps packed by numpy and spead2, with loss, disorder and shapes that do not fit, against
numpy's files; and recordings of xbgpu's output."""
import signal

import baseband.dada
import numpy as np
import pytest
import spead2.send

import harness
import scenario
import test_beams_detected
from harness import endpoints
from test_beamrec import (BATCH, GROUPS, LOOPBACK, N_CHAN, N_SUB, PORT, RATE, SPACING, SYNC_S, Recorder, heap, n_bytes,
                          random_batches, read_sigproc, small_disk)  # noqa: F401

PRODUCTS = {"power_0": 1, "power_1": 1, "I": 1, "IQUV": 4}
MEAN_BATCHES = 64


@pytest.fixture
def recorder(tmp_path):
    made = []

    def make(streams, beams=(), **sections):
        one = Recorder(tmp_path, len(beams), **sections)
        one.config["detected"] = [
            {"name": f"powers{i}", "sources": f"{GROUPS[i]}:{PORT}", "filterbank": f"{tmp_path}/s{i}-{{beam}}.fil",
             "dada": f"{tmp_path}/s{i}-{{beam}}.dada"} | s
            for i, s in enumerate(streams)]
        one.config["beams"] = list(beams)
        made.append(one)
        return one

    yield make
    for one in made:
        one.stop()


def shape(stream):
    """(beams, windows, products, groups of the band)"""
    return (stream.get("beams", 1), stream.get("windows", 16), PRODUCTS[stream.get("products", "I")],
            N_CHAN // stream.get("channels", 1))


def random_stream(rng, stream, n_batches):
    """The sent data of each batch: powers, with uint8 offsets and scales, [batch][beam][window][product][group], all
    different in size, and fractions [batch][substream][window]."""
    n_beams, n_windows, n_products, n_groups = shape(stream)
    level = rng.uniform(1e3, 1e6, (n_beams, 1, n_products, n_groups))
    powers = np.float32(level * (1 + rng.normal(0, 0.1, (n_batches, n_beams, n_windows, n_products, n_groups))))
    sent = {"powers": powers, "fractions": np.ones((n_batches, N_SUB, n_windows), np.float32)}
    if stream.get("format") == "uint8":
        sent["offsets"] = np.float32(level * rng.uniform(0.5, 1, (n_batches, n_beams, 1, n_products, n_groups)))[:, :, 0]
        sent["scales"] = np.float32(sent["offsets"] / 200)
        sent["powers"] = rng.integers(0, 256, powers.shape).astype(np.uint8)
    return sent


def restored(sent):
    """float64 of the powers that were sent."""
    if "scales" not in sent:
        return sent["powers"].astype(float)
    return sent["offsets"][:, :, None].astype(float) + sent["scales"][:, :, None].astype(float) * sent["powers"]


def powers_heap(stream, sent, batch, sub):
    """The heap of a batch and substream; batches are numbered from 0."""
    n = shape(stream)[3] // N_SUB
    own = slice(sub * n, (sub + 1) * n)
    items = [harness.payload_item(0x5012, sent["fractions"][batch, sub])]
    items += [harness.payload_item(item, np.ascontiguousarray(sent[name][batch, ..., own]))
              for item, name in ((0x5013, "offsets"), (0x5014, "scales")) if name in sent]
    items.append(harness.payload_item(0x5010, np.ascontiguousarray(sent["powers"][batch, ..., own])))
    return items


def pack(stream, sent, first, batch, sub):
    samples = stream.get("windows", 16) * stream.get("spectra", 16) * SPACING
    return harness.make_heap([harness.immediate(0x1600, (first + batch) * samples),
                              harness.immediate(0x4103, sub * N_CHAN // N_SUB), harness.immediate(0x5011, 77),
                              *powers_heap(stream, sent, batch, sub)])


def rows_of(values, fractions):
    """float64 [row, product, group]: powers [batch][window][product][group] of a beam where fractions
    [batch][sub][window] are not 0, and running means elsewhere."""
    n_batches, n_windows, n_products, n_groups = values.shape
    values = values.copy().reshape(n_batches, n_windows, n_products, N_SUB, -1)
    for sub in range(N_SUB):
        mean, n = 0, 0
        for batch in range(n_batches):
            here = fractions[batch, sub] > 0
            if here.any():
                n = min(n + 1, MEAN_BATCHES)
                mean = mean + (values[batch, here, :, sub].mean(0) - mean) / n
            values[batch, ~here, :, sub] = mean
    return values.reshape(-1, n_products, n_groups)


def levels(rows, fractions, n_windows):
    """The 8 bits of rows.  Offset and scale of a product come from the nearly whole windows of the first batch."""
    n_products = rows.shape[1]
    first = rows[:n_windows].reshape(n_windows, n_products, N_SUB, -1)
    whole = fractions[0].T >= np.float32(0.9) * fractions[0].max()
    out = []
    for p in range(n_products):
        used = first[:, p][whole]
        scale = 24 / used.std()
        out.append(np.clip(np.rint((rows[:, p] - (used.mean() - 96 / scale)) * scale), 0, 255))
    return np.stack(out, 1)


def check_values(values, stream, sent, beam):
    """Values of a beam's file [row][product][group rising in frequency], or of its beginning."""
    rows = rows_of(restored(sent)[:, beam], sent["fractions"])
    if stream.get("bits", 8) == 8:
        wanted = levels(rows, sent["fractions"], shape(stream)[1])
        assert np.ptp(wanted) > 50
        np.testing.assert_array_equal(values, wanted[:len(values)])
    else:
        np.testing.assert_allclose(values, rows[:len(values)], rtol=3e-7)


def read_dada(path, n_bits):
    """(header as baseband reads it, values [row][product][channel]); a file of powers has no sign in its 8 bits."""
    with baseband.dada.open(str(path), "rb") as file:
        header = file.read_header()
    values = np.fromfile(path, {8: np.uint8, 32: "<f4"}[n_bits], offset=header.nbytes,
                         count=header["FILE_SIZE"] * 8 // n_bits)
    return header, values.reshape(-1, *header.sample_shape)


def check_dada(path, stream, sent, beam, first_samples):
    """A beam's whole PSRDADA file, or its present part.  Returns its values."""
    header, values = read_dada(path, stream.get("bits", 8))
    _, _, n_products, n_groups = shape(stream)
    row_bytes = n_products * n_groups * stream.get("bits", 8) // 8
    width_mhz = RATE / SPACING / 1e6
    assert header.sample_shape == (n_products, n_groups) and not header.complex_data
    assert header.bps == stream.get("bits", 8) and header["RESOLUTION"] == row_bytes
    assert header["OBS_OFFSET"] == 0 and header["ORDER"] == "TPF"
    assert header["STATE"] == {"power_0": "PP", "power_1": "QQ", "I": "Intensity", "IQUV": "Stokes"}[
        stream.get("products", "I")]
    assert header["TSAMP"] == pytest.approx(stream.get("spectra", 16) * SPACING / RATE * 1e6, rel=1e-15)
    assert header["FREQ"] == pytest.approx(1000 - width_mhz / 2) and header["BW"] == pytest.approx(N_CHAN * width_mhz)
    assert abs(header.time.unix - (SYNC_S + first_samples / RATE)) < 1e-6
    assert (float(header["MJD_START"]) - 40587) * 86400 == pytest.approx(SYNC_S + first_samples / RATE, abs=2e-6)
    check_values(values, stream, sent, beam)
    return values


def check_file(path, stream, sent, beam, first_samples):
    """All of a beam's filterbank, and its PSRDADA file if the stream has one."""
    header, values = read_sigproc(path)
    n_beams, n_windows, n_products, n_groups = shape(stream)
    width_mhz = RATE / SPACING / 1e6
    spectra, channels = stream.get("spectra", 16), stream.get("channels", 1)
    assert (header["nchans"], header["nifs"], header["nbits"]) == (n_groups, n_products, stream.get("bits", 8))
    assert header["tsamp"] == spectra * SPACING / RATE and header["foff"] == pytest.approx(-channels * width_mhz)
    assert header["fch1"] == pytest.approx(1000 + (N_CHAN - (channels + 1) / 2 - N_CHAN / 2) * width_mhz)
    assert (header["tstart"] - 40587) * 86400 == pytest.approx(SYNC_S + first_samples / RATE, abs=2e-6)
    values = values.reshape(-1, n_products, n_groups)[..., ::-1]
    assert len(values) == len(sent["powers"]) * n_windows
    check_values(values, stream, sent, beam)
    if stream.get("dada") != "":
        np.testing.assert_array_equal(check_dada(path.with_suffix(".dada"), stream, sent, beam, first_samples), values)


def gaps(path):
    return [tuple(map(int, line.split())) for line in path.read_text().splitlines()] if path.exists() else []


def gaps_of(fractions):
    """The list of gaps of fractions [batch][sub][window]."""
    n_batches, _, n_windows = fractions.shape
    found, n_chan = [], N_CHAN // N_SUB
    for batch in range(n_batches):
        for sub in range(N_SUB):
            edges = np.flatnonzero(np.diff(np.concatenate([[0], fractions[batch, sub] == 0, [0]])))
            found += [(batch * n_windows + a, b - a, sub * n_chan, n_chan) for a, b in edges.reshape(-1, 2)]
    return found


def write_capture(path, packets, rng=None):
    """With 'rng' packets are up to half the capture from their place, except the first one: a stream begins with it."""
    order = np.arange(len(packets))
    if rng is not None:
        order[1:] = 1 + np.argsort(order[1:] + rng.integers(0, len(order) // 2, len(order) - 1))
    harness.write_pcap(path, [packets[i] for i in order])


STREAMS = [
    {"beams": 3, "products": "IQUV", "spectra": 5, "channels": 2, "windows": 6, "format": "uint8", "bits": 32},
    {"beams": 2, "products": "I", "spectra": 48, "windows": 3, "format": "float32", "bits": 8},
    {"beams": 1, "products": "power_1", "spectra": 1, "channels": 4, "windows": 16, "bits": 32},
    {"beams": 2, "products": "IQUV", "spectra": 7, "channels": 8, "windows": 9, "format": "uint8", "bits": 8},
]


@pytest.mark.parametrize("stream", STREAMS, ids=lambda s: f"{s['products']}-{s.get('format', 'float32')}-{s['bits']}")
def test_files(stream, recorder, tmp_path, rng):
    """All beams of a stream, in packets out of order, with heaps and whole batches that did not come."""
    n, first = 9, 12345
    sent = random_stream(rng, stream, n)
    lost = {(3, 1), (3, 2), (8, 0)} | {(5, sub) for sub in range(N_SUB)}
    packets = []
    for batch in range(n):
        for sub in range(N_SUB):
            if (batch, sub) in lost:
                sent["fractions"][batch, sub] = 0
            else:
                packets += [((GROUPS[0], PORT), packet) for packet in
                            harness.packets(pack(stream, sent, first, batch, sub), 1 + batch * N_SUB + sub, 500)]
    write_capture(tmp_path / "in.pcap", packets, rng)
    one = recorder([stream], recv={"interface": "", "pcap_file": str(tmp_path / "in.pcap")})
    one.start()
    assert one.finish() == f"{n - 1} batches, {len(lost)} of {n * N_SUB} heaps missing"
    heap_samples = stream["spectra"] * stream["windows"] * SPACING
    for beam in range(stream["beams"]):
        check_file(tmp_path / f"s0-{beam}.fil", stream, sent, beam, first * heap_samples)
        for ending in ("fil", "dada"):
            assert gaps(tmp_path / f"s0-{beam}.{ending}.gaps") == gaps_of(sent["fractions"])


def test_partial_windows(recorder, tmp_path, rng):
    """A stream that begins within a heap.  Windows without data are filled, and do not widen the 8 bits.  Incomplete
    windows are recorded as they come, and counted."""
    stream = {"spectra": 10, "windows": 12, "bits": 8, "beams": 2}
    sent = random_stream(rng, stream, 5)
    sent["fractions"][0, :, :7] = 0
    sent["fractions"][0, :, 7] = 0.25
    sent["fractions"][2, 1, 3:5] = 0
    sent["fractions"][2, 2, 6] = 0.96875
    for sub in range(N_SUB):
        n = N_CHAN // N_SUB
        sent["powers"][..., sub * n:(sub + 1) * n] *= sent["fractions"][:, sub][:, None, :, None, None]
    packets = [((GROUPS[0], PORT), packet) for batch in range(5) for sub in range(N_SUB)
               for packet in harness.packets(pack(stream, sent, 50, batch, sub), 1 + batch * N_SUB + sub, 300)]
    write_capture(tmp_path / "in.pcap", packets)
    one = recorder([stream], recv={"interface": "", "pcap_file": str(tmp_path / "in.pcap")})
    one.start()
    one.finish()
    n_partial = (sent["fractions"] < 1).sum()
    assert f"5 batches, 0 of 20 heaps missing, {n_partial} partial windows" in one.log()
    for beam in range(2):
        check_file(tmp_path / f"s0-{beam}.fil", stream, sent, beam, 50 * 120 * SPACING)
        assert gaps(tmp_path / f"s0-{beam}.fil.gaps") == gaps_of(sent["fractions"])


def test_beside_a_voltage_beam(recorder, tmp_path, rng):
    """Both kinds in one process, each with a separate time.  A packet that comes to the other kind's address is
    refused."""
    stream = {"spectra": 8, "windows": 4, "bits": 32, "dada": ""}
    sent, voltages = random_stream(rng, stream, 6), random_batches(rng, 4)
    packets = []
    for sub in range(N_SUB):
        packets += [((GROUPS[0], PORT), p) for n in range(6) for p in harness.packets(pack(stream, sent, 30, n, sub), 1 + n * N_SUB + sub)]
        packets += [((GROUPS[1], PORT), p) for n in range(4)
                    for p in harness.packets(heap((20 + n) * BATCH, sub, voltages[n]), 1 + n * N_SUB + sub)]
        packets += [((GROUPS[1], PORT), p) for p in harness.packets(pack(stream, sent, 30, 0, sub), 900 + sub)]
    write_capture(tmp_path / "in.pcap", packets)
    beam = {"name": "beam", "sources": f"{GROUPS[1]}:{PORT}", "filterbank": str(tmp_path / "v.fil"), "bits": 32}
    one = recorder([stream], [beam], recv={"interface": "", "pcap_file": str(tmp_path / "in.pcap"), "window": 16})
    one.start()
    assert one.finish() == "10 batches, 0 of 40 heaps missing"
    check_file(tmp_path / "s0-0.fil", stream, sent, 0, 30 * 32 * SPACING)
    _, values = read_sigproc(tmp_path / "v.fil")
    powers = (voltages.astype(np.int64)**2).sum(-1).transpose(0, 2, 1).reshape(-1, N_CHAN)[:, ::-1]
    np.testing.assert_array_equal(values, powers)


def replay(recorder, tmp_path, rng, stream, other, n_batches):
    """A started recorder of a stream that gets heaps of another one."""
    sent = random_stream(rng, other, n_batches)
    packets = [((GROUPS[0], PORT), packet) for batch in range(n_batches) for sub in range(N_SUB)
               for packet in harness.packets(pack(other, sent, 5, batch, sub), 1 + batch * N_SUB + sub)]
    write_capture(tmp_path / "in.pcap", packets)
    one = recorder([stream], recv={"interface": "", "pcap_file": str(tmp_path / "in.pcap")})
    one.start()
    return one


@pytest.mark.parametrize("change", [{"windows": 8}, {"beams": 1}, {"products": "IQUV"}, {"channels": 4},
                                    {"format": "uint8"}, {"beams": 4, "windows": 2}], ids=str)
def test_wrong_shapes(change, recorder, tmp_path, rng):
    """Heaps of another shape are refused as a whole.  The exit status reports this, and no file is left."""
    stream = {"beams": 2, "windows": 4, "spectra": 8, "channels": 2}
    one = replay(recorder, tmp_path, rng, stream, stream | change, 2)
    assert one.finish(1) == "0 batches, 0 of 0 heaps missing"
    assert "the last batches were refused" in one.log()
    assert not list(tmp_path.glob("*.fil*")) and not list(tmp_path.glob("*.dada*"))


@pytest.mark.parametrize("spectra, account, refused", [(16, "4 batches, 12 of 28 heaps missing", False),
                                                       (12, "2 batches, 8 of 16 heaps missing", True)])
def test_wrong_spectra(spectra, account, refused, recorder, tmp_path, rng):
    """Nothing in a heap says how many spectra a window has.  Heaps at multiples of the recorder's length are recorded, with
    gaps between them; the others are refused."""
    stream = {"windows": 4, "spectra": 8}
    one = replay(recorder, tmp_path, rng, stream, stream | {"spectra": spectra}, 4)
    assert one.finish() == account
    assert ("packet refused (bad_timestamp)" in one.log()) == refused


def test_bad_configurations(recorder):
    for keys, words in [({"channels": 16}, "channels of powers0 must divide channels_per_substream (8)"),
                        ({"bits": 16}, "bits must be 8 or 32"),
                        ({"beams": 2, "filterbank": "/tmp/x.fil"}, "filterbank of powers0 needs {beam} in its name, because it has 2"),
                        ({"beams": 2, "dada": "/tmp/x.dada"}, "dada of powers0 needs {beam} in its name, because it has 2"),
                        ({"filterbank": "", "dada": ""}, "powers0 has neither filterbank nor dada"),
                        ({"filterbank": "{beam}", "dada": "{beam}"}, "filterbank and dada of powers0 are the same file"),
                        ({"beams": 1024, "windows": 65536}, "a heap of powers0 must be below 2 GiB"),
                        ({"sources": f"{GROUPS[1]}:{PORT}"}, "detected[0] already has the address")]:
        one = recorder([keys, {}])
        one.start()
        one.finish(harness.EXIT_CONFIG)
        assert words in one.log()
    one = recorder([])
    one.start()
    one.finish(harness.EXIT_CONFIG)
    assert "nothing to record" in one.log()


@pytest.mark.parametrize("section, item, key, value, words", [
    ("detected", 1, "dada", "%c" * 1000, "the name is longer than 4095 bytes"),
    ("detected", 0, "filterbank", "/dev/null", "is not a regular file"),
    ("detected", 1, "filterbank", "/proc/none/x.fil", "cannot be created: No such file"),
    ("beams", 1, "filterbank", "/dev/null", "is not a regular file"),
    ("beams", 0, "voltages", "a" * 300, "cannot be created: File name too long")])
def test_files_that_cannot_be_made(section, item, key, value, words, recorder, tmp_path):
    """The message begins with the key of the file; no file is left."""
    one = recorder([{}, {}], [{"name": f"b{i}", "sources": f"{GROUPS[i]}:{PORT + 1}", "voltages": f"{tmp_path}/{i}.dada"}
                              for i in range(2)])
    one.config[section][item][key] = value
    one.start()
    one.finish(harness.EXIT_CONFIG)
    (line,) = [line for line in one.log().splitlines() if words in line]
    assert f" {section}[{item}].{key}: " in line, line
    assert not list(tmp_path.glob("*.dada*")) + list(tmp_path.glob("*.fil*"))


def send(stream, sent, batches, first):
    config = spead2.send.StreamConfig(max_packet_size=1000, rate=5e6)
    udp = spead2.send.UdpStream(spead2.ThreadPool(), [(GROUPS[0], PORT)], config, ttl=1, interface_address=LOOPBACK)
    for batch in batches:
        for sub in range(N_SUB):
            udp.send_heap(pack(stream, sent, first, batch, sub), cnt=1 + batch * N_SUB + sub)


LIVE = {"beams": 2, "products": "IQUV", "spectra": 6, "channels": 2, "windows": 5, "format": "uint8", "bits": 32,
        "filterbank": ""}
LIVE_BYTES = 5 * 4 * N_CHAN // 2 * 4  # of a batch


def live(recorder, **keys):
    """A recorder of PSRDADA files that listens."""
    one = recorder([LIVE | keys], time={"timebase": "packets", "clock_tolerance": 0})
    one.start()
    harness.until(lambda: "recording" in one.log(), one.log)
    return one


def test_killed_recorder_leaves_readable_dada_files(recorder, tmp_path, rng):
    """Batches that have left the window (8) are whole, and FILE_SIZE counts them."""
    sent = random_stream(rng, LIVE, 20)
    one = live(recorder)
    send(LIVE, sent, range(20), 70)
    harness.until(lambda: n_bytes(tmp_path / "s0-1.dada") >= 4096 + 12 * LIVE_BYTES, one.log)
    one.process.kill()
    one.finish(-signal.SIGKILL)
    for beam in range(2):
        values = check_dada(tmp_path / f"s0-{beam}.dada", LIVE, sent, beam, 70 * 30 * SPACING)
        assert len(values) >= 11 * 5 and len(values) % 5 == 0
    assert not list(tmp_path.glob("*.fil*"))


def test_full_disk_of_dada_files(recorder, small_disk, rng):  # noqa: F811
    """Batches without room are lost and reported; with room again they are a gap, filled and listed; the rest is exact."""
    sent = random_stream(rng, LIVE, 60)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(64 << 10))
    one = live(recorder, dada=f"{small_disk}/s-{{beam}}.dada")
    send(LIVE, sent, range(40), 70)
    harness.until(lambda: "batches are lost until the disk has room" in one.log(), one.log)
    ballast.unlink()
    send(LIVE, sent, range(40, 46), 70)
    harness.until(lambda: "the disk has room again, and the recording continues" in one.log(), one.log)
    one.process.send_signal(signal.SIGTERM)
    one.finish(1)
    assert "batches were lost because the disk was full" in one.log()
    for beam in range(2):
        _, values = read_dada(small_disk / f"s-{beam}.dada", 32)
        filled = np.zeros((len(values), N_SUB), bool)  # the end may come in the middle of a batch
        for row, n_rows, channel, n_channels in gaps(small_disk / f"s-{beam}.dada.gaps"):
            assert (n_rows, n_channels, row % 5) == (5, N_CHAN // N_SUB, 0)
            filled[row:row + n_rows, channel // n_channels] = True
        assert 0 < filled.sum() < filled.size and len(values) > 40 * 5
        values, wanted = (v.reshape(len(values), 4, N_SUB, -1) for v in (values, rows_of(
            restored(sent)[:, beam], sent["fractions"])[:len(values)]))
        values, wanted = values.transpose(0, 2, 1, 3), wanted.transpose(0, 2, 1, 3)
        np.testing.assert_allclose(values[~filled], wanted[~filled], rtol=3e-7)
        np.testing.assert_allclose(values[filled], np.broadcast_to(wanted.mean(0), wanted.shape)[filled], rtol=0.25)


SENT = [
    {"products": "IQUV", "spectra": 20, "windows": 6, "channels": 2, "beams": 3},
    {"products": "I", "spectra": 7, "windows": 9, "kind": "incoherent"},
    {"products": "power_0", "spectra": 48, "windows": 2, "beams": 2, "format": "uint8"},
]


def test_of_xbgpu(recorder, daemon, work, tmp_path, rng):
    """A recording of xbgpu's output for noise equals numpy's result."""
    config = test_beams_detected.detected_config(SENT)
    config["recv"].update(channels=config["recv"]["channels_per_substream"], channel_offset=0)
    first_batch, n = int(rng.integers(1000)) * 2, 14
    voltages = test_beams_detected.random_voltages(rng, config, n, 24)
    present = np.ones((n, test_beams_detected.N_ANTS), bool)
    sent = scenario.feng_heaps(config, first_batch, voltages, present, rng)
    scenario.run_pcap(daemon, "xbgpu", config, work, sent)
    keys = ("products", "spectra", "windows", "channels", "beams", "format")
    streams = [{key: s[key] for key in keys if key in s} | {"bits": 32, "sources": config["detected"][i]["destination"]}
               for i, s in enumerate(SENT)]
    recv = config["recv"]
    one = recorder(streams, recv={"interface": "", "pcap_file": str(work / "run.out.pcap")}, time=config["time"], stream={
        "channels": recv["channels"], "channels_per_substream": recv["channels"],
        "samples_between_spectra": recv["samples_between_spectra"]})
    one.start()
    one.finish()
    for i, stream in enumerate(SENT):
        model = test_beams_detected.incoherent_model if "kind" in stream else test_beams_detected.model
        heaps = model(config, stream, first_batch, voltages, present)
        powers, fractions = (np.concatenate(parts) for parts in zip(*heaps.values()))
        assert len(heaps) > 1 and (fractions > 0).sum() > 10
        for beam in range(stream.get("beams", 1)):
            _, values = read_sigproc(tmp_path / f"s{i}-{beam}.fil")
            values = values.reshape(-1, powers.shape[1], powers.shape[2])[..., ::-1]
            scale = np.ptp(powers, 0).max() / 255 if "format" in stream else 0
            here = fractions > 0
            np.testing.assert_allclose(values[here], powers[here], rtol=1e-6, atol=0.51 * scale)
