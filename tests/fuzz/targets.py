"""Every parser of what peers and callers send, and what it may raise."""

import asyncio
import atexit
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpRequestParser
from multidict import CIMultiDict

from collectors.scenario import read_scenario
from devicemanager.errors import CollectorError, DocumentError, FetchError, SettingsError
from devicemanager.rules import quantity
from devicemanager.serving.budget import DEVICE_MANAGER
from devicemanager.serving.heads import Head
from devicemanager.serving.messages import refusal_reason
from devicemanager.settings.loading import load
from devicemanager.settings.node import ServeSettings
from devicemanager.settings.worker import WorkerSettings
from devicemanager.tls import der
from devicemanager.tls.material import Pair, TrustedCAs
from devicemanager.wire import (
    allocation_annotation,
    collector_line_decoding,
    json_values,
    kubelet_summary,
    kubernetes,
    nodes,
    pod_metrics,
    pods,
    snapshot,
    timestamps,
    workload_objects,
)
from devicemanager.wire.steps import at_once
from devicemanager.worker import kubeconfig, watch_stream
from devicemanager.worker.apiserver import (
    attributes,
    authentication,
    negotiation,
    paging,
    parameters,
    reviews,
    selectors,
)
from devicemanager.worker.apiserver.request_header import (
    FrontProxyTrust,
    IdentityHeaderError,
    parse_trust,
    user_from_headers,
)
from devicemanager.worker.apiserver.status import StatusError

_FOLDER: Final = Path(tempfile.mkdtemp(prefix="fuzz-"))
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)

TRUST: Final = FrontProxyTrust(
    "", (), ("X-Remote-User",), ("X-Remote-Uid",), ("X-Remote-Group",), ("x-remote-extra-",)
)


@dataclass(frozen=True)
class Target:
    """One parser.

    Attributes:
        parse: Bytes in; what comes out is bounded, and nothing but ``raises`` is raised.
        raises: What it documents.
        corpus: Folder of right inputs; None for the target's own name.
        own: Whether it is the user's own input, all mistakes in which are listed to the user.
    """

    parse: Callable[[bytes], object]
    raises: tuple[type[Exception], ...] = (DocumentError,)
    corpus: str | None = None
    own: bool = False


def _text(data: bytes) -> str:
    """As it comes out of a request: aiohttp keeps what is no UTF-8 as surrogates."""
    return data.decode("utf-8", "surrogateescape")


def _headers(data: bytes) -> CIMultiDict[str]:
    found: CIMultiDict[str] = CIMultiDict()
    for line in _text(data).splitlines():
        name, _, value = line.partition(":")
        found.add(name, value.strip())
    return found


def _query(data: bytes) -> dict[str, str]:
    return dict(parse_qsl(_text(data), keep_blank_values=True, max_num_fields=None, errors="surrogateescape"))


def _every_pod(data: bytes) -> object:
    summary = kubelet_summary.decode(data)
    return [one for pod in summary.pods for one in (pod, summary.pod(pod.namespace, pod.name, pod.uid))]


def _list_page(data: bytes) -> object:
    page = kubernetes.parse_list_page(data)
    return page, [kubernetes.parse_metadata(bytes(item)) for item in page.items or ()]


def _watch(data: bytes) -> object:
    async def all_events() -> list[object]:
        stream = asyncio.StreamReader()
        stream.feed_data(data)
        stream.feed_eof()
        return [one async for one in watch_stream.events(_Content(stream), silence_s=9, limit_bytes=4096)]  # type: ignore[arg-type]

    return _LOOP.run_until_complete(all_events())


_LOOP: Final = asyncio.new_event_loop()


class _Content:
    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._stream = stream

    async def readany(self) -> bytes:
        return await self._stream.read(700)


def _review(data: bytes) -> object:
    class Api:
        async def post(self, path: str, body: bytes, *, deadline_s: float) -> bytes:
            return data

    return _LOOP.run_until_complete(reviews.ask(Api(), "/", reviews.token_review("t")))


def _reviewed_user(data: bytes) -> object:
    status = _review(data)
    assert isinstance(status, Mapping)
    user = reviews.reviewed_user(status)
    return user and reviews.access_review(user, attributes.parse_attributes("GET", "/apis", {}))


def _trust(data: bytes) -> object:
    return parse_trust(dict(line.partition("=")[::2] for line in _text(data).split(";")))


def _kubeconfig(data: bytes) -> object:
    path = _FOLDER / "kubeconfig"
    path.write_bytes(data)
    merged = kubeconfig.merge([path])
    chosen = kubeconfig.select(merged, None)
    kubeconfig.bytes_of(
        {key: value for key, value in chosen.user.items() if key == "client-certificate-data"}, "client-certificate"
    )
    return chosen, kubeconfig.impersonation(chosen.user), kubeconfig.text(chosen.cluster, "server")


def _scenario(data: bytes) -> object:
    path = _FOLDER / "scenario.toml"
    path.write_bytes(data)
    return read_scenario(path, "simulated")


def _settings(model: type[Any]) -> Callable[[bytes], object]:
    def parse(data: bytes) -> object:
        path = _FOLDER / "settings.yaml"
        path.write_bytes(data)
        return load(model, [f"--config={path}"], {})

    return parse


def _flags(data: bytes) -> object:
    return load(WorkerSettings, _text(data).split("\n"), {})


def _variables(data: bytes) -> object:
    return load(ServeSettings, [], dict(line.partition("=")[::2] for line in _text(data).split("\n")))


def _request_heads(data: bytes) -> object:
    """Cut into heads as a connection does, parsed as aiohttp does, and then asked what is wanted."""
    parser = HttpRequestParser(
        BaseProtocol(_LOOP),
        _LOOP,
        LIMITS.receive_buffer,
        max_line_size=LIMITS.line_bytes,
        max_headers=LIMITS.headers,
    )
    head, held, found = Head(), bytearray(data), []
    while held:
        piece = head.next_piece(held, LIMITS.head_bytes)
        head.grow(piece)
        if not piece or head.lines > LIMITS.headers:
            break
        del held[: len(piece)]
        try:
            messages, upgraded, _ = parser.feed_data(piece)
        except HttpProcessingError as error:
            raise DocumentError(refusal_reason(error)) from error
        for message, _ in messages:
            head.clear()
            query = dict(message.url.query)
            found.append(
                (attributes.parse_attributes(message.method, message.url.raw_path, query), message.headers)
            )
        if upgraded:
            break
    return found


LIMITS: Final = DEVICE_MANAGER.limits

TARGETS: Final[Mapping[str, Target]] = {
    "snapshot": Target(snapshot.parse),
    "collector_line": Target(collector_line_decoding.decode),
    "kubelet_summary": Target(_every_pod),
    "kubelet_summary_lenient": Target(
        lambda data: list(at_once(kubelet_summary.decode_lenient_in_steps(data)).pods), corpus="kubelet_summary"
    ),
    "pod_metrics": Target(pod_metrics.parse),
    "pod": Target(pods.parse),
    "node": Target(nodes.parse),
    "workload_object": Target(
        lambda data: workload_objects.parse(data, kind="Instance", node_name_at=("status", "nodeName"))
    ),
    "list_page": Target(_list_page),
    "watch_events": Target(_watch, (FetchError,)),
    "status": Target(kubernetes.parse_status),
    "json_members": Target(lambda data: list(json_values.members(data, "list", "items")), corpus="list_page"),
    "json": Target(lambda data: json_values.load(data, "document"), corpus="pod"),
    "token_review": Target(_reviewed_user),
    "access_review": Target(_review),
    "front_proxy_headers": Target(lambda data: user_from_headers(_headers(data), TRUST), (IdentityHeaderError,)),
    "front_proxy_trust": Target(_trust),
    "authorization_header": Target(
        lambda data: authentication.bearer_token(_headers(data)), (authentication.UnauthorizedError,)
    ),
    "label_selector": Target(lambda data: selectors.parse_labels(_text(data)), (selectors.SelectorError,)),
    "field_selector": Target(lambda data: selectors.parse_fields(_text(data)), (selectors.SelectorError,)),
    "list_query": Target(lambda data: parameters.list_parameters(_query(data), "application/json"), (StatusError,)),
    "read_query": Target(
        lambda data: parameters.read_parameters(_query(data), "application/json"), (StatusError,), "list_query"
    ),
    "page_token": Target(lambda data: paging.parse_page("", _text(data)), (paging.PageError,)),
    "accept_header": Target(
        lambda data: (
            negotiation.for_object(_text(data)),
            negotiation.for_list(_text(data)),
            negotiation.for_metadata(_text(data)),
            negotiation.for_discovery(_text(data)),
        ),
        (),
    ),
    "request_heads": Target(_request_heads),
    "request_path": Target(lambda data: attributes.parse_attributes("GET", _text(data), {}), ()),
    "allocation_annotation": Target(lambda data: allocation_annotation.parse(_text(data)), ()),
    "quantity": Target(lambda data: quantity.parse(_text(data))),
    "timestamp": Target(lambda data: (timestamps.parse(_text(data)), timestamps.parse_any(_text(data))), ()),
    "certificates": Target(lambda data: TrustedCAs.parse(data).not_after, (ValueError,)),
    "pair": Target(lambda data: Pair.parse(data, data), (ValueError,), "certificates"),
    "certificate_der": Target(der.not_after, (ValueError,)),
    "kubeconfig": Target(_kubeconfig, (DocumentError,)),
    "scenario": Target(_scenario, (CollectorError,), own=True),
    "settings_file": Target(_settings(ServeSettings), (SettingsError,), own=True),
    "worker_settings_file": Target(_settings(WorkerSettings), (SettingsError,), "settings_file", own=True),
    "flags": Target(_flags, (SettingsError,), own=True),
    "environment": Target(_variables, (SettingsError,), own=True),
}
