"""Releases of the chart in a cluster's stand-in: installed, upgraded, rolled back, by a real helm."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.chart.api import HeldObjects
from tests.chart.binaries import Helm
from tests.chart.conftest import NAMESPACE, RELEASE, Document, run

SIMULATED = (
    *("--set", "manufacturers.nvidia.enabled=false,manufacturers.simulated.enabled=true"),
    *("--set", "manufacturers.simulated.extraArgs={--no-pci-check}"),
    *("--set", "worker.shutdownDelaySeconds=1"),
)
"""Cards without hardware, and a worker that ends soon after it is told to."""


class Release:
    """One release, by one helm."""

    def __init__(self, helm: Helm, cluster: HeldObjects, home: Path) -> None:
        self._helm = helm
        self._cluster = cluster
        self._environment = {**os.environ, "HOME": str(home), "KUBECONFIG": os.devnull}

    def _run(self, *arguments: str) -> str:
        where = ("--namespace", NAMESPACE, "--kube-apiserver", self._cluster.url)
        return run(self._helm, *arguments, *where, environment=self._environment)

    def install(self, chart: Path, *flags: str) -> None:
        """The first revision."""
        self._run("install", RELEASE, str(chart), "--disable-openapi-validation", *SIMULATED, *flags)

    def upgrade(self, chart: Path, *flags: str) -> None:
        """The next revision, with the values of the one before."""
        self._run("upgrade", RELEASE, str(chart), "--disable-openapi-validation", "--reuse-values", *flags)

    def roll_back(self, revision: int) -> None:
        """An earlier revision again."""
        self._run("rollback", RELEASE, str(revision))

    def manifest(self) -> Sequence[Document]:
        """What the current revision asks for; the stand-in merges lists more plainly than Kubernetes.

        Read leniently: the chart before set one label twice.
        """
        text = self._run("get", "manifest", RELEASE)
        return [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]

    @property
    def objects(self) -> Sequence[Document]:
        """What there is now, but helm's own records."""
        return objects_of(self._cluster.objects)


def objects_of(moment: Mapping[str, Mapping[str, Any]]) -> Sequence[Document]:
    """The objects of a moment, but helm's own records."""
    return [held for path, held in moment.items() if "sh.helm.release" not in path]
