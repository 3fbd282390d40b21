"""The memory that a server may take, split between what it admits."""

from devicemanager.errors import SettingsError
from devicemanager.serving.budget import Budget, BudgetError, Program, split
from devicemanager.serving.memory_limit import memory_limit
from devicemanager.settings.server import ServerSettings


def budget(program: Program, settings: ServerSettings) -> Budget:
    """What a program admits with the memory that it may take here.

    Raises:
        SettingsError: That is too little to serve with.
    """
    limit = memory_limit(settings.memory_limit, program.designed_bytes)
    try:
        return split(program, limit.bytes)
    except BudgetError as error:
        raise SettingsError([f"memory limit, from {limit.source}: {error}"]) from error
