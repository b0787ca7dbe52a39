"""Input files: lists the files of a path, derives format and type from their names, and splits them into parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from glob import has_magic
from os import PathLike, fspath
from pathlib import PurePosixPath

from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, cut
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.storage.files.input import InputFile, StreamFile, Tree, tree_of
from omnigraph.storage.files.s3_output import UNFINISHED
from omnigraph.write.input.formats import COMPRESSIONS, FORMATS, NDJSON, Batched, FilePart, Format, RowFile
from omnigraph.write.input.named_columns import Type
from omnigraph.write.input.splits import SPLIT_BYTES, Reading, Start
from omnigraph.write.rows.problems import Problems

_OF_TYPES = ("node.", "edge.")
"""How the names of the files of an export begin."""

_DESCRIPTORS = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")


@dataclass(frozen=True, slots=True)
class FileSplit(FilePart):
    """A part of a file, as the input of one task."""

    @property
    def begins(self) -> bool:
        return self.low == 0

    @property
    def types(self) -> tuple[Type, ...] | None:
        return None if self.layout is None else self.layout.types

    def whole(self) -> FileSplit:
        return replace(self, low=0, high=None)

    def read(self, accepted: AcceptedSchema, problems: Problems, start: Start) -> Reading:
        return self.file.format.read(self, accepted, problems, start)


def cut_file(split: FileSplit, size: int = SPLIT_BYTES) -> Iterator[FileSplit]:
    """The parts of a file, of about `size` bytes each. Plain objects are read as a whole: they may span lines."""
    if split.layout is not None and not split.file.format.tables:
        yield split
        return
    for low, high in split.file.format.split(split.file, size):
        yield replace(split, low=low, high=high)


def row_files(
    path: str | PathLike[str], options: Mapping[str, str] | None = None, format: str | None = None
) -> list[RowFile]:
    """The file at a path, all files of a directory, or all files that match a pattern, in name order.

    A directory whose name has a file extension, as Spark writes it, is one table; its name gives the type. An export
    into such a directory has a file for each type.
    Files whose names begin with a dot or an underscore are skipped, unless the path names them.

    Args:
        path: a local path or `s3://bucket/…`.
        options: connection options of the bucket; they override the environment.
        format: the format of all files, whatever their names are; None takes it from the names.

    Raises:
        InputError: there is no file at the path, or a file cannot be loaded.
    """
    text = fspath(path)
    if not text:
        raise InputError("the path of the input is empty", hint="name a file; '.' is the current directory")
    tree, place = tree_of(text, options)
    return _found(tree, place, text, None if format is None else format_named(format))


def format_named(name: str) -> Format:
    """The format with a name.

    Raises:
        InputError: there is no such format.
    """
    for format_ in FORMATS:
        if format_.name == name:
            return format_
    raise InputError(f"'{cut(name)}' is not a format", hint=f"use {', '.join(each.name for each in FORMATS)}")


def _found(tree: Tree, path: str, written: str, format: Format | None) -> list[RowFile]:
    file = tree.file(path)
    if file is not None:
        return [row_file(file, format)]
    inside = _inside(tree, path, format)
    if inside == []:
        raise InputError(f"{written} contains no file that can be loaded", hint=_hint())
    if inside is not None:
        return inside
    if not has_magic(path):
        raise InputError(f"there is no {cut(written)}")
    matches = tree.matches(path)
    if not matches:
        raise InputError(f"no file matches {cut(written)}")
    each: dict[str, RowFile] = {}
    for match in matches:  # skip duplicates: a pattern may match both a directory and the files in it
        if _is_metadata_name(match) and not _is_metadata_name(path):
            continue
        inside = _inside(tree, match, format)
        for found in _found(tree, match, match, format) if inside is None else inside:
            each.setdefault(str(found.input), found)
    if not each:
        raise InputError(f"{cut(written)} matches no file that can be loaded", hint=_hint())
    return list(each.values())


def _inside(tree: Tree, path: str, format: Format | None) -> list[RowFile] | None:
    """The files in a directory that can be loaded; None if the path is not a directory.

    Raises:
        InputError: an export into the directory is running, or was interrupted.
    """
    inside = tree.directory(path)
    if inside is None:
        return None
    if any(file.name == UNFINISHED for file in inside):
        hint = f"wait until it ends; if it was interrupted, remove the files in the directory, '{UNFINISHED}' last"
        raise InputError(f"{cut(path)} is an export that is not finished", hint=hint)
    known = [_known(file, format) for file in inside if not _is_metadata_name(file.name)]
    files = [file for file in known if file is not None]
    name = PurePosixPath(path)
    one_table = _format(name.suffix) is not None and not all(file.input.name.startswith(_OF_TYPES) for file in files)
    return [replace(file, stem=name.stem) for file in files] if one_table else files


def _is_metadata_name(path: str) -> bool:
    """Whether the name begins with a dot or an underscore, like the metadata files of other systems: `_SUCCESS`."""
    return path.rstrip("/").rpartition("/")[2].startswith((".", "_"))


def row_file(file: InputFile, format: Format | None = None) -> RowFile:
    """Derive format and compression from the name of a file.

    Args:
        file: the file.
        format: its format, whatever its name is. A pipe without a format contains NDJSON.

    Raises:
        InputError: the extension is unknown.
    """
    name = PurePosixPath(file.name)
    compression = COMPRESSIONS.get(name.suffix.lower())
    if compression is not None:
        name = name.with_suffix("")
    format_ = format or _format(name.suffix)
    if format_ is None and (file.once or str(file).startswith(_DESCRIPTORS)):
        format_ = NDJSON
    if format_ is None or (compression is not None and not format_.compressible):
        raise InputError(f"{file.label} cannot be loaded", hint=_hint())
    if file.once and isinstance(format_, Batched):
        file = StreamFile(file.open, file.name, file.label)
    return RowFile(file, format_, name.stem, compression)


def _format(ending: str) -> Format | None:
    return next((format_ for format_ in FORMATS if ending.lower() in format_.endings), None)


def _hint() -> str:
    endings = ", ".join(ending for format_ in FORMATS for ending in format_.endings)
    return (
        f"the file extensions are {endings}; text files may be compressed ({', '.join(COMPRESSIONS)}); "
        "--format (format=) sets the format of files with other names"
    )


def _known(file: InputFile, format: Format | None) -> RowFile | None:
    """A file in a directory; None if its extension is unknown."""
    try:
        return row_file(file, format)
    except InputError:
        return None
