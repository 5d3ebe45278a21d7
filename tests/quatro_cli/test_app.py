"""The command line as a whole: help, exit codes, and how long it takes to say hello."""

import faulthandler
import inspect
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from quatro import __version__
from quatro_cli.app import _dump_stacks_on_signal, app
from quatro_cli.help import removed
from tests.kit import quatro, says

ROOT = Path(__file__).parents[2]
runner = CliRunner()


def all_commands(command, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Every command that help lists, and the groups that they are in."""
    found = {path: command}
    for name, child in getattr(command, "commands", {}).items():
        if not child.hidden:
            found |= all_commands(child, (*path, name))
    return found


COMMANDS = all_commands(get_command(app))


def python(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """What a new interpreter with these words did, in the checkout."""
    given = {"cwd": ROOT, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "encoding": "utf-8", **options}
    return subprocess.run([sys.executable, *words], timeout=120, check=False, **given)


def assert_no_bug(said: str) -> None:
    for words in ("this is a bug", "Traceback", "Exception ignored"):
        assert words not in said


def test_version_goes_to_stdout():
    done = python("-m", "quatro_cli.app", "--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"quatro {__version__}\n", "")


def test_windows_is_refused_in_one_sentence():
    code = "import os, evals.errors, evals.text, quatro_cli.app; os.name = 'nt'; quatro_cli.app.main()"
    done = python("-c", code)
    assert (done.returncode, done.stdout) == (3, "")
    assert re.fullmatch(r"error: [^\n]*Windows[^\n]*WSL\n", done.stderr)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_fits_a_screen_and_shows_two_examples(command):
    result = runner.invoke(app, [*command, "--help"], env={"COLUMNS": "100", "TERMINAL_WIDTH": "100"})
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100
    examples = [line for line in lines if re.match(r"\s+quatro \w", line)]
    assert len(examples) >= 2
    assert not re.search(r"<[a-z]", result.stdout), "a type stands where a metavar should"
    shown = [param for param in COMMANDS[command].params if not param.hidden]
    unnamed = [param.name for param in shown if not getattr(param, "is_flag", False) and param.metavar is None]
    assert unnamed == []


@pytest.mark.parametrize("group", sorted({path[:-1] for path in COMMANDS if path}), ids=" ".join)
def test_a_list_of_commands_shows_their_first_sentence_whole(group):
    shown = runner.invoke(app, [*group, "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).stdout
    for command in (path for path in COMMANDS if path and path[:-1] == group):
        first = " ".join(inspect.cleandoc(COMMANDS[command].help).split("\n\n")[0].split())
        assert len(first) <= 60
        assert first.endswith((".", ")."))
        assert re.search(rf"^  {command[-1]} +{re.escape(first)}$", shown, re.MULTILINE)


def test_commands_stand_under_what_they_are_for():
    shown = runner.invoke(app, ["--help"]).stdout
    found = {
        heading: re.findall(r"^  ([a-z]+) ", lines, re.MULTILINE)
        for heading, lines in re.findall(r"^([A-Z][a-z]+):\n((?:  .*\n?)+)", shown, re.MULTILINE)
    }
    assert found.pop("Options") == []
    assert found.pop("Examples", []) == []
    assert found == {
        "Train": ["train", "sweep", "runs", "rollouts", "export"],
        "Measure": ["sample", "eval"],
        "Present": ["view", "table", "plot", "report", "paper"],
        "Reference": ["config", "benchmarks", "doctor", "demo"],
    }
    assert [path[1] for path in COMMANDS if path[:1] == ("eval",) and len(path) == 2][:2] == ["passk", "ucc"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nonsense"], 2, "No such command"),
        (["train"], 2, "Missing argument"),
        (["train", "no-such-config"], 2, "no-such-config"),
        (["train", "quickstart", "-s", "optimizer.lr=fast", "--dry-run"], 2, "optimizer.lr"),
        (["train", "quickstart", "-s", "stepz=3", "--dry-run"], 2, "steps"),
        (["train", "nowhere", "--resume"], 2, "run directory"),
        (["train", "quickstart", "--resume", "-m", "gspo"], 2, "ignored"),
        (["sweep", "quickstart", "-g", "method.delta"], 2, "method.delta=0.1,0.01"),
        (["sweep", "quickstart", "-g", "method.delta=0.1,0.01", "--seeds", "a", "--dry-run"], 2, "--seeds a"),
        (["sample", "m"], 2, "-b"),
        (["sample", "m", "-b", "countdown", "--top-p", "0"], 2, "top_p"),
        (["sample", "m", "-b", "countdown", "--engine", "magic"], 2, "transformers"),
        (["sample", "m", "-b", "nothing-such"], 2, "nothing-such"),
        (["eval", "passk", "nowhere.jsonl"], 4, "nowhere.jsonl"),
        (["plot", "training", "nowhere"], 2, "nowhere"),
    ],
)
def test_mistakes_end_with_their_code_and_a_word_about_them(arguments, code, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = quatro(*arguments, code=code)
    assert said in result.stderr
    assert result.stdout == ""
    assert_no_bug(result.stderr)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("typed", "instead"), removed().items())
def test_what_was_removed_is_refused_with_what_to_do_instead(typed, instead):
    says(quatro(*typed.split()[1:], code=2), f"`{typed}`", advice=instead)


@pytest.mark.parametrize(
    ("typed", "advice"),
    [
        ("train quickstart --dry-run method.delta=0.1", "-s method.delta=0.1"),
        ("sweep quickstart method.delta=0.1", "-g method.delta=0.1"),
        ("sweep quickstart -g method.dleta=1", "did you mean method.delta"),
        ("sweep quickstart -g method.name=gspo,grpo -g method.clip_lo=1", "did you mean method.clip_low"),
        ("config diff a=b c=d e=f", "(e=f)"),
    ],
)
def test_a_setting_without_its_option_or_misspelt_is_shown_as_it_is_typed(typed, advice):
    says(quatro(*typed.split(), code=2), advice=advice)


@pytest.mark.parametrize("argv", [["eval", "grade", "a"], ["eval", "compare", "a", "b"], ["table", "a", "b"]])
def test_a_symbolic_link_to_itself_is_named(argv, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        (tmp_path / name).symlink_to(name)
    result = runner.invoke(app, argv)
    assert result.exit_code in (1, 2, 4)
    assert_no_bug(result.stderr)
    says(result, "a")


def test_an_exception_nobody_expected_is_one_with_its_traceback(monkeypatch):
    monkeypatch.setattr("evals.files.own_code._imported", [])
    monkeypatch.setattr("quatro_cli.commands.doctor.run_checks", lambda: 1 / 0)
    result = quatro("doctor", code=1)
    assert "this is a bug: ZeroDivisionError" in result.stderr
    assert "Traceback" in result.stderr


def test_a_foreign_package_named_evals_is_refused_before_anything_else(tmp_path):
    (tmp_path / "evals").mkdir()
    (tmp_path / "evals/__init__.py").write_text("raise RuntimeError('imported')\n", encoding="utf-8")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from quatro_cli.app import main; main()"
    done = python("-c", code, "doctor", cwd=tmp_path)
    assert done.returncode == 3
    says(done, tmp_path)
    assert_no_bug(done.stderr)


def test_a_reader_that_goes_away_is_no_error():
    command = f"{sys.executable} -m quatro_cli.app --help | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert_no_bug(done.stderr)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_results_that_cannot_be_written_are_not_a_success():
    with open("/dev/full", "w", encoding="utf-8") as full:
        words = ("sweep", "quickstart", "-g", "seed=0,1", "--dry-run")
        done = python("-m", "quatro_cli.app", *words, stdout=full)
    assert done.returncode == 1
    assert "No space left on device: stdout" in done.stderr
    assert_no_bug(done.stderr)


def test_output_is_utf8_in_an_ascii_locale():
    environment = {**os.environ, "LC_ALL": "C", "LANG": "C", "PYTHONIOENCODING": "ascii"}
    done = python("-m", "quatro_cli.app", "train", "modèle", env=environment)
    assert done.returncode == 2
    assert "modèle" in done.stderr


def test_ctrl_c_before_anything_began_is_130():
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import time, quatro_cli.commands.doctor as d\n"
            "def wait():\n    print('ready', flush=True); time.sleep(60)\n"
            "d.run_checks = wait\nfrom quatro_cli.app import main\nimport sys; sys.argv = ['quatro', 'doctor']\nmain()",
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=30)
    assert child.returncode == 130
    assert said == "interrupted\n"


@pytest.mark.skipif(sys.platform == "win32", reason="a signal of POSIX")
def test_an_interrupt_on_the_way_out_prints_no_traceback():
    code = (
        "import atexit, os, signal, sys; from quatro_cli.app import main; sys.argv = ['quatro', '--version']; "
        "signal.signal(signal.SIGINT, signal.default_int_handler); "
        "atexit.register(os.kill, os.getpid(), signal.SIGINT); main()"
    )
    done = python("-c", code)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")
    assert done.stdout.startswith("quatro ")


def test_sigusr1_writes_the_stacks_to_stderr_and_the_process_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(faulthandler, "enable", lambda: None)  # pytest has its own
    with (tmp_path / "stderr").open("w+", encoding="utf-8") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        _dump_stacks_on_signal()
        try:
            signal.raise_signal(signal.SIGUSR1)
        finally:
            faulthandler.unregister(signal.SIGUSR1)
        assert "test_sigusr1_writes_the_stacks" in (tmp_path / "stderr").read_text(encoding="utf-8")
