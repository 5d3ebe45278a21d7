"""Two files are compared problem by problem only if an id means the same problem in both."""

import json

import pytest

from tests.kit import quatro


def write(path, *problems):
    """A file with two samples of each (id, prompt, answer), of which the first is right."""
    path.parent.mkdir(exist_ok=True)
    rows = [
        {"benchmark": "toy", "id": id, "sample_index": i, "completion": "x", "answer": answer, "correct": i == 0}
        | ({"prompt": prompt} if prompt else {})
        for id, prompt, answer in problems
        for i in range(2)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("command", ["compare", "flips"])
@pytest.mark.parametrize(
    ("mine", "theirs", "said"),
    [
        ([("0", None, "4"), ("1", None, "5")], [("0", None, "4"), ("1", None, "7")], "the reference answer is '5' in"),
        ([("0", "red", "4"), ("1", "blue", "4")], [("0", "blue", "4"), ("1", "red", "4")], "the prompt is 'red' in"),
        ([("0", "red", "4"), ("1", "blue", "5")], [("0", "red", "4"), ("1", "black", "6")], "'blue' in"),
        ([("0", "y" * 90 + "a", "4")], [("0", "y" * 90 + "b", "5")], "'..." + "y" * 15 + "a' in"),
    ],
    ids=["answers", "moved", "prompts", "long"],
)
def test_one_id_for_two_problems_is_refused_with_both_texts(tmp_path, command, mine, theirs, said):
    files = [str(write(tmp_path / name / "s.jsonl", *rows)) for name, rows in (("a", mine), ("b", theirs))]
    refused = quatro("eval", command, *files, code=4)
    assert f"is another problem in {files[1]} than in {files[0]}" in refused.stderr
    assert said in refused.stderr
    assert "--column id=FIELD" in refused.stderr


@pytest.mark.parametrize(
    ("mine", "theirs", "is_told"),
    [
        (("0", "<user>2+2", "4"), ("0", "Q: 2+2", "4"), False),
        (("0", "2+2", "1/2"), ("0", "[2+2]", "\\frac{1}{2}"), True),
        (("0", None, "1,000"), ("0", None, 1000), True),
        (("0", "2+2", "4"), ("0", "2+2", "5"), True),
    ],
    ids=["template", "spelling", "number", "corrected"],
)
def test_templates_and_spellings_do_not_make_another_problem(tmp_path, mine, theirs, is_told):
    files = [str(write(tmp_path / name / "s.jsonl", row)) for name, row in (("a", mine), ("b", theirs))]
    assert ("have another reference answer" in quatro("eval", "compare", *files).stderr) is is_told
