"""Collects the types of an import, and writes their rows as Parquet files that a load takes."""

# See docs/decisions/0351-an-import-converts-to-parquet.md

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, cut
from omnigraph.lang.arrow import readable
from omnigraph.lang.schema import TypeKind, compile_schema
from omnigraph.lang.types import ValueType

DATA = "data"
SCHEMA = "schema.pg"
MAX_OPEN_FILES = 200
"""Files that are written at the same time. An import may have more types than a process may have open files."""


@dataclass(slots=True)
class StagedType:
    """A type of an import.

    Attributes:
        properties: its properties and their types, all nullable except the key.
        key: the key property; None for a type whose ids are given.
        ends: for an edge, the names of the node types that it connects.
        unique: for an edge, whether no two edges have the same endpoints.
        origin: where its rows come from, for a comment.
        rows: number of rows.
    """

    kind: TypeKind
    name: str
    properties: dict[str, ValueType] = field(default_factory=dict)
    key: str | None = None
    ends: tuple[str, str] | None = None
    unique: bool = False
    origin: str = ""
    rows: int = 0

    def declare(self, name: str, type_: ValueType, place: str) -> None:
        """Add a property.

        Raises:
            InputError: the type has the property with another type.
        """
        known = self.properties.setdefault(name, type_)
        if known.with_nullable(True) != type_.with_nullable(True):
            raise InputError(f"{place}: {self.name}.{cut(name)} is {type_}, and {known} in another file")

    def text(self) -> str:
        """The declaration in the schema language."""
        head = f"node {self.name}" if self.ends is None else f"edge {self.name}: {self.ends[0]} -> {self.ends[1]}"
        members = [
            f"    {name}: {type_.with_nullable(name != self.key)}" + " @key" * (name == self.key)
            for name, type_ in self.properties.items()
        ]
        members += ["    @key(src, dst)"] * self.unique
        body = "\n".join([f"{head} {{", *members, "}"]) if members or self.ends is None else head
        return f"// {self.origin}, {self.rows:,} rows\n{body}" if self.origin else body


class StagedTypes:
    """The types and rows of an import.

    Args:
        directory: the directory to write `schema.pg` and `data` into.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._types: dict[tuple[TypeKind, str], StagedType] = {}
        self._writers: dict[tuple[TypeKind, str, pa.Schema], pa.parquet.ParquetWriter] = {}
        self._files = 0
        (directory / DATA).mkdir()

    @property
    def types(self) -> list[StagedType]:
        """All types, nodes first."""
        return sorted(self._types.values(), key=lambda each: (each.kind is TypeKind.EDGE, each.name))

    def type(self, kind: TypeKind, name: str, *, origin: str = "") -> StagedType:
        """The type with a name. It is created if it does not exist."""
        return self._types.setdefault((kind, name), StagedType(kind, name, origin=origin))

    def write(self, type_: StagedType, columns: Mapping[str, pa.Array]) -> None:
        """Write rows of a type. Columns without a value are left out, so a property that no row has needs no type."""
        columns = {name: column for name, column in columns.items() if column.null_count < len(column)}
        if not columns:
            return
        batch = pa.record_batch({name: readable(column) for name, column in columns.items()})
        if batch.num_rows == 0:
            return
        type_.rows += batch.num_rows
        key = (type_.kind, type_.name, batch.schema)
        writer = self._writers.get(key)
        if writer is None:
            directory = self._directory / DATA / f"{type_.kind.value}.{type_.name}.parquet"
            directory.mkdir(exist_ok=True)
            path = directory / f"{type_.name}-{self._files}.parquet"
            self._files += 1
            if len(self._writers) >= MAX_OPEN_FILES:
                self._writers.pop(next(iter(self._writers))).close()
            writer = self._writers[key] = pa.parquet.ParquetWriter(path, batch.schema)
        writer.write_batch(batch)

    def finish(self) -> str:
        """Write the schema, complete all files, and return the text of the schema."""
        for writer in self._writers.values():
            writer.close()
        text = "\n\n".join(each.text() for each in self.types) + "\n"
        compile_schema(text)
        (self._directory / SCHEMA).write_text(text, encoding="utf-8")
        return text

    def close(self) -> None:
        """Close all files."""
        for writer in self._writers.values():
            writer.close()
