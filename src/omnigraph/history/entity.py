"""The changes of one entity (`log`), and the commit that set each of its values (`blame`)."""

from __future__ import annotations

import builtins
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any, TypeVar

from omnigraph.commit.manifest import Commit, Manifest, commit_json
from omnigraph.commit.store import Store
from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, NotFoundError, VersionReclaimedError, cut, shown
from omnigraph.history.chain import Chain, EntityHistory, Step
from omnigraph.history.rows import EntityRow
from omnigraph.lang.names import did_you_mean
from omnigraph.storage.blobs import BlobInfo

_ENDS = {"src": "from", "dst": "to"}
"""The names of the ends of an edge in results, by their stored columns."""

_SHOWN_RANGES = 3
"""Maximum number of ranges of removed commits in an error."""


class EntityOperation(StrEnum):
    """The kind of change of an entity."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """One change of an entity. Without a commit, one or more changes by removed commits, with their joint effect.

    Attributes:
        commit: the commit that made the change; None if it is unknown because cleanup has removed commits.
        operation: `insert`, `update` or `delete`.
        properties: the properties that changed.
        before: all values before the change; None for an insert. Renamed properties have their name after the change.
        after: all values after the change; None for a delete.
        after_commit: the last readable commit before the change; None for the first commit of the graph.
        until_commit: the first readable commit with the change.
        merged_by: the merge commit that brought the change to the branch; None if it was made on the branch itself.
    """

    commit: Commit | None
    operation: EntityOperation
    properties: tuple[str, ...]
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    after_commit: str | None
    until_commit: str
    merged_by: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The change as a JSON object."""
        return {
            "operation": self.operation.value,
            "commit": None if self.commit is None else commit_json(self.commit),
            "properties": list(self.properties),
            "before": None if self.before is None else values_json(self.before),
            "after": None if self.after is None else values_json(self.after),
            "after_commit_id": self.after_commit,
            "until_commit_id": self.until_commit,
            "merged_by": self.merged_by,
        }


@dataclass(frozen=True, slots=True)
class EntityLog:
    """The changes of one entity, newest first.

    Attributes:
        type_key: `node:<Type>` or `edge:<Type>`.
        entity_id: the entity.
        changes: its changes.
        kept_from: the oldest commit that could be read, if cleanup has removed older ones. Changes in it and before it
            are unknown.
        incomplete_merges: listed merges whose merged commits are not all readable. They may have more changes.
        incomplete_ranges: pairs of readable commits, the earlier one first, that both lack the entity. Removed commits
            between them may have inserted and deleted it.
    """

    type_key: str
    entity_id: str
    changes: tuple[LoggedChange, ...]
    kept_from: str | None
    incomplete_merges: tuple[str, ...] = ()
    incomplete_ranges: tuple[tuple[str, str], ...] = ()

    def __iter__(self) -> Iterator[LoggedChange]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)

    def to_json(self) -> dict[str, Any]:
        """The log as a JSON object."""
        return {
            "type_key": self.type_key,
            "id": self.entity_id,
            "changes": [change.to_json() for change in self.changes],
            "kept_from": self.kept_from,
            "incomplete_merges": list(self.incomplete_merges),
            "incomplete_ranges": [
                {"after_commit_id": after, "until_commit_id": until} for after, until in self.incomplete_ranges
            ],
        }


@dataclass(frozen=True, slots=True)
class BlamedValue:
    """A value of an entity, and the commit that set it.

    Attributes:
        property: the property.
        value: its value. A blob is represented by its metadata.
        commit: the commit that set the value; None if it is unknown because cleanup has removed commits.
        after_commit: the last readable commit with another value; None if there is none, or if the commit is unknown
            and a merge may have brought an older value.
        until_commit: the first readable commit with this value. If removed commits may have set the same value again,
            the first readable commit after them.
        merged_by: the merge commit that brought the value to the branch; None if it was set on the branch itself.
    """

    property: str
    value: Any
    commit: Commit | None
    after_commit: str | None
    until_commit: str
    merged_by: str | None = None

    @builtins.property
    def actor(self) -> str | None:
        """The actor who set the value, if it is recorded."""
        return None if self.commit is None else self.commit.actor

    def to_json(self) -> dict[str, Any]:
        """The value as a JSON object."""
        return {
            "property": self.property,
            "value": values_json({"": self.value})[""],
            "commit": None if self.commit is None else commit_json(self.commit),
            "after_commit_id": self.after_commit,
            "until_commit_id": self.until_commit,
            "merged_by": self.merged_by,
        }


def values_json(values: dict[str, Any]) -> dict[str, Any]:
    """The values, with each blob replaced by a JSON object with its metadata."""
    return {
        name: {"size": value.size, "uri": value.uri} if isinstance(value, BlobInfo) else value
        for name, value in values.items()
    }


def entity_log(store: Store, view: Manifest, key: str, entity_id: str, *, follow: bool = True) -> EntityLog:
    """The changes of an entity up to a state.

    Args:
        store: the graph.
        view: the state.
        key: the type key.
        entity_id: the entity.
        follow: if a merge changed the entity, also list the changes by commits of the merged branch.

    Raises:
        NotFoundError: the graph has no such type, or no readable commit changed or has the entity.
    """
    history = EntityHistory.of(store, view, key, entity_id)
    newest = history.newest()
    chain = history.chain(view.head)
    incomplete: list[str] = []
    changes = tuple(_changes(history, chain, incomplete) if follow else map(_change, _real(chain)))
    kept_from = None if chain.kept_from is None else chain.kept_from.id
    ranges = tuple((older.id, newer.id) for older, newer in chain.gaps)
    if not changes and newest is None:
        raise _never_existed(view.branch, key, entity_id, kept_from, ranges)
    changes = tuple(_with_ends(_by_member(change, key, entity_id), _ends(key)) for change in changes)
    return EntityLog(key, entity_id, changes, kept_from, tuple(incomplete), ranges)


def _never_existed(
    branch: str, key: str, entity_id: str, kept_from: str | None, ranges: Sequence[tuple[str, str]]
) -> NotFoundError:
    if not ranges:
        where = f" on branch '{branch}'"
        where += "" if kept_from is None else f" since commit {kept_from}; the states of earlier commits were removed"
        return NotFoundError(f"{key} has never had an entity '{cut(entity_id)}'{where}")
    removed = [f"after {after}, in or before {until}" for after, until in ranges]
    removed += [] if kept_from is None else [f"in or before {kept_from}"]
    more = f", and {len(removed) - _SHOWN_RANGES} more ranges" if len(removed) > _SHOWN_RANGES else ""
    return NotFoundError(
        f"no commit that is kept has an entity '{cut(entity_id)}' of {key} on branch '{branch}'",
        hint=f"removed commits may have inserted and deleted it: {'; '.join(removed[:_SHOWN_RANGES])}{more}",
    )


def _real(chain: Chain) -> Iterator[Step]:
    return (step for step in chain.steps() if step.is_change or step.may_have_more)


def _changes(
    history: EntityHistory,
    chain: Chain,
    incomplete: list[str],
    known: frozenset[str] = frozenset(),
    merged_by: str | None = None,
) -> Iterator[LoggedChange]:
    """The changes along a chain, each merge followed by the changes that it brought.

    Args:
        history: the entity.
        chain: the commits.
        incomplete: receives merges whose merged commits are not all readable.
        known: commits that are listed elsewhere: the ancestors of the first parents of the merges that led here.
        merged_by: the merge that led here.
    """
    for step in _real(chain):
        yield _change(step, merged_by)
        merge = step.commit
        if merge is None or merge.merged_parent is None:
            continue
        source = history.known.get(merge.merged_parent)
        if source is None:
            incomplete.append(merge.id)
            continue
        until = known | history.ancestors(merge.parent)
        merged = history.chain(source, until)
        yield from _changes(history, merged, incomplete, until, merge.id)
        if merged.may_miss_changes():
            incomplete.append(merge.id)


def _change(step: Step, merged_by: str | None = None) -> LoggedChange:
    if step.before is None:
        operation = EntityOperation.INSERT
    else:
        operation = EntityOperation.DELETE if step.after is None else EntityOperation.UPDATE
    return LoggedChange(
        step.commit,
        operation,
        step.properties,
        None if step.before is None else step.before.named_as(step.after or step.before),
        None if step.after is None else dict(step.after.values),
        None if step.older is None else step.older.id,
        step.newer.id,
        merged_by,
    )


def blame(
    store: Store,
    view: Manifest,
    key: str,
    entity_id: str,
    property: str | None = None,
    *,
    follow: bool = True,
    fixed: Collection[str] = ("id",),
) -> tuple[BlamedValue, ...]:
    """The commit that set each value of an entity.

    Args:
        store: the graph.
        view: the state.
        key: the type key.
        entity_id: the entity.
        property: only this property, or an end of an edge: `from` (or `src`) and `to` (or `dst`); by default all.
        follow: for a value that came with a merge, name the commit of the merged branch.
        fixed: the properties that no update can change.

    Raises:
        NotFoundError: there is no such type or entity.
        InputError: the type has no such property.
    """
    history = EntityHistory.of(store, view, key, entity_id)
    row = history.newest()
    if row is None:
        raise NotFoundError(
            f"there is no entity '{cut(entity_id)}' of {key}",
            hint="'log' shows when an entity was deleted, if the commits are kept",
        )
    if not isinstance(property, str | None):
        raise InputError(f"{shown(property)} is not the name of a property")
    ends = _ends(key)
    stored = property if property is None else {name: column for column, name in ends.items()}.get(property, property)
    if property is not None and stored not in row.values:
        hint = history.present_name(property) or did_you_mean(property, [ends.get(name, name) for name in row.values])
        raise InputError(f"{key} has no property '{cut(property)}'", hint=hint)
    wanted = list(row.values) if stored is None else [stored]
    never_updated = {row.identities.get(name, name) for name in fixed}
    found = _origins(history, history.chain(view.head), row, wanted, follow=follow, fixed=never_updated)
    values = [BlamedValue(ends.get(name, name), row.values[name], *found[name]) for name in wanted]
    return tuple(_by_member(value, key, entity_id) for value in values)


_Found = TypeVar("_Found", LoggedChange, BlamedValue)


def _by_member(found: _Found, key: str, entity_id: str) -> _Found:
    """A change or a value that a group made, with the commit as the member sees it that changed the entity."""
    return found if found.commit is None else replace(found, commit=found.commit.for_entity(key, entity_id))


def _ends(key: str) -> Mapping[str, str]:
    """The names of the ends of an edge, by their stored columns; nothing for a node."""
    return _ENDS if key.startswith("edge:") else {}


def _with_ends(change: LoggedChange, ends: Mapping[str, str]) -> LoggedChange:
    """A change of an edge, with the public names of its ends."""

    def named(values: dict[str, Any] | None) -> dict[str, Any] | None:
        return None if values is None else {ends.get(name, name): value for name, value in values.items()}

    names = tuple(ends.get(name, name) for name in change.properties)
    return replace(change, properties=names, before=named(change.before), after=named(change.after))


_Origin = tuple[Commit | None, str | None, str, str | None]
"""The commit that set a value, the last commit without it, the first commit with it, and the merge that brought it."""


def _origins(
    history: EntityHistory,
    chain: Chain,
    row: EntityRow,
    wanted: Sequence[str],
    *,
    follow: bool,
    fixed: Collection[str] = (),
    merged_by: str | None = None,
) -> dict[str, _Origin]:
    """The origin of each wanted value. Properties are matched by their stable ids, also after a rename.

    Removed commits between two readable states with the same value may have changed the value and changed it back.
    Then the search continues at the older state, but the commit is unknown.

    Args:
        history: the entity.
        chain: the commits.
        row: the entity in the newest state of the chain.
        wanted: the properties.
        follow: for a value that came with a merge, name the commit of the merged branch.
        fixed: the stable ids of properties that no update can change.
        merged_by: the merge that led here.
    """
    identities = {row.identities.get(name, name): name for name in wanted}
    until: dict[str, str] = {}  # for values that removed commits may have set: the first state after these commits
    found: dict[str, _Origin] = {}
    for step in chain.steps():
        if step.after is None:
            break
        names = step.after.by_identity()
        changed = {step.after.identities.get(name, name) for name in step.new}
        if step.before is None:
            changed = set(identities)
        settled = [identity for identity in identities if identity in changed]
        # A merge can bring a value that is older than the last state with another value.
        older = step.older if step.commit is not None or step.is_linear else None
        origin = (step.commit, None if older is None else older.id, step.newer.id, merged_by)
        taken = _from_source(history, step, [names[i] for i in settled if i in names], fixed) if follow else {}
        for identity in settled:
            name = identities.pop(identity)
            origin_here = taken.get(names.get(identity, ""), origin)
            found[name] = _at_most(origin_here, until.get(name), merged_by)
        if step.may_have_more:
            for identity, name in list(identities.items()):
                if identity in fixed and step.is_linear and not step.may_be_replaced:
                    continue
                until.setdefault(name, step.newer.id)
                if not step.is_linear:
                    found[name] = (None, None, until[name], merged_by)
                    del identities[identity]
        if not identities:
            break
    oldest = chain.kept_from or chain.commits[-1]
    for name in identities.values():
        found[name] = (None, None, until.get(name, oldest.id), merged_by)
    return found


def _at_most(origin: _Origin, until: str | None, merged_by: str | None) -> _Origin:
    """An origin, or the range from it to a later state, if removed commits before that state may have set the value."""
    if until is None:
        return origin
    _, after, _, merge = origin
    return (None, after if merge == merged_by else None, until, merged_by)


def _from_source(
    history: EntityHistory, step: Step, names: Sequence[str], fixed: Collection[str]
) -> dict[str, _Origin]:
    """The origins of values that a merge took from the merged branch; unknown if the branch is not readable."""
    commit = step.commit
    if commit is None or commit.merged_parent is None or step.after is None:
        return {}
    source = history.known.get(commit.merged_parent)
    try:
        if source is None or not history.is_kept(source):
            raise VersionReclaimedError(f"the states of commit {commit.merged_parent} were removed")
        row = history.row(source)
    except VersionReclaimedError:
        return dict.fromkeys(names, (None, None, step.newer.id, commit.id))
    if row is None:
        return {}
    there = row.by_identity()
    same: dict[str, str] = {}
    for name in names:
        identity = step.after.identities.get(name, name)
        if identity in there and step.after.same(name, row, there[identity]):
            same[there[identity]] = name
    if not same:
        return {}
    found = _origins(history, history.chain(source), row, list(same), follow=True, fixed=fixed, merged_by=commit.id)
    return {same[name]: origin for name, origin in found.items()}
