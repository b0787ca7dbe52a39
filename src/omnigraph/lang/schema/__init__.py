"""The schema language: `.pg` texts, catalogues, stored schemas and schema changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

# `entity_id` and `shape` have the names of their modules, so they cannot be imported later.
from omnigraph.lang.schema.entity_id import canonical_text, edge_id, entity_id
from omnigraph.lang.schema.shape import shape, shape_hash
from omnigraph.lazy_names import lazy_names

if TYPE_CHECKING:
    from omnigraph.lang.schema.accepted import AcceptedSchema, accept, evolve
    from omnigraph.lang.schema.build import build_catalog, check_schema, compile_schema
    from omnigraph.lang.schema.catalog import Catalog, TypeKind
    from omnigraph.lang.schema.identity import creation_notes, resolve
    from omnigraph.lang.schema.ir import dump_ir, ir_hash
    from omnigraph.lang.schema.ir_reader import load_ir
    from omnigraph.lang.schema.lint import lint_schema
    from omnigraph.lang.schema.parser import parse_schema
    from omnigraph.lang.schema.printer import format_schema, print_schema
    from omnigraph.lang.schema.state import SchemaState, check_contract, dump_state, load_state, schema_state
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "accepted": ("AcceptedSchema", "accept", "evolve"),
            "build": ("build_catalog", "check_schema", "compile_schema"),
            "catalog": ("Catalog", "TypeKind"),
            "identity": ("creation_notes", "resolve"),
            "ir": ("dump_ir", "ir_hash"),
            "ir_reader": ("load_ir",),
            "lint": ("lint_schema",),
            "parser": ("parse_schema",),
            "printer": ("format_schema", "print_schema"),
            "state": ("SchemaState", "check_contract", "dump_state", "load_state", "schema_state"),
        },
    )

__all__ = [
    "AcceptedSchema",
    "Catalog",
    "SchemaState",
    "TypeKind",
    "accept",
    "build_catalog",
    "canonical_text",
    "check_contract",
    "check_schema",
    "compile_schema",
    "creation_notes",
    "dump_ir",
    "dump_state",
    "edge_id",
    "entity_id",
    "evolve",
    "format_schema",
    "ir_hash",
    "lint_schema",
    "load_ir",
    "load_state",
    "parse_schema",
    "print_schema",
    "resolve",
    "schema_state",
    "shape",
    "shape_hash",
]
