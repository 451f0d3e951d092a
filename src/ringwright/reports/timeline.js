// A timeline of any number of events: the server sends what a screen can show, single events or shares of bins.
import { address, bytes, colour, element, go, time } from "./elements.js";

const ROW = 18;
const AXIS = 26;
const LEAST_SPAN_US = 0.01;
const AROUND = 0.5; // of the width, fetched on either side
const MOST_ROWS = 256;
const PALETTE = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6", "--c7", "--c8"];
const QUIET = { compute: "--c9", step: "--edge", phase: "--edge", memory: "--c7", other: "--c9" };

export class Timeline {
  // source: { meta, view(params), event(number), search(text, after, back) }; key: what names its state in the address
  // plain: without sizes and communicators to filter by
  constructor(source, { key = "", moved = null, plain = false } = {}) {
    this.plain = plain;
    this.source = source;
    this.meta = source.meta;
    this.key = key;
    this.moved = moved;
    this.rows = this.meta.rows.map((row, number) => ({ ...row, number }));
    this.operations = new Set();
    this.least = 0;
    this.communicator = -1;
    this.data = null;
    this.selected = null;
    this.pointers = new Map();
    this.wanted = 0;
    this.span = this.meta.end_us > 0 ? this.meta.end_us : 1;
    this.begin = 0;
    this.colours = this.meta.operations.map((name, at) => QUIET[name] || PALETTE[at % PALETTE.length]);
    this.root = this.build();
    this.restore();
  }

  build() {
    this.canvas = element("canvas", { class: "drawing", "aria-hidden": "true" });
    this.spacer = element("div", { class: "spacer" });
    this.scroll = element("div", {
      class: "track-view", tabindex: "0", role: "application", "aria-roledescription": "timeline",
      "aria-label": `Timeline of ${this.meta.rows.length} rows. Arrow keys move, plus and minus zoom, n and p go to the next and previous event, Home shows all.`,
    }, this.canvas, this.spacer);
    this.says = element("p", { class: "says", role: "status" });
    this.chips = this.meta.operations.map((name, at) => {
      const mark = element("i", { class: "mark" });
      const chip = element("button", { type: "button", class: "chip", "aria-pressed": "true", onclick: () => this.toggle(at) }, mark, name);
      chip.mark = mark;
      return chip;
    });
    this.rankFilter = element("input", { type: "text", placeholder: "0-7,16", size: 10, onchange: () => this.filter() });
    this.trackFilter = element("select", { onchange: () => this.filter() },
      element("option", { value: "" }, "all tracks"),
      ...[...new Set(this.meta.rows.map((row) => row.track))].map((track) => element("option", {}, track)));
    this.sizeFilter = element("input", { type: "text", placeholder: "1M", size: 6, onchange: () => this.filter() });
    this.groupFilter = element("input", { type: "text", placeholder: "any", size: 5, onchange: () => this.filter() });
    this.searchText = element("input", { type: "search", placeholder: "all_gather", size: 14, onkeydown: (event) => { if (event.key === "Enter") this.find(event.shiftKey); } });
    this.hits = element("span", { class: "note" });
    const zoom = (factor, label, text) => element("button", { type: "button", "aria-label": label, onclick: () => this.zoom(factor) }, text);
    const controls = element("div", { class: "controls" },
      element("label", {}, "Ranks ", this.rankFilter), element("label", {}, "Track ", this.trackFilter),
      ...(this.plain ? [] : [element("label", {}, "At least ", this.sizeFilter), element("label", {}, "Communicator ", this.groupFilter)]),
      element("label", {}, "Search ", this.searchText),
      element("button", { type: "button", onclick: () => this.find(true), "aria-label": "Previous match" }, "\u2039"),
      element("button", { type: "button", onclick: () => this.find(false), "aria-label": "Next match" }, "\u203a"), this.hits,
      zoom(0.5, "Zoom in", "+"), zoom(2, "Zoom out", "\u2212"),
      element("button", { type: "button", onclick: () => this.show(0, this.meta.end_us || 1) }, "All"));
    this.table = element("tbody");
    this.list = element("details", { class: "in-sight", ontoggle: () => this.fillTable() }, element("summary", {}, "Events in sight, as a table"),
      element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Events in sight" }, element("table", {}, element("thead", {}, element("tr", {},
        ...["Row", "Event", "Begins", "Lasts", "Waiting"].map((name) => element("th", { scope: "col" }, name)))), this.table)));
    const note = this.meta.note ? element("p", { class: "note" }, this.meta.note) : null;
    this.listen();
    return element("div", { class: "timeline" }, controls, element("div", { class: "chips", role: "group", "aria-label": "Operations" }, ...this.chips), note, this.scroll, this.says, this.list);
  }

  listen() {
    const box = this.scroll;
    box.addEventListener("scroll", () => { this.draw(); this.fetchSoon(); });
    box.addEventListener("wheel", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) {
        event.preventDefault();
        this.zoom(Math.exp(event.deltaY * 0.002), this.timeAt(event));
      } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
        event.preventDefault();
        this.show(this.begin + (event.deltaX || event.deltaY) * this.scale(), this.begin + this.span + (event.deltaX || event.deltaY) * this.scale());
      }
    }, { passive: false });
    box.addEventListener("pointerdown", (event) => {
      if (event.offsetX > box.clientWidth) return;
      this.pointers.set(event.pointerId, event);
      this.dragged = 0;
      box.setPointerCapture(event.pointerId);
    });
    box.addEventListener("pointermove", (event) => this.pointed(event));
    for (const name of ["pointerup", "pointercancel"]) {
      box.addEventListener(name, (event) => {
        if (name === "pointerup" && this.pointers.has(event.pointerId) && this.dragged < 4) this.pick(event);
        this.pointers.delete(event.pointerId);
      });
    }
    box.addEventListener("dblclick", (event) => this.zoom(0.25, this.timeAt(event)));
    box.addEventListener("keydown", (event) => this.key_(event));
    new ResizeObserver(() => { this.draw(); this.fetchSoon(); }).observe(box);
  }

  key_(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = this.span * 0.2;
    const acts = {
      ArrowLeft: () => this.show(this.begin - step, this.begin + this.span - step),
      ArrowRight: () => this.show(this.begin + step, this.begin + this.span + step),
      "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), w: () => this.zoom(0.5), s: () => this.zoom(2),
      a: () => this.show(this.begin - step, this.begin + this.span - step), d: () => this.show(this.begin + step, this.begin + this.span + step),
      Home: () => this.show(0, this.meta.end_us || 1), n: () => this.neighbour(1), p: () => this.neighbour(-1), Escape: () => { this.selected = null; this.draw(); },
    };
    if (acts[event.key]) { event.preventDefault(); acts[event.key](); }
  }

  gutter() { return this.scroll.clientWidth < 560 ? 74 : 168; }
  width() { return Math.max(this.scroll.clientWidth - this.gutter(), 10); }
  scale() { return this.span / this.width(); }
  xOf(us) { return this.gutter() + (us - this.begin) / this.scale(); }
  timeAt(event) { return this.begin + (event.clientX - this.scroll.getBoundingClientRect().left - this.gutter()) * this.scale(); }
  rowAt(event) { return Math.floor((event.clientY - this.scroll.getBoundingClientRect().top - AXIS + this.scroll.scrollTop) / ROW); }

  show(begin, end, told = true) {
    const whole = this.meta.end_us || 1;
    const span = Math.min(Math.max(end - begin, LEAST_SPAN_US), whole * 1.1);
    this.span = span;
    this.begin = Math.min(Math.max(begin, -0.05 * whole), whole * 1.05 - span * 0.05);
    this.draw();
    this.fetchSoon();
    if (told) {
      this.remember();
      if (this.moved) this.moved(this);
    }
  }

  zoom(factor, around = this.begin + this.span / 2) {
    const span = this.span * factor;
    const left = around - (around - this.begin) * factor;
    this.show(left, left + span);
  }

  remember() {
    const whole = this.begin <= 0 && this.begin + this.span >= this.meta.end_us;
    go({ [`${this.key}from`]: whole ? null : this.begin.toFixed(3), [`${this.key}to`]: whole ? null : (this.begin + this.span).toFixed(3) }, true);
  }

  restore() {
    const now = address();
    const from = Number(now.get(`${this.key}from`));
    const to = Number(now.get(`${this.key}to`));
    if (now.has(`${this.key}to`) && to > from) { this.begin = from; this.span = to - from; }
    for (const [name, input] of [["ranks", this.rankFilter], ["track", this.trackFilter], ["least", this.sizeFilter], ["group", this.groupFilter], ["find", this.searchText]]) {
      if (now.get(this.key + name)) input.value = now.get(this.key + name);
    }
    const hidden = (now.get(`${this.key}without`) || "").split(",").filter(Boolean).map(Number);
    if (hidden.length) this.meta.operations.forEach((_, at) => { if (!hidden.includes(at)) this.operations.add(at); });
    this.filter(true);
  }

  toggle(at) {
    const all = this.meta.operations.map((_, number) => number);
    if (!this.operations.size) this.operations = new Set(all);
    if (this.operations.has(at)) this.operations.delete(at); else this.operations.add(at);
    if (!this.operations.size || this.operations.size === all.length) this.operations = new Set();
    go({ [`${this.key}without`]: this.operations.size ? all.filter((each) => !this.operations.has(each)).join() : null }, true);
    this.filtered();
  }

  filter(quiet = false) {
    const ranks = parseRanks(this.rankFilter.value);
    const track = this.trackFilter.value;
    this.rows = this.meta.rows.map((row, number) => ({ ...row, number }))
      .filter((row) => (!ranks || ranks.some(([low, high]) => row.rank !== null && row.rank >= low && row.rank <= high)) && (!track || row.track === track));
    this.least = parseSize(this.sizeFilter.value);
    this.communicator = /^\d+$/.test(this.groupFilter.value) ? Number(this.groupFilter.value) : -1;
    if (!quiet) go({ [`${this.key}ranks`]: this.rankFilter.value, [`${this.key}track`]: track, [`${this.key}least`]: this.sizeFilter.value, [`${this.key}group`]: this.groupFilter.value }, true);
    this.filtered();
  }

  filtered() {
    this.chips.forEach((chip, at) => chip.setAttribute("aria-pressed", String(!this.operations.size || this.operations.has(at))));
    this.spacer.style.height = `${AXIS + this.rows.length * ROW}px`;
    this.data = null;
    this.draw();
    this.fetchSoon(0);
  }

  inSight() {
    const first = Math.max(Math.floor(this.scroll.scrollTop / ROW), 0);
    const many = Math.min(Math.ceil((this.scroll.clientHeight || 400) / ROW) + 1, MOST_ROWS);
    return this.rows.slice(first, first + many);
  }

  fetchSoon(wait = 60) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.fetch(), wait);
  }

  async fetch() {
    const rows = this.inSight().map((row) => row.number);
    if (!rows.length) { this.data = null; this.says.textContent = "No row is left by the filters."; this.draw(); return; }
    const turn = ++this.wanted;
    const begin = this.begin - this.span * AROUND;
    const end = this.begin + this.span * (1 + AROUND);
    try {
      const data = await this.source.view({
        from: begin, to: end, rows: runs(rows), pixels: Math.min(Math.round(this.width() * (1 + 2 * AROUND)), 20000),
        operations: [...this.operations].join(), least: this.least, communicator: this.communicator,
      });
      if (turn !== this.wanted) return;
      this.data = data;
      this.byRow = new Map(data.rows.map((row, at) => [row, data.events ? data.events[at] : stretches(data.bins[at])]));
      if (!this.selected) this.describe();
      this.draw();
      this.fillTable();
      this.root.dataset.drawn = data.events ? "events" : "bins";
      this.root.dataset.from = this.begin.toFixed(3);
      this.root.dataset.to = (this.begin + this.span).toFixed(3);
      if (this.fetched) this.fetched(this);
    } catch (error) {
      if (turn === this.wanted) this.says.textContent = `${error.message}${error.remedy ? `: ${error.remedy}` : ""}`;
    }
  }

  describe() {
    const many = (this.data.events || []).reduce((sum, row) => sum + row.length, 0);
    const what = this.data.events ? `${many.toLocaleString("en-US")} events` : `shares of ${time(this.data.bin_us)}`;
    this.says.textContent = `${time(Math.max(this.begin, 0))} to ${time(this.begin + this.span)}, ${this.rows.length} of ${this.meta.rows.length} rows; shown: ${what}. Ctrl and wheel, or + and \u2212, zoom in.`;
  }

  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.paint());
  }

  paint() {
    const width = this.scroll.clientWidth;
    const height = this.scroll.clientHeight;
    if (!width || !height) return;
    const ratio = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${height}px`;
    }
    const pen = this.canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const colours = this.colours.map(colour);
    this.chips.forEach((chip, at) => { chip.mark.style.backgroundColor = colours[at]; });
    const shift = this.scroll.scrollTop % ROW;
    pen.save();
    pen.beginPath();
    pen.rect(0, AXIS, width, height - AXIS);
    pen.clip();
    const ink = colour("--ink");
    this.inSight().forEach((row, at) => {
      const top = AXIS + at * ROW - shift;
      if (this.data) this.paintRow(pen, row, top, colours);
      pen.globalAlpha = 1;
      pen.fillStyle = colour("--card");
      pen.fillRect(0, top, this.gutter(), ROW);
      pen.fillStyle = ink;
      pen.fillText(this.label(row, at), 6, top + ROW / 2, this.gutter() - 10);
    });
    this.paintLinks(pen, shift);
    pen.restore();
    this.paintAxis(pen, width, height);
  }

  label(row, at) {
    const before = at ? this.inSight()[at - 1] : null;
    const same = before && before.label === row.label;
    return this.gutter() < 100 ? `${row.label.replace("rank ", "")} ${row.track}` : same ? `      ${row.track}` : `${row.label} \u00b7 ${row.track}`;
  }

  paintRow(pen, row, top, colours) {
    const items = this.byRow.get(row.number) || [];
    const left = this.gutter();
    const right = left + this.width();
    if (this.data.bins) {
      const at = this.data.rows.indexOf(row.number);
      if (at < 0) return;
      const picture = this.strips(colours);
      const x = this.xOf(this.data.origin_us);
      const wide = picture.width * this.data.bin_us / this.scale();
      pen.globalAlpha = 1;
      pen.imageSmoothingEnabled = wide < picture.width;
      pen.drawImage(picture, 0, at, picture.width, 1, x, top + 2, wide, ROW - 4);
      return;
    }
    const chosen = this.selected;
    for (const [number, start, length, operation, waited, group, sequence] of items) {
      const x = Math.max(this.xOf(this.data.begin_us + start), left);
      const end = Math.min(this.xOf(this.data.begin_us + start + length), right);
      if (end < left || x > right) continue;
      const pale = x + (end - x) * waited / 100;
      const whole = Math.max(end - x, 0.8);
      pen.fillStyle = colours[operation];
      pen.globalAlpha = 0.35;
      pen.fillRect(x, top + 2, whole, ROW - 4);
      pen.globalAlpha = 1;
      pen.fillRect(pale, top + 2, Math.max(end - pale, waited ? 0 : 0.8), ROW - 4);
      const same = chosen && group >= 0 && sequence >= 0 && group === chosen.communicator && sequence === chosen.sequence;
      if (chosen && (number === chosen.number || same)) {
        pen.strokeStyle = colour("--ink");
        pen.lineWidth = number === chosen.number ? 2 : 1;
        pen.strokeRect(x, top + 1.5, Math.max(whole, 2), ROW - 3);
      }
      if (whole > 60) {
        this.inside(pen, this.data.names[number] || this.meta.operations[operation], x + 4, top + ROW / 2, whole - 8, waited > 50);
      }
    }
  }

  // A name as far as there is room for it.
  inside(pen, text, x, y, room, pale) {
    const fits = Math.floor(text.length * room / Math.max(pen.measureText(text).width, 1));
    if (fits < 3) return;
    pen.fillStyle = pale ? colour("--ink") : colour("--on");
    pen.fillText(fits >= text.length ? text : `${text.slice(0, fits - 1)}\u2026`, x, y);
  }

  // The bins of all rows as one picture, a pixel each: a row is stretched from its line, however many bins it has.
  strips(colours) {
    const key = colours.join();
    if (this.drawnData === this.data && this.drawnIn === key) return this.picture;
    const rows = this.data.bins.map(([operations, busy]) => [unpacked(operations), unpacked(busy)]);
    const picture = element("canvas", { width: rows[0][0].length, height: rows.length });
    const pen = picture.getContext("2d");
    const image = pen.createImageData(picture.width, picture.height);
    const paints = colours.map((each) => [1, 3, 5].map((at) => parseInt(each.slice(at, at + 2), 16)));
    rows.forEach(([operations, busy], row) => {
      for (let at = 0; at < busy.length; at += 1) {
        if (!busy[at]) continue;
        const to = 4 * (row * picture.width + at);
        image.data.set(paints[operations[at]], to);
        image.data[to + 3] = 51 + 0.8 * busy[at];
      }
    });
    pen.putImageData(image, 0, 0);
    this.drawnData = this.data;
    this.drawnIn = key;
    this.picture = picture;
    return picture;
  }

  paintLinks(pen, shift) {
    if (!this.data || !this.data.links || !this.data.links.length) return;
    const at = new Map();
    this.inSight().forEach((row, index) => {
      for (const event of this.byRow.get(row.number) || []) at.set(event[0], [event, AXIS + index * ROW - shift + ROW / 2]);
    });
    pen.globalAlpha = 0.6;
    pen.strokeStyle = colour("--ink");
    pen.lineWidth = 1;
    for (const [sender, receiver] of this.data.links) {
      const from = at.get(sender);
      const to = at.get(receiver);
      if (!from || !to) continue;
      const x = this.xOf(this.data.begin_us + from[0][1]);
      const end = this.xOf(this.data.begin_us + to[0][1] + to[0][2]);
      pen.beginPath();
      pen.moveTo(x, from[1]);
      pen.bezierCurveTo((x + end) / 2, from[1], (x + end) / 2, to[1], end, to[1]);
      pen.stroke();
    }
    pen.globalAlpha = 1;
  }

  paintAxis(pen, width, height) {
    pen.globalAlpha = 1;
    pen.fillStyle = colour("--card");
    pen.fillRect(0, 0, width, AXIS);
    const rough = this.span / Math.max(this.width() / 110, 1);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough);
    pen.fillStyle = colour("--dim");
    pen.strokeStyle = colour("--line");
    pen.lineWidth = 1;
    for (let tick = Math.ceil(Math.max(this.begin, 0) / step) * step; tick <= this.begin + this.span; tick += step) {
      const x = Math.round(this.xOf(tick)) + 0.5;
      if (x < this.gutter()) continue;
      pen.globalAlpha = 0.7;
      pen.beginPath();
      pen.moveTo(x, AXIS - 4);
      pen.lineTo(x, height);
      pen.stroke();
      pen.globalAlpha = 1;
      if (x < width - 50) pen.fillText(time(Number(tick.toPrecision(12))), x + 3, AXIS / 2);
    }
  }

  pointed(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) { this.hover(event); return; }
    if (this.pointers.size === 2) {
      const other = [...this.pointers.values()].find((each) => each.pointerId !== event.pointerId);
      const was = Math.abs(before.clientX - other.clientX);
      const is = Math.abs(event.clientX - other.clientX);
      if (was > 8 && is > 8) this.zoom(was / is, this.timeAt({ clientX: (event.clientX + other.clientX) / 2 }));
      this.dragged = 9;
    } else {
      const by = before.clientX - event.clientX;
      this.dragged += Math.abs(by) + Math.abs(before.clientY - event.clientY);
      if (by) this.show(this.begin + by * this.scale(), this.begin + this.span + by * this.scale());
      this.scroll.scrollTop += before.clientY - event.clientY;
    }
    this.pointers.set(event.pointerId, event);
  }

  // The event at a point, those that are too thin to hit taken from two pixels around.
  under(event) {
    const row = this.rows[this.rowAt(event)];
    if (!row || !this.data || !this.data.events) return null;
    const at = this.timeAt(event) - this.data.begin_us;
    const near = 2 * this.scale();
    let best = null;
    for (const each of this.byRow.get(row.number) || []) {
      if (each[1] - near <= at && at <= each[1] + each[2] + near && (!best || each[2] < best[2])) best = each;
    }
    return best ? [best, row] : null;
  }

  hover(event) {
    const hit = this.under(event);
    if (!hit) { this.scroll.title = ""; return; }
    const [each, row] = hit;
    const waited = each[4] > 0 ? `, ${each[4]} % of it waiting` : "";
    this.scroll.title = `${row.label}: ${this.meta.operations[each[3]]}, ${time(each[2])}${waited}`;
  }

  async pick(event) {
    const hit = this.under(event);
    if (hit) await this.select(hit[0][0]);
    else if (this.data && this.data.bins) this.zoom(0.25, this.timeAt(event));
  }

  async select(number) { this.chosen(await this.source.event(number)); }

  chosen(event) {
    this.selected = event;
    const parts = [
      `${event.label}${event.host ? ` on ${event.host}` : ""}, ${event.track}: ${event.name}`, `begins ${time(event.start_us)}`, `lasts ${time(event.duration_us)}`,
      event.wait_us ? `${time(event.wait_us)} of it waiting` : "", event.size_bytes !== null ? bytes(event.size_bytes) : "",
      event.communicator !== null ? `communicator ${event.communicator}${event.sequence !== null ? `, call ${event.sequence}` : ""}` : "",
    ];
    this.says.textContent = parts.filter(Boolean).join("; ");
    this.draw();
  }

  // The next or previous event of the row that is chosen, or of the first in sight: the way of the keyboard.
  async neighbour(step) {
    const row = this.selected ? this.selected.row : this.inSight()[0] && this.inSight()[0].number;
    const items = this.data && this.data.events && this.byRow.get(row);
    if (!items || !items.length) { this.says.textContent = "No single event is in sight: zoom in."; return; }
    const now = this.selected ? items.findIndex((each) => each[0] === this.selected.number) : step > 0 ? -1 : items.length;
    const next = items[Math.min(Math.max(now + step, 0), items.length - 1)];
    await this.select(next[0]);
    this.reveal(this.selected);
  }

  reveal(event) {
    if (event.start_us < this.begin || event.start_us + event.duration_us > this.begin + this.span) {
      const span = Math.max(Math.min(this.span, event.duration_us * 20), event.duration_us * 1.2, LEAST_SPAN_US);
      this.show(event.start_us + event.duration_us / 2 - span / 2, event.start_us + event.duration_us / 2 + span / 2);
    }
    const at = this.rows.findIndex((row) => row.number === event.row);
    if (at >= 0 && (at * ROW < this.scroll.scrollTop || (at + 2) * ROW + AXIS > this.scroll.scrollTop + this.scroll.clientHeight)) this.scroll.scrollTop = Math.max(at * ROW - 60, 0);
  }

  async find(back) {
    const text = this.searchText.value.trim();
    go({ [`${this.key}find`]: text }, true);
    if (!text) { this.hits.textContent = ""; return; }
    const after = this.selected ? this.selected.start_us : back ? this.begin + this.span : this.begin;
    const hit = await this.source.search(text, after, back);
    this.hits.textContent = hit.hits ? `${hit.hits.toLocaleString("en-US")} events` : "no event";
    if (!hit.event) return;
    this.chosen(hit.event);
    this.reveal(hit.event);
  }

  fillTable() {
    if (!this.list.open || !this.data) return;
    const lines = [];
    for (const row of this.inSight()) {
      for (const each of this.data.events ? this.byRow.get(row.number) || [] : []) {
        if (lines.length >= 200) break;
        const begin = this.data.begin_us + each[1];
        if (begin + each[2] < this.begin || begin > this.begin + this.span) continue;
        lines.push(element("tr", {}, ...[`${row.label} \u00b7 ${row.track}`, this.meta.operations[each[3]], time(begin), time(each[2]), each[4] ? `${each[4]} %` : "-"].map((text) => element("td", {}, text))));
      }
    }
    if (!lines.length) lines.push(element("tr", {}, element("td", { colspan: 5 }, "No single event is in sight: zoom in.")));
    this.table.replaceChildren(...lines);
  }

  // How busy all rows of a track are, at each of so many points of the stretch in sight, 0 to 1; what a difference is drawn from.
  busy(points) {
    const sums = new Float64Array(points);
    if (!this.data) return sums;
    const step = this.span / points;
    const add = (from, to, share) => {
      const first = Math.max(Math.floor((from - this.begin) / step), 0);
      const last = Math.min(Math.ceil((to - this.begin) / step), points);
      for (let at = first; at < last; at += 1) {
        const begin = this.begin + at * step;
        sums[at] += share * Math.max(Math.min(to, begin + step) - Math.max(from, begin), 0) / step;
      }
    };
    let rows = 0;
    for (const row of this.inSight()) {
      if (row.track !== "calls") continue;
      rows += 1;
      for (const each of this.byRow.get(row.number) || []) {
        if (this.data.bins) add(this.data.origin_us + each[0] * this.data.bin_us, this.data.origin_us + (each[0] + each[1]) * this.data.bin_us, each[3] / 255);
        else add(this.data.begin_us + each[1], this.data.begin_us + each[1] + each[2], 1);
      }
    }
    return rows ? sums.map((sum) => Math.min(sum / rows, 1)) : sums;
  }
}

function unpacked(text) { return Uint8Array.from(atob(text), (each) => each.charCodeAt(0)); }

// The bins of a row as [first, how many, operation, busy], those beside each other that look the same as one.
function stretches([operations, busy]) {
  const of = unpacked(operations);
  const share = unpacked(busy);
  const parts = [];
  let last = null;
  for (let at = 0; at < share.length; at += 1) {
    if (!share[at]) { last = null; continue; }
    const shade = Math.min(share[at] | 15, 255);
    if (last && last[2] === of[at] && last[3] === shade) last[1] += 1;
    else { last = [at, 1, of[at], shade]; parts.push(last); }
  }
  return parts;
}

export function parseRanks(text) {
  if (!text.trim()) return null;
  return text.split(",").map((part) => /^\s*(\d+)\s*(?:-\s*(\d+)\s*)?$/.exec(part)).filter(Boolean).map((match) => [Number(match[1]), Number(match[2] || match[1])]);
}

export function parseSize(text) {
  const match = /^\s*([\d.]+)\s*([KMGT]?)i?B?\s*$/i.exec(text);
  return match ? Math.round(Number(match[1]) * 1024 ** " KMGT".indexOf(match[2].toUpperCase() || " ")) : 0;
}

// 0,1,2,5 as 0-2,5
export function runs(numbers) {
  const parts = [];
  for (const number of numbers) {
    const last = parts[parts.length - 1];
    if (last && last[1] === number - 1) last[1] = number; else parts.push([number, number]);
  }
  return parts.map(([low, high]) => (low === high ? `${low}` : `${low}-${high}`)).join();
}
