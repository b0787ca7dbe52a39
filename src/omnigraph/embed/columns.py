"""The vectors of a property: computed from a column of texts, or from the text of a query."""

# See docs/decisions/0046-vectors-are-computed-like-defaults.md

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.embed.cache import Tally, embed_texts
from omnigraph.embed.embedder import Embedder, Purpose, Vector, Vectors
from omnigraph.errors import EmbeddingError, EmbeddingModelError
from omnigraph.lang.arrow import arrow_type
from omnigraph.lang.schema.catalog import Property


def embed_column(
    embedder: Embedder, texts: pa.Array, target: Property, owner: str, tally: Tally | None = None
) -> pa.Array:
    """The vectors of an `@embed` property, in its Arrow type.

    Every distinct text is embedded once, and not at all where its vector is known from before. A text that is null or
    blank has no vector: null.

    Args:
        embedder: the model.
        texts: the property that `target` is computed from.
        target: the vector property.
        owner: its type, for the error.
        tally: counts, and remembers the texts of the same piece of work.

    Raises:
        EmbeddingModelError: the schema records another model for this property.
        EmbeddingError: the model cannot give these vectors.
    """
    kind = arrow_type(target.type)
    told = pc.not_equal(pc.utf8_trim_whitespace(texts), "").fill_null(False)
    if not pc.any(told).as_py():
        return pa.nulls(len(texts), kind)
    encoded = pc.if_else(told, texts, None).dictionary_encode()
    distinct = _embed(embedder, encoded.dictionary.to_pylist(), target, owner, Purpose.DOCUMENT, tally)
    if tally is not None and target.embed is not None:
        tally.models.setdefault(owner, {})[target.name] = (embedder.name, target.embed.source)
    rows = distinct[encoded.indices.fill_null(0).to_numpy()]
    flat = pa.array(rows.reshape(-1), pa.float32())
    return pa.FixedSizeListArray.from_arrays(flat, type=kind, mask=pc.invert(told))


@dataclass(frozen=True, slots=True)
class Sought:
    """A text that is searched for in a vector property.

    Attributes:
        text: the text.
        target: the property.
        owner: its type, for the error.
    """

    text: str
    target: Property
    owner: str


def embed_queries(embedder: Embedder, sought: Sequence[Sought]) -> list[Vector]:
    """The vectors of texts that are searched for, in one call of the embedder for each dimension.

    Raises:
        EmbeddingModelError: the schema records another model for one of the properties.
        EmbeddingError: a text is blank, or the model cannot give the vectors.
    """
    together: dict[int, list[Sought]] = {}
    for one in sought:
        if not one.text.strip():
            raise EmbeddingError("a blank text has no vector", subject=f"{one.owner}.{one.target.name}")
        check_model(embedder, one.target, one.owner)
        together.setdefault(_dimension(one.target), []).append(one)
    found: dict[tuple[int, str], Vector] = {}
    for dimension, some in together.items():
        texts = list(dict.fromkeys(one.text for one in some))
        vectors = _embed(embedder, texts, some[0].target, some[0].owner, Purpose.QUERY)
        found |= {(dimension, text): vector for text, vector in zip(texts, vectors, strict=True)}
    return [found[_dimension(one.target), one.text] for one in sought]


def _embed(
    embedder: Embedder,
    texts: Sequence[str],
    target: Property,
    owner: str,
    purpose: Purpose,
    tally: Tally | None = None,
) -> Vectors:
    check_model(embedder, target, owner)
    subject, dimension = f"{owner}.{target.name}", _dimension(target)
    try:
        return embed_texts(embedder, texts, dimension, purpose, tally)
    except EmbeddingError as error:
        error.subject = error.subject or subject
        raise
    except Exception as error:
        raise EmbeddingError(
            f"the embedder '{embedder.name}' failed: {type(error).__name__}: {error}", subject=subject
        ) from error


def _dimension(target: Property) -> int:
    dimension = target.type.dim
    assert dimension is not None, "an @embed property is a vector"
    return dimension


def check_model(embedder: Embedder, target: Property, owner: str) -> None:
    recorded = target.embed.model if target.embed else None
    if recorded is not None and recorded != embedder.name:
        raise EmbeddingModelError(
            f"the schema records the model '{recorded}', and '{embedder.name}' is configured",
            subject=f"{owner}.{target.name}",
            hint=f"configure '{recorded}' (OMNIGRAPH_EMBED_PROVIDER, OMNIGRAPH_EMBED_MODEL), or write the vector"
            " yourself: null for none",
        )
