"""HTTP embedding providers: the format of requests and answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar
from urllib.parse import quote

from omnigraph.dataclass import dataclass
from omnigraph.embed.embedder import Purpose, Vectors, unit_vectors
from omnigraph.embed.http import Endpoint
from omnigraph.errors import EmbeddingError
from omnigraph.worker_pool import WorkerPool

_TEXTS = 32  # texts per request: the smallest default limit of common servers
_CHARACTERS = 100_000  # characters per request, because providers also limit the tokens of a request
_CONCURRENT_REQUESTS = 4

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OpenAiEmbedder:
    """Sends `POST /embeddings` with many texts per request: for OpenAI, OpenRouter, and most self-hosted servers."""

    name: str
    endpoint: Endpoint

    @property
    def cache_key(self) -> str:
        return f"openai {self.endpoint.base_url} {self.name}"

    def embed(self, texts: Sequence[str], dimension: int, *, purpose: Purpose) -> Vectors:
        def ask(batch: Sequence[str]) -> list[object]:
            answer = self.endpoint.post("/embeddings", {"model": self.name, "input": batch, "dimensions": dimension})
            return self._rows(answer, len(batch))

        rows = [row for part in _run_concurrently(ask, list(_batches(texts))) for row in part]
        return unit_vectors(rows, len(texts), dimension, self.name)

    def _rows(self, answer: object, count: int) -> list[object]:
        """The vectors in the order of the texts. The response may have another order."""
        match answer:
            case {"data": list(items)} if len(items) == count:
                placed = dict(_indexed(items))
                if placed.keys() == set(range(count)):
                    return [placed[position] for position in range(count)]
        raise EmbeddingError(f"the embedding provider at {self.endpoint.host} returned no valid vectors")


def _indexed(items: list[object]) -> Iterator[tuple[object, object]]:
    for position, item in enumerate(items):
        match item:
            case {"embedding": list(row), **others}:
                yield others.get("index", position), row


@dataclass(frozen=True, slots=True)
class GeminiEmbedder:
    """Sends `POST /models/<model>:embedContent` with one text per request: for Gemini."""

    name: str
    endpoint: Endpoint

    @property
    def cache_key(self) -> str:
        return f"gemini {self.endpoint.base_url} {self.name}"

    def embed(self, texts: Sequence[str], dimension: int, *, purpose: Purpose) -> Vectors:
        task = "RETRIEVAL_QUERY" if purpose is Purpose.QUERY else "RETRIEVAL_DOCUMENT"

        def ask(text: str) -> list[object]:
            payload = {
                "model": f"models/{self.name}",
                "content": {"parts": [{"text": text}]},
                "taskType": task,
                "outputDimensionality": dimension,
            }
            match self.endpoint.post(f"/models/{quote(self.name, safe='')}:embedContent", payload):
                case {"embedding": {"values": list(row)}}:
                    return row
            raise EmbeddingError(f"the embedding provider at {self.endpoint.host} returned no valid vector")

        return unit_vectors(_run_concurrently(ask, texts), len(texts), dimension, self.name)


def _batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    batch: list[str] = []
    held = 0
    for text in texts:
        if batch and (len(batch) == _TEXTS or held + len(text) > _CHARACTERS):
            yield batch
            batch, held = [], 0
        batch.append(text)
        held += len(text)
    if batch:
        yield batch


def _run_concurrently(ask: Callable[[T], list[object]], requests: Sequence[T]) -> list[list[object]]:
    """Run requests concurrently, and return the responses in the order of the requests.

    After the first failure, requests that have not started are cancelled.
    """
    if len(requests) == 1:
        return [ask(requests[0])]
    with WorkerPool(_CONCURRENT_REQUESTS, "omnigraph-embed") as pool:
        waiting = [pool.submit(ask, request) for request in requests]
        try:
            return [future.result() for future in waiting]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
