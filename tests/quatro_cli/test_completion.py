"""What a shell offers after the Tab key: asked as a shell asks, in a process of its own where that matters."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def offered(monkeypatch, tmp_path, capsys):
    """The answers to a line that bash has in front of the cursor."""
    from quatro_cli.app import app

    monkeypatch.chdir(tmp_path)

    def ask(line: str) -> list[str]:
        words = line.split(" ")
        monkeypatch.setenv("_QUATRO_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        with pytest.raises(SystemExit) as end:
            app(prog_name="quatro")
        assert end.value.code == 0
        return capsys.readouterr().out.split()

    return ask


def make_run(path: Path) -> None:
    path.mkdir(parents=True)
    (path / "config.yaml").write_text("model: m\n", encoding="utf-8")


def test_commands_and_options(offered):
    assert offered("quatro eval com") == ["compare"]
    assert "--per-problem" in offered("quatro eval ucc --per")


def test_benchmarks(offered, tmp_path):
    assert offered("quatro eval passk -b math5") == ["math500"]
    assert offered("quatro sample m -b math500,aime2") == [f"math500,{name}" for name in ("aime24", "aime25")]
    assert offered("quatro benchmarks show countd") == ["countdown", "countdown-600"]
    (tmp_path / "quatro-benchmarks.toml").write_text("[mine]\nfile = 'm.jsonl'\n", encoding="utf-8")
    assert offered("quatro eval passk -b min") == ["minerva", "mine"]
    (tmp_path / "quatro-benchmarks.toml").write_text("[mine", encoding="utf-8")
    assert offered("quatro eval passk -b mat") == []  # the command itself will say what is wrong with the file


def test_similarities(offered):
    assert offered("quatro eval ucc f.jsonl --similarity tf") == ["tfidf"]
    assert offered("quatro eval ucc f.jsonl --similarity exact,ro") == ["exact,rouge-l"]


def test_methods(offered):
    assert offered("quatro train quickstart -m g") == ["grpo", "gspo", "gmpo", "gpg"]
    assert offered("quatro config show quickstart -m qua") == ["quatro"]
    assert offered("quatro sweep quickstart -m cis") == ["cispo"]


def test_configurations_and_sweeps(offered):
    assert offered("quatro train quick") == [
        *(f"quickstart-{name}" for name in ("code", "hard", "palindrome", "shortest-path", "spell-backward")),
        "quickstart",
    ]
    assert offered("quatro config diff math-7b math-7b-") == ["math-7b-4gpu", "math-7b-rm-4gpu"]
    assert offered("quatro sweep paper") == ["paper-math-7b", "paper-math", "paper-small"]


def test_runs(offered, tmp_path):
    for name in ("runs/b", "runs/a", "runs/demo/quatro", "sweeps/delta/runs/seed=0"):
        make_run(tmp_path / name)
    (tmp_path / "runs/empty").mkdir()
    assert offered("quatro runs show ru") == ["runs/a", "runs/b", "runs/demo/quatro"]
    assert offered("quatro train runs/d") == ["runs/demo/quatro"]
    assert offered("quatro plot training runs/a sweeps/") == ["sweeps/delta/runs/seed=0"]
    for command in ("sample", "export", "report", "table", "plot passk", "plot entropy"):
        assert "runs/a" in offered(f"quatro {command} runs/")


@pytest.mark.parametrize("line", ["eval passk -b math5", "train quickstart -m gs"])
def test_an_answer_loads_nothing_heavy(line, tmp_path):
    code = (
        "import sys\nfrom quatro_cli.app import main\ntry:\n    main()\nexcept SystemExit:\n"
        "    print(*sys.modules, file=sys.stderr)"
    )
    words = shlex.split(f"quatro {line}")
    environment = {
        "_QUATRO_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": f"{len(words) - 1}",
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    heavy = {"torch", "transformers", "pandas", "sklearn", "scipy", "matplotlib", "rich"}
    assert heavy.isdisjoint(name.split(".")[0] for name in done.stderr.split())
