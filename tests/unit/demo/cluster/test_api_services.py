"""APIServices as a table."""

from datetime import UTC, datetime, timedelta

import pytest

from devicemanager.demo.cluster import objects
from devicemanager.demo.cluster.api_services import table, wants_table
from devicemanager.demo.cluster.selectors import JsonObject

NOW = datetime(2026, 8, 12, 9, 15, tzinfo=UTC)
KUBECTL = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,"
    "application/json;as=Table;v=v1beta1;g=meta.k8s.io,"
    "application/json"
)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (KUBECTL, True),
        ("application/json; g=meta.k8s.io; v=v1; as=Table", True),
        ("application/json", False),
        ("", False),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io", False),
        (f"application/json,{KUBECTL}", False),
    ],
)
def test_a_table_is_made_where_it_is_preferred(accept: str, expected: bool) -> None:
    assert wants_table(accept) is expected


@pytest.mark.parametrize(
    ("conditions", "available"),
    [
        ([{"type": "Available", "status": "True", "reason": "Passed"}], "True"),
        (
            [{"type": "Available", "status": "False", "reason": "FailedDiscoveryCheck"}],
            "False (FailedDiscoveryCheck)",
        ),
        ([], "Unknown"),
    ],
)
def test_a_row_has_the_service_of_a_group_and_whether_it_is_available(
    conditions: list[JsonObject], available: str
) -> None:
    item = objects.api_service("a.example", "v1", b"ca", ("space", "worker"), NOW - timedelta(hours=5))
    item["status"] = {"conditions": conditions}

    document = table([item], 7, NOW)

    assert [column["name"] for column in document["columnDefinitions"]] == ["Name", "Service", "Available", "Age"]
    (row,) = document["rows"]
    assert row["cells"] == ["v1.a.example", "space/worker", available, "5h"]
    assert row["object"]["metadata"]["name"] == "v1.a.example"
    assert "spec" not in row["object"]
