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
