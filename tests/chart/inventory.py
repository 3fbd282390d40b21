"""What users and their tools hold on to, by name, as the pages list it; other tests hold the pages to the programs.

``python -m tests.chart.inventory`` writes the list of the version before, from its commit.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.chart.previous import PREVIOUS, ROOT, git

KEPT: Final = Path(__file__).with_name("inventory.json")
PAGES: Final = ("figures", "kubectl", "log-events", "metrics", "settings", "troubleshooting", "values")

CARD: Final = "labels of a card's figures"
"""Stands among the metrics for all of a card's figures."""

Names = Mapping[str, Mapping[str, str]]
"""Kind -> name -> what else of it matters: its labels or keys, sorted, or its default."""


def names(pages: Mapping[str, str]) -> Names:
    """What the pages list.

    Args:
        pages: Name of the page -> its text.
    """
    return {
        "metric": dict(_metrics(pages)),
        "log event": {
            name: _words(keys)
            for name, keys in re.findall(r"^\| `(\w+)` \| [\w, ]+ \| (.*?) \|", pages["log-events"], re.M)
        },
        "column": dict.fromkeys(re.findall(r"^\| ([A-Z][A-Z-]+) \|", pages["kubectl"], re.M), ""),
        "key": {key: "" for row in _figures(pages) for key in row[1:3]},
        "flag": dict(_flags(pages["settings"])),
        "value": dict(re.findall(r"^\| `([\w.<>]+)` \| `(.*?)` \| \S", pages["values"], re.M))
        | dict.fromkeys(re.findall(r"^\| `(manufacturers\.<name>\.\w+)` \| [^`]", pages["values"], re.M), ""),
        "exit code": dict.fromkeys(re.findall(r"^\| (\d) \|", pages["settings"], re.M), "")
        | dict(re.findall(r"^\| `([^`]+)`, exit code (\d)", pages["troubleshooting"], re.M)),
    }


def _figures(pages: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """The rows of the table of names: figure, keys in snapshot and sample, metrics."""
    for line in re.findall(r"^\| `\w+` \| `\w+` \| `\w+` \| .*\|$", pages["figures"], re.M):
        figure, snapshot, sample, metrics, *_ = (cell.strip() for cell in line.strip("|").split("|"))
        yield figure, snapshot.strip("`"), sample.strip("`"), metrics


def _metrics(pages: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for found, labels in re.findall(
        r"^\| (`[\w`, ]+`) \| (?:gauge|counter|histogram) \| (.*?) \|", pages["metrics"], re.M
    ):
        yield from ((name, _words(labels)) for name in re.findall(r"\w+", found))
    yield from ((name, "") for row in _figures(pages) for name in re.findall(r"`(\w+)`", row[3]))
    card = re.search(
        r"labels of a card are (.*?)[;.]\s|figures[^:]*?, with the labels (.*?):", pages["metrics"], re.S
    )
    yield CARD, _words(card[1] or card[2]) if card else ""


def _flags(page: str) -> Iterator[tuple[str, str]]:
    """Each program's flags and variables, with their defaults."""
    for program, table in re.findall(r"<!-- settings: ([\w-]+) -->\n(.*?)<!-- end -->", page, re.S):
        for line in table.splitlines()[2:]:
            cells = re.split(r"(?<!\\)\|", line.strip("|"), maxsplit=4)
            flag, variables, _, default, _ = (cell.strip() for cell in cells)
            for name in re.findall(r"`([\w-]+)`", f"{flag} {variables}"):
                yield f"{program} {name}", default if default.startswith("`") else ""


def _words(text: str) -> str:
    return " ".join(sorted(re.findall(r"`(\w+)`", text)))


def current() -> Names:
    """Of the work tree."""
    return names({page: (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8") for page in PAGES})


def previous() -> Names:
    """Of the version before, out of git."""
    return names({page: git("show", f"{PREVIOUS}:docs/{page}.md").decode() for page in PAGES})


if __name__ == "__main__":
    KEPT.write_text(json.dumps(previous(), indent=1, sort_keys=True) + "\n", encoding="utf-8")
    sys.exit()
