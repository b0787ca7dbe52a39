"""Every storage failure is of the error family, has the right kind and a hint, and shows no secret."""

from __future__ import annotations

import errno
import logging
import os
import socket
import traceback
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pytest
from tests.s3_server import S3Root
from tests.thresholds import Thresholds

from omnigraph.errors import Disposition, InputError, OmnigraphError, StorageError, StorageErrorKind, report_for
from omnigraph.storage.lance_failures import reporting
from omnigraph.storage.objects import ObjectStore, open_store, s3

SECRETS = {
    "access_key_id": "AKIAVERYSECRETKEYID",
    "secret_access_key": "very/secret+access/key",
    "session_token": "veryverysecretsessiontoken",
}
QUICK = {"client_max_retries": "0", "client_retry_timeout": "2", "region": "us-east-1"}


def every_call(store: ObjectStore) -> list[StorageError]:
    """The error of each method: three that read, then five that write.

    Without `head` and `exists`: an answer to a HEAD request has no body, only a status.
    """
    calls: dict[str, Callable[[], object]] = {
        "get": lambda: store.get("a"),
        "list": lambda: store.list("a"),
        "list all": lambda: store.list("a/b"),
        "put": lambda: store.put("a", b"1"),
        "create": lambda: store.create("a", b"1"),
        "replace": lambda: store.replace("a", b"1", '"etag"'),
        "delete": lambda: store.delete("a"),
        "delete_if": lambda: store.delete_if("a", '"etag"'),
    }
    raised = []
    for name, call in calls.items():
        with pytest.raises(StorageError) as caught:
            call()
        assert caught.value.hint, name
        assert caught.value.uri == str(store.uri)
        assert "a" in caught.value.path
        assert str(caught.value).startswith(f"{store.uri}/a")
        raised.append(caught.value)
    return raised


def assert_no_secret(error: OmnigraphError) -> None:
    shown = "\n".join((str(error), repr(error), error.render(), *traceback.format_exception(error)))
    chain: BaseException | None = error
    while chain is not None:
        shown += str(chain)
        chain = chain.__cause__ or chain.__context__
    for secret in SECRETS.values():
        assert secret not in shown


# ---- S3


@pytest.mark.s3
def test_a_missing_bucket_is_a_configuration_error(s3_root: S3Root) -> None:
    for error in every_call(open_store("s3://no-such-bucket/graph", s3_root.options | SECRETS)):
        assert error.kind is StorageErrorKind.CONFIGURATION
        assert "NoSuchBucket" in str(error)
        assert_no_secret(error)


def test_an_unreachable_endpoint_is_a_retryable_error(thresholds: Thresholds) -> None:
    thresholds(s3, RETRY_PAUSES_SECONDS=(0.0,))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    store = open_store("s3://bucket/graph", {**SECRETS, **QUICK, "endpoint": f"http://127.0.0.1:{port}"})
    for error in every_call(store):
        assert error.kind is StorageErrorKind.TRANSIENT
        assert error.disposition is Disposition.RETRY
        assert_no_secret(error)


ANSWERS = [
    (403, "SignatureDoesNotMatch", StorageErrorKind.CONFIGURATION, StorageErrorKind.CONFIGURATION),
    (403, "AccessDenied", StorageErrorKind.CONFIGURATION, StorageErrorKind.CONFIGURATION),
    (401, "", StorageErrorKind.CONFIGURATION, StorageErrorKind.CONFIGURATION),
    (301, "PermanentRedirect", StorageErrorKind.CONFIGURATION, StorageErrorKind.CONFIGURATION),
    (400, "InvalidRequest", StorageErrorKind.PERMANENT, StorageErrorKind.PERMANENT),
    (501, "NotImplemented", StorageErrorKind.CONFIGURATION, StorageErrorKind.CONFIGURATION),
    (503, "SlowDown", StorageErrorKind.TRANSIENT, StorageErrorKind.TRANSIENT),
    (500, "InternalError", StorageErrorKind.TRANSIENT, StorageErrorKind.UNKNOWN),
]


@pytest.mark.parametrize(("status", "code", "reading", "writing"), ANSWERS, ids=str)
def test_a_refused_request_has_the_right_kind_and_shows_no_secret(
    status: int, code: str, reading: StorageErrorKind, writing: StorageErrorKind, thresholds: Thresholds
) -> None:
    """The S3 error for a wrong signature includes the request with its session token."""
    thresholds(s3, RETRY_PAUSES_SECONDS=(0.0,))

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            self.close_connection = True
            headers = "\n".join(f"{name}:{value}" for name, value in self.headers.items())
            body = (
                f"<Error><Code>{code}</Code><CanonicalRequest>{headers} {SECRETS}</CanonicalRequest></Error>".encode()
            )
            self.send_response_only(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_PUT = do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        options = {**SECRETS, **QUICK, "endpoint": f"http://127.0.0.1:{server.server_port}"}
        errors = every_call(open_store("s3://bucket/graph", options))
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert {error.kind for error in errors[:3]} == {reading}
    assert {error.kind for error in errors[3:]} == {writing}
    for error in errors:
        assert_no_secret(error)


def test_unknown_storage_options_are_refused() -> None:
    with pytest.raises(StorageError) as raised:
        open_store("s3://bucket", {**SECRETS, "no_such_option": "1"})
    assert raised.value.kind is StorageErrorKind.CONFIGURATION
    assert "no_such_option" in str(raised.value)
    assert_no_secret(raised.value)


@pytest.mark.parametrize(
    "endpoint", ["http://AKIAVERYSECRETKEYID:very/secret+access/key@host", "http://AKIAVERYSECRETKEYID@host:1"]
)
def test_credentials_in_an_endpoint_are_refused(endpoint: str) -> None:
    with pytest.raises(InputError) as raised:
        open_store("s3://bucket", {"endpoint": endpoint})
    assert_no_secret(raised.value)


def test_the_repr_of_a_store_shows_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    store = open_store("s3://bucket/graph", {**SECRETS, "region": "us-east-1"})
    for shown in (repr(store), str(store.uri), repr(store.uri), caplog.text, repr(vars(store))):
        assert not any(secret in shown for secret in SECRETS.values())


# ---- disks


def test_a_file_in_place_of_a_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "root").write_bytes(b"")
    store = open_store(str(tmp_path / "root"))
    with pytest.raises(StorageError) as raised:
        store.put("a", b"1")
    assert raised.value.kind is StorageErrorKind.PERMANENT
    store = open_store(str(tmp_path))
    for write in (store.put, store.create):
        with pytest.raises(StorageError) as raised:
            write("root/a", b"1")
        assert raised.value.kind is StorageErrorKind.PERMANENT


def test_a_directory_in_place_of_an_object_is_reported(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.put("a/b", b"1")
    for write in (store.put, store.create):
        with pytest.raises(StorageError) as raised:
            write("a", b"1")
        assert raised.value.kind is StorageErrorKind.PERMANENT
    assert [info.path for info in store.list()] == ["a/b"]


def test_a_name_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as raised:
        open_store(str(tmp_path)).put("x" * 300, b"1")
    assert raised.value.kind is StorageErrorKind.PERMANENT
    assert "shorter" in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        ("ENOSPC", StorageErrorKind.PERMANENT),
        ("EACCES", StorageErrorKind.CONFIGURATION),
        ("EROFS", StorageErrorKind.CONFIGURATION),
        ("EMFILE", StorageErrorKind.TRANSIENT),
        ("EIO", StorageErrorKind.PERMANENT),
    ],
)
def test_disk_errors_have_the_right_kind_and_leave_the_old_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: str, kind: StorageErrorKind
) -> None:
    def refuse(descriptor: int, data: bytes) -> int:
        raise OSError(getattr(errno, number), os.strerror(getattr(errno, number)))

    store = open_store(str(tmp_path))
    etag = store.put("a", b"1")
    monkeypatch.setattr(os, "write", refuse)
    calls: list[Callable[[], str]] = [
        lambda: store.put("a", b"2"),
        lambda: store.create("b", b"2"),
        lambda: store.replace("a", b"2", etag),
    ]
    for call in calls:
        with pytest.raises(StorageError) as raised:
            call()
        assert raised.value.kind is kind
    monkeypatch.undo()
    assert store.get("a").data == b"1"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".og-lock", "a"]


def test_a_file_system_without_hard_links_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: str, target: str) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StorageError) as raised:
        open_store(str(tmp_path)).create("a", b"1")
    assert raised.value.kind is StorageErrorKind.CONFIGURATION
    assert "hard links" in str(raised.value)


def test_durability_in_doubt_is_an_unknown_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(directory: str) -> None:
        raise OSError(5, "Input/output error")

    store = open_store(str(tmp_path))
    monkeypatch.setattr("omnigraph.storage.objects.local.sync_directory", fail)
    with pytest.raises(StorageError) as raised:
        store.create("a", b"1")
    assert raised.value.kind is StorageErrorKind.UNKNOWN
    assert raised.value.disposition is Disposition.UNKNOWN


# ---- the error family


@pytest.mark.parametrize("kind", StorageErrorKind)
def test_storage_errors_have_a_report(kind: StorageErrorKind) -> None:
    error = StorageError("reason", kind=kind, uri="s3://bucket", path="a")
    report = report_for(error)
    assert (report.http_status, report.http_code, report.exit_code) == (500, "internal", 1)
    assert str(error) == "s3://bucket/a: reason"


@pytest.mark.parametrize("kind", [OSError, pa.ArrowInvalid])
def test_an_interrupt_inside_lance_is_no_damaged_file(kind: type[Exception]) -> None:
    failed = kind("/g/__manifest: External error: KeyboardInterrupt: , /x/lance/src/io.rs:1:2")
    with pytest.raises(KeyboardInterrupt), reporting("/g", "__manifest"):
        raise failed
