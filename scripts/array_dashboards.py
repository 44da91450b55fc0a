"""Grafana dashboards of an array, as JSON to import: an overview, its F-engines, its X-engines.

A dashboard is a list of panels.  The panels fill the rows of a grid from left to right.
"""
import json
import re
from dataclasses import dataclass, field

N_COLUMNS = 24
GREEN, AMBER, RED, BLUE = "green", "orange", "red", "blue"
SIZES = {"stat": (4, 4), "state-timeline": (12, 8), "table": (24, 9), "heatmap": (12, 8), "timeseries": (12, 8)}
OF_ANTENNA = r"\b(xbgpu_feng_\w+|fgpu_(?:input_(?!kernel)|output|gnss|late|unmatched)\w+)\{SEL"  # by antenna
SOURCE = {"type": "prometheus", "uid": "${source}"}


@dataclass
class Panel:
    kind: str
    title: str
    unit: str
    description: str
    queries: dict  # {legend or table column: PromQL}; SEL stands for the labels that the dashboard's user chooses
    steps: tuple = ()  # (value, colour of this and higher values); the first colour also serves lower values
    states: dict = field(default_factory=dict)  # {value: (text, colour)}
    # only for tables: {column: (unit, steps, states)}; all other columns use the panel's unit, steps and states
    columns: dict = field(default_factory=dict)


# ---- Limits and states, each once ------------------------------------------------------------------------------------

NONE_IS_GOOD = ((None, GREEN), (1, RED))
ANY_LOSS = ((None, GREEN), (1e-9, AMBER), (0.005, RED))  # the limits of the alerts FeedLoses and AntennaLoses
RATE_LOST = ((None, GREEN), (1e-9, RED))
POWER = ((None, RED), (-33, AMBER), (-30, GREEN), (-10, AMBER), (-7, RED))  # the limits of the alert FeedLevel
CLIPPED = ((None, GREEN), (1e-4, AMBER), (1e-3, RED))  # the limits of the alert FeedClips
BEAM_ZEROS = ((None, GREEN), (1, RED))  # the limits of the alert BeamZero
BEAM_CLIPPED = ((None, GREEN), (0.01, RED))  # the limits of the alert BeamClips
BEAM_WEIGHTS = ((None, GREEN), (0.5, AMBER))  # the limits of the alert BeamWeightsZero
FLOW = ((None, BLUE),)
ALL = ((None, RED), (1, GREEN))
ANSWERS = {0: ("no answer", RED), 1: ("answers", GREEN)}
CLOCK = {0: ("not synchronised", RED), 1: ("synchronised", GREEN)}
DEVICE = {0: ("was wrong", RED), 1: ("good", GREEN)}
FLOWING = {0: ("silent", RED), 1: ("flows", GREEN)}
FENG = {0: ("dead", RED), 1: ("silent", RED), 2: ("losing", AMBER), 3: ("receiving", GREEN)}
DBFS, DBHZ, GBPS, PER_S = "suffix: dBFS", "suffix: dB-Hz", "bps", "cps"


def share(missing, received, by):
    """PromQL for the fraction of missing heaps."""
    lost, came = (f"sum by ({by}) (rate({name}{{SEL}}[RANGE]))" for name in (missing, received))
    return f"{lost} / ({lost} + {came})"


def rate(metric, more=""):
    return f"rate({metric}{{SEL{more}}}[RANGE])"


def gbps(metric, by=""):
    return f"8 * sum{f' by ({by})' if by else ''} ({rate(metric)})"


def dumps(*fates):
    return " + ".join(rate(f"xbgpu_output_x_{fate}_accs_total") for fate in fates)


FEED_LOSS = ("fgpu_input_missing_heaps_total", "fgpu_input_heaps_total")
FENG_LOSS = ("xbgpu_feng_missing_heaps_total", "xbgpu_feng_heaps_total")
CLIPPED_SHARE = f"{rate('fgpu_input_clipped_samples_total')} / (PACKET_SAMPLES * {rate('fgpu_input_heaps_total')})"
NOT_SENT = f"{rate('fgpu_output_skipped_heaps_total')} + {rate('fgpu_output_dropped_heaps_total')}"
ANTENNA_STATE = "min by (antenna) (xbgpu_feng_state{SEL})"
FEED_COLUMNS = {
    **{f"Power pol {pol}": f'max by (antenna) (fgpu_input_power_dbfs{{SEL, pol="{pol}"}})' for pol in "01"},
    **{f"Packets lost pol {pol}": share(*FEED_LOSS, "antenna").replace("SEL", f'SEL, pol="{pol}"') for pol in "01"},
}
FEED_CELLS = {name: ((DBFS, POWER, {}) if name.startswith("Power") else ("percentunit", ANY_LOSS, {}))
              for name in FEED_COLUMNS}
FENG_COLUMNS = {"Voltages lost": share(*FENG_LOSS, "antenna"), "State": ANTENNA_STATE}
FENG_CELLS = {"Voltages lost": ("percentunit", ANY_LOSS, {}), "State": ("none", (), FENG)}


# ---- Panels ----------------------------------------------------------------------------------------------------------

OVERVIEW = [
    Panel("stat", "Engines that do not answer", "none",
          "Targets of Prometheus whose last scrape failed. The alert EngineDown names each target.",
          {"": "count(up{SEL} == 0) or vector(0)"}, NONE_IS_GOOD),
    Panel("stat", "Critical alerts", "none",
          "Firing alerts for faults that lose data now. The table below names each alert.",
          {"": 'count(ALERTS{SEL, alertstate="firing", severity="critical"}) or vector(0)'}, NONE_IS_GOOD),
    Panel("stat", "Warnings", "none",
          "Alerts that fire with the severity warning.",
          {"": 'count(ALERTS{SEL, alertstate="firing", severity="warning"}) or vector(0)'},
          ((None, GREEN), (1, AMBER))),
    Panel("stat", "Antennas that are not received", "none",
          "Antennas of which at least one X-engine receives no heaps, or not all heaps.",
          {"": f"count({ANTENNA_STATE} < 3) or vector(0)"}, NONE_IS_GOOD),
    Panel("stat", "Packets lost in an hour", "percentunit",
          "Share of the digitiser packets that did not reach an F-engine in the last hour.",
          {"": share(*FEED_LOSS, "array").replace("RANGE", "1h")}, ANY_LOSS),
    Panel("stat", "Voltages lost in an hour", "percentunit",
          "Share of the heaps of voltages that did not reach an X-engine in the last hour.",
          {"": share(*FENG_LOSS, "array").replace("RANGE", "1h")}, ANY_LOSS),
    Panel("state-timeline", "Engines", "none",
          "Whether each engine answered Prometheus. Red: the process or its host is down.",
          {"{{engine}} {{host}}": "max by (engine, host) (up{SEL})"}, states=ANSWERS),
    Panel("state-timeline", "Clocks of the hosts", "none",
          "Whether each host's kernel reports a synchronised clock. The clock determines the upper bits of timestamps. "
          "Run chronyc tracking on a host that is red.",
          {"{{host}}": "min by (host) (fgpu_clock_synchronised{SEL} or xbgpu_clock_synchronised{SEL} or "
                       "visrec_clock_synchronised{SEL})"}, states=CLOCK),
    Panel("table", "Alerts", "none",
          "All alerts that fire. In Prometheus each alert has a command to run (docs/array.md).",
          {"Alert": 'max without (alertstate, instance, job) (ALERTS{SEL, alertstate="firing"})'}),
    Panel("table", "Antennas", "none",
          "One row for each antenna: input power, losses before the F-engine and before the X-engines, and the worst "
          "state of the antenna in any X-engine. Good power is -30 to -10 dBFS.",
          FEED_COLUMNS | FENG_COLUMNS, columns=FEED_CELLS | FENG_CELLS),
    Panel("timeseries", "Digitisers to F-engines", GBPS,
          "Payload that F-engines received, by host.",
          {"{{host}}": gbps("fgpu_input_bytes_total", "host")}),
    Panel("timeseries", "F-engines out", GBPS,
          "Payload of voltages that F-engines sent, by host.",
          {"{{host}}": gbps("fgpu_output_bytes_total", "host")}),
    Panel("timeseries", "F-engines to X-engines", GBPS,
          "Payload of voltages that X-engines received, by host.",
          {"{{host}}": gbps("xbgpu_input_bytes_total", "host")}),
    Panel("timeseries", "Visibilities out", GBPS,
          "Payload of visibilities that X-engines sent, by host.",
          {"{{host}}": gbps("xbgpu_output_x_bytes_total", "host")}),
    # The loss locator: six panels, in the order of the data, that show where heaps stop.
    Panel("timeseries", "1 Missing before F-engines", "pps",
          "Digitiser packets that F-engines expected and did not get. The first of these six panels that is not "
          "zero shows where heaps stop.",
          {"{{engine}} {{antenna}} {{pol}}": rate(FEED_LOSS[0])}, RATE_LOST),
    Panel("timeseries", "2 Dropped in F-engines' sockets", "pps",
          "Packets that the kernel dropped because a receive thread was late.",
          {"{{engine}} {{thread}}": rate("fgpu_input_kernel_drops")}, RATE_LOST),
    Panel("timeseries", "3 Not sent by F-engines", PER_S,
          "Heaps left out because input was missing, or because no output buffer was free.",
          {"{{engine}} {{antenna}} {{stream}}": NOT_SENT}, RATE_LOST),
    Panel("timeseries", "4 Missing before X-engines", PER_S,
          "Heaps of each antenna that X-engines expected and did not get.",
          {"{{engine}} {{antenna}}": rate(FENG_LOSS[0]) + " > 0"}, RATE_LOST),
    Panel("timeseries", "5 Dropped in X-engines' sockets", "pps",
          "Packets that the kernel dropped because a receive thread was late.",
          {"{{engine}} {{thread}}": rate("xbgpu_input_kernel_drops")}, RATE_LOST),
    Panel("timeseries", "6 Dumps incomplete or not sent", PER_S,
          "Dumps with flagged baselines, without any heap, or without an output buffer.",
          {"{{engine}} {{stream}}": dumps("incomplete", "absent", "dropped")}, RATE_LOST),
]
F_ENGINES = [
    Panel("stat", "Inputs that flow", "percentunit",
          "Share of the inputs (antennas and polarisations) from which packets arrive.",
          {"": f"avg({rate('fgpu_input_heaps_total')} > bool 0)"}, ALL),
    Panel("stat", "Outputs that flow", "percentunit",
          "Share of all outputs that send heaps.",
          {"": f"avg({rate('fgpu_output_heaps_total')} > bool 0)"}, ALL),
    Panel("stat", "Lowest input power", DBFS,
          "Power of the weakest input. Good power is -30 to -10 dBFS. A full-scale sine has 0 dBFS.",
          {"": "min(fgpu_input_power_dbfs{SEL})"}, POWER),
    Panel("stat", "Highest input power", DBFS,
          "Power of the strongest input. Good power is -30 to -10 dBFS. A full-scale sine has 0 dBFS.",
          {"": "max(fgpu_input_power_dbfs{SEL})"}, POWER),
    Panel("stat", "Most saturated", "percentunit",
          "The input with the largest share of saturated samples, as its digitiser reports them.",
          {"": f"max({CLIPPED_SHARE})"}, CLIPPED),
    Panel("stat", "Worst loss of an input", "percentunit",
          "The input with the largest share of missing packets.",
          {"": f"max({share(*FEED_LOSS, 'antenna, pol')})"}, ANY_LOSS),
    Panel("state-timeline", "Inputs", "none",
          "Whether packets of each polarisation arrive. If not, check digitiser, cable and multicast group.",
          {"{{antenna}} {{pol}}": f"max by (antenna, pol) ({rate('fgpu_input_heaps_total')} > bool 0)"},
          states=FLOWING),
    Panel("state-timeline", "Outputs", "none",
          "Whether each antenna's streams are sent. If a stream is silent while the inputs flow, input is missing in "
          "every batch, or a delay is wrong.",
          {"{{antenna}} {{stream}}": f"max by (antenna, stream) ({rate('fgpu_output_heaps_total')} > bool 0)"},
          states=FLOWING),
    Panel("table", "Antennas", "none",
          "One row for each antenna: power, lost packets, heaps not sent because input was missing, and latency.",
          {**FEED_COLUMNS, "Not sent": f"sum by (antenna) ({rate('fgpu_output_skipped_heaps_total')})",
           "Latency": "max by (antenna) (fgpu_output_latency_seconds{SEL})"},
          columns={**FEED_CELLS, "Not sent": (PER_S, RATE_LOST, {}), "Latency": ("s", (), {})}),
    Panel("heatmap", "Power of the inputs", DBFS,
          "Power of every input over time. Each input has a row. If one row differs, check the input's receiver and "
          "cable.",
          {"{{antenna}} {{pol}}": "max by (antenna, pol) (fgpu_input_power_dbfs{SEL})"}),
    Panel("heatmap", "Packets lost", "percentunit",
          "Share of missing packets over time. Each input has a row. Loss in all rows at one time is a fault of a "
          "switch or a host. Loss in one row is a fault of a digitiser or a cable.",
          {"{{antenna}} {{pol}}": share(*FEED_LOSS, "antenna, pol")}),
    Panel("timeseries", "Power", DBFS,
          "Mean power of the samples over about a second. The alert FeedLevel fires outside -33 to -7 dBFS.",
          {"{{antenna}} {{pol}}": "fgpu_input_power_dbfs{SEL}"}, POWER),
    Panel("timeseries", "Saturated samples", "percentunit",
          "Share of the samples that the digitisers report as saturated.",
          {"{{antenna}} {{pol}}": CLIPPED_SHARE}, CLIPPED),
    Panel("timeseries", "Packets received", "pps",
          "Packets of each input. All inputs of an array have the same rate.",
          {"{{antenna}} {{pol}}": rate("fgpu_input_heaps_total")}),
    Panel("timeseries", "Packets missing", "pps",
          "Packets of each input that were expected and did not come.",
          {"{{antenna}} {{pol}}": rate(FEED_LOSS[0])}, RATE_LOST),
    Panel("timeseries", "Packets refused", "pps",
          "Packets that arrived but were refused, by reason (docs/loss.md).",
          {"{{engine}} {{reason}}": f"sum by (engine, reason) ({rate('fgpu_input_rejected_packets_total')}) > 0"},
          RATE_LOST),
    Panel("timeseries", "Packets too late", "pps",
          "Packets that arrived after their chunk was closed. recv.window sets how long a chunk is open.",
          {"{{antenna}} {{pol}}": rate("fgpu_input_too_old_heaps_total")}, RATE_LOST),
    Panel("timeseries", "Chunks discarded", PER_S,
          "Chunks whose counterpart of the other polarisation is missing, and chunks that came after later chunks.",
          {"{{antenna}}": f"{rate('fgpu_unmatched_chunks_total')} + {rate('fgpu_late_chunks_total')}"}, RATE_LOST),
    Panel("timeseries", "Heaps sent", PER_S,
          "Heaps of voltages that were sent, by antenna and stream.",
          {"{{antenna}} {{stream}}": rate("fgpu_output_heaps_total")}),
    Panel("timeseries", "Heaps not sent", PER_S,
          "Heaps left out because input was missing, or because no output buffer was free.",
          {"{{antenna}} {{stream}}": NOT_SENT}, RATE_LOST),
    Panel("timeseries", "Packets that could not be sent", "pps",
          "Packets that the kernel or the network card refused to send.",
          {"{{antenna}} {{stream}}": rate("fgpu_output_failed_packets_total")}, RATE_LOST),
    Panel("timeseries", "Saturated voltages", PER_S,
          "Complex samples that saturated in the output. Lower the gain if there are many.",
          {"{{antenna}} {{stream}} {{pol}}": rate("fgpu_output_clipped_samples_total")}),
    Panel("timeseries", "Latency", "s",
          "Time from receiving a window's last packet to sending the window's first packet.",
          {"{{antenna}} {{stream}}": "fgpu_output_latency_seconds{SEL}"}),
    Panel("timeseries", "Satellites tracked", "none",
          "Number of satellites whose code and carrier are tracked. The alert NoSatelliteTracked fires after 5 minutes "
          "without a tracked satellite.",
          {"{{antenna}} {{stream}}": "sum by (antenna, stream) (fgpu_gnss_stage{SEL} == bool 3)"}),
    Panel("timeseries", "Satellites: C/N0", DBHZ,
          "C/N0 of each tracked satellite in each polarisation. Below 25 dB-Hz the code is lost.",
          {"{{antenna}} {{satellite}} {{pol}}": "fgpu_gnss_cn0_db_hz{SEL} > 0"}),
    Panel("timeseries", "Satellites: heaps dropped", PER_S,
          "Heaps of correlation sums (of satellites) that were not made because no output buffer was free.",
          {"{{antenna}} {{stream}}": rate("fgpu_gnss_dropped_heaps_total")}, RATE_LOST),
]
X_ENGINES = [
    Panel("stat", "Antennas that are not received", "none",
          "Antennas of which at least one X-engine receives no heaps, or not all heaps.",
          {"": f"count({ANTENNA_STATE} < 3) or vector(0)"}, NONE_IS_GOOD),
    Panel("stat", "Worst loss of an antenna", "percentunit",
          "The antenna with the largest share of missing heaps.",
          {"": f"max({share(*FENG_LOSS, 'antenna')})"}, ANY_LOSS),
    Panel("stat", "Devices", "none",
          "Good if all checksums and audited sums have agreed. Otherwise take the GPU out of service.",
          {"": "min(xbgpu_device_ok{SEL})"}, ALL, DEVICE),
    Panel("stat", "Incomplete dumps", "percentunit",
          "Share of the dumps that lack baselines.",
          {"": f"sum({rate('xbgpu_output_x_incomplete_accs_total')}) / sum({rate('xbgpu_output_x_heaps_total')})"},
          ANY_LOSS),
    Panel("stat", "Voltages received", GBPS,
          "Payload of voltages that these X-engines receive.",
          {"": gbps("xbgpu_input_bytes_total")}, FLOW),
    Panel("stat", "Visibilities sent", GBPS,
          "Payload of visibilities that these X-engines send.",
          {"": gbps("xbgpu_output_x_bytes_total")}, FLOW),
    Panel("state-timeline", "F-engines, as X-engines receive them", "none",
          "The worst state of each antenna in the chosen X-engines. Dead: no data since the start. Silent: data "
          "came before. Losing: heaps were missing in the last seconds.",
          {"{{antenna}}": ANTENNA_STATE}, states=FENG),
    Panel("state-timeline", "Devices", "none",
          "Whether all checksums and audited sums of each engine have agreed since its start.",
          {"{{engine}} {{host}}": "min by (engine, host) (xbgpu_device_ok{SEL})"}, states=DEVICE),
    Panel("table", "Antennas", "none",
          "One row for each antenna: state, share of lost heaps, and heaps received, late and refused in all chosen "
          "X-engines.",
          {**FENG_COLUMNS, **{name: f"sum by (antenna) ({rate(metric)})" for name, metric in (
              ("Received", FENG_LOSS[1]), ("Missing", FENG_LOSS[0]), ("Late", "xbgpu_feng_late_heaps_total"),
              ("Refused", "xbgpu_feng_refused_heaps_total"))}},
          columns={**FENG_CELLS, "Received": (PER_S, (), {}),
                   **{name: (PER_S, RATE_LOST, {}) for name in ("Missing", "Late", "Refused")}}),
    Panel("heatmap", "Voltages lost", "percentunit",
          "Share of missing heaps over time. Each antenna has a row. Loss in all rows at one time is a fault of an "
          "X-engine or a switch. Loss in one row is a fault of an F-engine.",
          {"{{antenna}}": share(*FENG_LOSS, "antenna")}),
    Panel("timeseries", "Heaps received", PER_S,
          "Heaps of voltages, by X-engine and antenna.",
          {"{{engine}} {{antenna}}": rate("xbgpu_feng_heaps_total")}),
    Panel("timeseries", "Heaps missing", PER_S,
          "Heaps that were expected and did not come, by X-engine and antenna.",
          {"{{engine}} {{antenna}}": rate(FENG_LOSS[0]) + " > 0"}, RATE_LOST),
    Panel("timeseries", "Heaps late or refused", PER_S,
          "Heaps that arrived too late or were refused. These heaps also count as missing.",
          {"{{engine}} {{antenna}}": f"{rate('xbgpu_feng_late_heaps_total')} + "
                                      f"{rate('xbgpu_feng_refused_heaps_total')} > 0"}, RATE_LOST),
    Panel("timeseries", "Heaps received in part", PER_S,
          "Missing heaps for which some packets arrived. The cause is the loss of single packets.",
          {"{{engine}} {{fengs}}": rate("xbgpu_input_incomplete_heaps_total")}, RATE_LOST),
    Panel("timeseries", "Packets refused", "pps",
          "Packets that arrived but were refused, by reason (docs/loss.md).",
          {"{{engine}} {{reason}}": f"sum by (engine, reason) ({rate('xbgpu_input_rejected_packets_total')}) > 0"},
          RATE_LOST),
    Panel("timeseries", "Chunks discarded", PER_S,
          "Chunks that were complete only after later chunks had been processed.",
          {"{{engine}}": rate("xbgpu_late_chunks_total")}, RATE_LOST),
    Panel("timeseries", "Dumps sent", PER_S,
          "Dumps that were sent, by X-engine and stream.",
          {"{{engine}} {{stream}}": rate("xbgpu_output_x_heaps_total")}),
    Panel("timeseries", "Dumps incomplete", PER_S,
          "Dumps with flagged baselines.",
          {"{{engine}} {{stream}}": rate("xbgpu_output_x_incomplete_accs_total")}, RATE_LOST),
    Panel("timeseries", "Dumps skipped, absent or dropped", PER_S,
          "Dumps that were not sent: no complete baseline, no heap, or no free output buffer.",
          {"{{engine}} {{stream}}": dumps("skipped", "absent", "dropped")}, RATE_LOST),
    Panel("timeseries", "Saturated visibilities", "percentunit",
          "Share of the visibilities that saturated. If any do, the F-engines' gain is too high.",
          {"{{engine}} {{stream}}": f"{rate('xbgpu_output_x_clipped_visibilities_total')} / "
                                     f"{rate('xbgpu_output_x_visibilities_total')}"}, RATE_LOST),
    Panel("timeseries", "Packets that could not be sent", "pps",
          "Packets that the kernel or the network card refused to send.",
          {"{{engine}} {{stream}}": rate("xbgpu_output_x_failed_packets_total")}, RATE_LOST),
    Panel("timeseries", "Wrong sums", PER_S,
          "Audited products whose sums disagree, and dumps flagged because of checksums.",
          {"audit {{engine}} {{stream}}": rate("xbgpu_audit_failures_total"),
           "dumps {{engine}} {{stream}}": rate("xbgpu_output_x_wrong_accs_total")}, RATE_LOST),
    Panel("timeseries", "Latency", "s",
          "Time from receiving a dump's last packet to sending the dump's first packet.",
          {"{{engine}} {{stream}}": "xbgpu_output_x_latency_seconds{SEL}"}),
    Panel("timeseries", "Beams: rms", "none",
          "Root mean square of the real and imaginary parts of each beam's samples. Full scale is 127.",
          {"{{engine}} {{stream}}": "xbgpu_output_b_rms{SEL}"}),
    Panel("timeseries", "Detected beams: power", "none",
          "Mean power of each detected beam's samples. Unit: the square of a voltage beam's quantisation step.",
          {"{{engine}} {{stream}} {{product}}": "xbgpu_output_b_power{SEL}"}),
    Panel("timeseries", "Beams: zeros", "percentunit",
          "Share of zeros in each beam's measured samples. All samples are 0 if weights, gain or voltages are 0.",
          {"{{engine}} {{stream}}": f"{rate('xbgpu_output_b_zero_samples_total')} / "
                                     f"{rate('xbgpu_output_b_measured_samples_total')}",
           "powers {{engine}} {{stream}}": "xbgpu_output_b_zero_powers_ratio{SEL}"}, BEAM_ZEROS),
    Panel("timeseries", "Beams: saturated", "percentunit",
          "Share of each beam's samples that saturated.",
          {"{{engine}} {{stream}}": f"{rate('xbgpu_output_b_clipped_samples_total')} / "
                                     f"{rate('xbgpu_output_b_samples_total')}",
           "powers {{engine}} {{stream}}": "xbgpu_output_b_clipped_ratio{SEL}"}, BEAM_CLIPPED),
    Panel("timeseries", "Beams: antennas", "none",
          "Number of antennas whose heaps arrived, for each beam.",
          {"{{engine}} {{stream}}": "xbgpu_output_b_antennas{SEL}"}),
    Panel("timeseries", "Detected beams: input received", "percentunit",
          "Share of the antennas' spectra that arrived, for each stream of detected beams.",
          {"{{engine}} {{stream}}": "xbgpu_output_b_present_ratio{SEL}"}),
    Panel("timeseries", "Beams: weights of 0", "percentunit",
          "Share of the antennas whose weight in a beam is 0.",
          {"{{engine}} {{stream}}": "xbgpu_output_b_zero_weights_ratio{SEL}"}, BEAM_WEIGHTS),
]
DASHBOARDS = {"overview": ("overview", OVERVIEW, None, None),
              "f-engines": ("F-engines", F_ENGINES, "fgpu", "fgpu_input_heaps_total"),
              "x-engines": ("X-engines", X_ENGINES, "xbgpu", "xbgpu_feng_state")}


# ---- JSON ------------------------------------------------------------------------------------------------------------


def thresholds(steps):
    return {"mode": "absolute",
            "steps": [{"value": value, "color": colour} for value, colour in steps or ((None, GREEN),)]}


def mappings(states):
    return [{"type": "value", "options": {str(value): {"text": text, "color": colour, "index": value}
                                          for value, (text, colour) in states.items()}}] if states else []


def place(panels):
    """Returns the panels' places [(x, y, width, height)].  Panels fill rows from left to right."""
    x = y = height = 0
    places = []
    for panel in panels:
        w, h = SIZES[panel.kind]
        if x + w > N_COLUMNS or h != height:
            x, y, height = 0, y + height, h
        places.append({"x": x, "y": y, "w": w, "h": h})
        x += w
    return places


def options(panel):
    """Returns Grafana's options for a kind of panel."""
    legend = {"displayMode": "list", "placement": "bottom", "showLegend": True}
    return {
        "stat": {"colorMode": "background" if panel.steps != FLOW else "value", "graphMode": "area",
                 "textMode": "value",
                 "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}},
        "state-timeline": {"mergeValues": True, "showValue": "never", "rowHeight": 0.9, "alignValue": "left",
                           "legend": legend},
        "table": {"showHeader": True, "cellHeight": "sm"},
        "heatmap": {"calculate": False, "cellGap": 0, "color": {"mode": "scheme", "scheme": "Turbo", "steps": 64},
                    "yAxis": {"axisPlacement": "left", "reverse": True}, "cellValues": {"unit": panel.unit},
                    "legend": {"show": True}, "tooltip": {"show": True, "yHistogram": False}},
        "timeseries": {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}},
    }[panel.kind]


def custom(panel):
    if panel.kind == "timeseries":
        return {"lineWidth": 1, "fillOpacity": 0, "spanNulls": False,
                "thresholdsStyle": {"mode": "line" if panel.steps in (POWER, CLIPPED, RATE_LOST) else "off"}}
    if panel.kind == "state-timeline":
        return {"fillOpacity": 80, "lineWidth": 0}
    return {"align": "left"} if panel.kind == "table" else {}


def overrides(panel):
    """Returns the unit, the limits and the states of each column of a table."""
    out = []
    for column, (unit, steps, states) in panel.columns.items():
        properties = {"unit": unit, "thresholds": thresholds(steps), "mappings": mappings(states),
                      "custom.cellOptions": {"type": "color-background" if steps or states else "auto"}}
        out.append({"matcher": {"id": "byName", "options": column},
                    "properties": [{"id": name, "value": value} for name, value in properties.items()]})
    return out


def transformations(panel):
    """Gives a table one row for each antenna or alert, and one column for each query."""
    if panel.kind != "table":
        return []
    names = {f"Value #{ref(i)}": column for i, column in enumerate(panel.queries)}
    hidden = {"Time": True} | ({} if panel.columns else {"Value": True, "Value #A": True, "array": True})
    order = {"alertname": 0, "severity": 1} if not panel.columns else {}
    return [{"id": "merge", "options": {}},
            {"id": "organize", "options": {"excludeByName": hidden, "renameByName": names, "indexByName": order}}]


def ref(i):
    return chr(ord("A") + i)


def target(panel, i, legend, expression):
    made = {"refId": ref(i), "datasource": SOURCE, "expr": expression, "legendFormat": legend}
    if panel.kind == "table":
        made |= {"format": "table", "instant": True, "range": False}
    return made


def panel_json(number, panel, where, fill):
    return {
        "id": number, "title": panel.title, "description": panel.description, "type": panel.kind, "datasource": SOURCE,
        "gridPos": where, "options": options(panel), "transformations": transformations(panel),
        "fieldConfig": {"defaults": {"unit": panel.unit, "thresholds": thresholds(panel.steps),
                                     "mappings": mappings(panel.states), "custom": custom(panel),
                                     "color": {"mode": "palette-classic" if panel.kind == "timeseries"
                                               else "thresholds"}},
                        "overrides": overrides(panel)},
        "targets": [target(panel, i, legend, fill(expression))
                    for i, (legend, expression) in enumerate(panel.queries.items())],
    }


def variable(name, label, query):
    return {"name": name, "label": label, "type": "query", "datasource": SOURCE, "refresh": 2, "multi": True,
            "includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}, "sort": 3,
            "query": {"query": query, "refId": name}}


def dashboard(array, name):
    """Returns one dashboard as JSON text."""
    title, panels, program, of_antennas = DASHBOARDS[name]
    select = f'array="{array["name"]}"'
    variables = [{"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
                 variable("host", "Host", f"label_values(up{{{select}}}, host)")]
    select += ', host=~"$host"'
    if program:
        variables.append(variable("engine", "Engine", f'label_values(up{{{select}, program="{program}"}}, engine)'))
        select += ', engine=~"$engine"'
        variables.append(variable("antenna", "Antenna", f"label_values({of_antennas}{{{select}}}, antenna)"))

    def fill(expression):
        if program:
            expression = re.sub(OF_ANTENNA, r'\1{SEL, antenna=~"$antenna"', expression)
        expression = expression.replace("SEL", select).replace("RANGE", "$__rate_interval")
        return expression.replace("PACKET_SAMPLES", str(array["digitiser"]["packet_samples"]))

    made = [panel_json(i + 1, panel, where, fill) for i, (panel, where) in enumerate(zip(panels, place(panels)))]
    return json.dumps({
        "uid": f"cbf-{array['name']}-{name}"[:40], "title": f"{array['name']}: {title}", "tags": ["cbf"],
        "schemaVersion": 38, "version": 1, "refresh": "5s", "time": {"from": "now-15m", "to": "now"},
        "timezone": "utc", "editable": True, "templating": {"list": variables}, "panels": made,
    }, indent=1) + "\n"
