"""Splits: parts of the input that can be read separately, for example by different tasks.

The number of lines and records before a part is known only after the earlier parts were read.
Reading all parts of a file in order gives the same rows as reading the whole file.
"""

# See docs/decisions/0092-parts-are-read-apart.md

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Protocol

import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.write.input.arrow_rows import read_batches
from omnigraph.write.input.named_columns import Layout, OfType, Type, empty_rows
from omnigraph.write.input.ndjson import read_ndjson
from omnigraph.write.input.python_rows import read_envelopes, read_rows
from omnigraph.write.rows.problems import Problems
from omnigraph.write.rows.raw_rows import RawRows

SPLIT_BYTES = 32 << 20
"""Approximate size of a part for one task, in bytes of the file. Its rows take several times as much memory."""


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a part.

    Attributes:
        first: the position of the first line or row of the part's file in the whole input.
        before: number of lines or rows of the file before the part.
        records: number of records of the file before the part.
    """

    first: int = 1
    before: int = 0
    records: int = 0


@dataclass(frozen=True, slots=True)
class End:
    """The result of reading a part.

    Attributes:
        lines: the number of lines or rows in the part.
        records: the number of records in the part.
        clean: whether the next part can be read separately: no record is in both parts, and the counts are certain.
    """

    lines: int
    records: int
    clean: bool = True


Reading = Generator[RawRows, None, End]


class Split(Protocol):
    """A part of the input."""

    @property
    def begins(self) -> bool:
        """Whether it is the first part of a file or table. The line numbers restart there."""

    @property
    def types(self) -> tuple[Type, ...] | None:
        """The types of its rows; None if rows of any type may occur."""

    def read(self, accepted: AcceptedSchema, problems: Problems, start: Start) -> Reading:
        """The rows. Adds records that cannot be read to the problems."""

    def whole(self) -> Split:
        """The whole file or table as one part."""


@dataclass(frozen=True, slots=True)
class Items:
    """Records in memory: envelopes, or rows of one type."""

    items: Iterable[object]
    layout: OfType | None

    @property
    def begins(self) -> bool:
        return True

    @property
    def types(self) -> tuple[Type, ...] | None:
        return None if self.layout is None else self.layout.types

    def whole(self) -> Items:
        return self

    def read(self, accepted: AcceptedSchema, problems: Problems, start: Start) -> Reading:
        if self.layout is None:
            end = yield from read_envelopes(iter(self.items), accepted, problems, start.first)
        else:
            yield from empty_rows(self.layout)
            kind, name = self.layout.kind, self.layout.name
            end = yield from read_rows(self.items, kind, name, accepted, problems, start.first)
        return End(end - start.first, end - start.first)


@dataclass(frozen=True, slots=True)
class Batches:
    """The batches of a table in memory, such as a data frame. They can be read only once."""

    batches: Iterable[pa.RecordBatch]
    layout: Layout
    name: str

    def read(self, accepted: AcceptedSchema, problems: Problems, start: Start) -> Reading:
        yield from empty_rows(self.layout)
        end = yield from read_batches(self.batches, self.layout, accepted, problems, self.name, start.first)
        return End(end - start.first, end - start.first)


@dataclass(frozen=True, slots=True)
class Chunks:
    """A stream of NDJSON. It can be read only once."""

    chunks: Callable[[], Iterator[bytes]]
    name: str

    def read(self, accepted: AcceptedSchema, problems: Problems, start: Start) -> Reading:
        end = yield from read_ndjson(self.chunks(), accepted, problems, self.name, start.first)
        return End(end - start.first, end - start.first)
