"""`--cluster KEY`: problems of a family are not drawn apart."""

import pytest

from tests.kit import quatro, read_json, read_rows, says, write_rows


@pytest.fixture
def samples(tmp_path):
    """Four variants of each of six texts, all solved alike: as good as six problems; and the six alone."""
    rows = [
        {"benchmark": "toy", "id": f"{text}-{variant}", "sample_index": i, "completion": f"{i % 3}", "answer": "1"}
        | {"correct": i <= text, "family": f"text {text}"}
        for text in range(6)
        for variant in range(4)
        for i in range(8)
    ]
    alone = [row for row in rows if row["id"].endswith("-0")]
    more = [{**row, "correct": row["correct"] or row["sample_index"] == 7} for row in rows]
    return [write_rows(tmp_path / f"{name}.jsonl", some) for name, some in (("all", rows), ("one", alone), ("b", more))]


@pytest.mark.parametrize("command", ["passk", "ucc"])
def test_variants_are_no_surer_than_their_texts(samples, command, tmp_path):
    for file, more in ((samples[0], ["--cluster", "family"]), (samples[1], []), (samples[0], [])):
        quatro("eval", command, file, "--k", "2", "--ci", *more, "-o", tmp_path / f"{file.stem}{len(more)}.json")
    families, texts, apart = (read_json(tmp_path / f"{name}.json")["rows"] for name in ("all2", "one0", "all0"))
    for row, other, narrow in zip(families, texts, apart, strict=True):
        assert (row["ci_low"], row["ci_high"]) == pytest.approx((other["ci_low"], other["ci_high"]))
        assert row["ci_high"] - row["ci_low"] > 1.4 * (narrow["ci_high"] - narrow["ci_low"])
        assert row["ci_over"] == "families of problems only"


def test_differences_are_of_families_too(samples, tmp_path):
    a, _, b = samples
    for name, more in (("f", ["--cluster", "family"]), ("p", [])):
        quatro("eval", "compare", a, b, "--k", "1", *more, "-o", tmp_path / f"{name}.json")
    of_families, of_problems = (read_json(tmp_path / f"{name}.json")["rows"][0] for name in "fp")
    assert of_families["p"] > of_problems["p"]
    assert of_families["difference"] == of_problems["difference"]


def test_a_key_that_says_no_families_is_refused(samples, tmp_path):
    says(quatro("eval", "passk", samples[0], "--ci", "--cluster", "text", code=4), "'0-0' of toy", advice="a key with")
    says(quatro("eval", "passk", samples[0], "--cluster", "family", code=2), advice="--ci")
    one = write_rows(tmp_path / "1.jsonl", [{**row, "family": "same"} for row in read_rows(samples[0])])
    says(quatro("eval", "passk", one, "--ci", "--cluster", "family", code=4), advice="two families")
