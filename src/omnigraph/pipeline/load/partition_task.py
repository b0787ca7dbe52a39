"""What one task of a load does: it reads a part of the input, checks each row, writes the rows, and says how it went.

The readers, the row builder and the rules for values are those of the load in process. What compares rows is left for
later: for that a task puts aside the columns that are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.embed import Embedder, Tally, default_embedder
from omnigraph.errors import EmbeddingError, InputError
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.catalog import EdgeType, NodeType
from omnigraph.lang.schema.type_key import TypeKey, type_key
from omnigraph.pipeline.load.compare_columns import Compared, compared
from omnigraph.pipeline.spark.shuffle import cut, plain
from omnigraph.pipeline.spark.staging import Place
from omnigraph.storage.blobs import blob_columns
from omnigraph.storage.staging import write_fragments
from omnigraph.storage.table_ref import TableRef
from omnigraph.write.external_blobs import URI_CELLS
from omnigraph.write.input.lenient import Aliases, Spellings
from omnigraph.write.input.splits import End, Split, Start
from omnigraph.write.request_digest import RowsDigest, TypeDigest
from omnigraph.write.rows.builder import RowBuilder
from omnigraph.write.rows.chunking import chunks_of
from omnigraph.write.rows.identity import Ulids
from omnigraph.write.rows.problems import Coercion, Coercions, Problems
from omnigraph.write.rows.raw_rows import RawRows
from omnigraph.write.rules.constraints import value_rules, wrong_values
from omnigraph.write.rules.duplicate_keys import ROW
from omnigraph.write.rules.validator import SHOWN, unique_groups
from omnigraph.write.spill import Spool

KEY_BATCH = 1 << 18
"""How many rows the columns that are compared have in one block."""

CUT_ROWS = 1 << 21
"""How many rows are cut at once: what is compared of them is in memory for that."""


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
        lenient: whether to read as much as can be read, and count what was changed for that.
        aliases: where other spellings of ids were put aside, by node type; for edges of a lenient load.
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
    lenient: bool = False
    aliases: Mapping[str, str] = field(default_factory=dict)

    def problems(self) -> Problems:
        """Collects what is wrong, and counts what is changed if the load is lenient."""
        made = Problems()
        made.coerced = Coercions() if self.lenient else None
        return made


@dataclass(frozen=True, slots=True)
class Wrong:
    """Rows of a part that break a rule for single values: the first of them, and how many there are."""

    first: pa.Table
    total: int


@dataclass(frozen=True, slots=True)
class PartReferences:
    """Blobs of a property in one part of the input that are addresses of something elsewhere.

    Attributes:
        rows: the ids, the numbers of the rows, and the addresses; not all of them if there are more than there may be.
        total: how many there are.
    """

    rows: pa.Table
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
        aside: where rows were put aside of which some blob is the address of something elsewhere.
        references: these addresses, by property.
    """

    rows: int
    size: int
    named: bool
    fragments: tuple[str, ...] = ()
    staged: str | None = None
    keys: str | None = None
    cuts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    wrong: Mapping[int, Wrong] = field(default_factory=dict)
    aside: str | None = None
    references: Mapping[str, PartReferences] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartAliases:
    """What the lenient reader found about the ids of a node type that has a key.

    Attributes:
        ids: where the ids were put aside.
        pairs: where other spellings of some were, if there are any.
    """

    ids: str
    pairs: str | None = None


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
        coerced: what the lenient reader changed.
        aliases: what it found about ids.
    """

    end: End
    problems: int
    refused: str | None = None
    tables: Mapping[str, PartRows] = field(default_factory=dict)
    digests: Mapping[str, TypeDigest] = field(default_factory=dict)
    failed: EmbeddingError | None = None
    models: Mapping[str, Mapping[str, tuple[str, str]]] = field(default_factory=dict)
    coerced: tuple[Coercion, ...] = ()
    aliases: Mapping[str, PartAliases] = field(default_factory=dict)


class PartReader:
    """Builds the rows of a part of the input."""

    def __init__(self, work: Work, number: int) -> None:
        self.work = work
        self.problems = work.problems()
        self.aliases = Aliases(work.accepted, self.problems)
        self.named: set[str] = set()
        self.counts: dict[str, int] = {}
        self.sizes: dict[str, int] = {}
        unheard = work.problems() if work.rows else self.problems  # what builds the rows tells the same ones
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
            for piece in chunks_of(self._settled(raw) if self.work.lenient else raw):
                if self.digest is not None:
                    self.digest.take(piece)
                if not self.work.rows:
                    continue
                key, rows = self._build(piece)
                if take is not None and not self.problems:
                    take(key, rows)

    def _settled(self, raw: RawRows) -> RawRows:
        """Rows with the ids that they are stored under."""
        if raw.kind is TypeKind.NODE:
            return self.aliases.node(raw)
        return self.aliases.edge(raw, self._known) if self._known else raw

    @cached_property
    def _known(self) -> Spellings:
        tables = {name: self.work.place.table(path) for name, path in self.work.aliases.items()}
        return {name: (_column(rows, "old"), _column(rows, "new")) for name, rows in tables.items()}

    def aliases_aside(self, number: int) -> dict[str, PartAliases]:
        """What was found about ids, put aside."""
        place, pairs = self.work.place, self.aliases.pairs()
        out = {}
        for name in self.aliases.keyed if self.work.lenient else ():
            ids = place.put(f"aliases/{number:06d}-{name}-ids", pa.table({"id": self.aliases.ids(name)}))
            found = place.put(f"aliases/{number:06d}-{name}", pairs[name]) if name in pairs else None
            out[name] = PartAliases(ids, found)
        return out

    def _build(self, raw: RawRows) -> tuple[str, pa.Table]:
        key = type_key(raw.kind, raw.name)
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


def _column(rows: pa.Table, name: str) -> pa.Array:
    column = rows[name].combine_chunks()
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def run(work: Work, number: int, split: Split, start: Start = Start()) -> PartDone:  # noqa: B008
    """Do what there is to do with one part, which begins there as far as is known."""
    reader, spool = PartReader(work, number), Spool(work.budget)
    try:
        end = reader.read(split, start, spool.add)
    except InputError as error:
        return PartDone(End(0, 0), 0, str(error))
    except EmbeddingError as error:
        return PartDone(End(0, 0), 0, failed=error)
    coerced = () if reader.problems.coerced is None else reader.problems.coerced.all()
    aliases = reader.aliases_aside(number)
    if reader.problems:
        return PartDone(end, reader.problems.total, coerced=coerced, aliases=aliases)
    tables = {}
    for key in spool.keys:
        rows = spool.take(key)
        tables[key] = _written(work, number, key, rows, named=key in reader.named, size=reader.sizes[key])
    digests = {} if reader.digest is None else reader.digest.types
    return PartDone(end, 0, None, tables, digests, models=reader.tally.models, coerced=coerced, aliases=aliases)


def _written(work: Work, number: int, key: str, rows: pa.Table, *, named: bool, size: int) -> PartRows:
    declared = declared_type(work.accepted, key)
    wrong = {}
    ends = ("src", "dst") if isinstance(declared, EdgeType) else ()
    for i, rule in enumerate(value_rules(declared)):
        found = wrong_values(rule, rows, ends)
        if found.num_rows:
            wrong[i] = Wrong(found.slice(0, SHOWN).combine_chunks(), found.num_rows)
    if rows.num_rows == 0:
        return PartRows(0, 0, named)
    stem = f"{number:06d}-{key.replace(':', '-')}"
    keys = work.place.put(f"keys/{stem}", rows.select(compared_columns(declared)))
    cuts = {}
    if work.parts:
        for each in compared(work.accepted.catalog, declared, named=named):
            cuts[each.name] = tuple(_cut_aside(work, stem, each, rows))
    made = PartRows(rows.num_rows, size, named, keys=keys, cuts=cuts, wrong=wrong)
    if wrong:
        return made
    references = {name: _references(rows, name) for name in blob_columns(rows)}
    if any(each.total for each in references.values()):
        return replace(made, aside=work.place.put(f"aside/{stem}", rows), references=references)
    return stored_part(work, stem, key, rows, made)


def stored_part(work: Work, stem: str, key: str, rows: pa.Table, part: PartRows) -> PartRows:
    """Write the rows of a part, or put them aside where some may replace others."""
    if key not in work.bases:
        return part
    if key in work.staged and part.named:
        return replace(part, staged=work.place.put(f"rows/{stem}", rows))
    return replace(part, fragments=write_fragments(work.place.tables.at(work.bases[key]), rows))


def _cut_aside(work: Work, stem: str, what: Compared, rows: pa.Table) -> Iterator[str]:
    """Put aside what is compared, in parts. Of a part of the input that cannot be cut there may be several files."""
    for start in range(0, rows.num_rows, CUT_ROWS):
        made = what.made(rows.select(what.columns).slice(start, CUT_ROWS))
        parts = cut(made, what.by, work.parts)
        yield work.place.put_parts(f"cuts/{stem}-{what.name}", plain(made.schema), parts)


def _references(rows: pa.Table, name: str) -> PartReferences:
    uris = pc.struct_field(rows[name], "uri")
    places = np.flatnonzero(uris.is_valid().to_numpy())
    chosen = pa.array(places[: URI_CELLS + 1])
    found = pa.table({"id": rows["id"].take(chosen), ROW: chosen, "uri": uris.take(chosen)})
    return PartReferences(found, len(places))


def declared_type(accepted: AcceptedSchema, key: str) -> NodeType | EdgeType:
    kind, name = TypeKey.parse(key)
    return accepted.catalog.nodes[name] if kind == TypeKind.NODE.value else accepted.catalog.edges[name]


def compared_columns(declared: NodeType | EdgeType) -> list[str]:
    """The columns of a type that constraints compare with those of other rows."""
    ends = ("src", "dst") if isinstance(declared, EdgeType) else ()
    fields = (name for group in unique_groups(declared) for name in group)
    return list(dict.fromkeys(["id", *ends, *fields]))


# Rows to compare, as tasks read them


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
        for batch in self.place.tables.at(self.ref).read_fragments(
            self.fragments, columns=self.columns, batch_rows=KEY_BATCH
        ):
            yield pa.Table.from_batches([batch])


def numbered(columns: Sequence[str]) -> tuple[str, ...]:
    return (*columns, ROW)
