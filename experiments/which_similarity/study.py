"""Labels the answers of two tasks by rules, and measures every clustering against them.

    python -m experiments.which_similarity.study word-problems     # or codegrammar; some minutes of one core each
    python -m experiments.which_similarity.study --code DIR...     # once: keeps the right programs of samples in DIRs

Answers to a word problem are the same solution if they take the same strategy (`derivation_of`); programs of the code
task if they have the same syntax tree, or if they compute the same values on their way (`trace`). False derivations are
left out first. The samples are those of the study of a real model, and three embedded models' in `CODE`.
"""

import argparse
import ast
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from evals.clustering import cluster_sizes
from evals.estimators import ucc_at_k
from evals.files.frames import grouped
from evals.metrics.counting import Clustering, labels_by_setting, solutions
from evals.metrics.studies.labels import Label, agreement_result, text_hash
from evals.metrics.valid import checked
from evals.samples.graded import read_graded
from evals.samples.types import GradedProblem, Sample, Samples
from evals.similarity import SIMILARITIES, Setting
from experiments.real_model.study import SEEDS, jobs, read, write
from quatro.tasks.codegrammar import HIDDEN_INPUTS
from quatro.tasks.derivations import derivation_of

RESULTS = Path(__file__).parent / "results"
CODE = RESULTS / "programs.json.xz"
K = 16
THRESHOLDS, LINKAGES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95), ("components", "complete")
Model = list[list[GradedProblem]]  # the problems of each seed
Rule = Callable[[str], Hashable]  # the class of a text; None: it has none


class Task(NamedTuple):
    """The right answers of ``models``, and the ``labelled`` ones, pairs of which are judged by each of ``rules``."""

    models: Mapping[str, Model]
    labelled: list[GradedProblem]
    rules: Mapping[str, Rule]
    tokens: tuple[str, ...]


def word_problems() -> Task:
    """The samples of the study of a real model; those of the base are labelled."""
    models: dict[str, Model] = {}
    for job in jobs():
        if job.arm == "base" or job.seed in SEEDS:
            samples = read(job.path)["samples"].items()
            right = [(id, [text for text, is_right in rows if is_right]) for id, rows in samples]
            found = [GradedProblem("word-problems", id, None, job.n, texts) for id, texts in right]
            models.setdefault(job.arm, []).append(found)
    rules: dict[str, Rule] = {"strategy": lambda text: derivation_of(text).strategy or None}
    return Task(models, models["base"][0], rules, ("math", "sklearn"))


def code() -> Task:
    """The programs that were kept; those of all models together are labelled."""
    models: dict[str, Model] = {name: [[GradedProblem(*row) for row in rows]] for name, rows in read(CODE).items()}
    pooled = []
    for same in zip(*(problems for (problems,) in models.values()), strict=True):
        texts = [text for one in same for text in one.completions]
        pooled.append(same[0]._replace(n=sum(one.n for one in same), completions=texts))
    return Task(models, pooled, {"syntax tree": tree, "trace": trace}, ("code",))


TASKS = {"word-problems": word_problems, "codegrammar": code}


def keep(folders: Iterable[Path]) -> None:
    """Writes the right programs of ``folders``, which are named after their models."""
    kept = {}
    for folder in folders:
        problems = read_graded([folder / "codegrammar.jsonl"])[0].graded()
        whole = [one._replace(completions=[f"{one.prompt}{body}" for body in one.completions]) for one in problems]
        kept[folder.name] = [one[:6] for one in whole]
    write(CODE, kept)


class _Normal(ast.NodeTransformer):
    """`n += 3` becomes `n = n + 3`, and the operands of + and * stand in one order."""

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        name = ast.unparse(node.target)
        return self.visit(ast.Assign([node.target], ast.BinOp(ast.parse(name, mode="eval").body, node.op, node.value)))

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        self.generic_visit(node)
        if isinstance(node.op, ast.Add | ast.Mult):
            node.left, node.right = sorted((node.left, node.right), key=ast.dump)
        return node


class _Traced(ast.NodeTransformer):
    """Whatever a part of the program gives, or changes in place, goes through `seen`; not the inside of a list."""

    def generic(self, node: ast.expr) -> Any:
        self.generic_visit(node)
        return ast.Call(ast.Name("seen", ast.Load()), [node], [])

    visit_BinOp = visit_UnaryOp = visit_IfExp = visit_Call = generic

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        return self.generic(node) if isinstance(node.ctx, ast.Load) else node

    def visit_ListComp(self, node: ast.ListComp) -> Any:
        node.generators[0].iter = self.visit(node.generators[0].iter)
        return ast.Call(ast.Name("seen", ast.Load()), [node], [])

    def visit_Expr(self, node: ast.Expr) -> Any:  # xs.sort(), and the docstring
        return node if isinstance(node.value, ast.Constant) else [node, *ast.parse("seen(xs)").body]

    def visit_Delete(self, node: ast.Delete) -> Any:
        return [node, *ast.parse("seen(xs)").body]


def tree(program: str) -> str:
    """The syntax tree in a normal form."""
    return ast.dump(_Normal().visit(ast.parse(program)).body[0])


def trace(program: str) -> tuple[tuple[str, ...], ...]:
    """For each hidden input the values that a right program computes on its way, each change once."""
    traced = ast.fix_missing_locations(_Traced().visit(ast.fix_missing_locations(_Normal().visit(ast.parse(program)))))
    values: list[str] = []

    def seen(value: Any) -> Any:
        if isinstance(value, int | list) and repr(value) not in values[-1:]:
            values.append(repr(value))
        return value

    scope: dict[str, Any] = {"seen": seen}
    exec(compile(traced, "program", "exec"), scope)  # it passed its tests in the sandbox
    found = []
    for value in HIDDEN_INPUTS["n" if "def f(n)" in program else "xs"]:
        values.clear()
        scope["f"](list(value) if isinstance(value, list) else value)
        found.append(tuple(values))
    return tuple(found)


def measured(benchmark: str) -> dict[str, Any]:
    """The agreement of every setting with each rule, and UCC@16 of each model by rule and setting."""
    task = TASKS[benchmark]()
    clusterings = [
        Clustering([name], None if name == "exact" else THRESHOLDS, linkage, tokens)
        for name in SIMILARITIES
        for linkage in LINKAGES
        for tokens in task.tokens
    ]
    found: dict[str, Any] = {"agreement": {}, "ucc": {}}
    right = [one.problem for one in checked(task.labelled, benchmark)]
    for name, rule in task.rules.items():
        labelled = [(one, classes(one, rule)) for one in right]
        labels = [label for problem, kinds in labelled for label in pairs(problem, kinds, name)]
        rows = [
            Sample(problem.benchmark, problem.id, at, text, "", correct=True)
            for problem, kinds in labelled
            for at, text in enumerate(text for text in problem.completions if text in kinds)
        ]
        result = agreement_result(Samples(rows, []), labels, clusterings)
        found["agreement"][name] = [row.model_dump(exclude_none=True) for row in result.rows]
        for model, seeds in task.models.items():
            every = [one.problem for problems in seeds for one in checked(problems, benchmark)]
            ways = [(one.n, [*map(classes(one, rule).get, one.completions)]) for one in every]
            sizes = [(n, list(Counter(filter(None, own)).values())) for n, own in ways]
            found["ucc"].setdefault(name, {})[model] = float(np.mean([ucc_at_k(n, some, K) for n, some in sizes]))
    settings = {str(each): each for one in clusterings for each in one.settings(benchmark)}
    for model, seeds in task.models.items():
        every = [one for problems in seeds for one in problems]
        valid = [one.problem for one in checked(every, benchmark)]
        for kind, some in (("all", every), ("valid", valid)):
            for setting, value in mean_ucc(some, list(settings.values())).items():
                found["ucc"].setdefault(f"{setting}; {kind}", {})[model] = value
    return found


def classes(problem: GradedProblem, rule: Rule) -> dict[str, Hashable]:
    """The class of each different right answer that has one."""
    return {text: kind for text in problem.completions if (kind := rule(text)) is not None}


def pairs(problem: GradedProblem, kinds: Mapping[str, Hashable], who: str) -> Iterator[Label]:
    """A label for each pair of different texts."""
    for a, b in combinations(sorted(kinds), 2):
        told: Literal["same", "different"] = "same" if kinds[a] == kinds[b] else "different"
        yield Label(benchmark=problem.benchmark, id=problem.id, a=text_hash(a), b=text_hash(b), label=told, who=who)


def mean_ucc(problems: Sequence[GradedProblem], settings: Sequence[Setting]) -> dict[Setting, float]:
    """UCC@16 under each setting, a mean over problems."""
    found: dict[Setting, list[float]] = {}
    for problem in problems:
        for tokens, some in grouped(settings, lambda one: one.tokens).items():
            for setting, labels in labels_by_setting(solutions(problem, tokens), some).items():
                found.setdefault(setting, []).append(ucc_at_k(problem.n, cluster_sizes(labels), K))
    return {setting: float(np.mean(values)) for setting, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", nargs="?", choices=TASKS)
    parser.add_argument("--code", type=Path, nargs="+", metavar="DIR", help="keep the right programs of these samples")
    asked = parser.parse_args()
    if asked.code:
        keep(asked.code)
    if asked.task:
        write(RESULTS / f"{asked.task}.json.xz", measured(asked.task))


if __name__ == "__main__":
    main()
