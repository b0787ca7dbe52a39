"""Describes which records of a file get vectors: the spec, the seed manifest, and selectors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, cut
from omnigraph.lang.documents import Value, read_document
from omnigraph.lang.types import MAX_VECTOR_DIM

DEFAULT_OUTPUT = "build/seed.embedded.jsonl"
"""The output of a manifest that names none."""


@dataclass(frozen=True, slots=True)
class RecordType:
    """How the records of a type get their vectors.

    Attributes:
        target: the property of the vector.
        fields: the properties whose values are the text.
    """

    target: str
    fields: tuple[str, ...]

    def text(self, type_name: str, data: Mapping[str, Any]) -> str:
        r"""The text of a record: a line with its type, and a line for each field that has a value.

        Example:
            >>> RecordType("vec", ("name", "tags", "age")).text("Person", {"name": "Ann", "tags": ["a", "b"]})
            'type: Person\nname: Ann\ntags: a, b'
        """
        found = ((field, rendered(data.get(field))) for field in self.fields)
        return "\n".join([f"type: {type_name}", *(f"{field}: {value}" for field, value in found if value)])


def rendered(value: object) -> str:
    """A JSON value as text. The items of a list are joined by commas; null is empty."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list):
        return ", ".join(filter(None, map(rendered, value)))
    return orjson.dumps(value).decode()


@dataclass(frozen=True, slots=True)
class RecordSpec:
    """The vectors of a file of records.

    Attributes:
        dimension: the dimension of all vectors.
        types: the types with a vector.
        model: the model that has to compute the vectors; None for any.
    """

    dimension: int
    types: Mapping[str, RecordType]
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """A seed manifest: the files, and the spec of the vectors."""

    input: Path
    output: Path
    spec: RecordSpec


def read_spec(text: bytes, name: str) -> RecordSpec:
    """Parse a spec: `{dimension, types: {T: {target, fields: […]}}}`, in JSON or YAML.

    Raises:
        InputError: the spec is not valid.
    """
    return _spec(read_document(text, name))


def read_manifest(text: bytes, name: str, directory: Path) -> Manifest:
    """Parse a seed manifest: `{sources: {raw_seed}, artifacts: {embedded_seed}, embeddings: SPEC}`.

    Args:
        text: JSON or YAML. Other members are ignored.
        name: the name of the file, for error messages.
        directory: the directory that relative paths start from.

    Raises:
        InputError: the manifest is not valid.
    """
    top = read_document(text, name)
    members = top.members()
    raw = _member(members, "sources", "raw_seed") or _member(members, "seed", "data")
    if raw is None:
        raise top.error("the manifest names no input", "add sources: {raw_seed: FILE}")
    if "embeddings" not in members:
        raise top.error("the manifest has no 'embeddings'", "add embeddings: {dimension: N, types: {…}}")
    output = _member(members, "artifacts", "embedded_seed")
    return Manifest(
        directory / raw.text(),
        directory / (DEFAULT_OUTPUT if output is None else output.text()),
        _spec(members["embeddings"]),
    )


def _member(members: Mapping[str, Value], first: str, second: str) -> Value | None:
    return members[first].members().get(second) if first in members else None


def _spec(at: Value) -> RecordSpec:
    members = at.members(("dimension", "types", "model"))
    for name in ("dimension", "types"):
        if name not in members:
            raise at.error(f"'{name}' is missing", "a spec has a dimension and types: {T: {target, fields}}")
    dimension = members["dimension"].content
    if not isinstance(dimension, int) or isinstance(dimension, bool) or not 1 <= dimension <= MAX_VECTOR_DIM:
        raise members["dimension"].error("expected an integer of at least 1", "the dimension of the vectors")
    types = {name: _type(value) for name, value in members["types"].members().items()}
    if not types:
        raise members["types"].error("there are no types")
    model = members["model"].text() if "model" in members else None
    return RecordSpec(dimension, types, model)


def _type(at: Value) -> RecordType:
    members = at.members(("target", "fields"))
    for name in ("target", "fields"):
        if name not in members:
            raise at.error(f"'{name}' is missing", "a type has a target property and the fields of its text")
    target = members["target"].text()
    fields = tuple(field.text() for field in members["fields"].texts())
    if not fields:
        raise members["fields"].error("there are no fields")
    if target in fields:
        raise members["fields"].error(f"'{cut(target)}' is the target, so it cannot be a field of the text")
    return RecordType(target, fields)


@dataclass(frozen=True, slots=True)
class Selector:
    """Selects records by the value of a property.

    Attributes:
        type_name: the type of the records; None for all types.
        field: the property.
        value: its value, as text.
    """

    type_name: str | None
    field: str
    value: str

    @classmethod
    def parse(cls, text: str) -> Selector:
        """Parse `Type:field=value` or `field=value`.

        Example:
            >>> Selector.parse("Person:name=ann")
            Selector(type_name='Person', field='name', value='ann')

        Raises:
            InputError: the text has another form.
        """
        left, equals, value = text.partition("=")
        before, colon, after = left.partition(":")
        field = (after if colon else before).strip()
        if not equals or not field or (colon and not before.strip()):
            raise InputError(f"'{cut(text)}' selects no records", hint="write field=value or Type:field=value")
        return cls(before.strip() if colon else None, field, value.strip())

    def matches(self, type_name: str, data: Mapping[str, Any]) -> bool:
        """Whether a record has the type and the value."""
        if self.type_name not in (None, type_name) or self.field not in data:
            return False
        return rendered(data[self.field]) == self.value
