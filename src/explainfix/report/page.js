"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const shapes = new Map(data.shapes.map((shape) => [shape.name, shape]));
  const {
    $,
    axisNames,
    breakable,
    colourCell,
    filterName,
    isNumber,
    laidOut,
    largest,
    listen,
    make,
    percent,
    picture,
    placeTooltip,
    plain,
    plural,
    points,
    seen,
    shapeTitle,
    shares,
    showEdges,
    sortBy,
    sum,
    times,
  } = parts;

  // ---- Charts of bars ----------------------------------------------------------------------

  /** Upright bars; `band` draws the range of chance behind them, `marks` stand below the bars. */
  function barChart(values, { band = null, marks = null, titles, figures = false, label }) {
    const known = band?.every(isNumber) ? band : null;
    const top = 1.06 * Math.max(largest(values), known?.[1] ?? 0, 1e-12);
    const plot = make("div", { class: "plot" });
    if (known) {
      const [low, high] = known.map((edge) => (100 * edge) / top);
      plot.append(make("i", { class: "chance", "--low": `${low}%`, "--high": `${high}%` }));
    }
    values.forEach((value, i) => {
      const place = !known
        ? "above"
        : value > known[1]
          ? "above"
          : value < known[0]
            ? "below"
            : "inside";
      const bar = make("i", {
        class: `bar ${place}`,
        "--size": `${(100 * Math.max(value ?? 0, 0)) / top}%`,
      });
      if (figures) bar.append(make("span", {}, percent(value)));
      plot.append(make("div", { class: "slot", title: titles[i] }, bar));
    });
    const chart = make(
      "div",
      {
        class: "chart",
        "--count": values.length,
        role: "img",
        "aria-label": `${label}. ${titles.join("; ")}`,
      },
      plot,
    );
    if (marks)
      chart.append(make("div", { class: "marks" }, ...marks.map((mark) => make("div", {}, mark))));
    return chart;
  }

  // ---- Heatmap -----------------------------------------------------------------------------

  // What colour shows. All but energy part at a middle that says nothing: chance, no difference.
  const VALUES = {
    chance: (layer) => layer.against,
    energy: (layer) => layer.ed,
    before: (layer) => layer.against,
    after: (layer) => layer.other?.against,
    difference: (layer) => layer.other?.difference,
  };
  let scale = document.querySelector("#scale input:checked").value;
  const grids = []; // { node, cells: Map("row,column" -> cell), shape, redraw }
  const FAINT = 0.3; // how strong a colour may be that chance would give
  const NAMES_FIT = 32; // more columns than this leave no room for slanted names

  const valuesOf = (layer) => VALUES[scale](layer) ?? layer.ed.map(() => null);
  function written(value) {
    if (!isNumber(value)) return "no value";
    if (scale === "energy") return plain(value);
    return scale === "difference" ? points(value) : `${times(value)} chance`;
  }

  /** The value at the strong end of the scale. */
  function limitOf(shape, columns) {
    if (scale === "energy") return largest(columns.map(largest));
    return scale === "difference" ? shape.limits.difference : shape.limits.chance;
  }

  const stages = [...new Set(data.layers.map((layer) => layer.stage || ""))];
  // Stages of a layer or so each are the layers over again: their labels do.
  const staged = stages.length > 1 && 2 * stages.length <= data.layers.length + 2;
  const dotted = stages.map((stage) => stage.split("."));
  let common = 0; // leading parts that all stages share say nothing about any of them
  const alike = (parts) => parts.length > common + 1 && parts[common] === dotted[0][common];
  while (stages.length > 1 && dotted.every(alike)) common++;
  const stageName = (stage) => (stage || "").split(".").slice(common).join(".");

  function addCell(grid, parent, layer, filter, row, column) {
    const cell = make("div", { class: "cell", role: "gridcell", tabindex: "-1" });
    Object.assign(cell.dataset, { layer, filter, row, column });
    grid.cells.set(`${row},${column}`, cell);
    parent.append(cell);
    return cell;
  }

  /** The layer as colour shows it: in a comparison that of the other network, perhaps. */
  const shown = (layer) => (scale === "after" ? layer.other : layer) ?? { ed: [] };

  function isChance({ ed, band }, filter) {
    if (!isNumber(ed[filter]) || !band?.every(isNumber)) return false;
    return band[0] <= ed[filter] && ed[filter] <= band[1];
  }

  function paint(cell, value, limit, shape) {
    const known = isNumber(value);
    const { layer, filter } = cell.dataset;
    let place = known && limit > 0 ? Math.max(-1, Math.min(value / limit, 1)) : 0;
    if (!["energy", "difference"].includes(scale) && isChance(shown(data.layers[layer]), filter))
      place *= FAINT;
    colourCell(cell, scale === "energy" ? null : Math.sign(place), Math.abs(place));
    cell.classList.toggle("missing", !known);
    cell.setAttribute(
      "aria-label",
      `${data.layers[layer].path}, ${filterName(shape, +filter)}, ${written(value)}`,
    );
  }

  function legend() {
    const steps = Array.from({ length: 25 }, (_, i) => i / 24);
    const cells = steps.map(() => make("i", { class: "cell" }));
    const [left, right] = [make("span"), make("span")];
    const mark = make("span", { class: "chance-mark" }, make("span"));
    const node = make(
      "div",
      { class: "legend" },
      left,
      make("div", { class: "ramp" }, ...cells, mark),
      right,
    );
    node.redraw = (limit) => {
      const parted = scale !== "energy";
      steps.forEach((at, i) =>
        parted
          ? colourCell(cells[i], Math.sign(at - 0.5), Math.abs(2 * at - 1))
          : colourCell(cells[i], null, at),
      );
      const word = scale === "difference" ? "no change" : "chance";
      mark.hidden = !parted;
      mark.firstChild.textContent = word;
      const round = (ratio) => Number(ratio.toPrecision(2));
      const end =
        scale === "difference"
          ? points
          : (value) => (value < 0 ? `÷${round(2 ** -value)}` : `×${round(2 ** value)}`);
      left.textContent = parted ? end(-limit) : "0";
      right.textContent = parted ? end(limit) : plain(limit);
    };
    return node;
  }

  /** One block: rows are the basis filters of a shape, columns the layers of the model. */
  function heatBlock(shape, order) {
    const mine = order.filter((index) => data.layers[index].shape === shape.name);
    const named = order.length <= NAMES_FIT;
    const tracks = ["var(--label)"];
    const trackOf = new Map();
    const spans = [];
    order.forEach((index, i) => {
      const stage = data.layers[index].stage || "";
      if (i === 0 || stage !== spans.at(-1).stage) {
        if (i > 0) tracks.push("var(--stage-gap)");
        spans.push({ stage, from: tracks.length + 1 });
      }
      tracks.push("minmax(var(--cell-least), var(--cell-most))");
      trackOf.set(index, tracks.length);
      spans.at(-1).to = tracks.length + 1;
    });
    tracks.push("var(--sums)");

    const grid = { cells: new Map(), shape };
    const totals = mine.map((index) => sum(data.layers[index].ed));
    const differ = !data.comparison && largest(totals) - Math.min(...totals) > 0.01 * largest(totals);
    const place = (node, index) => {
      node.style.gridColumn = trackOf.get(index);
      return node;
    };

    grid.node = make("div", {
      class: "grid",
      role: "grid",
      "aria-label": `Energy of ${shape.name} kernels: rows are basis filters, columns are layers`,
      "aria-rowcount": shape.basis.length,
      "aria-colcount": mine.length,
      "--columns": tracks.join(" "),
    });
    if (staged) {
      const prefix = common ? `${dotted[0].slice(0, common).join(".")}.` : "";
      grid.node.append(
        make(
          "div",
          { class: "row stages", "aria-hidden": "true" },
          make("span", { class: "head" }, prefix),
          ...spans.map(({ stage, from, to }) => {
            const node = make("span", { title: stage }, make("bdi", {}, stageName(stage)));
            node.style.gridColumn = `${from} / ${to}`;
            return node;
          }),
        ),
      );
    }
    if (differ) {
      // equal sums would be a row of equal bars
      grid.node.append(
        make(
          "div",
          { class: "row totals", "aria-hidden": "true" },
          make("span", { class: "head" }, "layer sum"),
          ...mine.map((index, i) => {
            const bar = make("i", {
              "--size": `${(100 * totals[i]) / largest(totals)}%`,
              title: `${data.layers[index].path}: ${plain(totals[i])}`,
            });
            bar.dataset.column = index;
            return place(bar, index);
          }),
        ),
      );
    }
    const bars = shape.basis.map((filter, row) => {
      const bar = make("div", { class: "sum", "aria-hidden": "true" }, make("i"), make("span"));
      const line = make(
        "div",
        { class: "row", role: "row" },
        make(
          "div",
          { class: "head", role: "rowheader", title: filterName(shape, row) },
          make("span", {}, String(shape.groups?.[row][0] ?? row)),
          picture(filter, seen(shape)),
        ),
      );
      line.firstChild.dataset.row = row;
      mine.forEach((index) => place(addCell(grid, line, index, row, row, index), index));
      bar.style.gridColumn = tracks.length;
      line.append(bar);
      grid.node.append(line);
      return bar;
    });
    if (named) {
      const longest = largest(mine.map((index) => data.layers[index].label.length));
      grid.node.append(
        make(
          "div",
          { class: "row names", "aria-hidden": "true", "--longest": longest },
          ...mine.map((index) => {
            const name = make(
              "span",
              { title: data.layers[index].path },
              make("span", {}, data.layers[index].label),
            );
            name.dataset.column = index;
            return place(name, index);
          }),
        ),
      );
    }

    const key = legend();
    grid.redraw = () => {
      const columns = new Map(mine.map((index) => [index, valuesOf(data.layers[index])]));
      const limit = limitOf(shape, [...columns.values()]);
      for (const cell of grid.cells.values())
        paint(cell, columns.get(+cell.dataset.layer)[cell.dataset.filter], limit, shape);
      // Beside each row: energy as it is, differences as they are, else the mean share of a layer.
      const kept = [...columns.values()];
      const parts = mine.map((index) => shares(shown(data.layers[index]).ed));
      const mean = (of) =>
        shape.basis.map((_, row) => sum(of.map((values) => values[row])) / mine.length);
      const sums =
        scale === "energy" ? shape.total.ed : mean(scale === "difference" ? kept : parts);
      const top = largest(sums.map((value) => Math.abs(value ?? 0)));
      const write = { energy: plain, difference: points }[scale] ?? percent;
      bars.forEach((bar, row) => {
        const size = top > 0 ? Math.abs(sums[row] ?? 0) / top : 0;
        bar.firstChild.style.setProperty("--part", size);
        bar.firstChild.classList.toggle("less", scale === "difference" && sums[row] < 0);
        bar.lastChild.textContent = write(sums[row]);
      });
      key.redraw(limit);
    };
    grids.push(grid);
    return make(
      "figure",
      { class: `card block${order.length > 60 ? " dense" : ""}`, "--rows": shape.basis.length },
      make(
        "figcaption",
        {},
        make("h3", {}, shapeTitle(shape)),
        make(
          "span",
          { class: "soft" },
          plural(mine.length, "layer"),
          mine.length < order.length ? "; the gaps are layers with other kernels" : "",
          shape.note ? `; ${shape.note}` : "",
        ),
        key,
      ),
      make(
        "div",
        { class: "block-body" },
        make(
          "div",
          {
            class: `axis${staged ? " staged" : ""}${differ ? " summed" : ""}`,
            "aria-hidden": "true",
          },
          make("span", {}, "smooth"),
          make("i"),
          make("span", {}, "fine"),
        ),
        make("div", { class: "scroll" }, grid.node),
      ),
    );
  }

  /** A shape that one layer has: its filters laid out by frequency, a small square. */
  function frequencyPlane(shape) {
    const index = shape.layers[0];
    const layer = data.layers[index];
    const grid = { cells: new Map(), shape };
    const rows = laidOut(shape);
    grid.node = make("div", {
      class: "plane",
      role: "grid",
      "aria-label": `Energy of the ${shape.name} kernels of ${layer.path} by frequency`,
      "--across": 1 + largest(rows.flatMap(([, line]) => line.map(([, column]) => column))),
    });
    for (const [row, line] of rows) {
      const node = make("div", { class: "row", role: "row" });
      for (const [filter, column] of line) addCell(grid, node, index, filter, row, column);
      grid.node.append(node);
    }
    const key = legend();
    grid.redraw = () => {
      const values = valuesOf(layer);
      for (const cell of grid.cells.values())
        paint(cell, values[cell.dataset.filter], limitOf(shape, [values]), shape);
      key.redraw(limitOf(shape, [values]));
    };
    grids.push(grid);
    const open = make("button", { type: "button", class: "link" }, layer.path);
    open.addEventListener("click", () => openLayer(index, open));
    const flat = shape.shape.length === 2 && shape.frequencies;
    return make(
      "figure",
      { class: "card small" },
      make(
        "figcaption",
        {},
        make("h3", {}, shapeTitle(shape)),
        make("span", { class: "soft" }, "one layer: ", open, shape.note ? `; ${shape.note}` : ""),
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

  /** Energy per frequency of the whole model, for a square shape. */
  function frequencyBars(shape) {
    const values = shares(shape.total.e0);
    const names = values.map((_, f) =>
      f === 0 ? "flat" : f === values.length - 1 ? "finest" : String(f),
    );
    const marks = names.map((name, f) => {
      const wanted = [...shape.shape.slice(1).fill(0), f].join();
      const filter = shape.frequencies?.findIndex((frequency) => frequency.join() === wanted) ?? -1;
      return make(
        "div",
        {},
        filter < 0 ? null : picture(shape.basis[filter], seen(shape)),
        make("span", {}, name),
      );
    });
    return make(
      "figure",
      { class: "card small" },
      make(
        "figcaption",
        {},
        make("h3", {}, "Energy by frequency"),
        make("span", { class: "soft" }, `${shapeTitle(shape)}, whole model`),
      ),
      barChart(values, {
        marks,
        figures: values.length <= 9,
        label: `Energy by frequency of all ${shape.name} kernels`,
        titles: values.map((value, f) => `frequency ${f}: ${percent(value)}`),
      }),
    );
  }

  function drawHeatmaps() {
    const common = data.shapes.filter((shape) => shape.layers.length > 1);
    const order = data.layers
      .map((_, index) => index)
      .filter((index) => common.some((shape) => shape.name === data.layers[index].shape));
    $("heatmaps").append(...common.map((shape) => heatBlock(shape, order)));
    $("small-figures").append(
      ...data.shapes
        .filter((shape) => !data.comparison && shape.total.e0?.length > 1)
        .sort((a, b) => b.layers.length - a.layers.length)
        .map(frequencyBars),
      ...data.shapes.filter((shape) => shape.layers.length === 1).map(frequencyPlane),
    );
    for (const grid of grids) {
      grid.redraw();
      [...grid.cells.values()][0].tabIndex = 0;
      listen(grid, point, openLayer);
    }
    $("scale").addEventListener("change", (event) => {
      scale = event.target.value;
      grids.forEach((grid) => grid.redraw());
    });
  }

  // ---- Pointing at cells: tooltip, keys, cross lines -----------------------------------------

  function point(grid, cell) {
    for (const node of grid.node.querySelectorAll(".pointed")) node.classList.remove("pointed");
    if (!cell) {
      $("tooltip").hidden = true;
      return;
    }
    grid.node.querySelector(`.head[data-row="${cell.dataset.row}"]`)?.classList.add("pointed");
    for (const node of grid.node.querySelectorAll(
      `[data-column="${cell.dataset.layer}"]:not(.cell)`,
    ))
      node.classList.add("pointed");

    const layer = data.layers[cell.dataset.layer];
    const filter = +cell.dataset.filter;
    $("tooltip").replaceChildren(
      picture(grid.shape.basis[filter], seen(grid.shape)),
      make(
        "div",
        {},
        make("b", {}, ...breakable(layer.path)),
        make("span", {}, filterName(grid.shape, filter)),
        make("span", { class: "value" }, told(layer, filter)),
      ),
    );
    $("tooltip").hidden = false;
    placeTooltip(cell);
  }

  /** One value in words: as colour shows it, and beside chance. */
  function told(layer, filter) {
    if (scale === "difference") {
      const pair = [layer.ed, layer.other?.ed ?? []].map((ed) => percent(shares(ed)[filter]));
      return `${pair.join(" → ")} of the layer`;
    }
    const { ed, against, band } = shown(layer);
    const said =
      scale === "energy"
        ? `energy ${plain(ed[filter])}`
        : `${percent(shares(ed)[filter])} of the layer`;
    if (!isNumber(against?.[filter])) return said;
    const inside = isChance({ ed, band }, filter);
    return `${said} · ${inside ? "no more than chance" : `${times(against[filter])} chance`}`;
  }

  // ---- Panel of one layer ------------------------------------------------------------------

  let opener = null;

  /** The facts are the cells of the layer's table row: written once, shown twice. */
  function facts(index) {
    const heads = [...document.querySelectorAll("#layers thead th")].map((head) =>
      head.textContent.trim(),
    );
    const cells = [...document.querySelector(`#layers tr[data-layer="${index}"]`).children];
    const list = make("dl", { class: "facts" });
    if (data.layers[index].stage)
      list.append(
        make("div", {}, make("dt", {}, "Stage"), make("dd", {}, data.layers[index].stage)),
      );
    cells.forEach((cell, i) => {
      if (i < 2 || cell.textContent.trim() === "–") return;
      const value = make("dd");
      value.append(...[...cell.childNodes].map((node) => node.cloneNode(true)));
      list.append(make("div", {}, make("dt", {}, heads[i]), value));
    });
    return list;
  }

  function spectrum(layer, shape, whose = "") {
    const slices = seen(shape).length > 2 ? seen(shape)[0] : 1;
    const pictured = shape.basis.length * slices <= 25; // more would be too small to see
    return make(
      "section",
      {},
      make("h3", {}, `Spectrum${whose}`),
      barChart(layer.ed, {
        band: layer.band,
        label: `Spectrum of ${layer.path}`,
        marks: pictured ? shape.basis.map((filter) => picture(filter, seen(shape))) : null,
        titles: layer.ed.map(
          (value, i) => `${filterName(shape, i)}: ${percent(shares(layer.ed)[i])}`,
        ),
      }),
      make("p", { class: "ends soft" }, make("span", {}, "smooth"), make("span", {}, "fine")),
      layer.band?.every(isNumber)
        ? make(
            "p",
            { class: "soft" },
            make("i", { class: "swatch chance" }),
            "Bars that end inside this band are no more than chance.",
          )
        : null,
    );
  }

  function perAxis(layer) {
    if (!layer.e1?.length) return null;
    const names = axisNames(layer.e1.length);
    return make(
      "section",
      {},
      make("h3", {}, "By direction"),
      make(
        "div",
        { class: "axes" },
        ...layer.e1.map((energies, axis) => {
          const values = shares(energies);
          return make(
            "figure",
            {},
            barChart(values, {
              label: `Energy by ${names[axis]} frequency`,
              figures: values.length <= 5,
              marks: values.map((_, f) => String(f)),
              titles: values.map((value, f) => `frequency ${f}: ${percent(value)}`),
            }),
            make("figcaption", {}, names[axis]),
          );
        }),
      ),
    );
  }

  function sampleSheet(layer, shape, whose = "") {
    if (!layer.samples?.length) return null;
    const some = layer.samples.length < layer.kernels;
    const all = plural(layer.kernels, "kernel");
    const order = data.weighted ? "most important first" : "spread over the layer";
    const count = some ? `${layer.samples.length} of ${all}, ${order}` : all;
    return make(
      "section",
      {},
      make("h3", {}, `Kernels${whose} `, make("span", { class: "soft" }, count)),
      make(
        "div",
        { class: `sheet${seen(shape).length > 2 ? " wide" : ""}` },
        ...layer.samples.map((kernel, i) => picture(kernel, seen(shape), `kernel ${i + 1}`)),
      ),
    );
  }

  /** Marks a layer wherever it appears: its column of cells, its name and its row of the table. */
  function choose(index) {
    for (const node of document.querySelectorAll(".chosen")) node.classList.remove("chosen");
    const places = `[data-layer="${index}"], [data-column="${index}"]:not(.cell)`;
    for (const node of document.querySelectorAll(`main :is(${places})`))
      node.classList.add("chosen");
  }

  /** The layer, or, in a comparison, the layer of both networks. */
  const sides = (layer) =>
    layer.other
      ? [
          [layer, " in A"],
          [{ ...layer, ...layer.other }, " in B"],
        ]
      : [[layer, ""]];

  function openLayer(index, from) {
    const layer = data.layers[index];
    const shape = shapes.get(layer.shape);
    const panel = $("panel");
    if (from) opener = from;
    panel.dataset.layer = index;
    $("panel-title").replaceChildren(...breakable(layer.path));
    $("panel-body").replaceChildren(
      ...[
        facts(index),
        ...(shape ? sides(layer).map(([one, whose]) => spectrum(one, shape, whose)) : []),
        data.comparison ? null : perAxis(layer),
        ...(shape ? sides(layer).map(([one, whose]) => sampleSheet(one, shape, whose)) : []),
      ].filter(Boolean),
    );
    $("panel-body").scrollTop = 0;
    $("previous").disabled = index === 0;
    $("next").disabled = index === data.layers.length - 1;
    choose(index);
    if (from) {
      showPanel(true, from);
      panel.focus({ preventScroll: true });
      from.scrollIntoView({ block: "nearest", inline: "nearest", behavior: "instant" });
    } else if (document.activeElement === document.body || document.activeElement.disabled)
      panel.focus();
  }

  /** The page makes room for the panel; `anchor` stays where it is on the screen. */
  function showPanel(shown, anchor) {
    const before = anchor.getBoundingClientRect().top;
    $("panel").hidden = !shown;
    document.body.classList.toggle("with-panel", shown);
    scrollBy({ top: anchor.getBoundingClientRect().top - before, behavior: "instant" });
  }

  function closePanel() {
    showPanel(false, opener);
    choose(null);
    opener.focus({ preventScroll: true });
  }

  function listenPanel() {
    const shown = () => +$("panel").dataset.layer;
    $("close").addEventListener("click", closePanel);
    $("previous").addEventListener("click", () => openLayer(shown() - 1, null));
    $("next").addEventListener("click", () => openLayer(shown() + 1, null));
    document.addEventListener("keydown", (event) => {
      // In the filter box Esc clears the text.
      if (event.key !== "Escape" || event.target === $("filter")) return;
      $("tooltip").hidden = true;
      if (!$("panel").hidden) closePanel();
    });
    document.addEventListener(
      "scroll",
      () => {
        if ($("tooltip").hidden) return;
        const cell = document.querySelector(".cell:focus-visible"); // moving the focus may scroll
        if (cell) placeTooltip(cell);
        else $("tooltip").hidden = true;
      },
      { capture: true, passive: true },
    );
  }

  // ---- Tables ------------------------------------------------------------------------------

  function listenTables() {
    for (const table of document.querySelectorAll("table.sortable")) {
      table.tHead.addEventListener("click", (event) => {
        const head = event.target.closest("th[aria-sort]");
        if (head) sortBy(table, head);
      });
    }
    for (const name of document.querySelectorAll(":is(#layers, #pruning, #changes) tbody th > *"))
      name.replaceChildren(...breakable(name.textContent));
    for (const body of document.querySelectorAll(":is(#layers, #pruning, #changes) tbody"))
      body.addEventListener("click", (event) => {
        const row = event.target.closest("tr[data-layer]");
        if (row) openLayer(+row.dataset.layer, row.querySelector("button"));
      });
    $("filter").addEventListener("input", () => {
      const wanted = $("filter").value.trim().toLowerCase();
      const rows = [...$("layers").tBodies[0].rows];
      for (const row of rows)
        row.hidden = !data.layers[row.dataset.layer].path.toLowerCase().includes(wanted);
      const left = rows.filter((row) => !row.hidden).length;
      $("filter-count").textContent =
        left === rows.length ? plural(left, "layer") : `${left} of ${plural(rows.length, "layer")}`;
    });
  }

  /** Two spectra in one small picture: the first as an area of steps, the second as a line. */
  function pairedSpectra(before, after) {
    const top = Math.max(largest(before), largest(after), 1e-12);
    const width = 120;
    const height = 26;
    const steps = (values) =>
      values
        .map((value, i) => {
          const y = (height - 1 - ((value ?? 0) / top) * (height - 2)).toFixed(1);
          const [left, right] = [i, i + 1].map((at) => ((at * width) / values.length).toFixed(1));
          return `${left} ${y}H${right}`;
        })
        .join("L");
    return make(
      "svg",
      {
        class: "paired",
        viewBox: `0 0 ${width} ${height}`,
        role: "img",
        "aria-label": "both spectra, from smooth to fine",
      },
      make("path", { class: "before", d: `M0 ${height}L${steps(before)}V${height}z` }),
      make("path", { class: "after", d: `M${steps(after)}` }),
    );
  }

  function drawComparison() {
    for (const cell of document.querySelectorAll("td.spectra")) {
      const { path } = data.comparison.layers[cell.dataset.index];
      const { ed, other } = data.layers.find((layer) => layer.path === path);
      cell.append(pairedSpectra(shares(ed), shares(other.ed)));
    }
  }

  drawHeatmaps();
  drawComparison();
  listenPanel();
  listenTables();
  for (const frame of document.querySelectorAll(".table-frame, .scroll")) showEdges(frame);
})();
