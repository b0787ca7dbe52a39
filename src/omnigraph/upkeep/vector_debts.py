"""Finds vectors of `@embed` properties that are missing or out of date, without a scan of the vectors.

The manifest records from which model and text property the vectors of a table were computed. A property is stale if the
schema now names another text property or model, or if its vectors are of several models. It is missing if none of its
vectors was computed and the table stores none, although texts exist. Vectors that only some rows lack are not
found: `omnigraph embed --dry-run` counts them.
"""

# See docs/decisions/0200-status-reads-no-rows.md

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import TablePin
from omnigraph.dataclass import dataclass
from omnigraph.lang.schema import Catalog
from omnigraph.lang.schema.catalog import Property
from omnigraph.lang.schema.type_key import node_key
from omnigraph.storage.table_view import TableView
from omnigraph.storage.tables import TableStorage


@dataclass(frozen=True, slots=True)
class VectorDebts:
    """The names of the vector properties of a table that `omnigraph embed` would compute.

    Attributes:
        stale: properties whose vectors were computed with other models or from another text property.
        missing: properties without any vector, although texts exist.
    """

    stale: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def vector_debts(tables: TableStorage, catalog: Catalog, pin: TablePin) -> VectorDebts:
    """The vector properties of a table that are out of date."""
    node = next((node for name, node in catalog.nodes.items() if node_key(name) == pin.key), None)
    embedded = [] if node is None else [prop for prop in node.properties.values() if prop.embed is not None]
    if not embedded or pin.row_count == 0:
        return VectorDebts()
    recorded = dict(pin.models)
    stale = [prop.name for prop in embedded if prop.name in recorded and _is_stale(prop, recorded[prop.name])]
    unknown = [prop for prop in embedded if prop.name not in recorded]
    missing = _without_vectors(tables.at(pin.ref), unknown) if unknown else []
    return VectorDebts(tuple(stale), tuple(missing))


def _is_stale(prop: Property, recorded: tuple[tuple[str, str], ...]) -> bool:
    assert prop.embed is not None
    models = {model for model, _ in recorded}
    sources = {source for _, source in recorded}
    return sources != {prop.embed.source} or len(models) > 1 or (prop.embed.model or next(iter(models))) not in models


def _without_vectors(table: TableView, properties: Iterable[Property]) -> list[str]:
    """The properties for which a table stores no vector, although it has texts."""
    sizes = table.column_bytes()
    texts: dict[str, bool] = {}
    found = []
    for prop in properties:
        assert prop.embed is not None
        assert prop.type.dim is not None
        # A stored vector has 4 bytes per dimension. A column of nulls has only a few bytes per file.
        if sizes.get(prop.name, 0) < 4 * prop.type.dim:
            source = prop.embed.source
            if source not in texts:
                texts[source] = any(_has_text(batch[source]) for batch in table.batches(columns=[source]))
            found += [prop.name] if texts[source] else []
    return found


def _has_text(texts: pa.Array) -> bool:
    return bool(pc.any(pc.not_equal(pc.utf8_trim_whitespace(texts), "")).as_py())
