// Every problem with the counts of each run, and for a spread of them the answers, side by side.

const PAGE_ROWS = 50;
const MOST_COLUMNS = 8;
const FIRST_CARDS = 6;
const MOST_BLOCKS = 24;
const problemView = { name: "", set: null, search: "", order: "id", keep: "all", rows: PAGE_ROWS, open: new Set() };
const setName = ({ benchmark, sampling }) => `${benchmark} · ${sampling}`;
const hasAnswers = (set, problem) => data.token || String(problem) in set.answers;

function buildProblems() {
  const place = body("problems");
  if (!data.problems.length) return place.append(emptyWithCommand("There are no samples to browse. Draw some: ", SAMPLE));
  const view = problemView;
  const list = el("div");
  const [head, lines] = [el("thead"), el("tbody")];
  const label = "Problems and how many samples of each are correct";
  const table = el("div", { class: "scroll whole", role: "region", tabindex: "0", "aria-label": label }, el("table", { class: "sticky problems" }, head, lines));
  const found = el("span", { class: "dim", id: "numproblems", "aria-live": "polite" });
  const again = (event) => {
    Object.assign(view, { rows: PAGE_ROWS }, event);
    draw();
  };
  const search = el("input", { type: "search", id: "search", value: view.search, placeholder: "part of an id", on: { input: () => again({ search: search.value.toLowerCase() }) } });

  const draw = () => {
    const set = data.problems.find((one) => setName(one) === view.name) ?? data.problems[0];
    view.name = setName(set);
    view.set = { ...set, byRun: new Map(set.runs.map((one, member) => [one.run, { ...one, member }])) };
    const columns = problemColumns(view.set);
    const shown = columns.slice(0, MOST_COLUMNS);
    const rows = problemRows(view, columns);
    found.textContent = `${plural(rows.length, "problem")} of ${whole(view.set.ids.length)}`;
    const parts = [];
    if (!columns.length) parts.push(empty("None of the runs shown was sampled on this; choose others in the list of runs."));
    if (columns.length > shown.length) parts.push(el("p", { class: "warning" }, `The first ${shown.length} of ${columns.length} runs shown have a column here; the order is by all of them.`));
    if (columns.length) parts.push(table);
    const left = rows.length - view.rows;
    if (left > 0) parts.push(el("button", { type: "button", class: "more", on: { click: () => again({ rows: view.rows + PAGE_ROWS }) } }, `Show ${Math.min(PAGE_ROWS, left)} more of ${whole(left)}`));
    const focused = document.activeElement?.dataset.problem;
    head.replaceChildren(el("tr", {}, el("th", { scope: "col" }, "problem"), ...shown.map((column) => columnHead(column, view.set))));
    refill(lines, problemLines(view, shown, rows.slice(0, view.rows), draw));
    refill(list, parts);
    if (document.activeElement === document.body) list.querySelector(`[data-problem="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  };
  place.append(
    el("div", { class: "controls" },
      select("problemset", "Samples ", () => data.problems.map((set) => [setName(set), setName(set)]), view.name, (name) => again({ name, open: new Set() })),
      el("label", {}, "Find ", search),
      select("order", "Sort by ", [["id", "order of the benchmark"], ["hardest", "fewest correct (c/n)"], ["easiest", "most correct (c/n)"], ["clusters", "most clusters"], ["gap", "largest difference between runs"]], view.order, (value) => again({ order: value })),
      select("keep", "Keep ", [["all", "all"], ["answers", "with answers here"], ["some", "solved by some runs only"], ["none", "solved by no run"]], view.keep, (value) => again({ keep: value })),
      found,
    ),
    el("p", { class: "note" }, "c/n is the share of correct samples, the small number counts clusters of different correct answers. A problem marked ▸ opens its answers."),
    list,
  );
  onChange(draw);
}

// Options are [value, text], or a function that gives them as they are then.
function select(id, label, options, chosen, onPick) {
  const node = el("select", { id, on: { change: () => onPick(node.value) } });
  const fill = (pairs) => refill(node, pairs.map(([value, text]) => [`${value} ${text}`, () => el("option", { value, selected: value === chosen }, text)]));
  if (Array.isArray(options)) fill(options);
  else onChange(() => fill(options()));
  return el("label", {}, label, node);
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
  return { c: total("c"), n: total("n"), share: total("c") / total("n"), clusters: present.some((member) => member.clusters[problem] === null) ? null : total("clusters") / present.length, seeds: present.length };
}

function problemRows(view, columns) {
  const rows = view.set.ids.map((id, problem) => {
    const counts = columns.map((column) => counted(column, problem)).filter(Boolean);
    const shares = counts.map((count) => count.share);
    return { problem, id: id[0], shares, mean: shares.reduce((sum, share) => sum + share, 0) / (shares.length || 1), clusters: Math.max(0, ...counts.map((count) => count.clusters)), gap: shares.length ? Math.max(...shares) - Math.min(...shares) : 0 };
  });
  const keep = {
    all: () => true,
    answers: (row) => hasAnswers(view.set, row.problem),
    some: (row) => row.shares.some((share) => share > 0) && row.shares.some((share) => share === 0),
    none: (row) => row.shares.every((share) => share === 0),
  }[view.keep];
  const order = { id: () => 0, hardest: (a, b) => a.mean - b.mean, easiest: (a, b) => b.mean - a.mean, clusters: (a, b) => b.clusters - a.clusters, gap: (a, b) => b.gap - a.gap }[view.order];
  return rows.filter((row) => keep(row) && row.id.toLowerCase().includes(view.search)).sort(order);
}

function problemLines(view, columns, rows, draw) {
  return rows.flatMap(({ problem, id }) => {
    const isFull = hasAnswers(view.set, problem);
    const isOpen = view.open.has(id);
    const toggle = () => {
      if (!view.open.delete(id)) view.open.add(id);
      draw();
    };
    const name = isFull ? el("button", { type: "button", class: "open", "data-problem": id, "aria-expanded": String(isOpen), on: { click: toggle } }, isOpen ? "▾ " : "▸ ", id) : el("span", { class: "shut" }, id);
    const line = el("tr", {}, el("th", { scope: "row" }, name), ...columns.map((column) => countCell(counted(column, problem), column)));
    if (!isFull || !isOpen) return [line];
    // Answers stay as they are while the same runs stand there; of new samples a live page asks the server.
    const cards = answerCards(view.set, problem);
    const key = JSON.stringify([setName(view.set), problem, id, columns.length, cards.map(({ own, run, look }) => [own.source, run, data.runs[run].name, look])]);
    const counts = JSON.stringify(cards.map(({ own }) => [own.n[problem], own.c[problem]]));
    const made = () => el("tr", { class: "answers" }, el("td", { colspan: columns.length + 1 }, answersOf(view.set, problem, cards)));
    return [line, [key, made, ({ firstChild: { firstChild: box } }) => box.show?.(counts)]];
  });
}

function columnHead(column, set) {
  const steps = stepsOf(column.members.map((member) => member.run), set.sampling);
  return el("th", { scope: "col", class: "number", "data-group": column.group }, swatch(column), el("div", {}, column.label), steps ? el("small", {}, `step ${steps}`) : null);
}

function countCell(count, column) {
  if (!count) return el("td", { class: "number" }, "–");
  const bar = el("span", { class: "bar" });
  bar.style.width = `${(100 * count.share).toFixed(1)}%`;
  bar.style.background = column.color;
  const clusters = count.clusters === null ? "…" : Number.isInteger(count.clusters) ? count.clusters : count.clusters.toFixed(1);
  const help = `${count.c} of ${count.n} samples correct${count.seeds > 1 ? ` in ${count.seeds} seeds` : ""}, ${clusters} clusters`;
  return el("td", { class: "number count", title: help }, bar, el("span", {}, `${count.c}/${count.n}`), el("small", {}, String(clusters)));
}

// ---- answers of one problem, a card for each shown run

// A card for each shown run that was sampled on the problem.
function answerCards(set, problem) {
  return shownGroups()
    .flatMap((group) => data.groups[group].runs.map((run, seed) => ({ run, look: look(group, state.each ? seed : 0), own: set.byRun.get(run) })))
    .filter(({ own }) => own && own.n[problem] !== null);
}

function questionOf(set, { prompt, answer }) {
  const [asked, right] = [prompt, answer].map((text) => (text === null ? null : textOf(set, text)));
  return [
    asked ? el("div", { class: "ask" }, el("h4", {}, "Prompt"), answerText(asked)) : null,
    right && right[0] && (!asked || right[0] !== asked[0]) ? el("div", { class: "ask" }, el("h4", {}, "Reference answer"), answerText(right)) : null,
  ].filter(Boolean);
}

function answersOf(set, problem, members) {
  if (data.token) return liveAnswers(set, problem, members);
  const entry = set.answers[String(problem)];
  const cards = members
    .map((one) => ({ ...one, found: entry.runs.find((answers) => answers.member === one.own.member) }))
    .filter(({ found }) => found);
  const grid = el("div", { class: "cards" });
  const fill = (count) => {
    grid.replaceChildren(...cards.slice(0, count).map((card) => answerCard(set, problem, card)));
    if (cards.length > count) grid.append(el("button", { type: "button", class: "more", on: { click: () => fill(cards.length) } }, `Show ${plural(cards.length - count, "more run")}`));
  };
  fill(FIRST_CARDS);
  return el("div", { class: "answerbox" }, ...questionOf(set, entry), grid);
}

// A text is [words, how many characters are missing], or its place among the texts of the page.
const textOf = (set, text) => (Array.isArray(text) ? text : set.texts[text]);

function answerText([text, cut]) {
  const shown = text === "" ? el("span", { class: "dim" }, "(empty)") : text;
  return el("pre", { dir: "auto", tabindex: "0" }, shown, cut ? el("span", { class: "cut" }, `\n… ${plural(cut, "more character")} not in this page`) : null);
}

// What one run answered to a problem; `tools` gives what stands beside a right answer.
function answerCard(set, problem, { run, look, found }, counted = null, tools = () => []) {
  const own = set.byRun.get(run);
  const { n, correct } = counted ?? { n: own.n[problem], correct: own.c[problem] };
  const clusters = found.sizes.length;
  const rightText = ([times, text, key, isValid]) => {
    const mark = isValid === null ? null : el("span", { class: isValid ? "valid" : "false" }, isValid ? " valid derivation" : " false derivation");
    return [el("div", { class: "size" }, el("span", { class: "dim" }, `×${times}`), mark, ...tools(key)), answerText(textOf(set, text))];
  };
  const cluster = ({ size, distinct, texts: [first, ...others] }) =>
    el("li", {},
      el("div", { class: "size" }, el("b", {}, `×${size}`), distinct > 1 ? el("span", { class: "dim" }, ` in this cluster, ${distinct} ways to write it`) : null),
      ...rightText(first),
      others.length ? el("details", {}, el("summary", {}, `${distinct - 1 > others.length ? `${others.length} of ` : ""}${plural(distinct - 1, "other way")}`), ...others.flatMap(rightText)) : null,
    );
  const left = clusters - found.clusters.length;
  const leftWrong = found.distinct_wrong - found.wrong.length;
  return el("article", { class: "card" },
    el("h4", {}, swatch(look), " ", data.runs[run].name),
    el("p", { class: "dim" }, `${correct} of ${n} correct, ${plural(clusters, "cluster")}${found.setting ? ` by ${found.setting}` : ""}${found.truncated ? `, ${found.truncated} cut off at the token limit` : ""}`),
    correct ? clusterBar(found.sizes.slice(0, MOST_BLOCKS), clusters, n) : null,
    found.clusters.length ? el("h5", {}, "Correct, largest clusters first") : null,
    el("ul", { class: "right" }, ...found.clusters.map(cluster)),
    left > 0 ? el("p", { class: "dim" }, `and ${plural(left, "smaller cluster")}`) : null,
    found.wrong.length ? el("h5", {}, "Wrong, commonest first") : null,
    el("ul", { class: "wrong" }, ...found.wrong.map(([times, text]) => el("li", {}, el("div", { class: "size" }, el("b", {}, `×${times}`)), answerText(textOf(set, text))))),
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
