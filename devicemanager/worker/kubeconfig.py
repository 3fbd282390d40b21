"""Kubeconfigs as kubectl reads them: several files as one, and what a context of them says.

Only files are read here. What a message says never holds more of them than names and places.
"""

from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote

import yaml

from devicemanager.errors import DocumentError, excerpt

Entry = Mapping[str, object]
"""A cluster, user or context, with relative paths made absolute."""

_SECTIONS: Final = {
    "clusters": ("cluster", ("certificate-authority",)),
    "users": ("user", ("client-certificate", "client-key", "tokenFile")),
    "contexts": ("context", ()),
}
"""Section -> what an entry is called in it, and its keys that name files, from the folder of the kubeconfig."""


@dataclass(slots=True)
class Merged:
    """Several files as one: of entries with the same name the first counts, and so of current contexts."""

    clusters: dict[str, Entry] = field(default_factory=dict)
    users: dict[str, Entry] = field(default_factory=dict)
    contexts: dict[str, Entry] = field(default_factory=dict)
    current_context: str = ""


@dataclass(frozen=True, slots=True)
class Selected:
    """What one context says.

    Attributes:
        user: Empty where the context names none.
    """

    cluster: Entry
    user: Entry = field(repr=False)
    namespace: str = "default"


def merge(paths: Iterable[Path]) -> Merged:
    """The files that exist, as one.

    Raises:
        DocumentError: None exists, or one is no kubeconfig.
        OSError: One cannot be read.
    """
    merged = Merged()
    existing = [path for path in paths if path.exists()]
    if not existing:
        raise DocumentError("no such file")
    for path in existing:
        document = _document(path)
        for section, (kind, file_keys) in _SECTIONS.items():
            entries = getattr(merged, section)
            for name, entry in _entries(path, document, section, kind).items():
                entries.setdefault(name, _resolved(entry, path.absolute().parent, file_keys))
        merged.current_context = merged.current_context or text(document, "current-context")
    return merged


def select(merged: Merged, context: str | None) -> Selected:
    """The cluster and the user of a context, the current one for None.

    Raises:
        DocumentError: There is no such context, or what it names is not there.
    """
    name = context or merged.current_context
    if not name:
        raise DocumentError("it names no current context")
    chosen = merged.contexts.get(name)
    if chosen is None:
        raise DocumentError(f"there is no context {excerpt(name)!r}")
    cluster, user = text(chosen, "cluster"), text(chosen, "user")
    if cluster not in merged.clusters:
        raise DocumentError(f"context {excerpt(name)!r} names the cluster {excerpt(cluster)!r}, which is not there")
    if user and user not in merged.users:
        raise DocumentError(f"context {excerpt(name)!r} names the user {excerpt(user)!r}, which is not there")
    return Selected(merged.clusters[cluster], merged.users.get(user, {}), text(chosen, "namespace") or "default")


def text(entry: Entry, key: str) -> str:
    """The text at a key; empty where it is missing or null.

    Raises:
        DocumentError: It is something else.
    """
    value = entry.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DocumentError(f"{key} is not text")
    return value


def bytes_of(entry: Entry, key: str) -> bytes | None:
    """What is given in base64 at ``<key>-data``, or else lies in the file named at the key; None for neither.

    Raises:
        DocumentError: It is no base64.
        OSError: The file cannot be read.
    """
    data, path = text(entry, f"{key}-data"), text(entry, key)
    if data:
        try:
            return b64decode(data, validate=False)
        except ValueError as error:
            raise DocumentError(f"{key}-data is not base64") from error
    return Path(path).read_bytes() if path else None


def impersonation(user: Entry) -> tuple[tuple[str, str], ...]:
    """The headers with which a user acts as another.

    Raises:
        DocumentError: What they would hold is no text, or cannot stand in a header.
    """
    name, uid = text(user, "as"), text(user, "as-uid")
    headers = [("Impersonate-User", name)] if name else []
    headers += [("Impersonate-Uid", uid)] if uid else []
    headers += [("Impersonate-Group", group) for group in _texts(user.get("as-groups"), "as-groups")]
    extra = user.get("as-user-extra") or {}
    if not isinstance(extra, dict):
        raise DocumentError("as-user-extra is not a mapping")
    for key, values in extra.items():
        escaped = quote(str(key).lower(), safe="")
        headers += [(f"Impersonate-Extra-{escaped}", value) for value in _texts(values, "as-user-extra")]
    if headers and not name:
        raise DocumentError("as-groups, as-uid and as-user-extra need as")
    if any(not value.isprintable() or not value.isascii() for _, value in headers):
        raise DocumentError("what it impersonates holds characters that no header may hold")
    return tuple(headers)


def _document(path: Path) -> Entry:
    try:
        document = yaml.safe_load(path.read_bytes())
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # ValueError: a day or a number that cannot be
        mark = getattr(error, "problem_mark", None)  # its text would quote the file
        raise DocumentError(f"{path} is not YAML" + (f", see line {mark.line + 1}" if mark else "")) from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise DocumentError(f"{path} is not a kubeconfig")
    return document


def _entries(path: Path, document: Entry, section: str, kind: str) -> Mapping[str, Entry]:
    listed = document.get(section)
    if not isinstance(listed, list | None):
        raise DocumentError(f"{section} of {path} is not a list")
    entries: dict[str, Entry] = {}
    for one in listed or ():
        match one:
            case {"name": str(name), **rest} if name and isinstance(entry := rest.get(kind) or {}, dict):
                if name in entries:
                    raise DocumentError(f"{path} has two {section} of the name {excerpt(name)!r}")
                entries[name] = entry
            case _:
                raise DocumentError(f"{section} of {path} holds something that is none")
    return entries


def _resolved(entry: Entry, folder: Path, file_keys: Sequence[str]) -> Entry:
    files = {key: str(folder / text(entry, key)) for key in file_keys if text(entry, key)}
    plugin = entry.get("exec")
    if isinstance(plugin, dict) and "/" in text(plugin, "command"):
        return {**entry, **files, "exec": {**plugin, "command": str(folder / text(plugin, "command"))}}
    return {**entry, **files}


def _texts(value: object, key: str) -> Sequence[str]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise DocumentError(f"{key} is not a list of texts")
    return value
