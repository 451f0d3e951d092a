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
  function drawHeat() {
    const canvas = byId("heat");
    const side = canvas.clientWidth || 560;
    const pen = prepare(canvas, side, side);
    const cell = side / matrix.size;
    const present = matrix.values.filter((value) => value > 0);
    // The scale spans a factor of 16 at least: 64 and 72 MiB are nearly one colour, not the two ends of it.
    const high = Math.log(present[present.length - 1] || 1);
    const span = Math.max(high - Math.log(present[0] || 1), Math.log(16));
    const low = high - span;
    const paint = ramp();
    pen.fillStyle = colour("--void");
    pen.fillRect(0, 0, side, side);
    const gap = cell > 7 ? 0.5 : 0;
    for (const [place, bytes] of lookup) {
      if (bytes <= 0) continue;
      pen.fillStyle = paint((Math.log(bytes) - low) / span);
      const row = Math.floor(place / matrix.size);
      pen.fillRect(place % matrix.size * cell + gap, row * cell + gap, Math.max(cell - 2 * gap, 1), Math.max(cell - 2 * gap, 1));
    }
    pen.strokeStyle = colour("--dim");
    pen.globalAlpha = 0.45;
    if (matrix.groups.length <= 64) {
      for (const first of matrix.groups) {
        pen.beginPath();
        pen.moveTo(first * cell, 0); pen.lineTo(first * cell, side);
        pen.moveTo(0, first * cell); pen.lineTo(side, first * cell);
        pen.stroke();
      }
    }
    byId("ramp-low").textContent = formatBytes(present.length ? Math.exp(low) : 0);
    byId("ramp-high").textContent = formatBytes(present[present.length - 1] || 0);
    canvas.dataset.drawn = String(lookup.size);
  }
  function pointHeat(event) {
    const box = event.target.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / box.width * matrix.size);
    const row = Math.floor((event.clientY - box.top) / box.height * matrix.size);
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
