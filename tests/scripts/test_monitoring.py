"""Files of scripts/array for Prometheus and Grafana: alerts of a bad night, evaluated by promtool, and dashboards."""
import os
import re
import shutil
import subprocess

import pytest
import yaml

import harness
import test_array

REFERENCES = ("fgpu", "xbgpu", "visrec", "beamrec")
PROMETHEUS_OWN = {"up", "ALERTS"}
RECORDED = {"cbf_antenna_engine"}  # by a rule


@pytest.fixture
def promtool():
    """Runs promtool.  The CI must have it."""
    if not shutil.which("promtool") and not os.environ.get("CBF_CI"):
        pytest.skip("promtool is not installed (Debian: prometheus)")

    def run(*arguments):
        done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return run


def reference_labels():
    """{metric: its labels}, from the programs' references. test_reference.py compares those with the programs."""
    labels = {}
    for program in REFERENCES:
        text = (harness.ROOT / f"docs/reference/{program}.txt").read_text()
        for name, listed in re.findall(r"^(\w+)(?:\{([^}]*)\})? \((?:counter|gauge)\)$", text, re.MULTILINE):
            labels[name] = set(re.findall(r"\w+", listed))
    return labels


def alert_rules(made):
    return [rule for rule in made["prometheus/rules.yaml"]["groups"][0]["rules"] if "alert" in rule]


# ---- Rules -----------------------------------------------------------------------------------------------------------


def test_promtool(work, promtool):
    """Prometheus takes the configuration, the rules, and every expression of the dashboards."""
    made, _ = test_array.generate(test_array.EXAMPLE, work / "made")
    for command, file in (("config", "prometheus.yaml"), ("rules", "rules.yaml")):
        promtool("check", command, work / "made/prometheus" / file)
    boards = {name: board for name, board in made.items() if name.startswith("grafana/")}
    expressions = [re.sub(r"\$__\w+", "1m", target["expr"]) for panel in panels_of(boards) for target in panel["targets"]]
    path = work / "panels.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": [
        {"record": f"panel:number{i}", "expr": expression} for i, expression in enumerate(expressions)]}]}))
    promtool("check", "rules", path)


def test_rules_ask_for_what_there_is(work):
    """Each metric exists, with the labels that the rules and annotations ask for.  Each alert says what to do."""
    made, _ = test_array.generate(test_array.EXAMPLE, work / "made")
    labels = reference_labels()
    of_target = {"array", "host", "engine", "program", "carries"}
    for rule in alert_rules(made):
        asked = set(re.findall(r"(\w+)\{", rule["expr"]))
        assert asked and asked <= set(labels) | PROMETHEUS_OWN | RECORDED, rule["alert"]
        known = of_target.union(*(labels.get(metric, set()) for metric in asked))
        for wanted in re.findall(r"by \(([^)]*)\)", rule["expr"]):
            assert set(wanted.split(", ")) <= known, rule["alert"]
        notes = rule["annotations"]
        assert set(notes) == {"summary", "stage", "since", "where", "command"} and all(notes.values())
        assert set(re.findall(r"\$labels\.(\w+)", " ".join(notes.values()))) <= known, rule["alert"]
        assert notes["command"].startswith("ssh {{ $labels.host }} ")
        doctor = re.search(r"cbf-doctor (.*)", notes["command"])
        assert not doctor or re.fullmatch(r"((host|streams|loss) )?/etc/cbf/\{\{ \$labels\.engine }}\.yaml", doctor[1])


# ---- A bad night -----------------------------------------------------------------------------------------------------

T0_S = 30  # the first scrape that shows the trouble
END_S = 65
SOON_S = T0_S + 3  # a scrape and an evaluation may each be 1 s late: 5 s after the loss
PACKETS, BATCHES = 400000, 400  # per second, of each input, and of each antenna's stream


class Night:
    """Prometheus' scrapes, one each second: a clean array until T0_S, and the test's changes from then on.

    A series has a first value, a growth per second, and a growth per second from T0_S on; gauges do not grow.
    'name' is array.yaml's name of an antenna, 'x_name' the X-engines' name.
    """

    def __init__(self, work, n_ants, n_fgpu, name="m{:03}", x_name=None):
        self.x_names = {name.format(a): (x_name or name).format(a) for a in range(n_ants)}
        self.fengs = {name.format(a): str(a) for a in range(n_ants)}
        array = test_array.small(
            time={"sync_time": 1700000000, "adc_sample_rate": 1712000000},
            antennas=[{"name": name.format(a), "pol0": f"239.99.{a}.0", "pol1": f"239.99.{a}.1"} for a in range(n_ants)],
            hosts=[{"name": f"h{h}", "address": f"10.0.0.{h + 1}", "memory": 4096, "cores": 4096,
                    "interfaces": [{"name": "eth0", "rate": 10000}],
                    "engines": [{"kind": "fgpu"}] + [{"kind": "xbgpu"}] * (h < 2)} for h in range(n_fgpu)])
        self.work, self.end_s = work, END_S
        self.made, _ = test_array.generate(test_array.write(work, array), work / "made")
        targets = [target["labels"] for target in self.made["prometheus/targets.yaml"]]
        self.engines = {labels["engine"]: labels for labels in targets}
        self.series, self.tests = {}, []
        self.ants = {}  # antenna -> labels of its F-engine
        for engine, labels in self.engines.items():
            self.gauge("up", labels, 1)
            self.gauge(f"{labels['program']}_clock_synchronised", who(labels), 1)
            self.count(f"{labels['program']}_input_kernel_drops", who(labels, thread="recv0"), 0)
            if labels["program"] == "fgpu":
                self.begin_fgpu(labels, [antenna["name"] for antenna in self.made[f"services/{engine}.yaml"]["antennas"]])
            else:
                self.begin_xbgpu(labels)
        self.begin_visrec()

    def count(self, name, labels, per_s, after=None, first=0):
        self.series[series_name(name, labels)] = ("count", first, per_s, per_s if after is None else after)

    def gauge(self, name, labels, value, after=None):
        self.series[series_name(name, labels)] = ("gauge", value, value if after is None else after)

    def begin_fgpu(self, labels, antennas):
        for antenna in antennas:
            self.ants[antenna] = labels
            one, stream = who(labels, antenna=antenna), who(labels, antenna=antenna, stream="wide")
            self.gauge("fgpu_input_power_valid", one, 1)
            for pol in "01":
                self.count("fgpu_input_heaps_total", one | {"pol": pol}, PACKETS, first=7)
                self.gauge("fgpu_input_power_dbfs", one | {"pol": pol}, -20)
                for name in ("missing", "too_old", "contested"):
                    self.count(f"fgpu_input_{name}_heaps_total", one | {"pol": pol}, 0)
                self.count("fgpu_input_clipped_samples_total", one | {"pol": pol}, 3)
            self.count("fgpu_output_heaps_total", stream, BATCHES)
            for name in ("skipped_heaps", "dropped_heaps", "failed_packets"):
                self.count(f"fgpu_output_{name}_total", stream, 0, first=2)
            for satellite, stage in (("L1CA-7", 3), ("L1CA-32", 0)):
                self.gauge("fgpu_gnss_stage", one | {"stream": "l1", "satellite": satellite}, stage)
            for name, per_s in {"samples": 4e6, "dropped_heaps": 0, "failed_packets": 0}.items():
                self.count(f"fgpu_gnss_{name}_total", one | {"stream": "l1"}, int(per_s), first=3)
            self.gauge("fgpu_output_ahead_seconds", one | {"stream": "wide"}, 0)
            self.gauge("fgpu_output_delay_seconds", one | {"stream": "wide"}, 0.01)

    def begin_xbgpu(self, labels):
        for antenna in self.x_names:
            one = who(labels, **self.of_voltages(antenna))
            self.gauge("xbgpu_feng_state", one, 3)
            self.count("xbgpu_feng_heaps_total", one, BATCHES)
            self.count("xbgpu_feng_missing_heaps_total", one, 0)
        self.gauge("xbgpu_device_ok", who(labels), 1)
        for name in ("incomplete", "absent", "skipped", "dropped", "wrong"):
            self.count(f"xbgpu_output_x_{name}_accs_total", who(labels, stream="vis"), 0, first=1)
        for beam in ("bx", "by"):
            one = who(labels, stream=beam)
            for name, per_s in {"measured_": 4096, "zero_": 100, "": 8192, "clipped_": 3}.items():
                self.count(f"xbgpu_output_b_{name}samples_total", one, per_s)
            self.gauge("xbgpu_output_b_zero_weights_ratio", one, 0)
        for beam in ("powers.0", "powers.1"):
            for name in ("zero_powers", "clipped", "zero_weights"):
                self.gauge(f"xbgpu_output_b_{name}_ratio", who(labels, stream=beam), 0)

    def begin_visrec(self):
        self.recorder = {"array": "small", "host": "store", "engine": "recorder", "program": "visrec"}
        self.gauge("up", self.recorder, 1)
        self.count("visrec_dumps_total", self.recorder, 2)
        for name in ("unwritten_dumps", "missing_heaps", "rollovers"):
            self.count(f"visrec_{name}_total", self.recorder, 0)

    # What goes wrong.

    def of_voltages(self, antenna):
        return {"feng": self.fengs[antenna], "antenna": self.x_names[antenna]}

    def of_xengines(self):
        return [labels for labels in self.engines.values() if labels["program"] == "xbgpu"]

    def cut_inputs(self, antenna, pols):
        for pol in pols:
            self.count("fgpu_input_heaps_total", who(self.ants[antenna], antenna=antenna, pol=pol), PACKETS, 0, first=7)

    def silence(self, antenna, engines=None):
        """An antenna's stream stops.  An X-engine reports it one interval, a second, later."""
        if not engines:
            self.count("fgpu_output_heaps_total", who(self.ants[antenna], antenna=antenna, stream="wide"), BATCHES, 0)
        for labels in engines or self.of_xengines():
            one = who(labels, **self.of_voltages(antenna))
            self.count("xbgpu_feng_heaps_total", one, BATCHES, 0)
            self.gauge("xbgpu_feng_state", one, 3, 1)
            self.spoil_dumps(labels)

    def lose_voltages(self, antenna):
        """One voltage heap of a hundred is lost on the way to every X-engine.  Returns the alerts that fire at once."""
        for labels in self.of_xengines():
            one = who(labels, **self.of_voltages(antenna))
            self.count("xbgpu_feng_heaps_total", one, BATCHES, BATCHES * 0.99)
            self.count("xbgpu_feng_missing_heaps_total", one, 0, BATCHES * 0.01)
            self.gauge("xbgpu_feng_state", one, 3, 2)
            self.spoil_dumps(labels)
        return [("VoltagesLostOnTheWay", who(labels, **self.of_voltages(antenna))) for labels in self.of_xengines()]

    def spoil_dumps(self, labels):
        self.count("xbgpu_output_x_incomplete_accs_total", who(labels, stream="vis"), 0, 2, first=1)

    def kill(self, engine):
        for name in [name for name in self.series if f'engine="{engine}"' in name]:
            self.series[name] = ("lost", *self.series[name][1:3])
        self.gauge("up", self.engines[engine], 1, 0)

    # What is expected.

    def expect(self, at_s, *alerts):
        """Exactly these alerts fire then: (name, labels)."""
        samples = [{"labels": "{" + text_of({"alertname": name} | labels) + "}", "value": 1} for name, labels in alerts]
        self.tests.append({"expr": 'max without (severity, alertstate) (ALERTS{alertstate="firing"})',
                           "eval_time": f"{at_s}s", "exp_samples": samples})

    def spoilt(self):
        return [("DumpsIncomplete", who(labels, stream="vis")) for labels in self.of_xengines()]

    def gone(self, antenna):
        home = self.ants[antenna]
        return ("AntennaSilent", {"array": "small", "host": home["host"], "engine": home["engine"]} | self.of_voltages(antenna))

    def check(self, promtool, *told):
        """'told': (seconds, alert, [(labels, annotations)]), all alerts of this name."""
        before = {"expr": f"count_over_time(ALERTS[{T0_S}s])", "eval_time": f"{T0_S - 1}s", "exp_samples": []}
        rows = [{"series": name, "values": values_of(self.end_s - T0_S, *row)} for name, row in self.series.items()]
        notes = [{"eval_time": f"{at_s}s", "alertname": name,
                  "exp_alerts": [{"exp_labels": labels, "exp_annotations": text} for labels, text in alerts]}
                 for at_s, name, alerts in told]
        path = self.work / "made/prometheus/test.yaml"
        path.write_text(yaml.dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1s", "tests": [
            {"interval": "1s", "input_series": rows, "promql_expr_test": [before] + self.tests,
             "alert_rule_test": notes}]}, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper)))
        promtool("test", "rules", path)


def who(target, **more):
    """Labels that rules keep of a target's, and others."""
    return {key: target[key] for key in ("array", "host", "engine", "program")} | more


def text_of(labels):
    return ", ".join(f'{key}="{value}"' for key, value in labels.items())


def series_name(name, labels):
    return f"{name}{{{text_of(labels)}}}"


def values_of(n, kind, first, a, b=None):
    """In promtool's notation, 'n' of them from T0_S on."""
    if kind == "gauge":
        return f"{first}x{T0_S - 1} {a}x{n}"
    last = first + a * (T0_S - 1)
    if kind == "lost":
        return f"{first}+{a}x{T0_S - 1} stale _x{n}" if a != first else f"{first}x{T0_S - 1} stale _x{n}"
    return f"{first}+{a}x{T0_S - 1} {last + b}+{b}x{n}"


SIZES = pytest.mark.parametrize("n_ants, n_fgpu", [(4, 2), (64, 16)], ids=["4 antennas", "64 antennas"])
FOUR = pytest.mark.parametrize("n_ants, n_fgpu", [(4, 2)], ids=["4 antennas"])


@pytest.fixture
def night(work, n_ants, n_fgpu):
    return Night(work, n_ants, n_fgpu)


@FOUR
def test_clean(night, promtool):
    night.expect(END_S)
    night.tests.append({"expr": f"count_over_time(ALERTS[{END_S}s])", "eval_time": f"{END_S}s", "exp_samples": []})
    night.check(promtool)


@SIZES
def test_feed_cut(night, promtool):
    night.cut_inputs("m001", "01")
    night.silence("m001")
    home = night.ants["m001"]
    night.expect(SOON_S, ("FeedSilent", who(home, antenna="m001")), night.gone("m001"), *night.spoilt())
    night.check(promtool, (SOON_S, "FeedSilent", [(who(home, antenna="m001", severity="critical"), {
        "summary": "antenna m001: nothing reaches f0 on h0",
        "stage": "digitisers to F-engines",
        "since": "1970-01-01 00:00:32 +0000 UTC",  # without a packet since 29 s
        "where": "before the F-engine: digitiser, cable, or the switch's multicast group (IGMP); if all antennas of a host "
                 "are silent, its interface",
        "command": "ssh h0 cbf-doctor streams /etc/cbf/f0.yaml"})]))


@SIZES
def test_polarisation_cut(night, promtool):
    night.cut_inputs("m001", "1")
    night.silence("m001")
    labels = who(night.ants["m001"], antenna="m001", pol="1")
    night.expect(SOON_S, ("PolarisationSilent", labels), night.gone("m001"), *night.spoilt())
    night.check(promtool, (SOON_S, "PolarisationSilent", [(labels | {"severity": "critical"}, {
        "summary": "antenna m001 pol 1: nothing reaches f0 on h0, although the other polarisation arrives",
        "stage": "digitisers to F-engines",
        "since": "1970-01-01 00:00:32 +0000 UTC",
        "where": "before the F-engine: this polarisation's digitiser, cable, or multicast groups",
        "command": "ssh h0 cbf-doctor streams /etc/cbf/f0.yaml"})]))


@SIZES
def test_voltages_lost(night, promtool):
    lost = night.lose_voltages("m001")
    night.expect(SOON_S, *lost, *night.spoilt())
    _, home = night.gone("m001")
    night.expect(T0_S + 12, *lost, *night.spoilt(), ("AntennaLoses", home))
    night.check(promtool, (T0_S + 12, "AntennaLoses", [(home | {"severity": "critical"}, {
        "summary": "antenna m001 (F-engine 1): 1% of the voltages are missing in the X-engines; its F-engine is f0 on h0",
        "stage": "F-engines to X-engines",
        "since": "1970-01-01 00:00:35 +0000 UTC",  # half a percent of 10 s
        "where": "if FeedLoses or FEngineSkips fires for this antenna: before or in the F-engine; else "
                 "VoltagesLostOnTheWay and VoltagesLostInSocket say which X-engines lose voltages",
        "command": "ssh h0 cbf-doctor loss /etc/cbf/f0.yaml"})]))


@FOUR
def test_names_that_are_no_labels(work, promtool, n_ants, n_fgpu):
    """X-engines refuse names of digits and use their own names.  F-engines accept such names."""
    night = Night(work, n_ants, n_fgpu, name="{:03}", x_name="a{}")
    night.silence("001")
    lost = night.lose_voltages("002")
    silent = [("FEngineSilent", who(night.ants["001"], antenna="001", stream="wide")), night.gone("001")]
    _, home = night.gone("002")
    night.expect(SOON_S, *silent, *lost, *night.spoilt())
    night.expect(T0_S + 12, *silent, *lost, *night.spoilt(), ("AntennaLoses", home))
    night.check(promtool)


@FOUR
def test_packets_lost(night, promtool):
    """One packet of a hundred of one polarisation: each batch has a thousand, so none is whole."""
    home = night.ants["m001"]
    feed, stream = who(home, antenna="m001", pol="0"), who(home, antenna="m001", stream="wide")
    night.count("fgpu_input_heaps_total", feed, PACKETS, PACKETS * 0.99, first=7)
    night.count("fgpu_input_missing_heaps_total", feed, 0, PACKETS * 0.01)
    night.silence("m001")
    night.count("fgpu_output_skipped_heaps_total", stream, 0, BATCHES, first=2)
    always = [("FeedLostOnTheWay", feed), ("FEngineSkips", stream), ("FEngineSilent", stream), night.gone("m001"),
              *night.spoilt()]
    night.expect(SOON_S, *always)
    night.expect(T0_S + 12, *always, ("FeedLoses", feed))
    night.check(promtool)


@SIZES
def test_engine_killed(night, promtool):
    mine = [antenna for antenna, labels in night.ants.items() if labels["engine"] == "f1"]
    for antenna in mine:
        night.silence(antenna)
    night.kill("f1")
    carries = night.engines["f1"]["carries"]
    assert mine[0] in carries and mine[-1] in carries
    labels = who(night.engines["f1"], carries=carries)
    night.expect(SOON_S, ("EngineDown", labels), *map(night.gone, mine), *night.spoilt())
    night.check(promtool, (SOON_S, "EngineDown", [(labels | {"severity": "critical"}, {
        "summary": f"f1 on h1 ({carries}) does not answer",
        "stage": "engines",
        "since": "1970-01-01 00:00:30 +0000 UTC",
        "where": "the process or its host",
        "command": "ssh h1 systemctl status fgpu@f1"})]))


@SIZES
def test_clock(night, promtool):
    here = [labels for labels in night.engines.values() if labels["host"] == "h1"]
    for labels in here:
        night.gauge(f"{labels['program']}_clock_synchronised", who(labels), 1, 0)
    night.expect(T0_S + 29)
    night.expect(T0_S + 30, *(("ClockUnsynchronised", who(labels)) for labels in here))
    night.check(promtool)


@SIZES
def test_disk_full(night, promtool):
    night.count("visrec_dumps_total", night.recorder, 2, 0)
    night.count("visrec_unwritten_dumps_total", night.recorder, 0, 2)
    night.expect(SOON_S, ("RecorderDiskFull", night.recorder))
    night.check(promtool, (SOON_S, "RecorderDiskFull", [(night.recorder | {"severity": "critical"}, {
        "summary": "recorder on store loses dumps: its disk is full",
        "stage": "recorders",
        "since": "1970-01-01 00:00:30 +0000 UTC",
        "where": "the disk of output.file: remove or move recordings",
        "command": "ssh store cbf-doctor loss /etc/cbf/recorder.yaml"})]))


@SIZES
def test_wrong_delay(night, promtool):
    labels = who(night.ants["m001"], antenna="m001", stream="wide")
    night.gauge("fgpu_output_ahead_seconds", labels, 0, 100)
    night.gauge("fgpu_output_delay_seconds", labels, 0.01, 90)
    night.silence("m001")
    night.expect(SOON_S, ("FEngineAhead", labels), ("FEngineDelay", labels), night.gone("m001"), *night.spoilt())
    night.check(promtool, (SOON_S, "FEngineDelay", [(labels | {"severity": "critical"}, {
        "summary": "antenna m001, stream wide: its delay is 1m 30s in f0 on h0, too long for any source in the sky",
        "stage": "F-engines",
        "since": "1970-01-01 00:00:30 +0000 UTC",
        "where": "?delays, or a delay file, was wrong: correct it, then ?resume over KATCP",
        "command": "ssh h0 cbf-doctor /etc/cbf/f0.yaml"})]), (SOON_S, "FEngineAhead", [(labels | {"severity": "critical"}, {
        "summary": "antenna m001, stream wide: silent for another 1m 40s in f0 on h0, after a wrong delay",
        "stage": "F-engines",
        "since": "1970-01-01 00:00:30 +0000 UTC",
        "where": "?delays was given a delay that is too large: correct it; ?resume over KATCP, or a restart of the engine, ends the silence",
        "command": "ssh h0 systemctl restart fgpu@f0"})]))


@FOUR
def test_silent_output(night, promtool):
    """Input flows, no delay is wrong, and an output sends nothing."""
    night.silence("m001")
    night.expect(SOON_S, ("FEngineSilent", who(night.ants["m001"], antenna="m001", stream="wide")), night.gone("m001"),
                 *night.spoilt())
    night.check(promtool)


@FOUR
def test_one_port(night, promtool):
    """One X-engine does not get an antenna that the other gets."""
    (x1,) = [labels for labels in night.of_xengines() if labels["engine"] == "x1"]
    night.silence("m001", [x1])
    night.expect(SOON_S, ("VoltagesSilent", who(x1, feng="1", antenna="m001")), ("DumpsIncomplete", who(x1, stream="vis")))
    night.check(promtool)


@FOUR
def test_levels(night, promtool):
    """Loud, weak and almost silent inputs.  At the limits, and with missing samples, there is no alert."""
    levels = {"m000": (-6.9, -7), "m001": (-33.1, -33), "m002": (-60, -61), "m003": (0, -80)}
    for antenna, dbfs in levels.items():
        for pol, after in zip("01", dbfs):
            night.gauge("fgpu_input_power_dbfs", who(night.ants[antenna], antenna=antenna, pol=pol), -20, after)
    night.gauge("fgpu_input_power_valid", who(night.ants["m003"], antenna="m003"), 1, 0)
    wrong = {("m000", "0"): "FeedLevel", ("m001", "0"): "FeedLevel", ("m002", "0"): "FeedLevel", ("m002", "1"): "FeedQuiet"}
    night.expect(T0_S + 29)
    night.expect(T0_S + 30, *((name, who(night.ants[antenna], antenna=antenna, pol=pol))
                              for (antenna, pol), name in wrong.items()))
    night.check(promtool)


@FOUR
def test_beams(night, promtool):
    """Only zeros, many saturated, and most weights 0; up to the limits there is no alert."""
    x0, x1 = night.of_xengines()[:2]
    for labels, zeros, clipped, weights in ((x0, 4096, 400, 0.51), (x1, 4095, 81, 0.5)):
        night.count("xbgpu_output_b_zero_samples_total", who(labels, stream="bx"), 100, zeros)
        night.count("xbgpu_output_b_clipped_samples_total", who(labels, stream="by"), 3, clipped)
        night.gauge("xbgpu_output_b_zero_weights_ratio", who(labels, stream="by"), 0, weights)
    beam = who(x0, stream="by")
    night.expect(END_S, ("BeamZero", who(x0, stream="bx")), ("BeamClips", beam), ("BeamWeightsZero", beam))
    night.check(promtool, (END_S, "BeamZero", [(who(x0, stream="bx", severity="critical"), {
        "summary": "beam bx: x0 on h0 makes only zeros, although its input arrives",
        "stage": "X-engines",
        "since": "1970-01-01 00:00:39 +0000 UTC",  # only zeros for 10 s
        "where": "all weights are 0, the beam's gain is too low, or the voltages of its polarisation are zeros",
        "command": "ssh h0 cbf-doctor loss /etc/cbf/x0.yaml"})]))


@FOUR
def test_satellites(night, promtool):
    """None is tracked for 5 minutes though samples come; heaps are dropped or not sent.  One that is not seen is no trouble."""
    one = {antenna: who(home, antenna=antenna, stream="l1") for antenna, home in night.ants.items()}
    for antenna in ("m001", "m003"):
        night.gauge("fgpu_gnss_stage", one[antenna] | {"satellite": "L1CA-7"}, 3, 2)
    night.count("fgpu_gnss_samples_total", one["m003"], 4000000, 0, first=3)
    night.count("fgpu_gnss_dropped_heaps_total", one["m000"], 0, 1, first=3)
    night.count("fgpu_gnss_failed_packets_total", one["m002"], 0, 1, first=3)
    soon = [("FEngineBehind", who(night.ants["m000"])), ("FEngineSendFails", who(night.ants["m002"]))]
    night.end_s = T0_S + 310
    night.expect(SOON_S, *soon)
    night.expect(T0_S + 299, *soon)
    night.expect(T0_S + 301, *soon, ("NoSatelliteTracked", one["m001"]))
    night.check(promtool, (T0_S + 301, "NoSatelliteTracked", [(one["m001"] | {"severity": "warning"}, {
        "summary": "antenna m001, stream l1: f0 on h0 has tracked no satellite for 5 minutes, although its input arrives",
        "stage": "F-engines",
        "since": "1970-01-01 00:00:30 +0000 UTC",
        "where": "the antenna sees none of the satellites in 'satellites', or the band is wrong: centre_frequency, "
                 "sky_frequency, inverted",
        "command": "ssh h0 cbf-doctor streams /etc/cbf/f0.yaml"})]))


@FOUR
def test_detected_beams(night, promtool):
    """The same of detected beams; up to the limits there is no alert."""
    x0, x1 = night.of_xengines()[:2]
    for labels, zeros, clipped, weights in ((x0, 1, 0.011, 0.51), (x1, 0.99, 0.01, 0.5)):
        night.gauge("xbgpu_output_b_zero_powers_ratio", who(labels, stream="powers.0"), 0, zeros)
        night.gauge("xbgpu_output_b_clipped_ratio", who(labels, stream="powers.1"), 0, clipped)
        night.gauge("xbgpu_output_b_zero_weights_ratio", who(labels, stream="powers.1"), 0, weights)
    beam = who(x0, stream="powers.1")
    night.expect(END_S, ("BeamZero", who(x0, stream="powers.0")), ("BeamClips", beam), ("BeamWeightsZero", beam))
    night.check(promtool)


@FOUR
@pytest.mark.parametrize("program, written, prefix", [("visrec", "dumps", ""), ("beamrec", "batches", "Beam")])
def test_recorders(night, promtool, program, written, prefix):
    """Recorders, each of which is in another kind of trouble."""
    troubles = {  # recorder: what grows from T0_S on, whether dumps still do, and the alert
        "waits": ({'visrec_rejected_packets_total{reason="no_items"}': 5}, 0, None),
        "slow": ({'visrec_rejected_packets_total{reason="no_chunk"}': 5}, 2, "RecorderSlow"),
        "misled": ({'visrec_rejected_packets_total{reason="jump"}': 5}, 0, "RecorderRefuses"),
        "other": ({'visrec_rejected_packets_total{reason="heap_size"}': 5}, 0, "RecorderRefuses"),
        "mixed": ({'visrec_rejected_packets_total{reason="jump"}': 5}, 2, None),  # and records all the same
        "again": ({"visrec_rollovers_total{}": 1}, 2, "RecorderNewFile"),
        "deaf": ({'visrec_kernel_drops{thread="recv0"}': 5}, 2, "RecorderLostInSocket"),
        "gaps": ({"visrec_missing_heaps_total{}": 5}, 2, "RecorderMisses"),
        "two": ({"visrec_contested_heaps_total{}": 5}, 2, "RecorderContested"),
    }
    alerts = []
    for engine, (growing, dumps, name) in troubles.items():
        labels = night.recorder | {"engine": engine, "program": program}
        night.gauge("up", labels, 1)
        night.count(f"{program}_{written}_total", labels, 0, dumps)
        for metric, per_s in growing.items():
            metric, more = re.fullmatch(r'(\w+)\{(.*)}', metric).groups()
            night.count(metric.replace("visrec", program), labels | dict(re.findall(r'(\w+)="(\w+)"', more)), 0, per_s)
        if name and (program == "visrec" or engine != "again"):
            alerts.append((prefix + name, labels))
    labels = night.recorder | {"engine": "adrift", "program": program}
    night.gauge(f"{program}_clock_synchronised", labels, 1, 0)
    night.expect(T0_S + 30, *alerts, (f"{prefix}RecorderClockUnsynchronised", labels))
    night.check(promtool)


CUT_S = 11  # the first scrape after the cut, in the recordings
LOST_S = 6  # the first scrape after the first lost dump


def check_recorded(work, promtool, recording, expected):
    """Evaluates the rules of tests/netns/three_hosts.yaml on scrapes of one a second. 'expected': (seconds, a selector
    of alerts, the alerts that fire then, as (name, labels))."""
    test_array.generate(harness.ROOT / "tests/netns/three_hosts.yaml", work / "made")
    lines = (harness.ROOT / f"tests/scripts/recorded/{recording}.txt").read_text().splitlines()
    rows = [dict(zip(("series", "values"), re.fullmatch(r"(\w+\{.*}) (.*)", line).groups())) for line in lines]
    path = work / "made/prometheus/test.yaml"
    path.write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1s", "tests": [
        {"interval": "1s", "input_series": rows, "promql_expr_test": [
            {"expr": f'max without (severity, alertstate) (ALERTS{{alertstate="firing"{which}}})', "eval_time": f"{at_s}s",
             "exp_samples": [{"labels": "{" + text_of({"alertname": alert} | who) + "}", "value": 1} for alert, who in alerts]}
            for at_s, which, alerts in expected]}]}))
    promtool("test", "rules", path)


@pytest.mark.parametrize("recording, name, labels", [("polarisation_cut", "PolarisationSilent", {"pol": "1"}),
                                                     ("feed_cut", "FeedSilent", {})])
def test_recorded(work, promtool, recording, name, labels):
    """Prometheus' scrapes of tests/netns/three_hosts.yaml after m001 lost one or both polarisations.

    The chunks are long, and the F-engine closes its window 2 s after the last packet."""
    host, x0, x1 = ({"array": "three", "host": host, "engine": engine, "program": program} for host, engine, program in
                    (("h1", "f0", "fgpu"), ("h1", "x0", "xbgpu"), ("h3", "x1", "xbgpu")))
    named = host | {"antenna": "m001"} | labels
    gone = {"array": "three", "antenna": "m001", "feng": "1", "host": "h1", "engine": "f0"}
    lost = [("FeedLostOnTheWay", host | {"antenna": "m001", "pol": pol}) for pol in labels.get("pol", "01")]
    check_recorded(work, promtool, recording, [
        (CUT_S - 1, "", []), (CUT_S + 5, ', alertname="FeedLostOnTheWay"', lost),
        (CUT_S + 6, f', alertname="{name}"', [(name, named)]),
        (CUT_S + 8, ', severity="critical"', [(name, named), ("AntennaSilent", gone)]),
        (CUT_S + 8, ', alertname="DumpsIncomplete"', [("DumpsIncomplete", x | {"stream": "vis"}) for x in (x0, x1)])])


def test_recorded_full_disk(work, promtool):
    """visrec's metrics in tests/system/test_night.py::test_full_disk."""
    full = [("RecorderDiskFull", {"array": "three", "host": "store", "engine": "r0", "program": "visrec"})]
    check_recorded(work, promtool, "disk_full", [(LOST_S - 1, "", []), (LOST_S + 3, "", full)])


# ---- Dashboards ------------------------------------------------------------------------------------------------------

UNITS = {"none", "percentunit", "bps", "pps", "cps", "s", "suffix: dBFS", "suffix: dB-Hz"}  # as Grafana names them
OF_TARGET = {"array", "host", "engine", "program", "job", "instance"}
OF_ALERT = {"alertname", "alertstate", "severity"}


@pytest.fixture(scope="module")
def boards(tmp_path_factory):
    made, _ = test_array.generate(test_array.EXAMPLE, tmp_path_factory.mktemp("boards") / "made")
    return {name: board for name, board in made.items() if name.startswith("grafana/")}


def panels_of(boards, kind=None):
    return [panel for board in boards.values() for panel in board["panels"] if kind in (None, panel["type"])]


def test_panels_ask_for_what_there_is(boards):
    """Each metric exists, and has the labels by which a panel or its legend asks for it."""
    labels = reference_labels() | {"up": set(), "ALERTS": OF_ALERT}
    for panel in panels_of(boards):
        for target in panel["targets"]:
            asked = set(re.findall(r"(\w+)\{", target["expr"]))
            assert asked and asked <= set(labels), panel["title"]
            known = OF_TARGET.union(*(labels[metric] for metric in asked))
            wanted = {label for group in re.findall(r"(?:by|without) \(([^)]*)\)", target["expr"]) for label in group.split(", ")}
            assert wanted | set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= known, panel["title"]
            for metric, select in re.findall(r"(\w+)\{([^}]*)}", target["expr"]):
                assert select.startswith('array="example", host=~"$host"')
                assert ('antenna=~"$antenna"' in select) == ("antenna" in labels[metric] and '"$engine"' in select), metric
    for board in boards.values():
        variables = {variable["name"] for variable in board["templating"]["list"]}
        used = set(re.findall(r"\$(\w+)", " ".join(t["expr"] for panel in board["panels"] for t in panel["targets"])))
        assert used - {"__rate_interval"} == variables - {"source"}


def test_panels_explain_themselves(boards):
    """Each has a description and a unit; limits colour each single number, and states have names."""
    assert {panel["type"] for panel in panels_of(boards)} == {"stat", "state-timeline", "table", "heatmap", "timeseries"}
    assert len({board["uid"] for board in boards.values()}) == 3
    for panel in panels_of(boards):
        defaults = panel["fieldConfig"]["defaults"]
        assert len(panel["description"]) > 20 and panel["description"].endswith("."), panel["title"]
        assert defaults["unit"] in UNITS, panel["title"]
        values = [step["value"] for step in defaults["thresholds"]["steps"]]
        assert values[0] is None and values[1:] == sorted(values[1:]), panel["title"]
        bits = all(re.match(r"8 \* sum", target["expr"]) for target in panel["targets"])
        assert bits == (defaults["unit"] == "bps") == any("_bytes_total" in t["expr"] for t in panel["targets"]), panel["title"]
    for panel in panels_of(boards, "stat"):
        steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        assert len(steps) > 1 or steps[0]["color"] == "blue", panel["title"]  # a rate is neither good nor bad
    for panel in panels_of(boards, "state-timeline"):
        assert panel["fieldConfig"]["defaults"]["mappings"][0]["options"], panel["title"]
    for panel in panels_of(boards, "timeseries"):
        lost = {"color": "red", "value": 1e-9} in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        style = panel["fieldConfig"]["defaults"]["custom"]["thresholdsStyle"]["mode"]
        assert style == "line" or not lost, panel["title"]
        assert not any(re.search(r"\b(up|ALERTS)\{", target["expr"]) for target in panel["targets"])
    states = {name: option["text"] for panel in panels_of(boards, "state-timeline") if "xbgpu_feng_state" in
              panel["targets"][0]["expr"] for name, option in panel["fieldConfig"]["defaults"]["mappings"][0]["options"].items()}
    listed = re.search(r"stream: (0 dead[^.]*)\.", (harness.ROOT / "docs/reference/xbgpu.txt").read_text())[1]
    assert states == dict(re.findall(r"(\d)\s+(\w+)", listed))


def test_tables(boards):
    """Each column with its own unit belongs to a query."""
    for panel in panels_of(boards, "table"):
        (organize,) = [step["options"] for step in panel["transformations"] if step["id"] == "organize"]
        columns = {override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]}
        assert columns <= set(organize["renameByName"].values()), panel["title"]
        assert set(organize["renameByName"]) == {f"Value #{target['refId']}" for target in panel["targets"]}
        assert all(target["instant"] and target["format"] == "table" for target in panel["targets"])
    antennas = [panel for panel in panels_of(boards, "table") if panel["title"] == "Antennas"]
    assert len(antennas) == 3
    assert all("by (antenna)" in target["expr"] for panel in antennas for target in panel["targets"])


def test_layout(boards):
    """No two panels share a cell, and none sticks out."""
    for board in boards.values():
        cells = [(x, y) for panel in board["panels"] for at in [panel["gridPos"]]
                 for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])]
        assert len(set(cells)) == len(cells) and max(x for x, _ in cells) < 24
        assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
