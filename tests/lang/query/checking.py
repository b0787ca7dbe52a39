"""Compile one query against the nursery schema, or check that it is refused."""

from __future__ import annotations

import pytest
from tests.lang.fixtures import nursery

from omnigraph.errors import TypeCheckError
from omnigraph.lang.query import compile_query, ir
from omnigraph.lang.schema import Catalog


def compiled(body: str, params: str = "", catalog: Catalog | None = None) -> ir.Query:
    """The IR of a query with this body."""
    return compile_query(f"query q({params}) {{ {body} }}", catalog or nursery())


def read(
    match: str, returns: str = "now()", tail: str = "", params: str = "", catalog: Catalog | None = None
) -> ir.Read:
    """The IR of a read query."""
    body = compiled(f"match {{ {match} }} return {{ {returns} }} {tail}", params, catalog).body
    assert isinstance(body, ir.Read)
    return body


def match(clauses: str, params: str = "") -> ir.Block:
    """The IR of a match."""
    return read(clauses, params=params).match


def write(statements: str, params: str = "$p: String") -> tuple[ir.Statement, ...]:
    """The IR of a mutation."""
    body = compiled(statements, params).body
    assert isinstance(body, ir.Write)
    return body.statements


def refused(body: str, code: str, params: str = "", catalog: Catalog | None = None) -> TypeCheckError:
    """The error of a query that must not compile."""
    with pytest.raises(TypeCheckError) as raised:
        compiled(body, params, catalog)
    assert raised.value.diagnostic == code, raised.value.render()
    return raised.value


def types_of(block: ir.Block) -> dict[str, tuple[str, ...]]:
    """The node types that each variable of a block ranges over."""
    return {node.name: node.types for node in block.nodes}


def steps_of(block: ir.Block, index: int = 0) -> list[tuple[str, str]]:
    """Edge and direction of each step of a traversal."""
    return [(step.edge, step.direction.value) for step in block.expands[index].steps]
