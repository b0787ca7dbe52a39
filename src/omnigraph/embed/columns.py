"""Vectors of `@embed` properties, and vectors of the texts in `nearest`."""

# See docs/decisions/0046-vectors-are-computed-like-defaults.md

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.embed.cache import Tally, embed_texts
from omnigraph.embed.embedder import Embedder, Purpose, Vector, Vectors
from omnigraph.errors import EmbeddingError, EmbeddingModelError
from omnigraph.lang.arrow import arrow_type
from omnigraph.lang.schema.catalog import Property


def embed_column(
    embedder: Embedder, texts: pa.Array, target: Property, owner: str, tally: Tally | None = None
) -> pa.Array:
    """Compute the vectors of an `@embed` property, in its Arrow type.

    Each distinct text is embedded once, or taken from the cache. The vector of a null or blank text is null.

    Args:
        embedder: computes the vectors.
        texts: the values of the source property.
        target: the vector property.
        owner: the name of the type, for error messages.
        tally: the counts and the memory cache of the operation.

    Raises:
        EmbeddingModelError: the schema records another model for this property.
        EmbeddingError: the model cannot compute the vectors.
    """
    kind = arrow_type(target.type)
    not_blank = pc.not_equal(pc.utf8_trim_whitespace(texts), "").fill_null(False)
    if not pc.any(not_blank).as_py():
        return pa.nulls(len(texts), kind)
    encoded = pc.if_else(not_blank, texts, None).dictionary_encode()
    distinct = _embed(embedder, encoded.dictionary.to_pylist(), target, owner, Purpose.DOCUMENT, tally)
    if tally is not None and target.embed is not None:
        tally.models.setdefault(owner, {})[target.name] = (embedder.name, target.embed.source)
    rows = distinct[encoded.indices.fill_null(0).to_numpy()]
    flat = pa.array(rows.reshape(-1), pa.float32())
    return pa.FixedSizeListArray.from_arrays(flat, type=kind, mask=pc.invert(not_blank))


@dataclass(frozen=True, slots=True)
class SearchText:
    """A text to search for in a vector property.

    Attributes:
        text: the text.
        target: the vector property.
        owner: the name of the type, for error messages.
    """

    text: str
    target: Property
    owner: str


def embed_queries(embedder: Embedder, sought: Sequence[SearchText]) -> list[Vector]:
    """Compute the vectors of search texts, with one call of the embedder per dimension.

    Raises:
        EmbeddingModelError: the schema records another model for one of the properties.
        EmbeddingError: a text is blank, or the model cannot compute the vectors.
    """
    by_dimension: dict[int, list[SearchText]] = {}
    for one in sought:
        if not one.text.strip():
            raise EmbeddingError("a blank text has no vector", subject=f"{one.owner}.{one.target.name}")
        check_model(embedder, one.target, one.owner)
        by_dimension.setdefault(_dimension(one.target), []).append(one)
    found: dict[tuple[int, str], Vector] = {}
    for dimension, some in by_dimension.items():
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
            f"the schema records the model '{recorded}', but '{embedder.name}' is configured",
            subject=f"{owner}.{target.name}",
            hint=f"configure '{recorded}' (OMNIGRAPH_EMBED_PROVIDER, OMNIGRAPH_EMBED_MODEL), or write the vector"
            " yourself: null for no vector",
        )
