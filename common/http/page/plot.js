"use strict";
/* A plot of curves over one frequency axis, on a canvas.  All plots of a page mark the frequency at the pointer. */

const plots = [];
let pointed = null; // position of the pointer along the axis of all plots, from 0 to 1
let drag = null;    // position on the axis, from 0 to 1, at which the user began to drag the mouse; the drag zooms
// the plot under the pointer: {plot, y: position on the canvas, channel: channel chosen with the keys, else null}
let active = null;

function colour(name) {
  return getComputedStyle(document.body).getPropertyValue(name).trim();
}

/* Returns a new element with properties and children.  'dataset' and 'attributes' are objects. */
function element(tag, { dataset = {}, attributes = {}, ...properties } = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  Object.assign(made.dataset, dataset);
  for (const name in attributes) made.setAttribute(name, attributes[name]);
  made.append(...children);
  return made;
}

/* Returns a number as text: 'digits' decimals, a minus sign instead of a hyphen, and the unit. */
const short = (value, digits, unit = "") => value.toFixed(digits).replace("-", "−") + (unit && unit !== "°" ? " " : "") + unit;

/* Returns round numbers between 'low' and 'high' for the marks of an axis, and the step between the numbers.  'about'
 * is the approximate number of marks. */
function ticks(low, high, about) {
  const raw = (high - low) / Math.max(1, about), power = 10 ** Math.floor(Math.log10(raw));
  const step = power * ([1, 2, 2.5, 5, 10].find(f => f * power >= raw) || 10), list = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) list.push(i * step);
  return { step, list };
}

class Plot {
  /* Members of 'options'.  title: text above the plot.  label, unit: name and unit of the values.  height: in pixels.  range:
   [low, high] of the values; without this member the range fits the data.  digits: number of decimals.  dots: true for dots
   instead of a line.  cyclic: true if the values are degrees.  zoom: zoom(first, last) shows these channels, and zoom(null) shows
   the whole band.  n_asked: n_asked() returns the number of requested channels, or 0 for the whole band.  The data of the
   requested channels may not have come yet. */
  constructor(parent, options) {
    Object.assign(this, { dots: false, digits: 1, height: 220, unit: "", caption: "" }, options);
    this.hidden = new Set(options.hidden || []);
    this.curves = [];
    this.legend = element("div", { className: "legend" });
    this.canvas = element("canvas", { tabIndex: 0, attributes: {
      role: "application", // the arrow keys go to the plot, not to the screen reader
      "aria-roledescription": "plot", "aria-describedby": "plot-keys", "aria-label": this.title } });
    this.canvas.style.height = this.height + "px";
    this.box = element("div", { className: "plot" }, this.legend, this.canvas);
    parent.append(this.box);
    this.canvas.addEventListener("pointermove", e => this.point(e));
    this.canvas.addEventListener("pointerdown", e => {
      this.point(e);
      drag = e.pointerType === "mouse" && e.button === 0 ? pointed : null; // a finger scrolls
    });
    this.canvas.addEventListener("pointerup", () => this.end_drag());
    this.canvas.addEventListener("pointerleave", leave);
    this.canvas.addEventListener("blur", leave);
    this.canvas.addEventListener("dblclick", () => this.zoom && this.zoom(null));
    this.canvas.addEventListener("keydown", e => this.key(e));
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    plots.push(this);
  }

  /* axis: the axis in status.json, with the name and scale of its unit and the whole band {first, count} in channels. curves:
   [{name, colour, mean, most}]. subject: text that names the antennas. */
  set(axis, curves, subject) {
    this.axis = axis;
    this.curves = curves;
    this.subject = subject;
    this.fit();
    this.renew_legend();
    this.draw();
    if (document.activeElement !== this.canvas) this.canvas.setAttribute("aria-label", this.describe());
    if (!active || active.plot !== this) return;
    if (active.channel !== null) this.point_at_channel(active.channel);
    else this.show_tip();
  }

  /* Returns a description of the plot in words, for screen readers. */
  describe() {
    return `${this.title}, ${this.subject}, ${this.band_text()}. ` + this.shown().map(c => `${c.name}: ${this.sum_up(c)}`).join("; ");
  }

  band_text() {
    const a = this.axis, digits = this.mhz_digits(), mhz = channel => short((a.first_hz + a.step_hz * channel) / a.scale, digits);
    return `${mhz(0)} to ${mhz(a.channels - 1)} ${a.name}, channels ${a.first_channel} to ${a.first_channel + a.channels - 1}`;
  }

  sum_up(c) {
    const known = c.mean.map((v, i) => [v, i]).filter(([v]) => v !== null), n = known.length;
    if (!n) return "no data";
    const sum = f => known.reduce((a, [v]) => a + f(v), 0), turn = Math.PI / 180;
    const mean = this.cyclic ? Math.atan2(sum(v => Math.sin(v * turn)), sum(v => Math.cos(v * turn))) / turn : sum(v => v) / n;
    const text = `mean ${short(mean, this.digits, this.unit)}`;
    if (this.range) return text;
    const [peak, at] = known.reduce((a, b) => b[0] > a[0] ? b : a), hz = this.axis.first_hz + this.axis.step_hz * this.axis.channels_per_point * at;
    return `peak ${short(peak, this.digits, this.unit)} at ${short(hz / this.axis.scale, this.mhz_digits())} ${this.axis.name}, ${text}`;
  }

  mhz_digits() { return this.axis.step_hz / this.axis.scale < 0.01 ? 4 : 3; }

  shown() {
    return this.curves.filter(c => !this.hidden.has(c.name));
  }

  renew_legend() {
    const names = this.caption + this.curves.map(c => c.name + c.colour).join("\n");
    if (names === this.legend_names) return;
    this.legend_names = names;
    this.legend.replaceChildren(element("b", {}, this.title), element("span", {}, this.caption), ...this.curves.map(c => {
      const button = element("button", { type: "button", attributes: { "aria-pressed": !this.hidden.has(c.name) } }, element("i"), c.name);
      button.style.setProperty("--colour", `var(${c.colour})`);
      button.onclick = () => {
        if (!this.hidden.delete(c.name)) this.hidden.add(c.name);
        button.setAttribute("aria-pressed", !this.hidden.has(c.name));
        this.low = undefined;
        this.fit();
        this.draw();
      };
      return button;
    }));
  }

  /* Sets the range of the value axis to the given range, or to the range of the data.  Keeps a range that still fits, so that the
     plot does not jitter. */
  fit() {
    if (this.range) { [this.low, this.high] = this.range; return; }
    let low = Infinity, high = -Infinity;
    for (const c of this.shown()) {
      for (const v of c.mean) if (v !== null && v < low) low = v;
      for (const v of c.most || c.mean) if (v !== null && v > high) high = v;
    }
    if (low > high) { low = -60; high = 0; }
    const span = Math.max(high - low, 3);
    const fits = this.low <= low && this.high >= high && this.high - this.low < 2.2 * span + 4;
    if (fits) return;
    const { step } = ticks(low - 0.12 * span, high + 0.15 * span, 5);
    this.low = Math.floor((low - 0.08 * span) / step) * step;
    this.high = Math.ceil((high + 0.08 * span) / step) * step;
  }

  draw() {
    const width = this.canvas.clientWidth, height = this.height, ratio = window.devicePixelRatio || 1;
    if (!width || !this.axis) return;
    if (this.canvas.width !== Math.round(width * ratio)) this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const g = this.canvas.getContext("2d");
    this.frame = { left: 46, top: 22, right: width - 10, bottom: height - 34 };
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, width, height);
    g.font = "12px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif";
    this.draw_axes(g, width);
    g.save();
    g.beginPath();
    g.rect(this.frame.left, this.frame.top, this.frame.right - this.frame.left, this.frame.bottom - this.frame.top);
    g.clip();
    this.draw_values(g);
    this.draw_pointer(g);
    g.restore();
  }

  draw_values(g) {
    for (const c of this.shown()) this.draw_curve(g, c);
  }

  x_of(fraction) { return this.frame.left + fraction * (this.frame.right - this.frame.left); }
  y_of(value) { return this.frame.bottom - (value - this.low) / (this.high - this.low) * (this.frame.bottom - this.frame.top); }

  draw_axes(g, width) {
    const f = this.frame, a = this.axis;
    g.strokeStyle = colour("--grid");
    g.fillStyle = colour("--dim");
    g.lineWidth = 1;
    g.textAlign = "right";
    g.textBaseline = "middle";
    const y = this.ticks ? { list: this.ticks } : ticks(this.low, this.high, this.height / 45);
    for (const v of y.list) {
      const at = Math.round(this.y_of(v)) + 0.5;
      g.beginPath(); g.moveTo(f.left, at); g.lineTo(f.right, at); g.stroke();
      g.fillText(String(Math.round(v * 100) / 100).replace("-", "−"), f.left - 6, at);
    }
    g.textBaseline = "top";
    const low = (a.first_hz - a.step_hz / 2) / a.scale, high = low + a.channels * a.step_hz / a.scale;
    const x = ticks(low, high, width / 90), digits = Math.max(0, -Math.floor(Math.log10(x.step) + 1e-9) + (x.step / 10 ** Math.floor(Math.log10(x.step)) === 2.5 ? 1 : 0));
    for (const v of x.list) {
      const at = Math.round(this.x_of((v - low) / (high - low))) + 0.5;
      g.beginPath(); g.moveTo(at, f.top); g.lineTo(at, f.bottom); g.stroke();
      g.textAlign = at > f.right - 14 ? "right" : at < f.left + 14 ? "left" : "center";
      g.fillText(v.toFixed(digits).replace("-", "−"), at, f.bottom + 5);
    }
    g.textAlign = "left";
    g.fillText(this.label, 4, 3);
    g.textAlign = "right";
    g.fillText(`Frequency (${a.name})`, f.right, f.bottom + 19);
    g.textAlign = "left";
    g.fillText(`channels ${a.first_channel} – ${a.first_channel + a.channels - 1}`, f.left, f.bottom + 19);
  }

  draw_curve(g, c) {
    const n = c.mean.length, points = this.axis.channels / this.axis.channels_per_point;
    const x = i => this.x_of((i + 0.5) / points), stroke = colour(c.colour);
    g.strokeStyle = g.fillStyle = stroke;
    if (this.dots) {
      const size = n > 600 ? 1.6 : 2.4;
      for (let i = 0; i < n; i++) if (c.mean[i] !== null) g.fillRect(x(i) - size / 2, this.y_of(c.mean[i]) - size / 2, size, size);
      return;
    }
    const line = (values, alpha, line_width) => {
      g.globalAlpha = alpha;
      g.lineWidth = line_width;
      g.beginPath();
      let pen = false;
      for (let i = 0; i < n; i++) {
        if (values[i] === null) { pen = false; continue; }
        if (pen) g.lineTo(x(i), this.y_of(values[i])); else g.moveTo(x(i), this.y_of(values[i]));
        pen = true;
      }
      g.stroke();
      g.globalAlpha = 1;
    };
    if (c.most && this.axis.channels_per_point > 1) line(c.most, 0.35, 1);
    line(c.mean, 1, 1.2);
  }

  draw_pointer(g) {
    if (pointed === null) return;
    const at = Math.round(this.x_of(pointed)) + 0.5;
    if (drag !== null) {
      g.fillStyle = colour("--accent");
      g.globalAlpha = 0.15;
      g.fillRect(this.x_of(drag), this.frame.top, this.x_of(pointed) - this.x_of(drag), this.frame.bottom - this.frame.top);
      g.globalAlpha = 1;
    }
    g.strokeStyle = colour("--dim");
    g.setLineDash([3, 3]);
    g.beginPath(); g.moveTo(at, this.frame.top); g.lineTo(at, this.frame.bottom); g.stroke();
    g.setLineDash([]);
  }

  /* Zooms to the channels over which the mouse was dragged.  If the mouse was dragged over very few channels, does
   * nothing. */
  end_drag() {
    const from = drag;
    drag = null;
    if (from === null || pointed === null || !this.zoom || Math.abs(pointed - from) < 0.01) return;
    const channels = [from, pointed].map(f => this.axis.first_channel + Math.floor(f * this.axis.channels)).sort((a, b) => a - b);
    if (channels[1] - channels[0] >= 7) this.zoom(...channels);
  }

  /* Follows the mouse. */
  point(event) {
    if (!this.axis || !this.frame) return;
    const box = this.canvas.getBoundingClientRect();
    const fraction = (event.clientX - box.left - this.frame.left) / (this.frame.right - this.frame.left);
    if (fraction < 0 || fraction >= 1 || !this.curves.length) { leave(); return; }
    pointed = fraction;
    active = { plot: this, y: event.clientY - box.top, channel: null };
    this.show_tip();
    drawAll();
  }

  point_at_channel(channel) {
    const a = this.axis, y = active && active.plot === this ? active.y : (this.frame.top + this.frame.bottom) / 2;
    channel = Math.max(a.first_channel, Math.min(a.first_channel + a.channels - 1, channel));
    pointed = (channel - a.first_channel + 0.5) / a.channels;
    active = { plot: this, y, channel };
    this.show_tip();
    drawAll();
  }

  pointed_channel() {
    return this.axis.first_channel + Math.floor(pointed * this.axis.channels);
  }

  key(event) {
    const sideways = { ArrowLeft: -1, ArrowRight: 1 }[event.key], closer = { "+": 2, "=": 2, Enter: 2, "-": 0.5 }[event.key];
    if (!this.axis || !this.frame || !this.curves.length || event.ctrlKey || event.altKey || event.metaKey) return;
    const middle = this.axis.first_channel + Math.floor(this.axis.channels / 2), here = active && active.plot === this;
    if (event.key === "Escape") { this.canvas.blur(); return; }
    if (sideways) this.point_at_channel(here ? this.pointed_channel() + sideways * this.axis.channels_per_point * (event.shiftKey ? 10 : 1) : middle);
    else if (closer) this.zoom_around(here ? this.pointed_channel() : middle, closer);
    else if (!here || !this.key_upright(event)) return;
    event.preventDefault();
    document.getElementById("said").textContent = document.getElementById("tip").innerText.replaceAll("\n", ", ");
  }

  key_upright() { return false; }

  /* Zooms to a band with 'channel' in its middle.  The new band is narrower than the present band by the factor 'times'. */
  zoom_around(channel, times) {
    const { first, count } = this.axis.band, asked = this.n_asked() || count, n = Math.max(8, Math.round(asked / times));
    this.point_at_channel(channel);
    if (n === asked) return;
    const begin = Math.max(first, Math.min(first + count - n, channel - Math.floor(n / 2)));
    if (n >= count) this.zoom(null);
    else this.zoom(begin, begin + n - 1);
  }

  /* Shows the values at the pointer. */
  show_tip() {
    const a = this.axis, tip = document.getElementById("tip");
    const point = Math.floor((this.pointed_channel() - a.first_channel) / a.channels_per_point);
    const first = point * a.channels_per_point, last = Math.min(first + a.channels_per_point, a.channels) - 1;
    const hz = a.first_hz + a.step_hz * (first + last) / 2;
    const head = `channel ${a.first_channel + first}${last > first ? "–" + (a.first_channel + last) : ""} · ${(hz / a.scale).toFixed(this.mhz_digits())} ${a.name}`;
    tip.replaceChildren(element("b", {}, head), ...this.tip_rows(point));
    tip.hidden = false;
    const box = this.canvas.getBoundingClientRect(), x = box.left + this.x_of(pointed), y = box.top + active.y;
    tip.style.left = Math.max(4, Math.min(x + 14, window.innerWidth - tip.offsetWidth - 8)) + "px";
    tip.style.top = Math.max(4, y - tip.offsetHeight - 12) + "px";
  }

  tip_rows(point) {
    return this.shown().map(c => {
      const v = c.mean[point], m = c.most && this.axis.channels_per_point > 1 ? c.most[point] : null;
      return tip_row(c.colour, c.name, v === null || v === undefined ? "none" : `${short(v, this.digits, this.unit)}${m !== null ? `, most ${short(m, this.digits)}` : ""}`);
    });
  }
}

function tip_row(colour, name, text) {
  const row = element("div", {}, element("i"), name, element("span", {}, text));
  row.style.setProperty("--colour", colour.startsWith("--") ? `var(${colour})` : colour);
  return row;
}

/* Called when the pointer leaves the plots. */
function leave() {
  pointed = drag = active = null;
  document.getElementById("tip").hidden = true;
  drawAll();
}

function drawAll() {
  for (const p of plots) p.draw();
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
