"""cbf-doctor and the recorder: files that do not fit the X-engines' files, disks, units, and counters of a running
recorder."""
import re
import http.server
import shutil
import socket
import struct
import subprocess
import threading

import harness
import pytest
import yaml
from harness import endpoints
from test_doctor import TUNED, Report, files, plant  # noqa: F401


def write_all(files, change):  # noqa: F811
    made = files({"visrec": change})
    return made, made.write("visrec", "xbgpu0", "xbgpu1")


MISFITS = {
    "shape": ({"stream": {"channels_per_substream": 64}}, "config.x-recorder", ["channels_per_substream", "128"]),
    "weights": ({"stream": {"weights": True}}, "config.x-recorder", ["stream.weights: false"]),
    "spectra": ({"stream": {"samples_between_spectra": 4096}}, "config.x-recorder", ["samples_between_spectra: 512"]),
    "length": ({"stream": {"integration_batches": 3}}, "config.x-recorder", ["3 batches"]),
    "antennas": ({"antennas": [{"name": "m000", "position": [0, 0, 0]}]}, "config.x-recorder", ["1 antenna,"]),
    "groups": ({"recv": {"sources": "239.1.2.3"}}, "config.x-recorder", ["no output", "receives nothing"]),
    "time": ({"time": {"adc_sample_rate": 2e6}}, "config.time", ["2000000 Hz"]),
}


def test_files_that_fit(files):  # noqa: F811
    _, paths = write_all(files, {})
    report = Report("config", *paths)
    assert report.ids() == set(), report.bad()
    assert "2 outputs" in report.get("config.x-recorder")["found"]
    assert "visrec, 2 antennas" in report.get("config.file", "visrec")["found"]


@pytest.mark.parametrize("change, id, words", MISFITS.values(), ids=MISFITS)
def test_files_that_do_not_fit(files, change, id, words):  # noqa: F811
    _, paths = write_all(files, change)
    report = Report("config", *paths)
    assert report.ids() == {id}, report.bad()
    report.check_words(words)


FIXES = {
    "weights": ({"weights": True}, {}, "set stream.weights in {file} to false"),
    "no-weights": ({"weights": False}, {"missing": "weights"}, "set stream.weights in {file} to true"),
    "batches": ({"integration_batches": 3}, {}, "set stream.integration_batches in {file} to {batches}"),
    "time": ({"integration_batches": None, "integration_time": 0.5}, {},
             "set stream.integration_time in {file} to {seconds:.12g}"),
}


@pytest.mark.parametrize("stream, output, fix", FIXES.values(), ids=FIXES)
def test_fixes_that_fix(files, stream, output, fix):  # noqa: F811
    """A key that the recorder has, and a value that it takes: with both, the files fit."""
    made = files()
    recv, batches = made.config("xbgpu0")["recv"], made.config("xbgpu0")["outputs"][0]["integration_batches"]
    seconds = batches * recv["spectra_per_heap"] * recv["samples_between_spectra"] \
        / made.config("visrec")["time"]["adc_sample_rate"]
    made.layout.overrides = {name: {"outputs": [made.config(name)["outputs"][0] | output]}
                             for name in ("xbgpu0", "xbgpu1")}
    recorder = made.config("visrec")
    recorder["stream"] = {k: v for k, v in (recorder["stream"] | stream).items() if v is not None}
    made.config = lambda name, config=made.config: recorder if name == "visrec" else config(name)
    paths = made.write("visrec", "xbgpu0", "xbgpu1")
    fixes = {finding["fix"] for finding in Report("config", *paths).bad()}
    assert fixes == {fix.format(file=paths[0], batches=batches, seconds=seconds)}
    key, value = re.search(r"stream\.(\w+) .* (\S+)$", fixes.pop()).groups()
    recorder["stream"][key] = yaml.safe_load(value)
    assert Report("config", *made.write("visrec", "xbgpu0", "xbgpu1")).ids() == set()


@pytest.mark.parametrize("n", [1, 3])
def test_fix_of_the_antennas(files, n):  # noqa: F811
    """They are a list, not a number."""
    antennas = [{"name": f"m{i:03}", "position": [i, 0, 0]} for i in range(n)]
    _, paths = write_all(files, {"antennas": antennas})
    fixes = {finding["fix"] for finding in Report("config", *paths).bad()}
    assert fixes == {f"list the 2 antennas of the array under antennas in {paths[0]}"}


def test_antennas_in_another_order(files):  # noqa: F811
    made = files({"xbgpu0": {"recv": {"antenna_names": "m001, m000"}}})
    report = Report("config", *made.write("visrec", "xbgpu0", "xbgpu1"))
    assert report.ids() == {"config.antennas"} and "is m000" in report.bad()[0]["found"], report.bad()


def test_wrong_file(files):  # noqa: F811
    made = files({"visrec": {"telescope": {"latitude": 91}}})
    report = Report("host", *made.write("visrec"))
    assert "latitude" in report.get("config.file")["found"]
    assert re.fullmatch(r"correct (line \d+ of )?\S+", report.get("config.file")["fix"])


def installed(files, work, **output):  # noqa: F811
    """A tree with /etc/cbf/store.yaml, and the configuration in it."""
    made = files({"visrec": {"output": output}} if output else {})
    root = plant(work / "root", {path: text for path, text in TUNED.items()})
    (path,) = made.write("visrec")
    (root / "etc/cbf").mkdir(parents=True)
    path.rename(root / "etc/cbf/store.yaml")
    return root, made.config("visrec")


def recorder_ids(report):
    return {id for id in report.ids() if id.startswith("recorder.")} - {"recorder.disk"}  # that of this machine


def test_disk(files, work):  # noqa: F811
    """Days of room equal Python's count.  The file's values are 8 + 1 + 4 bytes, its rows 12 x 8."""
    root, config = installed(files, work)
    stream = config["stream"]
    n_baselines = len(config["antennas"]) * (len(config["antennas"]) + 1) // 2
    dump_s = stream["integration_batches"] * stream["spectra_per_heap"] * stream["samples_between_spectra"] \
        / config["time"]["adc_sample_rate"]
    rate = n_baselines * (stream["channels"] * 4 * 13 + 12 * 8) / dump_s
    said = Report("host", root=root).get("recorder.disk")["found"].split()
    free = shutil.disk_usage(work).free
    assert float(said[2]) == pytest.approx(free / 1e9, rel=0.02)
    hours = float(said[said.index("for") + 1]) * (24 if "days" in said else 1)
    assert hours == pytest.approx(free / rate / 3600, rel=0.02)


def test_disk_without_room(files, work):  # noqa: F811
    root, _ = installed(files, work, max_dumps=1000000000)
    finding = Report("host", root=root).get("recorder.disk")
    assert finding["status"] in ("warn", "fail") and finding["expected"] == "room for output.max_dumps"


def test_unit(files, work):  # noqa: F811
    """A unit writes below its own directory, unless a drop-in says more; and a service needs a time in the name."""
    root, _ = installed(files, work)
    report = Report("host", root=root)
    assert recorder_ids(report) == {"recorder.unit", "recorder.name"}
    assert "/var/lib/cbf/store" in report.get("recorder.unit")["expected"]
    plant(root, {"etc/systemd/system/visrec@store.service.d/data.conf": "[Service]\nReadWritePaths=/data"})
    assert recorder_ids(Report("host", root=root)) == {"recorder.name"}


def test_no_directory(files, work):  # noqa: F811
    root, _ = installed(files, work, file=str(work / "missing" / "%Y.uvh5"))
    finding = Report("host", root=root).get("recorder.directory")
    assert finding["status"] == "fail" and finding["fix"] == f"sudo mkdir -p {work}/missing"
    root, _ = installed(files, work / "other", file="/var/lib/cbf/store/%Y.uvh5")  # systemd makes this one
    assert recorder_ids(Report("host", root=root)) == set()


@pytest.fixture
def recorder_that_says():
    """Serves a text as /metrics at an address."""
    servers = []

    def serve(listen, text):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_):
                pass

        host, port = listen.split(":")
        servers.append(http.server.ThreadingHTTPServer((host, int(port)), Handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


GOOD = {"visrec_dumps_total": 10, "visrec_packets_total": 500}
SAID = {
    "good": (GOOD, {}),
    "unwritten": (GOOD | {"visrec_unwritten_dumps_total": 3}, {"recorder.unwritten": ["3 dumps", "df -h"]}),
    "slow": (GOOD | {'visrec_rejected_packets_total{reason="no_chunk"}': 7}, {"recorder.slow": ["7 packets", "iostat"]}),
    "socket": (GOOD | {'visrec_kernel_drops{thread="visrec-recv"}': 2}, {"recorder.socket": ["recv.buffer"]}),
    "missing": (GOOD | {"visrec_missing_heaps_total": 4}, {"recorder.missing": ["4 heaps"]}),
    # Of 10 dumps x 256 channels x 4 polarisations.
    "antenna": (GOOD | {'visrec_antenna_flagged_values_total{feng="1",antenna="m001"}': 2560},
                {"recorder.antennas": ["25 %", "m001"]}),
    "silent": ({"visrec_dumps_total": 0, "visrec_packets_total": 9,
                'visrec_rejected_packets_total{reason="heap_size"}': 9}, {"recorder.dumps": ["9 packets", "9 were refused"]}),
}


@pytest.mark.parametrize("metrics, expected", SAID.values(), ids=SAID)
def test_running_recorder(files, recorder_that_says, metrics, expected):  # noqa: F811
    made = files()
    assert made.config("visrec")["stream"]["channels"] == 256
    recorder_that_says(made.config("visrec")["http"]["listen"], "".join(f"\n{k} {v}" for k, v in metrics.items()) + "\n")
    report = Report("loss", *made.write("visrec"), "--seconds", "0.1")
    assert recorder_ids(report) == set(expected), report.bad()
    for id, words in expected.items():
        report.check_words(words, report.get(id))


@pytest.mark.parametrize("joined", [True, False])
def test_groups(files, work, recorder_that_says, joined):  # noqa: F811
    root, config = installed(files, work)
    recorder_that_says(config["http"]["listen"], "\nvisrec_dumps_total 1\n")
    all_groups = [struct.unpack("<I", socket.inet_aton(host))[0] for host, _ in endpoints(config["recv"]["sources"])]
    plant(root, {"proc/net/igmp": "\n".join(f"\t\t\t\t{group:08X}     1 0:00000000\t\t0"
                                            for group in all_groups[0 if joined else 1:])})
    assert ("recorder.groups" in Report("host", root=root).ids()) == (not joined)


def test_port_of_another(files, work, recorder_that_says):  # noqa: F811
    root, config = installed(files, work)
    recorder_that_says(config["http"]["listen"], "\nfgpu_x 1\n")
    assert "host.ports" in Report("host", root=root).ids()


def test_all_topics_and_bundle(files, work):  # noqa: F811
    """Nothing trips over a file without an engine's keys."""
    (path,) = files().write("visrec")
    assert Report("all", path, "--seconds", "0.1").get("config.file")["status"] == "ok"
    done = subprocess.run([harness.BUILD / "cbf-doctor", "bundle", work / "out.tar.gz", path, "--seconds", "0.1"],
                          capture_output=True, check=False)
    assert done.returncode in (0, 1, 2) and (work / "out.tar.gz").exists(), done.stderr


# ---- Recorders of beams ----------------------------------------------------------------------------------------------


def beam_files(files, change, directory):  # noqa: F811
    """A beamrec's file that fits two X-engines with two beams, with the given changes."""
    made = files()
    where = [endpoints(harness.groups(2)) for _ in range(2)]
    text = lambda endpoint: f"{endpoint[0]}:{endpoint[1]}"
    made.layout.overrides = {f"xbgpu{x}": {"beams": [{"name": f"beam{b}", "pol": b, "destination": text(where[b][x])}
                                                     for b in range(2)]} for x in range(2)}
    recv = made.config("xbgpu0")["recv"]
    stream = {key: recv[key] for key in ("channels", "channels_per_substream", "spectra_per_heap", "samples_between_spectra")}
    config = harness.merge({
        "time": made.config("xbgpu0")["time"], "stream": stream, "output": {"telescope": "t"},
        "beams": [{"name": f"beam{b}", "sources": ", ".join(map(text, where[b])), "filterbank": f"{directory}/b{b}-%Y.fil"}
                  for b in range(2)]}, change)
    path = made.work / "beamrec.yaml"
    path.write_text(yaml.safe_dump(config))
    return [path, *made.write("xbgpu0", "xbgpu1")]


BEAM_MISFITS = {
    "substreams": ({"stream": {"channels_per_substream": 64}}, ["channels_per_substream", "128"]),
    "spectra": ({"stream": {"samples_between_spectra": 4096}}, ["samples_between_spectra: 512", "times are wrong"]),
    "groups": ({"beams": [{"name": "b", "sources": "239.1.2.3", "filterbank": "/tmp/b-%Y.fil"}]}, ["no beam", "receives nothing"]),
    "time": ({"time": {"adc_sample_rate": 2e6}}, ["time.adc_sample_rate is 2000000"]),
}


def test_beam_files_that_fit(files, tmp_path):  # noqa: F811
    report = Report("config", *beam_files(files, {}, tmp_path))
    assert report.ids() == set(), report.bad()
    assert "4 beams of X-engines match this file" in report.get("config.x-recorder", "beamrec")["found"]
    assert report.get("config.file", "beamrec")["found"] == "beamrec, 2 beams"


@pytest.mark.parametrize("change, words", BEAM_MISFITS.values(), ids=BEAM_MISFITS)
def test_beam_files_that_do_not_fit(files, tmp_path, change, words):  # noqa: F811
    report = Report("config", *beam_files(files, change, tmp_path))
    assert report.ids() == {"config.x-recorder"}, report.bad()
    report.check_words(words)


DETECTED = {"beams": 3, "products": "IQUV", "spectra": 32, "channels": 2, "windows": 8, "format": "uint8"}


@pytest.mark.parametrize("change, words", [({}, []), ({"beams": 2}, ["detected[0].beams is 2", "3"]), ({"windows": 4}, ["windows: 8"]),
                                           ({"products": "I"}, ["products is I, but IQUV"]), ({"format": "float32"}, ["uint8"]),
                                           ({"channels": 1}, ["channels: 2"]), ({"spectra": 16}, ["spectra: 32"])], ids=str)
def test_detected_beams(files, tmp_path, change, words):  # noqa: F811
    """Their shape is the X-engines' shape. spectra_per_heap does not matter."""
    where = [f"{address}:{port}" for address, port in endpoints(harness.groups(2))]
    recorder, *paths = beam_files(files, {"stream": {"spectra_per_heap": 48}}, tmp_path)
    for path, destination in zip(paths, where):
        x = yaml.safe_load(path.read_text())
        del x["beams"]
        path.write_text(yaml.safe_dump(x | {"detected": [DETECTED | {"name": "d", "destination": destination}]}))
    config = yaml.safe_load(recorder.read_text())
    del config["beams"]
    config["detected"] = [DETECTED | change | {"name": "d", "sources": ", ".join(where), "filterbank": f"{tmp_path}/{{beam}}.fil"}]
    recorder.write_text(yaml.safe_dump(config))
    report = Report("config", recorder, *paths)
    if change:
        assert report.ids() == {"config.x-recorder"}, report.bad()
        report.check_words(words)
        return
    assert report.ids() == set(), report.bad()
    assert "6 beams of X-engines match this file" in report.get("config.x-recorder", "beamrec")["found"]


def test_directory_of_beams(files, tmp_path):  # noqa: F811
    found = [f for f in Report("host", beam_files(files, {}, tmp_path / "none")[0]).bad() if f["id"] == "recorder.directory"]
    assert ["No such file" in f["found"] for f in found] == [True]  # once, though two beams are there
    assert not [f for f in Report("host", beam_files(files, {}, tmp_path)[0]).bad() if f["id"] == "recorder.directory"]


def test_disk_of_beams(files, tmp_path):  # noqa: F811
    """Files in two directories of one disk: 8-bit sums, floats, voltages of two bytes, and detected beams in two formats."""
    places = [tmp_path / "a", tmp_path / "b"]
    for place in places:
        place.mkdir()
    beams = [{"name": "x", "sources": "239.1.2.3", "filterbank": f"{places[0]}/x-%Y.fil", "sum_spectra": 2, "sum_channels": 4},
             {"name": "y", "sources": "239.1.2.4", "filterbank": f"{places[1]}/y-%Y.fil", "bits": 32,
              "voltages": f"{places[0]}/y-%Y.dada"}]
    detected = [DETECTED | {"name": "d", "sources": "239.1.2.5", "filterbank": f"{places[0]}/{{beam}}-%Y.fil",
                            "dada": f"{places[1]}/{{beam}}-%Y.dada"}]
    path, *_ = beam_files(files, {"beams": beams, "detected": detected}, tmp_path)
    config = yaml.safe_load(path.read_text())
    values = config["time"]["adc_sample_rate"] / config["stream"]["samples_between_spectra"] * config["stream"]["channels"]
    report = Report("host", path)
    assert len([f for f in report.findings if f["id"] == "recorder.disk"]) == 1
    said = report.get("recorder.disk")["found"].split()
    hours = float(said[said.index("for") + 1]) * (24 if "days" in said else 1)
    assert hours == pytest.approx(shutil.disk_usage(tmp_path).free / (values * (1 / 8 + 4 + 2 + 2 * 3 * 4 / 64)) / 3600, rel=0.02)
    path, *_ = beam_files(files, {"beams": beams, "detected": detected, "output": {"max_batches": 10**14}}, tmp_path)
    finding = Report("host", path).get("recorder.disk")
    assert finding["status"] in ("warn", "fail") and finding["expected"] == "room for output.max_batches"


def test_unit_of_beams(files, tmp_path):  # noqa: F811
    """As for visrec: the report names the first name without a time."""
    beams = [{"name": b, "sources": f"239.1.2.{i}", "voltages": f"{tmp_path}/{b}{time}.dada"}
             for i, (b, time) in enumerate((("x", "-%Y"), ("y", ""), ("z", "")))]
    path, *_ = beam_files(files, {"beams": beams}, tmp_path)
    root = plant(tmp_path / "root", {path: text for path, text in TUNED.items()})
    (root / "etc/cbf").mkdir(parents=True)
    path.rename(root / "etc/cbf/beams.yaml")
    report = Report("host", root=root)
    assert recorder_ids(report) == {"recorder.unit", "recorder.name"}
    assert "beamrec@beams" in report.get("recorder.unit")["fix"] and "/var/lib/cbf/beams" in report.get("recorder.unit")["expected"]
    assert report.get("recorder.name")["found"] == f"beams[].voltages has no time in its name: {tmp_path}/y.dada"
    plant(root, {"etc/systemd/system/beamrec@.service.d/data.conf": "[Service]\nReadWritePaths=/data"})
    assert recorder_ids(Report("host", root=root)) == {"recorder.name"}


def test_counters_of_a_beam_recorder(files, tmp_path, page_of):  # noqa: F811
    """The report names the losses of a running recorder.  It ignores another program's page."""
    lost = 'beamrec_batches_total 9\nbeamrec_unwritten_batches_total 2\nbeamrec_missing_heaps_total{beam="b"} 5\n'
    for text, ids in ((lost, {"recorder.unwritten", "recorder.missing"}), ("visrec_dumps_total 1\n", set())):
        path, *_ = beam_files(files, {"http": {"listen": page_of(text)}}, tmp_path)
        report = Report("loss", path, "--seconds", 0.1)
        assert {f["id"] for f in report.bad() if f["id"].startswith("recorder")} == ids
        assert all(f"df -h {tmp_path} " in f["fix"] for f in report.bad() if f["id"] == "recorder.unwritten")


@pytest.fixture
def page_of():
    """Serves a text as /metrics.  Returns its address."""
    servers = []

    def serve(text):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"# x\n" + text.encode())

            def log_message(self, *_):
                pass

        servers.append(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"127.0.0.1:{servers[-1].server_port}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()
