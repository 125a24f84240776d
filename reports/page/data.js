// data: what the page carries.

const runs = JSON.parse(byId("runs").textContent);
const firsts = new Map(); // the first run of a scenario says what it is about
for (const r of runs) {
  r.failed = r.verdict === "fail";
  if (!firsts.has(r.scenario)) firsts.set(r.scenario, r);
}

const link = (r) => "#/" + [r.scenario, r.seed, r.mode].map(encodeURIComponent).join("/");
const words = { pass: "passed", fail: "failed", notrun: "not run" };

function findRun(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  let parts;
  try { parts = path.split("/").map(decodeURIComponent); } catch { return {}; }
  const [scenario, seed, mode] = parts;
  const index = runs.findIndex((r) => r.scenario === scenario && (seed === undefined || r.seed === seed) && (mode === undefined || r.mode === mode));
  const t = /(?:^|&)t=([\d.]+)-([\d.]+)/.exec(query || "");
  return { index, window: t && +t[2] > +t[1] ? [t[1] * 1000, t[2] * 1000] : null };
}

function details(index) {
  const e = byId("run-" + index);
  return e && JSON.parse(e.textContent);
}

// Colours of the Okabe-Ito and Tol schemes, which most colour-blind people
// can tell apart. Red is kept for what went wrong, amber for faults.
const hues = [[211, 48, 49], [158, 52, 40], [275, 32, 56], [47, 62, 46], [193, 56, 50], [322, 36, 55], [90, 34, 42], [232, 38, 62], [20, 42, 50], [175, 30, 36]];

const themes = {
  light: { back: "#ffffff", alt: "#f8f6f1", ink: "#1c2630", soft: "#5a6572", line: "#e4e0d6", strong: "#bdb6a6", fail: "#c5221a", fault: "224,142,11", fleet: "110,95,150", move: "#17212b", halo: "rgba(255,255,255,.75)", accent: "#1f5f99", heat: [[207, 42, 90], [213, 46, 43]], lift: 0 },
  dark: { back: "#181f27", alt: "#1c242d", ink: "#e6eaee", soft: "#9aa7b4", line: "#2a333d", strong: "#4a5766", fail: "#ff6b5e", fault: "240,170,60", fleet: "165,150,215", move: "#f3f6f9", halo: "rgba(17,22,28,.7)", accent: "#7db8ea", heat: [[213, 26, 24], [207, 58, 62]], lift: 6 },
};
let theme = themes.light;

// scene is a picture's data, ready to be drawn and searched.
function scene(p) {
  const s = { p, end: Math.max(p.end, 1), copies: [], byHost: p.hosts.map(() => []), byVM: p.vms.map(() => []) };
  for (let i = 0; i < p.copies.length; i += 6) {
    const [vm, host, lane, from, length, state] = p.copies.slice(i, i + 6);
    const c = { vm, host, lane, from, to: from + length, state: p.states[state] };
    s.copies.push(c);
    s.byHost[host].push(c);
    s.byVM[vm].push(c);
  }
  for (const m of p.moves) {
    m.name = m.vm >= 0 ? p.vms[m.vm][0] : m.name;
    if (m.mode === "post-copy" && m.sw && m.vm >= 0) {
      for (const c of s.byVM[m.vm]) {
        if (c.host === m.to && c.to > m.sw && c.from < m.end) c.pulls = [Math.max(m.sw, c.from), Math.min(m.end, c.to)];
      }
    }
  }
  s.tints = tints(p);
  s.groups = groupsOf(p);
  s.copiesTwice = findTwice(s);
  s.notable = notable(p);
  return s;
}

const stem = (vm) => vm[1] || vm[0].replace(/[-_.]?\d+$/, "") || vm[0];

// groupsOf are the groups with their hues: by hash, and the next free one when
// two groups meet.
function groupsOf(p) {
  const names = [...new Set(p.vms.map(stem))].sort(), taken = new Set(), out = new Map();
  for (const name of names) {
    let n = hash(name) % hues.length;
    for (let i = 0; i < hues.length && taken.has(n); i++) n = (n + 1) % hues.length;
    if (taken.size < hues.length) taken.add(n);
    out.set(name, n);
  }
  return out;
}

// tints are each VM's hue and lightness; neighbours of a group differ a little.
function tints(p) {
  const groups = groupsOf(p);
  return p.vms.map((vm) => [groups.get(stem(vm)), (hash(vm[0]) % 5 - 2) * 4.5]);
}

// findTwice finds VMs that ran on two hosts at once.
function findTwice(s) {
  const out = [];
  s.byVM.forEach((all, vm) => {
    const running = all.filter((c) => c.state === "running").sort((a, b) => a.from - b.from);
    let last = null;
    for (const c of running) {
      if (last && last.host !== c.host && c.from < last.to) {
        out.push({ vm, hosts: [last.host, c.host], from: c.from, to: Math.min(last.to, c.to) });
        last.twice = c.twice = true;
      }
      if (!last || c.to > last.to) last = c;
    }
  });
  return out.sort((a, b) => a.from - b.from);
}

// notable are the moments that the keys N and P step through.
function notable(p) {
  const out = [];
  for (const m of p.marks) out.push({ at: m.at, kind: "mark", item: m });
  for (const f of p.spans) out.push({ at: f.from, kind: "fault", item: f });
  for (const m of p.moves) out.push({ at: m.start, kind: "move", item: m });
  return out.sort((a, b) => a.at - b.at);
}
