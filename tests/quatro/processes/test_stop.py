"""Signals ask for an end; the second one insists."""

import os
import signal
import threading

import pytest

from quatro.processes.stop import StopRequest


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_is_a_request_with_its_exit_code(number, code):
    heard = []
    with StopRequest(notify=heard.append) as stop:
        assert not stop.requested
        os.kill(os.getpid(), number)
        assert stop.requested
        assert stop.exit_code == code
    assert len(heard) == 1
    assert signal.Signals(number).name in heard[0]


def test_the_second_interrupt_stops_at_once():
    with StopRequest():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_the_second_termination_exits_with_143():
    with StopRequest():
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(SystemExit) as ended:
            os.kill(os.getpid(), signal.SIGTERM)
    assert ended.value.code == 143


def test_the_handlers_before_are_put_back():
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with StopRequest():
        assert signal.getsignal(signal.SIGINT) is not before[signal.SIGINT]
    assert {number: signal.getsignal(number) for number in before} == before


def test_a_request_works_from_any_thread():
    seen = []

    def work() -> None:
        with StopRequest() as stop:
            stop.request()
            seen.append(stop.exit_code)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [130]
