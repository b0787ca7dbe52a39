"""The task of a load: reads a part of the input, checks each row, writes the rows, and returns a summary.

The task uses the readers, the row builder and the value rules of the local load. Constraints that compare rows are
checked later; for these checks, the task stages the compared columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.embed import Embedder, Tally, default_embedder
from omnigraph.errors import EmbeddingError, InputError
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.catalog import EdgeType, NodeType
from omnigraph.lang.schema.type_key import TypeKey, type_key
from omnigraph.pipeline.load.compare_columns import CompareKey, compare_keys
from omnigraph.pipeline.spark.shuffle import block_schema, hash_partition
from omnigraph.pipeline.spark.staging import Staging
from omnigraph.storage.blobs import blob_columns
from omnigraph.storage.staging import write_fragments
from omnigraph.storage.table_ref import TableRef
from omnigraph.write.external_blobs import URI_CELLS
from omnigraph.write.input.lenient import Aliases, AliasPairs
from omnigraph.write.input.splits import End, Split, Start
from omnigraph.write.request_digest import RowsDigest, TypeDigest
from omnigraph.write.rows.builder import RowBuilder
from omnigraph.write.rows.chunking import chunks_of
from omnigraph.write.rows.identity import Ulids
from omnigraph.write.rows.problems import Coercion, Coercions, Problems
from omnigraph.write.rows.raw_rows import RawRows
from omnigraph.write.rules.constraints import ROW, unique_groups, value_rules, wrong_values
from omnigraph.write.rules.duplicate_keys import RowNumbers
from omnigraph.write.rules.violations import SHOWN
from omnigraph.write.spill import Spool

KEY_BATCH = 1 << 18
"""Rows per batch of the compared columns."""

HASH_ROWS = 1 << 21
"""Rows that are hash-partitioned at once. Their compared columns have to fit into memory."""

_REFERENCES = pa.schema([("id", pa.utf8()), (ROW, pa.int64()), ("uri", pa.utf8())])


@dataclass(frozen=True, slots=True)
class Work:
    """The settings that all tasks of a load share.

    Attributes:
        staging: the staging directory.
        accepted: the accepted schema.
        now: the time of the request, in milliseconds.
        seed: the seed of the generated ids.
        bases: by type key, the table version to which fragments are added. Rows of other types are only checked.
        staged: types whose rows are staged and not yet written as fragments, because some may replace stored rows.
        embed: whether to compute missing vectors.
        embedder: computes vectors; if None, the environment of the task configures it.
        budget: the bytes of rows that a task keeps in memory.
        partitions: the number of hash partitions of the compared columns; 0 if they are not partitioned.
        digest: whether to compute a digest of the input, for a load with an idempotency key.
        rows: whether to build rows; if not, only the digest is computed.
        lenient: whether to correct malformed values, and count the corrections.
        aliases: by node type, the staged file with aliases of ids, which are replaced in the ends of edges (see
            `load.aliases`).
    """

    staging: Staging
    accepted: AcceptedSchema
    now: int
    seed: int
    bases: Mapping[str, TableRef]
    staged: frozenset[str]
    embed: bool
    embedder: Embedder | None
    budget: int
    partitions: int = 0
    digest: bool = False
    rows: bool = True
    lenient: bool = False
    aliases: Mapping[str, str] = field(default_factory=dict)

    def problems(self) -> Problems:
        """A collector of problems. In a lenient load, it also counts corrections."""
        problems = Problems()
        problems.coerced = Coercions() if self.lenient else None
        return problems


@dataclass(frozen=True, slots=True)
class Wrong:
    """Rows of a part that break a constraint on single rows, such as `@range`: the first rows, and the total number."""

    first: pa.Table
    total: int


@dataclass(frozen=True, slots=True)
class PartReferences:
    """External references in a blob property of one part.

    Attributes:
        rows: the ids, row numbers and URIs. Incomplete if there are more references than a load may have.
        total: the number of references.
    """

    rows: pa.Table
    total: int


@dataclass(frozen=True, slots=True)
class PartRows:
    """The rows of one type in one part of the input.

    Attributes:
        rows: the number of rows.
        size: the bytes of the rows.
        named: whether some ids are in the input, or derived from a key.
        fragments: the written fragments.
        staged: the staged file with the rows.
        keys: the staged file with the compared columns.
        partitions: the staged files of the hash partitions, by the name of the `CompareKey`.
        wrong: the rows that break a constraint on single rows, by the position of the constraint in `value_rules`.
        unfetched: the staged file of rows with external blobs that are not fetched yet.
        references: the external references of these rows, by property.
    """

    rows: int
    size: int
    named: bool
    fragments: tuple[str, ...] = ()
    staged: str | None = None
    keys: str | None = None
    partitions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    wrong: Mapping[int, Wrong] = field(default_factory=dict)
    unfetched: str | None = None
    references: Mapping[str, PartReferences] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartAliases:
    """The ids of a node type with a key, as the lenient reader found them.

    Attributes:
        ids: the staged file of the ids.
        pairs: the staged file of the aliases, if there are any.
    """

    ids: str
    pairs: str | None = None


@dataclass(frozen=True, slots=True)
class PartResult:
    """The result of one part of the input.

    Attributes:
        end: the number of lines and records.
        problems: the number of records that cannot become rows.
        kinds: their number by kind.
        refused: the error of the reader, if it could not continue.
        tables: the rows, by type key.
        digests: the digests of the input, by type key.
        failed: the error, if vectors could not be computed.
        models: the embedding models that computed vectors, by type and property.
        coerced: the changes that the lenient reader made to wrong values.
        aliases: the ids and aliases, by node type.
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
    kinds: Mapping[tuple[str, str], int] = field(default_factory=dict)


class PartReader:
    """Builds the rows of a part of the input."""

    def __init__(self, work: Work, number: int) -> None:
        self.work = work
        self.problems = work.problems()
        self.aliases = Aliases(work.accepted, self.problems)
        self.named: set[str] = set()
        self.counts: dict[str, int] = {}
        self.sizes: dict[str, int] = {}
        ignored = (
            work.problems() if work.rows else self.problems
        )  # if rows are built, the row builder reports the same problems, so they are ignored here
        self.digest = RowsDigest(work.accepted, ignored) if work.digest else None
        self.tally = Tally()
        self._ulids = Ulids(work.seed, number)
        self._builders: dict[str, RowBuilder] = {}

    @cached_property
    def _embedder(self) -> Embedder:
        return self.work.embedder or default_embedder()

    def read(self, split: Split, start: Start, take: Callable[[str, pa.Table], None] | None = None) -> End:
        """Read a part. Passes built rows to `take`.

        Raises:
            InputError: the reader cannot continue.
            EmbeddingError: vectors cannot be computed.
        """
        reading = split.read(self.work.accepted, self.problems, start)
        while True:
            try:
                raw = next(reading)
            except StopIteration as stop:
                end: End = stop.value
                return end
            for piece in chunks_of(self._resolve_aliases(raw) if self.work.lenient else raw):
                if self.digest is not None:
                    self.digest.take(piece)
                if not self.work.rows:
                    continue
                key, rows = self._build(piece)
                if take is not None and not self.problems:
                    take(key, rows)

    def _resolve_aliases(self, raw: RawRows) -> RawRows:
        """Replace the aliases in some rows by the ids that are stored."""
        if raw.kind is TypeKind.NODE:
            return self.aliases.node(raw)
        return self.aliases.edge(raw, self._known) if self._known else raw

    @cached_property
    def _known(self) -> AliasPairs:
        tables = {name: self.work.staging.table(path) for name, path in self.work.aliases.items()}
        return {name: (_column(rows, "old"), _column(rows, "new")) for name, rows in tables.items()}

    def stage_aliases(self, number: int) -> dict[str, PartAliases]:
        """Stage the ids and aliases of the part."""
        staging, pairs = self.work.staging, self.aliases.pairs()
        out = {}
        for name in self.aliases.keyed if self.work.lenient else ():
            ids = staging.put(f"aliases/{number:06d}-{name}-ids", pa.table({"id": self.aliases.ids(name)}))
            found = staging.put(f"aliases/{number:06d}-{name}", pairs[name]) if name in pairs else None
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


def run(work: Work, number: int, split: Split, start: Start = Start()) -> PartResult:  # noqa: B008
    """Process one part. `start` is the position of the part in its file, as far as it is known."""
    reader, spool = PartReader(work, number), Spool(work.budget)
    try:
        end = reader.read(split, start, spool.add)
    except InputError as error:
        return PartResult(End(0, 0), 0, str(error))
    except EmbeddingError as error:
        return PartResult(End(0, 0), 0, failed=error)
    coerced = () if reader.problems.coerced is None else reader.problems.coerced.all()
    aliases = reader.stage_aliases(number)
    if reader.problems:
        problems = reader.problems
        return PartResult(end, problems.total, coerced=coerced, aliases=aliases, kinds=problems.counts)
    tables = {}
    for key in spool.keys:
        rows = spool.take(key)
        tables[key] = _finish_type(work, number, key, rows, named=key in reader.named, size=reader.sizes[key])
    digests = {} if reader.digest is None else reader.digest.types
    return PartResult(end, 0, None, tables, digests, models=reader.tally.models, coerced=coerced, aliases=aliases)


def _finish_type(work: Work, number: int, key: str, rows: pa.Table, *, named: bool, size: int) -> PartRows:
    declared = work.accepted.catalog.declared(*TypeKey.parse(key))
    wrong = {}
    ends = ("src", "dst") if isinstance(declared, EdgeType) else ()
    for i, rule in enumerate(value_rules(declared)):
        found = wrong_values(rule, rows, ends)
        if found.num_rows:
            wrong[i] = Wrong(found.slice(0, SHOWN).combine_chunks(), found.num_rows)
    if rows.num_rows == 0:
        return PartRows(0, 0, named)
    stem = f"{number:06d}-{key.replace(':', '-')}"
    keys = work.staging.put(f"keys/{stem}", rows.select(compared_columns(declared)))
    partitions = {}
    if work.partitions:
        for each in compare_keys(work.accepted.catalog, declared, named=named):
            partitions[each.name] = tuple(_stage_partitions(work, stem, each, rows))
    part = PartRows(rows.num_rows, size, named, keys=keys, partitions=partitions, wrong=wrong)
    if wrong:
        return part
    references = {name: staged_references(rows.to_batches(), name) for name in blob_columns(rows)}
    if any(each.total for each in references.values()):
        return replace(part, unfetched=work.staging.put(f"aside/{stem}", rows), references=references)
    return write_part(work, stem, key, rows, part)


def write_part(work: Work, stem: str, key: str, rows: pa.Table, part: PartRows) -> PartRows:
    """Write the rows of a part as fragments. Stages them if some may replace stored rows."""
    if key not in work.bases:
        return part
    if key in work.staged and part.named:
        return replace(part, staged=work.staging.put(f"rows/{stem}", rows))
    return replace(part, fragments=write_fragments(work.staging.tables.at(work.bases[key]), rows))


def _stage_partitions(work: Work, stem: str, what: CompareKey, rows: pa.Table) -> Iterator[str]:
    """Stage the compared columns in hash partitions. Yields paths of files with up to `HASH_ROWS` rows each."""
    for start in range(0, rows.num_rows, HASH_ROWS):
        columns = what.compute(rows.select(what.columns).slice(start, HASH_ROWS))
        parts = hash_partition(columns, what.by, work.partitions)
        yield work.staging.put_parts(f"cuts/{stem}-{what.name}", block_schema(columns.schema), parts)


def staged_references(
    batches: Iterable[pa.RecordBatch], name: str, dropped: RowNumbers | None = None
) -> PartReferences:
    """The external references in a blob property: the first ones, and their number.

    Args:
        batches: the rows of a part, in order.
        name: the property.
        dropped: the positions of rows that do not count.
    """
    found = [_REFERENCES.empty_table()]
    first = listed = total = 0
    for batch in batches:
        uris = pc.struct_field(batch.column(name), "uri")
        positions = np.flatnonzero(uris.is_valid().to_numpy(zero_copy_only=False))
        if dropped is not None:
            positions = positions[~np.isin(positions + first, dropped)]
        chosen = pa.array(positions[: URI_CELLS + 1 - listed], pa.int64())
        numbers = pc.add(chosen, first)
        found.append(pa.table([batch.column("id").take(chosen), numbers, uris.take(chosen)], schema=_REFERENCES))
        listed, total, first = listed + len(chosen), total + len(positions), first + batch.num_rows
    return PartReferences(pa.concat_tables(found), total)


def compared_columns(declared: NodeType | EdgeType) -> list[str]:
    """The columns of a type that constraints compare with other rows."""
    ends = ("src", "dst") if isinstance(declared, EdgeType) else ()
    fields = (name for group in unique_groups(declared) for name in group)
    return list(dict.fromkeys(["id", *ends, *fields]))


# Rows that constraints compare


@dataclass(frozen=True, slots=True)
class LoadedRows:
    """Columns of the loaded rows of one part.

    Attributes:
        first: the number of the first row.
        dropped: the positions, in the part, of rows that a later record with the same id replaces.
        numbered: whether to add the row numbers as a column.
    """

    staging: Staging
    path: str
    columns: tuple[str, ...]
    first: int
    dropped: RowNumbers | None = None
    numbered: bool = False

    def tables(self) -> Iterator[pa.Table]:
        rows = self.staging.table(self.path, self.columns)
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
    """Columns of some fragments of a stored table."""

    staging: Staging
    ref: TableRef
    fragments: tuple[int, ...]
    columns: tuple[str, ...]

    def tables(self) -> Iterator[pa.Table]:
        for batch in self.staging.tables.at(self.ref).read_fragments(
            self.fragments, columns=self.columns, batch_rows=KEY_BATCH
        ):
            yield pa.Table.from_batches([batch])


def numbered(columns: Sequence[str]) -> tuple[str, ...]:
    return (*columns, ROW)
