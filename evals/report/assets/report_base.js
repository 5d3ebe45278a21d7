// What every part of the page uses: the data, elements made of text, which runs are shown and how each one looks.

let data = JSON.parse(document.getElementById("data").textContent);

const SVG = "http://www.w3.org/2000/svg";
const NUM_COLORS = 7;
const DASHES = ["", "7 3", "2 2.5"];
const MARKERS = [
  "M-3.2 0a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0 -6.4 0",
  "M-2.9 -2.9h5.8v5.8h-5.8z",
  "M0 -3.7L3.5 2.7H-3.5z",
  "M0 -3.9L3.9 0L0 3.9L-3.9 0z",
  "M0 3.7L3.5 -2.7H-3.5z",
  "M-1.3 -3.6h2.6v2.3h2.3v2.6h-2.3v2.3h-2.6v-2.3h-2.3v-2.6h2.3z",
  "M-3.5 -2.2l1.3 -1.3L0 -1.3l2.2 -2.2l1.3 1.3L1.3 0l2.2 2.2l-1.3 1.3L0 1.3l-2.2 2.2l-1.3 -1.3L-1.3 0z",
];
const FEW = 7;

// An element; children are nodes or text, and data only ever becomes text. `on` maps events to handlers.
function make(space, tag, attributes, children) {
  const node = space ? document.createElementNS(space, tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}
const el = (tag, attributes, ...children) => make(null, tag, attributes, children);
const svg = (tag, attributes, ...children) => make(SVG, tag, attributes, children);
const body = (section) => document.querySelector(`#${section} > .body`);

// Fills a place with nodes, some given as [key, make, then]: one whose key was there is kept, and `then` gets it in any case.
// What stays is not taken out: it keeps the focus, what is open in it and how far it is scrolled.
function refill(place, parts) {
  const before = place.kept ?? new Map();
  place.kept = new Map();
  for (const [key, make, then] of parts.map((part) => [part].flat())) {
    place.kept.set(key, before.get(key) ?? make?.() ?? key);
    then?.(place.kept.get(key));
  }
  const nodes = new Set(place.kept.values());
  [...place.childNodes].filter((node) => !nodes.has(node)).forEach((node) => node.remove());
  let next = place.firstChild;
  for (const node of nodes)
    if (node === next) next = node.nextSibling;
    else place.insertBefore(node, next);
}

const SAMPLE = "quatro sample RUN -b BENCHMARK -n 64 --grade";
const empty = (...words) => el("p", { class: "empty" }, ...words);
const emptyWithCommand = (words, command) => empty(words, el("code", {}, command), ".");

// Text with `commands` set apart.
const marked = (text) => text.split("`").map((part, index) => (index % 2 ? el("code", {}, part) : part));

function show(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6)) return value.toExponential(2);
  return String(Number(value.toPrecision(digits)));
}
const whole = (value) => value.toLocaleString("en-US");
const plural = (count, word) => `${whole(count)} ${word}${count === 1 ? "" : "s"}`;

// ---- the sections; `shows` gives what each is made of, and what it draws: news makes it anew only for the first of them

const SECTIONS = [
  { id: "overview", title: "Overview", build: buildHeader, shows: () => [[data.title, data.sources, data.latest, data.statuses, data.notes, data.groups, data.problems.map(setName)]] },
  { id: "picker", build: buildPicker, shows: () => [data.groups] },
  { id: "runs", title: "Runs", build: buildRuns, shows: () => [[data.runs, data.groups]] },
  { id: "configuration", title: "Configuration", build: buildConfiguration, shows: () => [[data.config, data.groups]] },
  { id: "training", title: "Training", build: buildTraining, shows: () => [[data.charts.map((chart) => ({ ...chart, curves: isEvaluation(chart) && chart.curves })), data.groups], data.charts] },
  { id: "results", title: "Results", build: buildResults, shows: () => [[data.results, data.groups]] },
  { id: "problems", title: "Problems and answers", build: buildProblems, shows: () => [data.problems.length > 0, [data.problems, data.groups]] },
];

// Makes a section, anew if it is there: what a person has unfolded, scrolled or focused stays so.
function build({ id, build: fill }) {
  const place = body(id) ?? document.getElementById(id);
  const movable = () => new Map([...place.querySelectorAll("details, .scroll")].map((one) => [one.className + one.ariaLabel, one]));
  const stops = () => [...place.querySelectorAll("button, input, select, summary, [tabindex]")];
  const before = [...movable()].map(([key, { open, scrollTop, scrollLeft }]) => [key, { open, scrollTop, scrollLeft }]);
  const [numStops, focused] = [stops().length, stops().indexOf(document.activeElement)];
  listeners.set(id, []);
  building = id;
  place.replaceChildren();
  fill();
  before.forEach(([key, how]) => Object.assign(movable().get(key) ?? {}, how));
  if (stops().length === numStops) stops()[focused]?.focus({ preventScroll: true });
}

// ---- which groups are shown, and the look of each while it is

const state = { slots: new Map(), each: false, smooth: true };
const listeners = new Map(); // of each section
let building = null;
const onChange = (listener) => (listeners.get(building).push(listener), listener()); // it draws now, too
const redraw = (id) => listeners.get(id).forEach((listener) => listener());
const changed = () => [...listeners.keys()].forEach(redraw);
const isShown = (group) => state.slots.has(group);

// A group keeps its colour while it is shown; the next one takes the first that is free.
function setShown(group, shown) {
  if (!shown) state.slots.delete(group);
  else if (!isShown(group)) {
    const taken = new Set(state.slots.values());
    let slot = 0;
    while (taken.has(slot)) slot += 1;
    state.slots.set(group, slot);
  }
}

const shownGroups = () => [...state.slots.keys()].sort((a, b) => a - b);

function look(group, seed = 0) {
  const slot = state.slots.get(group) ?? 0;
  return {
    color: `var(--c${slot % NUM_COLORS})`,
    dash: DASHES[(Math.floor(slot / NUM_COLORS) + seed) % DASHES.length],
    marker: MARKERS[slot % MARKERS.length],
  };
}

// Curves to draw: one for each shown group, or one for each of its runs.
function shownCurves() {
  const curves = [];
  for (const group of shownGroups()) {
    const { label, runs } = data.groups[group];
    if (!state.each) curves.push({ group, label, runs, ...look(group) });
    else runs.forEach((run, seed) => curves.push({ group, label: data.runs[run].name, runs: [run], ...look(group, seed) }));
  }
  return curves;
}

function swatch({ color, dash, marker }) {
  return svg("svg", { class: "swatch", viewBox: "0 0 26 12", "aria-hidden": "true" },
    svg("line", { x1: 1, x2: 25, y1: 6, y2: 6, stroke: color, "stroke-width": 2.2, "stroke-dasharray": dash || null }),
    svg("path", { d: marker, fill: color, transform: "translate(13 6)" }),
  );
}

// ---- the list of runs

function firstShown() {
  const all = data.groups.map((_, group) => group);
  if (all.length <= FEW) return all;
  const isBase = (group) => !data.runs[data.groups[group].runs[0]].has_config;
  const { cell } = data.groups[all.find((group) => !isBase(group)) ?? 0];
  return [...all.filter(isBase).slice(0, 1), ...all.filter((group) => data.groups[group].cell === cell)].slice(0, FEW);
}

function buildPicker() {
  const picker = document.getElementById("picker");
  const cells = [...new Set(data.groups.map((group) => group.cell))];
  const boxes = new Map();
  const choose = (groups, shown) => {
    groups.forEach((group) => setShown(group, shown));
    changed();
  };
  const all = data.groups.map((_, group) => group);

  const lists = cells.map((cell) => {
    const members = all.filter((group) => data.groups[group].cell === cell);
    const rows = members.map((group) => {
      const box = el("input", { type: "checkbox", on: { change: () => choose([group], box.checked) } });
      const place = el("span", { class: "look" });
      const seeds = data.groups[group].runs.length;
      const row = el("label", { class: "pick", on: { pointerenter: () => emphasise(group), pointerleave: () => emphasise(null) } },
        box,
        place,
        el("span", { class: "name" }, data.groups[group].label),
        seeds > 1 ? el("span", { class: "dim" }, `×${seeds}`) : null,
      );
      boxes.set(group, { box, place, row });
      return row;
    });
    if (cells.length === 1) return el("div", { class: "cell" }, ...rows);
    const only = () => {
      state.slots.clear();
      choose(members, true);
    };
    const head = el("div", { class: "cellhead" },
      el("span", {}, cell || "other runs"),
      el("button", { type: "button", on: { click: only } }, "only"),
      el("button", { type: "button", on: { click: () => choose(members, true) } }, "add"),
    );
    return el("div", { class: "cell" }, head, ...rows);
  });

  const filter = () => boxes.forEach(({ row }, group) => (row.hidden = !data.groups[group].label.toLowerCase().includes(search.value.toLowerCase())));
  const search = el("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter the list of runs by name", on: { input: filter } });
  const matching = () => all.filter((group) => !boxes.get(group).row.hidden);
  const hasSeeds = data.groups.some((group) => group.runs.length > 1);
  const toggle = (text, key, title) => {
    const box = el("input", { type: "checkbox", on: { change: () => ((state[key] = box.checked), changed()) } });
    box.checked = state[key];
    return el("label", { class: "toggle", title }, box, text);
  };
  const content = el("details", { open: true },
    el("summary", {}, "Runs shown ", el("span", { class: "dim", id: "numshown" })),
    data.groups.length > 12 ? search : null,
    el("div", { class: "buttons" },
      el("button", { type: "button", id: "showall", on: { click: () => choose(matching(), true) } }, "All"),
      el("button", { type: "button", id: "shownone", on: { click: () => choose(matching(), false) } }, "None"),
    ),
    el("div", { class: "cells", role: "group", "aria-label": "Runs shown in figures and tables" }, ...lists),
    hasSeeds ? toggle("each seed on its own", "each", "Otherwise runs that differ in their seed alone are averaged") : null,
    toggle("smooth curves over steps", "smooth", "Running mean; the pointer reads each step as it was"),
  );
  if (window.matchMedia("(max-width: 900px)").matches && data.groups.length > 4) content.open = false;
  picker.append(content);

  onChange(() => {
    for (const [group, { box, place }] of boxes) {
      box.checked = isShown(group);
      place.replaceChildren(...(isShown(group) ? [swatch(look(group))] : []));
    }
    const shown = shownGroups().length;
    document.getElementById("numshown").textContent = `${shown} of ${data.groups.length}`;
  });
}

// Everything that belongs to another group steps back.
function emphasise(group) {
  for (const node of document.querySelectorAll("[data-group]"))
    node.classList.toggle("back", group !== null && isShown(group) && node.dataset.group !== String(group));
}
