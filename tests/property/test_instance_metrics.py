"""The answer: written and read back without loss, and read from anything without harm."""

import json
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from devicemanager.errors import DocumentError
from devicemanager.model.accelerator import CollectorState, Reason
from devicemanager.model.allocation import Mode
from devicemanager.model.figures import FIGURES, Figures
from devicemanager.model.usage import (
    AcceleratorUsage,
    Resources,
    SourceReport,
    SourceState,
    UsageSample,
    WorkloadUsage,
)
from devicemanager.wire import instance_metrics
from tests.property.json_strategies import anything, bodies, objects

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
figures = st.sampled_from(list(Reason)) | st.integers(0, 2**63 - 1)
names = st.sampled_from(list(Reason)) | st.lists(texts, max_size=3).map(tuple)
moments = st.datetimes(datetime(2, 1, 1), datetime(9999, 1, 1), timezones=st.just(UTC)).map(  # noqa: DTZ001 - hypothesis adds the zone
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
)
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
