"""Names of folders of samples: what they say is read back as it was written."""

from pathlib import Path

import pytest

from quatro.sample.folder import Tag

NAMES = {
    "T1-p1": Tag(),
    "T1-p0.7": Tag(top_p=0.7),
    "T1-p1-step000100": Tag(step=100),
    "T1-p1-step000100-inside": Tag(step=100, is_inside=True),
    "T0.6-p0.7-k50": Tag(temperature=0.6, top_p=0.7, top_k=50),
    "T1e-05-p1-k1-step1000000": Tag(temperature=1e-5, top_k=1, step=1_000_000),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_tag_says_how_samples_were_drawn_and_is_read_back(name):
    assert str(NAMES[name]) == name
    assert Tag.parse(name) == NAMES[name]


@pytest.mark.parametrize("name", ["mine", "T1", "T1-p1-", "T1.0-p1", "T1..2-p1", "T1-p1-k0", "T1-p1-step7", "T1-p1\n"])
def test_any_other_name_is_no_tag(name):
    assert Tag.parse(name) is None


def test_samples_lie_below_their_run():
    assert Tag(top_p=0.7).folder(Path("runs/math")) == Path("runs/math/samples/T1-p0.7")
