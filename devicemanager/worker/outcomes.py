"""How a read ended, as values, and the interface of a reader."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from devicemanager.model.usage import WorkloadUsage
from devicemanager.wire.workload_objects import WorkloadObject


@dataclass(frozen=True, slots=True)
class Answer:
    """The workload with its sample; ``usage.sample.sources`` says what is missing and why."""

    usage: WorkloadUsage


@dataclass(frozen=True, slots=True)
class NotFound:
    """There is no such workload."""

    message: str


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The workload exists, but no source answered; the message names each source and why."""

    message: str


@dataclass(frozen=True, slots=True)
class DeadlineExceeded:
    """The caller's deadline, or ours, passed before any source answered."""

    message: str


Outcome: TypeAlias = Answer | NotFound | Unavailable | DeadlineExceeded


@dataclass(frozen=True, slots=True)
class ListOutcome:
    """Many workloads at once.

    Attributes:
        items: By namespace, then name. ``sample`` is None where a workload has no pod of its own on a node.
        warnings: One line per source that cost rows their figures, bounded in number.
        absences: namespace/name -> why that workload has no sample.
    """

    items: tuple[WorkloadUsage, ...]
    warnings: tuple[str, ...] = ()
    absences: Mapping[str, str] = field(default_factory=dict)


Select: TypeAlias = Callable[[WorkloadObject], bool]
"""Whether a workload is wanted. Asked of each in turn, and meanwhile others get theirs."""

Choose: TypeAlias = Callable[[Sequence[WorkloadObject]], Sequence[WorkloadObject]]
"""Of the workloads there are, by namespace and name, those to be measured and answered, in that order."""

ListResult: TypeAlias = ListOutcome | Unavailable | DeadlineExceeded


class Reader(Protocol):
    """Reads workloads of one kind."""

    async def read(self, namespace: str, name: str, *, deadline_s: float | None = None) -> Outcome:
        """One workload's current sample. Never raises but for cancellation.

        Args:
            namespace: As the caller spelled it; a name that Kubernetes would refuse is not found.
            name: The workload's.
            deadline_s: Seconds the caller still waits; None for the configured 10. The outcome is there by then.
        """
        ...

    async def list(
        self,
        namespace: str | None = None,
        *,
        select: Select | None = None,
        choose: Choose | None = None,
        deadline_s: float | None = None,
    ) -> ListResult:
        """The workloads of a namespace, or of all, each with its sample. Never raises, as ``read``.

        Args:
            namespace: None for all. One that Kubernetes would refuse is empty, as it is there.
            select: Which of them are wanted. None for every one.
            choose: Which of those; of the others nothing is read but their objects. None for every one.
            deadline_s: As for ``read``.
        """
        ...
