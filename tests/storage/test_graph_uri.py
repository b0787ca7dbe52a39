"""Parsing of graph URIs, and the storage settings that follow from them."""

from __future__ import annotations

import pickle
from pathlib import Path
from uuid import uuid4

import lance
import pyarrow as pa
import pytest
from tests.s3_server import S3Root

from omnigraph.errors import InputError
from omnigraph.storage.objects import open_store
from omnigraph.storage.s3_settings import S3Settings
from omnigraph.storage.uri import GraphUri

ROWS = pa.table({"id": ["a", "b"]})


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the S3 environment variables of this machine."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP", "AWS_S3_FORCE_PATH_STYLE"):
        monkeypatch.delenv(name, raising=False)


# ---- spelling


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/abs/path", "/abs/path"),
        ("/abs/path/", "/abs/path"),
        ("//abs//path", "/abs/path"),
        ("/abs/./x/../path", "/abs/path"),
        ("/../..", "/"),
        ("file:///abs/path/", "/abs/path"),
        ("FILE:///abs/path", "/abs/path"),
        ("file://localhost/abs", "/abs"),
        ("file:///a%20b/%C3%BC", "/a b/ü"),
        ("/a%20b", "/a%20b"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("S3://bucket//a/./b/", "s3://bucket/a/b"),
        ("s3://bucket/ünïcödé dir", "s3://bucket/ünïcödé dir"),
        ("memory://name", "memory://name"),
        ("memory://name/a/", "memory://name/a"),
    ],
)
def test_a_uri_is_normalised(text: str, shown: str) -> None:
    uri = GraphUri.parse(text)
    assert str(uri) == shown
    assert GraphUri.parse(shown) == uri


def test_relative_paths_start_at_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert str(GraphUri.parse("graph")) == str(tmp_path / "graph")
    assert str(GraphUri.parse("./a/../graph/")) == str(tmp_path / "graph")
    assert str(GraphUri.parse(".")) == str(tmp_path)
    assert str(GraphUri.parse("a:b")) == str(tmp_path / "a:b")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gs://bucket/graph", "s3://bucket/prefix"),
        ("s3:/bucket/graph", "s3://bucket/prefix"),
        ("http://host/graph", "s3://bucket/prefix"),
        ("https://host/graph", "s3://bucket/prefix"),
        ("HTTPS://host/graph", "s3://bucket/prefix"),
        ("", "path"),
        ("a\0b", "path"),
        ("file://host/path", "file:///"),
        ("file://", "file:///"),
        ("s3://", "bucket"),
        ("s3:///prefix", "bucket"),
        ("s3://bucket/../other", "s3://"),
        ("s3://bucket/a?b=c", "s3://"),
        ("s3://bucket/a#b", "s3://"),
        ("memory://", "name"),
    ],
)
def test_invalid_graph_uris_are_refused(text: str, says: str) -> None:
    with pytest.raises(InputError) as raised:
        GraphUri.parse(text)
    assert says in (raised.value.hint or "")


def test_credentials_in_a_uri_are_refused() -> None:
    with pytest.raises(InputError) as raised:
        GraphUri.parse("s3://key:very-secret@bucket/graph")
    assert "very-secret" not in raised.value.render()
    assert "AWS_SECRET_ACCESS_KEY" in raised.value.render()


def test_links_are_resolved_for_identity_only(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    link, real = GraphUri.parse(str(tmp_path / "link/new/graph")), GraphUri.parse(str(tmp_path / "real/new/graph"))
    assert str(link) == str(tmp_path / "link/new/graph")
    assert link != real
    assert link.identity == real.identity == str((tmp_path / "real").resolve() / "new/graph")
    assert GraphUri.parse("s3://b//x/").identity == "s3://b/x"


def test_storage_options_are_kept_and_not_shown() -> None:
    uri = GraphUri.parse("s3://bucket", {"secret_access_key": "very-secret"})
    assert "very-secret" not in repr(uri)
    assert uri == GraphUri.parse("s3://bucket")
    assert hash(uri) == hash(GraphUri.parse("s3://bucket"))
    again = pickle.loads(pickle.dumps(uri))
    assert again.lance_storage_options["aws_secret_access_key"] == "very-secret"


# ---- S3 settings


def test_s3_settings_are_read_from_the_environment() -> None:
    environ = {
        "AWS_REGION": "eu-west-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_SESSION_TOKEN": "token",
        "AWS_ENDPOINT_URL": "https://general",
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9000/",
        "AWS_S3_FORCE_PATH_STYLE": "true",
        "AWS_UNRELATED": "x",
    }
    settings = S3Settings.resolve({}, environ)
    assert settings.lance_options() == {
        "aws_region": "eu-west-1",
        "aws_access_key_id": "key",
        "aws_secret_access_key": "secret",
        "aws_session_token": "token",
        "aws_endpoint": "http://127.0.0.1:9000",
        "aws_endpoint_url_s3": "http://127.0.0.1:9000",
        "aws_virtual_hosted_style_request": "false",
        "allow_http": "true",
    }
    assert set(settings.secrets) == {"key", "secret", "token"}
    assert "secret" not in repr(settings)


@pytest.mark.parametrize(
    "name", ["endpoint", "aws_endpoint", "AWS_ENDPOINT_URL", "endpoint_url_s3", "aws_endpoint_url_s3"]
)
def test_options_override_the_environment(name: str) -> None:
    environ = {"AWS_ENDPOINT_URL_S3": "http://environment", "AWS_REGION": "a"}
    settings = S3Settings.resolve({name: "https://mine", "region": "b"}, environ)
    assert settings.client_config() == {
        "endpoint": "https://mine",
        "aws_endpoint_url_s3": "https://mine",
        "region": "b",
    }


def test_http_is_allowed_for_an_http_endpoint() -> None:
    assert S3Settings.resolve({"endpoint": "http://h"}, {}).client_config()["allow_http"] == "true"
    assert "allow_http" not in S3Settings.resolve({"endpoint": "https://h"}, {}).client_config()
    assert S3Settings.resolve({}, {"AWS_ALLOW_HTTP": "true"}).client_config() == {"allow_http": "true"}


@pytest.mark.parametrize("endpoint", ["host:9000", "ftp://host", "http://", "http://host:port"])
def test_invalid_endpoints_are_refused(endpoint: str) -> None:
    with pytest.raises(InputError, match="endpoint"):
        S3Settings.resolve({"endpoint": endpoint}, {})


def test_the_number_of_retries_can_be_set() -> None:
    settings = S3Settings.resolve({"client_max_retries": "2", "client_retry_timeout": "7"}, {})
    assert (settings.max_retries, settings.retry_seconds) == (2, 7)
    assert settings.lance_options() == {"client_max_retries": "2", "client_retry_timeout": "7"}
    assert settings.client_config() == {}
    with pytest.raises(InputError, match="client_max_retries"):
        S3Settings.resolve({"client_max_retries": "many"}, {})


# ---- Lance uses the same location


@pytest.mark.parametrize("name", ["plain", "a b", "a%20b", "ü#x", "q?x"])
def test_lance_opens_the_same_location_on_disk(tmp_path: Path, name: str) -> None:
    uri = GraphUri.parse(str(tmp_path / name))
    lance.write_dataset(ROWS, uri.lance_uri("nodes/t"), storage_options=uri.lance_storage_options or None)
    store = open_store(uri)
    assert any(info.path.startswith("nodes/t/_versions/") for info in store.list("nodes"))
    store.sync_files(info.path for info in store.list("nodes"))


def test_lance_opens_the_same_location_in_memory() -> None:
    one, other = GraphUri.parse(f"memory://{uuid4().hex}"), GraphUri.parse(f"memory://{uuid4().hex}")
    assert one.lance_storage_options == {}
    lance.write_dataset(ROWS, one.lance_uri("nodes/t"))
    assert lance.dataset(one.lance_uri("nodes/t")).count_rows() == 2
    with pytest.raises(ValueError, match="not found"):
        lance.dataset(other.lance_uri("nodes/t"))


@pytest.mark.s3
@pytest.mark.parametrize("name", ["plain", "a b", "a%20b", "ü+x"])
def test_lance_opens_the_same_location_in_s3(s3_root: S3Root, name: str) -> None:
    uri = GraphUri.parse(f"{s3_root.uri}/{name}", s3_root.options)
    lance.write_dataset(ROWS, uri.lance_uri("nodes/t"), storage_options=uri.lance_storage_options)
    store = open_store(uri)
    assert any(info.path.startswith("nodes/t/_versions/") for info in store.list("nodes"))
    store.delete_prefix("nodes/t")
    with pytest.raises(ValueError, match="not found"):
        lance.dataset(uri.lance_uri("nodes/t"), storage_options=uri.lance_storage_options)


@pytest.mark.s3
def test_both_s3_clients_use_the_environment(s3_root: S3Root, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ENDPOINT_URL_S3": s3_root.options["endpoint"],
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_S3_FORCE_PATH_STYLE": "true",
    }.items():
        monkeypatch.setenv(name, value)
    uri = GraphUri.parse(s3_root.uri)
    open_store(uri).put("a", b"1")
    lance.write_dataset(ROWS, uri.lance_uri("t"), storage_options=uri.lance_storage_options)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    reached = uri.with_options(s3_root.options)
    assert "a" in [info.path for info in open_store(reached).list()]
    assert lance.dataset(reached.lance_uri("t"), storage_options=reached.lance_storage_options).count_rows() == 2
