"""The embedder that the environment selects."""

from __future__ import annotations

import logging

import pytest

from omnigraph.embed import OfflineEmbedder, default_embedder, offline
from omnigraph.embed.http import Limits
from omnigraph.embed.mock import MockEmbedder
from omnigraph.embed.providers import GeminiEmbedder, OpenAiEmbedder
from omnigraph.errors import EmbeddingError

KEYS = {"OPENROUTER_API_KEY": "k1", "OPENAI_API_KEY": "k2", "GEMINI_API_KEY": "k3"}


def remote(**settings: str) -> OpenAiEmbedder | GeminiEmbedder:
    embedder = default_embedder(KEYS | {f"OMNIGRAPH_EMBED_{name}": value for name, value in settings.items()})
    assert isinstance(embedder, OpenAiEmbedder | GeminiEmbedder)
    return embedder


def test_the_offline_model_is_the_default() -> None:
    assert isinstance(default_embedder({}), OfflineEmbedder)


def test_a_key_alone_selects_no_provider() -> None:
    assert isinstance(default_embedder(KEYS), OfflineEmbedder)


@pytest.mark.parametrize(
    ("kind", "url", "model", "headers"),
    [
        (
            "openai-compatible",
            "https://openrouter.ai/api/v1",
            "openai/text-embedding-3-large",
            {"Authorization": "Bearer k1"},
        ),
        ("openai", "https://api.openai.com/v1", "text-embedding-3-large", {"Authorization": "Bearer k2"}),
        (
            "gemini",
            "https://generativelanguage.googleapis.com/v1beta",
            "gemini-embedding-2",
            {"x-goog-api-key": "k3"},
        ),
    ],
)
def test_each_provider_has_its_default_url_model_and_key(
    kind: str, url: str, model: str, headers: dict[str, str]
) -> None:
    embedder = remote(PROVIDER=kind)
    assert (embedder.endpoint.base_url, embedder.name, embedder.endpoint.headers) == (url, model, headers)
    assert embedder.endpoint.limits == Limits(deadline=60, timeout=30, attempts=4, backoff=0.2)


def test_a_model_or_a_url_selects_an_openai_compatible_provider() -> None:
    assert (remote(MODEL="m").name, remote(MODEL="m").endpoint.host) == ("m", "openrouter.ai")
    own = remote(BASE_URL="http://localhost:8080/v1/")
    assert (own.name, own.endpoint.base_url) == ("openai/text-embedding-3-large", "http://localhost:8080/v1")


def test_limits_are_read_from_the_environment() -> None:
    limits = remote(
        MODEL="m", DEADLINE_MS="0", TIMEOUT_MS="5", RETRY_ATTEMPTS="1", RETRY_BACKOFF_MS="0"
    ).endpoint.limits
    assert limits == Limits(deadline=None, timeout=0.005, attempts=1, backoff=0)


@pytest.mark.parametrize("value", ["1", "true", "yes", "on"])
def test_the_forced_mock_logs_a_warning(value: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        embedder = default_embedder({"OMNIGRAPH_EMBEDDINGS_MOCK": value, "OMNIGRAPH_EMBED_PROVIDER": "openai"})
    assert embedder == MockEmbedder("mock")
    assert "OMNIGRAPH_EMBEDDINGS_MOCK" in caplog.text


@pytest.mark.parametrize("value", ["", "0", "false", "No", "OFF"])
def test_the_mock_variable_can_be_off(value: str, caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(default_embedder({"OMNIGRAPH_EMBEDDINGS_MOCK": value}), OfflineEmbedder)
    assert caplog.text == ""


def test_the_mock_can_have_the_name_of_a_model(caplog: pytest.LogCaptureFixture) -> None:
    variables = {"OMNIGRAPH_EMBED_PROVIDER": "mock", "OMNIGRAPH_EMBED_MODEL": "acme/embed-small"}
    assert default_embedder(variables) == MockEmbedder("acme/embed-small")
    assert caplog.text == ""


def test_the_offline_model_can_be_selected_by_name() -> None:
    assert isinstance(default_embedder({"OMNIGRAPH_EMBED_PROVIDER": "offline"}), OfflineEmbedder)
    named = {"OMNIGRAPH_EMBED_PROVIDER": "offline", "OMNIGRAPH_EMBED_MODEL": offline.NAME}
    assert default_embedder(named).name == offline.NAME


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"OMNIGRAPH_EMBED_PROVIDER": "azure"}, "'azure', which is not a provider"),
        ({"OMNIGRAPH_EMBED_PROVIDER": "offline", "OMNIGRAPH_EMBED_MODEL": "m"}, "the offline model is"),
        ({"OMNIGRAPH_EMBED_PROVIDER": "openai"}, "needs an API key"),
        ({"OMNIGRAPH_EMBED_PROVIDER": "gemini", "GEMINI_API_KEY": ""}, "needs an API key"),
        ({"OMNIGRAPH_EMBED_MODEL": "m"}, "needs an API key"),
        (
            {"OMNIGRAPH_EMBED_MODEL": "m", "OPENROUTER_API_KEY": "a\r\nX: y"},
            "OPENROUTER_API_KEY is not a valid API key",
        ),
        ({"OMNIGRAPH_EMBED_BASE_URL": "ftp://user:pw@host"}, "OMNIGRAPH_EMBED_BASE_URL is not"),
        ({"OMNIGRAPH_EMBED_BASE_URL": "localhost:8080"}, "OMNIGRAPH_EMBED_BASE_URL is not"),
        ({"OMNIGRAPH_EMBED_BASE_URL": "http://host:pw@"}, "OMNIGRAPH_EMBED_BASE_URL is not"),
        ({"OMNIGRAPH_EMBED_BASE_URL": "http://[::1"}, "OMNIGRAPH_EMBED_BASE_URL is not"),
        ({**KEYS, "OMNIGRAPH_EMBED_MODEL": "m", "OMNIGRAPH_EMBED_TIMEOUT_MS": "0"}, "TIMEOUT_MS is '0'"),
        ({**KEYS, "OMNIGRAPH_EMBED_MODEL": "m", "OMNIGRAPH_EMBED_TIMEOUT_MS": "1.5"}, "TIMEOUT_MS is '1.5'"),
        ({**KEYS, "OMNIGRAPH_EMBED_MODEL": "m", "OMNIGRAPH_EMBED_DEADLINE_MS": "-1"}, "DEADLINE_MS is '-1'"),
        ({**KEYS, "OMNIGRAPH_EMBED_MODEL": "m", "OMNIGRAPH_EMBED_RETRY_ATTEMPTS": "0"}, "ATTEMPTS is '0'"),
    ],
)
def test_invalid_settings_are_named(variables: dict[str, str], said: str) -> None:
    with pytest.raises(EmbeddingError, match=said) as caught:
        default_embedder(variables)
    assert "pw" not in caught.value.render()
