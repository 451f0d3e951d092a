// Requests to the server. An error has the words of the server: what, where, what to try.

export class Refused extends Error {
  constructor(what, remedy) {
    super(what);
    this.remedy = remedy || "";
  }
}

async function answer(response) {
  if (response.ok) return response.json();
  let told = { what: `the server answers ${response.status}`, try: "load the page again" };
  const text = await response.text();
  try {
    told = JSON.parse(text).error || told;
  } catch (error) {
    if (text) told.what = text.trim();
  }
  throw new Refused(told.what, told.try);
}

export async function get(path, options = {}) {
  return answer(await fetch(path, options));
}

export async function post(path, body = {}) {
  return answer(await fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) }));
}

export async function remove(path) {
  return answer(await fetch(path, { method: "DELETE" }));
}

export async function send(path, file) {
  return answer(await fetch(path, { method: "PUT", body: file }));
}

// Calls back with each new version of the state; says whether the server is there.
export function news(heard, connected) {
  const source = new EventSource("/api/news");
  source.onmessage = (event) => { connected(true); heard(Number(event.data)); };
  source.onerror = () => connected(false);
  return source;
}

// ---- elements: text is always text, never markup

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let step = 0;
  let rest = value;
  while (rest >= 1024 && step < units.length - 1) { rest /= 1024; step += 1; }
  return `${rest < 100 && !Number.isInteger(rest) ? rest.toPrecision(3) : Math.round(rest)} ${units[step]}`;
}

export function time(us) {
  const size = Math.abs(us);
  if (size >= 1e6) return `${(us / 1e6).toLocaleString("en-US", { maximumFractionDigits: 3 })} s`;
  if (size >= 1e3) return `${(us / 1e3).toLocaleString("en-US", { maximumFractionDigits: 3 })} ms`;
  return `${us.toLocaleString("en-US", { maximumFractionDigits: size < 1 ? 4 : 2 })} us`;
}

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// The address after # holds what is looked at, so that a link shows it again.
export function address() {
  return new URLSearchParams(location.hash.slice(1));
}

export function go(changes, replace = false) {
  const now = address();
  for (const [key, value] of Object.entries(changes)) {
    if (value === null || value === "" || value === undefined) now.delete(key); else now.set(key, value);
  }
  const hash = `#${now}`;
  if (hash === location.hash) return;
  if (replace) history.replaceState(null, "", hash); else { history.pushState(null, "", hash); window.dispatchEvent(new Event("hashchange")); }
}
