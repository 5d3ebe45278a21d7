import pytest

from evals.grading.read import read
from evals.grading.tree import written
from evals.grading.words import unit_name


@pytest.mark.parametrize(
    ("texts", "name"),
    [
        (["m", "meter", "meters", "Metres"], "m"),
        (["m^2", "m ^{2}", "square meters", "sq m", "meters squared"], "m2"),
        (["m/s", "m s^{-1}", "meters per second", "metre / sec"], "m s-1"),
        (["km/h", "kilometers per hour", "kph"], "h-1 km"),
        (["kg m^2 / s^2", "kg m ^ 2 s^{-2}"], "kg m2 s-2"),
        (["mW"], "mW"),
        (["MW"], "MW"),
        (["units", "square units"], ""),
        (["", "half", "five"], None),
        (["apple", "apples"], "apple"),
        (["m / m"], ""),
    ],
)
def test_a_unit_has_one_name_however_it_is_written(texts, name):
    assert {unit_name(text) for text in texts} == {name}


@pytest.mark.parametrize("text", ["{} m", "m^{}", "meters {}"])
def test_a_power_is_the_same_in_words_and_in_digits(text):
    """Each word against each power: it is one of them and no other."""
    if text == "{} m":
        words = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
    else:
        words = {"2": 2, "3": 3} if text == "m^{}" else {"squared": 2, "cubed": 3}
    assert {word: unit_name(text.format(word)) for word in words} == {word: f"m{n}" for word, n in words.items()}


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("12 m/s", "12", "m s-1"),
        (r"5\frac{\text{m}}{\text{s}}", "5", "m s-1"),
        (r"5\ \text{J}*\text{s}", "5", "J s"),
        ("3 apples", "3", "apple"),
        ("5cm", "5", "cm"),
        ("5m", "5 * m", ""),  # a product, as far as anyone can see
        ("3 pi", "3 * pi", ""),
        (r"\text{meters}", "meters", ""),
        (r"2\mathrm{e}", "2e", ""),
        ("AB + C", "(A * B) + C", ""),  # two capitals are a product, three are a name
        ("ABC + D", "ABC + D", ""),
    ],
)
def test_only_what_stands_behind_a_value_is_its_unit(text, value, unit):
    [found] = read(text)
    assert (written(found.node), found.unit) == (value, unit)


def test_degrees_and_percent_are_marks_and_not_units():
    marks = {text: read(text)[0].mark for text in (r"30^\circ", "30 degrees", r"30\%", "30 percent", r"\cos 60^\circ")}
    assert list(marks.values()) == ["deg", "deg", "%", "%", ""]
    assert not any(read(text)[0].unit for text in marks)
