"""The pages say what the code does: nothing is missing there, and nothing there is gone."""

import ast
import re
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from pkgutil import resolve_name

import pytest

from devicemanager.cli import COMMANDS
from devicemanager.model.accelerator import CollectorState, Reason
from devicemanager.settings.flags import settings_of

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md"])

LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}


@dataclass
class Event:
    """How one event is logged, all places taken together."""

    levels: set[str] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)


@cache
def logged_events() -> dict[str, Event]:
    events: dict[str, Event] = {}
    passes_on = ROOT / "devicemanager" / "serving" / "log_rate.py"
    for path in sorted({*(ROOT / "devicemanager").rglob("*.py")} - {passes_on}):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for call in [node for node in ast.walk(tree) if isinstance(node, ast.Call)]:
            logged = _logged(call, tree)
            if logged is None:
                continue
            levels, name = logged
            where = f"{path.relative_to(ROOT)}:{call.lineno}"
            assert isinstance(name, ast.Constant), f"{where}: an event is a constant"
            assert isinstance(name.value, str), f"{where}: an event is a name"
            assert re.fullmatch(r"[a-z]+(_[a-z0-9]+)+", name.value), (
                f"{where}: {name.value!r} is no snake_case fact"
            )
            event = events.setdefault(name.value, Event())
            event.levels |= levels
            event.keys |= {_KEYS.get(one.arg, one.arg) for one in call.keywords if one.arg} - {"exc_info"}
    return events


_KEYS = {"cause": "reason"}
"""What a rate-limited line calls its cause."""


def _logged(call: ast.Call, tree: ast.Module) -> tuple[set[str], ast.expr] | None:
    """Levels and event of a call that logs: ``log.info("a_b")``, ``rated.write(LEVEL, "a_b")``, ``say("a_b")``."""
    match call.func:
        case ast.Attribute(value=target, attr=method) if _LOG.search(ast.unparse(target)):
            if method in LEVELS:
                return _levels(method), call.args[0]
            if method in {"log", "write"} and len(call.args) > 1:
                return _levels(ast.unparse(call.args[0])), call.args[1]
        case ast.Name(id=name) if call.args and isinstance(call.args[0], ast.Constant):
            for node in ast.walk(tree):
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
                    method = ast.unparse(node.value)
                    if _LOG_METHOD.search(method):
                        return _levels(method), call.args[0]
        case _:
            pass
    return None


_LOG = re.compile(r"(^|[._])(log|rated|logger|get_logger\(.*\))$")
_LOG_METHOD = re.compile(r"(^|[._])log\.(" + "|".join(LEVELS) + r")\b")


def _levels(text: str) -> set[str]:
    """The levels that an expression names; empty where it is computed."""
    named = {word.lower() for word in re.findall(r"\w+", text)} & LEVELS
    return {"error" if level == "exception" else level for level in named}


def documented_events() -> dict[str, Event]:
    rows = re.findall(
        r"^\| `(\w+)` \| ([\w, ]+) \| (.*?) \|", (DOCS / "log-events.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    return {name: Event(set(levels.split(", ")), set(re.findall(r"`(\w+)`", keys))) for name, levels, keys in rows}


def test_every_log_event_is_documented_and_none_that_is_gone() -> None:
    assert sorted(documented_events()) == sorted(logged_events())


def test_events_are_documented_with_their_levels_and_keys() -> None:
    documented = documented_events()
    for name, event in logged_events().items():
        assert event.levels <= documented[name].levels, name
        assert event.keys <= documented[name].keys, name


def test_the_tables_of_settings_and_figures_are_those_of_the_code() -> None:
    check = [sys.executable, str(DOCS / "tables.py"), "--check"]

    assert subprocess.run(check, check=False).returncode == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_name_only_flags_and_variables_that_exist(page: Path) -> None:
    settings = [one for command in COMMANDS.values() for one in settings_of(resolve_name(command.settings))]
    flags = {one.flag for one in settings} | {"--help", "--version"}
    variables = {name for one in settings for name in one.variables} | {
        "DEVICEMANAGER_CONTROL_PLANE",
        "DEVICEMANAGER_FUZZ",
        "DEVICEMANAGER_RECORDED_MACHINES",
        "DEVICEMANAGER_SEQUENCES",
    }
    text = page.read_text(encoding="utf-8")
    commands = [
        line for line in text.splitlines() if re.search(r"devicemanager (serve|monitor|detect|snapshot)\b", line)
    ]

    assert set(re.findall(r"\bDEVICEMANAGER_[A-Z_]+", text)) <= variables
    for command in commands:
        assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", command.split("devicemanager", 1)[1])) <= flags, command


def test_every_state_has_its_row_in_troubleshooting() -> None:
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    section = page.split("## The state is not `ok`", 1)[1].split("\n## ", 1)[0]

    assert sorted(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == sorted(CollectorState)


def test_every_reason_is_explained_with_the_snapshot() -> None:
    page = (DOCS / "snapshot.md").read_text(encoding="utf-8")

    assert {reason.value for reason in Reason} <= set(re.findall(r"`(\w+)`", page))


def names_of_tests(path: Path) -> set[str]:
    """The names of a file's tests, those of classes included."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {node.name for node in functions if node.name.startswith("test_")}


def test_every_test_that_the_threat_model_names_exists_and_shows_a_row() -> None:
    page, _, listed = (DOCS / "threat-model.md").read_text(encoding="utf-8").partition("\n## The tests\n")
    shown_by = dict(re.findall(r"^- ([A-Z]\d+): (.*)$", listed, re.M))
    named = {label: re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", tests) for label, tests in shown_by.items()}
    missing = {
        (label, path, name)
        for label, tests in named.items()
        for path, name in tests
        if not (ROOT / path).exists() or name not in names_of_tests(ROOT / path)
    }
    assert missing == set()
    assert all(named.values())
    assert set(re.findall(r"\b[A-Z]\d+\b", page)) == shown_by.keys()


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"


def test_ci_runs_the_test_command_of_the_readme_the_attacks_the_images_python_and_the_control_plane() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (command,) = [line for line in readme.splitlines() if line.endswith("/tox")]

    lines = map(str.strip, (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines())
    tox = ".venv-test/bin/tox -e"
    assert [line for line in lines if "/tox" in line] == [
        command,
        f"{tox} attack",
        f'PATH="$(dirname "$python313"):$PATH" {tox} py313',
        f"{tox} control-plane",
    ]


def test_every_dependency_has_a_decision() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    table = (DOCS / "decisions" / "index.md").read_text(encoding="utf-8")
    required = pyproject.split("dependencies = [", 1)[1].split("\n]", 1)[0]
    extras = re.findall(r"^(?:nvidia|amd|worker|demo) = \[(.*?)\]", pyproject, re.MULTILINE)
    names = set(re.findall(r'"([A-Za-z][\w-]*)', "".join([required, *extras]))) - {
        "accelerator-device-manager",
        "amdsmi",
    }

    missing = [name for name in sorted(names) if name not in table]

    assert missing == []
