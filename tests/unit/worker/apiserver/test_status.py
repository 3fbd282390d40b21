"""Words of refusals that the server tests do not reach."""

from devicemanager.worker.apiserver import status
from devicemanager.worker.apiserver.attributes import parse_attributes
from devicemanager.worker.apiserver.identity import User

LIST = parse_attributes("GET", "/apis/g.example/v1/namespaces/ns/instancemetrics", {})


def test_a_reason_follows_and_names_are_escaped() -> None:
    refused = status.forbidden(User("<b>&"), LIST, "because")
    assert refused.message == (
        'instancemetrics.g.example is forbidden: User "&lt;b&gt;&amp;" cannot list resource "instancemetrics" '
        'in API group "g.example" in the namespace "ns": because'
    )


def test_the_document_has_the_order_and_the_keys_of_the_real_one() -> None:
    assert list(status.unauthorized().document()) == [
        "kind",
        "apiVersion",
        "metadata",
        "status",
        "message",
        "reason",
        "code",
    ]
    assert status.unknown_path().document()["details"] == {}


def test_retrying_is_told_in_header_and_body_alike() -> None:
    busy = status.too_many_requests("later")
    assert busy.headers == {"Retry-After": "1"}
    assert busy.details == {"retryAfterSeconds": 1}
