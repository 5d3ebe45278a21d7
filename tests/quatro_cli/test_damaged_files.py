"""Files of a run that a disk, an editor or a stranger has damaged: named with their line, never a traceback.

The quick part damages a run that was written down by hand, the slow part one that was trained, sampled and measured.
"""

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from evals.results.document import Result, Row
from evals.samples.types import Sample
from quatro.config import load_config
from quatro.runs.directory import RunDir
from quatro.sweep.plan import Axis, plan_sweep
from quatro.sweep.run import write_plan
from quatro_cli.app import app
from tests.kit import quatro, settings, write_rows

runner = CliRunner()
HUGE = 10**400
DEEP, INFINITE = "__deep__", "__infinite__"  # what json.dumps cannot write
VALUES: list[Any] = [
    *(None, True, -1, 1.5, 10**18, HUGE, 1e308, "", "x", "5", "../../x", "\ud800", "\0", DEEP, INFINITE),
    *([], {}, [1], {"a": HUGE}, [[[]]]),
]


def damaged_bytes(content: bytes, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """A file cut, overwritten or replaced as a whole: name of the damage and what then stands there."""
    at = rng.randrange(1, len(content))
    yield "cut", content[:at]
    yield "not UTF-8", content[:at] + b"\xff\xfe" + content[at:]
    yield "zeros", content[:at] + bytes(9) + content[at + 9 :]
    yield "deep lists", b"[" * 200_000
    yield "deep objects", b'{"a":' * 50_000
    yield "no object", b"[1]\n"
    yield "no value", b"null\n"
    yield "huge number", b"1" + b"0" * 400 + b"\n"
    yield "NaN", b"NaN\n"
    yield "UTF-16", content.decode("utf-8").encode("utf-16")
    yield "nothing", b""
    yield "empty object", b"{}\n"


def wrong_values(content: bytes, rng: random.Random, *, is_lines: bool, count: int) -> Iterator[tuple[str, bytes]]:
    """Single values of JSON that became something else, or went."""
    for _ in range(count):
        documents = content.decode("utf-8").splitlines() if is_lines else [content.decode("utf-8")]
        number = rng.randrange(len(documents))
        root = json.loads(documents[number])
        parent, key = rng.choice(list(places(root)))
        value = rng.choice([*VALUES, "gone"])
        name = f"line {number + 1}: {key!r} {value!r:.20}"
        if value == "gone":
            del parent[key]
        else:
            parent[key] = value
        text = json.dumps(root).replace(f'"{DEEP}"', "[" * 3000 + "]" * 3000).replace(f'"{INFINITE}"', "1e999")
        documents[number] = text
        yield name, ("\n".join(documents) + "\n").encode("utf-8")


def places(value: Any, *, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    entries = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    for key, item in entries:
        yield value, key
        if isinstance(item, (dict, list)) and depth < 3:
            yield from places(item, depth=depth + 1)


def assert_said(arguments: list[object], what: str) -> None:
    result = runner.invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code in range(7), f"{what}: {result.output}"
    assert result.exception is None or isinstance(result.exception, SystemExit), what
    # 1 is a bug, or a failure of the machine.
    assert result.exit_code != 1, f"{what}: {result.output}"


# ---- a run that was written down


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "runs" / "a"
    with RunDir.create(path, load_config("quickstart")) as opened:
        for step in (1, 2, 3):
            opened.append_metrics({"step": float(step), "reward/mean": 0.5, "entropy/token_mean": 1.0})
        opened.set_status("done", step=3)
    folder = path / "samples" / "t"
    folder.mkdir()
    rows = [Sample("countdown", "p", index, "1 + 2 = 3", answer="1 2 = 3", correct=True) for index in range(2)]
    (folder / "countdown.jsonl").write_bytes(b"".join(row.to_json_line() for row in rows))
    sampling = {"schema": 1, "model": "m", "seed": 0, "devices": ["cpu"], "sampling": {"temperature": 1.0}}
    entry = {"n": 2, "max_tokens": 4, "prompt": "plain"}
    (folder / "sampling.json").write_text(json.dumps({**sampling, "benchmarks": {"countdown": entry}}), "utf-8")
    passed = Row(metric="pass@k", benchmark="countdown", k=1, value=1.0, num_problems=1, n=2)
    (path / "results").mkdir()
    Result(metric="pass@k", label="a", rows=[passed]).write(path / "results" / "passk.json")
    return path


def cheap_commands(run: Path) -> dict[str, list[list[object]]]:
    """What reads a file without torch and without figures."""
    look = [["runs", "list", run.parent], ["runs", "show", run]]
    page = ["report", run, "-o", run.parents[1] / "report.html"]
    return {
        "status.json": look,
        "environment.json": look,
        "metrics.jsonl": [*look, ["table", run, "--metric", "entropy"]],
        "samples/t/sampling.json": [["eval", "passk", run, "--k", 1], page],
        "results/passk.json": [["table", run / "results" / "passk.json"]],
    }


@pytest.mark.parametrize("name", ["status.json", "environment.json", "metrics.jsonl", "samples/t/sampling.json"])
def test_a_damaged_file_of_a_run_is_no_bug(run, name):
    rng, file = random.Random(0), run / name
    whole = file.read_bytes()
    kinds = [*damaged_bytes(whole, rng), *wrong_values(whole, rng, is_lines=name.endswith("l"), count=12)]
    for kind, content in rng.sample(kinds, 8):
        file.write_bytes(content)
        for arguments in cheap_commands(run)[name]:
            assert_said(arguments, f"{kind} in {name}, {arguments[:2]}")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"step": 2, "reward/mean": 1' + b"0" * 400 + b"}", "an integer of 401 digits is too large"),
        (b'{"step": 2, "reward/mean": ' + b"[" * 9999 + b"]" * 9999 + b"}", "nested more than 64 deep"),
        (b'{"step": 2, "reward/mean": "\xff"}', "not UTF-8 text"),
        (b'{"step": 2, "reward/mean": "high"}', "'reward/mean' is 'high', expected a number or null"),
        (b'{"step": "2", "reward/mean": 1}', "'step' is '2', expected a number or null"),
        (b'{"reward/mean": 1}', "step is None, expected the number of an iteration"),
        (b'{"step": NaN, "reward/mean": 1}', "NaN is not JSON"),
        (b'{"step": 2, "rew', "not JSON"),
    ],
)
def test_damaged_metrics_are_refused_with_file_and_line(run, line, reason):
    file = run / "metrics.jsonl"
    first, _, third = file.read_bytes().splitlines()
    file.write_bytes(b"\n".join([first, line, third]) + b"\n")
    result = quatro("report", run, "-o", run / "report.html", code=4)
    assert f"{file}:2: " in result.stderr
    assert reason in result.stderr
    file.write_bytes(b"\n".join([first, third, line]) + b"\n")
    assert f"{file}:3: " in quatro("runs", "show", run, code=4).stderr


@pytest.mark.parametrize("name", ["config.yaml", "metrics.jsonl", "status.json", "environment.json"])
def test_one_damaged_run_hides_no_other(run, name):
    shutil.copytree(run, run.with_name("b"))
    (run / name).write_bytes(b"[" * 100_000 + b"\n")
    result = quatro("runs", "list", run.parent, "--json")
    found = {Path(one["run"]).name: one for one in json.loads(result.stdout)["runs"]}
    assert found["b"]["status"] == "done"
    assert found["a"]["status"] == {"status.json": "unknown", "environment.json": "done"}.get(name, "unreadable")
    assert str(run / name) in (result.stderr + str(found["a"]["reason"]))


@pytest.mark.parametrize("content", [b"\xff", b"[1]", b'{"status": 5, "time": 5}', b"{" * 9, b'{"step": 1e999}'])
def test_files_that_only_inform_are_rebuilt_with_a_warning(run, caplog, content):
    for name in ("status.json", "environment.json"):
        (run / name).write_bytes(content)
    with RunDir.open(run) as opened:
        opened.set_status("running")
    for name in ("status.json", "environment.json"):
        assert caplog.text.count(f"{run / name}:") == 1
        assert isinstance(json.loads((run / name).read_bytes()), dict)
    assert json.loads((run / "environment.json").read_bytes())["resumed"][0]["changes"] == {}


@pytest.mark.parametrize(
    "text",
    [
        "name: s\n",
        "name: s\npoints: {}\n",
        "name: s\npoints: 5\n",
        "name: s\npoints: {a: 5}\n",
        "name: s\npoints: {../a: {seed: 0}}\n",
        'name: s\npoints: {"a\\0": {seed: 0}}\n',
        "name: s\npoints: {a: {seed: one}}\n",
        "name: s\npoints: {a: {seed: 0}}\ncells: 5\n",
        "name: s\npoints: " + "[" * 500,
    ],
)
def test_a_damaged_sweep_is_refused_by_all_that_reads_one(tmp_path, text):
    write_plan(plan_sweep("quickstart", [Axis("method.delta", ("0.1",))]), tmp_path)
    (tmp_path / "sweep.yaml").write_text(text, encoding="utf-8")
    for command in (["table"], ["report", "-o", tmp_path / "report.html"]):
        assert str(tmp_path / "sweep.yaml") in quatro(*(*command, tmp_path), code=4).stderr


# ---- a run that was trained, sampled and measured


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs/a, two steps of three, and sweep/ with two points that are copies of it."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    from quatro.policy.embedded import make_model, make_tokenizer
    from quatro.tasks.countdown import CountdownWarmStart

    root = tmp_path_factory.mktemp("trained")
    recipe = CountdownWarmStart(hidden_size=32, num_heads=1, mlp_size=64, num_layers=1)
    torch.manual_seed(0)
    make_model(recipe).save_pretrained(root / "model")
    make_tokenizer(recipe.max_positions).save_pretrained(root / "model")
    problems = [{"id": str(number), "problem": "1 2 3 = 6", "answer": "6"} for number in range(2)]
    write_rows(root / "two.jsonl", problems)
    run = root / "runs" / "a"
    small = [f"model={root / 'model'}", "prompts_per_step=2", "minibatch_prompts=2", "rollouts_per_prompt=4"]
    small += ["inner_updates=1", "steps=2", "checkpoint.every=1", "rollout.max_new_tokens=4", "method.delta=0.1"]
    commands = [
        ["train", "quickstart", *settings(*small), "-o", run],
        ["sample", run, "-b", root / "two.jsonl", "-n", 2, "--tag", "t", "--grade"],
        ["eval", "grade", run],
        ["eval", "passk", run, "-o", run / "results" / "passk.json"],
        ["eval", "ucc", run, "-o", run / "samples" / "t" / "ucc.json", "--per-problem"],
    ]
    for arguments in commands:
        quatro(*arguments)
    plan = plan_sweep(run / "config.yaml", [Axis("method.delta", ("0.1", "0.01"))])
    write_plan(plan, root / "sweep")
    for point in plan.points:
        shutil.copytree(run, root / "sweep" / "runs" / point.name)
    config = (run / "config.yaml").read_text(encoding="utf-8")
    (run / "config.yaml").write_text(config.replace("steps: 2\n", "steps: 3\n", 1), encoding="utf-8")
    return root


def readers(root: Path, file: Path) -> list[list[object]]:
    """Commands that read ``file``, which lies below ``root``."""
    run, name, out = root / "runs" / "a", file.name, root / "out"
    look = [["runs", "list", run.parent], ["runs", "show", run]]
    begin = [["train", run, "--resume"]]
    passk = [["eval", "passk", run], ["eval", "passk", file]] if name.endswith("jsonl") else [["eval", "passk", run]]
    sample = [["sample", run, "-b", root / "two.jsonl", "-n", 3, "--tag", "t"]]
    export = [["export", run, "-o", out]]
    page = [["report", run, "-o", root / "report.html"]]
    figures = [["plot", "training", run, "-o", root / "f.svg"]]
    if file.is_relative_to(root / "sweep"):
        sweep = root / "sweep"
        swept = [["table", sweep, "--metric", "entropy"], ["plot", "training", sweep, "-o", root / "f.svg"]]
        return [*swept, ["report", sweep, "-o", root / "report.html"], ["paper", sweep, "-o", root / "paper"]]
    if "checkpoints" in file.parts:
        return [*begin, *sample, *export]
    if "samples" in file.parts or "graded" in file.parts:
        return [*passk, *page, *sample, ["eval", "grade", run]]
    if "results" in file.parts:
        return [*page, *export, ["table", file], ["table", run], ["plot", "passk", file, "-o", root / "f.svg"]]
    if "rollouts" in file.parts:
        return [*begin, ["eval", "passk", file]]
    if name == "metrics.jsonl":
        return [*look, *begin, *export, *page, *figures, ["table", run, "--metric", "entropy"]]
    return [*look, *begin, *export, *page, *figures, *sample]


JSON_FILES = [
    *("config.yaml", "status.json", "environment.json", "metrics.jsonl", "lock", "results/passk.json"),
    *("samples/t/sampling.json", "samples/t/two.jsonl", "samples/t/ucc.json"),
    *("graded/t/two.jsonl", "graded/t/two.grading.json", "rollouts/step-000002.jsonl"),
    *(f"checkpoints/step-000002/{name}" for name in ("manifest.json", "state.json", "model/config.json")),
    *("checkpoints/step-000002/model/tokenizer.json", "checkpoints/step-000002/model/tokenizer_config.json"),
]
SWEEP_FILES = ["sweep.yaml", *(f"runs/delta=0.1/{name}" for name in ("config.yaml", "status.json", "metrics.jsonl"))]


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [*(f"runs/a/{name}" for name in JSON_FILES), *(f"sweep/{name}" for name in SWEEP_FILES)]
)
def test_no_damage_to_a_trained_run_is_a_bug(trained, tmp_path, name):
    rng, whole = random.Random(name), (trained / name).read_bytes()
    kinds = [*damaged_bytes(whole, rng)]
    if not name.endswith("yaml"):
        kinds += wrong_values(whole, rng, is_lines=name.endswith("jsonl"), count=12)
    for number, (kind, content) in enumerate(kinds):
        root = tmp_path / str(number)
        for folder in ("runs", "sweep"):
            shutil.copytree(trained / folder, root / folder)
        shutil.copy(trained / "two.jsonl", root)
        (root / name).write_bytes(content)
        for arguments in rng.sample(commands := readers(root, root / name), min(3, len(commands))):
            assert_said(arguments, f"{kind} in {name}, {arguments[:2]}")
        shutil.rmtree(root)
