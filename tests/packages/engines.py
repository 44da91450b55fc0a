"""An fgpu behind a dsim and an xbgpu behind an fsim, as services of the machine, and checks of their output.

fgpu: the signal repeats after PERIOD batches and nothing is dithered.  So a heap has the same bits as the heap PERIOD
batches before, and as no other.  xbgpu: every voltage is 3 + 4i, so each visibility of a complete dump is 25 times the
number of its spectra.
"""
import socket

import harness
import numpy as np
from harness import groups

RATE = 1_000_000  # samples/s
CHANNELS = 1024
SPECTRA = 16
BATCH = SPECTRA * 2 * CHANNELS  # 33 ms
PERIOD = 16  # batches
PACKET = 4096
N_ANTS = 4
SUBSTREAM = 64
DUMP_BATCHES = 15  # 0.49 s
TIME = {"sync_time": 1_700_000_000, "adc_sample_rate": RATE}


class FEngine:
    """fgpu@NAME of one antenna."""

    program = "fgpu"

    def __init__(self, machine, name):
        self.machine, self.name, self.unit = machine, name, f"fgpu@{name}.service"
        self.pols = [groups(), groups()]
        self.destinations = groups(2)
        self.listen, self.katcp = (f"127.0.0.1:{harness.free_tcp_port()}" for _ in range(2))
        self.config = {
            "time": TIME,
            "device": {"kind": "cpu", "threads": 1},
            "recv": {"interface": "lo", "packet_samples": PACKET, "chunk_samples": BATCH, "max_delay_diff": 0,
                     "buffer": 1 << 20},
            "antennas": [{"name": "m000", "feng_id": 0, "pol0": self.pols[0], "pol1": self.pols[1]}],
            "outputs": [{"kind": "wideband", "name": "wide", "channels": CHANNELS, "spectra_per_heap": SPECTRA,
                         "taps": 4, "gain": 0.05, "dither": "none", "destinations": self.destinations}],
            "send": {"interface": "lo", "ttl": 0, "packet_payload": 4096, "array_size": 1},
            "http": {"listen": self.listen},
            "katcp": {"listen": self.katcp},
        }
        self.simulator = "dsim", {
            "time": TIME,
            "digitiser": {"packet_samples": PACKET, "period": PERIOD * BATCH, "dither_seed": 1},
            "signals": {"specification": "wgn(0.05, 1); wgn(0.05, 2);"},
            "antennas": [{"name": "m000", "digitiser_id": 0, "pol0": self.pols[0], "pol1": self.pols[1]}],
            "send": {"interface": "lo", "ttl": 0},
        }
        self.known = {}  # (substream, batch of the period): voltages

    def learn(self, receiver):
        """Waits until every batch of the period has been there twice, alike."""
        def heaps():
            return [h for h in receiver.data() if "feng_raw" in h.items]
        receiver.wait(lambda _: len(heaps()) >= 2 * 2 * (PERIOD + 2), "two periods of heaps")
        for heap in heaps():
            self.known.setdefault(self.key(heap), heap.items["feng_raw"])
        assert len(self.known) == 2 * PERIOD
        distinct = {voltages.tobytes() for voltages in self.known.values()}
        assert len(distinct) == 2 * PERIOD and all(v.any() for v in self.known.values())

    @staticmethod
    def key(heap):
        assert heap.items["timestamp"] % BATCH == 0
        return heap.items["frequency"], heap.items["timestamp"] // BATCH % PERIOD

    def is_valid(self, heap):
        """A wrong heap is an error, and not just the wait for a right one."""
        assert np.array_equal(heap.items["feng_raw"], self.known[self.key(heap)]), "a heap is wrong"
        return True


class XEngine:
    """xbgpu@NAME of a slice of the band."""

    program = "xbgpu"

    def __init__(self, machine, name):
        self.machine, self.name, self.unit = machine, name, f"xbgpu@{name}.service"
        self.sources = groups()
        self.destinations = groups()
        self.listen, self.katcp = (f"127.0.0.1:{harness.free_tcp_port()}" for _ in range(2))
        stream = {"antennas": N_ANTS, "channels": CHANNELS, "channels_per_substream": SUBSTREAM,
                  "spectra_per_heap": SPECTRA, "samples_between_spectra": 2 * CHANNELS}
        self.config = {
            "time": TIME,
            "device": {"kind": "cpu", "threads": 1},
            "recv": {"interface": "lo", "sources": self.sources, "channel_offset": 0, "batches_per_chunk": 1,
                     "buffer": 1 << 20} | stream,
            "outputs": [{"kind": "correlate", "name": "vis", "integration_batches": DUMP_BATCHES, "send_enabled": True,
                         "destination": self.destinations}],
            "send": {"interface": "lo", "ttl": 0},
            "http": {"listen": self.listen},
            "katcp": {"listen": self.katcp},
        }
        self.simulator = "fsim", {
            "time": TIME,
            "stream": stream | {"destinations": self.sources},
            "signal": {"kind": "constant", "real": [3], "imag": [4]},
            "send": {"interface": "lo", "ttl": 0},
        }

    def learn(self, receiver):
        receiver.wait(lambda heaps: any(h.kind == "data" and self.is_valid(h) for h in heaps), "a complete dump")

    @staticmethod
    def is_valid(heap):
        """A dump that is flagged in part is one to wait for; any other value is an error."""
        found = heap.items["xeng_raw"]
        complete = (found[..., 0] == 25 * SPECTRA * DUMP_BATCHES) & (found[..., 1] == 0)
        flagged = (found[..., 0] == -2**31) & (found[..., 1] == 1)
        assert (complete | flagged).all(), "a dump is wrong"
        return bool(complete.all())


def katcp(engine, line):
    """The answer to a KATCP request: the reply's arguments, and the arguments of the informs before it."""
    host, port = engine.katcp.split(":")
    with socket.create_connection((host, int(port)), timeout=harness.TIMEOUT_S) as connection:
        connection.sendall(f"?{line}\n".encode())
        name, informs = line.split()[0], []
        for text in connection.makefile():
            kind, *arguments = text.split()
            if kind == f"!{name}":
                assert arguments[0] == "ok", text
                return arguments[1:], informs
            if kind == f"#{name}":
                informs.append(arguments)
    raise AssertionError(f"no answer to {line}")


class Running:
    """An engine that runs as a service behind its simulator, and a receiver of its output."""

    def __init__(self, engine, simulate=True):
        self.engine, self.machine = engine, engine.machine
        self.machine.configure(engine.name, engine.config)
        self.receiver = harness.Receiver(engine.destinations)
        if simulate:
            program, config = engine.simulator
            self.machine.configure(f"sim-{engine.name}", config)
            self.machine.run(f"systemd-run -q --unit=sim-{engine.name} -p Type=notify {program} "
                             f"/etc/cbf/sim-{engine.name}.yaml")
        self.machine.run(f"systemctl start {engine.unit}")

    def wait_valid(self, after_s):
        """Waits for the first valid heap that came after 'after_s' (time.monotonic).  Returns when that was."""
        def arrivals(heaps):
            return [h.arrival_s for h in heaps if h.kind == "data" and h.arrival_s > after_s and self.engine.is_valid(h)]
        self.receiver.wait(arrivals, "a valid heap")
        return arrivals(self.receiver.data())[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.receiver.stop()
