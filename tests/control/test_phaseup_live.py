"""Tests phaseup beside a running array: dsim, F-engines, X-engines, a recorder, and a small stand-in of the
controller."""
import ast
import asyncio
import copy
import subprocess
import threading
import time

import aiokatcp
import numpy as np
import pytest
import yaml

import control
import demo_array
import harness
from harness import LOOPBACK
from test_phaseup import phaseup  # noqa: F401

N_ANT = 4
DELAYS = (0, 7, -12, 4)  # samples of a microsecond; a spectrum has 2048
LABELS = [f"m{ant:03}{letter}" for ant in range(N_ANT) for letter in "vh"]
INTEGRATION_S = 0.5
SPECTRUM_S = 2 * demo_array.CHANNELS / demo_array.RATE_HZ
SKY, RECEIVER = 0.05, 0.03  # rms


def signals():
    """Common noise with one delay for each antenna, and noise of each receiver."""
    lines = [f"sky{pol} = wgn({SKY}, {100 + pol})" for pol in range(2)]
    lines += [f"delay(sky{pol}, {delay}) + wgn({RECEIVER}, {1 + 2 * ant + pol})"
              for ant, delay in enumerate(DELAYS) for pol in range(2)]
    return "; ".join(lines) + ";"


class Controller(aiokatcp.DeviceServer):
    """Passes requests of an input to its F-engine, and keeps reports."""

    VERSION, BUILD_STATE = "stand-in-1.0", "stand-in-1.0"

    def __init__(self, port, engine_ports):
        super().__init__(LOOPBACK, port)
        self.engine_ports, self.engines, self.reports, self.calibrations = engine_ports, [], [], {}

    async def start(self):
        self.engines = [await aiokatcp.Client.connect(LOOPBACK, port) for port in self.engine_ports]
        await super().start()

    async def on_stop(self):
        for engine in self.engines:
            engine.close()

    async def request_gain(self, ctx, stream: str, input: str, *values: str) -> tuple:
        """Gains of an input."""
        reply, _ = await self.engines[LABELS.index(input) // 4].request("gain", stream, input, *values)
        return tuple(reply)

    async def request_delays(self, ctx, stream: str, start: str, *models: str) -> None:
        """Delay models, INPUT=MODEL."""
        for at, engine in enumerate(self.engines):
            own = [model for model in models if LABELS.index(model.partition("=")[0]) // 4 == at]
            if own:
                await engine.request("delays", stream, start, *own)

    async def request_sensor_value(self, ctx, name: str) -> int:
        """One sensor: the largest steady-state-timestamp, or the delay of an input."""
        if name == "steady-state-timestamp":
            values = [int(await engine.sensor_value(name)) for engine in self.engines]
            value = str(max(values))
        else:
            stream, label, what = name.split(".")
            at = LABELS.index(label)
            value = await self.engines[at // 4].sensor_value(f"{stream}.input{at % 4}.{what}", str)
        ctx.inform(f"{time.time():.6f}", 1, name, "nominal", value)
        return 1

    async def request_beam_calibration(self, ctx, stream: str, input: str, *values: str) -> None:
        """Gains of an input in all beams."""
        self.calibrations[stream, input] = values

    async def request_calibration_report(self, ctx, stream: str, unix_s: float, coherence: float,
                                         reference: str) -> None:
        """A report."""
        self.reports.append((stream, unix_s, coherence, reference))


class Running:
    """A Controller on an event loop in a thread."""

    def __init__(self, engine_ports):
        self.port = harness.free_tcp_port()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

        async def make():
            server = Controller(self.port, engine_ports)
            await server.start()
            return server
        self.server = self.run(make())

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(harness.TIMEOUT_S)

    def close(self):
        self.run(self.server.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


def port_of(array, name):
    return int(array.configs[name]["katcp"]["listen"].split(":")[1])


def controller_config(array, port):
    """control.yaml."""
    return {"array": "demo", "katcp": {"listen": f"{LOOPBACK}:{port}"},
            "time": {"sync_time": array.configs["fgpu0"]["time"]["sync_time"], "adc_sample_rate": demo_array.RATE_HZ},
            "antennas": [{"name": f"m{ant:03}", "feng_id": ant} for ant in range(N_ANT)],
            "streams": [{"name": "wide", "kind": "voltages", "channels": demo_array.CHANNELS, "substreams": 2,
                         "samples_between_spectra": 2 * demo_array.CHANNELS},
                        {"name": "vis", "kind": "visibilities", "source": "wide", "integration_s": INTEGRATION_S,
                         "destinations": array.configs["visrec"]["recv"]["sources"]}]}


@pytest.fixture
def array(daemon, work):
    made = demo_array.Array(daemon, work, {"signals": {"specification": signals()}}, katcp=True,
                            recording=work / "a.uvh5")
    for antenna in made.configs["fgpu1"]["antennas"]:
        antenna.pop("delays", None)
    made.configs["visrec"]["output"]["max_dumps"] = 4
    with harness.Receiver(made.configs["visrec"]["recv"]["sources"], may_lose=True) as receiver:  # before descriptors
        made.start("visrec", *demo_array.ENGINES, "dsim")
        made.receiver = receiver
        yield made


def coherence_of_heaps(heaps, pairs, integration):
    """Returns the coherence of the sum of both polarisations, and the value expected from a point source with the
    receivers' noise.

    heaps: heaps of whole dumps.  pairs: labels of each product, from the X-engines' own list of products.  Both values
    are for sums over 16 channels.
    """
    coherences, expected = [], []
    for letter in "vh":
        chosen = [at for at, (one, other) in enumerate(pairs) if one != other and one[-1] == other[-1] == letter]
        autos = {pair[0]: at for at, pair in enumerate(pairs) if pair[0] == pair[1]}
        total = np.zeros((demo_array.CHANNELS, len(pairs)), complex)
        for heap in heaps:
            raw = np.array(heap.items["xeng_raw"], float)
            first = heap.items["frequency"]
            total[first:first + len(raw)] += raw[..., 0] + 1j * raw[..., 1]
        rho = np.array([total[:, at] / np.sqrt(total[:, autos[pairs[at][0]]].real * total[:, autos[pairs[at][1]]].real)
                        for at in chosen])[:, 8:-8]  # without the edges of the band
        grouped = rho.reshape(len(chosen), -1, 16).sum(2)
        coherences.append(abs(grouped.real.sum()) / np.abs(grouped).sum())
        rho_true = SKY**2 / (SKY**2 + RECEIVER**2)
        # The mean of |V| of a strong source is larger than its V by half the variance across V, 1 - rho^2 per spectrum.
        n = len(heaps) / 2 * integration / SPECTRUM_S * 16
        expected.append(1 - (1 - rho_true**2) / (4 * n * rho_true**2))
    return min(coherences), min(expected)


def is_flagged(heap):
    """A busy machine loses heaps; the X-engine then flags visibilities."""
    return (np.array(heap.items["xeng_raw"])[..., 0] == -(1 << 31)).any()


def measure(array, not_before, n_dumps=2):
    """(coherence, expected coherence) of the first whole dumps without flags that begin at 'not_before' or later."""
    def whole(heaps):
        found = {}
        for heap in heaps:
            if heap.kind == "data" and heap.items["timestamp"] >= not_before and not is_flagged(heap):
                found.setdefault(heap.items["timestamp"], []).append(heap)
        return [part for _, part in sorted(found.items()) if len(part) == 2][:n_dumps]
    array.receiver.wait(lambda heaps: len(whole(heaps)) == n_dumps, f"{n_dumps} dumps")
    with control.Client(array["xbgpu0"]) as client:
        pairs = ast.literal_eval(client.value("vis.bls-ordering"))
    return coherence_of_heaps([heap for part in whole(array.receiver.data()) for heap in part], pairs, INTEGRATION_S)


def test_live(array, work, rng, phaseup):  # noqa: F811
    """The array has random gains and known delays.  phaseup's gains, and then its delays, bring the sum to full
    coherence."""
    controller = Running([port_of(array, "fgpu0"), port_of(array, "fgpu1")])
    config = work / "control.yaml"
    config.write_text(yaml.safe_dump(controller_config(array, controller.port)))
    live = (config, "vis", "--interface", LOOPBACK)
    gains = {label: 10 ** rng.uniform(-0.1, 0.1) * np.exp(2j * np.pi * rng.random()) for label in LABELS}
    try:
        with control.Client(array["fgpu0"]) as first, control.Client(array["fgpu1"]) as second:
            engines = [first] * 4 + [second] * 4
            check_recording(array, work, config, controller.server.calibrations, phaseup)
            controller.server.reports.clear()
            for engine, (label, gain) in zip(engines, gains.items()):
                engine.request("gain", "wide", label, f"{gain.real}{gain.imag:+}j")
            steady = max(int(engine.value("steady-state-timestamp")) for engine in (first, second))
            before, _ = measure(array, steady)
            assert before < 0.5, "the random gains are coherent by chance: another CBF_SEED"

            said = phaseup(*live, "--dumps", "3", "--verify").out
            steady = max(int(engine.value("steady-state-timestamp")) for engine in (first, second))
            after, expected = measure(array, steady)
            assert after > 0.99 and after == pytest.approx(expected, abs=0.003), said
            (stream, unix_s, coherence, reference), = controller.server.reports
            assert (stream, reference) == ("wide", "m000") and abs(unix_s - time.time()) < 120
            assert coherence > 0.99
            check_table(said, gains)
            for engine, (label, gain) in zip(engines, gains.items()):  # the magnitude stays
                found = np.array([complex(text) for text in engine.request("gain", "wide", label)])
                np.testing.assert_allclose(np.abs(found), abs(gain), rtol=1e-5)

            # A delay and a phase that are wrong, on top of the good gains.
            first.request("delays", "wide", f"{time.time():.6f}", "m001v=21e-6,0:0.7,0", "m001h=0,0:-2,0")
            second.request("delays", "wide", f"{time.time():.6f}", "m002v=-9e-6,0:0,0")
            steady = max(int(engine.value("steady-state-timestamp")) for engine in (first, second))
            assert measure(array, steady, 1)[0] < 0.9
            said = phaseup(*live, "--dumps", "3", "--as-delays", "--verify").out
            assert "measured after the change: coherence of the sum " in said
            _, delay_s, rate, phase_rad, _ = ast.literal_eval(first.value("wide.input2.delay"))
            assert abs(delay_s) < 0.02e-6 and rate == 0 and abs(phase_rad) < 0.02, said
            assert controller.server.reports[-1][2] > 0.99, said
    finally:
        controller.close()


def check_recording(array, work, config, calibrations, phaseup):  # noqa: F811
    """The recording from before all changes shows the delays of dsim.  phaseup makes files and beams' gains from it."""
    array["visrec"].wait_end()
    check_table(phaseup("--file", work / "a.uvh5", "--dry-run").out, dict.fromkeys(LABELS, 1))
    stored = (config, "--file", work / "a.uvh5")
    phaseup(*stored, "--beams")
    hz = demo_array.RATE_HZ / 2 / demo_array.CHANNELS * np.arange(demo_array.CHANNELS)
    for label in LABELS:
        turn = 2 * np.pi * hz * (DELAYS[int(label[1:4])] - DELAYS[0]) / demo_array.RATE_HZ
        found = np.array([complex(text) for text in calibrations["wide", label]])
        np.testing.assert_allclose(found, np.exp(1j * turn), atol=0.05)
    phaseup(*stored, "--files", work, "--gain", "0.5")
    phaseup(*stored, "--files", work, "--as-delays")
    for ant in range(N_ANT):
        rows = np.loadtxt(work / f"m{ant:03}.gains", usecols=(1, 2, 3, 4))
        assert np.array_equal(rows[:, :2], [(pol, chan) for pol in range(2) for chan in range(demo_array.CHANNELS)])
        expected = np.concatenate([[complex(text) for text in calibrations["wide", label]]
                                   for label in LABELS[2 * ant:2 * ant + 2]]) / 2
        np.testing.assert_allclose(rows[:, 2] + 1j * rows[:, 3], expected, atol=1e-6)
        delays = np.loadtxt(work / f"m{ant:03}.delays")
        np.testing.assert_allclose(delays[:, 2], -1e-6 * (DELAYS[ant] - DELAYS[0]), atol=30e-9)
    # The F-engine accepts the files.
    checked = copy.deepcopy(array.configs["fgpu0"])
    checked["antennas"][1] |= {"gains": str(work / "m001.gains"), "delays": str(work / "m001.delays")}
    path = work / "checked.yaml"
    path.write_text(yaml.safe_dump(checked, sort_keys=False))
    done = subprocess.run([harness.BUILD / "fgpu", "--check-config", path], capture_output=True, text=True, timeout=60,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def check_table(said, gains):
    """The table's delays and phases are those of dsim and of the gains."""
    rows = [row.split() for row in said.splitlines() if row.startswith("m0")]
    assert len(rows) == 2 * N_ANT, said
    for name, pol, delay, _, _, phase, *_ in rows:
        ant, letter = int(name[1:]), "vh"[int(pol)]
        true_s = (DELAYS[ant] - DELAYS[0]) / demo_array.RATE_HZ
        assert float(delay) == pytest.approx(1e9 * true_s, abs=30), said
        # The band's centre is at a quarter of the sample rate.
        turn = -2 * np.pi * demo_array.RATE_HZ / 4 * true_s
        true = turn + np.angle(gains[name + letter]) - np.angle(gains["m000" + letter])
        assert abs(np.angle(np.exp(1j * (np.radians(float(phase)) - true)))) < np.radians(2), said
