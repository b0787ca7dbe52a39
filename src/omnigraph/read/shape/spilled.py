"""The result of a read whose rows do not fit the memory it may take: they come in blocks, and wait in files.

What is cut is cut block by block. What is only counted is counted together as it comes. Everything else is put aside
and divided, by the order of the result or by what it is grouped by, into parts that fit; each part is shaped by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack

import numpy as np
import pyarrow as pa

from omnigraph.lang.query import ir
from omnigraph.lang.query.walk import walk
from omnigraph.read.budget import put_aside
from omnigraph.read.context import Context
from omnigraph.read.match.bag import Bag, Weighted
from omnigraph.read.match.blocks import Rows
from omnigraph.read.match.count import is_indifferent, looked_at
from omnigraph.read.match.frame import Frame, joined_frames, variables
from omnigraph.read.match.widths import size_of
from omnigraph.read.plan.remembered import remembered
from omnigraph.read.portions import PORTION, portions
from omnigraph.read.shape import shape as shaping
from omnigraph.read.shape.order import Key, in_order
from omnigraph.read.space.space import Numbers
from omnigraph.storage.files.scratch import Scratch

_LEAST = 1 << 20
_WAITING = 8
"""One of so many parts of the memory is for rows that wait, and this much at least."""

_WIDE = 64
"""About how many bytes there are about a row while it is sorted, beside itself."""

_PARTS = 64
"""Into how many parts rows are divided at a time."""

_SAMPLES = 16
"""How many rows are looked at for each part, to find where it ends."""

_COPIES = 2
"""How often groups are in memory while they are put in order."""

_ADVICE = "make room there, name another directory in TMPDIR, or add a limit"

Keys = Callable[[Frame], Sequence[Key]]


def lists_too_much(read: ir.Read, size: float, context: Context) -> bool:
    """Whether a read lists all of its rows, which take so many bytes, and those are more than may be put aside."""
    disk = context.budget.budget.disk
    return not (read.grouped or read.distinct or read.limit) and disk is not None and size > disk


@remembered
def can_be_spilled(read: ir.Read) -> bool:
    """Whether a read can be answered in parts: what a fusion says depends on all rows."""
    return not any(isinstance(part, ir.Fusion) for part in walk((read.columns, read.order)))


def shape_blocks(read: ir.Read, blocks: Iterable[Rows], context: Context) -> pa.Table:
    """The result of a read from the rows of its match, which come in blocks.

    Raises:
        BudgetExceededError: a part that cannot be divided takes more memory than there may be.
        StorageError: there is no room on disk for what is put aside.
    """
    room = _room(context)
    if read.grouped or read.distinct:
        return _grouped(read, blocks, context, room)
    offset, limit = shaping.window(read, context)
    if limit is not None and (offset + limit) * _WIDE <= room:
        return _first(read, blocks, context, offset + limit)
    return _listed(read, blocks, context, room)


def _room(context: Context) -> int:
    most = context.budget.most
    return 1 << 62 if most is None else max(most // _WAITING, min(_LEAST, most // 4))


def _first(read: ir.Read, blocks: Iterable[Rows], context: Context, end: int) -> pa.Table:
    """The first few rows of an order: no more of them are kept than are asked for."""
    best: Frame | None = None
    for rows, _ in blocks:
        frame = shaping.best(read, rows, context)
        best = frame if best is None else joined_frames([best, frame])
        best = best.take(shaping.listed_order(read, best, context, 0, end))
        context.budget.kept = best.nbytes
    context.budget.kept = 0
    assert best is not None, "there is always one block"
    return shaping.shape(read, best, context)


def _listed(read: ir.Read, blocks: Iterable[Rows], context: Context, room: int) -> pa.Table:
    budget = context.budget
    offset, limit = shaping.window(read, context)
    with ExitStack() as open_:
        bag = open_.enter_context(Bag(room))
        for rows, _ in blocks:
            frame = shaping.best(read, rows, context)
            bag.add((frame, np.ones(frame.count, np.int64)))
            budget.kept = bag.held
        end = bag.count if limit is None else min(offset + limit, bag.count)
        budget.give(max(end - offset, 0))
        if not bag.spilled and _can_be_listed(read, frame := bag.whole()[0], context):
            budget.kept = 0
            return shaping.shape(read, frame, context)
        scratch, place = open_.enter_context(Scratch(shaping.schema(read), hint=_ADVICE)), 0
        for frame, _ in _divided(bag, lambda rows: shaping.listed_keys(read, rows, context), room, context):
            first, last = max(offset - place, 0), min(end - place, frame.count)
            place += frame.count
            if first >= last:
                continue
            chosen = shaping.listed_order(read, frame, context, first, last - first)
            each = size_of(read.columns, frame) // frame.count
            for begin, stop in portions(len(chosen), max(min(PORTION, room // max(each, 1)), 1)):
                _write(scratch, shaping.listed_table(read, frame.take(chosen[begin:stop]), context))
        return scratch.table()


def _can_be_listed(read: ir.Read, frame: Frame, context: Context) -> bool:
    """Whether the texts of a result fit memory beside the rows that they are made for."""
    most = context.budget.most
    return most is None or size_of(read.columns, frame) <= most // 2


def _grouped(read: ir.Read, blocks: Iterable[Rows], context: Context, room: int) -> pa.Table:
    budget, parts = context.budget, (read.columns, read.having, read.order)
    alike = all(is_indifferent(part) for part in walk(parts) if isinstance(part, ir.Aggregate))
    needed = {*looked_at(parts)} if alike else {name for part in parts for name in variables(part)}
    keys = read.keys if read.grouped else read.columns
    with Bag(room, _counted_together if alike else None) as bag:
        for frame, weights in blocks:
            rows = _only(frame, needed)
            bag.add((rows, np.ones(frame.count, np.int64) if weights is None else weights))
            budget.kept = bag.held
        if not bag.spilled or not keys:
            budget.kept = 0
            frame, weights = bag.whole()
            return shaping.shape(read, frame, context, weights if alike else None)
        ordered = _by_ties(read, keys)
        found = (
            shaping.groups(read, frame, context, weights if alike else None)
            for frame, weights in _divided(bag, lambda rows: shaping.column_keys(ordered, rows, context), room, context)
        )
        if not read.order and {column.name for column in keys} == _ties(read).keys():
            return _in_turn(read, found, context)
        return _gathered(read, found, context)


def _ties(read: ir.Read) -> dict[str, int]:
    """The columns that rows are told apart by at last, and which comes first."""
    return {tie.name: place for place, tie in enumerate(read.ties) if isinstance(tie, ir.Column)}


def _by_ties(read: ir.Read, keys: Sequence[ir.OutColumn]) -> list[ir.OutColumn]:
    """Columns in the order in which they tell rows apart."""
    places = _ties(read)
    return sorted(keys, key=lambda column: places.get(column.name, len(places)))


def _in_turn(read: ir.Read, parts: Iterable[pa.Table], context: Context) -> pa.Table:
    """The result of groups that come in its order."""
    offset, limit = shaping.window(read, context)
    place = given = 0
    with Scratch(shaping.schema(read), hint=_ADVICE) as scratch:
        for groups in parts:
            left = None if limit is None else limit - given
            kept = shaping.foremost(read, groups, context, max(offset - place, 0), left)
            _write(scratch, shaping.finished_table(read, kept))
            place += groups.num_rows
            given += kept.num_rows
            context.budget.give(given)
            if given == limit:
                break
        return scratch.table()


def _gathered(read: ir.Read, parts: Iterable[pa.Table], context: Context) -> pa.Table:
    """The result of groups that come in any order: all of them are in memory, or as many as are asked for."""
    offset, limit = shaping.window(read, context)
    budget, found = context.budget, None
    for groups in parts:
        found = groups if found is None else pa.concat_tables([found, groups])
        budget.hold(found.nbytes * _COPIES)
        if limit is not None:
            found = shaping.foremost(read, found, context, 0, offset + limit)
    assert found is not None, "there is always one part"
    budget.hold(0)
    return shaping.finished(read, found, context)


def _write(scratch: Scratch, rows: pa.Table) -> None:
    put_aside(rows.nbytes)
    scratch.write(rows)


def _only(frame: Frame, names: set[str]) -> Frame:
    """Rows without the variables that nobody asks for."""
    return Frame(
        frame.count,
        {name: binding for name, binding in frame.bindings.items() if name in names},
        {name: path for name, path in frame.paths.items() if name in names},
        searching=frame.searching,
    )


def _counted_together(rows: Weighted) -> Weighted:
    """Rows that hold the same are one, which stands for all of them."""
    frame, weights = rows
    if frame.paths:
        return rows
    first, group = shaping.alike(frame)
    total = np.zeros(len(first), np.int64)
    np.add.at(total, group, weights)
    return frame.take(first), total


# Dividing


def _divided(bag: Bag, keys: Keys, room: int, context: Context) -> Iterator[Weighted]:
    """The rows of a bag in parts, of which each has what comes before the next in an order of keys.

    Rows that keys do not tell apart are in one part.
    """
    each = max(room * bag.count // max(bag.size + _WIDE * bag.count, 1), 1)
    parts = min(-(-bag.count // each), _PARTS)
    context.budget.kept = bag.held
    if parts <= 1:
        whole = bag.whole()
        context.budget.hold(whole[0].nbytes)
        yield whole
        return
    bounds = _bounds(bag, keys, parts)
    with ExitStack() as open_:
        portions_ = [open_.enter_context(Bag(room // parts)) for _ in range(bounds.count + 1)]
        for frame, weights in bag.parts():
            for first, last in portions(frame.count, min(PORTION, each)):
                for number, rows in _sorted_out(frame.part(first, last), bounds, keys):
                    portions_[number].add((frame.take(rows + first), weights[rows + first]))
        for part in portions_:
            if part.count == bag.count:
                # Nothing tells its rows apart.
                whole = part.whole()
                context.budget.hold(whole[0].nbytes)
                yield whole
            elif part.count:
                yield from _divided(part, keys, room, context)


def _bounds(bag: Bag, keys: Keys, parts: int) -> Frame:
    """Rows between which about as many rows lie."""
    step = max(bag.count // (parts * _SAMPLES), 1)
    samples, start = [], 0
    for frame, _ in bag.parts():
        samples.append(frame.take(np.arange(start, frame.count, step)))
        start = (start - frame.count) % step
    together = joined_frames(samples)
    order = in_order(keys(together), together.count, 0, None)
    return together.take(order[_SAMPLES::_SAMPLES])


def _sorted_out(frame: Frame, bounds: Frame, keys: Keys) -> Iterator[tuple[int, Numbers]]:
    """The rows of each part, by its number. A row that is equal to a bound comes behind it."""
    together = joined_frames([bounds, frame])
    order = in_order(keys(together), together.count, 0, None)
    ends = np.flatnonzero(order < bounds.count)
    for number, rows in enumerate(np.split(order, ends)):
        mine = np.sort(rows[rows >= bounds.count] - bounds.count)
        if len(mine):
            yield number, mine
