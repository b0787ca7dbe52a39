"""The steps of a schema change, with their effect on stored data."""

# See docs/decisions/0011-a-drop-is-never-safe.md

from __future__ import annotations

from dataclasses import fields
from enum import StrEnum
from typing import ClassVar

from omnigraph.dataclass import dataclass
from omnigraph.lang.schema.canonical import Json, annotation_json
from omnigraph.lang.schema.catalog import (
    Annotation,
    Cardinality,
    Check,
    Constraint,
    Default,
    Embed,
    Index,
    Key,
    Range,
    TypeKind,
    Unique,
)
from omnigraph.lang.schema.identity import property_label
from omnigraph.lang.schema.migrate.wording import (
    cardinality_source,
    constraint_source,
    default_source,
    embed_source,
)
from omnigraph.lang.schema.shape import cardinality_json, constraint_json, default_json, type_json
from omnigraph.lang.types import ValueType


class Tier(StrEnum):
    """The effect of a step on data."""

    SAFE = "safe"
    """Valid for any data, and loses no data."""
    VALIDATED = "validated"
    """The data is checked first. Rows that do not fit stop the change before it has any effect."""
    DESTRUCTIVE = "destructive"
    """Data is lost."""


class DropMode(StrEnum):
    """Whether earlier versions of the graph keep the dropped data."""

    SOFT = "soft"
    HARD = "hard"


_LEFT_OUT_WHEN_NONE = frozenset({"code", "allowed", "default", "property_name"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step.

    Attributes:
        tier: the effect on data.
        code: the diagnostic code, if there is one.
        allowed: the reason of the `@allow` for that code, if the declaration has one.
    """

    kind: ClassVar[str]

    tier: Tier = Tier.SAFE
    code: str | None = None
    allowed: str | None = None

    def describe(self) -> str:
        """The step as a phrase, without its diagnostic code and its tier (safe, validated or destructive)."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Json]:
        """The step as JSON with a `kind`. Tier and code come last."""
        members: dict[str, Json] = {"kind": self.kind}
        common: dict[str, Json] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name in _LEFT_OUT_WHEN_NONE:
                continue
            (common if field.kw_only else members)[field.name.rstrip("_")] = _json(value)
        return members | common

    def line(self) -> str:
        """The step on one line, with code and tier."""
        marks = f"[{self.code}, {self.tier.value}]" if self.code else f"[{self.tier.value}]"
        reason = f" (allowed: {self.allowed})" if self.allowed else ""
        return f"{self.describe()} {marks}{reason}"


def _json(value: object) -> Json:
    match value:
        case StrEnum():
            return value.value
        case ValueType():
            return type_json(value)
        case Key() | Unique() | Index() | Range() | Check():
            return constraint_json(value)
        case Annotation():
            return annotation_json(value)
        case Cardinality():
            return cardinality_json(value)
        case Default():
            return default_json(value)["default"]
        case Embed():
            return {"source": value.source, "model": value.model}
        case tuple():
            return [_json(item) for item in value]
        case None | bool() | int() | float() | str():
            return value
    raise TypeError(type(value).__name__)


# ---- types ----


@dataclass(frozen=True, slots=True)
class AddType(Step):
    kind: ClassVar[str] = "add_type"

    type_kind: TypeKind
    name: str

    def describe(self) -> str:
        return f"add {self.type_kind.value} '{self.name}'"


@dataclass(frozen=True, slots=True)
class RenameType(Step):
    kind: ClassVar[str] = "rename_type"

    type_kind: TypeKind
    from_: str
    to: str

    def describe(self) -> str:
        return f"rename {self.type_kind.value} '{self.from_}' to '{self.to}'"


@dataclass(frozen=True, slots=True)
class DropType(Step):
    kind: ClassVar[str] = "drop_type"

    type_kind: TypeKind
    name: str
    mode: DropMode

    def describe(self) -> str:
        return f"drop {self.type_kind.value} '{self.name}' ({self.mode.value})"


@dataclass(frozen=True, slots=True)
class UpdateTypeMetadata(Step):
    kind: ClassVar[str] = "update_type_metadata"

    type_kind: TypeKind
    name: str
    annotations: tuple[Annotation, ...]

    def describe(self) -> str:
        return f"change the annotations of {self.type_kind.value} '{self.name}'"


@dataclass(frozen=True, slots=True)
class ChangeImplements(Step):
    kind: ClassVar[str] = "change_implements"

    type_kind: TypeKind
    type_name: str
    added: tuple[str, ...]
    removed: tuple[str, ...]

    def describe(self) -> str:
        changes = [f"implements {name}" for name in self.added]
        changes += [f"no longer implements {name}" for name in self.removed]
        return f"{self.type_kind.value} '{self.type_name}' {', '.join(changes)}"


@dataclass(frozen=True, slots=True)
class ChangeCardinality(Step):
    """A change of `@card` (`side` is `src`) or `@card_in` (`side` is `dst`)."""

    kind: ClassVar[str] = "change_cardinality"

    type_kind: TypeKind
    type_name: str
    side: str
    from_: Cardinality
    to: Cardinality

    def describe(self) -> str:
        word = "@card" if self.side == "src" else "@card_in"
        old, new = cardinality_source(self.from_), cardinality_source(self.to)
        return f"change {word} of edge '{self.type_name}' from {old} to {new}"


# ---- properties ----


@dataclass(frozen=True, slots=True)
class PropertyStep(Step):
    type_kind: TypeKind
    type_name: str
    property_name: str

    @property
    def where(self) -> str:
        return property_label((self.type_kind, self.type_name), self.property_name)


@dataclass(frozen=True, slots=True)
class AddProperty(PropertyStep):
    kind: ClassVar[str] = "add_property"

    property_type: ValueType
    default: Default | None = None

    def describe(self) -> str:
        filled = f", existing rows get {default_source(self.default)}" if self.default else ""
        return f"add {self.where}: {self.property_type}{filled}"


@dataclass(frozen=True, slots=True)
class RenameProperty(Step):
    kind: ClassVar[str] = "rename_property"

    type_kind: TypeKind
    type_name: str
    from_: str
    to: str

    def describe(self) -> str:
        return f"rename {property_label((self.type_kind, self.type_name), self.from_)} to '{self.to}'"


@dataclass(frozen=True, slots=True)
class DropProperty(PropertyStep):
    kind: ClassVar[str] = "drop_property"

    mode: DropMode

    def describe(self) -> str:
        return f"drop {self.where} ({self.mode.value})"


@dataclass(frozen=True, slots=True)
class ExtendEnum(PropertyStep):
    kind: ClassVar[str] = "extend_enum"

    added_values: tuple[str, ...]

    def describe(self) -> str:
        return f"add to the values of {self.where}: {', '.join(self.added_values)}"


@dataclass(frozen=True, slots=True)
class NarrowEnum(PropertyStep):
    kind: ClassVar[str] = "narrow_enum"

    removed_values: tuple[str, ...]

    def describe(self) -> str:
        return f"remove from the values of {self.where}: {', '.join(self.removed_values)}"


@dataclass(frozen=True, slots=True)
class RenameEnumValue(PropertyStep):
    kind: ClassVar[str] = "rename_enum_value"

    from_: str
    to: str

    def describe(self) -> str:
        return f"rename the value '{self.from_}' of {self.where} to '{self.to}'"


@dataclass(frozen=True, slots=True)
class ChangeNullability(PropertyStep):
    kind: ClassVar[str] = "change_nullability"

    nullable: bool

    def describe(self) -> str:
        return f"{self.where} becomes {'nullable' if self.nullable else 'required'}"


@dataclass(frozen=True, slots=True)
class WidenProperty(PropertyStep):
    kind: ClassVar[str] = "widen_property"

    from_: ValueType
    to: ValueType

    def describe(self) -> str:
        return f"widen {self.where} from {self.from_} to {self.to}"


@dataclass(frozen=True, slots=True)
class ChangePropertyType(PropertyStep):
    kind: ClassVar[str] = "change_property_type"

    from_: ValueType
    to: ValueType

    def describe(self) -> str:
        return f"change {self.where} from {self.from_} to {self.to}"


@dataclass(frozen=True, slots=True)
class ChangeDefault(PropertyStep):
    kind: ClassVar[str] = "change_default"

    from_: Default | None
    to: Default | None

    def describe(self) -> str:
        return f"change the default of {self.where} from {default_source(self.from_)} to {default_source(self.to)}"


@dataclass(frozen=True, slots=True)
class ChangeEmbed(PropertyStep):
    kind: ClassVar[str] = "change_embed"

    from_: Embed | None
    to: Embed | None

    def describe(self) -> str:
        return f"change @embed of {self.where} from {embed_source(self.from_)} to {embed_source(self.to)}"


@dataclass(frozen=True, slots=True)
class ChangePropertyOrigin(PropertyStep):
    """A property is declared by the node type and was inherited before, or the reverse; or its interfaces change."""

    kind: ClassVar[str] = "change_property_origin"

    declared_directly: bool
    interfaces: tuple[str, ...]

    def describe(self) -> str:
        how = "is declared by the type" if self.declared_directly else "comes from an interface"
        contracts = f", implements {', '.join(self.interfaces)}" if self.interfaces else ""
        return f"{self.where} {how}{contracts}"


@dataclass(frozen=True, slots=True)
class UpdatePropertyMetadata(PropertyStep):
    kind: ClassVar[str] = "update_property_metadata"

    annotations: tuple[Annotation, ...]

    def describe(self) -> str:
        return f"change the annotations of {self.where}"


# ---- constraints ----


@dataclass(frozen=True, slots=True)
class ConstraintStep(Step):
    type_kind: TypeKind
    type_name: str

    @property
    def where(self) -> str:
        return f"{self.type_kind.value} '{self.type_name}'"


@dataclass(frozen=True, slots=True)
class AddConstraint(ConstraintStep):
    kind: ClassVar[str] = "add_constraint"

    constraint: Constraint

    def describe(self) -> str:
        return f"add {constraint_source(self.constraint)} to {self.where}"


@dataclass(frozen=True, slots=True)
class RemoveConstraint(ConstraintStep):
    kind: ClassVar[str] = "remove_constraint"

    constraint: Constraint

    def describe(self) -> str:
        return f"remove {constraint_source(self.constraint)} from {self.where}"


@dataclass(frozen=True, slots=True)
class ChangeConstraint(ConstraintStep):
    kind: ClassVar[str] = "change_constraint"

    from_: Constraint
    to: Constraint

    def describe(self) -> str:
        return f"change {constraint_source(self.from_)} of {self.where} to {constraint_source(self.to)}"


@dataclass(frozen=True, slots=True)
class ChangeConstraintForm(ConstraintStep):
    """A constraint becomes an annotation of its property (`form` is `property`) or a line of the body (`body`)."""

    kind: ClassVar[str] = "change_constraint_form"

    constraint: Constraint
    form: str

    def describe(self) -> str:
        where = "as an annotation of its property" if self.form == "property" else "as a line of the body"
        return f"write {constraint_source(self.constraint)} of {self.where} {where}"


# ---- refusals ----


@dataclass(frozen=True, slots=True)
class UnsupportedChange(Step):
    """A change that cannot be made in place. `hint` describes the alternative."""

    kind: ClassVar[str] = "unsupported_change"

    entity: str
    reason: str
    hint: str
    property_name: str | None = None

    def describe(self) -> str:
        return f"refused: {self.reason}"
