"""The layout of Lance's manifest files, read without Lance: to tell a damaged file from a whole one, and what it needs.

A file is `[transaction] [index section] [u32 length] [Manifest] [i64 position of length] [u16 0, u16 2] "LANC"`, with
numbers in little-endian order and messages in protocol buffers. Lance itself notices a file that is cut, but not one of
zeros, which it takes for an empty version 0, and not a flipped bit.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

_NAME = re.compile(r"(\d{20})\.manifest")
_MAGIC = b"LANC"
_FOOTER = 16
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_COLUMN, _METADATA = 1, 5
_FRAGMENT, _VERSION, _INDEX_SECTION, _TRANSACTION_FILE, _BASE_PATH = 2, 3, 6, 12, 18
_BASE_PATH_TAG = b"\x92\x01"
_DELETION_SUFFIXES = ("arrow", "bin")

Field = tuple[int, int | bytes, int, int]
"""The number of a field, its value, and where in the message it begins and ends."""


class TornManifestError(ValueError):
    """The bytes are no whole manifest file. Internal: callers say which file it is."""


@dataclass(frozen=True, slots=True)
class NeededFile:
    """A file that a version needs.

    Attributes:
        name: its place below the directory of its table, branch or base.
        size: its bytes, if the manifest says so.
        base: the number of the base directory that it lies in; None is the directory of the manifest.
        index: the id of the index that it belongs to; None for data and deletions.
    """

    name: str
    size: int | None
    base: int | None
    index: str | None = None


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """A manifest file, taken apart.

    Attributes:
        version: the version that it says it is.
        fragments: the messages of its fragments, for `fragment_files`.
        indexes: the files of its indexes.
        bases: the base directories by number, as absolute paths.
        transaction: the name of the file that says how it was made; empty when it does not say.
        columns: the messages of its columns, for `column`.
        metadata: the messages of the metadata of its schema, for `entry`.
    """

    version: int
    fragments: tuple[bytes, ...]
    indexes: tuple[NeededFile, ...]
    bases: dict[int, str]
    transaction: str = ""
    columns: tuple[bytes, ...] = ()
    metadata: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class FragmentLayout:
    """A fragment that is one data file.

    Attributes:
        path: the file, below `data`.
        size: its bytes; None when the manifest does not say so.
        rows: how many it has.
        base: the number of the base directory that it lies in; None is the directory of the manifest.
        columns: the numbers of the columns in it, in their order.
    """

    path: str
    size: int | None
    rows: int
    base: int | None
    columns: list[int]


def version_of(name: str) -> int | None:
    """The version that a file in `_versions` holds, by its name; None for other files.

    >>> version_of("18446744073709551612.manifest"), version_of("18446744073709551612.manifest.torn")
    (3, None)
    """
    named = _NAME.fullmatch(name)
    return None if named is None else 2**64 - 1 - int(named[1])


def split(file: bytes) -> tuple[bytes, bytes, bytes]:
    """What comes before the manifest message, the message, and the end of the file.

    Raises:
        TornManifestError: the file is cut, empty or overwritten.
    """
    if len(file) < _FOOTER + 4 or file[-4:] != _MAGIC:
        raise TornManifestError("it is cut or overwritten")
    (position,) = struct.unpack("<q", file[-16:-8])
    if not 0 <= position <= len(file) - _FOOTER - 4:
        raise TornManifestError("its end points outside of it")
    (length,) = struct.unpack("<I", file[position : position + 4])
    if position + 4 + length != len(file) - _FOOTER:
        raise TornManifestError("its parts do not fill it")
    return file[:position], file[position + 4 : position + 4 + length], file[-8:]


def fields(message: bytes) -> Iterator[Field]:
    """The fields of a message in protocol buffers, in order.

    Raises:
        TornManifestError: it does not end where its last field does.
    """
    place, end = 0, len(message)
    value: int | bytes
    try:
        while place < end:
            start = place
            key, place = _varint(message, place)
            kind = key & 7
            if kind == _VARINT:
                value, place = _varint(message, place)
            elif kind == _BYTES:
                length, place = _varint(message, place)
                value = message[place : place + length]
                place += length
            elif kind in (_FIXED_64, _FIXED_32):
                width = 8 if kind == _FIXED_64 else 4
                value = message[place : place + width]
                place += width
            else:
                raise TornManifestError("a part of it is of no known kind")
            if place > end or key >> 3 == 0:
                raise TornManifestError("a part of it is longer than the whole")
            yield key >> 3, value, start, place
    except IndexError:
        raise TornManifestError("it ends within a number") from None


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, place
        if shift > 63:
            raise TornManifestError("a number in it has no end")


def encoded(number: int, content: bytes) -> bytes:
    """A field that holds bytes: a text or another message."""
    return _varint_bytes(number << 3 | _BYTES) + _varint_bytes(len(content)) + content


def _varint_bytes(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read(file: bytes) -> ManifestFile:
    """Take a manifest file apart.

    Raises:
        TornManifestError: it is damaged in a way that shows.
    """
    head, message, _ = split(file)
    version, section, transaction = 0, None, ""
    fragments: list[bytes] = []
    bases: dict[int, str] = {}
    columns: list[bytes] = []
    metadata: list[bytes] = []
    for number, value, _, _ in fields(message):
        if number == _FRAGMENT:
            fragments.append(_message(value))
        elif number == _COLUMN:
            columns.append(_message(value))
        elif number == _METADATA:
            metadata.append(_message(value))
        elif number == _VERSION:
            version = _number(value)
        elif number == _INDEX_SECTION:
            section = _number(value)
        elif number == _BASE_PATH:
            key, path = _base(_message(value))
            bases[key] = path
        elif number == _TRANSACTION_FILE:
            transaction = _text(value)
    indexes = () if section is None else tuple(_indexes(head, section))
    return ManifestFile(version, tuple(fragments), indexes, bases, transaction, tuple(columns), tuple(metadata))


def damage(file: bytes, version: int) -> str | None:
    """What is wrong with the file of a version, as far as it shows without a checksum; None when nothing is."""
    if not file:
        return "it is empty"
    if not any(file):
        return "it is all zeros"
    try:
        found = read(file)
        for fragment in found.fragments:
            fragment_files(fragment)
    except TornManifestError as error:
        return str(error)
    return None if found.version == version else f"it says that it is version {found.version}, not {version}"


def seal(file: bytes) -> str:
    """A checksum of a manifest file, without the base directories: those change when a graph is moved.

    Raises:
        TornManifestError: it is damaged in a way that shows.
    """
    if _BASE_PATH_TAG not in file:
        return f"{zlib.crc32(file):08x}"
    head, message, tail = split(file)
    kept = [message[start:end] for number, _, start, end in fields(message) if number != _BASE_PATH]
    return f"{zlib.crc32(b''.join([head, *kept, tail])):08x}"


def without_indexes(message: bytes) -> bytes:
    """A manifest message that knows of no index. What is read with it is found by scanning."""
    return b"".join(message[start:end] for number, _, start, end in fields(message) if number != _INDEX_SECTION)


def fragment_files(fragment: bytes) -> list[NeededFile]:
    """The data files of a fragment, and the file of its deletions.

    Raises:
        TornManifestError: the message is damaged.
    """
    number, deletion = 0, None
    found: list[NeededFile] = []
    for field, value, _, _ in fields(fragment):
        if field == 1:
            number = _number(value)
        elif field == 2:
            members = {name: member for name, member, _, _ in fields(_message(value))}
            base = members.get(7)
            size = _number(members.get(6, 0))
            path = _text(members.get(1, b""))
            found.append(NeededFile(f"data/{path}", size or None, None if base is None else _number(base)))
        elif field == 3:
            deletion = {name: member for name, member, _, _ in fields(_message(value))}
    if deletion is not None:
        kind, version, key = (_number(deletion.get(name, 0)) for name in (1, 2, 3))
        if kind >= len(_DELETION_SUFFIXES):
            raise TornManifestError("a file of deletions is of no known kind")
        base = deletion.get(7)
        name = f"_deletions/{number}-{version}-{key}.{_DELETION_SUFFIXES[kind]}"
        found.append(NeededFile(name, None, None if base is None else _number(base)))
    return found


def fragment_layout(fragment: bytes) -> FragmentLayout:
    """A fragment of a ledger: one data file with all columns, of which no row is deleted.

    Raises:
        TornManifestError: it is another one.
    """
    files, rows, deletions = [], 0, False
    for number, value, _, _ in fields(fragment):
        if number == 2:
            files.append({name: member for name, member, _, _ in fields(_message(value))})
        elif number == 3:
            deletions = True
        elif number == 4:
            rows = _number(value)
    if len(files) != 1 or deletions:
        raise TornManifestError("a part of it has files that were not written")
    (file,) = files
    columns, places = _packed(file.get(2, b"")), _packed(file.get(3, b""))
    if columns != places:
        raise TornManifestError("the columns of a part are not in their places")
    base = file.get(7)
    size = _number(file.get(6, 0))
    return FragmentLayout(_text(file.get(1, b"")), size or None, rows, None if base is None else _number(base), columns)


def _packed(value: int | bytes) -> list[int]:
    message, place = _message(value), 0
    found = []
    while place < len(message):
        try:
            number, place = _varint(message, place)
        except IndexError:
            raise TornManifestError("it ends within a number") from None
        found.append(number)
    return found


def column(message: bytes) -> tuple[int, str]:
    """The number and the name of a column.

    Raises:
        TornManifestError: the message is damaged.
    """
    members = {name: value for name, value, _, _ in fields(message)}
    return _number(members.get(3, 0)), _text(members.get(2, b""))


def entry(message: bytes) -> tuple[str, bytes]:
    """The name and the value of an entry of metadata.

    Raises:
        TornManifestError: the message is damaged.
    """
    members = {name: value for name, value, _, _ in fields(message)}
    return _text(members.get(1, b"")), _message(members.get(2, b""))


def _indexes(head: bytes, place: int) -> Iterator[NeededFile]:
    if not 0 <= place <= len(head) - 4:
        raise TornManifestError("its indexes are said to lie outside of it")
    (length,) = struct.unpack("<I", head[place : place + 4])
    if place + 4 + length > len(head):
        raise TornManifestError("its indexes are cut")
    for number, value, _, _ in fields(head[place + 4 : place + 4 + length]):
        if number == 1:
            yield from _index(_message(value))


def _index(message: bytes) -> Iterator[NeededFile]:
    key, base = "", None
    files: list[tuple[str, int]] = []
    for number, value, _, _ in fields(message):
        if number == 1:
            raw = next((member for name, member, _, _ in fields(_message(value)) if name == 1), b"")
            if not isinstance(raw, bytes) or len(raw) != 16:
                raise TornManifestError("an index has no id")
            key = str(UUID(bytes=raw))
        elif number == 9:
            base = _number(value)
        elif number == 10:
            members = {name: member for name, member, _, _ in fields(_message(value))}
            files.append((_text(members.get(1, b"")), _number(members.get(2, 0))))
    for path, size in files:
        yield NeededFile(f"_indices/{key}/{path}", size or None, base, key)


def _base(message: bytes) -> tuple[int, str]:
    members = {name: value for name, value, _, _ in fields(message)}
    return _number(members.get(1, 0)), _text(members.get(4, b""))


def _number(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise TornManifestError("a number in it is none")
    return value


def _message(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise TornManifestError("a part of it is none")
    return value


def _text(value: int | bytes) -> str:
    try:
        return _message(value).decode()
    except UnicodeDecodeError:
        raise TornManifestError("a name in it is no text") from None


_OPERATIONS = {
    100: "Append",
    101: "Delete",
    102: "Overwrite",
    103: "CreateIndex",
    104: "Rewrite",
    105: "Merge",
    106: "Restore",
    107: "ReserveFragments",
    108: "Update",
    109: "Project",
    110: "UpdateConfig",
    111: "DataReplacement",
}
"""The operations of a transaction by the number of their field."""


def operation(transaction: bytes) -> str | None:
    """The name of the operation in a transaction file; None when it is damaged, or of no known kind.

    Not asked of Lance, which cannot decode every transaction that it writes.
    """
    try:
        numbers = [number for number, _, _, _ in fields(transaction) if number >= 100]
    except TornManifestError:
        return None
    return _OPERATIONS.get(numbers[0]) if len(numbers) == 1 else None


def restored_version(transaction: bytes) -> int | None:
    """The version whose content a transaction file brings back; None when it is no restore, or damaged."""
    try:
        for number, value, _, _ in fields(transaction):
            if _OPERATIONS.get(number) == "Restore":
                members = {name: inner for name, inner, _, _ in fields(_message(value))}
                return _number(members.get(1, 0))
    except TornManifestError:
        return None
    return None


def base_paths(message: bytes) -> dict[int, str]:
    """The base directories in a manifest message by number, as absolute paths."""
    return dict(_base(_message(value)) for number, value, _, _ in fields(message) if number == _BASE_PATH)
