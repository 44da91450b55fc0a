"use strict";
/* Shows /array.json once a second in a visible tab, and more slowly in a hidden tab. */

const INTERVAL_MS = 1000, HIDDEN_INTERVAL_MS = 5000, TIMEOUT_MS = 4000, STALE_MS = 5000;
const $ = id => document.getElementById(id);

let last = null;   // last answer, or null
let last_ms = 0;   // time of the last answer
let chosen = read_hash();

/* Returns the viewer's choice of fringes from the page's address. */
function read_hash() {
  return Object.fromEntries([...new URLSearchParams(location.hash.slice(1))].filter(([key]) => ["stream", "baseline", "channels"].includes(key)));
}

// ---- Banner ---------------------------------------------------------------------------------------------------------

function show_state(level, headline, why) {
  $("banner").dataset.state = level;
  if ($("state").textContent !== headline) $("state").textContent = headline;
  if ($("reason").textContent !== why) $("reason").textContent = why;
  const colours = { ok: "%2322a55b", warn: "%23e08a00", bad: "%23d92626" };
  const icon = `data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'><circle cx='8' cy='8' r='7' fill='${colours[level] || "%2394a3b8"}'/></svg>`;
  if ($("icon").href !== icon) $("icon").href = icon;
  document.title = last ? `${headline} · ${last.array}` : headline;
}

// ---- Lamps ----------------------------------------------------------------------------------------------------------

const db = v => known(v) ? minus(v.toFixed(0)) : "–";
const place_of = (s, name) => { const e = s.engines.find(one => one.name === name); return e ? `${e.name} on ${e.host}` : ""; };

/* Fills a box with lamps.  A lamp is made once, and only its texts change, so that it keeps the focus. */
function fill_lamps(box, rows, make) {
  const names = rows.map(r => r.name).join("\n");
  if (box.shown !== names) {
    box.shown = names;
    box.classList.toggle("few", rows.length <= 12);
    box.replaceChildren(...rows.map(make));
    for (const lamp of box.children) lamp.append(element("b"), element("i", { attributes: { "aria-hidden": "true" } }), element("span"));
  }
}

function fill_lamp(lamp, row, text, label) {
  lamp.dataset.level = row.state;
  lamp.children[0].textContent = row.name;
  lamp.children[1].textContent = SYMBOLS[row.state];
  lamp.children[2].textContent = row.why || text;
  lamp.title = row.why || label;
  lamp.setAttribute("aria-label", `${row.name}, ${WORDS[row.state]}: ${row.why || label}`);
}

function fill_counts(box, rows) {
  const states = ["ok", "warn", "bad", "absent"], n = states.map(state => rows.filter(r => r.state === state).length);
  box.replaceChildren(...states.map((state, i) => element("span", { dataset: { level: state, n: n[i] } }, `${SYMBOLS[state]} ${n[i]} ${WORDS[state]}`)));
}

function fill_reasons(list, rows, place) {
  const wrong = rows.filter(r => r.state !== "ok"), key = JSON.stringify(wrong.map(r => [r.name, r.state, r.why]));
  if (list.shown === key) return;
  list.shown = key;
  list.replaceChildren(...wrong.map(r => element("li", { dataset: { level: r.state } }, element("i", { attributes: { "aria-hidden": "true" } }, SYMBOLS[r.state]),
    element("b", {}, r.name), element("span", {}, `${r.why}${place(r)}`))));
}

function show_antennas(s) {
  const box = $("antenna-lamps"), pair = pair_of(s);
  $("reference").textContent = pair[0];
  fill_lamps(box, s.antennas, a => element("button", { type: "button", onclick: () => choose({ baseline: `${pair_of(last)[0]},${a.name}` }) }));
  s.antennas.forEach((a, i) => {
    const levels = a.pol.map(p => db(p.rms_dbfs)).join(" "), heard = a.of ? `, received by ${a.heard_by} of ${a.of} X-engines` : "";
    fill_lamp(box.children[i], a, levels, `input power ${levels} dBFS${heard}`);
    box.children[i].classList.toggle("chosen", pair.includes(a.name));
    box.children[i].setAttribute("aria-pressed", pair.includes(a.name));
  });
  fill_counts($("antennas-count"), s.antennas);
  fill_reasons($("antenna-reasons"), s.antennas, a => !a.engine || a.why.includes(a.engine) ? "" : ` (${place_of(s, a.engine)})`);
}

const is_engine = e => ["fgpu", "xbgpu"].includes(e.program);
const GROUPS = [["F-engines", ["fgpu"]], ["X-engines", ["xbgpu"]], ["Recorders", ["visrec", "beamrec"]]];

function show_engines(s) {
  const box = $("engine-groups"), groups = GROUPS.map(([name, programs]) => [name, s.engines.filter(e => programs.includes(e.program))]).filter(([, rows]) => rows.length);
  if (box.shown !== groups.map(([name]) => name).join()) {
    box.shown = groups.map(([name]) => name).join();
    box.replaceChildren(...groups.flatMap(([name]) => [element("h3", {}, name), element("div", { className: "lamps" })]));
  }
  groups.forEach(([, rows], g) => {
    const lamps = box.children[2 * g + 1];
    fill_lamps(lamps, rows, e => element("a", { href: e.url, rel: "noopener" }));
    rows.forEach((e, i) => {
      const label = `${e.program} on ${e.host}, ${e.carries}, receives ${bits(e.in_gbps)}${e.out_gbps ? `, sends ${bits(e.out_gbps)}` : ""}`;
      fill_lamp(lamps.children[i], e, e.host, label);
      if (e.state !== "ok") lamps.children[i].children[2].textContent = `${e.host}: ${e.why}`;
    });
  });
  fill_counts($("engines-count"), s.engines);
  fill_reasons($("engine-reasons"), s.engines, e => ` (${e.program} on ${e.host}${e.carries ? `, ${e.carries}` : ""})`);
}

// ---- Tables ---------------------------------------------------------------------------------------------------------

/* Fills a table.  A column is [label, function of a row], and the function returns {text, sub, level, heat}. */
function fill_table(table, columns, rows) {
  const key = JSON.stringify([columns.map(c => c[0]), rows]);
  if (table.shown === key) return;
  table.shown = key;
  const cell = ([label, read], row, i) => {
    const { text, sub = "", level = "", heat = null } = read(row);
    const td = element("td", { dataset: { label, level } }, element("span", {}, text), ...(sub ? [element("small", {}, sub)] : []));
    if (heat !== null) td.style.background = `color-mix(in srgb, var(--bad-soft) ${heat}%, var(--warn-soft))`;
    return td;
  };
  const head = element("tr", {}, ...columns.map(([label]) => element("th", { attributes: { scope: "col" } }, label)));
  table.replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows.map(row => element("tr", {}, ...columns.map((c, i) => cell(c, row, i))))));
}

/* Joins the rows that have the same trouble at several places. */
function join_troubles(troubles) {
  const joined = new Map();
  for (const t of troubles) {
    const key = [t.stage, t.what, t.level, t.ongoing].join(), row = joined.get(key);
    if (!row) { joined.set(key, { ...t, where: [t.where] }); continue; }
    row.where.push(t.where);
    row.engines = [...new Set([...row.engines, ...t.engines])];
    row.hosts = [...new Set([...row.hosts, ...t.hosts])];
    row.since = Math.min(row.since, t.since);
    row.last = Math.max(row.last, t.last);
    row.n_hour += t.n_hour;
  }
  return [...joined.values()];
}

function show_troubles(s) {
  const rows = join_troubles(s.troubles);
  const where = t => names_of(t.engines) + (t.hosts.length === 1 ? ` on ${t.hosts[0]}` : ` on ${plural(t.hosts.length, "host")}`);
  fill_table($("troubles-table"), [
    ["Where", t => ({ text: names_of(t.where), sub: t.where[0] === t.engines[0] ? "" : `seen by ${where(t)}` })],
    ["Trouble", t => ({ text: t.what, sub: t.stage, level: t.ongoing ? t.level : "" })],
    ["Began", t => ({ text: `${utc(t.since)} UTC`, sub: t.ongoing ? `for ${duration(Math.max(0, s.time - t.since))}` : "" })],
    ["Last", t => ({ text: t.ongoing ? "now" : `${utc(t.last)} UTC` })],
    ["Last hour", t => ({ text: t.n_hour ? count(t.n_hour) : "–" })],
    ["Remedy", t => ({ text: t.advice })],
  ], rows.slice(0, 40));
  $("troubles-note").textContent = rows.length > 40 ? `array.json lists ${rows.length - 40} more troubles.` : rows.length ? "" : "No trouble in the last hour.";
}

const STAGES = [["feed", "from the digitiser"], ["feed late", "late from the digitiser"], ["feed refused", "refused by the F-engine"], ["fgpu", "in the F-engine"], ["network", "on the way to X-engines"],
  ["late", "late at X-engines"], ["refused", "refused by engines"], ["socket", "in the socket"], ["xbgpu", "in the X-engine"], ["recorder", "not written"]];

/* Shows a row for each antenna or engine with a loss, and a column for each stage with a loss.  Cells of losses that still grow are coloured. */
function show_losses(s) {
  const names = [...new Set(s.losses.map(l => l.antenna || l.engine))], of = new Map(s.losses.map(l => [`${l.antenna || l.engine} ${l.stage}`, l]));
  const worst = name => Math.max(...s.losses.filter(l => (l.antenna || l.engine) === name).map(l => (l.per_s > 0 ? 1e9 + l.fraction : 0) + l.last / 1e10));
  const rows = names.map(name => ({ name, engine: !s.antennas.some(a => a.name === name), cells: STAGES.map(([stage]) => of.get(`${name} ${stage}`) || null) })).sort((a, b) => worst(b.name) - worst(a.name));
  const cell = l => !l ? { text: "–" } : l.per_s > 0 ? { text: l.fraction ? percent(l.fraction) : si(l.per_s, "/s"), sub: `${si(l.per_s, "/s")}, ${count(l.total)} in all`, level: "warn", heat: Math.round(100 * Math.min(1, Math.sqrt(10 * l.fraction))) }
    : { text: `${count(l.total)} in all`, sub: `last ${utc(l.last)} UTC` };
  const columns = STAGES.map(([stage, label], i) => [label, r => cell(r.cells[i]), stage]).filter(([, , stage]) => s.losses.some(l => l.stage === stage));
  $("losses").hidden = !rows.length;
  fill_table($("losses"), [["Antenna or engine", r => ({ text: r.name, sub: r.engine ? place_of(s, r.name) : "" })], ...columns], rows.slice(0, 70));
  const n = s.antennas.length - rows.filter(r => !r.engine).length;
  $("losses-note").textContent = rows.length ? n === 0 ? "" : `The other ${plural(n, "antenna")} lost nothing in the last hour.` : "Nothing was lost in the last hour.";
}

function show_streams(s) {
  const KINDS = { voltages: "voltages of antennas", visibilities: "visibilities", beam: "tied-array beam", detected: "detected beams", gnss: "satellites" };
  fill_table($("streams"), [
    ["Stream", t => ({ text: t.name, sub: KINDS[t.kind] || t.kind })],
    ["State", t => ({ text: t.missing.length ? `${SYMBOLS[t.state]} ${t.of - t.missing.length} of ${t.of} parts` : `${SYMBOLS.ok} whole`, sub: t.why, level: t.state === "ok" ? "" : t.state })],
    ["Rate", t => ({ text: bits(t.gbps) })],
    ["Missing", t => ({ text: t.missing.length ? names_of(t.missing) : "–" })],
  ], s.streams);
}

function show_settings(s) {
  const { pointing = {}, calibration = {} } = s.settings, streams = [...new Set([...Object.keys(pointing), ...Object.keys(calibration)])];
  const until = p => p.until < s.time ? { text: `ended ${ago(s.time, p.until)}`, level: "bad" } : { text: `models until ${utc(p.until)} UTC` };
  fill_table($("settings"), [
    ["Stream", r => ({ text: r })],
    ["Pointing", r => pointing[r] ? { text: pointing[r].target } : { text: "none" }],
    ["Tracked", r => pointing[r] ? until(pointing[r]) : { text: "–" }],
    ["Calibration", r => calibration[r] ? { text: `${Math.floor((s.time - calibration[r].time) / 60) < 1 ? "just now" : `${duration(60 * Math.floor((s.time - calibration[r].time) / 60)).replace(" 0 s", "")} ago`}`, sub: calibration[r].reference ? `reference ${calibration[r].reference}` : "" } : { text: "none" }],
    ["Coherence", r => calibration[r] ? { text: percent(calibration[r].coherence), level: calibration[r].coherence < 0.9 ? "warn" : "" } : { text: "–" }],
  ], streams);
  $("settings").hidden = !streams.length;
  $("settings-note").textContent = streams.length ? "" : "No pointing and no calibration has been reported: cbf-point and phaseup report them.";
}

// ---- Fringes --------------------------------------------------------------------------------------------------------

const fringe = { plots: null, asked: false, answer: null };

function choose(what) {
  chosen = { ...chosen, ...what };
  for (const key in chosen) if (chosen[key] === undefined) delete chosen[key];
  history.replaceState(null, "", "#" + new URLSearchParams(chosen).toString().replaceAll("%2C", ","));
  if (last) show_antennas(last);
  poll_fringe();
}

function pair_of(s) {
  const names = s.antennas.map(a => a.name), asked = (chosen.baseline || "").split(",");
  return asked.length === 2 && asked.every(a => names.includes(a)) ? asked : [names[0], names[Math.min(1, names.length - 1)]];
}
const stream_of = s => { const all = s.streams.filter(t => t.kind === "visibilities").map(t => t.name); return all.includes(chosen.stream) ? chosen.stream : all[0]; };
const zoom = (first, to) => choose({ channels: first === null ? undefined : `${first},${to}` });
const n_asked = () => { const [first, to] = (chosen.channels || "").split(",").map(Number); return to >= first ? to - first + 1 : 0; };

/* Shows a list with a label.  The list is rebuilt only if its values change. */
function offer(name, label, values, value, change) {
  let select = $("choose-" + name);
  if (!select) {
    select = element("select", { id: "choose-" + name });
    $("choose").append(element("label", {}, label, select));
  }
  if (select.offered !== values.join("\n")) {
    select.offered = values.join("\n");
    select.replaceChildren(...values.map(v => new Option(v, v)));
  }
  select.parentElement.hidden = values.length < 2;
  select.onchange = () => change(select.value);
  if (document.activeElement !== select || select.value === "") select.value = value;
}

function offer_choices(s) {
  const names = s.antennas.map(a => a.name), pair = pair_of(s);
  offer("stream", "stream", s.streams.filter(t => t.kind === "visibilities").map(t => t.name), stream_of(s), v => choose({ stream: v, channels: undefined }));
  offer("first", "antenna", names, pair[0], v => choose({ baseline: `${v},${pair_of(last)[1]}` }));
  offer("second", "with", names, pair[1], v => choose({ baseline: `${pair_of(last)[0]},${v}` }));
  $("whole").hidden = chosen.channels === undefined;
  $("whole").onclick = () => zoom(null);
}

function make_plots() {
  if (fringe.plots) return fringe.plots;
  const phase = new Plot($("plots"), { zoom, n_asked, title: "Phase", label: "Degrees", unit: "°", cyclic: true, height: 210, range: [-180, 180], ticks: [-180, -90, 0, 90, 180], dots: true });
  const coherence = new Plot($("plots"), { zoom, n_asked, title: "Coherence", label: "Fraction, 0 to 1", height: 150, range: [0, 1.02], ticks: [0, 0.5, 1], digits: 3 });
  return fringe.plots = { phase, coherence };
}

function show_fringe(answer) {
  const note = $("fringe-note");
  $("fringe-card").classList.toggle("old", !answer.curves || !answer.curves.length);
  if (answer.error) { note.textContent = answer.error; return; }
  const lacking = answer.missing.length ? ` No data from ${names_of(answer.missing)}.` : "";
  if (!answer.curves.length) { note.textContent = `Waiting for the next dump of this baseline.${lacking}`; return; }
  const { phase, coherence } = make_plots(), a = answer.axis, subject = answer.baseline.join(" – ");
  const axis = { ...a, band: { first: 0, count: a.of }, scale: 1e6, name: a.digitised ? "MHz in the digitiser's band" : "MHz" };
  const curves = key => answer.curves.map((c, i) => ({ name: `pol ${c.pols[0]} × ${c.pols[1]}`, colour: `--c${i}`, mean: c[key] }));
  phase.caption = `of ${subject}, sign as in the UVH5 file`;
  phase.set(axis, curves("phase_deg"), phase.caption);
  coherence.set(axis, curves("coherence"), subject);
  $("fringe-time").textContent = `${utc(answer.time)} UTC`;
  note.textContent = (a.channels_per_point > 1 ? `Each point is the mean of ${a.channels_per_point} channels.` : "") + lacking;
  $("fringe-card").dataset.shown = String(1 + Number($("fringe-card").dataset.shown || 0));
}

/* Asks for the fringes.  Ignores the answer if the viewer has made another choice meanwhile. */
async function poll_fringe() {
  const stream = last && stream_of(last);
  $("fringe-card").hidden = !stream;
  if (!stream || document.hidden) return;
  offer_choices(last);
  const mine = fringe.asked = new URLSearchParams({ stream, baseline: pair_of(last).join(), ...(chosen.channels ? { channels: chosen.channels } : {}) }).toString();
  try {
    const reply = await fetch(`fringe.json?${mine}`, { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) }), answer = await reply.json();
    if (mine === fringe.asked) show_fringe(answer);
  } catch (error) {
    if (!["AbortError", "TimeoutError"].includes(error.name) && !(error instanceof TypeError) && !(error instanceof SyntaxError)) throw error;
  }
}

// ---- The page -------------------------------------------------------------------------------------------------------

function show(s) {
  const begin = performance.now();
  $("array").textContent = s.array;
  show_state(s.level, s.headline, s.banner);
  $("facts").textContent = `${plural(s.antennas.length, "antenna")} · ${plural(s.engines.filter(e => is_engine(e)).length, "engine")} · ${plural(s.engines.filter(e => !is_engine(e)).length, "recorder")}`;
  draw_flow($("flow"), s);
  show_antennas(s);
  show_engines(s);
  show_troubles(s);
  $("history-note").textContent = draw_history($("history"), s);
  show_losses(s);
  show_streams(s);
  show_settings(s);
  document.body.dataset.drawMs = (performance.now() - begin).toFixed(1);
  document.body.dataset.shown = String(1 + Number(document.body.dataset.shown || 0));
}

/* Shows figures that are too old in grey, and their age in the banner. */
function show_age() {
  const age_ms = Date.now() - last_ms, stale = last_ms > 0 && age_ms > STALE_MS + (document.hidden ? HIDDEN_INTERVAL_MS : INTERVAL_MS);
  document.body.classList.toggle("stale", stale);
  if (stale) show_state("gone", "No answer", `from the controller for ${duration(age_ms / 1000)}; everything below is old; the engines work without the controller`);
  if (last) $("clock").textContent = `${day(last.time)} ${utc(last.time)} UTC`;
}

let timer = null, polling = false;

async function poll() {
  clearTimeout(timer);
  if (polling) return;
  polling = true;
  try {
    const reply = await fetch("array.json", { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (reply.status === 503 && !last) show_state("wait", "Starting", "the controller reads the engines' pages");
    else if (reply.ok) {
      last = await reply.json();
      last_ms = Date.now();
      show(last);
      if (document.body.dataset.shown % 2) poll_fringe();
    }
  } catch (error) {
    if (!["AbortError", "TimeoutError"].includes(error.name) && !(error instanceof TypeError) && !(error instanceof SyntaxError)) throw error;
    if (!last) show_state("gone", "No answer", "the controller does not answer");
  } finally {
    polling = false;
    timer = setTimeout(poll, document.hidden ? HIDDEN_INTERVAL_MS : INTERVAL_MS);
    show_age();
  }
}

$("history-key").append(...[["loss, heaps or packets per second (left)", "--c1"], ["data rate of the digitisers (right)", "--c0"]].map(([text, name]) => {
  const key = element("span", {}, element("i"), text);
  key.style.setProperty("--colour", `var(${name})`);
  return key;
}));
setInterval(show_age, 500);
new ResizeObserver(() => last && draw_history($("history"), last)).observe($("history"));
document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });
window.addEventListener("hashchange", () => { chosen = read_hash(); if (last) { show_antennas(last); poll_fringe(); } });
poll();
