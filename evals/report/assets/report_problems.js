// Every problem with the counts of each run, and for a spread of them the answers, side by side.

const PAGE_ROWS = 50;
const MOST_COLUMNS = 8;
const FIRST_CARDS = 6;

function buildProblems() {
  const place = body("problems");
  if (!data.problems.length) {
    place.append(emptyWithCommand("There are no samples to browse. Draw some: ", SAMPLE));
    return;
  }
  const sets = data.problems.map((set) => ({ ...set, byRun: new Map(set.runs.map((one, member) => [one.run, { ...one, member }])) }));
  const view = { set: sets[0], search: "", order: "id", keep: "all", rows: PAGE_ROWS, open: new Set() };
  const list = el("div");
  const found = el("span", { class: "dim", id: "numproblems", "aria-live": "polite" });
  const again = (event) => {
    Object.assign(view, event, { rows: PAGE_ROWS });
    draw();
  };
  const select = (id, label, options, onPick) => {
    const node = el("select", { id, on: { change: () => onPick(node.value) } }, ...options.map(([value, text]) => el("option", { value }, text)));
    return el("label", {}, label, node);
  };
  const search = el("input", { type: "search", id: "search", placeholder: "part of an id", on: { input: () => again({ search: search.value.toLowerCase() }) } });

  const draw = () => {
    const columns = problemColumns(view.set);
    const shown = columns.slice(0, MOST_COLUMNS);
    const rows = problemRows(view, columns);
    found.textContent = `${plural(rows.length, "problem")} of ${whole(view.set.ids.length)}`;
    const parts = [];
    if (!columns.length) parts.push(empty("None of the runs shown was sampled on this; choose others in the list of runs."));
    if (columns.length > shown.length) parts.push(el("p", { class: "warning" }, `The first ${shown.length} of ${columns.length} runs shown have a column here; the order is by all of them.`));
    if (columns.length) parts.push(problemTable(view, shown, rows.slice(0, view.rows), draw));
    if (rows.length > view.rows) {
      const more = () => {
        view.rows += PAGE_ROWS;
        draw();
      };
      parts.push(el("button", { type: "button", class: "more", on: { click: more } }, `Show ${Math.min(PAGE_ROWS, rows.length - view.rows)} more of ${whole(rows.length - view.rows)}`));
    }
    list.replaceChildren(...parts);
  };
  place.append(
    el(
      "div",
      { class: "controls" },
      select("problemset", "Samples ", sets.map((set, index) => [index, `${set.benchmark} · ${set.sampling}`]), (value) => again({ set: sets[Number(value)], open: new Set() })),
      el("label", {}, "Find ", search),
      select("order", "Sort by ", [["id", "order of the benchmark"], ["hardest", "fewest correct (c/n)"], ["easiest", "most correct (c/n)"], ["clusters", "most clusters"], ["gap", "largest difference between runs"]], (value) => again({ order: value })),
      select("keep", "Keep ", [["all", "all"], ["answers", "with answers here"], ["some", "solved by some runs only"], ["none", "solved by no run"]], (value) => again({ keep: value })),
      found,
    ),
    el("p", { class: "note" }, "c/n is the share of correct samples, the small number counts clusters of different correct answers. A problem marked ▸ opens its answers."),
    list,
  );
  onChange(draw);
}

// One column a shown curve: the runs of it that were sampled on this set.
function problemColumns(set) {
  return shownCurves()
    .map((curve) => ({ ...curve, members: curve.runs.map((run) => set.byRun.get(run)).filter(Boolean) }))
    .filter((column) => column.members.length);
}

function counted(column, problem) {
  const present = column.members.filter((member) => member.n[problem] !== null);
  if (!present.length) return null;
  const total = (key) => present.reduce((sum, member) => sum + member[key][problem], 0);
  return { c: total("c"), n: total("n"), share: total("c") / total("n"), clusters: total("clusters") / present.length, seeds: present.length };
}

function problemRows(view, columns) {
  const rows = view.set.ids.map((id, problem) => {
    const counts = columns.map((column) => counted(column, problem)).filter(Boolean);
    const shares = counts.map((count) => count.share);
    return { problem, id: id[0], shares, mean: shares.reduce((sum, share) => sum + share, 0) / (shares.length || 1), clusters: Math.max(0, ...counts.map((count) => count.clusters)), gap: shares.length ? Math.max(...shares) - Math.min(...shares) : 0 };
  });
  const keep = {
    all: () => true,
    answers: (row) => String(row.problem) in view.set.answers,
    some: (row) => row.shares.some((share) => share > 0) && row.shares.some((share) => share === 0),
    none: (row) => row.shares.every((share) => share === 0),
  }[view.keep];
  const order = { id: () => 0, hardest: (a, b) => a.mean - b.mean, easiest: (a, b) => b.mean - a.mean, clusters: (a, b) => b.clusters - a.clusters, gap: (a, b) => b.gap - a.gap }[view.order];
  return rows.filter((row) => keep(row) && row.id.toLowerCase().includes(view.search)).sort(order);
}

function problemTable(view, columns, rows, draw) {
  const head = el(
    "tr",
    {},
    el("th", { scope: "col" }, "problem"),
    ...columns.map((column) => el("th", { scope: "col", class: "number", "data-group": column.group }, swatch(column), el("div", {}, column.label), stepNote(column, view.set))),
  );
  const lines = rows.flatMap(({ problem, id }) => {
    const hasAnswers = String(problem) in view.set.answers;
    const isOpen = view.open.has(problem);
    const toggle = () => {
      if (!view.open.delete(problem)) view.open.add(problem);
      draw();
      document.querySelector(`[data-problem="${problem}"]`)?.focus();
    };
    const name = hasAnswers ? el("button", { type: "button", class: "open", "data-problem": problem, "aria-expanded": String(isOpen), on: { click: toggle } }, isOpen ? "▾ " : "▸ ", id) : el("span", { class: "shut" }, id);
    const line = el("tr", {}, el("th", { scope: "row" }, name), ...columns.map((column) => countCell(counted(column, problem), column)));
    if (!hasAnswers || !isOpen) return [line];
    return [line, el("tr", { class: "answers" }, el("td", { colspan: columns.length + 1 }, answersOf(view.set, problem)))];
  });
  const label = "Problems and how many samples of each are correct";
  return el("div", { class: "scroll whole", role: "region", tabindex: "0", "aria-label": label }, el("table", { class: "sticky problems" }, el("thead", {}, head), el("tbody", {}, ...lines)));
}

function stepNote(column, set) {
  const steps = stepsOf(column.members.map((member) => member.run), set.sampling);
  return steps ? el("small", {}, `step ${steps}`) : null;
}

function countCell(count, column) {
  if (!count) return el("td", { class: "number" }, "–");
  const bar = el("span", { class: "bar" });
  bar.style.width = `${(100 * count.share).toFixed(1)}%`;
  bar.style.background = column.color;
  const clusters = Number.isInteger(count.clusters) ? count.clusters : count.clusters.toFixed(1);
  const help = `${count.c} of ${count.n} samples correct${count.seeds > 1 ? ` in ${count.seeds} seeds` : ""}, ${clusters} clusters`;
  return el("td", { class: "number count", title: help }, bar, el("span", {}, `${count.c}/${count.n}`), el("small", {}, String(clusters)));
}

// ---- answers of one problem, a card for each shown run

function answersOf(set, problem) {
  const entry = set.answers[String(problem)];
  const groups = shownGroups();
  const cards = groups
    .flatMap((group) => data.groups[group].runs.map((run, seed) => ({ group, run, seed })))
    .filter(({ run }) => set.byRun.has(run))
    .map((one) => ({ ...one, found: entry.runs.find((answers) => answers.member === set.byRun.get(one.run).member) }))
    .filter(({ found }) => found);
  const grid = el("div", { class: "cards" });
  const fill = (count) => {
    grid.replaceChildren(...cards.slice(0, count).map((card) => answerCard(set, problem, card)));
    if (cards.length > count) grid.append(el("button", { type: "button", class: "more", on: { click: () => fill(cards.length) } }, `Show ${plural(cards.length - count, "more run")}`));
  };
  fill(FIRST_CARDS);
  const answer = textOf(set, entry.answer);
  return el(
    "div",
    { class: "answerbox" },
    entry.prompt === null ? null : el("div", { class: "ask" }, el("h4", {}, "Prompt"), answerText(set, entry.prompt)),
    answer && (entry.prompt === null || answer !== textOf(set, entry.prompt)) ? el("div", { class: "ask" }, el("h4", {}, "Reference answer"), answerText(set, entry.answer)) : null,
    grid,
  );
}

const textOf = (set, place) => set.texts[place][0];

function answerText(set, place) {
  const [text, cut] = set.texts[place];
  const shown = text === "" ? el("span", { class: "dim" }, "(empty)") : text;
  return el("pre", { dir: "auto", tabindex: "0" }, shown, cut ? el("span", { class: "cut" }, `\n… ${plural(cut, "more character")} not in this page`) : null);
}

function answerCard(set, problem, { group, run, seed, found }) {
  const own = set.byRun.get(run);
  const [n, c, clusters] = [own.n[problem], own.c[problem], own.clusters[problem]];
  const items = (rows, word) =>
    rows.map(([size, distinct, times, place]) =>
      el("li", {}, el("div", { class: "size" }, el("b", {}, `×${size}`), distinct > 1 ? el("span", { class: "dim" }, ` ${word}, ${distinct} ways to write it; this one ×${times}`) : null), answerText(set, place)),
    );
  const left = clusters - found.clusters.length;
  const leftWrong = found.distinct_wrong - found.wrong.length;
  return el(
    "article",
    { class: "card" },
    el("h4", {}, swatch(look(group, state.each ? seed : 0)), " ", data.runs[run].name),
    el("p", { class: "dim" }, `${c} of ${n} correct, ${plural(clusters, "cluster")}${found.truncated ? `, ${found.truncated} cut off at the token limit` : ""}`),
    c ? clusterBar(found.sizes, clusters, n) : null,
    found.clusters.length ? el("h5", {}, "Correct, largest clusters first") : null,
    el("ul", { class: "right" }, ...items(found.clusters, "in this cluster")),
    left > 0 ? el("p", { class: "dim" }, `and ${plural(left, "smaller cluster")}`) : null,
    found.wrong.length ? el("h5", {}, "Wrong, commonest first") : null,
    el("ul", { class: "wrong" }, ...items(found.wrong, "")),
    leftWrong > 0 ? el("p", { class: "dim" }, `and ${plural(leftWrong, "other wrong answer")}`) : null,
  );
}

// All n samples as one bar: each cluster of correct answers a block, the wrong ones the empty rest.
function clusterBar(sizes, clusters, n) {
  let x = 0;
  const blocks = sizes.map((size, index) => {
    const width = (200 * size) / n;
    const block = svg("rect", { x, y: 0, width: Math.max(0.4, width - 0.6), height: 9, class: index % 2 ? "block odd" : "block" }, svg("title", {}, `${size} of ${n}`));
    x += width;
    return block;
  });
  return svg("svg", { class: "clusters", viewBox: "0 0 200 9", preserveAspectRatio: "none", role: "img", "aria-label": `${clusters} clusters, sizes ${sizes.join(", ")}` }, svg("rect", { x: 0, y: 0, width: 200, height: 9, class: "rest" }), ...blocks);
}
