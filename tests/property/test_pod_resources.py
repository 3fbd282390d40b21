"""Limits and requests in force, against plain arithmetic over whole numbers."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from devicemanager.model.usage import Resources
from devicemanager.wire.pod_resources import PodResources
from tests.property.json_strategies import anything, objects

NAMES = ("main", "sshd", "log")
RESIZABLE = ("cpu", "memory")

amounts = st.integers(0, 3)
lists = st.fixed_dictionaries({}, optional={"cpu": amounts, "memory": amounts, "ephemeral-storage": amounts})
resources = st.fixed_dictionaries({}, optional={"limits": lists, "requests": lists})
containers = st.lists(st.sampled_from(NAMES), unique=True, min_size=1).flatmap(
    lambda names: st.tuples(
        *(st.fixed_dictionaries({"name": st.just(name)}, optional={"resources": resources}) for name in names)
    )
)
statuses = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(NAMES)}, optional={"resources": resources}),
    unique_by=lambda status: str(status["name"]),
)
optional_resources = st.fixed_dictionaries({}, optional={"resources": resources})


def naive(part: dict[str, Any], status: dict[str, Any], kind: str, resource: str) -> int | None:
    """What is in force of a container, or of the pod itself."""
    applied = status.get("resources", {})
    says = applied.get("limits") or applied.get("requests")
    source = applied if says and resource in RESIZABLE else part.get("resources", {})
    return source.get(kind, {}).get(resource)  # type: ignore[no-any-return]


@given(containers, statuses, optional_resources, optional_resources)
def test_sums_are_those_of_a_naive_reading(
    listed: tuple[dict[str, Any], ...],
    reported: list[dict[str, Any]],
    own: dict[str, Any],
    own_status: dict[str, Any],
) -> None:
    found = PodResources.of({"containers": list(listed), **own}, {"containerStatuses": reported, **own_status})
    by_name = {status["name"]: status for status in reported}
    for resource, attribute, unit in (
        ("cpu", "cpu_millicores", 1000),
        ("memory", "memory_mib", None),
        ("ephemeral-storage", "ephemeral_storage_mib", None),
    ):
        for kind in ("requests", "limits"):
            of_pod = naive(own, own_status, kind, resource)
            parts = [naive(each, by_name.get(each["name"], {}), kind, resource) for each in listed]
            known = [of_pod] if of_pod is not None else [part for part in parts if part is not None]
            total = sum(known) * unit if unit else -(-sum(known) // 2**20)
            if kind == "requests":
                assert getattr(found.requests, attribute) == (total if known else None)
                continue
            assert getattr(found.declared_limits, attribute) == total
            whole = of_pod is not None or None not in parts
            limited = bool(known) and (resource == "ephemeral-storage" or (whole and 0 not in known))
            assert getattr(found.limits, attribute) == (total if limited else None)


@given(containers, st.permutations(range(3)))
def test_the_order_of_the_containers_does_not_matter(listed: tuple[dict[str, Any], ...], order: list[int]) -> None:
    shuffled = [listed[place] for place in order if place < len(listed)]
    assert PodResources.of({"containers": shuffled}, {}) == PodResources.of({"containers": list(listed)}, {})


loose = objects(
    {
        "containers": st.lists(objects({"name": st.sampled_from(NAMES), "resources": resources | anything})),
        "initContainers": anything,
        "resources": resources | anything,
    }
)
loose_status = objects(
    {
        "containerStatuses": st.lists(objects({"name": st.sampled_from(NAMES), "resources": anything})),
        "resources": anything,
    }
)


@given(loose, loose_status)
def test_any_spec_and_status_have_resources(spec: dict[str, Any], status: dict[str, Any]) -> None:
    found = PodResources.of(spec, status)
    for sums in (found.requests, found.limits, found.declared_limits):
        assert isinstance(sums, Resources)
        values = (sums.cpu_millicores, sums.memory_mib, sums.ephemeral_storage_mib)
        assert all(value is None or value >= 0 for value in values)
