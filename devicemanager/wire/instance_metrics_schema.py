"""What an ``InstanceMetrics`` document is made of: each key with its meaning and unit.

The OpenAPI documents are written from these models, so they cannot say anything else than what is sent.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, create_model
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema
from typing_extensions import override

from devicemanager.model.accelerator import CollectorState, Reason
from devicemanager.model.allocation import Mode
from devicemanager.model.figures import FIGURES, FigureSpec, Scope, unit_text
from devicemanager.model.usage import SourceState

VERSION: Final = "v1"
KIND: Final = "InstanceMetrics"
LIST_KIND: Final = "InstanceMetricsList"

DEFAULT_API_GROUP: Final = "worker.gpustack.ai"

_INT32: Final = {"format": "int32", "minimum": 0}
_INT64: Final = {"format": "int64", "minimum": 0}

Int32: TypeAlias = Annotated[StrictInt, Field(json_schema_extra={**_INT32})]
Int64: TypeAlias = Annotated[StrictInt, Field(json_schema_extra={**_INT64})]
"""What a Go client reads them into. Ranges are the rules' business; here they are documentation."""

_REASON_VALUES: Final[dict[str, Any]] = {
    "additionalProperties": {"type": "string", "enum": [reason.value for reason in Reason]}
}
_STATE_VALUES: Final[dict[str, Any]] = {
    "enum": list(
        dict.fromkeys([*(state.value for state in SourceState), *(state.value for state in CollectorState)])
    )
}

Absent: TypeAlias = Annotated[
    dict[str, str] | None,
    Field(
        description="Why a figure is left out: key of this object -> reason. A figure is measured or named here.",
        json_schema_extra=_REASON_VALUES,
    ),
]


def _optional(key: str, meaning: str, schema: dict[str, Any] | None = None) -> Any:
    """A field that is left out where there is nothing to say."""
    return Field(default=None, alias=key, description=meaning, json_schema_extra=schema)


class _Model(BaseModel):
    """Base of the document's parts: keys by alias, newer servers' extra keys ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)


class _Given(_Model):
    """Which accelerator it is, and how it was given."""

    id: str = Field(description="Vendor UUID of the card; of the partition where it has one of its own.")
    manufacturer: str = Field(default="", description="Manufacturer, as its device manager is labelled: nvidia.")
    index: Int32 | None = _optional("index", "The allocator's ordinal on the node. No identity.")
    name: str | None = _optional("name", "Product name.")
    profile: str | None = _optional("profile", "Profile of a partition: 1g.10gb.")
    mode: str = Field(
        default="",
        description="How it was given. Exclusive, Shared and None show the card's figures; Sliced and Partitioned "
        "show memory used and compute of the share alone; temperature, power and health are always the board's.",
        json_schema_extra={"enum": [mode.label for mode in Mode if mode is not Mode.VISIBILITY]},
    )


def _figure_field(spec: FigureSpec) -> tuple[Any, Any]:
    """The field of one figure: what it is read into, and what is said of it."""
    schema = {"x-kubernetes-list-type": "atomic"} if spec.quantity.names else None
    kind = list[StrictStr] if spec.quantity.names else Int64 if spec.quantity.bits > 32 else Int32
    return kind | None, _optional(spec.sample_key, _sample_text(spec), schema)


def _sample_text(spec: FigureSpec) -> str:
    """What a figure of the sample is, in which unit, and whose."""
    whose = "of the board" if spec.scope is Scope.BOARD else "whose it is depends on mode"
    return f"{spec.description}{unit_text(spec.quantity)}; {whose}."


if TYPE_CHECKING:
    _WithFigures = _Given
else:
    _WithFigures = create_model(
        "_WithFigures", __base__=_Given, **{spec.name: _figure_field(spec) for spec in FIGURES}
    )


class Accelerator(_WithFigures):
    """One accelerator, or one partition of one, that was given to the Instance."""

    unhealthy: StrictBool | None = _optional(
        "unhealthy", "Whether any health check of the board says that it is unhealthy."
    )
    unhealthy_reason: str | None = _optional(
        "unhealthyReason", "Why it is unhealthy; left out where nothing says so."
    )
    memory_granted_mib: Int64 | None = _optional(
        "memoryTotalMiB",
        "Memory that was given, MiB: a slice's part of the card, else memoryMiB; the operator's name.",
    )
    memory_used_mib: Int64 | None = _optional(
        "memoryUsedMiB", "The same as memoryUsageMiB, as the operator names it."
    )
    absent: Absent = None


class ResourceSums(_Model):
    """Of the pod as a whole, to compute percentages of; a key is left out where there is none."""

    cpu_millicores: Int64 | None = _optional(
        "cpuMilliCores", "CPU, thousandths of a core, rounded up per container."
    )
    memory_mib: Int64 | None = _optional("memoryMiB", "Memory, MiB, rounded up.")
    ephemeral_storage_mib: Int64 | None = _optional("ephemeralStorageMiB", "Ephemeral storage, MiB, rounded up.")


class Source(_Model):
    """One source that was asked for this sample."""

    name: str = Field(
        description="kubelet, metrics.k8s.io, device-manager/MANUFACTURER, or allocation when the record of the "
        "pod's accelerators could not be understood."
    )
    state: str = Field(
        description="How it ended. ok: its figures are in the sample. A device manager also passes on its "
        "collector's state.",
        json_schema_extra=_STATE_VALUES,
    )
    age_s: Int64 | None = _optional(
        "ageSeconds", "Seconds between its measurement and this answer, whatever the clocks say; never negative."
    )
    message: str | None = _optional("message", "One line for a person.")


def _declared(key: str, what: str) -> Any:
    """The field of a sum of limits."""
    return _optional(
        key, f"{what}: sum of the limits that the pod's containers have, rounded up; 0 where none has one."
    )


class Sample(_Model):
    """One moment of the Instance. A figure is measured, or left out with its reason in absent."""

    timestamp: str = Field(
        description="When the oldest part of the sample was measured; the time of the read when nothing was.",
        json_schema_extra={"format": "date-time"},
    )
    cpu_usage_nanocores: Int64 | None = _optional("cpuUsageNanoCores", "CPU in use, billionths of a core.")
    memory_working_set_mib: Int64 | None = _optional(
        "memoryWorkingSetMiB", "Working set, as the kubelet evicts by it, MiB, rounded up."
    )
    rootfs_used_mib: Int64 | None = _optional(
        "rootfsUsedMiB", "Writable layers of all containers, MiB, rounded up."
    )
    ephemeral_storage_used_mib: Int64 | None = _optional(
        "ephemeralStorageUsedMiB", "Writable layers, logs and emptyDirs of the pod, MiB, rounded up."
    )
    cpu_total_millicores: Int64 | None = _declared("cpuTotalMilliCores", "CPU, thousandths of a core")
    cpu_used_millicores: Int64 | None = _optional(
        "cpuUsedMilliCores",
        "The same as cpuUsageNanoCores in thousandths of a core, rounded up, as the operator names it.",
    )
    memory_total_mib: Int64 | None = _declared("memoryTotalMiB", "Memory, MiB")
    memory_used_mib: Int64 | None = _optional(
        "memoryUsedMiB", "The same as memoryWorkingSetMiB, as the operator names it."
    )
    storage_total_mib: Int64 | None = _declared("storageTotalMiB", "Ephemeral storage, MiB")
    storage_used_mib: Int64 | None = _optional(
        "storageUsedMiB", "The same as ephemeralStorageUsedMiB, as the operator names it."
    )
    accelerators: list[Accelerator] | None = _optional(
        "accelerators",
        "The Instance's own accelerators; left out when it has none.",
        {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"]},
    )
    requests: ResourceSums | None = _optional("requests", "What the pod requests.")
    limits: ResourceSums | None = _optional(
        "limits", "What the pod is limited to as a whole: a key is left out where a container has no limit."
    )
    absent: Absent = None
    sources: list[Source] | None = _optional(
        "sources", "Every source asked, and how that ended.", {"x-kubernetes-list-type": "atomic"}
    )


class Metadata(_Model):
    """Of the Instance itself."""

    name: str = Field(description="Name of the Instance.")
    namespace: str = Field(description="Namespace of the Instance.")
    uid: str = Field(default="", description="UID of the Instance.")
    creation_timestamp: str | None = _optional(
        "creationTimestamp", "When the Instance was created.", {"format": "date-time"}
    )
    labels: dict[str, str] | None = _optional("labels", "Labels of the Instance.")


class InstanceMetrics(_Model):
    """What one Instance uses right now: CPU, memory, disk and exactly its own accelerators."""

    kind: str = Field(default=KIND, description="InstanceMetrics.")
    api_version: str = Field(alias="apiVersion", description="API group and version.")
    metadata: Metadata = Field(description="Of the Instance.")
    sample: Sample | None = _optional("sample", "The current sample. No history is kept.")


class ListMetadata(_Model):
    """Where the list stands. It has no version to watch from."""

    resource_version: str | None = _optional("resourceVersion", "Always empty: samples have no history.")
    continue_: str | None = _optional(
        "continue", "To be sent back for the next page of a limited list; left out on the last."
    )
    remaining_item_count: Int64 | None = _optional(
        "remainingItemCount", "Instances behind this page; left out on the last."
    )


class InstanceMetricsList(_Model):
    """The current samples of many Instances."""

    kind: str = Field(default=LIST_KIND, description="InstanceMetricsList.")
    api_version: str = Field(alias="apiVersion", description="API group and version.")
    metadata: ListMetadata = Field(default_factory=ListMetadata, description="Of the list.")
    items: list[InstanceMetrics] = Field(description="One per Instance.")


class _OpenApiSchema(GenerateJsonSchema):
    """JSON schema as OpenAPI 3.0 and 2.0 know it: optional means that the key may be missing, never null."""

    @override
    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    @override
    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    @override
    def field_title_should_be_set(self, schema: object) -> bool:
        return False


def schemas(
    *, api_group: str = DEFAULT_API_GROUP, ref_prefix: str = "#/components/schemas/"
) -> Mapping[str, Mapping[str, object]]:
    """The schema of each part, by a name made of the reversed API group: ``ai.gpustack.worker.v1.InstanceMetrics``.

    Args:
        api_group: Whose kinds they are; the two kinds say so in ``x-kubernetes-group-version-kind``.
        ref_prefix: What references between them begin with: ``#/definitions/`` for OpenAPI 2.0.
    """
    package = f"{'.'.join(reversed(api_group.split('.')))}.{VERSION}"
    mode: JsonSchemaMode = "serialization"
    _, found = models_json_schema(
        [(InstanceMetrics, mode), (InstanceMetricsList, mode)],
        ref_template=f"{ref_prefix}{package}.{{model}}",
        schema_generator=_OpenApiSchema,
    )
    definitions: dict[str, dict[str, object]] = found["$defs"]
    for kind in (KIND, LIST_KIND):
        definitions[kind]["x-kubernetes-group-version-kind"] = [
            {"group": api_group, "version": VERSION, "kind": kind}
        ]
    for definition in definitions.values():
        definition.pop("title", None)
    return {f"{package}.{name}": definition for name, definition in sorted(definitions.items())}
