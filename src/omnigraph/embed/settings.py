"""The embedder that the environment variables configure."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from omnigraph.dataclass import dataclass
from omnigraph.embed import offline
from omnigraph.embed.embedder import Embedder
from omnigraph.errors import EmbeddingError
from omnigraph.settings import (
    EMBED_BASE_URL,
    EMBED_DEADLINE_MS,
    EMBED_MODEL,
    EMBED_PROVIDER,
    EMBED_RETRY_ATTEMPTS,
    EMBED_RETRY_BACKOFF_MS,
    EMBED_TIMEOUT_MS,
    EMBEDDINGS_MOCK,
    GEMINI_API_KEY,
    OPENAI_API_KEY,
    OPENROUTER_API_KEY,
    Setting,
)

_OFF = frozenset({"", "0", "false", "no", "off"})

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Provider:
    base_url: str
    model: str
    key: Setting


_PROVIDERS = {
    "openai-compatible": _Provider("https://openrouter.ai/api/v1", "openai/text-embedding-3-large", OPENROUTER_API_KEY),
    "openai": _Provider("https://api.openai.com/v1", "text-embedding-3-large", OPENAI_API_KEY),
    "gemini": _Provider("https://generativelanguage.googleapis.com/v1beta", "gemini-embedding-2", GEMINI_API_KEY),
}


def default_embedder(environ: Mapping[str, str] | None = None) -> Embedder:
    """The embedder that the environment variables configure; by default the offline model.

    An API key alone does not select a provider. It may be set for another program, and texts must not leave the machine
    without consent.

    Args:
        environ: the environment variables; by default those of the process.

    Raises:
        EmbeddingError: a variable has an invalid value, or the API key is missing.
    """
    environ = os.environ if environ is None else environ
    kind, model = EMBED_PROVIDER.get(environ), EMBED_MODEL.get(environ)
    if EMBEDDINGS_MOCK.text(environ).strip().lower() not in _OFF:
        _log.warning("%s is set: the vectors are pseudo-random and have no meaning", EMBEDDINGS_MOCK.name)
        kind = "mock"
    if not kind:
        kind = "openai-compatible" if model or EMBED_BASE_URL.get(environ) else "offline"
    if kind == "mock":
        from omnigraph.embed.mock import MockEmbedder

        return MockEmbedder(model) if model else MockEmbedder()
    if kind == "offline":
        if model and model != offline.NAME:
            raise EmbeddingError(
                f"{EMBED_MODEL.name} is '{model}', but the offline model is '{offline.NAME}'",
                hint=f"unset {EMBED_MODEL.name}, or set a provider in {EMBED_PROVIDER.name}",
            )
        return offline.OfflineEmbedder()
    return _remote(kind, model, environ)


def _remote(kind: str, model: str | None, environ: Mapping[str, str]) -> Embedder:
    from omnigraph.embed.http import Endpoint, Limits
    from omnigraph.embed.providers import GeminiEmbedder, OpenAiEmbedder

    provider = _PROVIDERS.get(kind)
    if provider is None:
        known = ", ".join(["offline", *_PROVIDERS, "mock"])
        raise EmbeddingError(f"{EMBED_PROVIDER.name} is '{kind}', which is not a provider", hint=f"one of {known}")
    base_url = EMBED_BASE_URL.get(environ) or provider.base_url
    _check_url(base_url)
    key = provider.key.get(environ) or None
    if key is None and base_url == provider.base_url:
        raise EmbeddingError(f"the embedding provider '{kind}' needs an API key", hint=f"set {provider.key.name}")
    if key is not None and not (key.isascii() and key.isprintable()):
        raise EmbeddingError(f"{provider.key.name} is not a valid API key: it has characters that HTTP does not allow")
    deadline = _whole(EMBED_DEADLINE_MS, environ, least=0)
    limits = Limits(
        deadline=deadline / 1000 if deadline else None,
        timeout=_whole(EMBED_TIMEOUT_MS, environ, least=1) / 1000,
        attempts=_whole(EMBED_RETRY_ATTEMPTS, environ, least=1),
        backoff=_whole(EMBED_RETRY_BACKOFF_MS, environ, least=0) / 1000,
    )
    if kind == "gemini":
        headers = {"x-goog-api-key": key} if key else {}
        return GeminiEmbedder(model or provider.model, Endpoint(base_url.rstrip("/"), headers, key, limits))
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return OpenAiEmbedder(model or provider.model, Endpoint(base_url.rstrip("/"), headers, key, limits))


def _check_url(url: str) -> None:
    """Validate a URL. Errors do not quote it, because it may contain a password."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    if not good or not url.isprintable() or " " in url:
        raise EmbeddingError(f"{EMBED_BASE_URL.name} is not an http or https address")


def _whole(setting: Setting, environ: Mapping[str, str], *, least: int) -> int:
    text = setting.text(environ).strip() or setting.default
    if not (text.isascii() and text.isdecimal()) or int(text) < least:
        raise EmbeddingError(f"{setting.name} is '{text}'; it must be an integer of at least {least}")
    return int(text)
