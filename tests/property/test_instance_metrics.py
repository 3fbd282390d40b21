"""The answer: written and read back without loss, and read from anything without harm."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from devicemanager.errors import DocumentError
from devicemanager.model.accelerator import CollectorState, Reason
from devicemanager.model.allocation import Mode
from devicemanager.model.figures import FIGURES, Figure, Figures
from devicemanager.model.usage import (
    AcceleratorUsage,
    Resources,
    SourceReport,
    SourceState,
    UsageSample,
    WorkloadUsage,
)
from devicemanager.rules.units import millicores
from devicemanager.wire import instance_metrics
from tests.property.json_strategies import anything, bodies, objects

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
figures = st.sampled_from(list(Reason)) | st.integers(0, 2**63 - 1)
names = st.sampled_from(list(Reason)) | st.lists(texts, max_size=3).map(tuple)
moments = st.datetimes(datetime(2000, 1, 1), datetime(9999, 1, 1), timezones=st.just(UTC)).map(  # noqa: DTZ001 - hypothesis adds the zone
    lambda moment: moment.replace(microsecond=0)
)
sums = st.builds(Resources, *(st.none() | st.integers(0, 2**40) for _ in range(3)))
accelerators = st.builds(
    AcceleratorUsage,
    id=texts,
    manufacturer=texts,
    index=st.none() | st.integers(0, 2**32 - 1),
    name=st.none() | texts,
    mode=st.sampled_from([mode.label for mode in Mode]),
    figures=st.fixed_dictionaries({spec.name: names if spec.quantity.names else figures for spec in FIGURES}).map(
        lambda values: Figures(**values)
    ),
    unhealthy=st.booleans() | st.sampled_from(list(Reason)),
    unhealthy_reason=st.none() | texts,
    profile=st.none() | texts,
    memory_granted_mib=st.integers(0, 2**63 - 1) | st.just(Reason.NOT_REPORTED),
).map(lambda entry: replace(entry, memory_granted_mib=_granted(entry)))


def _granted(entry: AcceleratorUsage) -> Figure:
    """A slice has a part of its own, as far as the card's memory is known; everything else is given whole."""
    total = entry.figures.number("memory_total")
    sliced = entry.mode == Mode.SLICED.label and not isinstance(total, Reason)
    return entry.memory_granted_mib if sliced else total


SOURCE_WORDS = [state.value for state in SourceState]
OTHER_STATES = [state for state in CollectorState if state.value not in SOURCE_WORDS]
reports = st.builds(
    SourceReport,
    name=texts,
    # Words that both vocabularies know are read as the sources' own.
    state=st.sampled_from(list(SourceState)) | st.sampled_from(OTHER_STATES),
    age_s=st.none() | st.integers(0, 2**40),
    message=st.none() | texts,
)
samples = st.builds(
    UsageSample,
    timestamp=moments,
    cpu_usage_nanocores=figures,
    memory_working_set_mib=figures,
    rootfs_used_mib=figures,
    ephemeral_storage_used_mib=figures,
    accelerators=st.lists(accelerators, max_size=3).map(tuple),
    requests=sums,
    limits=sums,
    declared_limits=sums,
    sources=st.lists(reports, max_size=3).map(tuple),
)
usages = st.builds(
    WorkloadUsage,
    namespace=texts,
    name=texts,
    uid=texts,
    created_at=st.none() | moments,
    labels=st.dictionaries(texts, texts, max_size=2),
    sample=st.none() | samples,
)


@given(usages)
def test_what_is_written_is_read_back(usage: WorkloadUsage) -> None:
    assert instance_metrics.parse(json.dumps(instance_metrics.document(usage)).encode()) == usage


@given(usages)
def test_each_of_the_operators_later_names_has_the_value_of_the_first(usage: WorkloadUsage) -> None:
    document: Any = instance_metrics.document(usage)
    sample = document.get("sample", {})
    if (cpu := sample.get("cpuUsageNanoCores")) is not None:
        assert sample["cpuUsedMilliCores"] == -(-cpu // 1_000_000)
    pairs = [
        (sample, "memoryWorkingSetMiB", "memoryUsedMiB"),
        (sample, "ephemeralStorageUsedMiB", "storageUsedMiB"),
    ]
    pairs += [(card, "memoryUsageMiB", "memoryUsedMiB") for card in sample.get("accelerators", [])]
    for part, first, later in pairs:
        assert part.get(first) == part.get(later)


@given(usages)
def test_an_answer_of_the_operators_later_version_is_read_as_well(usage: WorkloadUsage) -> None:
    """Without what is ours and the first names, the rest says the same, CPU in thousandths of a core."""
    document: Any = instance_metrics.document(usage)
    for part in (document.get("sample", {}), *document.get("sample", {}).get("accelerators", [])):
        for key in (
            "cpuUsageNanoCores",
            "memoryWorkingSetMiB",
            "ephemeralStorageUsedMiB",
            "memoryUsageMiB",
            "sources",
        ):
            part.pop(key, None)
    found = instance_metrics.parse(json.dumps(document).encode()).sample
    if usage.sample is None or found is None:
        assert usage.sample is found
        return
    for name in ("memory_working_set_mib", "ephemeral_storage_used_mib", "declared_limits"):
        assert getattr(found, name) == getattr(usage.sample, name)
    assert millicores(found.cpu_usage_nanocores) == millicores(usage.sample.cpu_usage_nanocores)
    for mine, theirs in zip(usage.sample.accelerators, found.accelerators, strict=True):
        assert mine.figures["memory_used"] == theirs.figures["memory_used"]
        assert mine.memory_granted_mib == theirs.memory_granted_mib


@given(usages)
def test_each_figure_is_either_measured_or_explained(usage: WorkloadUsage) -> None:
    document: Any = instance_metrics.document(usage)
    sample = document.get("sample", {"accelerators": []})
    for part, keys in [
        *((card, CARD_KEYS) for card in sample.get("accelerators", [])),
        *([(sample, SAMPLE_KEYS)] if usage.sample is not None else []),
    ]:
        explained = part.get("absent", {})
        assert all((key in part) != (key in explained) for key in keys)
        assert explained.keys() <= keys
        assert None not in part.values()


SAMPLE_KEYS = {"cpuUsageNanoCores", "memoryWorkingSetMiB", "rootfsUsedMiB", "ephemeralStorageUsedMiB"}
CARD_KEYS = {*(spec.sample_key for spec in FIGURES), "unhealthy"}

answers = objects(
    {
        "kind": st.just("InstanceMetrics"),
        "apiVersion": st.text(),
        "metadata": objects({"name": st.text(), "namespace": st.text(), "labels": anything}),
        "sample": objects(
            {
                "timestamp": st.text(),
                "cpuUsageNanoCores": st.integers(),
                "cpuUsedMilliCores": st.integers(),
                "memoryTotalMiB": st.integers(),
                "absent": objects({"cpuUsageNanoCores": st.text()}),
                "accelerators": st.lists(objects({"id": st.text(), "memoryMiB": st.integers()}), max_size=2),
                "sources": st.lists(objects({"name": st.text(), "state": st.text()}), max_size=2),
            }
        ),
    }
)


@given(bodies(answers | anything))
def test_any_bytes_are_an_answer_or_our_own_error(body: bytes) -> None:
    try:
        usage = instance_metrics.parse(body)
    except DocumentError as error:
        usage = None
        message = str(error)
        assert message.isprintable()
    assert usage is None or isinstance(usage, WorkloadUsage)
