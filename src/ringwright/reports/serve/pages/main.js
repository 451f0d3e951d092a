// The page: jobs at the side; of the chosen one its report, its timeline, questions and their answers. The address says what is shown.
import { get, news, post, remove, send } from "./api.js";
import { address, bytes, colour, element, go, time } from "./elements.js";
import { FleetView } from "./fleet.js";
import { Timeline } from "./timeline.js";

const byId = (id) => document.getElementById(id);
const TABS = [["report", "Report"], ["timeline", "Timeline"], ["ask", "Ask"], ["answers", "Answers"]];
const FINISHED = ["done", "failed", "cancelled", "interrupted"];
let state = { jobs: [], runs: [], version: -1 };
let questions = [];
let drawn = ""; // what main shows, so that news redraw only what they change
let timelines = [];
let fleet = null; // the table of many jobs, while it is shown

// ---- what is said

let quiet = 0;
function notice(error) {
  byId("notice").textContent = error ? `${error.message || error}${error.remedy ? ` \u2013 ${error.remedy}` : ""}` : "";
  clearTimeout(quiet);
  if (error) quiet = setTimeout(() => notice(null), 12000);
}
const tried = (act) => async (...given) => { try { return await act(...given); } catch (error) { notice(error); return null; } };

// ---- the side

const stateWords = { waiting: "waits", running: "is read", done: "", failed: "could not be read", cancelled: "cancelled", interrupted: "not read to its end" };

function drawSide() {
  const chosen = address().get("job");
  byId("jobs").replaceChildren(...state.jobs.map((job) => element("li", {},
    element("a", { href: `#job=${job.id}`, "aria-current": job.id === chosen ? "page" : null }, job.name),
    element("span", { class: `state ${job.state}` }, [stateWords[job.state], job.state === "running" ? job.told : "", job.following ? "followed" : ""].filter(Boolean).join(", ")))));
  byId("no-jobs").hidden = state.jobs.length > 0;
  byId("all-jobs").hidden = !state.fleet;
}

// ---- the main part

async function draw() {
  const now = address();
  const job = state.jobs.find((each) => each.id === now.get("job"));
  drawSide();
  document.title = job ? `${job.name} \u2013 Ringwright` : "Ringwright";
  const key = JSON.stringify([job && job.id, job && (job.shown ? "read" : job.state), job && job.shown, job && job.following, now.get("tab"), now.get("other"), now.get("ask"), now.get("run"), now.get("name"), now.get("at"), now.get("view"), Boolean(state.fleet), questions.length]);
  if (key !== drawn) {
    drawn = key;
    timelines = [];
    const isFleet = !job && state.fleet && now.get("view") !== "any";
    fleet = isFleet ? new FleetView(now.get("name") || "", now.get("at") || "", openPath) : null;
    const main = byId("main");
    main.replaceChildren(...(job ? drawJob(job, now) : fleet ? [fleet.root] : drawAny(now)));
    document.documentElement.dataset.shown = job ? (job.shown ? "done" : job.state) : "welcome";
  }
  if (fleet) tried(() => fleet.update(state.fleet.told))();
  updateRuns();
}

function heading(job) {
  const follow = element("button", { type: "button", "aria-pressed": String(job.following), onclick: tried(() => post(`/api/jobs/${job.id}/follow`, { on: !state.jobs.find((each) => each.id === job.id).following })) }, job.following ? "Followed" : "Follow");
  const forget = element("button", { type: "button", onclick: tried(async () => {
    if (!confirm(`Forget ${job.name}, and what was asked about it? The recording itself stays.`)) return;
    await remove(`/api/jobs/${job.id}`);
    go({ job: null, tab: null, run: null });
  }) }, "Forget");
  const stop = element("button", { type: "button", onclick: tried(() => post(`/api/jobs/${job.id}/cancel`)) }, "Cancel");
  const again = element("button", { type: "button", onclick: tried(() => post("/api/jobs", { path: job.path })) }, "Read again");
  const busy = job.state === "running" || job.state === "waiting";
  const keep = job.shown ? element("a", { class: "button", href: `/jobs/${job.id}/report?download=1`, download: "" }, "Save the report") : null;
  return element("div", { class: "heading" }, element("h1", {}, job.name), element("p", { class: "note paths" }, job.path),
    element("div", { class: "actions" }, busy ? stop : null, follow, keep, FINISHED.includes(job.state) ? again : null, busy ? null : forget));
}

function tabs(chosen) {
  const list = element("div", { role: "tablist", class: "tabs", "aria-label": "Views of this job" }, ...TABS.map(([id, name]) =>
    element("button", { type: "button", role: "tab", id: `tab-${id}`, "aria-selected": String(id === chosen), "aria-controls": "panel", tabindex: id === chosen ? "0" : "-1", onclick: () => go({ tab: id, run: null }) }, name)));
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = TABS.findIndex(([id]) => id === chosen);
    go({ tab: TABS[(at + step + TABS.length) % TABS.length][0], run: null });
    setTimeout(() => { const next = document.querySelector("[role=tab][aria-selected=true]"); if (next) next.focus(); }, 0);
  });
  return list;
}

function drawJob(job, now) {
  const tab = TABS.some(([id]) => id === now.get("tab")) ? now.get("tab") : "report";
  const panel = element("div", { id: "panel", role: "tabpanel", "aria-labelledby": `tab-${tab}` });
  if (!job.shown && tab !== "answers") {
    const words = { waiting: "It waits for its turn.", running: `It is being read: ${job.told || "just begun"}.`, failed: job.told, cancelled: "Reading it was cancelled.", interrupted: "The server ended before it was read." }[job.state];
    panel.append(element("p", { class: job.state === "failed" ? "alert error" : "alert", id: "job-told" }, words));
  } else if (tab === "report") {
    panel.append(element("iframe", { src: `/jobs/${job.id}/report?v=${job.shown}${document.documentElement.dataset.theme ? `#${document.documentElement.dataset.theme}` : ""}`, title: `Report of ${job.name}`, class: "report", sandbox: "allow-scripts allow-downloads" }));
  } else if (tab === "timeline") {
    panel.append(drawTimelines(job, now));
  } else if (tab === "ask") {
    panel.append(drawForms(job, now));
  } else {
    panel.append(drawAnswers(job, now));
  }
  return [heading(job), tabs(tab), panel];
}

function drawAny(now) {
  const welcome = element("div", { class: "heading" }, element("h1", {}, "What did your collectives do?"),
    element("p", {}, "Open a recording of a job, or drop its files here: NCCL logs, Inspector and plug-in files, PyTorch, Nsight and XLA traces, Chakra, flight recorder dumps, benchmark tables. Or ask about a machine that nobody has built yet."));
  const run = now.get("run");
  const answers = element("div", { class: "answers" });
  const parts = [welcome, drawForms(null, now)];
  if (state.runs.some((each) => !each.jobs.length) || run) parts.push(element("h2", {}, "Answers"), answers);
  answers.append(drawAnswers(null, now));
  return parts;
}

// ---- timelines, one or two with their difference

async function sourceOf(job) {
  const base = `/api/jobs/${job.id}`;
  const ask = (name, given) => get(`${base}/${name}?${new URLSearchParams(given)}`);
  return {
    meta: await get(`${base}/timeline`),
    view: (given) => ask("view", given),
    event: (number) => ask("event", { number }),
    search: (text, after, back) => ask("search", { text, after, back: back ? 1 : 0 }),
  };
}

function drawTimelines(job, now) {
  const others = state.jobs.filter((each) => each.id !== job.id && each.shown);
  const choose = element("select", { id: "beside", onchange: (event) => go({ other: event.target.value }) }, element("option", { value: "" }, "nothing"),
    ...others.map((each) => element("option", { value: each.id, selected: each.id === now.get("other") }, each.name)));
  const home = element("div", { class: "timelines" }, element("p", { class: "note" }, element("label", {}, "Beside it: ", choose)));
  const other = others.find((each) => each.id === now.get("other"));
  tried(async () => {
    const made = [];
    for (const [number, each] of [job, other].filter(Boolean).entries()) {
      const source = await sourceOf(each);
      if (!source.meta.rows.length) {
        home.append(element("p", { class: "alert" }, `${each.name} holds no event with a time, so there is nothing to draw. Its report says what it holds.`));
        continue;
      }
      const timeline = new Timeline(source, { key: number ? "b" : "", moved: (moved) => together(moved) });
      made.push(timeline);
      home.append(element("h2", {}, other ? each.name : "Timeline"), timeline.root);
    }
    if (made.length === 2) {
      const difference = drawDifference(made, [job.name, other.name]);
      home.insertBefore(difference.root, made[0].root.previousSibling);
      for (const each of made) each.fetched = difference.draw;
    }
    timelines = made;
    document.documentElement.dataset.timeline = String(made.length);
  })();
  return home;
}

function together(moved) {
  for (const each of timelines) if (each !== moved) each.show(moved.begin, moved.begin + moved.span, false);
}

function drawDifference(both, names) {
  const canvas = element("canvas", { class: "difference", role: "img", "aria-label": "Share of rows in calls: the first run less the second, over time" });
  const says = element("p", { class: "note", role: "status" });
  const draw = () => {
    const points = Math.max(Math.round(canvas.clientWidth / 3), 10);
    const [first, second] = both.map((each) => each.busy(points));
    const ratio = window.devicePixelRatio || 1;
    canvas.width = canvas.clientWidth * ratio;
    canvas.height = canvas.clientHeight * ratio;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const middle = canvas.clientHeight / 2;
    const left = both[0].gutter();
    const step = (canvas.clientWidth - left) / points;
    let sum = [0, 0];
    for (let at = 0; at < points; at += 1) {
      const by = first[at] - second[at];
      sum = [sum[0] + first[at], sum[1] + second[at]];
      pen.fillStyle = colour(by > 0 ? "--c2" : "--c1");
      pen.fillRect(left + at * step, by > 0 ? middle - by * middle : middle, Math.max(step - 0.5, 0.5), Math.abs(by) * middle);
    }
    pen.fillStyle = colour("--dim");
    pen.fillRect(left, middle, canvas.clientWidth - left, 1);
    const share = sum.map((each) => `${(100 * each / points).toFixed(1)} %`);
    says.textContent = `In calls in this stretch: ${share[0]} of the time of rows in ${names[0]}, ${share[1]} in ${names[1]}. Above the line the first is busier, below it the second.`;
    document.documentElement.dataset.difference = "drawn";
  };
  return { root: element("div", {}, element("h2", {}, "Difference"), canvas, says), draw };
}

// ---- questions

function drawForms(job, now) {
  const about = questions.filter((each) => (job ? each.jobs > 0 : each.jobs === 0));
  const chosen = about.find((each) => each.slug === now.get("ask")) || about[0];
  const list = element("ul", { class: "questions", "aria-label": "Questions" }, ...about.map((each) => element("li", {},
    element("button", { type: "button", "aria-pressed": String(chosen === each), onclick: () => go({ ask: each.slug }) }, each.title))));
  return element("div", { class: "ask" }, list, chosen ? drawForm(chosen, job) : element("p", {}, "No question."));
}

function drawForm(question, job) {
  const inputs = new Map();
  const others = state.jobs.filter((each) => job && each.id !== job.id && each.shown);
  const second = question.jobs === 2 ? element("select", { required: true }, ...others.map((each) => element("option", { value: each.id }, each.name))) : null;
  const fields = question.fields.map((field) => {
    const id = `field-${field.name}`;
    let input;
    if (field.kind === "choice") input = element("select", { id }, ...field.choices.map((each) => element("option", { selected: each === field.usual }, each)));
    else if (field.kind === "flag") input = element("input", { id, type: "checkbox" });
    else if (field.kind === "lines") input = element("textarea", { id, rows: 2, placeholder: field.example });
    else if (field.name === "sql") { input = element("textarea", { id, rows: 3, required: true }); input.value = field.usual; } else {
      input = element("input", { id, type: "text", placeholder: field.example, required: field.needed, value: field.usual, autocomplete: "off", spellcheck: "false" });
    }
    if (field.listed && input.tagName === "INPUT") suggest(input, field.listed);
    inputs.set(field.name, input);
    return element("div", { class: "field" }, element("label", { for: id }, field.label + (field.needed ? "" : " (if you like)")), input);
  });
  const form = element("form", { onsubmit: tried(async (event) => {
    event.preventDefault();
    const answers = {};
    for (const [name, input] of inputs) answers[name] = input.type === "checkbox" ? input.checked : input.value;
    const jobs = job ? [job.id, ...(second ? [second.value] : [])] : [];
    const run = await post("/api/runs", { question: question.slug, jobs, answers });
    await refresh();
    go({ tab: job ? "answers" : null, run: run.id });
  }) }, element("h2", {}, question.title), element("p", {}, question.says),
  second ? element("div", { class: "field" }, element("label", {}, "The later run ", second)) : null,
  question.jobs === 2 && !others.length ? element("p", { class: "alert" }, "Open the other run first.") : null,
  ...fields, element("div", { class: "actions" }, element("button", { type: "submit", class: "primary" }, "Ask")));
  return form;
}

const listed = new Map();
function suggest(input, topic) {
  const id = `list-${topic}`;
  input.setAttribute("list", id);
  if (byId(id) || listed.has(topic)) return;
  listed.set(topic, true);
  get(`/api/names/${topic}`).then((answer) => {
    const spelled = (row) => (topic === "fabrics" ? (row.example || row.name).replace(/^--fabric\s+/, "").replace(/^'|'$/g, "") : row.name);
    document.body.append(element("datalist", { id }, ...answer.rows.map((row) => element("option", { value: spelled(row) }, row.meaning || ""))));
  }, () => listed.delete(topic));
}

// ---- answers

function drawAnswers(job, now) {
  const runs = state.runs.filter((run) => (job ? run.jobs.includes(job.id) : !run.jobs.length));
  const list = element("ul", { class: "runs", id: "runs" });
  const answer = element("div", { id: "answer" });
  const home = element("div", { class: "answered" }, list, answer);
  home.fill = () => fillRuns(list, state.runs.filter((run) => (job ? run.jobs.includes(job.id) : !run.jobs.length)));
  if (!runs.length) answer.append(element("p", { class: "note" }, "Nothing was asked yet."));
  return home;
}

function fillRuns(list, runs) {
  const chosen = address().get("run");
  list.replaceChildren(...runs.map((run) => element("li", {},
    element("a", { href: "#", "aria-current": run.id === chosen ? "true" : null, onclick: (event) => { event.preventDefault(); go({ run: run.id }); } }, run.title),
    element("span", { class: `state ${run.state}` }, runWords(run)),
    FINISHED.includes(run.state) ? null : element("button", { type: "button", onclick: tried(() => post(`/api/runs/${run.id}/cancel`)) }, "Cancel"))));
}

function runWords(run) {
  if (run.state === "done") return run.exit_code === 1 ? "answered: does not pass" : `answered in ${time((run.ended_unix_s - run.began_unix_s) * 1e6)}`;
  if (run.state === "running") return run.told || "runs";
  return { waiting: "waits for its turn", failed: "no answer", cancelled: "cancelled", interrupted: "the server ended first" }[run.state];
}

let shownRun = "";
async function updateRuns() {
  for (const home of document.querySelectorAll(".answered")) if (home.fill) home.fill();
  const chosen = address().get("run");
  const run = state.runs.find((each) => each.id === chosen);
  const answer = byId("answer");
  if (!answer || !run) return;
  const key = JSON.stringify([run.id, run.state, run.question === "live" ? state.version : run.told]);
  if (answer.dataset.key === key || shownRun === key) return;
  shownRun = key;
  const told = await get(`/api/runs/${run.id}`).catch((error) => { notice(error); return null; });
  shownRun = "";
  if (!told || !byId("answer")) return;
  byId("answer").dataset.key = key;
  byId("answer").dataset.state = run.state;
  byId("answer").replaceChildren(...answerParts(told));
}

function answerParts(run) {
  const code = element("code", {}, run.command);
  const copy = element("button", { type: "button", onclick: () => navigator.clipboard.writeText(run.command).then(() => { copy.textContent = "Copied"; }, notice) }, "Copy");
  const parts = [element("h2", {}, run.title), element("div", { class: "command" }, code, copy)];
  const actions = element("div", { class: "actions" });
  if (run.has_trace) actions.append(element("button", { type: "button", onclick: tried(async () => { const job = await post(`/api/runs/${run.id}/open`); await refresh(); go({ job: job.id, tab: "timeline", run: null }); }) }, "Open its trace as a job"));
  if (run.has_page) actions.append(element("a", { class: "button", href: `/runs/${run.id}/page?download=1`, download: "" }, "Save its page"));
  if (FINISHED.includes(run.state)) actions.append(element("button", { type: "button", onclick: tried(async () => { const next = await post(`/api/runs/${run.id}/again`); await refresh(); go({ run: next.id }); }) }, "Ask again"));
  else actions.append(element("button", { type: "button", onclick: tried(() => post(`/api/runs/${run.id}/cancel`)) }, "Cancel"));
  parts.push(actions);
  if (!FINISHED.includes(run.state)) parts.push(element("p", { class: "alert", role: "status" }, `${runWords(run)} \u2026`), element("progress", { "aria-label": "It runs" }));
  if (run.state === "failed") parts.push(element("pre", { class: "alert error" }, run.told || run.errors || "It ended without a word."));
  if (run.question === "live") parts.push(...liveParts(run.text));
  else if (run.rows) parts.push(element("p", { class: "note" }, run.rows.length < run.of ? `The first ${run.rows.length.toLocaleString("en-US")} of ${run.of.toLocaleString("en-US")} rows.` : `${run.of.toLocaleString("en-US")} rows.`), rowsTable(run.columns, run.rows));
  else if (run.text && run.state !== "running") parts.push(element("pre", { class: "text", tabindex: "0", role: "region", "aria-label": "Answer" }, run.text));
  if (run.has_page) parts.push(element("iframe", { src: `/runs/${run.id}/page${document.documentElement.dataset.theme ? `#${document.documentElement.dataset.theme}` : ""}`, title: run.title, class: "report", sandbox: "allow-scripts allow-downloads" }));
  return parts;
}

function liveParts(text) {
  let last = null;
  for (const line of text.split("\n").reverse()) {
    try { last = JSON.parse(line); break; } catch (error) { continue; }
  }
  if (!last) return [element("p", { class: "note" }, "No look yet.")];
  const rate = (value, digits = 1) => (value === null || value === undefined ? null : Number(value.toFixed(digits)));
  const rows = last.operations.map((each) => [each.op, each.count, bytes(each.bytes || 0), each.new, rate(each.per_s), rate(each.gbs, 3)]);
  const nics = (last.nics || []).map((each) => [each.host, each.nic, bytes(each.sent_bytes || 0), bytes(each.received_bytes || 0), rate(each.sent_gbs, 3), rate(each.received_gbs, 3)]);
  const parts = [element("p", { class: last.verdict ? "alert" : "note" }, [last.waiting, last.verdict ? `${last.verdict.kind}: ranks ${last.verdict.ranks.join(", ")}` : "", last.coverage].filter(Boolean).join("; ")),
    rowsTable(["op", "calls", "bytes", "new", "calls/s", "GB/s"], rows)];
  if (nics.length) parts.push(rowsTable(["host", "NIC", "sent", "received", "sent GB/s", "received GB/s"], nics));
  return parts;
}

function rowsTable(columns, rows) {
  const body = element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((value) => element("td", { class: typeof value === "number" ? "n" : "" }, value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value))))));
  const sortBy = (at, head) => {
    const down = head.getAttribute("aria-sort") === "ascending";
    const order = (a, b) => (a === null) - (b === null) || (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true }));
    const numbers = rows.map((_, number) => number).sort((a, b) => (down ? -1 : 1) * order(rows[a][at], rows[b][at]));
    const lines = sortBy.lines || (sortBy.lines = [...body.rows]);
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...numbers.map((number) => lines[number]));
  };
  const head = element("tr", {}, ...columns.map((name, at) => { const cell = element("th", { scope: "col" }, element("button", { type: "button", onclick: () => sortBy(at, cell) }, name)); return cell; }));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Rows" }, element("table", {}, element("thead", {}, head), body));
}

// ---- opening and sending

const openPath = tried(async (path) => { const job = await post("/api/jobs", { path }); byId("browser").close(); await refresh(); go({ job: job.id, tab: null, run: null, at: null, view: null }, Boolean(address().get("at"))); await draw(); });

const browse = tried(async (path) => {
  const { entries } = await get(`/api/browse?${new URLSearchParams({ path })}`);
  byId("browser-where").textContent = path || "What this server was given:";
  byId("open-this").hidden = !path;
  byId("open-this").onclick = () => openPath(path);
  byId("entries").replaceChildren(...entries.map((entry) => element("li", {},
    element("button", { type: "button", onclick: () => (entry.folder ? browse(entry.path) : openPath(entry.path)) }, entry.folder ? `${entry.name}/` : entry.name),
    element("span", { class: "note" }, entry.size_bytes === null ? "" : bytes(entry.size_bytes)))));
  if (!entries.length) byId("entries").replaceChildren(element("li", {}, "Nothing: begin the server with a folder, or send files."));
  if (!byId("browser").open) byId("browser").showModal();
});

const sendFiles = tried(async (files) => {
  if (!files.length) return;
  const { upload } = await post("/api/uploads");
  for (const [at, file] of [...files].entries()) {
    notice(`sending ${file.name}, ${at + 1} of ${files.length}`);
    await send(`/api/uploads/${upload}?${new URLSearchParams({ name: file.webkitRelativePath || file.name })}`, file);
  }
  notice(null);
  const job = await post(`/api/uploads/${upload}/open`);
  await refresh();
  go({ job: job.id, tab: null, run: null });
});

// ---- beginning

async function refresh() {
  state = await get("/api/state");
  await draw();
}

const theme = byId("theme");
const darkByNature = window.matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : darkByNature.matches);
function showTheme() {
  theme.textContent = isDark() ? "Light" : "Dark";
  for (const each of timelines) each.draw();
}
theme.addEventListener("click", () => { document.documentElement.dataset.theme = isDark() ? "light" : "dark"; showTheme(); drawn = ""; draw(); });
darkByNature.addEventListener("change", showTheme);
byId("menu").addEventListener("click", () => { const open = document.body.classList.toggle("side-open"); byId("menu").setAttribute("aria-expanded", String(open)); });
byId("open-folder").addEventListener("click", () => browse(""));
byId("browser-close").addEventListener("click", () => byId("browser").close());
byId("send-files").addEventListener("click", () => byId("files").click());
byId("files").addEventListener("change", (event) => sendFiles(event.target.files));
byId("any-machine").addEventListener("click", () => go({ job: null, name: null, at: null, tab: null, run: null, ask: null, view: "any" }));
byId("all-jobs").addEventListener("click", () => go({ job: null, name: null, at: null, tab: null, run: null, ask: null, view: null }));
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => { event.preventDefault(); sendFiles(event.dataTransfer.files); });
window.addEventListener("hashchange", () => { document.body.classList.remove("side-open"); draw(); });
window.addEventListener("popstate", () => draw());

tried(async () => {
  questions = (await get("/api/questions")).questions;
  await refresh();
  if (!address().get("job") && state.jobs.length && !location.hash && !state.fleet) go({ job: state.jobs[0].id }, true);
  await draw();
  showTheme();
  document.documentElement.dataset.ready = "yes";
  news(tried(async (version) => { if (version !== state.version) await refresh(); }), (there) => { byId("link-state").textContent = there ? "" : "the server does not answer"; });
})();
