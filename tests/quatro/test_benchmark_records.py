"""Long benchmarks go on where they were left, and compare two sides at equal tokens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

RATIO = re.compile(r"\d+\.\d+ (?:x|times) \(\d+\.\d+-\d+\.\d+\)")  # with the least and the greatest of a block


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))


def test_a_measurement_is_made_once_for_each_case(tmp_path):
    from record import Records, TimeIsUp

    file = tmp_path / "records.jsonl"
    calls = []

    def measure() -> dict[str, int]:
        calls.append(1)
        return {"seconds": len(calls)}

    first = Records(file, {"tokens": (64, 200)})
    assert first("one", measure) == first("one", measure) == {"seconds": 1}
    again = Records(file, {"tokens": (64, 200)})
    assert again("one", measure) == {"seconds": 1}
    assert Records(file, {"tokens": (8, 8)})("one", measure) == {"seconds": 2}

    again.is_closed = True
    assert again("one", measure) == {"seconds": 1}
    with pytest.raises(TimeIsUp):
        again("two", measure)
    assert len(calls) == 2


def test_a_measurement_beyond_the_limit_is_broken_off_and_leaves_nothing(tmp_path):
    import signal

    from record import Records, TimeIsUp

    def for_ever() -> None:
        while True:
            pass

    before = signal.getsignal(signal.SIGALRM)
    try:
        records = Records(tmp_path / "records.jsonl", {}, minutes=0.001)
        with pytest.raises(TimeIsUp):
            records("endless", for_ever)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not (tmp_path / "records.jsonl").exists()


def test_a_measurement_that_would_end_too_late_is_not_begun():
    import signal

    from record import Records, TimeIsUp

    before = signal.getsignal(signal.SIGALRM)
    try:
        records = Records(None, {}, minutes=10)
        assert records("long", lambda: 1, about_s=3600) == 1  # the first is always tried
        with pytest.raises(TimeIsUp):
            records("long too", lambda: 2, about_s=3600)
        assert records("short", lambda: 3) == 3
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_ratios_are_those_of_equal_tokens():
    """TRL drew twice our response tokens and read three times our tokens; the rest is not a matter of tokens."""
    pytest.importorskip("torch")
    from train_vs_trl import ratios

    theirs = {"whole": 20.0, "generate": 8.0, "log-probs": 3.0, "update": 6.0, "tokens": 200.0, "all_tokens": 900.0}
    ours = {"whole": 5.0, "generate": 2.0, "log-probs": 1.0, "update": 1.0, "tokens": 100.0, "all_tokens": 300.0}
    found = ratios([theirs, theirs], [ours, ours])
    assert found["generate"] == pytest.approx(8 / 2 / 2)
    assert found["log-probs"] == pytest.approx(3 / 3 / 1)
    assert found["update"] == pytest.approx(6 / 3 / 1)
    assert found["whole"] == pytest.approx((4 + 1 + 2 + 3) / 5)


def test_a_ratio_that_the_documentation_quotes_stands_in_the_results():
    root = Path(__file__).parents[2]
    results = "".join(file.read_text(encoding="utf-8") for file in (root / "benchmarks" / "results").glob("*.md"))
    pages = [root / "README.md", *(root / "docs").glob("*.md")]
    quoted = [match for page in pages for match in RATIO.findall(" ".join(page.read_text(encoding="utf-8").split()))]
    assert [ratio for ratio in quoted if ratio.replace("times", "x") not in results] == []
