"""The model that needs no network: the average of a text's token vectors, read from the `wordllama` package.

Only the files of that package are used, not its code, which logs, downloads and drags in more.
"""

# See docs/decisions/0047-the-offline-model-is-installed.md

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from omnigraph.embed.embedder import Purpose, Vectors, unit_vectors
from omnigraph.errors import EmbeddingError, EmbeddingModelError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

NAME = "wordllama/l2-supercat-256"
DIMENSIONS = 256
CHARACTERS = 32_768
"""A longer text counts with its beginning: an average of thousands of words moves no more."""

_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
_BLOCK_TEXTS = 1024
_BLOCK_CHARACTERS = 262_144
_GATHERED = 1024  # tokens whose vectors are looked up at a time: they fit the processor's cache


@dataclass(frozen=True, slots=True)
class _Model:
    tokenizer: Tokenizer
    weights: np.ndarray[tuple[int, int], np.dtype[np.float32]]


class OfflineEmbedder:
    """Embeds in this process. The same text gives the same vector, to the bit, in any batch and on any machine.

    The model was trained so that the first numbers of a vector carry the most: a vector of fewer than 256 dimensions
    is the beginning of the whole one.
    """

    name = NAME
    cache_key = f"offline {NAME}"
    cache_from = 256
    """A few texts are embedded sooner than found."""

    def embed(self, texts: Sequence[str], dimension: int, *, purpose: Purpose) -> Vectors:
        """See `Embedder`. Questions and documents are embedded alike.

        Raises:
            EmbeddingModelError: more dimensions are asked for than the model has.
            EmbeddingError: the package with the model is not installed.
        """
        if not 1 <= dimension <= DIMENSIONS:
            raise EmbeddingModelError(
                f"the offline model '{NAME}' gives up to {DIMENSIONS} dimensions, and {dimension} are asked for",
                hint=f"declare Vector({DIMENSIONS}) or less, configure a provider (OMNIGRAPH_EMBED_PROVIDER), or write"
                " the vector yourself: null for none",
            )
        model = _load()
        vectors = np.empty((len(texts), dimension), np.float32)
        for first, block in _blocks(texts):
            sums = _sums(model, block, dimension)
            vectors[first : first + len(block)] = unit_vectors(sums, len(block), dimension, NAME)
        return vectors


def _blocks(texts: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """The texts in pieces that bound what tokenizing holds, each with the number of its first text."""
    block: list[str] = []
    first = held = 0
    for number, text in enumerate(texts):
        if len(block) == _BLOCK_TEXTS or held > _BLOCK_CHARACTERS:
            yield first, block
            block, first, held = [], number, 0
        block.append(text[:CHARACTERS])
        held += len(block[-1])
    if block:
        yield first, block


def _sums(model: _Model, texts: list[str], dimension: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """The sum of each text's token vectors, which points where their average does."""
    tokens = [found.ids for found in model.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    owners = np.repeat(np.arange(len(tokens)), [len(ids) for ids in tokens])
    flat = np.fromiter((token for ids in tokens for token in ids), np.int64, len(owners))
    weights = model.weights[:, :dimension]
    # float64 holds sums of these weights, which were float16, exactly: the order of adding does not matter.
    sums = np.zeros((len(texts), dimension))
    for start in range(0, len(flat), _GATHERED):
        part = owners[start : start + _GATHERED]
        firsts = np.flatnonzero(np.diff(part, prepend=-1))
        gathered = weights[flat[start : start + _GATHERED]]
        sums[part[firsts]] += np.add.reduceat(gathered, firsts, axis=0, dtype=np.float64)
    return sums


@cache
def _load() -> _Model:
    package = find_spec("wordllama")
    if package is None or not package.submodule_search_locations:
        raise EmbeddingError(
            "the offline embedding model is not installed",
            hint="install it with 'pip install wordllama', or configure a provider with OMNIGRAPH_EMBED_PROVIDER",
        )
    folder = Path(package.submodule_search_locations[0])
    try:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        weights = load_file(folder / _WEIGHTS)["embedding.weight"]
        tokenizer = Tokenizer.from_file(str(folder / _TOKENIZER))
    except Exception as error:  # a tokenizer that cannot be read raises a bare Exception
        raise EmbeddingError(
            f"the offline embedding model cannot be read: {error}", hint="install 'wordllama' 0.4 again"
        ) from error
    if weights.shape != (tokenizer.get_vocab_size(), DIMENSIONS):
        raise EmbeddingError("the installed 'wordllama' holds another model", hint="install 'wordllama' 0.4 again")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return _Model(tokenizer, weights.astype(np.float32))
