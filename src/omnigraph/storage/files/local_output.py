"""Output files and directories on this machine.

A regular file is written to a temporary name and renamed when it is complete, so the old file stays if the write fails.
A device, a FIFO or an open file descriptor (`/dev/stdout`, `/dev/fd/3`) is written directly. A symbolic link is kept,
and its target is written.
"""

# See docs/decisions/0130-output-is-written-through.md

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import IO, cast

from omnigraph.errors import InputError, cut

_STANDARD = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}
_DESCRIPTOR = re.compile(r"/(?:dev|proc/(?:self|thread-self|\d+))/fd/(\d+)")
_MOST_LINKS = 40
"""Maximum number of symbolic links in a path, as in the kernel."""


@contextmanager
def output_file(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Write a file. A regular file appears when the block ends without an error. Others are written directly.

    Raises:
        InputError: it cannot be written.
    """
    try:
        place = _place(path)
        if isinstance(place, int):
            with _DescriptorFile(os.dup(place)) as file:
                yield cast(IO[bytes], file)
            return
        found = _status(place)
        if found is None or stat.S_ISREG(found.st_mode):
            with _replaced(place, found) as written:
                yield written
        elif stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        else:
            with _DescriptorFile(os.open(place, os.O_WRONLY)) as file:
                yield cast(IO[bytes], file)
    except OSError as error:
        raise _cannot_write(path, error) from error


def check_output_file(path: str | os.PathLike[str]) -> None:
    """Check in advance that `output_file` can write.

    Raises:
        InputError: it is a directory, or its directory does not exist.
    """
    try:
        place = _place(path)
        if isinstance(place, int):
            os.fstat(place)
        elif place.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        else:
            os.stat(place.parent)
    except OSError as error:
        raise _cannot_write(path, error) from error


@contextmanager
def output_directory(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write a new directory. It appears when the block ends without an error.

    Raises:
        InputError: it cannot be written, or is not empty.
    """
    check_output_directory(path)
    try:
        target = Path(os.path.realpath(path))
        temporary = _temporary_name(target)
        temporary.mkdir()
        try:
            yield temporary
            for file in temporary.rglob("*"):
                if file.is_file():
                    _sync(file)
            os.rename(temporary, target)  # it may replace an empty directory
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    except OSError as error:
        raise _cannot_write(path, error) from error


def check_output_directory(path: str | os.PathLike[str]) -> None:
    """Check in advance that `output_directory` can write.

    Raises:
        InputError: the name exists, or its parent directory does not.
    """
    try:
        if not os.fspath(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        target = Path(os.path.realpath(path))
        found = _status(target)
        if found is not None and (not stat.S_ISDIR(found.st_mode) or any(target.iterdir())):
            raise InputError(
                f"{path} exists and is not an empty directory",
                hint="choose a new directory: load reads all files of a directory together",
            )
        os.stat(target.parent)
    except OSError as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: str | os.PathLike[str], error: OSError) -> InputError:
    return InputError(f"cannot write {cut(os.fspath(path)) or repr('')}: {error.strerror or error}")


def _place(path: str | os.PathLike[str]) -> Path | int:
    """Resolve the symbolic links of a path. For a file descriptor of this process, returns its number.

    A descriptor is not opened again by its name: that would lose its position, and truncate a file in append mode.
    """
    text = os.fspath(path)
    if not text:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for _ in range(_MOST_LINKS):
        number = _descriptor(text)
        if number is not None:
            return number
        if not os.path.islink(text):
            return Path(text)
        text = os.path.join(os.path.dirname(text), os.readlink(text))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _descriptor(text: str) -> int | None:
    if text in _STANDARD:
        return _STANDARD[text]
    found = _DESCRIPTOR.fullmatch(os.path.normpath(text))
    if found is None or (text.startswith("/proc/") and text.split("/")[2] not in _OWN | {str(os.getpid())}):
        return None
    return int(found[1])


_OWN = {"self", "thread-self"}


def _status(place: Path) -> os.stat_result | None:
    try:
        return place.stat()
    except FileNotFoundError:
        return None


@contextmanager
def _replaced(place: Path, found: os.stat_result | None) -> Iterator[IO[bytes]]:
    temporary = _temporary_name(place)
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if found is not None:
            temporary.chmod(stat.S_IMODE(found.st_mode))
        temporary.replace(place)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _temporary_name(place: Path) -> Path:
    """A temporary name in the same directory. It is short, since the target's name may have the maximum length."""
    return place.with_name(f".{place.name[:100]}.{token_hex(4)}.partial")


def _sync(path: Path) -> None:
    """Flush the directory, so that the renamed file survives a power failure."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


class _DescriptorFile:
    """A file descriptor as an output file. Counts bytes, because Parquet and Arrow writers ask for the position."""

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "wb")
        self._written = 0

    def __enter__(self) -> _DescriptorFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    @property
    def closed(self) -> bool:
        return self._file.closed

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def write(self, data: bytes) -> int:
        self._written += memoryview(data).nbytes
        return self._file.write(data)

    def writelines(self, pieces: Iterator[bytes]) -> None:
        for piece in pieces:
            self.write(piece)

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()
