"""The vectors of a property: computed from a column of texts, or from the text of a query."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.embed.embedder import Embedder, Purpose, Vectors, unit_vectors
from omnigraph.errors import EmbeddingError, EmbeddingModelError
from omnigraph.lang.arrow import arrow_type
from omnigraph.lang.schema.catalog import Property


def embed_column(embedder: Embedder, texts: pa.Array, target: Property, owner: str) -> pa.Array:
    """The vectors of an `@embed` property, in its Arrow type, in one call of the embedder.

    Every distinct text is embedded once. A text that is null or blank has no vector: null.

    Args:
        embedder: the model.
        texts: the property that `target` is computed from.
        target: the vector property.
        owner: its type, for the error.

    Raises:
        EmbeddingModelError: the schema records another model for this property.
        EmbeddingError: the model cannot give these vectors.
    """
    kind = arrow_type(target.type)
    told = pc.not_equal(pc.utf8_trim_whitespace(texts), "").fill_null(False)
    if not pc.any(told).as_py():
        return pa.nulls(len(texts), kind)
    encoded = pc.if_else(told, texts, None).dictionary_encode()
    distinct = _embed(embedder, encoded.dictionary.to_pylist(), target, owner, Purpose.DOCUMENT)
    rows = distinct[encoded.indices.fill_null(0).to_numpy()]
    flat = pa.array(rows.reshape(-1), pa.float32())
    return pa.FixedSizeListArray.from_arrays(flat, type=kind, mask=pc.invert(told))


def embed_query(embedder: Embedder, text: str, target: Property, owner: str) -> Vectors:
    """The vector of a text that is searched for in a vector property: one row.

    Raises:
        EmbeddingModelError: the schema records another model for this property.
        EmbeddingError: the text is blank, or the model cannot give the vector.
    """
    if not text.strip():
        raise EmbeddingError("a blank text has no vector", subject=f"{owner}.{target.name}")
    return _embed(embedder, [text], target, owner, Purpose.QUERY)


def _embed(embedder: Embedder, texts: Sequence[str], target: Property, owner: str, purpose: Purpose) -> Vectors:
    subject = f"{owner}.{target.name}"
    dimension = target.type.dim
    assert dimension is not None, "an @embed property is a vector"
    recorded = target.embed.model if target.embed else None
    if recorded is not None and recorded != embedder.name:
        raise EmbeddingModelError(
            f"the schema records the model '{recorded}', and '{embedder.name}' is configured",
            subject=subject,
            hint=f"configure '{recorded}' (OMNIGRAPH_EMBED_PROVIDER, OMNIGRAPH_EMBED_MODEL), or write the vector"
            " yourself: null for none",
        )
    try:
        raw = embedder.embed(texts, dimension, purpose=purpose)
        return unit_vectors(raw, len(texts), dimension, embedder.name)
    except EmbeddingError as error:
        error.subject = error.subject or subject
        raise
    except Exception as error:
        raise EmbeddingError(
            f"the embedder '{embedder.name}' failed: {type(error).__name__}: {error}", subject=subject
        ) from error
