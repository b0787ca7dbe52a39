"""A near miss compiles: a text that fails for another reason would test nothing."""

from __future__ import annotations

import pytest
from tests.lang.fixtures import ROOT, Case, cases, render

from omnigraph.lang.codes.query import CODES

NEAR_MISSES = [
    case
    for code in sorted(CODES)
    for case in cases(ROOT / "codes" / f"{code}.txt")
    if case.stem.startswith("near") and ".gq" in case.suffixes
]


@pytest.mark.parametrize("case", NEAR_MISSES, ids=lambda case: case.id)
def test_near_misses_compile(case: Case) -> None:
    rendered = render(case)
    assert not any(code.startswith(("T", "Q")) for code in rendered.codes), rendered.text
