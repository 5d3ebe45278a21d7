// Tables that sort by their heads; the runs, the configuration and the results.

const sorts = new Map(); // by the label of a table, which may be made anew

// Columns are {title, number, cell(row) -> node or text, key(row) -> value to sort by, help}.
function sortedTable(columns, rows, { label, group = () => null } = {}) {
  const kept = sorts.get(label);
  let by = columns.find((column) => kept && column.title === kept.title) ?? null;
  let falling = by !== null && kept.falling;
  const bodyPart = el("tbody");
  const heads = columns.map((column) => {
    const head = el("th", { scope: "col", class: column.number ? "number" : null, title: column.help || null });
    if (!column.key) head.append(column.title);
    else {
      const click = () => {
        falling = by === column ? !falling : Boolean(column.number);
        by = column;
        sorts.set(label, { title: by.title, falling });
        fill();
      };
      head.append(el("button", { type: "button", on: { click } }, column.title));
    }
    return head;
  });
  const fill = () => {
    heads.forEach((head) => head.removeAttribute("aria-sort"));
    heads[columns.indexOf(by)]?.setAttribute("aria-sort", falling ? "descending" : "ascending");
    const order = [...rows];
    if (by) {
      const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
      order.sort((a, b) => {
        const [left, right] = [by.key(a), by.key(b)];
        if (left === null || right === null) return (left === null) - (right === null);
        return compare(left, right) * (falling ? -1 : 1);
      });
    }
    bodyPart.replaceChildren(
      ...order.map((row) =>
        el("tr", { "data-group": group(row) },
          ...columns.map((column, index) => el(index ? "td" : "th", { class: column.number ? "number" : null, scope: index ? null : "row" }, ...[column.cell(row)].flat())),
        ),
      ),
    );
  };
  fill();
  return el("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": label },
    el("table", { class: "sticky" }, el("thead", {}, el("tr", {}, ...heads)), bodyPart),
  );
}

// ---- header

function buildHeader() {
  const counts = Object.entries(data.statuses).map(([status, count]) => `${count} ${status}`);
  const bases = data.runs.filter((run) => !run.has_config).length;
  const facts = [
    `${plural(data.runs.length - bases, "run")}${counts.length ? `: ${counts.join(", ")}` : ""}`,
    bases ? plural(bases, "base model") : null,
    data.groups.length < data.runs.length ? `${data.groups.length} settings, the rest are seeds` : null,
    data.problems.length ? `samples of ${[...new Set(data.problems.map((set) => set.benchmark))].join(", ")}` : null,
    data.latest ? `last record of ${data.latest.replace("T", " ").replace("+00:00", " UTC")}` : null,
  ].filter(Boolean);
  const sources = el("p", { class: "note" }, "From ");
  data.sources.forEach((source, index) => sources.append(index ? ", " : "", el("code", {}, source)));
  const header = document.getElementById("overview");
  header.append(el("h1", {}, data.title), el("ul", { class: "facts" }, ...facts.map((fact) => el("li", {}, fact))), sources);
  if (data.notes.length)
    header.append(
      el("details", { class: "notes", open: data.notes.length < 5 }, el("summary", {}, plural(data.notes.length, "note"), " on what is and is not here"), el("ul", {}, ...data.notes.map((note) => el("li", {}, ...marked(note))))),
    );
}

// ---- runs

function settingText(run) {
  const most = 6;
  const parts = run.settings.slice(0, most).map(([key, value]) => `${key.replace(/^.*\./, "")} ${value.replace(/^"(.*)"$/, "$1")}`);
  return parts.join(", ") + (run.settings.length > most ? `, and ${run.settings.length - most} more` : "");
}

function buildRuns() {
  const runs = data.runs.filter((run) => run.has_config);
  if (data.token && !data.runs.length) return body("runs").append(emptyWithCommand("Nothing is here yet; runs appear as they are made. Make one: ", "quatro train quickstart"));
  if (!runs.length) return body("runs").append(empty("There are samples of base models here, but no runs."));
  const cells = new Set(data.groups.map((group) => group.cell).filter(Boolean));
  const seedOf = (run) => data.groups[run.group].runs.indexOf(data.runs.indexOf(run));
  const columns = [
    { title: "run", cell: (run) => [el("span", { class: "look" }, ...(isShown(run.group) ? [swatch(look(run.group, state.each ? seedOf(run) : 0))] : [])), run.name], key: (run) => run.name },
    cells.size > 1 ? { title: "cell", cell: (run) => data.groups[run.group].cell, key: (run) => data.groups[run.group].cell } : null,
    { title: "method", cell: (run) => run.method, key: (run) => run.method },
    runs.some((run) => run.settings.length) ? { title: "settings that differ", cell: (run) => el("span", { class: "wrap" }, settingText(run)), key: settingText } : null,
    { title: "seed", number: true, cell: (run) => show(run.seed), key: (run) => run.seed },
    { title: "status", cell: (run) => [el("span", { class: `status ${["done", "running", "missing"].includes(run.status) ? run.status : "bad"}` }, run.status), run.reason && run.status !== "missing" ? el("span", { class: "wrap dim" }, " ", run.reason) : null], key: (run) => run.status },
    { title: "step", number: true, cell: (run) => `${run.step}/${run.steps ?? "?"}`, key: (run) => run.step },
    ...data.last_metrics.map((title, index) => ({ title, number: true, cell: (run) => show(run.last[index], 3), key: (run) => run.last[index], help: `Mean of the last ${data.last_steps} steps` })),
  ].filter(Boolean);
  const place = el("div");
  body("runs").append(el("p", { class: "note" }, `Numbers are means of the last ${data.last_steps} steps. Click a head to sort.`), place);
  onChange(() => place.replaceChildren(sortedTable(columns, runs, { label: "Runs", group: (run) => run.group })));
}

// ---- configuration

function buildConfiguration() {
  const { keys, runs, columns, shared } = data.config;
  const place = body("configuration");
  const numKeys = keys.length + shared.length;
  const rest = () => {
    const cols = [
      { title: "key", cell: (pair) => pair[0], key: (pair) => pair[0] },
      { title: "value", cell: (pair) => el("span", { class: "wrap" }, pair[1]), key: (pair) => pair[1] },
    ];
    const words = runs.length > 1 ? `The ${plural(shared.length, "key")} on which all runs agree` : `All ${plural(shared.length, "key")}`;
    return el("details", { class: "rest-of-config" }, el("summary", {}, words), sortedTable(cols, shared, { label: words }));
  };
  if (!runs.length || !keys.length) {
    const words = runs.length > 1 ? `These ${runs.length} runs agree on all ${numKeys} keys.` : "There is one run, so nothing differs.";
    return place.append(empty(runs.length ? words : "No run here has a configuration."), ...(runs.length ? [rest()] : []));
  }
  const onlyShown = el("input", { type: "checkbox", id: "onlyshown", on: { change: () => draw() } });
  const table = el("div");
  const draw = () => {
    const seen = new Set();
    const rows = [];
    runs.forEach((run, position) => {
      const { group } = data.runs[run];
      if (seen.has(group) || (onlyShown.checked && !isShown(group))) return;
      seen.add(group);
      rows.push({ group, position });
    });
    // The seed is what a group's runs differ in.
    const chosen = keys.map((_, key) => key).filter((key) => (keys[key] !== "seed" || rows.length === runs.length) && new Set(rows.map((row) => columns[key][row.position])).size > 1);
    if (rows.length < 2 || !chosen.length) return table.replaceChildren(empty(rows.length < 2 ? "Fewer than two settings are shown." : "The runs shown differ in their seed alone."));
    const usual = new Map(chosen.map((key) => [key, mostCommon(rows.map((row) => columns[key][row.position]))]));
    const value = (key, row) => columns[key][row.position];
    const cols = [
      { title: "setting", cell: (row) => [el("span", { class: "look" }, ...(isShown(row.group) ? [swatch(look(row.group))] : [])), data.groups[row.group].label], key: (row) => data.groups[row.group].label },
      ...chosen.map((key) => ({
        title: keys[key],
        cell: (row) => (value(key, row) === null ? el("span", { class: "dim" }, "–") : el(value(key, row) === usual.get(key) ? "span" : "b", {}, value(key, row))),
        key: (row) => (value(key, row) === null ? null : Number.isNaN(Number(value(key, row))) ? value(key, row) : Number(value(key, row))),
      })),
    ];
    table.replaceChildren(sortedTable(cols, rows, { label: "Keys on which the runs disagree", group: (row) => row.group }));
  };
  place.append(
    el("p", { class: "note" }, `Only keys that differ, of ${numKeys}; runs that differ in their seed alone are one row. Bold: not the commonest value. A dash: the method has no such key. `, el("label", { class: "toggle inline" }, onlyShown, "only the runs shown")),
    table,
    rest(),
  );
  onChange(draw);
}

function mostCommon(values) {
  const counts = new Map();
  values.filter((value) => value !== null).forEach((value) => counts.set(value, (counts.get(value) ?? 0) + 1));
  return [...counts].sort((a, b) => b[1] - a[1])[0]?.[0] ?? null;
}

// ---- results

const METRICS = {
  "pass@k": { title: "Pass@k", unit: "% of problems with a correct answer among k", scale: 100, digits: 1 },
  "ucc@k": { title: "UCC@k", unit: "distinct correct answers among k", scale: 1, digits: 2 },
  "valid-ucc@k": { title: "UCC@k without false derivations", unit: "distinct valid answers among k", scale: 1, digits: 2 },
};

function resultPoints(result, curve) {
  const { scale, digits } = METRICS[result.metric];
  const own = curve.runs.map((run) => result.byRun.get(run)).filter(Boolean);
  if (!own.length) return null;
  const mean = own.length > 1 ? result.byGroup.get(curve.group) : own[0];
  if (!mean) return null;
  const times = (values) => values.map((value) => (value === null ? null : value * scale));
  const [values, low, high] = [times(mean.v), times(mean.low), times(mean.high)];
  const read = (index) => values[index].toFixed(digits) + (low[index] === null ? "" : `  [${low[index].toFixed(digits)}, ${high[index].toFixed(digits)}]`);
  const hasBand = low.every(finite);
  return { xs: mean.k, ys: values, low: hasBand ? low : null, high: hasBand ? high : null, intervals: [low, high], value: (index) => values[index], read, source: mean, seeds: own.length };
}

// The steps whose checkpoints drew these samples of some runs; a base model has none.
function stepsOf(runs, sampling) {
  return [...new Set(runs.flatMap((run) => data.runs[run].sampled.filter(([words, step]) => words === sampling && step).map(([, step]) => step)))].join("; ");
}

function resultTable(result) {
  const { title, digits } = METRICS[result.metric];
  const place = el("div");
  onChange(() => {
    const rows = shownCurves().map((curve) => ({ curve, found: resultPoints(result, curve) })).filter((row) => row.found);
    if (!rows.length) return place.replaceChildren(empty("None of the runs shown was sampled like this."));
    const ks = [...new Set(rows.flatMap((row) => row.found.xs))].sort((a, b) => a - b);
    const at = (row, k) => row.found.ys[row.found.xs.indexOf(k)] ?? null;
    const best = new Map(ks.map((k) => [k, Math.max(...rows.map((row) => at(row, k) ?? -1))]));
    const cell = (row, k) => {
      const index = row.found.xs.indexOf(k);
      if (index < 0) return "–";
      const [low, high] = row.found.intervals.map((ends) => ends[index]);
      const value = row.found.ys[index];
      return [el(value === best.get(k) && rows.length > 1 ? "b" : "span", {}, value.toFixed(digits)), low === null ? null : el("small", {}, `${low.toFixed(digits)}–${high.toFixed(digits)}`)];
    };
    const sizes = [["samples", "n"], ["problems", "problems"]].map(([title, key]) => {
      const of = (row) => row.found.source[key];
      return { title, of, isSame: new Set(rows.map(of)).size === 1 };
    });
    const steps = (row) => stepsOf(row.curve.runs, result.sampling);
    const same = sizes.filter((size) => size.isSame).map((size) => `${whole(size.of(rows[0]))} ${size.title}`);
    const over = (row) => row.found.source.over;
    const isOneKind = new Set(rows.map(over)).size === 1;
    const said = [same.join(" of each of "), isOneKind ? over(rows[0]) : ""].filter(Boolean).join("; ");
    const columns = [
      { title: "run", cell: (row) => [el("span", { class: "look" }, swatch(row.curve)), row.curve.label], key: (row) => row.curve.label },
      rows.some(steps) ? { title: "step", number: true, cell: steps, key: steps, help: "The iteration after which the checkpoint that was sampled was saved" } : null,
      { title: "seeds", number: true, cell: (row) => String(row.found.seeds), key: (row) => row.found.seeds },
      ...sizes.filter((size) => !size.isSame).map(({ title: head, of }) => ({ title: head, number: true, cell: (row) => whole(of(row)), key: of })),
      ...(isOneKind ? [] : [{ title: "interval", cell: over, key: over }]),
      ...ks.map((k) => ({ title: `@${k}`, number: true, cell: (row) => cell(row, k), key: (row) => at(row, k) })),
    ].filter(Boolean);
    place.replaceChildren(el("h3", {}, title, " ", el("span", { class: "dim light" }, said)), sortedTable(columns, rows, { label: `${title} of the runs shown`, group: (row) => row.curve.group }));
  });
  return place;
}

function buildResults() {
  const place = body("results");
  if (!data.results.length) return place.append(emptyWithCommand("No run here was sampled on a benchmark. Draw some: ", SAMPLE));
  const byPanel = new Map();
  for (const result of data.results) {
    const byRun = new Map(result.curves.map((curve) => [curve.run, curve]));
    const byGroup = new Map(result.seeds.map((curve) => [curve.group, curve]));
    byPanel.set(setName(result), [...(byPanel.get(setName(result)) ?? []), { ...result, byRun, byGroup }]);
  }
  const panels = [...byPanel].map(([key, results]) => ({ key, node: resultPanel(results) }));
  const chosen = panels.some(({ key }) => key === state.resultset) ? state.resultset : panels[0].key;
  const choose = el("select", { id: "resultset", "aria-label": "Samples shown", on: { change: () => pick() } }, ...panels.map(({ key }) => el("option", { value: key, selected: key === chosen }, key)));
  const pick = () => {
    state.resultset = choose.value;
    panels.forEach(({ key, node }) => (node.hidden = key !== state.resultset));
  };
  pick();
  place.append(el("p", { class: "note" }, el("label", {}, "Samples ", choose)), ...panels.map(({ node }) => node));
}

function resultPanel(results) {
  const ns = new Set(results.flatMap((result) => result.curves.map((curve) => curve.n)));
  const figures = results.map((result) => {
    const { title, unit } = METRICS[result.metric];
    return chartFigure({
      title,
      unit: result.setting ? `${unit}; same: ${result.setting}` : unit,
      xLabel: "k",
      points: (curve) => resultPoints(result, curve),
      xTicks: (ks) => ks,
      xLog: true,
      isLog: false,
      zero: true,
    });
  });
  const words = results.some((result) => result.seeds.length)
    ? "Several seeds: mean, with the 95 % interval for other seeds and other problems than these (crossed random effects, Student t, logit scale). One run: 95 % bootstrap interval over problems only."
    : "Intervals: 95 % bootstrap over problems only.";
  return el("div", {},
    ns.size > 1 ? el("p", { class: "warning" }, `These runs have unequal numbers of samples (n = ${[...ns].sort((a, b) => a - b).join(", ")}): UCC@k compares at equal n only.`) : null,
    el("div", { class: "charts two" }, ...figures),
    ...results.map(resultTable),
    el("p", { class: "note" }, words, " Bold: the best of its column among the runs shown."),
  );
}
