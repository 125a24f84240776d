// tables: what stands under the picture.

const results = { held: ["✓ held", "held"], violated: ["✕ violated", "violated"], notrun: ["– not run", "idle"], nocase: ["– no case", "idle"] };

// sortable makes a table that its head sorts. Columns are [title, cell, key]:
// cell gives what is shown, key what it is sorted by; numbers stand right.
function sortable(columns, items, start) {
  const body = h("tbody"), heads = [];
  const numeric = (c) => items.length && typeof c[2](items[0]) === "number";
  let by = start === undefined ? -1 : start, down = start !== undefined;
  const fill = () => {
    const order = items.slice();
    if (by >= 0) {
      const key = columns[by][2];
      order.sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) * (down ? -1 : 1));
    }
    body.replaceChildren(...order.map((x) => h("tr", {}, columns.map((c) => h("td", { class: numeric(c) ? "num" : "" }, c[1](x))))));
    heads.forEach((e, i) => { if (i === by) e.setAttribute("aria-sort", down ? "descending" : "ascending"); else e.removeAttribute("aria-sort"); });
  };
  columns.forEach((c, i) => heads.push(h("th", { scope: "col", class: numeric(c) ? "num" : "" },
    h("button", { type: "button", onclick: () => { down = by === i ? !down : numeric(c); by = i; fill(); } }, c[0]))));
  fill();
  return h("table", {}, h("thead", {}, h("tr", {}, heads)), body);
}

function panel(title, note, ...inner) {
  return h("section", { class: "panel" }, h("h3", {}, title, note ? h("span", { class: "muted" }, " " + note) : null), h("div", { class: "inner" }, inner));
}

function checks(title, given, goTo) {
  if (!given.length) return null;
  const counted = given.some((c) => c.checks);
  // A rule that nothing in the run came under has not been shown to hold.
  const all = counted ? given.map((c) => c.result === "held" && !c.checks ? { ...c, result: "nocase" } : c) : given;
  const rank = { violated: 0, notrun: 1, held: 2, nocase: 3 }, sorted = all.slice().sort((a, b) => (rank[a.result] ?? 1) - (rank[b.result] ?? 1));
  const n = (r) => all.filter((c) => c.result === r).length;
  const note = [n("violated") && n("violated") + " violated", n("notrun") && n("notrun") + " not run", n("held") + " held", n("nocase") && n("nocase") + " without a case"].filter(Boolean).join(", ");
  return panel(title, note, h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Result"), h("th", { scope: "col" }, "Rule"), h("th", { scope: "col", class: "num" }, "At"), counted ? h("th", { scope: "col", class: "num" }, "Looked") : null)),
    h("tbody", {}, sorted.map((c) => {
      const [word, cls] = results[c.result] || [c.result, "idle"];
      return h("tr", {}, h("td", { class: cls + " nowrap" }, word), h("td", {}, c.name, c.text && c.text !== c.name ? h("div", { class: "muted small" }, c.text) : null),
        h("td", { class: "num" }, c.at ? moment(c.at * 1000, goTo) : ""), counted ? h("td", { class: "num" }, c.checks ? count(c.checks) + "×" : "") : null);
    }))));
}

const moment = (at, goTo) => h("button", { type: "button", class: "at", title: "Show this moment in the picture", onclick: () => goTo(at, at, -1) }, clock(at, true));

// distribution draws minimum, 50, 90, 99 % and maximum on one line.
function distribution(q) {
  const max = q.max || 1, x = (value) => 4 + value / max * 180, s = (n) => figure(n) + " " + q.unit;
  const box = (a, b, opacity) => svg("rect", { x: x(a), y: 4, width: Math.max(x(b) - x(a), 0.5), height: 10, opacity });
  return svg("svg", { class: "dist", viewBox: "0 0 190 18", role: "img", "aria-label": `${q.name}: from ${s(q.min)} to ${s(q.max)}, median ${s(q.p50)}` },
    svg("title", {}, `min ${s(q.min)} · 50 % ${s(q.p50)} · 90 % ${s(q.p90)} · 99 % ${s(q.p99)} · max ${s(q.max)}`),
    svg("line", { class: "whole", x1: x(q.min), x2: x(q.max), y1: 9, y2: 9 }), svg("line", { class: "whole", x1: x(q.max), x2: x(q.max), y1: 5, y2: 13 }),
    box(q.min, q.p50, 0.85), box(q.p50, q.p90, 0.5), box(q.p90, q.p99, 0.25), svg("line", { class: "mid", x1: x(q.p50), x2: x(q.p50), y1: 2, y2: 16 }));
}

function percentiles(all) {
  if (!all.length) return null;
  const cell = (q, x) => h("td", { class: "num" }, figure(x) + " " + q.unit);
  return panel("How long things took", "bar: minimum, 50, 90 and 99 %, maximum", h("table", {}, h("thead", {}, h("tr", {}, ["", "", "50 %", "90 %", "99 %", "Max", "Count"].map((t, i) => h("th", { scope: "col", class: i > 1 ? "num" : "" }, t)))),
    h("tbody", {}, all.map((q) => h("tr", {}, h("th", { scope: "row" }, q.name), h("td", {}, distribution(q)), cell(q, q.p50), cell(q, q.p90), cell(q, q.p99), cell(q, q.max), h("td", { class: "num" }, count(q.count)))))));
}

function api(all) {
  if (!all.length) return null;
  const sum = all.reduce((a, c) => a + c.count, 0), most = all.reduce((a, c) => Math.max(a, c.count), 1), size = all.reduce((a, c) => a + c.bytes, 0);
  const sized = size ? [["Bytes", (c) => bytes(c.bytes), (c) => c.bytes]] : []; // not every API counts them
  return panel("API calls", `${count(sum)} calls${size ? ", " + bytes(size) : ""}`, sortable([
    ["Client", (c) => c.client, (c) => c.client], ["Verb", (c) => c.verb, (c) => c.verb], ["Resource", (c) => c.resource, (c) => c.resource],
    ["Calls", (c) => [h("span", { class: "share", style: `width:${(c.count / most * 60).toFixed(1)}px` }), " ", count(c.count)], (c) => c.count], ...sized,
  ], all, 3));
}

const maxRows = 1000; // a longer table is slow and nobody reads it

function moves(p, goTo) {
  if (!p.moves.length) return null;
  const host = (i) => i >= 0 ? p.hosts[i][0] : "?", shown = p.moves.slice().sort((a, b) => bad(b) - bad(a) || a.start - b.start).slice(0, maxRows);
  const lost = p.moves.filter(bad).length, downs = p.moves.filter((m) => m.down).map((m) => m.down);
  const note = `${count(p.totalMoves)}${lost ? `, ${lost} not completed` : ", all completed"}${downs.length ? `, longest downtime ${lasted(downs.reduce((a, b) => Math.max(a, b)))}` : ""}${shown.length < p.totalMoves ? `; ${shown.length} listed` : ""}`;
  return h("details", { class: "panel", open: p.moves.length <= 12 || lost > 0 }, h("summary", {}, "Migrations", h("span", { class: "muted" }, " " + note)), h("div", { class: "inner" }, sortable([
    ["VM", (m) => m.name, (m) => m.name], ["From", (m) => host(m.from), (m) => host(m.from)], ["To", (m) => host(m.to), (m) => host(m.to)],
    ["Began", (m) => h("button", { type: "button", class: "at", onclick: () => goTo(m.start, m.end, m.from) }, clock(m.start, true)), (m) => m.start],
    ["Took", (m) => lasted(m.end - m.start), (m) => m.end - m.start], ["Downtime", (m) => m.down ? lasted(m.down) : "", (m) => m.down || 0], ["Sent", (m) => m.bytes ? bytes(m.bytes) : "", (m) => m.bytes || 0],
    ["Rounds", (m) => m.rounds ? count(m.rounds) : "", (m) => m.rounds || 0], ["Throttle", (m) => m.throttle ? m.throttle + " %" : "", (m) => m.throttle || 0], ["Mode", (m) => m.mode, (m) => m.mode || ""],
    ["Result", (m) => h("span", { class: bad(m) ? "violated" : "" }, m.result + (m.error ? ": " + m.error : "")), (m) => m.result],
  ], shown)));
}

// parts are the steps of a VM's way back, in order, with how dark each is drawn.
const parts = [["detect", "silent until that was said", 0.2], ["decide", "until the host was to be fenced", 0.38], ["fence", "until a proof", 1], ["place", "until the VM had a host", 0.58], ["start", "until it ran there", 0.78]];

// way draws one VM's way back, on the scale of the longest.
function way(r, most) {
  let x = 0;
  const boxes = parts.map(([name, , opacity]) => {
    const wide = r[name] / most * 186, box = svg("rect", { class: name, x: 2 + x, y: 3, width: Math.max(wide, 0), height: 12, opacity });
    x += wide;
    return box;
  });
  return svg("svg", { class: "dist way", viewBox: "0 0 190 18", role: "img", "aria-label": parts.map(([name]) => `${name} ${figure(r[name])} s`).join(", ") },
    svg("title", {}, parts.map(([name]) => `${name} ${figure(r[name])} s`).join(" · ")), boxes);
}

function recoveries(p, goTo) {
  if (!p.recoveries.length) return null;
  const all = p.recoveries, most = all.reduce((a, r) => Math.max(a, r.total), 0.001), hosts = new Set(all.map((r) => r.host)).size;
  const host = new Map(p.hosts.map((x, i) => [x[0], i])), seconds = (name) => [name, (r) => figure(r[name]) + " s", (r) => r[name]];
  const note = `${count(p.totalRecoveries)} from ${hosts === 1 ? "one host" : count(hosts) + " hosts"}, the slowest ${figure(most)} s after its host's loss${all.length < p.totalRecoveries ? `; the slowest ${count(all.length)} are listed` : ""}`;
  const key = h("p", { class: "parts" }, parts.map(([name, text, opacity]) => h("span", {}, svg("svg", { class: "way key", viewBox: "0 0 12 12", "aria-hidden": "true" }, svg("rect", { class: name, width: 12, height: 12, opacity })), h("b", {}, name), " " + text)));
  return h("details", { class: "panel recoveries", open: all.length <= 40 }, h("summary", {}, "VMs that ran again elsewhere", h("span", { class: "muted" }, " " + note)), h("div", { class: "inner" }, key, sortable([
    ["VM", (r) => r.vm, (r) => r.vm], ["Priority", (r) => r.priority, (r) => ["high", "medium", "low"].indexOf(r.priority)], ["Lost with", (r) => r.host, (r) => r.host],
    ["At", (r) => h("button", { type: "button", class: "at", title: "Show this moment in the picture", onclick: () => goTo(r.lost * 1000, (r.lost + r.total) * 1000, host.has(r.host) ? host.get(r.host) : -1) }, clock(r.lost * 1000, true)), (r) => r.lost],
    ["", (r) => way(r, most), (r) => r.total], seconds("total"), ...parts.map(([name]) => seconds(name)),
  ], all, 5)));
}

// decisions are what the HA service thought of each host, in the order of time.
function decisions(p, goTo) {
  const all = p.marks.filter(decided);
  if (!all.length) return null;
  const held = all.filter((m) => m.kind === "brake").length, shown = all.slice(0, maxRows);
  const split = (m) => { const i = m.text.indexOf(": "); return i < 0 ? [m.text, ""] : [m.text.slice(0, i), m.text.slice(i + 2)]; };
  const note = `${count(all.length)} of ${count(new Set(all.map((m) => m.on)).size)} hosts${held ? `, ${count(held)} held by a brake` : ""}${shown.length < all.length ? `; ${count(shown.length)} listed` : ""}`;
  return h("details", { class: "panel decisions", open: all.length <= 24 }, h("summary", {}, "What was decided about hosts", h("span", { class: "muted" }, " " + note)), h("div", { class: "inner" }, sortable([
    ["At", (m) => h("button", { type: "button", class: "at", title: "Show this moment in the picture", onclick: () => goTo(m.at, m.at, m.host) }, clock(m.at, true)), (m) => m.at],
    ["Host", (m) => m.on || "", (m) => m.on || ""], ["Decision", (m) => h("span", { class: m.kind === "brake" ? "held-up nowrap" : "nowrap" }, split(m)[0]), (m) => split(m)[0]], ["Why", (m) => split(m)[1], (m) => split(m)[1]],
  ], shown)));
}

function notes(all, open) {
  if (!all.length) return null;
  return h("details", { class: "panel", open }, h("summary", {}, "The end of the trace", h("span", { class: "muted" }, ` last ${count(all.length)} notes`)), h("pre", { tabindex: 0 }, all.join("\n")));
}
