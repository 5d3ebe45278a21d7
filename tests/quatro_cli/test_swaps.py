"""Whole things in the wrong place: of two points of a sweep a file or folder each is swapped, and every reader looks.

A reader then refuses, or shows what it showed before. And a sweep and a run that were moved are read as before.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

import quatro
from evals.errors import DataError
from evals.files.strict_json import read_document
from quatro.config import Config, load_config
from quatro.launch.begin import begin_with_weights
from quatro.policy.model_files import model_digest
from quatro_cli.app import app
from tests.kit import read_rows, write_rows

pytest.importorskip("torch")
runner = CliRunner()
N = 4
STEPS = 2
POINT_A, POINT_B = "delta=0.1-entropy_coefficient=0.1", "delta=0.01-entropy_coefficient=0.2"
A, B = f"s/runs/{POINT_A}", f"s/runs/{POINT_B}"
PLANS = (f"s/configs/{POINT_A}.yaml", f"s/configs/{POINT_B}.yaml")
COLD, HOT = "samples/T0.5-p1", "samples/T1-p1"


class Shown(NamedTuple):
    """What a reader did: exit code, what it showed or wrote, and what it said beside that."""

    code: int
    out: str
    err: str


def read(words: str, *, writes: str | None = None) -> Shown:
    """`quatro WORDS` in the working directory; ``writes`` is a file or folder that holds what it shows."""
    done = runner.invoke(app, words.split())
    shown = done.stdout
    if writes is not None and Path(writes).exists():
        files = [path for path in sorted(Path(writes).rglob("*")) if path.is_file()] or [Path(writes)]
        shown = "\n".join(f"{file}: {file.read_bytes()!r}" for file in files)
        shutil.rmtree(writes) if Path(writes).is_dir() else Path(writes).unlink()
    return Shown(done.exit_code, shown.replace(os.getcwd(), "HERE"), done.stderr)


def _sweep(model: Path) -> None:
    """Two points with samples at two temperatures, and their base, as `quatro sweep` leaves them."""
    from quatro.sample.folder import measure_samples
    from quatro.sample.settings import note_drawn
    from quatro.sweep.measure import SweepEvaluation, run_folder, sample_arguments
    from quatro.sweep.plan import Cell, SweepPlan, plan_cell
    from quatro.sweep.run import all_points, write_plan

    problems = [{"id": f"p{i}", "problem": f"{i} 2 7 6 2 8 -> 67", "answer": "67"} for i in range(1, 4)]
    write_rows(Path("toy.jsonl"), problems)
    settings = [f"model={model}", f"steps={STEPS}", "threads=1", "prompts_per_step=2", "minibatch_prompts=2"]
    settings += ["rollouts_per_prompt=2", "inner_updates=1", "checkpoint.every=1"]
    settings += ["optimizer.lr=0.1", "optimizer.warmup_steps=0"]
    # No reward teaches this model anything: the points differ in what they are told of entropy.
    both = [{"method.delta": delta, "entropy_coefficient": c} for delta, c in (("0.1", "0.1"), ("0.01", "0.2"))]
    plan = SweepPlan("s", plan_cell(Cell("quickstart", overrides=tuple(settings), include=tuple(both)))[0], 0)
    how = SweepEvaluation(("toy.jsonl",), n=N, temperatures=(0.5, 1.0))
    write_plan(plan, Path("s"), how)
    for point in plan.points:
        ok(f"train s/configs/{point.name}.yaml -o s/runs/{point.name}")
    for number, (point, tag) in enumerate((point, tag) for point in all_points(plan, how) for tag in how.tags):
        run = run_folder(Path("s"), point)
        ok(" ".join(["sample", *sample_arguments(how, point, run, tag)]))
        # An untrained model solves nothing: grades that differ show whose number a number is.
        file = tag.folder(run) / "toy.jsonl"
        rows = read_rows(file)
        lines = [json.dumps({**row, "correct": place < number + 2}) + "\n" for place, row in enumerate(rows)]
        file.write_text("".join(lines), encoding="utf-8")
        note_drawn(file, "toy")
        measure_samples(file.parent, n=N, label=point.name)
    ok("sweep s --eval toy.jsonl --eval-n 4 --eval-temperature 0.5,1")
    for run in (A, B):
        Path(run, "results").mkdir()
        ok(f"eval ucc {run}/{HOT} --similarity exact -o {run}/results/ucc.json")


def ok(words: str) -> Shown:
    found = read(words)
    assert found.code == 0, f"{words}\n{found.out}\n{found.err}"
    return found


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch

    from quatro.policy.embedded import make_model, make_tokenizer
    from quatro.tasks.countdown import CountdownWarmStart

    folder = tmp_path_factory.mktemp("model")
    recipe = CountdownWarmStart(hidden_size=8, num_layers=1, num_heads=1, mlp_size=8)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        make_model(recipe).save_pretrained(folder)
    make_tokenizer(recipe.max_positions).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def whole(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sweep, never changed."""
    folder, here = tmp_path_factory.mktemp("whole"), Path.cwd()
    os.chdir(folder)
    try:
        _sweep(model)
    finally:
        os.chdir(here)
    return folder


@pytest.fixture
def here(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the sweep in another folder, where the test is."""
    shutil.copytree(whole, tmp_path / "copy", symlinks=True)
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy"


# ---- what reads


def listed(name: str) -> Shown:
    """The API, which raises."""
    try:
        shown = {
            "metrics": lambda: quatro.read_metrics(A).to_csv(),
            "samples": lambda: quatro.read_samples(f"{A}/{HOT}").to_csv(),
            "run": lambda: str(quatro.load_run(A).metrics),
            "stage": lambda: model_digest(second_stage_of(A).model),
            "result": lambda: quatro.read_result(f"{A}/{HOT}/passk.json").to_json(),
        }[name]()
    except DataError as error:
        return Shown(4, "", str(error))
    return Shown(0, shown, "")


def second_stage_of(run: str) -> Config:
    return begin_with_weights(load_config("quickstart", overrides=[f"model={run}"]))[0]


def runs_list() -> Shown:
    """The list shows a run that it cannot read as such."""
    found = read("runs list s --json")
    runs = json.loads(found.out)["runs"]
    unreadable = [run["reason"] for run in runs if run["status"] == "unreadable"]
    return Shown(4, "", "\n".join(unreadable)) if unreadable else Shown(0, _settled(found.out), found.err)


def shown_run() -> Shown:
    found = read(f"runs show {A} --json")
    return found._replace(out=_settled(found.out))


def _settled(text: str) -> str:
    """Without sizes and times, which a swap may change and nobody calls a result."""
    return "\n".join(
        line for line in text.splitlines() if not any(f'"{key}' in line for key in ("size", "started", "updated"))
    )


FAST: dict[str, Callable[[], Shown]] = {
    "show": shown_run,
    "list": runs_list,
    "compare": lambda: read(f"runs compare {A} {B} --json"),
    "doctor": lambda: read(f"doctor {A} --json"),
    "rollouts": lambda: read(f"rollouts {A} --json"),
    "table": lambda: read("table s --temperature 1 --format csv"),
    "table cold": lambda: read("table s --temperature 0.5 --format csv"),
    "run": lambda: read(f"table {A} --format csv --metric ucc@k"),
    "result": lambda: read(f"table {A}/{HOT}/passk.json --format csv"),
    "passk": lambda: read(f"eval passk {A}/{HOT} --json"),
    "ucc": lambda: read(f"eval ucc {A}/{COLD} --similarity exact --json"),
    "differences": lambda: read(f"eval compare {A}/{HOT} {B}/{HOT} --json"),
    "flips": lambda: read(f"eval flips {A}/{COLD} {A}/{HOT} --json"),
    "grade": lambda: read(f"eval grade {A} -o graded", writes="graded"),
    "sweep": lambda: read("sweep s --eval toy.jsonl --eval-n 4 --eval-temperature 0.5,1 --json"),
    "summary": lambda: read("sweep s --eval toy.jsonl --eval-n 4 --eval-temperature 0.5,1", writes="s/summary.csv"),
    "resume": lambda: read(f"train {A} --resume"),
    "stage": lambda: listed("stage"),
    "earlier": lambda: read(f"sample {A} --step 1 -b toy.jsonl -n 1 --dry-run"),
    **{f"api {name}": functools.partial(listed, name) for name in ("metrics", "samples", "run", "result")},
}


def tables_and_figures() -> Shown:
    """The files of `quatro paper` but for the page about them."""
    found = read("paper s --temperature 1 --without-paper", writes="paper")
    return found._replace(out="\n".join(line for line in found.out.splitlines() if "/tables/" in line.split(":")[0]))


SLOW: dict[str, Callable[[], Shown]] = {
    "export": lambda: read(f"export {A} -o out", writes="out"),
    "report": lambda: read("report s -o r.html", writes="r.html"),
    "training": lambda: read("plot training s -o f.svg", writes="f.svg"),
    "run's training": lambda: read(f"plot training {A} -o f.svg", writes="f.svg"),
    "pass figure": lambda: read("plot passk s --temperature 1 -o f.svg", writes="f.svg"),
    "paper": tables_and_figures,
    "sample": lambda: read(f"sample {A} -b toy.jsonl -n 4 --max-tokens 10 --grade -o {A}/{HOT}"),
}


# ---- what is swapped


def swap(a: str, b: str) -> None:
    a, b = (str(next(Path().glob(path))) for path in (a, b))
    os.rename(a, "aside")
    os.rename(b, a)
    os.rename("aside", b)


def both(*names: str) -> Callable[[], None]:
    """Swap what has these names in the runs of both points."""

    def change() -> None:
        for name in names:
            swap(f"{A}/{name}", f"{B}/{name}")

    return change


def pairs(*names: tuple[str, str]) -> Callable[[], None]:
    def change() -> None:
        for a, b in names:
            swap(a, b)

    return change


def edit(file: str, old: str, new: str) -> Callable[[], None]:
    def change() -> None:
        text = Path(file).read_text(encoding="utf-8")
        assert old in text
        Path(file).write_text(text.replace(old, new), encoding="utf-8")

    return change


def without_checkpoints(then: Callable[[], None]) -> Callable[[], None]:
    """What the checkpoints would tell is gone, as where somebody needed their room."""

    def change() -> None:
        for run in (A, B):
            shutil.rmtree(f"{run}/checkpoints")
        then()

    return change


BASE = "s/base/*"
LAST, FIRST = "checkpoints/step-000002", "checkpoints/step-000001"
# What was swapped, and some of the readers that would show a number under another name.
SWAPS: dict[str, tuple[Callable[[], None], str]] = {
    "configurations": (both("config.yaml"), "show list compare doctor table resume stage api_run sweep"),
    "an edited radius": (edit(f"{A}/config.yaml", "delta: 0.1", "delta: 0.3"), "show table resume stage sweep"),
    "an edited seed": (edit(f"{A}/config.yaml", "seed: 0", "seed: 7"), "show table resume sweep"),
    "configurations, no checkpoints": (without_checkpoints(both("config.yaml")), "show table sweep"),
    "metrics, no checkpoints": (without_checkpoints(both("metrics.jsonl")), "show compare api_metrics"),
    "newest checkpoints": (both(LAST), "doctor resume stage show"),
    "earlier checkpoints": (both(FIRST), "doctor earlier"),
    "all checkpoints": (both("checkpoints"), "doctor resume stage earlier show"),
    "states of checkpoints": (both(f"{LAST}/state.json"), "doctor resume stage"),
    "models of checkpoints": (both(f"{LAST}/model/model.safetensors"), "doctor resume stage"),
    "which is the latest": (edit(f"{A}/checkpoints/latest", "2", "1"), ""),
    "metrics": (both("metrics.jsonl"), "show compare doctor table resume api_metrics sweep"),
    "status": (both("status.json"), "show table sweep passk"),
    "metrics and status": (both("metrics.jsonl", "status.json"), "show compare api_metrics"),
    "metrics, status and configurations": (
        both("metrics.jsonl", "status.json", "config.yaml"),
        "show table sweep api_metrics passk",
    ),
    "environments": (both("environment.json"), ""),
    "rollouts": (both("rollouts"), "doctor rollouts"),
    "one file of rollouts": (both("rollouts/step-000002.jsonl"), "doctor rollouts"),
    "runs": (pairs((A, B)), "table table_cold sweep summary"),
    "runs and plans": (
        pairs((A, B), PLANS),
        "table table_cold sweep summary",
    ),
    "plans": (pairs(PLANS), "table sweep"),
    "an edited plan": (edit("s/sweep.yaml", '"method.delta": "0.1"', '"method.delta": "0.3"'), "table sweep"),
    "all samples": (both("samples"), "table table_cold passk ucc differences flips grade doctor api_samples"),
    "samples of a way": (both(HOT), "table passk flips differences doctor sweep api_result"),
    "samples of two ways": (pairs((f"{A}/{COLD}", f"{A}/{HOT}")), "table passk ucc flips doctor sweep api_samples"),
    "how they were drawn": (both(f"{HOT}/sampling.json"), "passk differences flips doctor"),
    "how they were drawn, two ways": (pairs((f"{A}/{COLD}/sampling.json", f"{A}/{HOT}/sampling.json")), "passk ucc"),
    "one file of samples": (both(f"{HOT}/toy.jsonl"), "passk differences flips grade doctor api_samples"),
    "one file of two ways": (pairs((f"{A}/{COLD}/toy.jsonl", f"{A}/{HOT}/toy.jsonl")), "passk ucc flips doctor"),
    "samples and how": (both(f"{HOT}/toy.jsonl", f"{HOT}/sampling.json"), "passk differences flips doctor"),
    "Pass@k": (both(f"{HOT}/passk.json"), "table result sweep doctor api_result"),
    "Pass@k of two ways": (pairs((f"{A}/{COLD}/passk.json", f"{A}/{HOT}/passk.json")), "table table_cold result sweep"),
    "UCC@k": (both(f"{HOT}/ucc.json"), "table sweep doctor"),
    "results": (both("results"), "run doctor"),
    "samples with those of the base": (pairs((f"{A}/{HOT}", f"{BASE}/{HOT}")), "table passk sweep doctor"),
    "Pass@k with that of the base": (pairs((f"{A}/{HOT}/passk.json", f"{BASE}/{HOT}/passk.json")), "table sweep"),
    "all samples with those of the base": (pairs((f"{A}/samples", f"{BASE}/samples")), "table passk sweep doctor"),
}


@pytest.fixture(scope="module")
def truth(whole: Path) -> Callable[[str], Shown]:
    """What a reader shows of the unchanged sweep."""

    @functools.cache
    def of(name: str) -> Shown:
        folder, before = whole.parent / f"{whole.name}-truth", Path.cwd()
        if not folder.exists():
            shutil.copytree(whole, folder)
        os.chdir(folder)
        try:
            found = (FAST | SLOW)[name]()
        finally:
            os.chdir(before)
        assert found.code == 0, (name, found)
        assert len(found.out) > 2
        return found

    return of


def look(readers: Sequence[str], must_refuse: Sequence[str], truth: Callable[[str], Shown]) -> None:
    """Every reader refuses or shows what is true; those of ``must_refuse`` refuse, and name a file."""
    for name in readers:
        if name in ("sweep", "summary", "resume") and name not in must_refuse:
            continue  # they write: `test_what_writes_refuses`
        found = (FAST | SLOW)[name]()
        is_refused = found.code in ((6,) if name == "doctor" else (2, 4) if name == "sample" else (4,))
        said = found.out + found.err
        if is_refused or (name == "report" and "left out: " in said):
            assert any(file in said for file in FILES), f"{name}: {found.err}"
        elif name == "paper":  # what cannot be made is missing
            assert found.code == 0
            assert set(found.out.splitlines()) <= set(truth(name).out.splitlines())
        else:
            assert found.code == 0, f"{name}: {found.err}"
            assert found.out == truth(name).out, f"{name}: {found.err}"
        assert is_refused or name not in must_refuse, f"{name} refuses nothing"


# A run that was moved is itself, whatever its folder is called: that it is another's point shows in the sweep.
WHOLE = ("runs", "runs and plans")
OF_SWEEP = ("table", "table cold", "sweep", "summary", "report", "training", "paper")
OF_SWEEP += ("pass figure",)
FILES = ("config.yaml", "metrics.jsonl", "status.json", "state.json", "step-00000", "sampling.json", "sweep.yaml")
FILES += (
    "toy.jsonl",
    "passk.json",
    "ucc.json",
    ".yaml",
    "model.safetensors",
    f"{A}/{HOT} holds",
    f"{A} has no complete checkpoint",
)


@pytest.mark.parametrize("name", [name for name, (_, refused) in SWAPS.items() if refused])
def test_fault_54_what_was_swapped_is_named(name, here, truth):
    change, refused = SWAPS[name]
    change()
    readers = [word.replace("_", " ") for word in refused.split()]
    look(readers, readers, truth)


@pytest.mark.slow
@pytest.mark.parametrize("name", SWAPS)
def test_fault_54_no_reader_is_misled_by_what_was_swapped(name, here, truth):
    SWAPS[name][0]()
    look([reader for reader in FAST | SLOW if name not in WHOLE or reader in OF_SWEEP], [], truth)


def test_a_message_names_the_key_both_values_and_what_to_do(here):
    edit(f"{A}/config.yaml", "delta: 0.1", "delta: 0.3")()
    found = read(f"table {A}")
    for text in (f"{A}/config.yaml", "step-000002", "method.delta was 0.1, is 0.3", "put back", f"quatro doctor {A}"):
        assert text in found.err


def test_a_sweep_that_was_moved_is_read_as_before(whole, truth, tmp_path, monkeypatch):
    """All of it: under another folder, and with other times of its files."""
    moved = tmp_path / "else" / "where"
    shutil.copytree(whole, moved, copy_function=shutil.copyfile)
    monkeypatch.chdir(moved)
    for reader in FAST:
        found = FAST[reader]()
        assert (found.code, found.out) == (0, truth(reader).out), reader


@pytest.mark.slow
@pytest.mark.parametrize("reader", SLOW)
def test_figures_and_pages_of_a_sweep_that_was_moved(reader, here, truth):
    found = SLOW[reader]()
    assert (found.code, found.out) == (0, truth(reader).out)


def test_a_run_under_another_name_is_the_same_run(here):
    shutil.copytree(A, "elsewhere/copy")
    os.rename(A, "renamed")
    for run in ("elsewhere/copy", "renamed"):
        for words in ("runs show {}", "doctor {}", "table {}", "eval passk {}/" + HOT, "rollouts {}"):
            ok(words.format(run))
        ok(f"train {run} --resume")
        ok(f"sample {run} -b toy.jsonl -n 5 --temperature 1 --max-tokens 10 -o {run}/{HOT}")
        ok(f"eval passk {run}/{HOT}")
        assert second_stage_of(run).model


def test_what_may_change_changes_nothing(here):
    """More steps, another schedule of checkpoints, a comment, and fewer checkpoints."""
    ok(f"train {A} --resume --steps 3 -s checkpoint.every=5")
    ok(f"runs prune {A} --yes")
    edit(f"{A}/config.yaml", "seed: 0", "seed: 0  # as always")()
    for name in ("show", "list", "table", "passk", "doctor", "api metrics"):
        found = FAST[name]()
        assert found.code == 0, (name, found)
    ok(f"sample {A} -b toy.jsonl -n 1 --max-tokens 10")
    ok(f"eval passk {A}/samples/T1-p1-step000003")


def test_runs_and_samples_of_earlier_versions_are_read_as_before(here):
    """Nothing says of which run they are."""
    for file in Path("s").rglob("*.json"):
        if file.name in ("status.json", "sampling.json", "passk.json", "ucc.json"):
            document = read_document(file)
            for key in ("run_digest", "metrics_bytes", "metrics_sha256", "source_digest"):
                document.pop(key, None)
            for entry in document.get("benchmarks", {}).values():
                entry.pop("sha256", None)
            file.write_text(json.dumps(document), encoding="utf-8")
    for name in FAST:
        found = FAST[name]()
        assert found.code == 0, (name, found)
    both("config.yaml")()  # the checkpoints of any version hold the configuration
    assert FAST["show"]().code == 4


def test_changed_samples_are_read_from_a_folder_of_their_own(here):
    edit(f"{A}/{HOT}/toy.jsonl", '"correct": true', '"correct": false')()
    assert read(f"eval passk {A}/{HOT}").code == 4
    Path("own").mkdir()
    shutil.copy(f"{A}/{HOT}/toy.jsonl", "own")
    ok("eval passk own")
