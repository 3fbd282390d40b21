"""Every module can be the first one that is imported, and programs load only what they run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for package in ("devicemanager", "collectors")
    for path in (ROOT / package).rglob("*.py")
    if path.name != "__main__.py"
)

_EACH_ALONE = """
import importlib, json, sys, traceback
failed = {}
for name in json.loads(sys.argv[1]):
    for loaded in [one for one in sys.modules if one.partition(".")[0] in ("devicemanager", "collectors")]:
        del sys.modules[loaded]
    try:
        importlib.import_module(name)
    except BaseException:
        failed[name] = traceback.format_exc()
print(json.dumps(failed))
"""

_WHAT_IS_LOADED = """
import importlib, json, sys
importlib.import_module(sys.argv[1])
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


_WHAT_IS_TRUSTED = """
import json, os, sys
os.environ["SSL_CERT_FILE"] = sys.argv[1]
os.environ.pop("SSL_CERT_DIR", None)
from devicemanager import cli
with cli._without_system_authorities():
    from aiohttp.connector import _SSL_CONTEXT_VERIFIED as verified
print(json.dumps([len(verified.get_ca_certs()), os.environ["SSL_CERT_FILE"], "SSL_CERT_DIR" in os.environ]))
"""


def run(code: str, argument: str) -> object:
    done = subprocess.run([sys.executable, "-c", code, argument], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_module_can_be_imported_first() -> None:
    assert len(MODULES) > 20

    assert run(_EACH_ALONE, json.dumps(MODULES)) == {}


@pytest.mark.parametrize(
    ("module", "not_loaded"),
    [
        ("devicemanager.cli", {"aiohttp", "kubernetes", "msgspec", "cryptography", "yaml", "pynvml", "amdsmi"}),
        ("collectors.process", {"asyncio", "aiohttp", "pydantic", "structlog", "ssl", "pynvml", "amdsmi"}),
        ("devicemanager.programs.hardware", {"aiohttp"}),
        ("devicemanager.settings.node", {"aiohttp"}),
        ("devicemanager.settings.worker", {"aiohttp"}),
        ("devicemanager.rules.duration", {"asyncio", "pydantic", "structlog"}),
    ],
)
def test_a_program_loads_only_what_it_runs(module: str, not_loaded: set[str]) -> None:
    loaded = run(_WHAT_IS_LOADED, module)

    assert isinstance(loaded, list)
    assert not_loaded.isdisjoint(loaded)


def test_the_authorities_of_the_system_are_not_read_and_the_environment_stays_as_it_was() -> None:
    assert run(_WHAT_IS_TRUSTED, "/given") == [0, "/given", False]
