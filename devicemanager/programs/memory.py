"""The memory that a server may take, split between what it admits."""

import structlog
from structlog.typing import FilteringBoundLogger

from devicemanager.errors import SettingsError
from devicemanager.rules.quantity import format_bytes
from devicemanager.serving.budget import Budget, BudgetError, Program, split
from devicemanager.serving.memory_limit import memory_limit
from devicemanager.settings.server import ServerSettings

_log: FilteringBoundLogger = structlog.get_logger()


def budget(program: Program, settings: ServerSettings, children_bytes: int | None = None) -> Budget:
    """What a program admits with the memory that it may take here. Both are logged.

    Args:
        program: Which one.
        settings: Its settings.
        children_bytes: What its children may grow to; None for what they do by default.

    Raises:
        SettingsError: That is too little to serve with.
    """
    limit = memory_limit(settings.memory_limit, program.designed_bytes)
    try:
        found = split(program, limit.bytes, children_bytes)
    except BudgetError as error:
        raise SettingsError([f"memory limit, from {limit.source}: {error}"]) from error
    _log.info("memory_limit_found", limit=str(limit), connections=found.limits.total_connections)
    wanted_bytes = program.children_bytes if children_bytes is None else children_bytes
    if found.children_bytes < wanted_bytes:
        _log.warning(
            "collector_memory_not_covered",
            limit=str(limit),
            left=_mebibytes(found.children_bytes),
            wanted=_mebibytes(wanted_bytes),
        )
    return found


def _mebibytes(size: int) -> str:
    return format_bytes(size >> 20 << 20)
