(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const SVG = "http://www.w3.org/2000/svg";
  const svg = document.getElementById("curve");
  const detail = document.getElementById("detail");
  const frame = { left: 74, right: 980, top: 18, bottom: 330 };
  let cost = data.costs[0].name;
  let opened = null;
  let opener = null;

  const make = (name, attributes = {}, text = null, parent = svg) => {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== null) node.textContent = text;
    parent.append(node);
    return node;
  };
  const element = (name, attributes = {}, text = null) => {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== null) node.textContent = text;
    return node;
  };
  const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(4)}`;

  // A round number of about `count` steps between two values.
  const ticks = (low, high, count) => {
    const raw = (high - low) / count || 1;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= raw * 0.999);
    const found = [];
    for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-6; at += step) found.push(at);
    return { found, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
  };

  const draw = () => {
    svg.replaceChildren();
    const base = data.rounds[0].score;
    const ends = data.rounds.flatMap((r) => [base + r.low, base + r.high, r.score]);
    if (data.max_loss !== null) ends.push(base - data.max_loss);
    let low = Math.min(...ends);
    let high = Math.max(...ends);
    const room = (high - low) * 0.08 || 0.01;
    [low, high] = [low - room, high + room];
    const widest = Math.max(1, ...data.rounds.map((r) => r.shares[cost])) * 1.02;
    const x = (share) => frame.left + ((frame.right - frame.left) * share) / widest;
    const y = (score) => frame.bottom - ((frame.bottom - frame.top) * (score - low)) / (high - low);
    const { left, right, top, bottom } = frame;
    make("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom });
    make("line", { class: "axis", x1: left, x2: left, y1: top, y2: bottom });
    const across = ticks(0, widest, 8);
    for (const at of across.found) {
      make("text", { x: x(at), y: bottom + 22, "text-anchor": "middle" }, at.toFixed(across.digits));
    }
    const up = ticks(low, high, 6);
    for (const at of up.found) {
      make("line", { class: "axis", x1: left - 5, x2: left, y1: y(at), y2: y(at) });
      make("text", { x: left - 10, y: y(at) + 5, "text-anchor": "end" }, at.toFixed(Math.max(2, up.digits)));
    }
    const word = data.costs.find((each) => each.name === cost).word;
    make("text", { x: right, y: bottom + 44, "text-anchor": "end" }, `${word}, as a share of the original's`);
    make("line", { class: "zero", x1: left, x2: right, y1: y(base), y2: y(base) });
    if (data.max_loss !== null) {
      const limit = y(base - data.max_loss);
      make("line", { class: "limit", x1: left, x2: right, y1: limit, y2: limit });
    }
    const good = data.rounds.filter((r) => r.good).sort((a, b) => b.shares[cost] - a.shares[cost]);
    make("polyline", { class: "way", points: good.map((r) => `${x(r.shares[cost])},${y(r.score)}`).join(" ") });
    for (const round of data.rounds) {
      const kind = round.number === data.chosen ? "chosen" : round.good ? "good" : "bad";
      const name = round.number ? `Round ${round.number}` : "The original";
      const point = make("g", {
        class: `point ${kind}${round.number === opened ? " open" : ""}`,
        tabindex: "0", role: "button", "data-point": round.number,
        "aria-label": `${name}: ${round.shares[cost].toFixed(2)} of the ${word}, ${data.score} ${round.score.toFixed(4)}`,
      });
      const [cx, cy] = [x(round.shares[cost]), y(round.score)];
      make("circle", { class: "halo", cx, cy, r: 16 }, null, point);
      if (round.number) {
        make("line", { class: "span", x1: cx, x2: cx, y1: y(base + round.low), y2: y(base + round.high) }, null, point);
      }
      make("circle", { cx, cy, r: 6.5 }, null, point);
      if (kind === "chosen") make("circle", { class: "ring", cx, cy, r: 11 }, null, point);
      const near = cx > right - 70;  // no room to the right of it
      make("text", { x: near ? cx : cx + 12, y: cy - (near ? 16 : 10), "text-anchor": near ? "end" : "start" },
        round.number || "original", point);
      point.addEventListener("click", () => open(round.number, `[data-point="${round.number}"]`));
      point.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        open(round.number, `[data-point="${round.number}"]`);
      });
    }
  };

  const bars = (values, kind) => {
    const node = element("span", { class: `bars ${kind}`, "aria-hidden": "true" });
    const top = Math.max(...values, 1e-9);
    for (const value of values) {
      const bar = element("i");
      bar.style.height = `${Math.round((26 * value) / top)}px`;
      node.append(bar);
    }
    return node;
  };

  const row = (path, before, now) => {
    const node = element("tr");
    node.append(element("th", { scope: "row" }, path));
    const outputs = element("td");
    const meter = element("span", { class: "meter" });
    const share = before ? now.outputs / before.outputs : 1;
    meter.style.setProperty("--value", Math.min(share, 1));
    meter.append(element("i", { class: "fill" }));
    outputs.append(meter, element("span", { class: "figure" }, before && before.outputs !== now.outputs
      ? `${now.outputs} of ${before.outputs}` : `${now.outputs}`));
    node.append(outputs);
    for (const name of ["inputs", "parameters"]) {
      const old = before && before[name] !== now[name] ? ` of ${before[name].toLocaleString("en")}` : "";
      node.append(element("td", { class: "number" }, `${now[name].toLocaleString("en")}${old}`));
    }
    const spectra = element("td");
    if (before && before.spectrum.length) spectra.append(bars(before.spectrum, "before"));
    if (now.spectrum.length) spectra.append(bars(now.spectrum, "now"));
    node.append(spectra);
    return node;
  };

  const open = (number, selector) => {
    opened = number;
    opener = selector;
    const round = data.rounds.find((each) => each.number === number);
    const first = data.rounds[0].layers;
    document.getElementById("detail-title").textContent = number ? `Round ${number}` : "The original";
    const facts = [number ? `cut by "${round.way}" from ${round.parent ? `round ${round.parent}` : "the original"}` : "as it is"];
    facts.push(`${data.score} ${round.score.toFixed(4)}`);
    if (number) facts.push(`${signed(round.low)} to ${signed(round.high)} against the original`);
    const tried = Object.entries(round.tried).map(([way, loss]) => `${way} ${loss.toFixed(4)}`);
    if (tried.length) facts.push(`loss after a few steps: ${tried.join(", ")}`);
    document.getElementById("detail-facts").textContent = facts.join(" · ");
    document.getElementById("command").textContent = round.command;
    document.getElementById("layers").replaceChildren(
      ...Object.entries(round.layers).map(([path, now]) => row(path, first[path], now)),
    );
    for (const line of document.querySelectorAll("tr[data-round]")) {
      line.classList.toggle("open", Number(line.dataset.round) === number);
    }
    detail.hidden = false;
    draw();
    detail.focus();
  };

  const close = () => {
    if (detail.hidden) return;
    detail.hidden = true;
    opened = null;
    for (const line of document.querySelectorAll("tr.open")) line.classList.remove("open");
    draw();
    if (opener) document.querySelector(opener)?.focus();
  };

  document.getElementById("close").addEventListener("click", close);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
  });
  for (const button of document.querySelectorAll("[data-open]")) {
    button.addEventListener("click", () =>
      open(Number(button.dataset.open), `[data-open="${button.dataset.open}"]`));
  }
  for (const choice of document.querySelectorAll("#cost input")) {
    choice.addEventListener("change", () => {
      cost = choice.value;
      document.getElementById("cost-name").textContent = data.costs.find((c) => c.name === cost).word;
      draw();
    });
  }
  draw();
})();
