"""Rows of a match that wait for the others: in memory up to a number of bytes, beyond it in a temporary file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType

import numpy as np
import pyarrow as pa

from omnigraph.read.budget import checkpoint, put_aside
from omnigraph.read.match.frame import Binding, Frame, Path, joined_frames
from omnigraph.read.space.space import Numbers
from omnigraph.storage.files.scratch import Scratch

_WEIGHT = "weight"
_ADVICE = "make room there, name another directory in TMPDIR, or give the query more memory"

Weighted = tuple[Frame, Numbers]
"""Rows, and how many each of them stands for."""


def joined(parts: list[Weighted]) -> Weighted:
    """The rows of several parts, one after another."""
    frames, weights = zip(*parts, strict=True)
    return joined_frames(frames), np.concatenate(weights)


class Bag:
    """Takes in rows, and gives them back in the same order. To be closed at the end.

    Args:
        room: how many bytes stay in memory.
        less: makes fewer rows of some, that are as good.
    """

    def __init__(self, room: int, less: Callable[[Weighted], Weighted] | None = None) -> None:
        self._room = room
        self._less = less
        self._parts: list[Weighted] = []
        self._held = 0
        self._like: Frame | None = None
        self._scratch: Scratch | None = None
        self.count = 0
        """How many rows there are."""
        self.size = 0
        """How many bytes they take."""

    def __enter__(self) -> Bag:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._scratch is not None:
            self._scratch.close()

    @property
    def spilled(self) -> bool:
        """Whether there are rows in a file."""
        return self._scratch is not None

    @property
    def held(self) -> int:
        """How many bytes are in memory."""
        return self._held

    def add(self, rows: Weighted) -> None:
        """Take in rows.

        Raises:
            StorageError: there is no room for them on disk.
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
        """Make fewer rows of those in memory. Where that is of little use, they go to the file soon."""
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
                self._scratch = Scratch(batch.schema, hint=_ADVICE)
            put_aside(batch.nbytes)
            self._scratch.write(batch)
        self._parts, self._held = [], 0

    def parts(self) -> Iterator[Weighted]:
        """The rows, piece by piece."""
        if self._scratch is not None:
            assert self._like is not None
            for batch in self._scratch.batches():
                checkpoint()
                yield _rows(batch, self._like)
        yield from self._parts

    def whole(self) -> Weighted:
        """All rows. There was at least one part."""
        return joined(list(self.parts()))


# Rows as batches


def _batch(frame: Frame, weights: Numbers) -> pa.RecordBatch:
    columns: dict[str, pa.Array] = {_WEIGHT: pa.array(weights)}
    for name, binding in frame.bindings.items():
        columns |= {f"{name} {part}": pa.array(values) for part, values in _arrays(binding).items()}
    for name, path in frame.paths.items():
        for side, of, first in (("nodes", path.nodes, path.node_first), ("edges", path.edges, path.edge_first)):
            for part, values in _arrays(of).items():
                lists = pa.LargeListArray.from_arrays(pa.array(first, pa.int64()), pa.array(values))
                columns[f"{name} {side} {part}"] = lists
    # By name: another part may have been matched in another order.
    return pa.RecordBatch.from_pydict(dict(sorted(columns.items())))


def _arrays(binding: Binding) -> dict[str, Numbers]:
    which = {} if binding.which is None else {"which": binding.which.astype(np.int64, copy=False)}
    return {"number": binding.numbers.astype(np.int64, copy=False), **which}


def _rows(batch: pa.RecordBatch, like: Frame) -> Weighted:
    """The rows of a batch, whose variables range over what those of a frame do."""

    def binding(of: Binding, prefix: str, values: Callable[[str], pa.Array]) -> Binding:
        which = None if of.which is None else values(f"{prefix} which").to_numpy()
        return Binding(of.spaces, values(f"{prefix} number").to_numpy(), which)

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
    return Frame(batch.num_rows, bindings, paths, searching=like.searching), batch.column(_WEIGHT).to_numpy()
