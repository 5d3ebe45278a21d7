import pytest

from evals.grading.units import strip_unit, unit_name


@pytest.mark.parametrize(
    ("texts", "name"),
    [
        (["m", "meter", "meters", "Metres"], "m"),
        (["m^2", "m ^{2}", "square meters", "sq m", "meters squared"], "m2"),
        (["m/s", "m s^{-1}", "meters per second", "metre / sec"], "m s-1"),
        (["km/h", "kilometers per hour", "kph", "kmh"], "h-1 km"),
        (["kg m^2 / s^2", "kg m ^ 2 s^{-2}"], "kg m2 s-2"),
        (["mW"], "mW"),
        (["MW"], "MW"),
        (["units", "square units", ""], ""),
        (["apple", "apples"], "apple"),
        (["m / m"], ""),
    ],
)
def test_a_unit_has_one_name_however_it_is_written(texts: list[str], name: str) -> None:
    assert {unit_name(text) for text in texts} == {name}


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("12 m/s", "12", "m s-1"),
        (r"5\frac{\text{m}}{\text{s}}", "5", "m s-1"),
        (r"5\ \text{J}*\text{s}", "5\\", "J s"),
        ("3 apples", "3", "apple"),
        ("5cm", "5", "cm"),
        ("5m", "5m", ""),  # a product, as far as anyone can see
        ("3 pi", "3 pi", ""),
        (r"x+\text{ m}", r"x+\text{ m}", ""),
        (r"\text{meters}", r"\text{meters}", ""),
        (r"2\mathrm{e}", r"2\mathrm{e}", ""),
    ],
)
def test_only_what_stands_behind_a_value_is_its_unit(text: str, value: str, unit: str) -> None:
    found = strip_unit(text)
    assert (found.text, found.unit) == (value, unit)


def test_degrees_and_percent_are_marks_and_not_units() -> None:
    assert strip_unit(r"30^\circ") == ("30", "", False, True)
    assert strip_unit("30 degrees") == ("30", "", False, True)
    assert strip_unit(r"30\%") == ("30", "", True, False)
    assert not strip_unit(r"\cos 60^\circ").is_degrees
