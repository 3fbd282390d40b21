"""Typed access to a table of a scenario file, with every problem collected instead of the first one raised.

A problem is named by its place in the file, so that one in the defaults of all cards is one problem.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from devicemanager.model.reasons import Reason
from devicemanager.rules import plausibility
from devicemanager.rules.duration import parse_duration

_Word = TypeVar("_Word", bound=str)


class Table:
    """One table. Each key is asked for by the method for its kind; what is wrong is noted and the default returned.

    Attributes:
        problems: One phrase each, shared by all tables of a document, in the order of asking.
    """

    def __init__(
        self,
        content: Mapping[str, Any],
        place: str,
        problems: list[str],
        places: Mapping[str, str] | None = None,
    ) -> None:
        """Args: ``places`` gives the place of keys that come from another table."""
        self._content = content
        self._place = place
        self._places = places or {}
        self._asked: set[str] = set()
        self.problems = problems

    def has(self, key: str) -> bool:
        """Whether the key is given at all."""
        return key in self._content

    def problem(self, key: str, what: str) -> None:
        """Note that a key's value cannot be used."""
        self.problems.append(f"{self._place_of(key)} {what}")

    def text(self, key: str, default: str) -> str:
        """A string that is not empty, and can be printed."""
        value = self._take(key, default)
        if isinstance(value, str) and value.strip():
            if value.isprintable():
                return value
            self.problem(key, "must be text without control characters")
            return default
        self.problem(key, "must be text")
        return default

    def word(self, key: str, allowed: Sequence[_Word], default: _Word) -> _Word:
        """One of a closed set of words."""
        value = self._take(key, default)
        for candidate in allowed:
            if candidate == value:
                return candidate
        self.problem(key, f"must be one of {', '.join(allowed)}{_suggestion(value, allowed)}")
        return default

    def ordered(self, least: str, most: str, values: tuple[float, float]) -> None:
        """Note that one value is above another one of the same table; the key to blame is one that is given."""
        if values[0] <= values[1]:
            return
        if self.has(least):
            self.problem(least, f"must not be above {most} ({values[1]:g})")
        elif self.has(most):
            self.problem(most, f"must not be below {least} ({values[0]:g})")

    def integer(self, key: str, default: int, lowest: int, highest: int) -> int:
        """A whole number within bounds."""
        value = self._take(key, default)
        if isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= highest:
            return value
        self.problem(key, f"must be a whole number of {lowest}..{highest}")
        return default

    def number(self, key: str, default: float, lowest: float, highest: float) -> float:
        """A number within bounds."""
        value = self._take(key, default)
        if isinstance(value, int | float) and not isinstance(value, bool) and lowest <= value <= highest:
            return float(value)
        self.problem(key, f"must be a number of {lowest:g}..{highest:g}")
        return default

    def names(self, key: str) -> tuple[str, ...]:
        """A list of names, as figures have them; empty where it is missing."""
        value = plausibility.names(self._take(key, []))
        if isinstance(value, Reason):
            self.problem(key, "must be a list of different names of lower-case letters, digits and _")
            return ()
        return value

    def seconds(self, key: str, default: float) -> float:
        """A duration such as ``90s`` or ``1m30s``, in seconds."""
        value = self._take(key, None)
        if value is None:
            return default
        try:
            return parse_duration(value if isinstance(value, str) else "")
        except ValueError:
            self.problem(key, 'must be a duration such as "1m30s"')
            return default

    def child(self, key: str, otherwise: str | None = None) -> "Table":
        """A table inside this one; an empty one where it is missing. ``otherwise`` says what it must be."""
        value = self._take(key, {})
        if not isinstance(value, Mapping):
            self.problem(key, otherwise or "must be a table")
            value = {}
        return Table(value, f"{self._place_of(key)}.", self.problems)

    def children(self, key: str) -> list["Table"]:
        """An array of tables; empty where it is missing."""
        value = self._take(key, [])
        if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
            self.problem(key, f"must be an array of tables, [[{key}]] for each")
            return []
        return [
            Table(one, f"{self._place_of(key)}[{position}].", self.problems) for position, one in enumerate(value)
        ]

    def overlaid(self, other: "Table") -> "Table":
        """This table with the keys of another in place of its own; tables inside are replaced, not merged."""
        own = {key: self._place for key in self._content if key not in other._content}
        return Table({**self._content, **other._content}, other._place, self.problems, own)

    def without(self, *keys: str) -> "Table":
        """This table without some of its keys."""
        content = {key: value for key, value in self._content.items() if key not in keys}
        return Table(content, self._place, self.problems)

    def flag(self, key: str) -> bool | None:
        """``true`` or ``false``; None where the key is missing or holds something else, which is left for later."""
        value = self._content.get(key)
        if isinstance(value, bool):
            self._asked.add(key)
            return value
        return None

    def finish(self) -> None:
        """Note every key that nothing asked for: a typing error must not pass for a setting."""
        for key in self._content:
            if key not in self._asked:
                self.problem(key, f"is unknown{_suggestion(key, self._asked)}")

    def _place_of(self, key: str) -> str:
        return self._places.get(key, self._place) + key

    def _take(self, key: str, default: object) -> Any:
        self._asked.add(key)
        return self._content.get(key, default)


def _suggestion(word: object, known: Iterable[str]) -> str:
    import difflib  # a process without a mistake does not pay for it

    close = difflib.get_close_matches(str(word), sorted(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
