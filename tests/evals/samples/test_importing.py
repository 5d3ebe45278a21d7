"""Samples of other tools: what becomes of each layout, and that nothing unknown is guessed at."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from evals.errors import DataError, MissingError, UsageError
from evals.samples.importing import Imported, import_samples
from evals.samples.types import Sample
from tests.kit import write_rows

Convert = Callable[..., tuple[Sequence[Sample], Imported]]
LM_EVAL = "samples_gsm8k_cot_2026-01-31T10-00-00.123456.jsonl"


def write(path: Path, *rows: object) -> Path:
    write_rows(path, rows)
    return path


def lm_eval_row(doc_id: int, texts: Sequence[str], *, filter: str = "none", **more: Any) -> dict[str, Any]:
    return {
        "doc_id": doc_id,
        "doc": {"question": f"{doc_id}?", "answer": "work #### 7"},
        "target": "7",
        "arguments": {"gen_args_0": {"arg_0": f"Q: {doc_id}?", "arg_1": {"until": ["\n"]}}},
        "resps": [list(texts)],
        "filtered_resps": ["7"],
        "filter": filter,
        "metrics": ["exact_match"],
        "exact_match": 0.0,
        **more,
    }


def test_lm_eval_keeps_every_raw_response_of_a_document(tmp_path, convert):
    rows, imported = convert(
        write(tmp_path / LM_EVAL, lm_eval_row(0, ["a 7", "b 7"]), lm_eval_row(1, ["c"])), "lm-eval"
    )
    assert [(row.benchmark, row.id, row.sample_index, row.completion) for row in rows] == [
        ("gsm8k_cot", "0", 0, "a 7"),
        ("gsm8k_cot", "0", 1, "b 7"),
        ("gsm8k_cot", "1", 0, "c"),
    ]
    assert rows[0].answer == "7"
    assert rows[0].prompt == "Q: 0?"
    assert rows[0].correct is None  # the tool's graders are not ours
    assert rows[0].extra == {
        "doc": {"question": "0?", "answer": "work #### 7"},
        "source_scores": {"exact_match": 0.0},
    }
    assert imported.notes == ["3 samples of 2 problems of gsm8k_cot, 1 to 2 of each, from 2 of 2 rows"]


def test_rows_of_other_filters_hold_the_same_responses_and_are_left_out(tmp_path, convert):
    rows = [lm_eval_row(i, ["x"], filter=name) for name in ("strict-match", "flexible-extract") for i in range(3)]
    samples, imported = convert(write(tmp_path / LM_EVAL, *rows), "lm-eval")
    assert len(samples) == 3
    assert imported.notes[0].startswith("3 ")


def test_lm_eval_arguments_of_older_versions_are_lists(tmp_path, convert):
    row = lm_eval_row(0, ["x"], arguments=[["the prompt", {"until": []}]])
    assert convert(write(tmp_path / LM_EVAL, row), "lm-eval")[0][0].prompt == "the prompt"


def test_the_answer_may_stand_behind_a_mark(tmp_path, convert):
    row = lm_eval_row(0, ["x"], target="16 - 3 = 13 #### no\n#### 18")
    assert convert(write(tmp_path / LM_EVAL, row), "lm-eval", answer_after="####")[0][0].answer == "18"
    (tmp_path / "out.jsonl").unlink()
    with pytest.raises(DataError, match=r":1: the answer .* holds no '@@'"):
        convert(tmp_path / LM_EVAL, "lm-eval", answer_after="@@")


def test_a_multiple_choice_task_is_refused(tmp_path, convert):
    row = lm_eval_row(0, [], resps=[[["-3.0", "False"]], [["-4.0", "False"]]])
    with pytest.raises(DataError, match=r"\.jsonl:1: resps .*multiple choice"):
        convert(write(tmp_path / LM_EVAL, row), "lm-eval")


def test_a_task_that_the_file_name_does_not_say_must_be_named(tmp_path, convert):
    file = write(tmp_path / "renamed.jsonl", lm_eval_row(0, ["x"]))
    with pytest.raises(UsageError, match="--benchmark"):
        convert(file, "lm-eval")
    assert not (tmp_path / "out.jsonl").exists()
    assert convert(file, "lm-eval", benchmark="gsm8k")[0][0].benchmark == "gsm8k"


def test_evalplus_samples_are_code_without_answers(tmp_path, convert):
    rows = [
        {"task_id": "HumanEval/0", "solution": "def f(): pass", "_identifier": "x"},
        {"task_id": "HumanEval/0", "solution": "def f(): return 1"},
        {"task_id": "Mbpp/2", "completion": "    return 2"},
    ]
    samples, _ = convert(write(tmp_path / "samples.jsonl", *rows), "evalplus")
    assert [(row.benchmark, row.id, row.sample_index, row.answer) for row in samples] == [
        ("humaneval", "HumanEval/0", 0, None),
        ("humaneval", "HumanEval/0", 1, None),
        ("mbpp", "Mbpp/2", 0, None),
    ]
    assert [row.extra["code"] for row in samples] == ["solution", "solution", "completion"]


def test_verls_dumps_are_grouped_by_their_input(tmp_path, convert):
    rows = [
        {"input": f"user\n{q}\nassistant\n", "output": f"{q}{i}", "gts": "7", "score": 1.0, "step": 40, "acc": i == 0}
        for i in range(2)
        for q in "ab"
    ]
    samples, imported = convert(write(tmp_path / "40.jsonl", *rows), "verl", benchmark="math500")
    id_of = {row.completion: row.id for row in samples}
    a, b = id_of["a0"], id_of["b0"]
    assert sorted((row.id, row.sample_index, row.completion) for row in samples) == sorted(
        [
            (a, 0, "a0"),
            (a, 1, "a1"),
            (b, 0, "b0"),
            (b, 1, "b1"),
        ]
    )
    assert a != b
    first = next(row for row in samples if row.completion == "a0")
    assert first.prompt == "user\na\nassistant\n"
    assert first.extra == {"step": 40, "source_scores": {"score": 1.0, "acc": True}}
    assert "2 different prompts" in imported.notes[0]


def test_a_tools_verdict_is_taken_where_it_is_asked_for(tmp_path, convert):
    rows = [{"input": "a", "output": str(i), "score": float(i)} for i in range(2)]
    file = write(tmp_path / "1.jsonl", *rows)
    with pytest.raises(DataError, match=r"no reference answer.*--column correct=FIELD"):
        convert(file, "verl", benchmark="math500")
    samples, _ = convert(file, "verl", benchmark="math500", columns={"correct": "score"})
    assert [row.correct for row in samples] == [False, True]
    (tmp_path / "out.jsonl").unlink()
    with pytest.raises(DataError, match=r":1: score must say whether .*pass or fail\), found -1"):
        convert(
            write(tmp_path / "2.jsonl", {**rows[0], "score": -1}), "verl", benchmark="b", columns={"correct": "score"}
        )


def test_steps_of_a_training_run_are_not_mixed(tmp_path, convert):
    rows = [{"input": "a", "output": "x", "gts": "7", "score": 0, "step": step} for step in (1, 2)]
    with pytest.raises(DataError, match=r":2: step 2 after 1: samples of other weights"):
        convert(write(tmp_path / "all.jsonl", *rows), "verl", benchmark="b")


@pytest.mark.parametrize("named", [("m", None), (None, "m")])
def test_samples_of_a_named_model_and_of_none_are_not_mixed(tmp_path, convert, named):
    rows = [
        {"benchmark": "b", "id": str(at), "completion": "5", "answer": "5", **({"model": name} if name else {})}
        for at, name in enumerate(named)
    ]
    with pytest.raises(DataError, match=r":2: model .* after .*: samples of other"):
        convert(write(tmp_path / "table.jsonl", *rows), "jsonl")


def test_one_problem_has_one_answer(tmp_path, convert):
    rows = [{"input": "a", "output": "x", "gts": gold} for gold in ("7", "8")]
    file = write(tmp_path / "1.jsonl", *rows)
    with pytest.raises(DataError, match=r"1\.jsonl:2: answer '8' contradicts '7'"):
        convert(file, "verl", benchmark="b")
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize(
    ("tool", "row", "lacks"),
    [
        ("lm-eval", {"prompt": 1, "text": 2}, "'doc' or 'doc_id'"),
        ("lm-eval", {"doc_id": 1, "text": 2}, "'resps' or 'filtered_resps'"),
        ("evalplus", {"id": 1, "text": 2}, "'task_id'"),
        ("evalplus", {"task_id": "HumanEval/1", "text": 2}, "'solution' or 'completion'"),
        ("verl", {"prompt": 1, "text": 2}, "'input'"),
        ("jsonl", {"id": 1, "text": 2}, "no benchmark, no completion, no reference answer"),
    ],
)
def test_an_unknown_layout_is_refused_with_the_keys_found(tmp_path, convert, tool, row, lacks):
    with pytest.raises(DataError, match=lacks) as caught:
        convert(write(tmp_path / "f.jsonl", row), tool)
    assert f"found the keys {', '.join(row)}" in str(caught.value)
    assert "f.jsonl:1: " in str(caught.value)


def test_fields_of_an_unknown_layout_can_be_named(tmp_path, convert):
    rows = [
        {"q": {"n": 4, "gold": 2.5}, "text": "x", "p": "why"},
        {"q": {"n": 4, "gold": 2.5}, "text": "y", "p": "why"},
    ]
    columns = {"id": "q.n", "answer": "q.gold", "completion": "text", "prompt": "p"}
    samples, _ = convert(write(tmp_path / "f.jsonl", *rows), "jsonl", benchmark="mine", columns=columns)
    assert [(row.id, row.sample_index, row.answer, row.prompt) for row in samples] == [
        ("4", 0, 2.5, "why"),
        ("4", 1, 2.5, "why"),
    ]
    (tmp_path / "out.jsonl").unlink()
    with pytest.raises(DataError, match=r"no field 'q\.m' for id; found the keys q, text, p"):
        convert(tmp_path / "f.jsonl", "jsonl", benchmark="mine", columns={**columns, "id": "q.m"})


GENERATED = {
    "data_source": "math500",
    "prompt": [{"role": "system", "content": "Think."}, {"role": "user", "content": "1+1?"}],
    "reward_model": {"style": "rule", "ground_truth": "2"},
    "extra_info": {"split": "test", "index": 17},
    "responses": ["two", r"\boxed{2}"],
}


def test_verls_generated_table_needs_no_names(tmp_path, convert):
    samples, _ = convert(write(tmp_path / "f.jsonl", GENERATED), "jsonl")
    assert [(row.benchmark, row.id, row.sample_index, row.completion, row.answer) for row in samples] == [
        ("math500", "17", 0, "two", "2"),
        ("math500", "17", 1, r"\boxed{2}", "2"),
    ]
    assert samples[0].prompt == "Think.\n\n1+1?"


def test_parquet_gives_what_json_lines_give(tmp_path, convert):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist([GENERATED]), tmp_path / "f.parquet")
    from_parquet, _ = convert(tmp_path / "f.parquet", "parquet")
    (tmp_path / "out.jsonl").unlink()
    assert from_parquet == convert(write(tmp_path / "f.jsonl", GENERATED), "jsonl")[0]
    (tmp_path / "out.jsonl").unlink()
    with pytest.raises(DataError, match=r"f\.jsonl: cannot be read as parquet"):
        convert(tmp_path / "f.jsonl", "parquet")


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, convert, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingError, match=r"pip install -e '.*\[parquet\]'"):
        convert(tmp_path / "f.parquet", "parquet")


def test_options_that_cannot_be_met_are_refused(tmp_path):
    file = write(tmp_path / "f.jsonl", GENERATED)
    with pytest.raises(
        UsageError, match="lm-eval, inspect, lighteval, evalplus, verifiers, trl, verl, parquet, csv, jsonl"
    ):
        import_samples(file, tmp_path / "out.jsonl", tool="helm")
    with pytest.raises(UsageError, match="unknown column 'text'"):
        import_samples(file, tmp_path / "out.jsonl", tool="jsonl", columns={"text": "x"})
    with pytest.raises(UsageError, match="given twice"):
        import_samples(file, tmp_path / "out.jsonl", tool="jsonl", benchmark="b", columns={"benchmark": "x"})
    with pytest.raises(UsageError, match=r"a \.jsonl file"):
        import_samples(file, tmp_path / "out.csv", tool="jsonl")
    (tmp_path / "out.jsonl").write_text("precious", encoding="utf-8")
    with pytest.raises(UsageError, match="exists"):
        import_samples(file, tmp_path / "out.jsonl", tool="jsonl")
    assert (tmp_path / "out.jsonl").read_text(encoding="utf-8") == "precious"


def test_a_file_without_rows_is_no_samples_and_leaves_nothing_behind(tmp_path, convert):
    (tmp_path / "f.jsonl").write_text("\n", encoding="utf-8")
    with pytest.raises(DataError, match="no samples"):
        convert(tmp_path / "f.jsonl", "jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["f.jsonl"]


def test_other_columns_are_kept_and_scores_are_no_grades(tmp_path, convert):
    row = {"benchmark": "b", "id": 1, "completion": "5", "answer": "5", "level": 3, "is_correct": True, "outcome": "x"}
    rows, _ = convert(write(tmp_path / "table.jsonl", row), "jsonl")
    assert rows[0].correct is None
    assert rows[0].extra == {"level": 3, "source_scores": {"is_correct": True}}


def test_a_table_from_a_spreadsheet_is_read(tmp_path, convert):
    file = tmp_path / "table.csv"
    file.write_bytes('\ufeffid;sample_index;completion;answer;level\r\n7;0;"a; b";5;\r\n7;1;c;5;2\r\n'.encode())
    rows, _ = convert(file, "csv", benchmark="mine")
    assert [(row.id, row.sample_index, row.completion, row.extra) for row in rows] == [
        ("7", 0, "a; b", {}),
        ("7", 1, "c", {"level": "2"}),
    ]


def test_samples_of_several_models_are_refused(tmp_path, convert):
    rows = [
        {"benchmark": "b", "id": id, "completion": f"{model} {id}", "answer": "5", "model": model}
        for id in range(2)
        for model in ("org/one", "../two")
    ]
    file = write(tmp_path / "table.jsonl", *rows)
    with pytest.raises(DataError, match=r":2: model '../two' after 'org/one': samples of other"):
        convert(file, "jsonl")
