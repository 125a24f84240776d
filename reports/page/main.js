// main: which page, in which colours.

const prefers = matchMedia("(prefers-color-scheme: dark)");
const asked = /[?&]theme=(dark|light)\b/.exec(location.search);
let chosen = asked && asked[1];

function setTheme(dark) {
  document.documentElement.classList.toggle("dark", dark);
  theme = dark ? themes.dark : themes.light;
  for (let i = swatches.length - 1; i >= 0; i--) {
    if (swatches[i][0].isConnected) swatches[i][1]();
    else swatches.splice(i, 1);
  }
  if (current) current.draw();
}

const chooseTheme = () => setTheme(chosen ? chosen === "dark" : prefers.matches);

function route() {
  tip(null);
  const found = location.hash.length > 2 ? findRun(location.hash) : { index: -1 };
  const one = found.index >= 0;
  byId("list").hidden = one;
  byId("run").hidden = !one;
  if (one) showRun(found.index, found.window);
  else current = null;
  document.title = one ? `${runs[found.index].scenario}, seed ${runs[found.index].seed}` : title;
  scrollTo(0, 0);
  return one;
}

const title = document.title;
chooseTheme();
setUpList();
route();
prefers.addEventListener("change", chooseTheme);
byId("theme").addEventListener("click", () => { chosen = theme === themes.dark ? "light" : "dark"; chooseTheme(); });
addEventListener("hashchange", () => {
  if (route()) byId("run").querySelector("h2").focus({ preventScroll: true });
  else byId("content").focus({ preventScroll: true });
});
addEventListener("beforeprint", () => setTheme(false));
addEventListener("afterprint", chooseTheme);
addEventListener("scroll", () => tip(null), { passive: true });
addEventListener("keydown", (e) => {
  if (e.key === "/" && !byId("list").hidden && !/INPUT|TEXTAREA/.test(document.activeElement.tagName)) {
    e.preventDefault();
    byId("filter").focus();
  }
});
for (const code of document.querySelectorAll("code.copyable")) {
  const button = h("button", { type: "button", class: "copy", onclick: () => copyText(code.textContent, button) }, "Copy");
  code.after(button);
}
