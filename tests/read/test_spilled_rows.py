"""Spilled rows are read back unchanged."""

from __future__ import annotations

import numpy as np

from omnigraph.read.rows.frame import Binding, Frame
from omnigraph.read.rows.spilled_rows import SpilledRows


def _rows(**numbers: int) -> Frame:
    return Frame(1, {name: Binding((), np.array([number])) for name, number in numbers.items()})


def test_spilled_parts_may_bind_variables_in_any_order() -> None:
    """Each part has its own plan."""
    with SpilledRows(0) as bag:
        for part in (_rows(a=1, b=2), _rows(b=4, a=3)):
            bag.add((part, np.array([1])))
        assert bag.spilled
        frame, weights = bag.whole()
    assert {name: binding.numbers.tolist() for name, binding in frame.bindings.items()} == {"a": [1, 3], "b": [2, 4]}
    assert weights.tolist() == [1, 1]
