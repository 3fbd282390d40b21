"""How one definition of a setting becomes a flag, an environment variable, a line of a file and a line of help.

A program's settings are one frozen pydantic model, in a module beside this one. Each field is described once, by
a :class:`FlagSpec` in its annotation; everything a person sees follows from it.
"""

import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict

from devicemanager.rules.duration import format_duration
from devicemanager.rules.quantity import format_bytes

ENVIRONMENT_PREFIX: Final = "DEVICEMANAGER_"


@dataclass(frozen=True, slots=True)
class FlagSpec:
    """The description of one setting for users.

    Attributes:
        help: One sentence without the name, the default or the variable, which are added.
        value: What to write, with its unit, in capitals: ``DURATION``. None for a switch.
        default: What to say of a default that is computed from other settings; None: the default speaks for itself.
        also_from: Environment variables of other products that are read when ours is not set.
        short: One letter for ``-o``; None for most.
        positional: True for an argument without a flag.
    """

    help: str
    value: str | None = None
    default: str | None = None
    also_from: tuple[str, ...] = ()
    short: str | None = None
    positional: bool = False


class Conflict(NamedTuple):
    """A rule between settings that is broken.

    Attributes:
        names: The fields concerned, that which the message begins with first; the rule is not reported when one of
            them is itself invalid.
        message: What is wrong and the ways out, naming the flags.
    """

    names: tuple[str, ...]
    message: str


class Settings(BaseModel):
    """Base of each program's settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    config: Annotated[
        Path | None,
        FlagSpec("YAML file with settings, keyed by their flags' names without the dashes in front.", "PATH"),
    ] = None

    def conflicts(self) -> Iterator[Conflict]:
        """Rules between settings that these break. Each part of a program's settings adds its own."""
        return iter(())


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as users see it.

    Attributes:
        name: The field of the model.
        spec: Its description.
        switch: True when the flag stands alone or takes ``=true`` and ``=false``.
        many: True when the flag may be repeated and takes several values separated by commas.
        default: As the documentation spells it; empty when there is none.
    """

    name: str
    spec: FlagSpec
    switch: bool
    many: bool
    default: str

    @property
    def key(self) -> str:
        """The flag without its dashes, and the key in a file."""
        return self.name.replace("_", "-")

    @property
    def flag(self) -> str:
        """As typed: ``--secure-port``; a positional argument is named in capitals."""
        return self.name.upper() if self.spec.positional else f"--{self.key}"

    @property
    def variables(self) -> tuple[str, ...]:
        """Environment variables that give it, the first that is set and not empty counting."""
        if self.spec.positional:
            return ()
        return (ENVIRONMENT_PREFIX + self.name.upper(), *self.spec.also_from)


def settings_of(model: type[Settings]) -> tuple[Setting, ...]:
    """The settings of a program: its own first, then those of each part it is made of."""
    fields = model.model_fields
    names = [name for part in model.__mro__ for name in vars(part).get("__annotations__", ()) if name in fields]
    return tuple(
        _setting(name, fields[name].annotation, fields[name].metadata, fields[name].default)
        for name in dict.fromkeys(names)
    )


def _setting(name: str, annotation: object, metadata: Iterable[object], default: object) -> Setting:
    spec = next(item for item in metadata if isinstance(item, FlagSpec))
    types_of_value = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    return Setting(
        name=name,
        spec=spec,
        switch=bool in types_of_value,
        many=any(get_origin(item) is tuple for item in types_of_value),
        default=spec.default or _spell(default, spec),
    )


def _spell(default: object, spec: FlagSpec) -> str:
    match default:
        case bool():
            return str(default).lower()
        case StrEnum():
            return default.value
        case float() if spec.value == "DURATION":
            return format_duration(default)
        case int() if spec.value == "SIZE":
            return format_bytes(default)
        case str() | int() | Path():
            return str(default)
        case tuple():
            return ",".join(map(str, default))
        case _:
            return ""


def effective(settings: Settings) -> dict[str, str]:
    """What the settings came to, spelled as for a file; those without a value are left out."""
    spelled = ((s.key, _spell(getattr(settings, s.name), s.spec)) for s in settings_of(type(settings)))
    return {key: value for key, value in spelled if value}


def with_flags(settings: Settings, problems: Iterable[str]) -> list[str]:
    """Problems that begin with the path of a setting, with the flag in front that gave it."""
    flags = [
        (str(value), setting.flag)
        for setting in settings_of(type(settings))
        if isinstance(value := getattr(settings, setting.name), Path)
    ]
    return [
        next(
            (f"{flag}: {problem}" for path, flag in flags if problem.startswith((f"{path}:", f"{path}/"))), problem
        )
        for problem in problems
    ]
