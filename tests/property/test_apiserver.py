"""Whatever a caller sends: parsers raise only their own errors, and nobody becomes somebody else."""

import asyncio
import contextlib
import ssl
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict
from schemathesis.specs.openapi.checks import positive_data_acceptance
from typing_extensions import override

from devicemanager.worker.apiserver.attributes import parse_attributes
from devicemanager.worker.apiserver.authentication import (
    Authenticator,
    UnauthorizedError,
    bearer_token,
)
from devicemanager.worker.apiserver.identity import ANONYMOUS, User
from devicemanager.worker.apiserver.negotiation import (
    Shape,
    accepts_json,
    clauses,
    for_discovery,
    for_list,
    for_object,
)
from devicemanager.worker.apiserver.paging import Page, PageError, Position, parse_page
from devicemanager.worker.apiserver.request_header import FrontProxyTrust, IdentityHeaderError, user_from_headers
from devicemanager.worker.apiserver.reviews import ACCESS_REVIEWS, ReviewCache
from devicemanager.worker.apiserver.selectors import SelectorError, parse_labels, parse_selection
from devicemanager.worker.apiserver.warning_headers import warning_header
from tests.timing import FakeClock
from tests.unit.worker.apiserver.api_server import GROUPS, MadeUpApi, exchange, running_server, usage

TRUST = FrontProxyTrust(
    "pem",
    ("front-proxy-client",),
    ("X-Remote-User",),
    ("X-Remote-Uid",),
    ("X-Remote-Group",),
    ("x-remote-extra-",),
)

media_types = st.sampled_from(
    [
        "application/json",
        "application/yaml",
        "*/*",
        "application/*",
        "text/html",
        "application/vnd.kubernetes.protobuf",
        "x",
    ]
)
clause_parameters = st.sampled_from(
    [
        "",
        ";q=0",
        ";q=0.5",
        ";q=2",
        ";q=-1",
        ";q=x",
        ";as=Table;v=v1;g=meta.k8s.io",
        ";as=Table;v=v9;g=meta.k8s.io",
        ";as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        ";as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io",
        ";as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io",
        ";=;;",
    ]
)
accepts = st.one_of(
    st.lists(st.builds("{}{}".format, media_types, clause_parameters), max_size=6).map(",".join),
    st.text(max_size=200),
)

header_values = st.text(st.characters(exclude_characters="\r\n\x00", exclude_categories=["Cs"]), max_size=20)
identity_headers = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "X-Remote-User",
                "x-remote-user",
                "X_Remote_User",
                "X-Remote-Uid",
                "X-Remote-Group",
                "X_Remote_Group",
                "X-Remote-Extra-a",
                "X-Remote-Extra-%41",
                "X-Remote-Extra-%zz",
                "X-Remote-Extra",
                "Remote-User",
            ]
        ),
        header_values,
    ),
    max_size=8,
)


@given(accepts)
def test_any_accept_header_gets_a_form_that_one_of_its_clauses_asks_for(accept: str) -> None:
    weights = [clause.weight for clause in clauses(accept)]
    assert weights == sorted(weights, reverse=True)
    assert all(1 <= weight <= 1000 for weight in weights)
    for choose, shapes in (
        (for_object, {Shape.OBJECT, Shape.TABLE, Shape.METADATA}),
        (for_list, {Shape.OBJECT, Shape.TABLE, Shape.METADATA_LIST}),
    ):
        found = choose(accept)
        if found is not None:
            assert found.shape in shapes
            assert any(clause.is_json and clause.kind == found.shape for clause in clauses(accept))
    if accepts_json(accept):
        assert for_object(accept) is not None
        assert for_discovery(accept) is not None


@given(st.text(max_size=100))
def test_any_text_is_a_selector_or_refused_as_one(text: str) -> None:
    with contextlib.suppress(SelectorError):
        parse_selection(text, text).matches("ns", "name", {})


object_name_characters = string.ascii_lowercase + string.digits + "-."
label_names = st.text(string.ascii_lowercase, min_size=1, max_size=5)


@given(
    st.dictionaries(label_names, label_names, max_size=4),
    label_names,
    st.lists(label_names, min_size=1, max_size=3),
)
def test_selectors_and_their_opposites_divide_everything(own: dict[str, str], key: str, values: list[str]) -> None:
    def matches(text: str) -> bool:
        return all(requirement.matches(own) for requirement in parse_labels(text))

    listed = ",".join(values)
    assert matches(f"{key} in ({listed})") is (own.get(key) in values)
    assert matches(f"{key} notin ({listed})") is not matches(f"{key} in ({listed})")
    assert matches(f"{key}={values[0]}") is not matches(f"{key}!={values[0]}")
    assert matches(key) is not matches(f"!{key}")
    assert matches(f"{key},!{key}") is False


@given(identity_headers)
def test_header_soup_names_only_whom_the_one_user_header_names(headers: list[tuple[str, str]]) -> None:
    values = [value for name, value in headers if name.lower() == "x-remote-user"]
    try:
        user = user_from_headers(CIMultiDict(headers), TRUST)
    except IdentityHeaderError:
        repeated = [
            name for name in ("x-remote-user", "x-remote-uid") if [n.lower() for n, _ in headers].count(name) > 1
        ]
        assert repeated
        return
    if user is None:
        assert values in ([], [""])
        return
    assert [user.name] == values
    assert user.groups == tuple(value for name, value in headers if name == "X-Remote-Group" and value)
    assert len(user.extra) <= len([name for name, _ in headers if name.startswith("X-Remote-Extra-")])


@given(identity_headers, st.sampled_from([None, {}]))
def test_header_soup_without_a_certificate_is_anonymous(
    headers: list[tuple[str, str]], certificate: Mapping[str, object] | None
) -> None:
    async def identified() -> User:
        clock, api = FakeClock(), MadeUpApi()
        async with ReviewCache[bytes, User | str](clock) as tokens:
            user = await Authenticator(lambda: TRUST, api, tokens, clock).authenticate(
                CIMultiDict(headers), certificate
            )
        assert api.posts == []
        return user

    assert asyncio.run(identified()) == ANONYMOUS


@given(st.text(max_size=60))
def test_any_authorization_header_is_a_clean_token_or_refused(value: str) -> None:
    try:
        token = bearer_token(CIMultiDict([("Authorization", value)]))
    except UnauthorizedError:
        return
    assert token
    assert token.isascii()
    assert token.isprintable()
    assert " " not in token


@given(st.text(max_size=30), st.text(max_size=60))
def test_any_page_parameters_are_understood_or_refused(limit: str, token: str) -> None:
    with contextlib.suppress(PageError):
        assert parse_page(limit, token).limit >= 0


@given(st.lists(st.tuples(label_names, label_names), unique=True, max_size=20), st.integers(1, 7))
def test_pages_of_any_size_are_the_list(names: list[tuple[str, str]], limit: int) -> None:
    items = [usage(name, namespace) for namespace, name in names]
    found, after = [], None
    for _ in range(len(items) + 1):
        page, after, _ = Page(limit, after).cut(items)
        found += [(one.namespace, one.name) for one in page]
        if after is None:
            break
        after = parse_page("", after.encode()).after
    assert found == sorted(names)


@given(st.text(object_name_characters, max_size=63), st.text(object_name_characters, max_size=253))
def test_a_position_survives_the_caller(namespace: str, name: str) -> None:
    token = Position(namespace, name).encode()
    assert parse_page("", token).after == Position(namespace, name)


@given(st.text(max_size=1000))
def test_any_warning_is_one_line_and_quoted(text: str) -> None:
    header = warning_header(text)
    assert header.startswith('299 - "')
    assert header.endswith('"')
    assert all(character.isprintable() for character in header)
    inner = header[len('299 - "') : -1]
    assert '"' not in inner.replace("\\\\", "").replace('\\"', "")


@given(st.sampled_from(["GET", "POST", "DELETE", "BREW"]), st.text("/ab%.ümetricsinstances", max_size=80))
def test_any_path_is_either_a_resource_or_a_path(method: str, path: str) -> None:
    found = parse_attributes(method, "/" + path, {})
    assert found.path == "/" + path
    if found.resource:
        assert found.path.strip("/").startswith("apis/")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(identity_headers, accepts.filter(lambda text: text.isascii() and text.isprintable()))
def test_soup_over_a_real_connection(tmp_path: Path, headers: list[tuple[str, str]], accept: str) -> None:
    """Without the certificate: anonymous, refused, in an error that can be read; and the server lives on."""

    async def ask() -> None:
        async with running_server(tmp_path) as server:
            server.api.allows = lambda spec: spec["user"] != "system:anonymous"
            path = f"{server.prefix}/namespaces/team-a/instances/web/metrics"
            reader, writer = await server.connect()
            answer = await exchange(reader, writer, path, [*headers, ("Accept", accept)])
            writer.close()
            assert answer.status in {400, 403}
            if answer.status == 403:
                (spec,) = server.api.specs(ACCESS_REVIEWS)
                assert spec["user"] == "system:anonymous"
            assert server.reader.reads == []
            assert (await server.request("/livez")).body == b"ok"

    asyncio.run(ask())


@pytest.mark.asyncio
@pytest.mark.parametrize("group", GROUPS)
async def test_the_server_keeps_what_its_openapi_promises(tmp_path: Path, group: str) -> None:
    async with running_server(tmp_path, group) as server:
        server.reader.add(usage("web", "default"), usage("llm", "team-a"))
        server.api.tokens["good"] = {"username": "viewer"}
        headers = {"Authorization": "Bearer good"}
        document = (await server.request(f"/openapi/v3/apis/{group}/v1", list(headers.items()))).json
        host, port = server.listener.addresses[0]
        ca = server.serving.pem.certificate
        await asyncio.to_thread(_conform, document, f"https://{host}:{port}", headers, ca)


def _conform(document: Any, url: str, headers: dict[str, str], ca: bytes) -> None:
    schema = schemathesis.openapi.from_dict(document)
    with requests.Session() as session:
        session.trust_env = False
        session.mount("https://", _NamedAdapter(ca))
        for path, item in document["paths"].items():
            assert set(item) <= {"get", "parameters"}

            @settings(max_examples=30, deadline=None, database=None)
            @given(schema[path]["GET"].as_strategy())
            def conforms(case: Any) -> None:
                response = case.call(base_url=url, session=session, headers=headers)
                # A selector, a page token: their grammars are more than a schema can say, so 400 is an answer too.
                case.validate_response(response, excluded_checks=[positive_data_acceptance])

            conforms()


class _NamedAdapter(requests.adapters.HTTPAdapter):
    """Verifies the worker's certificate for its service's name, whatever the address."""

    def __init__(self, ca: bytes) -> None:
        self._context = ssl.create_default_context(cadata=ca.decode())
        super().__init__()

    @override
    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        name = "devicemanager-worker.gpustack-system.svc"
        super().init_poolmanager(
            *args, ssl_context=self._context, server_hostname=name, assert_hostname=name, **kwargs
        )
