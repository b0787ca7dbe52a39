"""Vectors are cached on disk by model and text: each text is embedded once, and damaged entries are not used."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tests.embed.provider import Provider, always, answer, openai

from omnigraph.embed import OfflineEmbedder, Purpose, Tally, default_embedder
from omnigraph.embed.cache import PORTION, _vector_cache, embed_texts
from omnigraph.errors import EmbeddingError, EmbeddingUnavailableError, InputError
from omnigraph.settings import EMBED_CACHE
from omnigraph.storage.files.vector_cache import MAX_SMALL_SEGMENTS, VectorCache, text_keys


@pytest.fixture(autouse=True)
def directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("OMNIGRAPH_CACHE_DIR", str(tmp_path))
    return tmp_path


class Own:
    """An embedder that declares how its vectors may be cached."""

    name = "own/model"

    def __init__(self, cache_key: str | None = "own") -> None:
        self.cache_key = cache_key
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str], dimension: int, *, purpose: Purpose) -> np.ndarray:
        self.asked += texts
        return np.array([[len(text), ord(text[0]), 1, *range(dimension - 3)] for text in texts], np.float64)


def embed(own: Own, texts: Sequence[str], dimension: int = 4, tally: Tally | None = None) -> np.ndarray:
    return embed_texts(own, texts, dimension, Purpose.DOCUMENT, tally)


def segments(directory: Path) -> Iterator[Path]:
    return directory.rglob("*.vectors")


# Requests to the embedder


def test_each_text_is_embedded_once() -> None:
    first, second = Own(), Own()
    before = embed(first, ["one", "two"])
    tally = Tally()
    after = embed(second, ["three", "two", "one"], tally=tally)
    assert second.asked == ["three"]
    assert np.array_equal(after[[2, 1]], before)
    assert (tally.computed, tally.found) == (1, 2)


@pytest.mark.parametrize(
    ("key", "dimension", "purpose"),
    [("other", 4, Purpose.DOCUMENT), ("own", 5, Purpose.DOCUMENT), ("own", 4, Purpose.QUERY)],
)
def test_model_dimension_and_purpose_are_part_of_the_cache_key(key: str, dimension: int, purpose: Purpose) -> None:
    embed(Own(), ["one"])
    own = Own(key)
    embed_texts(own, ["one"], dimension, purpose)
    assert own.asked == ["one"]


def test_an_embedder_without_a_cache_key_is_cached_per_operation() -> None:
    own, tally = Own(None), Tally()
    for texts in (["one", "two"], ["two", "three"], ["three", "one"]):
        embed(own, texts, tally=tally)
    assert own.asked == ["one", "two", "three"]
    assert (tally.computed, tally.found) == (3, 3)
    embed(own, ["one"], tally=Tally())
    assert own.asked[-1] == "one"


def test_vectors_computed_before_a_failure_stay_cached() -> None:
    class Failing(Own):
        def embed(self, texts: Sequence[str], dimension: int, *, purpose: Purpose) -> np.ndarray:
            if len(self.asked) >= 2 * PORTION:
                raise EmbeddingUnavailableError("busy")
            return super().embed(texts, dimension, purpose=purpose)

    texts = [f"text {n}" for n in range(3 * PORTION)]
    with pytest.raises(EmbeddingUnavailableError):
        embed(Failing(), texts)
    own = Own()
    embed(own, texts)
    assert own.asked == texts[2 * PORTION :]


def test_the_offline_model_caches_large_batches_only(directory: Path) -> None:
    model = OfflineEmbedder()
    embed_texts(model, ["a text"], 8, Purpose.DOCUMENT)
    assert not list(segments(directory))
    texts = [f"text number {n}" for n in range(model.cache_from)]
    first = embed_texts(model, texts, 8, Purpose.DOCUMENT)
    tally = Tally()
    assert np.array_equal(embed_texts(model, texts, 8, Purpose.DOCUMENT, tally), first)
    assert (tally.computed, tally.found) == (0, len(texts))


def test_a_provider_gets_each_text_once(provider: Provider) -> None:
    environ = {"OMNIGRAPH_EMBED_BASE_URL": provider.url, "OMNIGRAPH_EMBED_MODEL": "acme/small"}
    texts = [f"text {n}" for n in range(70)]
    first = embed_texts(default_embedder(environ), texts, 3, Purpose.DOCUMENT)
    assert len(provider.seen) == 3
    again = embed_texts(default_embedder(environ), texts[::-1], 3, Purpose.DOCUMENT)
    assert len(provider.seen) == 3
    assert np.array_equal(again[::-1], first)
    other = default_embedder(environ | {"OMNIGRAPH_EMBED_MODEL": "acme/large"})
    embed_texts(other, texts[:5], 3, Purpose.DOCUMENT)
    assert len(provider.seen) == 4


def test_an_invalid_vector_is_not_cached(provider: Provider) -> None:
    environ = {"OMNIGRAPH_EMBED_BASE_URL": provider.url, "OMNIGRAPH_EMBED_MODEL": "acme/small"}
    zeros = always(answer({"data": [{"index": 0, "embedding": [0, 0, 0]}]}))
    provider.behaviours = [zeros, openai]
    with pytest.raises(EmbeddingError, match="zeros"):
        embed_texts(default_embedder(environ), ["a"], 3, Purpose.DOCUMENT)
    assert embed_texts(default_embedder(environ), ["a"], 3, Purpose.DOCUMENT).shape == (1, 3)


def test_a_remote_embedder_can_be_pickled(provider: Provider) -> None:
    environ = {"OMNIGRAPH_EMBED_BASE_URL": provider.url, "OMNIGRAPH_EMBED_PROVIDER": "openai", "OPENAI_API_KEY": "k-1"}
    sent = pickle.loads(pickle.dumps(default_embedder(environ)))
    assert sent.embed(["a"], 3, purpose=Purpose.DOCUMENT).shape == (1, 3)
    assert provider.seen[0].headers["authorization"] == "Bearer k-1"


# Files on disk


@pytest.mark.parametrize("value", ["0", "0 GiB"])
def test_a_disabled_cache_stores_nothing(value: str, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    monkeypatch.setenv(EMBED_CACHE.name, value)
    for _ in range(2):
        own = Own()
        embed(own, ["one"])
        assert own.asked == ["one"]
    assert not list(segments(directory))


def test_an_invalid_cache_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EMBED_CACHE.name, "much")
    with pytest.raises(InputError, match=EMBED_CACHE.name):
        embed(Own(), ["one"])


@pytest.mark.parametrize("place", ["header", "key", "check", "vector", "end", "cut", "longer", "empty"])
def test_damaged_entries_are_computed_again(place: str, directory: Path) -> None:
    texts = [f"text {n}" for n in range(50)]
    good = embed(Own(), texts)
    (path,) = segments(directory)
    data = bytearray(path.read_bytes())
    places = {"header": 9, "key": 64 + 24 * 7, "check": 64 + 24 * 7 + 16, "vector": len(data) - 16 * 9, "end": -1}
    if place in places:
        data[places[place]] ^= 0x40
    path.unlink()
    path.write_bytes({"cut": data[:-16], "longer": data + b"\0", "empty": bytearray()}.get(place, data))
    _vector_cache.cache_clear()  # empty the memory cache, as in another process
    own = Own()
    assert np.array_equal(embed(own, texts), good)
    assert 1 <= len(own.asked) <= 50
    assert len(own.asked) == 1 or place in ("header", "cut", "longer", "empty")


def test_a_segment_truncated_while_it_is_open_is_not_read(directory: Path) -> None:
    own = Own()
    embed(own, ["one", "two"])
    embed(own, ["one", "two"])
    (path,) = segments(directory)
    path.chmod(0o600)
    os.truncate(path, 100)
    embed(own, ["one", "two"])
    assert own.asked == ["one", "two"] * 2


def test_an_unwritable_cache_directory_is_not_an_error(directory: Path) -> None:
    (directory / "vectors").write_text("in the way")
    own = Own()
    assert embed(own, ["one"]).shape == (1, 4)


def test_small_segments_are_compacted(directory: Path) -> None:
    own = Own()
    texts = [f"text {n}" for n in range(10 * MAX_SMALL_SEGMENTS)]
    for text in texts:
        embed(own, [text])
    assert len(list(segments(directory))) <= MAX_SMALL_SEGMENTS + 1
    again = Own()
    vectors = embed(again, texts)
    assert again.asked == []
    assert np.array_equal(vectors, embed(Own(None), texts))


def test_least_recently_used_segments_are_evicted_first(tmp_path: Path) -> None:
    vectors = np.ones((10, 256), np.float32)
    cache = VectorCache(tmp_path / "v", 40_000)
    names = ["old", "used", "new"]
    for name in names:
        cache.model(name, 256).put(text_keys([f"{name} {n}" for n in range(10)]), vectors)
        for path in segments(tmp_path):
            os.utime(path, (path.stat().st_mtime - 1000, path.stat().st_mtime - 1000))
    assert (
        VectorCache(tmp_path / "v", 40_000).model("old", 256).find(text_keys(["old 3"]))[0].all()
    )  # this counts as a use
    cache.model("more", 256).put(text_keys([f"more {n}" for n in range(10)]), vectors)
    fresh = VectorCache(tmp_path / "v", 40_000)
    there = [bool(fresh.model(name, 256).find(text_keys([f"{name} 3"]))[0].all()) for name in [*names, "more"]]
    assert there == [True, False, True, True]
    assert sum(path.stat().st_size for path in segments(tmp_path)) <= 40_000


def test_entries_larger_than_the_cache_are_not_stored(tmp_path: Path) -> None:
    model = VectorCache(tmp_path / "v", 1000).model("x", 256)
    model.put(text_keys([str(n) for n in range(10)]), np.ones((10, 256), np.float32))
    assert not list(segments(tmp_path))


def test_threads_read_and_write_the_cache_concurrently(directory: Path) -> None:
    texts = [f"text {n}" for n in range(300)]
    good = embed(Own(None), texts)

    def work(seed: int) -> bool:
        mine = np.random.default_rng(seed).permutation(300)
        own = Own()
        return all(
            np.array_equal(embed(own, [texts[n] for n in some]), good[some]) for some in np.array_split(mine, 25)
        )

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
    own = Own()
    assert np.array_equal(embed(own, texts), good)
    assert own.asked == []
