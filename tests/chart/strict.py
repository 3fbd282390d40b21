"""YAML as strict parsers read it: a key that stands twice in a map is an error, and not the last one's value."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import yaml
from typing_extensions import override

_NAMED_BY = {
    "containers": "name",
    "env": "name",
    "ports": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
}
"""List -> what tells its items apart (``x-kubernetes-list-map-keys``): server-side apply refuses one twice."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    @override
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key) for key, _ in node.value]
        twice = sorted({str(key) for key in keys if keys.count(key) > 1})
        if twice:
            raise ValueError(f"line {node.start_mark.line + 1}: twice in one map: {', '.join(twice)}")
        made: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return made


def documents(text: str) -> Sequence[Any]:
    """The documents that are not empty.

    Raises:
        ValueError: A key stands twice in a map.
    """
    return tuple(document for document in yaml.load_all(text, _Loader) if document)


def repeated(value: Any, place: str = "") -> Iterator[str]:
    """Each place at which a list of named things holds two of one name."""
    if isinstance(value, dict):
        for key, inside in value.items():
            yield from repeated(inside, f"{place}.{key}")
            if key in _NAMED_BY and isinstance(inside, list):
                names = [each[_NAMED_BY[key]] for each in inside if _NAMED_BY[key] in each]
                yield from (f"{place}.{key}: {name}" for name in sorted(set(names)) if names.count(name) > 1)
    elif isinstance(value, list):
        for number, inside in enumerate(value):
            yield from repeated(inside, f"{place}[{number}]")
