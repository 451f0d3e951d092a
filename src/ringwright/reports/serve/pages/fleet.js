// Many jobs: the table of all of them, and one name over time. What is not known is said, and never drawn as nothing.
import { get } from "./api.js";
import { address, element, go, time } from "./elements.js";

const MOST = 200; // rows that are drawn before somebody asks for all of them
const LOST = "Lost: ranks \u00d7 the share of their time in communication that no compute hides; \u2265 where no compute was recorded: the share in which ranks waited for others, a lower bound. First stand jobs with wrong results, that hang, or that ended early; last those of which it is unknown.";
const SHARE = "Busbw share: the bus bandwidth of the operation that takes most of the time, over what the links of the GPU that the recording names can carry.";
const CHANGE = "Since last: what differs from the recording of that name before it by more than it varies by itself, as ringwright diff judges.";
const UNKNOWN = "unknown";
const four = (us) => time(Number(us.toPrecision(4)));
const number = (value, digits) => value.toLocaleString("en-US", { maximumFractionDigits: digits });
const said = (value, how) => (value === null || value === undefined ? element("span", { class: "unknown" }, UNKNOWN) : how(value));
const when = (row) => `${row.time.slice(0, 16).replace("T", " ")}${row.is_end_told ? "" : "*"}`;
const lines = (first, second) => element("span", {}, first, element("span", { class: "below" }, second));

function late(row) {
  if (row.late_ranks === null) return said(null);
  if (!row.late_ranks.length) return "none";
  const some = row.late_ranks.slice(0, 4).join(", ") + (row.late_ranks.length > 4 ? ", \u2026" : "");
  return row.late_us === null ? some : lines(some, `${four(row.late_us)} of waiting`);
}

function changed(row) {
  const change = row.change;
  if (!change) return row.since ? "is compared" : element("span", { class: "unknown" }, "first of its name");
  const by = change.step_ratio === null ? "" : `step \u00d7 ${change.step_ratio.toFixed(2)}`;
  return element("span", { class: `change ${change.kind}`, title: change.sentence }, lines(change.kind.replace("-", " "), by));
}

const busbw = (row) => (row.busbw_gbs === null ? said(null) : lines(row.share === null ? said(null) : `${(100 * row.share).toFixed(1)} %`, `${number(row.busbw_gbs, 2)} GB/s ${row.op || ""}`));
// What a column is called, what it shows, by what it is ordered, whether it is a number.
const COLUMNS = [
  ["Job", null, (row) => row.name],
  ["When", (row) => lines(when(row).slice(0, 10), when(row).slice(11)), (row) => row.at_ms],
  ["Ranks", (row) => said(row.ranks, (ranks) => number(ranks, 0) + (row.ranks_expected && row.ranks_expected !== ranks ? ` of ${number(row.ranks_expected, 0)}` : "")), (row) => row.ranks, true],
  ["Step", (row) => said(row.step_us, four), (row) => row.step_us, true],
  ["Busbw share", busbw, (row) => row.share, true],
  ["Lost", (row) => said(row.lost_ranks, (lost) => lines(`${row.lost_by === "waiting" ? "\u2265 " : ""}${number(lost, 2)}`, "ranks")), (row) => row.lost_ranks, true],
  ["Late rank", late, (row) => row.late_us],
  ["Since last", changed, (row) => (row.change ? row.change.step_ratio : null)],
  ["It says", (row) => (row.error ? element("span", { class: "error" }, row.error) : row.sentence), (row) => row.sentence],
];

// Of numbers the largest first, of words the first; what is not known stands last either way.
function ordered(rows, by, isUp) {
  const key = COLUMNS[by][2];
  const known = rows.filter((row) => key(row) !== null && key(row) !== undefined);
  known.sort((a, b) => { const [one, two] = [key(a), key(b)]; return (one < two ? -1 : one > two ? 1 : 0) * (isUp ? 1 : -1); });
  return [...known, ...rows.filter((row) => !known.includes(row))];
}

export class FleetView {
  // open: called with the path of a recording; state: what the server says of its reading.
  constructor(name, at, open) {
    this.name = name;
    this.open = open;
    this.rows = [];
    this.runs = new Map();
    this.by = name ? 1 : null; // null: as the server orders them
    this.isUp = false;
    this.isAll = false;
    this.text = "";
    this.told = element("p", { class: "note", role: "status", id: "fleet-told" });
    this.charts = element("div", { class: "charts" });
    this.body = element("tbody");
    this.more = element("button", { type: "button", hidden: true, onclick: () => { this.isAll = true; this.draw(); } });
    this.heads = COLUMNS.map(([title, , , isNumber], index) => element("th", { scope: "col", class: isNumber ? "n" : null }, element("button", { type: "button", onclick: () => this.sort(index) }, title)));
    this.every = element("input", { id: "fleet-every", type: "checkbox", onchange: () => this.draw() });
    const filter = element("input", { id: "fleet-filter", type: "search", placeholder: "part of a name or of what it says", oninput: () => this.draw() });
    this.filter = filter;
    const back = element("div", { class: "actions" }, element("button", { type: "button", onclick: () => go({ name: null, at: null }) }, "All jobs"));
    const table = element("table", { id: "fleet" }, element("thead", {}, element("tr", {}, ...this.heads)), this.body);
    this.root = element("div", {}, element("div", { class: "heading" }, element("h1", {}, name || "Jobs"), name ? back : null), this.told, this.charts,
      name ? null : element("div", { class: "actions filters" }, element("label", {}, "Filter ", filter), element("label", {}, this.every, " earlier runs too")),
      element("div", { class: "scroll fleet", tabindex: "0", role: "region", "aria-label": name ? `Recordings of ${name}` : "Jobs" }, table), this.more,
      element("p", { class: "note" }, LOST), element("p", { class: "note" }, SHARE), element("p", { class: "note" }, CHANGE),
      element("p", { class: "note" }, "* its launcher told no end: when its files last changed (UTC, as all times here)."));
    if (at) this.opened(at);
  }

  async opened(at) {
    const { rows } = await get(`/fleet.json?${new URLSearchParams({ name: this.name, at })}`).catch(() => ({ rows: [] }));
    if (rows.length && address().get("name") === this.name) this.open(rows[0].path);
  }

  async update(told) {
    if (this.busy) { this.again = true; return; }
    this.busy = true;
    try {
      const table = await get(`/fleet.json${this.name ? `?${new URLSearchParams({ name: this.name })}` : ""}`);
      const text = JSON.stringify([table, told]);
      if (text !== this.text) { this.text = text; this.rows = table.rows; this.says(table, told); this.draw(); }
    } finally {
      this.busy = false;
    }
    if (this.again) { this.again = false; await this.update(told); }
  }

  says(table, told) {
    const wrong = table.rows.filter((row) => row.error).length;
    const beside = table.beside.length ? `${number(table.beside.length, 0)} beside them do not say that they are whole recordings (${table.beside.slice(0, 3).join(", ")}): --fleet takes each entry as a job` : "";
    const many = this.name ? `${number(table.rows.length, 0)} recordings` : `${number(table.rows.length, 0)} of ${number(table.jobs, 0)} jobs are read, of ${number(table.rows.filter((row) => row.is_last).length, 0)} names`;
    this.told.textContent = [this.name && !table.rows.length ? "No job has this name." : many, wrong ? `${number(wrong, 0)} could not be read` : "", told, this.name ? "" : beside].filter(Boolean).join("; ");
    this.runs = new Map();
    for (const row of table.rows) this.runs.set(row.name, (this.runs.get(row.name) || 0) + 1);
    this.charts.replaceChildren(...(this.name ? charts(table.rows, this.open) : []));
  }

  sort(index) {
    this.isUp = this.by === index ? !this.isUp : index === 0 || index === 8;
    this.by = index;
    this.draw();
  }

  draw() {
    const wanted = this.filter.value.trim().toLowerCase();
    const rows = this.rows.filter((row) => (this.name || this.every.checked || row.is_last) && (!wanted || `${row.name} ${row.path} ${row.sentence} ${row.error}`.toLowerCase().includes(wanted)));
    const shown = this.by === null ? rows : ordered(rows, this.by, this.isUp);
    this.heads.forEach((head, index) => { if (index === this.by) head.setAttribute("aria-sort", this.isUp ? "ascending" : "descending"); else head.removeAttribute("aria-sort"); });
    this.body.replaceChildren(...shown.slice(0, this.isAll ? shown.length : MOST).map((row) => this.line(row)));
    this.more.hidden = this.isAll || shown.length <= MOST;
    this.more.textContent = `Show all ${number(shown.length, 0)}`;
    document.documentElement.dataset.fleet = String(shown.length);
  }

  line(row) {
    const open = element("button", { type: "button", class: "link", title: row.path, onclick: () => this.open(row.path) }, this.name ? row.path.split("/").pop() : row.name);
    const runs = this.runs.get(row.name);
    const history = this.name || runs < 2 ? null : element("a", { class: "history", href: `#${new URLSearchParams({ name: row.name })}` }, `${number(runs, 0)} runs`);
    return element("tr", {}, element("th", { scope: "row" }, open, history), ...COLUMNS.slice(1).map(([, show, , isNumber]) => element("td", { class: isNumber ? "n" : null }, show(row))));
  }
}

// ---- a name over time

const NS = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT, LEFT, TOP, BELOW] = [640, 150, 76, 10, 22];

function drawn(name, attributes, ...children) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function charts(rows, open) {
  const runs = [...rows].sort((a, b) => a.at_ms - b.at_ms);
  return [["Step", "step_us", four], ["Busbw share", "share", (value) => `${(100 * value).toFixed(1)} %`], ["Lost", "lost_ranks", (value) => `${number(value, 2)} ranks`]]
    .filter(([, key]) => runs.filter((row) => row[key] !== null).length > 1)
    .map(([title, key, how]) => element("figure", {}, element("figcaption", {}, title), chart(runs.filter((row) => row[key] !== null), key, how, title, open)));
}

function chart(runs, key, how, title, open) {
  const most = Math.max(...runs.map((row) => row[key])) * 1.1 || 1;
  const [first, last] = [runs[0].at_ms, runs[runs.length - 1].at_ms];
  const x = (row, index) => LEFT + (WIDTH - LEFT - 12) * (last > first ? (row.at_ms - first) / (last - first) : index / Math.max(runs.length - 1, 1));
  const y = (value) => TOP + (HEIGHT - TOP - BELOW) * (1 - value / most);
  const parts = [0, most / 2, most].flatMap((value) => [drawn("line", { x1: LEFT, x2: WIDTH - 4, y1: y(value), y2: y(value), class: "grid" }),
    drawn("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, how(value))]);
  parts.push(drawn("text", { x: LEFT, y: HEIGHT - 6 }, when(runs[0]).slice(0, 16)), drawn("text", { x: WIDTH - 4, y: HEIGHT - 6, "text-anchor": "end" }, when(runs[runs.length - 1]).slice(0, 16)),
    drawn("polyline", { class: "run", points: runs.map((row, index) => `${x(row, index)},${y(row[key])}`).join(" ") }));
  runs.forEach((row, index) => {
    const kind = row.change ? row.change.kind : "";
    const words = [when(row), how(row[key]), row.late_ranks && row.late_ranks.length ? `late rank ${row.late_ranks.join(", ")}` : "", row.change ? row.change.sentence : ""].filter(Boolean).join("; ");
    const [cx, cy, isMarked] = [x(row, index), y(row[key]), kind === "slower" || kind === "faster" || kind === "wrong"];
    const mark = isMarked ? drawn("path", { d: kind === "faster" ? `M${cx} ${cy + 7}l-6 -11h12z` : `M${cx} ${cy - 7}l-6 11h12z`, class: `mark ${kind}` }) : drawn("circle", { cx, cy, r: 3.5, class: "mark" });
    mark.append(drawn("title", {}, words));
    mark.addEventListener("click", () => open(row.path));
    parts.push(mark);
    if (row.late_ranks && row.late_ranks.length) parts.push(drawn("circle", { cx, cy, r: 9, class: "late" }));
  });
  return drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title} of ${runs.length} recordings: ${how(runs[0][key])} in the first, ${how(runs[runs.length - 1][key])} in the last. A triangle marks a change beyond noise, a ring a late rank; the table below says the same.` }, ...parts);
}
