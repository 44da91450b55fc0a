"use strict";
/* Shows /status.json, once a second while somebody looks, and more slowly in a hidden tab. */

const INTERVAL_MS = 1000, HIDDEN_INTERVAL_MS = 5000, TIMEOUT_MS = 4000, STALE_MS = 2500;
const COLOURS = ["--c0", "--c1", "--c2", "--c3"];
const $ = id => document.getElementById(id);

let last = null;        // the last answer
let last_ms = 0;        // when it came
let asked_ms = 0;       // when the first of the questions was asked that have no answer yet; 0: all have one
let chosen = read_hash();

// ---- Numbers for people ---------------------------------------------------------------------------------------------

const minus = text => text.replace("-", "−");
const count = n => String(n).replace(/\B(?=(\d{3})+(?!\d))/g, "\u2009");
const plural = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;
const known = n => n !== null && n !== undefined;

function si(value, unit) {
  if (!known(value)) return "–";
  const steps = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]], step = steps.find(s => Math.abs(value) >= s[0]) || [1, ""];
  const scaled = value / step[0], digits = scaled >= 100 || (scaled === Math.round(scaled) && step[1] === "") ? 0 : scaled >= 10 ? 1 : 2;
  return `${scaled.toFixed(digits)} ${step[1]}${unit}`;
}
function percent(fraction) {
  if (!known(fraction)) return "–";
  if (fraction === 0) return "0 %";
  const p = 100 * fraction;
  return p < 0.001 ? "< 0.001 %" : `${p >= 10 ? p.toFixed(0) : p.toPrecision(2)} %`;
}
function duration(seconds) {
  const s = Math.floor(seconds), d = Math.floor(s / 86400), h = Math.floor(s / 3600) % 24, m = Math.floor(s / 60) % 60;
  return d ? `${d} d ${h} h` : h ? `${h} h ${m} min` : m ? `${m} min ${s % 60} s` : `${s} s`;
}
const utc = s => new Date(1000 * s).toISOString().slice(11, 19);
const day = s => new Date(1000 * s).toISOString().slice(0, 10);
const per_s = c => c ? c.per_s : null;
const total = c => c ? c.total : 0;
const sum = list => list.reduce((a, b) => !known(b) ? a : (a === null ? 0 : a) + b, null);
const fraction = (part, whole) => known(part) && known(whole) ? (whole > 0 ? part / whole : 0) : null;
const loss = i => fraction(per_s(i.missing_heaps), known(per_s(i.heaps)) ? per_s(i.heaps) + per_s(i.missing_heaps) : null);
const db = v => known(v) ? minus(v.toFixed(1)) : "–";

// ---- Tables ---------------------------------------------------------------------------------------------------------

/* Cells are made once and only their text changes, so that what is selected stays so.
 * columns: [label, key, row => {text, sub, level, power, fill, title}]; rows need a key. */
function fill_table(table, columns, rows) {
  const shape = columns.map(c => c[0]).join("|") + "\n" + rows.map(r => r.row_key).join("\n");
  if (table.shape !== shape) {
    table.shape = shape;
    const head = document.createElement("thead"), tr = document.createElement("tr"), body = document.createElement("tbody");
    tr.append(...columns.map(c => Object.assign(document.createElement("th"), { textContent: c[0] })));
    head.append(tr);
    for (const row of rows) {
      const line = document.createElement("tr");
      line.dataset.row = row.row_key;
      line.append(...columns.map(c => {
        const td = document.createElement("td");
        td.dataset.label = c[0];
        td.dataset.key = c[1];
        td.append(document.createElement("span"), document.createElement("small"));
        return td;
      }));
      body.append(line);
    }
    table.replaceChildren(head, body);
  }
  rows.forEach((row, r) => columns.forEach((column, c) => fill_cell(table.tBodies[0].rows[r].cells[c], column[2](row))));
}

function fill_cell(td, { text, sub = "", level = "", power = null, fill = null, title = "" }) {
  td.children[0].textContent = text;
  td.children[1].textContent = sub;
  td.children[1].hidden = sub === "";
  td.dataset.level = level;
  td.title = title;
  let gauge = td.children[2];
  if (power === null && fill === null) {
    if (gauge) gauge.remove();
    td.classList.remove("wide");
    return;
  }
  if (!gauge) {
    gauge = document.createElement("div");
    gauge.append(document.createElement("i"));
    td.append(gauge);
    td.classList.add("wide");
  }
  gauge.className = power !== null ? "gauge power" : "gauge fill";
  const at = power !== null ? (power + 60) / 60 : fill > 0 ? Math.max(0.03, Math.min(1, fill)) : 0;
  gauge.style.setProperty("--at", `${100 * Math.max(0, Math.min(1, at))}%`);
}

const rate_cell = (c, unit, scale = 1) => ({ text: known(per_s(c)) ? si(scale * per_s(c), unit) : "–", sub: c ? `${count(total(c))} in all` : "" });
/* A counter that should stand still. */
function still_cell(c) {
  const moves = per_s(c) > 0;
  return { text: moves ? si(per_s(c), "/s") : count(total(c)), sub: moves ? `${count(total(c))} in all` : "", level: moves ? "warn" : total(c) ? "" : "idle" };
}

function newest_cell(row, s) {
  if (!(row.newest_timestamp >= 0)) return { text: "never", level: "idle" };
  const time = s.sync_time + row.newest_timestamp / s.adc_sample_rate, behind = s.time - time;
  return { text: behind < 100 ? `${Math.max(0, behind).toFixed(2)} s` : duration(behind), sub: `${utc(time)} UTC`, level: behind > 5 ? "warn" : "" };
}

function input_name(i) {
  return i.fengs !== undefined ? `F-engines ${i.fengs}` : `${i.antenna} pol ${i.pol}`;
}

function power_level(dbfs) {
  return dbfs >= -30 && dbfs <= -10 ? "" : dbfs >= -33 && dbfs <= -7 ? "warn" : "bad";
}

function show_inputs(s) {
  const rows = s.inputs.map(i => ({ ...i, row_key: input_name(i) }));
  const is_f = rows.some(i => i.antenna !== undefined);
  const columns = [
    ["Input", "name", i => ({ text: i.row_key })],
    ["Heaps", "heaps", i => ({ ...rate_cell(i.heaps, "/s"), level: per_s(i.heaps) === 0 ? "idle" : "" })],
    ["Rate", "bytes", i => ({ ...rate_cell(i.bytes, "b/s", 8), sub: `${count(total(i.bytes))} bytes` })],
    ["Loss", "missing_heaps", i => ({ text: percent(loss(i)), sub: `${count(total(i.missing_heaps))} heaps in all`, level: loss(i) > 0 ? "warn" : "", fill: loss(i) > 0 ? loss(i) : null })],
  ];
  if (is_f) columns.push(
    ["Clipped", "clipped_samples", i => {
      const f = fraction(per_s(i.clipped_samples), s.adc_sample_rate);
      return { text: percent(f), sub: `${count(total(i.clipped_samples))} samples`, level: f > 0.001 ? "warn" : "" };
    }],
    ["Power", "power_dbfs", i => {
      const seen = known(i.power_dbfs) && total(i.heaps) > 0 && i.power_dbfs !== 0;
      return { text: seen ? `${db(i.power_dbfs)} dBFS` : "–", power: seen ? i.power_dbfs : -1000, level: seen ? power_level(i.power_dbfs) : "idle", title: "good from −30 to −10 dBFS; 0 is a sine that fills the digitiser's range" };
    }]);
  else columns.push(["Incomplete", "incomplete_heaps", i => still_cell(i.incomplete_heaps)]);
  columns.push(["Behind", "newest", i => newest_cell(i, s)]);
  fill_table($("inputs"), columns, rows);
}

function show_streams(s) {
  const rows = s.streams.map(t => ({ ...t, row_key: t.antenna === undefined ? t.stream : `${t.antenna} ${t.stream}` }));
  const is_f = s.program === "fgpu";
  const columns = [
    ["Stream", "name", t => ({ text: t.row_key })],
    [is_f ? "Heaps" : "Dumps", "heaps", t => ({ ...rate_cell(t.heaps, "/s"), level: per_s(t.heaps) === 0 ? "idle" : "" })],
    ["Rate", "bytes", t => ({ ...rate_cell(t.bytes, "b/s", 8), sub: `${count(total(t.bytes))} bytes` })],
  ];
  if (is_f) {
    const level = (t, pol) => (s.levels.find(l => l.antenna === t.antenna && l.stream === t.stream && l.pol === pol) || {}).dbfs;
    for (const pol of [0, 1]) columns.push([`Level pol ${pol}`, `level${pol}`, t => ({ text: known(level(t, pol)) ? `${db(level(t, pol))} dBFS` : "–", title: "mean power of the voltages sent; 0 is a tone of full amplitude" })]);
    for (const pol of [0, 1]) columns.push([`Clipped pol ${pol}`, `clipped${pol}`, t => {
      const c = (t.clipped_samples || {})[pol], output = s.outputs.find(o => o.name === t.stream) || {};
      const f = fraction(per_s(c), fraction(per_s(t.bytes), 2 * (output.sample_bits || 8) / 4));
      return { text: percent(f), sub: `${count(total(c))} samples`, level: f > 0.01 ? "warn" : "" };
    }]);
    columns.push(["Skipped", "skipped_heaps", t => still_cell(t.skipped_heaps)], ["Dropped", "dropped_heaps", t => still_cell(t.dropped_heaps)]);
  } else {
    columns.push(
      ["Clipped", "clipped_visibilities", t => still_cell(t.clipped_visibilities)],
      ["Incomplete", "incomplete_accs", t => still_cell(t.incomplete_accs)],
      ["Absent", "absent_accs", t => still_cell(t.absent_accs)],
      ["Dropped", "dropped_accs", t => still_cell(t.dropped_accs)],
      ["Wrong", "wrong_accs", t => ({ text: count(total(t.wrong_accs)), level: total(t.wrong_accs) ? "bad" : "" })],
      ["Audited", "audits", t => ({ text: count(total(t.audits)), sub: total(t.audit_failures) ? `${count(total(t.audit_failures))} wrong` : "all agreed", level: total(t.audit_failures) ? "bad" : "" })]);
  }
  columns.push(["Latency", "latency_seconds", t => ({ text: t.latency_seconds > 0 ? si_seconds(t.latency_seconds) : "–" })]);
  fill_table($("streams"), columns, rows);
}

const si_seconds = v => { const a = Math.abs(v); return minus(a === 0 ? "0 s" : a >= 1 ? `${v.toFixed(2)} s` : a >= 1e-3 ? `${(1e3 * v).toPrecision(3)} ms` : a >= 1e-6 ? `${(1e6 * v).toPrecision(4)} µs` : `${(1e9 * v).toFixed(4)} ns`); };

function show_delays(s) {
  const all = s.delays || [], rows = all.filter(d => d.start_timestamp >= 0 || d.later_models).map(d => ({ ...d, row_key: `${d.antenna} ${d.stream} pol ${d.pol}` }));
  const none = d => d.start_timestamp < 0;
  $("delays-card").hidden = !all.length;
  $("delays").hidden = !rows.length;
  $("delays-note").textContent = rows.length === all.length ? "" : rows.length ? "The others have none." : "No model has been set: no input is delayed.";
  fill_table($("delays"), [
    ["Input of stream", "name", d => ({ text: d.row_key })],
    ["Delay now", "now_delay_s", d => none(d) ? { text: "none", level: "idle" } : { text: minus(`${(1e9 * d.now_delay_s).toFixed(3)} ns`), sub: minus(`${(d.now_delay_s * s.adc_sample_rate).toFixed(3)} samples`) }],
    ["Rate", "rate", d => ({ text: none(d) ? "–" : minus(`${(1e9 * d.rate).toPrecision(4)} ns/s`) })],
    ["Phase now", "now_phase_rad", d => ({ text: none(d) ? "–" : minus(`${(d.now_phase_rad * 180 / Math.PI).toFixed(2)}°`) })],
    ["In force since", "start_time", d => ({ text: none(d) ? "–" : `${utc(d.start_time)} UTC`, sub: none(d) ? "" : day(d.start_time) })],
    ["Waiting", "later_models", d => ({ text: d.later_models ? plural(d.later_models, "model") : "–" })],
  ], rows);
}

// ---- Antennas of an X-engine ----------------------------------------------------------------------------------------

const antenna_name = (s, a) => (s.fengs || [])[a] ? s.fengs[a].antenna : `antenna ${a}`;
const feng_loss = f => fraction(per_s(f.missing_heaps), known(per_s(f.heaps)) ? per_s(f.heaps) + per_s(f.missing_heaps) : null);
const for_how_long = (s, f) => known(f.since) ? ` for ${duration(Math.max(0, s.time - f.since))}` : "";

/* What the stream of an antenna's F-engine does, in a few words. */
function state_text(s, f) {
  if (f.state === "losing") return per_s(f.missing_heaps) > 0 ? `loses ${percent(feng_loss(f))}` : "has lost heaps";
  return f.state === "silent" ? `silent${for_how_long(s, f)}` : f.state;
}

function antenna_level(s, a, middle) {
  const f = (s.fengs || [])[a], level = (s.levels[a] || []).filter(known);
  if (f && f.state !== "receiving") return f.state === "losing" ? "warn" : s.fengs.some(g => g.state !== "dead") ? "bad" : "";
  if (!level.length) return "";
  return Math.max(...level.map(l => Math.abs(l - middle))) > 6 ? "warn" : "ok";
}

function show_antennas(s) {
  $("antennas").hidden = s.n_antennas === undefined;
  if (s.n_antennas === undefined) return;
  const grid = $("antenna-grid"), pair = pair_of(s);
  $("reference").textContent = antenna_name(s, pair[0]);
  if (grid.children.length !== s.n_antennas) {
    grid.replaceChildren(...Array.from({ length: s.n_antennas }, (_, a) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(document.createElement("b"), ...[1, 2, 3].map(() => document.createElement("span")));
      button.onclick = () => choose({ baseline: `${pair_of(last)[0]},${a}` });
      return button;
    }));
  }
  const middle = median(s.levels.flat().filter(known));
  for (let a = 0; a < s.n_antennas; a++) {
    const button = grid.children[a], level = s.levels[a] || [null, null], f = (s.fengs || [])[a];
    button.dataset.level = antenna_level(s, a, middle);
    button.classList.toggle("chosen", pair.includes(a));
    button.children[0].textContent = antenna_name(s, a);
    button.children[1].textContent = f ? state_text(s, f) : "";
    button.children[2].textContent = `pol 0 ${db(level[0])}`;
    button.children[3].textContent = `pol 1 ${db(level[1])}`;
    if (f) button.title = `F-engine ${f.feng}: ${count(total(f.heaps))} heaps received, ${count(total(f.missing_heaps))} missing, ${count(total(f.late_heaps))} late, ${count(total(f.refused_heaps))} refused`;
  }
}

function median(list) {
  const sorted = [...list].sort((a, b) => a - b);
  return sorted.length ? sorted[Math.floor(sorted.length / 2)] : NaN;
}

// ---- Spectra --------------------------------------------------------------------------------------------------------

function read_hash() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

/* The choice of the viewer.  The address has it, too, so that it may be sent to somebody. */
function choose(what) {
  chosen = { ...chosen, ...what };
  for (const key in chosen) if (chosen[key] === undefined) delete chosen[key];
  history.replaceState(null, "", "#" + new URLSearchParams(chosen).toString().replaceAll("%2C", ","));
  poll();
}

function pair_of(s) {
  const asked = (chosen.baseline || "").split(",").map(Number);
  return asked.length === 2 && asked.every(a => Number.isInteger(a) && a >= 0 && a < s.n_antennas) ? asked : [0, s.n_antennas > 1 ? 1 : 0];
}

/* A labelled list, made anew only if what it offers changes. */
function offer(name, label, values, value, change, texts = values) {
  let select = $("choose-" + name);
  if (!select) {
    const box = document.createElement("label");
    select = Object.assign(document.createElement("select"), { id: "choose-" + name });
    box.append(label, select);
    $("choose").append(box);
  }
  if (select.offered !== texts.join("\n")) {
    select.offered = texts.join("\n");
    select.replaceChildren(...values.map((v, i) => new Option(texts[i], v)));
  }
  select.parentElement.hidden = values.length < 2;
  select.onchange = () => change(select.value);
  if (document.activeElement !== select || select.value === "") select.value = value;
}

function offer_choices(s) {
  const streams = s.outputs.map(o => o.name), shown = s.spectrum || {};
  if (s.n_antennas !== undefined) {
    const antennas = Array.from({ length: s.n_antennas }, (_, a) => String(a)), names = antennas.map(a => antenna_name(s, a)), pair = pair_of(s);
    offer("first", "antenna", antennas, String(pair[0]), v => choose({ baseline: `${v},${pair_of(last)[1]}` }), names);
    offer("second", "with", antennas, String(pair[1]), v => choose({ baseline: `${pair_of(last)[0]},${v}` }), names);
  } else {
    offer("antenna", "antenna", s.antenna_names, chosen.antenna || shown.antenna || s.antenna_names[0], v => choose({ antenna: v }));
  }
  $("whole").hidden = chosen.channels === undefined;
  $("whole").onclick = () => zoom(null);
  offer("stream", "stream", streams, chosen.stream || shown.stream || streams[0], v => choose({ stream: v }));
}

const zoom = (first, last) => choose({ channels: first === null ? undefined : `${first},${last}` });

let plot_set = null;

function make_plots(s, unit) {
  const box = $("plots"), kind = s.program + unit;
  if (plot_set && plot_set.kind === kind) return;
  box.replaceChildren();
  plots.length = 0;
  plot_set = { kind };
  if (s.n_antennas === undefined) {
    plot_set.power = new Plot(box, { zoom, title: "Power", unit, height: 300 });
    return;
  }
  const hands = ["pol 0 × 1", "pol 1 × 0"];
  plot_set.power = new Plot(box, { zoom, title: "Autocorrelations", unit, height: 210 });
  plot_set.amplitude = new Plot(box, { zoom, title: "Amplitude", unit, height: 210, hidden: hands });
  plot_set.phase = new Plot(box, { zoom, title: "Phase", unit: "°", height: 190, range: [-180, 180], ticks: [-180, -90, 0, 90, 180], dots: true, hidden: hands });
  plot_set.coherence = new Plot(box, { zoom, title: "Coherence", unit: "of 1", height: 130, range: [0, 1.02], ticks: [0, 0.5, 1], digits: 3, hidden: hands });
}

function axis_of(spectrum) {
  return { ...spectrum.axis, scale: 1e6, name: spectrum.relative ? "MHz from channel 0" : "MHz" };
}

function show_spectrum(s) {
  const card = $("spectra"), spectrum = s.spectrum;
  card.hidden = !s.outputs;
  if (!s.outputs) return;
  offer_choices(s);
  if (!spectrum) {
    $("spectrum-note").textContent = plot_set ? "Waiting for the next data of what was chosen." : "No data have come yet.";
    card.classList.add("old");
    return;
  }
  make_plots(s, spectrum.unit);
  const axis = axis_of(spectrum), age = s.time - spectrum.time, power = spectrum.curves.filter(c => c.kind === "power");
  const cross = spectrum.curves.filter(c => c.kind === "cross");
  plot_set.power.set(axis, power.map((c, i) => ({ name: (c.antennas ? `${antenna_name(s, c.antennas[0])} ` : "") + `pol ${c.pols ? c.pols[0] : c.pol}`, colour: COLOURS[i], mean: c.mean, most: c.most })));
  if (plot_set.phase) {
    const order = [0, 3, 1, 2], of = c => c.pols[0] + 2 * c.pols[1]; // colours: parallel hands first
    const named = [...cross].sort((a, b) => order.indexOf(of(a)) - order.indexOf(of(b)));
    const curves = field => named.map((c, i) => ({ name: `pol ${c.pols[0]} × ${c.pols[1]}`, colour: COLOURS[i], mean: c[field], most: field === "mean" ? c.most : null }));
    plot_set.amplitude.set(axis, curves("mean"));
    plot_set.phase.set(axis, curves("phase_deg"));
    plot_set.coherence.set(axis, curves("coherence"));
  }
  const output = s.outputs.find(o => o.name === spectrum.stream) || {};
  const old = age > 5 + 2 * (output.integration_s || 0);
  card.classList.toggle("old", old);
  $("spectrum-time").textContent = `${utc(spectrum.time)} UTC${old ? ", " + duration(age) + " ago" : ""}` + (spectrum.n_spectra ? ` · mean of ${spectrum.n_spectra} spectra` : ` · ${si_seconds(output.integration_s)}`);
  $("spectrum-note").textContent = axis.channels_per_point > 1 ? `Each point is ${axis.channels_per_point} channels: their mean, and paler the most of them. Draw over a stretch with the mouse to see it closer.` : "";
}

// ---- Sensors --------------------------------------------------------------------------------------------------------

const SENSOR_LEVELS = { nominal: "", unknown: "idle", inactive: "idle", warn: "warn" };

function show_sensors(s) {
  const rows = Object.entries(s.sensors || {}).map(([name, sensor]) => ({ ...sensor, row_key: name }));
  $("sensors-card").hidden = !rows.length;
  if (!$("sensors-card").open) return;
  fill_table($("sensors"), [
    ["Sensor", "name", r => ({ text: r.row_key })],
    ["Value", "value", r => ({ text: `${minus(String(r.value))} ${r.units}` })],
    ["Status", "status", r => ({ text: r.status, level: SENSOR_LEVELS[r.status] ?? "bad" })],
    ["Time", "time", r => ({ text: r.time > 0 ? `${day(r.time)} ${utc(r.time)} UTC` : "–" })],
  ], rows);
}

// ---- What is wrong --------------------------------------------------------------------------------------------------

/* All counters that should stand still, as [where, what, counter]. */
function troubles_of(s) {
  const found = [];
  const look = (where, name, value) => {
    if (!value || typeof value !== "object") return;
    if (value.total === undefined) for (const key in value) look(where, `${name} ${key}`, value[key]);
    else if (value.total > 0) found.push([where, name.replaceAll("_", " "), value]);
  };
  const names = ["rejected_packets", "malformed_packets", "too_old_heaps", "bad_timestamp_heaps", "bad_feng_id_heaps", "incomplete_heaps", "contested_heaps", "missing_heaps", "jumps", "failed_packets", "unmatched_chunks", "late_chunks", "skipped_heaps", "dropped_heaps", "incomplete_accs", "absent_accs", "skipped_accs", "dropped_accs", "audit_failures", "wrong_accs"];
  for (const f of s.fengs || []) look(f.antenna, "missing heaps", f.missing_heaps), look(f.antenna, "late heaps", f.late_heaps), look(f.antenna, "refused heaps", f.refused_heaps);
  const scan = (where, object) => { for (const name of names) if (object[name]) look(where, name, object[name]); };
  for (const i of s.inputs || []) scan(input_name(i), i);
  for (const a of s.antennas || []) scan(a.antenna, a);
  for (const t of s.streams || []) scan((t.antenna ? t.antenna + " " : "") + t.stream, t);
  for (const r of s.receivers || []) {
    scan(r.thread, r);
    if (r.kernel_drops > 0) found.push([r.thread, "dropped by the kernel", { total: r.kernel_drops, per_s: null }]);
  }
  scan(s.program, s.other || {});
  return found;
}

function show_troubles(s) {
  const list = troubles_of(s);
  $("troubles-card").hidden = !list.length;
  $("troubles").replaceChildren(...list.map(([where, what, c]) => {
    const li = document.createElement("li"), a = document.createElement("span"), b = document.createElement("span");
    a.textContent = `${where}: ${what}`;
    b.textContent = count(c.total) + (c.per_s > 0 ? ` (${si(c.per_s, "/s")})` : "");
    if (c.per_s > 0) li.dataset.level = "warn";
    li.append(a, b);
    return li;
  }));
}

/* [state, headline, why] */
function judge(s) {
  if (!s.healthy) return ["bad", "Failed", "results are wrong; see the log"];
  if (s.device && !s.device.ok) return ["bad", "Failed", "the device does not work any more; see the log"];
  if (s.state !== "running") return ["warn", s.state === "draining" ? "Stopping" : "Starting", ""];
  const heaps = s.inputs.map(i => per_s(i.heaps));
  if (heaps.every(h => h === null)) return ["wait", "Looking", "rates in a second"];
  const silent = s.inputs.filter(i => per_s(i.heaps) === 0), missing = sum(s.inputs.map(i => per_s(i.missing_heaps)));
  if (silent.length === s.inputs.length) return ["idle", "No data", "nothing arrives on any input"];
  if (silent.length) return ["warn", "Inputs missing", names_of(silent.map(input_name))];
  const fengs = s.fengs || [], gone = fengs.filter(f => f.state === "dead" || f.state === "silent"), losing = fengs.filter(f => f.state === "losing");
  if (gone.length) return ["warn", "Antennas missing", names_of(gone.map(f => `${f.antenna} ${state_text(s, f)}`))];
  const contested = s.inputs.filter(i => per_s(i.contested_heaps) > 0);
  if (contested.length) return ["bad", "Contested", `two senders send different bytes for the same heaps: ${names_of(contested.map(input_name))}`];
  if (losing.length) return ["warn", "Losing data", names_of(losing.map(f => `${f.antenna} ${state_text(s, f)}`))];
  if (missing > 0) return ["warn", "Losing data", `${percent(missing / (missing + sum(heaps)))} of the heaps are missing: ${names_of(s.inputs.filter(i => per_s(i.missing_heaps) > 0).map(input_name))}`];
  const dropping = s.streams.filter(t => (per_s(t.dropped_heaps) || per_s(t.dropped_accs)) > 0);
  if (dropping.length) return ["warn", "Dropping output", names_of(dropping.map(t => t.stream))];
  const odd = s.inputs.filter(i => known(i.power_dbfs) && power_level(i.power_dbfs));
  if (odd.length) return ["warn", "Receiving", `power out of range: ${names_of(odd.map(i => `${input_name(i)} ${db(i.power_dbfs)} dBFS`))}`];
  return judge_lately(s, (s.other || {}).clock_synchronised === 0 ? "; the host's clock is not synchronised" : "");
}

/* Nothing is wrong in this second: what is quiet, then the worst of the last minute, then the last hour. */
function judge_lately(s, more) {
  const troubles = s.troubles || [], quiet = troubles.filter(t => t.quiet), lately = troubles.filter(t => t.n_minute > 0);
  const ago = t => `${duration(Math.max(0, s.time - t.last))} ago`;
  if (quiet.length) return ["warn", "Streams silent", names_of(quiet.map(t => `${t.where} for ${duration(Math.max(0, s.time - t.since))}`))];
  const others = list => list.length > 1 ? ` and ${plural(list.length - 1, "other trouble")}` : "";
  if (lately.length) {
    const t = lately[0];
    return [t.level === "bad" ? "bad" : "warn", "Lost data", `${t.where}: ${count(t.n_minute)} ${t.what}, the last ${ago(t)}${others(lately)}`];
  }
  if (troubles.length) return ["ok", "Receiving", `nothing lost in the last minute; in the last hour ${troubles[0].where}: ${count(troubles[0].n_hour)} ${troubles[0].what}, ${ago(troubles[0])}${others(troubles)}${more}`];
  return ["ok", "Receiving", `nothing is lost${more}`];
}

function names_of(names) {
  return names.length > 4 ? `${names.slice(0, 3).join(", ")} and ${names.length - 3} more` : names.join(", ");
}

// ---- The page -------------------------------------------------------------------------------------------------------

function show_state([state, headline, why]) {
  $("banner").dataset.state = state;
  $("state").textContent = headline;
  $("reason").textContent = why;
  const colours = { ok: "%2322a55b", warn: "%23e08a00", bad: "%23d92626" };
  const icon = `data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'><circle cx='8' cy='8' r='7' fill='${colours[state] || "%2394a3b8"}'/></svg>`;
  if ($("icon").href !== icon) $("icon").href = icon;
  document.title = last ? `${headline} · ${last.program} on ${last.host}` : headline;
}

function show_tiles(s) {
  const worst = s.inputs.reduce((a, i) => Math.max(a, loss(i) || 0), 0), age = Math.min(...s.inputs.map(i => i.newest_timestamp >= 0 ? s.time - s.sync_time - i.newest_timestamp / s.adc_sample_rate : Infinity));
  const in_rate = sum(s.inputs.map(i => per_s(i.bytes))), out_rate = sum(s.streams.map(t => per_s(t.bytes)));
  const latency = Math.max(0, ...s.streams.map(t => t.latency_seconds || 0)), lost = s.inputs.reduce((a, i) => a + total(i.missing_heaps), 0);
  const tiles = [
    ["received", "Received", si(known(in_rate) ? 8 * in_rate : null, "b/s"), plural(s.inputs.length, "input")],
    ["lost", "Lost", percent(in_rate === null ? null : worst), `${count(lost)} heaps in all`, worst > 0 ? "warn" : ""],
    ["sent", "Sent", si(known(out_rate) ? 8 * out_rate : null, "b/s"), plural(s.streams.length, "stream")],
    ["latency", "Latency", latency > 0 ? si_seconds(latency) : "–", "input to output"],
    ["age", "Newest data", age === Infinity ? "never" : age < 100 ? `${Math.max(0, age).toFixed(2)} s` : duration(age), "behind the clock", age > 5 ? "warn" : ""],
  ];
  const synchronised = (s.other || {}).clock_synchronised;  // not there with timebase packets
  if (known(synchronised)) tiles.push(["clock", "Host clock", synchronised ? "synchronised" : "not synchronised", "places timestamps", synchronised ? "" : "warn"]);
  const box = $("tiles");
  if (box.children.length !== tiles.length)
    box.replaceChildren(...tiles.map(t => {
      const tile = document.createElement("div");
      tile.className = "tile";
      tile.dataset.key = t[0];
      tile.append(document.createElement("span"), document.createElement("b"), document.createElement("small"));
      return tile;
    }));
  tiles.forEach((t, i) => {
    const tile = box.children[i];
    tile.children[0].textContent = t[1];
    tile.children[1].textContent = t[2];
    tile.children[2].textContent = t[3];
    tile.dataset.level = t[4] || "";
  });
}

function show(s) {
  $("program").textContent = s.program;
  $("host").textContent = s.host;
  $("facts").textContent = `up ${duration(s.uptime_s)} · ${s.device ? s.device.model : "no device"}`;
  $("version").textContent = `${s.program} ${s.version}`;
  s.inputs = s.inputs || [];
  s.streams = s.streams || [];
  s.levels = s.levels || [];
  show_state(judge(s));
  show_tiles(s);
  show_spectrum(s);
  show_antennas(s);
  show_inputs(s);
  show_streams(s);
  show_delays(s);
  show_troubles(s);
  show_sensors(s);
  document.body.dataset.shown = String(1 + Number(document.body.dataset.shown || 0));
}

/* Old figures are grey, and the banner says since when. */
function show_age() {
  const age_ms = Date.now() - last_ms, stale = last_ms > 0 && asked_ms > 0 && Date.now() - asked_ms > STALE_MS;
  document.body.classList.toggle("stale", stale);
  if (stale) show_state(["gone", "No answer", `from ${last.program} on ${last.host} for ${duration(age_ms / 1000)}; what is below is old`]);
  if (last) $("clock").textContent = `${day(last.time)} ${utc(last.time)} UTC`;
}

let polling = null, timer = null;

async function poll() {
  clearTimeout(timer);
  if (polling) polling.abort();
  asked_ms = asked_ms || Date.now();
  const mine = polling = new AbortController(), give_up = setTimeout(() => mine.abort(), TIMEOUT_MS);
  try {
    const query = new URLSearchParams(chosen).toString();
    const reply = await fetch("status.json" + (query ? "?" + query : ""), { signal: mine.signal, cache: "no-store" });
    const answer = await reply.json();
    if (mine === polling) {
      last = answer;
      last_ms = Date.now();
      asked_ms = 0;
      show(answer);
    }
  } catch (error) {
    if (error.name !== "AbortError" && !(error instanceof TypeError) && !(error instanceof SyntaxError)) throw error;
    if (!last && mine === polling) show_state(["gone", "No answer", "the program does not answer"]);
  } finally {
    clearTimeout(give_up);
    if (mine === polling) {
      polling = null;
      timer = setTimeout(poll, document.hidden ? HIDDEN_INTERVAL_MS : INTERVAL_MS);
      show_age();
    }
  }
}

setInterval(show_age, 500);
$("sensors-card").addEventListener("toggle", () => last && show_sensors(last));
document.addEventListener("visibilitychange", poll);
window.addEventListener("hashchange", () => { chosen = read_hash(); poll(); });
poll();
