"""Several sets of samples of the same problems are no set: the message leads to what shows one or both."""

import pytest

from evals.errors import DataError
from evals.samples.reading import read_samples
from evals.samples.types import Sample


@pytest.mark.parametrize(
    ("folders", "says"),
    [
        (("a/samples/T1-p1-step000020", "a/samples/T1-p1-step000023"), "name one folder of "),
        (("a/samples/T1-p1", "b/samples/T1-p1"), "or the runs in `quatro runs compare`"),
        (("a", "b"), "name one of them, or compare: `quatro eval compare "),
    ],
)
def test_two_sets_of_samples_of_one_problem_lead_to_what_shows_one_or_both(tmp_path, folders, says):
    line = Sample("aime24", "p0", 0, "text", "7").to_json_line()
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "aime24.jsonl").write_bytes(line)
    roots = dict.fromkeys(tmp_path / folder.partition("/")[0] for folder in folders)
    with pytest.raises(DataError) as raised:
        read_samples(list(roots))
    assert says in str(raised.value)
    if len(roots) == 1:
        assert f"{tmp_path / folders[0]}, {tmp_path / folders[1]}" in str(raised.value)


def test_files_that_nobody_named_are_not_called_sets_of_the_same_problems(tmp_path):
    files = [tmp_path / f"{name}.jsonl" for name in "abc"]
    for file in files:
        file.write_bytes(Sample("aime24", "p0", 0, "text", "7").to_json_line())
    with pytest.raises(DataError) as raised:
        read_samples(files[::2])
    assert "these are two sets of samples" in str(raised.value)
    assert str(files[1]) not in str(raised.value)
    with pytest.raises(DataError, match="these are 3 sets of samples"):
        read_samples([tmp_path])
