"""Results of sweeps in small files: what comes back is what the pages read, and a damaged file is named."""

import json
import lzma
import shutil
from dataclasses import replace

import pytest

from evals.errors import DataError, UsageError
from evals.results.document import ProblemEntry, Result, Row
from experiments.archive import METRICS, known_archives, pack, unpack
from experiments.counts import counts_in
from experiments.replication.results import Run, read_results
from quatro.runs.points import read_points
from quatro.sweep.plan import Axis, plan_sweep, read_plan
from quatro.sweep.results import Tag, read_sweep
from quatro.sweep.run import write_plan
from tests.kit import read_json


@pytest.fixture
def sweep(tmp_path):
    """Two points, of which one is trained and measured."""
    folder = tmp_path / "sweep"
    plan = plan_sweep("quickstart", [Axis("method.delta", ("0.1", "0.01"))])
    write_plan(plan, folder)
    run = folder / "runs" / plan.points[0].name
    tag = run / "samples/T1-p1"
    tag.mkdir(parents=True)
    (run / "config.yaml").write_bytes((folder / "configs" / f"{plan.points[0].name}.yaml").read_bytes())
    (run / "status.json").write_text('{"status": "done", "reason": null}', encoding="utf-8")
    about = {"quatro": "0", "commit": "f" * 40, "host": "mine", "folder": str(tmp_path)}
    (run / "environment.json").write_text(json.dumps(about), encoding="utf-8")
    row = {"step": 1, "entropy/token_mean": 1.23456789, "kl/new_old": None, "length/max": 10.0}
    (run / "metrics.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    measured = Row(metric="ucc@k", benchmark="countdown", k=1, value=0.5, num_problems=1, n=4)
    entry = ProblemEntry(benchmark="countdown", id="a", n=4, correct=3, clusters=[2, 1])
    Result(metric="ucc@k", rows=[measured], problems=[entry]).write(tag / "ucc.json")
    Result(metric="pass@k", rows=[measured]).write(tag / "passk.json")
    return folder


def test_what_comes_back_is_what_the_pages_read(sweep, tmp_path):
    names = [path.name for path in pack(sweep, tmp_path / "kept")]
    assert names == ["plan.json.xz", "runs.json.xz"]
    unpack(tmp_path / "kept", tmp_path / "again")
    before, after = (read_sweep(folder) for folder in (sweep, tmp_path / "again"))
    assert after[1] == before[1] == 2
    (old,), (new,) = ([run for run in runs if (run.folder / "status.json").is_file()] for runs, _ in (before, after))
    assert (new.name, new.settings) == (old.name, old.settings)
    assert counts_in(new.folder, Tag()) == counts_in(old.folder, Tag())
    row = read_json(new.folder / "metrics.jsonl")
    assert row == {"step": 1, "entropy/token_mean": 1.23457, "kl/new_old": None}
    assert set(row) <= set(METRICS)
    assert str(tmp_path) not in (new.folder / "environment.json").read_text(encoding="utf-8")


def test_the_same_runs_give_the_same_bytes_and_nothing_is_overwritten(sweep, tmp_path):
    one, two = (pack(sweep, tmp_path / name) for name in ("one", "two"))
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]
    (run,) = (run for run, _ in [(path, 0) for path in (sweep / "runs").iterdir()])
    (run / "status.json").write_text('{"status": "failed", "reason": null}', encoding="utf-8")
    unpack(tmp_path / "one", sweep)
    assert "failed" in (run / "status.json").read_text(encoding="utf-8")


def test_a_sweep_goes_on_after_unpacking(sweep, tmp_path):
    pack(sweep, tmp_path / "kept")
    unpack(tmp_path / "kept", tmp_path / "again")
    plan = plan_sweep("quickstart", [Axis("method.delta", ("0.1", "0.01"))])
    write_plan(plan, tmp_path / "again")
    assert read_plan(tmp_path / "again") == plan


def test_a_damaged_file_is_named(sweep, tmp_path):
    path = pack(sweep, tmp_path / "kept")[1]
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match=r"runs\.json\.xz is damaged"):
        unpack(tmp_path / "kept", tmp_path / "again")
    path.write_bytes(lzma.compress(b"{"))
    with pytest.raises(DataError, match="is damaged"):
        unpack(tmp_path / "kept", tmp_path / "again")
    with pytest.raises(UsageError, match="holds no"):
        unpack(tmp_path / "nothing", tmp_path / "again")
    with pytest.raises(DataError, match="is no sweep"):
        pack(tmp_path, tmp_path / "kept")
    assert "kept" not in known_archives()


def test_runs_of_other_weights_are_seeds_of_another_base(sweep, tmp_path, capsys):
    """They are kept beside the others with their own untrained model, and a run that is kept is not replaced."""
    (first,) = (sweep / "runs").iterdir()
    points = read_plan(sweep).points
    second = sweep / "runs" / next(one for one in points if one.name != first.name).name

    def is_of(digest, run):
        (run / "environment.json").write_text(json.dumps({"model_digest": digest}), encoding="utf-8")

    base = sweep / "base/base-embedded-countdown/samples"
    shutil.copytree(first / "samples", base)
    is_of("aa", first)
    pack(sweep, tmp_path / "kept")
    shutil.copytree(first, second)
    shutil.copy(sweep / "configs" / f"{second.name}.yaml", second / "config.yaml")
    is_of("bb", second)
    with pytest.raises(DataError, match=r"embedded:countdown in .* began with different weights"):
        pack(sweep, tmp_path / "kept")
    is_of("bb", first)
    for _ in range(2):  # packing again changes nothing
        pack(sweep, tmp_path / "kept")
        assert f"1 runs are kept with other weights, and stay: runs/{first.name}/" in capsys.readouterr().err
        shutil.rmtree(tmp_path / "again", ignore_errors=True)
        unpack(tmp_path / "kept", tmp_path / "again")
        again = tmp_path / "again"
        bases = sorted(path.name for path in (again / "base").iterdir())
        assert bases == ["base-embedded-countdown", "base-embedded-countdown~bb"]
        digests = [read_json(again / "runs" / run.name / "environment.json")["model_digest"] for run in (first, second)]
        assert digests == ["aa", "bb"]
    results = read_results(tmp_path / "again")
    bases = {name: Run(name, "base", {}, again / "base" / name) for name in bases}
    runs = {0: Run("a", "", {}, again / "runs" / first.name), 1: Run("b", "", {}, again / "runs" / second.name)}
    found = replace(results, bases=bases).bases_of(runs)
    assert [found[seed].name for seed in (0, 1)] == ["base-embedded-countdown", "base-embedded-countdown~bb"]


def test_torch_and_processor_are_kept(sweep, tmp_path):
    (run,) = (sweep / "runs").iterdir()
    about = {"processor": "A 1", "packages": {"torch": "2.0", "numpy": "1"}, "host": "mine"}
    (run / "environment.json").write_text(json.dumps(about), encoding="utf-8")
    for _ in range(2):  # packed from what was unpacked, too
        pack(sweep, tmp_path / "kept")
        shutil.rmtree(run)
        unpack(tmp_path / "kept", sweep)
        assert read_json(run / "environment.json") == {"processor": "A 1", "torch": "2.0"}


def test_a_part_of_a_sweep_is_packed_beside_another_part(sweep, tmp_path):
    pack(sweep, tmp_path / "kept")
    other = plan_sweep("quickstart", [Axis("method.delta", ("0.3", "0.01"))])
    write_plan(other, tmp_path / "other")
    pack(tmp_path / "other", tmp_path / "kept")
    unpack(tmp_path / "kept", tmp_path / "again")
    names = {point.name for point in (*read_plan(sweep).points, *other.points)}
    assert set(read_points(tmp_path / "again")) == names
    assert sum((run.folder / "status.json").is_file() for run in read_sweep(tmp_path / "again")[0]) == 1
