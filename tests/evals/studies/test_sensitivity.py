"""UCC in our reading of the paper, and under other clusterings of the same samples."""

import pytest

from evals.metrics.counting import Clustering
from evals.metrics.passk_ucc import ucc_result
from evals.results.document import AVERAGE, Result, SamplingInfo
from evals.samples.types import Sample, Samples
from evals.similarity.catalogue import Setting
from evals.studies.sensitivity import LINKAGES, PAPER, THRESHOLDS, TOKENS, sampling_warnings, sensitivity_rows

TEXT = "add the two numbers then halve what you have and write it down as a fraction"
SAMPLES = Samples(
    [
        Sample(name, "p", index, TEXT[: 24 + 5 * index] + " x" * (index % 3), "7", correct=index != 5)
        for name in ("aime24", "math500")
        for index in range(8)
    ],
    [],
)


def test_every_cell_is_what_ucc_gives_under_that_setting():
    rows = {(row.benchmark, Setting.of(row)): row for row in sensitivity_rows(SAMPLES, ks=[1, 4])}
    assert len(rows) == 3 * len(LINKAGES) * len(THRESHOLDS) * len(TOKENS)
    for (benchmark, setting), row in rows.items():
        _, threshold, linkage, tokens = setting
        alone = ucc_result(
            SAMPLES, clustering=Clustering(["tfidf"], thresholds=[threshold], linkage=linkage, tokens=tokens), ks=[4]
        )
        (expected,) = [one.value for one in alone.rows if (one.metric, one.benchmark) == ("ucc@k", benchmark)]
        assert (row.k, row.value) == (4, expected)
    assert len({row.value for row in rows.values()}) > 3, "these samples tell the settings apart"
    assert (AVERAGE, PAPER) in rows


def test_the_reading_is_in_the_table():
    assert (PAPER.threshold in THRESHOLDS, PAPER.linkage in LINKAGES, PAPER.tokens in TOKENS) == (True, True, True)


@pytest.mark.parametrize(
    ("sampling", "said"),
    [
        (SamplingInfo(n=256, temperature=1.0, top_p=0.7), ""),
        (SamplingInfo(), ""),
        (SamplingInfo(n=64, temperature=1.0, top_p=1.0), "n 64, not 256; top_p 1, not 0.7"),
    ],
)
def test_samples_that_were_drawn_otherwise_are_told(sampling, said):
    found = sampling_warnings(Result(metric="ucc@k", rows=[], sampling=sampling))
    assert [said in one for one in found] == ([True] if said else [])
