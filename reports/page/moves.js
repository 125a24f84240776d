// moves: migrations as curves between rows.

const bad = (m) => m.result !== "completed" && m.result !== "running";

// curve is a migration's path on the screen: from the source's lane when it
// began to the target's lane when it took over. One that came to nothing goes
// out and returns.
function curve(v, m) {
  if (m.from < 0 || m.to < 0) return null;
  const x = xOf(v, m.start), y = laneY(v, m.from, m.fl), ty = laneY(v, m.to, m.tl);
  if (bad(m) && !m.sw) {
    const end = xOf(v, m.end), top = y + (ty - y) * 4 / 3;
    return [x, y, x + (end - x) * 0.1, top, end - (end - x) * 0.1, top, end, y];
  }
  const end = xOf(v, m.sw || m.end), mid = (x + end) / 2;
  return [x, y, mid, y, mid, ty, end, ty];
}

function point(c, t) {
  const u = 1 - t, a = u * u * u, b = 3 * u * u * t, d = 3 * u * t * t, e = t * t * t;
  return [a * c[0] + b * c[2] + d * c[4] + e * c[6], a * c[1] + b * c[3] + d * c[5] + e * c[7]];
}

function seen(v, m, c) {
  if (!c || Math.max(m.end, m.sw || 0) < v.from || m.start > v.to) return false;
  const ty = laneY(v, m.to, m.tl);
  return Math.max(c[1], ty) >= v.top && Math.min(c[1], ty) <= v.bottom;
}

function paintMoves(ctx, v) {
  const all = [];
  for (const m of v.s.p.moves) {
    const c = curve(v, m);
    if (seen(v, m, c)) all.push([m, c]);
  }
  v.curves = all;
  const crowded = all.length > (v.heat ? 60 : 250), faint = clamp(260 / all.length, 0.12, 0.8);
  for (const pass of [0, 1, 2]) {
    for (const [m, c] of all) {
      const lit = v.hoverMove === m || m.vm >= 0 && (m.vm === v.pin || m.vm === v.hover);
      if (pass !== (lit ? 2 : bad(m) ? 1 : 0)) continue;
      const dim = v.pin >= 0 && m.vm !== v.pin;
      ctx.globalAlpha = dim ? 0.1 : lit ? 1 : bad(m) ? 0.95 : crowded ? faint : 0.82;
      paintMove(ctx, v, m, c, lit, crowded);
    }
  }
  ctx.globalAlpha = 1;
}

function paintMove(ctx, v, m, c, lit, crowded) {
  const color = bad(m) ? theme.fail : lit ? theme.accent : theme.move;
  const line = lit ? 2.4 : crowded ? 0.9 : bad(m) ? 2.2 : 1.25;
  const draw = () => { ctx.beginPath(); ctx.moveTo(c[0], c[1]); ctx.bezierCurveTo(c[2], c[3], c[4], c[5], c[6], c[7]); ctx.stroke(); };
  if (!crowded || lit) {
    ctx.strokeStyle = theme.halo;
    ctx.lineWidth = line + (bad(m) ? 1.4 : 2.4);
    draw();
  }
  ctx.strokeStyle = ctx.fillStyle = color;
  ctx.lineWidth = line;
  ctx.setLineDash(bad(m) ? [7, 4] : m.mode === "cold" ? [1.5, 3] : []);
  draw();
  ctx.setLineDash([]);
  if (crowded && !lit) return;
  dot(ctx, c[0], c[1], 2);
  if (bad(m) && !m.sw) {
    const [x, y] = point(c, 0.5);
    ctx.lineWidth = 2;
    ctx.beginPath();
    ctx.moveTo(x - 4, y - 4); ctx.lineTo(x + 4, y + 4); ctx.moveTo(x + 4, y - 4); ctx.lineTo(x - 4, y + 4);
    ctx.stroke();
    return;
  }
  arrow(ctx, c);
  if (m.sw) { // the tick of the switch-over
    ctx.fillRect(c[6] - 0.8, c[7] - 6, 1.6, 12);
    if (m.end > m.sw) { // pulls the rest after it
      ctx.lineWidth = line;
      ctx.beginPath();
      ctx.moveTo(c[6], c[7]);
      ctx.lineTo(xOf(v, m.end), c[7]);
      ctx.stroke();
    }
  }
}

function dot(ctx, x, y, r) {
  ctx.beginPath();
  ctx.arc(x, y, r, 0, 7);
  ctx.fill();
}

function arrow(ctx, c) {
  const [x, y] = point(c, 0.9), a = Math.atan2(c[7] - y, c[6] - x), size = 6.5;
  ctx.beginPath();
  ctx.moveTo(c[6], c[7]);
  ctx.lineTo(c[6] - size * Math.cos(a - 0.42), c[7] - size * Math.sin(a - 0.42));
  ctx.lineTo(c[6] - size * Math.cos(a + 0.42), c[7] - size * Math.sin(a + 0.42));
  ctx.fill();
}

function moveAt(v, x, y) {
  let best = null, away = 25; // 5 pixels
  for (const [m, c] of v.curves || []) {
    if (x < Math.min(c[0], c[6]) - 6 || x > Math.max(c[0], c[6]) + 6) continue;
    let [px, py] = [c[0], c[1]];
    for (let t = 1; t <= 24; t++) {
      const [qx, qy] = point(c, t / 24), d = near(x, y, px, py, qx, qy);
      if (d < away) { best = m; away = d; }
      px = qx;
      py = qy;
    }
  }
  return best;
}

// near is the squared distance of a point from a line.
function near(x, y, ax, ay, bx, by) {
  const dx = bx - ax, dy = by - ay, t = clamp(((x - ax) * dx + (y - ay) * dy) / (dx * dx + dy * dy || 1), 0, 1);
  return (x - ax - t * dx) ** 2 + (y - ay - t * dy) ** 2;
}
