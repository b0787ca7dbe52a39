"""The built-in models: offline vectors reflect meaning, mock vectors are fixed, and both are the same everywhere."""

from __future__ import annotations

import hashlib
import math
import subprocess
import sys
from collections.abc import Iterator
from importlib import util

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.thresholds import Thresholds

from omnigraph.embed import Embedder, OfflineEmbedder, Purpose, offline
from omnigraph.embed.mock import MockEmbedder
from omnigraph.errors import EmbeddingError, EmbeddingModelError

TEXTS = [
    "The cat sleeps on the warm windowsill.",
    "A kitten is napping in the sun by the window.",
    "Quarterly revenue grew by ten percent.",
    "Sales rose strongly in the last three months.",
    "量子コンピュータの誤り訂正",
    "🎉",
    "x",
]


def embed(embedder: Embedder, texts: list[str], dimension: int = 256) -> np.ndarray:
    return embedder.embed(texts, dimension, purpose=Purpose.DOCUMENT)


# ---- the offline model


@pytest.mark.parametrize("dimension", [1, 3, 64, 255, 256])
def test_offline_vectors_have_length_one(dimension: int) -> None:
    vectors = embed(OfflineEmbedder(), TEXTS, dimension)
    assert vectors.shape == (len(TEXTS), dimension)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("dimension", [64, 256])
def test_similar_texts_have_near_vectors(dimension: int) -> None:
    near = embed(OfflineEmbedder(), TEXTS[:4], dimension)
    likeness = near @ near.T
    assert likeness[0, 1] > max(likeness[0, 2], likeness[0, 3]) + 0.1
    assert likeness[2, 3] > max(likeness[2, 0], likeness[2, 1]) + 0.1


def test_fewer_dimensions_are_a_prefix_of_the_full_vector() -> None:
    whole, part = embed(OfflineEmbedder(), TEXTS), embed(OfflineEmbedder(), TEXTS, 64)
    start = whole[:, :64]
    assert part == pytest.approx(start / np.linalg.norm(start, axis=1, keepdims=True), abs=1e-6)


def test_more_dimensions_than_the_model_has_are_refused() -> None:
    with pytest.raises(EmbeddingModelError, match="has 256 dimensions at most, but the vector needs 384") as caught:
        embed(OfflineEmbedder(), TEXTS, 384)
    assert "OMNIGRAPH_EMBED_PROVIDER" in str(caught.value.hint)


def test_a_vector_does_not_depend_on_the_batch() -> None:
    """Bit by bit: in batches of any size, and across the blocks in which tokens are summed."""
    long = [f"{text} " * 700 for text in TEXTS]  # thousands of tokens each
    texts = [*TEXTS, *long, *(f"{text} {number}" for number in range(200) for text in TEXTS)]
    together = embed(OfflineEmbedder(), texts)
    for number in range(0, len(texts), 37):
        assert np.array_equal(embed(OfflineEmbedder(), [texts[number]])[0], together[number])


def test_texts_are_embedded_in_bounded_blocks(thresholds: Thresholds) -> None:
    whole = embed(OfflineEmbedder(), TEXTS)
    thresholds(offline, BLOCK_TEXTS=2, TOKENS_PER_LOOKUP=3)
    assert np.array_equal(embed(OfflineEmbedder(), TEXTS), whole)
    thresholds(offline, BLOCK_CHARACTERS=10)
    assert np.array_equal(embed(OfflineEmbedder(), TEXTS), whole)


def test_a_long_text_is_truncated() -> None:
    beginning = ("all work and no play " * 2000)[: offline.CHARACTERS]
    one, other, shorter = embed(OfflineEmbedder(), [beginning, beginning + " makes Jack dull" * 5000, beginning[:-9]])
    assert np.array_equal(one, other)
    assert not np.array_equal(one, shorter)


def test_offline_vectors_are_the_same_in_every_process() -> None:
    """And in every release: stored vectors must stay comparable with new ones."""
    program = (
        "import hashlib, sys\n"
        "from omnigraph.embed import OfflineEmbedder, Purpose\n"
        f"vectors = OfflineEmbedder().embed({TEXTS!r}, 256, purpose=Purpose.DOCUMENT)\n"
        "print(hashlib.sha256(vectors.round(5).tobytes()).hexdigest())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    here = hashlib.sha256(embed(OfflineEmbedder(), TEXTS).round(5).tobytes()).hexdigest()
    assert done.stdout.strip() == here
    first = embed(OfflineEmbedder(), TEXTS[:1])[0]
    assert first[:4] == pytest.approx([-0.0204994, -0.0991729, 0.0967166, 0.0503919], abs=1e-6)


def test_the_code_of_the_model_package_is_not_imported() -> None:
    """The package's code logs, and may download files."""
    program = (
        "import sys\n"
        "from omnigraph.embed import OfflineEmbedder, Purpose\n"
        "OfflineEmbedder().embed(['x'], 8, purpose=Purpose.QUERY)\n"
        "print(sorted({'wordllama', 'huggingface_hub', 'requests', 'urllib.request'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_the_model_is_loaded_on_first_use() -> None:
    program = (
        "import sys\nfrom omnigraph.embed import default_embedder\ndefault_embedder({})\n"
        "print(sorted({'tokenizers', 'safetensors', 'urllib.request', 'ssl'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture
def fresh_model() -> Iterator[None]:
    offline._load.cache_clear()
    yield
    offline._load.cache_clear()


@pytest.mark.usefixtures("fresh_model")
def test_a_missing_package_is_reported_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline, "find_spec", lambda name: util.find_spec(f"{name}_missing"))
    with pytest.raises(EmbeddingError, match="not installed") as caught:
        embed(OfflineEmbedder(), ["x"])
    assert "pip install wordllama" in str(caught.value.hint)


@pytest.mark.usefixtures("fresh_model")
@pytest.mark.parametrize("file", ["WEIGHTS_FILE", "TOKENIZER_FILE"])
def test_missing_model_files_are_an_error(thresholds: Thresholds, file: str) -> None:
    thresholds(offline, **{file: "weights/other"})
    with pytest.raises(EmbeddingError, match="cannot be read"):
        embed(OfflineEmbedder(), ["x"])


# ---- the mock


def mocked(text: str, dimension: int) -> list[float]:
    """The mock's definition, step by step."""
    state = 14695981039346656037
    for byte in text.encode():
        state = ((state ^ byte) * 1099511628211) % 2**64
    drawn = []
    for _ in range(dimension):
        state ^= (state << 13) % 2**64
        state ^= state >> 7
        state ^= (state << 17) % 2**64
        drawn.append(state / (2**64 - 1) * 2 - 1)
    length = math.sqrt(sum(number * number for number in drawn))
    return [number / length for number in drawn]


@given(st.lists(st.text(min_size=1), min_size=1, max_size=5), st.integers(1, 40))
def test_the_mock_agrees_with_its_definition(texts: list[str], dimension: int) -> None:
    vectors = embed(MockEmbedder(), texts, dimension)
    assert vectors == pytest.approx(np.array([mocked(text, dimension) for text in texts]), abs=1e-5)


def test_the_mock_vectors_do_not_change() -> None:
    assert embed(MockEmbedder(), ["hello"], 4)[0] == pytest.approx(
        [-0.3528140, 0.5743784, 0.4915006, -0.5513971], abs=1e-6
    )
