"""UCC of programs: what is one solution under `--tokens code`, in every similarity, by both backends."""

import json
import multiprocessing
from types import SimpleNamespace

import pytest

from evals import clustering
from evals.clustering import cluster, solutions_in
from evals.code.programs import normal_solution
from evals.errors import UsageError
from evals.metrics.counting import BY_DEFAULT, Clustering
from evals.metrics.passk_ucc import ucc_result
from evals.metrics.studies.clusters import clusters_of
from evals.metrics.studies.similarity import heatmap_of, similarity_result
from evals.report import view_samples
from evals.samples.types import Sample, Samples
from evals.similarity import SIMILARITIES, Setting
from tests.evals.metrics.studies.reference import agreement
from tests.kit import quatro, write_rows

PROGRAMS = [
    "def f(n):\n    return sum(i for i in range(n) if i % 2)\n",
    "def f(n):\n    total = 0\n    for i in range(n):\n        if i % 2:\n            total += i\n    return total\n",
    "import math\n\ndef f(n):\n    odd = math.floor(n / 2)\n    return odd * odd\n",
    "def f(n):\n    print('many words', \"and 'quotes'\")\n    return (n // 2) ** 2\n",
]


def reformatted(program, way):
    """The same program in another layout."""
    lines = program.replace("    ", "\t" if way % 2 else "  ").split("\n")
    lines = [f"{line}  # {way}, it's" if line and way % 3 == 1 else line for line in lines]
    text = (
        "\n".join(lines)
        .replace("def f(n):", "def f( n ) :")
        .replace(" + ", "+")
        .replace("'many words'", '"many words"')
    )
    if way % 3 == 2:
        text = f"'The module.'\n\n\n{text}\n\n"
    return f"Sure, it isn't hard:\n\n```python\n{text}```\nDone." if way % 5 == 0 else text


def samples(texts, benchmark="humaneval", **extra):
    rows = [Sample(benchmark, "p", index, text, None, correct=True, **extra) for index, text in enumerate(texts)]
    return Samples(rows, [])


PLAIN = [PROGRAMS[index % 4] for index in range(12)]
OTHER = [reformatted(PROGRAMS[index % 4], index) for index in range(12)]


def rows_of(texts, linkage, tokens):
    result = ucc_result(samples(texts), Clustering(list(SIMILARITIES), None, linkage, tokens))
    return result.document()["rows"]


@pytest.mark.parametrize("linkage", ["components", "greedy"])
def test_layout_comments_and_prose_change_no_number(linkage):
    assert len(set(OTHER)) == 12
    assert rows_of(OTHER, linkage, "code") == rows_of(PLAIN, linkage, "code")
    assert rows_of(OTHER, linkage, "code") != rows_of(OTHER, linkage, "math")


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_the_libraries_agree_on_programs(similarity):
    texts = [*OTHER, "no program at all, I'm afraid", PROGRAMS[0].replace("n", "N"), ""]
    thresholds = [None] if similarity == "exact" else [0.5, 0.7, 0.9]
    settings = [Setting(similarity, threshold, "components", "code") for threshold in thresholds]
    found = agreement([solutions_in(texts, tokens="code")], settings)
    assert found.is_good, found


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_a_renamed_variable_is_seen(similarity):
    renamed = [text.replace("total", "odd") for text in PLAIN]
    result, changed = (
        heatmap_of(samples(texts), "p", Clustering([similarity]))
        for texts in (PLAIN, [PLAIN[0], *renamed[1:], PLAIN[1]])
    )
    assert result.setting.tokens == changed.setting.tokens == "code"
    assert len(set(changed.similarity_AA.ravel())) > len(set(result.similarity_AA.ravel())) or similarity == "exact"
    if similarity == "exact":
        assert len(changed.sizes) == len(result.sizes) + 1


def test_the_clusters_of_exact_are_the_normal_forms_by_hand():
    normal = [normal_solution(text) for text in OTHER]
    by_hand = [normal.index(one) for one in normal]
    labels = cluster(OTHER, similarity="exact", tokens="code")
    assert labels == [index % 4 for index in range(12)] == by_hand
    unique = solutions_in(OTHER, tokens="code")
    assert unique.texts == sorted(set(normal))
    assert unique.count_U.tolist() == [3, 3, 3, 3]
    assert len(solutions_in(OTHER, tokens="math").texts) == 12


def test_completions_are_read_behind_their_prompt():
    prompt = 'from math import floor\n\n\ndef f(n):\n    """Odd numbers."""\n'
    texts = [
        "    return floor(n / 2) ** 2\n",
        "    return floor(n/2)**2  # so\n\n\ndef g(",
        f"{prompt}\n    return (floor(n / 2) ** 2)\n",
        f"```\n{prompt}    return floor(n / 2) ** 2\n```",
    ]
    (problem,) = samples(texts, prompt=prompt, extra={"entry_point": "f"}).graded()
    found = clusters_of(problem, BY_DEFAULT.settings(problem.benchmark, problem.kind))
    assert [(one.size, one.num_distinct, one.times) for one in found[0].clusters] == [(4, 1, 4)]
    assert found[0].clusters[0].text == "from math import floor\n\ndef f(n):\n    return floor(n / 2) ** 2"


@pytest.mark.parametrize(
    ("benchmark", "tokens"),
    [("humaneval", "code"), ("mbppplus", "code"), ("HumanEval_xl", "code"), ("apps", "code"), ("mine", "math")],
)
def test_only_benchmarks_of_programs_are_compared_as_code_unless_asked(benchmark, tokens):
    of = samples(OTHER, benchmark)
    for result in (
        ucc_result(of),
        similarity_result(of),
        ucc_result(of, Clustering(["exact"]), per_problem=True),
    ):
        document = result.document()
        entries = [*document["rows"], *document.get("problems", [])]
        assert {row["tokens"] for row in entries if row.get("similarity")} == {tokens}
    assert {row.tokens for row in ucc_result(of, Clustering(tokens="sklearn")).rows} == {"sklearn"}
    assert view_samples(of, num_answers=1)[0].setting.tokens == tokens
    assert heatmap_of(of, "p").setting.tokens == tokens
    (problem,) = of.graded()
    assert BY_DEFAULT.settings(benchmark, problem.kind)[0].tokens == tokens


def test_a_benchmark_of_ones_own_says_that_it_is_code(tmp_path, monkeypatch):
    path = tmp_path / "quatro-benchmarks.toml"
    path.write_text('[mine]\nfile = "p.jsonl"\ngrader = "code"\n', encoding="utf-8")
    monkeypatch.setenv("QUATRO_BENCHMARKS", str(path))
    assert {row.tokens for row in ucc_result(samples(OTHER, "mine")).rows} == {"code"}


def test_every_distinct_text_is_normalised_once(monkeypatch):
    seen = []
    monkeypatch.setattr(clustering, "normal_solution", lambda text, **_: seen.append(text) or normal_solution(text))
    thresholds = [0.5, 0.7, 0.9]
    ucc_result(samples(OTHER * 4), clustering=Clustering(["tfidf", "jaccard", "edit"], thresholds))
    assert sorted(seen) == sorted(OTHER)


def test_workers_count_what_one_process_counts():
    of = Samples([row for name in "ab" for row in samples(OTHER, f"humaneval-{name}").rows], [])
    assert ucc_result(of, jobs=2).document()["rows"] == ucc_result(of).document()["rows"]


def test_the_command_takes_code(tmp_path):

    file = tmp_path / "s.jsonl"
    lines = [
        {"id": "p", "benchmark": "mine", "sample_index": index, "completion": text} for index, text in enumerate(OTHER)
    ]
    write_rows(file, (line | {"answer": "1", "correct": True} for line in lines))

    def document(*arguments):
        return json.loads(quatro("eval", *arguments, "--json").stdout)

    options = ["--tokens", "code", "--similarity", "exact"]
    rows = document("ucc", str(file), *options)["rows"]
    assert {row["tokens"] for row in rows} == {"code"}
    assert [row["value"] for row in rows if row["metric"] == "num_clusters"] == [4, 4]
    assert {row["tokens"] for row in document("similarity", str(file), *options)["rows"]} == {"code"}
    assert document("clusters", str(file), "--id", "p", *options)["problems"][0]["sizes"] == [3, 3, 3, 3]
    found = document("compare", str(file), str(file), "--metric", "ucc@k", *options)["rows"]
    assert {row["tokens"] for row in found} == {"code"}
    assert "--tokens has no effect" in quatro("eval", "compare", file, file, "--tokens", "math", code=2).stderr


def test_unknown_tokens_are_refused():
    with pytest.raises(UsageError, match="choose from math, sklearn, whitespace, code"):
        ucc_result(samples(PLAIN), Clustering(tokens="python"))
    with pytest.raises(UsageError):
        cluster(PLAIN, similarity="exact", tokens="python")


def test_short_programs_are_told_apart_by_default():
    assert [setting.similarity for setting in BY_DEFAULT.settings("codegrammar")] == ["exact"]
    assert [setting.similarity for setting in BY_DEFAULT.settings("mbpp")] == ["tfidf"]


def test_a_child_process_that_is_no_worker_may_end(monkeypatch):
    alive = {"another child"}

    class Workers:
        """A pool whose first answer is late; the other child of this process ends meanwhile."""

        def __init__(self, jobs):
            alive.add("worker")

        def __enter__(self):
            return self

        def __exit__(self, *_):
            alive.discard("worker")

        def imap(self, count, problems):
            self.answers = map(count, problems)
            return self

        def next(self, timeout):
            if "another child" in alive:
                alive.remove("another child")
                raise multiprocessing.TimeoutError
            return next(self.answers)

    monkeypatch.setattr(multiprocessing, "active_children", lambda: list(alive))
    monkeypatch.setattr(multiprocessing, "get_context", lambda name: SimpleNamespace(Pool=Workers))
    rows = [Sample("b", id, 0, text, "1", correct=True) for id, text in (("p", "one"), ("q", "two"))]
    assert ucc_result(Samples(rows, []), jobs=2).rows == ucc_result(Samples(rows, [])).rows
    assert not alive
