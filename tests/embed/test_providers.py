"""Providers over HTTP: requests, retries and their limits, and invalid responses."""

from __future__ import annotations

import socket
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace

import numpy as np
import pytest
from tests.embed.provider import (
    Answer,
    Behaviour,
    Provider,
    always,
    answer,
    cut_off,
    drip,
    drop,
    gemini,
    hang,
    openai,
    vector,
)
from tests.thresholds import Thresholds

from omnigraph.embed import Embedder, Purpose, default_embedder, http
from omnigraph.errors import EmbeddingError, EmbeddingUnavailableError

KEY = "sk-very-secret-1234567890"
SIZE = 5


def configured(provider: Provider, kind: str = "openai", **settings: object) -> Embedder:
    variables = {
        "OMNIGRAPH_EMBED_PROVIDER": kind,
        "OMNIGRAPH_EMBED_BASE_URL": provider.url,
        "OMNIGRAPH_EMBED_RETRY_BACKOFF_MS": "1",
        "OPENROUTER_API_KEY": KEY,
        "OPENAI_API_KEY": KEY,
        "GEMINI_API_KEY": KEY,
    }
    return default_embedder(variables | {f"OMNIGRAPH_EMBED_{name}": str(value) for name, value in settings.items()})


def embed(embedder: Embedder, *texts: str, purpose: Purpose = Purpose.DOCUMENT) -> np.ndarray:
    return embedder.embed(texts, SIZE, purpose=purpose)


def expected(*texts: str) -> np.ndarray:
    raw = np.array([vector(text, SIZE) for text in texts])
    raw /= np.linalg.norm(raw, axis=1, keepdims=True)
    return raw


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between attempts; the test does not wait for them."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    return slept


# ---- requests


@pytest.mark.parametrize("kind", ["openai", "openai-compatible"])
def test_requests_have_the_openai_form(provider: Provider, kind: str) -> None:
    vectors = embed(configured(provider, kind, MODEL="m/small"), "one", "seven")
    assert vectors.dtype == np.float32
    assert vectors == pytest.approx(expected("one", "seven"), abs=1e-6)
    (seen,) = provider.seen
    assert seen.path == "/v1/embeddings"
    assert seen.body == {"model": "m/small", "input": ["one", "seven"], "dimensions": SIZE}
    assert seen.headers["authorization"] == f"Bearer {KEY}"
    assert seen.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("purpose", "task"), [(Purpose.QUERY, "RETRIEVAL_QUERY"), (Purpose.DOCUMENT, "RETRIEVAL_DOCUMENT")]
)
def test_requests_have_the_gemini_form(provider: Provider, purpose: Purpose, task: str) -> None:
    provider.behaviours = [gemini]
    vectors = embed(configured(provider, "gemini", MODEL="gem/x"), "one", "seven", purpose=purpose)
    assert vectors == pytest.approx(expected("one", "seven"), abs=1e-6)
    assert {seen.path for seen in provider.seen} == {"/v1/models/gem%2Fx:embedContent"}
    assert [seen.headers["x-goog-api-key"] for seen in provider.seen] == [KEY, KEY]
    first = next(seen.body for seen in provider.seen if "one" in str(seen.body))
    assert first == {
        "model": "models/gem/x",
        "content": {"parts": [{"text": "one"}]},
        "taskType": task,
        "outputDimensionality": SIZE,
    }


def test_many_texts_are_sent_in_batches_and_returned_in_order(provider: Provider) -> None:
    texts = [chr(65 + number % 26) * (number + 1) for number in range(70)]
    assert embed(configured(provider), *texts) == pytest.approx(expected(*texts), abs=1e-6)
    inputs = [seen.body["input"] for seen in provider.seen]
    assert sorted(len(texts) for texts in inputs if isinstance(texts, list)) == [6, 32, 32]
    assert sorted(str(text) for texts in inputs if isinstance(texts, list) for text in texts) == sorted(texts)


def test_long_texts_are_sent_in_separate_requests(provider: Provider) -> None:
    texts = ["a" * 60_000, "b" * 60_000, "c" * 200_000, "d"]
    embed(configured(provider), *texts)
    sent = [
        [str(text)[0] for text in seen.body["input"]] for seen in provider.seen if isinstance(seen.body["input"], list)
    ]
    assert sorted(sent) == [["a"], ["b"], ["c"], ["d"]]


def test_a_self_hosted_server_needs_no_key(provider: Provider) -> None:
    embed(default_embedder({"OMNIGRAPH_EMBED_BASE_URL": f"{provider.url}/"}), "one")
    assert "authorization" not in provider.seen[0].headers
    assert provider.seen[0].path == "/v1/embeddings"


def test_no_text_sends_no_request(provider: Provider) -> None:
    assert embed(configured(provider)).shape == (0, SIZE)
    assert provider.seen == []


# ---- retries


@pytest.mark.parametrize(
    "failure", [always(Answer(status)) for status in (429, 500, 502, 503, 529)] + [drop, cut_off(200), cut_off(503)]
)
def test_a_transient_failure_is_retried(provider: Provider, failure: Behaviour) -> None:
    provider.behaviours = [failure, failure, openai]
    assert embed(configured(provider), "one") == pytest.approx(expected("one"), abs=1e-6)
    assert len(provider.seen) == 3


def test_retries_stop_after_the_maximum_of_attempts(provider: Provider, pauses: list[float]) -> None:
    provider.behaviours = [always(Answer(503))]
    with pytest.raises(EmbeddingUnavailableError, match=r"HTTP status 503 \(4 attempts\)") as caught:
        embed(configured(provider, RETRY_BACKOFF_MS=200), "one")
    assert caught.value.retryable
    assert len(provider.seen) == 4
    assert pauses == [0.2, 0.4, 0.8]


def test_the_backoff_is_bounded(provider: Provider, pauses: list[float]) -> None:
    provider.behaviours = [always(Answer(503))]
    with pytest.raises(EmbeddingUnavailableError):
        embed(configured(provider, RETRY_ATTEMPTS=14, RETRY_BACKOFF_MS=1, DEADLINE_MS=0), "one")
    assert pauses[-3:] == [1.024, 1.024, 1.024]


@pytest.mark.parametrize(
    "asked",
    ["7", format_datetime(datetime.now(UTC) + timedelta(hours=9), usegmt=True)],
    ids=["seconds", "date"],
)
def test_the_retry_after_header_is_respected(provider: Provider, pauses: list[float], asked: str) -> None:
    provider.behaviours = [always(Answer(429, headers={"Retry-After": asked})), openai]
    embed(configured(provider, DEADLINE_MS=0), "one")
    (pause,) = pauses
    assert pause == 7 or 8 * 3600 < pause <= 9 * 3600


@pytest.mark.parametrize("asked", ["soon", "-3", "Fri, 99 Foo 2020 00:00:00 GMT"])
def test_an_invalid_retry_after_header_is_ignored(provider: Provider, pauses: list[float], asked: str) -> None:
    provider.behaviours = [always(Answer(429, headers={"Retry-After": asked})), openai]
    embed(configured(provider), "one")
    assert pauses == [0.001]


def test_no_pause_exceeds_the_deadline(provider: Provider) -> None:
    provider.behaviours = [always(Answer(429, headers={"Retry-After": "3600"}))]
    with pytest.raises(EmbeddingUnavailableError, match=r"the deadline leaves no time for a retry \(1 attempt\)"):
        embed(configured(provider, DEADLINE_MS=600_000), "one")
    assert len(provider.seen) == 1


@pytest.mark.parametrize("behaviour", [hang, drip])
def test_a_timeout_is_retried(provider: Provider, behaviour: Behaviour) -> None:
    provider.behaviours = [behaviour]
    with pytest.raises(EmbeddingUnavailableError, match=r"timeout \(2 attempts\)"):
        embed(configured(provider, TIMEOUT_MS=50, RETRY_ATTEMPTS=2, DEADLINE_MS=0), "one")
    assert len(provider.seen) <= 2, "on a busy machine, a request may be given up before it is sent"


def test_the_deadline_ends_an_attempt(provider: Provider) -> None:
    provider.behaviours = [hang]
    with pytest.raises(EmbeddingUnavailableError, match="no time for a retry"):
        embed(configured(provider, TIMEOUT_MS=3_600_000, DEADLINE_MS=50), "one")


def test_a_pause_beyond_the_deadline_ends_the_call(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that is suspended between two attempts."""
    slept: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + 3_600 * len(slept), sleep=slept.append)
    monkeypatch.setattr(http, "time", clock)
    provider.behaviours = [always(Answer(429)), hang]
    with pytest.raises(EmbeddingUnavailableError, match=r"no time for a retry \(2 attempts\)"):
        embed(configured(provider, DEADLINE_MS=600_000), "one")


def test_an_unreachable_provider_is_an_error() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # nobody listens there, and nobody else gets the port
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        embedder = default_embedder({"OMNIGRAPH_EMBED_BASE_URL": url, "OMNIGRAPH_EMBED_RETRY_BACKOFF_MS": "1"})
        with pytest.raises(EmbeddingUnavailableError, match=r"\(4 attempts\)"):
            embed(embedder, "one")


def test_one_failing_batch_fails_the_call(provider: Provider) -> None:
    provider.behaviours = [openai, always(Answer(400, b"too long"))]
    with pytest.raises(EmbeddingError, match="HTTP status 400: too long"):
        embed(configured(provider), *(f"text {number}" for number in range(200)))


# ---- errors without a retry


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_a_client_error_is_not_retried(provider: Provider, status: int) -> None:
    provider.behaviours = [always(Answer(status))]
    with pytest.raises(EmbeddingError, match=f"HTTP status {status}") as caught:
        embed(configured(provider), "one")
    assert not caught.value.retryable
    assert len(provider.seen) == 1


def test_a_client_error_with_a_truncated_body_is_not_retried(provider: Provider) -> None:
    provider.behaviours = [cut_off(400)]
    with pytest.raises(EmbeddingError, match="HTTP status 400"):
        embed(configured(provider), "one")
    assert len(provider.seen) == 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(provider: Provider, status: int) -> None:
    """A redirect would send the key to another host."""
    provider.behaviours = [always(Answer(status, headers={"Location": f"{provider.url}/other"})), openai]
    with pytest.raises(EmbeddingError, match=f"HTTP status {status}"):
        embed(configured(provider), "one")
    assert len(provider.seen) == 1


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"error": {"message": "no model 'x'", "type": "e"}}, ": no model 'x'"),
        ({"error": "no model"}, ": no model"),
        ({"message": "no\n  model"}, ": no model"),
        ({"other": 1}, ': {"other": 1}'),
    ],
)
def test_the_message_of_a_client_error_is_shown(provider: Provider, body: object, said: str) -> None:
    provider.behaviours = [always(answer(body, 400))]
    with pytest.raises(EmbeddingError) as caught:
        embed(configured(provider), "one")
    assert str(caught.value).endswith(f"HTTP status 400{said}")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 500])
def test_the_key_is_never_shown(provider: Provider, status: int, caplog: pytest.LogCaptureFixture) -> None:
    embedder = configured(provider, RETRY_ATTEMPTS=1)
    provider.behaviours = [
        always(answer({"error": {"message": f"the key {KEY} is bad, so is sk-very***7890"}}, status))
    ]
    with pytest.raises(EmbeddingError) as caught:
        embed(embedder, "one")
    for text in (str(caught.value), caught.value.render(), repr(caught.value), repr(embedder), caplog.text):
        assert KEY not in text
        assert status not in (401, 403) or "sk-" not in text


# ---- invalid vectors

GOOD = vector("one", SIZE)


def listed(*rows: object) -> Answer:
    return answer({"data": [{"index": number, "embedding": row} for number, row in enumerate(rows)]})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (listed(GOOD[:-1]), "1 × 4 numbers instead of 1 × 5"),
        (listed([*GOOD, 1.0]), "1 × 6 numbers"),
        (listed([]), "not a vector|1 × 0 numbers"),
        (listed([0.0] * SIZE), "zeros"),
        (listed([1e300] * (SIZE - 1) + [None]), "not a vector"),
        (listed(["1.0"] * SIZE), "not a vector"),
        (listed([True] * SIZE), "not a vector"),
        (listed([[1.0]] * SIZE), "numbers instead of"),
        (listed(GOOD, GOOD), "no valid vectors"),
        (listed(), "no valid vectors"),
        (answer({"data": [{"index": 1, "embedding": GOOD}]}), "no valid vectors"),
        (answer({"data": [{"index": "0", "embedding": GOOD}]}), "no valid vectors"),
        (answer({"data": [{"index": 0, "embedding": "AAAA"}]}), "no valid vectors"),
        (answer({"data": [7]}), "no valid vectors"),
        (answer([GOOD]), "no valid vectors"),
        (answer(None), "no valid vectors"),
        (Answer(200, b'{"data": [{"index": 0, "embedding": [NaN, 1, 1, 1, 1]}]}'), "not JSON"),
        (Answer(200, b'{"data": [{"index": 0, "embedding": [1e999, 1, 1, 1, 1]}]}'), "not JSON|not finite"),
        (Answer(200, b"<html>hello</html>"), "not JSON"),
        (Answer(200, b"\xff\xfe"), "not JSON"),
        (Answer(200, b""), "not JSON"),
        (Answer(204), "not JSON"),
    ],
)
def test_an_invalid_openai_response_is_refused(provider: Provider, given: Answer, said: str) -> None:
    provider.behaviours = [always(given)]
    with pytest.raises(EmbeddingError, match=said) as caught:
        embed(configured(provider), "one")
    assert not caught.value.retryable
    assert len(provider.seen) == 1


@pytest.mark.parametrize("body", [{"embedding": {"values": "x"}}, {"embedding": [1.0] * SIZE}, {}, [], "x"])
def test_an_invalid_gemini_response_is_refused(provider: Provider, body: object) -> None:
    provider.behaviours = [always(answer(body))]
    with pytest.raises(EmbeddingError, match="returned no valid vector"):
        embed(configured(provider, "gemini"), "one")


def test_huge_numbers_are_normalised(provider: Provider) -> None:
    provider.behaviours = [always(listed([1e300, 1e-300, -1e300, 0.0, 0.0]))]
    assert embed(configured(provider), "one")[0] == pytest.approx([0.5**0.5, 0, -(0.5**0.5), 0, 0])


def test_vectors_of_different_lengths_are_refused(provider: Provider) -> None:
    provider.behaviours = [always(listed(GOOD, GOOD[:-1]))]
    with pytest.raises(EmbeddingError, match="different lengths"):
        embed(configured(provider), "one", "two")


def test_the_size_of_a_response_is_limited(provider: Provider, thresholds: Thresholds) -> None:
    thresholds(http, MAX_RESPONSE_BYTES=1000)
    provider.behaviours = [always(Answer(200, b" " * 5000))]
    with pytest.raises(EmbeddingError, match="more than 1000 bytes"):
        embed(configured(provider), "one")
