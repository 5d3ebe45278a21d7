// What a page of `quatro view` has beside the report: news, the responses of training, all answers to a problem, labels.

const token = data.token;
const address = (route, query = {}) => `${route}?${new URLSearchParams({ ...query, token })}`;
let refreshRollouts = () => {};

// What the server has at a route; `said` is posted to it. Throws its error.
async function ask(route, query, said = null) {
  const how = said ? { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(said) } : {};
  const answer = await fetch(address(route, query), how);
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error);
  return found;
}

// Fills a place with what `make` gives of an answer that is not there already, or with the reason why there is none.
function fillFrom(place, asked, make) {
  const turn = (place.turn = (place.turn ?? 0) + 1); // of several questions the last one counts
  const fill = (answer, nodes) => {
    const text = JSON.stringify(answer);
    if (place.turn !== turn || place.answer === text) return;
    place.answer = text;
    refill(place, [nodes()].flat());
  };
  return asked.then((found) => fill(found, () => make(found))).catch(({ message }) => fill(message, () => el("p", { class: "warning" }, message)));
}

// Whether there is something to choose from, and what is chosen among it.
const has = (options, chosen) => [options.length > 0, options.some(([value]) => value === chosen)];
const addSection = (after, id, title, fill, shows) => {
  document.getElementById(after).after(el("section", { id }, el("h2", {}, title), el("div", { class: "body" })));
  SECTIONS.splice(SECTIONS.findIndex((section) => section.id === after) + 1, 0, { id, title, build: fill, shows });
};
addSection("training", "rollouts", "Responses in training", buildRollouts, () => [has(rolloutRuns(), rolloutView.run), rolloutRuns()]);
addSection("problems", "labels", "Same solution or not", buildLabels, () => [has(labelSets(), labelView.source), labelSets()]);
const live = el("p", { class: "note live", role: "status" });
document.querySelector("footer").replaceChildren("Served by ", el("code", {}, "quatro view"), " on this machine; ", el("code", {}, "quatro report"), " makes one file of it.", live);

// ---- news

function listen() {
  history.replaceState(null, "", address("/"));
  let [events, asked] = [null, Promise.resolve()];
  const refresh = () => (asked = asked.then(() => ask("document")).then(update).catch(() => {}));
  // A page that nobody sees holds no connection: a browser has six of them for all its pages.
  const follow = () => {
    events?.close();
    if (document.hidden) return;
    events = new EventSource(address("events")); // which begins with a message
    events.onopen = () => (live.textContent = "Live: curves and tables grow by themselves.");
    events.onerror = () => (live.textContent = "Not connected: has quatro view ended? This page shows what it saw last.");
    events.onmessage = refresh;
  };
  document.addEventListener("visibilitychange", follow);
  follow();
}

// Takes over new data: what is shown stays shown, and only what changed is made or drawn anew.
function update(next) {
  const shown = ({ shows }) => shows().map((part) => JSON.stringify(part));
  const [{ groups }, before] = [data, SECTIONS.map(shown)];
  data = { ...next, token, similarities: data.similarities };
  if (JSON.stringify(groups) !== JSON.stringify(data.groups)) {
    const known = new Map(groups.map(({ label }, group) => [label, state.slots.get(group)]));
    state.slots = new Map(data.groups.flatMap(({ label }, group) => (known.get(label) === undefined ? [] : [[group, known.get(label)]])));
    data.groups.forEach(({ label }, group) => !known.has(label) && data.groups.length <= FEW && setShown(group, true));
  }
  SECTIONS.forEach((section, index) => {
    const [frame, drawn] = shown(section);
    if (frame !== before[index][0]) build(section);
    else if (drawn !== before[index][1]) redraw(section.id);
  });
  refreshRollouts();
}

// ---- responses in training

const rolloutView = { run: null, step: "", keep: "all", low: "", high: "", longer: "", shorter: "", rows: 10, open: new Map() };
const KEPT = {
  all: ["all", () => true],
  failed: ["reward failed", (row) => row.error[0] !== ""],
  truncated: ["cut off at the token limit", (row) => row.is_truncated],
  right: ["correct", (row) => row.correct === true],
  wrong: ["not correct", (row) => row.correct === false],
};

const rolloutRuns = () => data.runs.filter((run) => run.source).map((run) => [run.source, run.name]);

function buildRollouts() {
  const [place, view] = [body("rollouts"), rolloutView];
  const runs = data.runs.filter((run) => run.source);
  if (!runs.length) return place.append(empty("No run here has written responses yet."));
  if (!runs.some((run) => run.source === view.run)) view.run = (runs.find((run) => run.status === "running") ?? runs.at(-1)).source;
  const list = el("div");
  let found = null;
  const number = (key, words) => el("label", {}, words, el("input", { type: "number", step: "any", value: view[key], on: { input: (event) => again({ [key]: event.target.value }) } }));
  const step = el("input", { type: "number", id: "step", min: 1, "aria-label": "Iteration", on: { change: () => load({ step: step.value }) } });
  const newest = el("button", { type: "button", on: { click: () => load({ step: "" }) } }, "newest");
  const again = (event) => {
    Object.assign(view, { rows: 10 }, event);
    if (found) refill(list, rolloutNodes(found, view, again));
  };
  // Without an event there is news: then the newest iteration, unless one is chosen, or somebody has a prompt of it open.
  const load = (event) => {
    Object.assign(view, event);
    const isHeld = !event && found?.prompts.some(({ id }) => view.open.get(id));
    return fillFrom(list, ask("rollouts", { run: view.run, step: view.step || (isHeld ? found.step : "") }), (answer) => {
      found = answer;
      view.open = new Map(answer.prompts.map(({ id }) => [id, view.open.get(id)]));
      Object.assign(step, { max: answer.steps.at(-1) }, document.activeElement !== step && { value: answer.step });
      newest.textContent = answer.step === answer.steps.at(-1) ? "newest" : `newest: ${answer.steps.at(-1)}`;
      return rolloutNodes(found, view, again);
    });
  };
  place.append(
    el("div", { class: "controls" },
      select("rolloutrun", "Run ", rolloutRuns, view.run, (run) => load({ run, step: "" })),
      el("label", {}, "Iteration ", step),
      newest,
      select("rolloutkeep", "Keep ", Object.entries(KEPT).map(([key, [words]]) => [key, words]), view.keep, (keep) => again({ keep })),
      number("low", "reward from "),
      number("high", "to "),
      number("longer", "tokens from "),
      number("shorter", "to "),
    ),
    list,
  );
  load({});
  refreshRollouts = load;
}

function rolloutNodes(found, view, again) {
  const isWithin = (value, low, high) => (low === "" && high === "") || (value !== null && value >= Number(low === "" ? -Infinity : low) && value <= Number(high === "" ? Infinity : high));
  const isKept = (row) => KEPT[view.keep][1](row) && isWithin(row.reward, view.low, view.high) && isWithin(row.num_tokens, view.longer, view.shorter);
  const prompts = found.prompts.map((prompt, index) => ({ ...prompt, index, kept: prompt.rows.filter(isKept) })).filter((prompt) => prompt.kept.length);
  const node = ({ id, lam, status, rows, kept }) =>
    el("details", { class: "rollout" },
      el("summary", { on: { click: ({ target }) => view.open.set(id, !target.closest("details").open) } }, el("b", {}, id), el("span", { class: "dim" }, ` rewards ${rows.map((row) => show(row.reward, 3)).join(", ")}${lam === null ? "" : `; λ ${show(lam, 3)}`}${status && `; ${status}`}`)),
      el("div", { class: "cards" }, ...kept.map(responseCard)),
    );
  return [
    el("p", { class: "note" }, `Iteration ${found.step}: ${plural(prompts.flatMap(({ kept }) => kept).length, "response")} to ${plural(prompts.length, "prompt")}.${prompts.some(({ lam }) => lam !== null) ? " λ is the temperature of the prompt." : ""} Degenerate: all its rewards are the same.`),
    ...prompts.slice(0, view.rows).map((prompt) => [JSON.stringify(prompt), () => node(prompt), (made) => (made.open = view.open.get(prompt.id) ?? prompts.length <= 2)]),
    prompts.length > view.rows ? el("button", { type: "button", class: "more", on: { click: () => again({ rows: view.rows + 20 }) } }, `Show more of ${whole(prompts.length - view.rows)}`) : "",
  ].filter(Boolean);
}

function responseCard(row) {
  return el("article", { class: `card ${row.correct === null ? "" : row.correct ? "isright" : "iswrong"}` },
    el("p", { class: "dim" }, `reward ${show(row.reward, 4)}, advantage ${show(row.advantage, 4)}, ${row.num_tokens} tokens${row.is_truncated ? ", cut off" : ""}`),
    row.error[0] ? el("p", { class: "warning" }, row.error[0]) : null,
    row.thought[0] ? el("details", {}, el("summary", {}, "thought"), answerText(row.thought)) : null,
    answerText(row.completion),
  );
}

// ---- all answers to a problem

const cut = { similarity: "", threshold: "", linkage: "components" };

function liveAnswers(set, problem, cards) {
  const [id, how] = [set.ids[problem][0], { ...cut }];
  const head = el("div");
  const grid = el("div", { class: "cards" }, ...cards.map(() => el("div")));
  const views = cards.map(() => ({ whys: new Map(), marked: null, asked: null, told: el("div", { "aria-live": "polite" }) }));
  const threshold = el("input", { type: "number", min: 0.01, max: 1, step: 0.01, value: how.threshold, placeholder: "default", on: { change: () => draw({ threshold: threshold.value }) } });
  const draw = (event) => {
    Object.assign(cut, Object.assign(how, event));
    cards.forEach((card, index) =>
      fillFrom(grid.children[index], ask("answers", { source: card.own.source, id, ...how }), (found) => {
        if (index === 0) head.replaceChildren(...questionOf(set, found));
        return liveCard(set, problem, { ...card, found }, id, how, views[index]);
      }),
    );
  };
  const controls = el("div", { class: "controls" },
    select("similarity", "Same if ", [["", "as counted"], ...data.similarities.map((name) => [name, name])], how.similarity, (similarity) => draw({ similarity, threshold: (threshold.value = "") })),
    el("label", {}, "reaches ", threshold),
    select("linkage", "linkage ", ["components", "complete", "average", "greedy"].map((name) => [name, name]), how.linkage, (linkage) => draw({ linkage })),
  );
  let known = null;
  const show = (counts) => {
    if (counts !== known) draw();
    known = counts;
  };
  return Object.assign(el("div", { class: "answerbox" }, head, controls, grid), { show });
}

// A right answer is compared with the marked one, at first the largest cluster's, by one click. What was chosen stands
// in `view`, with the buttons by the keys of the answers: the next card, of more samples or another setting, goes on with it.
function liveCard(set, problem, card, id, how, view) {
  const unfolded = [...view.whys].filter(([, why]) => why.closest("details")?.open).map(([key]) => key);
  view.whys.clear();
  const choose = (event) => {
    Object.assign(view, event);
    view.whys.forEach((why, key) => why.nextSibling.setAttribute("aria-pressed", key === view.marked));
    const why = view.asked === view.marked ? null : view.whys.get(view.asked);
    if (!why) return view.told.remove();
    why.parentNode.nextSibling.after(view.told);
    return fillFrom(view.told, ask("why", { source: card.own.source, id, a: view.marked, b: view.asked, ...how }), whyNodes);
  };
  const tools = (key) => {
    const explain = async () => {
      const { top } = why.getBoundingClientRect();
      const told = choose({ asked: key });
      window.scrollBy(0, why.getBoundingClientRect().top - top); // the box may have stood above
      await told;
      view.told.scrollIntoView({ block: "nearest" });
    };
    const why = el("button", { type: "button", class: "why", title: "Why is it together with the marked answer, or apart from it?", on: { click: explain } }, "why?");
    view.whys.set(key, why);
    return [why, el("button", { type: "button", class: "mark", title: "Compare others with this one", on: { click: () => choose({ marked: key }) } }, "mark")];
  };
  const made = answerCard(set, problem, card, card.found, tools);
  unfolded.forEach((key) => view.whys.get(key)?.closest("details")?.setAttribute("open", ""));
  choose({ marked: view.whys.has(view.marked) ? view.marked : card.found.clusters[0]?.texts[0][2] });
  return made;
}

function whyNodes({ together, is_chained, setting, measures, shared, parts }) {
  const rows = measures.map(([name, value, threshold]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", { class: "number" }, show(value, 3)), el("td", { class: "number" }, threshold === null ? "–" : `≥ ${show(threshold)}`), el("td", {}, value >= (threshold ?? 1) ? "same" : "different")));
  return el("div", { class: "whybox" },
    el("p", {}, `The marked answer and this one are ${together ? "one solution" : "two solutions"} by ${setting}${is_chained ? ", though not alike themselves: other answers join them" : ""}.`),
    el("table", {}, el("thead", {}, el("tr", {}, ...["measure", "similarity", "threshold", "says"].map((words) => el("th", { scope: "col" }, words)))), el("tbody", {}, ...rows)),
    el("p", { class: "dim" }, parts.some(Boolean) ? "They first differ here:" : "The texts are the same:"),
    ...parts.map((part) => el("pre", {}, shared, el("mark", {}, part || "(end)"))),
  );
}

// ---- labels

const labelView = { source: null };
const labelSets = () => data.problems.flatMap((set) => set.runs.map((one) => [one.source, `${data.runs[one.run].name} · ${setName(set)}`]));

document.addEventListener("keydown", ({ key, target, repeat, ctrlKey, metaKey, altKey }) => {
  if (repeat || ctrlKey || metaKey || altKey || target.closest?.("input, select, textarea")) return;
  const button = document.querySelector(`#labels [data-key="${CSS.escape(key.toLowerCase())}"]`);
  const seen = button?.closest(".labelbox").getBoundingClientRect();
  if (seen && seen.bottom > 0 && seen.top < window.innerHeight) button.click();
});

function buildLabels() {
  const [place, view] = [body("labels"), labelView];
  const members = labelSets();
  if (!members.length) return place.append(empty("There are no samples whose answers could be compared."));
  if (!members.some(([source]) => source === view.source)) view.source = members[0][0];
  const box = el("div", { class: "labelbox" });
  const said = el("p", { class: "note", role: "status" });
  const draw = () => fillFrom(box, ask("pair", { source: view.source }), pairNodes);
  const give = (pair, label) =>
    ask("label", {}, { source: view.source, pair, label })
      .then(({ labels, samples, file }) => {
        said.replaceChildren(`${plural(labels, "label")}. What they say of each measure: `, el("code", {}, `quatro eval similarity ${samples} --labels ${file}`));
        return draw();
      })
      .catch((error) => said.replaceChildren(String(error.message)));
  // One answer to a pair: the buttons rest until the next one is there.
  const once = (act) => {
    const buttons = box.querySelectorAll("button");
    const rest = (disabled) => buttons.forEach((one) => Object.assign(one, { disabled }));
    rest(true);
    document.activeElement.blur(); // a select would take the next key
    act().finally(() => rest(false));
  };
  const button = (words, key, act) => el("button", { type: "button", "data-key": key, on: { click: () => once(act) } }, `${words} (${key})`);
  const pairNodes = ({ pair, id, texts, ...asked }) => [
    el("h3", {}, id),
    ...questionOf(null, asked),
    el("p", { class: "dim" }, "Both are correct. Are they the same solution?"),
    el("div", { class: "buttons" }, button("Same", "s", () => give(pair, "same")), button("Different", "d", () => give(pair, "different")), button("Skip", "n", draw)),
    el("div", { class: "cards" }, ...texts.map((text) => el("article", { class: "card" }, answerText(text)))),
  ];
  box.append(el("button", { type: "button", id: "startlabels", on: { click: () => draw().then(() => box.scrollIntoView({ block: "nearest" })) } }, "Show a pair"));
  place.append(
    el("p", { class: "note" }, "Half of the pairs are drawn at random, half where the measures disagree; each label is weighed by the chance of its pair."),
    el("div", { class: "controls" }, select("labelset", "Samples ", labelSets, view.source, (source) => ((view.source = source), once(draw)))),
    said,
    box,
  );
}
