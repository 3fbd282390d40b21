"""Unit tests mirror the packages: ``tests/unit/<package>/test_<module>.py`` tests ``<module>`` of that package."""

import configparser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "tests" / "unit"

PACKAGES = {
    "bench": "tests/bench",
    "cluster": "tests/cluster",
    "collectors": "collectors",
}
"""Folders of tests/unit whose modules are elsewhere than in ``devicemanager/<folder>``."""

OTHERS = {
    # One entry a line, sorted: what each of them tests instead of a module.
    "test_docs.py": "docs/",
    "test_extras.py": "the extras of pyproject.toml",
    "test_imports.py": "what every program imports",
    "test_layout.py": "tests/unit and tox.ini",
    "wire/test_snapshot_page.py": "docs/snapshot.md",
    "worker/apiserver/test_golden_documents.py": "tests/unit/worker/apiserver/golden",
    "worker/test_library_page.py": "docs/library.md",
}

TESTS = sorted(str(path.relative_to(UNIT)) for path in UNIT.rglob("test_*.py"))


def module_of(test: str) -> Path:
    """The module that a test file is named after, without its suffix."""
    path = Path(test)
    package, *below = path.parent.parts or ("",)
    folder = ROOT / PACKAGES.get(package, f"devicemanager/{package}")
    return folder.joinpath(*below, path.stem.removeprefix("test_"))


@pytest.mark.parametrize("test", [test for test in TESTS if test not in OTHERS])
def test_every_test_file_is_named_after_a_module(test: str) -> None:
    module = module_of(test)

    assert module.with_suffix(".py").exists() or (module / "__init__.py").exists()


def test_only_existing_test_files_are_excepted() -> None:
    assert [test for test in OTHERS if test not in TESTS] == []
    assert [test for test in OTHERS if module_of(test).with_suffix(".py").exists()] == []


def test_every_environment_of_tox_says_what_it_checks() -> None:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "tox.ini", encoding="utf-8")
    environments = [name for name in parser.sections() if name.startswith("testenv:")]

    assert environments
    assert [name for name in environments if not parser.get(name, "description", fallback="")] == []
