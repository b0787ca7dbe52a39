"""A text that nearly breaks a rule breaks none: otherwise it would prove nothing about that rule."""

from __future__ import annotations

import pytest
from tests.lang.fixtures import ROOT, Case, cases, render

from omnigraph.lang.query.codes import CODES

NEAR_MISSES = [
    case
    for code in sorted(CODES)
    for case in cases(ROOT / "codes" / code)
    if case.stem.startswith("near") and ".gq" in case.suffixes
]


@pytest.mark.parametrize("case", NEAR_MISSES, ids=lambda case: f"{case.directory.name}/{case.stem}")
def test_near_misses_compile(case: Case) -> None:
    rendered = render(case)
    assert not any(code.startswith(("T", "Q")) for code in rendered.codes), rendered.text
