"""The kinds of workload that are served, and the chart's roles for them."""

from pathlib import Path

import pytest
import yaml

from devicemanager.worker.workloads.registry import WORKLOADS
from devicemanager.worker.workloads.workload import Workload

CHART = Path(__file__).parents[4] / "charts" / "devicemanager"


def test_the_charts_roles_name_every_kind() -> None:
    roles = yaml.safe_load((CHART / "files" / "workloads.yaml").read_text())

    assert roles == [
        {
            "resource": resource.plural,
            "subresource": f"{resource.source.plural}/{resource.subresource}",
            "source": {"group": resource.source.group, "resource": resource.source.plural},
        }
        for resource in (workload.resource for workload in WORKLOADS)
    ]


def test_no_two_kinds_share_a_name() -> None:
    names = [
        name
        for resource in (workload.resource for workload in WORKLOADS)
        for name in {resource.plural, resource.singular, *resource.short_names, resource.source.plural}
    ]

    assert len(names) == len(set(names))


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.resource.kind)
def test_a_table_begins_with_the_name(workload: Workload) -> None:
    assert workload.columns[0].name == "Name"
    assert all(" " not in column.name and column.description for column in workload.columns)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.resource.kind)
def test_schemas_name_the_kind_and_its_list(workload: Workload) -> None:
    found = workload.schemas(api_group="g.example", ref_prefix="#/definitions/")

    for kind in (workload.resource.kind, workload.resource.list_kind):
        expected = [{"group": "g.example", "version": "v1", "kind": kind}]
        assert found[f"example.g.v1.{kind}"]["x-kubernetes-group-version-kind"] == expected
