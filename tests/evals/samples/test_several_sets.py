"""Several sets of samples of the same problems are no set: the message leads to what shows one or both."""

import pytest

from evals.errors import DataError
from evals.samples.reading import read_samples
from evals.samples.types import Sample


@pytest.mark.parametrize(
    ("folders", "says"),
    [
        (("a/samples/T1-p1-step000020", "a/samples/T1-p1-step000023"), "name one folder of "),
        (("a/samples/T1-p1", "b/samples/T1-p1"), "name one of them, or compare: `quatro eval compare "),
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
