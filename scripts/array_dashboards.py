"""Grafana dashboards of an array, as JSON to import: an overview, its F-engines, its X-engines."""
import json

# Title, unit, legend, expression.  SEL: the labels that the dashboard's variables choose.
OVERVIEW = [
    ("Engines that answer", "short", "{{program}}", "sum by (program) (up{SEL})"),
    ("Alerts", "short", "{{alertname}}", 'sum by (alertname) (ALERTS{SEL, alertstate="firing"})'),
    ("Digitisers to F-engines", "binBps", "{{host}}", "sum by (host) (rate(fgpu_input_bytes_total{SEL}[RANGE]))"),
    ("F-engines out", "binBps", "{{host}}", "sum by (host) (rate(fgpu_output_bytes_total{SEL}[RANGE]))"),
    ("F-engines to X-engines", "binBps", "{{host}}", "sum by (host) (rate(xbgpu_input_bytes_total{SEL}[RANGE]))"),
    ("Visibilities out", "binBps", "{{host}}", "sum by (host) (rate(xbgpu_output_x_bytes_total{SEL}[RANGE]))"),
    # The loss locator: where heaps stop, in the order of the data.
    ("1 Missing before F-engines (packets)", "pps", "{{engine}} {{antenna}} {{pol}}",
     "rate(fgpu_input_missing_heaps_total{SEL}[RANGE])"),
    ("2 Dropped in F-engines' sockets", "pps", "{{engine}} {{thread}}", "rate(fgpu_input_kernel_drops{SEL}[RANGE])"),
    ("3 Not sent by F-engines (heaps)", "short", "{{engine}} {{antenna}} {{stream}}",
     "rate(fgpu_output_skipped_heaps_total{SEL}[RANGE]) + rate(fgpu_output_dropped_heaps_total{SEL}[RANGE])"),
    ("4 Missing before X-engines (heaps)", "short", "{{engine}} {{antenna}}",
     "rate(xbgpu_feng_missing_heaps_total{SEL}[RANGE]) > 0"),
    ("5 Dropped in X-engines' sockets", "pps", "{{engine}} {{thread}}", "rate(xbgpu_input_kernel_drops{SEL}[RANGE])"),
    ("6 Dumps not sent, or incomplete", "short", "{{engine}} {{stream}}",
     "rate(xbgpu_output_x_incomplete_accs_total{SEL}[RANGE]) + rate(xbgpu_output_x_absent_accs_total{SEL}[RANGE]) + "
     "rate(xbgpu_output_x_dropped_accs_total{SEL}[RANGE])"),
]
F_ENGINES = [
    ("Power of the inputs", "dB", "{{antenna}} {{pol}}", "fgpu_input_power_dbfs{SEL}"),
    ("Saturated samples", "percentunit", "{{antenna}} {{pol}}",
     "rate(fgpu_input_clipped_samples_total{SEL}[RANGE]) / (PACKET_SAMPLES * "
     "rate(fgpu_input_heaps_total{SEL}[RANGE]))"),
    ("Packets received", "pps", "{{antenna}} {{pol}}", "rate(fgpu_input_heaps_total{SEL}[RANGE])"),
    ("Packets missing", "pps", "{{antenna}} {{pol}}", "rate(fgpu_input_missing_heaps_total{SEL}[RANGE])"),
    ("Packets refused", "pps", "{{engine}} {{reason}}",
     "sum by (engine, reason) (rate(fgpu_input_rejected_packets_total{SEL}[RANGE])) > 0"),
    ("Packets too late", "pps", "{{antenna}} {{pol}}", "rate(fgpu_input_too_old_heaps_total{SEL}[RANGE])"),
    ("Chunks discarded", "short", "{{antenna}}",
     "rate(fgpu_unmatched_chunks_total{SEL}[RANGE]) + rate(fgpu_late_chunks_total{SEL}[RANGE])"),
    ("Heaps sent", "short", "{{antenna}} {{stream}}", "rate(fgpu_output_heaps_total{SEL}[RANGE])"),
    ("Heaps not sent", "short", "{{antenna}} {{stream}}",
     "rate(fgpu_output_skipped_heaps_total{SEL}[RANGE]) + rate(fgpu_output_dropped_heaps_total{SEL}[RANGE])"),
    ("Packets that could not be sent", "pps", "{{antenna}} {{stream}}",
     "rate(fgpu_output_failed_packets_total{SEL}[RANGE])"),
    ("Saturated voltages", "short", "{{antenna}} {{stream}} {{pol}}",
     "rate(fgpu_output_clipped_samples_total{SEL}[RANGE])"),
    ("Latency", "s", "{{antenna}} {{stream}}", "fgpu_output_latency_seconds{SEL}"),
]
X_ENGINES = [
    ("State of each antenna: 0 dead, 1 silent, 2 losing, 3 receiving", "short", "{{engine}} {{antenna}}",
     "xbgpu_feng_state{SEL}"),
    ("Heaps received", "short", "{{engine}} {{antenna}}", "rate(xbgpu_feng_heaps_total{SEL}[RANGE])"),
    ("Heaps missing", "short", "{{engine}} {{antenna}}", "rate(xbgpu_feng_missing_heaps_total{SEL}[RANGE]) > 0"),
    ("Heaps late or refused", "short", "{{engine}} {{antenna}}",
     "rate(xbgpu_feng_late_heaps_total{SEL}[RANGE]) + rate(xbgpu_feng_refused_heaps_total{SEL}[RANGE]) > 0"),
    ("Of them, only a part came", "short", "{{engine}} {{fengs}}",
     "rate(xbgpu_input_incomplete_heaps_total{SEL}[RANGE])"),
    ("Packets refused", "pps", "{{engine}} {{reason}}",
     'sum by (engine, reason) (rate(xbgpu_input_rejected_packets_total{SEL}[RANGE])) > 0'),
    ("Chunks discarded", "short", "{{engine}}", "rate(xbgpu_late_chunks_total{SEL}[RANGE])"),
    ("Dumps sent", "short", "{{engine}} {{stream}}", "rate(xbgpu_output_x_heaps_total{SEL}[RANGE])"),
    ("Dumps incomplete", "short", "{{engine}} {{stream}}", "rate(xbgpu_output_x_incomplete_accs_total{SEL}[RANGE])"),
    ("Dumps skipped, absent or dropped", "short", "{{engine}} {{stream}}",
     "rate(xbgpu_output_x_skipped_accs_total{SEL}[RANGE]) + rate(xbgpu_output_x_absent_accs_total{SEL}[RANGE]) + "
     "rate(xbgpu_output_x_dropped_accs_total{SEL}[RANGE])"),
    ("Saturated visibilities", "percentunit", "{{engine}} {{stream}}",
     "rate(xbgpu_output_x_clipped_visibilities_total{SEL}[RANGE]) / "
     "rate(xbgpu_output_x_visibilities_total{SEL}[RANGE])"),
    ("Packets that could not be sent", "pps", "{{engine}} {{stream}}",
     "rate(xbgpu_output_x_failed_packets_total{SEL}[RANGE])"),
    ("Products audited; 0 wrong is well", "short", "{{engine}} {{stream}} wrong",
     "rate(xbgpu_audit_failures_total{SEL}[RANGE])"),
    ("Dumps flagged as wrong; 0 is well", "short", "{{engine}} {{stream}}",
     "rate(xbgpu_output_x_wrong_accs_total{SEL}[RANGE])"),
    ("Latency", "s", "{{engine}} {{stream}}", "xbgpu_output_x_latency_seconds{SEL}"),
]
DASHBOARDS = {"overview": ("overview", OVERVIEW, None), "f-engines": ("F-engines", F_ENGINES, "fgpu"),
              "x-engines": ("X-engines", X_ENGINES, "xbgpu")}
SOURCE = {"type": "prometheus", "uid": "${source}"}
N_COLUMNS, WIDTH, HEIGHT = 2, 12, 8


def panel(i, title, unit, legend, expression):
    return {
        "id": i + 1, "title": title, "type": "timeseries", "datasource": SOURCE,
        "gridPos": {"x": i % N_COLUMNS * WIDTH, "y": i // N_COLUMNS * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit, "custom": {"lineWidth": 1, "fillOpacity": 0, "spanNulls": False}},
                        "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
                    "tooltip": {"mode": "multi", "sort": "desc"}},
        "targets": [{"refId": "A", "datasource": SOURCE, "expr": expression, "legendFormat": legend}],
    }


def variable(name, label, query):
    return {"name": name, "label": label, "type": "query", "datasource": SOURCE, "refresh": 2, "multi": True,
            "includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}, "sort": 3,
            "query": {"query": query, "refId": name}}


def dashboard(array, name):
    """One dashboard as text."""
    title, panels, program = DASHBOARDS[name]
    labels = f'array="{array["name"]}"'
    variables = [{"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
                 variable("host", "Host", f"label_values(up{{{labels}}}, host)")]
    select = f'{labels}, host=~"$host"'
    if program:
        variables.append(variable("engine", "Engine",
                                  f'label_values(up{{{select}, program="{program}"}}, engine)'))
        select += ', engine=~"$engine"'
    made = []
    for i, (heading, unit, legend, expression) in enumerate(panels):
        expression = expression.replace("SEL", select).replace("RANGE", "$__rate_interval")
        expression = expression.replace("PACKET_SAMPLES", str(array["digitiser"]["packet_samples"]))
        made.append(panel(i, heading, unit, legend, expression))
    return json.dumps({
        "uid": f"cbf-{array['name']}-{name}"[:40], "title": f"{array['name']}: {title}", "tags": ["cbf"],
        "schemaVersion": 38, "version": 1, "refresh": "5s", "time": {"from": "now-15m", "to": "now"},
        "timezone": "utc", "editable": True, "templating": {"list": variables}, "panels": made,
    }, indent=1) + "\n"
