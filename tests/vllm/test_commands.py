"""`quatro train`, `quatro sample` and `quatro doctor` with vLLM, from the outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.vllm
pytest.importorskip("vllm")

ROOT = Path(__file__).parents[2]


def quatro(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own: it must also end."""
    done = subprocess.run(
        [sys.executable, "-m", "quatro_cli.app", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=1200,
    )
    assert done.returncode == code, done.stderr
    return done


def metrics(run: Path) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{name: value for name, value in row.items() if not name.startswith("perf/")} for row in rows]


SETTINGS = (
    *("-s", "rollout.engine=vllm", "-s", "prompts_per_step=8", "-s", "minibatch_prompts=4", "-s", "inner_updates=2"),
    *("-s", "rollouts_per_prompt=16", "-s", "checkpoint.every=1", "-s", "threads=1"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    done = quatro("train", "quickstart", *SETTINGS, "-s", "steps=7", "-o", folder)
    assert done.stdout.strip() == str(folder)  # whatever vLLM has to say is no data
    return folder


def test_the_embedded_policy_trains_with_vllm_and_both_agree(run):
    rows = metrics(run)
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6, 7]
    for row in rows:
        assert row["sync/probe_dlogp_max"] < 1e-4
        assert row["mismatch/dlogp_abs_max"] < 1e-4
        assert row["optimizer_steps"] == 4
        assert 0.5 < row["entropy/token_mean"] < 2  # the engine gives none: the trainer's own
    log = (run / "log.txt").read_text(encoding="utf-8")
    assert "log pi_old comes from the sampler" in log
    assert "compiling" not in log  # a GPU's
    texts = [
        json.loads(line)["completion"]
        for line in (run / "rollouts/step-000001.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert len(texts) == 128
    assert any(text.split()[1:2] for text in texts)
    assert not any("<eos>" in text for text in texts)


IN_BFLOAT16 = (*SETTINGS, "-s", "dtype=bfloat16", "-s", "steps=1", "-s", "eval.every=0")
CORRECTIONS = [
    f"rollout.correction={{level: {level}, kind: {kind}, cap: 1.05}}"
    for level in ("token", "sequence")
    for kind in ("truncate", "mask")
]


@pytest.fixture(scope="module")
def in_bfloat16(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "bfloat16"
    quatro("train", "quickstart", *IN_BFLOAT16, "-o", folder)
    return folder


def test_in_bfloat16_one_response_in_eight_shows_how_far_both_are_apart(in_bfloat16):
    (row,) = metrics(in_bfloat16)
    assert 0 < row["mismatch/dlogp_abs_mean"] < 0.12
    assert row["optimizer_steps"] == 4


@pytest.mark.parametrize("setting", [*CORRECTIONS, "old_policy=sampler"])
def test_in_bfloat16_the_gap_to_the_trainer_is_made_up_for(tmp_path, in_bfloat16, setting):
    """Of every response the engine says how likely it was; what it draws is the same."""
    run = tmp_path / "run"
    quatro("train", "quickstart", *IN_BFLOAT16, "-s", setting, "-o", run)
    (plain,), (row,) = metrics(in_bfloat16), metrics(run)
    drawn = [
        [json.loads(line)["completion"] for line in (path / "rollouts/step-000001.jsonl").open(encoding="utf-8")]
        for path in (in_bfloat16, run)
    ]
    assert drawn[0] == drawn[1]
    assert row["optimizer_steps"] == 4
    assert 0 < row["mismatch/dlogp_abs_mean"] < 0.12
    assert row["grad/norm"] != plain["grad/norm"]
    if setting in CORRECTIONS:
        assert 0 < row["correction/cut_share"] < 0.6
        assert 0.3 < row["correction/ess_share"] < 1
        assert 0.3 < row["correction/weight_mean"] < 1.05
    else:
        assert row["log_ratio/before_max"] > plain["log_ratio/before_max"]
        assert "correction/ess_share" not in row


def test_a_resumed_run_is_the_uninterrupted_one(run, tmp_path):
    first = tmp_path / "cut"
    quatro("train", "quickstart", *SETTINGS, "-s", "steps=2", "-o", first)
    text = (first / "config.yaml").read_text(encoding="utf-8")
    (first / "config.yaml").write_text(text.replace("steps: 2", "steps: 7"), encoding="utf-8")
    quatro("train", first, "--resume")
    assert metrics(first) == metrics(run)


def test_samples_are_drawn_continued_and_kept_apart_from_another_engines(run, tmp_path):
    out = tmp_path / "samples"
    arguments = ("sample", run, "-b", "countdown", "-o", out, "--engine", "vllm")
    done = quatro(*arguments, "-n", 2)
    path = out / "countdown.jsonl"
    assert done.stdout.strip() == str(path)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    assert json.loads((out / "sampling.json").read_text(encoding="utf-8"))["engine"] == "vllm"
    assert {json.loads(line)["finish_reason"] for line in lines} <= {"stop", "length"}

    # A crash: some rows never came, the last one is torn, and nobody wrote what the whole file holds.
    path.write_bytes(b"".join(lines[:100] + lines[150:])[:-7])
    sampling = json.loads((out / "sampling.json").read_text(encoding="utf-8"))
    del sampling["benchmarks"]["countdown"]["sha256"]
    (out / "sampling.json").write_text(json.dumps(sampling), encoding="utf-8")
    done = quatro(*arguments, "-n", 2)
    assert "51 samples drawn, 349 were there" in done.stderr
    assert path.read_bytes() == whole

    done = quatro("sample", run, "-b", "countdown", "-o", out, "-n", 3, code=2)
    assert "engine: vllm there, transformers here" in done.stderr


def test_an_adapter_is_merged_for_training_and_for_sampling(tmp_path):
    """Merged weights pass the probe after every update, and both engines answer alike from the checkpoint."""
    run = tmp_path / "lora"
    more = ("-s", "policy.lora.rank=4", "-s", "optimizer.lr=1e-2", "-s", "steps=3")
    quatro("train", "quickstart", *SETTINGS, *more, "-o", run)
    for row in metrics(run):
        assert row["sync/probe_dlogp_max"] < 1e-4
        assert row["mismatch/dlogp_abs_max"] < 1e-4
    assert metrics(run)[-1]["kl/new_old"] > 1e-3
    answers = {}
    for engine in ("vllm", "transformers"):
        out = tmp_path / engine
        quatro("sample", run, "-b", "countdown", "-o", out, "--engine", engine, "-n", 1, "--temperature", 0.01)
        lines = (out / "countdown.jsonl").read_text(encoding="utf-8").splitlines()
        answers[engine] = [json.loads(line)["completion"] for line in lines]
    base = tmp_path / "base"
    quatro("sample", "embedded:countdown", "-b", "countdown", "-o", base, "-n", 1, "--temperature", 0.01)
    lines = (base / "countdown.jsonl").read_text(encoding="utf-8").splitlines()
    plain = [json.loads(line)["completion"] for line in lines]

    def num_equal(one: list[str], other: list[str]) -> int:
        return sum(a == b for a, b in zip(one, other, strict=True))

    # vLLM's lowest temperature, .01, still draws between two tokens that are nearly equally likely.
    assert num_equal(answers["vllm"], answers["transformers"]) >= 0.85 * len(plain)
    assert num_equal(answers["vllm"], plain) < 0.6 * len(plain)


def test_doctor_says_that_vllm_is_usable():
    checks = {check["name"]: check for check in json.loads(quatro("doctor", "--json").stdout)["checks"]}
    assert checks["vllm engine"]["status"] == "ok"
    assert checks["vllm engine"]["detail"].startswith("usable on c")


SCRIPT = """
import sys
import torch
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
from quatro.config import load_config
from quatro.policy.loading import load_model, load_tokenizer
from quatro.policy.torch_policy import LocalPolicy
from quatro.launch.saving import make_training_engine
from quatro.types import Prompt, Sampling
from quatro.processes.world import World
folder = sys.argv[1]
config = load_config("quickstart", overrides=[f"model={folder}", "rollout.engine=vllm"])
model = load_model(folder, torch.float32, "cpu")
policy = LocalPolicy(model, config, world=World(rank, 2))
engine = make_training_engine(config, policy, load_tokenizer(folder))
with torch.no_grad():
    for parameter in model.parameters():
        parameter.mul_(1.1)
gap = engine.sync(policy.named_weights)["sync/probe_dlogp_max"]
prompt = Prompt("toy", str(rank), "", None, "", tuple(range(5, 9 + 3 * rank)))
(group,) = engine.generate([prompt], [[rank, 7]], Sampling(max_new_tokens=4 + rank))
engine.close()
total = torch.ones(1) * (rank + 1)
torch.distributed.all_reduce(total)
print(f"RANK{rank} gap {gap < 1e-4} rollouts {len(group)} sum {total.item():g}", flush=True)
torch.distributed.destroy_process_group()
"""


def test_under_torchrun_each_rank_has_an_engine_and_the_trainers_group_outlives_it(tiny_folder, tmp_path):
    script = tmp_path / "ranks.py"
    script.write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone",
         str(script), str(tiny_folder)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=1200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        assert f"RANK{rank} gap True rollouts 2 sum 3" in done.stdout
