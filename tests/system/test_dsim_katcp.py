"""dsim over KATCP: signals are replaced while it sends, exactly at the timestamp of its reply, against the numpy model;
sensors; every refusal."""
import re
import time

import numpy as np
import pytest

import control
import harness
import test_dsim
from test_dsim import TIMESTAMP, check_samples, comb, cw, make_config, receiver  # noqa: F401 (a fixture)

FS, PACKET, PERIOD = 48000, 264, 264 * 15


def katcp_config(**sections):
    return make_config(katcp={"listen": f"127.0.0.1:{harness.free_tcp_port()}"}, **sections)


def check_switch(receiver, i, changes):
    """changes: [(first timestamp, values of a period)] of input 'i', in order; every heap is wholly of one."""
    n_seen = [0] * len(changes)

    def received():
        return sorted(receiver.data(i), key=lambda pair: pair[0].immediate(TIMESTAMP))

    def timestamps():
        return [heap.immediate(TIMESTAMP) for heap, _ in received()]

    # The groups of an input arrive independently: the last heaps of one may come after those of another.
    harness.until(lambda: np.all(np.diff(timestamps()) == PACKET), "all heaps of an input")
    heaps = received()
    for timestamp, (_, samples) in zip(timestamps(), heaps):
        which = max(k for k, (first, _) in enumerate(changes) if first <= timestamp)
        values = changes[which][1]
        if samples is not None:
            check_samples(samples, values[(timestamp + np.arange(PACKET)) % len(values)], 10,
                          f"input {i} at {timestamp}, change {which}")
            n_seen[which] += 1
    assert min(n_seen) > 3, n_seen


@pytest.mark.parametrize("n_threads", [1, 3])
def test_signals(n_threads, receiver, daemon):  # noqa: F811
    """A signal for each input; one for all; a short period that no heap is a multiple of; one that ends within heaps."""
    config = katcp_config(send={"threads": n_threads})
    changes = [[(0, values)] for values in test_dsim.model(PERIOD, FS)]
    with daemon("dsim", config) as process, control.Client(process) as client:
        assert client.value("signals-orig") == test_dsim.SPECIFICATION
        assert client.value("period", int) == client.value("max-period", int) == PERIOD
        receiver.wait(20)
        last = 0
        for specification, period, values in [
                ("nodither(cw(0.5, 480));", None, [cw(0.5, 480, PERIOD, FS)] * 4),
                ("a = cw(0.25, 2000); nodither(a); nodither(a - 0.125); nodither(a * 2); nodither(delay(a, 5));", 198, None),
                ("nodither(comb(0.9, 4000));", 36, [comb(0.9, 4000, 36, FS)] * 4),
                ("nodither(0.25);", 1, [np.full(1, 0.25)] * 4),
        ]:
            reply = client.request("signals", specification, *([] if period is None else [period]))
            timestamp, = map(int, reply)
            assert timestamp % PACKET == 0 and timestamp > last
            assert client.value("steady-state-timestamp", int) == timestamp
            assert client.value("signals-orig") == specification
            assert client.value("period", int) == (period or PERIOD)
            if values is None:
                a = cw(0.25, 2000, period, FS)
                values = [a, a - 0.125, a * 2, np.roll(a, 5)]
            for i in range(4):
                changes[i].append((timestamp, values[i]))
            last = timestamp
            receiver.wait_since(timestamp, 20)
    for i in range(4):
        check_switch(receiver, i, changes[i])


@pytest.mark.parametrize("specification", [test_dsim.SPECIFICATION, "track(cw(0.5, 300), 1, 1e-6);"], ids=["period", "live"])
def test_loss(specification, receiver, daemon):  # noqa: F811
    """A quarter of one polarisation's heaps and all of the other's are left out, nothing else; then all come again."""
    config = katcp_config(signals={"specification": specification}, http={"listen": f"127.0.0.1:{harness.free_tcp_port()}"})
    received = lambda i: {heap.immediate(TIMESTAMP) for heap, _ in receiver.data(i)}
    with daemon("dsim", config) as process, control.Client(process) as client:
        receiver.wait(20)
        client.request("loss", "bv", 0.25)
        client.request("loss", "bh", 1)
        process.wait_metric(lambda m: m.get("dsim_lost_heaps_total") >= 520, "520 heaps lost")
        client.request("loss", "b", 0)
        receiver.wait(len(receiver.data(3)) + 40)
        lost = process.metrics().get("dsim_lost_heaps_total")
    missing = lambda i: sorted(received(0) - received(i))

    # The groups of an input arrive independently: the last heap of one may come before earlier heaps of another.
    def is_all():
        return (len({max(received(i)) for i in range(4)}) == 1 and received(0) == received(1)
                and len(missing(2)) + len(missing(3)) == lost)

    harness.until(is_all, "what was sent before the end, without the lost heaps")
    missing = [missing(i) for i in (2, 3)]
    assert np.all(np.diff(missing[1]) == PACKET) and len(missing[1]) >= 380, "a cut cable"
    assert 0.15 < len(missing[0]) / len(missing[1]) < 0.35 and np.diff(missing[0]).max() > PACKET


def test_canonical_signals(receiver, daemon):  # noqa: F811
    """The text of the signals sensor gives the same samples again, also for noise and variables."""
    config = katcp_config()
    specification = ("s = wgn(0.1); t = s + multicw(3, 0.1, -0.02, 700, 1100) * (0.5 - s * 2) - (1e-3 - delay(s, -3));"
                     "t; nodither(s * (t * 0.25)); comb(0.2, 1000) - 0.1 * wgn(0.2, 7); nodither(t);")
    with daemon("dsim", config) as process, control.Client(process) as client:
        first, = map(int, client.request("signals", specification))
        canonical = client.value("signals")
        assert "s" not in re.sub("[a-z]{2,}", "", canonical), "there are no variables left"
        assert canonical.count(", 7)") == 1
        receiver.wait_since(first, 60)
        second, = map(int, client.request("signals", canonical))
        assert client.value("signals") == canonical
        receiver.wait_since(second, 60)
    for i in range(4):
        by_place = {}
        n = 0
        for heap, samples in receiver.data(i):
            timestamp = heap.immediate(TIMESTAMP)
            if timestamp < first or samples is None:
                continue
            known = by_place.setdefault(timestamp % PERIOD, samples)
            assert np.array_equal(known, samples), f"input {i} at {timestamp}"
            n += timestamp >= second
        assert n > 20 and len(by_place) == PERIOD // PACKET
        assert np.std(np.concatenate(list(by_place.values()))) > 1


def test_sensors(daemon):
    config = katcp_config(digitiser={"dither_seed": 77, "sample_bits": 12})
    process = daemon("dsim", config).wait_ready()
    with control.Client(process) as client:
        types = {row[0]: (row[2], row[3]) for row in client.informs("sensor-list")}
        for name, units, kind in [("signals-orig", "", "string"), ("signals", "", "string"), ("period", "", "integer"),
                                  ("max-period", "", "integer"), ("dither-seed", "", "string"),
                                  ("adc-sample-rate", "Hz", "float"), ("sample-bits", "", "integer"),
                                  ("sync-time", "s", "float"), ("steady-state-timestamp", "", "integer")]:
            assert types[name] == (units, kind), name
            assert client.reading(name)[1] == "nominal", name
        assert client.value("dither-seed") == "77" and client.value("sample-bits") == "12"
        assert client.value("adc-sample-rate", float) == FS and client.value("sync-time", float) == 1700000000
        before = time.time()
        now = float(client.request("time")[0])
        assert before - 0.001 <= now <= time.time() + 0.001


TRANSCRIPT = [
    ("?loss a", "!loss (fail|invalid) .*"),
    ("?loss c 0.5", r"!loss fail there_is_no_antenna_or_input_'c'.*"),
    ("?loss ax 0.5", r"!loss fail there_is_no_antenna_or_input_'ax'.*"),
    ("?loss a 1.5", r"!loss fail the_fraction_must_be_a_number_from_0_to_1,_not_'1.5'"),
    ("?loss a nan", r"!loss fail the_fraction_must.*"),
    ("?signals", "!signals (fail|invalid) .*"),
    (r"?signals \@", r"!signals fail .*there_is_no_output.*"),
    ("?signals cw(1)", r"!signals fail line_1,_column_.*"),
    ("?signals wgn(0.1)", r"!signals fail line_1,_column_.*"),
    ("?signals 0;0;", r"!signals fail the_request_must_have_4_signals,_or_one_for_all_polarisations,_not_2"),
    ("?signals 0;0;0;0;0;", r"!signals fail the_request_must_have_4_signals.*"),
    ("?signals 0; 7", r"!signals fail the_period_must_divide_max-period,_3960,_not_7"),
    ("?signals 0; 7920", r"!signals fail the_period_must_divide.*"),
    ("?signals 0; 0", r"!signals fail the_period_must_divide.*"),
    ("?signals 0; -3960", r"!signals fail the_period_must_divide.*"),
    ("?signals 0; all", r"!signals fail .*"),
    ("?signals 0; 3960 1", "!signals (fail|invalid) .*"),
    ("?signals track(cw(0.5,1000),0,1e-6);", r"!signals fail a_request_cannot_set_track\(\),_or_gnss\(\)_without_repeat\(\):_only_the_configuration_can"),
    ("?signals gnss(L1CA,7,45,0.1,1e4,0,0,0);", r"!signals fail a_request_cannot_set_track\(\),_or_gnss\(\)_without_repeat\(\):_only_the_configuration_can"),
    ("?signals repeat(gnss(L1CA,7,45,0.1,1e4,0,0,0));", r"!signals fail gnss\(L1CA,_...\)_needs_an_adc_sample_rate.*"),
    ("?signals pulsar(0.1,0.01,0.001,0,1e8);", r"!signals fail the_period_must_be_a_power_of_two.*_not_3960"),
    ("?signals pulsar(0.1,0.01,0.001,0,1e8); 264", r"!signals fail the_period_must_be_a_power_of_two.*_not_264"),
    ("?time now", "!time (fail|invalid) .*"),
    ("?signals 0; 3960", r"!signals ok \d+"),
]


def test_refusals(daemon):
    process = daemon("dsim", katcp_config()).wait_ready()
    with control.Client(process) as client, control.Lines(process) as lines:
        for line, expected in TRANSCRIPT:
            assert client.value("signals-orig") == test_dsim.SPECIFICATION
            got = lines.ask(line).replace("\\_", "_")
            assert re.fullmatch(expected, got), f"{line}: {got}"
        assert client.value("signals-orig") == "0;"


def test_what_cannot_be_replaced(daemon):
    """Drifting signals are computed while they are sent."""
    process = daemon("dsim", katcp_config(signals={"specification": test_dsim.TRACKS})).wait_ready()
    with control.Client(process) as client:
        with pytest.raises(control.FailReply, match="only repeating signals"):
            client.request("signals", "0;")
        assert client.value("signals").count("track(") == 3


def test_several_clients(receiver, daemon):  # noqa: F811
    """Requests that come together are carried out one after the other."""
    with daemon("dsim", katcp_config()) as process:
        lines = [control.Lines(process) for _ in range(5)]
        for i, line in enumerate(lines):
            line.file.write(f"?signals nodither(0.{i + 1});\n")
            line.file.flush()
        timestamps = []
        for line in lines:
            while not (got := line.file.readline()).startswith("!signals"):
                assert got
            timestamps.append(int(re.fullmatch(r"!signals ok (\d+)\n", got)[1]))
            line.close()
        assert len(set(timestamps)) == 5
        with control.Client(process) as client:
            assert client.value("steady-state-timestamp", int) == max(timestamps)
            winner = timestamps.index(max(timestamps))
            assert client.value("signals") == f"nodither(0.{winner + 1});"
        receiver.wait_since(max(timestamps), 20)
    samples = [s for heap, s in receiver.data(0) if s is not None and heap.immediate(TIMESTAMP) >= max(timestamps)]
    assert samples and all((s == round((winner + 1) / 10 * 511)).all() for s in samples)
