"""`quatro plot limitation | delta-lambda | entropy | stability` from the outside."""

import json

import pytest
from typer.testing import CliRunner

from quatro.config import config_to_yaml, load_config
from quatro_cli.app import app

runner = CliRunner()

SMALL = (("gspo", 1), ("gspo", 2), ("quatro", 1), ("quatro", 2))


@pytest.fixture
def sweep(tmp_path):
    pytest.importorskip("matplotlib")
    for method, k in SMALL:
        for seed in (0, 1):
            path = tmp_path / f"sweep/runs/{method}-{k}-{seed}"
            path.mkdir(parents=True)
            config = load_config("quickstart", overrides=[f"inner_updates={k}", f"seed={seed}"], method=method)
            (path / "config.yaml").write_text(config_to_yaml(config), encoding="utf-8")
            row = {"reward/mean": 0.2 * k, "entropy/token_mean": 1.0, "clip_fraction": 0.0, "dual/lam_mean": 3.0}
            rows = [{"step": step, "kl/new_old": 0.01, **row} for step in range(1, 4)]
            (path / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    return tmp_path / "sweep"


@pytest.mark.parametrize("name", ["limitation", "delta-lambda", "entropy", "stability"])
def test_a_sweep_becomes_a_figure_and_its_path_goes_to_stdout(sweep, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    result = runner.invoke(app, ["plot", name, str(sweep)])
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{name}.png\n"
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_left_out_of_a_figure_is_a_warning(sweep, tmp_path):
    result = runner.invoke(app, ["plot", "stability", str(sweep), "-o", str(tmp_path / "x.svg")])
    assert result.exit_code == 0, result.output
    assert "(b) needs" in result.stderr
    assert "(c) needs" in result.stderr
    assert "(a)" not in result.stderr


def test_missing_ingredients_end_with_4_and_a_folder_that_is_no_run_with_2(sweep, tmp_path):
    result = runner.invoke(app, ["plot", "limitation", str(sweep / "runs/gspo-1-0"), "-o", str(tmp_path / "x.png")])
    assert result.exit_code == 4
    assert "inner updates K" in result.stderr
    assert runner.invoke(app, ["plot", "entropy", str(tmp_path)]).exit_code == 2
    assert not (tmp_path / "x.png").exists()
