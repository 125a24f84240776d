// run: the page of one run.

let current = null; // the picture on the screen

function showRun(index, window_) {
  const r = runs[index], p = details(index), about = firsts.get(r.scenario);
  const page = byId("run");
  current = null;
  const goTo = (from, to, host) => current && current.goTo(from, to, host);
  const pic = p && (p.hosts.length || p.marks.length || p.spans.length || p.writes.length) ? picture(p, r.violations || [], window_) : null;
  current = pic;
  page.replaceChildren();
  add(page, [
    h("p", { class: "crumb" }, h("a", { href: "#/" }, "← All runs")),
    h("div", { class: "title" }, h("span", { class: "badge wide " + r.verdict }, { pass: "✓", fail: "✕", notrun: "–" }[r.verdict] || "", "\u00a0" + (words[r.verdict] || r.verdict)),
      h("h2", { tabindex: -1 }, r.scenario), h("span", { class: "mode" }, "seed " + r.seed), r.mode ? h("span", { class: "mode" }, r.mode) : null, about.file ? h("code", { class: "muted" }, about.file) : null),
    about.about ? h("p", { class: "why" }, about.about.trim()) : null,
    siblings(index),
    figures(r, p),
    twins(r),
    r.reason ? h("p", { class: "reason" }, r.reason) : null,
    broken(r, goTo),
    pic ? framed(pic, p) : !p && r.verdict !== "notrun" ? undrawn(r) : null,
    p && h("div", { class: "panels" }, checks("Expectations", p.expectations, goTo), checks("Invariants", p.invariants, goTo), percentiles(p.percentiles), api(p.api)),
    p && recoveries(p, goTo),
    p && decisions(p, goTo),
    p && moves(p, goTo),
    p && notes(p.notes, r.failed),
    !r.failed && r.replay ? h("div", { class: "panel" }, h("h3", {}, "Run it again"), h("div", { class: "inner" }, command(r.replay, "the command"))) : null,
  ]);
  if (pic) {
    let later = 0;
    pic.onwindow = (from, to, whole) => {
      clearTimeout(later);
      later = setTimeout(() => {
        if (current !== pic) return;
        try { history.replaceState(null, "", link(r) + (whole ? "" : `?t=${(from / 1000).toFixed(2)}-${(to / 1000).toFixed(2)}`)); } catch { /* the link is a convenience */ }
      }, 300);
    };
    pic.resize();
  }
}

// siblings are the other runs of the scenario.
function siblings(index) {
  const all = runs.map((r, i) => i).filter((i) => runs[i].scenario === runs[index].scenario);
  return all.length < 2 ? null : h("div", { style: "margin-top:12px" }, strip(all, index));
}

// twins are the run in each mode it was played in, side by side.
function twins(r) {
  const all = runs.filter((o) => o.scenario === r.scenario && o.seed === r.seed);
  if (all.length < 2 || all.every((o) => o.mode === r.mode)) return null;
  const line = (o) => h("tr", {}, h("th", { scope: "row" }, o === r ? o.mode : h("a", { href: link(o) }, o.mode)), h("td", {}, words[o.verdict] || o.verdict),
    h("td", {}, o.verdict === "notrun" ? o.reason : (o.violations || []).map((v) => v.rule).join("; ") || "nothing was violated"),
    h("td", { class: "num" }, o.writes ? brief(o.writes) : ""), h("td", { class: "num" }, o.virtual ? lasted(o.virtual * 1000) : ""));
  return h("div", { class: "panel twins" }, h("h3", {}, "The same in each mode"), h("div", { class: "inner" }, h("table", {},
    h("thead", {}, h("tr", {}, ["Mode", "Verdict", "What did not hold", "API writes", "Virtual time"].map((t, i) => h("th", { scope: "col", class: i > 2 ? "num" : "" }, t)))),
    h("tbody", {}, all.map(line)))));
}

function figures(r, p) {
  const one = (name, value, title) => value && h("div", { title }, h("dt", {}, name), h("dd", {}, value));
  const gone = p ? p.moves.filter((m) => m.down).map((m) => m.down).sort((a, b) => a - b) : [];
  return h("dl", { class: "figures" },
    one("virtual time", lasted(r.virtual * 1000)), one("CPU time", r.cpu ? lasted(r.cpu * 1000) : "", "what the run cost"),
    one("speed", r.cpu && r.virtual ? figure(r.virtual / r.cpu) + "×" : "", "virtual time for each second of CPU"),
    p && p.hosts.length ? one("fleet", `${count(p.hosts.length)} hosts${p.vms.length ? ", " + count(p.vms.length) + " VMs" : ""}`) : null,
    p && p.totalMoves ? one("migrations", count(p.totalMoves) + (gone.length ? ", ≤ " + lasted(gone[gone.length - 1]) + " down" : "")) : null,
    p && p.totalRecoveries ? one("ran again", count(p.totalRecoveries) + ", ≤ " + figure(p.recoveries.reduce((a, r) => Math.max(a, r.total), 0)) + " s", "VMs that ran again elsewhere, and the longest way from their host's loss") : null,
    one("host-hours", r.hostHours ? figure(r.hostHours) : ""), one("events", r.events ? brief(r.events) : ""), one("API writes", r.writes ? brief(r.writes) : ""),
    one("digest", r.digest ? h("code", { title: r.digest }, r.digest.length > 20 ? r.digest.slice(0, 16) + "…" : r.digest) : "", "Same seed, same digest"));
}

function broken(r, goTo) {
  const all = r.violations || [];
  if (!r.failed && !all.length) return null;
  const n = all.length + (r.more || 0);
  return h("section", { class: "violations" }, h("h3", {}, n === 1 ? "One rule was broken" : n ? count(n) + " violations" : "The run failed"),
    h("ol", {}, all.map((x) => h("li", {}, moment(x.at * 1000, goTo), h("span", {}, h("span", { class: "rule" }, x.rule), x.text ? ": " + x.text : ""))), r.more ? h("li", { class: "muted" }, `and ${count(r.more)} more in report.json`) : null),
    r.replay ? command(r.replay, "the command that repeats this run") : null);
}

function undrawn(r) {
  const other = runs.find((o) => o.drawn && o.scenario === r.scenario);
  return h("p", { class: "panel empty" }, "The picture of this run was left out to keep the page small. ", other ? ["Drawn: ", h("a", { href: link(other) }, `seed ${other.seed}, ${words[other.verdict] || other.verdict}`), "."] : "report.json has all of it.");
}

// framed is the picture with its tools, legend and notes.
function framed(pic, p) {
  const button = (text, title, act) => h("button", { type: "button", title, "aria-label": title, onclick: act }, text);
  const names = new Map();
  p.vms.forEach((vm, i) => { names.set(vm[0], { vm: i }); if (vm[2]) names.set(vm[2], { vm: i }); });
  p.hosts.forEach((host, i) => names.set(host[0], { host: i }));
  const options = h("datalist", { id: "names" }, [...p.hosts.map((x) => x[0]), ...p.vms.map((x) => x[0])].slice(0, 3000).map((n) => h("option", { value: n })));
  const find = h("input", { class: "find", type: "search", list: "names", placeholder: "Find a VM or host", "aria-label": "Find a VM or host", autocomplete: "off", spellcheck: "false" });
  find.addEventListener("input", () => {
    const found = names.get(find.value.trim());
    if (!find.value) pic.pin(-1);
    else if (found && found.vm !== undefined) pic.pin(found.vm);
    else if (found) pic.showHost(found.host);
  });
  const said = [];
  if (p.heat) said.push(`${count(p.total)} stretches of VMs' lives are too many for a page: drawn is how many VMs each host ran in each ${lasted(p.heat.slice)}. report.json and trace.json have them all.`);
  if (p.moves.length < p.totalMoves) said.push(`${count(p.moves.length)} of ${count(p.totalMoves)} migrations are drawn, those not completed first.`);
  const twice = pic.scene.copiesTwice;
  return h("section", { class: "panel", "aria-label": "The picture" },
    h("div", { class: "tools" }, h("h3", {}, "Hosts over virtual time", h("span", { class: "muted" }, "  drag to pan · Ctrl + wheel or double click to zoom · click a VM to follow it")), find, options,
      h("span", { class: "set" }, "Rows ", button("−", "Lower rows", () => pic.taller(-1)), button("+", "Higher rows", () => pic.taller(1))),
      h("span", { class: "set" }, "Time ", button("−", "Zoom out", () => pic.zoom(1 / 0.6)), button("+", "Zoom in", () => pic.zoom(0.6)), button("All", "Show the whole run", pic.reset))),
    pic.stage,
    twice.length ? h("div", { class: "note copies" }, twice.slice(0, 5).map((t) => h("div", {}, `${p.vms[t.vm][0]} ran on ${p.hosts[t.hosts[0]][0]} and ${p.hosts[t.hosts[1]][0]} at once for ${lasted(t.to - t.from)}, from `,
      h("button", { type: "button", class: "at", onclick: () => { pic.goTo(t.from, t.to, t.hosts[0]); pic.pin(t.vm); } }, clock(t.from, true)))), twice.length > 5 ? h("div", {}, `and ${twice.length - 5} more`) : null) : null,
    said.map((text) => h("p", { class: "note" }, text)),
    keyTo(pic, p));
}

// keyTo is the legend, made anew when the rows change their kind.
function keyTo(pic, p) {
  let last = legend(pic, p, false);
  pic.onkind = (heat) => {
    const next = legend(pic, p, heat);
    last.replaceWith(next);
    last = next;
  };
  return last;
}

function legend(pic, p, heat) {
  const state = new Set(p.states), entries = [];
  const entry = (text, painter) => entries.push(h("span", {}, swatch(painter), text));
  const bar = (kind) => (ctx) => {
    ctx.beginPath();
    ctx.roundRect(1, 3, 28, 8, 2);
    ctx.fillStyle = kind === "running" ? theme.soft : kind === "incoming" ? "transparent" : pattern(ctx, kind, theme.soft);
    ctx.fill();
    if (kind === "incoming") outline(ctx, theme.soft, 1, 3, 28, 8, 1.2);
  };
  if (!heat && p.vms.length && pic.scene.groups.size <= 8) {
    for (const [name, n] of pic.scene.groups) {
      entry(name, (ctx) => { const [a, b, c] = hues[n]; ctx.fillStyle = `hsl(${a},${b}%,${c + theme.lift}%)`; ctx.beginPath(); ctx.roundRect(8, 1, 13, 12, 3); ctx.fill(); });
    }
  }
  if (heat) entry(`VMs on a host, up to ${p.heat ? p.heat.max : mostOf(p)}`, (ctx) => { for (let i = 0; i < 10; i++) { ctx.fillStyle = shade(i + 1, 10); ctx.fillRect(i * 3, 3, 3, 8); } });
  for (const [kind, text] of [["running", "running"], ["paused", "paused"], ["incoming", "incoming"]]) if (!heat && state.has(kind)) entry(text, bar(kind));
  if (!heat && (state.has("post-copy") || p.moves.some((m) => m.mode === "post-copy" && m.sw))) entry("post-copy", bar("post-copy"));
  if (!heat && p.states.some((x) => !["running", "paused", "incoming", "post-copy"].includes(x))) entry("other state", bar("other"));
  const fake = (m) => (ctx) => paintMove(ctx, { from: 0, to: 1, gutter: 0, right: 0 }, m, m.result === "completed" ? [2, 12, 15, 12, 12, 3, 26, 3] : [2, 12, 6, -2, 24, -2, 28, 12], false, false);
  if (p.moves.some((m) => !bad(m))) entry("migration, tick: switch-over", fake({ result: "completed" }));
  if (p.moves.some(bad)) entry("migration that came to nothing", fake({ result: "failed" }));
  if (p.spans.some((f) => f.hosts)) entry("fault on hosts", (ctx) => { ctx.fillStyle = `rgba(${theme.fault},.25)`; ctx.fillRect(1, 2, 28, 10); ctx.fillStyle = `rgb(${theme.fault})`; ctx.fillRect(1, 2, 2, 10); ctx.fillRect(27, 2, 2, 10); });
  if (p.spans.some((f) => !f.hosts)) entry("fault on the fleet", (ctx) => { ctx.fillStyle = `rgba(${theme.fleet},.25)`; ctx.fillRect(1, 2, 28, 10); ctx.fillStyle = `rgb(${theme.fleet})`; ctx.fillRect(1, 2, 2, 10); ctx.fillRect(27, 2, 2, 10); });
  const kinds = [...new Set(p.marks.map((m) => m.kind))].slice(0, 6);
  for (const kind of kinds) entry(kind, (ctx) => { ctx.fillStyle = markColor({ kind }); glyph(ctx, kind, 15, 7, 4.2); });
  return h("div", { class: "legend" }, entries);
}

const swatches = [];
function swatch(painter) {
  const c = h("canvas", { "aria-hidden": "true" });
  const paintIt = () => size(c, 30, 14, (ctx) => { ctx.clearRect(0, 0, 30, 14); painter(ctx); });
  swatches.push([c, paintIt]);
  paintIt();
  return c;
}
