"""fgpu over KATCP: settings take effect at the steady-state-timestamp, against the float64 model; sensors for a known input;
every refusal; and the settings that a restart keeps."""
import ast
import contextlib
import math
import os
import re
import time

import numpy as np
import pytest

import control
import fmodel
import harness
import scenario
import test_delay
import test_fgpu_stream
from fmodel import Delay
from harness import endpoints, merge
from test_delay import RATE, SYNC
from test_fgpu_stream import destinations

CHUNK = 8192
WINDOW = 6  # chunks; however busy the machine, its receive threads are not further apart
LABELS = ["m000v", "m000h", "m001v", "m001h"]


def katcp_config(outputs=({"gain": 0.4, "taps": 4},), feng_ids=(0,), **sections):
    sections = merge({"katcp": {"listen": f"127.0.0.1:{harness.free_tcp_port()}"},
                      "time": {"sync_time": SYNC, "adc_sample_rate": RATE}, "recv": {"max_delay_diff": 1024, "window": WINDOW}}, sections)
    return test_fgpu_stream.live_config(outputs, feng_ids, **sections)


def two_outputs(**sections):
    """Configuration of two antennas, with a wide and a narrow band.  One antenna's place differs from its number."""
    return katcp_config(outputs=[{"gain": 0.4, "taps": 4},
                                 {"kind": "narrowband", "channels": 64, "spectra_per_heap": 32, "taps": 4, "gain": 0.3,
                                  "centre_frequency": RATE * 0.2, "decimation": 4, "ddc_taps": 40, "substreams": 1}],
                        feng_ids=(0, 1), **sections)


class Feed:
    """Sends the heaps of samples[ant][pol][n] part by part."""

    def __init__(self, config, samples, start, receiver=None, **heaps):
        self.config, self.samples, self.start, self.receiver = config, samples, start, receiver
        self.sent = scenario.digitiser_heaps(config, samples, start, **heaps)
        self.per_packet = len(self.sent) / (samples.shape[2] // config["recv"]["packet_samples"])
        self.done = 0

    def send(self, n_chunks=None, **more):
        """Sends the next n_chunks chunks, or all that are left.  'more' is for send_live()."""
        n = len(self.sent)
        if n_chunks is not None:
            n = self.done + round(n_chunks * CHUNK // self.config["recv"]["packet_samples"] * self.per_packet)
        assert n <= len(self.sent), "there are no more samples"
        harness.send_live(self.sent[self.done:n], **more)
        self.done = n

    def go(self, n_chunks=None):
        """The same, and waits for the resulting output."""
        self.send(n_chunks)
        wait_batches(self.config, self.receiver, self.end)

    def finish(self, process):
        """Ends the F-engine after it has taken all packets.  Returns the streams."""
        process.wait_metric(lambda m: m.get("fgpu_input_packets_total") >= self.done, f"{self.done} packets taken")
        return test_fgpu_stream.finish(self.config, process, self.receiver)

    @property
    def end(self):
        """Timestamp after the last sent sample."""
        return self.start + int(self.done / self.per_packet) * self.config["recv"]["packet_samples"]


def last_batch(model, end):
    """Returns the timestamp of an output's last batch that must result from the data sent until timestamp 'end'."""
    return (end // CHUNK * CHUNK - (WINDOW + 1) * CHUNK - model.reach) // model.batch * model.batch


def wait_batches(config, receiver, end):
    """Waits for the last batch of every output that must result from the data sent until timestamp 'end'."""
    for output in config["outputs"]:
        last = last_batch(scenario.model_of(output, config), end)
        where = endpoints(output["destinations"])
        receiver.wait(lambda heaps: sum(h.endpoint in where and h.items.get("timestamp") == last for h in heaps)
                      == len(where) * len(config["antennas"]), f"{output['name']} up to {last}")


@contextlib.contextmanager
def running(daemon, config, samples, start):
    """A running fgpu, a client of its KATCP, the feed of its inputs, and the receivers of its outputs."""
    with harness.Receiver(destinations(config)) as receiver:
        process = daemon("fgpu", config).wait_ready()
        with control.Client(process) as client:
            yield process, client, Feed(config, samples, start, receiver), receiver


def with_new_ports(config):
    """For a second start, while the first one's ports may still be in use."""
    return merge(config, {server: {"listen": f"127.0.0.1:{harness.free_tcp_port()}"} for server in ("http", "katcp")})


def gains_text(gains):
    return [f"{complex(g).real:.17g}{complex(g).imag:+.17g}j" for g in gains]


def check_gains(config, streams, samples, start, changes):
    """changes[output]: [(timestamp, gains[ant][chan][pol])], in order.  From each timestamp on its gains must hold.  A
    batch before the timestamp may have them only if all batches in between have them.  Returns {output: batches of the
    last gains}."""
    n_last = {}
    for (o, a), got in streams.items():
        output = scenario.model_of(config["outputs"][o], config)
        models = fmodel.voltages(start, samples[a], output, [t // output.batch for t in got])
        since = 0  # index of the gains that hold
        for timestamp, values in got.items():
            while since + 1 < len(changes[o]) and timestamp >= changes[o][since + 1][0]:
                since += 1
            while True:
                factor = changes[o][since][1][a] / output.gain
                try:
                    scenario.compare_voltages(values, models[timestamp // output.batch] * factor[:, None, :], output.limit,
                                              f"output {o} antenna {a} at {timestamp}")
                    break
                except AssertionError:
                    if since + 1 == len(changes[o]):
                        raise
                    since += 1
            n_last[o] = n_last.get(o, 0) + (since + 1 == len(changes[o]))
    return n_last


def check_mean_gains(process, config, gains):
    """fgpu_output_gain of all inputs and outputs; gains[output][ant][chan][pol]."""
    metrics = process.metrics()
    for o, output in enumerate(config["outputs"]):
        for a, antenna in enumerate(config["antennas"]):
            for pol in range(2):
                mean = metrics.get("fgpu_output_gain", antenna=antenna["name"], stream=output["name"], pol=pol)
                assert mean == pytest.approx(np.abs(gains[o][a, :, pol]).mean(), abs=1e-6)


def test_gains(daemon, rng):
    """A scalar, a vector, all and default, to labels and numbers; each holds from steady-state-timestamp on."""
    config = two_outputs(http={"listen": f"127.0.0.1:{harness.free_tcp_port()}"})
    samples = scenario.noise(rng, 2, CHUNK * 60, 10)
    start = 2**40
    gains = [[np.full((2, o["channels"], 2), o["gain"], np.complex64)] for o in config["outputs"]]
    changes = [[(0, g[0].copy())] for g in gains]

    def changed(o, client, seen):
        timestamp = client.value("steady-state-timestamp", int)
        assert timestamp >= seen[0], "steady-state-timestamp went back"
        assert feed.end - (WINDOW + 5) * CHUNK <= timestamp <= feed.end + CHUNK, f"{timestamp} of {feed.end}"
        seen[0] = timestamp
        changes[o].append((timestamp, current[o].copy()))

    current = [c[0][1].copy() for c in changes]
    seen = [0]
    with running(daemon, config, samples, start) as (process, client, feed, receiver):
        assert client.value("steady-state-timestamp") == "0"
        feed.go(15)
        # A scalar to one input, by number.
        assert client.request("gain", "wide0", 1, "0.25-0.125j") == []
        current[0][0, :, 1] = 0.25 - 0.125j
        changed(0, client, seen)
        assert client.request("gain", "wide0", "1") == ["0.25-0.125j"]
        assert client.request("gain", "wide0", "m000v") == gains_text([np.float32(0.4)])
        feed.go(12)
        # A vector to one input of the other antenna, by label, of the narrow band.
        vector = (rng.normal(0, 0.3, 64) + 1j * rng.normal(0, 0.3, 64)).astype(np.complex64)
        client.request("gain", "wide1", "m001h", *[repr(complex(g)) for g in vector])
        current[1][1, :, 1] = vector
        changed(1, client, seen)
        assert client.request("gain", "wide1", 3) == gains_text(vector)
        assert client.value("wide1.input3.eq") == "[" + ", ".join(gains_text(vector)) + "]"
        check_mean_gains(process, config, current)
        timestamp, status, _ = client.reading("wide1.input3.eq")
        assert status == "nominal" and timestamp == pytest.approx(SYNC + seen[0] / RATE, abs=2e-6)
        feed.go(12)
        # All at once.
        vector = rng.normal(0.3, 0.1, 64).astype(np.complex64)
        client.request("gain-all", "wide0", *[str(complex(g)) for g in vector])
        current[0][:] = vector[None, :, None]
        changed(0, client, seen)
        client.request("gain-all", "wide1", "default")
        current[1][:] = np.float32(0.3)
        changed(1, client, seen)
        assert client.value("wide1.input3.eq") == "[" + gains_text([np.float32(0.3)])[0] + "]"
        check_mean_gains(process, config, current)
        feed.send()
        streams = feed.finish(process)
    n_last = check_gains(config, streams, samples, start, changes)
    assert min(n_last.values()) > 10, n_last


def delay_text(m):
    """As ?delays takes it."""
    delay = [m.delay / RATE, m.rate] + ([m.acceleration * RATE] if m.acceleration else [])
    phase = [m.phase, m.phase_rate * RATE] + ([0.0] if m.acceleration else [])
    return ",".join(map(repr, delay)) + ":" + ",".join(map(repr, phase))


def at(samples):
    """UNIX time of an ADC timestamp, exactly."""
    return f"{SYNC + samples // RATE}.{samples % RATE:09}"


def test_delays(daemon, rng):
    """Models for future times, of all inputs and of some, linear and quadratic, replaced, late.  The sensors show the
    models in effect, in the data's time."""
    config = two_outputs()
    samples = scenario.noise(rng, 2, CHUNK * 60 // 512 * 512, 10)
    start = 2**40
    models = [[[[] for _ in range(2)] for _ in range(2)] for _ in config["outputs"]]  # [output][ant][pol]

    def random_model(when, quadratic):
        return Delay(when, float(rng.uniform(-400, 400)), float(rng.uniform(-1e-3, 1e-3)), float(rng.uniform(-3, 3)),
                     float(rng.uniform(-1e-3, 1e-3)), float(rng.uniform(-1e-9, 1e-9)) if quadratic else 0.0)

    def set_all(o, when, quadratic=False):
        new = [random_model(when, quadratic) for _ in range(4)]
        assert client.request("delays", f"wide{o}", at(when), *map(delay_text, new)) == []
        for i, m in enumerate(new):
            of_input = models[o][i // 2][i % 2]
            of_input[:] = [old for old in of_input if old.start < when] + [m]

    with running(daemon, config, samples, start) as (process, client, feed, receiver):
        assert client.reading("wide1.input2.delay")[1:] == ("nominal", "(-1, 0.0, 0.0, 0.0, 0.0)")
        set_all(0, start + 3 * CHUNK + 77)
        assert client.value("wide0.input2.delay") == "(-1, 0.0, 0.0, 0.0, 0.0)"
        assert client.value("steady-state-timestamp") == "0"
        feed.go(15)
        m = models[0][1][0][-1]
        timestamp, status, text = client.reading("wide0.input2.delay")
        shown = ast.literal_eval(text)
        assert shown[0] == m.start and np.allclose(shown[1:], (m.delay / RATE, m.rate, m.phase, m.phase_rate * RATE),
                                                   rtol=1e-15)
        assert status == "nominal" and timestamp == pytest.approx(SYNC + m.start / RATE, abs=2e-6)
        assert client.value("wide1.input2.delay") == "(-1, 0.0, 0.0, 0.0, 0.0)"
        # Two that wait, the first of which is replaced together with the second.
        set_all(1, feed.end + 6 * CHUNK + 1)
        set_all(1, feed.end + 7 * CHUNK)
        set_all(1, feed.end + 5 * CHUNK + 3, quadratic=True)
        # Some inputs only.
        some = {i: random_model(feed.end + 4 * CHUNK, i == 3) for i in (0, 3)}
        client.request("delays", "wide0", at(feed.end + 4 * CHUNK), f"m001h={delay_text(some[3])}",
                       f"0={delay_text(some[0])}")
        models[0][0][0].append(some[0])
        models[0][1][1].append(some[3])
        steady = client.value("steady-state-timestamp", int)
        assert feed.end - (WINDOW + 5) * CHUNK <= steady <= feed.end
        feed.go(20)
        numbers = ast.literal_eval(client.value("wide0.input3.delay"))
        assert numbers[0] == some[3].start and len(numbers) == 7
        assert numbers[5] == pytest.approx(some[3].acceleration * RATE, rel=1e-14) and numbers[6] == 0
        assert ast.literal_eval(client.value("wide0.input1.delay"))[0] == models[0][0][1][0].start
        feed.send()
        streams = feed.finish(process)
    for o in range(2):
        of_output = {key: got for key, got in streams.items() if key[0] == o}
        assert test_delay.check(config, of_output, models[o], samples, start) > 50


def test_late_delays(daemon, rng):
    """A model whose start has passed holds from the next spectrum on. steady-state-timestamp names this spectrum."""
    config = katcp_config()
    samples = scenario.noise(rng, 1, CHUNK * 40, 10)
    start = 2**40
    output = scenario.model_of(config["outputs"][0], config)
    with running(daemon, config, samples, start) as (process, client, feed, receiver):
        feed.go(15)
        client.request("delays", "wide0", SYNC, "1e-7,0:0.5,0", "0,0:0,-1e2")
        steady = client.value("steady-state-timestamp", int)
        feed.send()
        streams = feed.finish(process)
    models = [[[Delay(0, 100, 0, 0.5, 0)], [Delay(0, 0, 0, 0, -1e2 / RATE)]]]
    # In the model each spectrum before 'steady' has no delay.
    placed = fmodel.delayed_batches(output, [[Delay(0), *[Delay(steady, m[0].delay, m[0].rate,
                                                               m[0].phase + m[0].phase_rate * steady, m[0].phase_rate)]]
                                             for m in models[0]],
                                    fmodel.held(config, start, range(start // CHUNK, start // CHUNK + 40), CHUNK * 40))
    got = streams[0, 0]
    assert [t // output.batch for t in got] == list(placed)
    for (timestamp, values), p in zip(got.items(), placed.values()):
        scenario.compare_voltages(values, fmodel.delayed_voltages(start, samples[0], output, p), output.limit, f"at {timestamp}")


def test_resume(daemon, rng):
    """After a wrong delay of both inputs a stream reports how long it will be silent, and resumes on request."""
    config = katcp_config()
    samples = scenario.noise(rng, 1, CHUNK * 40, 10)
    start, wrong = 2**40, 100 * CHUNK
    output = scenario.model_of(config["outputs"][0], config)
    with running(daemon, config, samples, start) as (process, client, feed, receiver):
        feed.go(12)
        client.request("delays", "wide0", SYNC, *[f"{wrong / RATE},0:0,0"] * 2)
        feed.send(8)
        last = last_batch(output, feed.end) + wrong
        receiver.wait(lambda heaps: any((h.items.get("timestamp") or 0) >= last for h in heaps), "heaps of the wrong delay")
        client.request("delays", "wide0", SYNC, *["0,0:0,0"] * 2)
        feed.send(8)
        ahead = process.wait_metric(lambda m: m.get("fgpu_output_ahead_seconds") > 0, "the stream to wait").get("fgpu_output_ahead_seconds")
        # Since 'last', the input advanced by eight chunks, and by one more that may have waited in the receive window.
        # The filter window of the next spectrum without a delay begins reach - batch samples before the end of the input.
        assert (wrong - 9 * CHUNK - (output.reach - output.batch)) / RATE <= ahead <= wrong / RATE
        client.wait("wide0.input1.delay", lambda status, value: status == "error", "in error")
        assert client.value("device-status") == "degraded"
        client.request("resume", "wide0", "m000")
        steady = client.value("steady-state-timestamp", int)
        assert feed.end - (WINDOW + 1) * CHUNK <= steady <= feed.end + output.batch and steady % output.batch == 0
        feed.send()
        client.wait("wide0.input1.delay", lambda status, value: status == "nominal", "nominal")
        assert process.metrics().get("fgpu_output_ahead_seconds") == 0
        streams = feed.finish(process)
    got = {t: values for t, values in streams[0, 0].items() if steady <= t < start + wrong}
    models = fmodel.voltages(start, samples[0], output, [t // output.batch for t in got])
    assert list(got) == list(range(steady, start + 40 * CHUNK - output.reach, output.batch))
    for timestamp, values in got.items():
        scenario.compare_voltages(values, models[timestamp // output.batch], output.limit, f"at {timestamp}")


# ---- Refusals --------------------------------------------------------------------------------------------------------


TRANSCRIPT = [
    ("?gain", "!gain (fail|invalid) .*"),
    ("?gain wide0", "!gain (fail|invalid) .*"),
    ("?gain wide9 0", r"!gain fail there\_is\_no\_stream\_'wide9'"),
    ("?gain wide0 4", r"!gain fail there\_is\_no\_input.*"),
    ("?gain wide0 -1", r"!gain fail there\_is\_no\_input.*"),
    ("?gain wide0 m002v", r"!gain fail there\_is\_no\_input.*"),
    ("?gain wide0 m000", r"!gain fail there\_is\_no\_input.*"),
    ("?gain wide0 m000x", r"!gain fail there\_is\_no\_input.*"),
    (r"?gain wide0 \@", r"!gain fail there\_is\_no\_input.*"),
    ("?gain wide0 99999999999", r"!gain fail there\_is\_no\_input.*"),
    ("?gain wide0 0 1 2", r"!gain fail the\_request\_must\_have\_one\_gain\_or\_64\_gains\_to\_set\_gains,\_or\_none\_to\_read\_gains"),
    ("?gain wide0 0 " + " ".join(["1"] * 63), r"!gain fail the\_request\_must\_have\_one\_gain.*"),
    ("?gain wide0 0 " + " ".join(["1"] * 65), r"!gain fail the\_request\_must\_have\_one\_gain.*"),
    ("?gain wide0 0 i", r"!gain fail a\_gain\_must\_be\_a\_complex\_number\_like\_1-0.5j:\_'i'"),
    ("?gain wide0 0 default", r"!gain fail a\_gain\_must\_be\_a\_complex.*"),
    (r"?gain wide0 0 1\_+\_2j", r"!gain fail a\_gain\_must\_be\_a\_complex.*"),
    (r"?gain wide0 0 \@", r"!gain fail a\_gain\_must\_be\_a\_complex.*"),
    ("?gain wide0 0 0x10", r"!gain fail a\_gain\_must\_be\_a\_complex.*"),
    ("?gain wide0 0 nan", r"!gain fail a\_gain\_must\_be\_finite,\_in\_single\_precision:\_'nan'"),
    ("?gain wide0 0 1+infj", r"!gain fail a\_gain\_must\_be\_finite.*"),
    ("?gain wide0 0 1e39", r"!gain fail a\_gain\_must\_be\_finite.*"),
    ("?gain wide0 0 1e38", r"!gain fail a\_gain\_must\_have\_a\_magnitude\_of\_at\_most\_1e9;.*'1e38'"),
    ("?gain wide0 0 8e8-8e8j", r"!gain fail a\_gain\_must\_have\_a\_magnitude.*"),
    ("?gain wide0 0 " + " ".join(["1"] * 63) + " nan", r"!gain fail a\_gain\_must\_be\_finite.*"),
    ("?gain wide0 0", r"!gain ok 0.40000000596046448\+0j"),
    ("?gain-all wide0", "!gain-all (fail|invalid) .*"),
    ("?gain-all wide9 1", r"!gain-all fail there\_is\_no\_stream.*"),
    ("?gain-all wide0 1 2", r"!gain-all fail the\_request\_must\_have\_one\_gain\_or\_64\_gains"),
    ("?gain-all wide0 default 1", r"!gain-all fail the\_request\_must\_have\_one\_gain.*"),
    ("?gain-all wide0 Default", r"!gain-all fail a\_gain\_must\_be\_a\_complex.*"),
    ("?gain-all wide0 -inf", r"!gain-all fail a\_gain\_must\_be\_finite.*"),
    ("?gain-all wide0 -1e10", r"!gain-all fail a\_gain\_must\_have\_a\_magnitude.*"),
    ("?delays wide0 1800000000", "!delays (fail|invalid) .*"),
    ("?delays wide9 1800000000 0,0:0,0 0,0:0,0", r"!delays fail there\_is\_no\_stream.*"),
    ("?delays wide0 1800000000 0,0:0,0", r"!delays fail the\_request\_must\_have\_4\_models,\_one\_for\_each\_input"),
    ("?delays wide0 1800000000 0,0:0,0 0,0:0,0 0,0:0,0 0,0:0,0 0,0:0,0", r"!delays fail the\_request\_must\_have\_4.*"),
    ("?delays wide0 1699999999.9 0,0:0,0 0,0:0,0 0,0:0,0 0,0:0,0",
     r"!delays fail the\_start\_time\_is\_before\_the\_sync\_time"),
    ("?delays wide0 soon 0,0:0,0 0,0:0,0 0,0:0,0 0,0:0,0", r"!delays fail the\_start\_time\_must.*'soon'"),
    ("?delays wide0 nan 0,0:0,0 0,0:0,0 0,0:0,0 0,0:0,0", r"!delays fail the\_start\_time.*"),
    ("?delays wide0 1e30 0,0:0,0 0,0:0,0 0,0:0,0 0,0:0,0", r"!delays fail the\_start\_time.*"),
] + [(f"?delays wide0 1800000000 1e-9,0:0,0 0,0:0,0 0,0:0,0 {model}", rf"!delays fail {why}.*") for model, why in [
    ("0,0", r"a\_model\_must\_be"), ("0:0", r"a\_model\_must\_be"), ("0,0:0", r"a\_model\_must\_be"),
    ("0,0:0,0:0,0", r"a\_model\_must\_be"), ("0,0,0,0:0,0", r"a\_model\_must\_be"), ("0,0:0,x", r"a\_model\_must\_be"),
    ("0,:0,0", r"a\_model\_must\_be"), ("nan,0:0,0", r"delays,.*must\_be\_finite"), ("0,0:0,inf", r"delays,.*finite"),
    ("0,1:0,0", r"a\_delay\_rate\_must\_be"), ("0,-1.5:0,0", r"a\_delay\_rate\_must\_be"),
    ("1e8,0:0,0", r"the\_magnitude\_of\_a\_delay\_must\_be\_at\_most"), ("0=0,0:0,0", r"INPUT=\_must\_stand\_before\_all\_models")]] + [
    ("?resume", "!resume (fail|invalid) .*"),
    ("?resume wide9", r"!resume fail there\_is\_no\_stream\_'wide9'"),
    ("?resume wide0 m000 m002", r"!resume fail there\_is\_no\_antenna\_'m002'"),
    ("?delays wide0 1800000000 m001v=100,0:0,0",
     r"!delays fail the\_magnitude\_of\_a\_delay\_must\_be\_at\_most\_1\_s.*"),
    ("?delays wide0 1800000000 m001v=-1.001,0:0,0",
     r"!delays fail the\_magnitude\_of\_a\_delay\_must\_be\_at\_most\_1\_s.*"),
    ("?delays wide0 1800000000 m001v=0,1.001e-3:0,0",
     r"!delays fail the\_magnitude\_of\_a\_delay\_rate\_must\_be\_at\_most\_0.001\_s/s:\_'m001v=0,1.001e-3:0,0'"),
    ("?delays wide0 1800000000 1e-9,0:0,0 0,0:0,0 0,0:0,0 0,-0.5:0,0",
     r"!delays fail the\_magnitude\_of\_a\_delay\_rate.*'0,-0.5:0,0'"),
    ("?delays wide0 1800000000 0=0,0:0,0 m000v=0,0:0,0", r"!delays fail there\_are\_two\_models\_for\_input\_0"),
    ("?delays wide0 1800000000 4=0,0:0,0", r"!delays fail there\_is\_no\_input.*"),
    ("?delays wide0 1800000000 =0,0:0,0", r"!delays fail there\_is\_no\_input.*"),
    ("?delays wide0 1800000000 0=0,0:0,0 0,0:0,0", r"!delays fail INPUT=\_must\_stand\_before\_all\_models\_or\_before\_none.*"),
]


def test_refusals(daemon, work):
    """Each refusal has its sentence, and changes nothing."""
    config = katcp_config(feng_ids=(0, 1), state={"directory": str(work)})
    with daemon("fgpu", config) as process:
        with control.Lines(process) as lines:
            for line, expected in TRANSCRIPT:
                got = lines.ask(line)
                assert re.fullmatch(expected.replace("\\_", r"\\_"), got), f"{line[:100]}: {got}"
            for i in range(4):
                assert lines.ask(f"?gain wide0 {LABELS[i]}") == "!gain ok 0.40000000596046448+0j"
        with control.Client(process) as client:
            assert client.value("steady-state-timestamp") == "0"
            assert client.value("wide0.input0.eq") == "[0.40000000596046448+0j]"
    assert not list(work.glob("*@*")), "what was refused was kept"


def test_formats(daemon):
    """Numbers as Python writes them, in every form that it has; a mid comes back."""
    config = katcp_config()
    process = daemon("fgpu", config).wait_ready()
    with control.Lines(process) as lines:
        for text in ["1", "2j", "-j", "(1e-3+4j)", "+.5", "1_0.2_5-1E+2J", r"\_1-0j\t", "5e-324", "-0.1+0.3j"]:
            value = np.complex64(complex(text.replace("\\_", " ").replace("\\t", "\t")))
            assert lines.ask(f"?gain[7] wide0 1 {text}") == "!gain[7] ok"
            assert lines.ask("?gain wide0 1") == f"!gain ok {value.real:.17g}{value.imag:+.17g}j"
        assert lines.ask("?delays wide0 1.8e9 1e-9,0:0,0 0,0:0,0") == "!delays ok"
        assert lines.ask("?delays wide0 1.8e9 1,1e-3:0,0 -1,-1e-3:0,0") == "!delays ok"  # the limits
        assert lines.ask("?delays wide0 1800000000.12345678901234 1e-9,0:0,0 0,0:0,0") == "!delays ok"


def test_room_for_delays(daemon, work):
    """This number of models may wait for their time, and one more is refused.  Replacements are not refused.  Any
    number of models whose time has passed is accepted, and the last stay."""
    config = katcp_config(state={"directory": str(work)}, time={"timebase": "clock"})
    process = daemon("fgpu", config).wait_ready()
    model = ("1e-9,0:0,0", "0,0:0,0")
    with control.Client(process) as client:
        for i in range(255):
            client.request("delays", "wide0", 4000000000 + i, *model)
        with pytest.raises(control.FailReply, match="255 pending delay models"):
            client.request("delays", "wide0", 4000000255, *model)
        client.request("delays", "wide0", 4000000000, *model)
        client.request("delays", "wide0", 4000000255, *model)
        for i in range(260):
            client.request("delays", "wide0", SYNC + i, *model)
    process.terminate()
    process.wait_end()
    for pol in range(2):
        lines = [line.split() for line in (work / "delays.wide0@m000").read_text().splitlines() if line[0] != "#"]
        assert [int(line[0].split(".")[0]) - SYNC for line in lines if int(line[1]) == pol] == list(range(5, 260))


def test_room_for_delays_of_a_replay(daemon, work):
    """A capture of long ago whose data have not come yet: no model is past its time, whatever the clock says."""
    harness.write_pcap(work / "empty.pcap", [])
    os.mkfifo(work / "in.pcap")
    fifo = os.open(work / "in.pcap", os.O_RDWR)  # held open, so that it does not end
    os.write(fifo, (work / "empty.pcap").read_bytes())
    config = merge(katcp_config(), {"recv": {"pcap_file": str(work / "in.pcap")}, "time": {"timebase": "clock"}})
    assert SYNC + 2000 < time.time()
    process = daemon("fgpu", config).wait_ready()
    model = ("1e-9,0:0,0", "0,0:0,0")
    with control.Client(process) as client:
        for i in range(255):
            client.request("delays", "wide0", SYNC + 1000 + i, *model)
        with pytest.raises(control.FailReply, match="255 pending delay models"):
            client.request("delays", "wide0", SYNC + 1255, *model)
    os.close(fifo)


# ---- Sensors ---------------------------------------------------------------------------------------------------------


def check_before_data(client):
    """Sensors of four inputs of which nothing has come."""
    for i in range(4):
        assert client.reading(f"input{i}.rx.timestamp")[1:] == ("error", "-1")
        assert client.reading(f"input{i}.rx.unixtime")[1] == "error"
        assert client.reading(f"input{i}.rx.missing-unixtime")[1] == "nominal"
        assert client.reading(f"input{i}.dig-rms-dbfs")[1] == "unknown"
        assert client.reading(f"input{i}.dig-clip-cnt")[1:] == ("nominal", "0")
    assert client.reading("rx.device-status")[1:] == ("warn", "degraded")


def read_inputs(client, feed, n_chunks):
    """Sends chunks, and returns all sensors of the inputs as they are while data come, {name: (timestamp, status, value)}.
    After a second without data they say that nothing comes.  Then more chunks are sent."""
    first, n_sent = True, 0
    while first or not all(found[f"input{i}.rx.timestamp"][1] == "nominal"
                           and found[f"input{i}.dig-rms-dbfs"][1] not in ("unknown", "failure") for i in range(4)):
        feed.send(n_chunks if first else 50, rate=5e6)
        n_sent += n_chunks if first else 50
        last, first = feed.start + (n_sent - WINDOW - 1) * CHUNK, False  # of the last chunk that is sure to leave the window
        for i in range(4):
            client.wait(f"input{i}.rx.timestamp", lambda s, v: int(v) >= last, "the last chunk")
        found = {name: (float(timestamp), status, value)
                 for timestamp, _, name, status, value in client.informs("sensor-value", "/^input[0-3]\\./")}
    return found


def test_input_sensors(daemon, rng):
    """Clip counts, power, timestamps and losses of a known input; then the effect of silence on them."""
    config = katcp_config(outputs=[{"gain": 3.0, "taps": 4, "buffers": 1024}], feng_ids=(0, 1),
                          time={"adc_sample_rate": 1000000}, send={"rate_factor": 0}, recv={"buffer": 64 << 20})
    rate, start, n_chunks, n_first = 1000000, 2**40 // CHUNK * CHUNK, 450, 300  # the first: 2.5 s of data
    n_packets = n_chunks * 16
    samples = np.empty((2, 2, n_packets * 512), np.int16)
    levels = [[100, 12], [400, 0]]  # of 511: -11.2, -29.6 and 0.9 dBFS
    for a in range(2):
        for p in range(2):
            samples[a, p] = levels[a][p]
    counts = rng.integers(0, 500, (2, 2, n_packets))
    present = np.ones((2, 2, n_packets), bool)
    present[1, 1, 16 * (n_first - 9) - 3] = False  # in the tenth last chunk of the first
    feed = Feed(config, samples, start, present=present, status=counts << 32 | (counts > 0) << 1)
    with harness.Receiver(destinations(config)) as receiver:
        process = daemon("fgpu", config).wait_ready()
        with control.Client(process) as client:
            check_before_data(client)
            found = read_inputs(client, feed, n_first)
            for i in range(4):
                a, p = divmod(i, 2)
                timestamp, status, value = found[f"input{i}.rx.timestamp"]
                assert status == "nominal" and timestamp == pytest.approx(SYNC + int(value) / rate, abs=1e-6)
                chunk = (int(value) - start) // CHUNK
                timestamp, status, value = found[f"input{i}.rx.unixtime"]
                assert status == "nominal" and timestamp == float(value) == pytest.approx(SYNC + (start + chunk * CHUNK) / rate, abs=1e-6)
                timestamp, status, value = found[f"input{i}.dig-clip-cnt"]
                expected = (counts * present)[a, p, :(chunk + 1) * 16].sum()
                assert (status, int(value)) == ("nominal", expected)
                assert timestamp == pytest.approx(SYNC + (start + (chunk + 1) * CHUNK) / rate, abs=1e-6)
                timestamp, status, value = found[f"input{i}.rx.missing-unixtime"]
                if i < 3:
                    assert (status, float(value)) == ("nominal", -1)
                else:
                    lost = start + (n_first - 10) * CHUNK
                    assert status == "error" and timestamp == float(value) == pytest.approx(SYNC + lost / rate, abs=1e-6)
                # The first second is one of which the beginning is not known to have been whole.
                timestamp, status, value = found[f"input{i}.dig-rms-dbfs"]
                if levels[a][p]:
                    dbfs = 20 * math.log10(levels[a][p] / 511) + 10 * math.log10(2)
                    assert float(value) == pytest.approx(dbfs, abs=1e-9)
                    assert status == {100: "nominal", 12: "nominal", 400: "error"}[levels[a][p]]
                else:
                    assert float(value) == -float(np.finfo(float).max) and status == "error"
                window = 2048 * round(rate / 2048)
                windows = (timestamp - SYNC) * rate / window
                assert windows == pytest.approx(round(windows), abs=1e-5) and start // window + 2 <= round(windows)
            # Silence: a second.
            for i in range(4):
                client.wait(f"input{i}.rx.timestamp", lambda s, v: s == "error", "an error")
                # Set a moment later, this sensor times out a moment later.
                client.wait(f"input{i}.rx.unixtime", lambda s, v: s == "error", "an error")
                client.wait(f"input{i}.rx.missing-unixtime", lambda s, v: s == "nominal", "nominal again")
            assert client.reading("rx.device-status")[1:] == ("warn", "degraded")
            process.terminate().wait_end()


def test_status_of_delays(daemon, rng):
    """/status.json has the delay and the phase of a quadratic model at one and the same time."""
    config = katcp_config(http={"listen": f"127.0.0.1:{harness.free_tcp_port()}"})
    start, model = 2**40, (3e-6, 1e-4, 0.0, 0.3, 41.0, 7e3)

    with running(daemon, config, scenario.noise(rng, 1, CHUNK * 60, 10), start) as (process, client, feed, receiver):
        text = "{},{},{}:{},{},{}".format(*model)
        client.request("delays", "wide0", f"{SYNC + (start - 7654321) / RATE:.9f}", text, text)
        delays = []
        while not delays:
            process.status()
            feed.go(10)
            delays = process.status()["delays"]
        assert len(delays) == 2
        for found in delays:
            since = (found["now_delay_s"] - model[0]) / model[1]
            assert 0 < since < 1 and found["start_time"] > 0
            expected = model[3] + (model[4] + 0.5 * model[5] * since) * since
            assert abs(0.5 * model[5] * since**2) > 0.1, "it could not be seen"
            assert math.remainder(found["now_phase_rad"] - expected, math.tau) == pytest.approx(0, abs=1e-3)
        process.terminate().wait_end()


def test_output_clip_counts(daemon, rng):
    """Counted as the model predicts, in the time of the data."""
    config = katcp_config(outputs=[{"gain": 3.0, "taps": 4}, {"gain": 2.0, "channels": 128, "taps": 4, "dither": "uniform",
                                                             "dither_seed": 12345}])
    samples = scenario.noise(rng, 1, CHUNK * 30, 10)
    with running(daemon, config, samples, 2**40) as (process, client, feed, receiver):
        feed.go()
        output = scenario.model_of(config["outputs"][0], config)
        last = (2**40 + (29 - WINDOW) * CHUNK - output.reach) // output.batch
        unix = SYNC + (last + 1) * output.batch / RATE
        client.wait("wide0.input0.feng-clip-cnt", lambda s, v: client.reading("wide0.input0.feng-clip-cnt")[0]
                    >= unix - 2e-6, "the last batch")
        for pol in range(2):
            timestamp, status, value = client.reading(f"wide0.input{pol}.feng-clip-cnt")
            n = round((timestamp - SYNC) * RATE / output.batch) - 2**40 // output.batch
            models = fmodel.voltages(2**40, samples[0], output, range(2**40 // output.batch, 2**40 // output.batch + n))
            peak = np.array([np.maximum(abs(m[..., pol].real), abs(m[..., pol].imag)) for m in models.values()])
            low, high = (np.count_nonzero(peak > 127 + margin) for margin in (1e-3, -1e-3))
            assert status == "nominal" and low <= int(value) <= high and low > 1000
        assert client.value("wide1.dither-seed") == "12345"
        test_fgpu_stream.finish(config, process, receiver)


def test_facts(daemon):
    """The facts about the streams that a site without a controller needs."""
    config = two_outputs()
    process = daemon("fgpu", config).wait_ready()
    expected = {"adc-bits": 10, "adc-sample-rate": RATE, "scale-factor-timestamp": RATE, "sync-time": SYNC,
                "feng-out-bits-per-sample": 8, "n-chans": 64, "center-freq": RATE / 4, "bandwidth": RATE / 2,
                "n-chans-per-substream": 32, "n-samples-between-spectra": 128, "decimation-factor": 1,
                "spectra-per-heap": 16, "pfb-group-delay": -(128 * 4 - 1) / 2, "ddc-group-delay": 0}
    narrow = {"center-freq": RATE * 0.2, "bandwidth": RATE / 8, "n-chans-per-substream": 64,
              "n-samples-between-spectra": 512, "decimation-factor": 4, "spectra-per-heap": 32,
              "pfb-group-delay": -(128 * 4 - 1) / 2 * 4 - 39 / 2, "ddc-group-delay": -39 / 2}
    with control.Client(process) as client:
        for stream, facts in ("wide0", expected), ("wide1", expected | narrow):
            for name, value in facts.items():
                _, status, text = client.reading(f"{stream}.{name}")
                assert (status, float(text)) == ("nominal", value), name
            assert ast.literal_eval(client.value(f"{stream}.input-labels")) == LABELS
            assert ast.literal_eval(client.value(f"{stream}.source-indices")) == [0, 1, 2, 3]
        types = {row[0]: row[3] for row in client.informs("sensor-list")}
        assert types["wide0.n-chans"] == "integer" and types["wide0.bandwidth"] == "float"
        assert types["input0.dig-clip-cnt"] == "integer" and types["input3.dig-rms-dbfs"] == "float"
        assert types["input1.rx.unixtime"] == types["input1.rx.missing-unixtime"] == "timestamp"
        assert types["wide1.input3.eq"] == types["wide1.input3.delay"] == "string"
        assert types["rx.device-status"] == types["device-status"] == "discrete"


# ---- Restarts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["term", "kill"])
def test_restart(how, daemon, work, rng, monkeypatch):
    """Gains and delays are as they were, also after the worst end; the configuration's are overruled."""
    state = work / "state"
    state.mkdir()
    (work / "gains").write_text("wide0 0 * 0.1 0.2\nwide1 1 * 0.3 0\n")
    (work / "delays").write_text(f"{SYNC} 0 1e-6 0 0 0\n")
    config = two_outputs()
    config["antennas"][0] |= {"gains": str(work / "gains"), "delays": str(work / "delays")}
    if how == "term":
        config["state"] = {"directory": str(state)}
    else:
        monkeypatch.setenv("STATE_DIRECTORY", str(state))
    vector = (rng.normal(0, 0.3, 64) + 1j * rng.normal(0, 0.3, 64)).astype(np.complex64)
    process = daemon("fgpu", config).wait_ready()
    with control.Client(process) as client:
        assert client.request("gain", "wide0", 0) == gains_text([np.complex64(0.1 + 0.2j)])
        client.request("gain", "wide0", "m000h", *map(str, vector.astype(complex)))
        client.request("gain", "wide1", 2, "0.75")
        client.request("gain", "wide1", 3, "0.5")
        client.request("gain-all", "wide1", "default")
        client.request("gain", "wide1", 2, "-1.25j")
        client.request("delays", "wide1", 1800000000, "0.1,1e-9:0.3,-0.1", "3e-7,0:0,0", "0,0:0,0", "0.7e-6,0:1,0.3")
        client.request("delays", "wide1", 1800000001.5, "0=1e-7,1e-9,1e-12:0.3,-0.1,1e-3")
        before = {i: client.request("gain", s, i) for s in ("wide0", "wide1") for i in range(4)}
    if how == "term":
        process.terminate().wait_end()
    else:  # what was set is on disk within a second
        texts = {}
        deadline = time.monotonic() + harness.TIMEOUT_S
        while len(texts) < 4 or "1800000001.5" not in texts["delays.wide1@m000"] or "-1.25" not in texts["gains.wide1@m001"]:
            assert time.monotonic() < deadline, texts
            time.sleep(0.02)
            texts = {path.name: path.read_text() for path in state.glob("*@*")}
        process.process.kill()
        process.wait_end(code=-9)
    names = sorted(path.name for path in state.glob("*@*"))
    assert names == ["delays.wide1@m000", "delays.wide1@m001", "gains.wide0@m000", "gains.wide1@m001"]
    gains = (state / "gains.wide1@m001").read_text().splitlines()
    assert gains[1:] == ["wide1 0 0-63 0 -1.25"], "a person reads one row"
    lines = (state / "delays.wide1@m000").read_text().splitlines()[1:]
    rows = [[float(x) for x in line.split()] for line in lines]
    assert rows[-1] == [1800000000, 1, 3e-7, 0, 0, 0, 0, 0]
    assert rows[-3:-1] == [[1800000000, 0, 0.1, 1e-9, 0.3, -0.1, 0, 0],
                           [1800000001.5, 0, 1e-7, 1e-9, 0.3, -0.1, 1e-12, 1e-3]]
    kept = {path.name: path.read_text() for path in state.glob("*@*")}

    config = with_new_ports(config)
    with daemon("fgpu", config) as process, control.Client(process) as client:
        assert {i: client.request("gain", s, i) for s in ("wide0", "wide1") for i in range(4)} == before
        assert client.request("gain", "wide0", 0) == gains_text([np.complex64(0.1 + 0.2j)])
        assert client.request("gain", "wide0", 1) == gains_text(vector)
        assert client.value("wide0.input1.eq") == "[" + ", ".join(gains_text(vector)) + "]"
        assert client.request("gain", "wide1", 1) == gains_text([np.float32(0.3)])
        assert client.request("gain", "wide1", 2) == ["0-1.25j"]
    assert {path.name: path.read_text() for path in state.glob("*@*")} == kept, "a restart changed what is kept"


def test_restart_takes_effect(daemon, work, rng):
    """The first batch after a restart has the gains and the delays of before."""
    samples = scenario.noise(rng, 1, CHUNK * 24, 10)
    config = katcp_config(state={"directory": str(work)})
    start = 2**40
    with daemon("fgpu", config) as process:
        model = Delay(2**40 + 5 * CHUNK, 33.5, 1e-4, 0.3, 1e-4)
        with control.Client(process) as client:
            client.request("gain-all", "wide0", "0.2j")
            client.request("delays", "wide0", at(model.start), delay_text(model), "0,0:0,0")
    config = with_new_ports(config)
    with harness.Receiver(destinations(config)) as receiver:
        process = daemon("fgpu", config).wait_ready()
        feed = Feed(config, samples, start, receiver)
        feed.go()
        streams = feed.finish(process)
    output = scenario.model_of(config["outputs"][0], config)
    chunks = range(start // CHUNK, start // CHUNK + 24)
    placed = fmodel.delayed_batches(output, [[model], []], fmodel.held(config, start, chunks, CHUNK * 24))
    got = streams[0, 0]
    assert [t // output.batch for t in got] == list(placed)
    for (timestamp, values), p in zip(got.items(), placed.values()):
        expected = fmodel.delayed_voltages(start, samples[0], output, p) * (0.2j / 0.4)
        scenario.compare_voltages(values, expected, output.limit, f"at {timestamp}")


@pytest.mark.parametrize("name, text, why", [
    ("gains.wide0@m000", "wide0 0 0-31 1 0\n", "only 32 of 64 channels have a gain"),
    ("gains.wide0@m000", "wide0 0 0-127 1 0\n", "channels must be"),
    ("gains.wide0@m000", "wide7 0 * 1 0\n", "the first field must be the name of an output"),
    ("gains.wide0@m000", "\x00\xff garbage", "no channel has a gain"),
    ("gains.wide0@m000", "garbage", "a line must have"),
    ("gains.wide0@m000", "", "it is empty"),
    ("gains.wide0@m000", "wide0 0 * 0 1e38\n", "the gain must have a magnitude of at most 1e9"),
    ("delays.wide0@m000", "# start (UNIX s)\n", "the file has no delay model"),
    ("delays.wide0@m000", "1 0 0 0 0 0\n", "the start must not be before time.sync_time"),
    ("delays.wide0@m000", "1800000000 0 0", "a line must have"),
    ("delays.wide0@m000", "1800000000 0 1.5 0 0 0\n", "the magnitude of a delay must be at most 1 s (recv.max_delay)"),
])
def test_state_that_does_not_fit(name, text, why, daemon, work):
    """Ignored with one sentence and a sensor in error, until the next start; the next change puts the file right."""
    (work / name).write_text(text)
    config = katcp_config(state={"directory": str(work)})
    with daemon("fgpu", config) as process:
        log = [line for line in process.log.read_text().splitlines() if "is ignored" in line]
        assert len(log) == 1 and name in log[0] and why in log[0], process.log.read_text()
        with control.Client(process) as client:
            assert client.request("gain", "wide0", 0) == gains_text([np.float32(0.4)])
            client.request("gain-all", "wide0", "2")
            client.request("delays", "wide0", 1800000000, "0,0:0,0", "0,0:0,0")
            assert client.reading("state-status")[1:] == ("error", "ignored")
    kept = (work / name).read_text()
    assert len(kept.splitlines()) > 1 and (not text or text not in kept)


def test_gains_of_many_turns(daemon, work):
    """Inputs of 6 x 65536 gains are set in more than one turn; the reply leaves once all are set, sensors included."""
    config = katcp_config([{"gain": 0.4, "taps": 2, "channels": 65536, "buffers": 4}], feng_ids=range(3), state={"directory": str(work)})
    config["recv"].update(chunks=5, window=1, chunk_samples=2 * 65536 * config["outputs"][0].get("spectra_per_heap", 16))
    with daemon("fgpu", config) as process:
        values = {"0.25-0.5j": np.complex64(0.25 - 0.5j), "default": np.float32(0.4), "2j": np.complex64(2j)}
        with control.Client(process) as client:
            for text, value in values.items():
                client.request("gain-all", "wide0", text)
                for i in reversed(range(6)):
                    assert client.request("gain", "wide0", i) == gains_text([value]), i
                    assert client.value(f"wide0.input{i}.eq") == f"[{gains_text([value])[0]}]", i
    assert sorted(path.name for path in work.glob("gains*")) == [f"gains.wide0@m00{a}" for a in range(3)]


def test_odd_name(daemon, work):
    """Saved settings do not depend on an antenna's name."""
    config = katcp_config(state={"directory": str(work)})
    config["antennas"][0]["name"] = "m0\nwide0 0 0-63 7 0\n../\"\\\\"
    for _ in range(2):
        with daemon("fgpu", config) as process, control.Client(process) as client:
            client.request("gain", "wide0", 0, "2")
        config = with_new_ports(config)
    assert "is ignored" not in process.log.read_text()
    assert "gains restored from" in process.log.read_text()


def test_no_such_directory(daemon, work):
    config = katcp_config(state={"directory": str(work / "none")})
    text = daemon("fgpu", config).wait_end(code=78).log.read_text()
    assert re.search(r"yaml:\d+:\d+: state.directory: files cannot be kept in .*none: No such file or directory", text), text
