"""What `import quatro` offers: fine-tune, draw samples, measure, and read what is on disk as data frames.

    >>> run = quatro.fine_tune("quickstart", "runs/mine", overrides={"steps": 2, "method.delta": 0.01})
    >>> samples = quatro.draw_samples(run, "countdown", n=4, grade=True)
    >>> quatro.measure(samples, k=[1, 4], metric="pass@k")
    Pass@k (%)
    benchmark        problems  n  k=1  k=4
    Digit countdown       200  4  ...  ...
    >>> len(quatro.read_samples(samples))
    800

`import quatro` itself loads neither torch nor pandas. A function that takes a path also takes a run that another
function returned. Errors that a user can correct are of the class `evals.errors.QuatroError`, which is a ValueError.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike

from evals import estimators
from evals.clustering import cluster, cluster_sizes
from evals.errors import UsageError
from evals.estimators import Floats
from evals.files.frames import DataFrame
from evals.metrics.measuring import compare as compare
from evals.metrics.measuring import measure as measure
from evals.metrics.measuring import paths_of
from evals.metrics.studies.clusters import clusters as clusters
from evals.results.document import Result as Result
from evals.results.document import read_result as read_result
from quatro.config import Config as Config
from quatro.config import load_config, pinned
from quatro.config.load import may_change, path_texts, refuse_lost
from quatro.registry import METHODS as METHODS
from quatro.runs.metrics import metrics_frame
from quatro.runs.views.live import Show
from quatro.runs.views.live import show as show
from quatro.runs.views.report import report as report
from quatro.runs.views.summary import RunSummary, describe_run
from quatro.sample.drawing import draw_samples as draw_samples
from quatro.types import Observer

PathLike = str | os.PathLike[str]

logger = logging.getLogger(__name__)


def fine_tune(
    config: Config | PathLike,
    out: PathLike,
    *,
    overrides: Mapping[str, Any] | None = None,
    resume: bool = False,
    observer: Observer | Show | None = None,
) -> RunSummary:
    """Trains a model in the new folder ``out``, as `quatro train` does, and returns the finished run.

    The first Ctrl-C saves a checkpoint and raises KeyboardInterrupt, a second one stops at once; ``resume`` continues
    the run.

        >>> run = quatro.fine_tune("quickstart", "runs/gspo", overrides={"method.name": "gspo", "steps": 2})
        >>> run.status, run.step, run.config.method.name
        ('done', 2, 'gspo')

    Args:
        config: a `Config`, the name of a shipped configuration, a YAML file, or a run whose configuration is used.
        out: the run's folder, which must be new or empty.
        overrides: values for keys of ``config`` by dotted name; `quatro config schema` lists the keys.
        resume: if ``out`` holds a run of this configuration, continue it; a finished one is returned. Overrides of
            `steps`, `checkpoint`, `early_stop`, `save_rollouts` and `tracking` may differ: `{"steps": 200}` trains on.
            Model and data may lie elsewhere than when the run began, but must be the same.
        observer: called with the metrics of each iteration; `quatro.show()` shows the run while it trains.

    Raises:
        UsageError: a value is out of range, a name is unknown, or ``out`` is not empty or holds another run.
        MissingError: the model, the data, a package or a GPU is not on this machine.
        DataError: a file is damaged, or a checkpoint does not belong to the run.
        DivergedError: a loss, gradient or reward is not finite.
    """
    from quatro.launch import begin
    from quatro.launch.describe import with_sizes
    from quatro.processes.launcher import launched
    from quatro.processes.stop import StopRequest
    from quatro.processes.world import World
    from quatro.runs.directory import refuse_occupied
    from quatro.runs.identity import why_finished
    from quatro.train import train

    if launched().size > 1:
        raise UsageError("fine_tune trains in one process; start several with `torchrun ... -m quatro_cli train`")
    path, overrides = Path(out), overrides or {}
    goes_on = resume and (path / "config.yaml").is_file()
    if goes_on:
        given = pinned(_config(config, overrides))
        changes = {key: value for key, value in overrides.items() if may_change(key)}
        changes |= {key: text for key, text in path_texts(given).items() if key in given.paths}
        wanted = begin.config_to_resume(path, _texts(changes))
        begin.refuse_other_run(path, wanted, given)
        if why_finished(path, wanted):
            return describe_run(path)
    else:
        wanted, notes = begin.begin_with_weights(_config(config, overrides))
        for note in notes:
            logger.info(note)
        begin.check_processes(wanted, 1, source="CONFIG" if isinstance(config, Config) else os.fspath(config))
        refuse_occupied(path)
    opened = observer.of(path, wanted) if isinstance(observer, Show) else nullcontext(observer)
    with opened as told, closing(begin.prepare(wanted)) as prepared:
        prepared = prepared if goes_on else with_sizes(prepared)
        with begin.open_run(prepared, path, World(), resume=goes_on) as run, StopRequest(notify=logger.info) as stop:
            train(run.config, run, observer=told, stop=stop, prepared=prepared)
    if stop.requested:
        raise KeyboardInterrupt if stop.exit_code == 130 else SystemExit(stop.exit_code)
    return describe_run(path)


def _config(config: Config | PathLike, overrides: Mapping[str, Any]) -> Config:
    if not isinstance(config, Config):
        found = load_config(os.fspath(config), overrides=_texts(overrides))
        refuse_lost(found, f"quatro train {config}")
        return found
    if overrides:
        raise UsageError("overrides change a configuration that is read; give its name or file, not a Config")
    return config


def _texts(overrides: Mapping[str, Any]) -> list[str]:
    return [f"{key}={json.dumps(value, default=os.fspath)}" for key, value in overrides.items()]


def load_run(path: PathLike) -> RunSummary:
    """The run in a folder: its `config`, `status`, `step`, `checkpoints` and the `metrics` of its last iteration.

        >>> run = quatro.load_run("runs/first")
        >>> run.status, run.steps, run.config.method.delta, run.checkpoints
        ('done', 2, 0.01, (2,))

    Raises:
        UsageError: ``path`` is not a run.
        DataError: a file of the run cannot be read.
    """
    return describe_run(Path(path))


def read_metrics(run: PathLike) -> DataFrame:
    """The metrics of a run as a data frame, one row per iteration; docs/metrics.md says what they mean.

    The column `step` is int64. Every other column is float64, with NaN if the metric is unknown or not finite.

        >>> metrics = quatro.read_metrics("runs/first")
        >>> metrics["step"].tolist(), bool((metrics["kl/new_old"] >= 0).all())
        ([1, 2], True)

    Raises:
        UsageError: ``run`` is not a run.
        DataError: a line of metrics.jsonl is damaged.
    """
    return metrics_frame(describe_run(Path(run)).path)


def read_samples(source: PathLike | Sequence[PathLike], *, grade: bool = False) -> DataFrame:
    """Samples as a data frame, one row per sample, sorted by benchmark, id and sample_index.

    Columns: benchmark, id, prompt, completion, answer and finish_reason are texts, `sample_index` is int64, `correct`
    is boolean, and NA if the sample is not graded.

        >>> samples = quatro.read_samples("runs/first")
        >>> len(samples), samples["id"].nunique(), str(samples["correct"].dtype)
        (400, 200, 'boolean')

    Args:
        source: one or several samples files, runs or folders, or the result of `draw_samples`.
        grade: grade the samples that lack a grade. Grades that `quatro eval grade` has written are used.

    Raises:
        UsageError: a file is named twice.
        DataError: a file is missing, or a row breaks the contract; the message names file and line.
    """
    from evals.samples.graded import read_graded
    from evals.samples.reading import read_samples as read_rows

    paths = paths_of(source)
    found = read_graded(paths)[0] if grade else read_rows(paths, keep_extra=False)
    for warning in found.warnings:
        logger.warning(warning)
    return found.frame()


@overload
def pass_at_k(n: int, c: int, k: int) -> float: ...
@overload
def pass_at_k(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> float | Floats: ...
def pass_at_k(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> float | Floats:
    """The exact, unbiased estimate of the chance that at least one of k samples is correct, with c of n correct.

    With arrays of n and c (or columns of a data frame) the result has one row per problem; with several k it has one
    column per k. The mean over the problems is a benchmark's Pass@k.

        >>> quatro.pass_at_k(4, 1, 2)
        0.5
        >>> quatro.pass_at_k([4, 4], [1, 4], [1, 2])
        array([[0.25, 0.5 ],
               [1.  , 1.  ]])

    Raises:
        ValueError: n < 1, k outside 1..n, or c outside 0..n.
    """
    n_P, c_P = np.broadcast_arrays(np.asarray(n), np.asarray(c))
    ks = np.asarray(k)
    value_PK = estimators.pass_at_ks(n_P.ravel().tolist(), c_P.ravel().tolist(), ks.ravel().tolist())
    return _number_or_array(value_PK.reshape(n_P.shape + ks.shape))


def ucc_at_k(
    texts: Iterable[str],
    correct: ArrayLike,
    k: int | Sequence[int],
    *,
    similarity: str = "rouge-l",
    threshold: float | None = None,
    linkage: str = "components",
    tokens: str = "math",
) -> float | Floats:
    """Expected number of different correct solutions among k samples, estimated from all samples of one problem.

    A benchmark's UCC@k is the mean over its problems. Texts are compared as they are: strip them first if white space
    around them does not matter. The default similarity is always `rouge-l`.

        >>> texts, correct = ["3+4", "4+3", "3+4", "5+1"], [True, True, True, False]
        >>> quatro.ucc_at_k(texts, correct, 4, similarity="exact")
        2.0
        >>> quatro.ucc_at_k(texts, correct, [1, 2], similarity="exact").round(3)
        array([0.75 , 1.333])

    Args:
        texts: every sample of the problem, the incorrect ones included.
        correct: whether each sample is correct.
        k: one number of draws, or several.
        similarity: a name of docs/similarity.md, such as `exact` or `tfidf`, or your own as `module:function`.
        threshold: two texts that are at least this similar count as the same. Default: that of the similarity
            (docs/similarity.md).
        linkage: `components`, `complete`, `average` or `greedy`.
        tokens: `math`, `sklearn`, `whitespace`, or `code`, which compares programs without comments and layout.

    Raises:
        UsageError: a sample lacks a grade, or an option is unknown or out of range.
        ValueError: k outside 1..n.
    """
    flags = np.asarray(correct).tolist()
    unknown = next((place for place, flag in enumerate(flags) if not (isinstance(flag, int) and flag in (0, 1))), None)
    if unknown is not None:
        raise UsageError(f"correct[{unknown}] is {flags[unknown]!r}, expected True or False; grade the samples first")
    chosen = [text for text, flag in zip(texts, flags, strict=True) if flag]
    labels = cluster(chosen, similarity=similarity, threshold=threshold, linkage=linkage, tokens=tokens)
    ks = np.asarray(k)
    value_PK = estimators.ucc_at_ks([len(flags)], [cluster_sizes(labels)], ks.ravel().tolist())
    return _number_or_array(value_PK.reshape(ks.shape))


def _number_or_array(value: Floats) -> float | Floats:
    value += 0.0  # -0.0 becomes 0.0
    return value if value.ndim else float(value)
