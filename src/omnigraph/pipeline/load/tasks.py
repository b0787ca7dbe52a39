"""What one task of a load does: it reads a part of the input, checks each row, writes the rows, and says how it went.

The readers, the row builder and the rules for values are those of the load in process. What compares rows is left for
later: for that a task puts aside the columns that are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.embed import Embedder, Tally, default_embedder
from omnigraph.errors import EmbeddingError, InputError
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.catalog import EdgeType, NodeType
from omnigraph.pipeline.load.compared import compared
from omnigraph.pipeline.load.exchange import cut, plain
from omnigraph.pipeline.load.staging import Place
from omnigraph.storage.blobs import blob_columns
from omnigraph.storage.tables import TableRef
from omnigraph.write.checks import value_rules, wrong_values
from omnigraph.write.fingerprint import RowsDigest, TypeDigest
from omnigraph.write.identity import Ulids
from omnigraph.write.pieces import pieces
from omnigraph.write.problems import Problems
from omnigraph.write.rows import RawRows, RowBuilder
from omnigraph.write.spill import Spool
from omnigraph.write.splits import End, Split, Start
from omnigraph.write.validate import SHOWN, unique_groups

KEY_BATCH = 1 << 18
"""How many rows the columns that are compared have in one block."""


@dataclass(frozen=True, slots=True)
class Work:
    """What all tasks of a load share.

    Attributes:
        place: the graph.
        accepted: the schema in force.
        now: the time of the request, in milliseconds.
        seed: where the ids begin that are made for entities without one.
        bases: by type key, the version beside which rows are written; nothing is written without one.
        staged: types whose rows are put aside and not written, because some may replace others.
        embed: whether vectors that are left out are computed.
        embedder: with what; None is what the environment asks for, which the driver could not tell.
        budget: how many bytes of rows a task keeps in memory.
        parts: into how many parts to cut what is compared; with none, nothing is cut.
        digest: whether to take in what the input says, for a load that has an idempotency key.
        rows: whether to do anything else.
    """

    place: Place
    accepted: AcceptedSchema
    now: int
    seed: int
    bases: Mapping[str, TableRef]
    staged: frozenset[str]
    embed: bool
    embedder: Embedder | None
    budget: int
    parts: int = 0
    digest: bool = False
    rows: bool = True


@dataclass(frozen=True, slots=True)
class Wrong:
    """Rows of a part that break a rule for single values: the first of them, and how many there are."""

    first: pa.Table
    total: int


@dataclass(frozen=True, slots=True)
class PartRows:
    """The rows of one type in one part of the input.

    Attributes:
        rows: how many there are.
        size: how many bytes they take.
        named: whether some have an id that was given, or that their key gives.
        fragments: what was written of them.
        staged: where they were put aside.
        keys: where the columns are that have to be compared.
        cuts: where what is compared lies in parts, by its name.
        wrong: what breaks a rule, by the rule's number.
        references: whether some blob is the address of something elsewhere.
    """

    rows: int
    size: int
    named: bool
    fragments: tuple[str, ...] = ()
    staged: str | None = None
    keys: str | None = None
    cuts: Mapping[str, str] = field(default_factory=dict)
    wrong: Mapping[int, Wrong] = field(default_factory=dict)
    references: bool = False


@dataclass(frozen=True, slots=True)
class PartDone:
    """What became of one part of the input.

    Attributes:
        end: what it was.
        problems: how many records cannot become rows.
        refused: what the reader said when it could not go on.
        tables: its rows, by type key.
        digests: what it says, by type key.
        failed: why vectors could not be computed.
        models: what they were computed with, by type and property.
    """

    end: End
    problems: int
    refused: str | None = None
    tables: Mapping[str, PartRows] = field(default_factory=dict)
    digests: Mapping[str, TypeDigest] = field(default_factory=dict)
    failed: EmbeddingError | None = None
    models: Mapping[str, Mapping[str, tuple[str, str]]] = field(default_factory=dict)


class PartReader:
    """Builds the rows of a part of the input."""

    def __init__(self, work: Work, number: int) -> None:
        self.work = work
        self.problems = Problems()
        self.named: set[str] = set()
        self.counts: dict[str, int] = {}
        self.sizes: dict[str, int] = {}
        unheard = Problems() if work.rows else self.problems  # what builds the rows tells the same ones
        self.digest = RowsDigest(work.accepted, unheard) if work.digest else None
        self.tally = Tally()
        self._ulids = Ulids(work.seed, number)
        self._builders: dict[str, RowBuilder] = {}

    @cached_property
    def _embedder(self) -> Embedder:
        return self.work.embedder or default_embedder()

    def read(self, split: Split, start: Start, take: Callable[[str, pa.Table], None] | None = None) -> End:
        """Read a part, handing out what can become rows.

        Raises:
            InputError: it cannot be read on.
            EmbeddingError: vectors cannot be computed.
        """
        reading = split.read(self.work.accepted, self.problems, start)
        while True:
            try:
                raw = next(reading)
            except StopIteration as stop:
                end: End = stop.value
                return end
            for piece in pieces(raw):
                if self.digest is not None:
                    self.digest.take(piece)
                if not self.work.rows:
                    continue
                key, rows = self._build(piece)
                if take is not None and not self.problems:
                    take(key, rows)

    def _build(self, raw: RawRows) -> tuple[str, pa.Table]:
        key = f"{raw.kind.value}:{raw.name}"
        builder = self._builders.get(key)
        if builder is None:
            embedder = (lambda: self._embedder) if self.work.embed else None
            builder = RowBuilder(
                self.work.accepted,
                raw.kind,
                raw.name,
                self.work.now,
                self.problems,
                embedder,
                self._ulids.take,
                self.tally,
            )
            self._builders[key] = builder
        rows = builder.build(raw.columns, raw.origin, raw.absent)
        ids = raw.columns.get("id")
        if builder.key_order is not None or (ids is not None and ids.null_count < len(ids)):
            self.named.add(key)
        self.counts[key] = self.counts.get(key, 0) + rows.num_rows
        self.sizes[key] = self.sizes.get(key, 0) + rows.nbytes
        return key, rows


def run(work: Work, number: int, split: Split) -> PartDone:
    """Do what there is to do with one part."""
    reader, spool = PartReader(work, number), Spool(work.budget)
    try:
        end = reader.read(split, Start(), spool.add)
    except InputError as error:
        return PartDone(End(0, 0), 0, str(error))
    except EmbeddingError as error:
        return PartDone(End(0, 0), 0, failed=error)
    if reader.problems:
        return PartDone(end, reader.problems.total)
    tables = {}
    for key in spool.keys:
        rows = spool.take(key)
        tables[key] = _written(work, number, key, rows, named=key in reader.named, size=reader.sizes[key])
    digests = {} if reader.digest is None else reader.digest.types
    return PartDone(end, 0, None, tables, digests, models=reader.tally.models)


def _written(work: Work, number: int, key: str, rows: pa.Table, *, named: bool, size: int) -> PartRows:
    declared = declared_type(work.accepted, key)
    wrong = {}
    ends = ("src", "dst") if isinstance(declared, EdgeType) else ()
    for i, rule in enumerate(value_rules(declared)):
        found = wrong_values(rule, rows, ends)
        if found.num_rows:
            wrong[i] = Wrong(found.slice(0, SHOWN).combine_chunks(), found.num_rows)
    if any(_has_references(rows[name]) for name in blob_columns(rows)):
        return PartRows(rows.num_rows, size, named, wrong=wrong, references=True)
    if rows.num_rows == 0:
        return PartRows(0, 0, named)
    stem = f"{number:06d}-{key.replace(':', '-')}"
    keys = work.place.put(f"keys/{stem}", rows.select(compared_columns(declared)))
    cuts = {}
    if work.parts:
        for each in compared(work.accepted.catalog, declared, named=named):
            made = each.made(rows.select(each.columns))
            parts = cut(made, each.by, work.parts)
            cuts[each.name] = work.place.put_parts(f"cuts/{stem}-{each.name}", plain(made.schema), parts)
    fragments: tuple[str, ...] = ()
    staged = None
    if not wrong and key in work.bases:
        if key in work.staged and named:
            staged = work.place.put(f"rows/{stem}", rows)
        else:
            fragments = work.place.tables.write_fragments(work.bases[key], rows)
    return PartRows(rows.num_rows, size, named, fragments, staged, keys, cuts, wrong)


def _has_references(cells: pa.ChunkedArray) -> bool:
    uris = pc.struct_field(cells, "uri")
    return bool(uris.null_count < len(uris))


def declared_type(accepted: AcceptedSchema, key: str) -> NodeType | EdgeType:
    kind, _, name = key.partition(":")
    return accepted.catalog.nodes[name] if kind == TypeKind.NODE.value else accepted.catalog.edges[name]


def compared_columns(declared: NodeType | EdgeType) -> list[str]:
    """The columns of a type that constraints compare with those of other rows."""
    ends = ("src", "dst") if isinstance(declared, EdgeType) else ()
    fields = (name for group in unique_groups(declared) for name in group)
    return list(dict.fromkeys(["id", *ends, *fields]))


# Rows to compare, as tasks read them


ROW = "__row"
"""The number of a row among those of its type, in input order."""


@dataclass(frozen=True, slots=True)
class OwnRows:
    """Columns of the rows of one part that the load brings.

    Attributes:
        first: the number of the first row.
        dropped: the numbers of rows that do not count, within the part.
    """

    place: Place
    path: str
    columns: tuple[str, ...]
    first: int
    dropped: np.ndarray[tuple[int], np.dtype[np.int64]] | None = None
    numbered: bool = False

    def tables(self) -> Iterator[pa.Table]:
        rows = self.place.table(self.path, self.columns)
        if self.numbered:
            rows = rows.append_column(ROW, pa.array(np.arange(self.first, self.first + rows.num_rows)))
        if self.dropped is not None and len(self.dropped):
            kept = np.ones(rows.num_rows, bool)
            kept[self.dropped] = False
            rows = rows.filter(pa.array(kept))
        for start in range(0, rows.num_rows, KEY_BATCH):
            yield rows.slice(start, KEY_BATCH).combine_chunks()


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Columns of the rows of one part of a stored table."""

    place: Place
    ref: TableRef
    fragments: tuple[int, ...]
    columns: tuple[str, ...]

    def tables(self) -> Iterator[pa.Table]:
        for batch in self.place.tables.read_fragments(
            self.ref, self.fragments, columns=self.columns, batch_rows=KEY_BATCH
        ):
            yield pa.Table.from_batches([batch])


def numbered(columns: Sequence[str]) -> tuple[str, ...]:
    return (*columns, ROW)
