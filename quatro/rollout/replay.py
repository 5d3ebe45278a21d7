"""Recorded completions in place of sampling: rewards, advantages or a whole run on responses that you can read."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evals.benchmarks.prompts import THOUGHT
from evals.errors import DataError
from evals.samples.reading import read_samples
from evals.samples.types import Sample
from quatro.rollout.engine import Engine, RolloutProgress, Seeds
from quatro.types import Prompt, Rollout, Sampling, Tensor


class ReplayEngine(Engine):
    """Deals out the completions of a samples file, each once, by ascending ``sample_index``.

    A prompt finds its completions by benchmark and id. Token ids are those of the text, followed by an eos unless the
    row's ``finish_reason`` is `length`. Log-probabilities and entropies are unknown.

    Raises DataError if the file is unreadable or breaks the samples contract.
    """

    def __init__(self, file: Path, tokenizer: Any) -> None:
        self.file = file
        self.tokenizer = tokenizer
        self._recorded = {(benchmark, id): samples for benchmark, id, samples in read_samples([file]).problems()}
        self._num_dealt: dict[tuple[str, str], int] = {}

    def sync(self, named_weights: Callable[[], Iterator[tuple[str, Tensor]]]) -> Mapping[str, float]:
        """Nothing to take over: the responses are recorded."""
        return {}

    def generate(
        self, prompts: Sequence[Prompt], seeds: Seeds, sampling: Sampling, *, progress: RolloutProgress | None = None
    ) -> list[list[Rollout]]:
        """The next ``len(seeds[i])`` completions of ``prompts[i]``, cut at ``max_new_tokens``; the seeds are unused.

        Raises DataError if a prompt has too few completions left; then none is dealt out.
        """
        dealt = dict(self._num_dealt)
        groups = [self._deal(prompt, len(group), dealt) for prompt, group in zip(prompts, seeds, strict=True)]
        self._num_dealt = dealt
        results = [[self._rollout(sample, sampling.max_new_tokens) for sample in samples] for samples in groups]
        if progress is not None:
            rollouts = [rollout for group in results for rollout in group]
            progress(len(rollouts), sum(len(rollout.token_ids) for rollout in rollouts))
        return results

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """How many completions of each problem have been dealt out."""
        return {}, {"num_dealt": [[benchmark, id, count] for (benchmark, id), count in self._num_dealt.items()]}

    def load_state(self, tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
        self._num_dealt = {(benchmark, id): count for benchmark, id, count in plain["num_dealt"]}

    def _deal(self, prompt: Prompt, count: int, dealt: dict[tuple[str, str], int]) -> Sequence[Sample]:
        key = prompt.benchmark, prompt.id
        samples, start = self._recorded.get(key, ()), dealt.get(key, 0)
        if start + count > len(samples):
            raise DataError(
                f"{self.file} has {len(samples)} completions of {prompt.id!r} ({prompt.benchmark}), "
                f"{start} of them dealt out already, and {count} more are needed; record more, "
                "or lower steps or rollouts_per_prompt"
            )
        dealt[key] = start + count
        return samples[start : start + count]

    def _rollout(self, sample: Sample, max_new_tokens: int) -> Rollout:
        text = str(sample.extra.get(THOUGHT, "")) + sample.completion
        token_ids = tuple(self.tokenizer.encode(text, add_special_tokens=False))
        is_stopped = sample.finish_reason != "length"
        if is_stopped:
            token_ids += (self.tokenizer.eos_token_id,)
        if len(token_ids) <= max_new_tokens:
            return Rollout(token_ids, text, "stop" if is_stopped else "length")
        token_ids = token_ids[:max_new_tokens]
        return Rollout(token_ids, self.tokenizer.decode(token_ids, skip_special_tokens=True), "length")
