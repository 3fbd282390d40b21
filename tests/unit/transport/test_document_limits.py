"""What documents of peers cost, measured with the worst that the bounds let through."""

import gc
import json
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from devicemanager.errors import DocumentError
from devicemanager.transport.document_limits import (
    API_OBJECT_BYTES,
    ARRIVING_COST,
    LONG_DOCUMENT_BYTES,
    MIB,
    SHORT_DOCUMENT_BYTES,
    DocumentLimits,
    documents_bytes,
)
from devicemanager.wire import json_values, kubelet_summary, kubernetes, snapshot
from devicemanager.wire.memory_of import size_in_steps
from devicemanager.wire.steps import at_once
from devicemanager.worker.decoding import LONG_BODY_BYTES
from tests.bench import worst
from tests.unit.wire.test_bounds import fullest_pod, fullest_snapshot

UNCOUNTED_BYTES = 16 * 1024
"""The interpreter's own: free lists, and what is measured with."""

TIME = "2026-01-01T12:00:00Z"


def compact(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def repeated(before: bytes, element: bytes, times: int, after: bytes) -> bytes:
    return before + b",".join([element] * times) + after


def cards(*listed: object) -> bytes:
    return compact({"timestamp": TIME, "groups": [{"manufacturer": "nvidia", "accelerators": listed}]})


def measured(read: Callable[[bytes], Any], body: bytes) -> tuple[Any, int, int]:
    """What is read, None where it is refused, and the bytes that it takes then and took at most."""
    result = None
    with suppress(DocumentError):
        read(body)  # keys are remembered beyond the documents
    gc.collect()
    tracemalloc.start()
    with suppress(DocumentError):
        result = read(body)
    gc.collect()
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return result, kept, peak


def pods(number: int, rest: bytes) -> bytes:
    """A summary of pods with ``rest`` beside what names them, written as kubelets do."""
    each = b'{"podRef":{"name":"a","namespace":"b","uid":"c%d"}' + rest + b"}"
    return b'{"node":{},"pods":[' + b",".join(each % place for place in range(number)) + b"]}"


SNAPSHOTS = {
    **{f"worst {number}": body for number, body in enumerate(worst.snapshots("nvidia"))},
    "all that count": compact(fullest_snapshot()),
    "minimal cards": cards(*({"id": f"{each:x}"} for each in range(1024))),
    "with a partition each": cards(
        *({"id": f"{each:x}", "partitions": [{"id": f"{each:x}"}]} for each in range(1024))
    ),
    "notes": cards(*({"id": f"{each:x}", "notes": {f"n{n}": f"v{n}" for n in range(64)}} for each in range(800))),
    "16 of H100": cards(
        *(
            {"id": f"GPU-{each:032x}", "index": each, "name": "NVIDIA H100 80GB HBM3", "memory": 81559}
            | {"pciBusId": "00000000:1B:00.0", "memoryUsage": 1000, "temperature": 40, "powerUsage": 100}
            for each in range(16)
        )
    ),
    "usages": compact(
        {
            "timestamp": TIME,
            "groups": [],
            "slices": {
                "schemaVersion": 1,
                "usages": [
                    {"manufacturer": "n", "podUID": f"u{each}", "container": "m", "deviceID": "G"}
                    for each in range(4096)
                ],
            },
        }
    ),
    "text": compact({"timestamp": TIME, "groups": [], "x": "\U0001f600" + "a" * (4 * MIB - 100)}),
    "objects": repeated(b'{"timestamp":"%s","groups":[],"x":[' % TIME.encode(), b'{"a":0}', 16_000, b"]}"),
    "numbers": repeated(b'{"timestamp":"%s","groups":[],"x":[' % TIME.encode(), b"1e9", 114_000, b"]}"),
}

ZEROS = b',"containers":[' + b",".join([b"0"] * 65) + b"]"
BLOCKS = b',"containers":[' + b",".join([b'{"cpu":0,"memory":0,"rootfs":0}'] * 60) + b"]"

SUMMARIES = {
    **{f"worst {number}": body for number, body in enumerate(worst.summaries())},
    "zeros for pods": repeated(b'{"pods":[', b"0", 917_000, b"]}"),
    "zeros for pods, few enough to be looked at": repeated(b'{"pods":[', b"0", 100_000, b"]}"),
    "arrays for pods": repeated(b'{"pods":[', b"[]", 400_000, b"]}"),
    "texts for pods": repeated(b'{"pods":[', b'""', 917_000, b"]}"),
    "nulls for pods": repeated(b'{"node":{},"pods":[', b"null", 917_000, b"]}"),
    "minimal pods": pods(2000, b""),
    "full pods": compact({"node": {}, "pods": [fullest_pod(number, 4) for number in range(2000)]}),
    "long pods": pods(2000, b',"x":"' + b"a" * 8000 + b'"'),
    "zeros for containers": pods(2000, ZEROS),
    "zeros for containers, in the slower way": pods(500, ZEROS).replace(b'"node"', b'"x":NaN,"node"'),
    "numbers for blocks, in the slower way": pods(300, BLOCKS).replace(b'"node"', b'"x":NaN,"node"'),
    "text, in the slower way": compact({"x": "\U0001f600" + "a" * (3 * MIB - 100), "pods": []}),
    "a long name": pods(1, b"").replace(b'"a"', b'"\xf0\x9f\x98\x80' + b"a" * (15 * MIB) + b'"'),
}


@pytest.mark.parametrize("kind", SNAPSHOTS)
def test_a_snapshot_takes_no_more_than_is_counted_while_it_is_decoded_and_while_it_is_kept(kind: str) -> None:
    body = SNAPSHOTS[kind]

    found, kept, peak = measured(snapshot.parse, body)

    assert peak <= (LONG_DOCUMENT_BYTES if len(body) > LONG_BODY_BYTES else SHORT_DOCUMENT_BYTES)
    if found is not None and kind != "worst 2":  # the parser remembers 16,384 keys of all documents
        assert kept <= at_once(size_in_steps(found)) + UNCOUNTED_BYTES


@pytest.mark.parametrize("kind", SUMMARIES)
def test_a_summary_takes_no_more_than_is_counted_while_it_is_decoded_and_while_it_is_kept(kind: str) -> None:
    """The pieces that the body was put together of were counted, and are gone by then."""
    body = SUMMARIES[kind]

    found, kept, peak = measured(kubelet_summary.decode, body)

    long_bytes = LONG_DOCUMENT_BYTES + (ARRIVING_COST - 1) * len(body)
    assert peak <= (long_bytes if len(body) > LONG_BODY_BYTES else SHORT_DOCUMENT_BYTES)
    if found is not None:
        assert kept <= found.held_bytes + UNCOUNTED_BYTES


@pytest.mark.parametrize(
    "body",
    [
        repeated(b"[", b'{"a":0}', 32_000, b"]"),
        repeated(b"[", b"[[]]", 40_000, b"]"),
        repeated(b"[", b'"aa"', 131_000, b"]"),
        repeated(b"[", b"1111111111111111111", 131_000, b"]"),
        compact(["\U0001f600" + "a" * (2 * MIB - 100)]),
    ],
    ids=["objects", "arrays", "texts", "numbers", "text"],
)
def test_an_object_of_the_api_server_takes_no_more_than_is_counted(body: bytes) -> None:
    _, _, peak = measured(lambda text: json_values.load(text, "object"), body)

    assert peak <= API_OBJECT_BYTES


@pytest.mark.parametrize("element", [b"0", b"{}", b"[]", b'""', b"null"])
def test_a_page_of_anything_takes_no_more_than_is_counted(element: bytes) -> None:
    _, _, peak = measured(kubernetes.parse_list_page, repeated(b'{"items":[', element, 1_000_000, b"]}"))

    assert peak <= LONG_DOCUMENT_BYTES


@pytest.mark.parametrize("less", ["arriving_bytes", "summaries_bytes", "snapshots_bytes"])
def test_arriving_and_kept_documents_all_count(less: str) -> None:
    documents = DocumentLimits(2 * MIB, 2 * MIB, 2 * MIB)
    fewer = replace(documents, **{less: 1 * MIB})

    assert documents_bytes(documents) > documents_bytes(fewer)
