"""Find entities by id or key: the values that a condition compares them with."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.lang.query import ir
from omnigraph.lang.schema import canonical_text
from omnigraph.lang.types import Scalar
from omnigraph.read.columns.entity_table import EntityTable
from omnigraph.read.context.context import Context
from omnigraph.read.query.expression import Expression


def selects_by_id(conditions: Sequence[Expression], table: EntityTable, context: Context) -> bool:
    """Whether one of the conditions compares the id or the key with given values."""
    return any(_key_values(condition, table, context) is not None for condition in conditions)


def ids_of(condition: Expression, table: EntityTable, context: Context) -> list[str] | None:
    """Ids of all entities that can satisfy a condition; None if it does not compare the id or the key with values."""
    found = _key_values(condition, table, context)
    if found is None:
        return None
    scalar, values = found
    return [canonical_text(scalar, value) for value in values if isinstance(value, str | int)]


def _key_values(
    condition: Expression, table: EntityTable, context: Context
) -> tuple[Scalar, tuple[ir.ConstValue, ...]] | None:
    """Value type of the id or key, and the values that a condition allows.

    Returns None if the condition does not compare the id or key with values.
    """
    for tested, given, is_list in condition.equalities:
        scalar = _key_type(tested, table, context)
        if scalar is not None:
            value = given.value if isinstance(given, ir.Const) else context.request.params[given.name]
            if not is_list:
                return _of_key_type(scalar, (value,))
            if isinstance(value, tuple):
                return _of_key_type(scalar, value)
    return None


def _key_type(expr: ir.Expr, table: EntityTable, context: Context) -> Scalar | None:
    """Type of an expression that is the id of an entity, or its only key property; else None."""
    match expr:
        case ir.Ident(role=ir.Role.ID):
            return Scalar.STRING
        case ir.Prop(name=name):
            declared = context.accepted.catalog.nodes.get(table.type_name)
            if declared is not None and declared.key == (name,):
                return declared.properties[name].type.scalar
    return None


def _of_key_type(scalar: Scalar, values: tuple[ir.ConstValue, ...]) -> tuple[Scalar, tuple[ir.ConstValue, ...]] | None:
    """The type and the values, if all values have the type of the key; else None.

    A value of another type can be equal to a key although its text is different, such as 1.0 and 1.
    """
    wanted = str if scalar is Scalar.STRING else bool if scalar is Scalar.BOOL else int
    if scalar.is_float or not all(value is None or type(value) is wanted for value in values):
        return None
    return scalar, values
