"""Imports RDF: Turtle, N-Triples, and the other formats that rdflib parses.

`rdf:type` becomes the node type, a literal a property, and a triple with another resource an edge. All triples are in
memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, cut
from omnigraph.importers.staged_types import StagedTypes
from omnigraph.inference.names import property_name, tokens
from omnigraph.lang.schema import TypeKind
from omnigraph.lang.types import INTEGER_RANGES, Scalar, ValueType
from omnigraph.write.input.formats import COMPRESSIONS, RowFile
from omnigraph.write.rows.convert import convert
from omnigraph.write.rows.values import Fault, column

if TYPE_CHECKING:
    import rdflib

FORMATS = {".ttl": "turtle", ".nt": "nt", ".n3": "n3", ".rdf": "xml", ".owl": "xml", ".jsonld": "json-ld"}
_KEY = "iri"
_OTHER_TYPES = "types"
_UNTYPED = "Resource"
_XSD = "http://www.w3.org/2001/XMLSchema#"
_GENERAL = ("http://www.w3.org/2002/07/owl#NamedIndividual", "http://www.w3.org/2000/01/rdf-schema#Resource")
"""Types that nearly all resources have."""

_SCALARS = {
    **dict.fromkeys(
        (
            *("integer", "int", "long", "short", "byte", "nonNegativeInteger", "positiveInteger", "unsignedInt"),
            *("unsignedShort", "unsignedByte", "negativeInteger", "nonPositiveInteger", "unsignedLong"),
        ),
        Scalar.I64,
    ),
    **dict.fromkeys(("decimal", "double", "float"), Scalar.F64),
    "boolean": Scalar.BOOL,
    "date": Scalar.DATE,
    "dateTime": Scalar.DATETIME,
    "dateTimeStamp": Scalar.DATETIME,
}


@dataclass(frozen=True, slots=True)
class RdfFile:
    """A file of triples, as the bytes of a `RowFile` and the name of its format."""

    file: RowFile
    format: str


def import_rdf(files: Sequence[RdfFile], staged: StagedTypes) -> None:
    """Convert triples.

    Args:
        files: the files.
        staged: takes the types and rows.

    Raises:
        InputError: rdflib is not installed, or a file cannot be parsed.
    """
    try:
        import rdflib
    except ModuleNotFoundError:
        raise InputError("rdflib is not installed", hint="pip install 'omnigraph[rdf]'") from None
    triples = rdflib.Graph()
    for each in files:
        try:
            triples.parse(data=b"".join(each.file.chunks()), format=each.format)
        except Exception as error:  # the parsers raise errors of many classes
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise InputError(f"{each.file.input.name} cannot be read as {each.format}: {cut(lines[0])}") from None
    if len(triples) == 0:
        raise InputError("there are no triples")
    _Import(triples, staged).run()


class _Import:
    def __init__(self, triples: rdflib.Graph, staged: StagedTypes) -> None:
        import rdflib

        self._triples = triples
        self._staged = staged
        self._literal = rdflib.Literal
        self._type = rdflib.RDF.type
        self._types: dict[str, list[str]] = {}
        self._names: dict[str, str] = {}

    def run(self) -> None:
        self._find_types()
        by_type: dict[str, dict[str, dict[str, list[Any]]]] = {}
        edges: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
        for iri, types in self._types.items():
            by_type.setdefault(self._name(types[0]), {}).setdefault(iri, {})
        for subject, predicate, value in sorted(self._triples, key=lambda triple: tuple(map(_sortable, triple))):
            if predicate == self._type:
                continue
            one = self._type_of(subject)
            if isinstance(value, self._literal):
                label = f"{predicate}@{value.language}" if value.language else str(predicate)
                by_type[one][_id(subject)].setdefault(label, []).append(value)
            else:
                edges.setdefault((str(predicate), one, self._type_of(value)), []).append((_id(subject), _id(value)))
        for name in sorted(by_type):
            self._nodes(name, by_type[name])
        self._edges(edges)

    def _find_types(self) -> None:
        """The types of all resources, the most common first. Resources that occur only as objects may have none."""
        found: dict[str, set[str]] = {}
        for subject, predicate, value in self._triples:
            found.setdefault(_id(subject), set())
            if predicate == self._type:
                found[_id(subject)].add(_id(value))
            elif not isinstance(value, self._literal):
                found.setdefault(_id(value), set())
        counts = Counter(name for types in found.values() for name in types)
        for iri, all_types in sorted(found.items()):
            special = (all_types - set(_GENERAL)) or all_types
            self._types[iri] = sorted(special, key=lambda name: (-counts[name], name)) or [_UNTYPED]

    def _type_of(self, resource: Any) -> str:
        return self._name(self._types[_id(resource)][0])

    def _name(self, iri: str) -> str:
        """The name of a node type: the last part of its address."""
        return _unique(self._names, iri, "".join(word[0].upper() + word[1:] for word in _words(iri)))

    def _nodes(self, name: str, resources: dict[str, dict[str, list[Any]]]) -> None:
        type_ = self._staged.type(TypeKind.NODE, name, origin="resources")
        type_.key = _KEY
        type_.properties[_KEY] = ValueType(Scalar.STRING)
        ids = list(resources)
        columns: dict[str, pa.Array] = {_KEY: pa.array(ids, pa.utf8())}
        several = [self._types[iri] if len(self._types[iri]) > 1 else None for iri in ids]
        if any(several):
            type_.properties[_OTHER_TYPES] = ValueType(Scalar.STRING, nullable=True, list=True)
            columns[_OTHER_TYPES] = pa.array(several, pa.list_(pa.utf8()))
        for label in sorted({label for values in resources.values() for label in values}):
            prop = property_name(_property_label(label), columns, ("id",))
            lists = [values.get(label) for values in resources.values()]
            kind, values = _column(lists)
            type_.properties[prop] = kind
            columns[prop] = values
        self._staged.write(type_, columns)

    def _edges(self, edges: dict[tuple[str, str, str], list[tuple[str, str]]]) -> None:
        pairs: dict[str, int] = {}
        for predicate, _, _ in edges:
            pairs[predicate] = pairs.get(predicate, 0) + 1
        names: dict[str, str] = {}
        for (predicate, one, other), ends in sorted(edges.items()):
            name = "".join(word[0].upper() + word[1:] for word in _words(predicate))
            if pairs[predicate] > 1:
                name = f"{name}{one}{other}"
            name = _unique(names, f"{predicate} {one} {other}", name)
            type_ = self._staged.type(TypeKind.EDGE, name, origin=f"<{predicate}>")
            type_.ends, type_.unique = (one, other), True  # triples are a set
            starts, stops = zip(*ends, strict=True)
            self._staged.write(type_, {"from": pa.array(starts, pa.utf8()), "to": pa.array(stops, pa.utf8())})


def _id(resource: Any) -> str:
    """The id of a resource: its address, or `_:` and its name if it is a blank node."""
    return str(resource.n3()) if resource.n3().startswith("_:") else str(resource)


def _sortable(term: Any) -> tuple[str, str, str]:
    return str(term), str(getattr(term, "datatype", "") or ""), str(getattr(term, "language", "") or "")


def _words(iri: str) -> list[str]:
    """The words of the last part of an address: `http://xmlns.com/foaf/0.1/Person` gives `Person`."""
    last = iri.rstrip("/#").replace("#", "/").rpartition("/")[2].rpartition(":")[2]
    found = tokens(last)
    return found if found and found[0][0].isalpha() else ["t", *found]


def _property_label(label: str) -> str:
    iri, _, language = label.partition("@") if "@" in label.rpartition("/")[2] else (label, "", "")
    first, *rest = _words(iri)
    name = first + "".join(word[0].upper() + word[1:] for word in rest)
    return f"{name}_{language}" if language else name


def _unique(names: dict[str, str], iri: str, name: str) -> str:
    """A name for an address: the same for the same address, and different from those of others."""
    if iri not in names:
        taken = {each.lower() for each in names.values()}
        found, number = name, 2
        while found.lower() in taken:
            found, number = f"{name}{number}", number + 1
        names[iri] = found
    return names[iri]


def _column(lists: list[list[Any] | None]) -> tuple[ValueType, pa.Array]:
    """The values of a property, and their type: a list if a resource has several values; a text if the types differ."""
    values = [value for each in lists if each is not None for value in each]
    many = any(each is not None and len(each) > 1 for each in lists)
    found = {_scalar(value) for value in values}
    scalar = found.pop() if len(found) == 1 else Scalar.F64 if found == {Scalar.I64, Scalar.F64} else Scalar.STRING
    read = _readers()[scalar]
    kind = ValueType(scalar, nullable=True, list=many)
    plain = [None if each is None else [read(value) for value in each] for each in lists]
    rows = plain if many else [None if each is None else each[0] for each in plain]
    failed: list[str] = []

    def refuse(row: int, message: str, fault: Fault) -> None:
        failed.append(message)

    def report(wrong: pa.Array, message: str, fault: Fault = Fault.VALUE, /) -> None:
        if any(wrong.to_pylist()):
            failed.append(message)

    array = convert(column(rows, kind, refuse), kind, report)
    if not failed:
        return kind, array
    text = ValueType(Scalar.STRING, nullable=True, list=many)
    shown: list[Any] = [None if each is None else [str(value) for value in each] for each in lists]
    return text, pa.array(shown if many else [None if each is None else each[0] for each in shown])


def _scalar(value: Any) -> Scalar:
    """The type of a literal. One whose text is no value of its type is a text."""
    datatype = str(value.datatype or "")
    scalar = _SCALARS.get(datatype.removeprefix(_XSD)) if datatype.startswith(_XSD) else None
    python = value.value
    if scalar is None or python is None:
        return Scalar.STRING
    if scalar is Scalar.I64:
        low, high = INTEGER_RANGES[Scalar.I64]
        return Scalar.I64 if isinstance(python, int) and low <= python <= high else Scalar.STRING
    if scalar is Scalar.F64:
        finite = isinstance(python, int | float | Decimal) and abs(float(python)) < float("inf")
        return Scalar.F64 if finite else Scalar.STRING
    return scalar


def _readers() -> dict[Scalar, Callable[[Any], Any]]:
    return {
        Scalar.I64: lambda value: int(value.value),
        Scalar.F64: lambda value: float(value.value),
        Scalar.BOOL: lambda value: bool(value.value),
        Scalar.DATE: str,
        Scalar.DATETIME: str,
        Scalar.STRING: str,
    }


def rdf_formats(files: Iterable[RowFile], format: str | None) -> list[RdfFile]:
    """The formats of files: the given one, or by their names.

    Raises:
        InputError: the name of a file does not give its format.
    """
    found = []
    for file in files:
        name = file.input.name
        for ending in COMPRESSIONS:
            name = name.removesuffix(ending)
        chosen = format or FORMATS.get(f".{name.rpartition('.')[2].lower()}")
        if chosen is None:
            raise InputError(
                f"{file.input.name}: the name does not give the format",
                hint=f"use one of {', '.join(FORMATS)}, or --format turtle",
            )
        found.append(RdfFile(file, chosen))
    return found
