"""xbgpu under control of KATCP: requests while data flow, by aiokatcp and by hand; every bit against numpy.

Packets come through a FIFO, so a test decides the stream's position at each request.  No packet is ever lost.
"""
import ast
import os

import numpy as np
import pytest

import control
import harness
import scenario
import test_gates
import xmodel
from harness import endpoints, merge

RATE = 4_000_000  # so that KATCP's microseconds tell samples of batches apart
SYNC = harness.XBGPU["time"]["sync_time"]


class Fed:
    """An xbgpu, or another program, that reads a FIFO and writes a capture."""

    def __init__(self, daemon, config, work, name="run", program="xbgpu"):
        self.sink = work / f"{name}.out.pcap"
        self.fifo = work / f"{name}.fifo"
        self.empty = work / f"{name}.empty.pcap"
        self.config = merge(config, {"recv": {"pcap_file": str(self.fifo)}, "send": {"pcap_file": str(self.sink)},
                                     "http": {"listen": f"127.0.0.1:{harness.free_tcp_port()}"},
                                     "katcp": {"listen": f"127.0.0.1:{harness.free_tcp_port()}"}})
        os.mkfifo(self.fifo)
        both_ends = os.open(self.fifo, os.O_RDWR)  # so that neither side waits for the other to open it
        self.feed = open(self.fifo, "wb")
        harness.write_pcap(self.empty, [])
        self.feed.write(self.empty.read_bytes())
        self.feed.flush()
        self.process = daemon(program, self.config, name).wait_ready()
        self.n_packets = 0
        os.close(both_ends)

    def write(self, sent):
        """Feeds heaps, one packet each."""
        self.n_packets += len(sent)
        harness.write_heaps(self.empty, sent)
        self.feed.write(self.empty.read_bytes()[24:])
        self.feed.flush()

    def wait_taken(self, client):
        """Until xbgpu's worker has taken all that its receiver can hand on.  Then several requests hold from one batch."""
        metrics = self.process.wait_counted(lambda m: m.get("xbgpu_input_packets_total") >= self.n_packets, "all packets")
        newest = metrics.get("xbgpu_input_newest_timestamp")
        client.wait("rx.timestamp", lambda _, v: int(v) >= newest >= 0, "the newest chunk")

    def end(self, code=0):
        """Ends the stream.  Returns the heaps that left, by destination."""
        self.feed.close()
        self.process.wait_end(code)
        scenario.check_audits(self.process.log.read_text())
        return harness.decode_pcap(self.sink)

    def client(self):
        return control.Client(self.process)


def sending_from(fed):
    """The figures of /status.json for each output."""
    return [output["sending_from"] for output in fed.process.status()["outputs"]]


def unix(samples):
    return samples / RATE + SYNC


class Run:
    """A stream in parts: the part that has been fed, and the engine's known position."""

    def __init__(self, fed, rng, n_batches, first_batch=0, loss=0.03):
        self.fed, self.config, self.first_batch = fed, fed.config, first_batch
        self.voltages = scenario.random_voltages(rng, self.config, n_batches)
        self.present = rng.random(self.voltages.shape[:2]) >= loss
        test_gates.bridge(self.present, self.config)
        self.sent = scenario.feng_heaps(self.config, first_batch, self.voltages, self.present, rng)
        self.n_fed = 0
        self.step = scenario.batch_samples(self.config)

    def write(self, end_batch):
        """Feeds all data before a batch (counted from the first)."""
        n_ants = self.config["recv"]["antennas"]
        heaps = [s for s in self.sent[self.n_fed:] if (s.cnt // n_ants - 1) < end_batch]
        self.n_fed += len(heaps)
        self.fed.write(heaps)

    def go(self, client, end_batch, seen_batch):
        """Feeds, and waits until the engine has taken in the chunk that 'seen_batch' is in."""
        self.write(end_batch)
        chunk = (self.first_batch + seen_batch) // self.config["recv"]["batches_per_chunk"]
        samples = chunk * self.config["recv"]["batches_per_chunk"] * self.step
        client.wait("rx.timestamp", lambda _, text: int(text) >= samples, f"chunk {chunk}")

    def end(self):
        self.write(len(self.voltages))
        return self.fed.end()

    def padded(self):
        return test_gates.pad(self.config, self.first_batch, self.voltages, self.present)

    def shifted(self, pieces):
        """Voltages and presence under [(timestamp, shifts)], each from its time on."""
        first, voltages, came = self.padded()
        out = out_present = None
        for timestamp, shifts in pieces:
            config = merge(self.config, {"recv": {"shifts": [int(s) for s in shifts]}})
            v, p = test_gates.shifted(config, first, voltages, came)
            if out is None:
                out, out_present = v.copy(), p.copy()
            else:
                assert timestamp % self.step == 0
                at = max(timestamp // self.step - first, 0)
                out[at:], out_present[at:] = v[at:], p[at:]
        return first, out, out_present, came


def check(run, found, expected, what):
    """Compares the output of each stream with {window: dump}."""
    for o, output in enumerate(run.config["outputs"]):
        (endpoint,) = endpoints(output["destination"])
        scenario.check_dumps(run.config, o, found[endpoint], {w: d[:3] for w, d in expected[o].items()}, what)


def dumps_of(run, output, first, voltages, present, came):
    how = {"missing": output.get("missing", "flag"), "missing_dump": output.get("missing_dump", "send"), "came": came}
    return xmodel.dumps(first, voltages, present, output["integration_batches"], **how)


CHANNELS = {"antennas": 3, "batches_per_chunk": 4, "chunks": 10}


# ---- Capture ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["on a dump", "a sample later", "now"])
def test_capture_start(where, daemon, work, rng):
    """Exactly the dumps that begin before the timestamp are withheld.  Outputs do not influence each other."""
    config = scenario.xbgpu_config(
        outputs=[{"integration_batches": 3, "send_enabled": False}, {"integration_batches": 2},
                 {"integration_batches": 5, "send_enabled": False}], recv=CHANNELS)
    run = Run(Fed(daemon, config, work), rng, 200)
    with run.fed.client() as client:
        run.go(client, 50, 16)
        before = client.value("bcp0.tx.next-timestamp", int)
        samples = {"on a dump": [60 * run.step], "a sample later": [60 * run.step + 1], "now": []}[where]
        assert client.ask("capture-start", "bcp0", *samples) == ([], [])
        from_samples, steady = samples[0] if samples else before, client.value("steady-state-timestamp", int)
    found = run.end()
    expected = [dumps_of(run, o, *run.shifted([(0, [0] * 6)])) for o in config["outputs"]]
    length = 3 * run.step
    if where == "now":  # those that had not been pushed when it was asked for, which was a moment later
        heaps = [h for h in found[endpoints(config["outputs"][0]["destination"])[0]] if h.kind == "data"]
        assert from_samples <= heaps[0].items["timestamp"] <= steady
        from_samples = heaps[0].items["timestamp"]
    expected[0] = {w: d for w, d in expected[0].items() if w * length >= from_samples}
    expected[2] = {}
    assert len(expected[0]) > 20
    check(run, found, expected, where)


def test_capture_stop(daemon, work, rng):
    """Nothing leaves that was not pushed yet; then a second capture begins at its own time."""
    config = scenario.xbgpu_config(outputs=[{"integration_batches": 2}, {"integration_batches": 3}], recv=CHANNELS)
    run = Run(Fed(daemon, config, work), rng, 260)
    with run.fed.client() as client:
        run.go(client, 80, 20)
        assert sending_from(run.fed) == [0, 0]
        client.request("capture-stop", "bcp0")
        assert sending_from(run.fed) == [None, 0]
        stopped = client.value("bcp0.tx.next-timestamp", int)
        clipped = client.value("bcp0.xeng-clip-cnt", int)
        run.go(client, 170, 130)
        assert client.value("bcp0.xeng-clip-cnt", int) == clipped
        client.wait("bcp0.tx.next-timestamp", lambda _, t: int(t) > 120 * run.step, "dumps go on")
        client.request("capture-start", "bcp0", 180 * run.step)
        assert sending_from(run.fed) == [180 * run.step, 0]
    found = run.end()
    expected = [dumps_of(run, o, *run.shifted([(0, [0] * 6)])) for o in config["outputs"]]
    length = 2 * run.step
    sent = [h.items["timestamp"] for h in found[endpoints(config["outputs"][0]["destination"])[0]] if h.kind == "data"]
    assert max(t for t in sent if t < 180 * run.step) < stopped <= 80 * run.step
    expected[0] = {w: d for w, d in expected[0].items() if w * length in sent}
    assert set(w * length for w in expected[0]) == set(sent)
    first = [w * length for w in expected[0] if w * length < 180 * run.step]
    assert first == list(range(0, max(first) + 1, length))
    assert [t for t in sent if t >= 180 * run.step] == list(range(180 * run.step, 260 * run.step, length))
    check(run, found, expected, "stop")


# ---- Shifts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_batches", [1, 4])
@pytest.mark.parametrize("case", range(3))
def test_shifts(case, n_batches, daemon, work, rng):
    """Shifts set while running hold from the batch that the reply names.  Inputs that are not named keep their shifts,
    and an output keeps its own."""
    shifts, own = rng.integers(-16, 17, 6) if case else np.zeros(6, int), [0, -16, 3, 0, 0, 16]
    config = scenario.xbgpu_config(
        outputs=[{"integration_batches": 1, "missing": "weights", "audit_samples": 16},
                 {"integration_batches": 3, "audit_samples": 16}, {"integration_batches": 8, "missing": "weights"},
                 {"integration_batches": 2, "missing": "weights", "audit_samples": 16, "shifts": own}],
        recv={"antennas": 3, "batches_per_chunk": n_batches, "chunks": 24, "window": 2 if n_batches == 4 else 6,
              "shifts": [int(s) for s in shifts], "max_shift": 16, "threads": int(rng.integers(1, 4)),
              "input_labels": "m000h, m000v, m001h, m001v, m002h, m002v"})
    labels = config["recv"]["input_labels"].split(", ")
    run = Run(Fed(daemon, config, work), rng, 360, first_batch=int(rng.integers(0, 9)))
    pieces = [(0, shifts)]
    with run.fed.client() as client:
        def set_shifts(pairs):
            args = [x for i, s in pairs for x in (labels[i] if rng.random() < 0.5 else i, int(s))]
            holds, new = int(client.request("input-shift", *args)[0]), pieces[-1][1].copy()
            for i, s in pairs:
                new[i] = s
            assert client.value("steady-state-timestamp", int) == holds
            pieces.append((holds, new))
            assert [int(x) for x in client.request("input-shift")] == new.tolist()
            assert [int(x) for x in client.request("input-shift", labels[2])] == [new[2]]

        if case == 2:  # before there are data
            set_shifts([(0, 5), (3, -16)])
            assert pieces[-1][0] == 0
        for part in range(1, 5):
            run.go(client, 80 * part, 80 * part - 60)
            set_shifts([(int(i), rng.integers(-16, 17)) for i in rng.permutation(6)[:rng.integers(1, 7)]])
    assert [p[0] for p in pieces] == sorted(p[0] for p in pieces) and 0 < pieces[-1][0] < 330 * run.step
    batches, by_own = run.shifted(pieces), run.shifted([(0, own)])
    expected = [dumps_of(run, o, *(by_own if "shifts" in o else batches)) for o in config["outputs"]]
    check(run, run.end(), expected, str(pieces))


# ---- Gates -----------------------------------------------------------------------------------------------------------


def masks(run, pieces):
    """bool [batch][channel][spectrum] of [(timestamp, gate)], each from its spectrum on."""
    first, _, came = run.padded()
    n_spectra, step = run.config["recv"]["spectra_per_heap"], run.config["recv"]["samples_between_spectra"]
    at = (first * n_spectra + np.arange(len(came) * n_spectra)) * step
    out = None
    for timestamp, gate in pieces:
        mask = xmodel.taken(run.config, gate, first, len(came))
        later = (at >= timestamp).reshape(len(came), 1, n_spectra)
        out = mask if out is None else np.where(later, mask, out)
    return out


def check_gates(run, found, pieces):
    """Compares each output; pieces[gate name]: [(timestamp, gate)]."""
    first, voltages, present, came = run.shifted([(0, [0] * (2 * run.config["recv"]["antennas"]))])
    for o, output in enumerate(run.config["outputs"]):
        mask = masks(run, pieces[output["gate"]])
        expected = xmodel.gated_dumps(first, voltages, present, output["integration_batches"], mask,
                                      bool(pieces[output["gate"]][0][1].get("dispersion_measure")), came=came,
                                      missing=output.get("missing", "flag"))
        (endpoint,) = endpoints(output["destination"])
        scenario.check_dumps(run.config, o, found[endpoint], {w: d[:3] for w, d in expected.items()}, str(pieces))
        test_gates.check_gate(run.config, output, found[endpoint], expected)


@pytest.mark.parametrize("dispersed", [False, True])
def test_gates_change(dispersed, daemon, work, rng):
    """Bins, polynomial and switched states change at a spectrum, at once or at a time to come."""
    pulse = {"kind": "phase", "name": "pulse", "frequency": "99321.7", "phase": "0.1234", "bins": 9, "take": [1, 2, 5]}
    if dispersed:
        pulse |= {"dispersion_measure": 478.8, "centre_frequency": 856e6}
    cal = {"kind": "switch", "name": "cal", "period": 5001, "on_until": 2300}
    config = scenario.xbgpu_config(
        outputs=[{"integration_batches": 3, "missing": "weights", "gate": "pulse", "audit_samples": 8},
                 {"integration_batches": 4, "gate": "cal"}], recv=CHANNELS, gates=[pulse, cal])
    pieces = {"pulse": [(0, pulse)], "cal": [(0, cal)]}

    def change(client, name, from_samples, **keys):
        args = [f"{k}={','.join(map(str, v)) if isinstance(v, list) else v}" for k, v in keys.items()]
        holds = int(client.request("gate", name, from_samples, *args)[0])
        assert holds == max(from_samples, client.value("steady-state-timestamp", int))
        pieces[name].append((holds, pieces[name][-1][1] | keys))
        reply = client.request("gate", name)
        said = dict(a.split("=") for a in reply[1:])
        assert int(reply[0]) == from_samples
        for key, what in keys.items():
            found = ast.literal_eval("[" + said[key] + "]")
            assert found == (what if isinstance(what, list) else [ast.literal_eval(str(what))]), (key, said)

    run = Run(Fed(daemon, config, work), rng, 420)
    with run.fed.client() as client:
        assert client.request("gate") == ["pulse", "cal"]
        run.go(client, 80, 20)
        change(client, "pulse", 0, take=[0, 3, 8])
        change(client, "cal", 130 * run.step + 7 * 128 + 5, period=7777, on_from=100, on_until=4000)
        run.go(client, 200, 160)
        change(client, "cal", 0, on_until=300)
        # A change that waits for its time gives way to the next one.
        client.request("gate", "pulse", 400 * run.step, "frequency=1", "take=0")
        change(client, "pulse", 260 * run.step + 3 * 128, frequency="54321.9876543", phase="-0.75", bins=12,
                     take=[2, 11, 4], frequency_derivative="-123.25", epoch=123456)
        run.go(client, 350, 300)
        assert client.value("steady-state-timestamp", int) <= 200 * run.step
    check_gates(run, run.end(), pieces)


def test_emulated(daemon, work, rng, fake_cuda):
    """Shifts and gates that change, on the CUDA device without a GPU."""
    cal = {"kind": "switch", "name": "cal", "period": 5001, "on_until": 2300}
    config = scenario.xbgpu_config(
        outputs=[{"integration_batches": 3, "missing": "weights", "gate": "cal", "audit_samples": 8},
                 {"integration_batches": 2, "audit_samples": 8}],
        recv=CHANNELS | {"channels_per_substream": 2, "max_shift": 16}, gates=[cal])
    config["device"] = {"kind": "cuda", "kernel_cache": str(work / "cache")}
    run = Run(Fed(daemon, config, work), rng, 200)
    with run.fed.client() as client:
        run.go(client, 60, 16)
        first = int(client.request("input-shift", 0, 5, 3, -16)[0])
        changed = int(client.request("gate", "cal", 90 * run.step + 1000, "on_from=700")[0])
        run.go(client, 150, 100)
        second = int(client.request("input-shift", 0, 0, 2, 16, 5, -1)[0])
    shifts = [(0, [0] * 6), (first, [5, 0, 0, -16, 0, 0]), (second, [0, 0, 16, -16, 0, -1])]
    found = run.end()
    first, voltages, present, came = run.shifted(shifts)
    mask = masks(run, [(0, cal), (changed, cal | {"on_from": 700})])
    gated = xmodel.gated_dumps(first, voltages, present, 3, mask, False, came=came, missing="weights")
    check(run, found, [gated, dumps_of(run, config["outputs"][1], first, voltages, present, came)], "emulated")


# ---- Sensors ---------------------------------------------------------------------------------------------------------


def test_facts(daemon, work, rng):
    """The configuration's values, under the names of the array's controller."""
    config = scenario.xbgpu_config(
        outputs=[{"integration_batches": 3}, {"integration_batches": 700}], time={"adc_sample_rate": RATE},
        recv=CHANNELS | {"input_labels": "m0h,m0v,m1h,m1v,m2h,m2v", "centre_frequency": 1284e6})
    labels = config["recv"]["input_labels"].split(",")
    ordering = [None] * 24
    for a2 in range(3):
        for a1 in range(a2 + 1):
            for p1 in range(2):
                for p2 in range(2):
                    ordering[4 * xmodel.baseline(a1, a2) + p1 + 2 * p2] = (labels[2 * a1 + p1], labels[2 * a2 + p2])
    step = 16 * 128
    fed = Fed(daemon, config, work)
    with fed.client() as client:
        for stream, length in [("bcp0", 3), ("bcp1", 700)]:
            for name, kind, expected in [
                    ("chan-range", str, "(8,11)"), ("n-chans", int, 64), ("n-chans-per-substream", int, 4),
                    ("n-xengs", int, 16), ("n-ants", int, 3), ("n-bls", int, 24), ("n-accs", int, 16 * length),
                    ("int-time", float, length * step / RATE), ("bandwidth", float, RATE / 128 * 64),
                    ("center-freq", float, 1284e6), ("sync-time", float, SYNC),
                    ("scale-factor-timestamp", float, RATE), ("adc-sample-rate", float, RATE),
                    ("bls-ordering", str, str(ordering)), ("input-labels", str, str(labels)), ("xeng-out-bits-per-sample", int, 32)]:
                _, status, text = client.reading(f"{stream}.{name}")
                assert (status, kind(text)) == ("nominal", expected), name
        names = {row[0]: row[3] for row in client.informs("sensor-list")}
        assert {"rx.timestamp": "integer", "rx.unixtime": "timestamp", "rx.missing-unixtime": "timestamp",
                "rx.device-status": "discrete", "bcp0.rx.synchronised": "boolean", "bcp1.xeng-clip-cnt": "integer",
                "bcp0.tx.next-timestamp": "integer", "bcp0.audit-failure-cnt": "integer",
                "bcp0.wrong-dump-cnt": "integer",
                "device-status": "discrete", "steady-state-timestamp": "integer"}.items() <= names.items()
    fed.end()


def test_sensors(daemon, work, rng):
    """Readings against input of which all is known: values, status, and the time of the data."""
    config = scenario.xbgpu_config(
        outputs=[{"integration_batches": 8}, {"integration_batches": 4, "send_enabled": False}],
        time={"adc_sample_rate": RATE}, recv={"antennas": 3, "channels_per_substream": 1, "channel_offset": 9, "spectra_per_heap": 32768})
    fed = Fed(daemon, config, work)
    run = Run(fed, rng, 48, loss=0)
    run.voltages[:, :, :, 100:] = 0
    run.voltages[8:16, 1] = -128  # what saturates
    run.present[25, 2] = False
    run.sent = scenario.feng_heaps(run.config, 0, run.voltages, run.present)
    n_clipped = xmodel.dumps(0, run.voltages, run.present, 8)[1][2]
    assert n_clipped == 4
    step = run.step
    with fed.client() as client:
        for name, expected in [("rx.timestamp", ("error", "-1")), ("rx.unixtime", ("error", "-1")),
                               ("rx.missing-unixtime", ("nominal", "-1")), ("bcp0.rx.synchronised", ("error", "0")),
                               ("bcp0.xeng-clip-cnt", ("nominal", "0")), ("bcp0.tx.next-timestamp", ("nominal", "0")),
                               ("rx.device-status", ("warn", "degraded"))]:
            _, status, text = client.reading(name)
            assert (status, text.removesuffix(".000000")) == expected, name

        run.write(21)  # closes the chunks with batches 0 to 15, so two dumps
        client.wait("bcp0.tx.next-timestamp", lambda _, t: int(t) >= 16 * step, "the second dump")
        time_s, status, text = client.reading("bcp0.rx.synchronised")
        assert (status, text) == ("nominal", "1") and time_s == pytest.approx(unix(16 * step), abs=1e-6)
        time_s, status, text = client.reading("rx.timestamp")
        assert status in ("nominal", "error") and int(text) % (4 * step) == 0
        assert time_s == pytest.approx(unix(int(text)), abs=1e-6)

        run.write(48)
        client.wait("bcp0.tx.next-timestamp", lambda _, t: int(t) >= 32 * step, "the dump with a loss")
        client.wait("rx.timestamp", lambda _, t: int(t) >= 36 * step, "chunks behind it")
        time_s, status, text = client.reading("bcp0.xeng-clip-cnt")
        assert (status, int(text)) == ("nominal", n_clipped) and time_s >= unix(32 * step) - 1e-6
        assert client.reading("bcp1.xeng-clip-cnt")[1:] == ("nominal", "0")
        time_s, _, text = client.reading("rx.missing-unixtime")
        assert float(text) == pytest.approx(unix(24 * step), abs=1e-6) and time_s == pytest.approx(float(text), abs=1e-6)
        assert client.reading("bcp0.audit-failure-cnt")[1:] == ("nominal", "0")
        assert client.reading("bcp0.wrong-dump-cnt")[1:] == ("nominal", "0")
    run.end()


def test_silence(daemon, work, rng):
    """After a second of silence the received-data sensors are in error, and earlier losses are cleared."""
    config = scenario.xbgpu_config(recv=CHANNELS, time={"adc_sample_rate": RATE})
    fed = Fed(daemon, config, work)
    run = Run(fed, rng, 400, loss=0)
    run.present[100, 1] = False
    run.sent = scenario.feng_heaps(run.config, 0, run.voltages, run.present)
    seen = {name: [] for name in ("rx.timestamp", "rx.missing-unixtime", "rx.device-status")}

    def note(time_s, one, name, status, text):
        entry = (status.decode(), text.decode())
        if not seen[name.decode()] or seen[name.decode()][-1] != entry:
            seen[name.decode()].append(entry)

    def until(name, condition, what):
        harness.until(lambda: condition(seen[name]), lambda: f"{what}: {seen[name]}")

    with fed.client() as client:
        client.client.add_inform_callback("sensor-status", note)
        client.request("sensor-sampling", ",".join(seen), "event")
        run.write(400)
        until("rx.timestamp", lambda s: s[-1][0] == "error" and len(s) > 1, "silence")
        until("rx.missing-unixtime", lambda s: len(s) == 3, "forgiven")
        # What was lost is forgiven as the silence begins, so in between all may be well for too short to be told.
        until("rx.device-status", lambda s: s[-1] == ("warn", "degraded"), "the aggregate")
    run.end()
    assert seen["rx.timestamp"][0] == ("error", "-1") and seen["rx.timestamp"][-2] == ("nominal", seen["rx.timestamp"][-1][1])
    assert int(seen["rx.timestamp"][-1][1]) >= 350 * run.step
    first, lost, forgiven = seen["rx.missing-unixtime"]
    assert first[0] == "nominal" and lost[0] == "error" and forgiven == ("nominal", lost[1])
    assert float(lost[1]) == pytest.approx(unix(100 * run.step), abs=1e-6)
    assert seen["rx.device-status"][0] == ("warn", "degraded")


def test_synchronised(daemon, work, rng):
    """False is an error of the accumulation that ends at the reading's time."""
    config = scenario.xbgpu_config(outputs=[{"integration_batches": 4}], recv=CHANNELS, time={"adc_sample_rate": RATE})
    fed = Fed(daemon, config, work)
    run = Run(fed, rng, 400, loss=0)
    run.present[300:, 1] = False
    run.sent = scenario.feng_heaps(run.config, 0, run.voltages, run.present)
    with fed.client() as client:
        run.write(200)
        client.wait("bcp0.rx.synchronised", lambda _, t: t == "1", "dumps with all data")
        run.write(400)
        client.wait("bcp0.tx.next-timestamp", lambda _, t: int(t) >= 320 * run.step, "dumps without")
        time_s, status, text = client.reading("bcp0.rx.synchronised")
        assert (status, text) == ("error", "0")
        ends = (time_s - SYNC) * RATE / run.step
        assert ends == pytest.approx(round(ends), abs=0.01) and round(ends) % 4 == 0 and ends > 300
        assert client.reading("device-status")[1:] == ("warn", "degraded")
    run.end()


# ---- By hand: every form of every error ------------------------------------------------------------------------------


def ask(lines, request):
    """The reply to a request with an id, without the id."""
    name, _, args = request.partition(" ")
    reply = lines.ask(f"?{name}[77] {args}".rstrip())
    assert reply.startswith(f"!{name}[77] "), (request, reply)
    return reply.replace(f"{name}[77]", name)


TRANSCRIPT = [
    ("capture-start", "!capture-start fail "),
    ("capture-start nothing", "!capture-start fail there\\_is\\_no\\_stream\\_'nothing'"),
    ("capture-start bcp0 soon", "!capture-start fail "),
    ("capture-start bcp0 1.5", "!capture-start fail "),
    ("capture-start bcp0 -1", "!capture-start fail the\\_timestamp\\_must\\_not\\_be\\_negative,\\_but\\_is\\_-1"),
    ("capture-start bcp0 99999999999999999999", "!capture-start fail "),
    ("capture-start bcp0 1 2", "!capture-start fail "),
    ("capture-start bcp0 9223372036854775807", "!capture-start ok"),
    ("capture-stop", "!capture-stop fail "),
    ("capture-stop bcp9", "!capture-stop fail there\\_is\\_no\\_stream\\_'bcp9'"),
    ("capture-stop bcp0 5", "!capture-stop fail "),
    ("capture-stop bcp0", "!capture-stop ok"),
    ("capture-stop bcp0", "!capture-stop ok"),
    ("input-shift", "!input-shift ok 0 0 3 0 0 0"),
    ("input-shift a1v", "!input-shift ok 3"),
    ("input-shift 2", "!input-shift ok 3"),
    ("input-shift 6",
     "!input-shift fail there\\_is\\_no\\_input\\_'6':\\_inputs\\_are\\_0\\_to\\_5,\\_or\\_have\\_labels\\_like\\_a0v"),
    ("input-shift m000h", "!input-shift fail there\\_is\\_no\\_input\\_'m000h'"),
    ("input-shift -1 1", "!input-shift fail there\\_is\\_no\\_input\\_'-1'"),
    ("input-shift 0 many", "!input-shift fail "),
    ("input-shift 0 1.0", "!input-shift fail "),
    ("input-shift 0 9", "!input-shift fail the\\_shift\\_of\\_input\\_0\\_must\\_be\\_from\\_-8\\_to\\_8\\_spectra"
     "\\_(recv.max_shift),\\_but\\_is\\_9"),
    ("input-shift 0 -9", "!input-shift fail the\\_shift\\_of\\_input\\_0\\_must\\_be\\_from\\_-8\\_to\\_8"),
    ("input-shift 0 1 1", "!input-shift fail there\\_must\\_be\\_a\\_shift\\_after\\_input\\_1"),
    ("input-shift 0 1 a0v 2", "!input-shift fail input\\_a0v\\_is\\_given\\_twice"),
    ("input-shift 0 1 1 1 2 1 3 1 4 1 5 100", "!input-shift fail the\\_shift\\_of\\_input\\_5"),
    ("input-shift", "!input-shift ok 0 0 3 0 0 0"),
    ("input-shift a0h -8 5 8", "!input-shift ok 0"),
    ("input-shift", "!input-shift ok 0 -8 3 0 0 8"),
    ("gate", "!gate ok pulse cal"),
    ("gate nothing", "!gate fail there\\_is\\_no\\_gate\\_'nothing'"),
    ("gate cal", "!gate ok 0 epoch=0 period=100 on_from=0 on_until=50"),
    ("gate pulse", "!gate ok 0 epoch=0 frequency=30 frequency_derivative=0 phase=0 bins=4 take=0 dispersion_measure=0"
     " reference_frequency=0 centre_frequency=0"),
    ("gate pulse 0", "!gate fail give\\_the\\_changes\\_of\\_gate\\_pulse\\_as\\_KEY=VALUE"),
    ("gate pulse now bins=3", "!gate fail "),
    ("gate pulse -3 bins=3", "!gate fail the\\_timestamp\\_must\\_not\\_be\\_negative"),
    ("gate pulse 0 bins", "!gate fail 'bins'\\_is\\_not\\_KEY=VALUE"),
    ("gate pulse 0 =3", "!gate fail '=3'\\_is\\_not\\_KEY=VALUE"),
    ("gate pulse 0 bin=3", "!gate fail a\\_gate\\_of\\_kind\\_phase\\_has\\_no\\_key\\_bin\\_that\\_can\\_be\\_set\\_while\\_running"),
    ("gate pulse 0 kind=switch", "!gate fail a\\_gate\\_of\\_kind\\_phase\\_has\\_no\\_key\\_kind\\_that"),
    ("gate pulse 0 name=x", "!gate fail a\\_gate\\_of\\_kind\\_phase\\_has\\_no\\_key\\_name\\_that"),
    ("gate pulse 0 period=3", "!gate fail a\\_gate\\_of\\_kind\\_phase\\_has\\_no\\_key\\_period\\_that"),
    ("gate cal 0 bins=3", "!gate fail a\\_gate\\_of\\_kind\\_switch\\_has\\_no\\_key\\_bins\\_that"),
    ("gate pulse 0 bins=0", "!gate fail bins\\_must\\_be\\_an\\_integer\\_from\\_1\\_to\\_1024,\\_but\\_'0'\\_is\\_given"),
    ("gate pulse 0 take=0,x", "!gate fail take\\_must\\_be\\_"),
    ("gate pulse 0 take=", "!gate fail gate\\_pulse\\_takes\\_no\\_bins"),
    ("gate pulse 0 take=4", "!gate fail gate\\_pulse\\_takes\\_bin\\_4,\\_but\\_the\\_last\\_of\\_its\\_4\\_bins\\_is\\_bin\\_3"),
    ("gate pulse 0 frequency=nan", "!gate fail frequency\\_must\\_be"),
    ("gate pulse 0 frequency=2e9", "!gate fail gate\\_pulse\\_has\\_a\\_frequency\\_of\\_2e+09\\_Hz,\\_but\\_the\\_frequency\\_must\\_be\\_below\\_adc_sample_rate"),
    ("gate pulse 0 dispersion_measure=3 centre_frequency=1e9",
     "!gate fail gate\\_pulse\\_must\\_keep\\_a\\_dispersion_measure\\_of\\_0\\_until\\_xbgpu\\_restarts"),
    ("gate pulse 0 epoch=1 epoch_time=1700000001", "!gate ok 0"),
    ("gate pulse", "!gate ok 0 epoch_time=1700000001 frequency=30 frequency_derivative=0 phase=0 bins=4 take=0"
     " dispersion_measure=0 reference_frequency=0 centre_frequency=0"),
    ("gate cal 0 on_until=101", "!gate fail gate\\_cal\\_is\\_on\\_from\\_sample\\_0\\_until\\_sample\\_101,\\_but\\_its\\_period\\_has\\_only\\_100\\_samples"),
    ("gate cal 0 on_until=0", "!gate fail gate\\_cal\\_is\\_on\\_from\\_sample\\_0\\_until\\_the\\_same"),
    ("gate cal 12345 on_until=99 period=101", "!gate ok 12345"),
    ("gate cal", "!gate ok 12345 epoch=0 period=101 on_from=0 on_until=99"),
    ("gate pulse 0 bins=8 take=7,6,5 phase=-0.25 frequency=0.125", "!gate ok 0"),
    ("beam-weights bcp0 1 1 1", "!beam-weights fail there\\_is\\_no\\_beam\\_'bcp0'"),
]


def transcript_config(work=None):
    """With 'work', settings are saved in a new directory there."""
    if work:
        (work / "state").mkdir()
    return scenario.xbgpu_config(
        state={"directory": str(work / "state")} if work else {},
        outputs=[{"gate": "pulse"}, {"gate": "cal"}],
        gates=[{"kind": "phase", "name": "pulse", "frequency": 30, "bins": 4, "take": [0]},
               {"kind": "switch", "name": "cal", "period": 100, "on_until": 50}],
        recv=CHANNELS | {"shifts": [0, 0, 3, 0, 0, 0], "max_shift": 8})


def test_transcript(daemon, work):
    """Requests and replies, byte for byte as far as they are given here.  A refused request changes nothing."""
    fed = Fed(daemon, transcript_config(), work)
    with control.Lines(fed.process) as lines:
        for request, expected in TRANSCRIPT:
            reply = ask(lines, request)
            assert reply == expected if " ok" in expected else reply.startswith(expected), (request, reply)
    fed.end()


def test_no_room(daemon, work):
    """Without shifts in the configuration there is room for none."""
    fed = Fed(daemon, scenario.xbgpu_config(), work)
    with control.Lines(fed.process) as lines:
        assert ask(lines, "input-shift") == "!input-shift ok 0 0 0 0"
        assert ask(lines, "input-shift 0 1").startswith(
            "!input-shift fail the\\_shift\\_of\\_input\\_0\\_must\\_be\\_from\\_0\\_to\\_0\\_spectra")
        assert ask(lines, "input-shift 0 0") == "!input-shift ok 0"
        assert ask(lines, "gate") == "!gate ok"
        assert ask(lines, "gate cal") == "!gate fail there\\_is\\_no\\_gate\\_'cal'"
    fed.end()


def test_read_only(daemon, work):
    """A client that may only read gets all information and changes nothing."""
    config = transcript_config()
    config["katcp"] = {"read_only_listen": f"127.0.0.1:{harness.free_tcp_port()}"}
    fed = Fed(daemon, config, work)
    with control.Lines(fed.process, "read_only_listen") as lines:
        for request in ("capture-start bcp0", "capture-start bcp0 5", "capture-stop bcp0", "input-shift 0 1",
                        "gate cal 0 on_until=3", "gate cal 0"):
            assert ask(lines, request).startswith(f"!{request.split()[0]} fail "), request
        assert ask(lines, "input-shift") == "!input-shift ok 0 0 3 0 0 0"
        assert ask(lines, "input-shift a1v") == "!input-shift ok 3"
        assert ask(lines, "gate") == "!gate ok pulse cal"
        assert ask(lines, "gate cal") == "!gate ok 0 epoch=0 period=100 on_from=0 on_until=50"
    fed.end()


# ---- Restarts --------------------------------------------------------------------------------------------------------


def test_state_survives(daemon, work, rng):
    """Settings hold from the first batch after a restart.  The YAML holds for everything else."""
    config = transcript_config(work)
    config["outputs"].append(merge(harness.XBGPU_OUTPUT, {"name": "plain", "destination": harness.groups()}))
    config["outputs"][0]["missing"] = "weights"
    fed = Fed(daemon, config, work, "before")
    with control.Lines(fed.process) as lines:
        for request in ["input-shift a0h -8 5 8", "gate cal 0 on_until=99 period=1001 epoch=-7", "capture-stop bcp1",
                        "gate pulse 0 frequency=99321.7 phase=0.1234 bins=9 take=1,2,5 epoch_time=1700000000.5",
                        "capture-stop plain", f"capture-start plain {40 * 2048}", "capture-start bcp1"]:
            assert " ok" in ask(lines, request), request
    fed.end()

    fed = Fed(daemon, config, work, "after")
    run = Run(fed, rng, 120)
    with control.Lines(fed.process) as lines, fed.client() as client:
        assert ask(lines, "input-shift") == "!input-shift ok 0 -8 3 0 0 8"
        assert client.reading("state-status")[1:] == ("nominal", "kept")
        assert ask(lines, "gate cal") == "!gate ok 0 epoch=-7 period=1001 on_from=0 on_until=99"
    found = run.end()
    gates = {
        "cal": {"kind": "switch", "name": "cal", "period": 1001, "on_until": 99, "epoch": -7},
        "pulse": {"kind": "phase", "name": "pulse", "frequency": "99321.7", "phase": "0.1234", "bins": 9,
                  "take": [1, 2, 5], "epoch_time": "1700000000.5"},
    }
    first, voltages, present, came = run.shifted([(0, [0, -8, 3, 0, 0, 8])])
    for o, output in enumerate(config["outputs"]):
        if output.get("gate"):
            expected = test_gates.expect(run.config | {"gates": list(gates.values())}, output, first, voltages, present,
                                         came)
        else:
            expected = dumps_of(run, output, first, voltages, present, came)
            expected = {w: d for w, d in expected.items() if w * 4 >= 40}
            assert len(expected) > 10
        (endpoint,) = endpoints(output["destination"])
        scenario.check_dumps(run.config, o, found[endpoint], {w: d[:3] for w, d in expected.items()}, "after")


def test_state_that_does_not_fit(daemon, work, rng):
    """Settings that no longer fit the configuration are left out, with a line each.  The rest holds."""
    config = transcript_config(work)
    (work / "state" / "control").write_text(
        "# by hand\ncapture gone on 0\ncapture bcp0 maybe 0\ncapture bcp1 off 0\nshift 9 1\nshift 0 9\nshift 1 -2\n"
        "gate gone 0 bins 3\ngate pulse 0 bins 2\ngate pulse 0 take 3\ngate cal 0 bins 3\ncolour red\n")
    fed = Fed(daemon, config, work)
    with control.Lines(fed.process) as lines, fed.client() as client:
        assert ask(lines, "input-shift") == "!input-shift ok 0 -2 3 0 0 0"
        assert ask(lines, "gate pulse").startswith("!gate ok 0 epoch=0 frequency=30 frequency_derivative=0 phase=0 bins=4 take=0")
        assert ask(lines, "gate cal") == "!gate ok 0 epoch=0 period=100 on_from=0 on_until=50"
        assert client.reading("state-status")[1:] == ("error", "ignored")
    fed.end()
    log = fed.process.log.read_text()
    for line in (2, 3, 5, 6, 8, 11, 12):
        assert f"control:{line}: saved setting ignored" in log, line
    assert "saved setting of a gate ignored: gate pulse takes bin 3, but the last of its 2 bins is bin 1" in log


def test_state_that_cannot_be_read(daemon, work):
    """Ignored with one sentence: an array that does not start is worse than one without its settings."""
    config = transcript_config(work)
    (work / "state" / "control").mkdir()
    process = daemon("xbgpu", config).wait_ready()
    process.terminate().wait_end()
    log = process.log.read_text()
    assert log.count("control: Is a directory; the file is ignored") == 1, log
