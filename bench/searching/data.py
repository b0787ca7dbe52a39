"""Documents with texts and vectors, what they cite and are about, and questions: the same for the same size.

Vectors lie in clusters of few directions of their own, as embeddings do, and words are as frequent as in a language:
the second most frequent one half as frequent as the first, and so on.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather

DIMENSIONS = (128, 384)
BUCKETS = 100
"""A filter that keeps n % of the documents keeps those in n of these."""

TOPICS = 100
CITED = 3
"""How many documents each cites."""

QUESTIONS = 20
SCHEMA = f"""\
node Doc {{
    slug: String @key
    bucket: I32
    text: String
    v128: Vector({DIMENSIONS[0]})
    v384: Vector({DIMENSIONS[1]})
    @index(bucket)
    @index(text, kind="fts")
    @index(v128, kind="vector")
    @index(v384, kind="vector")
}}
node Topic {{ slug: String @key }}
edge About: Doc -> Topic
edge Cites: Doc -> Doc
"""

Floats = npt.NDArray[np.float32]
_SYLLABLES = [consonant + vowel for consonant in "bcdfgklmnprstvz" for vowel in "aeiou"]
_WORDS = 30_000
_LENGTH = 60
_CLUSTERS = 500
_DIRECTIONS = 16


def write_files(folder: Path, documents: int) -> None:
    """`Doc`, `Topic`, `About`, `Cites` and `questions` as Arrow files in a folder."""
    random = np.random.default_rng(29)
    slugs = _named("doc", documents)
    topics = _named("topic", TOPICS)
    docs = {
        "slug": slugs,
        "bucket": pa.array(random.integers(0, BUCKETS, documents), pa.int32()),
        "text": _texts(random, documents),
    }
    asked = {"topic": topics.take(pa.array(random.integers(0, TOPICS, QUESTIONS)))}
    for dimension in DIMENSIONS:
        vectors = _vectors(random, documents + QUESTIONS, dimension)
        docs[f"v{dimension}"] = _column(vectors[:documents])
        asked[f"v{dimension}"] = _column(vectors[documents:])
    asked["text"] = _questions(random, docs["text"])
    every = np.arange(documents)
    # Different ones, and not itself.
    apart = random.integers(1, documents // CITED, documents)[:, None] + np.arange(CITED) * (documents // CITED)
    cited = ((every[:, None] + apart) % documents).ravel()
    tables = {
        "Doc": docs,
        "Topic": {"slug": topics},
        "About": {"from": slugs, "to": topics.take(pa.array(random.integers(0, TOPICS, documents)))},
        "Cites": {"from": slugs.take(pa.array(np.repeat(every, CITED))), "to": slugs.take(pa.array(cited))},
        "questions": asked,
    }
    folder.mkdir(parents=True)
    for name, columns in tables.items():
        pyarrow.feather.write_feather(pa.table(columns), folder / f"{name}.arrow", compression="uncompressed")


def read_file(folder: Path, name: str) -> pa.Table:
    return pyarrow.feather.read_table(folder / f"{name}.arrow")


def _named(prefix: str, count: int) -> pa.Array:
    return pc.binary_join_element_wise(f"{prefix}-", pa.array(np.arange(count)).cast(pa.utf8()), "")


def _column(vectors: Floats) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])


def _vectors(random: np.random.Generator, count: int, dimension: int) -> Floats:
    """Vectors of length 1: each in a cluster, spread along a few directions and a little along all."""
    centers = random.standard_normal((_CLUSTERS, dimension), np.float32)
    directions = random.standard_normal((_DIRECTIONS, dimension), np.float32)
    spread = random.standard_normal((count, _DIRECTIONS), np.float32) @ directions
    noise = random.standard_normal((count, dimension), np.float32)
    found: Floats = centers[random.integers(0, _CLUSTERS, count)] + 0.15 * spread + 0.3 * noise
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    return found


def _vocabulary(random: np.random.Generator) -> pa.Array:
    """Words, the frequent ones short."""
    syllables = pa.array(_SYLLABLES)
    sizes = 1 + np.minimum(np.arange(_WORDS) // 60, 1) + np.arange(_WORDS) // 3000 // 4 + 1
    parts = syllables.take(pa.array(random.integers(0, len(_SYLLABLES), int(sizes.sum()))))
    return _joined(parts, sizes, "")


def _joined(parts: pa.Array, sizes: npt.NDArray[np.int64], between: str) -> pa.Array:
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
    return pc.binary_join(pa.ListArray.from_arrays(offsets, parts), between)


def _texts(random: np.random.Generator, count: int) -> pa.Array:
    weight = 1 / (np.arange(_WORDS) + 2.7)
    lengths = np.clip(random.lognormal(np.log(_LENGTH), 0.5, count).astype(np.int64), 5, 600)
    ends = np.cumsum(weight / weight.sum())
    chosen = np.minimum(np.searchsorted(ends, random.random(int(lengths.sum()))), _WORDS - 1)
    return _joined(_vocabulary(random).take(pa.array(chosen)), lengths, " ")


def _questions(random: np.random.Generator, texts: pa.Array) -> pa.Array:
    """Three words each that stand in one text."""
    found = []
    for number in random.integers(0, len(texts), QUESTIONS).tolist():
        words = sorted(set(texts[number].as_py().split()))
        found.append(" ".join(random.choice(words, min(3, len(words)), replace=False)))
    return pa.array(found)
