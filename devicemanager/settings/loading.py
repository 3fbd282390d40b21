"""A program's settings from flags, environment, file and defaults, and everything that is wrong with them.

Nothing here reads the environment: it is handed in.
"""

import difflib
import functools
import importlib
import pkgutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

from pydantic import ValidationError
from typing_extensions import override

import devicemanager.settings
from devicemanager.errors import SettingsError, excerpt
from devicemanager.settings.flags import Conflict, Setting, Settings, settings_of
from devicemanager.settings.values import PORT_PROBLEM

S = TypeVar("S", bound=Settings)


class Given(NamedTuple):
    """A value and how it was given: ``--secure-port=0``."""

    value: object
    origin: str


@dataclass(slots=True)
class _Collected:
    """What one source gave, and what was wrong with it.

    ``misspelled`` are fields that an unknown name may mean; ``unknown`` says that one may mean any of them.
    """

    values: dict[str, Given] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    misspelled: set[str] = field(default_factory=set)
    unknown: bool = False
    unreadable: bool = False


Rules: TypeAlias = Callable[[Any], Iterable[Conflict]]
"""Finds what is wrong between settings that are valid one by one; gets them all."""


def no_rules(_settings: Settings) -> Iterable[Conflict]:
    """For programs without rules beyond those of their settings."""
    return ()


def load(model: type[S], arguments: Sequence[str], environment: Mapping[str, str], rules: Rules = no_rules) -> S:
    """Settings from flags, environment, file and defaults, in that order.

    Args:
        model: The program's settings.
        arguments: What follows the program's name on the command line.
        environment: The process's variables.
        rules: What to ask beside the model's own rules; they are for what the settings cannot know by themselves.

    Raises:
        SettingsError: With every problem of every source.
    """
    settings = settings_of(model)
    from_flags = _read_arguments(settings, arguments)
    from_environment = _read_environment(settings, environment)
    path = from_flags.values.get("config") or from_environment.values.get("config")
    from_file = _read_file(settings, Path(str(path.value))) if path is not None else _Collected()
    given = {**from_file.values, **from_environment.values, **from_flags.values}
    problems = [*from_flags.problems, *from_file.problems]
    misspelled = from_flags.misspelled | from_file.misspelled
    unsure = settings if from_flags.unknown or from_file.unknown else ()
    not_given = misspelled.union(setting.name for setting in unsure) - given.keys()
    loaded, invalid = _validate(
        model, settings, given, misspelled, not_given, None if from_file.unreadable else rules
    )
    problems += invalid
    if problems or loaded is None:
        raise SettingsError(problems)
    return loaded


def _read_arguments(settings: Sequence[Setting], arguments: Sequence[str]) -> _Collected:
    """Tokens as Kubernetes programs take them: ``--flag value``, ``--flag=value``, ``--switch``, ``-o value``."""
    by_flag = {setting.flag: setting for setting in settings if not setting.spec.positional}
    by_flag |= {f"-{setting.spec.short}": setting for setting in settings if setting.spec.short}
    positional = [setting for setting in settings if setting.spec.positional]
    found = _Collected()
    rest = list(arguments)
    while rest:
        token = rest.pop(0)
        flag, equals, text = token.partition("=")
        if not token.startswith("-"):
            if positional:
                setting = positional.pop(0)
                found.values[setting.name] = Given(token, setting.flag)
            else:
                found.problems.append(f"{excerpt(token)}: unexpected argument")
                found.unknown = True
        elif (known := by_flag.get(flag)) is None:
            meant = _unknown(found, flag, by_flag, excerpt(flag), "flag")
            takes_value = not positional if meant is None else not meant.switch
            if takes_value and not equals and rest and not rest[0].startswith("-"):
                rest.pop(0)  # its value, which would be one more problem to read about
        elif known.switch and not equals:
            found.values[known.name] = Given("true", flag)
        elif not equals and (not rest or rest[0].startswith("--")):
            found.problems.append(f"{flag}: needs a value ({known.spec.value})")
        else:
            _add(found, known, text if equals else rest.pop(0), flag)
    return found


def _add(found: _Collected, setting: Setting, text: str, flag: str) -> None:
    before = found.values.get(setting.name)
    if setting.many and before is not None:
        text = f"{before.value},{text}"
    found.values[setting.name] = Given(text, f"{flag}={excerpt(text)}")


def _read_environment(settings: Sequence[Setting], environment: Mapping[str, str]) -> _Collected:
    found = _Collected()
    for setting in settings:
        name = next((name for name in setting.variables if environment.get(name)), None)
        if name is not None:
            found.values[setting.name] = Given(environment[name], f"{name}={excerpt(environment[name])}")
    return found


def _read_file(settings: Sequence[Setting], path: Path) -> _Collected:
    import yaml  # a process that is given no file does not pay for it

    found = _Collected()
    repeated: list[str] = []

    # Scalars stay text, as flags and variables are: no node called 0123 becomes the number 83.
    class Loader(yaml.BaseLoader):
        @override
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
            """Note a key that is there twice, of which yaml takes the last."""
            keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            repeated.extend(key for key, times in Counter(keys).items() if times > 1)
            built: dict[object, object] = super().construct_mapping(node, deep)
            return built

    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=Loader)  # noqa: S506 - builds no objects
    except UnicodeDecodeError:
        return _unreadable(path, "is not text in UTF-8")
    except OSError as error:
        return _unreadable(path, f"cannot be read: {error.strerror or error}")
    except yaml.YAMLError as error:
        return _unreadable(path, f"is not YAML: {_yaml_problem(error)}")
    except RecursionError:
        return _unreadable(path, "is nested too deep")
    if document is None or document == "":
        return found
    if not isinstance(document, dict):
        return _unreadable(path, "must be a mapping of settings")
    found.problems += [f"{path}: {excerpt(key)}: is there twice" for key in repeated]
    by_key = {s.key: s for s in settings if s.name != "config" and not s.spec.positional}
    for key, value in document.items():
        if (setting := by_key.get(str(key))) is None:
            _unknown(found, str(key), by_key, f"{path}: {excerpt(str(key))}", "setting")
        elif value != "":
            found.values[setting.name] = Given(value, f"{path}: {setting.key}: {excerpt(str(value))}")
    return found


def _unreadable(path: Path, why: str) -> _Collected:
    return _Collected(problems=[f"--config={path}: {why}"], unreadable=True)


def _yaml_problem(error: Exception) -> str:
    """What is wrong and where, as far as the parser says so."""
    problem, mark = getattr(error, "problem", None), getattr(error, "problem_mark", None)
    if not problem:
        return excerpt(str(error))
    return excerpt(problem if mark is None else f"{problem} (line {mark.line + 1}, column {mark.column + 1})")


def _unknown(found: _Collected, word: str, known: Mapping[str, Setting], shown: str, kind: str) -> Setting | None:
    """Note an unknown name with the setting that it means, of ours or another command, which is returned."""
    if (other := _of_another_command(word.removeprefix("--"))) is not None:
        found.problems.append(f"{shown}: not a {kind} of this command, but of another one")
        found.unknown = True
        return other
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.75)
    found.problems.append(f"{shown}: unknown {kind}" + (f"; did you mean {close[0]}?" if close else ""))
    if not close:
        found.unknown = True
        return None
    found.misspelled.add(known[close[0]].name)
    return known[close[0]]


def _of_another_command(key: str) -> Setting | None:
    """The setting with this key that some command has."""
    return _settings_of_all_commands().get(key)


@functools.cache
def _settings_of_all_commands() -> Mapping[str, Setting]:
    models = [Settings]
    for module in pkgutil.iter_modules(devicemanager.settings.__path__, "devicemanager.settings."):
        importlib.import_module(module.name)
    for model in models:
        models += model.__subclasses__()
    everything = (setting for model in reversed(models) for setting in settings_of(model))
    return {
        setting.key: setting for setting in everything if not setting.spec.positional and setting.name != "config"
    }


def _validate(
    model: type[S],
    settings: Sequence[Setting],
    given: Mapping[str, Given],
    misspelled: Set[str],
    not_given: Set[str],
    rules: Rules | None,
) -> tuple[S | None, Sequence[str]]:
    """The settings and the problems. Rules between settings are tried also where single settings are invalid.

    For that the invalid ones fall back to their defaults, and rules about them do not count, nor about those that
    were probably given under a misspelled name, nor those whose first one an unknown name may mean: one mistake is
    one problem. None tries none: a file that could not be read may hold what a rule would miss.
    """
    values = {name: item.value for name, item in given.items()}
    problems: list[str] = []
    invalid: set[str] = set()
    try:
        loaded = model.model_validate(values)
    except ValidationError as error:
        found = {str(item["loc"][0]): item for item in reversed(error.errors(include_url=False))}
        invalid = set(found)
        for setting in settings:
            if setting.name in found and setting.name not in misspelled - given.keys():
                origin = given[setting.name].origin if setting.name in given else setting.flag
                problems.append(f"{origin}: {_reason(found[setting.name], setting)}")
        try:
            loaded = model.model_validate({name: value for name, value in values.items() if name not in invalid})
        except ValidationError:  # one without a default is missing: nothing can be said about the rest together
            return None, problems
    conflicts = [] if rules is None else [*loaded.conflicts(), *rules(loaded)]
    problems += [
        message
        for names, message in conflicts
        if invalid.union(misspelled).isdisjoint(names) and names[0] not in not_given
    ]
    return loaded, problems


def _reason(error: Mapping[str, Any], setting: Setting) -> str:
    match error["type"]:
        case "missing":
            return "is required"
        case "value_error":
            return str(error["ctx"]["error"])
        case "enum" | "literal_error":
            return f"must be one of {str(error['ctx']['expected']).replace(' or ', ', ')}".replace("'", "")
        case kind if kind.startswith("int_"):
            return PORT_PROBLEM if setting.spec.value == "PORT" else "must be a whole number"
        case kind if kind.startswith("float_"):
            return "must be a number"
        case kind if kind.startswith("bool_"):
            return "must be true or false"
        case kind if kind.startswith(("string_", "path_")):
            return "must be text"
        case "tuple_type":
            return "must be a list, or values separated by commas"
        case _:
            message = str(error["msg"])
            return message[:1].lower() + message[1:]
