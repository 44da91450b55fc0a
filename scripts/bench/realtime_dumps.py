"""Receives the dumps of X-engines with spead2, and passes each dump to a function, the judge.  The modes x and chain of
scripts/bench/realtime use this module."""
import threading

import numpy as np
import spead2
import spead2.recv

XENG_RAW, FREQUENCY = 0x1800, 0x4103


class Dumps:
    """Receives each stream on a separate thread.  judge(first channel, bytes) returns "exact", "wrong" or "flagged".
    Only one thread at a time calls judge()."""

    def __init__(self, endpoints, judge):
        self.judge, self.lock = judge, threading.Lock()
        self.n = {"exact": 0, "wrong": 0, "flagged": 0}
        self.streams = [self._open(*endpoint.split(":")) for endpoint in endpoints]
        self.threads = [threading.Thread(target=self._run, args=[stream], daemon=True) for stream in self.streams]
        for thread in self.threads:
            thread.start()

    @staticmethod
    def _open(address, port):
        config = spead2.recv.StreamConfig(max_heaps=4, stop_on_stop_item=False)
        stream = spead2.recv.Stream(spead2.ThreadPool(), config, spead2.recv.RingStreamConfig(heaps=4))
        stream.add_udp_reader(address, int(port), buffer_size=64 << 20, interface_address="127.0.0.1")
        return stream

    def _run(self, stream):
        for heap in stream:
            items = {item.id: item for item in heap.get_items()}
            if XENG_RAW in items:
                channel = items[FREQUENCY].immediate_value
                with self.lock:
                    self.n[self.judge(channel, np.frombuffer(items[XENG_RAW], np.uint8))] += 1

    def counts(self):
        with self.lock:
            counts = dict(self.n)
        return counts | {"incomplete": sum(s.stats["incomplete_heaps_evicted"] for s in self.streams)}

    def stop(self):
        for stream, thread in zip(self.streams, self.threads):
            stream.stop()
            thread.join()
