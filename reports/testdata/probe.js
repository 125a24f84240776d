// The probe uses the page as a person would and writes down what it saw.
(function () {
  const errors = window.probeErrors, out = { errors, steps: [] };
  const colours = (canvas) => {
    if (!canvas || !canvas.width) return 0;
    const copy = document.createElement("canvas");
    copy.width = canvas.width;
    copy.height = canvas.height;
    const ctx = copy.getContext("2d", { willReadFrequently: true });
    ctx.drawImage(canvas, 0, 0);
    const seen = new Set(), data = ctx.getImageData(0, 0, canvas.width, canvas.height).data;
    for (let i = 0; i < data.length; i += 4 * 7) seen.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
    return seen.size;
  };
  const fire = (e, type, x, y, more) => e.dispatchEvent(new (type === "wheel" ? WheelEvent : PointerEvent)(type, { bubbles: true, cancelable: true, clientX: x, clientY: y, pointerId: 1, ...more }));
  const shown = (id) => !document.getElementById(id).hidden;
  const main = document.querySelector("#run canvas.main");
  out.list = shown("list");
  out.run = shown("run");
  out.rows = document.querySelectorAll("#scenarios tbody tr").length;
  out.sideways = document.documentElement.scrollWidth > innerWidth;
  if (out.list && out.rows) {
    const filter = document.getElementById("filter");
    filter.value = "no such scenario";
    filter.dispatchEvent(new Event("input"));
    out.filtered = [...document.querySelectorAll("#scenarios tbody tr")].filter((r) => !r.hidden).length;
    filter.value = "";
    filter.dispatchEvent(new Event("input"));
    for (const b of document.querySelectorAll("#scenarios thead button, .chip, #theme")) b.click();
  }
  out.recoveries = document.querySelectorAll("#run .recoveries tbody tr svg.way").length;
  out.decisions = document.querySelectorAll("#run .decisions tbody tr").length;
  if (main) {
    out.colours = colours(main);
    out.mini = colours(document.querySelector("#run canvas.mini"));
    // Redefined, as a synthetic pointer cannot be captured.
    for (const c of document.querySelectorAll("#run canvas")) c.setPointerCapture = () => {};
    const r = main.getBoundingClientRect(), tip = document.getElementById("tip"), tips = new Set();
    for (let y = 2; y < r.height; y += 5) {
      for (let x = 4; x < r.width; x += 31) {
        fire(main, "pointermove", r.left + x, r.top + y);
        if (!tip.hidden) tips.add([...tip.querySelectorAll("dt")].map((d) => d.textContent).join(" "));
      }
    }
    out.tips = [...tips];
    for (const key of ["n", "n", "p", "+", "ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp", "-"]) main.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
    fire(main, "wheel", r.left + r.width / 2, r.top + r.height / 2, { deltaY: -300, ctrlKey: true });
    fire(main, "wheel", r.left + r.width / 2, r.top + r.height / 2, { deltaY: 120, shiftKey: true });
    fire(main, "pointerdown", r.left + 600, r.top + 200);
    fire(main, "pointermove", r.left + 500, r.top + 190);
    fire(main, "pointerup", r.left + 500, r.top + 190);
    fire(main, "pointerdown", r.left + 400, r.top + 150);
    fire(main, "pointerup", r.left + 400, r.top + 150);
    for (const b of document.querySelectorAll("#run .tools button, #run th button, #run .at, #theme")) b.click();
  }
  setTimeout(() => {
    if (main) out.after = colours(main);
    out.hash = location.hash;
    const pre = document.createElement("pre");
    pre.id = "probe";
    pre.textContent = "PROBE" + JSON.stringify(out) + "END";
    document.body.append(pre);
  }, 1000);
})();
