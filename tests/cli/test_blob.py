"""`blob get` and `blob stat`: exact bytes, and references as such."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from tests.cli.shell import Shell

import omnigraph
from omnigraph.read import blobs

SCHEMA = """
node Ship { name: String @key  crew: I32?  photo: Blob? }
edge Docked: Ship -> Ship { log: Blob?  @key(src, dst) }
"""


@pytest.fixture
def ships(shell: Shell) -> str:
    uri = str(shell.root / "ships")
    source = shell.write("assets/film", b"outside")
    with omnigraph.init(uri, SCHEMA, blob_sources=[f"file://{shell.root}/assets"]) as graph:
        photos = ["base64:AAECAwQFBgc=", "base64:", None, f"file://{source}"]
        graph.load(
            {
                "Ship": pa.table({"name": ["argo", "empty", "none", "film"], "photo": photos}),
                "Docked": pa.table({"from": ["argo"], "to": ["none"], "log": [b"log"]}),
            },
            mode="overwrite",
        )
    return uri


def get(shell: Shell, uri: str, *args: str) -> bytes:
    result = shell.run("blob", "get", "node", "Ship", "argo", "photo", "--uri", uri, *args)
    assert result.exit_code == 0, result.output
    return result.stdout_bytes


def test_a_whole_blob_or_a_range_can_be_read(shell: Shell, ships: str) -> None:
    content = bytes(range(8))
    assert get(shell, ships) == content
    assert get(shell, ships, "--offset", "3") == content[3:]
    assert get(shell, ships, "--offset", "3", "--length", "2") == content[3:5]
    assert get(shell, ships, "--length", "2") == content[:2]
    assert get(shell, ships, "--offset", "6", "--length", "100") == content[6:]
    edge = shell.run("blob", "get", "edge", "Docked", '["argo","none"]', "log", "--store", ships)
    assert edge.stdout_bytes == b"log"


def test_an_empty_blob_has_no_range(shell: Shell, ships: str) -> None:
    empty = ("blob", "get", "node", "Ship", "empty", "photo", "--uri", ships)
    assert shell.run(*empty).stdout_bytes == b""
    assert shell.run(*empty).exit_code == 0
    assert "are outside of the blob, which has 0 bytes" in shell.fails(*empty, "--offset", "0")


def test_a_failed_read_keeps_the_output_file(shell: Shell, ships: str, monkeypatch: pytest.MonkeyPatch) -> None:
    out = shell.write("out", b"before")
    argo = ("blob", "get", "node", "Ship", "argo", "photo", "--uri", ships, "--out", out)
    assert "are outside of the blob, which has 8 bytes" in shell.fails(*argo, "--offset", "8")
    assert "are outside of the blob, which has 8 bytes" in shell.fails(*argo, "--offset", "9", "--length", "1")
    film = ("blob", "get", "node", "Ship", "film", "photo", "--uri", ships, "--out", out)
    message = shell.fails(*film)
    assert f"file://{shell.root}/assets/film" in message
    assert "blob stat" in message
    assert "is null" in shell.fails("blob", "get", "node", "Ship", "none", "photo", "--uri", ships, "--out", out)
    assert "is not a Blob" in shell.fails("blob", "get", "node", "Ship", "argo", "crew", "--uri", ships)
    assert "no type edge:Ship" in shell.fails("blob", "get", "edge", "Ship", "argo", "photo", "--uri", ships)

    def fail(blob: blobs.Blob, start: int, end: int) -> bytes:
        raise omnigraph.errors.BlobIntegrityError("Ship.photo", "broken")

    monkeypatch.setattr(blobs.Blob, "_bytes", fail)
    assert "broken" in shell.fails(*argo)
    assert Path(out).read_bytes() == b"before"


def test_a_blob_can_be_written_to_a_file(shell: Shell, ships: str) -> None:
    out = shell.write("out", b"before")
    assert get(shell, ships, "--out", out, "--length", "4") == b""
    assert Path(out).read_bytes() == bytes(range(4))
    assert "cannot write" in shell.fails(
        "blob", "get", "node", "Ship", "argo", "photo", "--uri", ships, "--out", str(shell.root / "no" / "where")
    )


def test_an_invalid_range_is_refused_before_the_graph_is_opened(shell: Shell) -> None:
    nowhere = ("blob", "get", "node", "Ship", "argo", "photo", "--uri", str(shell.root / "nowhere"))
    assert "--length is 0" in shell.fails(*nowhere, "--length", "0")
    assert "exceeds the size of any blob" in shell.fails(*nowhere, "--offset", str(2**64 - 1), "--length", "1")
    shell.fails(*nowhere, "--offset", "-1", code=2)
    shell.fails("blob", "get", "neither", "Ship", "argo", "photo", "--uri", "x", code=2)
    assert "there is no graph" in shell.fails(*nowhere, "--length", "1")


def test_stat_shows_size_etag_and_reference(shell: Shell, ships: str) -> None:
    said = shell.json("blob", "stat", "node", "Ship", "argo", "photo", "--uri", ships)
    etag = said.pop("etag")
    assert etag.startswith('"')
    assert said == {
        "selector": {"entity": "node", "type": "Ship", "id": "argo", "property": "photo"},
        "kind": "managed",
        "size": 8,
        "target": {"branch": "main", "resolved_snapshot": "manifest:main:v2"},
    }
    with omnigraph.open(ships) as graph:
        commit = graph.snapshot().commit.id
    film = shell.json("blob", "stat", "node", "Ship", "film", "photo", "--uri", ships, "--snapshot", commit)
    assert film == {
        "selector": {"entity": "node", "type": "Ship", "id": "film", "property": "photo"},
        "kind": "external",
        "uri": f"file://{shell.root}/assets/film",
        "target": {"snapshot": commit, "resolved_snapshot": "manifest:main:v2"},
    }
    lines = shell.run("blob", "stat", "node", "Ship", "argo", "photo", "--uri", ships).stdout.splitlines()
    assert lines == [
        "entity: node:Ship",
        "id: argo",
        "property: photo",
        "kind: managed",
        "size: 8",
        f"etag: {etag}",
        "branch: main",
        "resolved_snapshot: manifest:main:v2",
    ]
    assert "is null" in shell.fails("blob", "stat", "node", "Ship", "none", "photo", "--uri", ships)
    assert "not both" in shell.fails(
        "blob", "stat", "node", "Ship", "argo", "photo", "--uri", ships, "--branch", "main", "--snapshot", "x", code=2
    )


def test_blobs_of_branches_and_snapshots_can_be_read(shell: Shell, ships: str) -> None:
    with omnigraph.open(ships) as graph:
        graph.tags.create("first")
        graph.load({"Ship": pa.table({"name": ["argo"], "photo": [b"new"]})}, mode="merge")
        graph.branches.create("work")
        graph.load({"Ship": pa.table({"name": ["argo"], "photo": [b"work"]})}, mode="merge", branch="work")
    assert get(shell, ships) == b"new"
    assert get(shell, ships, "--snapshot", "first") == bytes(range(8))
    assert get(shell, ships, "--branch", "work") == b"work"


def test_the_environment_sets_the_allowed_blob_sources(
    shell: Shell, ships: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert = 'query add($photo: String) { insert Ship { name: "new", photo: $photo } }'
    params = json.dumps({"photo": f"file://{shell.root}/assets/film"})
    mutate = ("mutate", "--uri", ships, "-e", insert, "--params", params)
    assert "external blobs are not allowed" in shell.fails(*mutate)
    monkeypatch.setenv("OMNIGRAPH_BLOB_SOURCES", f"s3://elsewhere/x/ file://{shell.root}/assets/")
    assert shell.run(*mutate).exit_code == 0
    assert shell.run("blob", "get", "node", "Ship", "new", "photo", "--uri", ships).stdout_bytes == b"outside"
