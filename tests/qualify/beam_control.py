"""Control of beams: requests that hold for the first heap, the duration of requests, and control of a live array."""
import time

import numpy as np
from bengine import FIRST_BATCH, Beam, Engine, config  # first: it says where the next ones are
import chain
from control import Client, Lines
from fengine import harness, scenario
from report import Row
from test_beams import random_voltages

SECONDS = 30


def starts(plan, work):
    """Between two parts of the data, sends a request for each of three beams, then ?capture-start for all.
    ?capture-start has the steady-state timestamp, as the reference's controller does it."""
    settings = config([Beam(0, np.ones(4))] * 4, 4, 64)
    settings["beams"] = [beam | {"send_enabled": False} for beam in settings["beams"]]
    sent = scenario.feng_heaps(settings, FIRST_BATCH, random_voltages(np.random.default_rng(15), settings, 40, 20))
    with Engine(work, "starts", settings) as engine:
        with engine.client() as client:
            engine.write(sent[:len(sent) // 2])
            engine.wait_taken(client)
            client.request("beam-quant-gains", "beam0", 0.0)
            client.request("beam-weights", "beam1", *[0.0] * 4)
            client.request("beam-delays", "beam2", *[f"0:{np.pi}"] * 4)
            steady = int(client.value("steady-state-timestamp"))
            for i in range(4):
                client.request("capture-start", f"beam{i}", steady)
            engine.write(sent[len(sent) // 2:])
        heaps = engine.beams()
    assert {beam[0].items["timestamp"] for beam in heaps} == {steady}
    gain, weights, turned, still = (beam[0].items["bf_raw"].astype(int) for beam in heaps)
    sums = np.abs(turned + still).max()
    return [Row("", "?beam-quant-gains 0 before ?capture-start: values of the first heap that are not 0", "0",
                f"{np.count_nonzero(gain)}", not gain.any()),
            Row("", "?beam-weights 0 before ?capture-start: values of the first heap that are not 0", "0",
                f"{np.count_nonzero(weights)}", not weights.any()),
            Row("", "?beam-delays with a phase of pi before ?capture-start: largest value, in LSB, of the sum of "
                "the first heap and the first heap of a beam without delays", "<= 2", f"{sums}",
                sums <= 2 and turned.any())]


def pairs(rng, n_ants):
    """Delays and phases of a beam."""
    return [f"{d!r}:{p!r}" for d, p in (rng.uniform(-1, 1, (n_ants, 2)) * [509e-9, np.pi]).tolist()]


def times(plan, work):
    """Requests for 80 antennas, to the last reply: delays of all beams, and gains of all inputs and channels."""
    n_ants, channels = (16, 256) if plan.quick else (80, 4096)
    settings = config([Beam(i % 2, np.ones(n_ants)) for i in range(8)], n_ants, 64, recv={
        "channels": channels, "samples_between_spectra": 2 * channels})
    rng, took = np.random.default_rng(16), []
    delays = [f"?beam-delays beam{i} " + " ".join(pairs(rng, n_ants)) for i in range(8)]
    gains = [f"?beam-calibration {i} " + " ".join(f"{re:.9g}{im:+.9g}j" for re, im in rng.normal(size=(channels, 2)))
             for i in range(2 * n_ants)]
    with Engine(work, "times", settings) as engine:
        with Lines(engine.process) as client:
            for requests in (delays, gains):
                began = time.monotonic()
                assert all(" ok" in client.ask(request) for request in requests)
                took.append(time.monotonic() - began)
        engine.beams()
    return [Row("0076", f"?beam-delays for 8 beams of one polarisation and {n_ants} antennas: seconds", "< 5",
                f"{took[0]:.3f}", took[0] < 5),
            Row("0200", f"?beam-calibration for {2 * n_ants} inputs and {channels} channels: seconds",
                "once a second: < 1", f"{took[1]:.2f}", took[1] < 1)]


def live(plan, work):
    """dsim, two fgpu and two xbgpu on the loopback interface, with all sensors subscribed."""
    layout, started, took = chain.Layout(work), [], []
    beams = [{"name": f"beam{i}", "pol": i, "destination": harness.groups()} for i in range(2)]
    for name in chain.NAMES[1:5]:
        # Buffers for as long as a busy machine keeps a thread waiting, and a rate that makes up for it.
        own = {"recv": {"max_delay_diff": 4096}}
        if name.startswith("x"):
            own = {"beams": beams, "recv": {"batches_per_chunk": 16}, "send": {"rate_factor": 4}}
        layout.overrides[name] = {"katcp": {"listen": f"127.0.0.1:{harness.free_tcp_port()}"}} | own

    def daemon(program, settings, name):
        started.append(harness.Daemon(program, settings, work, name))
        return started[-1]

    array = chain.Chain(daemon, layout)
    try:
        with harness.Receiver(",".join(beam["destination"] for beam in beams)) as receiver:
            array.start(*chain.NAMES[1:])
            receiver.wait(lambda heaps: any(h.kind == "data" for h in heaps), "a beam")
            control_for(SECONDS, [Client(array[name]) for name in chain.NAMES[1:5]], took)
            for name in reversed(chain.NAMES[1:]):
                array[name].terminate().wait_end()
            receiver.wait_stops(len(beams) * chain.N_SUBSTREAMS)
    finally:
        for process in started:
            process.kill()
    streams = {}
    for heap in receiver.data():
        if heap.items["beam_ants"] == chain.N_ANTS:
            streams.setdefault((heap.endpoint, heap.items["frequency"]), []).append(heap.items["timestamp"])
    assert len(streams) == len(beams) * chain.N_SUBSTREAMS
    spans = [at[-1] - at[0] for at in streams.values()]
    span_s = min(spans) / chain.RATE
    missing = max(span // chain.BATCH + 1 - len(at) for span, at in zip(spans, streams.values()))
    return [Row("", f"{SECONDS} s of control, all sensors subscribed: longest request in s, time from the first to "
                "the last heap of a beam in s, missing heaps of a beam", "< 1, >= 20, <= 2",
                f"{max(took):.3f}, {span_s:.1f}, {missing}", max(took) < 1 and span_s >= 20 and missing <= 2)]


def control_for(seconds, clients, took):
    """Sets delays of two X-engines' beams every 3.4 s.  Every 6 s it sets models of two F-engines, 3 s ahead, that
    continue the models before.  Notes the duration of each request."""
    rng, began, delays = np.random.default_rng(17), time.monotonic(), np.full((2, 2), 40e-6)

    def ask(client, *request):
        sent = time.monotonic()
        client.request(*request)
        took.append(time.monotonic() - sent)

    for client in clients:
        client.request("sensor-sampling", ",".join(inform[0] for inform in client.informs("sensor-list")), "auto")
    times_s = [(t, 0) for t in np.arange(0, seconds, 3.4)] + [(t, 1) for t in np.arange(0, seconds, 6)]
    for due, is_feng in sorted(times_s):
        time.sleep(max(0, began + due - time.monotonic()))
        if is_feng:
            for client, delay in zip(clients[2:], delays):
                models = (rng.uniform(-1, 1, (2, 3)) * [2.56e-9, np.pi, 49.22]).tolist()
                ask(client, "delays", "wide", time.time() + 3,
                    *(f"{d!r},{rate!r}:{phase!r},{turn!r}" for d, (rate, phase, turn) in zip(delay.tolist(), models)))
                delay += 6 * np.array(models)[:, 0]
        else:
            for client in clients[:2]:
                for i in range(2):
                    ask(client, "beam-delays", f"beam{i}", *pairs(rng, chain.N_ANTS))
    for client in clients:
        client.close()
