"""The symbolic stage: what it answers, and what its workers survive."""

import faulthandler
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from evals import grading
from evals.errors import MissingError
from evals.grading import cache, grade, grade_many
from evals.grading.cache import GradeCache
from evals.grading.pool import Pair, SymbolicGrade, SymbolicGrader


def pair(answer: str, reference: str) -> Pair:
    return Pair(answer, reference, "strict", 0.0)


@pytest.fixture(scope="module", autouse=True)
def no_worker_outlives_this_file() -> Iterator[None]:
    yield
    grading.close_workers()


SAME = [
    ("2+3x", "3x+2"),
    ("(x+1)(x-1)", "x^2-1"),
    ("\\frac{\\pi}{2}", "\\frac{1}{2}\\pi"),
    ("2\\sin x\\cos x", "\\sin(2x)"),
    ("\\sqrt{5+2\\sqrt6}", "\\sqrt2+\\sqrt3"),
    ("\\frac{1}{i}", "-i"),
    ("0.5\\pi", "\\frac{\\pi}{2}"),
    ("\\cos 60^\\circ", "\\frac{1}{2}"),
    ("6!", "720"),
    ("\\binom{n}{2}", "\\frac{n(n-1)}{2}"),
    ("\\hbar\\omega(v+\\tfrac12)", "(v+1/2)\\hbar\\omega"),
    ("E_0\\cos(\\omega t)", "E_{0} \\cos{\\omega t}"),
    ("a(b)", "ba"),
    ("m\\ddot{x}+kx=0", "m\\ddot{x}=-kx"),
    ("x+2y=6", "y=3-\\frac{x}{2}"),
    ("2\\ne x", "x\\neq 2"),
    ("-x>-1", "x<1"),
    ("1\\le x<3", "[1,3)"),
    ("(-\\infty,2)\\cup(2,\\infty)", "x\\ne 2"),
    ("\\sqrt{20}, 1", "1, 2\\sqrt{5}"),
    ("(\\frac{\\sqrt2}{2}, 1)", "(\\frac{1}{\\sqrt2},1)"),
    ("\\begin{pmatrix}\\frac{\\sqrt2}{2}\\\\1\\end{pmatrix}", "\\begin{pmatrix}\\frac{1}{\\sqrt2}\\\\1\\end{pmatrix}"),
    ("x=2,y=\\sqrt3", "(2,\\sqrt{3})"),
    ("\\text{Yes}", "yes"),
    ("e^{-x^2}/2", "\\frac{1}{2}e^{-x^{2}}"),
    ("2^{2^n}\\cdot 2", "2^{1+2^n}"),
    ("\\sqrt[3]{-8}", "-2"),
    ("1+\\sqrt[3]{-5}", "1-\\sqrt[3]{5}"),
    ("\\sqrt[3]{-27x^3}", "-3x"),
    ("\\sqrt{-4}", "2i"),
    ("\\frac{\\pi}{6}", "30^\\circ"),
    ("30^\\circ+360^\\circ n", "\\frac{\\pi}{6}+2\\pi n"),
    ("(3, \\frac{\\pi}{2})", "(3, 90^\\circ)"),
    ("x<-2 or x>5", "(-\\infty,-2)\\cup(5,\\infty)"),
    ("x \\le -2 \\text{ or } x>5", "(-\\infty,-2]\\cup(5,\\infty)"),
    ("x<-2, x>5", "x<-2\\lor x>5"),
    ("x>1 \\text{ and } x<3", "(1,3)"),
    ("(-\\infty,1)\\text{ and }(2,\\infty)", "(-\\infty,1)\\cup(2,\\infty)"),
    ("|x-1|<2", "-1<x<3"),
    ("2x>6", "x>3"),
    ("x\\ne 2 \\text{ and } x\\ne 3", "\\mathbb{R}\\setminus\\{2,3\\}"),
    ("\\{x\\in\\mathbb{R} \\mid 2\\le x<5\\}", "[2,5)"),
    ("\\text{all real numbers}", "(-\\infty,\\infty)"),
    ("\\begin{vmatrix}1&2\\\\3&4\\end{vmatrix}", "-2"),
    ("2^(1/2)", "\\sqrt2"),
    ("\\lvert x-1\\rvert", "|1-x|"),
    ("x+-1", "x-1"),
]
DIFFERENT = [
    ("N", "n"),
    ("y''+y=0", "y'+y=0"),
    ("A^{T}", "A"),
    ("2f(x)", "f(2x)"),
    ("x_1", "x_2"),
    ("\\vec{a}", "a"),
    ("\\sqrt{x^2}", "x"),
    ("1.41421356", "\\sqrt{2}"),
    ("3.14159265358979", "\\pi"),
    ("262537412640768744", "e^{\\pi\\sqrt{163}}"),
    ("10^{-20}\\sqrt3", "10^{-20}\\sqrt2"),
    ("\\pi+10^{-90}", "\\pi"),
    ("x+10^{-35}", "x"),
    ("101_2", "101_3"),
    ("DCBA", "ABCD"),
    ("\\text{seat}", "\\text{east}"),
    ("0=5", "x^2+1=x^2"),
    ("2x-3=0", "2x+3=0"),
    ("x^2+y^2=1", "1"),
    ("(x+y)^2=1", "x=1"),
    ("x\\ge 2", "x>2"),
    ("(1,4)", "(1,2)\\cup(3,4)"),
    ("(\\sqrt2,3]", "(\\sqrt2,3)"),
    ("\\sqrt3, \\sqrt2", "(\\sqrt2, \\sqrt3)"),
    ("\\sqrt2", "\\sqrt2, \\sqrt3"),
    ("5\\sqrt2\\text{ cm}", "5\\sqrt2\\text{ m}"),
    ("\\frac{x}{0}", "x"),
    ("\\frac{dy}{dx}", "\\frac{y}{x}"),
    ("\\sqrt[3]{-8}", "2"),
    ("\\sqrt[4]{-16}", "2"),
    ("\\sqrt{-4}", "-2"),
    ("30", "\\frac{\\pi}{6}"),
    ("\\frac{\\pi}{3}", "30^\\circ"),
    ("2\\text{ radians}", "2^\\circ"),
    ("\\sin 30", "\\sin 30^\\circ"),
    ("x<-2 or x\\ge5", "(-\\infty,-2)\\cup(5,\\infty)"),
    ("x>1 or x<3", "(1,3)"),
    ("y<2 or y>3", "x<2 or x>3"),
    ("x<1, x>3", "(1,3)"),
    ("(1,2),(3,4)", "(1,2)\\cup(3,4)"),
    ("\\{x\\in\\mathbb{Z} \\mid x>2\\}", "(2,\\infty)"),
    ("\\begin{vmatrix}1&2\\\\3&4\\end{vmatrix}", "\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}"),
    ("--x", "x"),
    ("x--1", "x+1"),
]


def test_equal_formulas_are_right_however_they_are_written() -> None:
    grades = grade_many((f"\\boxed{{{answer}}}", reference) for answer, reference in SAME)
    assert [texts for texts, found in zip(SAME, grades, strict=True) if not found.correct] == []


def test_other_formulas_are_wrong() -> None:
    grades = grade_many((f"\\boxed{{{answer}}}", reference) for answer, reference in DIFFERENT)
    assert [texts for texts, found in zip(DIFFERENT, grades, strict=True) if found.outcome != "incorrect"] == []


def test_many_pairs_are_each_judged_once_and_answered_in_order() -> None:
    asked: list[Pair] = []

    class Recorder(SymbolicGrader):
        def grade(self, pairs, on_progress=None, *, jobs=None):
            asked.extend(pairs)
            return [SymbolicGrade("correct" if "y" in pair.answer else "incorrect") for pair in pairs]

    known = GradeCache(Recorder(num_workers=1))
    questions = [pair("x", "z"), pair("y", "z"), pair("\\left(x\\right)", "z"), pair("x ", "z"), pair("9^{9^9}", "z")]
    found = known.grade(questions)
    assert [grade.outcome for grade in found] == ["incorrect", "correct", "incorrect", "incorrect", "incorrect"]
    assert [question.answer for question in asked] == ["x", "y", "\\left(x\\right)"]  # `x ` is x, the tower is refused
    assert found[4].stage == "guard"
    known.grade(questions)
    assert len(asked) == 3
    known.grade([Pair("x", "z", "simko", 0.0)])
    assert len(asked) == 4


def test_failures_of_the_machine_are_not_remembered() -> None:
    outcomes = iter(["infra_error", "correct"])

    class Failing(SymbolicGrader):
        def grade(self, pairs, on_progress=None, *, jobs=None):
            return [SymbolicGrade(next(outcomes)) for _ in pairs]

    known = GradeCache(Failing(num_workers=1))
    assert [known.grade([pair("x", "y")])[0].outcome for _ in range(3)] == ["infra_error", "correct", "correct"]


@pytest.fixture
def fake_worker(tmp_path: Path) -> Iterator[object]:
    """Makes pools whose workers run a script in place of sympy; `{state}` in it is a folder that outlives them."""
    pools = []

    def make(body: str, **options: object) -> SymbolicGrader:
        script = tmp_path / "worker.py"
        head = "import json, os, sys, time, signal\nfrom pathlib import Path\n"
        head += f"state = Path({str(tmp_path)!r})\n"
        head += "from evals.worker_pool import serve\ndef answer(pairs, say):\n    for pair in pairs:\n"
        body = "".join(f"        {row}\n" for row in body.strip().splitlines())
        script.write_text(f"{head}{body}serve(lambda: answer)\n", encoding="utf-8")
        pools.append(SymbolicGrader(num_workers=1, command=[str(script)], **options))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def test_a_killed_worker_is_replaced_and_its_pair_tried_again(fake_worker) -> None:
    pool = fake_worker("""
if pair["answer"] == "b" and not (state / "died").exists():
    (state / "died").touch()
    os.kill(os.getpid(), signal.SIGKILL)
say({"outcome": "correct", "stage": "symbolic"})
""")
    assert [grade.outcome for grade in pool.grade([pair(text, "r") for text in "abc"])] == ["correct"] * 3


def test_a_pair_whose_worker_dies_twice_is_an_infra_error_and_nothing_else(fake_worker) -> None:
    pool = fake_worker("""
if pair["answer"] == "b":
    (state / str(time.monotonic_ns())).touch()
    os.kill(os.getpid(), signal.SIGKILL)
say({"outcome": "correct", "stage": "symbolic"})
""")
    grades = pool.grade([pair(text, "r") for text in "abcd"])
    assert [grade.outcome for grade in grades] == ["correct", "infra_error", "correct", "correct"]


def test_a_worker_that_cannot_start_is_named(tmp_path: Path) -> None:
    pool = SymbolicGrader(num_workers=1, command=["-c", "raise SystemExit(9)"])
    with pytest.raises(MissingError, match="status 9"):
        pool.grade([pair("x", "y")])


def test_limits_end_a_pair_and_not_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker itself, in this process: a pair that runs on, one that eats memory, one that recurses, one killed."""
    from evals.grading import worker

    def grade(question: dict) -> dict:
        if question["answer"] == "spin":
            10 ** (10**9)  # one C call, which no Python signal handler can interrupt
        if question["answer"] == "memory":
            bytearray(1 << 34)
        if question["answer"] == "recursion":
            grade(question)
        if question["answer"] == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if question["answer"] == "crash":
            faulthandler.disable()  # pytest's would print a trace
            os.kill(os.getpid(), signal.SIGSEGV)
        return {"outcome": "correct", "stage": "symbolic"}

    monkeypatch.setattr(worker, "_grade", grade)
    # Of this process, which may have torch and pyarrow in it; a worker has neither.
    num_bytes = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    monkeypatch.setattr(worker, "MEMORY_LIMIT_BYTES", num_bytes + (1 << 30))
    texts = ["a", "memory", "b", "spin", "c", "killed", "recursion", "crash", "d"]
    said: list[dict] = []
    worker.grade_chunk([{"answer": text} for text in texts], 0.3, said.append)
    assert [message["outcome"] for message in said] == [
        *("correct", "error", "correct", "timeout", "correct", "killed", "error", "error", "correct")
    ]
    assert said[1]["detail"] == "MemoryError"
    assert said[6]["detail"] == "RecursionError"


def test_a_timeout_is_reported_as_one() -> None:
    pool = SymbolicGrader(num_workers=1, cpu_limit_s=0.001)
    try:
        assert pool.grade([pair("x^2+\\sin x", "\\cos x")])[0].outcome == "timeout"
    finally:
        pool.close()


def test_grading_works_in_threads_and_never_touches_signals() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGPROF, signal.SIGXCPU)]
    found: dict[int, list[bool]] = {}

    def work(number: int) -> None:
        pairs = [(f"\\boxed{{{k}+x+{number}}}", f"x+{number}+{k}") for k in range(4)]
        found[number] = [grade(*texts).correct for texts in pairs]

    threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [True] * 4 for number in range(4)}
    assert [signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGPROF, signal.SIGXCPU)] == before


def test_workers_load_neither_torch_nor_quatro() -> None:
    code = (
        "import sys, evals.grading.worker, evals.grading.symbolic\n"
        "sys.exit(any(name.split('.')[0] in ('torch', 'transformers', 'quatro') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    code = "import sys, evals.grading; sys.exit('sympy' in sys.modules or 'math_verify' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_workers_end_with_their_parent() -> None:
    code = (
        "import json, sys\nfrom evals.grading import cache, grade\n"
        "assert grade(r'\\boxed{1+x}', 'x+1').correct\n"
        "sys.stdout.write(json.dumps([w.process.pid for w in cache.shared_cache()._workers._pool._workers]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert [process for process in json.loads(done.stdout) if is_alive(process)] == []


@pytest.mark.slow
def test_a_child_of_a_fork_starts_workers_of_its_own() -> None:
    assert grade("\\boxed{1009+x}", "x+1009").correct
    ours = cache.shared_cache()._workers._pool._workers[0].process.pid
    child = os.fork()
    if child == 0:
        status = 1
        try:
            is_right = grade("\\boxed{1013+x}", "x+1013").correct
            theirs = cache.shared_cache()._workers._pool._workers[0].process.pid
            cache.close_workers()
            status = 0 if is_right and theirs != ours else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert is_alive(ours)
    assert grade("\\boxed{1019+x}", "x+1019").correct


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_grades_do_not_depend_on_load_or_company() -> None:
    questions = [pair(answer, reference) for answer, reference in SAME[::2] + DIFFERENT[::3]]
    alone, crowded = SymbolicGrader(num_workers=1), SymbolicGrader(num_workers=3)
    burner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        first = alone.grade(questions)
        second = crowded.grade((questions * 2)[::-1])[::-1]
    finally:
        burner.kill()
        burner.wait()
        alone.close()
        crowded.close()
    assert second == first * 2


@pytest.mark.slow
def test_real_completions_agree_with_their_published_scores() -> None:
    folder = os.environ.get("QUATRO_COMPLETIONS")
    file = Path(folder or ".") / "completions_qwen_math_cot_100.jsonl"
    if not folder or not file.is_file():
        pytest.skip("QUATRO_COMPLETIONS names no folder with completions_qwen_math_cot_100.jsonl")
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]
    grades = grade_many((row["completion"], row["answer_gold"]) for row in rows)
    # The one that differs is published as wrong: 10{,}000 for 10000.
    agreeing = sum(found.correct == row["source_score"] for row, found in zip(rows, grades, strict=True))
    assert agreeing >= len(rows) - len(rows) // 800
