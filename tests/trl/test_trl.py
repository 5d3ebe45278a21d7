"""QuatroTrainer on TRL against our own policy, method and objective: same rollouts, same loss, same gradient."""

# Axes: B rows (rollouts), T response tokens, F reward functions.
from __future__ import annotations

import functools
import importlib.util
import json
import math
import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from evals.errors import DivergedError
from evals.metrics.passk_ucc import passk_result, ucc_result
from evals.samples.importing import import_samples
from evals.samples.reading import read_samples
from quatro.config import load_config
from quatro.dual import solve_dual
from quatro.loop.learn import make_objective
from quatro.methods.quatro import Quatro
from quatro.policy.loading import load_model
from quatro.policy.rows import Rows, collate
from quatro.policy.torch_policy import LocalPolicy
from quatro.types import Prompt, Rollout

pytestmark = pytest.mark.trl
pytest.importorskip("trl")

from quatro.integrations.trl import QuatroTrainer, solve  # noqa: E402

ROOT = Path(__file__).parents[2]
WORKER = Path(__file__).with_name("worker.py")
SECONDS = 600  # a launch that takes longer is stuck
RADIUS = 0.05
SHARED = {"kl_radius": RADIUS, "beta": 0.01, "num_iterations": 2, "gradient_accumulation_steps": 2}
OPTIONS = {
    "one": {**SHARED, "per_device_train_batch_size": 6},
    # Ten rows a process: each has half of the third prompt's four.
    "two": {**SHARED, "per_device_train_batch_size": 5, "per_device_eval_batch_size": 10, "entropy_coef": 0.02},
    # Four optimiser steps on one batch of responses, and the KL whose gradient is that of sequences.
    "minibatches": {
        "kl_radius": RADIUS,
        "beta": 0.1,
        "kl_estimator": "sequence-exact",
        "temperature": 0.7,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 1,
        "steps_per_generation": 4,
    },
}


class Recorded:
    """What the worker recorded: the steps of all processes, and log and table of the first."""

    def __init__(self, ranks: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> None:
        self.ranks = [rank["steps"] for rank in ranks]
        self.log = [row for row in ranks[0]["log"] if "loss" in row]
        self.table = ranks[0]["table"]
        self.evaluation = ranks[0]["evaluation"]
        self.options = options


@pytest.fixture(scope="module")
def worker() -> Any:
    spec = importlib.util.spec_from_file_location("trl_worker", WORKER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def one(worker, tiny_folder, tmp_path_factory):
    options = OPTIONS["one"]
    out = tmp_path_factory.mktemp("one")
    recorded = Recorded([worker.record(str(tiny_folder), out, **options)], options)
    recorded.state = out / "trainer_state.json"
    recorded.completions = out / "completions" / "completions_00004.parquet"
    return recorded


@pytest.fixture(scope="module")
def minibatches(worker, tiny_folder, tmp_path_factory):
    options = OPTIONS["minibatches"]
    return Recorded([worker.record(str(tiny_folder), tmp_path_factory.mktemp("many"), **options)], options)


@pytest.fixture(scope="module")
def two(tiny_folder, tmp_path_factory):
    """Two processes of `accelerate launch`, whose --multi_gpu starts processes without GPUs, too; they use gloo."""
    options, out = OPTIONS["two"], tmp_path_factory.mktemp("two") / "out"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    launch = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1"]
    launch += ["--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", port]
    ran = subprocess.run(
        [sys.executable, *launch, WORKER, tiny_folder, out, json.dumps(options)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    recorded = Recorded([torch.load(f"{out}-{rank}.pt", weights_only=False) for rank in range(2)], options)
    recorded.completions = out / "completions" / "completions_00004.parquet"
    return recorded


# ---- ours


class Watched(LocalPolicy):
    """Our policy, which keeps its gradient and takes no step."""

    def take_step(self, loss_sum):
        self.gradient = torch.cat([parameter.grad.flatten() for parameter in self.trained])
        return super().take_step(loss_sum * math.nan)


class Ours:
    """Our side of a recorded training: its rollouts as rows, graded, solved and scored by our own code."""

    def __init__(self, recorded: Recorded, folder: Path, *, microbatch_tokens: int = 40) -> None:
        self.recorded, options = recorded, recorded.options
        self.longest = options.get("max_completion_length", 8)
        self.config = load_config(
            "quickstart",
            overrides=[
                *(f"model={folder}", f"method.delta={RADIUS}", "rollouts_per_prompt=4"),
                *(f"microbatch_tokens={microbatch_tokens}", f"rollout.max_new_tokens={self.longest}"),
                *(f"kl.beta={options['beta']}", f"kl.estimator={options.get('kl_estimator', 'k3')}"),
                f"entropy_coefficient={options.get('entropy_coef', 0)}",
                f"rollout.temperature={options.get('temperature', 1)}",
            ],
        )
        self.policy = Watched(load_model(str(folder), torch.float32, "cpu"), self.config)
        parts = options["gradient_accumulation_steps"]
        self.steps_a_pass = options.get("steps_per_generation", parts) // parts
        self.steps_a_batch = self.steps_a_pass * options.get("num_iterations", 1)

    def first_step_of_batch(self, step: int) -> int:
        return step // self.steps_a_batch * self.steps_a_batch

    def rows(self, step: int) -> Rows:
        """The rows of all processes by prompt, with our advantages, pi_old and reference."""
        groups = _groups(self._parts(step))
        prompts = [Prompt("b", str(ids), "", None, "", ids) for ids in groups]
        rollouts = [[Rollout(ids, "", "stop") for ids in group] for group in groups.values()]
        advantage_of = dict(zip(*self.solve(step), strict=True))
        advantages = [advantage_of[prompt, ids] for prompt, group in groups.items() for ids in group]
        rows = collate(prompts, rollouts, torch.tensor(advantages, dtype=torch.float64), max_new_tokens=self.longest)
        self._load(self.first_step_of_batch(step))
        rows = rows.with_batch(old_logp_BT=self.policy.score(rows).logp_BT)
        self._load(step)
        return rows.with_batch(ref_logp_BT=self.policy.score(rows, use_reference=True).logp_BT)

    def solve(self, step: int) -> tuple[list[Any], list[float]]:
        """Prompt and response of all rows of the batch that a step is of, and their advantages."""
        first = self.first_step_of_batch(step)
        groups = _groups([part for at in range(first, first + self.steps_a_pass) for part in self._parts(at)])
        assert {len(group) for group in groups.values()} == {4}
        reward_QN = [[sum(i % 2 for i in ids) / len(ids) for ids in group] for group in groups.values()]
        self.dual = solve_dual(reward_QN, RADIUS)
        rows = [(prompt, ids) for prompt, group in groups.items() for ids in group]
        return rows, self.dual.advantage.ravel().tolist()

    def update(self, step: int) -> tuple[float, torch.Tensor]:
        """Loss and gradient of the step, in micro-batches of our own."""
        rows = self.rows(step)
        done = self.policy.update(rows, make_objective(self.config), use_own_logp=False, need_entropy=False)
        return float(done.metrics["loss"].value), self.policy.gradient

    def gradients_apart(self, step: int) -> float:
        """The largest distance of a process's gradient from ours, relative to its norm; the losses must be equal."""
        loss, gradient = self.update(step)
        # accelerate means gradients, and so losses, over the processes.
        their_loss = sum(sum(rank[step]["losses"]) for rank in self.recorded.ranks) / len(self.recorded.ranks)
        assert their_loss == pytest.approx(loss, rel=1e-5, abs=1e-6), step
        theirs = (rank[step]["gradient"] for rank in self.recorded.ranks)
        return max(float((one - gradient).norm() / gradient.norm()) for one in theirs)

    def log_ratio(self, step: int, *, after: bool = False) -> torch.Tensor:
        """l of each row: before the step, or after it."""
        rows = self.rows(step)
        self._load(step + after)
        new_BT = self.policy.score(rows).logp_BT
        return (new_BT - rows.batch.old_logp_BT).double().sum(dim=1)

    def _load(self, step: int) -> None:
        self.policy.model.load_state_dict(self.recorded.ranks[0][step]["weights"])

    def _parts(self, step: int) -> list[dict[str, torch.Tensor]]:
        return [part for rank in self.recorded.ranks for part in rank[step]["parts"]]


def _groups(parts: Sequence[Mapping[str, torch.Tensor]]) -> dict[tuple[int, ...], list[tuple[int, ...]]]:
    """Token ids of each prompt -> those of its responses."""
    found: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for part in parts:
        for row in range(len(part["prompt_ids"])):
            prompt, response = (
                tuple(part[f"{name}_ids"][row][part[f"{name}_mask"][row].bool()].tolist())
                for name in ("prompt", "completion")
            )
            found.setdefault(prompt, []).append(response)
    return found


# ---- the promises


@pytest.fixture(params=list(OPTIONS))
def recorded(request):
    return request.getfixturevalue(request.param)


def test_loss_and_gradient_are_ours_on_the_same_rollouts(recorded, tiny_folder):
    ours = Ours(recorded, tiny_folder)
    for step in range(4):
        assert ours.gradients_apart(step) < 1e-5, step


def test_each_process_holds_half_of_a_prompt(two):
    """Or else nothing would be said about rewards of other processes."""
    first, second = (_groups(rank[0]["parts"]) for rank in two.ranks)
    assert [(len(first[prompt]), len(second[prompt])) for prompt in first.keys() & second.keys()] == [(2, 2)]


@pytest.mark.parametrize("name", ["one", "two"])
def test_the_log_ratio_is_0_on_the_first_pass_and_acts_on_the_second(name, request, tiny_folder):
    recorded = request.getfixturevalue(name)
    ours = Ours(recorded, tiny_folder)
    for step, row in enumerate(recorded.log):
        l_B, advantage_B = ours.log_ratio(step), ours.rows(step).batch.advantage_B
        expected = (-l_B.exp() * (advantage_B - l_B)).mean().item()
        assert row["loss/policy"] == pytest.approx(expected, abs=1e-6)
        if step % 2 == 0:
            assert row["log_ratio/min"] == row["log_ratio/max"] == 0.0
            assert row["loss/policy"] == pytest.approx(-advantage_B.mean().item())
        else:
            assert row["log_ratio/min"] == pytest.approx(l_B.min().item(), abs=1e-5)
            assert row["log_ratio/max"] == pytest.approx(l_B.max().item(), abs=1e-5)
            assert abs(row["loss/policy"] + advantage_B.mean().item()) > 1e-3


def test_the_realised_kl_of_a_batch_stands_in_the_log_of_its_last_step(recorded, tiny_folder):
    ours = Ours(recorded, tiny_folder)
    last = ours.steps_a_batch - 1
    assert ["kl/new_old" in row for row in recorded.log] == [(step + 1) % (last + 1) == 0 for step in range(4)]
    if last == 3:  # what the weights are after the last step nobody recorded
        return
    l_B = ours.log_ratio(last, after=True)
    row = recorded.log[last]
    assert row["kl/new_old"] == pytest.approx((l_B.exp() * l_B - l_B.exp() + 1).mean().item(), rel=1e-3)
    assert row["kl/ratio_to_delta"] == pytest.approx(row["kl/new_old"] / RADIUS)
    assert row["log_ratio/after_max"] == pytest.approx(l_B.abs().max().item(), abs=1e-4)
    assert row["target/gap_mean"] == pytest.approx((ours.rows(last).batch.advantage_B - l_B).abs().mean().item(), 1e-4)


def test_lambda_and_the_status_of_the_duals_are_those_of_all_processes(two, tiny_folder):
    ours = Ours(two, tiny_folder)
    for step in (0, 2):
        ours.solve(step)
        row = two.log[step]
        assert row["dual/lam_mean"] == pytest.approx(ours.dual.lam.mean(), rel=1e-5)
        assert row["dual/lam_max"] == pytest.approx(ours.dual.lam.max(), rel=1e-5)
        for word in ("interior", "capped", "boundary", "degenerate"):
            assert row[f"dual/{word}_share"] == ours.dual.status.count(word) / 5
        assert "dual/lam_mean" not in two.log[step + 1]


def test_the_table_of_completions_has_our_advantages(one, tiny_folder):
    assert sorted(one.table) == pytest.approx(sorted(Ours(one, tiny_folder).solve(2)[1]), rel=1e-5)


@pytest.mark.parametrize("name", ["one", "two"])
def test_an_evaluation_logs_what_quatro_finds_in_the_completions_that_trl_wrote(name, request, tmp_path):
    recorded = request.getfixturevalue(name)
    options = {"benchmark": "mine", "columns": {"correct": "reward"}}
    imported = import_samples(recorded.completions, tmp_path / "samples.jsonl", tool="trl", **options)
    samples = read_samples([imported.path])
    assert (imported.num_problems, {row.extra["step"] for row in samples.rows}) == ({"one": 3, "two": 5}[name], {4})
    assert {row.correct for row in samples.rows} == {True, False}
    rows = [*passk_result(samples).rows, *ucc_result(samples).rows]
    found = {row.metric.replace("k", str(row.k)): row.value for row in rows if row.metric in ("pass@k", "ucc@k")}
    found |= {row.metric: row.value for row in rows if row.metric == "pairs"}
    logged = {key: value for key, value in recorded.evaluation.items() if re.match("eval_(pass@|ucc@|pairs)", key)}
    assert logged == {f"eval_{name}": pytest.approx(value, abs=1e-12) for name, value in found.items()}
    assert logged["eval_pass@4"] > logged["eval_pass@1"] > 0


def test_its_trainer_state_has_the_names_that_the_page_says(one):
    seen = {name for row in json.loads(Path(one.state).read_text(encoding="utf-8"))["log_history"] for name in row}
    page = (Path(__file__).parents[2] / "docs" / "trl.md").read_text(encoding="utf-8")
    rows = [line.split("|")[2] for line in page.partition("| ours | TRL |")[2].splitlines()[2:] if line.startswith("|")]
    named = {name.strip(" `") for row in rows for name in row.split(",")} - {""}
    assert named - seen == {"clip_ratio/region_mean"}  # GRPO's, which we do not have


# ---- one trainer of a single step


@pytest.fixture(scope="module")
def trainer(worker, tiny_folder, tmp_path_factory):
    options = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "num_generations_eval": 2}
    return worker.make(QuatroTrainer, str(tiny_folder), tmp_path_factory.mktemp("trainer"), **options)


def test_a_single_step_a_batch_is_on_policy_and_still_audited(worker, tiny_folder, tmp_path, caplog):
    options = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_steps": 1}
    with caplog.at_level("WARNING", "quatro"):
        found = worker.record(str(tiny_folder), tmp_path, **options)
    assert "kl_radius hardly acts" in caplog.text
    assert found["log"][0]["log_ratio/max"] == 0.0
    assert found["log"][0]["kl/new_old"] > 0


def test_several_steps_a_batch_give_no_warning_and_the_audit_can_be_left_out(worker, tiny_folder, tmp_path, caplog):
    options = {"per_device_train_batch_size": 4, "num_iterations": 2, "max_steps": 2, "audit": False}
    with caplog.at_level("WARNING", "quatro"):
        found = worker.record(str(tiny_folder), tmp_path, **options)
    assert caplog.text == ""
    assert "kl/new_old" not in found["log"][1]


def test_an_evaluation_has_groups_and_a_log_of_its_own(trainer, monkeypatch):
    groups = []

    def watched(method, reward_BF, weight_F, group_B):
        groups.append(group_B.tolist())
        return solve(method, reward_BF, weight_F, group_B)

    monkeypatch.setattr("quatro.integrations.trl.solve", watched)
    found = trainer.evaluate()
    assert groups == [[0, 0, 1, 1]]
    assert found["eval_log_ratio/max"] == 0.0
    assert found["eval_dual/delta"] == 0.01
    rewards = list(trainer._logs["rewards"]["reward"])
    assert any(0 < reward < 1 for reward in rewards)
    assert found["eval_pass@1"] == sum(reward == 1 for reward in rewards) / 4  # a part of 1 is not correct
    assert trainer._metrics["train"] == {}
    assert len(trainer._logs["advantages"]) == len(trainer._logs["prompt"]) == 4


def test_prompts_may_be_chat_messages(worker, tiny_folder, tmp_path):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    tokenizer.chat_template = "{% for turn in messages %}{{ turn['content'] }}{% endfor %}"
    make = functools.partial(QuatroTrainer, processing_class=tokenizer)
    options = {"per_device_train_batch_size": 4, "max_steps": 1}
    prompts = [[{"role": "user", "content": prompt}] for prompt in worker.PROMPTS]
    trainer = worker.make(make, str(tiny_folder), tmp_path, prompts=prompts, **options)
    trainer.train()
    trainer.reward_funcs = [lambda completions, **_: [float(bool(one[-1]["content"])) for one in completions]]
    found = trainer.evaluate()
    assert found["eval_pass@1"] == found["eval_reward"]
    assert found["eval_ucc@4"] >= 1


def test_images_and_the_loss_of_a_router_go_where_trl_sends_them(trainer, monkeypatch):
    seen = {}
    logp_BT = torch.tensor([[-1.0, -2.0], [-3.0, -4.0]], requires_grad=True)

    @functools.wraps(trainer._get_per_token_logps_and_entropies)
    def forward(model, ids_BL, mask_BL, width, **options):
        seen.update(options)
        return logp_BT, torch.ones(2, 2), torch.tensor(3.0) if options["compute_aux_loss"] else None

    ones = torch.ones(2, 2, dtype=torch.long)
    inputs = {
        **{f"{name}_{what}": ones for name in ("prompt", "completion") for what in ("ids", "mask")},
        "pixel_values": torch.zeros(1),
        "num_images": [1, 0],
        "tool_mask": torch.tensor([[1, 0], [1, 1]]),
        "advantages": torch.ones(2),
        "group": torch.zeros(2, dtype=torch.long),
        "num_items_in_batch": torch.tensor(3),
    }
    monkeypatch.setattr(trainer, "_get_per_token_logps_and_entropies", forward)
    monkeypatch.setattr(trainer, "current_gradient_accumulation_steps", 2, raising=False)
    trainer.model.train()
    plain = trainer._compute_loss(trainer.model, dict(inputs))
    assert seen["pixel_values"] is inputs["pixel_values"]
    assert seen["num_images"] == [1, 0]
    plain.backward()
    assert logp_BT.grad.tolist() == [[-0.25, 0.0], [-0.25, -0.25]]  # no gradient for a tool's token; half of two rows
    monkeypatch.setattr(trainer, "aux_loss_enabled", True)
    monkeypatch.setattr(trainer, "router_aux_loss_coef", 0.5)
    assert (trainer._compute_loss(trainer.model, dict(inputs)) - plain).item() == pytest.approx(0.5 * 3.0 / 2)


def test_a_row_that_nobody_scored_stays_where_it_is():
    nan = math.nan
    reward_BF = torch.tensor([[1.0, nan], [nan, 0.0], [nan, nan], [nan, 2.0], [0.0, 0.0], [1.0, 1.0]])
    found = solve(Quatro(delta=0.1), reward_BF.double(), torch.tensor([1.0, 0.5]), torch.tensor([0, 0, 0, 0, 1, 1]))
    expected = solve_dual([[1.0, 0.0, 1.0]], 0.1).advantage[0]
    assert found.value_B[:4].tolist() == pytest.approx([expected[0], expected[1], 0.0, expected[2]])
    assert found.value_B[4:].tolist() == pytest.approx(solve_dual([[0.0, 1.5]], 0.1).advantage[0].tolist())
    with pytest.raises(DivergedError, match="any of 2 responses"):
        solve(Quatro(), torch.full((2, 1), nan), torch.ones(1), torch.zeros(2, dtype=torch.long))


def test_the_example_of_the_documentation_trains(tiny_folder, tmp_path, monkeypatch):
    import datasets

    (text,) = re.findall("```python\n(.*?)```", (ROOT / "docs" / "trl.md").read_text(encoding="utf-8"), re.DOTALL)
    smaller = {"Qwen/Qwen2.5-Math-1.5B": str(tiny_folder), "=1024": "=8", "steps=16": "steps=1, use_cpu=True"}
    for written, small in smaller.items():
        assert written in text
        text = text.replace(written, small)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "10 11 7 = 20", "answer": "20"}\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    names: dict[str, Any] = {}
    exec(text, names)
    log = names["trainer"].state.log_history
    assert log[-1]["step"] == 6  # three epochs of one prompt, twice
    assert names["correct"](["\\boxed{20}", "21"], ["20", "20"]) == [1.0, 0.0]
