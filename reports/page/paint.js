// paint: rows, copies of VMs, occupancy and faults.

const patterns = new Map();

function hsl(v, vm, alpha) {
  const [hue, shift] = v.s.tints[vm], [a, b, c] = hues[hue];
  return `hsla(${a},${b}%,${c + shift + theme.lift}%,${alpha})`;
}

// pattern is a tile of stripes in a colour: slanted for paused, upright for
// post-copy, dots for a state the page does not know.
function pattern(ctx, kind, color) {
  const key = kind + color + devicePixelRatio;
  if (patterns.has(key)) return patterns.get(key);
  const d = Math.max(1, Math.round(devicePixelRatio)), n = 6 * d;
  const tile = h("canvas");
  tile.width = tile.height = n;
  const t = tile.getContext("2d");
  t.strokeStyle = t.fillStyle = color;
  t.globalAlpha = 0.22;
  t.fillRect(0, 0, n, n);
  t.globalAlpha = 1;
  t.lineWidth = 1.7 * d;
  t.beginPath();
  if (kind === "paused") for (const o of [-n, 0, n]) { t.moveTo(o - d, n + d); t.lineTo(o + n + d, -d); }
  if (kind === "post-copy") { t.moveTo(n / 4, 0); t.lineTo(n / 4, n); t.moveTo(n * 3 / 4, 0); t.lineTo(n * 3 / 4, n); }
  t.stroke();
  if (kind === "other") for (const o of [1, 4]) t.fillRect(o * d, o * d, 1.6 * d, 1.6 * d);
  const p = ctx.createPattern(tile, "repeat");
  p.setTransform(new DOMMatrix().scale(1 / d));
  patterns.set(key, p);
  return p;
}

function paintRows(ctx, v) {
  const [a, b] = visible(v), p = v.s.p;
  for (let i = a; i <= b; i++) {
    const y = yOf(v, i);
    ctx.fillStyle = i === v.crossHost ? theme.line : theme.alt;
    ctx.globalAlpha = i === v.crossHost ? 0.55 : 1;
    ctx.fillRect(v.gutter, y, v.right - v.gutter, v.heights[i]);
    ctx.globalAlpha = 1;
  }
  paintTicks(ctx, v);
  if (!v.heat) paintFaults(ctx, v, a, b);
  if (v.heat) paintHeat(ctx, v, a, b);
  else for (let i = a; i <= b; i++) for (const c of v.s.byHost[i]) paintCopy(ctx, v, c);
  for (const m of p.marks) {
    if (m.host < a || m.host > b) continue;
    const x = xOf(v, m.at), y = yOf(v, m.host);
    ctx.fillStyle = markColor(m);
    ctx.fillRect(x - 0.75, y, 1.5, v.heights[m.host]);
    if (!v.heat) glyph(ctx, m.kind, x, y + 4, 3.4);
  }
}

// paintHeat keeps what it drew: while only the pointer moves, hundreds of rows
// stay as they are.
function paintHeat(ctx, v, a, b) {
  const d = devicePixelRatio || 1, key = [v.from, v.to, v.scroll, v.level, v.width, v.top, v.rows, d, theme.back].join();
  if (v.kept !== key) {
    v.kept = key;
    v.layer = v.layer || h("canvas");
    v.layer.width = Math.round(v.width * d);
    v.layer.height = Math.round(v.height * d);
    const own = v.layer.getContext("2d");
    own.setTransform(d, 0, 0, d, 0, 0);
    for (let i = a; i <= b; i++) (v.s.p.heat ? paintSlices : paintOccupancy)(own, v, i);
    paintFaults(own, v, a, b);
  }
  ctx.drawImage(v.layer, 0, 0, v.layer.width / d, v.layer.height / d);
}

function paintFaults(ctx, v, a, b) {
  for (const f of v.s.p.spans) {
    const x = Math.max(xOf(v, f.from), v.gutter), to = Math.min(Math.max(xOf(v, f.to), xOf(v, f.from) + 1.5), v.right);
    if (to < v.gutter || x > v.right) continue;
    if (!f.hosts) {
      ctx.fillStyle = `rgba(${theme.fleet},.10)`;
      ctx.fillRect(x, v.top, to - x, v.rows);
      ctx.fillStyle = `rgba(${theme.fleet},.55)`;
      ctx.fillRect(x, v.top, 1, v.rows);
      ctx.fillRect(to - 1, v.top, 1, v.rows);
      continue;
    }
    for (const host of f.hosts) {
      if (host < a || host > b) continue;
      const y = yOf(v, host), tall = v.heights[host];
      ctx.fillStyle = `rgba(${theme.fault},${v.heat ? 0.3 : 0.2})`;
      ctx.fillRect(x, y, to - x, tall);
      ctx.fillStyle = pattern(ctx, "paused", `rgba(${theme.fault},.28)`);
      ctx.fillRect(x, y, to - x, tall);
      if (tall > 8) {
        ctx.fillStyle = `rgba(${theme.fault},.9)`;
        ctx.fillRect(x, y, 1.5, tall);
        ctx.fillRect(to - 1.5, y, 1.5, tall);
      }
    }
  }
}

function paintCopy(ctx, v, c) {
  if (c.to < v.from || c.from > v.to) return;
  const x = Math.max(xOf(v, c.from), v.gutter - 4), to = Math.min(xOf(v, c.to), v.right + 4);
  const wide = Math.max(to - x, 1.2), y = yOf(v, c.host) + 2 + c.lane * v.lane, tall = v.lane - (v.lane > 5 ? 1.5 : 1);
  const dim = v.pin >= 0 && v.pin !== c.vm, lit = v.pin === c.vm || v.hover === c.vm;
  ctx.globalAlpha = dim ? 0.22 : 1;
  const solid = hsl(v, c.vm, 1);
  const round = Math.min(2.5, tall / 3, wide / 3);
  ctx.beginPath();
  ctx.roundRect(x, y, wide, tall, round);
  switch (c.state) {
    case "running": ctx.fillStyle = solid; ctx.fill(); break;
    case "paused": ctx.fillStyle = pattern(ctx, "paused", solid); ctx.fill(); break;
    case "incoming": ctx.fillStyle = hsl(v, c.vm, 0.1); ctx.fill(); outline(ctx, solid, x, y, wide, tall, 1.2); break;
    case "post-copy": ctx.fillStyle = pattern(ctx, "post-copy", solid); ctx.fill(); break;
    default: ctx.fillStyle = pattern(ctx, "other", solid); ctx.fill();
  }
  if (c.pulls) {
    const from = Math.max(xOf(v, c.pulls[0]), x), until = Math.min(xOf(v, c.pulls[1]), to);
    ctx.fillStyle = theme.back;
    ctx.fillRect(from, y, Math.max(until - from, 1), tall);
    ctx.fillStyle = pattern(ctx, "post-copy", solid);
    ctx.fillRect(from, y, Math.max(until - from, 1), tall);
  }
  if (lit) outline(ctx, theme.ink, x, y, wide, tall, 1.4);
  if (c.twice) outline(ctx, theme.fail, x - 1, y - 1, wide + 2, tall + 2, 2.4);
  if (v.lane >= 12 && wide > 34 && c.state === "running") label(ctx, v, c, x, y, wide, tall);
  ctx.globalAlpha = 1;
}

function outline(ctx, color, x, y, wide, tall, line) {
  ctx.strokeStyle = color;
  ctx.lineWidth = line;
  ctx.strokeRect(x + line / 2, y + line / 2, Math.max(wide - line, 0.5), Math.max(tall - line, 0.5));
}

function label(ctx, v, c, x, y, wide, tall) {
  const name = v.s.p.vms[c.vm][0];
  ctx.font = "600 " + Math.min(v.lane - 3.5, 11) + "px " + sans;
  const left = Math.max(x, v.gutter) + 5;
  if (left + ctx.measureText(name).width + 4 > x + wide) return;
  ctx.fillStyle = readable(v, c.vm);
  ctx.textBaseline = "middle";
  ctx.fillText(name, left, y + tall / 2 + 0.5);
}

// readable is black or white, whichever stands out more from a VM's colour.
function readable(v, vm) {
  const [hue, shift] = v.s.tints[vm], [a, b, c] = hues[hue], light = (c + shift + theme.lift) / 100, s = b / 100;
  const channel = (n) => {
    const k = (n + a / 30) % 12, x = light - s * Math.min(light, 1 - light) * Math.max(-1, Math.min(k - 3, 9 - k, 1));
    return x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
  };
  return 0.2126 * channel(0) + 0.7152 * channel(8) + 0.0722 * channel(4) > 0.19 ? "#10161c" : "#fff";
}

function ramp(share) {
  const [a, b] = theme.heat, mix = (i) => a[i] + (b[i] - a[i]) * share;
  return `hsl(${mix(0)},${mix(1)}%,${mix(2)}%)`;
}

const shades = new Map();
function shade(n, max) {
  const step = Math.round(clamp(n / Math.max(max, 1), 0, 1) * 40), key = theme.back + step;
  if (!shades.has(key)) shades.set(key, ramp(0.12 + 0.88 * step / 40));
  return shades.get(key);
}

// paintSlices draws occupancy that was counted when the page was made.
function paintSlices(ctx, v, i) {
  const heat = v.s.p.heat, y = yOf(v, i);
  let at = 0;
  for (let k = 0; k < heat.rows[i].length; k += 2) {
    const from = at;
    at += heat.rows[i][k] * heat.slice;
    const n = heat.rows[i][k + 1];
    if (!n || at < v.from || from > v.to) continue;
    const x = Math.max(xOf(v, from), v.gutter);
    ctx.fillStyle = shade(n, heat.max);
    ctx.fillRect(x, y, Math.min(xOf(v, Math.min(at, v.s.end)), v.right) - x + 0.3, v.heights[i]);
  }
}

// paintOccupancy counts a row's VMs for each column of pixels.
function paintOccupancy(ctx, v, i) {
  const columns = Math.ceil((v.right - v.gutter) / 2), steps = new Int16Array(columns + 1), y = yOf(v, i);
  for (const c of v.s.byHost[i]) {
    if (c.state === "incoming" || c.to <= v.from || c.from >= v.to) continue;
    const a = clamp(Math.round((xOf(v, c.from) - v.gutter) / 2), 0, columns), b = clamp(Math.round((xOf(v, c.to) - v.gutter) / 2), 0, columns);
    steps[a]++;
    steps[b]--;
  }
  let n = 0, start = 0;
  for (let k = 0; k <= columns; k++) {
    if (steps[k] === 0 && k < columns) continue;
    if (n > 0) {
      ctx.fillStyle = shade(n, v.most);
      ctx.fillRect(v.gutter + start * 2, y, (k - start) * 2, v.heights[i]);
    }
    n += steps[k];
    start = k;
  }
}

// most is the most lanes of a host, which is the most VMs it had at once.
const mostOf = (p) => p.lanes.reduce((a, b) => Math.max(a, b), 1);

// paintGutter names zones, racks and hosts, over whatever reached under it.
function paintGutter(ctx, v) {
  const [a, b] = visible(v), p = v.s.p;
  ctx.fillStyle = theme.back;
  ctx.fillRect(0, v.top - 1, v.gutter - 1, v.rows + 2);
  ctx.textBaseline = "middle";
  v.named = 8 + brackets(p) * 18;
  ctx.save();
  ctx.beginPath();
  ctx.rect(0, v.top, v.gutter, v.rows);
  ctx.clip();
  let lastName = -99;
  for (let i = a; i <= b; i++) {
    const y = clamp(yOf(v, i) + v.heights[i] / 2, v.top + 7, v.bottom - 7);
    if (y - lastName < 11 && i !== v.crossHost) continue;
    if (i === v.crossHost) { ctx.fillStyle = theme.back; ctx.fillRect(v.named, y - 8, v.gutter - v.named - 2, 16); }
    lastName = y;
    ctx.font = (i === v.crossHost ? "650 " : "") + "11.5px " + sans;
    ctx.fillStyle = i === v.crossHost ? theme.accent : theme.ink;
    ctx.textAlign = "right";
    ctx.fillText(fit(ctx, p.hosts[i][0], v.gutter - v.named - 10), v.gutter - 8, y);
  }
  ctx.textAlign = "left";
  let x = 0;
  for (const of of [1, 2]) {
    if (!p.hosts.some((host) => host[of])) continue;
    for (let i = a; i <= b;) {
      let last = i;
      while (last + 1 <= b && p.hosts[last + 1][1] === p.hosts[i][1] && (of === 1 || p.hosts[last + 1][2] === p.hosts[i][2])) last++;
      const y = Math.max(yOf(v, i), v.top), tall = Math.min(yOf(v, last) + v.heights[last], v.bottom) - y;
      if (p.hosts[i][of]) bracket(ctx, p.hosts[i][of], x, y, tall);
      i = last + 1;
    }
    x += 18;
  }
  ctx.restore();
}

// brackets are how many columns of zones and racks there are.
const brackets = (p) => [1, 2].filter((of) => p.hosts.some((host) => host[of])).length;

function bracket(ctx, text, x, y, tall) {
  ctx.fillStyle = theme.strong;
  ctx.fillRect(x + 18, y, 2, tall);
  ctx.font = "600 10.5px " + sans;
  if (tall < 16) return;
  const short = fit(ctx, text, tall - 2);
  ctx.save();
  ctx.translate(x + 10, y + tall / 2);
  ctx.rotate(-Math.PI / 2);
  ctx.textAlign = "center";
  ctx.fillStyle = theme.soft;
  ctx.fillText(short, 0, 0);
  ctx.restore();
}

const widths = new Map();
function fit(ctx, text, room) {
  const key = ctx.font + "|" + Math.round(room) + "|" + text;
  if (widths.has(key)) return widths.get(key);
  let out = text;
  if (ctx.measureText(text).width > room) {
    let n = text.length;
    // The end of a host's name tells it from its neighbours.
    while (n > 2 && ctx.measureText("…" + text.slice(-n)).width > room) n--;
    out = "…" + text.slice(-n);
  }
  if (widths.size > 20000) widths.clear();
  widths.set(key, out);
  return out;
}
