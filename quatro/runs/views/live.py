"""What a person watching a run sees: a panel of the run as it is at this moment, or a line now and then.

`quatro train` draws the `Panel` on a terminal (`quatro_cli/output.py`), `quatro.show()` in a notebook.
"""

import contextlib
import html
import math
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from evals.results.training_metrics import TRAINING_METRICS
from evals.text import clock_text, visible
from quatro.config import Config
from quatro.runs.metrics import read_metrics
from quatro.types import Stage

SPARKS = "▁▂▃▄▅▆▇█"
SPARK_WIDTH = 32
# Without a panel, results are said this often, and until the first result how far it is.
RESULT_INTERVAL_S, STAGE_INTERVAL_S = 10.0, 30.0
NOTEBOOK_INTERVAL_S = 0.5

Row = Mapping[str, float | None]  # metrics of a step, by their names in metrics.jsonl

# Phases of the loop in words, where the name is not the word.
WORDS = {
    "prepare": "preparing",
    "load": "loading the model",
    "prompts": "drawing",
    "generate": "drawing",
    "reward": "grading",
    "update": "learning",
    "checkpoint": "saving",
    "other": "",
    "old_logp": "old log-probs",
    "ref_logp": "reference log-probs",
}
COUNTS = {"tokens": "{:,} tokens", "passes": "pass {} of {}", "minibatches": "minibatch {} of {}"}
_OF_ONE = re.compile("eval/(.+)/pass@1")  # of one of several benchmarks
LINE = {"reward": "reward/mean", "entropy": "entropy/token_mean", "lambda": "dual/lam_mean", "kl": "kl/new_old"}
SAID = ("load", "generate", "update")  # what a line is said of where it begins


@dataclass(frozen=True, repr=False)
class Panel:
    """One state of a long command: ``done`` of ``total``, and ``rows`` of a label and a value."""

    title: str
    done: int
    total: int
    rows: Sequence[tuple[str, str]]

    def __repr__(self) -> str:
        width = max(len(label) for label, _ in self.rows)
        return visible("\n".join([self.title, *(f"{label:{width}}  {value}" for label, value in self.rows)]), keep="\n")

    def _repr_html_(self) -> str:
        return f'<progress value="{self.done}" max="{self.total}"></progress><pre>{html.escape(repr(self))}</pre>'


class TrainingView:
    """An observer of the run in a folder, which need not be there yet: `panel` shows it, whatever thread asks.

    Where nothing draws the panel, ``say`` gets lines: the stages up to the first result, and then results now and then.
    """

    def __init__(self, run: Path, config: Config, *, say: Callable[[str], object] | None = None) -> None:
        self._run, self._config, self._say = run, config, say
        self._started = self._since = self._result_at = self._said_at = time.monotonic()
        self._stage, self._has_result = Stage("prepare"), False
        self._recall()

    def _recall(self) -> None:
        """The run goes on from its metrics."""
        self._rewards: deque[float] = deque(maxlen=SPARK_WIDTH)
        self._step_s: deque[float] = deque(maxlen=20)
        self._step, self._pace, self._before_s = 0, 0.0, 0.0
        self._best = (-math.inf, 0)  # Pass@1 of the best evaluation, and minus its step
        self._base = ""  # Pass@1 before training, in words
        self._evaluated = ""  # the last evaluation and the best one, in words
        self._rows: list[tuple[str, str]] = []
        for metrics in read_metrics(self._run):
            self._note(metrics)
            self._before_s += metrics.get("perf/step_s") or 0.0

    # --- what the run tells -----------------------------------------------------------------------------------------

    def __call__(self, metrics: Row) -> None:
        """An iteration is finished."""
        self._note(metrics)
        self._result_at, is_first, self._has_result = time.monotonic(), not self._has_result, True
        is_last = self._step == self._config.steps
        if is_first or is_last or "eval/pass@1" in metrics or self._result_at - self._said_at >= RESULT_INTERVAL_S:
            self._tell(self._line(metrics))

    def doing(self, stage: Stage) -> None:
        """The run is at ``stage``; the thread that trains waits for this."""
        before, self._stage, now = self._stage, stage, time.monotonic()
        if is_new := before[:2] != stage[:2]:
            self._since = now
            if before.phase == "load":  # a resume may have taken back what came after its checkpoint
                self._recall()
                self._result_at = now
        is_due = (is_new and stage.phase in SAID) or now - self._said_at >= STAGE_INTERVAL_S
        if is_due and not self._has_result:
            self._tell(f"step {self._step + 1}/{self._config.steps}: {stage_text(stage)}")

    def _tell(self, line: str) -> None:
        self._said_at = time.monotonic()
        if self._say is not None:
            self._say(line)

    def _note(self, metrics: Row) -> None:
        step = self._step = int(metrics.get("step") or 0)
        reward, step_s, pass_1 = (metrics.get(name) for name in ("reward/mean", "perf/step_s", "eval/pass@1"))
        if reward is not None and math.isfinite(reward):
            self._rewards.append(reward)
        if step_s is not None:
            self._step_s.append(step_s)
            self._pace = fmean(self._step_s)  # another thread reads it
        if (base := metrics.get("base/pass@1")) is not None:
            self._base = f"   base {number(base)}"
        if pass_1 is not None:
            best, at = self._best = max(self._best, (pass_1, -step))
            last = f"pass@1 {number(pass_1)} in step {step}"
            each = (
                f"   {one[1]} {number(value)}" for name, value in metrics.items() if (one := _OF_ONE.fullmatch(name))
            )
            self._evaluated = f"{last}   best {number(best)} in step {-at}{self._base}{''.join(each)}"
        self._rows = self._rows_of(metrics)

    # --- what is shown of it ----------------------------------------------------------------------------------------

    def panel(self) -> Panel:
        """The run at this moment."""
        now, steps = time.monotonic(), self._config.steps
        elapsed = clock_text(self._before_s + now - self._started)
        rows = [("step", f"{self._step}/{steps}   elapsed {elapsed}   left {self._left(now)}")]
        if text := stage_text(self._stage):
            rows.append(("now", f"{text}   {clock_text(now - self._since)}"))
        return Panel(str(self._run), self._step, steps, [*rows, *self._rows])

    def _rows_of(self, metrics: Row) -> list[tuple[str, str]]:
        """Rows of one step; whatever is missing is shown as a dash."""
        rows = dict[str, str]()
        for metric in TRAINING_METRICS:
            view, value = metric.view, metrics.get(metric.name)
            if view is None or (view.is_optional and value is None):
                continue
            shown = view.text.format(number(value, share=metric.is_share))
            rows[view.row] = f"{rows[view.row]} {shown}" if view.row in rows else shown
        rows["reward"] += f"   {sparkline(self._rewards)}"
        kl, delta = metrics.get("kl/new_old"), metrics.get("dual/delta") or self._config.method.kl_radius
        if kl is not None and delta is not None:
            rows["KL new‖old"] += f"   {number(kl / delta, 2)} x delta {delta:.3g}"
        errors, timeouts = (metrics.get(f"reward/{name}") or 0.0 for name in ("errors", "timeouts"))
        if errors or timeouts:
            rows["failures"] = f"of the reward: {errors:g} errors, {timeouts:g} timeouts"
        if self._evaluated:
            rows["evaluation"] = self._evaluated
        return list(rows.items())

    def _line(self, metrics: Row) -> str:
        parts = [f"step {self._step}/{self._config.steps}"]
        parts += [f"{word} {number(metrics[name])}" for word, name in LINE.items() if name in metrics]
        if (ratio := metrics.get("kl/ratio_to_delta")) is not None:
            parts[-1] += f" ({number(ratio, 2)} x delta)"
        if "eval/pass@1" in metrics:
            parts.append(f"eval {self._evaluated}")
        parts += [f"{number(metrics.get('perf/step_s'), 2)} s", f"left {self._left(self._result_at)}"]
        return "  ".join(parts)

    def _left(self, now: float) -> str:
        left = self._config.steps - self._step
        return (
            clock_text(max(left * self._pace - (now - self._result_at), (left - 1) * self._pace)) if self._pace else "-"
        )


def stage_text(stage: Stage) -> str:
    """`drawing 120/256 responses, 3,400 tokens`; empty where nothing goes on that has a name."""
    said = WORDS.get(stage.phase, stage.phase)
    if stage.within == "eval":
        said = "evaluation" if stage.phase == "generate" else f"evaluation, {said}"
    counts = [
        COUNTS.get(name, f"{{:,}}/{{:,}} {name}").removesuffix("" if total else " of {}").format(done, total)
        for name, (done, total) in stage.counts.items()
        if name != "minibatches" or total > 1
    ]
    return f"{said} {', '.join(counts)}".strip()


def sparkline(values: Sequence[float]) -> str:
    """One block character a value, lowest to highest; equal values are a line in the middle."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    top = len(SPARKS) - 1
    return "".join(
        SPARKS[round((value - low) / (high - low) * top) if high > low else top // 2 + 1] for value in values
    )


def number(value: float | None, digits: int = 3, *, share: bool = False) -> str:
    """A number for a narrow column, a ``share`` as percent; a dash where it is unknown."""
    if value is None or not math.isfinite(value):
        return "-"
    if share:
        return f"{100 * value:.1f} %"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"


class Show:
    """An ``observer`` for `fine_tune` that shows the run as `quatro train` does.

    In a notebook it shows a panel: the progress inside the iteration, a clock, and the metrics of the last iteration.
    Elsewhere it prints lines on stderr.

        >>> observer = quatro.show()  # then quatro.fine_tune("quickstart", "runs/shown", observer=observer)
    """

    @contextlib.contextmanager
    def of(self, run: Path, config: Config) -> Iterator[TrainingView]:
        """The observer of ``run``, which is shown inside."""
        ipython: Any = sys.modules.get("IPython")
        kind = None if ipython is None else type(ipython.get_ipython()).__name__
        if kind in (None, "NoneType", "TerminalInteractiveShell"):  # a terminal prints each update below the last
            yield TrainingView(run, config, say=lambda line: sys.stderr.write(f"{visible(line)}\n"))
            return
        view, is_over = TrainingView(run, config), threading.Event()
        shown = ipython.display.display(view.panel(), display_id=True)

        def tick() -> None:
            while not is_over.wait(NOTEBOOK_INTERVAL_S):
                shown.update(view.panel())

        thread = threading.Thread(target=tick, daemon=True)
        thread.start()
        try:
            yield view
        finally:
            is_over.set()
            thread.join()
            shown.update(view.panel())


show = Show
