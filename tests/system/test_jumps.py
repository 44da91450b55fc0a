"""A jump of the data's time 2000 s ahead and back leaves delays, gains, shifts and gates unchanged, bit for bit.  Each
program runs once with such a jump and once without, on the same data, with the same requests."""
import ast
import re

import numpy as np

import control
import scenario
from harness import WIRE, endpoints, merge
from test_delay import RATE, SYNC
from test_fgpu_katcp import CHUNK, at
from test_xbgpu_katcp import Fed

START = 2**40
FAR = 2000 * RATE // CHUNK * CHUNK
LATER = START + 1000 * RATE  # before that time nothing that starts there may hold


def starts(path):
    """By polarisation: timestamps, nanoseconds here, from which on the models of a file hold."""
    rows = [line.split() for line in path.read_text().splitlines() if line[0] != "#"]
    return [[int(row[0].replace(".", "")) - SYNC * RATE for row in rows if int(row[1]) == pol] for pol in range(2)]


def run_fgpu(daemon, work, config, parts, far, name):
    """Feeds parts[0], the heaps that are far, and parts[1].  Returns the output, and from when on it has the new gains."""
    config = merge(config, {"state": {"directory": str(work / f"{name}.state")}})
    (work / f"{name}.state").mkdir()
    fed = Fed(daemon, config, work, name, "fgpu")
    client = control.Client(fed.process)

    def wait_model(start):
        return client.wait("wide0.input1.delay", lambda _, text: ast.literal_eval(text)[0] == start, f"model of {start}")

    def wait_sent(timestamp):
        """Output before this timestamp does not show the next request."""
        for name in ("wide0.input1.feng-clip-cnt", "wide1.input1.feng-clip-cnt"):
            client.wait(name, lambda *_: client.reading(name)[0] > SYNC + timestamp / RATE, f"sent until {timestamp}")

    for stream in ("wide0", "wide1"):
        client.request("delays", stream, at(START), "1.25e-7,1e-7:0.3,0", "-2.5e-8,0:0,1e3")
        client.request("delays", stream, at(START + 20 * CHUNK + 77), "-1e-7,0:0,0", "2e-8,0:1,0")
        client.request("delays", stream, at(LATER), "5e-7,0:2,0", "5e-7,0:2,0")
    fed.write(parts[0])
    wait_sent(START + 8 * CHUNK)
    if far:
        fed.write(far)
        wait_model(LATER)
    client.request("gain", "wide0", 1, "0.2+0.1j")
    client.request("delays", "wide0", at(START + 30 * CHUNK + 5), "3e-8,0:0,0", "4e-8,0:0,0")
    client.request("delays", "wide0", at(LATER), "5e-7,0:2,0", "5e-7,0:2,0")
    steady = client.value("steady-state-timestamp", int)
    assert (steady > START + FAR) == bool(far)
    assert (client.reading("wide0.input1.eq")[0] > SYNC + (START + FAR) / RATE) == bool(far)
    fed.write(parts[1])
    wait_model(START + 30 * CHUNK + 5)
    if far:
        client.wait("steady-state-timestamp", lambda _, text: int(text) < START + 20 * CHUNK, "of the time now")
        assert client.reading("wide0.input1.eq")[0] < SYNC + (START + 20 * CHUNK) / RATE
        steady = client.value("steady-state-timestamp", int)
    model = ast.literal_eval(client.value("wide1.input1.delay"))
    assert model[0] == START + 20 * CHUNK + 77 and model[1] == 2e-8
    client.close()
    found = fed.end()
    assert starts(work / f"{name}.state" / "delays.wide0@m000") == 2 * [
        [START, START + 20 * CHUNK + 77, START + 30 * CHUNK + 5, LATER]]
    n_said = len(re.findall("steady-state-timestamp decreases from", fed.process.log.read_text()))
    assert n_said == bool(far)
    return scenario.fgpu_streams(config, found), steady


def test_fgpu(daemon, work, rng):
    """Wide and narrow band, with dither; gains and models are set while the time is far, which nothing remembers."""
    config = scenario.fgpu_config(
        outputs=[{"gain": 0.4, "taps": 4, "dither": "uniform", "dither_seed": 5},
                 {"kind": "narrowband", "channels": 64, "spectra_per_heap": 32, "taps": 4, "gain": 0.3,
                  "centre_frequency": RATE * 0.2, "decimation": 4, "ddc_taps": 40, "substreams": 1}],
        recv={"packet_samples": 512, "chunk_samples": CHUNK, "max_delay_diff": 1024},
        time={"sync_time": SYNC, "adc_sample_rate": RATE})
    samples = scenario.noise(rng, 1, 45 * CHUNK, 10)
    sent = scenario.digitiser_heaps(config, samples, START)
    half = len(sent) // 3
    far = scenario.digitiser_heaps(config, samples[:, :, :8 * CHUNK], START + FAR)
    plain, steady = run_fgpu(daemon, work, config, (sent[:half], sent[half:]), [], "plain")
    jumped, begins = run_fgpu(daemon, work, config, (sent[:half], sent[half:]), far, "jumped")
    assert START + 15 * CHUNK <= begins < START + 17 * CHUNK
    for (o, a), batches in jumped.items():
        wanted = plain[o, a]
        there = [t for t in batches if t < START + FAR // 2]
        assert len(there) < len(batches), "the time was never far"
        assert set(there) <= set(wanted)
        # Around the jump batches are lost, and elsewhere none.
        lost = sorted(set(wanted) - set(there))
        assert all(START + 12 * CHUNK <= t < START + 18 * CHUNK for t in lost), [(t - START) / CHUNK for t in lost]
        n = 0
        for t in there:
            if t < START + 8 * CHUNK or t >= max(steady, START + 15 * CHUNK):
                assert np.array_equal(batches[t], wanted[t]), f"output {o}, batch at {(t - START) / CHUNK} chunks"
                n += t >= START + 20 * CHUNK
        assert n > 10


XBGPU_RATE = 4_000_000
N_BATCHES = 300


def run_xbgpu(daemon, work, config, parts, far, name):
    """As run_fgpu(): the dumps of each output, and from when on they have all that was asked for."""
    fed = Fed(daemon, config, work, name)
    client = control.Client(fed.process)
    step = scenario.batch_samples(config)
    later = 1000 * XBGPU_RATE // step * step

    def wait_taken(timestamp):  # not by the value from before a jump
        client.wait("rx.timestamp", lambda _, text: timestamp <= int(text) < timestamp + later, f"chunk {timestamp}")

    client.request("gate", "cal", later, "on_until=40")
    fed.write(parts[0])
    wait_taken(68 * step)
    if far:
        fed.write(far)
        wait_taken(2 * later)
    # The one at once, the others from a batch on, which the request says.
    replies = [int(client.request("gate", "pulse", 0, "take=0,3")[0]),
               int(client.request("input-shift", "0", 3, "3", 5)[0])]
    steady = client.value("steady-state-timestamp", int)
    assert steady == max(replies) and (steady >= 2 * later) == bool(far)
    fed.write(parts[1])
    if far:
        client.wait("steady-state-timestamp", lambda _, text: int(text) < N_BATCHES * step, "of the time now")
        steady = client.value("steady-state-timestamp", int)
        assert 100 * step <= steady < 110 * step
    wait_taken(168 * step)
    # An answer tells of the time now.
    holds = int(client.request("gate", "pulse", 0, "bins=9")[0])
    assert 168 * step <= holds <= 200 * step
    assert int(client.request("gate", "cal", 250 * step, "on_until=700")[0]) == 250 * step
    fed.write(parts[2])
    wait_taken(268 * step)
    client.close()
    found = fed.end()
    n_said = len(re.findall("steady-state-timestamp decreases from", fed.process.log.read_text()))
    assert n_said == bool(far)
    return [[h.items for h in found[endpoints(output["destination"])[0]] if h.kind == "data"]
            for output in config["outputs"]], steady, holds


def test_xbgpu(daemon, work, rng):
    """A gate's change that waits holds while its time is there, and not behind; gate and shifts that are set while the
    time is far hold on."""
    pulse = {"kind": "phase", "name": "pulse", "frequency": "9321.7", "phase": "0.1234", "bins": 8, "take": [1, 2, 5]}
    cal = {"kind": "switch", "name": "cal", "period": 5001, "on_until": 2300}
    config = scenario.xbgpu_config(
        outputs=[{"integration_batches": 2, "gate": "pulse"}, {"integration_batches": 2, "gate": "cal"},
                 {"integration_batches": 2}],
        recv={"antennas": 3, "batches_per_chunk": 4, "chunks": 12, "max_shift": 16}, gates=[pulse, cal],
        time={"adc_sample_rate": XBGPU_RATE})
    step = scenario.batch_samples(config)
    voltages = scenario.random_voltages(rng, config, N_BATCHES)
    sent = scenario.feng_heaps(config, 0, voltages)
    parts = [sent[3 * a:3 * b] for a, b in ((0, 100), (100, 200), (200, N_BATCHES))]
    far = scenario.feng_heaps(config, 2000 * XBGPU_RATE // step // 4 * 4, voltages[:60])
    plain, steady, holds = run_xbgpu(daemon, work, config, parts, [], "plain")
    jumped, _, later = run_xbgpu(daemon, work, config, parts, far, "jumped")
    for o, (wanted, found) in enumerate(zip(plain, jumped)):
        wanted = {items["timestamp"]: items for items in wanted}
        there = [items for items in found if items["timestamp"] < WIRE // 2 and items["timestamp"] < N_BATCHES * step]
        assert len(there) < len(found), "the time was never far"
        lost = set(wanted) - {items["timestamp"] for items in there}
        assert all(68 * step <= t < 112 * step for t in lost), [t / step for t in lost]
        n = 0
        for items in there:
            t = items["timestamp"]
            if 68 * step <= t < max(112 * step, steady) or min(holds, later) - 2 * step <= t < max(holds, later):
                continue
            for key in wanted[t]:
                assert np.array_equal(items[key], wanted[t][key]), f"output {o}: {key} at batch {t / step}"
            n += t >= 112 * step
        assert n > 70
