// A run of a program on the picture of a machine: messages under way at each moment, links in the colour of their load, words.
import { address, bytes, element, go, time } from "./elements.js";

const SVG = ["http:", "", "www.w3.org", "2000", "svg"].join("/"); // a name and no address: pages hold none that a network knows
const SAMPLES = 16; // of a link's path
const CLEAR = 15; // of the middle of a node, so that its name is seen
const ASIDE = 4; // that a message keeps to the right of its link's middle, so that both directions are seen
const MOST_MARKS = 400;
const MOST_NAMED = 4;
const SHADES = [0, 250, 500, 750, 900]; // per mille busy above which a link is darker
const SECONDS = [60, 30, 15, 8, 4]; // for the whole run

function shape(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Return a run with times in ticks from the start, and where the passages of each message begin.
function laidOut(run) {
  const { start, length, route } = run.messages;
  const begins = [];
  const first = [];
  let at = 0;
  let passed = 0;
  for (let number = 0; number < start.length; number += 1) {
    at += start[number];
    begins.push(at);
    first.push(passed);
    passed += 2 * run.routes[route[number]].links.length;
  }
  const ends = begins.map((begin, number) => begin + length[number]);
  const moments = [...new Set([0, ...begins, ...ends, run.end])].filter((each) => each <= run.end).sort((a, b) => a - b);
  return { ...run, begins, ends, first, moments, longest: Math.max(0, ...new Set(length)) };
}

function shadeOf(mille) {
  return mille <= 0 ? 0 : SHADES.filter((bound) => mille > bound).length;
}

function share(part, whole) {
  return whole > 0 ? Math.min(Math.max(part / whole, 0), 1) : 1;
}

function few(listed, most = MOST_NAMED) {
  const left = listed.length - most;
  return listed.slice(0, most).join("; ") + (left > 0 ? `; and ${left.toLocaleString("en-US")} more` : "");
}

export class Player {
  // held: { pictures, runs }; key: what names its state in the address
  constructor(held, { key = "" } = {}) {
    this.held = held;
    this.key = key;
    this.number = 0;
    this.ticks = 0;
    this.seconds = 15;
    this.playing = false;
    this.chosen = null;
    this.still = window.matchMedia("(prefers-reduced-motion: reduce)");
    this.root = this.build();
    this.still.addEventListener("change", () => this.motion());
    window.addEventListener("hashchange", () => this.restore());
  }

  build() {
    const button = (label, text, act) => element("button", { type: "button", "aria-label": label, onclick: act }, text);
    this.toggle = button("Play", "Play", () => { this.play(!this.playing); if (!this.playing) this.settled(); });
    this.slider = element("input", { type: "range", min: 0, max: 1000, step: "any", value: 0, "aria-label": "Moment", oninput: () => this.dragged() });
    this.slider.addEventListener("change", () => this.settled());
    this.runs = element("select", { onchange: () => { this.choose(this.runs.selectedIndex); this.settled(); } },
      ...this.held.runs.map((run) => element("option", {}, run.name)));
    this.speed = element("select", { onchange: () => { this.seconds = Number(this.speed.value); } },
      ...SECONDS.map((each) => element("option", { value: each, selected: each === this.seconds }, `${each} s`)));
    this.items = element("select", { onchange: () => { this.look(this.items.value); this.tell(); } });
    this.clock = element("p", { class: "clock" });
    this.motionNote = element("p", { class: "note", hidden: true }, "This system asks for no motion: go from one moment to the next.");
    this.view = element("div", { class: "scroll" });
    this.moment = element("p", { class: "says" });
    this.said = element("p", { class: "says" });
    this.live = element("p", { class: "unseen", role: "status" });
    this.note = element("p", { class: "note" });
    const controls = element("div", { class: "controls" },
      this.toggle, button("Previous moment", "\u2039", () => this.step(-1)), button("Next moment", "\u203a", () => this.step(1)),
      this.slider, this.held.runs.length > 1 ? element("label", {}, "Run ", this.runs) : null,
      this.speedLabel = element("label", {}, "The whole in ", this.speed), element("label", {}, "Look at ", this.items));
    this.legend = element("ul", { class: "legend" });
    const root = element("div", { class: "play", role: "group", "aria-label": "A run on the machine. Space plays and pauses, arrows left and right go to the previous and next moment, Home and End to the first and last; up and down look at the next rank or link of the picture." },
      controls, this.motionNote, this.clock, this.legend, this.view, this.moment, this.said, this.live, this.note);
    root.addEventListener("keydown", (event) => this.pressed(event));
    return root;
  }

  // To be called when the root stands in the page.
  start() {
    this.choose(0);
    this.motion();
    this.restore();
  }

  choose(number) {
    this.play(false);
    this.number = number;
    this.runs.selectedIndex = number;
    this.run = laidOut(this.held.runs[number]);
    this.picture = this.held.pictures[this.run.picture];
    this.marks = [];
    this.samples = new Map();
    this.note.textContent = `${this.run.note[0].toUpperCase()}${this.run.note.slice(1)}.`;
    this.draw();
    this.shades();
    this.chosen = null;
    this.show(this.run.begins.length ? this.run.begins[0] : 0);
  }

  motion() {
    this.toggle.hidden = this.still.matches;
    this.speedLabel.hidden = this.still.matches;
    this.motionNote.hidden = !this.still.matches;
    if (this.still.matches) this.play(false);
  }

  // ---- the picture
  draw() {
    const { width, height, frames, nodes, links } = this.picture;
    this.under = links.map((link) => shape("path", { class: "under", d: link.path, style: `stroke-width:${link.width + 7}` }));
    this.lines = links.map((link) => shape("path", { class: this.run.load ? "u0" : "plain", d: link.path, style: `stroke-width:${link.width}` }));
    this.touch = links.map((link, number) => this.reachable(shape("path", { class: "touch", d: link.path }), `l${number}`, `link between ${link.title}`));
    this.stops = nodes.map((node, number) => this.reachable(shape("g", { class: node.kind },
      shape("rect", { x: node.x, y: node.y, width: node.width, height: node.height, rx: /rank|host/.test(node.kind) ? 5 : 12 }),
      ...this.text(node)), `n${number}`, node.title));
    this.layer = shape("g", { class: "marks" });
    this.svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "The machine", style: `min-width:${Math.round(width * 0.72)}px;max-width:${width}px` },
      ...frames.map((each) => shape("rect", { class: "host", x: each.x, y: each.y, width: each.width, height: each.height, rx: 6 })),
      ...this.under, ...this.lines, ...this.touch, ...this.stops,
      ...frames.map((each) => shape("text", { class: "name halo", x: each.x + 8, y: each.y + 15 }, each.text)), this.layer);
    this.view.replaceChildren(this.svg);
    this.items.replaceChildren(element("option", { value: "" }, "nothing"),
      ...nodes.map((node, number) => element("option", { value: `n${number}` }, node.title)),
      ...links.map((link, number) => element("option", { value: `l${number}` }, `link between ${link.title}`)));
    (this.stops[0] || this.touch[0])?.setAttribute("tabindex", "0");
  }

  text(node) {
    const lines = node.text.split("\n");
    return lines.map((line, at) => shape("text", { class: "middle", x: node.x + node.width / 2, y: lines.length > 1 ? node.y + 15 + 16 * at : node.y + node.height / 2 + 4 }, line));
  }

  reachable(made, name, title) {
    made.setAttribute("tabindex", "-1");
    made.setAttribute("role", "img");
    made.setAttribute("aria-label", title);
    made.dataset.item = name;
    made.addEventListener("pointerenter", () => this.look(name, true));
    made.addEventListener("pointerleave", () => this.look(this.chosen, true));
    made.addEventListener("focus", () => { if (this.chosen !== name) { this.look(name); this.tell(); } });
    return made;
  }

  shades() {
    const key = (kind, text) => element("li", {}, element("i", { class: kind }), text);
    const kinds = [key("b1", "sent"), key("b2 turned", "sent and added")];
    if (this.run.load) kinds.push(...["link unused", "to 25 %", "to 50 %", "to 75 %", "to 90 %", "above 90 %"].map((text, at) => key(`q${at}`, at ? `busy ${text}` : text)));
    this.legend.replaceChildren(...kinds);
    this.legend.classList.toggle("shades", Boolean(this.run.load));
  }

  // A point of a link, a share of it from its first end, moved aside to the right of the direction.
  point(link, share, backwards) {
    if (!this.samples.has(link)) {
      const path = this.lines[link];
      const length = path.getTotalLength();
      this.samples.set(link, { length, points: Array.from({ length: SAMPLES + 1 }, (_, at) => path.getPointAtLength(length * at / SAMPLES)) });
    }
    const { points, length } = this.samples.get(link);
    const clear = Math.min(CLEAR / (length || 1), 0.3);
    const inside = Math.min(Math.max(share, clear), 1 - clear);
    const at = (backwards ? 1 - inside : inside) * SAMPLES;
    const low = Math.min(Math.floor(at), SAMPLES - 1);
    const [here, there] = [points[low], points[low + 1]];
    const far = Math.hypot(there.x - here.x, there.y - here.y) || 1;
    const side = backwards ? -ASIDE : ASIDE;
    return [here.x + (there.x - here.x) * (at - low) - side * (there.y - here.y) / far, here.y + (there.y - here.y) * (at - low) + side * (there.x - here.x) / far];
  }

  // ---- what is at a moment
  current() {
    const { begins, ends, longest } = this.run;
    const now = [];
    let low = 0;
    let high = begins.length;
    while (low < high) { const middle = (low + high) >> 1; if (begins[middle] < this.ticks - longest) low = middle + 1; else high = middle; }
    for (let number = low; number < begins.length && begins[number] <= this.ticks; number += 1) if (ends[number] > this.ticks) now.push(number);
    return now;
  }

  routeOf(number) { return this.run.routes[this.run.messages.route[number]]; }

  // Whether a message is on the link of its route with this number now.
  passes(number, nth) {
    const { messages, begins, first } = this.run;
    if (!messages.passes.length) return true;
    const begin = begins[number] + messages.passes[first[number] + 2 * nth];
    return this.ticks >= begin && this.ticks < begin + messages.passes[first[number] + 2 * nth + 1];
  }

  // How many links of its route a message has behind it: the middle between its first and its last byte.
  gone(number, links) {
    const { messages, begins, ends, first } = this.run;
    const since = this.ticks - begins[number];
    const whole = ends[number] - begins[number];
    if (!messages.passes.length) return Math.min(since / whole, 0.99999) * links;
    let head = 0;
    let tail = 0;
    let left = 0;
    for (let nth = 0; nth < links; nth += 1) {
      const at = first[number] + 2 * nth;
      const enters = messages.passes[at];
      const leaves = enters + messages.passes[at + 1];
      const beyond = nth + 1 < links ? Math.min(messages.passes[at + 2], leaves) : leaves;
      if (since >= enters) head = nth + share(since - enters, beyond - enters);
      if (since >= Math.max(enters, left)) tail = nth + share(since - Math.max(enters, left), leaves - Math.max(enters, left));
      left = leaves;
    }
    return Math.min((head + tail) / 2, links - 0.00001);
  }

  part() {
    return Math.min(Math.floor(this.ticks / (this.run.end || 1) * this.run.load.courses[0].length), this.run.load.courses[0].length - 1);
  }

  busy(direction) {
    const { links, courses } = this.run.load;
    return courses[links[direction]][this.part()];
  }

  show(ticks) {
    const { run } = this;
    this.ticks = Math.min(Math.max(ticks, 0), run.end);
    const now = this.current();
    const kinds = new Map();
    const inside = new Map(); // messages that no line shows: both ends are in one node of the picture
    for (const number of now) {
      const { links, nodes } = this.routeOf(number);
      if (!links.length && nodes[0] === nodes[1]) inside.set(nodes[0], (inside.get(nodes[0]) || 0) | (run.messages.adds[number] ? 2 : 1));
      links.forEach((link, nth) => {
        if (this.passes(number, nth)) kinds.set(link >> 1, (kinds.get(link >> 1) || 0) | (run.messages.adds[number] ? 2 : 1));
      });
    }
    this.under.forEach((line, number) => line.setAttribute("class", `under k${kinds.get(number) || 0}`));
    this.stops.forEach((made, number) => { made.dataset.inside = inside.get(number) || 0; });
    if (run.load) this.lines.forEach((line, number) => line.setAttribute("class", `u${shadeOf(Math.max(this.busy(2 * number), this.busy(2 * number + 1)))}`));
    this.mark(now);
    this.slider.value = run.end ? this.ticks / run.end * 1000 : 0;
    const moment = this.spoken(this.ticks);
    this.slider.setAttribute("aria-valuetext", moment);
    const hidden = now.filter((number) => this.routeOf(number).links.length).length - this.drawn;
    this.clock.textContent = `${moment}${run.tick_us ? ` of ${this.spoken(run.end)}` : ""}: ${now.length.toLocaleString("en-US")} under way${hidden > 0 ? `, ${hidden.toLocaleString("en-US")} of them not drawn` : ""}`;
    this.root.dataset.ticks = String(Math.round(this.ticks));
    this.root.dataset.drawn = String(this.drawn);
    this.root.dataset.passing = String(kinds.size);
    this.moment.textContent = this.sentence(now);
    this.describe(now);
  }

  spoken(ticks) {
    if (this.run.tick_us) return time(ticks * this.run.tick_us);
    return ticks >= this.run.end ? "the end" : `step ${Math.floor(ticks / 1000) + 1} of ${this.run.end / 1000}`;
  }

  mark(now) {
    const { run } = this;
    const visible = now.filter((number) => this.routeOf(number).links.length).slice(0, MOST_MARKS);
    while (this.marks.length < visible.length) {
      const mark = shape("path");
      this.marks.push(mark);
      this.layer.append(mark);
    }
    visible.forEach((number, at) => {
      const { links } = this.routeOf(number);
      const gone = this.gone(number, links.length);
      const [x, y] = this.point(links[Math.floor(gone)] >> 1, gone % 1, links[Math.floor(gone)] & 1);
      const adds = run.messages.adds[number];
      this.marks[at].setAttribute("class", adds ? "k2" : "k1");
      this.marks[at].setAttribute("d", adds ? "M-5.5 0L0-5.5L5.5 0L0 5.5z" : "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z");
      this.marks[at].setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
    });
    this.marks.forEach((mark, at) => mark.toggleAttribute("hidden", at >= visible.length));
    this.drawn = visible.length;
  }

  // A message in words; of a rank that is at one of its ends only the other one is named.
  told(number, of = "") {
    const { messages, chunks } = this.run;
    const { names } = this.routeOf(number);
    const parts = [messages.bytes[number] ? bytes(messages.bytes[number]) : "", messages.chunk[number] >= 0 ? chunks[messages.chunk[number]] : "", messages.adds[number] ? "to be added" : ""];
    const ends = { sender: `to ${names[1]}`, receiver: `from ${names[0]}` }[of] || `${names[0]} to ${names[1]}`;
    return `${ends} (${parts.filter(Boolean).join(", ")})`;
  }

  sentence(now) {
    const { run } = this;
    let arrived = 0;
    for (let number = 0; number < run.ends.length && run.begins[number] <= this.ticks; number += 1) if (run.ends[number] <= this.ticks) arrived += 1;
    const all = run.ends.length.toLocaleString("en-US");
    const of = `${arrived.toLocaleString("en-US")} of ${all} messages have arrived`;
    return now.length ? `${few(now.map((number) => this.told(number)))}. ${of}.` : `Nothing is under way. ${of}.`;
  }

  // ---- a rank or a link in words
  look(name, passing = false) {
    this.seen = name || null;
    if (!passing) {
      this.chosen = name || null;
      this.items.value = name || "";
      for (const made of [...this.stops, ...this.touch]) made.setAttribute("tabindex", made.dataset.item === name ? "0" : "-1");
      if (!name) (this.stops[0] || this.touch[0])?.setAttribute("tabindex", "0");
    }
    for (const made of [...this.stops, ...this.touch]) made.classList.toggle("seen", made.dataset.item === this.seen);
    this.describe(this.current());
  }

  describe(now) {
    const number = this.seen ? Number(this.seen.slice(1)) : -1;
    this.said.classList.toggle("hint", number < 0);
    if (number < 0) this.said.textContent = "Point at a rank or a link, or choose one.";
    else this.said.textContent = this.seen[0] === "n" ? this.ofNode(number, now) : this.ofLink(number, now);
  }

  ofLink(link, now) {
    const { title, ends } = this.picture.links[link];
    const passing = now.filter((number) => this.routeOf(number).links.some((each, nth) => each >> 1 === link && this.passes(number, nth)));
    const names = ends.map((end) => this.picture.nodes[end].text.split("\n")[0]);
    const busy = this.run.load ? [0, 1].map((back) => `${names[back]} to ${names[1 - back]} ${this.busy(2 * link + back) / 10} %`).join(", ") : "";
    return `Link between ${title}: ${passing.length ? `now passes ${few(passing.map((number) => this.told(number)))}` : "nothing passes now"}.${busy ? ` Busy in this part of the time: ${busy}.` : ""}`;
  }

  ofNode(node, now) {
    const { run } = this;
    const going = now.filter((number) => this.routeOf(number).nodes[0] === node);
    const coming = now.filter((number) => this.routeOf(number).nodes[1] === node);
    const through = now.filter((number) => !going.includes(number) && !coming.includes(number)
      && this.routeOf(number).links.some((each, nth) => this.picture.links[each >> 1].ends.includes(node) && this.passes(number, nth)));
    const alone = this.picture.nodes[node].kind.startsWith("rank") && !/\.\./.test(this.picture.nodes[node].text);
    let received = 0;
    let many = 0;
    run.ends.forEach((end, number) => {
      if (end <= this.ticks && this.routeOf(number).nodes[1] === node) { received += run.messages.bytes[number]; many += 1; }
    });
    const { title } = this.picture.nodes[node];
    const parts = [going.length ? `sends ${few(going.map((number) => this.told(number, alone && "sender")))}` : "", coming.length ? `receives ${few(coming.map((number) => this.told(number, alone && "receiver")))}` : "",
      through.length ? `passes on ${few(through.map((number) => this.told(number)))}` : ""].filter(Boolean);
    const got = many ? ` ${received ? bytes(received) : `${many.toLocaleString("en-US")} messages`} ${received || many > 1 ? "have" : "has"} arrived here so far.` : "";
    return `${title[0].toUpperCase()}${title.slice(1)}: ${parts.length ? parts.join(". It ") : "nothing to do now"}.${got}`;
  }

  tell() {
    this.live.textContent = `${this.clock.textContent}. ${this.moment.textContent}${this.seen ? ` ${this.said.textContent}` : ""}`;
  }

  // ---- going through time
  play(wanted) {
    this.playing = wanted && !this.still.matches;
    cancelAnimationFrame(this.frame);
    this.toggle.textContent = this.playing ? "Pause" : "Play";
    this.toggle.setAttribute("aria-label", this.toggle.textContent);
    this.root.dataset.playing = String(this.playing);
    if (!this.playing) return;
    if (this.ticks >= this.run.end) this.show(0);
    let before = performance.now();
    const turn = (at) => {
      if (!this.playing) return;
      this.show(this.ticks + Math.max(at - before, 0) / 1000 / this.seconds * this.run.end);
      before = at;
      if (this.ticks >= this.run.end) { this.play(false); this.settled(); } else this.frame = requestAnimationFrame(turn);
    };
    this.frame = requestAnimationFrame(turn);
  }

  step(by) {
    this.play(false);
    const { moments } = this.run;
    const next = by > 0 ? moments.find((each) => each > this.ticks) : moments.findLast((each) => each < this.ticks);
    if (next !== undefined) this.show(next);
    this.settled();
  }

  dragged() {
    this.play(false);
    this.show(Math.round(this.slider.value / 1000 * this.run.end));
  }

  // After a pause or a step: what is there is told, and the address holds the moment.
  settled() {
    this.tell();
    const at = this.run.tick_us ? Number((this.ticks * this.run.tick_us).toFixed(6)) : this.ticks / 1000;
    try {
      go({ [`${this.key}t`]: at, [`${this.key}run`]: this.number ? this.number + 1 : null }, true);
    } catch {
      // A page in a frame of another site has no address of its own.
    }
  }

  restore() {
    const now = address();
    if (!now.get(`${this.key}t`)) return;
    const number = Number(now.get(`${this.key}run`) || 1) - 1;
    if (number !== this.number && this.held.runs[number]) this.choose(number);
    const at = Number(now.get(`${this.key}t`));
    if (!Number.isFinite(at)) return;
    this.play(false);
    this.show(Math.round(at / (this.run.tick_us || 0.001)));
    this.tell();
  }

  pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "SELECT") return;
    const acts = {
      ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1),
      ArrowUp: () => this.neighbour(-1), ArrowDown: () => this.neighbour(1),
      Home: () => { this.play(false); this.show(0); this.settled(); }, End: () => { this.play(false); this.show(this.run.end); this.settled(); },
    };
    if (event.target.tagName !== "BUTTON") acts[" "] = () => { this.play(!this.playing); if (!this.playing) this.settled(); };
    if (acts[event.key]) { event.preventDefault(); acts[event.key](); }
  }

  neighbour(by) {
    const every = [...this.stops, ...this.touch];
    const at = every.findIndex((made) => made.dataset.item === this.chosen);
    every[Math.min(Math.max(at + by, 0), every.length - 1)]?.focus();
  }
}
