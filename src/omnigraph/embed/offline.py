"""The offline model: the average of the token vectors of a text, with the weights of the `wordllama` package.

Only the data files of that package are used. Its code is not used, because it logs, downloads files and imports
further packages.
"""

# See docs/decisions/0047-the-offline-model-is-installed.md

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.embed.embedder import Purpose, Vectors, unit_vectors
from omnigraph.errors import EmbeddingError, EmbeddingModelError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

NAME = "wordllama/l2-supercat-256"
DIMENSIONS = 256
CHARACTERS = 32_768
"""Texts with more characters are truncated, because further words hardly change an average of thousands of words."""

WEIGHTS_FILE = "weights/l2_supercat_256.safetensors"
"""Path of the weights in the installed package."""

TOKENIZER_FILE = "tokenizers/l2_supercat_tokenizer_config.json"
"""Path of the tokenizer in the installed package."""

BLOCK_TEXTS = 1024
"""Maximum number of texts that are tokenized at once."""

BLOCK_CHARACTERS = 262_144
"""When the texts of a block have this number of characters, the block ends."""

TOKENS_PER_LOOKUP = 1024
"""Number of tokens whose vectors are read at once. These vectors fit into the CPU cache."""


@dataclass(frozen=True, slots=True)
class _Model:
    tokenizer: Tokenizer
    weights: np.ndarray[tuple[int, int], np.dtype[np.float32]]


class OfflineEmbedder:
    """Embeds texts in this process. Equal texts give bit-identical vectors, in any batch and on any machine.

    The model is trained so that the first dimensions carry the most information. A vector with fewer than 256
    dimensions is a prefix of the full vector.
    """

    name = NAME
    cache_key = f"offline {NAME}"
    cache_from = 256
    """With fewer texts than this, the disk cache is not used, because embedding them is faster than a lookup."""

    def embed(self, texts: Sequence[str], dimension: int, *, purpose: Purpose) -> Vectors:
        """See `Embedder`. The purpose has no effect.

        Raises:
            EmbeddingModelError: the requested dimension is larger than that of the model.
            EmbeddingError: the package with the model is not installed.
        """
        if not 1 <= dimension <= DIMENSIONS:
            raise EmbeddingModelError(
                f"the offline model '{NAME}' has {DIMENSIONS} dimensions at most, but the vector needs {dimension}",
                hint=f"declare Vector({DIMENSIONS}) or less, configure a provider (OMNIGRAPH_EMBED_PROVIDER), or write"
                " the vector yourself: null for no vector",
            )
        model = _load()
        vectors = np.empty((len(texts), dimension), np.float32)
        for first, block in _blocks(texts):
            sums = _sums(model, block, dimension)
            vectors[first : first + len(block)] = unit_vectors(sums, len(block), dimension, NAME)
        return vectors


def _blocks(texts: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Split texts into blocks, to limit memory. Yields each block with the index of its first text."""
    block: list[str] = []
    first = held = 0
    for number, text in enumerate(texts):
        if len(block) == BLOCK_TEXTS or held > BLOCK_CHARACTERS:
            yield first, block
            block, first, held = [], number, 0
        block.append(text[:CHARACTERS])
        held += len(block[-1])
    if block:
        yield first, block


def _sums(model: _Model, texts: list[str], dimension: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """The sum of the token vectors of each text. It has the same direction as their average."""
    tokens = [found.ids for found in model.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    owners = np.repeat(np.arange(len(tokens)), [len(ids) for ids in tokens])
    flat = np.fromiter((token for ids in tokens for token in ids), np.int64, len(owners))
    weights = model.weights[:, :dimension]
    # The weights are float16, so float64 sums are exact, and the order of the additions does not matter.
    sums = np.zeros((len(texts), dimension))
    for start in range(0, len(flat), TOKENS_PER_LOOKUP):
        part = owners[start : start + TOKENS_PER_LOOKUP]
        firsts = np.flatnonzero(np.diff(part, prepend=-1))
        token_vectors = weights[flat[start : start + TOKENS_PER_LOOKUP]]
        sums[part[firsts]] += np.add.reduceat(token_vectors, firsts, axis=0, dtype=np.float64)
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

        weights = load_file(folder / WEIGHTS_FILE)["embedding.weight"]
        tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
    except Exception as error:  # `tokenizers` raises a plain Exception
        raise EmbeddingError(
            f"the offline embedding model cannot be read: {error}", hint="install 'wordllama' 0.4 again"
        ) from error
    if weights.shape != (tokenizer.get_vocab_size(), DIMENSIONS):
        raise EmbeddingError("the package 'wordllama' contains another model", hint="install 'wordllama' 0.4 again")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return _Model(tokenizer, weights.astype(np.float32))
