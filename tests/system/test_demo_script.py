"""scripts/demo: the order in which it stops its programs, the heaps that it counts, and the options that it gives the
plots."""
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess

import pytest
import yaml

import harness

ENGINES = ("xbgpu0", "xbgpu1", "fgpu0", "fgpu1")


@pytest.fixture
def demo(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    loader = importlib.machinery.SourceFileLoader("demo", str(harness.ROOT / "scripts" / "demo"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("demo", loader))
    loader.exec_module(module)
    monkeypatch.chdir(harness.ROOT)
    module.OUT = str(tmp_path)
    module.CONFIG = "config/demo"
    return module


class Process:
    """Records calls.  Ends with the signal, or never."""

    def __init__(self, name, events, hangs=False):
        self.name, self.events, self.hangs, self.returncode = name, events, hangs, None

    def poll(self):
        return self.returncode

    def send_signal(self, _):
        self.events.append(f"stop {self.name}")
        self.returncode = None if self.hangs else 0

    def wait(self, timeout):
        self.events.append(f"wait {self.name}")
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.name, timeout)

    def kill(self):
        self.events.append(f"kill {self.name}")


def test_programs_end_in_the_order_of_the_data(demo, monkeypatch):
    events = []
    last = {name: {"old": 1} for name in ENGINES}

    def metrics(name):
        events.append(f"count {name}")
        if name == "fgpu1":
            raise OSError
        return {"new": 1}

    monkeypatch.setattr(demo, "metrics", metrics)
    demo.stop({name: Process(name, events, hangs=name == "fgpu0") for name in (*ENGINES, "dsim")}, last)
    assert events == ["stop dsim", "wait dsim",
                      "count fgpu1", "stop fgpu1", "wait fgpu1",
                      "count fgpu0", "stop fgpu0", "wait fgpu0", "kill fgpu0",
                      "count xbgpu1", "stop xbgpu1", "wait xbgpu1",
                      "count xbgpu0", "stop xbgpu0", "wait xbgpu0"]
    assert last == {"fgpu1": {"old": 1}, **{name: {"new": 1} for name in ("fgpu0", "xbgpu1", "xbgpu0")}}


def test_lost_heaps(demo, tmp_path):
    (tmp_path / "visrec.log").write_text("info: 11 dumps, 0 of 22 heaps missing, 0.00 % flagged\n24 dumps, 3 of 48 heaps missing\n")
    last = {name: {f"{name[:-1]}_input_heaps_total": 100.0, f"{name[:-1]}_input_missing_heaps_total": 2.0} for name in ENGINES}
    assert demo.lost_heaps(last) == (11, 456)


def test_plots_know_the_model_and_the_edge(demo):
    options = demo.plot_options()
    assert options[:5] == ["--baseline", "m000,m003", "--model", "m003", "config/demo/m003.delays"]
    assert options[5:9] == ["--mark", "m003", "0.47", "0.5"] and "a period of 5 s" in options[9].replace("\n", " ")


def changed(demo, tmp_path, name, *replacements):
    """config/demo as a user changed one of its files."""
    demo.CONFIG = str(tmp_path / "config")
    shutil.copytree("config/demo", demo.CONFIG)
    path = tmp_path / "config" / name
    text = path.read_text()
    for old, new in replacements:
        assert old in text, old
        text = text.replace(old, new)
    path.write_text(text)


def test_table_expects_what_the_files_say(demo, tmp_path, capsys):
    """The F-engine takes the delay of m003 out."""
    assert demo.expectations() == ["--delays=0,5,-3,0", "--drifts=0,0,0,0", "--tracked=3"]
    assert "m003: 17 samples and +0.2 samples/s are injected" in capsys.readouterr().out
    changed(demo, tmp_path, "dsim.yaml", ("delay(sky0, 5)", "delay(sky0, 9)"), ("delay(sky1, 5)", "delay(sky1, 9)"))
    assert demo.expectations() == ["--delays=0,9,-3,0", "--drifts=0,0,0,0", "--tracked=3"]


def test_table_expects_a_drift_without_a_model(demo, tmp_path, capsys):
    changed(demo, tmp_path, "fgpu1.yaml", ("     delays: ", "     #delays: "))
    assert yaml.safe_load((tmp_path / "config/fgpu1.yaml").read_text())["antennas"][1].get("delays") is None
    assert demo.expectations() == ["--delays=0,5,-3,17", "--drifts=0,0,0,0.2"]
    assert capsys.readouterr().out == ""
    assert "--model" not in demo.plot_options()


@pytest.fixture
def run(demo, monkeypatch):
    """Runs main() without programs; answers whether the array was kept and how it ended."""
    def main(*arguments, lost):
        kept = []
        monkeypatch.setattr("sys.argv", ["demo", *arguments])
        monkeypatch.setattr(demo, "ROOT", str(harness.ROOT))
        monkeypatch.setattr(demo, "write_config", lambda: None)
        monkeypatch.setattr(demo, "start", lambda name: Process(name, []))
        monkeypatch.setattr(demo, "stop", lambda processes, last: None)
        monkeypatch.setattr(demo, "show_progress", lambda visrec, _: setattr(visrec, "returncode", 0))
        monkeypatch.setattr(demo, "lost_heaps", lambda last: (lost, 1000))
        monkeypatch.setattr(demo, "keep_running", kept.append)
        monkeypatch.setattr(demo.subprocess, "run", lambda args, check: subprocess.CompletedProcess(args, 0))
        with pytest.raises(SystemExit) as end:
            demo.main()
        return bool(kept), end.value.code
    return main


def test_what_is_broken_has_a_name(demo, capsys):
    places = ("there are the antennas m000, m001, m002, m003, their polarisations (m000v, m000h) and the engines "
              "fgpu0, fgpu1, xbgpu0, xbgpu1")
    for what, *how in (("m004",), ("m001x",), ("v",), ("m001v", "delay"), ("fgpu2",)):
        with pytest.raises(SystemExit) as end:
            demo.break_it(what, *how)
        assert end.value.code == f"demo: there is no {what}; {places}"
    with pytest.raises(SystemExit, match="there is no all"):
        demo.mend_it("all")


def test_what_an_array_left_broken_is_forgotten(demo, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "CONFIG", str(tmp_path / "config"))
    for left in (demo.right_models("m000"), demo.mend_file("fgpu1")):
        open(left, "w").close()
    demo.write_config()
    assert [path.name for path in tmp_path.iterdir()] == ["config"]


def test_engines_that_do_not_answer(demo, monkeypatch):
    """For a running array, mend starts the programs again.  Without an array, the array has to be started.  A running
    program needs nothing."""
    running = {"fgpu1", "xbgpu0"}
    monkeypatch.setattr(demo, "is_answering", lambda name: name in running)
    for name, what_to_do in (("fgpu0", "scripts/demo mend fgpu0 starts it again"), ("dsim", "start the array with: make demo KEEP=1")):
        assert demo.no_answer(name, "no") == f"demo: {name} does not answer (no); {what_to_do}"
    running.clear()
    assert demo.no_answer("fgpu0", "no").endswith("start the array with: make demo KEEP=1")
    running.add("fgpu1")
    demo.mend_engine("fgpu1")
    assert not os.listdir(demo.OUT)


def test_losses_do_not_end_an_array_that_is_kept(run, capsys):
    assert run("--keep", lost=2) == (True, 1)
    said = capsys.readouterr()
    assert "more than 0.1 % of the heaps were lost: the machine is busy; the array keeps running" in said.err and "KEEP=1" not in said.out
    assert run("--keep", lost=1) == (True, 0)
    assert run(lost=2) == (False, 1)
    said = capsys.readouterr()
    assert said.err == "demo: more than 0.1 % of the heaps were lost: the machine is busy; run it again\n"
    assert "Status pages while it runs (make demo KEEP=1 keeps them): http://127.0.0.1:7180/ " in said.out
    assert run(lost=1) == (False, 0)


def test_second_array_changes_nothing(demo, monkeypatch, tmp_path):
    """An array runs: a second one ends with a sentence, before it writes files."""
    monkeypatch.setattr(demo, "CONFIG", str(tmp_path / "config"))
    monkeypatch.setattr(demo, "is_answering", lambda name: name == "fgpu1")
    monkeypatch.setattr("sys.argv", ["demo"])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with pytest.raises(SystemExit, match="an array runs already .fgpu1."):
        demo.main()
    assert not (tmp_path / "config").exists()
