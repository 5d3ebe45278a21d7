"""Training against TRL's GRPOTrainer: CPU seconds of whole iterations, phase by phase, and peak memory.

Both sides run their own loops as a user would, in one process and in turns: the same tiny Qwen2 weights, prompts,
stop tokens, reward, temperature 1, beta > 0 (reference log-probabilities are computed) and K passes over each batch
as one minibatch; prompts are not shuffled by TRL. Our audit is off in the comparison and its cost is printed beside
it. Random weights draw every token about equally often, so the number of stop tokens sets how long responses are:
9 of 512 spread them like a trained policy's, 2 leave nearly all of them near the limit. Times are CPU times of this
process, with everything imported and one iteration done before; peak memory is that of a child process a side.

    make bench-trl
    .venv-trl/bin/python benchmarks/train_vs_trl.py --stops 2
    .venv-trl/bin/python benchmarks/train_vs_trl.py --trl-rows 16      # TRL with micro-batches of 16 rows
"""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

VOCABULARY = 512
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": 384,
    "max_position_embeddings": 512,
}
PAD = VOCABULARY - 1
PHASES = ("generate", "log-probs", "update", "other")


def reward_of(token_ids: Sequence[int]) -> float:
    return float(sum(token_ids) % 2)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stops", type=int, default=9, help="stop tokens among the 512")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--n", type=int, default=8, help="rollouts per prompt")
    parser.add_argument("--prompt-tokens", type=int, default=8)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--k", type=int, default=2, help="passes over each batch (TRL: num_iterations)")
    parser.add_argument("--microbatch-tokens", type=int, default=1024, help="ours")
    parser.add_argument("--trl-rows", type=int, help="TRL's per_device_train_batch_size; default: the whole minibatch")
    parser.add_argument("--iterations", type=int, default=4, help="timed iterations a block")
    parser.add_argument("--blocks", type=int, default=3, help="how often the sides take turns")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", choices=("quatro", "trl", "nothing"), help="one side alone; prints its peak memory")
    return parser.parse_args()


# --- what both sides are given --------------------------------------------------------------------------------------


def write_inputs(folder: Path, options: argparse.Namespace) -> None:
    """A model with its tokenizer, and prompts: words t0 ... t511, of which the first few end a response."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    stops = list(range(options.stops))
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(
        Qwen2Config(**SHAPE, tie_word_embeddings=True, bos_token_id=None, eos_token_id=stops, pad_token_id=PAD)
    )
    model.generation_config.eos_token_id = stops
    model.save_pretrained(folder / "model")
    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(VOCABULARY)}, unk_token=f"t{PAD}"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="t0", pad_token=f"t{PAD}").save_pretrained(
        folder / "model"
    )
    rng = np.random.default_rng(0)
    rows = rng.integers(100, PAD, (options.prompts * (options.iterations + 1), options.prompt_tokens))
    with open(folder / "prompts.jsonl", "w", encoding="utf-8") as file:
        for number, ids in enumerate(rows):
            file.write(json.dumps({"id": str(number), "problem": " ".join(f"t{i}" for i in ids), "answer": "1"}) + "\n")


def texts(folder: Path) -> list[str]:
    with open(folder / "prompts.jsonl", encoding="utf-8") as file:
        return [json.loads(line)["problem"] for line in file]


# --- ours -----------------------------------------------------------------------------------------------------------


class Ours:
    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        import quatro.launch.prepare
        import quatro.loop.timing
        from quatro.config import load_config
        from quatro.rewards.base import VerifiedReward

        # The loop's own phase timer, on CPU time; the reward in this process, as TRL has it.
        quatro.loop.timing.time = SimpleNamespace(monotonic=time.process_time)  # type: ignore[attr-defined]
        reward = VerifiedReward(lambda _, rollout: reward_of(rollout.token_ids) > 0)
        quatro.launch.prepare.make_reward = lambda _: reward  # type: ignore[assignment]
        self.folder, self.num_runs = folder, 0
        (folder / "ours.yaml").write_text("method: {name: grpo}\n", encoding="utf-8")
        self.load = functools.partial(
            load_config,
            folder / "ours.yaml",
        )
        self.overrides = [
            *(f"model={folder / 'model'}", f"data.prompts={folder / 'prompts.jsonl'}", "data.template=plain"),
            *("dtype=float32", "device=cpu", f"threads={options.threads}", f"steps={options.iterations + 1}"),
            *(f"prompts_per_step={options.prompts}", f"minibatch_prompts={options.prompts}"),
            *(f"rollouts_per_prompt={options.n}", f"inner_updates={options.k}", "kl.beta=0.001"),
            *(f"rollout.max_new_tokens={options.max_new_tokens}", "optimizer.lr=1e-6", "checkpoint.every=0"),
            f"microbatch_tokens={options.microbatch_tokens}",
        ]

    def __call__(self, *, audit: bool = False) -> list[dict[str, float]]:
        """CPU seconds and lengths of each iteration but the first."""
        from quatro.runs.directory import RunDir
        from quatro.train import train

        self.num_runs += 1
        config = self.load(overrides=[*self.overrides, f"audit={str(audit).lower()}"])
        rows: list[dict[str, float]] = []
        with RunDir.create(self.folder / f"run-{self.num_runs}", config) as run:
            train(config, run, observer=lambda metrics: rows.append(dict(metrics)))
        return [
            {
                "whole": row["perf/step_s"],
                "generate": row["perf/generate_s"],
                "log-probs": row["perf/old_logp_s"] + row["perf/ref_logp_s"],
                "update": row["perf/update_s"],
                "audit": row["perf/audit_s"],
                "tokens": row["tokens"],
                "longest": row["length/max"],
            }
            for row in rows[1:]
        ]


# --- TRL's ----------------------------------------------------------------------------------------------------------


class Theirs:
    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        from datasets import Dataset
        from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
        from transformers.trainer_callback import PrinterCallback
        from trl import GRPOConfig, GRPOTrainer

        rollouts = options.prompts * options.n
        rows = options.trl_rows or rollouts
        settings = GRPOConfig(
            output_dir=str(folder / "trl"),
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=rollouts // rows,
            generation_batch_size=rollouts,
            num_generations=options.n,
            num_iterations=options.k,
            max_steps=(options.iterations + 1) * options.k,
            max_completion_length=options.max_new_tokens,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            beta=0.001,
            loss_type="bnpo",
            learning_rate=1e-6,
            lr_scheduler_type="constant",
            weight_decay=0.0,
            max_grad_norm=1.0,
            shuffle_dataset=False,
            gradient_checkpointing=False,
            use_cpu=True,
            bf16=False,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            seed=0,
        )
        data = Dataset.from_dict({"prompt": texts(folder)})
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder / "model")

        seconds: dict[str, float] = {}
        done: list[dict[str, float]] = []
        lengths: list[int] = []

        def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(function)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                start = time.process_time()
                try:
                    return function(*args, **kwargs)
                finally:
                    seconds[name] = seconds.get(name, 0.0) + time.process_time() - start

            return wrapper

        class Clock(TrainerCallback):
            start = 0.0

            def on_train_begin(self, *_: Any, **__: Any) -> None:
                seconds.clear()
                self.start = time.process_time()

            def on_step_end(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
                if state.global_step % options.k:
                    return
                now = time.process_time()
                # The forward and backward passes are what training_step does beyond preparing its inputs.
                update = seconds["step"] - seconds["prepare"] + seconds["optimizer"]
                done.append(
                    {
                        "whole": now - self.start,
                        "generate": seconds["generate"],
                        "log-probs": seconds["log-probs"],
                        "update": update,
                        "tokens": float(sum(lengths)),
                        "longest": float(max(lengths)),
                    }
                )
                seconds.clear()
                lengths.clear()
                self.start = time.process_time()

        def rewards(completion_ids: list[list[int]], **_: Any) -> list[float]:
            lengths.extend(map(len, completion_ids))
            return [reward_of(ids) for ids in completion_ids]

        def trainer() -> Any:
            made = GRPOTrainer(
                model=AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32),
                reward_funcs=rewards,
                args=settings,
                train_dataset=data,
                processing_class=tokenizer,
                callbacks=[Clock()],
            )
            made.remove_callback(PrinterCallback)
            made._generate_single_turn = timed("generate", made._generate_single_turn)
            made._prepare_inputs = timed("prepare", made._prepare_inputs)
            made.training_step = timed("step", made.training_step)
            plain = made._get_per_token_logps_and_entropies
            without_gradient = timed("log-probs", plain)
            made._get_per_token_logps_and_entropies = lambda *args, **kwargs: (
                plain if torch.is_grad_enabled() else without_gradient
            )(*args, **kwargs)
            made.create_optimizer()
            made.optimizer.step = timed("optimizer", made.optimizer.step)
            return made

        self.trainer, self.done = trainer, done

    def __call__(self) -> list[dict[str, float]]:
        self.done.clear()
        self.trainer().train()
        return self.done[1:]


# --- measuring ------------------------------------------------------------------------------------------------------


def peak_of_this_process() -> float:
    """MiB since exec; ru_maxrss would begin with what the parent held when it forked."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM"))


def peak_mib(side: str) -> float:
    """Peak memory of a child process that runs ``side`` alone."""
    command = [sys.executable, *sys.argv, "--iterations", "1", "--only", side]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def median(rows: Sequence[dict[str, float]], phase: str) -> float:
    if phase == "other":
        return float(np.median([row["whole"] - sum(row[name] for name in PHASES[:-1]) for row in rows]))
    return float(np.median([row[phase] for row in rows]))


def spread(rows: Sequence[dict[str, float]], options: argparse.Namespace, *, prompts: bool) -> float:
    """Padded over real tokens, of responses alone or together with their prompts."""
    num, extra = options.prompts * options.n, options.prompt_tokens if prompts else 0
    padded = sum(num * (row["longest"] + extra) for row in rows)
    return padded / sum(row["tokens"] + num * extra for row in rows)


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder, options)
        if options.only:
            if options.only != "nothing":
                (Ours if options.only == "quatro" else Theirs)(folder, options)()
            print(peak_of_this_process())
            return
        ours, theirs = Ours(folder, options), Theirs(folder, options)
        rows: dict[str, list[dict[str, float]]] = {"quatro": [], "trl": [], "audited": []}
        for _ in range(options.blocks):
            rows["trl"] += theirs()
            rows["quatro"] += ours()
        rows["audited"] += ours(audit=True)
    report(rows, options)


def report(rows: dict[str, list[dict[str, float]]], options: argparse.Namespace) -> None:
    import transformers
    import trl

    print(
        f"{options.prompts} prompts x {options.n} rollouts of at most {options.max_new_tokens} tokens, "
        f"K = {options.k}, {options.threads} thread(s), {len(rows['quatro'])} iterations a side; "
        f"trl {trl.__version__}, transformers {transformers.__version__}, torch {torch.__version__}; "
        f"TRL's micro-batch {options.trl_rows or options.prompts * options.n} rows, ours {options.microbatch_tokens} "
        "tokens"
    )
    for side in ("trl", "quatro"):
        print(
            f"padded/real of {side}: {spread(rows[side], options, prompts=False):.2f} (responses), "
            f"{spread(rows[side], options, prompts=True):.2f} (with prompts); "
            f"{np.mean([row['tokens'] for row in rows[side]]):,.0f} response tokens an iteration"
        )
    print(f"{'CPU seconds an iteration':26s}{'TRL':>9s}{'quatro':>9s}{'ratio':>8s}")
    for phase in ("whole", *PHASES):
        one, other = median(rows["trl"], phase), median(rows["quatro"], phase)
        print(f"{phase:26s}{one:9.3f}{other:9.3f}{one / other:8.2f}")
    whole = median(rows["quatro"], "whole")
    print(f"outside generate, log-probs and update: {median(rows['quatro'], 'other') / whole:.1%} of ours")
    audit = median(rows["audited"], "audit")
    print(f"our audit, off above: {audit:.3f} s, {audit / whole:.1%} of an iteration")
    idle, theirs, ours = (peak_mib(side) for side in ("nothing", "trl", "quatro"))
    print(f"peak memory: TRL {theirs:.0f} MiB, quatro {ours:.0f} MiB, ratio {ours / theirs:.2f}")
    print(f"beyond torch and transformers ({idle:.0f} MiB): {(ours - idle) / (theirs - idle):.2f}")


if __name__ == "__main__":
    main()
