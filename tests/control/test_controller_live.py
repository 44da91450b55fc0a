"""Tests the controller with the real correlator of tests/system/chain.py.  All values of its dumps are known."""
import asyncio
import signal
import time

import aiokatcp
import pytest

import chain
import controlled
import harness
from controlled import wait_state
from harness import LOOPBACK, until

ENGINES = ["fgpu0", "fgpu1", "xbgpu0", "xbgpu1"]
FAR = "0.000123,1e-9:1,0.5"  # a model with a load time in the far future: it must never be in effect


def configs():
    """(overrides of the chain's processes, control.yaml)."""
    listen = {name: f"{LOOPBACK}:{harness.free_tcp_port()}" for name in ENGINES}
    overrides = {name: {"katcp": {"listen": address}} for name, address in listen.items()}
    engines = [{"name": name, "program": name[:-1], "host": "here", "katcp": listen[name]}
               | ({"antennas": [f"m00{name[-1]}"]} if name.startswith("f") else
                  {"stream": "wide", "first_channel": int(name[-1]) * chain.SUBSTREAM, "channels": chain.SUBSTREAM})
               for name in ENGINES]
    return overrides, {
        "array": "chain", "time": {"sync_time": chain.SYNC_TIME, "adc_sample_rate": chain.RATE},
        "katcp": {"listen": f"{LOOPBACK}:{harness.free_tcp_port()}"},
        "timeouts": {"delays": controlled.TIMEOUT_S, "gains": controlled.TIMEOUT_S},
        "antennas": [{"name": f"m00{i}", "feng_id": i} for i in range(chain.N_ANTS)],
        "streams": [{"name": "wide", "kind": "voltages", "channels": chain.CHANNELS, "substreams": chain.N_SUBSTREAMS},
                    {"name": "vis", "kind": "visibilities", "source": "wide"}],
        "engines": engines}


@pytest.mark.skipif(harness.SANITIZED, reason="sanitized engines are too slow for real time")
def test_kill_changes_no_data(running, processes):
    """The controller sets gains and delays, is killed, and starts again.  Every dump has the right bits throughout.
    Then the controller undoes a gain that somebody has set in an engine meanwhile."""
    overrides, config = configs()
    _, dumps = running(overrides)
    controller = processes.controller(config)
    client = processes.client(controller)
    client.request("gain-all", "wide", "0.05")
    client.request("delays", "wide", f"{time.time() - 5:.6f}", *["0,0:0,0"] * 4)
    client.request("delays", "wide", f"{time.time() + 1000:.6f}", *[FAR] * 4)
    client.request("capture-start", "vis")
    dumps.wait_dumps(1, chain.now_samples())
    controller.process.send_signal(signal.SIGKILL)
    controller.process.wait()
    start_s = time.monotonic()
    controller = processes.controller(config)
    client = processes.client(controller)
    for name in ENGINES:
        wait_state(client, name, "present")
    print(f"back with all engines within {time.monotonic() - start_s:.2f} s")
    dumps.wait_dumps(2, chain.now_samples())

    controller.process.send_signal(signal.SIGKILL)
    controller.process.wait()
    engine = processes.engine(config, "fgpu1")
    engine.request("gain", "wide", "m001v", "3")
    client = processes.client(processes.controller(config))
    wait_state(client, "fgpu1", "present")
    assert complex(engine.request("gain", "wide", "m001v")[0]) == pytest.approx(0.05)
    # Unmodified models are in the engine, and the one of the future is not in effect.
    assert eval(client.value("wide.m001v.delay"))[1:] == (0, 0, 0, 0)


async def watch(config, then):
    """Mirrors all sensors with aiokatcp's SensorWatcher, and calls then(watcher)."""
    host, port = config["katcp"]["listen"].split(":")
    async with await aiokatcp.Client.connect(host, int(port)) as client:
        watcher = aiokatcp.SensorWatcher(client)
        client.add_sensor_watcher(watcher)
        await asyncio.wait_for(watcher.synced.wait(), harness.TIMEOUT_S)
        await then(watcher)


@pytest.mark.skipif(harness.SANITIZED, reason="sanitized engines are too slow for real time")
def test_sensors(running, processes):
    """aiokatcp's SensorWatcher sees every sensor of every engine once, under its name in the array, with the engine's
    value.  While the engine is away, the sensor is unreachable.  When the engine is back, the sensor has its value
    again."""
    overrides, config = configs()
    correlator, _ = running(overrides)
    client = processes.client(processes.controller(config))
    client.wait("array-status", lambda _, value: value == "ok", "ok")
    engines = {name: processes.engine(config, name) for name in ENGINES}
    own = {name: {row[0]: row[1:] for row in engine.informs("sensor-list")} for name, engine in engines.items()}
    places = {
        ("fgpu0", "wide.input1.eq"): "wide.m000h.eq", ("fgpu1", "input0.rx.unixtime"): "wide.m001v.rx.unixtime",
        ("fgpu1", "wide.dither-seed"): "wide.m001v.dither-seed", ("xbgpu1", "rx.timestamp"): "vis.1.rx.timestamp",
        ("xbgpu0", "vis.chan-range"): "vis.0.chan-range", ("xbgpu0", "vis.xeng-clip-cnt"): "vis.xeng-clip-cnt",
        ("xbgpu1", "vis.rx.synchronised"): "vis.rx.synchronised", ("xbgpu1", "vis.n-accs"): "vis.n-accs",
        ("xbgpu1", "a0.rx.state"): "xbgpu1.a0.rx.state", ("fgpu0", "time.state"): "fgpu0.time.state",
        ("xbgpu0", "vis.wrong-dump-cnt"): "vis.0.wrong-dump-cnt", ("fgpu0", "wide.adc-bits"): "wide.adc-bits"}

    async def check(watcher):
        status = aiokatcp.Sensor.Status

        async def reaches(what, name):
            await asyncio.wait_for(reached(watcher, what, name), harness.TIMEOUT_S)

        for engine in ENGINES:
            await reaches(lambda s: s.status == status.NOMINAL, f"{engine}.steady-state-timestamp")
        for (engine, name), here in places.items():
            await reaches(lambda s: s.status not in (status.UNKNOWN, status.UNREACHABLE), here)
            assert watcher.sensors[here].type_name == own[engine][name][2], here
        # No kind of sensor is left out.
        last = {name.split(".")[-1] for name in watcher.sensors}
        assert {name.split(".")[-1] for sensors in own.values() for name in sensors} <= last
        assert watcher.sensors["wide.m000v.eq"].value == engines["fgpu0"].value("wide.input0.eq").encode()
        assert watcher.sensors["vis.0.chan-range"].value == b"(0,127)"
        assert watcher.sensors["vis.1.chan-range"].value == b"(128,255)"

        correlator.kill("xbgpu1")
        await reaches(lambda s: s.status == status.UNREACHABLE, "vis.1.rx.timestamp")
        await reaches(lambda s: s.value == b"xbgpu1", "missing-engines")
        await reaches(lambda s: not s.value and s.status == status.ERROR, "vis.rx.synchronised")
        correlator.start("xbgpu1")
        await reaches(lambda s: s.status == status.NOMINAL, "vis.1.rx.timestamp")
        await reaches(lambda s: s.value == b"", "missing-engines")

    asyncio.run(watch(config, check))
    # The X-engines report the antenna whose F-engine ends; the controller names it.
    correlator.kill("fgpu0")
    until(lambda: client.value("missing-antennas") == "m000", "missing antenna m000")
    assert client.value("vis.status") == client.value("array-status") == "degraded"


async def reached(watcher, condition, name):
    """Waits until condition(sensor)."""
    while not (name in watcher.sensors and condition(watcher.sensors[name])):
        await asyncio.sleep(0.02)


def test_delays_in_effect(running, processes):
    """A delay model reaches real F-engines, and the sensors of the array show it in effect from its load time on."""
    overrides, config = configs()
    running(overrides)
    client = processes.client(processes.controller(config))
    start = f"{time.time() + 0.5:.3f}"
    client.request("delays", "wide", start, "1e-6,0:0.5,0", "2e-6,0:0,0", "3e-6,0:0,0", "4e-6,1e-9:0,0.25")
    wanted = {"m000v": (1e-6, 0, 0.5, 0), "m000h": (2e-6, 0, 0, 0), "m001v": (3e-6, 0, 0, 0),
              "m001h": (4e-6, 1e-9, 0, 0.25)}
    for label, numbers in wanted.items():
        def is_there(_, value, numbers=numbers):
            return eval(value)[1:] == pytest.approx(numbers)
        _, _, value = client.wait(f"wide.{label}.delay", is_there, numbers)
        assert eval(value)[0] == pytest.approx((float(start) - chain.SYNC_TIME) * chain.RATE, abs=2)
