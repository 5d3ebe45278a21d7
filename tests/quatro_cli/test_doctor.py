"""`quatro doctor` finds what is wrong and says what to type."""

import json
import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from typer.testing import CliRunner

from quatro_cli.app import app
from quatro_cli.commands import doctor

runner = CliRunner()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("QUATRO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_this_machine_passes_its_self_tests():
    result = runner.invoke(app, ["doctor", "--json"])
    checks = {check["name"]: check for check in json.loads(result.stdout)["checks"]}
    for name in ("dual self-test", "countdown self-test", "cache folder", "python"):
        assert checks[name]["status"] == "ok", checks[name]


def test_a_missing_extra_is_no_failure_and_comes_with_the_command(monkeypatch):
    version = metadata.version

    def without_matplotlib(name):
        if name == "matplotlib":
            raise metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(doctor.metadata, "version", without_matplotlib)
    result = runner.invoke(app, ["doctor"])
    assert result.exit_code == 0, result.output
    assert "pip install 'quatro[plot]'" in result.stderr


def test_an_old_package_fails_with_6(monkeypatch):
    monkeypatch.setattr(doctor.metadata, "version", lambda name: "0.0.1")
    result = runner.invoke(app, ["doctor"])
    assert result.exit_code == 6
    assert "numpy" in result.stderr


def test_a_broken_dual_is_found(monkeypatch):
    import quatro.dual

    solve = quatro.dual.solve_dual
    monkeypatch.setattr(quatro.dual, "solve_dual", lambda reward, delta: solve(reward, delta * 1.01))
    result = runner.invoke(app, ["doctor"])
    assert result.exit_code == 6
    assert "dual self-test" in result.stderr


def test_a_cache_that_cannot_be_written_is_found(cache):
    cache.write_text("a file, not a folder", encoding="utf-8")
    result = runner.invoke(app, ["doctor"])
    assert result.exit_code == 6
    assert "cache folder" in result.stderr


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("2.13.0+cpu", (2, 13, 0)), ("5.19.0.dev0", (5, 19, 0)), ("1.2rc1", (1, 2))],
)
def test_versions_are_compared_by_their_numbers(version, numbers):
    assert doctor.release(version) == numbers


def test_the_table_of_packages_is_that_of_pyproject():
    document = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    project = document["project"]
    stated = {"base": project["dependencies"], **project["optional-dependencies"]}

    def oldest(requirement: str) -> tuple[str, str]:
        name, version = re.match(r"([A-Za-z0-9_-]+)\s*[=>]=\s*([0-9.]+)", requirement).groups()
        return name, version

    for extra, packages in doctor.PACKAGES.items():
        assert packages == dict(map(oldest, stated[extra])), extra
