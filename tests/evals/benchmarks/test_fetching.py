"""Fetching benchmarks: what is locked the first time holds from then on, and nothing is assumed about the Hub."""

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evals.benchmarks.catalogue import find_benchmark, registry
from evals.benchmarks.fetching import cached_path, fetch, lock_path, read_lock
from evals.benchmarks.loading import is_here, load_problems, local_copy
from evals.benchmarks.problems import Problem
from evals.errors import DataError, MissingError, UsageError
from tests.kit import read_json, write_rows

AMC = [{"question": f"{i}?", "answer": str(i)} for i in range(40)]


class FakeHub:
    """Stands in for `datasets` and the Hub client: {id: {config: {split: rows}}}; every id is at commit `c1`."""

    def __init__(self, data: dict[str, dict[str, dict[str, list[dict[str, Any]]]]]) -> None:
        self.data = data
        self.commit = "c1"
        self.asked: list[tuple[Any, ...]] = []

    def of(self, id: str) -> dict[str, dict[str, list[dict[str, Any]]]]:
        if id not in self.data:
            raise ConnectionError("no route\nto host")
        return self.data[id]

    def dataset_info(self, id: str) -> SimpleNamespace:
        self.of(id)
        return SimpleNamespace(sha=self.commit)

    def get_dataset_config_names(self, id: str, *, revision: str) -> Sequence[str]:
        return list(self.of(id))

    def get_dataset_split_names(self, id: str, config: str, *, revision: str) -> Sequence[str]:
        return list(self.of(id)[config])

    def load_dataset(self, id: str, *, name: str, split: str, revision: str) -> list[dict[str, Any]]:
        self.asked.append((id, name, split, revision))
        return self.of(id)[name][split]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QUATRO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    fake = FakeHub({"math-ai/amc23": {"default": {"test": list(AMC)}}})
    monkeypatch.setitem(sys.modules, "datasets", fake)
    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(HfApi=lambda: fake))
    return fake


def write(path: Path, rows: Sequence[object]) -> Path:
    write_rows(path, rows)
    return path


def test_the_first_fetch_locks_the_commit_and_the_content(hub):
    problems, _ = fetch(registry()["amc23"])
    assert problems[3] == Problem("amc23", "amc23/3", "3?", "3")
    lock = read_json(lock_path(registry()["amc23"]))
    assert lock["hub"] == {"id": "math-ai/amc23", "config": "default", "split": "test"}
    assert (lock["commit"], lock["num_problems"], lock["same_as_registry"]) == ("c1", 40, False)
    assert len(lock["sha256"]) == 64


def test_the_copy_in_the_cache_is_used_without_the_hub(hub):
    fetched = load_problems("amc23")
    hub.data.clear()
    assert load_problems("amc23") == fetched
    assert is_here(registry()["amc23"])


def test_later_fetches_ask_for_the_locked_commit(hub):
    fetch(registry()["amc23"])
    hub.commit = "c2"
    fetch(registry()["amc23"])
    assert [asked[-1] for asked in hub.asked] == ["c1", "c1"]
    assert read_lock(registry()["amc23"]).commit == "c1"


def test_other_content_is_refused_with_both_hashes(hub, tmp_path):
    first = fetch(registry()["amc23"])[1].sha256
    before = cached_path(registry()["amc23"]).read_bytes()
    hub.data["math-ai/amc23"]["default"]["test"] = [{"question": f"{i}!", "answer": str(i)} for i in range(40)]
    with pytest.raises(DataError, match=first) as caught:
        fetch(registry()["amc23"])
    hashes = {word.strip(";,") for word in str(caught.value).split() if len(word.strip(";,")) == 64}
    assert len(hashes) == 2
    with pytest.raises(DataError, match=first):
        fetch(registry()["amc23"], file=write(tmp_path / "f.jsonl", AMC[1:] + AMC[1:2]))
    assert cached_path(registry()["amc23"]).read_bytes() == before


def test_the_same_content_in_another_order_with_other_ids_keeps_the_first_copy(hub, tmp_path):
    problems = fetch(registry()["amc23"])[0]
    file = write(tmp_path / "f.jsonl", [{**row, "id": f"x{i}"} for i, row in enumerate(reversed(AMC))])
    assert fetch(registry()["amc23"], file=file)[0] == problems
    assert load_problems("amc23") == problems


def test_a_copy_that_was_changed_by_hand_is_refused(hub):
    fetch(registry()["amc23"])
    path = cached_path(registry()["amc23"])
    path.write_bytes(path.read_bytes().replace(b'"17"', b'"18"'))
    with pytest.raises(DataError, match=r"was changed after it was fetched.*benchmarks fetch amc23"):
        load_problems("amc23")
    lock_path(registry()["amc23"]).unlink()
    with pytest.raises(DataError, match="no lock file"):
        load_problems("amc23")


def test_another_number_of_rows_is_refused(hub):
    hub.data["math-ai/amc23"]["default"]["test"].pop()
    with pytest.raises(DataError, match=r"39 rows, expected 40.*--from FILE"):
        load_problems("amc23")
    assert not is_here(registry()["amc23"])


def test_content_that_is_not_the_registrys_is_warned_about(hub, caplog):
    fetch(registry()["amc23"])
    assert registry()["amc23"].sha256 in caplog.text
    assert local_copy(registry()["amc23"])[1]["same_as_registry"] is False


def test_an_ambiguous_split_is_a_question(hub):
    hub.data["math-ai/amc23"]["default"] = {"a": AMC, "b": AMC[:8]}
    with pytest.raises(UsageError, match="the splits a, b; choose one as math-ai/amc23:a"):
        fetch(registry()["amc23"])


def test_an_ambiguous_config_is_a_question(hub):
    hub.data["math-ai/amc23"]["other"] = {"test": AMC}
    with pytest.raises(
        UsageError, match="the configs default, other; choose one and a split: math-ai/amc23:default:SPLIT"
    ):
        fetch(registry()["amc23"])


def test_a_mirror_is_named_by_its_place_or_by_an_entry_of_ones_own(hub, tmp_path, monkeypatch):
    hub.data["mirror/amc"] = {"main": {"a": AMC, "b": AMC[:8]}, "other": {"a": AMC}}
    entry = '[mine]\nhub = [{ id = "mirror/amc", config = "main", split = "b" }]\nproblem_field = "question"\n'
    (tmp_path / "own.toml").write_text(entry, encoding="utf-8")
    monkeypatch.setenv("QUATRO_BENCHMARKS", str(tmp_path / "own.toml"))
    for name in ("mirror/amc:main:b", "mine"):
        found = find_benchmark(name)
        assert (len(fetch(found)[0]), len(load_problems(name))) == (8, 8)


def test_the_second_data_set_is_used_where_the_first_cannot_be_had(hub):
    rows = [{"problem": f"{i}?", "answer": "025"} for i in range(30)]
    hub.data["Maxwell-Jia/AIME_2024"] = {"default": {"train": rows}}
    problems, lock = fetch(registry()["aime24"])
    assert lock.hub.id == "Maxwell-Jia/AIME_2024"
    assert problems[0].answer == "025"


def test_other_columns_than_the_registrys_are_named(hub):
    hub.data["math-ai/amc23"]["default"]["test"] = [{"Problem": "x", "Answer": "1"}] * 40
    with pytest.raises(DataError, match=r"row 0.*question.*\['Problem', 'Answer'\]"):
        fetch(registry()["amc23"])


def test_rows_are_fixed_before_they_are_kept(hub):
    rows = [{"problem": f"{i}?", "solution": rf"\boxed{{{i}}}", "answer": "not this"} for i in range(7499)]
    hub.data["EleutherAI/hendrycks_math"] = {"all": {"train": [*rows, {"problem": "x", "solution": "no box"}]}}
    problems, _ = fetch(registry()["math_train"])
    assert len(problems) == 7499
    assert load_problems("math_train")[5] == Problem("math_train", "math_train/5", "5?", "5")


def test_an_unreachable_hub_says_how_to_use_a_file(hub):
    hub.data.clear()
    with pytest.raises(MissingError, match=r"ConnectionError: no route to host") as caught:
        load_problems("amc23")
    assert "`quatro benchmarks fetch amc23 --from FILE`" in str(caught.value)
    assert "`-s data.prompts=amc23.jsonl`" in str(caught.value)
    assert caught.value.exit_code == 3


def test_without_the_hub_client_the_message_says_how_to_use_a_file(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)  # import raises ImportError
    with pytest.raises(MissingError, match=r"`-s data\.prompts=math500\.jsonl`") as caught:
        load_problems("math500")
    assert "`quatro benchmarks fetch math500 --from FILE`" in str(caught.value)


def test_what_is_local_anyway_is_not_fetched(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="built in"):
        fetch(registry()["countdown"])
    assert local_copy(registry()["countdown"])[1]["same_as_registry"] is True
    write(tmp_path / "a.jsonl", [{"problem": "x", "answer": "3"}])
    (tmp_path / "own.toml").write_text('[mine]\nfile = "a.jsonl"\n', encoding="utf-8")
    monkeypatch.setenv("QUATRO_BENCHMARKS", str(tmp_path / "own.toml"))
    with pytest.raises(UsageError, match=r"read from .*a\.jsonl"):
        fetch(registry()["mine"])
    assert local_copy(registry()["mine"])[1]["path"] == str(tmp_path / "a.jsonl")


def test_a_users_data_set_of_the_hub_is_fetched_like_ours(hub, tmp_path, monkeypatch):
    hub.data["openai/gsm8k"] = {
        "main": {"test": [{"question": "q", "answer": "long #### 18"}], "train": []},
        "socratic": {"test": []},
    }
    (tmp_path / "own.toml").write_text(
        '[g]\nhub = [{ id = "openai/gsm8k", config = "main", split = "test" }]\nproblem_field = "question"\n'
        'answer_after = "####"\n',
        encoding="utf-8",
    )
    monkeypatch.setenv("QUATRO_BENCHMARKS", str(tmp_path / "own.toml"))
    assert load_problems("g") == [Problem("g", "g/0", "q", "18")]
    assert load_problems("g") == [Problem("g", "g/0", "q", "18")]
    assert read_lock(registry()["g"]).same_as_registry is None


def test_a_data_set_of_the_hub_is_read_by_its_id_config_and_split(hub):
    rows = [{"id": 7, "question": "1+1?", "answer": "2", "level": 3}, {"question": "2+2?", "answer": 4}]
    hub.data["owner/set"] = {"main": {"train": rows, "test": rows[:1]}, "other": {"train": []}}
    name = "owner/set:main:train"
    first, second = load_problems(name)
    assert first == Problem(name, "7", "1+1?", "2", {"level": 3})
    assert second == Problem(name, f"{name}/1", "2+2?", "4")
    hub.data["owner/set"]["main"]["train"] = []  # a second reading asks nobody
    assert len(load_problems(name)) == 2
    assert hub.asked == [("owner/set", "main", "train", "c1")]
    hub.data["owner/one"] = {"default": {"train[:5]": rows}}
    assert len(load_problems("owner/one:train[:5]")) == 2


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("owner/set", "the configs main, other; choose one and a split: owner/set:main:SPLIT"),
        ("owner/set:train", "the configs main, other"),
        ("owner/one", "the splits train, test; choose one as owner/one:train"),
        ("owner/one:a:b:c", "unknown benchmark"),
        ("owner/one:", "unknown benchmark"),
        ("owner/set.json", "unknown benchmark"),
    ],
)
def test_an_id_that_names_no_split_lists_those_that_there_are(hub, name, said):
    hub.data["owner/set"] = {"main": {"train": [], "test": []}, "other": {"train": []}}
    hub.data["owner/one"] = {"default": {"train": [], "test": []}}
    with pytest.raises(UsageError, match=re.escape(said)):
        load_problems(name)


def test_a_data_set_whose_answers_are_workings_is_refused(hub):
    hub.data["openai/gsm8k"] = {"main": {"train": [{"question": "q", "answer": "6 and 12 are 18\n#### 18"}]}}
    with pytest.raises(DataError, match=r'an entry of \./quatro-benchmarks\.toml with answer_after = "####"'):
        load_problems("openai/gsm8k:main:train")


def test_a_known_benchmark_may_be_named_by_its_id(hub, monkeypatch):
    entry = registry()["amc23"].model_copy(update={"sha256": fetch(registry()["amc23"])[1].sha256})
    monkeypatch.setattr("evals.benchmarks.fetching.registry", lambda: {"amc23": entry})
    assert len(load_problems("math-ai/amc23:test")) == 40


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name == "mbppplus" else ())  # three seconds
        for name, entry in registry().items()
        if entry.source == "hub"
    ],
)
def test_the_real_data_become_verified_copies(name):
    folder = os.environ.get("QUATRO_DATA")
    if not folder or not (Path(folder) / f"{name}.jsonl").exists():
        pytest.skip("QUATRO_DATA does not name a folder with this benchmark")
    entry = registry()[name]
    assert fetch(entry, file=Path(folder) / f"{name}.jsonl")[1].same_as_registry is True
    _, copy = local_copy(entry)
    assert (copy["missing"], copy["sha256"]) == (0, entry.sha256)
    assert len(load_problems(name)) == entry.count - entry.num_left_out


def test_a_cache_that_cannot_be_written_names_the_variable(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("QUATRO_CACHE", str(tmp_path / "file"))
    with pytest.raises(MissingError, match="QUATRO_CACHE"):
        fetch(registry()["amc23"], file=write(tmp_path / "f.jsonl", AMC))


def test_an_unreadable_lock_is_named(hub):
    fetch(registry()["amc23"])
    lock_path(registry()["amc23"]).write_text('{"schema": 1}', encoding="utf-8")
    with pytest.raises(DataError, match=r"amc23\.lock\.json cannot be read"):
        load_problems("amc23")
