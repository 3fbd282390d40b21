"""Liveness and readiness as Kubernetes servers answer them: named checks, one line each.

``ok`` for a machine; with ``?verbose``, or when a check fails, a line per check. Reasons stay out of the answer,
which anyone may read, and go to the log when the result changes. ``?exclude=NAME`` leaves a check out. Failure is
status 500, as generic API servers have it.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from aiohttp import web
from structlog.typing import FilteringBoundLogger

PATHS: Final = frozenset({"/livez", "/readyz", "/healthz"})
"""Where probes are answered, from memory and for anyone."""

_HEADERS = {
    "Content-Type": "text/plain; charset=utf-8",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache, private",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One named question.

    Attributes:
        name: As ``?exclude`` and the verbose answer spell it.
        problem: Answers at once, from memory: None, or one line for the log on what is wrong.
        state: What the verbose answer adds, which anyone may read: one of few phrases.
    """

    name: str
    problem: Callable[[], str | None]
    state: Callable[[], str] | None = None


PING = Check("ping", lambda: None)
"""Passes whenever it is asked: then the event loop runs."""


class Shutdown:
    """Remembers that the program is about to stop, and fails readiness from that moment on."""

    def __init__(self) -> None:
        self._begun = False
        self.check = Check("shutdown", lambda: "shutting down" if self._begun else None)

    def begin(self) -> None:
        """Fail readiness from now on."""
        self._begun = True


class Probe:
    """One path (``livez``, ``readyz``) with its checks."""

    def __init__(self, name: str, checks: Sequence[Check], log: FilteringBoundLogger) -> None:
        """Args: ``name`` is as the path spells it, without the slash."""
        self._name = name
        self._checks = tuple(checks)
        self._log = log
        self._failing: dict[str, str] = {}

    def problems(self) -> dict[str, str]:
        """Name of each failing check -> what is wrong, in order. Logs when it differs from the last call."""
        failing = {check.name: problem for check in self._checks if (problem := check.problem()) is not None}
        if failing.keys() != self._failing.keys():
            if failing:
                self._log.warning("probe_failing", probe=self._name, problems=failing)
            else:
                self._log.info("probe_passing", probe=self._name)
        self._failing = failing
        return failing

    def respond(self, request: web.BaseRequest) -> web.Response:
        """The answer to a GET or HEAD of this path."""
        passed, text = self._answer(frozenset(request.query.getall("exclude", ())))
        if passed and "verbose" not in request.query:
            text = "ok"
        return web.Response(status=200 if passed else 500, body=text.encode(), headers=_HEADERS)

    def _answer(self, excluded: frozenset[str]) -> tuple[bool, str]:
        failing = self.problems()
        lines = []
        passed = True
        for check in self._checks:
            if check.name in excluded:
                lines.append(f"[+]{check.name} excluded: ok")
            elif check.name in failing:
                passed = False
                said = "reason withheld" if check.state is None else check.state()
                lines.append(f"[-]{check.name} failed: {said}")
            else:
                lines.append(f"[+]{check.name} ok" + ("" if check.state is None else f" ({check.state()})"))
        unknown = len(excluded - {check.name for check in self._checks})
        if unknown:
            # Their number, not their names: anyone may ask, and an answer must not be as long as the question.
            lines.append(f"warn: some health checks cannot be excluded: no matches for {unknown} of the names")
        lines.append(f"{self._name} check {'passed' if passed else 'failed'}")
        return passed, "\n".join(lines) + "\n"


def handler(probe: Probe) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """The probe as a request handler."""

    async def respond(request: web.Request) -> web.StreamResponse:
        return probe.respond(request)

    return respond
