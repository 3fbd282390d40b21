"""A client for every test in here."""

from tests.cluster.one_node import client

__all__ = ["client"]
