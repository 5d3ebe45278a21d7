"""The replication page of sweeps made up for the purpose: known effects give known verdicts."""

import functools
import itertools
import json
import math
import runpy
import sys

import numpy as np
import pytest

from evals.errors import DataError
from evals.results.document import ProblemEntry, Result, Row
from experiments.beyond import page as beyond
from experiments.replication import small_n
from experiments.replication.page import document, page, replicate
from experiments.replication.results import BENCHMARK, difference, passed, read_results
from experiments.replication.rules import Verdict
from quatro.dual import solve_dual
from quatro.sample.folder import Tag
from quatro.sweep.file import find_sweep, load_sweep
from quatro.sweep.run import write_plan
from tests.kit import write_rows

NUM_PROBLEMS, N, NUM_STEPS = 24, 256, 12
TAGS = ("T1-p1", "T1-p0.7", "T1.5-p1", "T1.5-p0.7")
BASES = {"": 0.3, "-hard": 0.05}  # solved by the untrained models, of which there are three each


class World:
    """How a run of given settings turns out: share of correct samples, distinct ones among them, training metrics."""

    def __init__(self, sign=1.0, noise=0.002):
        self.sign = sign  # 1: the paper is right, -1: its opposite, 0: nothing matters
        self.noise = noise
        self.gain = 0.1 * sign  # of Pass@1 from graded rewards; GSPO gains half as much

    def quality(self, settings):
        """(solved, clusters, entropy, log KL) before noise."""
        name = settings.get("method.name", "quatro")
        tightness = -math.log10(float(settings.get("method.delta", "0.1")))  # 1, 2, 3
        solved, clusters, entropy = 0.5 - 0.05 * self.sign * tightness, 8 + 4 * self.sign * tightness, 1.0
        kl = -2.3 * tightness
        entropy += 0.2 * self.sign * tightness
        if name != "quatro":
            solved, clusters, entropy, kl = 0.45 - 0.3 * self.sign * self.stress(settings), 8, 0.9, -0.5
            solved, entropy = solved - 0.15 * self.sign, entropy - 0.3 * self.sign * self.stress(settings)
        if settings.get("method.log_ratio") == "none":
            solved, kl = solved - 0.2 * self.sign, kl + self.sign
        if settings["cell"] == "S14":
            solved += self.gain if name == "quatro" else self.gain / 2
        if settings["cell"] == "S11" and self.sign < 0:  # the number of updates follows no budget
            kl += math.log(4)
        return solved, clusters, entropy, kl

    def stress(self, settings):
        return (
            0.5 * (settings["cell"] in ("S0", "S1", "S4", "S6", "S14"))
            + 0.3 * (settings["cell"] == "S3")
            + 0.4 * (settings.get("optimizer.lr") == "0.001")
            - 0.3 * (settings.get("optimizer.lr") == "0.0001")
        )


def make_sweep(folder, world, cells=None):
    """The points of the sweep that ``folder`` is called after, or of its ``cells``, without checkpoints and samples."""
    plan = load_sweep(find_sweep(folder.name))
    write_plan(plan, folder)
    rng = np.random.default_rng(0)
    problem_effect = rng.normal(size=NUM_PROBLEMS)
    for kind, solved in BASES.items():
        for seed in (1, 2, 3):
            write_samples(
                folder / "base" / f"base-embedded-countdown{kind}-{seed}", rng, solved, 20, 0.1, problem_effect
            )
    for point in plan.points:
        if cells is not None and point.cell not in cells:
            continue
        settings = {**point.settings, "cell": point.cell}
        solved, clusters, entropy, kl = world.quality(settings)
        run = folder / "runs" / point.name
        run.mkdir(parents=True)
        solved += world.noise * rng.normal()
        entropy, kl = entropy + world.noise * rng.normal(), kl + world.noise * rng.normal()
        write_samples(run, rng, solved, clusters, world.noise, problem_effect)
        write_run(run, folder / "configs" / f"{point.name}.yaml", rng, entropy, kl, settings)
    return folder


def write_samples(folder, rng, solved, clusters, noise, problem_effect):
    for tag in TAGS:
        share = np.clip(solved + 0.1 * problem_effect + noise * rng.normal(size=NUM_PROBLEMS), 0, 1)
        problems = []
        for number, one in enumerate(share):
            correct = round(one * N)
            # As even as possible, largest first.
            sizes = [len(part) for part in np.array_split(np.arange(correct), max(1, round(clusters))) if len(part)]
            problems.append(ProblemEntry(benchmark=BENCHMARK, id=f"{number:03}", n=N, correct=correct, clusters=sizes))
        row = Row(metric="ucc@k", benchmark=BENCHMARK, k=1, value=0.0, num_problems=NUM_PROBLEMS, n=N)
        target = folder / "samples" / tag
        target.mkdir(parents=True)
        Result(metric="ucc@k", rows=[row], problems=problems).write(target / "ucc.json")


def write_run(run, config, rng, entropy, kl, settings):
    (run / "config.yaml").write_text(config.read_text(encoding="utf-8"), encoding="utf-8")
    (run / "status.json").write_text('{"status": "done", "reason": null}', encoding="utf-8")
    (run / "environment.json").write_text(json.dumps({"quatro": "0", "commit": "f" * 40}), encoding="utf-8")
    delta = float(settings.get("method.delta", "0.1"))
    rows = [
        {
            "step": step,
            "reward/mean": 0.3,
            "entropy/token_mean": entropy,
            "kl/old_new": 9.0,  # not what delta bounds: no claim reads it
            "kl/new_old": math.exp(kl),
            "kl/ratio_to_delta": math.exp(kl) / delta,
            "dual/lam_mean": delta**-0.5 * (1 + 0.01 * rng.normal()),
            "clip_fraction": 0.1,
            "optimizer_steps": 5,
            "grad/norm_max": 8.0 if settings.get("method.loss_norm") == "sum" else 1.0,
            "perf/step_s": 1.0,
            "perf/dual_s": 0.01,
            "perf/generate_s": 0.5,
            "perf/old_logp_s": 0.1,
            "perf/ref_logp_s": 0.1 + 0.001 * rng.normal(),
        }
        for step in range(1, NUM_STEPS + 1)
    ]
    write_rows(run / "metrics.jsonl", rows)


WORLDS = {"paper": World(1.0), "opposite": World(-1.0), "nothing": World(0.0, noise=0.03)}


@pytest.fixture(scope="module")
def sweep_of(tmp_path_factory):
    """``sweep_of(world)``: the folder of its sweep."""
    return functools.cache(lambda name: make_sweep(tmp_path_factory.mktemp(name) / "paper-small", WORLDS[name]))


@pytest.fixture(scope="module")
def small_sweep(tmp_path_factory):
    """The bases and one cell of the paper's world."""
    return make_sweep(tmp_path_factory.mktemp("small") / "paper-small", WORLDS["paper"], ("S1",))


@pytest.fixture(scope="module")
def found_in(sweep_of):
    """``found_in(world)``: the page's findings in the paper's world, its opposite, or one where nothing matters."""
    return functools.cache(lambda name: replicate(read_results(sweep_of(name))))


@pytest.fixture(scope="module")
def verdicts_of(found_in):
    return lambda name: {finding.name: finding.verdict for finding in found_in(name).findings}


EFFECTS = ("a1", "a4", "a5", "a6", "a7", "b1", "b3", "b5", "b6", "c1", "c2", "c3", "k3")


@pytest.mark.slow
def test_effects_that_are_there_hold(verdicts_of):
    found = verdicts_of("paper")
    assert {name: str(found[name]) for name in EFFECTS} == dict.fromkeys(EFFECTS, "holds")


@pytest.mark.slow
def test_opposite_effects_do_not(verdicts_of):
    found = verdicts_of("opposite")
    assert {name: str(found[name]) for name in EFFECTS} == dict.fromkeys(EFFECTS, "does not")


@pytest.mark.slow
def test_without_effects_nothing_holds(verdicts_of):
    found = verdicts_of("nothing")
    by_chance = [name for name in EFFECTS if found[name] is Verdict.holds and name not in ("c1", "c2")]
    assert len(by_chance) <= 1  # one comparison in twenty errs
    assert Verdict.undecided in {found[name] for name in EFFECTS}


@pytest.mark.slow
def test_costs_and_the_dual_are_judged_by_their_own_numbers(verdicts_of):
    found = verdicts_of("paper")
    assert found["d1"] is found["d2"] is found["e1"] is found["e2"] is found["e3"] is Verdict.holds


def test_runs_that_are_missing_leave_claims_undecided(small_sweep, tmp_path):
    folder = small_sweep
    partial = tmp_path / "paper-small"
    partial.mkdir()
    (partial / "sweep.yaml").write_bytes((folder / "sweep.yaml").read_bytes())
    found = replicate(read_results(partial))
    exactly_known = {"e1", "e2"}
    assert {f.verdict for f in found.findings if f.name not in exactly_known} == {Verdict.undecided}
    text = page(found, [], images="images")
    assert "not run" in text
    assert "261 planned runs are not done" in text
    with pytest.raises(DataError, match="not a sweep"):
        read_results(tmp_path)


@pytest.mark.slow
def test_a_second_generation_gives_the_same_bytes(sweep_of, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    folder = sweep_of("paper")
    for out in ("one", "two"):
        arguments = [folder, "--out", tmp_path / out]
        monkeypatch.setattr(sys, "argv", ["experiments.replication", *map(str, arguments)])
        (tmp_path / out).mkdir()
        with pytest.raises(SystemExit) as end:
            runpy.run_module("experiments.replication", run_name="__main__")
        assert end.value.code == 0
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file())
    assert len(files) == 2 + 4 + 9  # the page, its claims, four CSV files, nine figures
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name
    text = (tmp_path / "one/replication.md").read_text(encoding="utf-8")
    assert str(tmp_path) not in text
    assert text.count("<!-- times -->") == 1
    for name in files:
        if name.suffix == ".png":
            assert f"({name.as_posix()})" in text


@pytest.mark.slow
@pytest.mark.parametrize(("world", "verdict"), [("paper", "holds"), ("opposite", "does not")])
def test_what_goes_beyond_the_paper_is_judged_by_the_same_rule(tmp_path, world, verdict):
    results = read_results(make_sweep(tmp_path / "beyond-paper", WORLDS[world]))
    findings = beyond.findings_of(results)
    found = {finding.name: str(finding.verdict) for finding in findings}
    assert {name: found[name] for name in ("l4", "l7", "x1")} == dict.fromkeys(("l4", "l7", "x1"), verdict)
    assert (found["l2"], found["l3"]) == (verdict, verdict)  # delta's own trade
    text = beyond.page(results, findings)
    assert "| l4 | Graded rewards give QUATRO a higher Pass@1 (top_p 0.7) than rewards of 0 and 1 | " in text
    assert ("**Graded rewards** do not raise Pass@1" in text) is (world == "opposite")  # said only where it was found
    run = {run.cell for run in results.runs}
    assert [cell for cell in beyond.CELLS if cell not in run] == ["S12", "S13"]  # which are in no plan any more
    assert len(json.loads(beyond.document(results, findings))["claims"]) == len(findings)


def test_runs_that_began_with_other_weights_are_not_paired(small_sweep):
    """An embedded model is taught on each machine, and its weights differ from processor to processor."""
    results = read_results(small_sweep)
    group, other = (results.group("S1", {"method.name": "quatro", "method.delta": delta}) for delta in ("0.1", "0.01"))
    group[3].__dict__["digest"], other[3].__dict__["digest"] = "one", "one"
    assert difference(group, other, passed(1, Tag())).shape == (8, NUM_PROBLEMS)
    other[3].__dict__["digest"] = "two"
    with pytest.raises(DataError, match=r"other weights of embedded:countdown@1"):
        difference(group, other, passed(1, Tag()))


@pytest.mark.slow
def test_the_table_of_claims_is_plain_json(found_in):
    found = json.loads(document(found_in("paper")))
    assert (found["num_runs"], found["num_points"]) == (261, 261)
    first = found["claims"][0]
    assert first["name"] == "a1"
    assert first["comparisons"][0]["region"] == [0.0, None]
    assert first["comparisons"][0]["estimate"]["num_seeds"] == 8


def test_dual_errors_are_those_of_subsets_drawn_at_random(small_sweep, monkeypatch):
    base = read_results(small_sweep).bases["base-embedded-countdown-1"]
    monkeypatch.setattr(small_n, "SIZES", (8,))
    monkeypatch.setattr(small_n, "DELTAS", ("0.01",))
    found = small_n.dual_errors({0: base})[0]

    rng = np.random.default_rng(1)
    ratios, degenerate = [], []
    for correct in base.counts(Tag()).correct.astype(int):
        if not 0 < correct < N:
            continue
        rewards = (np.arange(N) < correct).astype(float)
        drawn = np.stack([rng.choice(rewards, size=8, replace=False) for _ in range(2000)])
        lam = solve_dual(drawn, 0.01)
        is_mixed = np.array([status != "degenerate" for status in lam.status])
        degenerate.append(1 - is_mixed.mean())
        ratios.append((np.asarray(lam.lam)[is_mixed] / solve_dual(rewards[None], 0.01).lam[0]).mean())
    assert found.bias.mean == pytest.approx(np.mean(ratios) - 1, abs=0.02)
    assert found.use.mean == pytest.approx(1 - np.mean(degenerate), abs=0.01)


def test_all_rollouts_have_no_error(small_sweep, monkeypatch):
    monkeypatch.setattr(small_n, "SIZES", (N,))
    for error in small_n.dual_errors({0: read_results(small_sweep).bases["base-embedded-countdown-1"]}):
        numbers = (error.bias.mean, error.spread.mean, error.advantage.mean, error.update.mean, error.use.mean)
        assert numbers == pytest.approx((0, 0, 0, 1, 1), abs=1e-6)


def test_the_weight_of_a_success_rate_is_the_mean_over_every_draw():
    chance, size = 0.3, 5
    expected = 0.0
    for right in itertools.product((0.0, 1.0), repeat=size):
        rewards = np.array(right)
        if 0 < rewards.sum() < size:
            advantage = solve_dual(rewards[None], 0.01).advantage[0]
            gradient = np.where(rewards == 1, 1 / chance, -1 / (1 - chance))  # of log pi, in the success rate
            expected += np.prod(np.where(rewards == 1, chance, 1 - chance)) * float((advantage * gradient).mean())
    assert small_n.weights("0.01", size, chance) == pytest.approx(expected, rel=1e-9)


def test_a_large_delta_weighs_easy_prompts_as_the_note_on_i1_says():
    def weight(delta, chance):
        return small_n.weights(delta, 8, chance) / small_n.weights(delta, 8, 0.5)

    assert 1.7 < weight("0.1", 0.95) / weight("0.001", 0.95) < 2  # "nearly twice as much"
    assert 2 / 3 < weight("0.1", 0.01) / weight("0.001", 0.01) < 0.75  # "almost a third less"


def test_one_lambda_for_all_prompts_weighs_success_rates_as_its_tilt_does():
    chance, size = 0.3, 4
    lam = solve_dual(np.array([[1.0, 1.0, 0.0, 0.0]]), 0.1).lam[0]
    expected = 0.0
    for right in itertools.product((0.0, 1.0), repeat=size):
        rewards = np.array(right)
        advantage = rewards / lam - np.log(np.exp(rewards / lam).mean())
        gradient = np.where(rewards == 1, 1 / chance, -1 / (1 - chance))
        expected += np.prod(np.where(rewards == 1, chance, 1 - chance)) * float((advantage * gradient).mean())
    assert small_n.weights("0.1", size, chance, is_fixed=True) == pytest.approx(expected, rel=1e-9)


def test_the_jackknife_is_that_of_its_definition():
    size, correct = 6, 2
    rewards = (np.arange(size) < correct).astype(float)
    left_out = [solve_dual(np.delete(rewards, i)[None], 0.1).lam[0] for i in range(size)]
    expected = size * solve_dual(rewards[None], 0.1).lam[0] - (size - 1) * np.mean(left_out)
    assert small_n.jackknifed("0.1", size)[correct - 1] == pytest.approx(expected, rel=1e-9)
