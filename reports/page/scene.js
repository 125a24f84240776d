// scene: where things stand. A view has a window of time [from, to], a level of
// row height and a scroll position; the rest follows.

const levels = [
  ...[2, 3, 4, 6, 9, 13].map((size) => ({ heat: true, size })),
  ...[3, 4, 5, 6, 8, 10, 12, 15, 19].map((size) => ({ heat: false, size })),
];

function newView(s, width) {
  const v = { s, from: 0, to: s.end, scroll: 0, level: 0, width, hover: null, pin: -1, cross: null, dirty: true };
  v.faults = packFaults(s);
  v.heatOnly = Boolean(s.p.heat);
  v.room = clamp(innerHeight - 360, 380, 760);
  v.level = bestLevel(v);
  arrange(v);
  return v;
}

// bestLevel is the largest level that fits; occupancy when even thin lanes
// would need much scrolling.
function bestLevel(v) {
  const fits = (l, room) => total(v, levels[l]) <= room;
  for (let l = levels.length - 2; l >= 6 && !v.heatOnly; l--) if (fits(l, v.room)) return l;
  if (!v.heatOnly && fits(6, v.room * 1.8)) return 6;
  for (let l = 5; l > 0; l--) if (fits(l, v.room)) return l;
  return 0;
}

function total(v, level) {
  let y = 0;
  for (let i = 0; i < v.s.p.hosts.length; i++) y += gap(v, i, level) + rowHeight(v, i, level);
  return y + 4;
}

const rowHeight = (v, i, level) => level.heat ? level.size : Math.max(v.s.p.lanes[i], 2) * level.size + (level.size > 4 ? 6 : 4);

function gap(v, i, level) {
  if (i === 0) return level.heat ? 2 : 3;
  const a = v.s.p.hosts[i - 1], b = v.s.p.hosts[i];
  if (a[1] !== b[1]) return 8;
  if (a[2] !== b[2]) return level.heat ? 3 : 5;
  return level.heat ? (level.size > 4 ? 1 : 0) : 2;
}

// arrange computes all that depends on width and level.
function arrange(v) {
  const p = v.s.p;
  v.heat = levels[v.level].heat;
  v.lane = levels[v.level].size;
  v.tops = [];
  v.heights = [];
  let y = 0;
  for (let i = 0; i < p.hosts.length; i++) {
    y += gap(v, i, levels[v.level]);
    v.tops.push(y);
    v.heights.push(rowHeight(v, i, levels[v.level]));
    y += v.heights[i];
  }
  v.full = y + 4;
  v.gutter = (v.width < 640 ? 64 : 116) + brackets(p) * 18;
  v.right = v.width - 12;
  v.axis = 22;
  v.marks = p.marks.length || v.violations && v.violations.length ? 36 : 0;
  v.faultRail = v.faults.lanes ? v.faults.lanes * 17 + 6 : 0;
  v.top = v.axis + v.marks + v.faultRail;
  v.rows = p.hosts.length ? Math.min(v.full, v.room) : 0;
  v.bottom = v.top + v.rows;
  v.flying = p.moves.length ? 38 : 0;
  v.writing = p.writes.length ? 46 : 0;
  v.height = v.bottom + v.flying + v.writing + 4;
  v.scroll = clamp(v.scroll, 0, Math.max(0, v.full - v.rows));
  v.dirty = true;
}

const xOf = (v, at) => v.gutter + (at - v.from) / (v.to - v.from) * (v.right - v.gutter);
const atOf = (v, x) => v.from + (x - v.gutter) / (v.right - v.gutter) * (v.to - v.from);
const yOf = (v, host) => v.top + v.tops[host] - v.scroll;

// laneY is the middle of a VM's lane, or of its host's row.
function laneY(v, host, lane) {
  if (v.heat || lane < 0) return yOf(v, host) + v.heights[host] / 2;
  return yOf(v, host) + 2 + (lane + 0.5) * v.lane;
}

// visible are the first and the last row that can be seen.
function visible(v) {
  let low = 0, high = v.tops.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (v.tops[mid] + v.heights[mid] < v.scroll) low = mid + 1; else high = mid;
  }
  let last = low;
  while (last + 1 < v.tops.length && v.tops[last + 1] < v.scroll + v.rows) last++;
  return v.tops.length ? [low, last] : [0, -1];
}

function hostAt(v, y) {
  if (y < v.top || y >= v.bottom) return -1;
  const [a, b] = visible(v);
  for (let i = a; i <= b; i++) {
    if (y >= yOf(v, i) - 1 && y <= yOf(v, i) + v.heights[i]) return i;
  }
  return -1;
}

// setWindow zooms and pans, within the run and no finer than 20 ms.
function setWindow(v, from, to) {
  const end = v.s.end, length = clamp(to - from, Math.min(20, end), end);
  const mid = (from + to) / 2;
  v.from = clamp(mid - length / 2, 0, end - length);
  v.to = v.from + length;
  v.dirty = true;
}

function zoom(v, factor, at) {
  const pin = at === undefined ? (v.from + v.to) / 2 : at;
  const length = clamp((v.to - v.from) * factor, 20, v.s.end);
  const share = (pin - v.from) / (v.to - v.from);
  setWindow(v, pin - share * length, pin + (1 - share) * length);
}

// packFaults gives faults lanes of their rail, six at most.
function packFaults(s) {
  const ends = [], out = [];
  const room = s.end * 0.16; // for the words of a short one
  s.p.spans.map((f, i) => [f, i]).sort((a, b) => a[0].from - b[0].from).forEach(([f]) => {
    let lane = ends.findIndex((end) => end <= f.from);
    if (lane < 0) lane = ends.length < 6 ? ends.push(0) - 1 : 5;
    ends[lane] = Math.max(f.to, f.from + room);
    out.push({ f, lane });
  });
  return { list: out, lanes: ends.length };
}

// hit is what lies under a point.
function hit(v, x, y) {
  if (x >= v.gutter - 4 && y < v.top) return railHit(v, x, y);
  const host = hostAt(v, y);
  if (x < v.gutter) return host >= 0 ? { kind: "host", host } : null;
  if (y >= v.bottom) return { kind: "time", at: atOf(v, x) };
  const m = moveAt(v, x, y);
  if (m) return { kind: "move", item: m };
  const mark = host >= 0 && markAt(v, host, x, y);
  if (mark) return { kind: "mark", item: mark };
  if (host < 0) return { kind: "time", at: atOf(v, x) };
  const at = atOf(v, x), c = v.heat ? null : copyAt(v, host, at, y);
  return c ? { kind: "copy", item: c, at } : { kind: "host", host, at };
}

// markAt is what happened on a host where its row shows it, at the row's top.
function markAt(v, host, x, y) {
  if (y > yOf(v, host) + 10) return null;
  let best = null, away = 6;
  for (const m of v.s.p.marks) {
    const d = Math.abs(xOf(v, m.at) - x);
    if (m.host === host && d <= away) { best = m; away = d; }
  }
  return best;
}

function copyAt(v, host, at, y) {
  const lane = Math.floor((y - yOf(v, host) - 2) / v.lane), slack = (v.to - v.from) / (v.right - v.gutter);
  let best = null;
  for (const c of v.s.byHost[host]) {
    if (c.lane === lane && at >= c.from - slack && at <= c.to + slack && (!best || c.from <= at)) best = c;
  }
  return best;
}

function railHit(v, x, y) {
  if (y < v.axis) return { kind: "time", at: atOf(v, x) };
  if (y < v.axis + v.marks) {
    let best = null, away = 9;
    for (const m of railMarks(v)) {
      const d = Math.min(Math.abs(xOf(v, m.at) - x), m.box && x >= m.box[0] && x <= m.box[1] && y >= m.box[2] && y <= m.box[3] ? 0 : 99);
      if (d <= away) { best = m; away = d; }
    }
    return best && { kind: best.rule ? "violation" : "mark", item: best };
  }
  const lane = Math.floor((y - v.axis - v.marks - 2) / 17);
  for (const { f, lane: l } of v.faults.list) {
    if (l === lane && x >= xOf(v, f.from) - 3 && x <= Math.max(xOf(v, f.to), xOf(v, f.from) + 60)) return { kind: "fault", item: f };
  }
  return null;
}

const decided = (m) => m.kind === "decision" || m.kind === "brake";
const fewDecisions = 24;

// railMarks are violations before marks, so that their words find room first, and
// what was decided about hosts last: their rows show it too, and many leave the
// rail to the others.
function railMarks(v) {
  if (v.rail) return v.rail;
  const own = v.s.p.marks.filter(decided);
  v.rail = [...(v.violations || []).map((x) => ({ ...x, at: x.at * 1000, host: -1, kind: "violation" })), ...v.s.p.marks.filter((m) => !decided(m)), ...(own.length <= fewDecisions ? own : own.filter((m) => m.host < 0))];
  return v.rail;
}
