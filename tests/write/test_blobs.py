"""External blobs come from allowed sources. They are checked before the write, then copied or kept as references."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.s3_server import S3Root
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.errors import (
    BadRowsError,
    ConstraintError,
    ExternalBlobPolicyError,
    ExternalBlobSourceError,
    InputError,
    ResourceLimitError,
)
from omnigraph.graph import Graph
from omnigraph.lang.schema import TypeKind
from omnigraph.storage.blob_sources import BlobSources, SourceUri, UnusableUriError
from omnigraph.storage.blobs import CELL, BlobInfo
from omnigraph.storage.objects import open_store
from omnigraph.write import external_blobs as blobs
from omnigraph.write.external_blobs import BlobPolicy, admit
from omnigraph.write.rules.changes import TableChange

SCHEMA = """
node Ship { name: String @key  crew: I32?  photo: Blob?  film: Blob?  @range(crew, 0..100) }
edge Docked: Ship -> Ship { log: Blob? }
"""


@pytest.fixture
def assets(tmp_path: Path) -> Path:
    """A directory with a few sources."""
    place = tmp_path / "assets"
    (place / "deep").mkdir(parents=True)
    (place / "a.jpg").write_bytes(b"picture a")
    (place / "b c.jpg").write_bytes(b"picture b")
    (place / "deep" / "empty").write_bytes(b"")
    (tmp_path / "secret").write_bytes(b"secret")
    return place


@pytest.fixture
def graph(tmp_path: Path, assets: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "graph", SCHEMA, blob_sources=[assets.as_uri() + "/"]) as made:
        yield made


def ships(**photos: str | bytes | None) -> dict[str, pa.Table]:
    kind = pa.large_binary() if any(isinstance(photo, bytes) for photo in photos.values()) else pa.utf8()
    return {"Ship": pa.table({"name": list(photos), "photo": pa.array(list(photos.values()), kind)})}


def state(graph: Graph) -> object:
    return graph.snapshot().commit.id, list(graph.export())


def noted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Record the accesses to sources from now on."""
    asked: list[tuple[str, str]] = []

    def note(name: str) -> None:
        original = getattr(BlobSources, name)

        def ask(sources: BlobSources, source: SourceUri) -> object:
            asked.append((name, source.names[-1]))
            return original(sources, source)

        monkeypatch.setattr(BlobSources, name, ask)

    note("size")
    note("read")
    return asked


# ---- URIs


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not an absolute address"),
        ("photo.jpg", "not an absolute address"),
        ("/etc/passwd", "not an absolute address"),
        ("s3:/bucket/a", "not an absolute address"),
        ("https://host/a", "only s3:// and file://"),
        ("javascript://x/y", "only s3:// and file://"),
        ("s3://bucket", "no path"),
        ("s3://bucket/", "an empty segment"),
        ("s3://bucket/a/", "an empty segment"),
        ("s3://bucket//a", "an empty segment"),
        ("s3:///a", "no bucket"),
        ("s3://buc%6bet/a", "no bucket"),
        ("s3://bucket/a?versionId=1", "query or a fragment"),
        ("s3://bucket/a#part", "query or a fragment"),
        ("s3://user:word@bucket/a", "user information"),
        ("s3://bucket:9000/a", "a port"),
        ("s3://bucket/a\\b", "backslash"),
        ("s3://bucket/a%5Cb", "encoded separator"),
        ("s3://bucket/a%2fb", "encoded separator"),
        ("s3://bucket/./a", "dot segments"),
        ("s3://bucket/a/../b", "dot segments"),
        ("s3://bucket/a/%2e%2E/b", "dot segments"),
        ("s3://bucket/a%", "a % without two hexadecimal digits"),
        ("s3://bucket/a%2", "a % without two hexadecimal digits"),
        ("s3://bucket/%ff", "not UTF-8"),
        ("s3://bucket/a%00", "control characters"),
        ("s3://bucket/a\nb", "control characters"),
        ("file://host/a", "a file address has no host"),
        ("file://localhost/a", "a file address has no host"),
        ("file:///a/..", "dot segments"),
    ],
)
def test_unusable_source_uris_are_refused(text: str, reason: str) -> None:
    with pytest.raises(UnusableUriError, match=reason):
        SourceUri.parse(text)


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        ("S3://Bucket/a", "s3://Bucket/a"),
        ("s3://bucket/a b/ü", "s3://bucket/a%20b/%C3%BC"),
        ("s3://bucket/%41%20b", "s3://bucket/A%20b"),
        ("s3://bucket/a:b@c;d=1", "s3://bucket/a:b@c;d=1"),
        ("FILE:///a/B.c", "file:///a/B.c"),
    ],
)
def test_source_uris_are_normalised(text: str, spelling: str) -> None:
    assert str(SourceUri.parse(text)) == spelling
    assert SourceUri.parse(spelling) == SourceUri.parse(text)


def test_an_allowed_directory_matches_whole_path_segments() -> None:
    base = SourceUri.parse("s3://bucket/fleet/", directory=True)
    for inside in ("s3://bucket/fleet/a", "s3://bucket/fl%65et/deep/a"):
        assert base.contains(SourceUri.parse(inside))
    for outside in ("s3://bucket/fleets/a", "s3://bucket/fleet", "s3://Bucket/fleet/a", "s3://bucket/Fleet/a"):
        assert not base.contains(SourceUri.parse(outside))


# ---- the policy


@pytest.mark.parametrize(
    "bases",
    [
        ["s3://bucket/a", "s3://bucket/a/"],
        ["s3://bucket/a/b/", "s3://bucket/a/"],
        ["s3://bucket/", "s3://bucket/a/"],
    ],
)
def test_overlapping_sources_are_refused(tmp_path: Path, bases: list[str]) -> None:
    with pytest.raises(InputError, match="overlap"):
        omnigraph.init(tmp_path / "graph", SCHEMA, blob_sources=bases)
    assert not (tmp_path / "graph").exists()


def test_overlapping_sources_behind_symlinks_are_refused(assets: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(assets / "deep")
    with pytest.raises(InputError, match="overlap"):
        BlobPolicy.allowing([assets.as_uri(), (tmp_path / "link").as_uri()])


@pytest.mark.parametrize("base", ["file:///no/such/directory/", "assets/", "s3://user:word@bucket/", "s3://b/../c"])
def test_an_unusable_source_is_refused(base: str) -> None:
    with pytest.raises(InputError, match="cannot be used") as caught:
        BlobPolicy.allowing([base])
    assert "word" not in str(caught.value)


def test_no_external_blob_is_allowed_by_default(tmp_path: Path, assets: Path) -> None:
    with omnigraph.init(tmp_path / "graph", SCHEMA) as graph:
        for mode in ("append", "merge", "overwrite"):
            with pytest.raises(ExternalBlobPolicyError, match="external blobs are not allowed") as caught:
                graph.load(ships(argo=(assets / "a.jpg").as_uri()), mode=mode)
            assert str(caught.value).startswith("Ship.photo of 'argo': file://")
        graph.load(ships(argo=b"managed"), mode="append")
        insert = 'query q($uri: String) { insert Ship { name: "iona", photo: $uri } }'
        with pytest.raises(ExternalBlobPolicyError):
            graph.mutate(insert, {"uri": (assets / "a.jpg").as_uri()})


@pytest.mark.parametrize(
    "text",
    [
        "s3://key:very-secret@bucket/a",
        "s3://bucket/a?X-Amz-Signature=very-secret",
        "s3://bucket/a#very-secret",
        "very-secret",
        "very-secret@host:/path",
    ],
)
def test_error_messages_do_not_show_credentials(graph: Graph, text: str) -> None:
    with pytest.raises(ExternalBlobPolicyError) as caught:
        graph.load(ships(argo=text), mode="append")
    assert "secret" not in caught.value.render()
    assert "secret" not in caught.value.uri


def test_error_messages_truncate_long_uris(graph: Graph) -> None:
    with pytest.raises(ExternalBlobPolicyError) as caught:
        graph.load(ships(argo="s3://bucket/" + "x" * 5000), mode="append")
    assert len(caught.value.uri) < 300


def test_every_reference_is_checked_before_any_source_is_accessed(
    graph: Graph, assets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = noted(monkeypatch)
    with pytest.raises(ExternalBlobPolicyError, match=r"Ship.photo of 'b'"):
        graph.load(ships(a=(assets / "a.jpg").as_uri(), b="s3://elsewhere/a"), mode="append")
    assert looked == []


def test_symlinks_are_resolved_before_the_policy_check(graph: Graph, assets: Path, tmp_path: Path) -> None:
    (assets / "inside").symlink_to(assets / "a.jpg")
    (assets / "outside").symlink_to(tmp_path / "secret")
    (assets / "around").symlink_to(tmp_path)
    graph.load(ships(argo=(assets / "inside").as_uri()), mode="append")
    assert graph.blob("Ship", "argo", "photo").read() == b"picture a"
    before = state(graph)
    for path in ("outside", "around/secret"):
        for mode in ("merge", "overwrite"):
            with pytest.raises(ExternalBlobPolicyError, match="a symbolic link leads out"):
                graph.load(ships(argo=f"{assets.as_uri()}/{path}"), mode=mode)
    assert state(graph) == before


def test_an_allowed_source_may_be_a_symlink(assets: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(assets)
    with omnigraph.init(tmp_path / "graph", SCHEMA, blob_sources=[(tmp_path / "link").as_uri()]) as graph:
        graph.load(ships(a=(tmp_path / "link" / "a.jpg").as_uri(), b=(assets / "a.jpg").as_uri()), mode="append")
        assert graph.entity("Ship", "b") == {
            "id": "b",
            "crew": None,
            "film": None,
            "name": "b",
            "photo": BlobInfo(len(b"picture a")),
        }


# ---- sources


@pytest.mark.parametrize("what", ["missing", "directory", "pipe", "forbidden"])
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_an_unreadable_source_fails_the_whole_load(graph: Graph, assets: Path, what: str, mode: str) -> None:
    graph.load(ships(argo=b"before"), mode="append")
    before = state(graph)
    path = assets / what
    if what == "directory":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "forbidden":
        path.symlink_to(path)  # the user of the test may have all permissions
    expected = (ExternalBlobPolicyError, ExternalBlobSourceError)
    with pytest.raises(expected, match=r"Ship.photo of 'iona'"):
        graph.load(ships(iona=path.as_uri(), other=(assets / "a.jpg").as_uri()), mode=mode)
    assert state(graph) == before


def test_each_source_is_checked_and_read_once(graph: Graph, assets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = noted(monkeypatch)
    uri = (assets / "b c.jpg").as_uri()
    rows = pa.table({"name": ["a", "b"], "photo": [uri, uri.replace("c.jpg", "%63.jpg")], "film": [uri, None]})
    graph.load({"Ship": rows}, mode="append")
    assert asked == [("size", "b c.jpg"), ("read", "b c.jpg")]
    assert [graph.blob("Ship", *cell).read() for cell in (("a", "photo"), ("b", "photo"), ("a", "film"))] == [
        b"picture b"
    ] * 3


def test_at_most_eight_sources_are_accessed_concurrently(
    graph: Graph, assets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, running, most = threading.Lock(), [0], [0]
    all_busy = threading.Event()
    read = BlobSources.size

    def slow(sources: BlobSources, source: SourceUri) -> int:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
            if running[0] == 8:
                all_busy.set()
        all_busy.wait(30)
        with lock:
            running[0] -= 1
        return read(sources, source)

    monkeypatch.setattr(BlobSources, "size", slow)
    names = [f"s{number}" for number in range(20)]
    for name in names:
        (assets / name).write_bytes(name.encode())
    graph.load(ships(**{name: (assets / name).as_uri() for name in names}), mode="append")
    assert most[0] == 8
    assert all(graph.blob("Ship", name, "photo").read() == name.encode() for name in names)


# ---- copies and references


def test_append_merge_insert_and_update_copy_the_bytes(graph: Graph, assets: Path) -> None:
    uri = (assets / "a.jpg").as_uri()
    graph.load(ships(a=uri), mode="append")
    graph.load(ships(b=uri), mode="merge")
    graph.mutate('query q($u: String) { insert Ship { name: "c", photo: $u } }', {"u": uri})
    graph.mutate('query q() { insert Ship { name: "d" } }')
    graph.mutate('query q($u: String) { update Ship set { photo: $u } where name = "d" }', {"u": uri})
    (assets / "a.jpg").unlink()
    for name in "abcd":
        assert graph.blob("Ship", name, "photo").read() == b"picture a"


def test_overwrite_keeps_the_reference(graph: Graph, assets: Path) -> None:
    uri = (assets / "b c.jpg").as_uri()
    docked = pa.table({"from": ["a"], "to": ["a"], "log": [(assets / "deep" / "empty").as_uri()]})
    graph.load(ships(a=uri, b="base64:aGk=") | {"Docked": docked}, mode="overwrite")
    found = graph.blob("Ship", "a", "photo")
    assert (found.uri, found.size, found.etag) == (uri, None, None)
    assert graph.blob("Ship", "b", "photo").read() == b"hi"
    (assets / "b c.jpg").unlink()
    lines = b"".join(graph.export()).decode().splitlines()
    assert f'"log":"{assets.as_uri()}/deep/empty"' in lines[0]
    assert f'"photo":"{uri}"' in lines[1]
    with pytest.raises(InputError, match="not followed"):
        found.read()


def test_an_update_of_other_properties_keeps_blobs_and_references(graph: Graph, assets: Path) -> None:
    uri = (assets / "a.jpg").as_uri()
    rows = pa.table({"name": ["a", "b"], "photo": [uri, "base64:aGk="], "film": ["base64:", None]})
    graph.load({"Ship": rows}, mode="overwrite")
    (assets / "a.jpg").unlink()
    for name in "ab":
        graph.mutate("query q($n: String) { update Ship set { crew: 7 } where name = $n }", {"n": name})
    assert graph.entity("Ship", "a") == {
        "id": "a",
        "crew": 7,
        "film": BlobInfo(0),
        "name": "a",
        "photo": BlobInfo(None, uri),
    }
    assert graph.blob("Ship", "b", "photo").read() == b"hi"
    with pytest.raises(omnigraph.errors.NotFoundError):
        graph.blob("Ship", "b", "film")


def test_a_transaction_keeps_references_and_content(graph: Graph, assets: Path) -> None:
    uri = (assets / "a.jpg").as_uri()
    with graph.branch("main").transaction(message="ships") as tx:
        tx.load(ships(a=uri, b="base64:aGk="), mode="overwrite")
        (assets / "a.jpg").unlink()
        tx.mutate('query q() { update Ship set { crew: 7 } where name >= "a" }')
    found = graph.blob("Ship", "a", "photo")
    assert found.uri == uri
    assert graph.blob("Ship", "b", "photo").read() == b"hi"
    assert (graph.entity("Ship", "a") or {})["crew"] == 7


def test_constraints_are_checked_before_blob_sources(graph: Graph) -> None:
    rows = pa.table({"name": ["a"], "crew": pa.array([1000], pa.int32()), "photo": ["s3://elsewhere/a"]})
    with pytest.raises(ConstraintError):
        graph.load({"Ship": rows}, mode="append")
    with pytest.raises(BadRowsError, match="is not base64"):
        graph.load(ships(a="base64:?", b="s3://elsewhere/a"), mode="append")


@pytest.mark.parametrize(
    "text", ["base64:a", "base64:aGk", "base64:aGk=x", "base64: aGk=", "base64:aGk=\n", "base64:=", "base64:_-8="]
)
def test_base64_must_be_standard_with_padding(graph: Graph, text: str) -> None:
    with pytest.raises(BadRowsError, match="is not base64"):
        graph.load(ships(a=text), mode="append")


# ---- limits


def change(uris: list[str | None]) -> dict[str, TableChange]:
    ids = [f"s{number}" for number in range(len(uris))]
    cells = pa.array([None if uri is None else {"uri": uri} for uri in uris], CELL)
    rows = pa.table({"id": ids, "photo": cells})
    return {"node:Ship": TableChange(TypeKind.NODE, "Ship", rows, pa.array([], pa.utf8()))}


@pytest.fixture
def policy(assets: Path) -> BlobPolicy:
    return BlobPolicy.allowing([assets.as_uri()])


def test_references_are_limited_in_number_and_length(policy: BlobPolicy, assets: Path, thresholds: Thresholds) -> None:
    uri = (assets / "a.jpg").as_uri()
    admit(change([uri] * blobs.URI_CELLS), policy, keep_references=True)
    with pytest.raises(ResourceLimitError) as caught:
        admit(change([uri] * (blobs.URI_CELLS + 1)), policy, keep_references=True)
    assert (caught.value.resource, caught.value.limit) == ("number of references to external blobs", 8192)
    long = "s3://bucket/" + "ü" * (32 * 1024)
    with pytest.raises(ResourceLimitError, match=r"Ship.photo of 's1'") as caught:
        admit(change([None, long]), policy, keep_references=True)
    assert (caught.value.resource, caught.value.limit) == ("bytes of the URI of an external blob", 65536)
    thresholds(blobs, URI_METADATA_BYTES=len(uri) * 2)
    admit(change([uri, uri]), policy, keep_references=True)
    with pytest.raises(ResourceLimitError) as caught:
        admit(change([uri, uri, uri]), policy, keep_references=True)
    assert caught.value.resource == "bytes of the URIs of all external blobs"


def test_copied_bytes_are_limited(policy: BlobPolicy, assets: Path) -> None:
    uri = (assets / "a.jpg").as_uri()
    admitted = admit(change([uri, None, uri]), policy, keep_references=False, budget=18)
    assert [cell and cell["data"] for cell in admitted["node:Ship"].rows["photo"].to_pylist()] == [
        b"picture a",
        None,
        b"picture a",
    ]
    with pytest.raises(ResourceLimitError) as caught:
        admit(change([uri, uri]), policy, keep_references=False, budget=17)
    assert (caught.value.resource, caught.value.actual) == ("bytes of external blobs to copy into the graph", 18)
    with pytest.raises(ResourceLimitError) as caught:
        admit(change([uri]), policy, keep_references=False, budget=8)
    assert (caught.value.resource, caught.value.actual) == ("bytes of an external blob", 9)
    assert admit(change([uri, uri]), policy, keep_references=True, budget=0)


def test_a_change_without_references_is_not_rewritten() -> None:
    given = change([None, None])
    assert admit(given, BlobPolicy(), keep_references=False)["node:Ship"] is given["node:Ship"]


# ---- S3


@pytest.mark.s3
def test_blobs_are_copied_from_s3_to_a_graph_in_s3(s3_root: S3Root) -> None:
    objects = open_store(s3_root.uri, s3_root.options)
    large = bytes(range(256)) * 20_000
    objects.put("assets/fleet/a b.jpg", b"picture")
    objects.put("assets/fleet/large", large)
    objects.put("assets/other/x", b"not allowed")
    base = f"{s3_root.uri}/assets/fleet"
    with omnigraph.init(
        f"{s3_root.uri}/graph", SCHEMA, storage_options=s3_root.options, blob_sources=[f"{base}/"]
    ) as graph:
        graph.load(ships(argo=f"{base}/a b.jpg", iona=f"{base}/large", none=None), mode="append")
        photo = graph.blob("Ship", "iona", "photo")
        assert photo.size == len(large)
        assert b"".join(photo.iter()) == large
        assert photo.read(1000, 1010) == large[1000:1010]
        assert graph.blob("Ship", "argo", "photo").read() == b"picture"
        with pytest.raises(ExternalBlobSourceError, match="there is no such object") as caught:
            graph.load(ships(argo=f"{base}/missing"), mode="merge")
        assert caught.value.uri == f"{base}/missing"
        with pytest.raises(ExternalBlobPolicyError, match="not below a directory that blobs may come from"):
            graph.load(ships(argo=f"{s3_root.uri}/assets/other/x"), mode="merge")
        graph.load(ships(argo=f"{base}/a b.jpg"), mode="overwrite")
        assert graph.blob("Ship", "argo", "photo").uri == f"{base}/a%20b.jpg"
        graph.mutate('query q() { update Ship set { crew: 3 } where name = "argo" }')
        assert graph.blob("Ship", "argo", "photo").uri == f"{base}/a%20b.jpg"


@pytest.mark.s3
def test_an_s3_error_does_not_show_secrets(s3_root: S3Root, tmp_path: Path) -> None:
    options = s3_root.options | {
        "endpoint": "http://127.0.0.1:9",
        "client_max_retries": "0",
        "client_retry_timeout": "1",
    }
    with (
        omnigraph.init(
            tmp_path / "graph", SCHEMA, storage_options=options, blob_sources=["s3://graphs/assets/"]
        ) as graph,
        pytest.raises(ExternalBlobSourceError) as caught,
    ):
        graph.load(ships(argo="s3://graphs/assets/x"), mode="append")
    assert "test-secret" not in caught.value.render()
    assert "cannot be reached" in caught.value.reason
