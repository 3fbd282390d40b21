"""Which signals a program takes for its end."""

import signal

from devicemanager.signals import ENDING, handled


def test_a_closed_terminal_ends_a_program_unless_nohup_was_asked_for() -> None:
    before = signal.getsignal(signal.SIGHUP)
    try:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        assert handled(ENDING) == [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT]
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        assert handled(ENDING) == [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT]
    finally:
        signal.signal(signal.SIGHUP, before)
