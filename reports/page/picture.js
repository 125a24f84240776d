// picture: the canvas of one run, and what pointer, wheel and keys do to it.

function picture(p, violations, window_) {
  const s = scene(p);
  const main = h("canvas", { class: "main", tabindex: 0, role: "img", "aria-label": spoken(p) + " Keys: arrows pan and scroll, plus and minus zoom, 0 shows all, N and P step through what happened." });
  const mini = h("canvas", { class: "mini", "aria-hidden": "true" });
  const stage = h("div", { class: "stage" }, main, mini);
  const miniTall = 38;
  let v = null;

  const draw = () => {
    if (!v || !v.dirty || !stage.isConnected) return;
    v.dirty = false;
    if (v.kind !== v.heat && it.onkind) it.onkind(v.kind = v.heat);
    v.most = mostOf(p);
    size(main, v.width, v.height, (ctx) => paint(ctx, v));
    size(mini, v.width, miniTall, (ctx) => paintMini(ctx, v, miniTall));
  };
  let asked = 0;
  const redraw = () => {
    v.dirty = true;
    if (!asked) asked = requestAnimationFrame(() => { asked = 0; draw(); });
  };
  const resize = () => {
    const width = stage.clientWidth;
    if (!width) return;
    if (!v) {
      v = newView(s, width);
      v.violations = violations;
      if (window_) setWindow(v, window_[0], window_[1]);
    }
    v.width = width;
    arrange(v);
    v.dirty = true;
    draw();
  };
  new ResizeObserver(resize).observe(stage);

  const it = {
    stage, scene: s, resize,
    draw: () => { if (v) { v.dirty = true; draw(); } },
    zoom: (factor) => { zoom(v, factor, v.cross === null ? undefined : v.cross); changed(); },
    reset: () => { v.pin = -1; setWindow(v, 0, s.end); changed(); },
    taller: (by) => {
      const low = 0, high = v.heatOnly ? 5 : levels.length - 1, middle = (v.scroll + v.rows / 2) / v.full;
      v.level = clamp(v.level + by, low, high);
      arrange(v);
      v.scroll = clamp(middle * v.full - v.rows / 2, 0, Math.max(0, v.full - v.rows));
      redraw();
    },
    goTo: (from, to, host) => {
      const pad = Math.max((to - from) * 0.6, s.end / 60);
      setWindow(v, from - pad, to + pad);
      v.cross = from;
      if (host >= 0) scrollTo(host);
      changed();
      main.focus({ preventScroll: true });
      stage.scrollIntoView({ block: "nearest" });
    },
    pin: (vm) => {
      v.pin = vm;
      const c = vm >= 0 && s.byVM[vm][0];
      if (c) scrollTo(c.host);
      redraw();
    },
    showHost: (host) => { v.crossHost = host; scrollTo(host); redraw(); },
    onwindow: null,
    onkind: null,
  };
  const scrollTo = (host) => { v.scroll = clamp(v.tops[host] + v.heights[host] / 2 - v.rows / 2, 0, Math.max(0, v.full - v.rows)); };
  const changed = () => {
    redraw();
    if (it.onwindow) it.onwindow(v.from, v.to, v.from <= 0 && v.to >= s.end);
  };
  listen(it, () => v, main, { redraw, changed });
  listenMini(() => v, mini, changed);
  return it;
}

// size fits a canvas to the screen's pixels and paints it.
function size(canvas, width, height, painter) {
  const d = devicePixelRatio || 1;
  const w = Math.round(width * d), t = Math.round(height * d);
  if (canvas.width !== w || canvas.height !== t) {
    canvas.width = w;
    canvas.height = t;
    canvas.style.height = height + "px";
  }
  const ctx = canvas.getContext("2d");
  ctx.setTransform(d, 0, 0, d, 0, 0);
  painter(ctx);
}

function paint(ctx, v) {
  ctx.fillStyle = theme.back;
  ctx.fillRect(0, 0, v.width, v.height);
  if (v.rows) {
    ctx.save();
    ctx.beginPath();
    ctx.rect(v.gutter, v.top, v.right - v.gutter, v.rows);
    ctx.clip();
    paintRows(ctx, v);
    paintMoves(ctx, v);
    ctx.restore();
  }
  paintStrips(ctx, v);
  if (v.rows) paintGutter(ctx, v);
  paintAxis(ctx, v);
  ctx.fillStyle = theme.back;
  ctx.fillRect(0, v.axis, v.width, v.top - v.axis);
  paintMarks(ctx, v);
  paintFaultRail(ctx, v);
  ctx.fillStyle = theme.strong;
  ctx.fillRect(v.gutter - 1, v.axis, 1, v.height - v.axis - 4);
  if (v.full > v.rows && v.rows) { // how far the rows are scrolled
    const tall = Math.max(v.rows * v.rows / v.full, 18);
    ctx.fillStyle = theme.strong;
    ctx.beginPath();
    ctx.roundRect(v.width - 8, v.top + v.scroll / (v.full - v.rows) * (v.rows - tall), 5, tall, 2.5);
    ctx.fill();
  }
  if (v.cross !== null && v.cross >= v.from && v.cross <= v.to) {
    const x = xOf(v, v.cross), text = clock(v.cross, v.to - v.from < 120e3);
    ctx.fillStyle = theme.accent;
    ctx.fillRect(x - 0.5, v.axis, 1, v.height - v.axis - 4);
    ctx.font = "600 11px " + sans;
    const wide = ctx.measureText(text).width + 12, left = clamp(x - wide / 2, v.gutter - 4, v.width - wide);
    ctx.beginPath();
    ctx.roundRect(left, 2, wide, 19, 4);
    ctx.fill();
    ctx.fillStyle = theme.back;
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    ctx.fillText(text, left + 6, 12);
  }
}

// listen binds the main canvas.
function listen(it, view, canvas, { redraw, changed }) {
  let press = null;
  const at = (e) => { const r = canvas.getBoundingClientRect(); return [e.clientX - r.left, e.clientY - r.top]; };

  canvas.addEventListener("pointerdown", (e) => {
    if (e.button) return;
    const v = view(), [x, y] = at(e);
    press = { x, y, from: v.from, to: v.to, scroll: v.scroll, moved: false, pick: e.shiftKey };
    canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener("pointermove", (e) => {
    const v = view(), [x, y] = at(e);
    if (press && Math.hypot(x - press.x, y - press.y) > 4) press.moved = true;
    if (press && press.moved && !press.pick) {
      canvas.classList.add("drag");
      const by = (x - press.x) / (v.right - v.gutter) * (press.to - press.from);
      setWindow(v, press.from - by, press.to - by);
      v.scroll = clamp(press.scroll - (y - press.y), 0, Math.max(0, v.full - v.rows));
      tip(null);
      changed();
      return;
    }
    hover(v, x, y, e.clientX, e.clientY);
    redraw();
  });
  canvas.addEventListener("pointerup", (e) => {
    const v = view(), [x, y] = at(e), was = press;
    press = null;
    canvas.classList.remove("drag");
    if (!was) return;
    if (was.moved && was.pick) {
      const a = atOf(v, Math.min(x, was.x)), b = atOf(v, Math.max(x, was.x));
      setWindow(v, a, b);
      changed();
    } else if (!was.moved) {
      const found = hit(v, x, y), vm = found && (found.kind === "copy" ? found.item.vm : found.kind === "move" ? found.item.vm : -1);
      v.pin = found && vm >= 0 && vm !== v.pin ? vm : -1;
      redraw();
    }
  });
  canvas.addEventListener("pointerleave", () => {
    const v = view();
    if (!v) return;
    v.cross = v.hover = v.hoverMove = v.hoverFault = null;
    v.crossHost = -1;
    tip(null);
    redraw();
  });
  canvas.addEventListener("dblclick", (e) => { const v = view(); zoom(v, e.shiftKey ? 2.5 : 0.4, atOf(v, at(e)[0])); changed(); });
  canvas.addEventListener("wheel", (e) => {
    const v = view(), [x] = at(e), unit = e.deltaMode ? 16 : 1;
    if (e.ctrlKey || e.metaKey || e.altKey) {
      zoom(v, Math.exp(clamp(e.deltaY * unit, -120, 120) * 0.004), atOf(v, x));
    } else if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
      const by = (e.deltaX || e.deltaY) * unit / (v.right - v.gutter) * (v.to - v.from);
      setWindow(v, v.from + by, v.to + by);
    } else {
      const to = clamp(v.scroll + e.deltaY * unit, 0, Math.max(0, v.full - v.rows));
      if (to === v.scroll) return; // the page's turn
      v.scroll = to;
    }
    e.preventDefault();
    changed();
  }, { passive: false });
  canvas.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const v = view(), by = (v.to - v.from) * 0.12;
    const keys = {
      ArrowLeft: () => setWindow(v, v.from - by, v.to - by), ArrowRight: () => setWindow(v, v.from + by, v.to + by),
      ArrowUp: () => { v.scroll = Math.max(0, v.scroll - 40); }, ArrowDown: () => { v.scroll = Math.min(Math.max(0, v.full - v.rows), v.scroll + 40); },
      "+": () => zoom(v, 0.6), "=": () => zoom(v, 0.6), "-": () => zoom(v, 1 / 0.6), 0: () => setWindow(v, 0, v.s.end), Home: () => setWindow(v, 0, v.s.end),
      n: () => step(v, 1, canvas), p: () => step(v, -1, canvas), Escape: () => { v.pin = -1; tip(null); },
    };
    const act = keys[e.key] || keys[e.key.toLowerCase()];
    if (!act) return;
    e.preventDefault();
    act();
    changed();
  });
}

// step goes to the next thing that happened and says what it is.
function step(v, by, canvas) {
  const all = v.s.notable;
  if (!all.length) return;
  v.step = v.step === undefined ? (by > 0 ? 0 : all.length - 1) : (v.step + by + all.length) % all.length;
  const n = all[v.step];
  v.cross = n.at;
  if (n.at < v.from || n.at > v.to) setWindow(v, n.at - (v.to - v.from) / 2, n.at + (v.to - v.from) / 2);
  v.hoverMove = n.kind === "move" ? n.item : null;
  v.hoverFault = n.kind === "fault" ? n.item : null;
  const r = canvas.getBoundingClientRect();
  tip(describe(v, n), r.left + xOf(v, n.at), r.top + v.top);
}

function hover(v, x, y, px, py) {
  const found = hit(v, x, y);
  v.cross = x >= v.gutter && x <= v.right ? atOf(v, x) : null;
  v.crossHost = hostAt(v, y);
  v.hover = found && found.kind === "copy" ? found.item.vm : null;
  v.hoverMove = found && found.kind === "move" ? found.item : null;
  v.hoverFault = found && found.kind === "fault" ? found.item : null;
  tip(found && describe(v, found), px, py);
}

// listenMini moves the window: grab it, or draw a new one.
function listenMini(view, canvas, changed) {
  let grip = null;
  const time = (e) => {
    const v = view(), r = canvas.getBoundingClientRect();
    return clamp((e.clientX - r.left - v.gutter) / (v.right - v.gutter), 0, 1) * v.s.end;
  };
  canvas.addEventListener("pointerdown", (e) => {
    const v = view(), at = time(e), slack = v.s.end * 0.008, whole = v.to - v.from >= v.s.end * 0.999;
    if (!whole && Math.abs(at - v.from) < slack) grip = { kind: "from", other: v.to };
    else if (!whole && Math.abs(at - v.to) < slack) grip = { kind: "to", other: v.from };
    else if (!whole && at > v.from && at < v.to) grip = { kind: "pan", off: at - v.from };
    else grip = { kind: "new", other: at };
    canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener("pointermove", (e) => {
    if (!grip) return;
    const v = view(), at = time(e);
    if (grip.kind === "pan") setWindow(v, at - grip.off, at - grip.off + v.to - v.from);
    else if (Math.abs(at - grip.other) > v.s.end * 0.002) setWindow(v, Math.min(at, grip.other), Math.max(at, grip.other));
    changed();
  });
  canvas.addEventListener("pointerup", () => { grip = null; });
  canvas.addEventListener("dblclick", () => { const v = view(); setWindow(v, 0, v.s.end); changed(); });
}

// describe says in words what was found.
function describe(v, found) {
  const p = v.s.p, name = (i) => i >= 0 ? p.hosts[i][0] : "?";
  const m = found.item;
  switch (found.kind) {
    case "copy": {
      const [vm, group, uuid] = p.vms[m.vm];
      return facts(vm, [["state", m.pulls && found.at >= m.pulls[0] && found.at <= m.pulls[1] ? "post-copy (pulls memory from its source)" : m.state], ["host", name(m.host)],
        ["from – to", clock(m.from, true) + " – " + clock(m.to, true)], ["lasted", lasted(m.to - m.from)], ["group", group], ["UUID", uuid],
        ["", m.twice ? "ran on two hosts at once" : "", true], faultsAt(v, m.host, found.at)]);
    }
    case "move":
      return facts(m.name + ": " + name(m.from) + " → " + name(m.to), [["result", m.result, bad(m)], ["mode", m.mode], ["from – to", clock(m.start, true) + " – " + clock(m.end, true)], ["took", lasted(m.end - m.start)],
        ["switch-over", m.sw ? clock(m.sw, true) : "never"], ["downtime", m.down ? lasted(m.down) : ""], ["sent", m.bytes ? bytes(m.bytes) : ""], ["rounds", m.rounds || ""], ["throttle", m.throttle ? m.throttle + " %" : ""], ["error", m.error, true]]);
    case "fault":
      return facts(m.text, [["on", m.on || "the whole fleet"], ["from – to", clock(m.from, true) + " – " + clock(m.to, true)], ["lasted", lasted(m.to - m.from)]]);
    case "mark":
      return facts(m.text, [["kind", m.kind], ["at", clock(m.at, true)], ["on", m.on]]);
    case "violation":
      return facts(m.rule, [["at", clock(m.at, true)], ["seen", m.text, true]]);
    case "host": {
      const [host, zone, rack, model] = p.hosts[found.host];
      return facts(host, [["zone", zone], ["rack", rack], ["model", model], ["VMs", found.at !== undefined ? countAt(v, found.host, found.at) : ""], found.at !== undefined ? ["at", clock(found.at, true)] : ["", ""], ["decided", decidedAt(v, found.host, found.at)], faultsAt(v, found.host, found.at)]);
    }
    default: return null;
  }
}

function faultsAt(v, host, at) {
  if (at === undefined) return ["", ""];
  return ["faults", v.s.p.spans.filter((f) => at >= f.from && at <= f.to && (!f.hosts || f.hosts.includes(host))).map((f) => f.text).slice(0, 3).join("; ")];
}

// decidedAt is what was thought of a host then.
function decidedAt(v, host, at) {
  let last = "";
  for (const m of v.s.p.marks) if (m.host === host && m.at <= at && decided(m)) last = m.text;
  return last;
}

function countAt(v, host, at) {
  const heat = v.s.p.heat;
  if (!heat) return String(v.s.byHost[host].filter((c) => c.from <= at && c.to > at && c.state !== "incoming").length);
  let end = 0;
  for (let k = 0; k < heat.rows[host].length; k += 2) {
    end += heat.rows[host][k] * heat.slice;
    if (at < end) return String(heat.rows[host][k + 1]);
  }
  return "0";
}

function spoken(p) {
  const lost = p.moves.filter(bad).length;
  return `${p.hosts.length} hosts over ${lasted(p.end)} of virtual time, ${p.vms.length || "many"} VMs, ${p.totalMoves} migrations${lost ? ", " + lost + " of them not completed" : ""}, ${p.spans.length} faults.`;
}
