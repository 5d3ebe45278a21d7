"""Prompts, rollouts, batches, advantages, loss terms, metrics; and blocks of settings. Imports no torch."""

# Axes: B rows (rollouts), T response tokens.
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from evals.benchmarks.prompts import split_thought
from evals.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor as Tensor
else:
    Tensor = Any  # for annotations: whoever makes one imports torch

FinishReason = Literal["stop", "length"]
KlEstimator = Literal["k1", "k2", "k3", "k3+", "sequence-exact"]
# Called with the metrics of every step, names as in metrics.jsonl. If it has a method `doing`, that is called with each
# `Stage` of the loop on the thread that trains, up to once for each token position: it must be quick.
Observer = Callable[[Mapping[str, float]], None]


class Stage(NamedTuple):
    """What a run is doing: the ``phase``, perhaps ``within`` another one, and how far that is.

    ``counts`` are (done, in all) by the name of what is counted; 0 in all means that nobody knows.
    """

    phase: str
    within: str = ""
    counts: Mapping[str, tuple[int, int]] = MappingProxyType({})


class Block(BaseModel):
    """A block of keys of a configuration: frozen, and strict about names and types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


@dataclass(frozen=True)
class Prompt:
    """One query q: what the model reads (``token_ids``) and the reference that responses are graded by (``answer``).

    A server may get ``text`` instead, which for a chat is its messages as JSON, perhaps with other fields of the
    request; ``token_ids`` are empty then.
    ``extra`` is that of its `Problem`: the tests of code, and the other columns of a user's own file. Where prompts
    come from several sources, ``source`` is the name of its own.
    """

    benchmark: str
    id: str
    problem: str
    answer: str | None
    text: str
    token_ids: tuple[int, ...]
    extra: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""


@dataclass(frozen=True)
class Rollout:
    """One sampled response o.

    ``token_ids`` are exactly the sampled ids; the last may be a stop token, or complete a stop string. Lengths decide
    masks, pad ids never do. A server that does not tell the ids leaves them empty. ``logp`` are their log-probabilities
    under the sampling policy at the sampling temperature, before any truncation by top_p or top_k. ``entropy`` is the
    exact entropy in nats of each next-token distribution at temperature 1. Both are None if the engine does not know
    them, as in a replay. ``text`` has no special tokens and ends before a stop string. Where thoughts are told from
    answers, ``text`` is the answer, and ``thought`` is all that stands before it.
    """

    token_ids: tuple[int, ...]
    text: str
    finish_reason: FinishReason
    logp: tuple[float, ...] | None = None
    entropy: tuple[float, ...] | None = None
    thought: str = ""

    def without_thought(self, markers: str | None, prompt: Prompt) -> Self:
        """The same with the thought apart, if there are ``markers`` that tell it."""
        if markers is None:
            return self
        thought, answer = split_thought(self.text, markers, prompt.text)
        return replace(self, text=answer, thought=thought)


@dataclass(frozen=True)
class Sampling:
    """How responses are drawn. ``top_k`` 0 and ``top_p`` 1 mean no truncation; ``max_new_tokens`` counts the stop.

    A response ends at the first token after which its text holds one of the strings ``stop``.

    Raises UsageError if a stop string is empty, given twice, or no text.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_new_tokens: int = 1024
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        checked_stop(self.stop)


def checked_stop(stop: tuple[str, ...]) -> tuple[str, ...]:
    """``stop``; raises UsageError unless all are Unicode text, none is empty and no two are the same."""
    has_surrogate = any("\ud800" <= character <= "\udfff" for text in stop for character in text)
    if "" in stop or len(set(stop)) < len(stop) or has_surrogate:
        raise UsageError(f"stop strings are texts that are not empty, each given once; found {list(stop)!a}")
    return stop


@dataclass(frozen=True)
class Metric:
    """A number that reduces over micro-batches, minibatches and ranks by its ``kind``.

    For ``mean`` the value is a SUM that is divided by ``count`` in the end; the other kinds ignore ``count``.
    """

    kind: Literal["mean", "sum", "max"]
    value: float | Tensor
    count: float | Tensor = 1.0


@dataclass(frozen=True)
class Advantages:
    """One advantage a row in float64, and metrics about them (plain numbers, names as in metrics.jsonl)."""

    value_B: Tensor
    metrics: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.value_B.ndim != 1:  # it would be spread over the tokens, and train something else
            raise ValueError(f"advantages of shape {tuple(self.value_B.shape)}: expected one for each row")


class SameSolution(Block):
    """Which correct responses to a prompt are the same solution: the clustering of `quatro eval ucc`."""

    similarity: Literal["exact", "tfidf", "rouge-l", "jaccard", "edit"] | None = Field(
        default=None,
        description="how two correct responses are compared; null, as in quatro eval ucc: exact for short answers, "
        "tfidf for code, else rouge-l",
    )
    threshold: float | None = Field(
        default=None, gt=0, le=1, description="similarity from which they are the same solution; null: as in eval ucc"
    )

    @model_validator(mode="after")
    def _threshold_is_of_a_similarity(self) -> Self:
        if self.threshold is not None and self.similarity in (None, "exact"):
            raise ValueError(f"threshold {self.threshold:g} needs a similarity, and not exact: rouge-l, for example")
        return self

    def solutions(self, prompt: Prompt, rollouts: Sequence[Rollout], is_right: Sequence[bool]) -> list[int]:
        """The solution of each of ``rollouts``, numbered from 0 by first appearance; -1 for one that is not right."""
        from evals.metrics.counting import Clustering, labels_by_setting, solutions
        from evals.samples.types import GradedProblem

        thresholds = None if self.threshold is None else [self.threshold]
        settings = Clustering(self.similarity and [self.similarity], thresholds).settings(prompt.benchmark)
        texts = [rollout.text for rollout in compress(rollouts, is_right)]
        head = (prompt.benchmark, prompt.id, prompt.answer, len(rollouts), texts, prompt.problem)
        unique = solutions(GradedProblem(*head, prompt.extra.get("entry_point")), settings[0].tokens)
        labels = iter(labels_by_setting(unique, settings)[settings[0]])
        return [next(labels) if one else -1 for one in is_right]


def rarity(solutions: Sequence[int]) -> list[float]:
    """For each of a prompt's `SameSolution.solutions`, the share of the other correct ones that differ from it.

    It is 1 for the only correct one, and for what is not correct.
    """
    times = Counter(one for one in solutions if one >= 0)
    others = times.total() - 1
    return [1.0 - (times[one] - 1) / others if one >= 0 and others else 1.0 for one in solutions]


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What a method asks of the loop beyond rollouts and rewards; the loop never asks which method it is.

    ``overlong_buffer``: a penalty grows to ``overlong_factor`` over this many tokens before the length limit (0: no
    penalty; None: a fifth of the limit). Only the advantages see the penalty. ``min_rollouts``: the fewest rollouts of
    a prompt that the configuration may ask for.

    `Method.advantages` gets what is asked of each rollout by keyword. ``solutions``: ``solution_B``, the number of its
    solution within its prompt, -1 if it is not correct. ``old_logp``: ``old_logp_B`` and ``length_B``, log pi_old(o)
    and the number of tokens.
    """

    overlong_buffer: int | None = 0
    overlong_factor: float = 1.0
    min_rollouts: int = 1
    solutions: SameSolution | None = None
    old_logp: bool = False


@dataclass(frozen=True)
class LossTerm:
    """``coefficient * sum(value * weight) / W`` where W is the weight summed over minibatch, micro-batches and ranks.

    ``value`` and ``weight`` share one shape, (B,) or (B, T). ``weight`` never depends on the policy, so W is known
    before the first backward pass, and neither micro-batch size nor world size changes a gradient.
    """

    name: str
    value: Tensor
    weight: Tensor
    coefficient: float = 1.0

    def __post_init__(self) -> None:
        if self.value.shape != self.weight.shape or self.value.ndim not in (1, 2):
            shapes = f"value {tuple(self.value.shape)} and weight {tuple(self.weight.shape)}"
            raise ValueError(f"the loss term {self.name} has {shapes}: expected one shape, (rows,) or (rows, tokens)")


@dataclass(frozen=True)
class Loss:
    """What a method wants minimised, the sum of ``terms``, and metrics about it."""

    terms: Sequence[LossTerm]
    metrics: Mapping[str, Metric] = field(default_factory=dict)


@dataclass(frozen=True)
class Batch:
    """Rows in no particular order, padded on the right; what stands in the padding is ignored.

    ``old_logp_BT`` are log-probabilities under pi_old, ``ref_logp_BT`` under the reference pi_pre (None if beta is 0).
    ``mask_BT`` is True on response tokens. ``group_B`` says which prompt a row answers, ``group_size_B`` how many
    rollouts that prompt has in the whole batch, of which a micro-batch may hold a part. ``max_new_tokens`` is the
    constant T of `seq-mean-token-sum-norm`. ``sampler_logp_BT`` are the engine's own log-probabilities, if
    `rollout.correction` needs them, and ``has_loss_B`` says which rows have a loss (None: all): the trainer uses both.
    """

    old_logp_BT: Tensor
    mask_BT: Tensor
    advantage_B: Tensor
    group_B: Tensor
    group_size_B: Tensor
    max_new_tokens: int
    ref_logp_BT: Tensor | None = None
    sampler_logp_BT: Tensor | None = None
    has_loss_B: Tensor | None = None
