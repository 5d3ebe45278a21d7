import errno
import os
import resource
import shutil
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from evals.errors import DataError, DivergedError
from quatro.config import load_config
from quatro.runs import checkpoint
from quatro.runs.checkpoint import write_manifest
from quatro.runs.directory import RunDir
from tests.kit import read_json

STATE = {"step": 4, "cursor": [3, 1, 2], "lr": 1e-300, "rng": [2**64 - 1, None], "name": "λ\u2028"}
TENSORS = {"moment": torch.arange(6.0).reshape(2, 3).T, "step": torch.tensor(7), "empty": torch.zeros(0)}


def fill_model(folder: Path) -> None:
    (folder / "config.json").write_text('{"layers": 2}', encoding="utf-8")
    (folder / "shards").mkdir()
    (folder / "shards" / "weights.bin").write_bytes(bytes(range(256)) * 4)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDir]:
    config = load_config("quickstart", overrides=["checkpoint.keep=2"])
    with RunDir.create(tmp_path / "run", config) as opened:
        yield opened


def save(run: RunDir, step: int, state: Mapping[str, Any] = STATE) -> Path:
    return checkpoint.save(run, step, fill_model, state, TENSORS)


def newest(run: RunDir) -> checkpoint.Checkpoint:
    found = checkpoint.load_newest(run.path)
    assert found is not None
    return found


def test_what_was_saved_is_loaded(run):
    path = save(run, 4)
    assert path == run.path / "checkpoints" / "step-000004"
    assert (run.path / "checkpoints" / "latest").read_text(encoding="utf-8") == "step-000004\n"
    for found in (newest(run), checkpoint.load(path)):
        assert (found.path, found.step, found.state) == (path, 4, STATE)
    assert (found.model / "config.json").read_text(encoding="utf-8") == '{"layers": 2}'
    tensors = found.tensors()
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        torch.testing.assert_close(tensors[name], tensor, rtol=0, atol=0)


def test_files_of_a_checkpoint_get_the_mode_that_the_umask_says(run):
    def fill(folder):
        safetensors.torch.save_file({"weight": torch.zeros(2)}, folder / "model.safetensors")
        assert (folder / "model.safetensors").stat().st_mode & 0o777 == 0o600  # whatever the umask

    before = os.umask(0o027)
    try:
        path = checkpoint.save(run, 4, fill, STATE, TENSORS)
    finally:
        os.umask(before)
    modes = {file.name: oct(file.stat().st_mode & 0o777) for file in path.rglob("*") if file.is_file()}
    assert set(modes.values()) == {"0o640"}, modes
    assert {"model.safetensors", "manifest.json", checkpoint.TENSORS} <= modes.keys()


def test_nothing_is_pickled(run):
    names = [path.name for path in save(run, 1).rglob("*") if path.is_file()]
    assert sorted(names) == ["config.json", "manifest.json", "state.json", "tensors.safetensors", "weights.bin"]


class Acts:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_fault_31_a_pickle_in_a_checkpoint_is_refused_and_does_not_act(run, tmp_path):
    path = save(run, 4)
    torch.save(Acts(tmp_path / "hacked"), path / "tensors.safetensors")
    write_manifest(path, 4)  # hashes find accidents only
    with pytest.raises(DataError, match=r"tensors\.safetensors is no safetensors file"):
        newest(run).tensors()
    assert not (tmp_path / "hacked").exists()


def test_the_newest_counts_and_only_the_last_few_are_kept(run):
    for step in (5, 20, 100, 7):
        save(run, step)
    assert sorted(os.listdir(run.path / "checkpoints")) == ["latest", "step-000020", "step-000100"]
    assert newest(run).step == 100
    # Compared as numbers: a million comes after 100.
    save(run, 1_000_000)
    assert newest(run).step == 1_000_000


def test_saving_the_same_step_again_replaces_it(run):
    save(run, 3)
    save(run, 3, {"again": True})
    assert newest(run).state == {"again": True}


@pytest.mark.parametrize("number", [1, 2])
def test_a_kill_while_a_step_is_saved_again_leaves_the_old_or_the_new(run, number):
    save(run, 3)
    child = os.fork()
    if child == 0:
        rename, calls = os.rename, iter(range(1, 10))

        def rename_or_die(*names: Any) -> None:
            if next(calls) == number:
                os._exit(7)
            rename(*names)

        os.rename = rename_or_die
        save(run, 3, {"again": True})
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert newest(run).state == STATE
    save(run, 3, {"again": True})
    assert newest(run).state == {"again": True}
    checkpoint.tidy(run.path)
    assert sorted(os.listdir(run.path / "checkpoints")) == ["latest", "step-000003"]


@pytest.mark.parametrize("call", ["rename", "unlink"])
def test_a_kill_while_an_old_one_is_removed_leaves_it_whole_or_nothing(run, contents, call):
    """Never one that looks as if it had lost its manifest."""
    oldest = save(run, 1)
    save(run, 2)
    before = contents(oldest)
    child = os.fork()
    if child == 0:
        operation = getattr(os, call)

        def die_at_the_oldest(path: Any, *others: Any, **options: Any) -> None:
            if oldest.name in str(path):
                os._exit(7)
            operation(path, *others, **options)

        setattr(os, call, die_at_the_oldest)
        save(run, 3)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert newest(run).step == 3
    checkpoint.tidy(run.path)
    assert contents(oldest) == before
    assert sorted(os.listdir(oldest.parent)) == ["latest", "step-000001", "step-000002", "step-000003"]


# ---- damage


def test_every_flipped_bit_is_found_before_loading(run, contents):
    path = save(run, 4)
    for name, data in contents(path).items():
        for position in range(0, len(data), max(1, len(data) // 97)):
            for bit in (0, 3, 7):
                damaged = bytearray(data)
                damaged[position] ^= 1 << bit
                (path / name).write_bytes(damaged)
                with pytest.raises(DataError, match=f"{path.name}/{name}"):
                    newest(run)
        (path / name).write_bytes(data)
    assert newest(run).state == STATE


def test_a_changed_file_is_named_with_both_hashes(run):
    path = save(run, 4)
    expected = read_json(path / "manifest.json")["files"]["state.json"]["sha256"]
    (path / "state.json").write_text("{}", encoding="utf-8")
    hash_of_two_braces = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    with pytest.raises(
        DataError, match=f"state.json was changed: 2 bytes with SHA-256 {hash_of_two_braces}.*{expected}"
    ):
        newest(run)


def test_missing_and_extra_files_are_named(run):
    path = save(run, 4)
    (path / "model" / "extra.bin").touch()
    with pytest.raises(DataError, match=r"model/extra\.bin is extra"):
        newest(run)
    (path / "model" / "extra.bin").unlink()
    (path / "model" / "shards" / "weights.bin").unlink()
    with pytest.raises(DataError, match=r"model/shards/weights\.bin is missing"):
        newest(run)


def test_links_and_renamed_checkpoints_are_refused(run):
    path = save(run, 4)
    moved = path.with_name("step-000005")
    shutil.copytree(path, moved)
    with pytest.raises(DataError, match="holds the checkpoint of step 4"):
        checkpoint.load(moved)
    target = path / "state.json"
    target.rename(run.path / "state.json")
    target.symlink_to(run.path / "state.json")
    with pytest.raises(DataError, match=r"state\.json was changed"):
        checkpoint.load(path)


def test_no_checkpoint_is_said(run):
    (run.path / "checkpoints" / ".step-000001.99.tmp").mkdir()
    assert checkpoint.load_newest(run.path) is None
    with pytest.raises(DataError, match="no complete checkpoint"):
        checkpoint.find_checkpoint(run.path)
    with pytest.raises(DataError, match=r"it has no manifest\.json"):
        checkpoint.load(run.path / "checkpoints" / "step-000001")


# ---- interrupted writes


def test_a_partial_checkpoint_is_named_removed_and_the_one_before_used(run, caplog):
    folder = save(run, 4).parent
    shutil.copytree(folder / "step-000004", folder / ".step-000012.99.tmp")
    assert newest(run).step == 4
    assert (folder / ".step-000012.99.tmp").exists()  # until nothing can refuse to go on any more
    checkpoint.tidy(run.path)
    assert sorted(os.listdir(folder)) == ["latest", "step-000004"]
    assert ".step-000012.99.tmp was not finished" in caplog.text


def test_fault_02_a_checkpoint_without_its_manifest_is_passed_over_until_its_iteration_comes_again(run, caplog):
    folder = save(run, 4).parent
    (folder / "notes").mkdir()  # of the user
    lost = save(run, 8)
    (lost / "manifest.json").unlink()
    assert newest(run).step == 4
    checkpoint.tidy(run.path)
    assert "the newest checkpoint, step-000008, is gone or incomplete" in caplog.text
    save(run, 8)
    assert newest(run).step == 8
    assert (folder / "notes").exists()


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_failing_at_any_operation_leaves_the_old_or_the_new_checkpoint(run, monkeypatch, error, contents):
    """Every fsync and rename of a save fails once, one after the other, until a save runs clean."""
    run.append_metrics({"step": 4})
    save(run, 4, {"mark": 4})
    before = contents(run.path / "checkpoints" / "step-000004")
    real = {name: getattr(os, name) for name in ("fsync", "rename", "replace")}
    num_failures = 0
    for fail_at in range(1, 200):
        num_calls = 0

        def failing(name: str, fail_at: int = fail_at) -> Any:
            def call(*args: Any) -> Any:
                nonlocal num_calls
                num_calls += 1
                if num_calls == fail_at:
                    raise error
                return real[name](*args)

            return call

        with monkeypatch.context() as patch:
            for name in real:
                patch.setattr(os, name, failing(name))
            try:
                save(run, 8, {"mark": 8})
            except type(error):
                num_failures += 1
            else:
                break
        found = newest(run)
        checkpoint.tidy(run.path)
        assert found.state["mark"] == found.step
        assert contents(run.path / "checkpoints" / "step-000004") == before
    assert num_failures > 8
    assert newest(run).step == 8
    checkpoint.tidy(run.path)
    leftovers = [name for name in os.listdir(run.path / "checkpoints") if name.startswith(".")]
    assert leftovers == []


@pytest.mark.parametrize(
    ("limit", "name"),
    [(0, "model/config.json"), (10, "tensors.safetensors"), (400, "state.json"), (400, "manifest.json")],
)
def test_fault_04_a_full_disk_leaves_the_old_checkpoint_and_names_the_file(run, limit, name, contents):
    def write_little(folder: Path) -> None:
        (folder / "config.json").write_text("{}", encoding="utf-8")

    save(run, 4)
    before = contents(run.path / "checkpoints")
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(OSError, match="File too large") as error:
            checkpoint.save(run, 8, write_little, {"long": "x" * 500 if name == "state.json" else "x"}, TENSORS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert "step-000008" in str(error.value)
    assert name.partition("/")[0] in str(error.value)
    assert contents(run.path / "checkpoints") == before
    assert newest(run).step == 4


def test_a_writer_that_fails_leaves_no_trace(run):
    save(run, 4)

    def full(folder: Path) -> None:
        (folder / "half").write_bytes(b"x")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match=r"No space left on device: '.*model'"):
        checkpoint.save(run, 8, full, STATE, TENSORS)
    assert sorted(os.listdir(run.path / "checkpoints")) == ["latest", "step-000004"]


# ---- what may be saved


@pytest.mark.parametrize(("value", "error"), [(torch.zeros(1), TypeError), (float("nan"), ValueError)])
def test_state_that_is_no_json_is_refused(run, value, error):
    with pytest.raises(error):
        save(run, 1, {"a": [value]})
    assert os.listdir(run.path / "checkpoints") == []


def test_fault_11_no_checkpoint_holds_nan(run):
    with pytest.raises(DivergedError, match="moment holds NaN"):
        checkpoint.save(run, 1, fill_model, STATE, {"moment": torch.tensor([1.0, float("nan")])})
    assert os.listdir(run.path / "checkpoints") == []
