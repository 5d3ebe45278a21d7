"""`quatro plot training` from the outside."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from quatro.config import config_to_yaml, load_config
from quatro_cli.app import app
from tests.kit import quatro, says

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


def test_a_folder_that_is_no_run_ends_with_2(sweep, tmp_path):
    quatro("plot", "training", tmp_path, "-o", tmp_path / "x.png", code=2)
    assert not (tmp_path / "x.png").exists()


@pytest.mark.parametrize("name", ["limitation", "delta-lambda", "entropy", "stability"])
def test_figures_of_the_paper_from_runs_are_drawn_by_its_own_command(sweep, name):
    says(quatro("plot", name, sweep, code=2), advice="quatro paper SWEEP")


def test_a_sweep_is_grouped_by_setting_and_every_run_alone_is_a_curve(sweep, tmp_path):
    from quatro.runs.views.series import read_curves

    curves, _ = read_curves([sweep])
    assert [(curve.label, len(curve.runs)) for curve in curves] == [
        ("GSPO, K 1", 2),
        ("GSPO, K 2", 2),
        ("QUATRO δ 0.01, K 1", 2),
        ("QUATRO δ 0.01, K 2", 2),
    ]
    alone, _ = read_curves([sweep / "runs/gspo-1-0", sweep / "runs/gspo-1-1"])
    assert [(curve.label, len(curve.runs)) for curve in alone] == [("GSPO, seed 0", 1), ("GSPO, seed 1", 1)]
    named = sweep / "runs/gspo-1-0", sweep / "runs/quatro-2-0"
    assert [curve.label for curve in read_curves(named)[0]] == ["GSPO, K 1", "QUATRO δ 0.01, K 2"]
    shutil.copytree(named[0], tmp_path / "twin")
    twins, _ = read_curves([named[0], tmp_path / "twin"])
    config = tmp_path / "twin/config.yaml"
    config.write_text(
        config.read_text(encoding="utf-8").replace("embedded:countdown", "/some/where/own"), encoding="utf-8"
    )
    others, _ = read_curves([named[0], tmp_path / "twin"])
    assert [curve.label for curve in others] == ["GSPO, model embedded:countdown", "GSPO, model own"]
    assert [curve.label for curve in twins] == ["GSPO, gspo-1-0", "GSPO, twin"]  # nothing else tells them apart
    result = runner.invoke(app, ["plot", "training", str(sweep)])
    assert result.stdout == f"{sweep / 'figures/training.png'}\n", result.output


def test_the_size_and_names_are_options(sweep, tmp_path):
    from matplotlib.image import imread

    out = tmp_path / "x.png"
    runs = [str(sweep / f"runs/{name}") for name in ("gspo-1-0", "quatro-1-0")]
    arguments = ["plot", "training", *runs, "-o", str(out), "--width", "column"]
    result = quatro(*arguments, "--labels", "Ours,")
    assert imread(out).shape[1] == 650
    result = quatro(*arguments, "--labels", "a,b,c", code=2)
    assert "GSPO,QUATRO δ 0.01" in result.stderr


COMMANDS = ("training", "passk", "ucc", "flips", "similarity", "heatmap")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_the_shared_options_and_fits_on_a_screen(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = runner.invoke(app, ["plot", name, "--help"], terminal_width=80).stdout
    assert len(text.splitlines()) <= 40
    assert max(map(len, text.splitlines())) <= 100  # examples are not wrapped
    for option in ("--width", "--labels", "--out"):
        assert option in text
