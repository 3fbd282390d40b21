"""What one Kubernetes workload uses right now: CPU, memory, disk and exactly its own accelerators."""

__version__ = "0.1.0"
