"""Infers a schema and a mapping from files and tables, so that a load of the same files succeeds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from glob import escape
from pathlib import Path

import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, cut, shown
from omnigraph.inference.decide import decide
from omnigraph.inference.json_records import RecordType, read_records
from omnigraph.inference.record_types import RecordProfile, decide_records, exported_type
from omnigraph.inference.render import mapping_text, schema_text
from omnigraph.inference.table_profile import TableProfile, cell_batches, profile_batches, profile_files, take_members
from omnigraph.lang.schema import compile_schema
from omnigraph.storage.files.local_output import output_file
from omnigraph.write.input.formats import NDJSON, Batched, RowFile, without_rows
from omnigraph.write.input.row_files import row_files
from omnigraph.write.input.sources import ArrowStream
from omnigraph.write.rows.values import type_label

SCHEMA_FILE = "schema.pg"
MAPPING_FILE = "mapping.yaml"

InferSource = (
    str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | Mapping[str, ArrowStream | str | os.PathLike[str]]
)
"""Files, or tables by name."""


@dataclass(frozen=True, slots=True)
class Inferred:
    """An inferred schema and mapping. Comments in both give the reasons.

    Attributes:
        schema: the schema, as the text of a `.pg` file.
        mapping: the mapping of the tables, as YAML; None if the input needs none, because its records name their types.
        mode: the mode to load with: `append`, or `merge` if the same node occurs in several rows.
        nodes: the names of the node types.
        edges: the names of the edge types.
    """

    schema: str
    mapping: str | None
    mode: str
    nodes: tuple[str, ...]
    edges: tuple[str, ...]

    def write(self, directory: str | os.PathLike[str]) -> list[Path]:
        """Write `schema.pg` and `mapping.yaml` into a directory, and return their paths.

        Raises:
            InputError: a file exists, or cannot be written.
        """
        place = Path(directory)
        texts = [(SCHEMA_FILE, self.schema), *([(MAPPING_FILE, self.mapping)] if self.mapping is not None else [])]
        for name, _ in texts:
            if (place / name).exists():
                raise InputError(f"{place / name} exists", hint="remove it, or write into another directory")
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot create {place}: {error.strerror}") from None
        for name, text in texts:
            with output_file(place / name) as file:
                file.write(text.encode())
        return [place / name for name, _ in texts]


def infer(
    source: InferSource,
    *,
    columns: Mapping[str, Sequence[str]] | None = None,
    format: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Inferred:
    """Infer a schema and a mapping from files or tables.

    >>> import pyarrow as pa
    >>> people = pa.table({"name": ["ann", "bob"], "age": [31, None]})
    >>> knows = pa.table({"from": ["ann"], "to": ["bob"]})
    >>> print(infer({"people": people, "knows": knows}).schema)
    // from people, 2 rows
    // key name: the 2 values are unique, and the name is that of a key
    node Person {
        name: String @key
        age: I64?
    }
    <BLANKLINE>
    // from knows, 1 row
    // endpoint from: all its values are keys of people, of no other table
    // endpoint to: all its values are keys of people, of no other table
    // key: no two rows have the same endpoints
    edge Knows: Person -> Person {
        @key(src, dst)
    }
    <BLANKLINE>

    Args:
        source: files (paths, directories, patterns, `s3://` addresses), or a dict from names to tables or files. CSV,
            Parquet, Arrow and NDJSON.
        columns: names of columns by file name, for CSV files without a header.
        format: the format of the files, whatever their names are: `ndjson`, `csv`, `tsv`, `parquet` or `arrow`.
        storage_options: connection options of S3; they override the environment.

    Raises:
        InputError: a file cannot be read, or has no rows.
    """
    return _Inference(columns or {}, storage_options, format).run(source)


class _Inference:
    def __init__(
        self, columns: Mapping[str, Sequence[str]], options: Mapping[str, str] | None, format: str | None
    ) -> None:
        self._format = format
        self._columns = dict(columns)
        self._options = options
        self._tables: list[TableProfile] = []
        self._records: dict[RecordType, RecordProfile] = {}

    def run(self, source: InferSource) -> Inferred:
        used: set[str] = set()
        for stem, sources, files in self._inputs(source):
            if isinstance(files, pa.RecordBatchReader):
                batches = _batches(files, stem)
                self._tables.append(profile_batches(stem, stem, sources, batches))
            elif files[0].format is NDJSON:
                self._read_records(files, sources)
            elif (kind := exported_type(stem)) is not None and not self._columns:
                for file in files:
                    profile = RecordProfile(kind, file.input.name, cells=not isinstance(file.format, Batched))
                    self._take_export(self._records.setdefault(kind, profile), file)
            else:
                named = next((f.input.name for f in files if f.input.name in self._columns), None)
                used |= {named} if named is not None else set()
                given = self._columns.get(named) if named is not None else None
                self._tables.append(profile_files(files, sources, given))
        for name in self._columns.keys() - used:
            raise InputError(f"columns are given for {cut(name)}, but there is no such CSV file")
        if not self._tables and not self._records:
            raise InputError("there are no files and no tables", hint="name at least one file")
        if not self._records and not any(table.rows or table.dialect is None for table in self._tables):
            raise InputError(f"{self._tables[0].name} has no rows", hint="a schema is inferred from rows")
        draft = decide(self._tables)
        mapping = mapping_text(draft) if self._tables else None
        decide_records(list(self._records.values()), draft)
        schema = schema_text(draft)
        compile_schema(schema)
        nodes, edges = (tuple(each.name for each in types) for types in (draft.nodes, draft.edges))
        return Inferred(schema, mapping, "merge" if draft.derives else "append", nodes, edges)

    def _read_records(self, files: list[RowFile], sources: tuple[str, ...]) -> None:
        plain = TableProfile(files[0].input.name, files[0].stem, sources, [])
        for file in files:
            for kind, batch in read_records(file.chunks(), file.input.label):
                if kind is None:
                    take_members(plain, batch)
                else:
                    self._records.setdefault(kind, RecordProfile(kind, file.input.name)).take(batch)
        if plain.columns:
            self._tables.append(plain)

    def _take_export(self, profile: RecordProfile, file: RowFile) -> None:
        """Add the rows of a file of an export."""
        for batch in file.batches() if isinstance(file.format, Batched) else cell_batches(file):
            names = [f"={name}" if profile.is_edge and name in ("from", "to") else name for name in batch.schema.names]
            profile.take(batch.rename_columns(names))

    def _inputs(
        self, source: InferSource
    ) -> Iterator[tuple[str, tuple[str, ...], list[RowFile] | pa.RecordBatchReader]]:
        """The tables of the source: the name, the patterns in the mapping, and the files or batches."""
        if isinstance(source, Mapping):
            for name, given in source.items():
                if isinstance(given, str | os.PathLike):
                    yield name, (escape(name),), row_files(given, self._options, self._format)
                elif isinstance(given, ArrowStream):
                    yield name, (escape(name),), _reader(given, name)
                else:
                    raise InputError(f"'{cut(name)}': expected a table or a file, found {type_label(given)}")
            return
        if isinstance(source, ArrowStream):
            raise InputError("a table has no name", hint='give a dict: {"people": table}')
        if not isinstance(source, str | os.PathLike | Iterable):
            raise InputError(f"{shown(source)} is neither a file nor a table", hint='give paths, or {"people": table}')
        paths = [source] if isinstance(source, str | os.PathLike) else list(source)
        found = (file for path in paths for file in row_files(path, self._options, self._format))
        grouped: dict[tuple[str, str], list[RowFile]] = {}
        for file in {str(file.input): file for file in found}.values():
            grouped.setdefault((file.stem, file.format.name), []).append(file)
        for (stem, _), members in grouped.items():
            if stem.isdigit() and members[0].input.once:  # the number of a descriptor
                yield "row", ("[0-9]*",), [replace(file, stem="row") for file in members]
                continue
            names = tuple(dict.fromkeys(file.input.name for file in members))
            same_name = len(names) < len(members) or any(not name.startswith(stem) for name in names)
            yield stem, tuple(map(escape, (stem,) if same_name else names)), members


def _reader(table: ArrowStream, name: str) -> pa.RecordBatchReader:
    try:
        return pa.RecordBatchReader.from_stream(table)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise InputError(f"the rows of {cut(name)} cannot be read as Arrow data: {error}") from error


def _batches(reader: pa.RecordBatchReader, name: str) -> Iterator[pa.RecordBatch]:
    try:
        yield without_rows(reader.schema)
        yield from reader
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(f"the rows of {name} cannot be read as Arrow data: {error}") from error
