// dom: elements and words.

function h(tag, props, ...kids) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(props || {})) {
    if (v === undefined || v === null || v === false) continue;
    if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
    else if (k === "class") e.className = v;
    else e.setAttribute(k, v === true ? "" : v);
  }
  add(e, kids);
  return e;
}

function add(e, kids) {
  for (const kid of kids.flat(9)) {
    if (kid !== undefined && kid !== null && kid !== false) e.append(kid);
  }
}

function svg(tag, props, ...kids) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [k, v] of Object.entries(props || {})) e.setAttribute(k, v);
  add(e, kids);
  return e;
}

const byId = (id) => document.getElementById(id);
const clamp = (x, low, high) => Math.max(low, Math.min(high, x));
const two = (n) => String(n).padStart(2, "0");

// clock is a moment of the run: 1:02:03, 2:03 or, when fine, 2:03.450.
function clock(ms, fine) {
  const whole = fine ? Math.floor(ms / 1000) : Math.round(ms / 1000);
  const s = whole % 60, m = Math.floor(whole / 60) % 60, hours = Math.floor(whole / 3600);
  const frac = fine ? "." + String(Math.floor(ms % 1000)).padStart(3, "0") : "";
  return (hours ? hours + ":" + two(m) : String(m)) + ":" + two(s) + frac;
}

// lasted is a length of time in at most two units.
function lasted(ms) {
  if (ms < 1) return "0 s";
  if (ms < 1000) return figure(ms) + " ms";
  if (ms < 120e3) return figure(ms / 1000) + " s";
  if (ms < 7200e3) return Math.floor(ms / 60e3) + " min" + (ms % 60e3 >= 1000 ? " " + Math.floor(ms % 60e3 / 1000) + " s" : "");
  if (ms < 172800e3) return Math.floor(ms / 3600e3) + " h" + (ms % 3600e3 >= 60e3 ? " " + Math.floor(ms % 3600e3 / 60e3) + " min" : "");
  return figure(ms / 86400e3) + " d";
}

// figure is a number in about three digits.
function figure(x) {
  if (!isFinite(x)) return "–";
  const a = Math.abs(x);
  if (a >= 100 || x === Math.round(x)) return count(Math.round(x));
  return String(+x.toFixed(a >= 10 ? 1 : a >= 0.1 ? 2 : 3));
}

function count(n) {
  return String(n).replace(/\B(?=(\d{3})+(?!\d))/g, "\u2009");
}

function brief(n) {
  if (n < 10000) return count(n);
  for (const [size, name] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (n >= size) return figure(n / size) + "\u2009" + name;
  }
  return count(n);
}

function bytes(n) {
  if (n < 1024) return n + " B";
  let unit = -1;
  do { n /= 1024; unit++; } while (n >= 1024 && unit < 4);
  return figure(n) + " " + ["KiB", "MiB", "GiB", "TiB", "PiB"][unit];
}

// hash is FNV-1a: the same name has the same colour in each report.
function hash(text) {
  let x = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) x = Math.imul(x ^ text.charCodeAt(i), 0x01000193) >>> 0;
  return x;
}

function command(text, what) {
  const copy = h("button", { type: "button", class: "copy", title: "Copy " + what, onclick: () => copyText(text, copy) }, "Copy");
  return h("div", { class: "command" }, h("span", { class: "dollar", "aria-hidden": "true" }, "$"), h("code", { tabindex: 0 }, text), copy);
}

function copyText(text, button) {
  const said = () => { button.textContent = "Copied"; setTimeout(() => { button.textContent = "Copy"; }, 1400); };
  const byHand = () => {
    const t = h("textarea", { class: "sr" });
    t.value = text;
    document.body.append(t);
    t.select();
    if (document.execCommand("copy")) said();
    t.remove();
  };
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(said, byHand);
  else byHand();
}

// tip shows what lies under the pointer; without content it hides.
function tip(content, x, y) {
  const t = byId("tip");
  t.hidden = !content;
  if (!content) return;
  t.replaceChildren(content);
  const r = t.getBoundingClientRect();
  t.style.left = clamp(x + 16 + r.width > innerWidth ? x - r.width - 14 : x + 16, 4, Math.max(4, innerWidth - r.width - 4)) + "px";
  t.style.top = clamp(y + 18 + r.height > innerHeight ? y - r.height - 12 : y + 18, 4, Math.max(4, innerHeight - r.height - 4)) + "px";
}

function facts(title, rows) {
  const dl = h("dl");
  for (const [name, value, bad] of rows) {
    if (value !== undefined && value !== null && value !== "") add(dl, [h("dt", {}, name), h("dd", { class: bad ? "bad" : "" }, value)]);
  }
  return h("div", {}, h("b", {}, title), dl);
}
