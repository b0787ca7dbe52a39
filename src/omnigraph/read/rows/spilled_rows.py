"""A buffer of rows. If it exceeds a number of bytes, it writes its rows to a temporary file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType

import numpy as np
import pyarrow as pa

from omnigraph.read.budget.budget import checkpoint, note_spill
from omnigraph.read.columns.numbers import Numbers
from omnigraph.read.rows.frame import Binding, Frame, Path, concat_frames
from omnigraph.storage.files.scratch import Scratch

_WEIGHT = "weight"
_DISK_HINT = "free disk space in this directory, set TMPDIR to another directory, or give the query more memory"

Weighted = tuple[Frame, Numbers]
"""Rows and their weights. A weight is the number of rows of the match that the row stands for."""


def joined(parts: list[Weighted]) -> Weighted:
    """Concatenate rows and their weights."""
    frames, weights = zip(*parts, strict=True)
    return concat_frames(frames), np.concatenate(weights)


class SpilledRows:
    """A row buffer. It returns rows in insertion order. Use it in a `with` block, which deletes the temporary file.

    Args:
        room: maximum number of bytes of rows in memory.
        less: function that merges rows, to reduce their number before a spill; None if rows cannot be merged.
    """

    def __init__(self, room: int, less: Callable[[Weighted], Weighted] | None = None) -> None:
        self._room = room
        self._less = less
        self._parts: list[Weighted] = []
        self._held = 0
        self._like: Frame | None = None
        self._scratch: Scratch | None = None
        self.count = 0
        """Number of rows."""
        self.size = 0
        """Bytes of all rows, in memory and spilled."""

    def __enter__(self) -> SpilledRows:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._scratch is not None:
            self._scratch.close()

    @property
    def spilled(self) -> bool:
        """Whether rows were spilled."""
        return self._scratch is not None

    @property
    def held(self) -> int:
        """Bytes of the rows that are in memory."""
        return self._held

    def add(self, rows: Weighted) -> None:
        """Add rows.

        Raises:
            StorageError: the disk is full.
        """
        if rows[0].count == 0 and self._like is not None:
            return
        self._like = self._like or rows[0]
        self._take(rows, 1)
        if self._held > self._room and self._less is not None and len(self._parts) > 1:
            self._reduce()
        if self._held > self._room:
            self._spill()

    def _take(self, rows: Weighted, sign: int) -> None:
        size = rows[0].nbytes + rows[1].nbytes
        self._held += sign * size
        self.size += sign * size
        self.count += sign * rows[0].count
        if sign > 0:
            self._parts.append(rows)

    def _reduce(self) -> None:
        """Merge the rows in memory. If they still take more than half of the allowed bytes, spill them."""
        assert self._less is not None
        parts, self._parts = self._parts, []
        for part in parts:
            self._take(part, -1)
        self._take(self._less(joined(parts)), 1)
        if self._held * 2 > self._room:
            self._spill()

    def _spill(self) -> None:
        for frame, weights in self._parts:
            checkpoint()
            batch = _batch(frame, weights)
            if self._scratch is None:
                self._scratch = Scratch(batch.schema, hint=_DISK_HINT)
            note_spill(batch.nbytes)
            self._scratch.write(batch)
        self._parts, self._held = [], 0

    def parts(self) -> Iterator[Weighted]:
        """All rows, in parts of any size."""
        if self._scratch is not None:
            assert self._like is not None
            for batch in self._scratch.batches():
                checkpoint()
                yield _rows(batch, self._like)
        yield from self._parts

    def whole(self) -> Weighted:
        """All rows at once. `add` must have been called at least once."""
        return joined(list(self.parts()))


# Rows as Arrow batches


def _batch(frame: Frame, weights: Numbers) -> pa.RecordBatch:
    columns: dict[str, pa.Array] = {_WEIGHT: pa.array(weights)}
    for name, binding in frame.bindings.items():
        columns |= {f"{name} {part}": pa.array(values) for part, values in _arrays(binding).items()}
    for name, path in frame.paths.items():
        for side, of, first in (("nodes", path.nodes, path.node_first), ("edges", path.edges, path.edge_first)):
            for part, values in _arrays(of).items():
                lists = pa.LargeListArray.from_arrays(pa.array(first, pa.int64()), pa.array(values))
                columns[f"{name} {side} {part}"] = lists
    columns |= {f"{name} value": values for name, values in frame.values.items()}
    # Columns are sorted by name, because frames may have their variables in different orders.
    return pa.RecordBatch.from_pydict(dict(sorted(columns.items())))


def _arrays(binding: Binding) -> dict[str, Numbers]:
    type_index = {} if binding.type_index is None else {"type": binding.type_index.astype(np.int64, copy=False)}
    return {"number": binding.numbers.astype(np.int64, copy=False), **type_index}


def _rows(batch: pa.RecordBatch, like: Frame) -> Weighted:
    """Convert a batch back to rows. The variables and their tables are those of the frame `like`."""

    def binding(of: Binding, prefix: str, values: Callable[[str], pa.Array]) -> Binding:
        type_index = None if of.type_index is None else values(f"{prefix} type").to_numpy()
        return Binding(of.tables, values(f"{prefix} number").to_numpy(), type_index)

    def first(name: str) -> Numbers:
        found: Numbers = batch.column(name).offsets.to_numpy()
        return found if found[0] == 0 else found - int(found[0])

    bindings = {name: binding(of, name, batch.column) for name, of in like.bindings.items()}
    paths = {
        name: Path(
            binding(path.nodes, f"{name} nodes", lambda column: batch.column(column).flatten()),
            first(f"{name} nodes number"),
            binding(path.edges, f"{name} edges", lambda column: batch.column(column).flatten()),
            first(f"{name} edges number"),
        )
        for name, path in like.paths.items()
    }
    values = {name: batch.column(f"{name} value") for name in like.values}
    frame = Frame(batch.num_rows, bindings, paths, searching=like.searching, values=values)
    return frame, batch.column(_WEIGHT).to_numpy()
