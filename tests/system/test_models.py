"""The models against theory and against themselves.  These tests need no daemon."""
import numpy as np
import pytest

import fmodel
import harness
import xmodel


def test_pfb_weights():
    w = fmodel.weights(2048, 16)
    assert w.sum() == pytest.approx(46.46, abs=0.01)
    assert np.sum(w**2) == pytest.approx(1, rel=1e-6)
    assert w[0] == 0 and abs(w[-1]) < 1e-9
    np.testing.assert_allclose(w, w[::-1], rtol=1e-4, atol=1e-9)
    np.testing.assert_allclose(fmodel.weights(128, 1, 0.0, "rect"), 128**-0.5, rtol=1e-6)


def test_tone_and_its_neighbours():
    output = fmodel.Output(channels=1024)
    n = np.arange(output.reach)
    x = 100 * np.cos(2 * np.pi * 200 / 2048 * n + 0.3)
    found = fmodel.spectra(x, output)
    # A tone at a bin's centre: its amplitude times half the sum of the weights.
    np.testing.assert_allclose(np.abs(found[:, 200]), 100 * 46.46 / 2, rtol=1e-3)
    np.testing.assert_allclose(np.angle(found[:, 200]), 0.3, atol=1e-6)
    found[:, 199:202] = 0
    assert np.abs(found).max() < 0.25  # -80 dB


def test_noise_keeps_its_power(rng):
    output = fmodel.Output(channels=64, taps=8)
    found = fmodel.spectra(rng.normal(0, 10, 2_000_000), output)[:, 1:]
    assert np.mean(np.abs(found)**2) == pytest.approx(100, rel=0.01)


def test_spectra_by_the_definition(rng):
    """One spectrum, summed term by term."""
    output = fmodel.Output(channels=8, taps=3, w_cutoff=0.9, gain=2.0)
    x = rng.integers(-100, 100, 16 * 5)
    w = fmodel.weights(16, 3, 0.9)
    for s in range(3):
        y = [sum(w[i * 16 + p] * x[(s + i) * 16 + p] for i in range(3)) for p in range(16)]
        for c in range(8):
            direct = 2 * sum(y[p] * np.exp(-2j * np.pi * p * c / 16) for p in range(16))
            assert fmodel.spectra(x, output)[s, c] == pytest.approx(direct)


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16])
def test_packing(bits, rng):
    x = rng.integers(-2**(bits - 1), 2**(bits - 1), 80)
    packed = fmodel.pack(x, bits)
    assert packed.nbytes == 10 * bits
    assert np.array_equal(fmodel.unpack(packed, bits), x)
    as_text = "".join(format(v & (2**bits - 1), f"0{bits}b") for v in x)
    assert packed.tobytes() == int(as_text, 2).to_bytes(10 * bits, "big")


def test_packing_example():
    fields = [0b10110, 0b01011, 0b11111, 0b10101, 0b00110, 0b00010, 0b11011, 0b11000]
    signed = [f - 32 if f >= 16 else f for f in fields]
    assert fmodel.pack(signed, 5).tobytes() == bytes.fromhex("b2ff530b78")


def test_batches():
    output = fmodel.Output(channels=64, spectra_per_heap=16, taps=2)
    assert (output.batch, output.reach) == (2048, 2048 + 128)
    present = np.ones((2, 6), bool)
    assert fmodel.batches_present(1024, present, 1024, output) == [1, 2]
    present[1, 0] = False
    assert fmodel.batches_present(1024, present, 1024, output) == [1, 2]
    present[0, 3] = False  # samples 4096..5119: the end of batch 1's last window, the start of batch 2
    assert fmodel.batches_present(1024, present, 1024, output) == []
    # The same packet lost, but a window of one tap: batch 1 no longer reaches it.
    assert fmodel.batches_present(1024, present, 1024, fmodel.Output(taps=1)) == [1]


def test_quantise():
    v = np.array([0.5 + 1.5j, -0.5 - 2.5j, 127.4 - 200j, 126.6 + 1e9j])
    assert fmodel.quantise(v, 127).tolist() == [[0, 2], [0, -2], [127, -127], [127, 127]]
    assert fmodel.quantise(v, 7).tolist() == [[0, 2], [0, -2], [7, -7], [7, 7]]


def test_correlate_by_the_definition(rng):
    v = rng.integers(-128, 128, (3, 3, 2, 16, 2, 2), np.int8)
    present = rng.random((3, 3)) < 0.7
    z = (v[..., 0] + 1j * v[..., 1]) * present[:, :, None, None, None]
    found = xmodel.correlate(v, present)
    for at, (a1, a2) in enumerate([(0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2)]):
        for product, (p1, p2) in enumerate([(0, 0), (1, 0), (0, 1), (1, 1)]):
            expected = np.sum(z[:, a1, :, :, p1] * z[:, a2, :, :, p2].conj(), axis=(0, 2))
            assert np.array_equal(found[:, 4 * at + product, 0], expected.real)
            assert np.array_equal(found[:, 4 * at + product, 1], expected.imag)


def test_dump_saturates_and_flags():
    v = np.full((1, 2, 1, 65536, 2, 2), -128, np.int8)
    v[0, 1] = 127
    vis, w, n_clipped = xmodel.dump(v, np.ones((1, 2), bool))
    assert vis[0, 0].tolist() == [2**31 - 1, 0] and n_clipped == 4 and w.tolist() == [65536] * 3
    assert vis[0, 4].tolist() == [-2 * 128 * 127 * 65536, 0]
    vis, w, n_clipped = xmodel.dump(v, np.array([[False, True]]))
    assert (vis[0, :8] == xmodel.MAGIC).all() and not (vis[0, 8:] == xmodel.MAGIC).any() and n_clipped == 0


def test_windows(rng):
    """Batches 2..14 in windows of 4, batch 9 lost: the first window is a part and not sent, the next is good, one lacks a
    batch, and the last never ends."""
    v = rng.integers(-5, 6, (13, 1, 1, 16, 2, 2), np.int8)
    present = np.ones((13, 1), bool)
    present[7] = False
    found = xmodel.dumps(2, v, present, 4)
    assert list(found) == [1, 2]
    assert not (found[1][0] == xmodel.MAGIC).any() and (found[2][0] == xmodel.MAGIC).all()
    assert list(xmodel.dumps(2, v, present, 4, missing_dump="skip")) == [1]
    partial = xmodel.dumps(2, v, present, 4, missing="weights")[2]
    assert partial[1].tolist() == [48]
    assert np.array_equal(partial[0], xmodel.correlate(v[[6, 8, 9]], present[[6, 8, 9]]))
    present[:8] = False
    assert list(xmodel.dumps(2, v, present, 4)) == []
    assert list(xmodel.dumps(1, v, present, 4)) == []
    assert list(xmodel.dumps(-8, v, present, 4)) == [0]


def test_captures_are_what_spead2_reads(work, rng):
    """The harness's own chain: heaps -> packets -> capture -> spead2 -> values by descriptor."""
    (first, second) = harness.endpoints(harness.groups(2))
    ig = harness.spead2.send.ItemGroup(flavour=harness.FLAVOUR)
    ig.add_item(harness.TIMESTAMP, "timestamp", "", (), format=harness.IMMEDIATE)
    ig.add_item(harness.FENG_ID, "feng_id", "", (), format=harness.IMMEDIATE)
    ig.add_item(harness.FREQUENCY, "frequency", "", (), format=harness.IMMEDIATE)
    ig.add_item(harness.FENG_RAW, "feng_raw", "", (4, 16, 2, 2), format=[("i", 4)])
    values = rng.integers(-8, 8, (2, 4, 16, 2, 2)).astype(np.int8)
    packed = ((values[..., 0] << 4) | (values[..., 1] & 15)).astype(np.uint8)
    sent = [harness.Sent(first, ig.get_heap(descriptors="all", data="none"), 1),
            harness.Sent(first, harness.feng_heap(2**48 + 5, 3, 8, packed[0]), 2),
            harness.Sent(second, harness.stop_heap(), 3),
            harness.Sent(first, harness.feng_heap(2**48 - 1, 3, 8, packed[1]), 4)]
    harness.write_heaps(work / "a.pcap", sent, max_packet=72 + 40, extra=[(2, first, b"not SPEAD at all")])
    found = harness.decode_pcap(work / "a.pcap")
    assert [h.kind for h in found[second]] == ["stop"]
    assert [h.kind for h in found[first]] == ["descriptor", "data", "data"]
    for i, timestamp in enumerate([5, 2**48 - 1]):
        items = found[first][1 + i].items
        assert (items["timestamp"], items["feng_id"], items["frequency"]) == (timestamp, 3, 8)
        assert np.array_equal(items["feng_raw"], values[i])


def test_metrics_parser():
    m = harness.Metrics('# HELP a b\na_total 3\nb_total{stream="x",pol="0"} 4\nb_total{stream="x",pol="1"} 5e3\n')
    assert m.get("a_total") == 3 and m.get("b_total", pol=0) == 4 and m.get("b_total", stream="x") == 5004
    with pytest.raises(AssertionError):
        m.get("b_total", pol=2)
