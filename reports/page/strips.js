// strips: the axis, the rails above the rows, the curves below them, and the
// small overview of the whole run.

const sans = getComputedStyle(document.documentElement).getPropertyValue("--sans").trim() || "sans-serif";
const steps = [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800].map((s) => s * 1000);

function ticks(v) {
  const room = (v.right - v.gutter) / 86, step = steps.find((s) => (v.to - v.from) / s <= room) || steps[steps.length - 1];
  const out = [];
  for (let at = Math.ceil(v.from / step) * step; at <= v.to; at += step) out.push(at);
  out.fine = step < 1000;
  return out;
}

function paintTicks(ctx, v) {
  ctx.fillStyle = theme.line;
  for (const at of ticks(v)) ctx.fillRect(Math.round(xOf(v, at)), v.axis, 1, v.height - v.axis);
}

function paintAxis(ctx, v) {
  ctx.fillStyle = theme.back;
  ctx.fillRect(0, 0, v.width, v.axis);
  ctx.font = "11px " + sans;
  ctx.fillStyle = theme.soft;
  ctx.textBaseline = "middle";
  const all = ticks(v);
  for (const at of all) {
    const x = xOf(v, at), text = clock(at, all.fine), half = ctx.measureText(text).width / 2;
    ctx.textAlign = "left";
    ctx.fillText(text, clamp(x - half, v.gutter - 4, v.width - 2 * half - 2), 12);
  }
}

const markColor = (m) => m.kind === "brake" ? `rgb(${theme.fault})` : m.kind === "decision" ? theme.accent : m.rule || /crash|lost|fence|panic|die|kill|power/.test(m.kind) ? theme.fail : m.kind === "action" ? theme.accent : theme.soft;

function glyph(ctx, kind, x, y, r) {
  ctx.beginPath();
  if (kind === "violation") { ctx.moveTo(x, y - r - 1); ctx.lineTo(x + r + 1, y); ctx.lineTo(x, y + r + 1); ctx.lineTo(x - r - 1, y); ctx.fill(); return; }
  if (kind === "action") { ctx.moveTo(x - r, y - r); ctx.lineTo(x + r, y - r); ctx.lineTo(x, y + r); ctx.fill(); return; }
  if (/crash|lost|fence|panic|die|kill|power/.test(kind)) {
    ctx.lineWidth = 2;
    ctx.strokeStyle = ctx.fillStyle;
    ctx.moveTo(x - r, y - r); ctx.lineTo(x + r, y + r); ctx.moveTo(x + r, y - r); ctx.lineTo(x - r, y + r);
    ctx.stroke();
    return;
  }
  if (kind === "brake") { ctx.fillRect(x - r, y - r, 2 * r, 2 * r); return; }
  if (kind === "decision") {
    ctx.lineWidth = 2;
    ctx.strokeStyle = ctx.fillStyle;
    ctx.arc(x, y, r - 0.6, 0, 7);
    ctx.stroke();
    return;
  }
  if (kind === "start" || kind === "return") { ctx.moveTo(x - r, y + r); ctx.lineTo(x + r, y + r); ctx.lineTo(x, y - r); ctx.fill(); return; }
  ctx.arc(x, y, r * 0.8, 0, 7);
  ctx.fill();
}

// paintMarks draws the rail of what was done and what happened. Words stand
// where there is room.
function paintMarks(ctx, v) {
  if (!v.marks) return;
  railName(ctx, v, "events", v.axis + 10);
  const all = railMarks(v).filter((m) => m.at >= v.from && m.at <= v.to);
  const taken = [[], []];
  ctx.font = "11px " + sans;
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  for (const m of railMarks(v)) m.box = null;
  for (const m of all) {
    const x = xOf(v, m.at), text = m.rule ? m.rule : m.text, wide = Math.min(ctx.measureText(text).width, 240);
    const left = x + wide + 12 > v.width ? x - wide - 8 : x + 8; // its words' place
    const line = taken.findIndex((boxes) => boxes.every(([a, b]) => Math.min(left, x) - 8 > b || Math.max(left + wide, x) + 8 < a));
    const y = v.axis + 10 + Math.max(line, 0) * 16;
    ctx.fillStyle = markColor(m);
    ctx.globalAlpha = m.rule ? 0.9 : 0.35;
    ctx.fillRect(x - 0.5, y, 1, m.rule ? v.bottom - y : v.axis + v.marks - y);
    ctx.globalAlpha = 1;
    glyph(ctx, m.kind, x, y, 4.2);
    if (line < 0) continue;
    taken[line].push([Math.min(left, x - 6), Math.max(left + wide, x + 6)]);
    m.box = [left - 3, left + wide + 2, y - 8, y + 8];
    ctx.fillText(cut(ctx, text, 240), left, y + 0.5);
  }
}

function cut(ctx, text, room) {
  if (ctx.measureText(text).width <= room) return text;
  let n = text.length;
  while (n > 1 && ctx.measureText(text.slice(0, n) + "…").width > room) n = Math.floor(n * 0.9);
  return text.slice(0, n) + "…";
}

function paintFaultRail(ctx, v) {
  if (!v.faultRail) return;
  const top = v.axis + v.marks + 2;
  railName(ctx, v, "faults", top + 8);
  ctx.font = "11px " + sans;
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  for (const { f, lane } of v.faults.list) {
    const x = Math.max(xOf(v, f.from), v.gutter), to = Math.min(Math.max(xOf(v, f.to), xOf(v, f.from) + 3), v.right), y = top + lane * 17;
    if (to < v.gutter || x > v.right) continue;
    const color = f.hosts ? theme.fault : theme.fleet;
    ctx.fillStyle = `rgba(${color},.26)`;
    ctx.fillRect(x, y, to - x, 15);
    ctx.fillStyle = `rgba(${color},1)`;
    ctx.fillRect(x, y, 2, 15);
    if (v.hoverFault === f) outline(ctx, theme.ink, x, y, to - x, 15, 1.2);
    const next = v.faults.list.filter((o) => o.lane === lane && o.f.from > f.from).reduce((a, o) => Math.min(a, xOf(v, o.f.from)), v.right);
    ctx.fillStyle = theme.ink;
    if (next - x > 30) ctx.fillText(cut(ctx, f.text, next - x - 10), x + 6, y + 8);
  }
}

function railName(ctx, v, text, y) {
  ctx.font = "10.5px " + sans;
  ctx.fillStyle = theme.soft;
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  ctx.fillText(text, v.gutter - 8, y);
  ctx.textAlign = "left";
}

// flying counts the migrations under way at each column.
function flying(moves, columns, from, to) {
  const out = new Float64Array(columns + 1);
  for (const m of moves) {
    if (m.end < from || m.start > to) continue;
    out[clamp(Math.round((m.start - from) / (to - from) * columns), 0, columns)]++;
    const b = Math.round((m.end - from) / (to - from) * columns);
    if (b < columns) out[Math.max(b, 0)]--;
  }
  let n = 0;
  for (let i = 0; i <= columns; i++) out[i] = n += out[i];
  return out;
}

// writing is the highest slice of each column.
function writing(writes, columns, from, to) {
  const out = new Float64Array(columns + 1);
  writes.forEach(([at, value], i) => {
    const until = i + 1 < writes.length ? writes[i + 1][0] : at + (i ? at - writes[i - 1][0] : to);
    if (until < from || at > to) return;
    const a = clamp(Math.floor((at - from) / (to - from) * columns), 0, columns), b = clamp(Math.ceil((until - from) / (to - from) * columns), a + 1, columns + 1);
    for (let c = a; c < b; c++) out[c] = Math.max(out[c], value);
  });
  return out;
}

function area(ctx, values, x, y, wide, tall, max, color, alpha) {
  ctx.beginPath();
  ctx.moveTo(x, y);
  const step = wide / (values.length - 1);
  for (let i = 0; i < values.length - 1; i++) {
    const top = y - values[i] / (max || 1) * tall;
    ctx.lineTo(x + i * step, top);
    ctx.lineTo(x + (i + 1) * step, top);
  }
  ctx.lineTo(x + wide, y);
  ctx.closePath();
  ctx.globalAlpha = alpha;
  ctx.fillStyle = color;
  ctx.fill();
  ctx.globalAlpha = 1;
}

function paintStrips(ctx, v) {
  const p = v.s.p, columns = Math.max(Math.floor((v.right - v.gutter) / 2), 1), wide = v.right - v.gutter;
  ctx.fillStyle = theme.back;
  ctx.fillRect(0, v.bottom, v.width, v.height - v.bottom);
  let y = v.bottom;
  const strip = (tall, name, values, color, unit) => {
    const max = values.reduce((a, b) => Math.max(a, b), 0);
    ctx.fillStyle = theme.line;
    ctx.fillRect(v.gutter, y + tall - 1, wide, 1);
    area(ctx, values, v.gutter, y + tall - 1, wide, tall - 9, max, color, 0.75);
    railName(ctx, v, name, y + tall / 2 - 3);
    ctx.fillStyle = theme.ink;
    ctx.font = "600 11px " + sans;
    ctx.textAlign = "right";
    ctx.fillText((v.cross !== null ? brief(values[clamp(Math.floor((xOf(v, v.cross) - v.gutter) / wide * columns), 0, columns)] || 0) : "max " + brief(max)) + unit, v.gutter - 8, y + tall / 2 + 10);
    ctx.textAlign = "left";
    y += tall;
  };
  if (v.flying) strip(v.flying, "migrating", flying(p.moves, columns, v.from, v.to), theme.move, "");
  if (v.writing) strip(v.writing, "API writes", writing(p.writes, columns, v.from, v.to), theme.accent, sliceName(p));
}

function sliceName(p) {
  return p.writes.length > 1 ? " / " + lasted(p.writes[1][0] - p.writes[0][0]) : "";
}

// paintMini draws the whole run and the window on it.
function paintMini(ctx, v, tall) {
  const p = v.s.p, wide = v.right - v.gutter, columns = Math.max(Math.floor(wide / 2), 1);
  const x = (at) => v.gutter + at / v.s.end * wide;
  ctx.fillStyle = theme.back;
  ctx.fillRect(0, 0, v.width, tall);
  ctx.fillStyle = theme.alt;
  ctx.fillRect(v.gutter, 4, wide, tall - 8);
  for (const f of p.spans) {
    ctx.fillStyle = `rgba(${f.hosts ? theme.fault : theme.fleet},.3)`;
    ctx.fillRect(x(f.from), 4, Math.max(x(f.to) - x(f.from), 2), tall - 8);
  }
  const w = writing(p.writes, columns, 0, v.s.end), m = flying(p.moves, columns, 0, v.s.end), top = (a) => a.reduce((b, c) => Math.max(b, c), 0);
  area(ctx, w, v.gutter, tall - 4, wide, tall - 12, top(w), theme.accent, 0.3);
  area(ctx, m, v.gutter, tall - 4, wide, tall - 12, top(m), theme.move, 0.45);
  ctx.fillStyle = theme.fail;
  for (const q of v.violations || []) ctx.fillRect(x(q.at * 1000) - 1, 4, 2, tall - 8);
  ctx.fillStyle = theme.back;
  ctx.globalAlpha = 0.62;
  ctx.fillRect(v.gutter, 4, x(v.from) - v.gutter, tall - 8);
  ctx.fillRect(x(v.to), 4, v.right - x(v.to), tall - 8);
  ctx.globalAlpha = 1;
  outline(ctx, theme.accent, x(v.from), 3, Math.max(x(v.to) - x(v.from), 3), tall - 6, 1.6);
  railName(ctx, v, "whole run", tall / 2);
}
