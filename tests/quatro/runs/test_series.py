"""Runs become settings: seeds together, everything else apart, and what is left out is said."""

import math
import subprocess
import sys

import pytest

from evals.errors import DataError, UsageError
from quatro.config import config_to_yaml, load_config
from quatro.runs.views.series import positive_advantages, read_curves, read_settings, run_folders
from tests.kit import write_rows


@pytest.fixture
def make_run(tmp_path):
    def make(name, *overrides, method="quatro", steps=3, folder="runs"):
        path = tmp_path / folder / name
        path.mkdir(parents=True)
        config = load_config("quickstart", overrides=overrides, method=method)
        (path / "config.yaml").write_text(config_to_yaml(config), encoding="utf-8")
        rows = [{"step": step, "reward/mean": step / 10} for step in range(1, steps + 1)]
        write_rows(path / "metrics.jsonl", rows)
        return path

    return make


def test_seeds_of_one_setting_are_together_and_the_rest_apart(make_run):
    runs = [
        make_run("a", "seed=1", "method.delta=0.1"),
        make_run("b", "seed=0", "method.delta=0.1", "threads=2", "checkpoint.every=1", "steps=7"),
        make_run("c", "method.delta=0.01"),
        make_run("d", "method.delta=0.1", "method.log_ratio=none"),
        make_run("e", "method.delta=0.1", "inner_updates=2"),
        make_run("f", "method.delta=0.1", "optimizer.lr=0.001"),
        make_run("g", method="gspo"),
    ]
    found = read_settings(runs)
    assert found.warnings == []
    assert [(one.method, one.delta, one.log_ratio, one.inner_updates, one.lr) for one in found.settings] == [
        ("quatro", 0.1, "detached", 5, 3e-4),
        ("quatro", 0.01, "detached", 5, 3e-4),
        ("quatro", 0.1, "none", 5, 3e-4),
        ("quatro", 0.1, "detached", 2, 3e-4),
        ("quatro", 0.1, "detached", 5, 1e-3),
        ("gspo", None, None, 5, 3e-4),
    ]
    assert [len(one.runs) for one in found.settings] == [2, 1, 1, 1, 1, 1]
    assert {(one.shared, one.own) for one in found.settings} == {("", "")}
    assert found.settings[-1].advantages == ()


@pytest.mark.parametrize(
    "setting",
    [
        *("steps=7", "threads=3", "processes=2", "device=cuda", "save_rollouts=false", "checkpoint.every=1"),
        *("microbatch_tokens=99", "rollout.rows_at_once=9", "rollout.cache_tokens=999", "checkpoint.keep.last=5"),
        *("rollout.gpu_memory_utilization=0.3", "audit=false", "audit.prompts=2", "eval.temperature=0.5", "eval.n=3"),
    ],
)
def test_what_changes_no_step_of_a_run_keeps_no_seeds_apart(make_run, setting):
    found = read_settings([make_run("a", "seed=0"), make_run("b", "seed=1", setting)])
    assert [len(one.runs) for one in found.settings] == [2]


@pytest.mark.parametrize(
    "setting", ["kl.beta=0.5", "rollout.temperature=0.9", "reward=countdown-distance", "dtype=bfloat16"]
)
def test_what_changes_steps_keeps_runs_apart(make_run, setting):
    found = read_settings([make_run("a", "seed=0"), make_run("b", "seed=1", setting)])
    assert [len(one.runs) for one in found.settings] == [1, 1]


def test_other_keys_keep_runs_apart_and_are_named(make_run):
    runs = [
        make_run("a", "minibatch_prompts=8", method="gspo"),
        make_run("b", "minibatch_prompts=32", method="gspo"),
        make_run("c", "minibatch_prompts=32", "method.clip_low=0.1", method="gspo"),
        make_run("d", "minibatch_prompts=32"),
    ]
    found = read_settings(runs)
    assert [one.shared for one in found.settings] == [
        "minibatch_prompts 8",
        "minibatch_prompts 32",
        "minibatch_prompts 32",
        "minibatch_prompts 32",
    ]
    assert [one.own for one in found.settings] == ["clip_low 0.2", "clip_low 0.2", "clip_low 0.1", ""]


def test_passes_until_the_budget_is_used_up_are_no_number_of_passes(make_run):
    runs = [make_run("a", "inner_updates=20"), make_run("b", "inner_updates=auto")]
    found = read_settings(runs).settings
    assert [(one.inner_updates, one.shared) for one in found] == [(20, ""), (20, "inner_updates auto")]


def test_a_preset_is_named_instead_of_all_that_it_sets(make_run):
    runs = [make_run(name, f"method.preset={name}", method="gspo") for name in ("paper", "official")]
    assert [one.own for one in read_settings(runs).settings] == ["preset paper", "preset official"]


def test_the_same_seed_twice_is_one_run_the_longer_one(make_run):
    runs = [make_run("short", "seed=3", steps=2), make_run("long", "seed=3", steps=4)]
    for order in (runs, runs[::-1]):
        found = read_settings(order)
        assert [len(rows) for rows in found.settings[0].runs] == [4]
        assert len(found.warnings) == 1
        assert "short is left out" in found.warnings[0]


def test_a_run_without_metrics_is_left_out_and_one_that_is_behind_is_named(make_run):
    runs = [make_run("a", "seed=0", steps=3), make_run("b", "seed=1", steps=5), make_run("c", "seed=2")]
    (runs[2] / "metrics.jsonl").unlink()
    found = read_settings(runs)
    assert len(found.settings[0].runs) == 2
    assert "c has no metrics" in found.warnings[0]
    assert "3, 5 iterations" in found.warnings[1]
    with pytest.raises(DataError, match="none of the runs has metrics"):
        read_settings(runs[2:])


def test_a_sweep_stands_for_its_runs(make_run, tmp_path):
    second = make_run("b", "seed=1", folder="sweep/runs")
    first = make_run("a", folder="sweep/runs")
    (tmp_path / "sweep/runs/not-begun").mkdir()
    assert run_folders([tmp_path / "sweep", first]) == [first, second]
    with pytest.raises(UsageError, match="neither a run directory"):
        run_folders([tmp_path / "nothing"])


def test_runs_of_a_sweep_come_as_planned_and_a_cell_can_be_chosen(make_run, tmp_path):
    runs = {name: make_run(name, method=name, folder="sweep/runs") for name in ("dapo", "grpo", "quatro")}
    (tmp_path / "sweep/sweep.yaml").write_text(
        "points: {quatro: {}, grpo: {}, dapo: {}}\ncells: {quatro: A, grpo: A, dapo: B}\n", encoding="utf-8"
    )
    sweep = tmp_path / "sweep"
    assert run_folders([sweep]) == [runs["quatro"], runs["grpo"], runs["dapo"]]
    assert run_folders([sweep], cell="A") == [runs["quatro"], runs["grpo"]]
    with pytest.raises(UsageError, match="known: A, B"):
        read_curves([sweep], cell="C")
    with pytest.raises(UsageError, match="none of the paths is a sweep"):
        read_curves([runs["dapo"]], cell="A")


@pytest.mark.parametrize("delta", [0.1, 0.01, 0.001])
def test_advantages_of_correct_rollouts_put_the_tilted_prompt_on_the_radius(delta):
    advantages, capped = positive_advantages(delta, 8, boundary_cap=0.95, advantage_floor=-20.0)
    assert capped == ()
    assert len(advantages) == 7
    for num_correct, advantage in enumerate(advantages, start=1):
        # Weights exp(A) average to 1, so those of wrong rollouts follow; then the KL is delta.
        weight = math.exp(advantage)
        wrong = (8 - num_correct * weight) / (8 - num_correct)
        kl = (num_correct * weight * advantage + (8 - num_correct) * wrong * math.log(wrong)) / 8
        assert kl == pytest.approx(delta, rel=1e-9)


def test_where_delta_is_out_of_reach_it_says_so():
    # The largest KL with c of 8 correct is log(8 / c): 0.95 log(8 / 7) = .127 < .2 < .95 log(8 / 6) = .273.
    advantages, capped = positive_advantages(0.2, 8, boundary_cap=0.95, advantage_floor=-20.0)
    assert capped == (7,)
    assert advantages[6] < math.log(8 / 7)


def test_reading_runs_loads_no_torch(make_run):
    code = "import sys; from pathlib import Path; from quatro.runs.views.series import read_settings; "
    code += "read_settings([Path(sys.argv[1])]); assert 'torch' not in sys.modules and 'typer' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code, str(make_run("a"))], capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr


def test_models_in_folders_of_one_name_are_told_apart(make_run):
    runs = [make_run(name, f"model=/{name}/m") for name in ("x", "y")]
    assert [one.shared for one in read_settings(runs).settings] == ["model m (x)", "model m (y)"]
    assert [one.shared for one in read_settings([runs[0], make_run("z", "model=/z/n")]).settings] == [
        "model m",
        "model n",
    ]
