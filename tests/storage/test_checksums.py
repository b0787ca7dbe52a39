"""Checksum records of files: written, found, merged, and optional."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.storage import checksums
from omnigraph.storage.checksums import (
    CHECKSUMS_DIRECTORY,
    RECORDS_KEPT,
    ChecksumIndex,
    FileChecksum,
    dump_record,
    file_checksum,
    file_checksums,
    load_record,
    merge_records,
    record_names,
    record_path,
    write_record,
)
from omnigraph.storage.objects import ObjectStore, open_store


def name(number: int) -> str:
    return f"01M7GDDPW2K0HTRE3NN9{number:06d}"


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path), fsync=False)


def test_a_checksum_record_is_read_as_it_was_written() -> None:
    sums = {"nodes/a/data/x.lance": FileChecksum(3, 0xDEADBEEF), "nodes/a/data/é.lance": FileChecksum(0, 0)}
    assert load_record(dump_record(sums)) == sums


def test_a_changed_checksum_record_is_detected() -> None:
    data = dump_record({"nodes/a/data/x.lance": FileChecksum(3, 5)})
    for place in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            assert load_record(bytes(changed)) in (None, load_record(data))
    for end in range(len(data) - 1):
        assert load_record(data[:end]) is None
    assert load_record(bytes(len(data))) is None


def test_the_checksums_of_a_directory_are_those_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "i" / "deep").mkdir(parents=True)
    (tmp_path / "i" / "deep" / "b").write_bytes(b"b")
    (tmp_path / "a").write_bytes(b"a" * 3_000_000)
    found = file_checksums(str(tmp_path), ["a", "i"])
    assert found == {path: file_checksum(str(tmp_path / path)) for path in ("a", "i/deep/b")}
    assert found["a"].size == 3_000_000


def test_new_checksum_records_are_found(objects: ObjectStore, tmp_path: Path) -> None:
    index = ChecksumIndex(str(tmp_path))
    assert index.find("a") is None
    write_record(objects, name(1), {"a": FileChecksum(1, 1)})
    assert index.find("a") == FileChecksum(1, 1)
    write_record(objects, name(2), {"b/x": FileChecksum(2, 2), "b/y": FileChecksum(3, 3)})
    assert index.find("b/x") == FileChecksum(2, 2)
    assert set(index.below("b")) == {"b/x", "b/y"}
    objects.put(record_path(name(3)), b"torn")
    index.refresh()
    assert index.damaged == {record_path(name(3))}
    assert index.find("a") == FileChecksum(1, 1)


def test_merging_records_keeps_every_checksum(objects: ObjectStore, tmp_path: Path) -> None:
    """Small records are merged into one. A large record is not rewritten each time."""
    for number in range(RECORDS_KEPT):
        write_record(objects, name(number), {f"f{number}": FileChecksum(number, number)})
    objects.put(f"{CHECKSUMS_DIRECTORY}/.DS_Store", b"")
    reader = ChecksumIndex(str(tmp_path))
    reader.refresh()
    merge_records(objects)
    assert len(record_names(objects)) == 1
    for index in (reader, ChecksumIndex(str(tmp_path))):
        assert [index.find(f"f{number}") for number in range(RECORDS_KEPT)] == [
            FileChecksum(number, number) for number in range(RECORDS_KEPT)
        ]
    (large,) = record_names(objects)
    write_record(objects, name(900), {"g": FileChecksum(1, 1)})
    merge_records(objects)
    assert large in record_names(objects) or len(record_names(objects)) == 1


def test_checksums_of_removed_files_are_dropped(objects: ObjectStore, tmp_path: Path) -> None:
    write_record(objects, name(1), {"a": FileChecksum(1, 1), "b": FileChecksum(2, 2)})
    write_record(objects, name(2), {"c": FileChecksum(3, 3)})
    merge_records(objects, keep=lambda path: path != "b")
    index = ChecksumIndex(str(tmp_path))
    assert (index.find("a"), index.find("b"), index.find("c")) == (FileChecksum(1, 1), None, FileChecksum(3, 3))
    assert len(record_names(objects)) == 1
    before = record_names(objects)
    merge_records(objects, keep=lambda path: True)
    assert record_names(objects) == before, "nothing to do is not done"


def test_an_open_index_drops_the_checksums_of_removed_files(
    objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checksums, "_SPARE", 10)
    index = ChecksumIndex(str(tmp_path))
    for number in range(100):
        write_record(objects, name(number), {f"f{number}": FileChecksum(number, number)})
        merge_records(objects, keep=lambda path, number=number: path == f"f{number}")  # type: ignore[misc]
        index.refresh()
        assert len(index._sums) <= 2 * 2 + 10 + 1
        assert index.find(f"f{number}") == FileChecksum(number, number)


def test_the_later_of_two_checksum_records_is_used(objects: ObjectStore, tmp_path: Path) -> None:
    """A file that the engine rewrites gets a new record."""
    (tmp_path / "f").write_bytes(b"old")
    write_record(objects, name(1), file_checksums(str(tmp_path), ["f"]))
    (tmp_path / "f").write_bytes(b"new one")
    write_record(objects, name(2), file_checksums(str(tmp_path), ["f"]))
    wanted = file_checksum(str(tmp_path / "f"))
    assert ChecksumIndex(str(tmp_path)).find("f") == wanted
    merge_records(objects, keep=lambda path: True)
    assert ChecksumIndex(str(tmp_path)).find("f") == wanted
