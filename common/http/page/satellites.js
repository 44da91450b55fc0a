"use strict";
/* Navigation satellites of an F-engine: the streams of each antenna, and the state of each stream's satellites. */

const CN0_LOW = 20, CN0_HIGH = 55; // values at the two ends of a bar, in dB-Hz

const is_gnss = (s, t) => (s.gnss || []).some(g => g.antenna === t.antenna && g.name === t.stream);
const is_followed = sat => sat.stage !== "search";

function cn0_cell(sat, pol, old) {
  const v = sat.cn0_db_hz[pol], title = `${CN0_LOW} to ${CN0_HIGH} dB-Hz; the code is lost below 25`;
  if (!is_followed(sat) || v <= 0) return { text: "–", level: "idle", bar: 0, title };
  return { text: `${v.toFixed(1)} dB-Hz`, level: old ? "idle" : "", bar: (v - CN0_LOW) / (CN0_HIGH - CN0_LOW), title };
}

/* Returns a cell with a picture of the correlation peak, and the same amplitudes as numbers. */
function peak_cell(sat, old) {
  if (!sat.taps) return { text: "–", level: "idle" };
  const [early, , late] = sat.taps.map(v => v.toFixed(2)), chips = sat.tap_chips.toFixed(2);
  return { text: `early ${early}`, sub: `late ${late}`, level: old ? "idle" : "", peak: sat.taps, title: `amplitudes ${chips} chips before and after the prompt one, which is 1: means of a second` };
}

/* Draws the amplitudes of the early, prompt and late taps as a function of the code's delay. */
function draw_peak(td, taps) {
  const svg = "http://www.w3.org/2000/svg", top = Math.max(1, ...taps);
  const places = taps.map((v, i) => [12 + 28 * i, 26 - 22 * v / top]);
  if (!td.children[2]) {
    const picture = document.createElementNS(svg, "svg");
    picture.setAttribute("viewBox", "0 0 80 28");
    picture.setAttribute("aria-hidden", "true");
    picture.append(...["line", "polyline", ...taps.map(() => "circle")].map(name => document.createElementNS(svg, name)));
    for (const [name, value] of Object.entries({ x1: 2, x2: 78, y1: 26, y2: 26 })) picture.children[0].setAttribute(name, value);
    td.append(picture);
    td.classList.add("peak");
  }
  const [, curve, ...dots] = td.children[2].children;
  curve.setAttribute("points", places.map(p => p.join()).join(" "));
  dots.forEach((dot, i) => { dot.setAttribute("cx", places[i][0]); dot.setAttribute("cy", places[i][1]); dot.setAttribute("r", 2.2); });
}

const SATELLITE_COLUMNS = [
  ["Satellite", "name", sat => ({ text: sat.name })],
  ["Stage", "stage", sat => ({ text: sat.stage, level: is_followed(sat) && !sat.old ? "" : "idle" })],
  ...[0, 1].map(pol => [`C/N0 pol ${pol}`, `cn0${pol}`, sat => cn0_cell(sat, pol, sat.old)]),
  ["Doppler", "doppler", sat => is_followed(sat) ? { text: `${minus(sat.doppler_hz.toFixed(1))} Hz`, level: sat.old ? "idle" : "" } : { text: "–", level: "idle" }],
  ["Age", "age", sat => is_followed(sat) ? { text: duration(sat.age_s), level: sat.old ? "idle" : "" } : { text: "–", level: "idle" }],
  ["Correlation peak", "peak", sat => peak_cell(sat, sat.old)],
];

/* Shows the streams' rates and losses. */
function show_gnss_streams(s) {
  const figures = g => s.streams.find(t => t.antenna === g.antenna && t.stream === g.name) || {};
  fill_table($("gnss-streams"), [
    ["Stream", "name", g => ({ text: g.row_key })],
    ["Tracked", "tracked", g => ({ text: `${g.satellites.filter(sat => sat.stage === "tracking").length} of ${g.satellites.length}` })],
    ["Heaps", "heaps", g => ({ ...rate_cell(g.heaps, "/s"), level: per_s(g.heaps) === 0 ? "idle" : "" })],
    ["Rate", "bytes", g => ({ ...rate_cell(g.bytes, "b/s", 8), sub: `${count(total(g.bytes))} bytes` })],
    ["Samples missing", "missing_samples", g => {
      const f = fraction(per_s(g.missing_samples), sum([per_s(g.samples), per_s(g.missing_samples)]));
      return { text: percent(f), sub: `${count(total(g.missing_samples))} in all`, level: f > 0 ? "warn" : "" };
    }],
    ["Clipped", "clipped_samples", g => {
      const f = fraction(per_s(g.clipped_samples), known(per_s(g.samples)) ? 2 * per_s(g.samples) : null);
      return { text: percent(f), sub: `${count(total(g.clipped_samples))} samples`, level: f > 0.01 ? "warn" : "" };
    }],
    ["Dropped", "dropped_heaps", g => still_cell(g.dropped_heaps)],
    ["Destination", "destinations", g => ({ text: g.destinations.join(", ") })],
  ], s.gnss.map(g => ({ ...figures(g), ...g, row_key: `${g.antenna} ${g.name}` })));
}

function show_satellites(s) {
  const streams = s.gnss || [], box = $("satellites"), shape = streams.map(g => `${g.antenna} ${g.name}`).join("\n");
  $("satellites-card").hidden = !streams.length;
  if (!streams.length) return;
  show_gnss_streams(s);
  if (box.shape !== shape) {
    box.shape = shape;
    box.replaceChildren(...streams.map((g, i) => element("div", { dataset: { stream: `${g.antenna} ${g.name}` } },
      element("div", { className: "head" }, element("h3", { id: `satellites-${i}` }, `${g.antenna} ${g.name}`), element("span", { className: "when" })),
      element("table", { attributes: { "aria-labelledby": `satellites-${i}` } }))));
  }
  streams.forEach((g, i) => {
    const age = how_old(s, g.time), [head, table] = box.children[i].children;
    box.children[i].classList.toggle("old", age !== "");
    head.children[1].textContent = known(g.time) ? `${utc(g.time)} UTC${age ? ", " + age : ""}` : "no data yet";
    fill_table(table, SATELLITE_COLUMNS, g.satellites.map(sat => ({ ...sat, old: age !== "", row_key: sat.name })));
  });
}
