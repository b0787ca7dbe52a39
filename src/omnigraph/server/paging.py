"""Pages of listings: at most `limit` entries, after the one that `cursor` names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError
from omnigraph.server.call import Call

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Paging:
    """The page that a request asks for.

    Attributes:
        limit: the maximum number of entries; None for all.
        cursor: the key of the last entry of the page before; None for the first page.
    """

    limit: int | None
    cursor: str | None

    @classmethod
    def of(cls, call: Call) -> Paging:
        """The page of the query parameters `limit` and `cursor`.

        Raises:
            InputError: the limit is not a positive whole number.
        """
        limit = call.number("limit")
        if limit is not None and limit < 1:
            raise InputError(f"limit must be a number of at least 1, not {limit}")
        return cls(limit, call.query("cursor"))

    def of_names(self, member: str, entries: Sequence[T], key: Callable[[T], str]) -> dict[str, Any]:
        """A page of entries that are sorted by a name. The cursor stays valid if its entry is removed."""
        after = [one for one in entries if self.cursor is None or key(one) > self.cursor]
        return self._page(member, after, key)

    def of_records(self, member: str, entries: Sequence[T], key: Callable[[T], str]) -> dict[str, Any]:
        """A page of entries in the order of their time, of which none is ever removed.

        Raises:
            InputError: the cursor is not the key of an entry.
        """
        start = 0
        if self.cursor is not None:
            keys = [key(one) for one in entries]
            if self.cursor not in keys:
                raise InputError("this cursor does not belong to this listing", hint="start without a cursor")
            start = keys.index(self.cursor) + 1
        return self._page(member, entries[start:], key)

    def _page(self, member: str, entries: Sequence[T], key: Callable[[T], str]) -> dict[str, Any]:
        if self.limit is None or len(entries) <= self.limit:
            return {member: list(entries)}
        return {member: list(entries[: self.limit]), "cursor": key(entries[self.limit - 1])}
