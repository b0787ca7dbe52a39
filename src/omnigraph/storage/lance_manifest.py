"""Parser of Lance's manifest files, without Lance: finds damaged files, and the files of a version.

A file is `[transaction] [index section] [u32 length] [Manifest] [i64 position of length] [u16 0, u16 2] "LANC"`, with
little-endian numbers and protocol buffers messages. Lance detects a truncated file, but not a file of zeros, which it
reads as an empty version 0, and not a flipped bit.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from uuid import UUID

from omnigraph.dataclass import dataclass

_NAME = re.compile(r"(\d{20})\.manifest")
_MAGIC = b"LANC"
_FOOTER = 16
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_COLUMN, _METADATA = 1, 5
_FRAGMENT, _VERSION, _INDEX_SECTION, _TRANSACTION_FILE, _BASE_PATH = 2, 3, 6, 12, 18
_BASE_PATH_TAG = b"\x92\x01"
_DELETION_SUFFIXES = ("arrow", "bin")

Field = tuple[int, int | bytes, int, int]
"""A protobuf field: its number, its value, and where it begins and ends in the message."""


class TornManifestError(ValueError):
    """The bytes are not a complete manifest file. Internal: callers add the file name."""


@dataclass(frozen=True, slots=True)
class NeededFile:
    """A file of a version.

    Attributes:
        name: its path below the directory of its table, branch or base.
        size: its size in bytes, if the manifest has it.
        base: number of its base directory; None for the directory of the manifest.
        index: id of its index; None for data and deletions.
    """

    name: str
    size: int | None
    base: int | None
    index: str | None = None


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """A parsed manifest file.

    Attributes:
        version: its version number.
        fragments: protobuf messages of its fragments, the input of `fragment_files`.
        indexes: the files of its indexes.
        bases: base directories by number, as absolute paths.
        transaction: name of the transaction file; empty if unknown.
        columns: protobuf messages of its columns, the input of `column`.
        metadata: protobuf messages of its schema metadata, the input of `entry`.
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
    """A fragment that consists of one data file.

    Attributes:
        path: the file, below `data`.
        size: its size in bytes; None if the manifest does not have it.
        rows: number of rows.
        base: number of its base directory; None for the directory of the manifest.
        columns: numbers of its columns, in order.
    """

    path: str
    size: int | None
    rows: int
    base: int | None
    columns: list[int]


def version_of(name: str) -> int | None:
    """The version number in the name of a file in `_versions`; None for other files.

    >>> version_of("18446744073709551612.manifest"), version_of("18446744073709551612.manifest.torn")
    (3, None)
    """
    named = _NAME.fullmatch(name)
    return None if named is None else 2**64 - 1 - int(named[1])


def split(file: bytes) -> tuple[bytes, bytes, bytes]:
    """Split a file into the bytes before the manifest message, the message, and the footer.

    Raises:
        TornManifestError: the file is truncated, empty or overwritten.
    """
    if len(file) < _FOOTER + 4 or file[-4:] != _MAGIC:
        raise TornManifestError("it is truncated or overwritten")
    (position,) = struct.unpack("<q", file[-16:-8])
    if not 0 <= position <= len(file) - _FOOTER - 4:
        raise TornManifestError("its footer points outside of the file")
    (length,) = struct.unpack("<I", file[position : position + 4])
    if position + 4 + length != len(file) - _FOOTER:
        raise TornManifestError("the lengths of its sections do not match its size")
    return file[:position], file[position + 4 : position + 4 + length], file[-8:]


def fields(message: bytes) -> Iterator[Field]:
    """The fields of a protocol buffers message, in order.

    Raises:
        TornManifestError: the message is truncated.
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
                raise TornManifestError("a field has an unknown wire type")
            if place > end or key >> 3 == 0:
                raise TornManifestError("a field is longer than its message")
            yield key >> 3, value, start, place
    except IndexError:
        raise TornManifestError("it is truncated: a protobuf message ends in the middle of a number") from None


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
            raise TornManifestError("a number has too many bytes")


def encoded(number: int, content: bytes) -> bytes:
    """Encode a field of bytes: a text or a nested message."""
    return _varint_bytes(number << 3 | _BYTES) + _varint_bytes(len(content)) + content


def encoded_number(number: int, value: int) -> bytes:
    """Encode a field with a number."""
    return _varint_bytes(number << 3 | _VARINT) + _varint_bytes(value)


def _varint_bytes(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read(file: bytes) -> ManifestFile:
    """Parse a manifest file.

    Raises:
        TornManifestError: it is visibly damaged.
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
    """The damage of a version's file that is visible without a checksum; None if there is none."""
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
    return None if found.version == version else f"it is the file of version {found.version}, not {version}"


def seal(file: bytes) -> str:
    """Checksum of a manifest file, without the base directories, which change when a graph is moved.

    Raises:
        TornManifestError: it is visibly damaged.
    """
    if _BASE_PATH_TAG not in file:
        return f"{zlib.crc32(file):08x}"
    head, message, tail = split(file)
    rest: list[bytes] = []
    last = 0
    for start, end in _base_paths(message):
        rest.append(message[last:start])
        last = end
    return f"{zlib.crc32(b''.join([head, *rest, message[last:], tail])):08x}"


def _base_paths(message: bytes) -> list[tuple[int, int]]:
    """The start and the end of each base directory. As `fields`, but quick for a table with many fragments."""
    found: list[tuple[int, int]] = []
    place, end = 0, len(message)
    try:
        while place < end:
            start, key = place, message[place]
            if key < 0x80 and key & 7 == _BYTES and message[place + 1] < 0x80:
                place += 2 + message[place + 1]
            elif key < 0x80 and key & 7 == _BYTES and message[place + 2] < 0x80:
                place += 3 + (message[place + 1] & 0x7F | message[place + 2] << 7)
            else:
                number, _, _, size = next(fields(message[place:]))
                place += size
                if number == _BASE_PATH:
                    found.append((start, place))
    except IndexError:
        raise TornManifestError("it is truncated: a protobuf message ends in the middle of a number") from None
    if place != end:
        raise TornManifestError("a field is longer than its message")
    return found


def without_indexes(message: bytes) -> bytes:
    """A manifest message without indexes. A dataset that is opened with it uses scans."""
    return b"".join(message[start:end] for number, _, start, end in fields(message) if number != _INDEX_SECTION)


def fragment_files(fragment: bytes) -> list[NeededFile]:
    """The data files of a fragment, and its deletion file.

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
            raise TornManifestError("a deletion file has an unknown type")
        base = deletion.get(7)
        name = f"_deletions/{number}-{version}-{key}.{_DELETION_SUFFIXES[kind]}"
        found.append(NeededFile(name, None, None if base is None else _number(base)))
    return found


def fragment_layout(fragment: bytes) -> FragmentLayout:
    """A fragment of a ledger: one data file with all columns, and no deleted rows.

    Raises:
        TornManifestError: the fragment has other files or deleted rows.
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
        raise TornManifestError("a part has unexpected files")
    (file,) = files
    columns, places = _packed(file.get(2, b"")), _packed(file.get(3, b""))
    if columns != places:
        raise TornManifestError("the columns of a part are not in order")
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
            raise TornManifestError("it is truncated: a protobuf message ends in the middle of a number") from None
        found.append(number)
    return found


def column(message: bytes) -> tuple[int, str]:
    """Number and name of a column.

    Raises:
        TornManifestError: the message is damaged.
    """
    members = {name: value for name, value, _, _ in fields(message)}
    return _number(members.get(3, 0)), _text(members.get(2, b""))


def entry(message: bytes) -> tuple[str, bytes]:
    """Name and value of a metadata entry.

    Raises:
        TornManifestError: the message is damaged.
    """
    members = {name: value for name, value, _, _ in fields(message)}
    return _text(members.get(1, b"")), _message(members.get(2, b""))


def _indexes(head: bytes, place: int) -> Iterator[NeededFile]:
    if not 0 <= place <= len(head) - 4:
        raise TornManifestError("its index section is outside of the file")
    (length,) = struct.unpack("<I", head[place : place + 4])
    if place + 4 + length > len(head):
        raise TornManifestError("its index section is truncated")
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
        raise TornManifestError("a field has bytes instead of a number")
    return value


def _message(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise TornManifestError("a field has a number instead of bytes")
    return value


def _text(value: int | bytes) -> str:
    try:
        return _message(value).decode()
    except UnicodeDecodeError:
        raise TornManifestError("a name is not valid UTF-8") from None


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
"""The operations of a transaction, by field number."""


def operation(transaction: bytes) -> str | None:
    """Name of the operation in a transaction file; None if it is damaged or unknown.

    Parsed here, because Lance cannot decode all transactions that it writes.
    """
    try:
        numbers = [number for number, _, _, _ in fields(transaction) if number >= 100]
    except TornManifestError:
        return None
    return _OPERATIONS.get(numbers[0]) if len(numbers) == 1 else None


def restored_version(transaction: bytes) -> int | None:
    """The version that a transaction file restores; None if it is no restore, or damaged."""
    try:
        for number, value, _, _ in fields(transaction):
            if _OPERATIONS.get(number) == "Restore":
                members = {name: inner for name, inner, _, _ in fields(_message(value))}
                return _number(members.get(1, 0))
    except TornManifestError:
        return None
    return None


def base_paths(message: bytes) -> dict[int, str]:
    """Base directories in a manifest message by number, as absolute paths."""
    return dict(_base(_message(value)) for number, value, _, _ in fields(message) if number == _BASE_PATH)
