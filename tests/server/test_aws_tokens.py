"""Bearer tokens from a secret in AWS Secrets Manager."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from omnigraph.errors import InputError
from omnigraph.server.tokens import read_tokens

SECRETS = {"good": '{"kim": "from-aws"}', "broken": "from-aws"}


class _SecretsManager(BaseHTTPRequestHandler):
    """Answers `GetSecretValue`, as the service does."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        found = SECRETS.get(asked["SecretId"])
        body = {"SecretString": found} if found else {"__type": "ResourceNotFoundException"}
        raw = json.dumps(body).encode()
        self.send_response(200 if found else 400)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with HTTPServer(("127.0.0.1", 0), _SecretsManager) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("AWS_ENDPOINT_URL_SECRETS_MANAGER", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
        yield
        server.shutdown()
        thread.join()


@pytest.mark.slow
def test_a_secret_replaces_all_other_sources(aws: None) -> None:
    environ = {"OMNIGRAPH_SERVER_BEARER_TOKENS_AWS_SECRET": "good", "OMNIGRAPH_SERVER_BEARER_TOKEN": "single"}
    assert read_tokens(environ) == {"kim": "from-aws"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["broken", "missing"])
def test_a_secret_that_cannot_be_used_is_an_error_without_its_text(aws: None, name: str) -> None:
    with pytest.raises(InputError) as caught:
        read_tokens({"OMNIGRAPH_SERVER_BEARER_TOKENS_AWS_SECRET": name})
    assert "from-aws" not in caught.value.render()
