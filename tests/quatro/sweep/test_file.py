"""Sweep files: which points they mean, and errors that name the line."""

import subprocess
import sys
from pathlib import Path

import pytest

from evals.errors import UsageError
from evals.results.paper import paper
from quatro.sweep.file import find_sweep, load_sweep, read_evaluation
from quatro.sweep.measure import base_points
from quatro.sweep.plan import Axis, plan_sweep, read_plan
from quatro.sweep.results import label_of
from quatro.sweep.run import write_plan

CELLS = """\
base: quickstart
overrides: {steps: 7}
cells:
  a:
    overrides: {optimizer.lr: 1e-4}
    axes:
      method.name: [quatro, gspo]
      method.delta: [0.1, 0.01]
    include:
      - {method.name: gspo, method.preset: official}
    seeds: [0, 1]
  b:
    base: quickstart-hard
    method: gspo
"""


@pytest.fixture
def load(tmp_path):
    def of(text: str, **options):
        path = tmp_path / "s.yaml"
        path.write_text(text, encoding="utf-8")
        return load_sweep(path, **options)

    return of


def test_seeds_rotate_through_the_models(load):
    models = "models: [embedded:countdown, 'embedded:countdown@1']\n"
    plan = load(
        models
        + CELLS.replace("[0, 1]", "[0, 1, 2, 5]").replace("    method: gspo", "    method: gspo\n    models: [m]")
    )
    seeds = {point.config.seed: point.config.model for point in plan.points if point.cell == "a"}
    assert seeds == {
        0: "embedded:countdown",
        1: "embedded:countdown@1",
        2: "embedded:countdown",
        5: "embedded:countdown@1",
    }
    assert {point.config.model for point in plan.points if point.cell == "b"} == {"m"}
    assert all("model" not in point.settings for point in plan.points)  # a group of seeds has several models


def test_the_example_of_the_docs_is_a_sweep(load, tmp_path):
    text = Path("docs/files.md").read_text(encoding="utf-8")
    plan = load(text.partition("### A sweep file")[2].partition("```yaml\n")[2].partition("```")[0])
    assert len(plan.points) == 3 * (2 + 1 + 1) + 1  # quatro twice, gspo and its official preset; and the second cell
    assert len({point.config.model for point in plan.points}) == 2
    assert read_evaluation(tmp_path / "s.yaml")["top_p"] == [1, 0.7]


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ("models: embedded:code", r"s\.yaml:1: models: found embedded:code, expected a list"),
        ("models: []", r"s\.yaml:1: models: found \[\], expected a list of different values"),
        ("models: [embedded:cuontdown]", r"s\.yaml:1: .*expected one of embedded:countdown.* of another seed"),
    ],
)
def test_models_that_are_none_are_named_with_their_line(load, models, message):
    with pytest.raises(UsageError, match=message):
        load(f"{models}\n{CELLS}")


def test_a_cell_is_its_grid_and_included_points_at_every_seed(load):
    plan = load(CELLS)
    assert [point.name for point in plan.points] == [
        "a-quatro-delta=0.1-seed=0",
        "a-quatro-delta=0.1-seed=1",
        "a-quatro-delta=0.01-seed=0",
        "a-quatro-delta=0.01-seed=1",
        "a-gspo-seed=0",
        "a-gspo-seed=1",
        "a-gspo-preset=official-seed=0",
        "a-gspo-preset=official-seed=1",
        "b-point",
    ]
    assert plan.num_collapsed == 2  # gspo at delta .01, for two seeds
    assert {point.config.steps for point in plan.points} == {7}
    assert [point.config.optimizer.lr for point in plan.points] == [1e-4] * 8 + [3e-4]
    assert plan.points[6].config.method.clip_high == 4e-4
    assert plan.points[-1].config.model == "embedded:countdown-hard"
    assert plan.points[-1].config.method.name == "gspo"
    assert [point.cell for point in plan.points] == ["a"] * 8 + ["b"]


def test_options_come_after_the_file(load):
    assert {point.config.steps for point in load(CELLS, overrides=["steps=3"]).points} == {3}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("    axes:", "    exclude: []\n    axes:", r"s\.yaml:6: cells\.a\.exclude: was removed; .*`include`"),
        (
            "    axes:",
            "    per_method: {}\n    axes:",
            r"s\.yaml:6: cells\.a\.per_method: was removed; .*a cell for each",
        ),
        ("    axes:", "    axis:", r"s\.yaml:6: cells\.a\.axis: unknown key; did you mean cells\.a\.axes\?"),
        ("optimizer.lr: 1e-4", "optimizer.lr: fast", r"s\.yaml:5: .*optimizer\.lr.*'?fast'?, expected a number"),
        ("optimizer.lr: 1e-4", "optimiser.lr: 1e-4", r"s\.yaml:5: .*did you mean optimizer"),
        ("[0.1, 0.01]", "[0.1, 0.01, -1]", r"s\.yaml:8: .*method\.delta.*-1"),
        ("[0.1, 0.01]", "0.1", r"s\.yaml:8: cells\.a\.axes\.method\.delta: found 0\.1, expected a list"),
        ("[0.1, 0.01]", "[0.1, 0.1]", r"s\.yaml:8: .*method\.delta: found .*, expected a list of different values"),
        ("seeds: [0, 1]", "seeds: [0, 0]", r"s\.yaml:11: cells\.a\.seeds"),
        ("seeds: [0, 1]", "seeds: [0, true]", r"s\.yaml:11: cells\.a\.seeds"),
        ("  b:", "  base:", r"s\.yaml:12: .*the name base"),
        ("base: quickstart-hard", "base: quickstrat", r"s\.yaml:12: cells\.b: .*did you mean quickstart\?"),
        ("base: quickstart\n", "", r"s\.yaml:3: cells\.a: base: missing"),
        ("method: gspo", "method: gpso", r"s\.yaml:\d+: cells\.b: .*gpso"),
        ("overrides: {steps: 7}", "overrides: {optimizer: {lr: 1}}", r"s\.yaml:2: .*dotted keys such as optimizer\.lr"),
        ("    method: gspo", "    method: gspo\n    method: quatro", r"s\.yaml:15: key 'method' is given twice"),
    ],
)
def test_a_mistake_is_refused_with_its_line(load, old, new, message):
    assert old in CELLS
    with pytest.raises(UsageError, match=message):
        load(CELLS.replace(old, new, 1))


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("{n: many}", r"s\.yaml:\d+: evaluation\.n: found many"),
        ("{n: true}", r"evaluation\.n: found true"),
        ("{benchmarks: all}", r"evaluation\.benchmarks: found all, expected a list"),
        ("{top_p: [0.7, x]}", r"evaluation\.top_p\.1: found x, expected a number"),
        ("{top_k: [1]}", r"evaluation\.top_k: unknown key"),
        ("[math500]", r"evaluation: found .*, expected a block of keys"),
    ],
)
def test_a_mistake_in_what_is_measured_is_refused_with_its_line(tmp_path, block, message):
    path = tmp_path / "s.yaml"
    path.write_text(f"{CELLS}evaluation: {block}\n", encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        read_evaluation(path)


def test_the_papers_sweeps_are_the_rows_of_its_tables_measured_as_it_measures():
    """Labels of the rows without those of the untrained model; the paper's average table is the reference."""
    for name, model in (("paper-math", "Qwen2.5-Math-1.5B"), ("paper-math-7b", "Qwen2.5-Math-7B")):
        path = find_sweep(name)
        plan = load_sweep(path)
        rows = {label_of(point.settings, method=point.config.method.name) for point in plan.points}
        published = {s.label for s in paper().of("pass@k") if (s.table, s.model) == ("tab:avg_passk", model)}
        assert rows == {label.replace("δ", "delta") for label in published}
        assert read_evaluation(path) == {"benchmarks": ["all"], "n": 256, "temperature": [1], "top_p": [0.7]}
        for point in plan.points:
            assert point.config.model.endswith(model)
            assert point.config.processes == (4 if "7B" in model else 2)


def test_a_file_without_cells_is_no_sweep(tmp_path):
    path = tmp_path / "plain.yaml"
    path.write_text("model: embedded:countdown\nmethod: {name: quatro}\n", encoding="utf-8")
    assert find_sweep(path) is None
    assert find_sweep("quickstart") is None
    assert find_sweep("../quickstart") is None
    assert find_sweep("paper-small") == find_sweep("sweeps/paper-small.yaml")


def test_the_small_replication_has_the_cells_of_the_paper():
    path = find_sweep("paper-small")
    assert isinstance(path, Path)
    plan = load_sweep(path)
    names = [f"S{number}" for number in range(1, 11)]
    cells = {name: [point for point in plan.points if point.cell == name] for name in names}
    assert {name: len(points) for name, points in cells.items()} == {
        "S1": 6 * 8,
        "S2": (3 + 6) * 8,
        "S3": 2 * 8,
        "S4": 2 * 2 * 5,
        "S5": 2 * 5,
        "S6": 4 * 5,
        "S7": 4 * 5,
        "S8": 5,
        "S9": 4 * 5,
        "S10": 2 * 3 * 5,
    }
    regimes = {
        name: {
            (p.config.inner_updates, p.config.prompts_per_step // p.config.minibatch_prompts, p.config.optimizer.lr)
            for p in points
        }
        for name, points in cells.items()
    }
    assert {name: regimes[name] for name in names[:9]} == {
        "S1": {(5, 1, 3e-4)},
        "S2": {(1, 4, 3e-4)},
        "S3": {(2, 4, 3e-4)},
        "S4": {(5, 1, 1e-4), (5, 1, 1e-3)},
        "S5": {(2, 1, 3e-4)},
        "S6": {(5, 1, 3e-4)},
        "S7": {(1, 1, 3e-4)},
        "S8": {(5, 1, 3e-4)},
        "S9": {(5, 1, 3e-5)},
    }
    assert {p.config.method.log_ratio for p in cells["S5"]} == {"none", "detached"}
    assert {p.config.method.loss_norm for p in cells["S8"]} == {"sum"}
    for name, points in cells.items():
        task = "countdown-hard" if name == "S6" else "countdown"
        assert {(p.config.seed % 3, p.config.model) for p in points} == {
            (seed, f"embedded:{task}@{seed + 1}") for seed in range(3)
        }
    presets = {(p.config.method.name, getattr(p.config.method, "preset", "")) for p in cells["S1"] + cells["S2"]}
    assert presets == {
        ("quatro", ""),
        *((name, "paper") for name in ("grpo", "gspo", "gmpo", "gpg", "dapo", "cispo")),
        ("gspo", "official"),
    }


def test_what_goes_beyond_the_paper_differs_from_its_first_cell_in_one_thing():
    points = [point for name in ("paper-small", "beyond-paper") for point in load_sweep(find_sweep(name)).points]
    found: dict[tuple[object, ...], list[int]] = {}
    for point in points:
        method, config = point.config.method, point.config
        if method.name == "quatro" and point.cell in ("S10", "S11", "S14"):
            key = (point.cell, method.delta, config.inner_updates, config.rollouts_per_prompt)
            found.setdefault(key, []).append(config.seed)
            assert (config.optimizer.lr, config.steps) == (3e-4, 100)
            assert config.prompts_per_step * config.rollouts_per_prompt == 256
            assert config.minibatch_prompts == config.prompts_per_step
            assert (config.reward.name == "countdown-distance") == (point.cell == "S14")
    assert set(found) == {
        *(("S10", delta, 5, rollouts) for delta in (0.1, 0.01) for rollouts in (4, 16, 32)),
        *(("S11", delta, "auto", 8) for delta in (0.1, 0.01, 0.001)),
        *(("S14", delta, 5, 8) for delta in (0.1, 0.01, 0.001)),
    }
    assert all(seeds == [*range(5 if key[0] == "S10" else 3)] for key, seeds in found.items())


def test_planning_a_sweep_file_and_what_it_measures_loads_no_torch():
    code = (
        "import sys; from quatro.sweep.file import find_sweep, load_sweep; "
        "from quatro.sweep.measure import SweepEvaluation; from quatro.sweep.run import all_points; "
        "points = all_points(load_sweep(find_sweep('paper-small')), SweepEvaluation(('countdown',))); "
        "print(len(points), [name for name in ('torch', 'transformers', 'rich', 'typer') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "267 []"


def test_lists_of_prompts_are_an_axis_and_so_is_a_key_of_one_of_them(load, tmp_path, monkeypatch):
    """Files lie beside the sweep's file, wherever it is planned; what was planned is read back."""
    (tmp_path / "near.jsonl").write_text("{}\n", encoding="utf-8")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    lists = "[[countdown, {source: near.jsonl, weight: 2, template: plain}], [near.jsonl], countdown]"
    plan = load(f"base: quickstart\ncells: {{a: {{axes: {{data.prompts: {lists}}}}}}}\n")
    file = str(tmp_path / "near.jsonl")
    found = [[(one.source, one.weight) for one in point.config.data.sources] for point in plan.points]
    assert found == [[("countdown", 1.0), (file, 2.0)], [(file, 1.0)], [("countdown", 1.0)]]
    weights = plan_sweep(
        "quickstart",
        [Axis("data.prompts.1.weight", ("1", "3"))],
        overrides=[f"data.prompts=[countdown, {{source: {file}, template: plain}}]"],
    )
    assert [point.config.data.shares["near"] for point in weights.points] == [0.5, 0.75]
    for number, planned in enumerate((plan, weights)):
        write_plan(planned, tmp_path / f"s{number}", None)
        (tmp_path / f"s{number}").rename(tmp_path / f"moved{number}")
        again = read_plan(tmp_path / f"moved{number}").points
        assert [point.settings for point in again] == [point.settings for point in planned.points]
        assert [point.config.data.shares for point in again] == [point.config.data.shares for point in planned.points]
    with pytest.raises(UsageError, match=r"data\.template"):  # one untrained model is asked in one way
        base_points(plan_sweep("quickstart", [], overrides=["data.prompts=[{source: x.jsonl, template: question}]"]))
