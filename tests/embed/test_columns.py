"""Vectors of a property: one call, each distinct text once, no vector for a blank text, and only valid vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.embed import Purpose, SearchText, embed_column, embed_queries
from omnigraph.errors import EmbeddingError, EmbeddingModelError, EmbeddingUnavailableError
from omnigraph.lang.arrow import arrow_type
from omnigraph.lang.schema.catalog import Embed, Property
from omnigraph.lang.types import Scalar, ValueType

VECTOR = Property("vec", ValueType(Scalar.VECTOR, dim=3, nullable=True), embed=Embed("text"))


class Own:
    """An embedder of the user."""

    name = "own/model"

    def __init__(self, answer: object = None) -> None:
        self.calls: list[tuple[list[str], int, Purpose]] = []
        self.answer = answer

    def embed(self, texts: Sequence[str], dimension: int, *, purpose: Purpose) -> np.ndarray:
        self.calls.append((list(texts), dimension, purpose))
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is not None:
            return self.answer  # type: ignore[return-value]
        return np.array([[len(text), 0, 0] for text in texts])


def test_each_distinct_text_is_embedded_once() -> None:
    own = Own()
    texts = pa.array(["b", "a", None, "b", " ", "", "ccc", "\n\u3000"])
    vectors = embed_column(own, texts, VECTOR, "Doc")
    assert own.calls == [(["b", "a", "ccc"], 3, Purpose.DOCUMENT)]
    unit = [1.0, 0.0, 0.0]
    assert vectors.to_pylist() == [unit, unit, None, unit, None, None, unit, None]
    assert vectors.type == arrow_type(VECTOR.type)
    vectors.validate(full=True)


def test_vectors_are_assigned_to_their_texts() -> None:
    own = Own(np.eye(3)[[2, 0, 1]])
    vectors = embed_column(own, pa.array(["x", None, "y", "z", "x"]), VECTOR, "Doc")
    assert vectors.to_pylist() == [[0, 0, 1], None, [1, 0, 0], [0, 1, 0], [0, 0, 1]]


@pytest.mark.parametrize("texts", [[], [None], ["", None, " \t"]])
def test_blank_and_null_texts_are_not_embedded(texts: list[str | None]) -> None:
    own = Own(EmbeddingError("must not be asked"))
    vectors = embed_column(own, pa.array(texts, pa.utf8()), VECTOR, "Doc")
    assert vectors.to_pylist() == [None] * len(texts)
    assert vectors.type == arrow_type(VECTOR.type)


def test_a_recorded_model_must_be_the_configured_one() -> None:
    own, recorded = Own(), Property("vec", VECTOR.type, embed=Embed("text", "acme/embed"))
    with pytest.raises(EmbeddingModelError) as caught:
        embed_column(own, pa.array(["x"]), recorded, "Doc")
    assert str(caught.value) == "Doc.vec: the schema records the model 'acme/embed', but 'own/model' is configured"
    assert own.calls == []
    with pytest.raises(EmbeddingModelError):
        embed_queries(own, [SearchText("x", recorded, "Doc")])
    own.name = "acme/embed"
    assert embed_column(own, pa.array(["x"]), recorded, "Doc").null_count == 0


def test_a_search_text_is_embedded_as_a_query() -> None:
    own = Own()
    assert embed_queries(own, [SearchText("x", VECTOR, "Doc")])[0].tolist() == [1.0, 0.0, 0.0]
    assert own.calls == [(["x"], 3, Purpose.QUERY)]
    with pytest.raises(EmbeddingError, match=r"Doc\.vec: a blank text has no vector"):
        embed_queries(own, [SearchText(" ", VECTOR, "Doc")])


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (np.ones((1, 2)), "1 × 2 numbers instead of 1 × 3"),
        (np.ones(3), "3 numbers instead of 1 × 3"),
        (np.zeros((1, 3)), "zeros"),
        (np.array([[1, np.nan, 1]]), "not finite"),
        (np.array([[1, np.inf, 1]]), "not finite"),
        ([["a", "b", "c"]], "not a vector"),
        ([[1.0, 2.0], [1.0]], "different lengths"),
        (ValueError("boom"), "the embedder 'own/model' failed: ValueError: boom"),
    ],
)
def test_invalid_output_of_an_embedder_is_refused(answer: object, said: str) -> None:
    with pytest.raises(EmbeddingError, match=said) as caught:
        embed_column(Own(answer), pa.array(["x"]), VECTOR, "Doc")
    assert caught.value.subject == "Doc.vec"
    assert str(caught.value).startswith("Doc.vec: ")


def test_an_error_of_the_embedder_keeps_its_class() -> None:
    with pytest.raises(EmbeddingUnavailableError, match=r"Doc\.vec: busy") as caught:
        embed_column(Own(EmbeddingUnavailableError("busy")), pa.array(["x"]), VECTOR, "Doc")
    assert caught.value.retryable
