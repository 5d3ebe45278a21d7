"""Files of other programs: every command leads to the import, and the import says what it lacks."""

import json

import pytest
from typer.testing import CliRunner

from quatro_cli.app import app
from tests.kit import quatro

runner = CliRunner()


def spreadsheet(folder, header="problem;answer;completion;score"):
    """A table as Excel writes it: byte-order mark, semicolons, lines of Windows."""
    rows = [header, "What is 1+1?;2;\\boxed{2};1", "What is 1+1?;2;\\boxed{3};1", "What is 2+2?;4;\\boxed{4};1"]
    (folder / "answers.csv").write_bytes(("\ufeff" + "\r\n".join([*rows, rows[3]])).encode("utf-8"))


IMPORT = "`quatro eval import --from TOOL FILE -o OUT.jsonl`"


@pytest.mark.parametrize("command", [["passk"], ["ucc"], ["grade", "--explain"]])
def test_a_table_leads_to_its_import(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    spreadsheet(tmp_path)
    assert IMPORT in quatro("eval", *command, "answers.csv", code=4).stderr
    typed = ["eval", "import", "--from", "csv", "answers.csv", "-o", "out.jsonl"]
    assert "--benchmark NAME" in quatro(*typed, code=2).stderr
    quatro(*typed, "--benchmark", "own")
    measured = runner.invoke(app, ["eval", "passk", "out.jsonl", "--k", "1", "--json"])
    assert json.loads(measured.stdout)["rows"][0]["value"] == 0.75


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("log.eval", "PK"),
        ("log.json", json.dumps({"eval": {"task": "t"}, "samples": []}, indent=2)),
        ("log.json", json.dumps({"eval": {"task": "t"}, "samples": []})),
        ("samples_gsm8k.jsonl", json.dumps({"doc": {}, "doc_id": 1, "resps": [["x"]], "target": "1"})),
        ("raw.jsonl", json.dumps({"task_id": "HumanEval/0", "solution": "x"})),
        ("plain.jsonl", json.dumps({"question": "q", "response": "a", "gold": "1"})),
        ("details_x.parquet", "PAR1"),
        ("answers.xlsx", "PK"),
        ("list.json", '[\n{"question": "q"}\n]'),
        ("list.json", '\ufeff[{"question": "q"}]'),
    ],
)
def test_what_another_program_wrote_leads_to_the_import(tmp_path, name, content):
    (tmp_path / name).write_text(content, encoding="utf-8")
    said = quatro("eval", "passk", tmp_path / name, code=4).stderr
    assert IMPORT in said
    assert name in said


def test_a_list_of_rows_is_imported_as_lines_are(tmp_path):
    rows = [{"id": i, "completion": "\\boxed{4}", "answer": "4"} for i in range(2)]
    (tmp_path / "list.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    out = tmp_path / "out.jsonl"
    options = ["--from", "jsonl", "-b", "toy", "-o", str(out)]
    quatro("eval", "import", tmp_path / "list.json", *options)
    assert [json.loads(line)["id"] for line in out.read_text(encoding="utf-8").splitlines()] == ["0", "1"]
    out.unlink()
    one = '[{"id": 1, "completion": "x", "answer": "1"}'
    for text, said in ((f"{one}, 7]", "bad.json:2: expected a list of"), (f'{one}], "b": 1', "found more after it")):
        (tmp_path / "bad.json").write_text(text, encoding="utf-8")
        refused = runner.invoke(app, ["eval", "import", str(tmp_path / "bad.json"), *options])
        assert (refused.exit_code, said in refused.stderr) == (4, True)


def test_an_import_names_all_that_is_missing_at_once_and_leaves_no_file_behind(tmp_path):
    spreadsheet(tmp_path, header="question;gold;said;score")
    out = tmp_path / "new" / "folder" / "x.jsonl"
    refused = quatro("eval", "import", "--from", "csv", tmp_path / "answers.csv", "-o", out, code=4)
    assert "no benchmark, no id or prompt, no completion, no reference answer" in refused.stderr
    for option in ("--benchmark NAME", "prompt=FIELD", "completion=FIELD", "answer=FIELD", "correct=FIELD"):
        assert option in refused.stderr
    assert not out.exists()


def test_the_same_prompt_is_the_same_problem_in_files_of_any_order(tmp_path):
    right = {"one": {"p": True, "q": False}, "other": {"q": False, "p": True}}  # both solve p alone
    for model, verdicts in right.items():
        rows = [{"prompt": name, "completion": "x", "score": ok, "model": model} for name, ok in verdicts.items()]
        (tmp_path / f"{model}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        options = [
            "--from",
            "jsonl",
            "-b",
            "toy",
            "--column",
            "correct=score",
            "-o",
            str(tmp_path / f"{model}-s.jsonl"),
        ]
        imported = quatro("eval", "import", tmp_path / f"{model}.jsonl", *options)
        assert "the 2 different prompts got hashes" in imported.stderr
    files = [str(tmp_path / f"{model}-s.jsonl") for model in right]
    (row, *_) = json.loads(runner.invoke(app, ["eval", "compare", *files, "--json"]).stdout)["rows"]
    assert (row["a"], row["b"], row["ci_low"], row["ci_high"]) == (0.5, 0.5, 0.0, 0.0)  # problem by problem the same
