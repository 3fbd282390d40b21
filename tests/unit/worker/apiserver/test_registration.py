"""Who serves the group already, and what helps then."""

import json
from collections.abc import Mapping

import pytest

from devicemanager.errors import DocumentError, FetchError, SettingsError
from devicemanager.model.usage import SourceState
from devicemanager.worker.apiserver.registration import OWNER_LABEL, check_registration, conflict
from tests.unit.worker.apiserver.api_server import GROUPS

OWN = "gpustack-system/devicemanager-worker"
OWNER = "gpustack-system.devicemanager-worker"


class Cluster:
    def __init__(self, answer: object) -> None:
        self.answer = answer

    async def get(self, path: str) -> bytes:
        self.path = path
        if isinstance(self.answer, Exception):
            raise self.answer
        return json.dumps(self.answer).encode()


def api_service(**service: str) -> dict[str, object]:
    return {"kind": "APIService", "metadata": {"labels": {}}, "spec": {"service": {**service, "port": 443}}}


@pytest.mark.asyncio
@pytest.mark.parametrize("group", GROUPS)
async def test_a_group_registered_to_our_service_or_to_none_is_served(group: str) -> None:
    for answer in (
        FetchError(SourceState.NOT_SERVED, "not found", status=404),
        api_service(namespace="gpustack-system", name="devicemanager-worker"),
    ):
        cluster = Cluster(answer)
        await check_registration(cluster.get, group, OWN)
        assert cluster.path == f"/apis/apiregistration.k8s.io/v1/apiservices/v1.{group}"


@pytest.mark.asyncio
@pytest.mark.parametrize("group", GROUPS)
async def test_a_group_of_another_service_is_refused_with_both_remedies(group: str) -> None:
    with pytest.raises(SettingsError) as refused:
        await check_registration(Cluster(api_service(namespace="gpustack-system", name="operator")).get, group, OWN)
    (problem,) = refused.value.problems
    assert f"v1.{group} is registered to service gpustack-system/operator" in problem
    assert "--api-group" in problem
    assert "--take-over-api-service" in problem


@pytest.mark.parametrize("labels", [{}, {OWNER_LABEL: "elsewhere.worker"}, {OWNER_LABEL: None}, None])
@pytest.mark.asyncio
async def test_one_that_points_here_without_our_label_is_anothers(labels: Mapping[str, object] | None) -> None:
    """As after an apply over the operator's own, which the operator may take back at any time."""
    answer = {
        **api_service(namespace="gpustack-system", name="devicemanager-worker"),
        "metadata": {"labels": labels},
    }
    with pytest.raises(SettingsError) as refused:
        await check_registration(Cluster(answer).get, GROUPS[0], OWN, OWNER)
    (problem,) = refused.value.problems
    assert f"points at {OWN}, but its label {OWNER_LABEL} is" in problem
    assert "--take-over-api-service" in problem


@pytest.mark.asyncio
async def test_one_that_carries_our_label_must_point_here_too() -> None:
    """Who takes an APIService back changes where it points, and mostly leaves labels alone."""
    ours = {"metadata": {"labels": {OWNER_LABEL: OWNER}}}
    own = api_service(namespace="gpustack-system", name="devicemanager-worker")
    await check_registration(Cluster({**own, **ours}).get, GROUPS[0], OWN, OWNER)
    others = api_service(namespace="gpustack-system", name="operator")
    with pytest.raises(SettingsError, match="registered to service gpustack-system/operator"):
        await check_registration(Cluster({**others, **ours}).get, GROUPS[0], OWN, OWNER)


@pytest.mark.asyncio
async def test_a_cluster_that_cannot_be_asked_decides_nothing() -> None:
    with pytest.raises(FetchError):
        await check_registration(Cluster(FetchError(SourceState.FORBIDDEN, "no", status=403)).get, GROUPS[0], OWN)


def test_a_definition_that_serves_the_version_would_take_it_back() -> None:
    managed = {"metadata": {"labels": {"kube-aggregator.kubernetes.io/automanaged": "true"}}, "spec": {}}
    problem = conflict(json.dumps(managed).encode(), GROUPS[0], OWN)
    assert problem is not None
    assert "custom resource definition" in problem
    assert "--take-over" not in problem
    local = conflict(json.dumps({"metadata": {}, "spec": {}}).encode(), GROUPS[0], OWN)
    assert local is not None
    assert "API server itself" in local


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"spec":null}', b"[" * 100_000])
def test_what_is_no_api_service(body: bytes) -> None:
    with pytest.raises(DocumentError):
        conflict(body, GROUPS[0], OWN)
