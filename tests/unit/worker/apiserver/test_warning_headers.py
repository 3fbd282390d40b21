"""Warnings as kubectl prints them."""

from dataclasses import replace

import pytest

from devicemanager.model.accelerator import Reason
from devicemanager.model.usage import SourceReport, SourceState
from devicemanager.worker.apiserver.warning_headers import LIMIT, bounded, of_usage, warning_header
from tests.unit.worker.apiserver.api_server import card, usage


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("kubelet: timeout", '299 - "kubelet: timeout"'),
        ('a "b" \\c', '299 - "a \\"b\\" \\\\c"'),
        ("two\r\nlines\x00", '299 - "two lines"'),
        ("größe", '299 - "größe"'),
    ],
)
def test_one_warning(text: str, header: str) -> None:
    assert warning_header(text) == header


def test_a_long_warning_is_cut() -> None:
    assert len(warning_header("x" * 10_000)) < 300


def test_many_warnings_are_counted() -> None:
    assert bounded(["a", "b", "a"]) == ["a", "b"]
    many = bounded([f"node-{number}" for number in range(50)])
    assert len(many) == LIMIT
    assert many[-1] == f"and {50 - LIMIT + 1} more"


def test_of_an_answer() -> None:
    sources = [SourceReport("kubelet", SourceState.OK, 1), SourceReport("device-manager/amd", SourceState.STALE)]
    assert of_usage(usage(sources=sources)) == ["device-manager/amd: stale"]
    assert of_usage(replace(usage(), sample=None)) == []


def test_of_accelerators_that_are_not_healthy() -> None:
    ill = replace(card(2, unhealthy=True), unhealthy_reason="double-bit ECC error")
    cards = [card(1), ill, card(3, unhealthy=True), card(4, unhealthy=Reason.STALE)]
    assert of_usage(usage(cards=cards)) == [
        "accelerator GPU-2: unhealthy (double-bit ECC error)",
        "accelerator GPU-3: unhealthy",
    ]
