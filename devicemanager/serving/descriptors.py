"""File descriptors: how many this process may have, and how many connections that makes."""

import resource
from typing import Final

from structlog.typing import FilteringBoundLogger

from devicemanager.serving.limits import Limits, affordable

MOST: Final = 65_536
"""No more are asked for, whatever is allowed: programs exist that close every descriptor they could have, and a
child process of ours may be one."""


def raise_limit() -> int:
    """Take as many as this process may have without a further right. Returns how many it may have open now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft == resource.RLIM_INFINITY or soft >= allowed:
        return MOST if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return allowed


def fitted(limits: Limits, reserve: int, log: FilteringBoundLogger) -> Limits:
    """Raise the limit of descriptors, and keep connections within it. Says so when there are fewer than wanted.

    Args:
        limits: What is wanted.
        reserve: Descriptors for everything that is no accepted connection.
        log: Where that is said.
    """
    descriptors = raise_limit()
    fitting = affordable(limits, descriptors, reserve)
    if fitting.places < limits.places:
        log.warning(
            "connections_limited", descriptors=descriptors, connections=fitting.places, wanted=limits.places
        )
    return fitting
