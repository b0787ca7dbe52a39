"""Output goes to the target of a path: only a regular file is replaced by a new file."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from omnigraph.errors import InputError
from omnigraph.storage.files.local_output import check_output_file, output_directory, output_file


def write(path: str | os.PathLike[str], data: bytes = b"new") -> None:
    with output_file(path) as file:
        file.write(data)


def test_a_regular_file_is_replaced_atomically_and_keeps_its_mode(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_bytes(b"old")
    target.chmod(0o640)
    with output_file(target) as file:
        file.write(b"new")
        file.flush()
        assert target.read_bytes() == b"old"
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["out"]


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_bytes(b"old")
    with pytest.raises(TypeError), output_file(target) as file:
        file.writelines([b"half", None])  # type: ignore[list-item]
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("there", [True, False], ids=["link", "dangling link"])
def test_symbolic_links_are_kept_and_their_target_is_written(tmp_path: Path, there: bool) -> None:
    data = tmp_path / "data"
    data.mkdir()
    if there:
        (data / "real").write_bytes(b"old")
    (tmp_path / "second").symlink_to("data/real")
    (tmp_path / "first").symlink_to("second")
    write(tmp_path / "first")
    assert (data / "real").read_bytes() == b"new"
    assert (tmp_path / "first").is_symlink()
    assert (tmp_path / "second").is_symlink()
    assert os.listdir(data) == ["real"]


def test_a_circular_link_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(InputError, match="Too many levels of symbolic links"):
        write(tmp_path / "a")


def test_devices_are_written_through() -> None:
    before = os.stat("/dev/null")
    write("/dev/null")
    after = os.stat("/dev/null")
    assert stat.S_ISCHR(after.st_mode)
    assert (before.st_ino, before.st_rdev) == (after.st_ino, after.st_rdev)
    with pytest.raises(InputError, match="cannot write /dev/full: No space left on device"):
        write("/dev/full", b"x" * 100_000)


def test_a_fifo_is_written_through(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(fifo.read_bytes()))
    reader.start()
    with output_file(fifo) as file:
        pyarrow.parquet.write_table(pa.table({"a": [1, 2]}), file)
    reader.join()
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert pyarrow.parquet.read_table(pa.BufferReader(got[0])).to_pydict() == {"a": [1, 2]}


def test_a_file_descriptor_path_is_continued_and_not_reopened(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"before\n")
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    try:
        write(f"/dev/fd/{descriptor}", b"one\n")
        write(f"/proc/self/fd/{descriptor}", b"two\n")
        (tmp_path / "link").symlink_to(f"/proc/self/fd/{descriptor}")
        write(tmp_path / "link", b"three\n")
    finally:
        os.close(descriptor)
    assert log.read_bytes() == b"before\none\ntwo\nthree\n"
    with pytest.raises(InputError, match="Bad file descriptor"):
        check_output_file(f"/dev/fd/{descriptor}")


@pytest.mark.parametrize("path", ["", ".", "..", "/", "missing/out"])
def test_a_path_that_cannot_be_written_is_an_error(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="cannot write"):
        check_output_file(path)
    with pytest.raises(InputError, match="cannot write"):
        write(path)


def test_output_to_a_directory_behind_a_link_is_written(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    (tmp_path / "dangling").symlink_to("made")
    for name in ("link", "dangling"):
        with output_directory(tmp_path / name) as directory:
            (directory / "part").write_bytes(b"x")
        assert (tmp_path / name).is_symlink()
    assert (tmp_path / "empty" / "part").read_bytes() == b"x"
    assert (tmp_path / "made" / "part").read_bytes() == b"x"


@pytest.mark.parametrize("path", ["", "/", "full", "/dev/null", "missing/out", "link"])
def test_an_output_path_that_cannot_become_an_empty_directory_is_refused(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "part").write_bytes(b"x")
    (tmp_path / "link").symlink_to("full")
    with pytest.raises(InputError), output_directory(path):
        pass
    assert sorted(os.listdir(tmp_path)) == ["full", "link"]
