// Parts of every page with a script: elements, units, colours, and the address that holds what is looked at.

// Text is always text, never markup.

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
  if (location.protocol === "about:") return; // a page inside another has no address of its own
  const now = address();
  for (const [key, value] of Object.entries(changes)) {
    if (value === null || value === "" || value === undefined) now.delete(key); else now.set(key, value);
  }
  const hash = `#${now}`;
  if (hash === location.hash) return;
  if (replace) history.replaceState(null, "", hash); else { history.pushState(null, "", hash); window.dispatchEvent(new Event("hashchange")); }
}
