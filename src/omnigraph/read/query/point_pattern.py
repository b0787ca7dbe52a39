"""The pattern of the most frequent query of programs: some properties of the one node that has a given key."""

from __future__ import annotations

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.read.query.expression import Expression


@dataclass(frozen=True, slots=True)
class PointPattern:
    """One node variable of one type, one condition that compares it with a value, and columns that are properties.

    Attributes:
        type_name: the node type.
        condition: an equality. Only a key or id gives at most one node; that depends on the schema.
        columns: the stored column of each result column.
    """

    type_name: str
    condition: Expression
    columns: tuple[str, ...]


def point_pattern(read: ir.Read) -> PointPattern | None:
    """The pattern of a read; None if the read has another form."""
    block = read.match
    if len(block.nodes) != 1 or len(block.filters) != 1 or block.expands or block.optionals or block.negations:
        return None
    if read.stages or block.values or block.outer:
        return None
    if read.grouped or read.distinct or read.having or read.order or read.limit or read.offset:
        return None
    (node,), (filter_,) = block.nodes, block.filters
    condition = Expression(filter_)
    if len(node.types) != 1 or not any(not is_list for _, _, is_list in condition.equalities):
        return None
    columns = []
    for column in read.columns:
        match column.expr:
            case ir.Prop(var=var, name=name) if var == node.name:
                columns.append(name)
            case ir.Ident(var=var, role=ir.Role.ID) if var == node.name:
                columns.append("id")
            case _:
                return None
    return PointPattern(node.types[0], condition, tuple(columns))
