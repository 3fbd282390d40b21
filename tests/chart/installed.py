"""A rendered chart as far as one machine can hold it: its Secrets as files, its arguments with paths to those."""

import base64
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.chart.conftest import Document

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def moved(argument: str, root: Path) -> str:
    """The same argument with an absolute path below ``root``."""
    return re.sub(r"^(--[a-z-]+=)(/.*)$", rf"\1{root}\2", argument)


def the(documents: Sequence[Document], kind: str, suffix: str) -> Document:
    """The one object of a kind whose name ends so."""
    (found,) = (d for d in documents if d["kind"] == kind and d["metadata"]["name"].endswith(suffix))
    return found


class Installed:
    """One workload's only container, below a folder that stands for its root.

    Attributes:
        root: Where its files lie.
        arguments: What it is started with, paths below ``root``; the program's name first.
        mounts: Where each of its Secrets is mounted in its own eyes.
    """

    def __init__(self, documents: Sequence[Document], workload: Document, root: Path) -> None:
        self.root = root
        secrets = {d["metadata"]["name"]: d["data"] for d in documents if d["kind"] == "Secret"}
        pod = workload["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        self.arguments = [moved(argument, root) for argument in container["args"]]
        mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        self.mounts = {
            volume["secret"]["secretName"]: Path(mounted[volume["name"]])
            for volume in pod["volumes"]
            if "secret" in volume
        }
        for secret in self.mounts:
            self.write(secret, secrets[secret])

    def write(self, secret: str, data: Mapping[str, str]) -> None:
        """What a Secret holds, where it is mounted; each key replaced as a whole."""
        folder = self.root / self.mounts[secret].relative_to("/")
        folder.mkdir(parents=True, exist_ok=True)
        for key, value in data.items():
            fresh = folder / f".{key}"
            fresh.write_bytes(base64.b64decode(value))
            fresh.rename(folder / key)

    def flag(self, name: str) -> str:
        """The value of an argument."""
        (value,) = (one.partition("=")[2] for one in self.arguments if one.startswith(f"{name}="))
        return value

    def path(self, name: str) -> Path:
        """The file or folder that an argument names."""
        return Path(self.flag(name))

    def on_loopback(self, *more: str) -> list[str]:
        """The arguments for a free port of this machine, with others behind them."""
        return [*self.arguments, "--bind-address=127.0.0.1", "--secure-port=0", *more]


def bindings(documents: Sequence[Document], account: str) -> list[tuple[Mapping[str, Any], str | None]]:
    """The roles bound to a service account, each with the namespace it counts in; None for all of them."""
    return [
        (document["roleRef"], document["metadata"].get("namespace") if document["kind"] == "RoleBinding" else None)
        for document in documents
        if document["kind"] in {"ClusterRoleBinding", "RoleBinding"}
        and account in {subject["name"] for subject in document["subjects"]}
    ]
