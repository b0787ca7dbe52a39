"""Lineage: the ancestors of a head, and the best common ancestors of two heads.

The manifest of a branch holds every ancestor of its head: its own commits, and merged commits as rows of kind
`ancestor`. The generation of a commit is 1 more than the highest generation of its parents. A search in descending
order of generation therefore visits all descendants of a commit before the commit itself, and can stop early.
"""

# See docs/decisions/0141-lineage-travels-with-a-merge.md

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from heapq import heappop, heappush

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from omnigraph.commit.manifest import MAIN, Commit, Manifest
from omnigraph.commit.manifest_rows import RowKind, ancestor_rows, commit_rows, read_commit, read_commits
from omnigraph.commit.store import Store
from omnigraph.dataclass import dataclass
from omnigraph.errors import BranchNotFoundError, CorruptionError, DamagedFileError
from omnigraph.storage.ledger import UNDECODABLE

LINEAGE = pa.schema(
    [
        ("id", pa.utf8()),
        ("parent", pa.utf8()),
        ("merged_parent", pa.utf8()),
        ("generation", pa.int64()),
        ("branch", pa.utf8()),
        ("ledger", pa.utf8()),
        ("version", pa.uint64()),
        ("created_at", pa.int64()),
        ("is_ancestor", pa.bool_()),
    ]
)
"""One row per commit: its parents, its generation, its branch, the manifest version of its state, and its time.

The generation is null for commits of older releases. `ledger` is the Lance branch that holds the manifest version; null
for `main`. `is_ancestor` is true for commits that a merge added to the branch.
"""

_READ = ["object_id", "object_type", "metadata", "table_version", "table_branch"]
_SAID = pa.schema([LINEAGE.field(name) for name in ("parent", "merged_parent", "generation", "ledger", "created_at")])
_KINDS = pa.array([RowKind.GRAPH_COMMIT.value, RowKind.ANCESTOR.value])
_SOURCE, _TARGET, _COMMON, _OLDER = 1, 2, 3, 4


def lineage_of(view: Manifest) -> pa.Table:
    """All ancestors of the head of a manifest, including the head, as distinct rows of `LINEAGE`."""
    rows = view.ledger.read(columns=_READ, filter=pc.field("object_type").isin(_KINDS))
    return view.ledger.decoded(rows, _lineage)


def _lineage(rows: pa.Table) -> pa.Table:
    rows = rows.filter(pc.is_in(rows["object_type"], value_set=_KINDS))
    metadata = _decoded_lineage(rows["metadata"])
    if len(metadata) != len(rows):
        raise CorruptionError("the metadata of a commit contains a line break")
    # A commit of format 1 does not record its Lance branch, which has the name of the graph branch.
    ledger = pc.coalesce(metadata["ledger"], rows["table_branch"])
    return pa.table(
        [
            rows["object_id"],
            metadata["parent"],
            metadata["merged_parent"],
            metadata["generation"],
            pc.fill_null(rows["table_branch"], MAIN),
            ledger,
            rows["table_version"],
            metadata["created_at"],
            pc.equal(rows["object_type"], RowKind.ANCESTOR.value),
        ],
        schema=LINEAGE,
    )


def _decoded_lineage(texts: pa.ChunkedArray) -> pa.Table:
    """Decode the parents, generation, Lance branch and time of commits from the JSON metadata of their rows."""
    if len(texts) == 0:
        return _SAID.empty_table()
    lines = pc.binary_join(pa.array([texts.to_pylist()], pa.list_(pa.utf8())), "\n")[0].as_buffer()
    longest = pc.max(pc.binary_length(texts)).as_py()
    return pa_json.read_json(
        pa.BufferReader(lines),
        read_options=pa_json.ReadOptions(block_size=max(1 << 20, 2 * longest)),
        parse_options=pa_json.ParseOptions(explicit_schema=_SAID, unexpected_field_behavior="ignore"),
    )


@dataclass(frozen=True, slots=True)
class CommonAncestors:
    """The best common ancestors of two heads, and the commits that only the source has.

    Attributes:
        best: common ancestors that are not ancestors of another common ancestor, by id.
        source_only: ancestors of the source that are not ancestors of the target.
        is_certain: whether all commits between the best ancestors and both heads were found. If not, a common ancestor
            may be missing in `best`.
    """

    best: tuple[str, ...]
    source_only: frozenset[str]
    is_certain: bool = True


class History:
    """The lineage of two heads. Reads only as many rows as needed.

    Args:
        store: the graph.
        source: the manifest with the first head.
        target: the manifest with the second head.
    """

    def __init__(self, store: Store, source: Manifest, target: Manifest) -> None:
        self._store = store
        self.source = source
        self.target = target
        self._rows = _Rows(source, target)
        self._full: _FullHistory | None = None

    def common(self) -> CommonAncestors:
        """The common ancestors of the source and the target."""
        return self.common_of([self.source.head.id], [self.target.head.id])

    def common_of(self, source: Sequence[str], target: Sequence[str]) -> CommonAncestors:
        """The common ancestors of two groups of commits. Each group is treated as the parents of one merge commit."""
        if self._full is None:
            try:
                return _search(self._rows, source, target)
            except _UnnumberedError:
                # Commits of an older release have no generations, so the search needs all commits.
                self._full = _FullHistory(self._store, self.source, self.target)
        return self._full.common(source, target)

    def commit(self, name: str) -> Commit:
        """Find an ancestor of one of the heads."""
        found = self._rows.commit(name) if self._full is None else self._full.commit(name)
        if found is None:
            raise CorruptionError(f"commit {name} is missing", hint="another program changed the history")
        return found

    def missing_in_target(self, common: CommonAncestors) -> pa.Table:
        """The rows that a merge of the source publishes on the target: the commits that the target lacks."""
        if self._full is not None:
            return self._full.lacking(self.target)
        return ancestor_rows(self._rows.of(common.source_only))


class _UnnumberedError(Exception):
    """A commit has no generation, or one of its parents is unknown."""


def _search(rows: _Rows, source: Sequence[str], target: Sequence[str]) -> CommonAncestors:
    """Search from both heads in descending order of generation, until only ancestors of common ancestors are left.

    Raises:
        _UnnumberedError: a generation is unknown.
    """
    marks: dict[str, int] = {}
    queue: list[tuple[int, str]] = []
    known, decoded = rows.known, rows.decoded
    waiting = 0  # number of queued commits that are not ancestors of a common ancestor
    for heads, mark in ((source, _SOURCE), (target, _TARGET)):
        for name in heads:
            if name not in marks:
                heappush(queue, (-decoded(name, mark)[1], name))
                waiting += 1
            marks[name] = marks.get(name, 0) | mark
    best: list[str] = []
    only: list[str] = []
    while waiting:
        name = heappop(queue)[1]
        # Follow a chain of single parents without the queue, while its generations are the highest.
        while True:
            mark = marks[name]
            if mark < _OLDER:
                waiting -= 1
                if mark == _COMMON:
                    best.append(name)
                    mark |= _OLDER
                    if not waiting:
                        break  # all queued commits are ancestors of the commits in `best`
                elif mark == _SOURCE:
                    only.append(name)
            parents = known[name][0]
            if len(parents) == 1 and mark < _OLDER and parents[0] not in marks:
                name = parents[0]
                generation = decoded(name, mark)[1]
                marks[name] = mark
                waiting += 1
                if not queue or generation > -queue[0][0]:
                    continue
                heappush(queue, (-generation, name))
                break
            for parent in parents:
                before = marks.get(parent)
                if before is None:
                    heappush(queue, (-decoded(parent, mark)[1], parent))
                    marks[parent] = mark
                    waiting += mark < _OLDER
                elif before | mark != before:
                    marks[parent] = before | mark
                    waiting -= before < _OLDER <= mark
            break
    return CommonAncestors(tuple(sorted(best)), frozenset(only))


class _Rows:
    """Commit rows of two manifests, newest first. Decodes rows when they are needed."""

    def __init__(self, source: Manifest, target: Manifest) -> None:
        self._views = {_SOURCE: source, _TARGET: target}
        self._left = {mark: list(range(len(view.ledger.parts) - 1)) for mark, view in self._views.items()}
        self._read: set[str] = set()
        self._tables: list[pa.Table] = []
        self._texts: dict[str, str] = {}
        self.known: dict[str, tuple[tuple[str, ...], int]] = {}
        for view in self._views.values():
            self._add(commit_rows([*view.recent, view.head]))
            self._add(view.ancestors)

    def commit(self, name: str) -> Commit | None:
        if not self._has(name, _COMMON):
            return None
        try:
            return read_commit(self.of([name]).to_pylist()[0])
        except UNDECODABLE as error:
            raise self._damaged(name, error) from error

    def of(self, names: Collection[str]) -> pa.Table:
        """The rows of the given commits, from the rows that were read so far."""
        wanted = pa.array(names, pa.utf8())
        # A branch without own commits stores its head twice: in the row of the head, and in its history.
        return _once(pa.concat_tables([_chosen(table.select(_READ), wanted) for table in self._tables]))

    def decoded(self, name: str, mark: int) -> tuple[tuple[str, ...], int]:
        """Parents and generation of an ancestor of the source, the target or both, as `mark` says.

        Raises:
            _UnnumberedError: its generation is unknown, or the commit is missing.
        """
        found = self.known.get(name)
        if found is None:
            if name not in self._texts and not self._has(name, mark):
                raise _UnnumberedError
            try:
                metadata = orjson.loads(self._texts[name])
                generation = metadata.get("generation")
                parent, merged = metadata.get("parent"), metadata.get("merged_parent")
                if type(generation) is not int and generation is not None:
                    raise TypeError("its generation is not a number")
                if (type(parent) is not str and parent is not None) or (type(merged) is not str and merged is not None):
                    raise TypeError("its parents are not commit ids")
            except UNDECODABLE as error:
                raise self._damaged(name, error) from error
            if generation is None:
                raise _UnnumberedError
            parents = () if parent is None else (parent,) if merged is None else (parent, merged)
            found = self.known[name] = parents, generation
        return found

    def _damaged(self, name: str, error: Exception) -> DamagedFileError | CorruptionError:
        """The error for a commit row that cannot be decoded."""
        for view in self._views.values():
            found = view.ledger.damaged_row("object_id", name, error)
            if found is not None:
                return found
        return CorruptionError(f"commit {name} cannot be read: {error}", hint="another program changed the history")

    def _has(self, name: str, mark: int) -> bool:
        """Whether a manifest has a commit. `mark` says which: the source, the target or both. Reads rows as needed."""
        sides = [side for side in (_SOURCE, _TARGET) if mark & side]
        while name not in self._texts and any(self._left[side] for side in sides):
            for side in sides:
                self._read_more(side)
        return name in self._texts

    def _read_more(self, side: int) -> None:
        """Read the newest unread rows, about as many as were read before."""
        ledger, left = self._views[side].ledger, self._left[side]
        names = ledger.part_names
        wanted, chosen = max(1, len(self._texts)), []
        while left and wanted > 0:
            index = left.pop()
            if names[index] not in self._read:
                self._read.add(names[index])
                chosen.append(index)
                wanted -= ledger.parts[index]
        if chosen:
            self._add(ledger.read_parts(chosen, _READ))

    def _add(self, rows: pa.Table) -> None:
        self._tables.append(rows)
        self._texts.update(zip(rows["object_id"].to_pylist(), rows["metadata"].to_pylist(), strict=True))


class _FullHistory:
    """All ancestors of two heads, in a graph of an older release. Searches all branches for missing ancestors."""

    def __init__(self, store: Store, source: Manifest, target: Manifest) -> None:
        self._views = [source, target]
        self._parents: dict[str, tuple[str, ...]] = {}
        self._add(source)
        self._add(target)
        for branch in store.branch_names() if self._lacks() else ():
            if not self._lacks():
                break
            if branch not in (source.branch, target.branch):
                with suppress(BranchNotFoundError):  # deleted during the listing
                    view = store.capture(branch)
                    self._add(view)
                    self._views.append(view)

    def _lacks(self) -> bool:
        """Whether a commit names a parent that was not found in the manifests read so far."""
        return any(parent not in self._parents for parents in self._parents.values() for parent in parents)

    def _add(self, view: Manifest) -> None:
        rows = lineage_of(view)
        columns = [rows[name].to_pylist() for name in ("id", "parent", "merged_parent")]
        for name, *parents in zip(*columns, strict=True):
            self._parents[name] = tuple(parent for parent in parents if parent is not None)

    def common(self, source: Iterable[str], target: Iterable[str]) -> CommonAncestors:
        left, right = self._closure(source), self._closure(target)
        both = left & right
        older = self._closure(parent for name in both for parent in self._parents.get(name, ()))
        apart = left ^ right
        certain = all(name in self._parents for name in apart)
        return CommonAncestors(tuple(sorted(both - older)), frozenset(left - right), certain)

    def _closure(self, heads: Iterable[str]) -> set[str]:
        """The ids of the given commits and all their ancestors, including commits whose rows are missing."""
        found: set[str] = set()
        left = list(heads)
        while left:
            name = left.pop()
            if name not in found:
                found.add(name)
                left += self._parents.get(name, ())
        return found

    def generation(self, name: str) -> int:
        """Compute the generation of a commit from the generations of its ancestors that were found."""
        found: dict[str, int] = {}
        left = [name]
        while left:
            parents = self._parents.get(left[-1], ())
            later = [parent for parent in parents if parent not in found]
            if later:
                left += later
            else:
                found[left.pop()] = 1 + max((found[parent] for parent in parents), default=0)
        return found[name]

    def commit(self, name: str) -> Commit | None:
        for view in self._views:
            for commit in view.ledger.decoded(_rows_of(view, [name]), read_commits):
                return commit
        return None

    def lacking(self, target: Manifest) -> pa.Table:
        wanted = self._closure(view.head.id for view in self._views[:2])
        wanted -= set(lineage_of(target)["id"].to_pylist())
        found = []
        for view in self._views:
            rows = _rows_of(view, wanted)
            wanted -= set(rows["object_id"].to_pylist())
            found.append(rows)
        return ancestor_rows(pa.concat_tables(found))


def _rows_of(view: Manifest, names: Collection[str]) -> pa.Table:
    """The rows of some commits in a manifest."""
    rows = view.ledger.read(columns=_READ, filter=pc.field("object_type").isin(_KINDS))
    return _chosen(rows, pa.array(names, pa.utf8()))


def _chosen(rows: pa.Table, names: pa.Array) -> pa.Table:
    return rows.filter(pc.is_in(rows["object_id"], value_set=names))


def _once(rows: pa.Table) -> pa.Table:
    """Keep only the first row of each commit id."""
    codes = rows["object_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    return rows.take(pa.array(np.sort(np.unique(codes, return_index=True)[1])))


def generation_of(store: Store, view: Manifest) -> int:
    """Generation of the head of a manifest. It is computed if the commit of an older release does not store it."""
    if view.head.generation is not None:
        return view.head.generation
    return _FullHistory(store, view, view).generation(view.head.id)
