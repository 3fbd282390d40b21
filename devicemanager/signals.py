"""The signals that end our programs."""

import signal
from collections.abc import Iterable
from typing import Final

ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""What a supervisor sends, Ctrl-C, a terminal that is closed, and Ctrl-\\, which would leave a core."""


def handled(signals: Iterable[signal.Signals]) -> list[signal.Signals]:
    """Those of the signals to handle: all but SIGHUP where ``nohup`` had it ignored before the program started."""
    hang_up_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in signals if not (number is signal.SIGHUP and hang_up_ignored)]
