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


def test_commands_and_options(offered):
    assert offered("quatro eval com") == ["compare"]
    assert "--per-problem" in offered("quatro eval ucc --per")


@pytest.mark.parametrize("line", ["eval pa", "train quickstart --res"])
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
