"""Base paths of branches: how Lance stores them, and how to open a table with other ones."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from tests.lance_guards.small import append, commit, create, ids, newest

from omnigraph.errors import CorruptionError
from omnigraph.storage.base_paths import MovedDataset, at_root, moved_manifest, open_dataset
from omnigraph.storage.lance_manifest import fields
from omnigraph.storage.table_ref import manifest_name

T = "nodes/t"


@pytest.fixture
def moved(tmp_path: Path) -> str:
    """The root of a moved table with nested branches; the old location does not exist any more."""
    old = tmp_path / "old"
    append(create(old / T), "gone", "m", "o").delete("id = 'gone'")
    dev = append(newest(old / T).create_branch("dev", 3), "d")
    append(dev.create_branch("kid", dev.version), "k").delete("id = 'm'")
    shutil.move(old, tmp_path / "new, longer")
    return str(tmp_path / "new, longer")


def manifests(root: str) -> list[Path]:
    return sorted(Path(root, T, "tree").rglob("*.manifest"))


def test_rewriting_a_manifest_file_is_reversible(moved: str) -> None:
    """With the original root, the result equals the file byte by byte."""
    for file in manifests(moved):
        content = file.read_bytes()
        there = moved_manifest(content, T, moved)
        assert there is not None
        back = moved_manifest(there, T, str(Path(moved).with_name("old")))
        assert back == content
        assert moved_manifest(there, T, moved) is None


def test_an_invalid_manifest_is_reported_as_corruption(moved: str) -> None:
    content = manifests(moved)[0].read_bytes()
    broken = [b"", b"LANC", content[:-1], content[1:], bytes(len(content)), content + b"x", content[:-16] + bytes(16)]
    for each in broken:
        with pytest.raises(CorruptionError):
            moved_manifest(each, T, moved)
    with pytest.raises(CorruptionError, match="refers to files at"):
        moved_manifest(content, "nodes/other", moved)


def test_lance_accepts_rewritten_manifests(moved: str) -> None:
    """Lance reads them, commits, and creates branches."""
    for file in manifests(moved):
        file.write_bytes(moved_manifest(file.read_bytes(), T, moved) or b"")
    kid = newest(Path(moved, T), "kid")
    assert {base.path for base in kid.base_paths().values()} == {f"{moved}/{T}", f"{moved}/{T}/tree/dev"}
    assert ids(kid) == ["d", "k", "o"]
    assert ids(append(kid.create_branch("baby", kid.version), "b")) == ["b", "d", "k", "o"]


def test_a_handle_with_other_base_paths_reads_and_commits(moved: str) -> None:
    """It reads and commits at the new location, and the commit has the new paths."""
    with pytest.raises((OSError, ValueError)):
        ids(newest(Path(moved, T), "kid"))
    kid = open_dataset(moved, T, "kid")
    assert isinstance(kid, MovedDataset)
    assert ids(kid) == ["d", "k", "o"]
    append(kid, "n")
    again = newest(Path(moved, T), "kid")
    assert {base.path for base in again.base_paths().values()} == {f"{moved}/{T}", f"{moved}/{T}/tree/dev"}
    assert ids(again) == ["d", "k", "n", "o"]
    assert not isinstance(open_dataset(moved, T, "kid"), MovedDataset)


def test_branch_restore_and_delta_read_base_paths_from_disk(moved: str) -> None:
    """A branch copies them, a restore brings them back, and a delta fails."""
    kid = open_dataset(moved, T, "kid")
    with pytest.raises((OSError, ValueError)):
        kid.delta(begin_version=4, end_version=kid.version).get_deleted_row_ids().read_all()
    baby = kid.create_branch("baby", kid.version)
    with pytest.raises((OSError, ValueError)):
        ids(baby)
    assert ids(at_root(baby, moved, T)) == ["d", "k", "o"]
    restored = commit(kid, Transaction(kid.version, LanceOperation.Restore(4)))
    with pytest.raises((OSError, ValueError)):
        ids(restored)
    assert ids(at_root(restored, moved, T)) == ["d", "m", "o"]


def test_the_trunk_has_no_base_paths(tmp_path: Path) -> None:
    table = append(create(tmp_path / T), "m")
    assert table.base_paths() == {}
    assert at_root(table, "anywhere", T) is table
    content = (tmp_path / T / "_versions" / manifest_name(2)).read_bytes()
    assert moved_manifest(content, T, "anywhere") is None


def test_the_manifest_in_memory_has_the_expected_fields(moved: str) -> None:
    """Field 3 is the version, and field 18 the base paths."""
    dataset: LanceDataset = lance.dataset(f"{moved}/{T}/tree/kid")
    message = bytes(dataset._ds.serialized_manifest())
    found = [(number, value) for number, value, _, _ in fields(message)]
    assert [number for number, _ in found].count(18) == 2
    (version,) = [value for number, value in found if number == 3]
    assert version == dataset.version
