"""Parts of the input that can be read apart from each other, by whoever has the time.

A part says what it is, and nothing of what came before it: how many lines and records that were is known when those
are read. Read one after the other, the parts of a file give what the file gives as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.write.csv_rows import read_csv
from omnigraph.write.files import Format, RowFile
from omnigraph.write.mappings import read_envelopes, read_rows
from omnigraph.write.ndjson import Progress, read_ndjson
from omnigraph.write.problems import Problems
from omnigraph.write.rows import Origin, RawRows
from omnigraph.write.tables import read_batches

SPLIT_BYTES = 32 << 20
"""About how large a part is that one task reads: its rows take some times as much memory."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where a part begins.

    Attributes:
        first: the position of the first line or row of its file in the whole input.
        before: how many lines or rows of the file come before the part.
        records: how many records those are.
    """

    first: int = 1
    before: int = 0
    records: int = 0


@dataclass(frozen=True, slots=True)
class End:
    """What a part was.

    Attributes:
        lines: how many lines or rows it has.
        records: how many records.
        clean: whether what comes behind it can be read without it.
    """

    lines: int
    records: int
    clean: bool = True


Reading = Generator[RawRows, None, End]


class Split(Protocol):
    """A part of the input."""

    @property
    def source(self) -> object:
        """What it is a part of: lines are counted anew where that changes."""

    def read(self, accepted: AcceptedSchema, problems: Problems, start: Start) -> Reading:
        """The rows. What cannot be read goes to the problems."""

    def whole(self) -> Split:
        """All of what it is a part of, as one part."""


@dataclass(frozen=True, slots=True)
class FileSplit:
    """A part of a file.

    Attributes:
        file: the file.
        type: its type, for formats that hold one.
        low: where the part begins: a byte, a group of rows or a batch.
        high: where it ends; None is the end of the file.
    """

    file: RowFile
    type: tuple[TypeKind, str] | None
    low: int = 0
    high: int | None = None

    @property
    def source(self) -> object:
        return self.file.path

    def whole(self) -> FileSplit:
        return replace(self, low=0, high=None)

    def read(self, accepted: AcceptedSchema, problems: Problems, start: Start) -> Reading:
        name = self.file.path.name
        if self.type is None:
            progress = Progress(start.before + 1, start.records, middle=self.low > 0)
            yield from read_ndjson(self._chunks(), accepted, problems, name, start.first, progress)
            return End(progress.line - 1 - start.before, progress.records - start.records, progress.clean)
        kind, type_name = self.type
        yield RawRows(kind, type_name, {}, {}, Origin.counted(0))  # mentions the type even where it has no rows
        if self.file.format in (Format.CSV, Format.TSV):
            delimiter = "," if self.file.format is Format.CSV else "\t"
            chunks = self.file.chunks()
            end = yield from read_csv(chunks, kind, type_name, accepted, problems, name, start.first, delimiter)
        else:
            batches = self.file.batches(self.low, self.high)
            begins = self.low == 0
            end = yield from read_batches(
                batches, kind, type_name, accepted, problems, name, start.first, start.before, begins
            )
        count = end - start.first - start.before
        return End(count, count)

    def _chunks(self) -> Iterator[bytes]:
        if self.low == 0 and self.high is None:
            return self.file.chunks()
        return self.file.lines(self.low, self.high)


@dataclass(frozen=True, slots=True)
class Items:
    """Records that are in memory: envelopes, or rows of one type."""

    items: Iterable[object]
    type: tuple[TypeKind, str] | None

    @property
    def source(self) -> object:
        return id(self)

    def whole(self) -> Items:
        return self

    def read(self, accepted: AcceptedSchema, problems: Problems, start: Start) -> Reading:
        if self.type is None:
            end = yield from read_envelopes(iter(self.items), accepted, problems, start.first)
        else:
            kind, name = self.type
            yield RawRows(kind, name, {}, {}, Origin.counted(0))
            end = yield from read_rows(self.items, kind, name, accepted, problems, start.first)
        return End(end - start.first, end - start.first)


@dataclass(frozen=True, slots=True)
class Batches:
    """A table of another library. It can be read once."""

    batches: Iterable[pa.RecordBatch]
    type: tuple[TypeKind, str]

    def read(self, accepted: AcceptedSchema, problems: Problems, start: Start) -> Reading:
        kind, name = self.type
        yield RawRows(kind, name, {}, {}, Origin.counted(0))
        end = yield from read_batches(self.batches, kind, name, accepted, problems, name, start.first)
        return End(end - start.first, end - start.first)


@dataclass(frozen=True, slots=True)
class Chunks:
    """A stream of NDJSON. It can be read once."""

    chunks: Callable[[], Iterator[bytes]]
    name: str

    def read(self, accepted: AcceptedSchema, problems: Problems, start: Start) -> Reading:
        end = yield from read_ndjson(self.chunks(), accepted, problems, self.name, start.first)
        return End(end - start.first, end - start.first)


Input = FileSplit | Items | Batches | Chunks
"""A part of the input as the caller gave it."""


def cut_file(file: RowFile, type_: tuple[TypeKind, str] | None, size: int = SPLIT_BYTES) -> Iterator[FileSplit]:
    """The parts of a file, each of about some size.

    Packed text, and CSV, where quotes may hold line breaks, can only be read from the beginning.
    """
    whole = FileSplit(file, type_)
    if file.compression is not None or file.format in (Format.CSV, Format.TSV):
        yield whole
        return
    units = file.units()
    if file.format is Format.NDJSON:
        yield from _cut_bytes(whole, units[0], size)
        return
    low = held = 0
    for number, unit in enumerate(units):
        if held and held + unit > size:
            yield replace(whole, low=low, high=number)
            low, held = number, 0
        held += unit
    yield replace(whole, low=low, high=None) if low else whole


def _cut_bytes(whole: FileSplit, length: int, size: int) -> Iterator[FileSplit]:
    count = max(1, -(-length // size))
    bounds = [length * i // count for i in range(count)]
    for low, high in zip(bounds, [*bounds[1:], None], strict=True):
        yield replace(whole, low=low, high=high)
