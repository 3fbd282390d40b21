"""The answer: the existing operator's v1 body, the additive keys, and the way back."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import validate

from devicemanager.errors import DocumentError
from devicemanager.model.accelerator import CollectorState, Reason
from devicemanager.model.figures import FIGURES
from devicemanager.model.usage import (
    AcceleratorUsage,
    Resources,
    SourceReport,
    SourceState,
    UsageSample,
    WorkloadUsage,
)
from devicemanager.wire import instance_metrics
from tests import devices

CARD = "GPU-aaaa1111-0000-0000-0000-000000000001"
WHOLE = AcceleratorUsage(
    CARD, "nvidia", 0, "H100", "Exclusive", devices.published(), unhealthy=False, memory_granted_mib=81920
)
SAMPLE = UsageSample(
    timestamp=datetime(2026, 8, 12, 9, 15, 0, 512_873, tzinfo=UTC),
    cpu_usage_nanocores=120_345_678,
    memory_working_set_mib=512,
    rootfs_used_mib=1,
    ephemeral_storage_used_mib=640,
    accelerators=(WHOLE,),
    requests=Resources(500, 256),
    limits=Resources(2000, 1024, 10240),
    declared_limits=Resources(2000, 1024, 10240),
    sources=(
        SourceReport("kubelet", SourceState.OK, 9),
        SourceReport("device-manager/nvidia", CollectorState.CRASHED, 20, "signal 11"),
    ),
)
USAGE = WorkloadUsage("team-a", "demo", "0f0f0f0f-0000-0000-0000-000000000009", None, sample=SAMPLE)


def encoded(usage: WorkloadUsage) -> bytes:
    return json.dumps(instance_metrics.document(usage), separators=(",", ":")).encode()


def written(usage: WorkloadUsage = USAGE) -> dict[str, Any]:
    return instance_metrics.document(usage)


def test_the_v1_body_key_by_key() -> None:
    document = written()
    assert list(document) == ["kind", "apiVersion", "metadata", "sample"]
    assert (document["kind"], document["apiVersion"]) == ("InstanceMetrics", "worker.gpustack.ai/v1")
    assert document["metadata"] == {
        "name": "demo",
        "namespace": "team-a",
        "uid": "0f0f0f0f-0000-0000-0000-000000000009",
    }
    v1_keys = {
        "timestamp": "2026-08-12T09:15:00Z",
        "cpuUsageNanoCores": 120345678,
        "memoryWorkingSetMiB": 512,
        "rootfsUsedMiB": 1,
        "ephemeralStorageUsedMiB": 640,
    }
    sample = document["sample"]
    assert {key: sample[key] for key in v1_keys} == v1_keys
    v1_card = {
        "id": CARD,
        "memoryMiB": 81920,
        "memoryUsageMiB": 20480,
        "memoryUtilizationPercent": 25,
        "coresUtilizationPercent": 40,
        "temperatureCelsius": 51,
        "powerUsageWatts": 233,
        "unhealthy": False,
    }
    (card,) = sample["accelerators"]
    assert {key: card[key] for key in v1_card} == v1_card
    assert {key: card[key] for key in card.keys() - v1_card.keys()} == {
        "manufacturer": "nvidia",
        "index": 0,
        "name": "H100",
        "mode": "Exclusive",
        "powerLimitWatts": 700,
        "clockReductionReasons": [],
        "memoryTotalMiB": 81920,
        "memoryUsedMiB": 20480,
    }


def test_the_keys_of_the_operators_later_version() -> None:
    sample = written()["sample"]
    later = {
        "cpuTotalMilliCores": 2000,
        "cpuUsedMilliCores": 121,
        "memoryTotalMiB": 1024,
        "memoryUsedMiB": 512,
        "storageTotalMiB": 10240,
        "storageUsedMiB": 640,
    }
    assert {key: sample[key] for key in later} == later
    (card,) = sample["accelerators"]
    assert (card["memoryTotalMiB"], card["memoryUsedMiB"]) == (81920, 20480)


def test_a_total_is_0_where_nothing_is_declared_and_missing_where_it_is_not_known() -> None:
    none = written(replace(USAGE, sample=replace(SAMPLE, declared_limits=Resources(0, 0, 0))))["sample"]
    assert [none[key] for key in ("cpuTotalMilliCores", "memoryTotalMiB", "storageTotalMiB")] == [0, 0, 0]
    unknown = written(replace(USAGE, sample=replace(SAMPLE, declared_limits=Resources(5))))["sample"]
    assert unknown["cpuTotalMilliCores"] == 5
    assert not {"memoryTotalMiB", "storageTotalMiB"} & unknown.keys()


def test_what_was_not_measured_has_neither_name() -> None:
    card = replace(WHOLE, figures=devices.published(memory_used=Reason.UNSUPPORTED), memory_granted_mib=Reason.LOST)
    sample = replace(
        SAMPLE,
        cpu_usage_nanocores=Reason.NOT_YET,
        memory_working_set_mib=Reason.STALE,
        ephemeral_storage_used_mib=Reason.TIMEOUT,
        accelerators=(card,),
    )
    document = written(replace(USAGE, sample=sample))["sample"]
    assert not {"cpuUsedMilliCores", "memoryUsedMiB", "storageUsedMiB"} & document.keys()
    assert not {"memoryTotalMiB", "memoryUsedMiB"} & document["accelerators"][0].keys()


def test_health_and_profile() -> None:
    partition = replace(WHOLE, unhealthy=True, unhealthy_reason="double-bit ECC error", profile="1g.10gb")
    (card,) = written(replace(USAGE, sample=replace(SAMPLE, accelerators=(partition,))))["sample"]["accelerators"]
    assert (card["unhealthy"], card["unhealthyReason"], card["profile"]) == (
        True,
        "double-bit ECC error",
        "1g.10gb",
    )


def test_the_additive_keys() -> None:
    sample = written()["sample"]
    assert sample["requests"] == {"cpuMilliCores": 500, "memoryMiB": 256}
    assert sample["limits"] == {"cpuMilliCores": 2000, "memoryMiB": 1024, "ephemeralStorageMiB": 10240}
    assert sample["sources"] == [
        {"name": "kubelet", "state": "ok", "ageSeconds": 9},
        {"name": "device-manager/nvidia", "state": "crashed", "ageSeconds": 20, "message": "signal 11"},
    ]
    assert "absent" not in sample


def test_an_absent_figure_is_left_out_and_its_reason_named() -> None:
    card = replace(
        WHOLE,
        figures=devices.published(memory_used=Reason.UNSUPPORTED),
        unhealthy=Reason.TIMEOUT,
        name=None,
        index=None,
    )
    sample = replace(
        SAMPLE, cpu_usage_nanocores=Reason.NOT_YET, rootfs_used_mib=Reason.NOT_REPORTED, accelerators=(card,)
    )
    document = written(replace(USAGE, sample=sample))["sample"]
    assert "cpuUsageNanoCores" not in document
    assert "rootfsUsedMiB" not in document
    assert document["absent"] == {"cpuUsageNanoCores": "not_yet", "rootfsUsedMiB": "not_reported"}
    (written_card,) = document["accelerators"]
    assert not {"memoryUsageMiB", "unhealthy", "name", "index"} & written_card.keys()
    assert written_card["absent"] == {"memoryUsageMiB": "unsupported", "unhealthy": "timeout"}


def test_a_measured_zero_is_written() -> None:
    idle = replace(WHOLE, figures=devices.published(memory_used=0, memory_utilization=0, compute_utilization=0))
    sample = replace(SAMPLE, cpu_usage_nanocores=0, accelerators=(idle,))
    document = written(replace(USAGE, sample=sample))["sample"]
    assert document["cpuUsageNanoCores"] == 0
    assert document["accelerators"][0]["memoryUsageMiB"] == 0


def test_nothing_allocated_is_no_key() -> None:
    sample = replace(SAMPLE, accelerators=(), requests=Resources(), limits=Resources())
    document = written(replace(USAGE, sample=sample))["sample"]
    assert not {"accelerators", "requests", "limits"} & document.keys()


def test_the_largest_figures_stay_exact() -> None:
    sample = replace(SAMPLE, cpu_usage_nanocores=2**63 - 1)
    assert b'"cpuUsageNanoCores":9223372036854775807' in encoded(replace(USAGE, sample=sample))


def test_the_instances_own_metadata() -> None:
    created = datetime(2026, 8, 1, 9, 15, tzinfo=UTC)
    metadata = written(replace(USAGE, created_at=created, labels={"app": "web"}))["metadata"]
    assert metadata["creationTimestamp"] == "2026-08-01T09:15:00Z"
    assert metadata["labels"] == {"app": "web"}


def test_a_list_is_the_same_objects_under_the_group_asked_for() -> None:
    document: Any = instance_metrics.list_document([USAGE, replace(USAGE, name="b")], api_group="example.org")
    assert document["kind"] == "InstanceMetricsList"
    assert document["metadata"] == {}
    assert [item["metadata"]["name"] for item in document["items"]] == ["demo", "b"]
    assert {item["apiVersion"] for item in document["items"]} == {"example.org/v1"}
    assert document["items"][0] == instance_metrics.document(USAGE, api_group="example.org")
    assert instance_metrics.list_document([])["items"] == []
    assert instance_metrics.list_document([USAGE])["items"] == [instance_metrics.document(USAGE)]


class TestParse:
    def test_reads_back_what_was_written(self) -> None:
        whole_second = replace(USAGE, sample=replace(SAMPLE, timestamp=SAMPLE.timestamp.replace(microsecond=0)))
        assert instance_metrics.parse(encoded(whole_second)) == whole_second

    def test_reads_the_existing_operators_answer(self) -> None:
        body = {
            "kind": "InstanceMetrics",
            "apiVersion": "worker.gpustack.ai/v1",
            "metadata": {"name": "demo", "namespace": "team-a", "uid": "u", "creationTimestamp": None},
            "sample": {
                "timestamp": "2026-08-12T09:15:00Z",
                "cpuUsageNanoCores": 5,
                "accelerators": [{"id": CARD, "memoryMiB": 81920, "unhealthy": False}],
            },
        }
        usage = instance_metrics.parse(json.dumps(body).encode())
        assert usage.sample is not None
        assert usage.sample.memory_working_set_mib is Reason.NOT_REPORTED
        (card,) = usage.sample.accelerators
        assert (card.figures["memory_total"], card.figures["memory_used"], card.unhealthy) == (
            81920,
            Reason.NOT_REPORTED,
            False,
        )

    def test_reads_the_operators_later_answer(self) -> None:
        body = {
            "kind": "InstanceMetrics",
            "apiVersion": "worker.gpustack.ai/v1",
            "metadata": {"name": "demo", "namespace": "team-a", "uid": "u"},
            "sample": {
                "timestamp": "2026-08-12T09:15:00Z",
                "cpuTotalMilliCores": 4000,
                "cpuUsedMilliCores": 250,
                "memoryTotalMiB": 0,
                "memoryUsedMiB": 512,
                "storageTotalMiB": 20480,
                "storageUsedMiB": 640,
                "accelerators": [
                    {
                        "id": CARD,
                        "mode": "Sliced",
                        "memoryTotalMiB": 20480,
                        "memoryUsedMiB": 8192,
                        "unhealthy": False,
                    },
                    {"id": "GPU-2", "mode": ""},
                ],
            },
        }
        sample = instance_metrics.parse(json.dumps(body).encode()).sample
        assert sample is not None
        assert (sample.cpu_usage_nanocores, sample.memory_working_set_mib) == (250_000_000, 512)
        assert (sample.ephemeral_storage_used_mib, sample.rootfs_used_mib) == (640, Reason.NOT_REPORTED)
        assert sample.limits == Resources(4000, None, 20480)
        assert sample.declared_limits == Resources(4000, 0, 20480)
        share, bare = sample.accelerators
        assert [share.figures[name] for name in ("memory_total", "memory_used")] == [20480, 8192]
        assert share.memory_granted_mib == 20480
        assert (bare.figures["memory_used"], bare.memory_granted_mib) == (Reason.NOT_REPORTED, Reason.NOT_REPORTED)

    def test_a_pod_without_a_limit_of_its_own_keeps_none_though_a_container_has_one(self) -> None:
        sample = replace(SAMPLE, limits=Resources(), timestamp=SAMPLE.timestamp.replace(microsecond=0))
        whole = replace(USAGE, sample=sample)
        assert instance_metrics.parse(encoded(whole)) == whole

    def test_a_slice_whose_part_is_unknown_is_not_taken_for_the_card(self) -> None:
        share = replace(WHOLE, mode="Sliced", memory_granted_mib=Reason.NOT_REPORTED)
        sample = replace(SAMPLE, accelerators=(share,), timestamp=SAMPLE.timestamp.replace(microsecond=0))
        whole = replace(USAGE, sample=sample)
        assert instance_metrics.parse(encoded(whole)) == whole

    def test_words_of_a_newer_server_do_not_break_it(self) -> None:
        document = written()
        del document["sample"]["cpuUsageNanoCores"], document["sample"]["cpuUsedMilliCores"]
        document["sample"]["absent"] = {"cpuUsageNanoCores": "novel", "else": "novel"}
        document["sample"]["sources"] = [{"name": "kubelet", "state": "novel"}]
        document["sample"]["surprise"] = {"a": 1}
        usage = instance_metrics.parse(json.dumps(document).encode())
        assert usage.sample is not None
        assert usage.sample.cpu_usage_nanocores is Reason.NOT_REPORTED
        assert usage.sample.sources == (SourceReport("kubelet", SourceState.INVALID),)

    def test_an_instance_without_a_sample(self) -> None:
        bare = replace(USAGE, sample=None)
        assert instance_metrics.parse(encoded(bare)) == bare

    @pytest.mark.parametrize(
        "change",
        [
            {"kind": "Status"},
            {"metadata": {}},
            {"metadata": 5},
            {"sample": {}},
            {"sample": {"timestamp": "2026-08-12T09:15:00Z", "cpuUsageNanoCores": 1.5}},
            {"sample": {"timestamp": "2026-08-12T09:15:00Z", "cpuUsageNanoCores": "5"}},
            {"sample": {"timestamp": "2026-08-12T09:15:00Z", "accelerators": {}}},
        ],
    )
    def test_another_document_is_refused(self, change: dict[str, object]) -> None:
        with pytest.raises(DocumentError, match="not an InstanceMetrics"):
            instance_metrics.parse(json.dumps({**written(), **change}).encode())

    @pytest.mark.parametrize("body", [b"", b"[]", b"<html>", b"\xff", b"[" * 100_000])
    def test_what_is_no_document_is_refused(self, body: bytes) -> None:
        with pytest.raises(DocumentError):
            instance_metrics.parse(body)


class TestSchemas:
    def test_every_key_that_is_written_is_described(self) -> None:
        schemas = instance_metrics.schemas()
        prefix = "ai.gpustack.worker.v1."

        def check(value: object, name: str) -> None:
            schema: Any = schemas[name]
            assert isinstance(value, dict)
            for key, entry in value.items():
                described = schema["properties"][key]
                assert described["description"]
                reference = described.get("$ref") or described.get("items", {}).get("$ref")
                if reference is not None:
                    for item in entry if isinstance(entry, list) else [entry]:
                        check(item, reference.removeprefix("#/components/schemas/"))

        check(written(), f"{prefix}InstanceMetrics")
        check(instance_metrics.list_document([USAGE]), f"{prefix}InstanceMetricsList")

    def test_they_make_a_valid_openapi_3_0_document(self) -> None:
        validate(
            {
                "openapi": "3.0.0",
                "info": {"title": "x", "version": "1"},
                "paths": {},
                "components": {"schemas": dict(instance_metrics.schemas())},
            }
        )

    def test_an_optional_key_is_missing_and_never_null(self) -> None:
        assert "null" not in json.dumps(instance_metrics.schemas())

    def test_the_kinds_are_those_of_the_group_asked_for(self) -> None:
        schemas = instance_metrics.schemas(api_group="example.org", ref_prefix="#/definitions/")
        kind = schemas["org.example.v1.InstanceMetrics"]["x-kubernetes-group-version-kind"]
        assert kind == [{"group": "example.org", "version": "v1", "kind": "InstanceMetrics"}]
        assert "#/definitions/org.example.v1.Sample" in json.dumps(schemas)
        assert "#/components" not in json.dumps(schemas)

    def test_every_word_of_the_vocabularies_is_there(self) -> None:
        text = json.dumps(instance_metrics.schemas())
        for word in (*Reason, *SourceState, *CollectorState):
            assert f'"{word}"' in text


class TestPage:
    PAGE = (Path(__file__).parents[3] / "docs" / "sample.md").read_text("utf-8")

    def test_every_key_is_explained(self) -> None:
        explained = set(re.findall(r"`(?:sample\.|metadata\.)?(\w+)`", self.PAGE))
        schemas: Any = instance_metrics.schemas()
        for part in ("Metadata", "Sample", "Accelerator", "ResourceSums", "Source"):
            keys = schemas[f"ai.gpustack.worker.v1.{part}"]["properties"].keys()
            assert keys - {"accelerators"} - {spec.sample_key for spec in FIGURES} <= explained

    def test_every_word_is_named(self) -> None:
        for word in (*Reason, *SourceState, *CollectorState):
            assert f"`{word}`" in self.PAGE

    def test_the_example_is_an_answer(self) -> None:
        (example,) = re.findall(r"```json\n(.*?)```", self.PAGE, re.DOTALL)
        usage = instance_metrics.parse(example.encode())
        assert instance_metrics.document(usage) == json.loads(example)
