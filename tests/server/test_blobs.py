"""Blobs over HTTP: ranges, conditional requests, references and errors."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, unquote

import pytest
from tests.patience import PATIENCE
from tests.server.conftest import SCHEMA, Answer, Client, Serve

import omnigraph
from omnigraph.server.ranges import UnsatisfiableRangeError, byte_range
from omnigraph.server.served_graphs import GraphConfig

CONTENT = bytes(range(256)) * 40_000  # 10 MB: several reads of the engine
WHERE = "/blob?entity=node&type=Person&property=photo&id="


@pytest.fixture
def blobs(tmp_path: Path, serve: Serve) -> Client:
    """`eve` has a large photo, `zoe` an empty one, `ann` none, and `leo` a reference."""
    assets = tmp_path / "assets"
    assets.mkdir()
    (assets / "leo.jpg").write_bytes(b"leo")
    source = assets.as_uri() + "/"
    root = tmp_path / "blobs"
    with omnigraph.init(root, SCHEMA, blob_sources=[source]) as graph:
        rows = [
            {"name": "eve", "photo": CONTENT},
            {"name": "zoe", "photo": b""},
            {"name": "ann"},
            {"name": "leo", "photo": f"{source}leo.jpg"},
        ]
        graph.load({"Person": rows}, mode="overwrite")
    return serve(graphs={"g": GraphConfig(str(root), blob_sources=(source,))})


def get(client: Client, entity: str = "eve", method: str = "GET", **headers: str) -> Answer:
    return client.send(method, WHERE + entity, headers={name.replace("_", "-"): text for name, text in headers.items()})


def test_a_whole_blob(blobs: Client) -> None:
    found = get(blobs)
    assert (found.status, found.body) == (200, CONTENT)
    assert found.headers["content-type"] == "application/octet-stream"
    assert found.headers["content-length"] == str(len(CONTENT))
    assert found.headers["accept-ranges"] == "bytes"
    assert found.headers["etag"].startswith('"')
    assert found.headers["omnigraph-snapshot-id"].startswith("manifest:main:v")


@pytest.mark.parametrize("branch", ["entwürfe", "草案", "черновик/а"])
def test_a_blob_of_a_branch_with_letters_of_any_script(blobs: Client, branch: str) -> None:
    assert blobs.post("/branches", {"name": branch}).status == 200
    for method in ("GET", "HEAD"):
        found = blobs.send(method, f"{WHERE}eve&branch={quote(branch)}")
        assert found.status == 200
        assert unquote(found.headers["omnigraph-snapshot-id"]).startswith(f"manifest:{branch}:v")
    assert blobs.get(f"{WHERE}leo&branch={quote(branch)}").status == 302


def test_an_empty_blob(blobs: Client) -> None:
    found = get(blobs, "zoe")
    assert (found.status, found.body, found.headers["content-length"]) == (200, b"", "0")
    assert get(blobs, "zoe", Range="bytes=0-").status == 416
    assert get(blobs, "zoe", Range="bytes=-1").status == 416


@pytest.mark.parametrize(
    ("header", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=5-9", 5, 10),
        ("bytes=0-99999999", 0, len(CONTENT)),
        ("bytes=9999999-", 9_999_999, len(CONTENT)),
        ("bytes=-7", len(CONTENT) - 7, len(CONTENT)),
        ("bytes=-99999999999999999999999", 0, len(CONTENT)),
        ("BYTES= 5-9 ", 5, 10),
    ],
)
def test_ranges(blobs: Client, header: str, start: int, end: int) -> None:
    found = get(blobs, Range=header)
    assert (found.status, found.body) == (206, CONTENT[start:end])
    assert found.headers["content-range"] == f"bytes {start}-{end - 1}/{len(CONTENT)}"
    assert found.headers["content-length"] == str(end - start)


@pytest.mark.parametrize("header", ["bytes=0-1,3-4", "bytes=5-2", "bytes=-", "items=0-1", "bytes=x-1", "bytes 0-1", ""])
def test_other_ranges_are_ignored(blobs: Client, header: str) -> None:
    assert get(blobs, "eve", Range=header).status == 200


@pytest.mark.parametrize("header", ["bytes=10240000-", "bytes=10240000-10240001", "bytes=-0"])
def test_unsatisfiable_ranges(blobs: Client, header: str) -> None:
    found = get(blobs, Range=header)
    assert (found.status, found.json["code"]) == (416, "bad_request")
    assert found.headers["content-range"] == f"bytes */{len(CONTENT)}"
    assert found.json["blob_range"]["length"] == len(CONTENT)


def test_conditions(blobs: Client) -> None:
    etag = get(blobs, method="HEAD").headers["etag"]
    same = get(blobs, If_None_Match=f'"x", W/{etag}')
    assert (same.status, same.body, same.headers["content-length"]) == (304, b"", str(len(CONTENT)))
    assert get(blobs, If_None_Match="*").status == 304
    assert get(blobs, If_None_Match='"x"').status == 200
    assert get(blobs, If_Match=f'"x", {etag}').status == 200
    for wrong in ('"x"', f"W/{etag}", "x", ""):
        found = get(blobs, If_Match=wrong)
        assert (found.status, found.json["code"], found.headers["etag"]) == (412, "conflict", etag)
    assert get(blobs, If_Match='"x"', If_None_Match=etag).status == 412
    assert get(blobs, Range="bytes=0-1", If_Range=etag).status == 206
    assert get(blobs, Range="bytes=0-1", If_Range=f"W/{etag}").status == 200
    assert get(blobs, Range="bytes=0-1", If_Range='"x"').status == 200


def test_head(blobs: Client) -> None:
    found = get(blobs, method="HEAD", Range="bytes=0-1")
    assert (found.status, found.body, found.headers["content-length"]) == (200, b"", str(len(CONTENT)))
    assert get(blobs, method="HEAD", If_None_Match="*").status == 304
    assert get(blobs, "none", method="HEAD").status == 404


def test_a_connection_stays_usable_after_304(blobs: Client) -> None:
    import http.client

    connection = http.client.HTTPConnection(blobs.address, timeout=PATIENCE)
    for _ in range(3):
        connection.request("GET", f"/graphs/g{WHERE}eve", headers={"If-None-Match": "*"})
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (304, b"")
        assert not answer.will_close
    connection.close()


def test_a_reference_is_not_followed(blobs: Client) -> None:
    found = get(blobs, "leo", Range="bytes=0-1")
    assert (found.status, found.body, found.headers["cache-control"]) == (302, b"", "no-store")
    assert found.headers["location"].endswith("/assets/leo.jpg")


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("entity=node&type=Person&property=photo&id=none", 404),
        ("entity=node&type=Person&property=photo&id=ann", 404),
        ("entity=node&type=None&property=photo&id=eve", 404),
        ("entity=edge&type=Person&property=photo&id=eve", 404),
        ("entity=node&type=Person&property=name&id=eve", 400),
        ("entity=node&type=Person&property=none&id=eve", 400),
        ("entity=thing&type=Person&property=photo&id=eve", 400),
        ("type=Person&property=photo&id=eve", 400),
        ("entity=node&type=Person&property=photo&id=eve&id=ann", 400),
        ("entity=node&type=Person&property=photo&id=eve&branch=none", 404),
        ("entity=node&type=Person&property=photo&id=eve&branch=main&snapshot=x", 400),
    ],
)
def test_bad_selectors(blobs: Client, query: str, status: int) -> None:
    assert blobs.get(f"/blob?{query}").status == status


def test_a_blob_of_a_snapshot(blobs: Client) -> None:
    commit = blobs.get("/commits").json["commits"][0]["graph_commit_id"]
    blobs.post("/mutate", {"query": 'query q() { delete Person where name = "eve" }'})
    assert get(blobs).status == 404
    assert blobs.get(f"{WHERE}eve&snapshot={commit}").body == CONTENT


def test_suffixes_of_an_empty_blob() -> None:
    with pytest.raises(UnsatisfiableRangeError):
        byte_range("bytes=-5", 0)
