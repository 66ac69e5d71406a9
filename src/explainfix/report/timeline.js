(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const {
    $,
    breakable,
    colourCell,
    filterName,
    isNumber,
    laidOut,
    listen,
    make,
    percent,
    picture,
    placeTooltip,
    plural,
    points,
    seen,
    shapeTitle,
    showEdges,
    sortBy,
    times,
  } = parts;
  const FAINT = 0.3; // how strong a colour may be that chance would give
  const NAMES_FIT = 32; // more columns than this leave no room for slanted names
  const MOST = 3; // doublings below chance that are shown of nothing at all
  const TICK = 450; // milliseconds a moment is shown when they play

  const last = data.moments.length - 1;
  let now = last;
  let scale = document.querySelector("#scale input:checked").value;
  let chosen = null; // a layer
  const grids = []; // { node, cells: Map("row,column" -> cell), shape, redraw }

  const nameOf = (layer) => layer.path || "(the model)";
  const firstOf = (layer) => layer.shares.find((row) => row.every(isNumber)) ?? layer.shares[0];

  // ---- Heatmaps ----------------------------------------------------------------------------

  /** What colour shows of a layer's share of a pattern. */
  function valueOf(layer, filter, shape) {
    const share = layer.shares[now][filter];
    if (!isNumber(share)) return null;
    if (scale === "difference") return share - firstOf(layer)[filter];
    return share > 0 ? Math.max(Math.log2(share / evenShare(shape, filter)), -MOST) : -MOST;
  }

  /** The share of a pattern, or of a group of them, in random kernels. */
  function evenShare(shape, filter) {
    const size = shape.shape.reduce((product, side) => product * side, 1);
    if (!shape.groups) return 1 / size;
    const [from, to] = shape.groups[filter];
    return (to - from + 1) / size;
  }

  function isChance(layer, filter) {
    const band = layer.bands[now];
    const share = layer.shares[now][filter];
    return band.every(isNumber) && isNumber(share) && band[0] <= share && share <= band[1];
  }

  const written = (value) =>
    !isNumber(value)
      ? "no value"
      : scale === "difference"
        ? points(value)
        : `${times(value)} chance`;

  function paint(cell, shape) {
    const layer = data.layers[cell.dataset.layer];
    const filter = +cell.dataset.filter;
    const value = valueOf(layer, filter, shape);
    const limit = shape.limits[scale];
    let place = isNumber(value) ? Math.max(-1, Math.min(value / limit, 1)) : 0;
    if (scale === "chance" && isChance(layer, filter)) place *= FAINT;
    colourCell(cell, Math.sign(place), Math.abs(place));
    cell.classList.toggle("missing", !isNumber(value));
    cell.setAttribute(
      "aria-label",
      `${nameOf(layer)}, ${filterName(shape, filter)}, ${written(value)}`,
    );
  }

  function legend(shape) {
    const steps = Array.from({ length: 25 }, (_, i) => i / 24);
    const cells = steps.map((at) => {
      const cell = make("i", { class: "cell" });
      colourCell(cell, Math.sign(at - 0.5), Math.abs(2 * at - 1));
      return cell;
    });
    const [left, right] = [make("span"), make("span")];
    const word = make("span");
    const node = make(
      "div",
      { class: "legend" },
      left,
      make("div", { class: "ramp" }, ...cells, make("span", { class: "chance-mark" }, word)),
      right,
    );
    node.redraw = () => {
      const limit = shape.limits[scale];
      const round = Number((2 ** limit).toPrecision(2));
      word.textContent = scale === "difference" ? "as it was" : "chance";
      left.textContent = scale === "difference" ? points(-limit) : `÷${round}`;
      right.textContent = scale === "difference" ? points(limit) : `×${round}`;
    };
    return node;
  }

  function addCell(grid, parent, layer, filter, row, column) {
    const cell = make("div", { class: "cell", role: "gridcell", tabindex: "-1" });
    Object.assign(cell.dataset, { layer, filter, row, column });
    grid.cells.set(`${row},${column}`, cell);
    parent.append(cell);
  }

  /** What a grid does once its cells are there. */
  function finish(grid) {
    const key = legend(grid.shape);
    grid.redraw = () => {
      for (const cell of grid.cells.values()) paint(cell, grid.shape);
      key.redraw();
    };
    [...grid.cells.values()][0].tabIndex = 0;
    listen(grid, point, choose);
    grids.push(grid);
    return key;
  }

  /** One block: rows are the basis filters of a shape, columns its layers in order. */
  function heatBlock(shape) {
    const grid = { cells: new Map(), shape };
    const tracks = [
      "var(--label)",
      ...shape.layers.map(() => "minmax(var(--cell-least), var(--cell-most))"),
    ];
    grid.node = make("div", {
      class: "grid",
      role: "grid",
      "aria-label": `Spectra of ${shape.name} kernels: rows are basis filters, columns are layers`,
      "aria-rowcount": shape.basis.length,
      "aria-colcount": shape.layers.length,
      "--columns": tracks.join(" "),
    });
    shape.basis.forEach((filter, row) => {
      const head = make(
        "div",
        { class: "head", role: "rowheader", title: filterName(shape, row) },
        make("span", {}, String(shape.groups?.[row][0] ?? row)),
        picture(filter, seen(shape)),
      );
      head.dataset.row = row;
      const line = make("div", { class: "row", role: "row" }, head);
      for (const index of shape.layers) addCell(grid, line, index, row, row, index);
      grid.node.append(line);
    });
    if (shape.layers.length <= NAMES_FIT) grid.node.append(namesRow(shape));
    const key = finish(grid);
    return make(
      "figure",
      {
        class: `card block${shape.layers.length > 60 ? " dense" : ""}`,
        "--rows": shape.basis.length,
      },
      make(
        "figcaption",
        {},
        make("h3", {}, shapeTitle(shape)),
        make(
          "span",
          { class: "soft" },
          plural(shape.layers.length, "layer"),
          shape.note ? `; ${shape.note}` : "",
        ),
        key,
      ),
      make(
        "div",
        { class: "block-body" },
        make(
          "div",
          { class: "axis", "aria-hidden": "true" },
          make("span", {}, "smooth"),
          make("i"),
          make("span", {}, "fine"),
        ),
        make("div", { class: "scroll" }, grid.node),
      ),
    );
  }

  /** A shape that one layer has: its filters laid out by frequency, a small square. */
  function plane(shape) {
    const [index] = shape.layers;
    const grid = { cells: new Map(), shape };
    const rows = laidOut(shape);
    grid.node = make("div", {
      class: "plane",
      role: "grid",
      "aria-label": `Spectrum of the ${shape.name} kernels of ${nameOf(data.layers[index])}`,
      "--across": 1 + Math.max(...rows.flatMap(([, line]) => line.map(([, column]) => column))),
    });
    for (const [row, line] of rows) {
      const node = make("div", { class: "row", role: "row" });
      for (const [filter, column] of line) addCell(grid, node, index, filter, row, column);
      grid.node.append(node);
    }
    const key = finish(grid);
    const flat = shape.shape.length === 2 && shape.frequencies;
    const note = shape.note ? `; ${shape.note}` : "";
    return make(
      "figure",
      { class: "card small" },
      make(
        "figcaption",
        {},
        make("h3", {}, shapeTitle(shape)),
        make("span", { class: "soft" }, `one layer: ${nameOf(data.layers[index])}${note}`),
      ),
      make(
        "div",
        { class: "plane-frame" },
        flat ? make("span", { class: "across", "aria-hidden": "true" }, "finer across →") : null,
        flat ? make("span", { class: "down", "aria-hidden": "true" }, "finer down →") : null,
        make("div", { class: "scroll" }, grid.node),
      ),
      key,
    );
  }

  function namesRow(shape) {
    const labels = shape.layers.map((index) => data.layers[index].label);
    return make(
      "div",
      {
        class: "row names",
        "aria-hidden": "true",
        "--longest": Math.max(...labels.map((label) => label.length)),
      },
      make("span"),
      ...shape.layers.map((index, i) => {
        const name = make("span", { title: nameOf(data.layers[index]) }, make("span", {}, labels[i]));
        name.dataset.column = index;
        return name;
      }),
    );
  }

  // ---- Pointing at cells -------------------------------------------------------------------

  function point(grid, cell) {
    for (const node of document.querySelectorAll(".pointed")) node.classList.remove("pointed");
    mark();
    if (!cell) {
      $("tooltip").hidden = true;
      return;
    }
    const { row, layer: index } = cell.dataset;
    grid.node.querySelector(`.head[data-row="${row}"]`)?.classList.add("pointed");
    for (const node of document.querySelectorAll(`[data-column="${index}"]:not(.cell)`))
      node.classList.add("pointed");
    mark();
    const layer = data.layers[index];
    const filter = +cell.dataset.filter;
    const [before, after] = [firstOf(layer), layer.shares[now]].map((row) => percent(row[filter]));
    const value = valueOf(layer, filter, grid.shape);
    const beside =
      scale === "difference"
        ? ""
        : isChance(layer, filter)
          ? " · no more than chance"
          : ` · ${written(value)}`;
    $("tooltip").replaceChildren(
      picture(grid.shape.basis[filter], seen(grid.shape)),
      make(
        "div",
        {},
        make("b", {}, ...breakable(nameOf(layer))),
        make("span", {}, filterName(grid.shape, filter)),
        make("span", { class: "value" }, `${before} → ${after} of the layer${beside}`),
      ),
    );
    $("tooltip").hidden = false;
    placeTooltip(cell);
  }

  // ---- Curves ------------------------------------------------------------------------------

  // Moments lie where their steps are, unless they do not grow.
  const ticks = data.moments.map((moment) => moment.at);
  const even = ticks.some((at, i) => i > 0 && at <= ticks[i - 1]);
  const along = (i) =>
    last === 0 ? 0 : even ? i / last : (ticks[i] - ticks[0]) / (ticks[last] - ticks[0]);

  /** A round number of percent that is no less. */
  function ceiling(share) {
    const steps = [0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1];
    return steps.find((step) => step >= share) ?? 1;
  }

  function drawCurves() {
    const drifts = data.layers.flatMap((layer) => layer.drift.filter(isNumber));
    const top = ceiling(Math.max(0, ...drifts));
    const frame = make("div", { class: "frame" });
    for (const part of [0, 0.25, 0.5, 0.75, 1]) {
      const level = make("div", { class: "level" }, make("span", {}, percent(part * top)));
      level.style.bottom = `${100 * part}%`;
      frame.append(level);
    }
    const svg = make("svg", {
      viewBox: "0 0 1000 1000",
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": `Drift of ${plural(data.layers.length, "layer")} over the training; the table below has the numbers`,
    });
    data.layers.forEach((layer, index) => {
      let pen = "M";
      const d = layer.drift
        .map((drift, i) => {
          if (!isNumber(drift)) {
            pen = "M";
            return "";
          }
          const spot = `${pen}${(1000 * along(i)).toFixed(1)} ${(1000 * (1 - drift / top)).toFixed(1)}`;
          pen = "L";
          return spot;
        })
        .join("");
      const path = make("path", {
        d,
        class: layer.fixed ? "fixed" : "",
        "--depth": index / Math.max(data.layers.length - 1, 1),
      });
      path.dataset.column = index;
      svg.append(path);
    });
    const cursor = make("div", { class: "cursor" });
    frame.append(svg, cursor);
    const picked = make("output", { id: "picked" });
    const fixed = data.layers.some((layer) => layer.fixed);
    $("curves").append(
      frame,
      make(
        "p",
        { class: "ends" },
        make("span", {}, data.moments[0].name),
        make("span", {}, data.moments[last].name),
      ),
      make(
        "figcaption",
        {},
        make(
          "span",
          { class: "depth" },
          "first layer",
          make("i"),
          `last layer${fixed ? "; dashed: fixed" : ""}`,
        ),
        picked,
      ),
    );
    $("curves").hidden = false;

    /** The layer whose curve is nearest to a point, and the moment there. */
    function nearest(event) {
      const box = frame.getBoundingClientRect();
      const x = (event.clientX - box.left) / box.width;
      const y = top * (1 - (event.clientY - box.top) / box.height);
      const moments = data.moments.map((_, i) => i);
      const moment = moments.reduce((a, b) =>
        Math.abs(along(b) - x) < Math.abs(along(a) - x) ? b : a,
      );
      const away = (layer) =>
        isNumber(layer.drift[moment]) ? Math.abs(layer.drift[moment] - y) : Infinity;
      const layer = data.layers.reduce((a, b, i) => (away(b) < away(data.layers[a]) ? i : a), 0);
      return { layer, moment };
    }
    frame.addEventListener("click", (event) => {
      const { layer, moment } = nearest(event);
      choose(layer);
      show(moment);
    });
    frame.addEventListener("pointermove", (event) => {
      const { layer } = nearest(event);
      for (const node of svg.children) node.classList.toggle("pointed", +node.dataset.column === layer);
      mark();
    });
    frame.addEventListener("pointerleave", () => {
      for (const node of svg.children) node.classList.remove("pointed");
      mark();
    });
  }

  // ---- The layer and the moment that are shown ---------------------------------------------

  /** Says which layer is pointed at, or chosen, and lets its curve stand out. */
  function mark() {
    const svg = $("curves").querySelector("svg");
    const lit = svg.querySelector(".pointed") ?? svg.querySelector(".chosen");
    svg.classList.toggle("some", Boolean(lit));
    if (!lit) {
      $("picked").textContent = "";
      return;
    }
    const layer = data.layers[lit.dataset.column];
    const low = `low frequencies ${percent(layer.low[0])} → ${percent(layer.low[now])}`;
    $("picked").replaceChildren(
      make("b", {}, ...breakable(nameOf(layer))),
      `: drift ${percent(layer.drift[now])}, ${low}${layer.fixed ? `, fixed by ${layer.fixed}` : ""}`,
    );
  }

  /** Marks a layer wherever it appears; again, and it is not. */
  function choose(index) {
    chosen = chosen === index ? null : index;
    for (const node of document.querySelectorAll(".chosen")) node.classList.remove("chosen");
    if (chosen !== null) {
      const places = `[data-layer="${chosen}"], [data-column="${chosen}"]`;
      for (const node of document.querySelectorAll(`main :is(${places})`))
        node.classList.add("chosen");
    }
    mark();
  }

  function show(moment) {
    now = moment;
    const { name, changed } = data.moments[now];
    const said = changed.length ? `${name}: ${plural(changed.length, "fixed layer")} changed` : name;
    $("moment").value = now;
    $("moment").setAttribute("aria-valuetext", said);
    $("moment-name").textContent = said;
    $("curves").querySelector(".cursor").style.setProperty("--at", `${100 * along(now)}%`);
    for (const grid of grids) grid.redraw();
    mark();
  }

  function listenMoments() {
    let timer = null;
    const stop = () => {
      clearInterval(timer);
      timer = null;
      $("play").setAttribute("aria-label", "Play");
      $("play").firstChild.textContent = "▶";
    };
    const start = () => {
      if (now === last) show(0);
      timer = setInterval(() => {
        show(Math.min(now + 1, last));
        if (now === last) stop();
      }, TICK);
      $("play").setAttribute("aria-label", "Pause");
      $("play").firstChild.textContent = "❚❚";
    };
    $("play").addEventListener("click", () => (timer === null ? start() : stop()));
    $("moment").addEventListener("input", () => {
      stop();
      show(+$("moment").value);
    });
    $("moment-bar").hidden = last === 0;
    $("scale").addEventListener("change", (event) => {
      scale = event.target.value;
      for (const words of document.querySelectorAll("[data-for]"))
        words.hidden = words.dataset.for !== scale;
      for (const grid of grids) grid.redraw();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") $("tooltip").hidden = true;
    });
    document.addEventListener("scroll", () => ($("tooltip").hidden = true), {
      capture: true,
      passive: true,
    });
  }

  function listenTable() {
    $("layers").tHead.addEventListener("click", (event) => {
      const head = event.target.closest("th[aria-sort]");
      if (head) sortBy($("layers"), head);
    });
    $("layers").tBodies[0].addEventListener("click", (event) => {
      const row = event.target.closest("tr[data-layer]");
      if (row) choose(+row.dataset.layer);
    });
    for (const name of document.querySelectorAll("#layers tbody th > *"))
      name.replaceChildren(...breakable(name.textContent));
  }

  const common = data.shapes.filter((shape) => shape.layers.length > 1);
  const single = data.shapes.filter((shape) => shape.layers.length === 1);
  $("heatmaps").append(...common.map(heatBlock));
  $("small-figures").append(...single.map(plane));
  drawCurves();
  listenMoments();
  listenTable();
  show(last);
  for (const frame of document.querySelectorAll(".table-frame, .scroll")) showEdges(frame);
})();
