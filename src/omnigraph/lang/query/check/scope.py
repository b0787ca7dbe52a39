"""Name resolution: parameters, and the variables of each block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from enum import StrEnum

from omnigraph.dataclass import dataclass
from omnigraph.errors import Span, TypeCheckError
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.query import ir
from omnigraph.lang.query.ast import ANONYMOUS
from omnigraph.lang.schema.catalog import Catalog, Property
from omnigraph.lang.types import ValueType


def fail(code: str, message: str, span: Span, hint: str | None = None) -> TypeCheckError:
    """Create a type error. The caller raises it. `check_query` adds the source text."""
    return TypeCheckError(message, span=span, diagnostic=code, hint=hint)


class VarKind(StrEnum):
    NODE = "node"
    EDGE = "edge"
    PATH = "path"


@dataclass(slots=True)
class Variable:
    """A bound variable.

    Attributes:
        types: the possible types, sorted. Later clauses can narrow them. Empty for a path.
        interfaces: the interfaces that its patterns name; they define its properties. Empty if the node type is known.
        nullable: whether an optional block binds the variable.
    """

    name: str
    kind: VarKind
    types: tuple[str, ...]
    span: Span
    interfaces: tuple[str, ...] = ()
    nullable: bool = False

    @property
    def type_label(self) -> str:
        """The types or interfaces of the variable, for error messages."""
        return " and ".join(self.interfaces or self.types)


@dataclass(slots=True)
class Context:
    """The context of checking one query: schema, parameters and names."""

    catalog: Catalog
    params: dict[str, ir.Parameter]
    used_params: set[str] = field(default_factory=set)
    hidden: dict[str, str] = field(default_factory=dict)
    """The local variables of `not`, `exists` and `count` blocks, each with the word before its block."""
    ended: set[str] = field(default_factory=set)
    """The variables and values of earlier stages that do not go on."""
    anonymous: int = 0
    block_values: int = 0

    def fresh(self, name: str) -> str:
        """The name of a variable. Each `$_` gets a unique name that cannot occur in source text."""
        if name != ANONYMOUS:
            return name
        self.anonymous += 1
        return f"_#{self.anonymous}"

    def param(self, name: str) -> ir.Param | None:
        """Find a parameter by name, and mark it as used."""
        declared = self.params.get(name)
        if declared is None:
            return None
        self.used_params.add(name)
        return ir.Param(name, declared.type)


class Scope:
    """The variables of one block. Lookups continue in the enclosing blocks."""

    __slots__ = ("context", "narrowed", "outer", "parent", "values", "vars")

    def __init__(self, context: Context, parent: Scope | None = None) -> None:
        self.context = context
        self.parent = parent
        self.vars: dict[str, Variable] = {}
        self.values: dict[str, ValueType] = {}
        """Values of an earlier stage, with their types."""
        self.narrowed: dict[str, Variable] = {}
        """Variables of enclosing blocks that a pattern of this block narrows."""
        self.outer: set[str] = set()

    def find(self, name: str) -> Variable | None:
        """Find a variable by name, in this block or an enclosing block.

        Every block between the use and the binding of the variable records it as an outer variable.
        """
        found = self.narrowed.get(name) or self.vars.get(name)
        if found is None and self.parent is not None:
            found = self.parent.find(name)
            if found is not None:
                self.outer.add(name)
        return found

    def find_value(self, name: str) -> ir.Value | None:
        """Find a value of an earlier stage by name. Like `find`, it records the value as an outer one."""
        if name in self.values:
            return ir.Value(name, self.values[name])
        found = None if self.parent is None else self.parent.find_value(name)
        if found is not None:
            self.outer.add(name)
        return found

    def visible(self) -> tuple[dict[str, Variable], dict[str, ValueType]]:
        """All variables and values of this block and the enclosing blocks."""
        variables, values = ({}, {}) if self.parent is None else self.parent.visible()
        return {**variables, **self.vars}, {**values, **self.values}

    def owns(self, variable: Variable) -> bool:
        """Whether this block binds the variable, outside of its optional blocks."""
        return self.vars.get(variable.name) is variable and not variable.nullable

    def bind(self, variable: Variable) -> Variable:
        if variable.name in self.context.params:
            raise fail(
                "T27",
                f"${variable.name} is a parameter, so it cannot be bound in 'match'",
                variable.span,
                hint="give the parameter or the variable another name",
            )
        if self._has_value(variable.name):
            raise fail(
                "T27",
                f"{variable.name} is a value of an earlier stage, so ${variable.name} cannot be bound",
                variable.span,
                hint="give the value or the variable another name",
            )
        self.vars[variable.name] = variable
        return variable

    def _has_value(self, name: str) -> bool:
        return name in self.values or (self.parent is not None and self.parent._has_value(name))

    def all_names(self) -> Iterator[str]:
        """All visible names, for suggestions: variables, then parameters."""
        scope: Scope | None = self
        while scope is not None:
            yield from (name for name in scope.vars if "#" not in name)
            scope = scope.parent
        yield from self.context.params

    def unbound(self, name: str, span: Span, code: str = "T26") -> TypeCheckError:
        hint = did_you_mean(f"${name}", (f"${known}" for known in self.all_names()))
        if self._has_value(name):
            return fail(code, f"{name} is a value, not a variable", span, hint=f"did you mean {name}, without $?")
        if name in self.context.ended:
            near = f"{hint} Or name" if hint and hint.startswith("did") else "name"
            return fail(code, f"${name} ended at 'with'", span, hint=f"{near} it in 'with', so that it goes on")
        if name in self.context.hidden:
            word = self.context.hidden[name]
            hint = f"variables of {article(word)} '{word}' block are not visible outside of the block"
        if name == ANONYMOUS:
            return fail(code, "$_ has no name that could be used again", span, hint="give the variable a name")
        return fail(code, f"nothing binds ${name}", span, hint=hint)


def article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def entity(variable: Variable) -> ir.Expr:
    """A node variable as a value: its id. If it can have several types, the type is part of the value."""
    if len(variable.types) > 1:
        return ir.Entity(variable.name, variable.nullable)
    return ir.Ident(variable.name, ir.Role.ID, variable.nullable)


def properties_of(catalog: Catalog, variable: Variable) -> dict[str, Property]:
    """The properties of a variable: those of its interfaces, or those that all its types share."""
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
    """Whether two property types are equal, apart from nullability. Enums must have the same values."""
    return left.with_nullable(False) == right.with_nullable(False)


def property_type(catalog: Catalog, variable: Variable, name: str) -> ValueType | None:
    """The type of a property. Nullable if the variable may be null, or if one of its types declares it nullable."""
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
