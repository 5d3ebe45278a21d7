"""What a person watching a run sees: a panel on a terminal, one line a step elsewhere; a bar at a warm start."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Mapping

from quatro_cli.output import Panel, output

SPARKS = "▁▂▃▄▅▆▇█"
SPARK_WIDTH = 32


class TrainingView:
    """Turns the metrics of each step into a `Panel`; remembers rewards for the sparkline and step times for the ETA."""

    def __init__(self, title: str, *, steps: int, delta: float | None) -> None:
        self._title = title
        self._steps = steps
        self._delta = delta
        self._rewards: deque[float] = deque(maxlen=SPARK_WIDTH)
        self._step_s: deque[float] = deque(maxlen=20)
        self._started = time.monotonic()
        self._best = (-math.inf, 0)  # Pass@1 of the best evaluation, and minus its step
        self._base = ""  # Pass@1 before training, in words
        self._evaluated = ""  # the last evaluation and the best one, in words

    def recall(self, rows: Iterable[Mapping[str, float | None]]) -> None:
        """Remembers the evaluations of an earlier part of the run."""
        for metrics in rows:
            self._note_evaluation(metrics)

    def _note_evaluation(self, metrics: Mapping[str, float | None]) -> bool:
        if (base := metrics.get("base/pass@1")) is not None:
            self._base = f"   base {number(base)}"
        pass_1 = metrics.get("eval/pass@1")
        if pass_1 is None:
            return False
        step = int(metrics.get("step") or 0)
        self._best = max(self._best, (pass_1, -step))
        best, at = self._best
        self._evaluated = f"pass@1 {number(pass_1)} in step {step}   best {number(best)} in step {-at}{self._base}"
        return True

    def panel(self, metrics: Mapping[str, float | None]) -> Panel:
        """``metrics`` of one step, by their names in metrics.jsonl; whatever is missing is shown as a dash."""
        step = int(metrics.get("step") or 0)
        reward = metrics.get("reward/mean")
        if reward is not None and math.isfinite(reward):
            self._rewards.append(reward)
        step_s = metrics.get("perf/step_s")
        if step_s is not None:
            self._step_s.append(step_s)
        is_evaluated = self._note_evaluation(metrics)
        rows, line = self._rows(metrics, step), self._line(metrics, step)
        return Panel(self._title, step, self._steps, rows, line, is_said=is_evaluated)

    def _rows(self, metrics: Mapping[str, float | None], step: int) -> list[tuple[str, str]]:
        from evals.text import clock_text
        from evals.training_metrics import TRAINING_METRICS

        elapsed = clock_text(time.monotonic() - self._started)
        rows = {"step": f"{step}/{self._steps}   elapsed {elapsed}   left {self._left(step)}"}
        for metric in TRAINING_METRICS:
            view, value = metric.view, metrics.get(metric.name)
            if view is None or (view.is_optional and value is None):
                continue
            shown = view.text.format(percent(value) if metric.is_share else number(value))
            rows[view.row] = f"{rows[view.row]} {shown}" if view.row in rows else shown
        rows["reward"] += f"   {sparkline(self._rewards)}"
        kl, delta = metrics.get("kl/new_old"), metrics.get("dual/delta") or self._delta
        if kl is not None and delta is not None:
            rows["KL new‖old"] += f"   {number(kl / delta, 2)} x delta {delta:.3g}"
        errors, timeouts = (metrics.get(f"reward/{name}") or 0.0 for name in ("errors", "timeouts"))
        if errors or timeouts:
            rows["failures"] = f"of the reward: {errors:g} errors, {timeouts:g} timeouts"
        if self._evaluated:
            rows["evaluation"] = self._evaluated
        return list(rows.items())

    def _line(self, metrics: Mapping[str, float | None], step: int) -> str:
        parts = [f"step {step}/{self._steps}", f"reward {number(metrics.get('reward/mean'))}"]
        parts.append(f"entropy {number(metrics.get('entropy/token_mean'))}")
        if metrics.get("dual/lam_mean") is not None:
            parts.append(f"lambda {number(metrics.get('dual/lam_mean'))}")
        if metrics.get("kl/new_old") is not None:
            ratio = metrics.get("kl/ratio_to_delta")
            beside = f" ({number(ratio, 2)} x delta)" if ratio is not None else ""
            parts.append(f"kl {number(metrics.get('kl/new_old'))}{beside}")
        if metrics.get("eval/pass@1") is not None:
            parts.append(f"eval {self._evaluated}")
        parts += [f"{number(metrics.get('perf/step_s'), 2)} s", f"left {self._left(step)}"]
        return "  ".join(parts)

    def _left(self, step: int) -> str:
        from evals.text import clock_text

        if not self._step_s:
            return "-"
        return clock_text((self._steps - step) * sum(self._step_s) / len(self._step_s))


def sparkline(values: deque[float] | list[float]) -> str:
    """One block character a value, lowest to highest; equal values are a line in the middle."""
    if not values:
        return ""
    low, high = min(values), max(values)
    if high == low:
        return SPARKS[len(SPARKS) // 2] * len(values)
    return "".join(SPARKS[round((value - low) / (high - low) * (len(SPARKS) - 1))] for value in values)


def number(value: float | None, digits: int = 3) -> str:
    """A number for a narrow column; a dash where it is unknown."""
    if value is None or not math.isfinite(value):
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def percent(value: float | None) -> str:
    """A share as percent; a dash where it is unknown."""
    return "-" if value is None or not math.isfinite(value) else f"{100 * value:.1f} %"


def ensure_model(name: str) -> str:
    """The folder of ``name``, made first if it is an embedded model that the cache does not hold.

    That is its warm start, which happens once and takes about a minute: a bar shows it.
    """
    from quatro.policy.embedded import is_cached, recipe_of, resolve_model

    if is_cached(name):
        return resolve_model(name)
    output.info(f"{name} is not in the cache: teaching it its task (once, about a minute)")
    with output.progress("warm start", recipe_of(name).steps) as bar:
        return resolve_model(name, progress=lambda step, steps, loss: bar(step, f"loss {loss:.2f}"))
