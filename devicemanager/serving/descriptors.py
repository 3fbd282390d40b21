"""The limit of file descriptors, and how many connections it allows."""

import resource
from typing import Final

from structlog.typing import FilteringBoundLogger

from devicemanager.serving.limits import Limits, within_descriptors

MOST: Final = 65_536
"""Never ask for more: some programs close every descriptor they could have, and a child process may be one."""


def raise_limit() -> int:
    """Raise the soft limit to the hard one, 65,536 at most. Returns how many may be open now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft == resource.RLIM_INFINITY or soft >= allowed:
        return MOST if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return allowed


def fit_limits(limits: Limits, reserve: int, log: FilteringBoundLogger) -> Limits:
    """Raise the limit of descriptors, and fit the connections to it; ``reserve`` are for everything else.

    Logs when there are fewer connections than wanted.
    """
    descriptors = raise_limit()
    fitting = within_descriptors(limits, descriptors, reserve)
    if fitting.total_connections < limits.total_connections:
        log.warning(
            "connections_limited",
            descriptors=descriptors,
            connections=fitting.total_connections,
            wanted=limits.total_connections,
        )
    return fitting
