"""The example schema covers the whole schema language, and its next version is a realistic change."""

from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.lang.schema import Catalog, compile_schema
from omnigraph.lang.schema.catalog import Check, EdgeType, Index, IndexKind, Key, NodeType, Property, Range, Unique
from omnigraph.lang.types import Scalar, ValueType
from papers import EDGES, NODES, TYPES

_ARROW = {
    Scalar.STRING: pa.string(),
    Scalar.BLOB: pa.large_binary(),
    Scalar.BOOL: pa.bool_(),
    Scalar.I32: pa.int32(),
    Scalar.I64: pa.int64(),
    Scalar.U32: pa.uint32(),
    Scalar.U64: pa.uint64(),
    Scalar.F32: pa.float32(),
    Scalar.F64: pa.float64(),
    Scalar.DATE: pa.date32(),
    Scalar.DATETIME: pa.timestamp("ms", "UTC"),
}


def arrow_type(type_: ValueType) -> pa.DataType:
    if type_.dim is not None:
        return pa.list_(pa.float32(), type_.dim)
    return pa.list_(_ARROW[type_.scalar]) if type_.list else _ARROW[type_.scalar]


def properties(catalog: Catalog) -> list[Property]:
    types: list[NodeType | EdgeType] = [*catalog.nodes.values(), *catalog.edges.values()]
    return [property_ for type_ in types for property_ in type_.properties.values()]


def test_every_scalar_type_is_used(catalog: Catalog) -> None:
    assert {p.type.scalar for p in properties(catalog)} == set(Scalar)


def test_every_kind_of_constraint_is_used(catalog: Catalog) -> None:
    nodes = [c for node in catalog.nodes.values() for c in node.constraints]
    edges = [c for edge in catalog.edges.values() for c in edge.constraints]
    for kind in (Key, Unique, Index, Range, Check):
        assert any(isinstance(c, kind) for c in nodes), kind
        assert any(isinstance(c, kind) for c in edges), kind
    assert {c.kind for c in nodes if isinstance(c, Index)} == set(IndexKind)
    assert {len(c.fields) for c in nodes if isinstance(c, Key)} == {1, 2}
    assert {len(c.fields) for c in edges if isinstance(c, Key)} == {2, 3}
    assert any(node.key is None for node in catalog.nodes.values())


def test_cardinalities_bound_both_ends(catalog: Catalog) -> None:
    bounds = {(edge.card.min, edge.card.max) for edge in catalog.edges.values()}
    inward = {(edge.card_in.min, edge.card_in.max) for edge in catalog.edges.values()}
    assert {(0, None), (0, 1), (1, 1)} <= bounds
    assert {(0, None), (0, 1), (0, 2), (1, 1)} <= inward


def test_defaults_embeddings_and_lists_are_used(catalog: Catalog) -> None:
    known = properties(catalog)
    assert {p.default.now for p in known if p.default} == {False, True}
    assert any(p.embed for p in known)
    assert any(p.type.list and p.type.is_enum for p in known)
    assert any(len(interface.implementors) > 3 for interface in catalog.interfaces.values())
    assert any(edge.same_type for edge in catalog.edges.values())


def test_generated_types_are_those_of_the_schema(catalog: Catalog) -> None:
    assert set(NODES) == set(catalog.nodes)
    assert set(EDGES) == set(catalog.edges)


@pytest.mark.parametrize("name", TYPES)
def test_generated_columns_are_the_properties(catalog: Catalog, name: str) -> None:
    declared = catalog.nodes[name].properties if name in NODES else catalog.edges[name].properties
    identity = {"from", "to"} if name in EDGES else set() if catalog.nodes[name].key else {"id"}
    assert set(TYPES[name].names) == set(declared) | identity
    for field in TYPES[name]:
        if field.name in declared:
            assert field.type == arrow_type(declared[field.name].type), field.name
            assert field.nullable == declared[field.name].type.nullable, field.name


def test_the_next_version_compiles_and_declares_its_renames(catalog: Catalog, folder: Path) -> None:
    after = compile_schema((folder / "schema_next.pg").read_text(encoding="utf-8"), "schema_next.pg")
    assert after.nodes["Remark"].rename_from == "Note"
    assert after.nodes["Author"].properties["contact_email"].rename_from == "email"
    assert after.edges["Advises"].properties["kind"].enum_renames == (("mentoring", "informal"),)
    assert set(after.nodes) - set(catalog.nodes) == {"Grant", "Remark"}
    assert set(after.edges) - set(catalog.edges) == {"FundedBy"}
    added = set(after.nodes["Paper"].properties) - set(catalog.nodes["Paper"].properties)
    assert added == {"funding_statement", "peer_reviewed"}
    assert after.nodes["Paper"].properties["peer_reviewed"].default is not None
    assert after.edges["PublishedIn"].card.max == 2
