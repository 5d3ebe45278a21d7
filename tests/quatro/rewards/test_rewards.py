import contextlib
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from evals.benchmarks.gym import Reference
from evals.errors import DataError, DivergedError, QuatroError, UsageError
from evals.grading import Grade
from quatro.rewards import Reward, make_reward
from quatro.rewards.base import refuse_failures
from quatro.types import FinishReason, Prompt, Rollout
from tests.kit import num_failed, rewards, verdicts


def prompt(problem: str, answer: str | None, id: str = "p1") -> Prompt:
    return Prompt("mine", id, problem, answer, text=f"<user>{problem}", token_ids=(1, 2))


def rollout(text: str, finish_reason: FinishReason = "stop") -> Rollout:
    return Rollout(token_ids=(1,), text=text, finish_reason=finish_reason)


def test_math_rewards_are_the_graders_verdicts():
    prompts = [prompt("1+1?", "2"), prompt("half?", "\\frac{1}{2}")]
    groups = [[rollout("\\boxed{2}"), rollout("\\boxed{200}"), rollout("2")], [rollout("\\boxed{0.5}")]]
    scored = make_reward("math").score(prompts, groups)
    assert rewards(scored) == [[1.0, 0.0, 0.0], [1.0]]
    assert verdicts(scored) == [[True, False, False], [True]]
    assert num_failed(scored) == (0, 0)


def test_math_judges_the_completion_without_its_prompt():
    scored = make_reward("math").score([prompt("As \\boxed{2}, what is 1+1?", "2")], [[rollout("I do not know")]])
    assert rewards(scored) == [[0.0]]


@pytest.mark.parametrize("answer", [None, ""])
def test_math_refuses_a_prompt_without_reference(answer):
    with pytest.raises(DataError, match="p1"):
        make_reward("math").score([prompt("1+1?", answer)], [[rollout("\\boxed{2}")]])


def test_countdown_rewards_correct_chains_that_end():
    question, solution = "7 2 7 6 2 8 -> 67", "8 *7 =56 +7 =63 +6 =69 -2 =67"
    group = [rollout(solution), rollout(solution, "length"), rollout("8 *7 =56"), rollout("")]
    scored = make_reward("countdown").score([prompt(question, question)], [group])
    assert rewards(scored) == [[1.0, 0.0, 0.0, 0.0]]
    assert verdicts(scored) == [[True, False, False, False]]


def test_countdown_names_a_prompt_that_is_none():
    with pytest.raises(DataError, match=r"'p1'.*not a countdown prompt"):
        make_reward("countdown").score([prompt("1+1?", "2")], [[rollout("2")]])


@pytest.mark.parametrize("spec", ["maths", "", "module:", ":function"])
def test_an_unknown_reward_is_refused_with_the_known_ones(spec):
    with pytest.raises(UsageError, match=r"math, countdown, .*, sum, rarity or module:function"):
        make_reward(spec)


FUNCTIONS = """
    import os, signal, sys, time

    def length(prompt, completion, answer):
        print("noise on stdout")
        return len(completion) + (answer == "yes") + 100 * prompt.startswith("<user>")

    def process_id(prompt, completion, answer):
        return os.getpid()

    def by_text(prompt, completion, answer):
        if completion == "hang":
            time.sleep(1000)
        if completion == "hang in a child":
            os.system("sleep 1000 & echo $! > child.pid; wait")
        if completion == "raise":
            raise KeyError("no such thing")
        if completion == "exit":
            os._exit(7)
        if completion == "text":
            return "1.0"
        if completion == "none":
            return None
        if completion == "nan":
            return float("nan")
        if completion == "inf":
            return float("inf")
        if completion == "-1e+308":
            return -1e308
        return True

    def modules(prompt, completion, answer):
        return "torch" in sys.modules

    not_a_function = 3
"""


def score_texts(reward: Reward, *texts: str) -> list[float]:
    return rewards(reward.score([prompt("q", None)], [[rollout(text) for text in texts]]))[0]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_function_sees_prompt_completion_and_answer(functions, num_workers, capfd):
    prompts = [prompt("a", "yes"), prompt("b", "no"), prompt("c", None)]
    groups = [[rollout("x" * n) for n in range(5)], [], [rollout("π\ud800\n" * 50_000)]]
    scored = functions("length", workers=num_workers).score(prompts, groups)
    assert rewards(scored) == [[101.0, 102.0, 103.0, 104.0, 105.0], [], [150_100.0]]
    assert verdicts(scored) == [[None] * 5, [], [None]]
    captured = capfd.readouterr()
    assert captured.out == ""  # what the function prints is not data
    assert "noise" in captured.err


def test_workers_are_started_once_and_kept(functions):
    reward = functions("process_id")
    first, second = score_texts(reward, "a", "b"), score_texts(reward, "c")
    assert len({*first, *second}) == 1
    assert list(reward.environment()) == ["own_code.my_rewards"]
    assert first[0] != os.getpid()
    reward.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int(first[0]), 0)
    assert score_texts(reward, "d") != second  # scoring after close starts anew


@pytest.mark.parametrize("num_workers", [1, 3])
def test_a_hanging_function_is_killed_and_counted(functions, num_workers):
    reward = functions("by_text", timeout_s=3, workers=num_workers)
    group = [rollout(text) for text in ("a", "hang", "b", "hang in a child", "c")]
    scored = reward.score([prompt("q", None)], [group])
    assert rewards(scored) == [[1.0, 0.0, 1.0, 0.0, 1.0]]
    assert num_failed(scored) == (0, 2)
    assert [grade.error for grade in scored[0]][1] == "timeout: it ran longer than 3 s"
    assert is_gone_soon(int(Path("child.pid").read_text(encoding="utf-8")))


def test_an_exception_stops_with_sample_and_traceback(functions):
    reward = functions("by_text")
    prompts = [prompt("q", None, id="first"), prompt("r", None, id="second")]
    with pytest.raises(QuatroError) as caught:
        reward.score(prompts, [[rollout("a")], [rollout("a"), rollout("raise")]])
    assert "rollout 1 of mine 'second'" in str(caught.value)
    assert "KeyError: 'no such thing'" in str(caught.value)
    assert "my_rewards.py" in str(caught.value)
    assert "the response: 'raise'\n" in str(caught.value)
    assert "calls.py" not in str(caught.value)  # how we call it is of no use to its author
    assert score_texts(reward, "a") == [1.0]  # the worker lives on


@pytest.mark.parametrize(("text", "reason"), [("exit", "ended with status 7"), ("text", "'1.0'"), ("none", "None")])
def test_a_dead_worker_or_another_type_is_an_error_too(functions, text, reason):
    reward = functions("by_text")
    with pytest.raises(QuatroError, match=reason):
        score_texts(reward, text)
    assert score_texts(reward, "a") == [1.0]


def test_errors_can_count_as_zero(functions):
    reward = functions("by_text", on_error="zero")
    scored = reward.score([prompt("q", None)], [[rollout(text) for text in ("raise", "a", "exit", "b", "none")]])
    assert rewards(scored) == [[0.0, 1.0, 0.0, 1.0, 0.0]]
    assert num_failed(scored) == (3, 0)


def test_a_function_that_mostly_fails_stops_even_then(functions):
    said = r"my_rewards:by_text' failed on 16 of 20 rollouts(?s:.*)KeyError(?s:.*)the response: 'raise'"
    with pytest.raises(QuatroError, match=said):
        score_texts(functions("by_text", on_error="zero"), *["raise"] * 16, *"abcd")


def test_of_a_function_that_mostly_fails_an_error_is_quoted_before_a_timeout(functions):
    with pytest.raises(QuatroError, match=r"failed on 16 of 20(?s:.*)KeyError(?s:.*)the response: 'raise'"):
        score_texts(functions("by_text", on_error="zero", timeout_s=1), "hang", *["raise"] * 15, *"abcd")


@pytest.mark.parametrize(
    ("num_failed", "num_rollouts", "ends"),
    [(15, 15, False), (16, 16, True), (16, 32, True), (16, 33, False), (19, 40, False), (20, 40, True), (0, 40, False)],
)
def test_a_run_ends_where_half_of_the_rollouts_fail_and_at_least_16(num_failed, num_rollouts, ends):
    with pytest.raises(QuatroError) if ends else contextlib.nullcontext():
        refuse_failures(["killed"] * num_failed, num_rollouts, "the sandbox")


@pytest.mark.parametrize("text", ["nan", "inf", "-1e+308"])
def test_a_reward_that_is_not_finite_or_that_overflows_names_the_prompt(functions, text):
    said = (
        rf"function 'my_rewards:by_text' \(.*my_rewards.py:[0-9]+ in by_text\) gave {re.escape(text)} to rollout 1 of "
        rf"mine 'p1'; expected a finite number(?s:.*)the response: '{re.escape(text)}'$"
    )
    with pytest.raises(DivergedError, match=said) as caught:
        score_texts(functions("by_text"), "a", text)
    assert caught.value.exit_code == 5


@pytest.mark.parametrize("spec", ["no_such_module:f", "my_rewards:no_such_function", "my_rewards:not_a_function"])
def test_what_cannot_be_imported_fails_before_the_first_rollout(functions, spec):
    with pytest.raises(
        UsageError, match=rf"cannot load the reward function.*looked for in {os.getcwd()}[,)]"
    ) as caught:
        make_reward(spec)
    assert spec in str(caught.value)
    assert "Error" in str(caught.value)


def test_neither_rewards_nor_their_workers_import_torch(functions):
    assert score_texts(functions("modules"), "a") == [0.0]
    code = "import sys, quatro.rewards, quatro.rewards.answers, quatro.rewards.answers, quatro.rewards.function;"
    code += "sys.exit('torch' in sys.modules)"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=env).returncode == 0


def test_a_killed_trainer_leaves_no_worker_behind(functions):
    code = """
        import sys
        from quatro.rewards import RewardConfig, make_reward
        from quatro.types import Prompt, Rollout
        reward = make_reward(RewardConfig(name="my_rewards:by_text", timeout_s=1000, workers=1))
        sys.stdout.write(f"{reward._pool._workers[0].process.pid}\\n"); sys.stdout.flush()
        reward.score([Prompt("b", "p", "q", None, text="q", token_ids=(1,))], [[Rollout((1,), "hang", "stop")]])
    """
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    trainer = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], env=env, stdout=subprocess.PIPE, text=True
    )
    assert trainer.stdout is not None
    worker = int(trainer.stdout.readline())
    time.sleep(0.2)
    trainer.send_signal(signal.SIGKILL)
    trainer.wait()
    try:
        assert is_gone_soon(worker)
    finally:
        if not is_gone(worker):
            os.kill(worker, signal.SIGKILL)
    trainer.stdout.close()


def is_gone_soon(process_id: int) -> bool:
    return any(is_gone(process_id) or time.sleep(0.25) for _ in range(80))


def is_gone(process_id: int) -> bool:
    try:
        status = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8")
    except OSError:
        return True
    return status.rpartition(")")[2].split()[0] == "Z"  # dead, and only waiting for init to look


def test_math_compares_formulas_and_counts_no_answer_as_a_failure():
    group = [rollout(f"\\boxed{{{text}}}") for text in ("1+x", "x+2", "\\frac{2x+2}{2}", "9^{9^9}x")]
    scored = make_reward("math").score([prompt("?", "x+1"), prompt("?", "1", id="p2")], [group, []])
    assert verdicts(scored) == [[True, False, True, False], []]
    assert num_failed(scored) == (0, 0)


def test_reasoning_gym_stops_when_its_checkers_mostly_cannot_be_run(monkeypatch):
    def answer(*names: str) -> None:
        grades = [Grade(name == "correct", name, "x", "reasoning-gym", "killed") for name in names]  # type: ignore[arg-type]
        scores = [(float(grade.correct), grade) for grade in grades]
        monkeypatch.setattr("quatro.rewards.gym.GymGrader.score", lambda self, asked: scores)

    column = Reference("gcd", "{}", seed=1, index=0, digest="0").column()
    item = Prompt("mine", "p1", "p", "1", "p", (1,), {"reasoning_gym": column})
    reward = make_reward("reasoning-gym")
    # What a model wrote may make every checker raise or wait: it earns 0, and the run goes on.
    answer(*["error"] * 8, *["timeout"] * 9, *["infra_error"] * 15)
    assert num_failed(reward.score([item], [[rollout("")] * 32])) == (23, 9)
    answer(*["infra_error"] * 16, *["correct"] * 16)
    with pytest.raises(QuatroError, match=r"16 of 32 rollouts(?s:.*)killed"):
        reward.score([item], [[rollout("")] * 32])
