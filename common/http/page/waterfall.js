"use strict";
/* The last ten minutes of spectra that this page has received: frequency from left to right, time from the newest row down.  A row
 * stands for two seconds, and is grey if one of these seconds has no data. */

const WATERFALL_S = 600, ROW_S = 2;
/* Colours of two colour maps of matplotlib: viridis, and twilight with its light end at phase 0.  Both ends of twilight are equal. */
const POWER_COLOURS = ["#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725"];
const PHASE_COLOURS = ["#2f1436", "#4a1342", "#741e4f", "#983550", "#b25652", "#c27c63", "#cca389", "#d8c7be", "#e2d9e2", "#c4ced4", "#95b5c7", "#7297c1", "#6276ba", "#5e51ad", "#592a8f", "#45135c", "#2f1436"];

/* Returns 256 colours, interpolated between the given colours, as pixels of an ImageData. */
function ramp_of(colours) {
  const stops = colours.map(c => [1, 3, 5].map(i => parseInt(c.slice(i, i + 2), 16)));
  const bytes = Uint8Array.from({ length: 1024 }, (_, i) => {
    const at = Math.floor(i / 4) / 255 * (stops.length - 1), stop = Math.min(Math.floor(at), stops.length - 2), part = i % 4;
    return part === 3 ? 255 : Math.round(stops[stop][part] + (at - stop) * (stops[stop + 1][part] - stops[stop][part]));
  });
  return new Uint32Array(bytes.buffer);
}

class Waterfall extends Plot {
  constructor(parent, options) {
    super(parent, { ...options, title: "Waterfall", label: "Minutes ago", height: WATERFALL_S / ROW_S + 56, range: [WATERFALL_S / 60, 0], ticks: [0, 2, 4, 6, 8, 10] });
    this.picture = element("canvas", { height: WATERFALL_S / ROW_S });
    this.select = element("select", { id: "choose-waterfall", onchange: () => { this.paint(); this.draw(); } });
    this.note = element("p", { className: "note" });
    this.box.append(this.note);
    this.clear();
  }

  clear() {
    this.rows = new Map(); // for each second: {name of a curve: values}
    this.newest = null;    // newest second
    this.time = null;      // time of the last spectrum
  }

  /* curves: [{name, values, unit, cyclic}] of a spectrum that begins at 'time' and lasts 'span_s'.  Data before 'late_since' are late. */
  add(identity, axis, curves, subject, time, span_s, late_since) {
    if (identity !== this.identity) this.clear();
    this.identity = identity;
    if (time !== this.time) this.fill(curves, time, Math.max(1, span_s));
    this.newest = Math.max(this.newest, Math.floor(late_since));
    for (const second of this.rows.keys()) if (second < this.newest - WATERFALL_S - ROW_S) this.rows.delete(second);
    this.offered = curves;
    this.axis = axis;
    this.renew_legend();
    this.paint();
    this.set(axis, curves, subject);
    const first = Math.min(...this.rows.keys());
    this.note.textContent = `The first row is of ${utc(first)} UTC. The page keeps the rows while the page is open. Another antenna, baseline, stream or zoom begins an empty waterfall.`;
  }

  /* Stores a spectrum.  This page asks slightly less often than once a second, so some seconds have no spectrum of
     their own.  These seconds get the next spectrum. */
  fill(curves, time, span_s) {
    if (time < this.time) this.clear();
    const row = Object.fromEntries(curves.map(c => [c.name, Float32Array.from(c.values, v => v === null ? NaN : v)]));
    const follows = this.time !== null && time > this.time && time - this.time < span_s + 1.5;
    const begin = follows ? Math.floor(this.time) + 1 : Math.floor(time), end = Math.max(Math.floor(time), Math.ceil(time + span_s) - 1);
    for (let second = begin; second <= end; second++) this.rows.set(second, row);
    this.time = time;
    this.newest = Math.max(this.newest ?? end, end);
  }

  choice() { return this.offered.find(c => c.name === this.select.value) || this.offered[0]; }
  shown() { return []; }

  describe() {
    const seconds = this.rows.size;
    return `Waterfall: ${this.choice().name}, ${this.subject}, ${this.band_text()}, from ${utc(this.newest + 1 - WATERFALL_S)} to ${utc(this.newest + 1)} UTC, ${seconds} seconds with data`;
  }

  renew_legend() {
    const names = this.offered.map(c => c.name), shape = this.caption + names.join();
    if (this.shape === shape) return;
    this.shape = shape;
    const chosen = this.select.value;
    this.select.replaceChildren(...names.map(n => new Option(n)));
    if (names.includes(chosen)) this.select.value = chosen;
    this.scale = element("span", { className: "scale" }, element("span"), element("i"), element("span"), element("i", { className: "empty" }), element("span", {}, "no data"));
    this.legend.replaceChildren(element("b", {}, this.title), this.caption, element("label", {}, "of", this.select), this.scale);
  }

  /* Returns the range of values for the colours: degrees, or whole decibels from the 1st to the 99th percentile. */
  limits(choice) {
    if (choice.cyclic) return [-180, 180];
    const some = [];
    for (const row of new Set(this.rows.values())) for (let i = some.length % 7; i < row[choice.name].length; i += 7) if (!isNaN(row[choice.name][i])) some.push(row[choice.name][i]);
    some.sort((a, b) => a - b);
    if (!some.length) return [-60, 0];
    const low = Math.floor(some[Math.floor(0.01 * some.length)]);
    return [low, Math.max(low + 3, Math.ceil(some[Math.floor(0.99 * some.length)]))];
  }

  /* Returns the values of the newest second in a row of the picture; row 0 is the newest row.  Returns null if any second of the
     row has no values. */
  row_at(index) {
    const last = (Math.floor(this.newest / ROW_S) - index) * ROW_S + ROW_S - 1;
    let found = null;
    for (let second = Math.min(last, this.newest); second > last - ROW_S; second--) {
      const row = this.rows.get(second);
      if (!row) return null;
      found = found || row[this.choice().name];
    }
    return found;
  }

  paint() {
    const choice = this.choice(), [low, high] = this.limits(choice), ramp = ramp_of(choice.cyclic ? PHASE_COLOURS : POWER_COLOURS);
    const width = this.picture.width = choice.values.length, height = this.picture.height, context = this.picture.getContext("2d");
    const image = context.createImageData(width, height), pixels = new Uint32Array(image.data.buffer);
    const empty = ramp_of([colour("--empty"), colour("--empty")])[0];
    for (let y = 0; y < height; y++) {
      const values = this.row_at(y);
      for (let x = 0; x < width; x++) {
        const v = values ? values[x] : NaN;
        pixels[y * width + x] = isNaN(v) ? empty : ramp[Math.max(0, Math.min(255, Math.round(255 * (v - low) / (high - low))))];
      }
    }
    context.putImageData(image, 0, 0);
    const [from, bar, to] = this.scale.children;
    from.textContent = short(low, 0, choice.unit);
    bar.style.background = `linear-gradient(90deg, ${(choice.cyclic ? PHASE_COLOURS : POWER_COLOURS).join()})`;
    to.textContent = short(high, 0, choice.unit);
  }

  draw_values(g) {
    // the last point may stand for fewer channels
    const f = this.frame, shown = this.axis.channels / this.axis.channels_per_point;
    g.imageSmoothingEnabled = false;
    g.drawImage(this.picture, f.left, f.top, (f.right - f.left) * this.picture.width / shown, f.bottom - f.top);
  }

  draw_pointer(g) {
    super.draw_pointer(g);
    if (!active || active.plot !== this) return;
    g.beginPath(); g.moveTo(this.frame.left, active.y); g.lineTo(this.frame.right, active.y); g.stroke();
  }

  pointed_row() {
    return Math.max(0, Math.min(WATERFALL_S / ROW_S - 1, Math.floor(active.y - this.frame.top)));
  }

  tip_rows(point) {
    const choice = this.choice(), index = this.pointed_row(), values = this.row_at(index), v = values ? values[point] : NaN;
    const second = Math.min(this.newest, (Math.floor(this.newest / ROW_S) - index) * ROW_S + ROW_S - 1);
    const bar = choice.cyclic ? PHASE_COLOURS : POWER_COLOURS;
    return [tip_row(bar[Math.floor(bar.length / 2)], `${choice.name}, ${utc(second)} UTC`, isNaN(v) ? "none" : short(v, 1, choice.unit))];
  }

  /* Handles arrow keys.  The up arrow moves to newer rows. */
  key_upright(event) {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!step) return false;
    active.y = this.frame.top + Math.max(0, Math.min(WATERFALL_S / ROW_S - 1, this.pointed_row() + step * (event.shiftKey ? 10 : 1))) + 0.5;
    this.show_tip();
    this.draw();
    return true;
  }
}
