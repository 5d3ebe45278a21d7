"""Which phase has which seconds."""

from quatro.loop import position
from quatro.loop.position import Stopwatch


def test_what_the_device_has_still_to_do_counts_as_the_phase_that_asked_for_it(monkeypatch):
    now, queued = [0.0], [0.0]

    def wait():
        now[0] += queued[0]
        queued[0] = 0.0

    monkeypatch.setattr(position.time, "monotonic", lambda: now[0])
    stopwatch = Stopwatch()
    stopwatch.wait = wait
    stopwatch.phase("ref_logp")
    queued[0] = 5.0
    stopwatch.phase("update")
    now[0] += 1.0
    queued[0] = 2.0
    seconds = stopwatch.take(num_tokens=0, num_passes=0)
    assert (seconds["perf/ref_logp_s"], seconds["perf/update_s"], seconds["perf/step_s"]) == (5.0, 3.0, 8.0)
