"""What `quatro verl-command` writes, read by verl."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.verl
pytest.importorskip("verl")

from hydra import compose, initialize_config_module  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402
from verl.trainer.ppo.utils import need_critic, need_reference_policy  # noqa: E402
from verl.utils.config import validate_config  # noqa: E402
from verl.utils.import_utils import load_extern_object  # noqa: E402

from quatro.config import load_config  # noqa: E402
from quatro.integrations.verl.command import verl_command  # noqa: E402
from quatro.registry import METHODS  # noqa: E402
from quatro.rollout.prompts import load_sources, to_prompts  # noqa: E402
from tests.kit import quatro  # noqa: E402


def verl_accepts(overrides: list[str]) -> bool:
    """Whether verl composes and validates them; otherwise whatever it raises."""
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=overrides)
    validate_config(config, need_reference_policy(config), need_critic(config))
    return True


def overrides_of(name: str, *settings: str, method: str | None = None, **cluster: int) -> list[str]:
    config = load_config(name, overrides=settings, method=method)
    return verl_command(config, name=name, prompts="p.parquet", **cluster).overrides


@pytest.mark.parametrize(("name", "gpus"), [("math-1.5b-2gpu", 2), ("math-7b-4gpu", 4)])
def test_verl_accepts_the_shipped_commands(name, gpus):
    assert verl_accepts(overrides_of(name, gpus_per_node=gpus))


@pytest.mark.parametrize("method", [name for name in METHODS if name not in ("quatro", "ucpo", "cluster-weighted")])
def test_verl_accepts_every_method(method):
    rare = ("kl.aggregate=seq-mean-token-sum-norm", "kl.estimator=k3+", "data.template=code-body", "rollout.stop=[]")
    assert verl_accepts(overrides_of("math-1.5b", *rare, method=method))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("+algorithm.quatro.dleta=0.1", "dleta: Extra inputs"),
        ("+algorithm.quatro.inner_updates=auto", "algorithm.quatro.inner_updates: Extra"),
    ],
)
def test_verl_refuses_a_key_that_the_method_lacks(changed, message):
    with pytest.raises(Exception, match=message):
        verl_accepts([*overrides_of("math-1.5b"), changed])


def test_verl_reads_the_prompts_that_our_trainer_renders(tmp_path, policy_folder):
    import pandas

    problems, out = tmp_path / "problems.jsonl", tmp_path / "new" / "prompts.parquet"
    row = {"id": "a", "problem": "What is {1} + 1?", "answer": "2", "level": 3}
    problems.write_text(json.dumps(row) + "\n", encoding="utf-8")
    arguments = ["verl-command", "math-1.5b", "-s", f"data.prompts={problems}", "--prompts", str(out)]
    assert f"data.train_files={out}" in quatro(*arguments, "--write-prompts").stdout
    (written,) = pandas.read_parquet(out).to_dict("records")
    assert written["reward_model"] == {"style": "rule", "ground_truth": "2"}
    assert json.loads(written["extra_info"]["extra"]) == {"level": 3}

    tokenizer = AutoTokenizer.from_pretrained(policy_folder)
    config = load_config("math-1.5b", overrides=[f"data.prompts={problems}"]).data
    (ours,) = to_prompts(load_sources(config)[0].problems, config.template, tokenizer)
    turns = [dict(turn) for turn in written["prompt"]]
    theirs = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=True, return_dict=False)
    assert tuple(theirs) == ours.token_ids

    compute_score = load_extern_object("pkg://quatro.integrations.verl.reward", "compute_score")
    call = {"data_source": written["data_source"], "extra_info": written["extra_info"], "reward": {"name": "math"}}
    assert compute_score(solution_str="\\boxed{2}", ground_truth="2", **call) == 1.0
