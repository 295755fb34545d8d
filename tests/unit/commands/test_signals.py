"""Signals are raised once, held back where they must be, and heeded no more when the report is written."""

from __future__ import annotations

import os
import signal

import pytest

from ci_autotest.commands.signals import Signals


def send() -> None:
    os.kill(os.getpid(), signal.SIGINT)


class Sending:
    """What is interrupted as it is destroyed, where an exception is printed and forgotten."""

    def __del__(self) -> None:
        send()


def test_installed__second_signal__is_not_raised():
    with Signals().installed():
        with pytest.raises(KeyboardInterrupt):
            send()
        send()


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_installed__after_the_block__answers_as_before(sent: signal.Signals):
    found = signal.signal(sent, signal.default_int_handler)  # what starts the tests may ignore it: nohup does
    try:
        with Signals().installed():
            assert signal.getsignal(sent) != signal.default_int_handler
        assert signal.getsignal(sent) == signal.default_int_handler
    finally:
        signal.signal(sent, found)


def test_installed__hangup_is_ignored__stays_so():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Signals().installed():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_held__signal__is_raised_at_its_end():
    signals = Signals()
    with signals.installed():
        held = signals.held()
        held.__enter__()
        send()
        with pytest.raises(KeyboardInterrupt):
            held.__exit__(None, None, None)


def test_let_through__what_was_held_back__is_raised_in_it_and_nothing_after_it():
    signals = Signals()
    with signals.installed(), signals.held():
        send()
        with pytest.raises(KeyboardInterrupt), signals.let_through():
            pytest.fail("the block was begun")
        send()


def test_installed__signal_in_a_destructor__is_raised_at_the_next_place(capfd: pytest.CaptureFixture[str]):
    signals = Signals()
    with signals.installed():
        Sending()
        assert signals.is_pending
        with pytest.raises(KeyboardInterrupt), signals.held():
            pass
    assert capfd.readouterr().err == ""


def test_over__signal__changes_nothing_and_no_handler_is_put_back():
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    signals = Signals()
    try:
        with signals.installed(), signals.held():
            signals.over()
            send()
        send()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_interruptible__held_around_it__is_raised_in_it_and_held_again_after_it():
    signals = Signals()
    with signals.installed(), signals.held(), signals.held():
        with pytest.raises(KeyboardInterrupt), signals.interruptible():
            send()
        send()
        assert signals.is_pending
        signals.is_pending = False


def test_interruptible__pressed_before_it__is_raised_at_its_start():
    signals, reached = Signals(), []
    with signals.installed(), signals.held():
        send()
        with pytest.raises(KeyboardInterrupt), signals.interruptible():
            reached.append(1)
    assert reached == []
