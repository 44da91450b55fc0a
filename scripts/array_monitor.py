"""Files that Prometheus needs to watch an array and to say where data are lost: targets, and alert rules.

Every series has the labels of its target: array, host, engine (f0, x0, ...: the name of its YAML) and program.  If
you run a recorder that array.yaml does not have, list it in recorders.yaml (docs/array.md).

A lost heap is reported within 5 s: the alert fires at most 3 s after the first scrape that shows the loss, and a scrape
and an evaluation may each be 1 s late.
"""
import math
from dataclasses import dataclass

import yaml

import array_control
import array_plan
from array_engines import MARKER, antenna_names, http_address

SCRAPE_S = 1
BY = "array, host, engine, program"
ENGINE_OF = "cbf_antenna_engine"  # a series whose labels name the F-engine of each antenna


# ---- Parts of expressions --------------------------------------------------------------------------------------------


def rate(metric, labels="", by="", over="1m"):
    """Rate per second of each engine over the last minute.  'by': additional labels to keep."""
    return f"sum by ({BY}{by}) (rate({metric}{{ARRAY{labels}}}[{over}]))"


def gauge(metric, by=""):
    return f"max by ({BY}{by}) ({metric}{{ARRAY}})"


def refused(program, reasons):
    return rate(f"{program}_input_rejected_packets_total", f', reason=~"{reasons}"')


def unless_here(expression, program):
    """Returns PromQL: the series of 'expression', without the series of some engines.  These engines dropped data, or
    their sockets dropped data."""
    here = f"{rate(program + '_input_kernel_drops')} > 0 or {refused(program, 'no_chunk|too_old|jump')} > 0 or " \
           f"{rate(program + '_input_contested_heaps_total')} > 0"
    if program == "fgpu":
        here += f" or {rate('fgpu_input_too_old_heaps_total')} > 0"
    return f"{expression} unless on ({BY}) ({here})"


def share(missing, received):
    """PromQL for the fraction of missing heaps."""
    return f"{missing} / ({missing} + {received})"


def beam_share(part, whole):
    """Returns PromQL for a fraction of a beam's samples in the last 10 s."""
    return " / ".join(rate(f"xbgpu_output_b_{kind}samples_total", by=", stream", over="10s") for kind in (part, whole))


def of_powers(metric, above):
    """Returns PromQL that is true if a metric of a detected beam is above a limit while voltages arrive."""
    return f"({gauge(metric, ', stream')} {above} and on ({BY}) {rate('xbgpu_feng_heaps_total', over='10s')} > 0)"


def of_antenna(expression):
    """Adds labels to an expression that has one series for each antenna: the antenna's F-engine and its host."""
    return f"({expression}) * on (array, antenna) group_left (host, engine) {ENGINE_OF}{{ARRAY}}"


def by_antenna(metric):
    return f"sum by (array, feng, antenna) (rate({metric}{{ARRAY}}[10s]))"


# ---- Rules -----------------------------------------------------------------------------------------------------------


@dataclass
class Rule:
    name: str
    fires: str  # PromQL; ARRAY: the array's label; INPUT_S, OUTPUT_S: longest pause in normal input and output data
    after: str
    severity: str
    summary: str
    where: str  # probable place of the fault
    command: str = "cbf-doctor loss"  # command to run on the host; cbf-doctor gets the engine's file as an argument


DOCTOR_HOST, DOCTOR_STREAMS = "cbf-doctor host", "cbf-doctor streams"
UNIT = "{{ $labels.program }}@{{ $labels.engine }}"
JOURNAL = f"journalctl -u {UNIT} -n 50"
CLOCK_COMMAND = "chronyc tracking"
FEED = ", antenna, pol"
WHO = "{{ $labels.engine }} on {{ $labels.host }}"
INPUT = "antenna {{ $labels.antenna }} pol {{ $labels.pol }}"
OUTPUT = ", antenna, stream"
STREAM = "antenna {{ $labels.antenna }}, stream {{ $labels.stream }}"
VOLTAGES = ", feng, antenna"
FENG = "antenna {{ $labels.antenna }} (F-engine {{ $labels.feng }})"
PERCENT = "{{ $value | humanizePercentage }}"
SOCKET = "this host: the receive thread is too slow for its socket buffer (CPU taken by others, recv.threads, " \
         "recv.buffer, net.core.rmem_max)"
STRANGE = "malformed|no_items|heap_size|alignment|bad_source|bad_frequency|crc|duplicate"
STRANGE_VISIBILITIES = "jump|clock|heap_size|alignment|bad_timestamp|bad_source|bad_frequency|crc"
SECOND_SENDER = "a second sender on this group: this engine's log names both senders; recv.from keeps other senders " \
                "out, unless they forge addresses"
FOREIGN = "another program or host sends to these addresses (the log names it), or recv.from lacks an address"
CLOCK = "this host: no clock daemon runs (chronyd, ntpd, or ptp4l with phc2sys), or the daemon has no server"
CLIPPED = 1e-3  # of the samples
LOW_DBFS, HIGH_DBFS = -33, -7  # good is -30 to -10
QUIET_DBFS = -60
MUCH = 0.005  # of the heaps
BEAM_CLIPPED = 0.01  # of the samples
BEAM = "beam {{ $labels.stream }}"

POWER = gauge("fgpu_input_power_dbfs", FEED)
POWER_VALID = f"and on ({BY}, antenna) {gauge('fgpu_input_power_valid', ', antenna')} == 1"
FEED_HEAPS = "fgpu_input_heaps_total"
FLOWS = rate(FEED_HEAPS, by=", antenna", over="INPUT_S") + " > 0"
STATE = "max by (array, feng, antenna) (xbgpu_feng_state{ARRAY})"

def recorder_rules(name, program, written, data, file, strange):
    """Alerts that both kinds of recorders have."""
    return [
        Rule(f"{name}DiskFull", rate(f"{program}_unwritten_{written}_total") + " > 0", "0s", "critical",
             f"{WHO} loses {written}: its disk is full", f"the disk of {file}: remove or move recordings"),
        Rule(f"{name}Slow", rate(f"{program}_rejected_packets_total", ', reason="no_chunk"') + " > 0", "0s", "critical",
             f"{WHO} loses {written}: it does not keep up", "its disk is too slow, or other programs write to it",
             "iostat -x 1 3"),
        Rule(f"{name}LostInSocket", rate(f"{program}_kernel_drops") + " > 0", "0s", "warning",
             f"{WHO}: the kernel drops packets from X-engines", SOCKET, JOURNAL),
        Rule(f"{name}Misses", rate(f"{program}_missing_heaps_total") + " > 0", "2s", "warning",
             f"{WHO}: {{{{ $value | humanize }}}} heaps/s of {data} are missing",
             "X-engines that do not run or do not send (EngineDown, XEngineBehind), the network, or this host "
             f"({name}LostInSocket, {name}Slow)", JOURNAL),
        Rule(f"{name}Contested", rate(f"{program}_contested_heaps_total") + " > 0", "0s", "critical",
             f"{{{{ $value | humanize }}}} heaps/s came twice with different bytes, and {WHO} counts them as missing",
             SECOND_SENDER, JOURNAL),
        Rule(f"{name}Refuses", rate(f"{program}_rejected_packets_total", f', reason=~"{strange}"') +
             f" > 0 and on ({BY}) " + rate(f"{program}_{written}_total") + " == 0", "10s", "critical",
             f"{WHO} records nothing: it refuses the {data} that arrive",
             "configuration: another stream uses this address, or recorder and X-engines disagree; if the reason is "
             "jump, the timestamps of X-engines differ", JOURNAL),
        Rule(f"{name}ClockUnsynchronised", gauge(f"{program}_clock_synchronised") + " == 0", "30s", "warning",
             f"the clock of {{{{ $labels.host }}}} is not synchronised, and {WHO} needs it for timestamps", CLOCK,
             CLOCK_COMMAND),
    ]


RULES = {
    "engines": [
        Rule("EngineDown", "max by (array, host, engine, program, carries) (up{ARRAY}) == 0", "3s", "critical",
             f"{WHO}{{{{ with $labels.carries }}}} ({{{{ . }}}}){{{{ end }}}} does not answer", "the process or its host",
             f"systemctl status {UNIT}"),
        # The alert shows only the kernel's state: the clock may still be right.
        Rule("ClockUnsynchronised", f"{gauge('fgpu_clock_synchronised')} == 0 or {gauge('xbgpu_clock_synchronised')} == 0",
             "30s", "warning", f"the clock of {{{{ $labels.host }}}} is not synchronised, and {WHO} needs it for timestamps",
             CLOCK, CLOCK_COMMAND),
    ],
    "digitisers to F-engines": [
        Rule("FeedSilent", rate(FEED_HEAPS, by=", antenna", over="INPUT_S") + " == 0", "1s", "critical",
             f"antenna {{{{ $labels.antenna }}}}: nothing reaches {WHO}",
             "before the F-engine: digitiser, cable, or the switch's multicast group (IGMP); if all antennas of a host are "
             "silent, its interface", DOCTOR_STREAMS),
        Rule("PolarisationSilent", rate(FEED_HEAPS, by=FEED, over="INPUT_S") + f" == 0 and on ({BY}, antenna) {FLOWS}", "1s",
             "critical", f"{INPUT}: nothing reaches {WHO}, although the other polarisation arrives",
             "before the F-engine: this polarisation's digitiser, cable, or multicast groups", DOCTOR_STREAMS),
        Rule("FeedLoses", share(rate("fgpu_input_missing_heaps_total", by=FEED, over="10s"),
                                rate(FEED_HEAPS, by=FEED, over="10s")) + f" > {MUCH} and on ({BY}{FEED}) " +
             rate(FEED_HEAPS, by=FEED, over="INPUT_S") + " > 0", "2s", "critical",
             f"{INPUT}: {PERCENT} of the packets are missing in {WHO}",
             "FeedLostInSocket, FeedLate, FeedStrange or FeedContested of this engine names the cause; else packets "
             "are lost before this host (FeedLostOnTheWay)"),
        Rule("FeedLostOnTheWay", unless_here(rate("fgpu_input_missing_heaps_total", by=FEED) + " > 0", "fgpu"), "2s",
             "warning", f"{INPUT}: {{{{ $value | humanize }}}} packets/s are missing, and {WHO} has dropped none",
             "before this host's sockets: digitiser, cable, switch, or the interface's queues (ethtool -S)"),
        Rule("FeedLostInSocket", rate("fgpu_input_kernel_drops") + " > 0", "0s", "warning",
             f"{WHO}: the kernel drops digitiser packets", SOCKET),
        Rule("FeedLate", rate("fgpu_input_too_old_heaps_total", by=FEED) + " > 0", "2s", "warning",
             f"{INPUT}: packets come too late for {WHO}",
             "the digitiser's time is wrong, the network is slow, or this host was stopped for a moment (recv.window)",
             DOCTOR_STREAMS),
        Rule("FeedStrange", refused("fgpu", STRANGE) + " > 0 or " + rate("fgpu_input_bad_timestamp_heaps_total") + " > 0",
             "10s", "warning", f"{WHO} refuses packets of an unexpected form",
             "configuration: another sender on this address, exchanged polarisations, sample_bits or packet_samples",
             DOCTOR_STREAMS),
        Rule("FeedContested", rate("fgpu_input_contested_heaps_total", by=FEED) + " > 0", "0s", "critical",
             f"{INPUT}: {{{{ $value | humanize }}}} heaps/s came twice with different bytes, and {WHO} counts them as missing",
             SECOND_SENDER, DOCTOR_STREAMS),
        Rule("FeedForeign", refused("fgpu", "bad_sender") + " > 0", "10s", "warning",
             f"{WHO} refuses packets of senders that recv.from does not name", FOREIGN, DOCTOR_STREAMS),
        Rule("FeedClips", f"{rate('fgpu_input_clipped_samples_total', by=FEED)} > {CLIPPED} * PACKET_SAMPLES * "
             f"{rate(FEED_HEAPS, by=FEED)}", "30s", "warning",
             f"{INPUT}: more than a thousandth of the samples is saturated",
             "before the digitiser: interference, or the digitiser's attenuator", DOCTOR_STREAMS),
        Rule("FeedQuiet", f"{POWER} < {QUIET_DBFS} {POWER_VALID}", "30s", "critical",
             f"{INPUT}: hardly any power ({{{{ $value }}}} dBFS) in {WHO}",
             "before the digitiser: the receiver, its power supply, or a cable", DOCTOR_STREAMS),
        Rule("FeedLevel", f"({POWER} < {LOW_DBFS} >= {QUIET_DBFS} or {POWER} > {HIGH_DBFS}) {POWER_VALID}", "30s", "warning",
             f"{INPUT}: the power is {{{{ $value }}}} dBFS in {WHO}, outside {LOW_DBFS} to {HIGH_DBFS}",
             "before the digitiser: an attenuator, the receiver's gain, or interference; good power is -30 to -10 dBFS",
             DOCTOR_STREAMS),
    ],
    "F-engines": [
        # After a delay that was too large, the output sends nothing until the input reaches the output's timestamps.
        Rule("FEngineAhead", gauge("fgpu_output_ahead_seconds", ", antenna, stream") + " > 0", "0s", "critical",
             "antenna {{ $labels.antenna }}, stream {{ $labels.stream }}: silent for another "
             f"{{{{ $value | humanizeDuration }}}} in {WHO}, after a wrong delay",
             "?delays was given a delay that is too large: correct it; ?resume over KATCP, or a restart of the engine, ends the silence",
             f"systemctl restart {UNIT}"),
        Rule("FEngineDelay", gauge("fgpu_output_delay_seconds", ", antenna, stream") + " > 0.1", "0s", "critical",
             "antenna {{ $labels.antenna }}, stream {{ $labels.stream }}: its delay is "
             f"{{{{ $value | humanizeDuration }}}} in {WHO}, too long for any source in the sky",
             "?delays, or a delay file, was wrong: correct it, then ?resume over KATCP", "cbf-doctor"),
        Rule("FEngineSilent", rate("fgpu_output_heaps_total", by=OUTPUT, over="OUTPUT_S") + f" == 0 and on ({BY}, antenna) "
             f"min by ({BY}, antenna) ({rate(FEED_HEAPS, by=FEED, over='OUTPUT_S')}) > 0 unless on ({BY}, antenna) "
             f"{gauge('fgpu_output_ahead_seconds', ', antenna')} > 0", "1s", "critical",
             f"{STREAM}: {WHO} sends nothing, although both polarisations of its input arrive",
             "this engine: a wrong delay, polarisations whose times are far apart, or a GPU that does not keep up",
             JOURNAL),
        Rule("FEngineSkips", rate("fgpu_output_skipped_heaps_total", by=OUTPUT) + " > 0", "2s", "warning",
             f"{STREAM}: {WHO} leaves out {{{{ $value | humanize }}}} heaps/s because input is missing",
             "the antenna's inputs: see the Feed alerts of this engine"),
        Rule("FEngineBehind", rate("fgpu_output_dropped_heaps_total") + " > 0 or " +
             rate("fgpu_gnss_dropped_heaps_total") + " > 0 or " + refused("fgpu", "no_chunk") + " > 0", "0s",
             "warning", f"{WHO} does not keep up",
             "this engine: its GPU or its send threads are slower than the data (another user of the GPU, its clock, "
             "send.threads)"),
        Rule("FEngineSendFails", rate("fgpu_output_failed_packets_total") + " > 0 or " +
             rate("fgpu_gnss_failed_packets_total") + " > 0", "0s", "warning",
             f"{WHO}: the kernel refuses to send its packets",
             "this host: interface down, no route to the group, or send.packet_payload above the MTU", DOCTOR_HOST),
        # One satellite alone may be below the horizon, but a constellation always has satellites above the horizon.
        Rule("NoSatelliteTracked", f"{gauge('fgpu_gnss_stage', OUTPUT)} < 3 and on ({BY}{OUTPUT}) "
             f"{rate('fgpu_gnss_samples_total', by=OUTPUT)} > 0", "5m", "warning",
             f"{STREAM}: {WHO} has tracked no satellite for 5 minutes, although its input arrives",
             "the antenna sees none of the satellites in 'satellites', or the band is wrong: centre_frequency, "
             "sky_frequency, inverted", DOCTOR_STREAMS),
    ],
    "F-engines to X-engines": [
        Rule("AntennaSilent", of_antenna(STATE + " < 2"), "2s", "critical",
             f"{FENG}: no X-engine gets voltages; its F-engine is {WHO}",
             "the F-engine, its host or its switch port. For the cause, see whether EngineDown, FeedSilent, "
             "PolarisationSilent, FEngineSilent or FEngineAhead fires for this antenna", "systemctl status fgpu@{{ $labels.engine }}"),
        Rule("AntennaLoses", of_antenna(share(by_antenna("xbgpu_feng_missing_heaps_total"),
                                              by_antenna("xbgpu_feng_heaps_total")) + f" > {MUCH} and {STATE} >= 2"), "2s",
             "critical", f"{FENG}: {PERCENT} of the voltages are missing in the X-engines; its F-engine is {WHO}",
             "if FeedLoses or FEngineSkips fires for this antenna: before or in the F-engine; else "
             "VoltagesLostOnTheWay and VoltagesLostInSocket say which X-engines lose voltages", "cbf-doctor loss"),
        Rule("VoltagesSilent", f"{gauge('xbgpu_feng_state', VOLTAGES)} < 2 and on (array, antenna) {STATE} >= 2", "2s",
             "critical", f"no voltages of {FENG} reach {WHO}, but they reach other X-engines",
             "the switch's multicast group (IGMP), or this host's interface", DOCTOR_STREAMS),
        Rule("VoltagesLostOnTheWay", unless_here(
                 rate("xbgpu_feng_missing_heaps_total", by=VOLTAGES) +
                 f" > 0 and on ({BY}{VOLTAGES}) {gauge('xbgpu_feng_state', VOLTAGES)} >= 2", "xbgpu"), "2s", "warning",
             f"{{{{ $value | humanize }}}} heaps/s of {FENG} are missing, and {WHO} has dropped none",
             "if every X-engine reports this: the F-engine or its host (EngineDown, FEngineSkips, FEngineBehind); if "
             "only this X-engine reports this: its switch port or the interface's queues (ethtool -S)"),
        Rule("VoltagesLostInSocket", rate("xbgpu_input_kernel_drops") + " > 0", "0s", "warning",
             f"{WHO}: the kernel drops packets from F-engines", SOCKET),
        Rule("VoltagesLate", refused("xbgpu", "too_old|jump") + " > 0", "2s", "warning",
             f"{WHO} refuses voltages that come too late or have wrong timestamps",
             "an F-engine that was stopped for a moment, or a digitiser or host whose clock is off", DOCTOR_STREAMS),
        Rule("VoltagesStrange", refused("xbgpu", STRANGE) + " > 0", "10s", "warning",
             f"{WHO} refuses packets of an unexpected form",
             "configuration: F- and X-engines do not agree (channels, spectra_per_heap, sample_bits), or another sender",
             DOCTOR_STREAMS),
        Rule("VoltagesContested", rate("xbgpu_input_contested_heaps_total", by=", fengs") + " > 0", "0s", "critical",
             f"{{{{ $value | humanize }}}} heaps/s of F-engines {{{{ $labels.fengs }}}} came twice with different bytes, and "
             f"{WHO} counts them as missing", SECOND_SENDER, DOCTOR_STREAMS),
        Rule("VoltagesForeign", refused("xbgpu", "bad_sender") + " > 0", "10s", "warning",
             f"{WHO} refuses packets of senders that recv.from does not name", FOREIGN, DOCTOR_STREAMS),
    ],
    "X-engines": [
        Rule("XEngineBehind", rate("xbgpu_output_x_dropped_accs_total") + " > 0 or " +
             rate("xbgpu_beam_dropped_heaps_total") + " > 0 or " + rate("xbgpu_detected_dropped_heaps_total") + " > 0 or " +
             refused("xbgpu", "no_chunk") + " > 0", "0s", "warning", f"{WHO} does not keep up",
             "this engine: its GPU or its send thread is slower than the data"),
        Rule("XEngineWrong", rate("xbgpu_audit_failures_total") + " > 0 or "
             + rate("xbgpu_output_x_wrong_accs_total") + f" > 0 or {gauge('xbgpu_device_ok')} == 0", "0s", "critical",
             f"{WHO}: visibilities were wrong: checksums, or the host's sums, disagree with the device's",
             "its GPU or its memory: take it out of service", DOCTOR_HOST),
        Rule("XEngineSendFails", rate("xbgpu_output_x_failed_packets_total") + " > 0", "0s", "warning",
             f"{WHO}: the kernel refuses to send its packets",
             "this host: interface down, no route to the group, or send.packet_payload above the MTU", DOCTOR_HOST),
        # A single incomplete dump does not cause the alert.  If an F-engine starts later than the X-engine, one dump is
        # incomplete.
        Rule("DumpsIncomplete", "60 * " + rate("xbgpu_output_x_incomplete_accs_total", by=", stream") + " > 1.5", "2s",
             "warning", f"{WHO}: dumps of {{{{ $labels.stream }}}} lack baselines",
             "see the other alerts, which name the cause"),
        Rule("VisibilitiesClip", rate("xbgpu_output_x_clipped_visibilities_total") + " > 0", "30s", "warning",
             f"{WHO}: visibilities are saturated", "the F-engines' gain is too high for this integration time",
             DOCTOR_STREAMS),
        Rule("BeamZero", beam_share("zero_", "measured_") + " >= 1 or " +
             of_powers("xbgpu_output_b_zero_powers_ratio", ">= 1"), "2s", "critical",
             f"{BEAM}: {WHO} makes only zeros, although its input arrives",
             "all weights are 0, the beam's gain is too low, or the voltages of its polarisation are zeros"),
        Rule("BeamClips", beam_share("clipped_", "") + f" > {BEAM_CLIPPED} or " +
             of_powers("xbgpu_output_b_clipped_ratio", f"> {BEAM_CLIPPED}"), "30s", "warning",
             f"{BEAM}: {PERCENT} of the samples are saturated in {WHO}",
             "the beam's gain is too high for the number of antennas: ?beam-quant-gains"),
        Rule("BeamWeightsZero", gauge("xbgpu_output_b_zero_weights_ratio", ", stream") + " > 0.5", "30s", "warning",
             f"{BEAM}: {PERCENT} of its weights are 0 in {WHO}", "?beam-weights has left most antennas out"),
    ],
    "recorders": [
        *recorder_rules("Recorder", "visrec", "dumps", "visibilities", "output.file", STRANGE_VISIBILITIES),
        Rule("RecorderNewFile", rate("visrec_rollovers_total") + " > 0", "0s", "warning",
             f"{WHO} began another file, because timestamps went back",
             "a new synchronisation; otherwise an X-engine whose timestamps were wrong, or forged packets", JOURNAL),
        *recorder_rules("BeamRecorder", "beamrec", "batches", "beams", "the files of beams[] and detected[]", STRANGE_VISIBILITIES),
    ],
}

# The time at which Prometheus first saw the fault.  The series ALERTS_FOR_STATE with the alert's labels has this
# time.
SINCE = '{{ $these := "" }}{{ range $name, $value := $labels }}{{ if ne $name "__name__" }}' \
        '{{ $these = printf "%s,%s=%q" $these $name $value }}{{ end }}{{ end }}' \
        '{{ range printf "ALERTS_FOR_STATE{alertname=\\"THIS_ALERT\\"%s}" $these | query }}{{ .Value | humanizeTimestamp }}' \
        '{{ else }}now{{ end }}'


def quiet_s(plan):
    """Returns two times in s: the longest normal pause between an fgpu's input heaps, and the longest normal pause
    between the fgpu's output heaps.  After a longer pause, the input or the output counts as silent.  An fgpu counts
    input heaps after each chunk, and output heaps after each buffer."""
    array = plan.array
    chunk = array["fgpu"]["recv"]["chunk_samples"]
    buffer = max(stream["batches_per_buffer"] * array_plan.batch_samples(stream) for stream in array["f_outputs"])
    return [math.floor(3 + 4 * samples / array["time"]["adc_sample_rate"]) for samples in (chunk, chunk + buffer)]


# ---- Files -----------------------------------------------------------------------------------------------------------


def targets(plan):
    """Prometheus' targets, for file_sd_configs."""
    rows = []
    for engine in plan.engines + plan.recorders:
        rows.append({"targets": [http_address(plan.array, engine)],
                     "labels": {"array": plan.array["name"], "host": engine.host["name"], "engine": engine.name,
                                "program": engine.kind, "carries": engine.carries()}})
    if plan.controller:
        rows.append({"targets": [array_control.http_address(plan.controller)],
                     "labels": {"array": plan.array["name"], "host": plan.controller.host["name"],
                                "engine": plan.controller.name, "program": plan.controller.kind,
                                "carries": plan.controller.carries()}})
    return dump(rows, f"the engines of {plan.array['name']}, for file_sd_configs.")


def antenna_engines(plan):
    """Returns rules that record the F-engine of each antenna."""
    named = antenna_names(plan.array)  # without names, antennas have the labels a0, a1, ... (common/engine/labels.c)
    return [{"record": ENGINE_OF, "expr": "vector(1)",
             "labels": {"array": plan.array["name"], "antenna": antenna["name"] if named else f"a{feng_id}",
                        "host": engine.host["name"], "engine": engine.name}}
            for engine in plan.engines for feng_id, antenna in engine.antennas]


def alert(plan, stage, rule):
    array = plan.array
    expression = rule.fires.replace("ARRAY", f'array="{array["name"]}"')
    for name, number in zip(("INPUT_S", "OUTPUT_S"), quiet_s(plan)):
        expression = expression.replace(name, f"{number}s")
    expression = expression.replace("PACKET_SAMPLES", str(array["digitiser"]["packet_samples"]))
    file = " /etc/cbf/{{ $labels.engine }}.yaml" if rule.command.startswith("cbf-doctor") else ""
    return {"alert": rule.name, "expr": expression, "for": rule.after, "labels": {"severity": rule.severity},
            "annotations": {"summary": rule.summary, "stage": stage, "since": SINCE.replace("THIS_ALERT", rule.name),
                            "where": rule.where, "command": f"ssh {{{{ $labels.host }}}} {rule.command}{file}"}}


def rules(plan):
    alerts = [alert(plan, stage, rule) for stage, group in RULES.items() for rule in group]
    return dump({"groups": [{"name": f"cbf {plan.array['name']}", "interval": f"{SCRAPE_S}s",
                             "rules": antenna_engines(plan) + alerts}]},
                f"what is wrong with {plan.array['name']}, and where to look.")


def prometheus(plan):
    """Configuration of a Prometheus server for this array alone.  For an existing server, copy the parts."""
    return dump({
        "global": {"evaluation_interval": f"{SCRAPE_S}s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [{"job_name": f"cbf-{plan.array['name']}", "scrape_interval": f"{SCRAPE_S}s",
                            "scrape_timeout": f"{SCRAPE_S}s",
                            "file_sd_configs": [{"files": ["targets.yaml", "recorders.yaml"]}],
                            "metric_relabel_configs": [{"source_labels": ["__name__"], "regex": ".*_created",
                                                        "action": "drop"}]}],
    }, f"a Prometheus for {plan.array['name']}.")


def dump(data, what):
    return f"{MARKER}: {what}\n" + yaml.safe_dump(data, sort_keys=False, width=120)
