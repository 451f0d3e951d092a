// The timeline of a report: the same component as on the server's page, over events that the page holds.
import { Timeline } from "./timeline.js";

(() => {
  const held = JSON.parse(document.getElementById("data").textContent).timeline;
  const home = document.getElementById("rank-timeline");
  if (!held || !home) return;
  const events = held.events.map(([row, start, length, operation, waited], number) => ({ number, row, start, length, operation, waited }));
  const whole = (each) => ({
    number: each.number, row: each.row, label: held.rows[each.row].label, host: "", track: held.rows[each.row].track, name: held.operations[each.operation],
    operation: held.operations[each.operation], start_us: each.start, duration_us: each.length, size_bytes: null,
    wait_us: each.length * each.waited / 100, communicator: null, sequence: null,
  });
  const source = {
    meta: held,
    view: async (asked) => {
      const operations = asked.operations ? asked.operations.split(",").map(Number) : null;
      const rows = asked.rows.split(",").flatMap((part) => {
        const [low, high] = part.split("-").map(Number);
        return Array.from({ length: (high ?? low) - low + 1 }, (_, at) => low + at);
      });
      const of = new Map(rows.map((row) => [row, []]));
      for (const each of events) {
        if (!of.has(each.row) || each.start > asked.to || each.start + each.length < asked.from || (operations && !operations.includes(each.operation))) continue;
        of.get(each.row).push([each.number, each.start - asked.from, each.length, each.operation, each.waited, -1, -1]);
      }
      return { rows, begin_us: asked.from, end_us: asked.to, events: rows.map((row) => of.get(row)), names: {}, links: [] };
    },
    event: async (number) => whole(events[number]),
    search: async (text, after, back) => {
      const hits = events.filter((each) => held.operations[each.operation].toLowerCase().includes(text.toLowerCase())).sort((a, b) => a.start - b.start);
      const beyond = hits.filter((each) => (back ? each.start < after : each.start > after));
      const pool = beyond.length ? beyond : hits;
      return { hits: hits.length, event: pool.length ? whole(back ? pool[pool.length - 1] : pool[0]) : null };
    },
  };
  const timeline = new Timeline(source, { plain: true });
  home.replaceChildren(timeline.root);
  new MutationObserver(() => timeline.draw()).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => timeline.draw());
})();
