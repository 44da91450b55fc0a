"""From a few overrides to a whole configuration, its input heaps, and the check of the whole output.

Used by the tests of both daemons.  The checks here are about the streams (which heaps, in which order, with which counts);
the callers compare the values.
"""
import hashlib
import os
import re
from collections import defaultdict

import numpy as np

import fmodel
import harness
from harness import FGPU, FGPU_OUTPUT, XBGPU, XBGPU_OUTPUT, Sent, endpoints, groups, merge

# ---- fgpu ------------------------------------------------------------------------------------------------------------


def fgpu_config(outputs=({},), feng_ids=(0,), pol_groups=1, substreams=2, **sections):
    """A whole fgpu configuration. 'outputs' are overrides; their key 'substreams' is the number of destinations."""
    config = merge(FGPU, sections)
    for feng_id in feng_ids:
        config["antennas"].append({"name": f"m{feng_id:03}", "feng_id": int(feng_id), "pol0": groups(pol_groups),
                                   "pol1": groups(pol_groups)})
    for i, overrides in enumerate(outputs):
        output = merge(FGPU_OUTPUT, {"name": f"wide{i}"} | dict(overrides))
        output["destinations"] = groups(output.pop("substreams", substreams))
        config["outputs"].append(output)
    return config


def model_of(output, config=FGPU):
    """The model's view of an output section."""
    return fmodel.output_of(output, config["time"]["adc_sample_rate"])


def chunk_for(config, multiple=1):
    """Sets the smallest legal chunk, times 'multiple'."""
    recv = config["recv"]
    need = recv["max_delay_diff"] + max(model_of(o, config).held for o in config["outputs"])
    recv["chunk_samples"] = -(-need // recv["packet_samples"]) * recv["packet_samples"] * multiple


def noise(rng, n_ants, n_samples, bits, rms=None):
    """Samples [ant][pol][n] that use the whole range: noise, and a tone per input so that no two are alike."""
    limit = 2**(bits - 1) - 1
    rms = max(limit / 4, 0.9) if rms is None else rms
    x = rng.normal(0, rms, (n_ants, 2, n_samples))
    n = np.arange(n_samples)
    for ant in range(n_ants):
        for pol in range(2):
            x[ant, pol] += 0.1 * rms * np.cos(2 * np.pi * rng.uniform(0, 0.5) * n)
    return np.clip(np.rint(x), -limit - 1, limit).astype(np.int16)


def digitiser_heaps(config, samples, start, present=None, status=None):
    """Heaps of samples[ant][pol][n] from timestamp 'start', time-major; present[ant][pol][packet] leaves some out."""
    recv = config["recv"]
    step = recv["packet_samples"]
    where = [[endpoints(a["pol0"]), endpoints(a["pol1"])] for a in config["antennas"]]
    packed = [[fmodel.pack(samples[a, p], recv["sample_bits"]).reshape(-1, step * recv["sample_bits"] // 8)
               for p in range(2)] for a in range(len(where))]
    out = []
    for i in range(samples.shape[2] // step):
        for ant in range(len(where)):
            for pol in range(2):
                if present is not None and not present[ant, pol, i]:
                    continue
                flags = 0 if status is None else status[ant, pol, i]
                heap = harness.digitiser_heap(start + i * step, 2 * ant + pol, packed[ant][pol][i], flags)
                group = where[ant][pol]
                out.append(Sent(group[i % len(group)], heap, 2 * (i + 1)))
    return out


def run_pcap(daemon, program, config, work, sent, name="run", **write):
    """Feeds a capture, waits for the end, returns the output heaps by destination."""
    source, sink = work / f"{name}.in.pcap", work / f"{name}.out.pcap"
    harness.write_heaps(source, sent, **write)
    return run_capture(daemon, program, config, source, sink, name)


def run_capture(daemon, program, config, source, sink, name="run"):
    config = merge(config, {"recv": {"pcap_file": str(source)}, "send": {"pcap_file": str(sink)}})
    process = daemon(program, config, name).wait_end()
    check_audits(process.log.read_text())
    found = harness.decode_pcap(sink)
    note_digest(sink, name)
    recv = config["recv"]
    step = config["send"]["array_size"] if program == "fgpu" else recv["channels"] // recv["channels_per_substream"]
    assert min(heaps[0].cnt for heaps in found.values()) < step, "the heap counts of a replay do not begin at the first"
    return found


def address(endpoint):
    return [int(byte) for byte in endpoint[0].split(".")], endpoint[1]


def note_digest(sink, name):
    """CBF_DIGESTS=FILE appends a line for each capture: test, run, packets, digest of their bytes.  Two builds that write
    the same bytes have the same lines (sort them), if CBF_SEED is the same."""
    if not os.environ.get("CBF_DIGESTS"):
        return
    packets = list(harness.read_pcap(sink))
    # Destinations differ from run to run, but not their order; senders that share one take turns in any order.
    place = {endpoint: i for i, endpoint in enumerate(sorted({endpoint for endpoint, _ in packets}, key=address))}
    packets = sorted(hashlib.sha256(bytes([place[endpoint]]) + packet).digest() for endpoint, packet in packets)
    test = os.environ["PYTEST_CURRENT_TEST"].split(" ")[0].rpartition("/")[2]
    with open(os.environ["CBF_DIGESTS"], "a") as file:
        file.write(f"{test} {name} {len(packets)} {hashlib.sha256(b''.join(packets)).hexdigest()}\n")


def check_audits(log):
    """Every output and every beam of an xbgpu says at its end how many sums its audit found wrong: none ever may be."""
    for audited, wrong, dumps in re.findall(r"(\d+) products? audited, (\d+) wrong; (\d+) dumps? wrong", log):
        assert int(wrong) == 0, f"{wrong} of {audited} audited products are wrong"
        assert int(dumps) == 0, f"{dumps} dumps disagree with their checksums"
    for audited, wrong in re.findall(r"(\d+) heaps audited, (\d+) wrong", log):
        assert int(wrong) == 0, f"{wrong} of {audited} audited heaps of a beam are wrong"


def in_order(heaps, offset, step, n_substreams):
    """The heaps of one sender by count, which must have no gaps; repeated rounds of descriptors are left out."""
    heaps = sorted(heaps, key=lambda h: h.cnt)
    counts = [h.cnt for h in heaps]
    assert counts[0] % step == offset, f"heap count {counts[0]} is not {offset} + i {step}"
    assert counts == [counts[0] + i * step for i in range(len(heaps))], f"heap counts {counts[:8]}... are not in steps of {step}"
    n_seen = 0
    out = []
    for heap in heaps:
        if heap.kind == "descriptor":
            n_seen += 1
        if heap.kind != "descriptor" or n_seen <= n_substreams:
            out.append(heap)
    assert n_seen >= n_substreams and n_seen % n_substreams == 0, f"{n_seen} descriptors to {n_substreams} substreams"
    return out


def shares_of(config, where):
    """The groups of an output's destinations that send threads share, if there are more threads than streams."""
    n = config["send"].get("threads", 1) // (len(config["antennas"]) * len(config["outputs"]))
    n = min(max(n, 1), len(where))
    return [where[i * len(where) // n:(i + 1) * len(where) // n] for i in range(n)]


def fgpu_streams(config, found, complete=True):
    """Checks the output heaps except their voltages; found: {endpoint: heaps in order of arrival}.

    Returns {(output index, antenna index): {timestamp on the wire: int8 [channel][spectrum][pol][re, im]}}.
    With 'complete' every stream must have ended with its stop heaps.
    """
    array_size = config["send"]["array_size"]
    by_sender = defaultdict(list)
    for endpoint, heaps in found.items():
        last = {}
        for heap in heaps:
            sender = heap.cnt % array_size
            assert heap.cnt > last.get(sender, -1), f"heap {heap.cnt} to {endpoint} out of order"
            last[sender] = heap.cnt
            by_sender[endpoint, sender].append(heap)
    wanted = {(e, a["feng_id"]) for o in config["outputs"] for e in endpoints(o["destinations"])
              for a in config["antennas"]}
    assert set(by_sender) <= wanted, f"heaps where none belong: {set(by_sender) - wanted}"
    out = {}
    for o, output in enumerate(config["outputs"]):
        where = endpoints(output["destinations"])
        model = model_of(output, config)
        n_chan = model.channels // len(where)
        for a, antenna in enumerate(config["antennas"]):
            feng_id = antenna["feng_id"]
            batches = {}
            for share, part in enumerate(shares_of(config, where)):
                heaps = in_order([h for e in part for h in by_sender[e, feng_id]], feng_id + share * array_size,
                                 array_size * len(shares_of(config, where)), len(part))
                assert len(heaps) % len(part) == 0
                kinds = ["descriptor"] + ["data"] * (len(heaps) // len(part) - 2) + ["stop"]
                if not complete:
                    kinds[-1] = "data" if len(kinds) > 2 and heaps[-1].kind == "data" else "stop"
                for i, heap in enumerate(heaps):
                    batch, substream = divmod(i, len(part))
                    assert (heap.endpoint, heap.kind) == (part[substream], kinds[batch]), f"heap {i} of {output['name']}"
                    if heap.kind != "data":
                        continue
                    items, substream = heap.items, where.index(heap.endpoint)
                    assert (items["feng_id"], items["frequency"]) == (feng_id, substream * n_chan)
                    assert items["feng_raw"].shape == (n_chan, model.spectra_per_heap, 2, 2)
                    parts = batches.setdefault(items["timestamp"], [])
                    assert len(parts) == substream, f"batch {items['timestamp']} is torn"
                    parts.append(items["feng_raw"])
            out[o, a] = {timestamp: np.concatenate(parts) for timestamp, parts in batches.items()}
    return out


def by_endpoint(heaps):
    out = defaultdict(list)
    for heap in heaps:
        out[heap.endpoint].append(heap)
    return out


def compare_voltages(found, model, limit, what):
    """At most one step off anywhere, and 99.9 % equal."""
    expected = fmodel.quantise(model, limit)
    off = np.abs(found.astype(int) - expected)
    equal = np.mean(off == 0)
    assert off.max() <= 1 and equal >= 0.999, (
        f"{what}: {100 * equal:.3f} % equal, off by up to {off.max()} at [channel, spectrum, pol, part] "
        f"{np.argwhere(off == off.max())[:4].tolist()}; rms {np.std(expected):.1f}")


# ---- xbgpu -----------------------------------------------------------------------------------------------------------


def xbgpu_config(outputs=({},), **sections):
    config = merge(XBGPU, sections)
    config["recv"]["sources"] = groups()
    for i, overrides in enumerate(outputs):
        output = merge(XBGPU_OUTPUT, {"name": f"bcp{i}"} | dict(overrides))
        output["destination"] = groups()
        config["outputs"].append(output)
    return config


def batch_samples(config):
    return config["recv"]["spectra_per_heap"] * config["recv"]["samples_between_spectra"]


def random_voltages(rng, config, n_batches):
    """[batch][ant][channel][spectrum][pol][re, im]: int8, the whole range of the samples' 8 or 4 bits, or float16."""
    recv = config["recv"]
    shape = (n_batches, recv["antennas"], recv["channels_per_substream"], recv["spectra_per_heap"], 2, 2)
    bits = recv.get("sample_bits", 8)
    if bits == 16:
        return rng.normal(0, 100, shape).astype(np.float16)
    return rng.integers(-2**(bits - 1), 2**(bits - 1), shape, np.int8)


def on_the_wire(config, voltages):
    """Voltages as heaps carry them: with 4 bits a complex sample is one byte, with the real part in the high bits."""
    recv = config["recv"]
    bits = recv.get("sample_bits", 8)
    if bits == 16:
        return voltages.astype("<f2")
    if bits == 4:
        nibbles = (voltages + 8 if recv.get("sample_encoding") == "offset" else voltages & 15).astype(np.uint8)
        return nibbles[..., 0] << 4 | nibbles[..., 1]
    return voltages


def feng_heaps(config, first_batch, voltages, present=None, rng=None):
    """Heaps of voltages[batch][ant], with antennas in random order if 'rng' is given; present[batch][ant]."""
    recv = config["recv"]
    n_ants = recv["antennas"]
    (endpoint,) = endpoints(recv["sources"])
    out = []
    for batch in range(len(voltages)):
        for ant in rng.permutation(n_ants) if rng is not None else range(n_ants):
            if present is None or present[batch, ant]:
                heap = harness.feng_heap((first_batch + batch) * batch_samples(config), ant, recv["channel_offset"],
                                         on_the_wire(config, voltages[batch, ant]))
                out.append(Sent(endpoint, heap, ant + n_ants * (batch + 1)))
    return out


def check_dumps(config, index, heaps, expected, what="", complete=True):
    """Compares the heaps of output 'index', in order of arrival, with {window: (visibilities, weights, n_clipped)}."""
    recv, output = config["recv"], config["outputs"][index]
    cps = recv["channels_per_substream"]
    heaps = in_order(heaps, recv["channel_offset"] // cps, recv["channels"] // cps, 1)
    what = f"{what} {output}"
    length = output["integration_batches"] * batch_samples(config)
    found = [h.items["timestamp"] for h in heaps if h.kind == "data"]
    wanted = [w * length % harness.WIRE for w in expected]
    assert found == wanted, (f"{what}: dumps {sorted(set(wanted) - set(found))} are missing, "
                             f"{sorted(set(found) - set(wanted))} should not be there; all: {found}")
    assert [h.kind for h in heaps] == ["descriptor"] + ["data"] * len(expected) + ["stop"] * complete, what
    for heap, (window, (vis, weights, _)) in zip(heaps[1:], expected.items()):
        assert heap.items["frequency"] == recv["channel_offset"]
        found = heap.items["xeng_raw"]
        assert found.shape == vis.shape, f"{what}: shape {found.shape}, not {vis.shape}"
        assert found.dtype == vis.dtype, f"{what}: {found.dtype}, not {vis.dtype}"
        wrong = found != vis
        if vis.dtype.kind == "f":  # to within float32 sums of the products' magnitudes, which long ones wear
            within = 2**-20 if output["integration_batches"] * recv["spectra_per_heap"] < 1024 else 2**-17
            wrong = ~np.isclose(found, vis, rtol=0, atol=within * np.nanmax(np.abs(vis), initial=0), equal_nan=True)
        if wrong.any():
            bad = np.argwhere(wrong.any(-1))
            at = tuple(bad[0])
            raise AssertionError(f"{what}: window {window}: {len(bad)} of {vis[..., 0].size} visibilities are "
                                 f"wrong, first at [channel, product] {at}: {found[at]} instead of {vis[at]}")
        if output.get("missing") == "weights":
            assert np.array_equal(np.atleast_1d(heap.items["xeng_weights"]), weights), f"{what}: window {window}"
        else:
            assert "xeng_weights" not in heap.items
