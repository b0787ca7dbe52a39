"""Logs, metrics and spans tell the operator what happened, and nothing that they must not."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.patience import until
from tests.server.conftest import INSERT, SELECT, Client, Serve
from tests.server.test_identity import TOKENS

from omnigraph.errors import InputError
from omnigraph.server import logs
from omnigraph.server.logs import JsonFormatter, logging_to_stderr


def requests(records: list[logging.LogRecord], message: str = "request") -> list[dict[str, object]]:
    return [record.fields for record in records if record.getMessage() == message]  # type: ignore[attr-defined]


def test_each_request_has_one_record(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    client = serve(tokens=TOKENS).with_token("secret-of-kim")
    with caplog.at_level(logging.INFO, "omnigraph.server"):
        client.post("/query", {"query": SELECT}, headers={"X-Request-Id": "r1"})
        client.post("/mutate", {"query": INSERT, "params": {"n": "a secret value"}}, headers={"X-Request-Id": "r2"})
        client.get("//nothing", headers={"X-Request-Id": "r3"})
        until(lambda: len(requests(caplog.records)) == 3)
    first, second, third = requests(caplog.records)
    assert (first["request_id"], first["status"], first["actor"], first["graph"]) == ("r1", 200, "kim", "g")
    assert (second["status"], second["kind"]) == (403, "forbidden")
    assert (third["status"], third["route"]) == (404, "none")
    (decision,) = requests(caplog.records, "policy decision")
    assert decision == {
        "request_id": "r2",
        "graph": "g",
        "actor": "kim",
        "action": "change",
        "branch": "main",
        "target_branch": None,
        "allowed": False,
        "rule": None,
    }
    assert "secret" not in "".join(str(record.__dict__) for record in caplog.records)


def test_records_are_json_on_one_line() -> None:
    record = logging.LogRecord("omnigraph.server", logging.ERROR, "f", 1, "a\n%s", ("b",), None)
    record.fields = {"actor": "x\n\x1b[31m", "empty": None}
    line = JsonFormatter().format(record)
    assert "\n" not in line
    found = json.loads(line)
    assert (found["message"], found["level"], found["actor"]) == ("a\nb", "error", "x\n\x1b[31m")
    assert "empty" not in found


def test_tracebacks_are_logged() -> None:
    try:
        raise RuntimeError("why")
    except RuntimeError as error:
        record = logging.LogRecord("x", logging.ERROR, "f", 1, "m", (), (type(error), error, error.__traceback__))
    assert "RuntimeError: why" in json.loads(JsonFormatter().format(record))["traceback"]


def test_a_full_pipe_drops_records_and_does_not_wait() -> None:
    stream = io.StringIO()
    writer = logs.LogWriter(stream, capacity=2)
    for number in range(5):
        writer.emit(logging.LogRecord("x", logging.INFO, "f", 1, str(number), (), None))
    writer.write_waiting()
    *lines, last = map(json.loads, stream.getvalue().splitlines())
    assert [line["message"] for line in lines] == ["0", "1"]
    assert (last["level"], last["message"], last["records"]) == ("warning", "log records were dropped", 3)
    writer.emit(logging.LogRecord("x", logging.INFO, "f", 1, "5", (), None))
    writer.write_waiting()
    assert json.loads(stream.getvalue().splitlines()[-1])["message"] == "5"


def test_records_are_written_together_and_errors_at_once() -> None:
    stream = io.StringIO()
    writer = logs.LogWriter(stream)
    writer.start()
    for number in range(100):
        writer.emit(logging.LogRecord("x", logging.INFO, "f", 1, str(number), (), None))
    writer.emit(logging.LogRecord("x", logging.ERROR, "f", 1, "error", (), None))
    until(lambda: "error" in stream.getvalue())
    for number in range(100):
        writer.emit(logging.LogRecord("x", logging.INFO, "f", 1, str(number), (), None))
    writer.stop()
    messages = [json.loads(line)["message"] for line in stream.getvalue().splitlines()]
    assert messages == [*map(str, range(100)), "error", *map(str, range(100))]


def test_unknown_levels_are_errors() -> None:
    with pytest.raises(InputError, match="'loud' is not a log level"), logging_to_stderr("loud"):
        pytest.fail("it was accepted")


def test_metrics(client: Client) -> None:
    client.post("/query", {"query": SELECT})
    client.post("/query", {"query": "x"})
    until(lambda: b'route="/graphs/{graph_id}/query",status="400"} 1.0' in client.get("//metrics").body)
    text = client.get("//metrics").body.decode()
    assert 'omnigraph_http_requests_total{method="POST",route="/graphs/{graph_id}/query",status="200"} 1.0' in text
    assert 'omnigraph_http_request_seconds_count{method="POST",route="/graphs/{graph_id}/query"} 2.0' in text
    until(lambda: b"omnigraph_http_requests_in_flight 1.0" in client.get("//metrics").body)
    assert "_created" not in text


def test_metrics_count_denials(serve: Serve) -> None:
    client = serve(tokens=TOKENS).with_token("secret-of-kim")
    client.post("/mutate", {"query": INSERT, "params": {"n": "eve"}})
    text = client.get("//metrics").body.decode()
    assert 'omnigraph_policy_denied_total{action="change"} 1.0' in text
    assert "kim" not in text


def test_labels_of_metrics_are_bounded(client: Client) -> None:
    for number in range(20):
        client.get(f"//path/{number}")
        client.send(f"METHOD{'X' * number}", "/branches")
    text = client.get("//metrics").body.decode()
    assert "/path/" not in text
    assert "METHODXXXXXXXXXX" not in text


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", lambda name: provider.get_tracer(name))
    yield exporter
    provider.shutdown()


def test_spans_are_recorded_if_the_program_sets_up_the_sdk(spans: InMemorySpanExporter, serve: Serve) -> None:
    client = serve()
    client.post("/query", {"query": SELECT}, headers={"X-Request-Id": "r1"})
    until(lambda: spans.get_finished_spans())
    (span,) = spans.get_finished_spans()
    assert span.name == "POST /graphs/{graph_id}/query"
    assert span.attributes is not None
    assert (span.attributes["http.response.status_code"], span.attributes["omnigraph.request_id"]) == (200, "r1")


def test_there_are_no_spans_otherwise(client: Client) -> None:
    assert client.get("//healthz").status == 200
    assert not trace.get_current_span().is_recording()
