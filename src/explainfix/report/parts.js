"use strict";
// What the pages of spectra share; each of them takes from it by name.
const parts = (() => {
  const $ = (id) => document.getElementById(id);

  // ---- Elements, numbers -------------------------------------------------------------------

  /** An element; children are elements or text, so a layer's name can never become markup. */
  function make(tag, attributes = {}, ...children) {
    const svg = ["svg", "rect", "path"].includes(tag);
    const node = svg
      ? document.createElementNS("http://www.w3.org/2000/svg", tag)
      : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("--")) node.style.setProperty(name, value);
      else node.setAttribute(name, value);
    }
    node.append(...children.filter((child) => child !== null));
    return node;
  }

  const isNumber = (value) => typeof value === "number";
  const sum = (values) => values.reduce((total, value) => total + (value ?? 0), 0);
  const largest = (values) => values.reduce((top, value) => Math.max(top, value ?? 0), 0);
  const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

  function percent(share) {
    if (!isNumber(share)) return "no value";
    if (share > 0 && share < 0.001) return "<0.1%";
    return `${(100 * share).toFixed(share >= 0.0995 || share === 0 ? 0 : 1)}%`;
  }

  function plain(value) {
    if (!isNumber(value)) return "no value";
    if (value === 0) return "0";
    return Math.abs(value) < 1e-3 ? value.toExponential(1) : String(Number(value.toPrecision(3)));
  }

  function shares(values) {
    const total = sum(values);
    return values.map((value) => (isNumber(value) && total > 0 ? value / total : null));
  }

  // ---- Pictures of kernels -----------------------------------------------------------------

  const BLUE = [33, 102, 172];
  const WHITE = [250, 250, 250];
  const RED = [190, 40, 48];

  /** Blue is negative, white zero, red positive; `value` lies in -1 to 1. */
  function signedColour(value) {
    const end = value < 0 ? BLUE : RED;
    const part = Math.abs(value) ** 0.85; // a little lift, so that weak pixels can be seen
    return `rgb(${WHITE.map((white, i) => Math.round(white + part * (end[i] - white)))})`;
  }

  /** A kernel with its own scale, symmetric about zero; a 3-D kernel is a row of slices. */
  function picture(values, shape, title = "") {
    const width = shape.at(-1);
    const height = shape.length > 1 ? shape.at(-2) : 1;
    const slices = values.length / (width * height);
    const limit = 1.1 * Math.max(largest(values.map((value) => Math.abs(value ?? 0))), 1e-12);
    const gap = 0.5;
    const full = slices * (width + gap) - gap;
    const svg = make("svg", {
      class: "picture",
      viewBox: `0 0 ${full} ${height}`,
      "shape-rendering": "crispEdges",
      "--wide": full / Math.max(height, width),
      "--high": height / Math.max(height, width),
      ...(title ? { role: "img", "aria-label": title } : { "aria-hidden": "true" }),
    });
    values.forEach((value, i) => {
      const slice = Math.floor(i / (width * height));
      svg.append(
        make("rect", {
          x: slice * (width + gap) + (i % width),
          y: Math.floor(i / width) % height,
          width: 1.02,
          height: 1.02,
          fill: signedColour((value ?? 0) / limit), // no hairlines between
        }),
      );
    });
    return svg;
  }

  /** The shape of the pictures of a shape's kernels: large ones are shown in part. */
  const seen = (shape) => shape.pictured ?? shape.shape;

  const shapeTitle = (shape) =>
    shape.shape.length === 1 ? `Kernels of length ${shape.name}` : `${shape.name} kernels`;

  /** A path that may break after its dots, not within a word. */
  const breakable = (path) => path.split(/(?<=[./])/).flatMap((part) => [part, make("wbr")]);

  const axisNames = (dimensions) =>
    ({ 1: ["along"], 2: ["vertical", "horizontal"], 3: ["depth", "vertical", "horizontal"] })[
      dimensions
    ] ?? Array.from({ length: dimensions }, (_, axis) => `axis ${axis + 1}`);

  /** "basis filter 3: vertical 0, horizontal 2", numbered from 0 as in the paper */
  function filterName(shape, filter) {
    if (shape.groups) return `basis filters ${shape.groups[filter].join(" to ")}`;
    const name = `basis filter ${filter}`;
    const frequency = shape.frequencies?.[filter];
    if (!frequency) return name;
    const axes = axisNames(frequency.length);
    if (frequency.every((f) => f === 0)) return `${name}: flat`;
    return `${name}: ${frequency.map((f, i) => `${axes[i]} ${f}`).join(", ")}`;
  }

  /** Row and column of a filter laid out by frequency, or, without frequencies, in reading order. */
  function spotOf(shape, filter) {
    const frequency = shape.frequencies?.[filter];
    const side = Math.ceil(Math.sqrt(shape.basis.length));
    if (!frequency) return [Math.floor(filter / side), filter % side];
    const [across, down, ...deep] = [...frequency].reverse();
    return [down ?? 0, across + shape.shape.at(-1) * sum(deep)];
  }

  /** Rows of filters laid out so: [row, [[filter, column], ...]]. */
  function laidOut(shape) {
    const rows = new Map();
    const order = shape.basis
      .map((_, filter) => [filter, ...spotOf(shape, filter)])
      .sort((a, b) => a[1] - b[1] || a[2] - b[2]);
    for (const [filter, row, column] of order)
      rows.set(row, [...(rows.get(row) ?? []), [filter, column]]);
    return [...rows];
  }

  // ---- Cells, tooltips, tables ----------------------------------------------------------------

  const times = (doublings) => `${Number((2 ** doublings).toPrecision(2))}×`;
  const points = (value) => `${value > 0 ? "+" : value < 0 ? "−" : ""}${percent(Math.abs(value))}`;

  function colourCell(cell, sign, part) {
    cell.classList.toggle("parted", sign !== null);
    cell.classList.toggle("less", sign < 0);
    cell.style.setProperty("--v", part.toFixed(3));
  }

  function placeTooltip(cell) {
    const spot = cell.getBoundingClientRect();
    const tip = $("tooltip").getBoundingClientRect();
    const room = document.documentElement.clientWidth - tip.width - 8;
    $("tooltip").style.left =
      `${Math.max(8, Math.min(spot.left + spot.width / 2 - tip.width / 2, room))}px`;
    $("tooltip").style.top =
      `${spot.top > tip.height + 12 ? spot.top - tip.height - 8 : spot.bottom + 8}px`;
  }

  const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

  /** The next cell in a direction; columns of other shapes are stepped over. */
  function neighbour(grid, cell, key) {
    const all = [...grid.cells.values()];
    const row = cell.dataset.row;
    const inRow = all.filter((other) => other.dataset.row === row);
    if (key === "Home") return inRow[0];
    if (key === "End") return inRow.at(-1);
    const [down, right] = STEPS[key];
    const line = right
      ? inRow
      : all.filter((other) => other.dataset.column === cell.dataset.column);
    return line[line.indexOf(cell) + down + right];
  }

  const collator = new Intl.Collator("en", { numeric: true }); // layer2 before layer10

  function sortBy(table, head) {
    const column = [...head.parentNode.children].indexOf(head);
    const text = head.dataset.kind === "text";
    // Names start at A, numbers at the largest: what people look for first.
    const first = text ? "ascending" : "descending";
    const second = text ? "descending" : "ascending";
    const direction = head.getAttribute("aria-sort") === first ? second : first;
    for (const other of table.querySelectorAll("th[aria-sort]"))
      other.setAttribute("aria-sort", other === head ? direction : "none");
    const sign = direction === "ascending" ? 1 : -1;
    const keyed = [...table.tBodies[0].rows].map((row) => ({
      row,
      key: row.cells[column].dataset.value,
    }));
    keyed.sort((a, b) => {
      if (a.key === "" || b.key === "") return (a.key === "") - (b.key === ""); // gaps go last
      return sign * (text ? collator.compare(a.key, b.key) : a.key - b.key);
    });
    table.tBodies[0].append(...keyed.map(({ row }) => row));
  }

  // ---- Frames that scroll ------------------------------------------------------------------

  /** Shows at its edges that a frame has more than is in sight. */
  function showEdges(frame) {
    const edges = make("div", { class: "edges" });
    frame.replaceWith(edges);
    edges.append(frame);
    const look = () => {
      const right = frame.scrollWidth - frame.clientWidth - frame.scrollLeft;
      const below = frame.scrollHeight - frame.clientHeight - frame.scrollTop;
      edges.classList.toggle("more-right", right > 2);
      edges.classList.toggle("more-left", frame.scrollLeft > 2);
      edges.classList.toggle("more-below", below > 2);
    };
    frame.addEventListener("scroll", look, { passive: true });
    const watch = new ResizeObserver(look);
    watch.observe(frame);
    watch.observe(frame.firstElementChild);
  }

  /** A grid that is pointed at, walked with the arrow keys, and whose cells open their layer. */
  function listen(grid, point, open) {
    const cellOf = (event) => event.target.closest?.("[role=gridcell]");
    grid.node.addEventListener("pointerover", (event) => point(grid, cellOf(event)));
    grid.node.addEventListener("pointerleave", () => point(grid, null));
    grid.node.addEventListener("focusin", (event) => {
      const cell = cellOf(event);
      if (!cell) return;
      for (const other of grid.cells.values()) other.tabIndex = other === cell ? 0 : -1;
      if (cell.matches(":focus-visible")) point(grid, cell);
    });
    grid.node.addEventListener("focusout", () => point(grid, null));
    grid.node.addEventListener("click", (event) => {
      const cell = cellOf(event);
      if (cell) open(+cell.dataset.layer, cell);
    });
    grid.node.addEventListener("keydown", (event) => {
      const cell = cellOf(event);
      if (!cell) return;
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        open(+cell.dataset.layer, cell);
      } else if (event.key in STEPS || event.key === "Home" || event.key === "End") {
        event.preventDefault();
        neighbour(grid, cell, event.key)?.focus();
      }
    });
  }

  return {
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
  };
})();
