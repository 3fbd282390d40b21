"""Metrics, labels, log events, columns, keys, flags, values and exit codes stay, or the page says so."""

import json
import re
from collections.abc import Iterator

import pytest

from tests.chart.inventory import CARD, KEPT, Names, current, names, previous
from tests.chart.previous import ROOT

LISTED = {"metric", "log event"}
"""Kinds of which the labels or keys matter one by one; of the others what stands beside the name is its default."""


def before() -> Names:
    kept: Names = json.loads(KEPT.read_text(encoding="utf-8"))
    return kept


def not_kept(old: Names, new: Names) -> Iterator[tuple[str, set[str]]]:
    """Each name, or label or key of it, that is gone or has another default; and what a row about it must name."""
    for kind, known in old.items():
        for name, detail in known.items():
            now = new[kind].get(name)
            called = {name.rpartition(" ")[2]} if kind == "flag" else {name} - {CARD}
            if now is None:
                yield f"{kind} {name}", called
            elif kind in LISTED:
                for word in set(detail.split()) - set(now.split()):
                    yield f"{kind} {name}: {word}", {*called, word}
            elif now != detail:
                yield f"{kind} {name}: {detail}, now {now}", called


def test_whatever_is_not_kept_is_on_the_page_about_upgrades() -> None:
    page = (ROOT / "docs" / "upgrade.md").read_text(encoding="utf-8")
    rows = [set(re.findall(r"`([^`]+)`", line)) for line in page.splitlines() if line.startswith("| ")]
    unsaid = [what for what, called in not_kept(before(), current()) if not any(called <= row for row in rows)]
    assert unsaid == []


def test_the_list_is_that_of_the_version_before() -> None:
    assert before() == previous()


def test_the_list_holds_some_of_each_kind() -> None:
    sizes = {kind: len(known) for kind, known in before().items()}
    assert sizes["exit code"] >= 3
    assert all(size > 10 for kind, size in sizes.items() if kind != "exit code"), sizes


@pytest.mark.parametrize(
    ("page", "old", "new", "called"),
    [
        ("metrics", "| `a_total` | counter | `x`, `y` | . |", "| `a_total` | counter | `x` | . |", "y"),
        ("metrics", "| `a_total` | counter | | . |", "", "a_total"),
        (
            "metrics",
            "The labels of a card are `id` (one) and `index`.\n",
            "The labels of a card are `id`.\n",
            "index",
        ),
        ("log-events", "| `a_b` | info | `k` | . |", "| `a_b` | info | | . |", "k"),
        ("kubectl", "| GPU-UTIL | x |", "", "GPU-UTIL"),
        ("values", "| `a.b` | `1` | x |", "| `a.b` | `2` | x |", "a.b"),
        ("values", "| `manufacturers.<name>.env` | x |", "", "manufacturers.<name>.env"),
        (
            "settings",
            "<!-- settings: serve -->\n|h|\n|-|\n| `--a` | `DEVICEMANAGER_A` | `N` | `1` | m |\n<!-- end -->",
            "<!-- settings: serve -->\n|h|\n|-|\n| `--a` | `DEVICEMANAGER_A` | `N` | `2` | m |\n<!-- end -->",
            "--a",
        ),
        (
            "troubleshooting",
            "| `listen_failed`, exit code 1 | x |",
            "| `listen_failed`, exit code 2 | x |",
            "listen_failed",
        ),
    ],
)
def test_a_change_is_found(page: str, old: str, new: str, called: str) -> None:
    empty = dict.fromkeys(
        ("figures", "kubectl", "log-events", "metrics", "settings", "troubleshooting", "values"), ""
    )
    assert any(called in row for _, row in not_kept(names({**empty, page: old}), names({**empty, page: new})))
    assert list(not_kept(names({**empty, page: old}), names({**empty, page: old}))) == []
