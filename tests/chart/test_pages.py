"""What the pages tell an administrator to type is what the chart takes."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.binaries import Helm
from tests.chart.cases import FILES, together
from tests.chart.conftest import CHART, run
from tests.chart.installed import the
from tests.chart.strict import documents

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("install.md", "operators.md", "troubleshooting.md", "upgrade.md", "values.md")
CERT_MANAGER = {"tls": {"mode": "certManager"}}


def blocks(page: str, *languages: str) -> Iterator[str]:
    """The page's code blocks in one of the languages."""
    text = (DOCS / page).read_text()
    yield from (
        body for language, body in re.findall(r"^```(\w+)\n(.*?)^```", text, re.M | re.S) if language in languages
    )


def commands(page: str, word: str) -> Iterator[Sequence[str]]:
    """The page's commands that begin with a word, as a shell reads them."""
    for block in blocks(page, "sh", "console"):
        joined = re.sub(r"\\\n\s*", " ", block)
        for line in joined.splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            if words[:1] == [word]:
                yield words


VALUES = {
    f"{page}: {'+'.join(values)} {number}": values
    for page in PAGES
    if (DOCS / page).exists()
    for number, block in enumerate(blocks(page, "yaml"))
    for values in yaml.safe_load_all(block)
    if "apiVersion" not in values
}
HELM = [
    words
    for page in PAGES
    if (DOCS / page).exists()
    for words in commands(page, "helm")
    if str(CHART.name) in words
]


@pytest.mark.parametrize("block", VALUES)
def test_values_on_the_pages_render(block: str, helms: Sequence[Helm]) -> None:
    values = together([CERT_MANAGER, VALUES[block]])
    assert rendered(helms[len(block) % len(helms)], json.dumps(values))


@pytest.mark.parametrize("words", HELM, ids=" ".join)
def test_helm_commands_on_the_pages_set_values_that_render(words: Sequence[str], helms: Sequence[Helm]) -> None:
    given = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
    flags = [word for pair in given for word in ("--set", pair)]
    assert rendered(helms[0], json.dumps(CERT_MANAGER), *flags, release=words[2])


def rendered(helm: Helm, values: str, *flags: str, release: str = "devicemanager") -> Sequence[Mapping[str, Any]]:
    command = ("template", release, str(CHART), "-n", "accelerators", "-f", "-")
    return documents(run(helm, *command, "--set", "worker.apiService.ours=true", *flags, stdin=values))


def test_the_values_of_the_platforms_are_those_of_the_golden_files() -> None:
    shown = list(VALUES.values())
    for platform in ("gke", "gitops"):
        assert any(FILES[platform].items() <= together([values]).items() for values in shown), platform


def test_the_first_command_for_trouble_names_what_an_installation_has(helms: Sequence[Helm]) -> None:
    """tests/chart/test_certificates_live.py runs it."""
    made = rendered(helms[0], "{}")
    command = first_command()
    worker = the(made, "Deployment", "-worker")
    assert command[:6] == [
        "kubectl",
        "-n",
        "accelerators",
        "exec",
        f"deployment/{worker['metadata']['name']}",
        "--",
    ]
    (container,) = worker["spec"]["template"]["spec"]["containers"]
    service = the(made, "Service", "-nvidia")
    (port,) = service["spec"]["ports"]
    assert command[6:9] == ["devicemanager", "snapshot", f"https://{service['metadata']['name']}:{port['port']}"]
    server_name = command[command.index("--server-name") + 1]
    assert f"--device-manager-server-name={server_name}" in container["args"]
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    for flag, key in (("--ca-file", "ca.crt"), ("--cert", "tls.crt"), ("--key", "tls.key")):
        folder, _, name = command[command.index(flag) + 1].rpartition("/")
        assert name == key
        assert folder in mounts


def first_command() -> Sequence[str]:
    """The first one on the page for trouble."""
    return next(commands("troubleshooting.md", "kubectl"))
