"""``InstanceMetrics``: writes the answer for clients, and reads it from an API server.

The keys are those of the existing operator's v1 body, in its first version and in its later one (Total/Used), and
a few additive ones, each explained where it is defined, in ``instance_metrics_schema``.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from devicemanager.errors import DocumentError, excerpt
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
from devicemanager.rules.units import NANOCORES_PER_MILLICORE, millicores
from devicemanager.wire import timestamps
from devicemanager.wire.instance_metrics_schema import (
    DEFAULT_API_GROUP,
    KIND,
    VERSION,
    Accelerator,
    InstanceMetrics,
    InstanceMetricsList,
    Metadata,
    ResourceSums,
    Sample,
    Source,
    schemas,
)

__all__ = ["DEFAULT_API_GROUP", "document", "list_document", "parse", "schemas"]

_NO_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""Stands for a timestamp that cannot be read: too old to be taken for current."""

_REASON_WORDS: Final = frozenset(reason.value for reason in Reason)
_SOURCE_WORDS: Final = frozenset(state.value for state in SourceState)
_COLLECTOR_WORDS: Final = frozenset(state.value for state in CollectorState)

_SAMPLE_FIGURES: Final = (
    "cpu_usage_nanocores",
    "memory_working_set_mib",
    "rootfs_used_mib",
    "ephemeral_storage_used_mib",
)
_HEALTH: Final = "unhealthy"


def document(usage: WorkloadUsage, *, api_group: str = DEFAULT_API_GROUP) -> dict[str, object]:
    """The document of one Instance as plain JSON values."""
    return _values(_instance(usage, api_group))


def list_document(usages: Iterable[WorkloadUsage], *, api_group: str = DEFAULT_API_GROUP) -> dict[str, object]:
    """The document of many Instances as plain JSON values, in the order given."""
    items = [_instance(usage, api_group) for usage in usages]
    return _values(InstanceMetricsList(api_version=f"{api_group}/{VERSION}", items=items))


def parse(body: bytes) -> WorkloadUsage:
    """The Instance's usage from an API server's answer, the existing operator's included.

    A figure that the answer neither carries nor explains is absent ``not_reported``, as is one explained by a
    word that is not known here.

    Raises:
        DocumentError: Not JSON, another kind, or a key of the wrong type.
    """
    try:
        answer = InstanceMetrics.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        fault = excerpt(f"{place}: {first['msg']}")
        raise DocumentError(f"not an InstanceMetrics: {fault}") from error
    if answer.kind != KIND:
        raise DocumentError(f"not an InstanceMetrics but a {excerpt(answer.kind, 64)!r}")
    return WorkloadUsage(
        namespace=answer.metadata.namespace,
        name=answer.metadata.name,
        uid=answer.metadata.uid,
        created_at=timestamps.parse(answer.metadata.creation_timestamp),
        labels=answer.metadata.labels or {},
        sample=None if answer.sample is None else _usage_sample(answer.sample),
    )


def _values(model: BaseModel) -> dict[str, object]:
    return model.model_dump(by_alias=True, exclude_none=True)


def _instance(usage: WorkloadUsage, api_group: str) -> InstanceMetrics:
    return InstanceMetrics(
        api_version=f"{api_group}/{VERSION}",
        metadata=Metadata(
            name=usage.name,
            namespace=usage.namespace,
            uid=usage.uid,
            creation_timestamp=None if usage.created_at is None else timestamps.seconds(usage.created_at),
            labels=dict(usage.labels) or None,
        ),
        sample=None if usage.sample is None else _sample(usage.sample),
    )


def _sample(sample: UsageSample) -> Sample:
    values = {figure: getattr(sample, figure) for figure in _SAMPLE_FIGURES}
    return Sample(
        timestamp=timestamps.seconds(sample.timestamp),
        accelerators=[_accelerator(entry) for entry in sample.accelerators] or None,
        requests=_sums(sample.requests),
        limits=_sums(sample.limits),
        absent=_reasons(Sample, values),
        cpu_total_millicores=sample.declared_limits.cpu_millicores,
        memory_total_mib=sample.declared_limits.memory_mib,
        storage_total_mib=sample.declared_limits.ephemeral_storage_mib,
        cpu_used_millicores=_number(millicores(sample.cpu_usage_nanocores)),
        memory_used_mib=_number(sample.memory_working_set_mib),
        storage_used_mib=_number(sample.ephemeral_storage_used_mib),
        sources=[
            Source(name=report.name, state=report.state, age_s=report.age_s, message=report.message)
            for report in sample.sources
        ],
        **_measured(values),
    )


def _accelerator(entry: AcceleratorUsage) -> Accelerator:
    values = {**entry.figures, _HEALTH: entry.unhealthy}
    return Accelerator(
        id=entry.id,
        manufacturer=entry.manufacturer,
        index=entry.index,
        name=entry.name,
        mode=entry.mode,
        profile=entry.profile,
        unhealthy_reason=entry.unhealthy_reason,
        memory_granted_mib=_number(entry.memory_granted_mib),
        memory_used_mib=_number(entry.figures.number("memory_used")),
        absent=_reasons(Accelerator, values),
        **_measured(values),
    )


def _sums(resources: Resources) -> ResourceSums | None:
    if resources == Resources():
        return None
    return ResourceSums(
        cpu_millicores=resources.cpu_millicores,
        memory_mib=resources.memory_mib,
        ephemeral_storage_mib=resources.ephemeral_storage_mib,
    )


def _number(figure: Figure) -> int | None:
    return None if isinstance(figure, Reason) else figure


def _measured(values: Mapping[str, object]) -> dict[str, Any]:
    """Attribute -> figure, of those that were measured."""
    return {figure: value for figure, value in values.items() if not isinstance(value, Reason)}


def _reasons(model: type[BaseModel], values: Mapping[str, object]) -> dict[str, str] | None:
    """Key on the wire -> reason, of those that were not; None when all were."""
    reasons = {_key(model, figure): value.value for figure, value in values.items() if isinstance(value, Reason)}
    return reasons or None


def _key(model: type[BaseModel], figure: str) -> str:
    return model.model_fields[figure].alias or figure


def _usage_sample(sample: Sample) -> UsageSample:
    declared = Resources(sample.cpu_total_millicores, sample.memory_total_mib, sample.storage_total_mib)
    cpu = sample.cpu_used_millicores
    later = {
        "cpu_usage_nanocores": None if cpu is None else cpu * NANOCORES_PER_MILLICORE,
        "memory_working_set_mib": sample.memory_used_mib,
        "ephemeral_storage_used_mib": sample.storage_used_mib,
    }
    return UsageSample(
        timestamp=timestamps.parse(sample.timestamp) or _NO_TIME,
        **{figure: _given(sample, figure, later.get(figure)) for figure in _SAMPLE_FIGURES},
        accelerators=tuple(_accelerator_usage(entry) for entry in sample.accelerators or ()),
        requests=_resources(sample.requests),
        limits=_limits(declared) if sample.sources is None else _resources(sample.limits),
        declared_limits=declared,
        sources=tuple(
            SourceReport(source.name, _state(source.state), source.age_s, source.message)
            for source in sample.sources or ()
        ),
    )


def _limits(declared: Resources) -> Resources:
    """The limits in a sample of the operator, which writes 0 for none and names no sources."""
    return Resources(
        declared.cpu_millicores or None, declared.memory_mib or None, declared.ephemeral_storage_mib or None
    )


def _accelerator_usage(entry: Accelerator) -> AcceleratorUsage:
    later = {"memory_total": entry.memory_granted_mib, "memory_used": entry.memory_used_mib}
    figures = Figures(**{spec.name: _given(entry, spec.name, later.get(spec.name)) for spec in FIGURES})
    total = figures.number("memory_total")
    unknown = Reason.NOT_REPORTED if entry.mode == Mode.SLICED.label and not isinstance(total, Reason) else total
    return AcceleratorUsage(
        id=entry.id,
        manufacturer=entry.manufacturer,
        index=entry.index,
        name=entry.name,
        mode=entry.mode,
        figures=figures,
        unhealthy=_given(entry, _HEALTH),
        unhealthy_reason=entry.unhealthy_reason,
        profile=entry.profile,
        memory_granted_mib=unknown if entry.memory_granted_mib is None else entry.memory_granted_mib,
    )


def _given(model: Sample | Accelerator, figure: str, later: int | None = None) -> Any:
    """A figure of the model under its first name or its ``later`` one, or its reason."""
    value = getattr(model, figure)
    if value is None:
        return _reason(model, figure) if later is None else later
    return tuple(value) if isinstance(value, list) else value


def _reason(model: Sample | Accelerator, figure: str) -> Reason:
    word = (model.absent or {}).get(_key(type(model), figure))
    return Reason(word) if word in _REASON_WORDS else Reason.NOT_REPORTED


def _resources(sums: ResourceSums | None) -> Resources:
    if sums is None:
        return Resources()
    return Resources(sums.cpu_millicores, sums.memory_mib, sums.ephemeral_storage_mib)


def _state(word: str) -> SourceState | CollectorState:
    """The state; ``invalid`` for one that is not known here."""
    if word in _SOURCE_WORDS:
        return SourceState(word)
    return CollectorState(word) if word in _COLLECTOR_WORDS else SourceState.INVALID
