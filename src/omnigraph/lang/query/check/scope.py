"""What a query's names mean: parameters, and variables by block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from omnigraph.errors import Span, TypeCheckError
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.query import ir
from omnigraph.lang.query.ast import ANONYMOUS
from omnigraph.lang.schema.catalog import Catalog, Property
from omnigraph.lang.types import ValueType


def fail(code: str, message: str, span: Span, hint: str | None = None) -> TypeCheckError:
    """A static error. The caller raises it; the source is attached where the query is checked."""
    return TypeCheckError(message, span=span, diagnostic=code, hint=hint)


class VarKind(StrEnum):
    NODE = "node"
    EDGE = "edge"
    PATH = "path"


@dataclass(slots=True)
class Variable:
    """A bound variable.

    Attributes:
        types: the declared types that it ranges over, sorted. Narrowed as clauses say more; empty for a path.
        interfaces: the interfaces that it was declared with, whose properties it has; none once its node type is.
        nullable: whether it comes from an optional block.
    """

    name: str
    kind: VarKind
    types: tuple[str, ...]
    span: Span
    interfaces: tuple[str, ...] = ()
    nullable: bool = False

    @property
    def what(self) -> str:
        """Whose properties it has, as an error names it."""
        return " and ".join(self.interfaces or self.types)


@dataclass(slots=True)
class Context:
    """What one query is checked against."""

    catalog: Catalog
    params: dict[str, ir.Parameter]
    used_params: set[str] = field(default_factory=set)
    hidden: set[str] = field(default_factory=set)
    """The variables that are local to a `not` block."""
    anonymous: int = 0

    def fresh(self, name: str) -> str:
        """The variable's name; each `$_` gets one of its own that no text can spell."""
        if name != ANONYMOUS:
            return name
        self.anonymous += 1
        return f"_#{self.anonymous}"

    def param(self, name: str) -> ir.Param | None:
        """The parameter of this name, which counts as used from now on."""
        declared = self.params.get(name)
        if declared is None:
            return None
        self.used_params.add(name)
        return ir.Param(name, declared.type)


class Scope:
    """The variables of one block. A name that is not bound here is looked up outside."""

    __slots__ = ("context", "narrowed", "outer", "parent", "vars")

    def __init__(self, context: Context, parent: Scope | None = None) -> None:
        self.context = context
        self.parent = parent
        self.vars: dict[str, Variable] = {}
        self.narrowed: dict[str, Variable] = {}
        """Variables of enclosing blocks of which a pattern here says more."""
        self.outer: set[str] = set()

    def find(self, name: str) -> Variable | None:
        """The variable of this name. One from outside is noted as such, in every block between."""
        found = self.narrowed.get(name) or self.vars.get(name)
        if found is None and self.parent is not None:
            found = self.parent.find(name)
            if found is not None:
                self.outer.add(name)
        return found

    def owns(self, variable: Variable) -> bool:
        """Whether the variable was introduced in this block, and is not optional here."""
        return self.vars.get(variable.name) is variable and not variable.nullable

    def bind(self, variable: Variable) -> Variable:
        if variable.name in self.context.params:
            raise fail(
                "T27",
                f"${variable.name} is a parameter, so it cannot be bound in 'match'",
                variable.span,
                hint="give the parameter or the variable another name",
            )
        self.vars[variable.name] = variable
        return variable

    def all_names(self) -> Iterator[str]:
        """Every name that could have been meant here: variables, then parameters."""
        scope: Scope | None = self
        while scope is not None:
            yield from (name for name in scope.vars if "#" not in name)
            scope = scope.parent
        yield from self.context.params

    def unbound(self, name: str, span: Span, code: str = "T26") -> TypeCheckError:
        hint = did_you_mean(f"${name}", (f"${known}" for known in self.all_names()))
        if name in self.context.hidden:
            hint = "a 'not' block binds it, and what is bound there cannot be seen outside"
        if name == ANONYMOUS:
            return fail(code, "$_ has no name that could be used again", span, hint="give the variable a name")
        return fail(code, f"nothing binds ${name}", span, hint=hint)


def entity(variable: Variable) -> ir.Expr:
    """A node variable as a value: its id. Where it may be of several types, the type is part of what it is."""
    if len(variable.types) > 1:
        return ir.Entity(variable.name, variable.nullable)
    return ir.Ident(variable.name, ir.Role.ID, variable.nullable)


def properties_of(catalog: Catalog, variable: Variable) -> dict[str, Property]:
    """The properties that a variable has: those of its interfaces, or those that all of its types share."""
    if variable.interfaces:
        return {n: prop for name in variable.interfaces for n, prop in catalog.interfaces[name].properties.items()}
    declared = catalog.edges if variable.kind is VarKind.EDGE else catalog.nodes
    first, *others = (declared[name].properties for name in variable.types)
    if not others:
        return dict(first)
    return {
        name: prop
        for name, prop in first.items()
        if all(name in other and _same(other[name].type, prop.type) for other in others)
    }


def _same(left: ValueType, right: ValueType) -> bool:
    """Whether two types are one for a reader: nullability does not matter, the set of an enum does."""
    return left.with_nullable(False) == right.with_nullable(False)


def property_type(catalog: Catalog, variable: Variable, name: str) -> ValueType | None:
    """The type of a property of a variable, nullable as soon as one of its types or the variable is."""
    declared = catalog.edges if variable.kind is VarKind.EDGE else catalog.nodes
    if len(variable.types) == 1 and not variable.interfaces:
        prop = declared[variable.types[0]].properties.get(name)
        if prop is None:
            return None
        return prop.type.with_nullable(True) if variable.nullable else prop.type
    prop = properties_of(catalog, variable).get(name)
    if prop is None:
        return None
    nullable = prop.type.nullable or any(declared[t].properties[name].type.nullable for t in variable.types)
    return prop.type.with_nullable(nullable or variable.nullable)
