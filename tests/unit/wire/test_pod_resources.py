"""Requests and limits in force, from what a pod's spec asks for and what its status says was applied."""

from typing import Any

import pytest

from devicemanager.model.usage import Resources
from devicemanager.wire.pod_resources import PodResources

NONE_DECLARED = Resources(0, 0, 0)


def container(name: str = "main", **resources: Any) -> dict[str, Any]:
    return {"name": name, "resources": resources}


def of(*containers: object, status: dict[str, Any] | None = None, **spec: Any) -> PodResources:
    return PodResources.of({"containers": list(containers), **spec}, status or {})


def test_a_pod_without_containers_has_none() -> None:
    assert of() == PodResources(declared_limits=NONE_DECLARED)


def test_sums_are_over_the_containers_that_last() -> None:
    found = of(
        container(
            limits={"cpu": "1500m", "memory": "1Gi", "ephemeral-storage": "1Gi", "nvidia.com/gpu": "1"},
            requests={"memory": "1"},
        ),
        container("log", limits={"cpu": "0.0001", "memory": "1", "ephemeral-storage": "1"}, requests={"cpu": 2}),
        initContainers=[
            {
                **container("side", limits={"cpu": "1m", "memory": "1", "ephemeral-storage": "10M"}),
                "restartPolicy": "Always",
            },
            container("setup", limits={"cpu": "64", "memory": "64Gi", "ephemeral-storage": "9Gi"}),
        ],
        ephemeralContainers=[container("debug", limits={"cpu": "64"})],
    )
    assert found.limits == Resources(cpu_millicores=1502, memory_mib=1025, ephemeral_storage_mib=1034)
    assert found.requests == Resources(cpu_millicores=2000, memory_mib=1)


def test_there_is_no_limit_of_the_pod_unless_every_lasting_container_has_one() -> None:
    found = of(container(limits={"cpu": "4", "memory": "8Gi"}), container("sshd"))
    assert found.limits == Resources()
    assert found.declared_limits == Resources(4000, 8192, 0)


def test_a_sidecar_without_a_limit_leaves_the_pod_without_one() -> None:
    sidecar = {**container("side", limits={"memory": "1Gi"}), "restartPolicy": "Always"}
    found = of(container(limits={"cpu": "4", "memory": "1Gi"}), initContainers=[sidecar])
    assert found.limits == Resources(memory_mib=2048)
    assert found.declared_limits == Resources(4000, 2048, 0)


def test_an_init_container_without_a_limit_changes_nothing() -> None:
    found = of(container(limits={"cpu": "4"}), initContainers=[container("setup")])
    assert found.limits == Resources(cpu_millicores=4000)


def test_a_cpu_or_memory_limit_of_0_is_none() -> None:
    found = of(
        container(limits={"cpu": "0", "memory": "0"}), container("log", limits={"cpu": "1", "memory": "1Gi"})
    )
    assert found.limits == Resources()
    assert found.declared_limits == Resources(1000, 1024, 0)


def test_the_kubelet_evicts_by_the_limits_of_ephemeral_storage_that_there_are() -> None:
    found = of(container(limits={"ephemeral-storage": "20Gi"}), container("sshd"))
    assert found.limits == Resources(ephemeral_storage_mib=20480)


def test_the_pods_own_value_wins_resource_by_resource() -> None:
    found = of(
        container(limits={"cpu": "1", "memory": "1Gi"}, requests={"cpu": "100m", "memory": "1Gi"}),
        container("log", limits={"memory": "1Gi"}),
        resources={"limits": {"cpu": "3"}, "requests": {"cpu": "2"}},
    )
    assert found.limits == Resources(cpu_millicores=3000, memory_mib=2048)
    assert found.requests == Resources(cpu_millicores=2000, memory_mib=1024)
    assert found.declared_limits == Resources(3000, 2048, 0)


def test_the_pods_own_limit_needs_none_of_its_containers() -> None:
    found = of(container(), container("log"), resources={"limits": {"memory": "2Gi"}})
    assert found.limits == Resources(memory_mib=2048)


def test_of_a_resize_that_is_pending_the_applied_value_counts() -> None:
    status = {
        "containerStatuses": [
            {**container(limits={"cpu": "1", "memory": "1Gi"}, requests={"cpu": "500m", "memory": "1Gi"})}
        ]
    }
    found = of(
        container(
            limits={"cpu": "2", "memory": "4Gi", "ephemeral-storage": "1Gi"},
            requests={"cpu": "1", "memory": "4Gi", "ephemeral-storage": "1Gi"},
        ),
        status=status,
    )
    assert found.limits == Resources(1000, 1024, 1024)
    assert found.requests == Resources(500, 1024, 1024)


def test_a_limit_that_was_asked_for_and_not_applied_yet_is_none() -> None:
    status = {"containerStatuses": [container(requests={"cpu": "500m"})]}
    found = of(container(limits={"cpu": "2"}, requests={"cpu": "500m"}), status=status)
    assert found.limits == Resources()
    assert found.requests == Resources(cpu_millicores=500)


def test_the_applied_value_of_a_sidecar_counts() -> None:
    sidecar = {**container("side", limits={"cpu": "2"}), "restartPolicy": "Always"}
    status = {"initContainerStatuses": [container("side", limits={"cpu": "1"})]}
    assert of(container(limits={"cpu": "2"}), initContainers=[sidecar], status=status).limits.cpu_millicores == 3000


def test_the_pods_own_applied_value_counts() -> None:
    found = of(
        container(),
        resources={"limits": {"cpu": "4", "memory": "4Gi"}},
        status={"resources": {"limits": {"cpu": "2", "memory": "4Gi"}}},
    )
    assert found.limits == Resources(cpu_millicores=2000, memory_mib=4096)


@pytest.mark.parametrize("resources", [None, {}, {"limits": {}, "requests": {}}, [], 5, {"limits": 5}])
def test_a_status_that_names_nothing_leaves_the_spec(resources: object) -> None:
    status = {"containerStatuses": [{"name": "main", "resources": resources}, 5, {"resources": {}}]}
    assert of(container(limits={"cpu": "2"}), status=status).limits == Resources(cpu_millicores=2000)


def test_the_status_of_a_container_that_the_spec_does_not_have_is_ignored() -> None:
    status = {"containerStatuses": [container("other", limits={"cpu": "1"})]}
    assert of(container(limits={"cpu": "2"}), status=status).limits == Resources(cpu_millicores=2000)


@pytest.mark.parametrize("bad", ["", "1 Gi", "-1", "NaN", True, [], "1e30", "9" * 65])
def test_an_invalid_quantity_makes_only_its_own_sums_unknown(bad: object) -> None:
    found = of(
        container(limits={"cpu": "1", "memory": bad}, requests={"memory": bad}),
        container("log", limits={"cpu": "1", "memory": "1Gi"}),
    )
    assert found.limits == Resources(cpu_millicores=2000)
    assert found.requests == Resources()
    assert found.declared_limits == Resources(2000, None, 0)


@pytest.mark.parametrize("bad", [5, [], "x", None, {"limits": 5}])
def test_resources_that_are_no_object_are_none(bad: object) -> None:
    found = of(container(limits={"cpu": "1"}), {"name": "log", "resources": bad}, 5, resources=bad)
    assert found == PodResources(declared_limits=Resources(1000, 0, 0))


def test_containers_without_end_are_not_added_up() -> None:
    """Whoever may make pods can name thousands in one, whose sums would hold up everything else for seconds."""
    few = [container(f"c{number}", limits={"cpu": "1m"}, requests={"cpu": "1m"}) for number in range(64)]
    assert of(*few).limits == of(*few).requests == Resources(cpu_millicores=64)
    many = [*few, container("one-more", limits={"cpu": "1m"}, requests={"cpu": "1m"})]
    assert of(*many) == PodResources(declared_limits=Resources())
    own = of(*many, resources={"limits": {"cpu": "2"}, "requests": {"memory": "1Gi"}})
    assert own.limits == own.declared_limits == Resources(cpu_millicores=2000)
    assert own.requests == Resources(memory_mib=1024)
