"""Read constraints from body lines and property annotations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import field

from omnigraph.dataclass import dataclass
from omnigraph.errors import Span
from omnigraph.lang.schema import ast
from omnigraph.lang.schema.ast import LiteralKind
from omnigraph.lang.schema.catalog import Check, Constraint, Index, IndexKind, Key, Property, Range, Unique
from omnigraph.lang.schema.indexes import built_kind, read_index
from omnigraph.lang.schema.owner import ENDPOINTS, Owner
from omnigraph.lang.schema.pattern_hints import pattern_hint
from omnigraph.lang.schema.problems import Problems
from omnigraph.lang.schema.regex import misread_construct, pattern_error
from omnigraph.lang.types import Scalar, ValueType

MAX_CARDINALITY = 2**32 - 1

_INTEGER_BOUNDS = (-(2**63), 2**64 - 1)
"""The smallest and the largest value of all integer types."""

_ENDPOINT_TYPE = ValueType(Scalar.STRING)


@dataclass(slots=True)
class TypeConstraints:
    """Collects the constraints of one type."""

    problems: Problems
    owner: Owner
    properties: Mapping[str, Property]
    found: list[Constraint] = field(default_factory=list)
    _names: tuple[str, ...] = ()
    _key_at: Span | None = None
    _indexes: dict[tuple[tuple[str, ...], IndexKind | None], Index] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._names = (*self.properties, *(ENDPOINTS if self.owner.is_edge else ()))

    @property
    def key(self) -> tuple[str, ...]:
        """The fields of the key; empty if there is no key."""
        return next((c.fields for c in self.found if isinstance(c, Key)), ())

    def add_form(self, owner: Owner, target: Property, form: ast.Annotation) -> None:
        """Add `@key`, `@unique` or `@index` of a property, as if the body had the line `@key(name)`."""
        name = ast.Name(target.name, form.span)
        if form.name == "index" and target.type.list:
            self._report_member("OG-SC-019", owner, name, "@index", target.type, "lists have no index")
            return
        match form.name:
            case "key":
                self._add_key((name,), form.span, owner)
            case "unique":
                self._add_unique((name,), owner)
            case "index":
                self._add_index(ast.IndexConstraint((name,), span=form.span), owner)

    def add(self, written: ast.Constraint) -> None:
        """Add a constraint of the body."""
        match written:
            case ast.KeyConstraint(fields):
                self._add_key(fields, written.span, self.owner)
            case ast.UniqueConstraint(fields):
                self._add_unique(fields, self.owner)
            case ast.IndexConstraint():
                self._add_index(written, self.owner)
            case ast.RangeConstraint():
                self._add_range(written)
            case ast.CheckConstraint():
                self._add_check(written)

    # ---- one method for each kind ----

    def _add_key(self, names: tuple[ast.Name, ...], span: Span, owner: Owner) -> None:
        if self._key_at is not None:
            hint = "a key over several properties is one line: @key(a, b)"
            self.problems.report("OG-SC-016", f"{owner} has more than one key", span, hint=hint)
            return
        self._key_at = span
        good = True
        for name, type_ in self._members("@key", names):
            if type_.nullable or not type_.is_plain_scalar:
                hint = "remove the '?'" if type_.nullable and type_.is_plain_scalar else _SCALARS_ONLY
                good = self._report_member("OG-SC-017", owner, name, "@key", type_, hint)
        fields = _field_set(names)
        if self.owner.is_edge and not set(ENDPOINTS) <= set(fields):
            hint = "write @key(src, dst), with further properties after them"
            self.problems.report("OG-SC-029", f"the key of {owner} does not name both ends", span, hint=hint)
            good = False
        if good and self._all_known(fields):
            self.found.append(Key(fields))

    def _add_unique(self, names: tuple[ast.Name, ...], owner: Owner) -> None:
        good = True
        for name, type_ in self._members("@unique", names):
            if not type_.is_plain_scalar:
                good = self._report_member("OG-SC-018", owner, name, "@unique", type_, _SCALARS_ONLY)
        fields = _field_set(names)
        if good and self._all_known(fields):
            self.found.append(Unique(fields))

    def _add_index(self, written: ast.IndexConstraint, owner: Owner) -> None:
        types = {name.text: type_ for name, type_ in self._members("@index", written.fields)}
        if len(types) != len(_field_set(written.fields)):
            return
        for name in written.fields:
            if types[name.text].scalar is Scalar.BLOB:
                self._report_member("OG-SC-019", owner, name, "@index", types[name.text], "blobs have no index")
                return
        index = read_index(self.problems, written, types)
        if index is None:
            return
        if self._contradicts(index, types):
            self.problems.report(
                "OG-SC-020",
                f"{owner} declares this index twice, with different options",
                written.span,
                hint="keep one of them",
            )
            return
        self.found.append(index)

    def _contradicts(self, index: Index, types: Mapping[str, ValueType]) -> bool:
        """Whether an earlier line declares the same index with other options. False for an `@index` without options."""
        if index == Index(index.fields):
            return False
        kind = built_kind(index.kind, types[index.fields[0]])
        known = self._indexes.setdefault((index.fields, kind), index)
        return known.options != index.options

    def _add_range(self, written: ast.RangeConstraint) -> None:
        for name, type_ in self._members("@range", (written.property,), endpoints=False):
            if type_.list or not type_.scalar.is_numeric:
                self._report_member("OG-SC-021", self.owner, name, "@range", type_, "@range is for single numbers")
                return
            least, most = self._bound(written.min), self._bound(written.max)
            if least is not None and most is not None and least > most:
                self.problems.report(
                    "OG-SC-022",
                    f"the lower bound {least} is above the upper bound {most}",
                    written.span,
                    hint=f"write {most}..{least}",
                )
                return
            self.found.append(Range(name.text, least, most))

    def _bound(self, literal: ast.Literal | None) -> int | float | None:
        if literal is None:
            return None
        value = int(literal.text) if literal.kind is LiteralKind.INT else float(literal.text)
        least, most = _INTEGER_BOUNDS
        fits = least <= value <= most if isinstance(value, int) else math.isfinite(value)
        if fits:
            return value
        self.problems.report(
            "OG-SC-022", "this bound is outside of the range of all number types", literal.span, hint="leave it out"
        )
        return None

    def _add_check(self, written: ast.CheckConstraint) -> None:
        for name, type_ in self._members("@check", (written.property,), endpoints=False):
            if type_.list or type_.scalar is not Scalar.STRING:
                self._report_member("OG-SC-023", self.owner, name, "@check", type_, "@check is for single Strings")
                return
            reason = pattern_error(written.pattern.text)
            if reason is not None:
                if misread_construct(written.pattern.text) == reason:
                    self.problems.report(
                        "OG-SC-032", f"RE2 interprets this pattern differently: {reason}", written.pattern.span
                    )
                else:
                    message = f"this is not an RE2 pattern: {reason}"
                    hint = pattern_hint(reason)
                    self.problems.report("OG-SC-024", message, written.pattern.span, hint=hint)
                    return
            self.found.append(Check(name.text, written.pattern.text))

    # ---- members ----

    def _members(
        self, what: str, names: tuple[ast.Name, ...], *, endpoints: bool = True
    ) -> Iterator[tuple[ast.Name, ValueType]]:
        """The existing properties of a constraint with their types. Unknown names are reported."""
        for name in names:
            type_ = self._type_of(name.text, endpoints)
            if type_ is not None:
                yield name, type_
                continue
            message = f"{self.owner}: {what} names '{name.text}', which is not a property"
            hint = f"{what} is for properties, not for the ends" if name.text in ENDPOINTS else None
            unknown = None if hint and self.owner.is_edge else (name.text, self._names)
            self.problems.report("OG-SC-015", message, name.span, unknown=unknown, hint=hint)

    def _type_of(self, name: str, endpoints: bool = True) -> ValueType | None:
        if self.owner.is_edge and name in ENDPOINTS:
            return _ENDPOINT_TYPE if endpoints else None
        found = self.properties.get(name)
        return found.type if found else None

    def _all_known(self, fields: tuple[str, ...]) -> bool:
        return all(self._type_of(name) is not None for name in fields)

    def _report_member(self, code: str, owner: Owner, name: ast.Name, what: str, type_: ValueType, hint: str) -> bool:
        message = f"{owner}: {what} does not apply to '{name.text}', which is {type_}"
        self.problems.report(code, message, name.span, hint=hint)
        return False


_SCALARS_ONLY = "only single values can be compared: no list, Vector or Blob"


def _field_set(names: tuple[ast.Name, ...]) -> tuple[str, ...]:
    return tuple(sorted({name.text for name in names}))
