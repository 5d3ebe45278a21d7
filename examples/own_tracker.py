"""A tracker of your own: mlflow, in its file store ./mlruns, or where MLFLOW_TRACKING_URI says.

    quatro train quickstart -s 'tracking=[examples.own_tracker:Mlflow]' -o runs/tracked

It needs `pip install mlflow`. Of a resumed run a new one takes the place, with the whole history.
"""

import os
from collections.abc import Mapping

import mlflow

from quatro.config.load import value_texts
from quatro.runs.trackers import Tracked


class Mlflow:
    """One run of mlflow, whose id stands in RUN/mlflow-id."""

    def start(self, run: Tracked) -> None:
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # mlflow would rather have a database
        mlflow.set_tracking_uri(os.environ.get("MLFLOW_TRACKING_URI", "mlruns"))
        mlflow.set_experiment(run.config.tracking.project)
        if (file := run.path / "mlflow-id").exists():
            mlflow.delete_run(file.read_text())
        file.write_text(mlflow.start_run(run_name=run.name).info.run_id)
        mlflow.log_params(value_texts(run.config))
        for step, metrics in run.rows:
            self.log(step, metrics)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        # No @ is allowed, and in the file store `loss` cannot stand beside `loss/policy`.
        named = {name.replace("@", "_at_").replace("/", "."): value for name, value in metrics.items()}
        mlflow.log_metrics(named, step=step)

    def end(self, is_failed: bool) -> None:
        mlflow.end_run("FAILED" if is_failed else "FINISHED")
