"""Cache files are read only if this user wrote them, because a shared directory may have files of other users."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import omnigraph
from omnigraph.storage.files.cache_directory import is_own_file, open_cached

OTHER = 4242


def test_own_files_are_read(tmp_path: Path) -> None:
    file = tmp_path / "mine"
    file.write_bytes(b"content")
    assert is_own_file(file)
    with open_cached(file) as opened:
        assert opened.read() == b"content"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a file away")
def test_files_of_other_users_are_not_read(tmp_path: Path) -> None:
    file = tmp_path / "theirs"
    file.write_bytes(b"content")
    os.chown(file, OTHER, OTHER)
    assert not is_own_file(file)
    with pytest.raises(PermissionError, match="does not belong"):
        open_cached(file)


def test_links_and_directories_are_not_read(tmp_path: Path) -> None:
    file = tmp_path / "mine"
    file.write_bytes(b"content")
    link = tmp_path / "link"
    link.symlink_to(file)
    for path in (link, tmp_path, tmp_path / "missing"):
        assert not is_own_file(path)
        with pytest.raises(OSError, match=r".+"):
            open_cached(path)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a file away")
def test_a_topology_of_another_user_changes_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as a cache miss: the answer is computed from the tables."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("OMNIGRAPH_CACHE_DIR", str(cache))
    schema = "node P { name: String @key }\nedge Knows: P -> P"
    text = "query q() { match { $a: P  $a knows $b } return { $a.name, $b.name } order { $a.name } }"
    with omnigraph.init(tmp_path / "g", schema) as graph:
        graph.mutate('query m() { insert P { name: "a" } insert P { name: "b" } insert Knows { from: "a", to: "b" } }')
        expected = graph.query(text).to_arrow().to_pylist()
    for file in cache.rglob("*"):
        os.chown(file, OTHER, OTHER)
    with omnigraph.open(tmp_path / "g") as graph:
        assert graph.query(text).to_arrow().to_pylist() == expected
