"""The latest snapshot and its bytes.

Written by the supervisor and read by request handlers, in one event loop; a snapshot is replaced as a whole, so
no lock is needed. The JSON is encoded once per change at most: when it is first asked for.
"""

import hashlib
from dataclasses import dataclass, replace

from devicemanager.clock import Clock
from devicemanager.model.accelerator import CollectorState, CollectorStatus, Sample, Snapshot
from devicemanager.wire.snapshot import encode


@dataclass(frozen=True, slots=True)
class Document:
    """A snapshot as served.

    Attributes:
        body: The JSON, ending in one newline.
        etag: A strong entity tag, quotes included; it differs whenever a byte of the body does.
    """

    body: bytes
    etag: str


class SnapshotStore:
    """Holds the latest snapshot of one manufacturer."""

    def __init__(self, manufacturer: str, period_s: float, node_name: str | None, clock: Clock) -> None:
        """Hold a snapshot without a sample, in the state ``starting``.

        Args:
            manufacturer: The name users know.
            period_s: Configured seconds between samples.
            node_name: The Kubernetes node, where it is known.
            clock: For when the state of the collector began.
        """
        starting = CollectorStatus(CollectorState.STARTING, since=clock.now())
        self._snapshot = Snapshot(manufacturer, period_s, None, starting, node_name)
        self._document: Document | None = None
        self._version = 0

    @property
    def snapshot(self) -> Snapshot:
        """What is known at this moment."""
        return self._snapshot

    @property
    def document(self) -> Document:
        """The same as bytes."""
        if self._document is None:
            self._document = _document(self._snapshot)
        return self._document

    @property
    def version(self) -> int:
        """How often the snapshot was replaced, from 0. Equal versions are the same snapshot."""
        return self._version

    def age_s(self, now_monotonic_s: float) -> int | None:
        """Whole seconds since the reading of the held sample began, never negative; None before the first."""
        sample = self.snapshot.sample
        return None if sample is None else max(0, int(now_monotonic_s - sample.started_monotonic_s))

    def update(self, status: CollectorStatus, sample: Sample | None = None) -> None:
        """Replace the status, and the sample if there is a newer one; else the old one stays, and ages.

        An equal status changes nothing.
        """
        if sample is not None:
            self._swap(replace(self.snapshot, sample=sample, collector=status))
        elif status != self.snapshot.collector:
            self._swap(replace(self.snapshot, collector=status))

    def rename(self, manufacturer: str) -> None:
        """Hold the snapshot of a manufacturer that was not known before; there must be no sample yet."""
        self._swap(replace(self.snapshot, manufacturer=manufacturer))

    def _swap(self, snapshot: Snapshot) -> None:
        self._snapshot, self._document, self._version = snapshot, None, self._version + 1


def _document(snapshot: Snapshot) -> Document:
    body = encode(snapshot)
    return Document(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')
