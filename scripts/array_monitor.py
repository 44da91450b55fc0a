"""What Prometheus needs to watch an array, and to say where data are lost: targets, and alert rules.

Every series has the labels of its target: array, host, engine (f0, x0, ...: the name of its YAML) and program.  Recorders
are no part of the array's file: whoever runs one lists it in recorders.yaml (docs/array.md).
"""
from dataclasses import dataclass

import yaml

from array_engines import MARKER, http_address

DOCTOR = "ssh {{ $labels.host }} cbf-doctor TOPIC /etc/cbf/{{ $labels.engine }}.yaml"
BY = "array, host, engine, program"


def rate(metric, labels="", by=""):
    """Per second, over the last minute, of each engine; 'by': labels that are kept beside."""
    return f"sum by ({BY}{by}) (rate({metric}{{ARRAY{labels}}}[1m]))"


def refused(program, reasons):
    return rate(f"{program}_input_rejected_packets_total", f', reason=~"{reasons}"')


def unless_here(expression, program):
    """Where this host's sockets and this engine have dropped nothing that explains it."""
    here = f"{rate(program + '_input_kernel_drops')} > 0 or {refused(program, 'no_chunk|too_old|jump')} > 0 or " \
           f"{rate(program + '_input_contested_heaps_total')} > 0"
    if program == "fgpu":
        here += f" or {rate('fgpu_input_too_old_heaps_total')} > 0"
    return f"{expression} unless on ({BY}) ({here})"


@dataclass
class Rule:
    name: str
    fires: str  # PromQL; ARRAY: the label of this array
    after: str
    severity: str
    summary: str
    where: str  # it probably is
    doctor: str = "loss"  # what cbf-doctor looks at; "": it knows no recorders


FEED = ", antenna, pol"
WHO = "{{ $labels.engine }} on {{ $labels.host }}"
INPUT = "antenna {{ $labels.antenna }} pol {{ $labels.pol }}"
VOLTAGES = ", feng, antenna"
FENG = "antenna {{ $labels.antenna }} (F-engine {{ $labels.feng }})"
SOCKET = "this host: the receive thread is too slow for its socket buffer (CPU taken by others, recv.threads, " \
         "recv.buffer, net.core.rmem_max)"
STRANGE = "malformed|no_items|heap_size|alignment|bad_source|bad_frequency|crc|duplicate"
STRANGE_VISIBILITIES = "jump|clock|heap_size|alignment|bad_timestamp|bad_source|bad_frequency|crc"
SECOND_SENDER = "a second sender on this group: this engine's log names both; recv.from keeps others away, where their " \
                "addresses are not forged"
FOREIGN = "another program or host sends to these addresses (the log names it), or recv.from lacks an address"
CLOCK = "this host: chronyd, ntpd or ptp4l with phc2sys does not run, or has no server (chronyc tracking)"
CLIPPED = 1e-3  # of the samples
QUIET_DBFS = -60

RULES = [
    Rule("EngineDown", "up{ARRAY} == 0", "10s", "critical", f"{WHO} does not answer",
         "the process or its host: systemctl status {{ $labels.program }}@{{ $labels.engine }}", "host"),
    # Only what the kernel says: the clock may be right all the same.
    Rule("ClockUnsynchronised", "fgpu_clock_synchronised{ARRAY} == 0 or xbgpu_clock_synchronised{ARRAY} == 0", "30s",
         "warning", f"the clock of {{{{ $labels.host }}}} is not synchronised, and {WHO} places timestamps by it", CLOCK,
         "host"),
    # Digitiser to F-engine.
    Rule("FeedSilent", rate("fgpu_input_heaps_total", by=FEED) + " == 0", "10s", "critical",
         f"{INPUT}: nothing reaches {WHO}",
         "before the F-engine: digitiser, cable, or the switch's multicast group (IGMP); if all inputs of a host are "
         "silent, its interface", "streams"),
    Rule("FeedLostOnTheWay", unless_here(rate("fgpu_input_missing_heaps_total", by=FEED) + " > 0", "fgpu"), "5s",
         "warning", f"{INPUT}: {{{{ $value | humanize }}}} packets/s are missing, and {WHO} has dropped none",
         "before this host's sockets: digitiser, cable, switch, or the interface's queues (ethtool -S)"),
    Rule("FeedLostInSocket", rate("fgpu_input_kernel_drops") + " > 0", "0s", "warning",
         f"{WHO}: the kernel drops digitiser packets", SOCKET),
    Rule("FeedLate", rate("fgpu_input_too_old_heaps_total", by=FEED) + " > 0", "5s", "warning",
         f"{INPUT}: packets come too late for {WHO}",
         "the digitiser's time, a long way through the network, or this host was stopped for a moment (recv.window)",
         "streams"),
    Rule("FeedStrange", refused("fgpu", STRANGE) + " > 0 or " + rate("fgpu_input_bad_timestamp_heaps_total") + " > 0",
         "10s", "warning", f"{WHO} refuses packets that are not what it expects",
         "configuration: another sender on this address, polarisations exchanged, sample_bits or packet_samples",
         "streams"),
    Rule("FeedContested", rate("fgpu_input_contested_heaps_total", by=FEED) + " > 0", "0s", "critical",
         f"{INPUT}: {{{{ $value | humanize }}}} heaps/s came twice with different bytes, and {WHO} counts them as missing",
         SECOND_SENDER, "streams"),
    Rule("FeedForeign", refused("fgpu", "bad_sender") + " > 0", "10s", "warning",
         f"{WHO} refuses packets of senders that recv.from does not name", FOREIGN, "streams"),
    Rule("FeedClips", f"{rate('fgpu_input_clipped_samples_total', by=FEED)} > {CLIPPED} * PACKET_SAMPLES * "
         f"{rate('fgpu_input_heaps_total', by=FEED)}", "30s", "warning",
         f"{INPUT}: more than a thousandth of the samples is saturated",
         "before the digitiser: interference or its attenuator", "streams"),
    Rule("FeedQuiet", f"fgpu_input_power_dbfs{{ARRAY}} < {QUIET_DBFS} and on (array, engine, antenna) "
         "fgpu_input_power_valid{ARRAY} == 1", "30s", "warning", f"{INPUT}: hardly any power ({{{{ $value }}}} dBFS)",
         "before the digitiser: receiver, its supply, or a cable", "streams"),
    # In the F-engine, and from it.
    Rule("FEngineSkips", rate("fgpu_output_skipped_heaps_total") + " > 0", "5s", "warning",
         f"{WHO} leaves out heaps as input is missing", "its inputs: see the Feed alerts of this engine"),
    Rule("FEngineBehind", rate("fgpu_output_dropped_heaps_total") + " > 0 or " + refused("fgpu", "no_chunk") + " > 0",
         "0s", "warning", f"{WHO} does not keep up",
         "this engine: its GPU or its send threads are slower than the data (another user of the GPU, its clock, "
         "send.threads)"),
    Rule("FEngineSendFails", rate("fgpu_output_failed_packets_total") + " > 0", "0s", "warning",
         f"{WHO}: the kernel refuses to send its packets",
         "this host: interface down, no route to the group, or send.packet_payload above the MTU", "host"),
    # F-engine to X-engine.
    Rule("VoltagesSilent", "xbgpu_feng_state{ARRAY} < 2", "10s", "critical", f"no voltages of {FENG} reach {WHO}",
         "if other X-engines get them, the switch's multicast group (IGMP) or this host's interface; if none does, the "
         "F-engine or its host", "streams"),
    Rule("VoltagesLostOnTheWay", unless_here(
             rate("xbgpu_feng_missing_heaps_total", by=VOLTAGES) + f" > 0 and on ({BY}{VOLTAGES}) xbgpu_feng_state{{ARRAY}} == 2",
             "xbgpu"), "5s", "warning",
         f"{{{{ $value | humanize }}}} heaps/s of {FENG} are missing, and {WHO} has dropped none",
         "if every X-engine says so, the F-engine or its host (EngineDown, FEngineSkips, FEngineBehind); if only this "
         "one, its switch port or the interface's queues (ethtool -S)"),
    Rule("VoltagesLostInSocket", rate("xbgpu_input_kernel_drops") + " > 0", "0s", "warning",
         f"{WHO}: the kernel drops packets of F-engines", SOCKET),
    Rule("VoltagesLate", refused("xbgpu", "too_old|jump") + " > 0", "5s", "warning",
         f"{WHO} refuses voltages that come too late or from another time",
         "an F-engine that was stopped for a moment, or a digitiser or host whose clock is off", "streams"),
    Rule("VoltagesStrange", refused("xbgpu", STRANGE) + " > 0", "10s", "warning",
         f"{WHO} refuses packets that are not what it expects",
         "configuration: F- and X-engines do not agree (channels, spectra_per_heap, sample_bits), or another sender",
         "streams"),
    Rule("VoltagesContested", rate("xbgpu_input_contested_heaps_total", by=", fengs") + " > 0", "0s", "critical",
         f"{{{{ $value | humanize }}}} heaps/s of F-engines {{{{ $labels.fengs }}}} came twice with different bytes, and "
         f"{WHO} counts them as missing", SECOND_SENDER, "streams"),
    Rule("VoltagesForeign", refused("xbgpu", "bad_sender") + " > 0", "10s", "warning",
         f"{WHO} refuses packets of senders that recv.from does not name", FOREIGN, "streams"),
    # In the X-engine, and from it.
    Rule("XEngineBehind", rate("xbgpu_output_x_dropped_accs_total") + " > 0 or " + refused("xbgpu", "no_chunk")
         + " > 0", "0s", "warning", f"{WHO} does not keep up",
         "this engine: its GPU or its send thread is slower than the data"),
    Rule("XEngineWrong", rate("xbgpu_audit_failures_total") + " > 0 or "
         + rate("xbgpu_output_x_wrong_accs_total") + " > 0 or xbgpu_device_ok{ARRAY} == 0", "0s", "critical",
         f"{WHO}: visibilities were wrong: checksums, or the host's sums, disagree with the device's",
         "its GPU or its memory: take it out of service", "host"),
    Rule("XEngineSendFails", rate("xbgpu_output_x_failed_packets_total") + " > 0", "0s", "warning",
         f"{WHO}: the kernel refuses to send its packets",
         "this host: interface down, no route to the group, or send.packet_payload above the MTU", "host"),
    # The first dump after a start is one that began before it, nearly always.
    Rule("DumpsIncomplete", "60 * " + rate("xbgpu_output_x_incomplete_accs_total", by=", stream") + " > 1.5", "5s",
         "warning", f"{WHO}: dumps of {{{{ $labels.stream }}}} miss baselines",
         "see the other alerts: this is what they cost"),
    Rule("VisibilitiesClip", rate("xbgpu_output_x_clipped_visibilities_total") + " > 0", "30s", "warning",
         f"{WHO}: visibilities are saturated", "the F-engines' gain is too high for this integration time", "streams"),
    # The recorder.
    Rule("RecorderLoses", rate("visrec_unwritten_dumps_total") + " > 0 or " +
         rate("visrec_rejected_packets_total", ', reason="no_chunk"') + " > 0", "0s", "critical",
         f"{WHO} loses dumps", "its disk is full or too slow: df, iostat -x", ""),
    Rule("RecorderRefuses", rate("visrec_rejected_packets_total", f', reason=~"{STRANGE_VISIBILITIES}"') +
         f" > 0 and on ({BY}) " + rate("visrec_dumps_total") + " == 0", "10s", "critical",
         f"{WHO} records nothing: it refuses the visibilities that come",
         "configuration: another stream on this address, or recorder and X-engines do not agree; if the reason is jump, "
         "time is not the same in all X-engines", ""),
    Rule("RecorderClockUnsynchronised", "visrec_clock_synchronised{ARRAY} == 0", "30s", "warning",
         f"the clock of {{{{ $labels.host }}}} is not synchronised, and {WHO} places timestamps by it", CLOCK, ""),
    Rule("RecorderNewFile", rate("visrec_rollovers_total") + " > 0", "0s", "warning",
         f"{WHO} began another file: time went back",
         "a new synchronisation; if there was none, an X-engine whose time was wrong, or forged packets", ""),
]


def targets(plan):
    """For file_sd_configs."""
    rows = []
    for engine in plan.engines:
        rows.append({"targets": [http_address(plan.array, engine)],
                     "labels": {"array": plan.array["name"], "host": engine.host["name"], "engine": engine.name,
                                "program": engine.kind}})
    return dump(rows, f"the engines of {plan.array['name']}, for file_sd_configs.")


def rules(plan):
    array = plan.array
    out = []
    for rule in RULES:
        expression = rule.fires.replace("ARRAY", f'array="{array["name"]}"')
        expression = expression.replace("PACKET_SAMPLES", str(array["digitiser"]["packet_samples"]))
        annotations = {"summary": rule.summary, "where": rule.where}
        if rule.doctor:
            annotations["doctor"] = DOCTOR.replace("TOPIC", rule.doctor)
        out.append({"alert": rule.name, "expr": expression, "for": rule.after, "labels": {"severity": rule.severity},
                    "annotations": annotations})
    return dump({"groups": [{"name": f"cbf {array['name']}", "interval": "5s", "rules": out}]},
                f"what is wrong with {array['name']}, and where to look.")


def prometheus(plan):
    """A server that watches this array alone; of one that is there already, take the parts."""
    return dump({
        "global": {"scrape_interval": "5s", "evaluation_interval": "5s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [{"job_name": f"cbf-{plan.array['name']}",
                            "file_sd_configs": [{"files": ["targets.yaml", "recorders.yaml"]}]}],
    }, f"a Prometheus for {plan.array['name']}.")


def dump(data, what):
    return f"{MARKER}: {what}\n" + yaml.safe_dump(data, sort_keys=False, width=120)
