// Line charts with values under the pointer or the arrow keys.

const WIDTH = 440;
const HEIGHT = 240;
const BOX = { left: 50, right: 424, top: 10, bottom: 208 };
const tip = document.getElementById("tip");

const finite = (value) => typeof value === "number" && Number.isFinite(value);

function niceTicks(low, high, count, isWhole) {
  const raw = isWhole ? Math.max(1, (high - low) / count) : (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = (isWhole ? [1, 2, 5, 10] : [1, 2, 2.5, 5, 10]).map((factor) => factor * power).find((one) => one >= raw) ?? raw;
  const ticks = [];
  for (let tick = Math.ceil(low / step - 1e-9); tick * step <= high + step * 1e-9; tick += 1) ticks.push(tick * step);
  return ticks.map((tick) => Number(tick.toPrecision(12)));
}

function logTicks(low, high) {
  const factors = high / low > 40 ? [1] : [1, 2, 5];
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power += 1)
    for (const factor of factors) ticks.push(factor * 10 ** power);
  const inside = ticks.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
  const every = Math.ceil(inside.length / 6);
  return inside.filter((_, index) => index % every === 0).map((tick) => Number(tick.toPrecision(6)));
}

// A scale from values to pixels, with its ticks.
function makeScale(values, from, to, { log = false, zero = false, ticks = null, count = 5, isWhole = false } = {}) {
  const usable = values.filter((value) => finite(value) && (!log || value > 0));
  let low = usable.length ? Math.min(...usable) : log ? 0.1 : 0;
  let high = usable.length ? Math.max(...usable) : 1;
  if (log) {
    const widen = ticks ? 1 : Math.max(1.08, Math.sqrt(10 / (high / low)));
    [low, high] = [low / widen, high * widen];
    if (ticks && low === high) [low, high] = [low / 2, high * 2];
    const place = (value) => from + ((Math.log(value) - Math.log(low)) / (Math.log(high) - Math.log(low))) * (to - from);
    return { place, ticks: ticks ?? logTicks(low, high), isLog: true };
  }
  if (zero) low = Math.min(0, low);
  if (high === low) [low, high] = [low - (zero ? 0 : 0.5), high + 0.5];
  const pad = ticks ? 0 : (high - low) * 0.06;
  low = zero && low === 0 ? 0 : low - pad;
  high += pad;
  const place = (value) => from + ((value - low) / (high - low)) * (to - from);
  return { place, ticks: ticks ?? niceTicks(low, high, count, isWhole), isLog: false };
}

function runningMean(values, isLog) {
  const half = state.smooth ? Math.floor(values.length / 24) : 0;
  if (!half) return values;
  const [into, back] = isLog ? [Math.log, Math.exp] : [(value) => value, (value) => value];
  return values.map((_, index) => {
    const window = values.slice(Math.max(0, index - half), index + half + 1).filter((value) => !isLog || value > 0);
    return window.length ? back(window.reduce((sum, value) => sum + into(value), 0) / window.length) : null;
  });
}

// Points of one shown curve in a chart over steps: mean over its runs at the steps that all of them have.
function stepPoints(chart, curve) {
  const found = curve.runs.map((run) => chart.curves.find((one) => one.run === run)).filter(Boolean);
  if (!found.length) return null;
  const maps = found.map((one) => new Map(one.x.map((x, index) => [x, one.y[index]])));
  const xs = found[0].x.filter((x) => maps.every((map) => map.has(x)));
  if (!xs.length) return null;
  const table = maps.map((map) => xs.map((x) => map.get(x)));
  const raw = xs.map((_, index) => table.reduce((sum, values) => sum + values[index], 0) / table.length);
  const smooth = table.map((values) => runningMean(values, chart.is_log));
  const among = (pick) => xs.map((_, index) => pick(...smooth.map((values) => values[index]).filter(finite)));
  const isMany = table.length > 1;
  return {
    xs,
    ys: runningMean(raw, chart.is_log),
    raw: isMany || !state.smooth ? null : raw,
    low: isMany ? among(Math.min) : null,
    high: isMany ? among(Math.max) : null,
    value: (index) => raw[index],
    read: (index) => {
      const ends = isMany ? table.map((values) => values[index]) : [];
      return show(raw[index]) + (isMany ? `  (${show(Math.min(...ends), 3)} to ${show(Math.max(...ends), 3)})` : "");
    },
  };
}

function path(xs, ys, x, y) {
  let line = "";
  let isDown = false;
  xs.forEach((value, index) => {
    const ok = finite(ys[index]) && (!y.isLog || ys[index] > 0);
    if (ok) line += `${isDown ? "L" : "M"}${x.place(value).toFixed(1)} ${y.place(ys[index]).toFixed(1)}`;
    isDown = ok;
  });
  return line;
}

function band(points, x, y) {
  const ok = points.xs.map((_, index) => index).filter((i) => [points.low[i], points.high[i]].every((value) => finite(value) && (!y.isLog || value > 0)));
  if (ok.length < 2) return null;
  const edge = (values, order) => order.map((i) => `${x.place(points.xs[i]).toFixed(1)} ${y.place(values[i]).toFixed(1)}`).join("L");
  return `M${edge(points.high, ok)}L${edge(points.low, [...ok].reverse())}Z`;
}

// A figure that draws itself again when the shown runs change. `points(curve)` gives xs, ys, low, high, raw, read.
function chartFigure({ title, unit, xLabel, points, xTicks, isLog, zero, lines, xLog = false }) {
  const plot = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "plot", role: "img", tabindex: "0" });
  let drawn = [];
  let columns = [];
  let x = null;
  let y = null;
  let at = -1;
  const cursor = svg("g", { class: "cursor", visibility: "hidden" });

  const right = lines ? BOX.right - 38 : BOX.right; // room for the names of the lines

  const draw = () => {
    drawn = shownCurves().map((curve) => ({ curve, points: points(curve) })).filter((one) => one.points);
    const xs = drawn.flatMap((one) => one.points.xs);
    const inside = drawn.flatMap(({ points: { ys, raw, low, high } }) => [...ys, ...(raw ?? []), ...(low ?? []), ...(high ?? [])]);
    columns = [...new Set(xs)].sort((a, b) => a - b);
    const ticks = xTicks ? xTicks(columns) : null;
    x = makeScale(xs, BOX.left, right, { log: xLog, ticks, count: 6, isWhole: true });
    const extra = drawn.length && lines ? lines(drawn.map((one) => one.curve)) : [];
    y = makeScale([...inside, ...extra.map((line) => line.value)], BOX.bottom, BOX.top, { log: isLog, zero });
    const nodes = [
      ...y.ticks.map((tick) => svg("line", { class: "grid", x1: BOX.left, x2: right, y1: y.place(tick), y2: y.place(tick) })),
      ...y.ticks.map((tick) => svg("text", { class: "tick end", x: BOX.left - 6, y: y.place(tick) + 4 }, show(tick))),
      ...x.ticks.map((tick) => svg("text", { class: "tick mid", x: x.place(tick), y: BOX.bottom + 16 }, show(tick))),
      svg("line", { class: "axis", x1: BOX.left, x2: right, y1: BOX.bottom, y2: BOX.bottom }),
      svg("text", { class: "tick mid", x: (BOX.left + right) / 2, y: HEIGHT - 3 }, xLabel),
    ];
    for (const { value, color, label } of extra) {
      const height = y.place(value);
      nodes.push(svg("line", { class: "radius", x1: BOX.left, x2: right, y1: height, y2: height, stroke: color }));
      nodes.push(svg("text", { class: "tick", x: right + 5, y: height + 4 }, label));
    }
    drawn.forEach(({ curve, points: found }, position) => nodes.push(curveGroup(curve, found, x, y, position)));
    if (!drawn.length) nodes.push(svg("text", { class: "tick mid", x: WIDTH / 2, y: HEIGHT / 2 }, "none of the runs shown has this"));
    plot.replaceChildren(...nodes, cursor);
    plot.setAttribute("aria-label", `${title}, ${unit}, over ${xLabel}: ${plural(drawn.length, "curve")}. Arrow keys read the values.`);
    hide();
  };

  const hide = () => {
    at = -1;
    cursor.setAttribute("visibility", "hidden");
    tip.hidden = true;
  };
  const read = (index, clientX, clientY, isSpoken) => {
    at = index;
    const value = columns[index];
    const rows = drawn
      .map(({ curve, points: found }) => ({ curve, found, index: found.xs.indexOf(value) }))
      .filter((row) => row.index >= 0 && finite(row.found.ys[row.index]))
      .sort((a, b) => b.found.value(b.index) - a.found.value(a.index));
    cursor.replaceChildren(
      svg("line", { class: "hair", x1: x.place(value), x2: x.place(value), y1: BOX.top, y2: BOX.bottom }),
      ...rows
        .filter(({ found, index: i }) => !y.isLog || found.ys[i] > 0)
        .map(({ curve, found, index: i }) => svg("circle", { cx: x.place(value), cy: y.place(found.ys[i]), r: 3.4, fill: curve.color })),
    );
    cursor.setAttribute("visibility", "visible");
    showTip(`${xLabel} ${show(value, 6)}`, rows, clientX, clientY);
    if (isSpoken)
      document.getElementById("spoken").textContent = `${xLabel} ${show(value, 6)}: ${rows.map(({ curve, found, index: i }) => `${curve.label} ${found.read(i)}`).join("; ")}`;
  };
  plot.addEventListener("pointermove", (event) => {
    if (!columns.length) return;
    const frame = plot.getBoundingClientRect();
    const where = ((event.clientX - frame.left) / frame.width) * WIDTH;
    const distances = columns.map((value) => Math.abs(x.place(value) - where));
    read(distances.indexOf(Math.min(...distances)), event.clientX, event.clientY, false);
  });
  plot.addEventListener("pointerleave", hide);
  plot.addEventListener("blur", hide);
  plot.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -columns.length, End: columns.length };
    if (event.key === "Escape") hide();
    if (!(event.key in steps) || !columns.length) return;
    event.preventDefault();
    const next = Math.min(columns.length - 1, Math.max(0, (at < 0 ? 0 : at) + steps[event.key]));
    const frame = plot.getBoundingClientRect();
    read(next, frame.left + (x.place(columns[next]) / WIDTH) * frame.width, frame.top + frame.height / 3, true);
  });
  onChange(draw);
  return el("figure", { class: "chart" }, el("figcaption", {}, el("h3", {}, title), el("span", { class: "dim" }, unit)), plot);
}

function curveGroup(curve, found, x, y, position) {
  const { color, dash, marker } = curve;
  const group = svg("g", { class: "curve", "data-group": curve.group });
  const area = found.low ? band(found, x, y) : null;
  if (area) group.append(svg("path", { d: area, fill: color, class: "band" }));
  if (found.raw) group.append(svg("path", { d: path(found.xs, found.raw, x, y), stroke: color, class: "raw" }));
  group.append(svg("path", { d: path(found.xs, found.ys, x, y), stroke: color, class: "line", "stroke-dasharray": dash || null }));
  // Markers of different curves stand at different places, so that equal curves do not cover each other.
  const every = Math.max(1, Math.floor(found.xs.length / 6));
  for (let i = Math.floor((position * every) / 4) % every; i < found.xs.length; i += every)
    if (finite(found.ys[i]) && (!y.isLog || found.ys[i] > 0))
      group.append(svg("path", { d: marker, fill: color, class: "marker", transform: `translate(${x.place(found.xs[i]).toFixed(1)} ${y.place(found.ys[i]).toFixed(1)})` }));
  return group;
}

const TIP_ROWS = 14;

function showTip(head, rows, clientX, clientY) {
  const lines = rows.slice(0, TIP_ROWS).map(({ curve, found, index }) =>
    el("div", { class: "tiprow" }, swatch(curve), el("span", { class: "name" }, curve.label), el("b", {}, found.read(index))),
  );
  if (rows.length > TIP_ROWS) lines.push(el("div", { class: "dim" }, `and ${rows.length - TIP_ROWS} more`));
  tip.replaceChildren(el("div", { class: "tiphead" }, head), ...lines);
  tip.hidden = false;
  const { offsetWidth: width, offsetHeight: height } = tip;
  const left = clientX + 16 + width > window.innerWidth ? Math.max(4, clientX - width - 16) : clientX + 16;
  tip.style.left = `${left}px`;
  tip.style.top = `${Math.max(4, Math.min(clientY - height / 2, window.innerHeight - height - 4))}px`;
}

// ---- training

const isEvaluation = (chart) => chart.metric.startsWith("eval/");

// What was evaluated before training, at the end of it and in between, a row a run; step 0 is the base model.
function evaluationTable(chart) {
  const best = ({ y }) => y.indexOf(Math.max(...y));
  const at = (curve, index) => (index < 0 ? "–" : [show(curve.y[index], 3), el("small", {}, ` step ${curve.x[index]}`)]);
  const columns = [
    { title: "run", cell: (curve) => data.runs[curve.run].name, key: (curve) => data.runs[curve.run].name },
    { title: "base model", number: true, cell: (curve) => at(curve, curve.x.indexOf(0)), key: (curve) => curve.y[curve.x.indexOf(0)] ?? null },
    { title: "best", number: true, cell: (curve) => at(curve, best(curve)), key: (curve) => curve.y[best(curve)] },
    { title: "last", number: true, cell: (curve) => at(curve, curve.y.length - 1), key: (curve) => curve.y.at(-1) },
  ];
  const words = `${chart.title}, evaluated during training`;
  return el("div", {}, el("h3", {}, words), sortedTable(columns, chart.curves, { label: words, group: (curve) => data.runs[curve.run].group }));
}

function buildTraining() {
  const place = body("training");
  if (!data.charts.length) return place.append(emptyWithCommand("No run here has metrics yet. Let one finish a step: ", data.runs.length ? "quatro train RUN --resume" : "quatro train quickstart"));
  const radii = (curves) => {
    const byDelta = new Map();
    for (const { group, color } of curves) {
      const delta = data.groups[group].delta;
      if (delta !== null) byDelta.set(delta, { group, color: byDelta.has(delta) && byDelta.get(delta).group !== group ? "var(--dim)" : color });
    }
    return [...byDelta].map(([value, { color }]) => ({ value, color, label: `δ ${show(value)}` }));
  };
  const lines = { delta: radii, one: () => [{ value: 1, color: "var(--dim)", label: "δ" }] };
  const figures = data.charts.map((chart, index) =>
    chartFigure({
      title: chart.title,
      unit: chart.unit,
      xLabel: "step",
      points: (curve) => stepPoints(data.charts[index], curve), // as they are then
      isLog: chart.is_log,
      zero: chart.is_share,
      lines: lines[chart.lines],
    }),
  );
  place.append(
    el("p", { class: "note" }, "Bold: running mean over a twelfth of the steps, of all seeds together; faint: each step; shaded: from the lowest to the highest seed. The pointer, or the arrow keys in a focused figure, read the step itself."),
    el("div", { class: "charts" }, ...figures),
    ...data.charts.filter(isEvaluation).map(evaluationTable),
  );
}
