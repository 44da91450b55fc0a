"""Writes seeds for the fuzz targets to DIRECTORY/NAME: real packets, as spead2 makes them, and captures of every kind.

    .venv/bin/python tests/fuzz/make_seeds.py build-fuzz/corpus

tests/fuzz/corpus was made from these: a target run on them for some minutes, then "-merge=1" into an empty directory.
"""
import struct
import sys
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / folder) for folder in ("models", "system")]
import harness  # noqa: E402
from harness import frame, immediate, make_heap, packets, payload_item  # noqa: E402

GROUP = ("239.1.2.3", 7148)


def digitiser(n_bytes, t, pol):
    return harness.digitiser_heap(t, pol, np.arange(n_bytes, dtype=np.uint8) + t % 251, 1 << 32)


def feng(n_bytes, t, feng_id):
    return harness.feng_heap(t, feng_id, 8, np.arange(n_bytes, dtype=np.int8) - t % 100)


def visibilities(t):
    return make_heap([immediate(harness.TIMESTAMP, t), immediate(harness.FREQUENCY, 4),
                      payload_item(harness.XENG_RAW, np.zeros((4, 12, 2), "<i4")),
                      payload_item(harness.XENG_WEIGHTS, np.ones(3, "<u4"))])


def descriptors():
    import spead2
    heap = make_heap([])
    heap.add_descriptor(spead2.Descriptor(0x4300, "feng_raw", "voltages", (4, 16, 2, 2), dtype=np.dtype(np.int8)))
    return heap


def spead_seeds():
    heaps = [digitiser(80, 4096, 1), feng(64, 2048, 3), visibilities(8192), descriptors(), harness.stop_heap()]
    whole = [p for heap in heaps for p in packets(heap, 77, 200)]
    return [bytes([wanted]) + struct.pack(">HH", at_hand, 0) + p for p in whole for wanted, at_hand in [(8, 65535), (3, 72)]]


def shape_seeds():
    """A header, and another packet: one of the same stream, and values that differ in a bit each."""
    out = []
    for heap in (digitiser(80, 4096, 1), feng(64, 2048, 3)):
        packet = packets(heap, 77, 2000)[0]
        header, payload = packet[:72], packet[72:]
        start = bytes([6, 72]) + struct.pack(">H", len(payload))
        empty = header[:16] + header[16:18] + (8).to_bytes(6, "big") + header[24:34] + bytes(6) + header[40:]
        length_0 = bytes(23) + bytes([8])
        stop = packets(harness.stop_heap(), 78, 2000)[0]
        out += [bytes([6, 72, 0, 0]) + empty + length_0, bytes([6, 72, 0, 0]) + empty + empty + stop[72:],
                bytes([6, 72, 0, 1]) + header[:72] + stop[:56], start + header + header, start + header + bytes(72), start + header + b"\0" * 15 + b"\1" * 5]
    return out


def receiver_seeds():
    """The first byte is the shape (fuzz_receiver.c), the second the size of a batch, the third where time starts."""
    out = []
    for choice, n_bytes, heap, n_sources in [(7, 640, digitiser, 2), (5, 72, digitiser, 2), (4, 72, feng, 2),
                                             (0x2C, 72, feng, 4), (0x0E, 640, feng, 2)]:
        for max_packet in (72 + 48, 2000):
            text = bytes([choice, 3, 96])
            for t in range(9):
                for source in range(n_sources):
                    for p in packets(heap(n_bytes, t, source), t, max_packet):
                        text += b"\7" + struct.pack(">H", len(p)) + p
            out.append(text[:4000])
    # The target's own packets: streams in order, so that packets land where they are expected.
    for choice in (5, 7, 4, 0x0C, 0x2C, 0x0E, 0x1D):
        n_sources = 2 if choice & 1 or not choice & 0x20 else 4
        for which, rest in [(0x80, [b""]), (0xC0, [b"\0\3", b"\4\xff"])]:
            text = bytes([choice, 3, 96])
            for t in range(25):
                for source in range(n_sources):
                    for i, part in enumerate(rest):
                        text += bytes([source & choice, which | source, source == 0 and i == 0]) + part
            out.append(text)
    # A jump is believed in mid-batch, before a packet of the old time that landed where it was expected.
    stream = [x for t in range(5) for x in [(0, 0x80, t > 0), (1, 0x81, 0)]]
    jump = [(8, 0x80, 1), (1, 0x81, 1), (8, 0x80, 1), (1, 0x81, 1), (8, 0x80, 1), (0, 0x80, 1)]
    out.append(bytes([0x1D, 10, 96]) + bytes(x for command in stream + jump for x in command))
    return out


def flood_seeds():
    """Shape, source, more, seed and time (fuzz_flood.c), then commands: fault and flags, packets, amount, detail."""
    faults = [b"\0\xff\0\0", b"\1\x60\x20\0", b"\2\x50\x10\1", b"\2\x70\0\6", b"\3\x30\x40\0", b"\3\x80\x80\1", b"\5\0\5\2\3\x20\x80\1", b"\4\x40\x20\1",
              b"\x14\x40\x80\x12", b"\4\x10\xff\x08", b"\5\x20\5\0", b"\5\x20\xfb\1", b"\5\x20\xfe\2", b"\6\x40\0\0",
              b"\6\x20\x0c\1", b"\7\x20\x40\1", b"\x08\xff\0\4", b"\x13\x50\x20\0", b"\x41\x50\x08\0", b"\xc0\x50\0\0"]
    shapes = [(choice, source, more) for choice in (1, 7, 4, 0x2C, 0x0E, 0x5D, 0x9E) for source, more in
              [(0x3F, 0), (0x7F, 0), (0xCF, 1), (0xFF, 6)]]
    plain = [bytes(shape) + b"\0\1\0" + faults[0] for shape in shapes]
    return plain + [bytes(shape) + b"\0\2\x60" + b"".join(faults[i % len(faults):] + faults[:i % len(faults)])
                    for i, shape in enumerate(shapes)]


def assemble_seeds():
    rng = np.random.default_rng(1)
    out = [struct.pack(">HBH", int(rng.integers(65536)), 5, 1000) + rng.bytes(400) for _ in range(20)]
    for shape in (0x0130, 0x0171, 0x0556):  # streams in order, whole heaps
        out.append(struct.pack(">HBH", shape, 5, 1000) + bytes(x for _ in range(60) for x in (2, 0, 1, 0, 13)))
    return out


def pcap_file(frames, link=1, magic="<I", nanoseconds=False, cut=None):
    order = magic[0]
    out = struct.pack(order + "IHHiIII", 0xA1B23C4D if nanoseconds else 0xA1B2C3D4, 2, 4, 0, 0, 65535, link)
    for data in frames:
        out += struct.pack(order + "IIII", 1, 2, len(data[:cut]), len(data)) + data[:cut]
    return out


def pcap_seeds():
    ethernet = [frame(where, payload) for where, payload in
                [(GROUP, b"x" * 60), (("239.1.2.5", 7148), b""), (("239.9.9.9", 7148), b"other"), (GROUP, bytes(range(200)))]]
    vlan = [f[:12] + b"\x81\0\0\x05" + f[12:] for f in ethernet]
    files = [pcap_file(ethernet), pcap_file(ethernet, magic=">I"), pcap_file(ethernet, nanoseconds=True),
             pcap_file(vlan), pcap_file(ethernet, cut=70), pcap_file([f[14:] for f in ethernet], link=101),
             pcap_file([b"\0" * 14 + f[12:] for f in ethernet], link=113),
             pcap_file([b"\x08\0" + b"\0" * 18 + f[14:] for f in ethernet], link=276),
             pcap_file([b"\x02\0\0\0" + f[14:] for f in ethernet], link=0), pcap_file(ethernet)[:-30]]
    return [bytes(sizes) + f for f in files for sizes in [(1, 2, 255)]] + [b"\0\0\0" + files[0], b"\x01\0\0" + files[0]]


def katcp_lines():
    return [rb"?help", rb"?watchdog[5]", rb"?sensor-list /^[a-c]|x$/", rb"?sensor-value a", rb"?log-level debug",
            rb"?sensor-sampling a,b.c,h event", rb"?sensor-sampling a differential-rate 1 0 inf", rb"?set 1 2.5 1e3 \@",
            rb"?sensor-sampling b.c period 0.01", rb"?sensor-sampling-clear", rb"?client-list", rb"?version-list",
            rb"?request-timeout-hint set", rb"!x[2147483647] ok a\_b\\\0\n\r\e\t", rb"#log error 1 a b", rb"?halt", rb"?restart",
            rb"?sensor-list /^input\\d+\\.(rx|dig-.*s)[.a-z]/", rb"?sensor-value /(^a|t$|^$)*(e|\\w+?|[^-.]*)/",
            rb"?sensor-sampling time.esterror,wide.input0.feng-clip-cnt,device-status period 0.001", b"\x16\x03\x01",
            rb"POST / HTTP/1.1"]


def katcp_client_seeds():
    texts = [line + b"\n" for line in katcp_lines()]
    texts.append(b"".join(texts)[:250])
    return [bytes([len(text)]) + text for text in texts] + [b"".join(bytes([3]) + texts[5][i:i + 3] for i in range(0, 33, 3))]


def katcp_lines_seeds():
    """A seed of two bytes, then text (fuzz_katcp_lines.c)."""
    texts = [line + b"\n" for line in katcp_lines()]
    return [b"\0\1" + text for text in texts] + [b"\0\2" + b"".join(texts), b"\1\0" + bytes(range(128, 170)) + b"\n"]


def config_seeds():
    """The files of config/ without comments, after the number of the program (fuzz_config.c)."""
    programs = ["fgpu", "xbgpu", "fsim", "visrec", "dsim", "beamrec"]
    seeds = [b"\4time: {sync_time: 1, adc_sample_rate: 8192}\ndigitiser: {packet_samples: 8}\n"
             b"recordings: [{file: a.raw, kind: int8}]\nsend: {interface: lo}\n"
             b"antennas: [{name: m0, digitiser_id: 0, pol0: 239.1.1.1:1, pol1: 239.1.1.2:1}]\n",
             b"\4time: {sync_time: 1, adc_sample_rate: 16e6}\nsignals:\n  specification: 'wgn(0.1) + track("
             b"gnss(L1CA, 7, 45, 0.1, 4e6, 12.5, -1500, 0.5, 3) - gnss(E1C, 11, 45, 0.1, 4e6, 0, 0, 0), 1.5, 1e-9);'\n"
             b"  code_file: e1.txt\nsend: {interface: lo}\n"
             b"antennas: [{name: m0, digitiser_id: 0, pol0: 239.1.1.1:1, pol1: 239.1.1.2:1}]\n"]
    for path in sorted(Path("config").glob("**/*.yaml")):
        program = path.stem.rstrip("01")
        if program in programs:
            lines = [line for line in path.read_bytes().splitlines(True) if not line.strip().startswith(b"#")]
            seeds.append(bytes([programs.index(program)]) + b"".join(lines))
    return seeds


def file_seeds():
    """Gains, delays, numbers, a delay, and names, in the kinds of fuzz_files.c."""
    return [b"\0wide 0 * 0.5 0\nwide 0 30-31 0 0 # c\nother 1 17 0.3 -0.2\n",
            b"\1 1760000000 0 1.25e-6 2.1e-9 0 0\n1760000060.5 1 1.37e-6 2.1e-9 0.1 -3e-4 4e-14\n",
            b"\2(1e3+4j)", b"\2-1_0.5e-3", b"\0031.25e-6,2.1e-9:0,0", b"\0031e-6,2e-9,1e-14:0,0.1,2",
            b"\005127.0.0.1 localhost a.example a", b"\5[::1]:80", b"\5a.example,b"]


def state_seeds():
    """Saved settings, saved beams, calibration gains, codes and metrics, in the kinds of fuzz_state.c."""
    return [b"\0sync_time 1700000000\ncapture b on 123456789\nshift a0v 3\nshift a1h -2\ngate p 0 frequency 30\n"
            b"gate p 0 bins 4\ngate p 0 take 1,3\ngate s 1000 period 1000\ngate s 1000 on_until 10\n", b"\0sync_time 1\nshift 3 0\n",
            b"\1capture v on 5\ngain v 0.123456789012\nantenna v a0 1 1e-9 0.5\nantenna v a1 0 -1e-9 0\n"
            b"model v a0 1700000001.5 1e-9 1e-12 0.1 0.2\nmodel v a1 1700000001.5 0 0 0 0\nmodel v a0 1700000002 1e-9 0 0 0\n",
            b"\1capture d off 0\ngain d.1 2\ninput d.1 a0v 0.25 0 1\ninput d.0 a1h 1 2e-9 0\nmodel d.0 a1h 1700000003 1e-9 0 0 0\n"
            b"input i.0 a0h 3 0 0\ncapture i on 7\n",
            b"\2a0v * 0.5 0\na1h 3-7 0 1\n2 5 -1 1e-3 # c\n", b"\3E1B Code No 1\n0123456789ABCDEF\n-----\nE1-B Code No 2\nFF\n",
            b"\4# HELP up x\nup{a=\"b\",c=\"d e\"} 3\nup{a=\"b\"} 1e3\nup 7\nother{a=\"b\"} NaN\n"]


def signal_seeds():
    """A period of two bytes, then text (fuzz_signal.c)."""
    return [b"\4\0" + text for text in [
        b"cw(0.15, 428e6) + wgn(0.02);", b"a = cw(0.1, 1e6); b = wgn(0.1, 5); a + b; nodither(a * b - 0.5);",
        b"multicw(3, 0.1, -0.02, 1e6, 2e6); comb(0.9, 1e5);", b"delay(wgn(0.1, 3), -17);\ndelay(cw(1, 5), 1e6);",
        b"pulsar(0.1, 0.033, 0.001, 56.7, 1e9, 4);", b"track(wgn(0.1), 1.5, 1e-9) + repeat(gnss(L1CA, 7, 45, 0.1, 4e6, 12.5, -1500, 0.5, 3));",
        b"gnss(L5Q, 30, 40, 0.2, 1e6, 0, 10, 0) - gnss(E1C, 11, 45, 0.1, 4e6, 0, 0, 0);", b"(cw(1, 1)"]]


def http_seeds():
    requests = [b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n", b"GET /status.json?stream=a&baseline=0,1&channels=2,3&spectrum=none HTTP/1.1\r\n"
                b"Host: localhost:80\r\n", b"HEAD /metrics HTTP/1.0\r\n", b"GET /healthz HTTP/1.1\r\nHost: evil.example\r\n",
                b"POST /healthz HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 3\r\n", b"GET /status.css HTTP/1.1\r\nHost: 10.0.0.1:7\r\n"]
    return [request.rstrip() for request in requests] + [requests[0] + b"\r\n" + requests[2], requests[1].replace(b"\r", b"") + b"\n"]


def vdif(seconds, number, thread, bits=8, log2_channels=0, n_bytes=64):
    words = [seconds, number, log2_channels << 24 | (32 + n_bytes) // 8, (bits - 1) << 26 | thread << 16 | 7, 0, 0, 0, 0]
    return struct.pack("<8I", *words) + bytes(range(n_bytes))


def recording_seeds():
    """Raw files of each kind, and VDIF: two threads, a frame a second, frames out of order (fuzz_recording.c)."""
    recordings = [(1, [vdif(5, i, 0) for i in range(20)]), (1, [vdif(5, i, t) for i in range(8) for t in (0, 1)]),
                  (0, [vdif(5 + i, 0, 0, n_bytes=8) for i in range(6)]), (1, [vdif(9, i, 0, 2, 2) for i in (0, 1, 3, 2, 5)])]
    return ([bytes([4, 0, 0, 0, 0, 0, 0, rate]) + b"".join(frames) for rate, frames in recordings] +
            [bytes([kind, 3, 16, 1, 1, 0, 0, 0]) + bytes(range(200)) for kind in (0, 1, 2, 3, 5)])


def request_seeds():
    """Clients' requests to fgpu (an even first byte) and to xbgpu, in the form of fuzz_requests.c."""
    fgpu = b"""?gain wide m000v
?gain wide m000h 1.5-0.5j
?gain narrow 3 """ + b"0.5 " * 64 + b"""
?gain-all wide 2.5
?gain-all narrow default
?delays wide 1700000001.5 1e-9,1e-12:0.5,0.1 0,0:0,0 0,0:0,0 0,0:0,0
?delays narrow 1700000001 m001v=1e-9,1e-12,0:0.5,0.1,0
?sensor-list /feng/
?sensor-value /.*delay.*|^time[.]/
?sensor-sampling wide.input0.eq event-rate 0.1 10
?sensor-sampling-clear
"""
    xbgpu = b"""?capture-start all 123456789
?capture-stop all
?input-shift
?input-shift a0v 3 a1h -2
?input-shift 0 7 1 -7 2 0 3 1
?gate
?gate pulse
?gate pulse 0 frequency=11.1946499395 frequency_derivative=-1.5666e-11 epoch_time=1700000000 bins=16 take=0,1,15
?gate far 0 dispersion_measure=67.97 centre_frequency=1284e6 reference_frequency=1e9
?gate diode 1000 period=1712000000 on_until=856000000 on_from=3
?sensor-value lit.tx.next-timestamp
?help gate
"""
    return [b"\0" + fgpu, b"\1" + xbgpu] + [b"\0" + line + b"\n" for line in fgpu.splitlines()] + [
        b"\1" + line + b"\n" for line in xbgpu.splitlines()]


def main():
    for name, seeds in [("fuzz_spead", spead_seeds()), ("fuzz_receiver", receiver_seeds()),
                        ("fuzz_flood", flood_seeds()),
                        ("fuzz_assemble", assemble_seeds()), ("fuzz_pcap", pcap_seeds()), ("fuzz_shape", shape_seeds()),
                        ("fuzz_katcp", katcp_lines()), ("fuzz_katcp_client", katcp_client_seeds()), ("fuzz_katcp_lines", katcp_lines_seeds()),
                        ("fuzz_config", config_seeds()), ("fuzz_files", file_seeds()),
                        ("fuzz_recording", recording_seeds()), ("fuzz_state", state_seeds()), ("fuzz_http", http_seeds()), ("fuzz_signal", signal_seeds()), ("fuzz_requests", request_seeds()),
                        ("fuzz_status", [b"first&0,1&3,20\n" * 3 + b"second&4,4&\n&&\nsecond&4,2&0,23", b"x&-1,9&5\nfirst&0,0&48,71"]),
                        ("fuzz_matcher", [b"\2\2\1\2" + b"\0\1" * 3 + b"\x90\x91" + b"\0\1" * 9 + b"\xb0\xb1\0\1\xff"])]:
        directory = Path(sys.argv[1]) / name
        directory.mkdir(parents=True, exist_ok=True)
        for i, seed in enumerate(seeds):
            (directory / f"seed{i:02}").write_bytes(seed)


main()
