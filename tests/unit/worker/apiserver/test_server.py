"""Requests over TLS, from the handshake to the last byte."""

import asyncio
import json
import re
import socket
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp.http_writer import StreamWriter
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from structlog.testing import capture_logs

from devicemanager.errors import FetchError
from devicemanager.model.usage import SourceReport, SourceState
from devicemanager.serving.probes import PING, Check
from devicemanager.tls.certificates import Authority, PemPair
from devicemanager.tls.material import TrustedCAs
from devicemanager.worker.apiserver.reviews import ACCESS_REVIEWS, TOKEN_REVIEWS
from devicemanager.worker.outcomes import DeadlineExceeded, Unavailable
from tests.timing import until
from tests.unit.worker.apiserver.api_server import (
    FRONT_PROXY,
    NOW,
    SERVER_NAME,
    Server,
    exchange,
    running_server,
    trust_of,
    usage,
)

pytestmark = pytest.mark.asyncio

MASTERS = ["system:masters"]
DISCOVERY_V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
TABLE = ",".join(
    [
        "application/json;as=Table;v=v1;g=meta.k8s.io",
        "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
        "application/json",
    ]
)


def subresource(server: Server, name: str = "web", namespace: str = "team-a") -> str:
    return f"{server.prefix}/namespaces/{namespace}/instances/{name}/metrics"


def metrics(server: Server, name: str = "", namespace: str = "team-a") -> str:
    return f"{server.prefix}/namespaces/{namespace}/instancemetrics" + (f"/{name}" if name else "")


def status_of(server: Server, code: int, reason: str, message: str, details: Any = None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    return found if details is None else {**found, "details": details}


def root_and_intermediate() -> tuple[bytes, PemPair]:
    """A root, and a front proxy's pair of an authority that the root signed, with that one's certificate."""
    root, root_key = authority("root", None, None)
    certificate, key = authority("intermediate", root, root_key)
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    leaf = Authority.load(PemPair(pem, private)).client(FRONT_PROXY)
    return root.public_bytes(serialization.Encoding.PEM), PemPair(leaf.certificate + pem, leaf.key)


def authority(
    name: str, issuer: x509.Certificate | None, issuer_key: ec.EllipticCurvePrivateKey | None
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - timedelta(hours=1))
        .not_valid_after(datetime.now(UTC) + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(identifier, critical=False)
        .sign(issuer_key or key, hashes.SHA256())
    )
    return certificate, key


# Both resources answer with the same object.


async def test_the_subresource_and_the_resource_answer_with_the_same_object(server: Server) -> None:
    server.reader.add(usage())
    by_subresource = await server.proxied(subresource(server))
    by_resource = await server.proxied(metrics(server, "web"))
    assert by_subresource.status == by_resource.status == 200
    assert by_subresource.body == by_resource.body
    assert by_subresource["Content-Type"] == "application/json"
    assert by_subresource.json["apiVersion"] == f"{server.group}/v1"
    assert by_subresource.json["kind"] == "InstanceMetrics"
    assert by_subresource.json["metadata"]["name"] == "web"
    assert by_subresource.json["sample"]["memoryWorkingSetMiB"] == 512


async def test_no_header_names_the_software_or_repeats_one_of_the_front_proxy(
    server: Server,
) -> None:
    server.reader.add(usage())
    answer = await server.proxied(subresource(server), headers=[("Audit-Id", "a-1")])
    names = {name.lower() for name, _ in answer.headers}
    assert names.isdisjoint({"server", "audit-id", "cache-control"})


async def test_head_answers_with_headers_alone(server: Server) -> None:
    server.reader.add(usage())
    answer = await server.proxied(subresource(server), method="HEAD")
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer["Content-Length"]) > 0
    assert server.api.specs(ACCESS_REVIEWS)[-1]["resourceAttributes"]["verb"] == "get"


async def test_a_list_has_its_items_in_order_and_never_null(server: Server) -> None:
    server.reader.add(usage("b"), usage("a"), usage("other", "team-b"))
    both = await server.proxied(metrics(server))
    assert [item["metadata"]["name"] for item in both.json["items"]] == ["a", "b"]
    assert both.json["kind"] == "InstanceMetricsList"
    assert both.json["apiVersion"] == f"{server.group}/v1"
    assert all(item["kind"] == "InstanceMetrics" for item in both.json["items"])
    everywhere = await server.proxied(f"{server.prefix}/instancemetrics")
    assert [item["metadata"]["namespace"] for item in everywhere.json["items"]] == ["team-a", "team-a", "team-b"]
    assert (await server.proxied(metrics(server, namespace="empty"))).json["items"] == []


async def test_selectors_and_pages(server: Server) -> None:
    server.reader.add(*(usage(name) for name in "abcde"))
    selected = await server.proxied(metrics(server) + "?labelSelector=app%20in%20(b,c,d)&limit=2")
    assert [item["metadata"]["name"] for item in selected.json["items"]] == ["b", "c"]
    assert selected.json["metadata"]["remainingItemCount"] == 1
    token = selected.json["metadata"]["continue"]
    rest = await server.proxied(metrics(server) + f"?labelSelector=app%20in%20(b,c,d)&limit=2&continue={token}")
    assert [item["metadata"]["name"] for item in rest.json["items"]] == ["d"]
    assert "continue" not in rest.json["metadata"]


async def test_a_list_of_one_name_asks_for_that_name_and_reads_nothing_else(server: Server) -> None:
    server.reader.add(usage("web"), usage("other"))
    answer = await server.proxied(metrics(server) + "?fieldSelector=metadata.name%3Dweb")
    assert [item["metadata"]["name"] for item in answer.json["items"]] == ["web"]
    assert server.reader.reads == [("team-a", "web")]
    assert server.reader.lists == []
    attributes = server.api.specs(ACCESS_REVIEWS)[-1]["resourceAttributes"]
    assert (attributes["verb"], attributes["name"]) == ("list", "web")
    gone = await server.proxied(metrics(server) + "?fieldSelector=metadata.name%3Dgone")
    assert gone.json["items"] == []


async def test_tables_for_people(server: Server) -> None:
    server.reader.add(usage())
    for path in (metrics(server), metrics(server, "web"), subresource(server)):
        answer = await server.proxied(path, headers=[("Accept", TABLE)])
        assert answer["Content-Type"] == "application/json"
        assert (answer.json["kind"], answer.json["apiVersion"]) == ("Table", "meta.k8s.io/v1")
        (row,) = answer.json["rows"]
        assert row["cells"][:4] == ["web", "250m", "512Mi", "640Mi"]
        assert row["object"]["metadata"]["name"] == "web"
        assert "sample" not in row["object"]


async def test_json_is_all_there_is_and_typed_clients_fall_back_on_it(server: Server) -> None:
    server.reader.add(usage())
    plain = await server.proxied(subresource(server))
    as_yaml = await server.proxied(subresource(server), headers=[("Accept", "application/yaml")])
    assert (as_yaml.status, as_yaml["Content-Type"]) == (406, "application/json")
    assert as_yaml.json["reason"] == "NotAcceptable"
    either = await server.proxied(subresource(server), headers=[("Accept", "application/yaml,application/json")])
    assert either.body == plain.body
    typed = await server.proxied(
        subresource(server), headers=[("Accept", "application/vnd.kubernetes.protobuf,application/json")]
    )
    assert typed.body == plain.body


async def test_what_is_missing_from_an_answer_is_a_warning(server: Server) -> None:
    down = SourceReport("device-manager/nvidia", SourceState.TIMEOUT, None, 'said "no"')
    server.reader.add(usage(sources=[SourceReport("kubelet", SourceState.OK, 1), down]))
    answer = await server.proxied(subresource(server))
    assert answer.all("Warning") == ['299 - "device-manager/nvidia: timeout (said \\"no\\")"']
    server.reader.warnings = ("node a: kubelet: timeout", "node b: kubelet: timeout")
    listed = await server.proxied(metrics(server))
    assert listed.status == 200
    assert listed.all("Warning") == ['299 - "node a: kubelet: timeout"', '299 - "node b: kubelet: timeout"']


# Errors, word for word.


async def test_every_row_of_the_error_table(server: Server) -> None:
    group = server.group
    about = {"name": "nope", "group": group, "kind": "instancemetrics"}
    table: list[tuple[str, str, Sequence[tuple[str, str]], int, dict[str, Any]]] = [
        (
            "GET",
            metrics(server, "nope"),
            [],
            404,
            status_of(server, 404, "NotFound", f'instancemetrics.{group} "nope" not found', about),
        ),
        (
            "GET",
            subresource(server, "nope"),
            [],
            404,
            status_of(
                server, 404, "NotFound", f'instances.{group} "nope" not found', {**about, "kind": "instances"}
            ),
        ),
        (
            "GET",
            f"{server.prefix}/pods",
            [],
            404,
            status_of(server, 404, "NotFound", "the server could not find the requested resource", {}),
        ),
        (
            "POST",
            metrics(server),
            [],
            405,
            status_of(
                server,
                405,
                "MethodNotAllowed",
                "the server does not allow this method on the requested resource",
                {},
            ),
        ),
        (
            "GET",
            metrics(server) + "?watch=true",
            [],
            405,
            status_of(
                server,
                405,
                "MethodNotAllowed",
                f'watch is not supported on resources of kind "instancemetrics.{group}"',
                {"group": group, "kind": "instancemetrics"},
            ),
        ),
        (
            "GET",
            metrics(server, "nope"),
            [("Accept", "application/vnd.kubernetes.protobuf")],
            406,
            status_of(
                server,
                406,
                "NotAcceptable",
                "only the following media types are accepted: application/json",
                {},
            ),
        ),
        (
            "GET",
            metrics(server) + "?limit=abc",
            [],
            400,
            status_of(server, 400, "BadRequest", 'strconv.ParseInt: parsing "abc": invalid syntax', {}),
        ),
        (
            "GET",
            metrics(server) + "?fieldSelector=spec.x%3D1",
            [],
            400,
            status_of(
                server,
                400,
                "BadRequest",
                '"spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"',
                {},
            ),
        ),
        (
            "GET",
            metrics(server) + "?includeObject=Bogus",
            [("Accept", TABLE)],
            400,
            status_of(
                server,
                400,
                "BadRequest",
                'Unable to convert to Table as requested: includeObject: Invalid value: "Bogus": '
                "must be 'Metadata', 'Object', 'None', or empty",
                {},
            ),
        ),
    ]
    for method, path, headers, code, expected in table:
        answer = await server.proxied(path, groups=MASTERS, headers=headers, method=method)
        assert (answer.status, answer.json) == (code, expected), path
        assert answer["Content-Type"] == "application/json"
        assert not answer.all("Retry-After")
        if code == 405:
            assert answer["Allow"] == "GET, HEAD"


async def test_sources_that_are_down_or_late(server: Server) -> None:
    about = {"name": "web", "group": server.group, "kind": "instances"}
    server.reader.outcome = Unavailable("kubelet of node a: timeout; metrics.k8s.io: not_served")
    down = await server.proxied(subresource(server))
    assert down.json == status_of(server, 503, "ServiceUnavailable", server.reader.outcome.message, about)
    # With it kubectl would hold the message back for ten seconds.
    assert not down.all("Retry-After")
    server.reader.outcome = DeadlineExceeded("kubelet did not answer")
    late = await server.proxied(subresource(server))
    assert late.json == status_of(server, 504, "Timeout", "Timeout: kubelet did not answer", about)
    assert not late.all("Retry-After")


async def test_an_internal_error_fails_one_request_and_hides_its_cause(server: Server) -> None:
    server.reader.error = RuntimeError("the password is swordfish")
    with capture_logs() as logged:
        for path in (subresource(server), metrics(server), metrics(server) + "?timeout=3s"):
            broken = await server.proxied(path)
            assert (broken.status, broken.json["reason"]) == (500, "InternalError")
            assert b"swordfish" not in broken.body
        answer = await server.proxied(subresource(server) + "?timeout=3s")
    assert "request_failed" in {line["event"] for line in logged}
    message = "the request failed for a reason of our own"
    assert answer.json == status_of(
        server,
        500,
        "InternalError",
        f"Internal error occurred: {message}",
        {"causes": [{"message": message}]},
    )
    server.reader.error = None
    server.reader.add(usage())
    assert (await server.proxied(subresource(server))).status == 200


@pytest.mark.parametrize(
    "path",
    [
        "{prefix}/namespaces/team-a/instances/web/log",
        "{prefix}/namespaces/team-a/instances/web/metrics/more",
        "{prefix}/namespaces/team-a/instancemetrics/web/metrics",
        "{prefix}/instancemetrics/web",
        "{prefix}/instances/web/metrics",
        "{prefix}/namespaces/team-a//instances/web/metrics",
        "{prefix}/namespaces/team-a/instances/web/metrics/",
        "{prefix}/namespaces//instancemetrics",
        "{prefix}/namespaces/team-a",
    ],
)
async def test_nothing_is_served_beside_the_paths_that_are(server: Server, path: str) -> None:
    server.reader.add(usage())
    answer = await server.proxied(path.format(prefix=server.prefix), groups=MASTERS)
    assert (answer.status, answer.json["reason"]) == (404, "NotFound")
    assert server.reader.reads == []


@pytest.mark.parametrize(
    "path", ["/", "/nope", "/apis/other.example.org", "/apis/other.example.org/v1/things", "/api"]
)
async def test_outside_the_group_errors_are_plain_text(server: Server, path: str) -> None:
    answer = await server.proxied(path, groups=MASTERS)
    assert (answer.status, answer.body) == (404, b"404 page not found\n")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/apis%0A"),
        ("GET", "{prefix}/namespaces/team-a/instances/a%0Ab/metrics"),
        ("GET", "/%00"),
        ("GET", "//apis"),
        ("GET", "/apis/../livez"),
        ("OPTIONS", "*"),
        ("GET", "/apis/%FF"),
        ("GET", "/apis/%ED%B3%BF"),
        ("PROPFIND", "/apis"),
    ],
)
async def test_no_path_goes_past_authorization(server: Server, method: str, path: str) -> None:
    server.api.allows = lambda _: False
    answer = await server.proxied(path.format(prefix=server.prefix), method=method)
    assert (answer.status, answer.json["reason"]) == (403, "Forbidden")
    assert len(server.api.posts) == 1


# The caller's time.


async def test_the_callers_timeout_is_handed_on_and_bounded(server: Server) -> None:
    server.reader.add(usage())
    for text, expected in (("3s", 3.0), ("500ms", 0.5), ("1h", 25.0), ("0", None), ("0s", None)):
        assert (await server.proxied(subresource(server) + f"?timeout={text}")).status == 200
        assert server.reader.deadlines[-1] == expected
    refused = await server.proxied(subresource(server) + "?timeout=soon")
    assert (refused.status, refused.json["reason"]) == (400, "BadRequest")


# Who is asking.


async def test_headers_without_the_certificate_are_worth_nothing(server: Server) -> None:
    server.api.allows = lambda spec: "system:masters" in spec["groups"]
    forged = await server.request(
        subresource(server), [("X-Remote-User", "admin"), ("X-Remote-Group", "system:masters")]
    )
    assert forged.status == 403
    assert 'User "system:anonymous"' in forged.json["message"]
    (spec,) = server.api.specs(ACCESS_REVIEWS)
    assert (spec["user"], spec["groups"]) == ("system:anonymous", ["system:unauthenticated"])
    assert server.reader.reads == []


async def test_a_certificate_of_another_ca_fails_the_handshake(server: Server) -> None:
    for authority in (Authority.create("front proxy CA"), server.serving):
        with pytest.raises((ConnectionError, ssl.SSLError, asyncio.IncompleteReadError)):
            await server.request(
                subresource(server), [("X-Remote-User", "admin")], client=authority.client(FRONT_PROXY)
            )
    assert server.api.posts == []


async def test_a_serving_certificate_of_the_same_ca_is_no_client_certificate(server: Server) -> None:
    with pytest.raises((ConnectionError, ssl.SSLError, asyncio.IncompleteReadError)):
        await server.request(
            subresource(server), [("X-Remote-User", "admin")], client=server.front_proxy.serving([FRONT_PROXY])
        )
    assert server.api.posts == []


async def test_an_expired_certificate_fails_the_handshake(server: Server) -> None:
    expired = server.front_proxy.client(FRONT_PROXY, now=NOW.replace(year=2020), days=1)
    with pytest.raises((ConnectionError, ssl.SSLError, asyncio.IncompleteReadError)):
        await server.request(subresource(server), [("X-Remote-User", "admin")], client=expired)


async def test_a_certificate_through_an_intermediate_that_the_client_sends_is_good(server: Server) -> None:
    server.reader.add(usage())
    root, pair = root_and_intermediate()
    server.identity.trust(TrustedCAs.parse(root))
    answer = await server.request(subresource(server), [("X-Remote-User", "viewer")], client=pair)
    assert answer.status == 200


async def test_a_certificate_that_expires_on_an_open_connection_is_not_accepted(
    server: Server,
) -> None:
    server.reader.add(usage())
    reader, writer = await server.connect(server.front_proxy_pair())
    headers = [("X-Remote-User", "viewer")]
    assert (await exchange(reader, writer, subresource(server), headers)).status == 200
    server.clock.advance(20 * 365 * 86400)
    assert (await exchange(reader, writer, subresource(server), headers)).status == 401
    writer.close()


async def test_a_name_that_is_not_allowed_is_refused_without_a_token(server: Server) -> None:
    impostor = server.front_proxy.client("kubelet")
    for headers in ([("X-Remote-User", "admin")], []):
        answer = await server.request(subresource(server), headers, client=impostor)
        assert (answer.status, answer.json) == (401, status_of(server, 401, "Unauthorized", "Unauthorized"))
    assert server.api.posts == []


async def test_a_name_that_is_not_allowed_leaves_a_token_its_say_and_identity_headers_none(server: Server) -> None:
    server.reader.add(usage())
    server.api.tokens["good"] = {"username": "viewer"}
    impostor = server.front_proxy.client("kubelet")
    claims = [("X-Remote-User", "admin"), ("X-Remote-Group", "system:masters")]

    good = await server.request(subresource(server), [*claims, ("Authorization", "Bearer good")], client=impostor)
    bad = await server.request(subresource(server), [*claims, ("Authorization", "Bearer bad")], client=impostor)

    assert (good.status, bad.status) == (200, 401)
    [asked] = server.api.specs(ACCESS_REVIEWS)
    assert (asked["user"], asked["groups"]) == ("viewer", ["system:authenticated"])


async def test_a_repeated_user_or_uid_is_refused_and_repeated_groups_are_not(server: Server) -> None:
    server.reader.add(usage())
    for name in ("X-Remote-User", "x-remote-user"):
        answer = await server.proxied(subresource(server), headers=[(name, "admin")])
        assert answer.status == 401
    twice = await server.proxied(subresource(server), headers=[("X-Remote-Uid", "1"), ("X-Remote-Uid", "1")])
    assert twice.status == 401
    assert server.api.posts == []
    groups = await server.proxied(subresource(server), groups=["a", "b", "a"])
    assert groups.status == 200
    assert server.api.specs(ACCESS_REVIEWS)[-1]["groups"] == ["a", "b", "a", "system:authenticated"]


async def test_look_alike_headers_change_nothing(server: Server) -> None:
    server.reader.add(usage())
    await server.proxied(
        subresource(server),
        headers=[("X_Remote_User", "admin"), ("X_Remote_Group", "system:masters"), ("X-Remote_Group", "x")],
    )
    (spec,) = server.api.specs(ACCESS_REVIEWS)
    assert (spec["user"], spec["groups"]) == ("viewer", ["system:authenticated"])


async def test_a_user_with_300_groups_of_any_script_and_percent_encoded_extras(server: Server) -> None:
    server.reader.add(usage())
    groups = [f"oidc:größe-{number}-部門" for number in range(300)]
    answer = await server.proxied(
        subresource(server),
        user="müller-ünïcode",
        groups=groups,
        headers=[
            ("X-Remote-Uid", "uid-1"),
            ("X-Remote-Extra-Authentication.kubernetes.io%2fcredential-Id", "JTI=1"),
            ("X-Remote-Extra-Scopes", "one"),
            ("X-Remote-Extra-Scopes", "two"),
        ],
    )
    assert answer.status == 200
    (spec,) = server.api.specs(ACCESS_REVIEWS)
    assert spec["user"] == "müller-ünïcode"
    assert spec["uid"] == "uid-1"
    assert spec["groups"] == [*groups, "system:authenticated"]
    assert spec["extra"] == {"authentication.kubernetes.io/credential-id": ["JTI=1"], "scopes": ["one", "two"]}


async def test_bearer_tokens(server: Server) -> None:
    server.reader.add(usage())
    server.api.tokens["good"] = {
        "username": "system:serviceaccount:team-a:bot",
        "uid": "u",
        "groups": ["system:serviceaccounts"],
        "extra": {"k": ["v"]},
    }
    answer = await server.request(subresource(server), [("Authorization", "Bearer good")])
    assert answer.status == 200
    (spec,) = server.api.specs(ACCESS_REVIEWS)
    assert spec["user"] == "system:serviceaccount:team-a:bot"
    assert spec["groups"] == ["system:serviceaccounts", "system:authenticated"]
    assert spec["extra"] == {"k": ["v"]}
    for invalid in ("Bearer bad", "Basic YTpi", "Bearer ", "Bearer a b", "good"):
        refused = await server.request(subresource(server), [("Authorization", invalid)])
        assert refused.status == 401, invalid
    twice = await server.request(
        subresource(server), [("Authorization", "Bearer good"), ("Authorization", "Bearer good")]
    )
    assert twice.status == 401


async def test_identity_headers_beside_a_token_are_ignored_without_the_certificate(server: Server) -> None:
    server.api.tokens["good"] = {"username": "bot"}
    server.api.allows = lambda spec: spec["user"] == "admin"
    answer = await server.request(
        subresource(server), [("Authorization", "Bearer good"), ("X-Remote-User", "admin")]
    )
    assert answer.status == 403
    assert 'User "bot"' in answer.json["message"]


async def test_before_the_front_proxy_is_known_no_identity_is_trusted_and_discovery_is_served(
    tmp_path: Path,
) -> None:
    async with running_server(tmp_path, trusted=False) as server:
        server.api.allows = lambda spec: "nonResourceAttributes" in spec
        assert (await server.request(server.prefix)).status == 200
        # Without a CA none is asked for, so the certificate is not even seen.
        answer = await server.proxied(subresource(server), user="admin")
        assert answer.status == 403
        assert "system:anonymous" in answer.json["message"]


# Rotation.


async def test_a_ca_that_leaves_takes_its_connections_along(server: Server) -> None:
    server.reader.add(usage())
    headers = [("X-Remote-User", "viewer")]
    reader, writer = await server.connect(server.front_proxy_pair())
    assert (await exchange(reader, writer, subresource(server), headers)).status == 200
    successor = Authority.create("next front proxy CA")
    server.trust = trust_of(successor)
    server.identity.trust(TrustedCAs.parse(successor.pem.certificate))
    async with asyncio.timeout(5):
        assert await reader.read() == b""
    writer.close()
    with pytest.raises((ConnectionError, ssl.SSLError, asyncio.IncompleteReadError)):
        await server.proxied(subresource(server))
    fresh = await server.request(subresource(server), headers, client=successor.client(FRONT_PROXY))
    assert fresh.status == 200


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_session_is_not_resumed_once_its_ca_has_left(server: Server, version: ssl.TLSVersion) -> None:
    context = server.context(server.front_proxy_pair())
    context.maximum_version = version

    def connect(session: ssl.SSLSession | None) -> ssl.SSLSession | None:
        with (
            socket.create_connection(server.listener.addresses[0], timeout=5) as raw,
            context.wrap_socket(raw, server_hostname=SERVER_NAME, session=session) as connection,
        ):
            connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            if not connection.recv(1):
                raise ConnectionResetError
            assert not connection.session_reused
            return connection.session

    session = await asyncio.to_thread(connect, None)
    await asyncio.to_thread(connect, session)
    successor = Authority.create("next front proxy CA")
    server.identity.trust(TrustedCAs.parse(successor.pem.certificate))
    with pytest.raises((ConnectionError, ssl.SSLError)):
        await asyncio.to_thread(connect, session)


async def test_a_ca_that_leaves_takes_no_connection_of_one_that_stays(server: Server) -> None:
    server.reader.add(usage())
    successor = Authority.create("next front proxy CA")
    old, new = server.front_proxy.pem.certificate, successor.pem.certificate
    server.identity.trust(TrustedCAs.parse(old + b"\n" + new))
    headers = [("X-Remote-User", "viewer")]
    stays = await server.connect(successor.client(FRONT_PROXY))
    leaves = await server.connect(server.front_proxy_pair())
    for reader, writer in (stays, leaves):
        assert (await exchange(reader, writer, subresource(server), headers)).status == 200
    server.identity.trust(TrustedCAs.parse(new))
    assert (await exchange(*stays, subresource(server), headers)).status == 200
    async with asyncio.timeout(5):
        assert await leaves[0].read() == b""
    for _, writer in (stays, leaves):
        writer.close()


async def test_rotation_with_overlap_fails_no_request(server: Server) -> None:
    """The bundle grows, the front proxy changes its certificate, the bundle shrinks; readers never notice."""
    server.reader.add(usage())
    successor = Authority.create("next front proxy CA")
    old, new = server.front_proxy.pem.certificate, successor.pem.certificate
    pair = [server.front_proxy_pair()]
    statuses: list[int] = []
    done = asyncio.Event()

    async def keep_reading() -> None:
        while not done.is_set():
            answer = await server.request(subresource(server), [("X-Remote-User", "viewer")], client=pair[0])
            statuses.append(answer.status)

    async def read_some_more(count: int) -> None:
        target = len(statuses) + count
        await until(lambda: len(statuses) >= target)

    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(keep_reading())
        await read_some_more(5)
        server.identity.trust(TrustedCAs.parse(old + b"\n" + new))
        await read_some_more(5)
        pair[0] = successor.client(FRONT_PROXY)
        await read_some_more(5)
        server.identity.trust(TrustedCAs.parse(new))
        await read_some_more(5)
        done.set()
    assert set(statuses) == {200}


# May they.


async def test_a_refusal_says_what_and_nothing_more_and_nothing_was_read(server: Server) -> None:
    server.reader.add(usage(), usage("secret", "team-b"))
    server.api.allows = lambda _: False
    group = server.group
    cases = [
        (
            subresource(server, "secret", "team-b"),
            f'instances.{group} "secret" is forbidden: User "viewer" cannot get resource "instances/metrics" '
            f'in API group "{group}" in the namespace "team-b"',
            {"name": "secret", "group": group, "kind": "instances"},
        ),
        (
            f"{server.prefix}/instancemetrics",
            f'instancemetrics.{group} is forbidden: User "viewer" cannot list resource "instancemetrics" '
            f'in API group "{group}" at the cluster scope',
            {"group": group, "kind": "instancemetrics"},
        ),
        (server.prefix, f'forbidden: User "viewer" cannot get path "{server.prefix}"', {}),
        ("/metrics", 'forbidden: User "viewer" cannot get path "/metrics"', {}),
        ("/readyz/ping", 'forbidden: User "viewer" cannot get path "/readyz/ping"', {}),
    ]
    for path, message, details in cases:
        answer = await server.proxied(path)
        assert answer.json == status_of(server, 403, "Forbidden", message, details)
        assert answer["X-Content-Type-Options"] == "nosniff"
    assert server.reader.reads == []
    assert server.reader.lists == []


async def test_missing_and_existing_objects_look_alike_to_those_who_may_not(server: Server) -> None:
    server.reader.add(usage("there"))
    server.api.allows = lambda _: False
    there = await server.proxied(subresource(server, "there"))
    missing = await server.proxied(subresource(server, "gone!"))
    assert there.body.replace(b"there", b"X") == missing.body.replace(b"gone!", b"X")


async def test_get_instances_does_not_grant_metrics_nor_the_reverse(server: Server) -> None:
    server.reader.add(usage())
    server.api.allows = lambda spec: spec["resourceAttributes"].get("subresource") != "metrics"
    assert (await server.proxied(subresource(server))).status == 403
    assert (await server.proxied(metrics(server, "web"))).status == 200


async def test_the_group_for_everybody_is_added_and_discovery_calls_pass(server: Server) -> None:
    server.api.allows = lambda spec: "system:authenticated" in spec["groups"]
    for user, path in (("system:kube-aggregator", server.prefix), ("system:aggregator", "/openapi/v2")):
        assert (await server.proxied(path, user=user)).status == 200


async def test_masters_need_no_review_even_when_none_can_be_had(server: Server) -> None:
    server.api.failure = FetchError(SourceState.FORBIDDEN, "no", status=403)
    assert (await server.proxied(server.prefix, user="system:kube-aggregator", groups=MASTERS)).status == 200
    assert server.api.posts == []


async def test_a_review_that_fails_closes_the_door(server: Server) -> None:
    server.reader.add(usage())
    server.api.failure = FetchError(SourceState.FORBIDDEN, "cannot create", status=403)
    answer = await server.proxied(subresource(server))
    assert (answer.status, answer.json["reason"]) == (500, "InternalError")
    assert server.reader.reads == []


async def test_yes_and_no_are_remembered_for_ten_seconds(server: Server) -> None:
    server.reader.add(usage())
    for allowed, status in ((True, 200), (False, 403)):
        server.api.allows = lambda _, allowed=allowed: allowed  # type: ignore[misc]
        server.api.posts.clear()
        server.clock.advance(11)
        for _ in range(3):
            assert (await server.proxied(subresource(server))).status == status
        assert len(server.api.posts) == 1
        server.clock.advance(9.9)
        await server.proxied(subresource(server))
        assert len(server.api.posts) == 1
        server.clock.advance(0.2)
        await server.proxied(subresource(server))
        assert len(server.api.posts) == 2


async def test_one_tenant_never_sees_anothers_object(server: Server) -> None:
    server.reader.add(usage("web", "team-a"), usage("web", "team-b"), usage("hidden", "team-b"))
    server.api.allows = lambda spec: spec["resourceAttributes"].get("namespace") == "team-a"
    paths = [
        metrics(server),
        metrics(server) + "?fieldSelector=metadata.namespace%3Dteam-b",
        metrics(server) + "?labelSelector=app%3Dhidden",
        metrics(server, "web"),
        metrics(server, "hidden"),
        subresource(server),
        subresource(server, "hidden"),
    ]
    for accept in ("application/json", TABLE):
        for path in paths:
            answer = await server.proxied(path, headers=[("Accept", accept)])
            assert b"uid-of-team-b" not in answer.body
            assert b"secret words" not in answer.body
    for path in (
        metrics(server, namespace="team-b"),
        subresource(server, namespace="team-b"),
        f"{server.prefix}/instancemetrics",
    ):
        assert (await server.proxied(path)).status == 403
    assert {namespace for namespace, _ in server.reader.reads} == {"team-a"}
    assert set(server.reader.lists) == {"team-a"}


# Discovery, OpenAPI, health.


async def test_discovery_forms(server: Server) -> None:
    legacy = await server.proxied("/apis", headers=[("Accept", "application/json, */*")])
    assert legacy["Content-Type"] == "application/json"
    assert legacy.json["kind"] == "APIGroupList"
    for version in ("v2", "v2beta1"):
        content_type = DISCOVERY_V2.replace("v=v2", f"v={version}")
        aggregated = await server.proxied("/apis", headers=[("Accept", f"{content_type},application/json")])
        assert aggregated["Content-Type"] == content_type
        assert aggregated["Vary"] == "Accept"
        assert aggregated["Cache-Control"] == "public"
        assert aggregated.json["apiVersion"] == f"apidiscovery.k8s.io/{version}"
        etag = aggregated["ETag"]
        held = await server.proxied("/apis", headers=[("Accept", content_type), ("If-None-Match", etag)])
        assert (held.status, held.body, held["ETag"]) == (304, b"", etag)
    foreign = await server.proxied(
        "/apis", headers=[("Accept", "application/json;g=x;v=v2;as=APIGroupDiscoveryList")]
    )
    assert foreign.status == 406
    assert (await server.proxied(f"/apis/{server.group}")).json["kind"] == "APIGroup"
    assert (await server.proxied(server.prefix)).json["kind"] == "APIResourceList"


async def test_openapi_is_answered_with_the_current_document_never_with_a_redirect(server: Server) -> None:
    index = await server.proxied("/openapi/v3")
    (entry,) = index.json["paths"].items()
    assert entry[0] == f"apis/{server.group}/v1"
    url = entry[1]["serverRelativeURL"]
    current = await server.proxied(url + "&timeout=32s")
    assert current["Cache-Control"] == "public, immutable"
    assert current["ETag"].strip('"') in url
    outdated = await server.proxied(url[:-4] + "0000")
    assert (outdated.status, outdated.body) == (200, current.body)
    assert not outdated.all("Cache-Control")
    assert (await server.proxied("/openapi/v2")).json["swagger"] == "2.0"


async def test_probes_need_no_credential_and_verbose_says_which(tmp_path: Path) -> None:
    problem: list[str | None] = ["the secret reason"]
    async with running_server(tmp_path, ready=[PING, Check("front-proxy", lambda: problem[0])]) as server:
        server.api.allows = lambda _: False
        for path in ("/healthz", "/livez"):
            assert (await server.request(path)).body == b"ok"
        unready = await server.request("/readyz")
        assert unready.status == 500
        assert b"[-]front-proxy failed: reason withheld" in unready.body
        assert b"secret" not in unready.body
        # A credential that is not valid does not matter here: the kubelet must get an answer.
        assert (await server.request("/livez", [("Authorization", "Bearer bad")])).status == 200
        problem[0] = None
        assert b"[+]front-proxy ok" in (await server.request("/readyz?verbose")).body
        assert (await server.request("/readyz/ping")).status == 403
        assert (await server.request("/livez", method="POST")).status == 405
        assert server.api.specs(TOKEN_REVIEWS) == []


async def test_an_upgrade_is_refused(server: Server) -> None:
    answer = await server.proxied(
        subresource(server), headers=[("Connection", "Upgrade"), ("Upgrade", "websocket")]
    )
    assert (answer.status, answer.json["reason"]) == (400, "BadRequest")


async def test_the_workers_own_metrics(server: Server) -> None:
    server.reader.add(usage(sources=[SourceReport("device-manager/any-text", SourceState.STALE)]))
    await server.proxied(subresource(server))
    text = (await server.proxied("/metrics")).body.decode()
    labels = '{code="200",resource="instances/metrics",verb="get"}'
    assert f"devicemanager_worker_request_duration_seconds_count{labels} 1.0" in text
    assert 'devicemanager_worker_source_outcomes_total{source="device-manager",state="stale"} 1.0' in text
    (line,) = re.findall(r"^devicemanager_worker_certificate_not_after_timestamp_seconds (.*)$", text, re.MULTILINE)
    assert float(line) == server.identity.not_after.timestamp()


async def test_documents_of_one_shape_refuse_other_shapes(server: Server) -> None:
    for path in (server.prefix, f"/apis/{server.group}"):
        answer = await server.proxied(path, headers=[("Accept", DISCOVERY_V2)])
        assert (answer.status, answer.json["reason"]) == (406, "NotAcceptable")
    assert (await server.proxied("/openapi/v2", method="POST")).status == 405


# The limit on reads under way.


async def test_too_many_callers_under_review_are_told_to_retry(tmp_path: Path) -> None:
    async with running_server(tmp_path, reviews=1) as server:
        server.api.hold = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(server.proxied(subresource(server)))
            await until(lambda: len(server.api.posts) == 1)
            other = await server.proxied(subresource(server, "other"))
            assert (other.status, other["Retry-After"]) == (429, "1")
            checked = tasks.create_task(server.request(subresource(server), [("Authorization", "Bearer a")]))
            await until(lambda: len(server.api.posts) == 2)
            unchecked = await server.request(subresource(server), [("Authorization", "Bearer b")])
            assert unchecked.status == 429
            server.api.hold.set()
        assert waiting.result().status == 404
        assert checked.result().status == 401


async def test_strangers_without_a_credential_take_no_review_from_readers_behind_the_front_proxy(
    tmp_path: Path,
) -> None:
    async with running_server(tmp_path, reviews=1) as server:
        server.api.hold = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            stranger = tasks.create_task(server.request(subresource(server, "other")))
            await until(lambda: len(server.api.posts) == 1)
            assert (await server.request(subresource(server, "another"))).status == 429
            reader = tasks.create_task(server.proxied(subresource(server)))
            await until(lambda: len(server.api.posts) == 2)
            server.api.hold.set()
        assert reader.result().status == 404
        assert stranger.result().status != 429


async def test_beyond_the_cap_readers_come_back_and_discovery_goes_on(tmp_path: Path) -> None:
    async with running_server(tmp_path, max_in_flight=2) as server:
        server.reader.add(usage("a"), usage("b"), usage("c"))
        server.reader.hold = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            waiting = [tasks.create_task(server.proxied(subresource(server, name))) for name in "ab"]
            await until(lambda: server.limiter.in_flight == 2)
            for path in (subresource(server, "c"), f"{server.prefix}/instancemetrics"):
                refused = await server.proxied(path)
                assert (refused.status, refused.json["reason"]) == (429, "TooManyRequests")
                assert refused["Retry-After"] == "1"
                assert refused.json["details"] == {"retryAfterSeconds": 1}
            for path in ("/apis", server.prefix, "/openapi/v2", "/openapi/v3", "/livez", "/metrics"):
                assert (await server.proxied(path)).status == 200
            server.reader.hold.set()
        assert [task.result().status for task in waiting] == [200, 200]
        assert (await server.proxied(subresource(server, "c"))).status == 200


async def test_readers_of_one_instance_share_one_read(server: Server) -> None:
    server.reader.add(usage())
    server.reader.hold = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        readers = [tasks.create_task(server.proxied(subresource(server))) for _ in range(20)]
        await until(lambda: server.limiter.in_flight == 20)
        server.reader.hold.set()
    assert {task.result().body for task in readers} == {readers[0].result().body}
    assert json.loads(readers[0].result().body)["metadata"]["name"] == "web"
    assert server.reader.reads == [("team-a", "web")]


async def test_a_long_list_is_sent_whole_and_in_pieces(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """To encrypt 20 MiB at once would hold up everything else."""
    server.reader.add(*(usage(f"web-{number}") for number in range(1500)))
    pieces: list[int] = []
    write = StreamWriter.write

    async def counted(self: StreamWriter, chunk: bytes, *args: Any, **kwargs: Any) -> None:
        pieces.append(len(chunk))
        await write(self, chunk, *args, **kwargs)

    monkeypatch.setattr(StreamWriter, "write", counted)
    answer = await server.proxied(metrics(server))

    assert (answer.status, answer["Content-Type"]) == (200, "application/json")
    assert int(answer["Content-Length"]) == sum(pieces)
    assert len(answer.json["items"]) == 1500
    assert max(pieces) <= 256 * 1024
    assert len(pieces) > 1
