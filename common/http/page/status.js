"use strict";
/* Shows /status.json: once a second in a visible tab, and more slowly in a hidden tab. */

const INTERVAL_MS = 1000, HIDDEN_INTERVAL_MS = 5000, TIMEOUT_MS = 4000, STALE_MS = 2500;
const COLOURS = ["--c0", "--c1", "--c2", "--c3"];
const $ = id => document.getElementById(id);

let last = null;        // last answer
let last_ms = 0;        // time of the last answer
let asked_ms = 0;       // time of the first request without an answer; 0: every request has its answer
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
/* Returns "" while the data come as often as they should, otherwise the age of the data in words. */
const how_old = (s, time, integration_s = 0) => known(time) && s.time - time > 5 + 2 * integration_s ? `${duration(s.time - time)} old` : "";
const input_time = (s, i) => i.newest_timestamp >= 0 ? s.sync_time + i.newest_timestamp / s.adc_sample_rate : null;
const integration_of = (s, stream) => (s.outputs.find(o => o.name === stream) || s.outputs[0] || {}).integration_s || 0;
const db = v => known(v) ? minus(v.toFixed(1)) : "–";

// ---- Tables ---------------------------------------------------------------------------------------------------------

/* Fills a table.  Cells are created once and only their text changes, so that selected text stays selected.  A column is [label,
 * key, function of a row], and the function returns {text, sub, level, power, fill, bar, peak, title}.  Each row has a unique
 * row_key. */
function fill_table(table, columns, rows) {
  const shape = columns.map(c => c[0]).join("|") + "\n" + rows.map(r => r.row_key).join("\n");
  if (table.shape !== shape) {
    table.shape = shape;
    const cell = ([label, key]) => element("td", { dataset: { label, key } }, element("span"), element("small"));
    const head = element("tr", {}, ...columns.map(c => element("th", {}, c[0])));
    const lines = rows.map(row => element("tr", { dataset: { row: row.row_key } }, ...columns.map(cell)));
    table.replaceChildren(element("thead", {}, head), element("tbody", {}, ...lines));
  }
  rows.forEach((row, r) => columns.forEach((column, c) => fill_cell(table.tBodies[0].rows[r].cells[c], column[2](row))));
}

function fill_cell(td, { text, sub = "", level = "", power = null, fill = null, bar = null, peak = null, title = "" }) {
  td.children[0].textContent = text;
  td.children[1].textContent = sub;
  td.children[1].hidden = sub === "";
  td.dataset.level = level;
  td.title = title;
  if (peak) { draw_peak(td, peak); return; }
  let gauge = td.children[2];
  if (power === null && fill === null && bar === null) {
    if (gauge) gauge.remove();
    td.classList.remove("wide", "peak");
    return;
  }
  if (!gauge) {
    gauge = element("div", {}, element("i"));
    td.append(gauge);
    td.classList.add("wide");
  }
  gauge.className = power !== null ? "gauge power" : bar !== null ? "gauge bar" : "gauge fill";
  const at = power !== null ? (power + 60) / 60 : bar !== null ? bar : fill > 0 ? Math.max(0.03, Math.min(1, fill)) : 0;
  gauge.style.setProperty("--at", `${100 * Math.max(0, Math.min(1, at))}%`);
}

const rate_cell = (c, unit, scale = 1) => ({ text: known(per_s(c)) ? si(scale * per_s(c), unit) : "–", sub: c ? `${count(total(c))} in all` : "" });
/* Returns the cell of a counter that does not increase as long as all is well. */
function still_cell(c) {
  const moves = per_s(c) > 0;
  return { text: moves ? si(per_s(c), "/s") : count(total(c)), sub: moves ? `${count(total(c))} in all` : "", level: moves ? "warn" : total(c) ? "" : "idle" };
}

function newest_cell(row, s) {
  if (!(row.newest_timestamp >= 0)) return { text: "never", level: "idle" };
  const time = s.sync_time + row.newest_timestamp / s.adc_sample_rate, behind = s.time - time;
  return { text: behind < 100 ? `${Math.max(0, behind).toFixed(2)} s` : duration(behind), sub: `${utc(time)} UTC`, level: behind > 5 ? "warn" : "" };
}

/* Returns the name under which the history lists an input, or the antennas of a receive thread. */
function input_name(s, i) {
  if (i.fengs === undefined) return `${i.antenna} pol ${i.pol}`;
  const names = antennas_of(s, i), [first, last = first] = String(i.fengs).split("-").map(Number);
  if (names.length !== last - first + 1) return `F-engines ${i.fengs}`;
  return names.length > 3 ? `${names[0]} to ${names[names.length - 1]}` : names.join(", ");
}

function power_level(dbfs) {
  return dbfs >= -30 && dbfs <= -10 ? "" : dbfs >= -33 && dbfs <= -7 ? "warn" : "bad";
}

function show_inputs(s) {
  const rows = s.inputs.map(i => ({ ...i, row_key: input_name(s, i) }));
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
      const age = seen ? how_old(s, input_time(s, i)) : "";
      return { text: seen ? `${db(i.power_dbfs)} dBFS` : "–", sub: age, power: seen ? i.power_dbfs : -1000, level: seen && !age ? power_level(i.power_dbfs) : "idle", title: "good from −30 to −10 dBFS; 0 is a full-scale sine" };
    }]);
  else columns.push(["Incomplete", "incomplete_heaps", i => still_cell(i.incomplete_heaps)]);
  columns.push(["Behind", "newest", i => newest_cell(i, s)]);
  fill_table($("inputs"), columns, rows);
}

function show_streams(s) {
  const rows = s.streams.filter(t => !is_beam(s, t.stream) && !is_gnss(s, t)).map(t => ({ ...t, row_key: stream_name(t) }));
  const is_f = s.program === "fgpu";
  const columns = [
    ["Stream", "name", t => ({ text: t.row_key })],
    [is_f ? "Heaps" : "Dumps", "heaps", t => ({ ...rate_cell(t.heaps, "/s"), level: per_s(t.heaps) === 0 ? "idle" : "" })],
    ["Rate", "bytes", t => ({ ...rate_cell(t.bytes, "b/s", 8), sub: `${count(total(t.bytes))} bytes` })],
  ];
  if (is_f) {
    const level = (t, pol) => s.levels.find(l => l.antenna === t.antenna && l.stream === t.stream && l.pol === pol) || {};
    for (const pol of [0, 1]) columns.push([`Level pol ${pol}`, `level${pol}`, t => {
      const { dbfs, time } = level(t, pol), age = how_old(s, time);
      return { text: known(dbfs) ? `${db(dbfs)} dBFS` : "–", sub: age, level: age ? "idle" : "", title: "mean power of the sent voltages; 0 dBFS is a tone of full amplitude" };
    }]);
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

const is_beam = (s, name) => (s.beams || []).some(b => b.name === name) || (s.detected || []).some(d => name === d.name || name.startsWith(`${d.name}.`));

/* Returns the rows of the voltage beams.  After these rows, each stream of detected beams has a row, and each beam of
 * the stream has a row. */
function beam_rows(s) {
  const figures = new Map(s.streams.map(t => [t.stream, t])), row = (about, name) => ({ ...about, ...figures.get(name), row_key: name });
  const voltages = (s.beams || []).map(b => row({ ...b, about: `pol ${b.pol}` }, b.name));
  const powers = d => [row({ ...d, about: plural(d.beams, "detected beam") }, d.name), ...Array.from({ length: d.beams }, (_, i) => row({}, `${d.name}.${i}`))];
  return [...voltages, ...(s.detected || []).flatMap(powers)];
}

/* Returns the rms of the real and imaginary parts: measured, or computed from a power; "" if both are unknown. */
function rms_cell(b) {
  const title = "rms of the real and imaginary parts, whose largest value is 127", one = b.power && [b.power.power_0, b.power.power_1].find(known);
  if (known(b.rms)) return { text: total(b.measured_samples) ? b.rms.toFixed(2) : "–", title };
  if (!b.power) return { text: "" };
  const of_I = name => b.power.I > 0 ? `${name} ${minus((100 * b.power[name] / b.power.I).toFixed(1))} %` : "";
  return { text: Math.sqrt(known(one) ? one / 2 : b.power.I / 4).toFixed(2), sub: known(b.power.Q) ? ["Q", "U", "V"].map(of_I).filter(Boolean).join(" ") : "", title: `${title}; Stokes parameters are shares of I` };
}

function zeros_cell(b) {
  if (known(b.present_ratio)) return { text: "" };
  const f = known(b.zero_powers_ratio) ? b.zero_powers_ratio : fraction(per_s(b.zero_samples), per_s(b.measured_samples));
  return { text: percent(f), level: f === 1 ? "bad" : "" };
}

function clipped_cell(b) {
  const f = known(b.clipped_ratio) ? b.clipped_ratio : fraction(per_s(b.clipped_samples), per_s(b.samples));
  return { text: percent(f), sub: b.clipped_samples ? `${count(total(b.clipped_samples))} samples` : "", level: f > 0.01 ? "warn" : "" };
}

/* For a voltage beam, returns the number of antennas in the beam.  For detected beams, returns the fraction of the data
 * that arrived. */
function came_cell(s, b) {
  if (known(b.present_ratio)) return { text: percent(b.present_ratio), sub: "of the data", level: total(b.heaps) && b.present_ratio < 1 ? "warn" : "" };
  if (!known(b.antennas)) return { text: "" };
  return { text: total(b.measured_samples) ? `${b.antennas} of ${s.n_antennas}` : "–", level: total(b.measured_samples) && b.antennas < s.n_antennas ? "warn" : "" };
}

/* Zeros and rms are measured in some batches or heaps.  Clipped samples of a stream are counted in all sent heaps. */
function show_beams(s) {
  const rows = beam_rows(s);
  $("beams-card").hidden = !rows.length;
  fill_table($("beams"), [
    ["Beam", "name", b => ({ text: b.row_key, sub: b.about || "" })],
    ["Heaps", "heaps", b => b.heaps ? { ...rate_cell(b.heaps, "/s"), level: per_s(b.heaps) === 0 ? "idle" : "" } : { text: "" }],
    ["Rate", "bytes", b => b.bytes ? { ...rate_cell(b.bytes, "b/s", 8), sub: `${count(total(b.bytes))} bytes` } : { text: "" }],
    ["Rms", "rms", b => rms_cell(b)],
    ["Zeros", "zero_samples", zeros_cell],
    ["Clipped", "clipped_samples", clipped_cell],
    ["Antennas", "antennas", b => came_cell(s, b)],
    ["Weights of 0", "zero_weights_ratio", b => known(b.zero_weights_ratio) ? { text: percent(b.zero_weights_ratio), level: b.zero_weights_ratio > 0.5 ? "warn" : "" } : { text: "" }],
    ["Destination", "destinations", b => ({ text: (b.destinations || []).join(", ") })],
  ], rows);
}

// ---- Configuration --------------------------------------------------------------------------------------------------

const mhz = hz => known(hz) ? `${Number((hz / 1e6).toPrecision(8))} MHz` : "–";
const list_of = items => items.length > 3 ? `${items[0]} … ${items[items.length - 1]} (${items.length})` : items.join(", ");

/* Shows the settings of the engine, then the settings of each output, then the gains. */
function show_config(s) {
  const is_f = s.program === "fgpu", c = s.channels || {};
  $("config-card").hidden = !s.outputs;
  if (!s.outputs) return;
  const settings = [["Sample rate", `${Number((s.adc_sample_rate / 1e6).toPrecision(12))} MS/s`]];
  if (is_f) settings.push(["Largest delay accepted", si_seconds(s.max_delay_s)]);
  else settings.push(
    ["Channels of this engine", `${c.first} to ${c.first + c.count - 1} of ${c.of}`],
    ["Bandwidth of this engine", mhz(c.count * s.channel_hz)],
    ["Centre of this engine", s.relative ? `${mhz((c.first + c.count / 2 - c.of / 2) * s.channel_hz)} from the stream's centre` : mhz((c.first + c.count / 2) * s.channel_hz)],
    ...(known(s.centre_frequency_hz) ? [["Radio frequency of the stream's centre", mhz(s.centre_frequency_hz)]] : []),
    ["Spectra per heap", String(s.spectra_per_heap)], ["Sample bits", String(s.sample_bits)]);
  fill_table($("config"), [["Setting", "name", r => ({ text: r.row_key })], ["Value", "value", r => ({ text: r.text })]],
    settings.map(([row_key, text]) => ({ row_key, text })));
  const of_f = [
    ["Kind", "kind", o => ({ text: o.kind })], ["Channels", "channels", o => ({ text: String(o.channels) })],
    ["Bandwidth", "bandwidth", o => ({ text: mhz(o.bandwidth_hz) })], ["Centre", "centre", o => ({ text: mhz(o.first_hz + o.bandwidth_hz / 2) })],
    ["Spectra per heap", "spectra_per_heap", o => ({ text: String(o.spectra_per_heap) })], ["Sample bits", "sample_bits", o => ({ text: String(o.sample_bits) })],
    ["Taps", "taps", o => ({ text: String(o.taps) })], ["Dither", "dither", o => ({ text: o.dither })]];
  const of_x = [["Integration time", "integration_s", o => ({ text: si_seconds(o.integration_s) })], ["Gate", "gate", o => ({ text: o.gate || "none" })]];
  fill_table($("outputs"), [["Output", "name", o => ({ text: o.name })], ...(is_f ? of_f : of_x), ["Destinations", "destinations", o => ({ text: list_of(o.destinations), title: o.destinations.join(", ") })]],
    s.outputs.map(o => ({ ...o, row_key: o.name })));
  const with_gains = s.streams.filter(t => t.gain);
  $("gains").hidden = !with_gains.length;
  fill_table($("gains"), [["Gains of", "name", t => ({ text: t.row_key })], ...[0, 1].map(pol => [`Mean magnitude pol ${pol}`, `gain${pol}`, t => ({ text: known(t.gain[pol]) ? String(Number(t.gain[pol].toPrecision(6))) : "–" })])],
    with_gains.map(t => ({ ...t, row_key: stream_name(t) })));
}

const stream_name = t => t.antenna === undefined ? t.stream : `${t.antenna} ${t.stream}`;

const si_seconds = v => { const a = Math.abs(v); return minus(a === 0 ? "0 s" : a >= 1 ? `${v.toFixed(2)} s` : a >= 1e-3 ? `${(1e3 * v).toPrecision(3)} ms` : a >= 1e-6 ? `${(1e6 * v).toPrecision(4)} µs` : `${(1e9 * v).toFixed(4)} ns`); };

function show_delays(s) {
  const all = s.delays || [], rows = all.filter(d => d.start_timestamp >= 0 || d.later_models).map(d => ({ ...d, row_key: `${d.antenna} ${d.stream} pol ${d.pol}` }));
  const none = d => d.start_timestamp < 0;
  $("delays-card").hidden = !all.length;
  $("delays").hidden = !rows.length;
  $("delays-note").textContent = rows.length === all.length ? "" : rows.length ? "The other inputs have no delay model." : "No model has been set: no input is delayed.";
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
const for_how_long = (s, f) => known(f.since) ? ` for ${duration(Math.max(0, s.time - f.since))}` : "";

/* Returns the state of an F-engine's stream in a few words. */
function state_text(s, f) {
  const late = per_s(f.late_heaps) || 0, refused = per_s(f.refused_heaps) || 0, unused = late + refused;
  if (f.state === "losing" && per_s(f.heaps) === 0 && unused > 0 && 2 * unused >= (per_s(f.missing_heaps) || 0)) return late >= refused ? "is late" : "is refused";
  if (f.state === "losing") return per_s(f.missing_heaps) > 0 ? `loses ${percent(loss(f))}` : "has lost heaps";
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
      const onclick = () => choose({ baseline: `${pair_of(last)[0]},${a}` });
      return element("button", { type: "button", onclick }, element("b"), ...[1, 2, 3, 4].map(() => element("span")));
    }));
  }
  const middle = median(s.levels.flat().filter(known)), age = how_old(s, s.levels_time, integration_of(s, chosen.stream));
  for (let a = 0; a < s.n_antennas; a++) {
    const button = grid.children[a], level = s.levels[a] || [null, null], f = (s.fengs || [])[a];
    const judged = antenna_level(s, a, middle), chosen_one = pair.includes(a);
    button.dataset.level = age && judged !== "bad" ? "" : judged;
    button.classList.toggle("old", age !== "");
    button.classList.toggle("chosen", chosen_one);
    button.setAttribute("aria-pressed", chosen_one);
    button.children[0].textContent = antenna_name(s, a);
    button.children[1].textContent = f ? state_text(s, f) : "";
    for (const p of [0, 1]) {
      button.children[2 + p].textContent = `pol ${p} ${db(level[p])}`;
      button.children[2 + p].title = f && f.labels ? `input ${f.labels[p]}` : "";
    }
    button.children[4].textContent = age;
    button.setAttribute("aria-label", [`${antenna_name(s, a)}: ${f ? state_text(s, f) : "state not known"}`, ...level.map((l, p) => `pol ${p} ${known(l) ? `${db(l)} ${s.spectrum ? s.spectrum.unit : "dB"}` : "no level"}`), age].filter(t => t).join(", "));
    if (f) button.title = `F-engine ${f.feng}${f.labels ? `, inputs ${f.labels.join(", ")}` : ""}: ${count(total(f.heaps))} heaps received, ${count(total(f.missing_heaps))} missing, ${count(total(f.late_heaps))} late, ${count(total(f.refused_heaps))} refused`;
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

/* Stores the viewer's choice, also in the page's address, so that the address can be shared. */
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

/* Shows a labelled list.  The list is rebuilt only if its values change. */
function offer(name, label, values, value, change, texts = values) {
  let select = $("choose-" + name);
  if (!select) {
    select = element("select", { id: "choose-" + name });
    $("choose").append(element("label", {}, label, select));
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
  const streams = [...s.outputs, ...(s.beams || [])].map(o => o.name), shown = s.spectrum || {};
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

/* Returns the number of channels of the zoom; 0: the whole band. */
function n_asked() {
  const [first, last] = (chosen.channels || "").split(",").map(Number);
  return last >= first ? last - first + 1 : 0;
}

const zoom = (first, last) => choose({ channels: first === null ? undefined : `${first},${last}` });

let plot_set = null;

/* Creates the plots of powers or, for a baseline, of amplitude and phase. */
function make_plots(unit, baseline) {
  const box = $("plots"), kind = `${unit} ${baseline !== undefined}`;
  if (plot_set && plot_set.kind === kind) return;
  box.replaceChildren();
  plots.length = 0;
  plot_set = { kind };
  if (baseline === undefined) {
    plot_set.power = new Plot(box, { zoom, n_asked, title: "Power", label: unit, unit, height: 310 });
  } else {
    const hands = ["pol 0 × 1", "pol 1 × 0"];
    plot_set.power = new Plot(box, { zoom, n_asked, title: "Autocorrelations", label: unit, unit, height: 220 });
    plot_set.amplitude = new Plot(box, { zoom, n_asked, title: "Amplitude", label: unit, unit, height: 220, hidden: hands });
    plot_set.phase = new Plot(box, { zoom, n_asked, title: "Phase", label: "Degrees", unit: "°", cyclic: true, height: 200, range: [-180, 180], ticks: [-180, -90, 0, 90, 180], dots: true, hidden: hands });
    plot_set.coherence = new Plot(box, { zoom, n_asked, title: "Coherence", label: "Fraction, 0 to 1", height: 150, range: [0, 1.02], ticks: [0, 0.5, 1], digits: 3, hidden: hands });
  }
  plot_set.waterfall = new Waterfall(box, { zoom, n_asked });
}

function axis_of(s, spectrum) {
  const band = s.channels || { first: 0, count: (s.outputs.find(o => o.name === spectrum.stream) || {}).channels };
  return { ...spectrum.axis, band, scale: 1e6, name: spectrum.relative ? "MHz from channel 0" : "MHz" };
}

function show_spectrum(s) {
  const card = $("spectra"), spectrum = s.spectrum;
  card.hidden = !s.outputs;
  if (!s.outputs) return;
  offer_choices(s);
  if (!spectrum) {
    $("spectrum-note").textContent = plot_set ? "Waiting for the next data of this choice." : "No data have come yet.";
    card.classList.add("old");
    return;
  }
  make_plots(spectrum.unit, spectrum.baseline);
  // parallel hands get the first colours
  const axis = axis_of(s, spectrum), power = spectrum.curves.filter(c => c.kind === "power"), order = [0, 3, 1, 2];
  const of = c => order.indexOf(c.pols[0] + 2 * c.pols[1]), cross = spectrum.curves.filter(c => c.kind === "cross").sort((a, b) => of(a) - of(b));
  const hand = c => `pol ${c.pols[0]} × ${c.pols[1]}`, subject = spectrum.baseline ? spectrum.baseline.map(a => antenna_name(s, a)).join(" – ") : spectrum.beam ? `beam ${spectrum.stream}` : `antenna ${spectrum.antenna}`;
  plot_set.power.set(axis, power.map((c, i) => ({ name: (c.antennas ? `${antenna_name(s, c.antennas[0])} ` : "") + `pol ${c.pols ? c.pols[0] : c.pol}`, colour: COLOURS[i], mean: c.mean, most: c.most })), subject);
  if (plot_set.phase) {
    const curves = field => cross.map((c, i) => ({ name: hand(c), colour: COLOURS[i], mean: c[field], most: field === "mean" ? c.most : null }));
    plot_set.amplitude.caption = `of ${subject}`;
    plot_set.phase.caption = `of ${subject}, sign as in the UVH5 file`;
    plot_set.amplitude.set(axis, curves("mean"), subject);
    plot_set.phase.set(axis, curves("phase_deg"), plot_set.phase.caption);
    plot_set.coherence.set(axis, curves("coherence"), subject);
  }
  const integration_s = spectrum.beam ? 0 : integration_of(s, spectrum.stream), age = s.time - spectrum.time, old = age > 5 + 2 * integration_s;
  const falls = cross.length ? cross.flatMap(c => [{ name: `phase ${hand(c)}`, values: c.phase_deg, unit: "°", cyclic: true }, { name: `amplitude ${hand(c)}`, values: c.mean, unit: spectrum.unit }])
    : power.map(c => ({ name: `power pol ${c.pol}`, values: c.mean, unit: spectrum.unit }));
  plot_set.waterfall.caption = cross.length ? `${subject}, phases with the sign of the UVH5 file` : subject;
  plot_set.waterfall.add([spectrum.stream, subject, axis.first_channel, axis.channels, spectrum.unit].join(), axis, falls, subject, spectrum.time, integration_s, s.time - 5 - 2 * integration_s);
  card.classList.toggle("old", old);
  $("spectrum-time").textContent = `${utc(spectrum.time)} UTC${old ? ", " + duration(age) + " ago" : ""}` + (spectrum.n_spectra ? ` · mean of ${spectrum.n_spectra} spectra` : ` · ${si_seconds(integration_s)}`);
  $("spectrum-note").textContent = axis.channels_per_point > 1 ? `Each point is ${axis.channels_per_point} channels: their mean, and in a paler colour their largest value.` : "";
}

// ---- Sensors --------------------------------------------------------------------------------------------------------

const SENSOR_LEVELS = { nominal: "", unknown: "idle", inactive: "idle", warn: "warn" };

function six_digits(number) {
  if (Math.abs(number) < 1e6) return String(Number(number.toPrecision(6)));
  const [digits, power] = number.toExponential(5).split("e+");
  return `${Number(digits)} × 10^${power}`;
}

/* Returns a sensor's value as text: a number with six digits, or a UNIX time as UTC. */
function sensor_text({ row_key, value, units }) {
  if (row_key.endsWith("unixtime") && value > 0) return `${day(value)} ${utc(value)} UTC`;
  const text = typeof value === "number" ? six_digits(value) : String(value).replace(/-?\d+\.\d+(e[-+]?\d+)?/g, n => six_digits(Number(n)));
  return `${minus(text)} ${units}`;
}

function show_sensors(s) {
  const rows = Object.entries(s.sensors || {}).map(([name, sensor]) => ({ ...sensor, row_key: name }));
  $("sensors-card").hidden = !rows.length;
  if (!$("sensors-card").open) return;
  fill_table($("sensors"), [
    ["Sensor", "name", r => ({ text: r.row_key })],
    ["Value", "value", r => ({ text: sensor_text(r), title: String(r.value) })],
    ["Status", "status", r => ({ text: r.status, level: SENSOR_LEVELS[r.status] ?? "bad" })],
    ["Time", "time", r => ({ text: r.time > 0 ? `${day(r.time)} ${utc(r.time)} UTC` : "–" })],
  ], rows);
}

// ---- Troubles -------------------------------------------------------------------------------------------------------

/* Some counters increase only if something is wrong.  Returns each of these counters whose value is above 0, as
 * [where, what, counter]. */
function troubles_of(s) {
  const found = [];
  const look = (where, name, value) => {
    if (!value || typeof value !== "object") return;
    if (value.total === undefined) for (const key in value) look(where, `${name}: ${key.replaceAll("_", " ")}`, value[key]);
    else if (value.total > 0) found.push([where, name, value]);
  };
  for (const f of s.fengs || []) for (const name of ["missing_heaps", "late_heaps", "refused_heaps"]) look(f.antenna, words(name), f[name]);
  const scan = (where, object) => { for (const name in WORDS) if (object[name]) look(where, words(name), object[name]); };
  for (const i of s.inputs || []) scan(input_name(s, i), i);
  for (const a of s.antennas || []) scan(a.antenna, a);
  for (const t of s.streams || []) scan((t.antenna ? t.antenna + " " : "") + t.stream, t);
  for (const r of s.receivers || []) {
    scan(r.thread, r);
    if (r.kernel_drops > 0) found.push([r.thread, "dropped by the kernel", { total: r.kernel_drops, per_s: null }]);
  }
  scan(s.program, s.other || {});
  return found;
}

/* Words for the events that each counter counts. */
const WORDS = {
  rejected_packets: "packets refused", malformed_packets: "packets malformed", too_old_heaps: "heaps too old", bad_timestamp_heaps: "heaps with a wrong timestamp",
  bad_feng_id_heaps: "heaps with a wrong antenna number", incomplete_heaps: "heaps incomplete", contested_heaps: "heaps contested by two senders", missing_heaps: "heaps missing",
  late_heaps: "heaps late", refused_heaps: "heaps refused", jumps: "jumps of the timestamps", failed_packets: "packets not sent", unmatched_chunks: "chunks without the other polarisation",
  late_chunks: "chunks late", skipped_heaps: "heaps not sent (input missing)", dropped_heaps: "heaps dropped (no free buffer)", incomplete_accs: "dumps incomplete", absent_accs: "dumps absent",
  skipped_accs: "dumps skipped", dropped_accs: "dumps dropped (no free buffer)", audit_failures: "products whose audit failed", wrong_accs: "dumps wrong",
};
const words = name => (WORDS[name] || name.replaceAll("_", " "));

/* Returns the antennas of a receive thread. */
function antennas_of(s, i) {
  const [first, last = first] = String(i.fengs).split("-").map(Number);
  return (s.fengs || []).filter(f => Number(f.feng) >= first && Number(f.feng) <= last).map(f => f.antenna);
}

function show_hour(s) {
  const rows = (s.troubles || []).map(t => ({ ...t, row_key: `${t.where} ${t.stage} ${t.what}` }));
  $("hour-card").hidden = !rows.length;
  fill_table($("hour"), [
    ["Where", "where", t => ({ text: t.where, sub: t.stage === t.where ? "" : t.stage })],
    ["What", "what", t => ({ text: t.what, level: t.ongoing || t.n_minute > 0 ? t.level : "" })],
    ["Last minute", "minute", t => amount_cell(t, t.n_minute)],
    ["Last hour", "hour", t => amount_cell(t, t.n_hour)],
    ["Since", "since", t => ({ text: `${utc(t.since)} UTC`, sub: ago(s, t.since) })],
    ["Last", "last", t => ({ text: t.ongoing ? "now" : ago(s, t.last) })],
    ["What to do", "advice", t => ({ text: t.advice })],
  ], rows);
}
const amount_cell = (t, n) => n ? { text: t.unit === "s" ? duration(n) : count(n) } : { text: "–", level: "idle" };

function show_troubles(s) {
  const list = troubles_of(s);
  $("troubles-card").hidden = !list.length;
  $("troubles").replaceChildren(...list.map(([where, what, c]) => {
    const amount = count(c.total) + (c.per_s > 0 ? ` (${si(c.per_s, "/s")})` : "");
    return element("li", { dataset: c.per_s > 0 ? { level: "warn" } : {} }, element("span", {}, `${where}: ${what}`), element("span", {}, amount));
  }));
}

const RANK = { bad: 0, warn: 1, wait: 2, idle: 2, ok: 3 };
const WRONG_DELAY = ["silent after a wrong delay", "delay above 0.1 s"];

/* Returns [state, headline, why] of the worst current or recent trouble.  It returns the first of equally bad troubles. */
function judge(s) {
  if (!s.healthy && s.program !== "visrec") return ["bad", "Failed", "results are wrong; see the log"];
  if (s.device && !s.device.ok) return ["bad", "Failed", "the device does not work any more; see the log"];
  if (s.state !== "running") return ["warn", s.state === "draining" ? "Stopping" : "Starting", ""];
  const found = [...states_now(s), ...states_lately(s)];
  if (!found.length) found.push(state_of_sensors(s));
  const worst = found.reduce((a, b) => RANK[b.level] < RANK[a.level] ? b : a), n = n_more(s, found, worst);
  return [worst.level, worst.headline, worst.why + (n ? `; and ${plural(n, "more trouble")} below` : "")];
}

/* A state is {level, headline, why, places, covers}. covers(row) returns true if this row of the last hour's troubles reports the
   same trouble. */
const current_troubles = s => (s.troubles || []).filter(t => t.ongoing || t.n_minute > 0);
const rows_of = (places, ...words) => t => places.includes(t.where) && words.some(w => t.what.includes(w));

/* Returns the number of troubles that the state 'worst' does not cover.  A trouble is a row of the history, or a state
 * without a row. */
function n_more(s, found, worst) {
  const rows = current_troubles(s), others = found.filter(f => f !== worst && RANK[f.level] <= RANK.warn);
  const untold = others.filter(f => !rows.some(f.covers) && !f.places.every(p => worst.places.includes(p)));
  return rows.filter(t => !worst.covers(t)).length + untold.length;
}

/* Returns the states of the troubles that exist now. */
function states_now(s) {
  if (s.program === "visrec") return states_of_recorder(s);
  const heaps = s.inputs.map(i => per_s(i.heaps)), found = [];
  const add = (level, headline, why, places, covers) => found.push({ level, headline, why, places, covers });
  if (heaps.every(h => h === null)) return [{ level: "wait", headline: "Starting", why: "the page shows rates after a second", places: [], covers: () => false }];
  const silent = s.inputs.filter(i => per_s(i.heaps) === 0), missing = sum(s.inputs.map(i => per_s(i.missing_heaps)));
  if (silent.length === s.inputs.length) {
    const newest = Math.max(...s.inputs.map(i => known(i.newest_timestamp) ? i.newest_timestamp : -1)), covers = t => t.what.startsWith("no ");
    if (newest < 0) add("idle", "No data", "nothing has arrived on any input", [], covers);
    else add("bad", "No data", `nothing arrives on any input; the newest data are ${duration(Math.max(0, s.time - s.sync_time - newest / s.adc_sample_rate))} old`, [], covers);
    return found;
  }
  if (silent.length) {
    const places = silent.flatMap(i => places_of(s, i));
    add("warn", "Inputs missing", names_of(silent.map(i => input_name(s, i))), places, rows_of(places, "no ", "missing"));
  }
  const fengs = s.fengs || [], gone = fengs.filter(f => f.state === "dead" || f.state === "silent"), losing = fengs.filter(f => f.state === "losing");
  const named = list => list.map(f => f.antenna);
  if (gone.length) add("warn", "Antennas missing", names_of(gone.map(f => `${f.antenna} ${state_text(s, f)}`)), named(gone), rows_of(named(gone), "no ", "missing"));
  const contested = s.inputs.filter(i => per_s(i.contested_heaps) > 0).map(i => input_name(s, i));
  if (contested.length) add("bad", "Contested", `two senders send different bytes for the same heaps: ${names_of(contested)}`, contested, t => t.what.endsWith("contested"));
  if (losing.length) add("warn", "Losing data", names_of(losing.map(f => `${f.antenna} ${state_text(s, f)}`)), named(losing), rows_of(named(losing), "missing"));
  else if (missing > 0) {
    const lossy = s.inputs.filter(i => per_s(i.missing_heaps) > 0), places = lossy.flatMap(i => places_of(s, i));
    add("warn", "Losing data", `${percent(missing / (missing + sum(heaps)))} of the heaps are missing: ${names_of(lossy.map(i => input_name(s, i)))}`, places, rows_of(places, "missing"));
  }
  const dropping = s.streams.filter(t => (per_s(t.dropped_heaps) || per_s(t.dropped_accs)) > 0).map(stream_name);
  if (dropping.length) add("warn", "Dropping output", names_of(dropping), dropping, rows_of(dropping, "dropped"));
  const never = s.streams.filter(t => never_sent(s, t)).map(stream_name);
  if (never.length) add("warn", "Output silent", `no heaps of ${names_of(never)} have been sent`, never, rows_of(never, "no output", "skipped"));
  return found;
}

/* Returns true if a stream has sent nothing although its inputs have arrived for some time.  Returns false if a wrong
 * delay is the cause, because the history has a separate row for the wrong delay. */
function never_sent(s, t) {
  const output = (s.outputs || []).find(o => o.name === t.stream), f = t.antenna !== undefined;
  if (!(output || is_gnss(s, t)) || !t.heaps || total(t.heaps) > 0 || current_troubles(s).some(u => u.ongoing && WRONG_DELAY.includes(u.what) && u.where === stream_name(t))) return false;
  const flowed_s = i => per_s(i.heaps) > 0 ? Math.min(s.uptime_s, total(i.heaps) / per_s(i.heaps)) : 0;
  if (f) return Math.min(...s.inputs.filter(i => i.antenna === t.antenna).map(flowed_s)) >= Math.max(30, output ? 3 * output.spectra_per_heap * output.channels / output.bandwidth_hz : 0);
  const wait_s = Math.max(30, 3 * output.integration_s), newest = Math.max(...s.inputs.map(i => i.newest_timestamp));
  return known(output.sending_from) && newest - output.sending_from >= wait_s * s.adc_sample_rate && Math.max(...(s.fengs || s.inputs).map(flowed_s)) >= wait_s;
}

/* Returns the names under which the history lists the troubles of an input, or of a receive thread and its antennas. */
function places_of(s, i) {
  return [input_name(s, i), ...(i.fengs === undefined ? [] : antennas_of(s, i))];
}

/* Returns the states of a recorder.  A recorder's inputs have no labels.  The heaps arrive only once per dump, so the
 * present rate does not show whether the heaps have stopped.  The history shows this.  After a loss, /healthz reports a
 * failure for some seconds, even if the recorder writes dumps again. */
function states_of_recorder(s) {
  const { dumps, unwritten_dumps } = s.other || {}, writes = per_s(dumps) > 0 && !(per_s(unwritten_dumps) > 0);
  if (!s.healthy && !writes) {
    const [lately = { why: "no dump is written; see the log", places: [], covers: () => false }] = states_lately(s);
    return [{ ...lately, level: "bad", headline: "Not recording" }];
  }
  const { heaps } = s.other || {}, covers = t => t.what === "no heaps", stopped = current_troubles(s).find(t => t.ongoing && covers(t));
  const state = (level, why) => [{ level, headline: "No data", why, places: [], covers }];
  if (stopped) return state("bad", `no visibilities have arrived for ${duration(Math.max(0, s.time - stopped.since))}`);
  return heaps && total(heaps) === 0 ? state("idle", "no visibilities have arrived") : [];
}

const ago = (s, t) => `${duration(Math.max(0, s.time - t))} ago`;
const how_much = (t, n) => t.unit === "s" ? `${t.what} for ${duration(n)}` : `${count(n)} ${t.what}`;
const capital = text => text[0].toUpperCase() + text.slice(1);

/* Returns the worst trouble that is ongoing or that occurred in the last minute.  Among equally bad troubles a wrong
 * delay comes first, because a wrong delay removes an antenna's data.  The consequences of a wrong delay are left
 * out. */
function states_lately(s) {
  const delayed = current_troubles(s).filter(t => t.ongoing && WRONG_DELAY.includes(t.what)).map(t => t.where);
  const now = current_troubles(s).filter(t => !rows_of(delayed, "no output", "skipped")(t));
  const t = now.find(u => u.level === "bad") || now.find(u => u.ongoing && WRONG_DELAY.includes(u.what)) || now[0];
  if (!t) return [];
  if (!t.ongoing) return [{ level: t.level, headline: "Lost data", why: `${t.where}: ${how_much(t, t.n_minute)}, the last ${ago(s, t.last)}`, places: [t.where], covers: u => u === t }];
  const same = now.filter(u => u.ongoing && u.what === t.what), places = same.map(u => u.where);
  const why = names_of(same.map(u => `${u.where} for ${duration(Math.max(0, s.time - u.since))}`));
  return [{ level: t.level, headline: capital(t.what), why, places, covers: u => same.includes(u) || (WRONG_DELAY.includes(t.what) && rows_of(places, "no output", "skipped", ...WRONG_DELAY)(u)) }];
}

/* Returns the state if there is no current trouble.  If the status of a sensor is warn, error or failure, the state
 * names the sensor.  Otherwise the state shows the latest troubles of the last hour. */
function state_of_sensors(s) {
  const troubles = s.troubles || [], wrong = Object.entries(s.sensors || {}).filter(([, sensor]) => ["warn", "error", "failure"].includes(sensor.status));
  const state = (level, headline, why) => ({ level, headline, why, places: [], covers: () => false }), t = troubles[0];
  if (wrong.length) return state("warn", "Degraded", names_of(wrong.map(([name, sensor]) => `${name} ${sensor.status}`)));
  const receiving = s.program === "visrec" ? "Recording" : "Receiving";
  if (!t) return state("ok", receiving, "nothing is lost");
  const others = troubles.length > 1 ? ` and ${plural(troubles.length - 1, "other trouble")}` : "";
  return state("ok", receiving, `nothing lost in the last minute; in the last hour ${t.where}: ${how_much(t, t.n_hour)}, ${ago(s, t.last)}${others}`);
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
  document.title = last ? `${headline} · ${engine_of(last)} on ${last.host}` : headline;
}

function recorder_tiles(s) {
  const o = s.other || {}, unwritten = total(o.unwritten_dumps), lost = fraction(total(o.missing_heaps), total(o.heaps) + total(o.missing_heaps));
  return [
    ["dumps", "Written", count(total(o.dumps)), "dumps"],
    ["unwritten", "Not written", count(unwritten), "dumps, disk full", unwritten ? "bad" : ""],
    ["lost", "Lost", percent(lost), `${count(total(o.missing_heaps))} heaps`, lost > 0 ? "warn" : ""],
    ["received", "Received", si(known(per_s(o.bytes)) ? 8 * per_s(o.bytes) : null, "b/s"), "visibilities"],
  ];
}

function show_tiles(s) {
  const flows = s.inputs.some(i => per_s(i.heaps) > 0), parts = s.fengs || s.inputs;
  const worst = parts.reduce((a, i) => Math.max(a, flows && per_s(i.heaps) === 0 ? 1 : loss(i) || 0), 0), age = Math.min(...s.inputs.map(i => i.newest_timestamp >= 0 ? s.time - s.sync_time - i.newest_timestamp / s.adc_sample_rate : Infinity));
  const in_rate = sum(s.inputs.map(i => per_s(i.bytes))), out_rate = sum(s.streams.map(t => per_s(t.bytes)));
  const latency = Math.max(0, ...s.streams.map(t => t.latency_seconds || 0)), lost = s.inputs.reduce((a, i) => a + total(i.missing_heaps), 0);
  const late = age > 5 && age < Infinity ? `${duration(age)} old` : "";
  const tiles = [
    ["received", "Received", si(known(in_rate) ? 8 * in_rate : null, "b/s"), s.fengs ? plural(s.fengs.length, "antenna") : plural(s.inputs.length, "input")],
    ["lost", "Worst loss", percent(in_rate === null ? null : worst), `${count(lost)} heaps in all`, worst > 0 ? "warn" : ""],
    ["sent", "Sent", si(known(out_rate) ? 8 * out_rate : null, "b/s"), plural(s.streams.length, "stream")],
    ["latency", "Latency", latency > 0 ? si_seconds(latency) : "–", late || "input to output", late ? "old" : ""],
    ["age", "Newest data", age === Infinity ? "never" : age < 100 ? `${Math.max(0, age).toFixed(2)} s` : duration(age), "behind the clock", age > 5 ? "warn" : ""],
  ];
  if (s.program === "visrec") tiles.splice(0, tiles.length, ...recorder_tiles(s));
  const synchronised = (s.other || {}).clock_synchronised;  // this metric is absent if the timebase is 'packets'
  if (known(synchronised)) tiles.push(["clock", "Host clock", synchronised ? "synchronised" : "not synchronised", "sets the time of timestamps", synchronised ? "" : "warn"]);
  const box = $("tiles");
  if (box.children.length !== tiles.length)
    box.replaceChildren(...tiles.map(([key]) => element("div", { className: "tile", dataset: { key } }, element("span"), element("b"), element("small"))));
  tiles.forEach((t, i) => {
    const tile = box.children[i];
    tile.children[0].textContent = t[1];
    tile.children[1].textContent = t[2];
    tile.children[2].textContent = t[3];
    tile.dataset.level = t[4] || "";
  });
}

/* Returns "fgpu0", or "fgpu m000" if the configuration's name does not include the program. */
const engine_of = s => s.engine.startsWith(s.program) ? s.engine : `${s.program} ${s.engine}`;

function show(s) {
  $("program").textContent = engine_of(s);
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
  show_config(s);
  show_inputs(s);
  show_streams(s);
  show_beams(s);
  show_satellites(s);
  show_delays(s);
  show_hour(s);
  show_troubles(s);
  show_sensors(s);
  document.body.dataset.shown = String(1 + Number(document.body.dataset.shown || 0));
}

/* Shows figures that are too old in grey, and their age in the banner. */
function show_age() {
  const age_ms = Date.now() - last_ms, stale = last_ms > 0 && asked_ms > 0 && Date.now() - asked_ms > STALE_MS;
  document.body.classList.toggle("stale", stale);
  if (stale) show_state(["gone", "No answer", `from ${last.program} on ${last.host} for ${duration(age_ms / 1000)}; everything below is old`]);
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
