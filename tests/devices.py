"""Devices as tests need them: every figure is there, but for those that a test names otherwise."""

from collections.abc import Mapping
from typing import Final

from devicemanager.model.accelerator import Card, Reading, Reason
from devicemanager.model.figures import FIGURES, DeviceFigure, Figures, Scope
from devicemanager.rules import plausibility

READ: Final[Mapping[str, DeviceFigure]] = {
    "memory_total": 80 << 30,
    "memory_used": 20 << 30,
    "compute_utilization": 40,
    "temperature": 51,
    "power_usage": 233_999,
    "power_limit": 700_000,
    "clock_reduction_reasons": (),
}
"""Every figure that a collector reads, in the units of readings."""

PUBLISHED: Final[Mapping[str, DeviceFigure]] = {
    "memory_total": 81920,
    "memory_used": 20480,
    "memory_utilization": 25,
    "compute_utilization": 40,
    "temperature": 51,
    "power_usage": 233,
    "power_limit": 700,
    "clock_reduction_reasons": (),
}
"""Every figure of the snapshot and the sample, in their units."""


def reading(
    card: Card,
    unhealthy_reason: str | None = None,
    unread_checks: Mapping[str, Reason] | None = None,
    **changes: DeviceFigure,
) -> Reading:
    """One card's reading."""
    return Reading(card, figures(**changes), unhealthy_reason, unread_checks or {})


def partition(card: Card, **changes: DeviceFigure) -> Reading:
    """A partition's reading: what only its card has is not there."""
    board = {spec.name: Reason.REPORTED_ON_PRIMARY for spec in FIGURES if spec.scope is Scope.BOARD}
    return Reading(card, figures(**{**board, **changes}))


def figures(**changes: DeviceFigure) -> Figures:
    """The figures of a reading; what is computed follows from the others."""
    return plausibility.reading({**READ, **changes})


def published(**changes: DeviceFigure) -> Figures:
    """The figures of a card in a snapshot, or of an accelerator in a sample."""
    return Figures(**{**PUBLISHED, **changes})
