// list: all scenarios, to be searched and sorted.

const maxSquares = 120; // of one scenario; failed ones are always among them

// strip shows runs as squares, each a link.
function strip(indices, here) {
  let shown = indices;
  if (indices.length > maxSquares) {
    const first = new Set([...indices].sort((a, b) => runs[b].failed - runs[a].failed || runs[b].drawn === true && -1 || a - b).slice(0, maxSquares));
    if (here !== undefined) first.add(here);
    shown = indices.filter((i) => first.has(i));
  }
  return h("div", { class: "strip" }, shown.map((i) => {
    const r = runs[i], text = `seed ${r.seed}${r.mode ? ", " + r.mode : ""}: ${words[r.verdict] || r.verdict}`;
    return h("a", { href: link(r), class: [r.verdict, r.drawn ? "drawn" : "", i === here ? "here" : ""].join(" "), title: text, "aria-label": text, "aria-current": i === here ? "page" : null });
  }), shown.length < indices.length ? h("span", {}, `and ${count(indices.length - shown.length)} more`) : null);
}

function setUpList() {
  const table = byId("scenarios");
  if (!table) return;
  const body = table.tBodies[0], rows = [...body.rows].map((tr) => {
    const indices = tr.dataset.runs.split(" ").map(Number), best = indices.find((i) => runs[i].failed && runs[i].drawn) ?? indices.find((i) => runs[i].failed) ?? indices.find((i) => runs[i].drawn) ?? indices[0];
    const name = tr.querySelector(".name");
    const text = (tr.textContent + " " + indices.slice(0, 500).map((i) => runs[i].seed + " " + runs[i].digest).join(" ")).toLowerCase();
    const row = { tr, indices, text, name: name.textContent, verdict: tr.className, shown: new Set(indices.map((i) => runs[i].verdict)) };
    name.replaceChildren(h("a", { href: link(runs[best]) }, name.textContent));
    tr.querySelector(".seeds").replaceChildren(strip(indices));
    for (const td of tr.querySelectorAll("[data-seconds]")) td.textContent = +td.dataset.seconds ? lasted(td.dataset.seconds * 1000) : "–";
    for (const td of tr.querySelectorAll("[data-count]")) td.textContent = +td.dataset.count ? brief(+td.dataset.count) : "–";
    return row;
  });
  const failed = runs.find((r) => r.failed && r.replay);
  if (failed) table.parentNode.before(h("div", { class: "repeat" }, h("p", {}, "Repeat the first failure"), command(failed.replay, "the command that repeats it")));
  const order = ["fail", "notrun", "pass"];
  const keys = {
    verdict: (r) => order.indexOf(r.verdict) * 1e6 + Number(r.tr.dataset.index), name: (r) => r.name.toLowerCase(), runs: (r) => r.indices.length,
    virtual: (r) => +r.tr.dataset.virtual, cpu: (r) => +r.tr.dataset.cpu, events: (r) => +r.tr.dataset.events, writes: (r) => +r.tr.dataset.writes,
  };
  let by = "verdict", down = false, show = "";
  const filter = byId("filter");
  const update = () => {
    const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const key = keys[by];
    rows.sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) * (down ? -1 : 1));
    let n = 0;
    for (const r of rows) {
      r.tr.hidden = !(wanted.every((w) => r.text.includes(w)) && (!show || r.shown.has(show)));
      if (!r.tr.hidden) n++;
    }
    body.append(...rows.map((r) => r.tr));
    byId("nothing").hidden = n > 0;
    for (const th of table.querySelectorAll("[data-sort]")) {
      if (th.dataset.sort === by) th.setAttribute("aria-sort", down ? "descending" : "ascending");
      else th.removeAttribute("aria-sort");
    }
  };
  filter.addEventListener("input", update);
  for (const th of table.querySelectorAll("[data-sort]")) {
    th.querySelector("button").addEventListener("click", () => {
      down = by === th.dataset.sort ? !down : !["verdict", "name"].includes(th.dataset.sort);
      by = th.dataset.sort;
      update();
    });
  }
  const chips = [...document.querySelectorAll(".chip")];
  for (const chip of chips) {
    chip.addEventListener("click", () => {
      show = chip.dataset.show;
      for (const c of chips) c.setAttribute("aria-pressed", String(c === chip));
      update();
    });
  }
  update();
}
