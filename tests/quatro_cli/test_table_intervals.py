"""What `quatro table --ci` says of intervals of two kinds."""

from evals.results.document import Result, Row
from tests.kit import quatro


def table(*paths, options=("--ci",)):
    return " ".join(quatro("table", *paths, *options).stdout.split())


def test_an_interval_over_problems_is_told_from_what_seeds_differ_by(tmp_path):
    row = Row(metric="pass@k", benchmark="toy", k=1, value=0.5, num_problems=9, n=8, ci_low=0.4, ci_high=0.6)
    names = {"base": "Base", "one": "GRPO", "two": "GRPO"}
    paths = [tmp_path / f"{name}.json" for name in names]
    for path, label in zip(paths, names.values(), strict=True):
        Result(metric="pass@k", rows=[row], label=label).write(path)
    says = "Beside Base stands an interval over problems, beside the others what seeds differ by: do not compare"
    assert says in table(*paths)
    assert "Beside" not in table(*paths, options=())  # no interval is shown
    assert "Beside" not in table(paths[0])
    assert "Beside" not in table(*paths[1:])
