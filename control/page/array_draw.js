"use strict";
/* Texts and pictures of the array page: numbers as text, the flow of the data, the history.  plot.js has element(). */

const SYMBOLS = { ok: "✓", warn: "▲", bad: "✕", absent: "○" };
const WORDS = { ok: "green", warn: "amber", bad: "red", absent: "missing" };

// ---- Numbers as text ------------------------------------------------------------------------------------------------

const known = n => n !== null && n !== undefined;
const minus = text => text.replace("-", "−");
const count = n => String(n).replace(/\B(?=(\d{3})+(?!\d))/g, "\u2009");
const plural = (n, what) => `${count(n)} ${what}${n === 1 ? "" : "s"}`;
const utc = s => new Date(1000 * s).toISOString().slice(11, 19);
const day = s => new Date(1000 * s).toISOString().slice(0, 10);

function si(value, unit) {
  if (!known(value)) return "–";
  const steps = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]], step = steps.find(s => Math.abs(value) >= s[0]) || [1, ""];
  const scaled = value / step[0], digits = scaled >= 100 || (scaled === Math.round(scaled) && step[1] === "") ? 0 : scaled >= 10 ? 1 : 2;
  return `${scaled.toFixed(digits)} ${step[1]}${unit}`;
}
const bits = gbps => si(1e9 * gbps, "b/s");

function percent(fraction) {
  if (fraction === 0) return "0 %";
  const p = 100 * fraction;
  return p < 0.001 ? "< 0.001 %" : `${p >= 10 ? p.toFixed(0) : p.toPrecision(2)} %`;
}

function duration(seconds) {
  const s = Math.floor(seconds), d = Math.floor(s / 86400), h = Math.floor(s / 3600) % 24, m = Math.floor(s / 60) % 60;
  return d ? `${d} d ${h} h` : h ? `${h} h ${m} min` : m ? `${m} min ${s % 60} s` : `${s} s`;
}
const ago = (now, t) => `${duration(Math.max(0, now - t))} ago`;

/* Returns names as text: "x0, x1, x2 and 61 more". */
function names_of(names) {
  return names.length > 4 ? `${names.slice(0, 3).join(", ")} and ${names.length - 3} more` : names.join(", ");
}

// ---- SVG ------------------------------------------------------------------------------------------------------------

function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const name in attributes) made.setAttribute(name, attributes[name]);
  made.append(...children);
  return made;
}

// ---- Flow of the data -----------------------------------------------------------------------------------------------

/* Returns [name, lines of text, level] of each box in the picture of the data flow. */
function flow_nodes(s) {
  const of = (...programs) => s.engines.filter(e => programs.includes(e.program)), recorders = of("visrec", "beamrec");
  const engines = (name, rows) => {
    const wrong = rows.filter(e => e.state !== "ok"), worst = wrong.some(e => e.state !== "warn") ? "bad" : wrong.length ? "warn" : "ok";
    return [name, [[`${rows.length - wrong.filter(e => e.state === "absent").length} of ${rows.length} answer`, rows.some(e => e.state === "absent") ? "bad" : ""],
      ...(wrong.length ? [[`${wrong.length} not green`, worst]] : [])], rows.length ? worst : ""];
  };
  const silent = s.antennas.filter(a => a.state === "bad"), missing = s.antennas.filter(a => a.state === "absent");
  const level = silent.length ? "bad" : s.antennas.some(a => a.state === "warn") ? "warn" : "ok";
  return [["Digitisers", [[plural(s.antennas.length, "antenna"), ""], ...(silent.length ? [[`${silent.length} without data`, "bad"]] : [])], level],
    engines("F-engines", of("fgpu")),
    ["Switch", [[`${s.antennas.length - silent.length - missing.length} of ${s.antennas.length} antennas`, silent.length + missing.length ? "bad" : ""]], ""],
    engines("X-engines", of("xbgpu")),
    ...(recorders.length ? [engines("Recorders", recorders)] : [])];
}

function arrow_of(flow) {
  const lost = flow.lost_per_s > 0 ? `${si(flow.lost_per_s, "/s")} lost` : "nothing lost";
  const line = svg("svg", { viewBox: "0 0 100 12", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("line", { x1: 0, y1: 6, x2: 98, y2: 6 }), svg("path", { d: "M94 1 L99 6 L94 11" }));
  return element("li", { className: `arrow${flow.gbps > 0 ? "" : " none"}`, dataset: { from: flow.from } },
    element("b", {}, flow.gbps > 0 ? bits(flow.gbps) : "no data"), line, element("span", { dataset: { level: flow.lost_per_s > 0 ? "warn" : "" } }, lost));
}

function draw_flow(list, s) {
  const nodes = flow_nodes(s).map(([name, lines, level]) =>
    element("li", { className: "node", dataset: { level } }, element("b", {}, name), ...lines.map(([text, l]) => element("span", { dataset: { level: l } }, text))));
  list.replaceChildren(...nodes.flatMap((node, i) => i + 1 < nodes.length ? [node, arrow_of(s.flow[i])] : [node]));
}

// ---- History --------------------------------------------------------------------------------------------------------

const HOUR_S = 3600, ROW_S = 20;

/* Returns the path of a curve through rows; the curve breaks where rows are missing. */
function path_of(rows, x, y) {
  let before = -Infinity;
  return rows.map(r => {
    const step = r.t - before > 1.5 * ROW_S ? "M" : "L";
    before = r.t;
    return `${step}${x(r.t + ROW_S / 2).toFixed(1)} ${y(r).toFixed(1)}`;
  }).join("");
}

/* Draws a strip with the states, and below it the curves of loss and rate.  The picture is as wide as its box.  It is drawn again
   only if there is another row, or if the newest row has another state or loss.  Returns a description of the picture. */
function draw_history(box, s) {
  const key = [box.clientWidth, ...["t", "state", "lost_per_s"].map(name => s.history.at(-1)[name])].join();
  if (box.shown === key) return box.words;
  box.shown = key;
  const width = Math.max(300, box.clientWidth), height = 190, left = 58, right = width - 76, top = 34, bottom = height - 24, end = s.history.at(-1).t + ROW_S;
  const x = t => left + (right - left) * (1 - (end - t) / HOUR_S), most = key => Math.max(...s.history.map(r => r[key]));
  const most_lost = Math.max(1, most("lost_per_s")), most_rate = most("in_gbps") || 1, y = (value, high) => bottom - (bottom - top) * value / high;
  const parts = [svg("rect", { class: "none", x: left, y: 6, width: right - left, height: 16 })];
  for (const r of s.history) parts.push(svg("rect", { class: r.state, x: x(r.t).toFixed(1), y: 6 + (r.state === "ok" ? 5 : r.state === "warn" ? 2 : 0),
    width: ((right - left) * ROW_S / HOUR_S + 0.3).toFixed(1), height: r.state === "ok" ? 6 : r.state === "warn" ? 12 : 16 }));
  for (const part of [0, 0.5, 1]) {
    const at = Math.round(y(part, 1)) + 0.5;
    parts.push(svg("line", { class: "grid", x1: left, x2: right, y1: at, y2: at }),
      svg("text", { x: left - 6, y: at + 4, "text-anchor": "end" }, si(Number((part * most_lost).toPrecision(3)), "/s")),
      svg("text", { x: right + 6, y: at + 4 }, bits(Number((part * most_rate).toPrecision(3)))));
  }
  for (const minutes of width < 500 ? [60, 30, 0] : [60, 45, 30, 15, 0]) {
    const at = x(end - 60 * minutes);
    parts.push(svg("text", { x: at, y: height - 6, "text-anchor": minutes === 60 ? "start" : minutes ? "middle" : "end" }, minutes ? `−${minutes} min` : "now"));
  }
  parts.push(svg("path", { class: "rate", d: path_of(s.history, x, r => y(r.in_gbps, most_rate)) }),
    svg("path", { class: "loss", d: path_of(s.history, x, r => y(r.lost_per_s, most_lost)) }));
  const seconds = state => ROW_S * s.history.filter(r => r.state === state).length;
  const words = `Green for ${duration(seconds("ok"))}, amber for ${duration(seconds("warn"))}, red for ${duration(seconds("bad"))}. ` +
    `Largest loss ${si(most("lost_per_s"), "/s")}, largest rate ${bits(most("in_gbps"))}.`;
  box.replaceChildren(svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `State of the last hour. ${words}` }, ...parts));
  return box.words = words;
}
