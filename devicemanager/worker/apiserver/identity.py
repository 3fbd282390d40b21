"""The identity of a caller. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
MASTERS: Final = "system:masters"
_ANONYMOUS_NAME: Final = "system:anonymous"


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated caller. Hashable: it is half of the authorization cache's key.

    Attributes:
        name: Never empty.
        uid: Empty when unknown.
        groups: In the order given, repeats kept.
        extra: Key -> values, ordered by key.
    """

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def is_master(self) -> bool:
        """Member of the group that no authorizer may refuse."""
        return MASTERS in self.groups


ANONYMOUS: Final = User(_ANONYMOUS_NAME, groups=(UNAUTHENTICATED,))
"""A caller without any credential."""


def authenticated(user: User) -> User:
    """Add the group that every authenticated caller is in; the front proxy does not always send it."""
    if user.name == _ANONYMOUS_NAME or {AUTHENTICATED, UNAUTHENTICATED} & set(user.groups):
        return user
    return User(user.name, user.uid, (*user.groups, AUTHENTICATED), user.extra)


def ordered_extra(extra: Mapping[str, Iterable[str]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Extra attributes in the one order that makes equal users equal."""
    return tuple((key, tuple(values)) for key, values in sorted(extra.items()))
