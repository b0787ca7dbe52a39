"""The guide names every option, and every change in it is planned as it says."""

from __future__ import annotations

from pathlib import Path

from omnigraph.lang.codes.schema import CODES
from omnigraph.lang.schema import accept, compile_schema
from omnigraph.lang.schema.indexes import KINDS, OPTIONS
from omnigraph.lang.schema.migrate import plan, steps

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_migration_page_names_every_step_and_code() -> None:
    page = (DOCS / "guide/migrations.md").read_text(encoding="utf-8")
    kinds = {kind for step in _all_steps(steps.Step) if (kind := getattr(step, "kind", None))}
    kinds.discard("unsupported_change")
    assert {kind for kind in kinds if f"`{kind}`" not in page} == set()
    codes = {code for code, entry in CODES.items() if entry.tier is not None and not entry.reserved}
    assert {code for code in codes if code not in page} == set()


def _all_steps(step: type[steps.Step]) -> list[type[steps.Step]]:
    return [step, *(other for child in step.__subclasses__() for other in _all_steps(child))]


def test_schema_page_names_every_index_option() -> None:
    page = (DOCS / "guide/schema.md").read_text(encoding="utf-8")
    for name in [*KINDS, *(option for options in OPTIONS.values() for option in options)]:
        assert f"`{name}`" in page


def test_the_plan_on_the_page_is_correct() -> None:
    before = "node Species { taxon: String @key  notes: String?  frost_min: F32?  @range(frost_min, -60.0..30) }"
    after = "node Species { taxon: String @key  notes: String  origin: String? }"
    shown = plan(accept(compile_schema(before), "D"), compile_schema(after)).lines()
    page = (DOCS / "guide/migrations.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if line.endswith(("safe]", "validated]", "destructive]"))]
    assert shown == lines
