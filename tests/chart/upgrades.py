"""Upgrades of the chart against a stand-in that holds what earlier ones made, and time passing in between."""

import base64
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.chart.api import HeldObjects
from tests.chart.binaries import Helm
from tests.chart.conftest import CHART, NAMESPACE, RELEASE, Document, run
from tests.chart.strict import documents

PREFIX = "devicemanager.gpustack.ai"


def upgrade(helm: Helm, cluster: HeldObjects, home: Path, *flags: str) -> Mapping[str, Document]:
    """What an upgrade against ``cluster`` makes of Secrets and APIService; the Secrets then stay there.

    Making keys is the slow part, so all tests begin with what a helm made once of an empty cluster.
    """
    if cluster.objects or flags:
        made = _made(helm, cluster, home, *flags)
    else:
        if helm not in _first:
            _first[helm] = _made(helm, cluster, home)
        made = _first[helm]
    for document in made.values():
        if document["kind"] == "Secret":
            cluster.keep(document, release=(RELEASE, NAMESPACE))
    return made


_first: dict[Helm, Mapping[str, Document]] = {}


def _made(helm: Helm, cluster: HeldObjects, home: Path, *flags: str) -> Mapping[str, Document]:
    text = run(
        helm,
        "template",
        RELEASE,
        str(CHART),
        "--namespace",
        NAMESPACE,
        "--dry-run=server",
        "--disable-openapi-validation",
        "--kube-apiserver",
        cluster.url,
        *flags,
        environment={**os.environ, "HOME": str(home), "KUBECONFIG": os.devnull},
    )
    return {d["metadata"]["name"]: d for d in documents(text) if d["kind"] in {"Secret", "APIService"}}


def name(suffix: str) -> str:
    return f"{RELEASE}-devicemanager-{suffix}"


def pem(document: Document, key: str) -> bytes:
    return base64.b64decode(document["data"][key])


def let_time_pass(cluster: HeldObjects, suffix: str, remaining: timedelta, *, key: str = "not-after-epoch") -> None:
    """The Secret's recorded end, as if it were ``remaining`` from now."""
    path = f"/api/v1/namespaces/{NAMESPACE}/secrets/{name(suffix)}"
    end = datetime.now(UTC) + remaining
    annotations: dict[str, Any] = cluster.objects[path]["metadata"]["annotations"]
    annotations[f"{PREFIX}/{key}"] = str(int(end.timestamp()))
