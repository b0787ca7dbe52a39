"""Check declared parameters."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.lang.names import did_you_mean
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check.scope import fail
from omnigraph.lang.query.check.values import fit
from omnigraph.lang.schema.catalog import Catalog, EdgeType, InterfaceType, NodeType
from omnigraph.lang.types import Scalar, ValueType

RESERVED_PREFIX = "__"


def parameters(declared: Sequence[ast.Param], catalog: Catalog, *, reads: bool) -> dict[str, ir.Parameter]:
    """Check the parameters, and return them by name.

    Raises:
        TypeCheckError: T27 for an invalid name or type; T24 for a Blob in a read; T3 for a default of the wrong
            type.
    """
    params: dict[str, ir.Parameter] = {}
    for param in declared:
        name = param.name
        if name.startswith(RESERVED_PREFIX):
            raise fail("T27", f"${name}: names that begin with __ are reserved", param.span)
        if name == ast.ANONYMOUS:
            raise fail("T27", "$_ has no name, so it cannot be a parameter", param.span)
        if name in params:
            raise fail("T27", f"${name} is declared twice", param.span)
        kind = _enum_type(param.type, catalog) if isinstance(param.type, ast.EnumOf) else param.type
        if reads and kind.scalar is Scalar.BLOB:
            raise fail("T24", f"${name} is a Blob, which a read cannot use", param.span)
        if kind.list and kind.scalar is Scalar.BLOB:
            raise fail("T27", "a list of Blobs is not a type", param.span)
        if param.default is None:
            params[name] = ir.Parameter(name, kind)
        else:
            params[name] = ir.Parameter(name, kind, fit(param.default, kind, f"${name}").value, True)
    return params


def _enum_type(written: ast.EnumOf, catalog: Catalog) -> ValueType:
    """Resolve the enum of a property that a parameter refers to."""
    known: dict[str, NodeType | EdgeType | InterfaceType] = {
        **catalog.edges,
        **catalog.interfaces,
        **catalog.nodes,
    }
    owner = known.get(written.type_name)
    if owner is None:
        hint = did_you_mean(written.type_name, known)
        raise fail("T27", f"there is no type {written.type_name}", written.span, hint=hint)
    prop = owner.properties.get(written.property)
    if prop is None:
        hint = did_you_mean(written.property, owner.properties)
        raise fail("T27", f"{owner.name} has no property '{written.property}'", written.span, hint=hint)
    if prop.type.enum_values is None:
        message = f"{owner.name}.{prop.name} is {prop.type}, not an enum"
        raise fail("T27", message, written.span, hint=f"write the type itself: {prop.type.item}")
    return ValueType(Scalar.STRING, written.nullable, prop.type.list, prop.type.enum_values)
