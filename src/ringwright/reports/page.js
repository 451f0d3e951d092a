"use strict";
(() => {
  const root = document.documentElement;
  const fail = (message) => { root.dataset.errors = (root.dataset.errors || "") + message + "\n"; };
  window.addEventListener("error", (event) => fail(event.message));
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  function formatBytes(bytes) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let step = 0;
    let value = bytes;
    while (value >= 1024 && step < units.length - 1) { value /= 1024; step += 1; }
    return (value < 100 && !Number.isInteger(value) ? value.toPrecision(3) : Math.round(value)) + " " + units[step];
  }

  // ---- tables: a click on a heading sorts by it, numbers largest first
  function sortBy(table, column, head) {
    const body = table.tBodies[0];
    const numeric = head.classList.contains("n");
    const before = head.getAttribute("aria-sort");
    const down = before ? before === "ascending" : numeric;
    const key = (row) => {
      const cell = row.cells[column];
      return numeric ? Number(cell.dataset.v) : cell.textContent;
    };
    const compare = (a, b) => numeric ? a[0] - b[0] : a[0].localeCompare(b[0], undefined, { numeric: true });
    const keyed = Array.from(body.rows, (row) => [key(row), row]).sort((a, b) => down ? compare(b, a) : compare(a, b));
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...keyed.map((pair) => pair[1]));
  }
  for (const table of document.querySelectorAll("table")) {
    Array.from(table.tHead.rows[0].cells).forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => sortBy(table, column, head));
    });
  }

  // ---- commands to copy
  function copy(button) {
    const code = button.parentElement.querySelector("code");
    const done = () => { button.textContent = "Copied"; setTimeout(() => { button.textContent = "Copy"; }, 1500); };
    const select = () => {
      const range = document.createRange();
      range.selectNodeContents(code);
      const selection = window.getSelection();
      selection.removeAllRanges();
      selection.addRange(range);
      if (document.execCommand("copy")) done();
    };
    if (navigator.clipboard) navigator.clipboard.writeText(code.textContent).then(done, select); else select();
  }
  for (const button of document.querySelectorAll(".copy")) button.addEventListener("click", () => copy(button));

  // ---- canvases are drawn at the screen's own resolution, and again when size or theme change
  function prepare(canvas, width, height) {
    const scale = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    return pen;
  }
  function channels(hex) {
    const number = parseInt(hex.slice(1), 16);
    return [number >> 16 & 255, number >> 8 & 255, number & 255];
  }
  function ramp() {
    const stops = ["--h0", "--h1", "--h2", "--h3"].map((name) => channels(colour(name)));
    return (share) => {
      const place = Math.min(2.999, Math.max(0, share) * 3);
      const low = stops[Math.floor(place)];
      const high = stops[Math.floor(place) + 1];
      return "rgb(" + low.map((value, at) => Math.round(value + (high[at] - value) * (place % 1))).join() + ")";
    };
  }

  const matrix = data.matrix;
  const lookup = new Map();
  if (matrix) {
    for (let at = 0; at < matrix.cells.length; at += 3) {
      lookup.set(matrix.cells[at] * matrix.size + matrix.cells[at + 1], matrix.values[matrix.cells[at + 2]]);
    }
  }
  // The numbers of ranks stand at the left and on top, the names of hosts beside them, as many as there is room for.
  const TICK = 11; // height of a number
  const MOST_NAME = 110; // width of the longest name of a row
  function heatRoom(pen, side) {
    pen.font = TICK + "px system-ui, sans-serif";
    const widest = Math.max(...matrix.ticks.map((tick) => pen.measureText(tick).width));
    const number = Math.min(widest, side < 420 ? 60 : MOST_NAME) + 6;
    const named = matrix.bands.length ? Math.min(Math.max(...matrix.bands.map((band) => pen.measureText(band[1]).width)), side < 420 ? 0 : MOST_NAME) : 0;
    const band = matrix.bands.length ? 8 + (named ? named + 4 : 0) : 0;
    return { left: number + band, top: (matrix.unit === "host" ? number : TICK + 5) + (matrix.bands.length ? 8 + (named ? TICK + 3 : 0) : 0), number, named };
  }
  function fitted(pen, text, room) {
    if (pen.measureText(text).width <= room) return text;
    for (let from = 1; from < text.length; from += 1) {
      const end = "\u2026" + text.slice(from); // the end tells hosts apart
      if (pen.measureText(end).width <= room) return end;
    }
    return "";
  }
  function everySo(cell, room) {
    for (const step of [1, 2, 4, 8, 16, 32, 64, 128]) if (step * cell >= room) return step;
    return matrix.size;
  }
  function drawAxes(pen, room, cell) {
    const upright = matrix.unit === "host";
    const widest = Math.max(...matrix.ticks.map((tick) => pen.measureText(tick).width));
    pen.fillStyle = colour("--dim");
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    const down = everySo(cell, TICK + 1);
    for (let row = 0; row < matrix.size; row += down) pen.fillText(fitted(pen, matrix.ticks[row], room.number - 4), room.left - 4, room.top + (row + 0.5) * cell);
    const across = everySo(cell, upright ? TICK + 1 : widest + 4);
    for (let column = 0; column < matrix.size; column += across) {
      pen.save();
      pen.translate(room.left + (column + 0.5) * cell, room.top - 4);
      if (upright) pen.rotate(-Math.PI / 2);
      pen.textAlign = upright ? "left" : "center";
      pen.textBaseline = upright ? "middle" : "bottom";
      pen.fillText(fitted(pen, matrix.ticks[column], upright ? room.top - 6 : widest), 0, 0);
      pen.restore();
    }
    matrix.bands.forEach((band, at) => {
      const begin = band[0] * cell;
      const length = ((at + 1 < matrix.bands.length ? matrix.bands[at + 1][0] : matrix.size) - band[0]) * cell;
      if (!band[1]) return;
      pen.fillStyle = colour(at % 2 ? "--c9" : "--edge");
      pen.fillRect(room.left - room.number - 6, room.top + begin + 0.5, 4, Math.max(length - 1, 0.5));
      pen.fillRect(room.left + begin + 0.5, room.top - TICK - 11, Math.max(length - 1, 0.5), 4);
      if (!room.named) return;
      pen.fillStyle = colour("--dim");
      pen.textAlign = "right";
      pen.textBaseline = "middle";
      if (length >= TICK + 1) pen.fillText(fitted(pen, band[1], room.named), room.left - room.number - 10, room.top + begin + length / 2);
      pen.textAlign = "center";
      pen.textBaseline = "bottom";
      if (length >= 24) pen.fillText(fitted(pen, band[1], length - 4), room.left + begin + length / 2, room.top - TICK - 13);
    });
  }

  let heatFrame = { left: 0, top: 0, cell: 1 };
  function drawHeat() {
    const canvas = byId("heat");
    const side = canvas.clientWidth || 560;
    const pen = prepare(canvas, side, side);
    const room = heatRoom(pen, side);
    const cell = (side - Math.max(room.left, room.top)) / matrix.size;
    heatFrame = { left: room.left, top: room.top, cell };
    drawAxes(pen, room, cell);
    pen.translate(room.left, room.top);
    const whole = cell * matrix.size;
    const present = matrix.values.filter((value) => value > 0);
    // The scale spans a factor of 16 at least: 64 and 72 MiB are nearly one colour, not the two ends of it.
    const high = Math.log(present[present.length - 1] || 1);
    const span = Math.max(high - Math.log(present[0] || 1), Math.log(16));
    const low = high - span;
    const paint = ramp();
    pen.fillStyle = colour("--void");
    pen.fillRect(0, 0, whole, whole);
    const gap = cell > 7 ? 0.5 : 0;
    for (const [place, bytes] of lookup) {
      if (bytes <= 0) continue;
      pen.fillStyle = paint((Math.log(bytes) - low) / span);
      const row = Math.floor(place / matrix.size);
      pen.fillRect(place % matrix.size * cell + gap, row * cell + gap, Math.max(cell - 2 * gap, 1), Math.max(cell - 2 * gap, 1));
    }
    pen.strokeStyle = colour("--line");
    pen.strokeRect(0, 0, whole, whole);
    pen.strokeStyle = colour("--dim");
    pen.globalAlpha = 0.45;
    if (matrix.groups.length <= 64) {
      for (const first of matrix.groups) {
        pen.beginPath();
        pen.moveTo(first * cell, 0); pen.lineTo(first * cell, whole);
        pen.moveTo(0, first * cell); pen.lineTo(whole, first * cell);
        pen.stroke();
      }
    }
    byId("ramp-low").textContent = formatBytes(present.length ? Math.exp(low) : 0);
    byId("ramp-high").textContent = formatBytes(present[present.length - 1] || 0);
    canvas.dataset.drawn = String(lookup.size);
    canvas.dataset.left = room.left.toFixed(2);
    canvas.dataset.top = room.top.toFixed(2);
    canvas.dataset.side = whole.toFixed(2);
  }
  function pointHeat(event) {
    const box = event.target.getBoundingClientRect();
    const border = event.target.clientLeft;
    const column = Math.floor((event.clientX - box.left - border - heatFrame.left) / heatFrame.cell);
    const row = Math.floor((event.clientY - box.top - border - heatFrame.top) / heatFrame.cell);
    if (column < 0 || row < 0 || column >= matrix.size || row >= matrix.size) return;
    const bytes = lookup.get(row * matrix.size + column);
    const amount = bytes ? formatBytes(bytes) + " (" + bytes.toLocaleString("en-US") + " bytes)" : "nothing";
    byId("heat-says").textContent = matrix.labels[row] + " \u2192 " + matrix.labels[column] + ": " + amount;
  }

  const members = data.members;
  const roleColours = { world: "--c9", tp: "--c1", dp: "--c3", pp: "--c2", ep: "--c4", cp: "--c6", embedding: "--c8", unknown: "--c7" };
  const roleColour = (role) => colour(roleColours[role] || "--c5");
  const labels = () => (byId("map").clientWidth < 560 ? 0 : 130);
  const rowHeight = () => (members.rows.length > 32 ? 11 : 17);
  function drawMap() {
    const canvas = byId("map");
    const width = canvas.clientWidth || 900;
    const height = members.rows.length * rowHeight() + 22;
    canvas.style.height = height + "px";
    const pen = prepare(canvas, width, height);
    const left = labels();
    const cell = (width - left) / members.ranks;
    pen.font = (rowHeight() > 12 ? 12 : 9) + "px system-ui, sans-serif";
    pen.textBaseline = "middle";
    members.rows.forEach((row, at) => {
      const top = at * rowHeight();
      pen.fillStyle = colour("--soft");
      pen.fillRect(left, top, width - left, rowHeight() - 2);
      if (left) { pen.fillStyle = colour("--dim"); pen.fillText(row.label, 0, top + rowHeight() / 2 - 1, left - 8); }
      pen.fillStyle = roleColour(row.role);
      for (let part = 0; part < row.segments.length; part += 3) {
        const [start, step, count] = row.segments.slice(part, part + 3);
        for (let member = 0; member < count; member += 1) {
          pen.fillRect(left + (start + member * step) * cell, top, Math.max(cell - (cell > 4 ? 1 : 0), 0.6), rowHeight() - 2);
        }
      }
    });
    pen.fillStyle = colour("--dim");
    pen.font = "12px system-ui, sans-serif";
    pen.fillText("rank 0", left, height - 8);
    pen.textAlign = "right";
    pen.fillText("rank " + (members.ranks - 1), width, height - 8);
    canvas.dataset.drawn = String(members.rows.length);
    byId("map-legend").replaceChildren(...members.roles.map((role) => {
      const item = document.createElement("li");
      const mark = document.createElement("i");
      mark.style.background = roleColour(role);
      item.append(mark, role);
      return item;
    }));
  }
  function pointMap(event) {
    const box = event.target.getBoundingClientRect();
    const row = members.rows[Math.floor((event.clientY - box.top) / rowHeight())];
    const left = labels();
    const rank = Math.floor((event.clientX - box.left - left) / (box.width - left) * members.ranks);
    if (!row || rank < 0 || rank >= members.ranks) return;
    let inside = false;
    for (let part = 0; part < row.segments.length; part += 3) {
      const [start, step, count] = row.segments.slice(part, part + 3);
      const offset = rank - start;
      if (offset >= 0 && offset % step === 0 && offset / step < count) inside = true;
    }
    byId("map-says").textContent = "communicator " + row.label + ", role " + row.role + ": rank " + rank + (inside ? " is a member" : " is not a member");
  }

  function draw() {
    if (matrix) drawHeat();
    if (members) drawMap();
    root.dataset.drawn = "yes";
  }
  if (matrix) byId("heat").addEventListener("pointermove", pointHeat);
  if (members) byId("map").addEventListener("pointermove", pointMap);
  let waiting = 0;
  window.addEventListener("resize", () => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(draw); });

  // ---- theme: the system's until the reader chooses
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const button = byId("theme");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const show = () => { button.textContent = isDark() ? "Light" : "Dark"; draw(); };
  button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; show(); });
  dark.addEventListener("change", show);
  if (location.hash === "#dark" || location.hash === "#light") root.dataset.theme = location.hash.slice(1);
  try { show(); } catch (error) { fail(String(error)); }
})();
