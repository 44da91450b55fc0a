"use strict";
/* A plot of curves over one axis of frequencies, on a canvas; plots of a page point at the same place together. */

const plots = [];
let pointed = null; // the fraction of the axis that the pointer is at, on all plots
let drag = null;    // the fraction at which a stretch to be zoomed to begins

function colour(name) {
  return getComputedStyle(document.body).getPropertyValue(name).trim();
}

/* Round numbers between low and high, about so many. */
function ticks(low, high, about) {
  const raw = (high - low) / Math.max(1, about), power = 10 ** Math.floor(Math.log10(raw));
  const step = power * ([1, 2, 2.5, 5, 10].find(f => f * power >= raw) || 10), list = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) list.push(i * step);
  return { step, list };
}

class Plot {
  /* options: title, unit, height, range ([low, high], or none: fits the data), dots, digits; zoom(first, last channel), or
   of null: the whole band */
  constructor(parent, options) {
    Object.assign(this, { dots: false, digits: 1, height: 220 }, options);
    this.hidden = new Set(options.hidden || []);
    this.curves = [];
    this.box = document.createElement("div");
    this.box.className = "plot";
    this.legend = document.createElement("div");
    this.legend.className = "legend";
    this.canvas = document.createElement("canvas");
    this.canvas.style.height = this.height + "px";
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", this.title);
    this.box.append(this.legend, this.canvas);
    parent.append(this.box);
    this.canvas.addEventListener("pointermove", e => this.point(e));
    this.canvas.addEventListener("pointerdown", e => {
      this.point(e);
      drag = e.pointerType === "mouse" && e.button === 0 ? pointed : null; // a finger scrolls
    });
    this.canvas.addEventListener("pointerup", () => this.end_drag());
    this.canvas.addEventListener("pointerleave", () => { pointed = drag = null; document.getElementById("tip").hidden = true; drawAll(); });
    this.canvas.addEventListener("dblclick", () => this.zoom && this.zoom(null));
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    plots.push(this);
  }

  /* axis: as in status.json, with name and scale of its unit; curves: [{name, colour, mean, most}] */
  set(axis, curves) {
    this.axis = axis;
    this.curves = curves;
    this.fit();
    this.renew_legend();
    this.draw();
  }

  shown() {
    return this.curves.filter(c => !this.hidden.has(c.name));
  }

  renew_legend() {
    const names = this.curves.map(c => c.name + c.colour).join("\n");
    if (names === this.legend_names) return;
    this.legend_names = names;
    const title = document.createElement("b");
    title.textContent = this.title;
    this.legend.replaceChildren(title, ...this.curves.map(c => {
      const button = document.createElement("button"), swatch = document.createElement("i");
      button.type = "button";
      button.style.setProperty("--colour", `var(${c.colour})`);
      button.setAttribute("aria-pressed", !this.hidden.has(c.name));
      button.append(swatch, c.name);
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

  /* The range of values: as given, or what the data need; kept while it suits, so that it does not tremble. */
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
    this.frame = { left: 46, top: 8, right: width - 10, bottom: height - 34 };
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, width, height);
    g.font = "11px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif";
    this.draw_axes(g, width);
    g.save();
    g.beginPath();
    g.rect(this.frame.left, this.frame.top, this.frame.right - this.frame.left, this.frame.bottom - this.frame.top);
    g.clip();
    for (const c of this.shown()) this.draw_curve(g, c);
    this.draw_pointer(g);
    g.restore();
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
    g.fillText(this.unit, 4, f.bottom + 19);
    g.textAlign = "right";
    g.fillText(a.name, f.right, f.bottom + 19);
    g.textAlign = "center";
    g.fillText(`channels ${a.first_channel} – ${a.first_channel + a.channels - 1}`, (f.left + f.right) / 2, f.bottom + 19);
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

  /* Zooms to what the mouse was drawn over, unless that is hardly anything. */
  end_drag() {
    const from = drag;
    drag = null;
    if (from === null || pointed === null || !this.zoom || Math.abs(pointed - from) < 0.01) return;
    const channels = [from, pointed].map(f => this.axis.first_channel + Math.floor(f * this.axis.channels)).sort((a, b) => a - b);
    if (channels[1] - channels[0] >= 7) this.zoom(...channels);
  }

  /* Shows what is under the pointer. */
  point(event) {
    if (!this.axis || !this.frame) return;
    const a = this.axis, box = this.canvas.getBoundingClientRect();
    const fraction = (event.clientX - box.left - this.frame.left) / (this.frame.right - this.frame.left);
    const tip = document.getElementById("tip");
    if (fraction < 0 || fraction >= 1 || !this.curves.length) { pointed = null; tip.hidden = true; drawAll(); return; }
    pointed = fraction;
    const channel = Math.floor(fraction * a.channels), point = Math.floor(channel / a.channels_per_point);
    const first = point * a.channels_per_point, last = Math.min(first + a.channels_per_point, a.channels) - 1;
    const head = document.createElement("b"), hz = a.first_hz + a.step_hz * (first + last) / 2;
    head.textContent = `channel ${a.first_channel + first}${last > first ? "–" + (a.first_channel + last) : ""} · ${(hz / a.scale).toFixed(a.step_hz / a.scale < 0.01 ? 4 : 3)} ${a.name}`;
    tip.replaceChildren(head, ...this.shown().map(c => {
      const row = document.createElement("div"), dot = document.createElement("i"), value = document.createElement("span");
      const v = c.mean[point], m = c.most && a.channels_per_point > 1 ? c.most[point] : null;
      row.style.setProperty("--colour", `var(${c.colour})`);
      value.textContent = v === null || v === undefined ? "none" : `${v.toFixed(this.digits)} ${this.unit}${m !== null ? `, most ${m.toFixed(this.digits)}` : ""}`.replaceAll("-", "−");
      row.append(dot, c.name, value);
      return row;
    }));
    tip.hidden = false;
    const left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8);
    tip.style.left = Math.max(4, left) + "px";
    tip.style.top = Math.max(4, event.clientY - tip.offsetHeight - 12) + "px";
    drawAll();
  }
}

function drawAll() {
  for (const p of plots) p.draw();
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
