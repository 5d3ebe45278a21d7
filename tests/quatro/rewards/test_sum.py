"""Lists of rewards."""

from __future__ import annotations

import re
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from evals.errors import DataError, QuatroError
from quatro.config import config_to_yaml, load_config
from quatro.loop.metrics import logged_means
from quatro.loop.position import Drawn, Group
from quatro.rewards import Grade, RewardConfig, SourceRewards, check_prompts, make_reward
from quatro.types import Prompt, Rollout
from tests.kit import num_failed, rewards, verdicts

QUESTION = Prompt("mine", "p1", "What is 2 + 2?", "4", "What is 2 + 2?", (1,))
RUN = "model: embedded:countdown\nmethod: {name: quatro}\ndata: {prompts: countdown}\n"


def of(*parts: object) -> RewardConfig:
    return RewardConfig.model_validate({"name": "sum", "options": {"rewards": parts}})


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions of docs/rewards.md, and one that may fail."""
    page = (Path(__file__).parents[3] / "docs/rewards.md").read_text(encoding="utf-8")
    functions = re.findall(r"    (?:import re|def (?:brief|formatted)\(.*\n        return .*)\n", page)
    strict = "    def strict(completion):\n        assert completion\n        return {'reward': 2, 'words': 3}\n"
    (tmp_path / "parts_of_mine.py").write_text(textwrap.dedent("".join([*functions, strict])), encoding="utf-8")
    monkeypatch.chdir(tmp_path)


def test_a_sum_weighs_its_parts_and_logs_each(own):
    short = {"name": "parts_of_mine:brief", "weight": -0.5, "options": {"short": 2, "long": 6}, "workers": 1}
    reward = make_reward(of("math", short))
    rollouts = [Rollout((0,) * n, text, "stop") for n, text in ((2, r"\boxed{4}"), (5, r"\boxed{5}"), (9, "four"))]
    scored = reward.score([QUESTION], [rollouts])
    reward.close()
    assert rewards(scored) == [[1.0 - 0.5, -0.5 * 0.25, 0.0]]
    assert verdicts(scored) == [[True, False, False]]  # the verdict of the one that has a notion of it
    assert [grade.logged for grade in scored[0]] == [
        {"math": 1.0, "brief": 1.0},
        {"math": 0.0, "brief": 0.25},
        {"math": 0.0, "brief": 0.0},
    ]
    drawn = Drawn([Group(QUESTION, list(zip(rollouts, scored[0], strict=True)))])
    assert logged_means(drawn) == {"reward/parts/brief": 1.25 / 3, "reward/parts/math": 1 / 3}


def test_a_part_that_drops_a_rollout_drops_it_and_what_parts_log_stands_behind_their_name(own):
    mine = {"name": "parts_of_mine:strict", "on_error": "drop", "label": "mine", "workers": 1}
    reward = make_reward(of({"name": "parts_of_mine:formatted", "options": {"pattern": "^a.b$"}, "workers": 1}, mine))
    texts = ("a\nb", "", "ab")
    scored = reward.score([QUESTION], [[Rollout((0,), text, "stop") for text in texts]])
    assert [grade.is_dropped for grade in scored[0]] == [False, True, False]
    assert num_failed(scored) == (1, 0)
    assert [grade.error for grade in scored[0]] == ["", "AssertionError (reward mine)", ""]
    assert scored[0][0] == Grade(3.0, None, {"formatted": 1.0, "mine": 2.0, "mine/words": 3.0})
    assert rewards(scored)[0][2] == 2.0
    reward.close()


def test_a_search_without_end_ends_at_the_deadline(own):
    reward = make_reward(
        RewardConfig.model_validate(
            {
                "name": "parts_of_mine:formatted",
                "options": {"pattern": "(a+)+$"},
                "timeout_s": 1.0,
                "workers": 1,
                "on_error": "zero",
            }
        )
    )
    scored = reward.score([QUESTION], [[Rollout((0,), text, "stop") for text in ("a" * 60 + "b", "aaa")]])
    reward.close()
    assert (rewards(scored), num_failed(scored)) == ([[0.0, 1.0]], (0, 1))


def test_a_list_in_a_file_is_short_for_a_sum_and_is_written_back_as_such(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(RUN + "reward:\n  - countdown\n  - {name: countdown-distance, weight: 0.1}\n", encoding="utf-8")
    config = load_config(str(path))
    assert config.reward == of("countdown", {"name": "countdown-distance", "weight": 0.1})
    text = config_to_yaml(config)
    assert "rewards: [{name: countdown}, {name: countdown-distance, weight: 0.1}]" in text
    assert "on_error" not in text, "the list has no use for it, and each reward its own"
    path.write_text(text, encoding="utf-8")
    assert load_config(str(path)) == config
    assert load_config(str(path), overrides=["reward=countdown"]).reward == RewardConfig(name="countdown")


def test_every_part_checks_the_prompts():
    unanswered = Prompt("mine", "p2", "?", None, "?", (1,))
    check_prompts([QUESTION], of("math", {"name": "a:f", "options": {"long": 9}}))
    with pytest.raises(DataError, match=re.escape("prompt 'p2' of mine has no reference answer")):
        check_prompts([QUESTION, unanswered], of({"name": "a:f", "options": {"long": 9}}, "math"))


def test_the_distance_reward_grades_what_the_benchmark_calls_wrong():
    prompt = Prompt("countdown", "p", "7 2 7 6 2 8 -> 67", None, "", (1,))
    texts = ("8 *7 =56 +7 =63 +6 =69 -2 =67", "8 *7 =56 +7 =63", "8 *7 =56 +7 =63 +6", "9 +7 =16")
    rollouts = [Rollout((0,), text, "stop") for text in texts] + [Rollout((0,), texts[1], "length")]
    scored = make_reward("countdown-distance").score([prompt], [rollouts])
    assert rewards(scored) == [[1.0, 1 / 5, 0.0, 0.0, 0.0]]
    assert verdicts(scored) == verdicts(make_reward("countdown").score([prompt], [rollouts]))


def test_what_was_dropped_does_not_count_in_the_means():
    dropped = Grade(0.0, is_dropped=True, logged={"a": 9.0})
    grades = [[Grade(1.0, logged={"a": 1.0}), dropped], [Grade(1.0, logged={"a": 0.0, "b": 5.0})], [dropped]]
    rollout = Rollout((0,), "", "stop")
    drawn = Drawn([Group(QUESTION, [(rollout, grade) for grade in row]) for row in grades])
    assert logged_means(drawn) == {"reward/parts/a": 0.5, "reward/parts/b": 5.0}


def test_each_source_is_graded_by_its_own_reward_and_equal_ones_are_one(own, monkeypatch):
    mine = RewardConfig.model_validate({"name": "parts_of_mine:strict", "workers": 1})
    by_source = {"a": RewardConfig(name="math"), "b": mine, "c": RewardConfig(name="math")}
    reward, calls = SourceRewards(by_source), []
    for one in reward.parts:
        score = one.score
        monkeypatch.setattr(
            one, "score", lambda asked, groups, score=score: calls.append(asked) or score(asked, groups)
        )
    prompts = [replace(QUESTION, source=name, id=f"p{number}") for number, name in enumerate("bacbba")]
    answers = [[Rollout((0,), text, "stop") for text in (r"\boxed{4}", "four")]] * len(prompts)
    alone = {name: make_reward(config) for name, config in by_source.items()}
    expected = [alone[prompt.source].score([prompt], answers[:1])[0] for prompt in prompts]
    assert reward.score(prompts, answers) == expected
    assert rewards(expected) == [[2, 2], [1, 0], [1, 0], [2, 2], [2, 2], [1, 0]]
    assert [[prompt.source for prompt in asked] for asked in calls] == [["a", "c", "a"], ["b", "b", "b"]]
    assert reward.score(prompts[1:3], answers[:2]) == expected[1:3]  # no prompt of one of them
    for one in (reward, *alone.values()):
        one.close()


def test_a_response_on_which_two_functions_fail_counts_once(own):
    source = Path("parts_of_mine.py").read_text(encoding="utf-8")
    Path("parts_of_mine.py").write_text(f"{source}\ntwo = strict\n", encoding="utf-8")
    both = [{"name": f"parts_of_mine:{name}", "on_error": "zero", "workers": 1} for name in ("strict", "two")]
    blocks = {"both": {"name": "sum", "options": {"rewards": both}}, "math": {"name": "math"}}
    reward = SourceRewards({name: RewardConfig.model_validate(block) for name, block in blocks.items()})
    prompts = [replace(QUESTION, source=name) for name in blocks]
    rollouts = [[Rollout((0,), "", "stop")] * count for count in (9, 20)]
    assert len(reward.score(prompts, rollouts)) == 2  # 9 of 29, and not 18
    with pytest.raises(QuatroError, match="failed on 20 of 20 rollouts"):
        reward.score(prompts, [rollouts[0][:1] * 20, rollouts[1]])
    reward.close()


def test_half_of_an_iteration_is_counted_over_all_sources(own):
    """A source of which all fails may be a small part; two of which less than half fails may be half together."""
    blocks = {name: {"name": f"parts_of_mine:{name}", "on_error": "zero", "workers": 1} for name in ("strict", "two")}
    source = Path("parts_of_mine.py").read_text(encoding="utf-8")
    Path("parts_of_mine.py").write_text(f"{source}\ntwo = strict\n", encoding="utf-8")
    by_source = {name: RewardConfig.model_validate(block) for name, block in blocks.items()}
    reward = SourceRewards(by_source | {"math": RewardConfig(name="math")})
    prompts = [replace(QUESTION, source=name) for name in ("strict", "two", "math")]

    def score(*counts: int) -> object:
        """So many responses of each source, of which the functions grade none."""
        return reward.score(prompts, [[Rollout((0,), "", "stop")] * count for count in counts])

    for _ in range(2):  # each iteration is counted anew
        assert num_failed(score(16, 0, 17)) == (16, 0)
    assert num_failed(score(8, 9, 18)) == (17, 0)
    with pytest.raises(QuatroError, match="parts_of_mine:two' failed on 9 of 9 rollouts"):
        score(8, 9, 17)
    assert num_failed(score(16, 0, 17)) == (16, 0)
    reward.close()
