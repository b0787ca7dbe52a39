"""Merges of a restricted session: of all rows, with conflicts and receipts that show only the visible part.

A merge is an action on branches, so it takes over hidden rows, too. But the actor decides about nothing that it does
not see: a merge with a conflict about something hidden is denied, whichever side would win.
"""

# See docs/decisions/0345-merges-take-over-hidden-rows.md

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from omnigraph.commit.manifest import Manifest
from omnigraph.dataclass import dataclass
from omnigraph.engine.access import Action
from omnigraph.engine.session import Session
from omnigraph.errors import AccessDeniedError, Conflict, ConflictKind
from omnigraph.lang.schema.type_key import TypeKey
from omnigraph.merge.receipt import MergeReceipt
from omnigraph.restricted.commits import visible_commit
from omnigraph.restricted.row_scope import Rows
from omnigraph.restricted.store import RestrictedStore

_WHY = "it concerns rows or properties that the actor may not see"
_OF_SEVERAL_ROWS = (ConflictKind.UNIQUE_VIOLATION, ConflictKind.CARDINALITY_VIOLATION, ConflictKind.ORPHAN_EDGE)
_ID = "id"


@dataclass(frozen=True, slots=True)
class VisibleConflicts:
    """Checks that the actor sees all that the conflicts of a merge are about.

    Attributes:
        session: the restricted session.
        source: the branch that is merged.
        target: the branch that it is merged into.
    """

    session: Session
    source: str
    target: str

    def __call__(self, conflicts: Sequence[Conflict], total: int, states: Sequence[Manifest]) -> None:
        """Check the conflicts of a merge without choices.

        Args:
            conflicts: the first conflicts.
            total: the number of all conflicts.
            states: the states that were compared.

        Raises:
            AccessDeniedError: a conflict concerns something hidden, or there are more conflicts than can be checked.
        """
        if total > len(conflicts) or not all(map(self._is_about_one_row, conflicts)):
            raise self.denied()
        ids: dict[str, set[str]] = {}
        for conflict in conflicts:
            ids.setdefault(conflict.type_key, set()).add(str(conflict.entity_id))
        for key, named in ids.items():
            places = _names(states, key)
            if not places or not all(self._shows(state, name, named) for state, name in places):
                raise self.denied()
        if not all(self._shows_values(conflict, states) for conflict in conflicts):
            raise self.denied()

    def denied(self) -> AccessDeniedError:
        """The error for a conflict about something hidden. It does not say what."""
        session, action = self.session, Action.BRANCH_MERGE
        if session.access is not None:
            return session.access.denied(action, _WHY, branch=self.source, target_branch=self.target)
        actor = session.actor
        return AccessDeniedError(actor, action.value, branch=self.source, target_branch=self.target, hint=_WHY)

    @staticmethod
    def _is_about_one_row(conflict: Conflict) -> bool:
        """Whether the conflict names no other entity than its own."""
        return conflict.entity_id is not None and conflict.kind not in _OF_SEVERAL_ROWS

    def _shows(self, state: Manifest, key: str, ids: Iterable[str]) -> bool:
        """Whether all stored entities with some ids are visible in a state."""
        store = self.session.store
        assert isinstance(store, RestrictedStore)
        stored, shown = state.tables[key], store.restricted(state).tables.get(key)
        if shown is None:
            return False
        wanted = pa.chunked_array([pa.array(sorted(ids), pa.utf8())])
        known = store.base.tables.at(stored.ref).lookup(_ID, wanted, columns=[_ID])
        seen = store.tables.at(shown.ref).lookup(_ID, wanted, columns=[_ID])
        return bool(seen.num_rows == known.num_rows)

    def _shows_values(self, conflict: Conflict, states: Sequence[Manifest]) -> bool:
        """Whether the conflict has values of visible properties only."""
        store = self.session.store
        assert isinstance(store, RestrictedStore)
        named = {name for side in (conflict.base, conflict.ours, conflict.theirs) for name in side or ()}
        places = _names(states, conflict.type_key)
        numbers: list[dict[str, int]] = []
        masked: set[int] = set()
        is_limited = False
        for state, key in places:
            accepted, scope = store.stored_schema(state)
            properties = dict(accepted.identity(*TypeKey.parse(key)).properties)
            numbers.append(properties)
            masked |= {properties[name] for name in scope.masked(key) if name in properties}
            is_limited = is_limited or scope.rows_of(key) is not Rows.ALL
        hidden = {name for each in numbers for name, number in each.items() if number in masked}
        # The base may be the merge of several states. Its rows are not stored, so their visibility is not known.
        return not named & hidden and not (is_limited and len(states) < _STATES and conflict.base is not None)


def _names(states: Sequence[Manifest], key: str) -> list[tuple[Manifest, str]]:
    """The states that have a type, each with its key there: the type may have been renamed between them."""
    numbers = {state.tables[key].id.type_id for state in states if key in state.tables}
    return [(state, name) for state in states for name, pin in state.tables.items() if pin.id.type_id in numbers]


_STATES = 3
"""Number of states of a merge with a stored base."""


def visible_receipt(receipt: MergeReceipt) -> MergeReceipt:
    """A receipt without the numbers and values of changed entities."""
    commit = None if receipt.commit is None else visible_commit(receipt.commit)
    return replace(receipt, changes={}, edges_kept=0, left_out=(), previewed=(), schema_changes=None, commit=commit)
