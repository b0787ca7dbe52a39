"""Which embedder the environment asks for."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from omnigraph.embed import offline
from omnigraph.embed.embedder import Embedder
from omnigraph.errors import EmbeddingError

_MOCK = "OMNIGRAPH_EMBEDDINGS_MOCK"
_PROVIDER = "OMNIGRAPH_EMBED_PROVIDER"
_BASE_URL = "OMNIGRAPH_EMBED_BASE_URL"
_MODEL = "OMNIGRAPH_EMBED_MODEL"
_OFF = frozenset({"", "0", "false", "no", "off"})

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Provider:
    base_url: str
    model: str
    key: str


_PROVIDERS = {
    "openai-compatible": _Provider(
        "https://openrouter.ai/api/v1", "openai/text-embedding-3-large", "OPENROUTER_API_KEY"
    ),
    "openai": _Provider("https://api.openai.com/v1", "text-embedding-3-large", "OPENAI_API_KEY"),
    "gemini": _Provider("https://generativelanguage.googleapis.com/v1beta", "gemini-embedding-2", "GEMINI_API_KEY"),
}


def default_embedder(environ: Mapping[str, str] | None = None) -> Embedder:
    """The embedder that the environment asks for; the offline model when it asks for none.

    A provider's key alone selects nothing: it may be there for something else, and texts should not leave the machine
    unasked.

    Args:
        environ: the variables; by default those of the process.

    Raises:
        EmbeddingError: a variable has a value that cannot be used, or the key is missing.
    """
    environ = os.environ if environ is None else environ
    kind, model = environ.get(_PROVIDER), environ.get(_MODEL)
    if environ.get(_MOCK, "").strip().lower() not in _OFF:
        _log.warning("%s is set: vectors are made up and mean nothing", _MOCK)
        kind = "mock"
    if not kind:
        kind = "openai-compatible" if model or environ.get(_BASE_URL) else "offline"
    if kind == "mock":
        from omnigraph.embed.mock import MockEmbedder

        return MockEmbedder(model) if model else MockEmbedder()
    if kind == "offline":
        if model and model != offline.NAME:
            raise EmbeddingError(
                f"{_MODEL} is '{model}', and the offline model is '{offline.NAME}'",
                hint=f"leave {_MODEL} out, or name a provider in {_PROVIDER}",
            )
        return offline.OfflineEmbedder()
    return _remote(kind, model, environ)


def _remote(kind: str, model: str | None, environ: Mapping[str, str]) -> Embedder:
    from omnigraph.embed.http import Endpoint, Limits
    from omnigraph.embed.providers import GeminiEmbedder, OpenAiEmbedder

    provider = _PROVIDERS.get(kind)
    if provider is None:
        known = ", ".join(["offline", *_PROVIDERS, "mock"])
        raise EmbeddingError(f"{_PROVIDER} is '{kind}', which is not a provider", hint=f"one of {known}")
    base_url = environ.get(_BASE_URL) or provider.base_url
    _check_url(base_url)
    key = environ.get(provider.key) or None
    if key is None and base_url == provider.base_url:
        raise EmbeddingError(
            f"the embedding provider '{kind}' needs a key", hint=f"put it into the environment as {provider.key}"
        )
    if key is not None and not (key.isascii() and key.isprintable()):
        raise EmbeddingError(f"{provider.key} is not a key: it has characters that cannot be sent")
    deadline = _whole(environ, "OMNIGRAPH_EMBED_DEADLINE_MS", 60_000, least=0)
    limits = Limits(
        deadline=deadline / 1000 if deadline else None,
        timeout=_whole(environ, "OMNIGRAPH_EMBED_TIMEOUT_MS", 30_000, least=1) / 1000,
        attempts=_whole(environ, "OMNIGRAPH_EMBED_RETRY_ATTEMPTS", 4, least=1),
        backoff=_whole(environ, "OMNIGRAPH_EMBED_RETRY_BACKOFF_MS", 200, least=0) / 1000,
    )
    if kind == "gemini":
        headers = {"x-goog-api-key": key} if key else {}
        return GeminiEmbedder(model or provider.model, Endpoint(base_url.rstrip("/"), headers, key, limits))
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return OpenAiEmbedder(model or provider.model, Endpoint(base_url.rstrip("/"), headers, key, limits))


def _check_url(url: str) -> None:
    """Refuse what is no address, without showing it: it may hold a password."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    if not good or not url.isprintable() or " " in url:
        raise EmbeddingError(f"{_BASE_URL} is not an http or https address")


def _whole(environ: Mapping[str, str], name: str, default: int, *, least: int) -> int:
    text = environ.get(name, "").strip()
    if not text:
        return default
    if not (text.isascii() and text.isdecimal()) or int(text) < least:
        raise EmbeddingError(f"{name} is '{text}', which is not a whole number of at least {least}")
    return int(text)
