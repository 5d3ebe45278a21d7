"""What came out of the wheel works where there is no checkout. `make test-wheel` builds and installs it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from quatro.policy import embedded

ROOT = Path(__file__).parents[2]
PACKAGES = ("evals", "quatro", "quatro_cli")
pytestmark = pytest.mark.wheel
PAGE = re.compile(r"docs/([\w-]+\.md)")


@pytest.fixture(scope="module")
def made() -> Path:
    """The folder with the wheel (`dist`) and the environment into which it was installed (`clean`)."""
    if "WHEEL_FOLDER" not in os.environ:
        pytest.skip("needs a wheel and its environment; type `make test-wheel`")
    return Path(os.environ["WHEEL_FOLDER"]).resolve()


@pytest.fixture
def typed(made, tmp_path, monkeypatch):
    """Types a command of the clean environment, in an empty folder; what it printed, on stderr where it failed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QUATRO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("PYTHONPATH", raising=False)

    def run(*words: object, code: int = 0) -> str:
        program = made / "clean/bin" / str(words[0])
        done = subprocess.run([program, *map(str, words[1:])], capture_output=True, text=True, check=False)
        assert done.returncode == code, f"{words} ended with {done.returncode}: {done.stdout}{done.stderr}"
        return done.stderr if code else done.stdout

    return run


def is_source(path: Path) -> bool:
    return path.is_file() and path.suffix != ".pyc"


def test_the_wheel_has_every_file_of_the_packages_and_nothing_else(made):
    with zipfile.ZipFile(next((made / "dist").glob("*.whl"))) as wheel:
        inside = {name for name in wheel.namelist() if ".dist-info/" not in name}
    wanted = {str(path.relative_to(ROOT)) for name in PACKAGES for path in (ROOT / name).rglob("*") if is_source(path)}
    configs = (path.relative_to(ROOT / "configs") for path in (ROOT / "configs").rglob("*.yaml"))
    wanted |= {f"quatro/_configs/{path}" for path in configs}
    pages = {path.name for pattern in ("*.md", "relatives.py", "data/*.csv") for path in (ROOT / "docs").glob(pattern)}
    assert {Path(name).name for name in inside if "/share/doc/quatro/" in name} == pages
    assert {name for name in inside if "/share/doc/quatro/" not in name} == wanted


def test_python_finds_the_installed_packages(made, typed):
    code = f"import {', '.join(PACKAGES)}; print({', '.join(f'{name}.__file__' for name in PACKAGES)})"
    shown = typed("python", "-c", code)
    assert all(str(made / "clean/lib") in path for path in shown.split())


def test_help_and_configurations_are_there(typed):
    assert "quatro demo --steps 20" in typed("quatro", "demo", "--help")
    assert "Fine-tune a model." in typed("quatro", "--help")
    assert "name: quatro" in typed("quatro", "config", "show", "quickstart")
    names = [path.stem for path in (ROOT / "configs").glob("*.yaml")]
    load = "import sys; from quatro.config import load_config; print(len([*map(load_config, sys.argv[1:])]))"
    assert typed("python", "-c", load, *names) == f"{len(names)}\n"
    assert "math500" in typed("quatro", "benchmarks", "list")


def test_samples_are_measured(typed, tmp_path):
    row = {"benchmark": "sums", "id": "0", "answer": "2"}
    with (tmp_path / "samples.jsonl").open("w", encoding="utf-8") as stream:
        for index in range(4):
            stream.write(json.dumps({**row, "sample_index": index, "completion": f"\\boxed{{{index}}}"}) + "\n")
    found = json.loads(typed("quatro", "eval", "passk", "samples.jsonl", "--k", "1,4", "--json"))
    values = [row["value"] for row in found["rows"] if row["metric"] == "pass@k"]
    assert values[:2] == pytest.approx([0.25, 1.0])


def test_pages_that_messages_and_help_name_are_installed(made, typed):
    pages = made / "clean/share/doc/quatro"
    source = "\n".join(path.read_text(encoding="utf-8") for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
    assert all((pages / name).is_file() for name in PAGE.findall(source))
    for words, code in (
        (("runs", "import"), 2),
        (("sample", "--help"), 0),
        (("benchmarks", "--help"), 0),
        (("config", "schema"), 0),
    ):
        shown = typed("quatro", *words, code=code)
        paths = re.findall(r"(?:[\w./-]*/)?share/doc/quatro/[\w-]+\.md", shown)
        assert paths
        assert all(Path(path).is_file() for path in paths)
        assert not re.search(r"(?<!share/)docs/[\w-]+\.md", shown)


def test_mypy_sees_the_types_from_outside(made, typed, tmp_path):
    (tmp_path / "outside.py").write_text(
        "import evals.estimators\nimport quatro\nimport quatro_cli.output\n\n"
        "wrong: str = evals.estimators.pass_at_k(4, 2, 1)\n"
        "also_wrong: str = quatro.pass_at_k(4, 2, 1)\n"
        "right: bool = quatro_cli.output.output.is_terminal('stdout')\n",
        encoding="utf-8",
    )
    mypy = [sys.executable, "-m", "mypy", "--python-executable", made / "clean/bin/python", "--cache-dir", "cache"]
    done = subprocess.run([*mypy, "--strict", "outside.py"], capture_output=True, text=True, check=False)
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert [line.split(":")[1] for line in errors] == ["5", "6"], done.stdout + done.stderr
    assert all("Incompatible types in assignment" in line for line in errors)


def test_the_embedded_model_trains(made, typed, tiny_folder, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("PYTHONPATH", str(Path(torch.__file__).parents[1]))  # which has no quatro of its own
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    shutil.copytree(tiny_folder, embedded._folder("embedded:countdown"))
    small = ("steps=1", "prompts_per_step=2", "minibatch_prompts=2", "rollouts_per_prompt=2", "inner_updates=1")
    typed("quatro", "train", "quickstart", *(word for pair in small for word in ("-s", pair)), "-o", "run")
    file, status = typed("python", "-c", "import quatro; print(quatro.__file__, quatro.load_run('run').status)").split()
    assert str(made / "clean/lib") in file
    assert status == "done"
