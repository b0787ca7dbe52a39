"""Files of rows: which there are in a place, what their names say, and the parts that they are read in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from glob import has_magic
from os import PathLike, fspath
from pathlib import PurePosixPath

from omnigraph.errors import InputError, cut
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.storage.files.input import InputFile, Tree, tree_of
from omnigraph.storage.files.s3_output import UNFINISHED
from omnigraph.write.input.formats import COMPRESSIONS, FORMATS, FilePart, Format, RowFile
from omnigraph.write.input.named_columns import Layout, Type
from omnigraph.write.input.splits import SPLIT_BYTES, Reading, Start
from omnigraph.write.rows.problems import Problems


@dataclass(frozen=True, slots=True)
class FileSplit:
    """A part of a file.

    Attributes:
        file: the file.
        layout: its types and columns, for formats that hold tables.
        low: where the part begins, as its format counts.
        high: where it ends; None is the end of the file.
    """

    file: RowFile
    layout: Layout | None
    low: int = 0
    high: int | None = None

    @property
    def begins(self) -> bool:
        return self.low == 0

    @property
    def types(self) -> tuple[Type, ...] | None:
        return None if self.layout is None else self.layout.types

    def whole(self) -> FileSplit:
        return replace(self, low=0, high=None)

    def read(self, accepted: AcceptedSchema, problems: Problems, start: Start) -> Reading:
        part = FilePart(self.file, self.layout, self.low, self.high)
        return self.file.format.read(part, accepted, problems, start)


def cut_file(split: FileSplit, size: int = SPLIT_BYTES) -> Iterator[FileSplit]:
    """The parts of a file, each of about some size."""
    for low, high in split.file.format.cut(split.file, size):
        yield replace(split, low=low, high=high)


def row_files(path: str | PathLike[str], options: Mapping[str, str] | None = None) -> list[RowFile]:
    """The file of a path, all files of a directory, or all that a pattern matches, in name order.

    A directory with the ending of a file, such as other systems write, is the parts of that file: its name says the
    type. Files whose names begin with a point or an underscore are passed over, unless they are named so.

    Args:
        path: on this machine or `s3://bucket/…`.
        options: how to reach a bucket; overrides the environment.

    Raises:
        InputError: there is none, or one of them cannot be loaded.
    """
    text = fspath(path)
    tree, place = tree_of(text, options)
    return _found(tree, place, text)


def _found(tree: Tree, path: str, written: str) -> list[RowFile]:
    file = tree.file(path)
    if file is not None:
        return [row_file(file)]
    inside = _inside(tree, path)
    if inside == []:
        raise InputError(f"{written} holds no file that can be loaded", hint=_hint())
    if inside is not None:
        return inside
    if not has_magic(path):
        raise InputError(f"there is no {cut(written)}")
    matches = tree.matches(path)
    if not matches:
        raise InputError(f"no file matches {cut(written)}")
    each: dict[str, RowFile] = {}
    for match in matches:  # a pattern may match a directory, and what is in it
        if _is_aside(match) and not _is_aside(path):
            continue
        inside = _inside(tree, match)
        for found in _found(tree, match, match) if inside is None else inside:
            each.setdefault(str(found.input), found)
    if not each:
        raise InputError(f"{cut(written)} matches no file that can be loaded", hint=_hint())
    return list(each.values())


def _inside(tree: Tree, path: str) -> list[RowFile] | None:
    """The files in a directory that can be loaded; None if it is none.

    Raises:
        InputError: somebody is writing it, or did not finish.
    """
    inside = tree.directory(path)
    if inside is None:
        return None
    if any(file.name == UNFINISHED for file in inside):
        hint = f"wait for it; if it was stopped, remove what is there, and '{UNFINISHED}' last"
        raise InputError(f"{cut(path)} is an export that is not finished", hint=hint)
    known = [_known(file) for file in inside if not _is_aside(file.name)]
    files = [file for file in known if file is not None]
    name = PurePosixPath(path)
    return [replace(file, stem=name.stem) for file in files] if _format(name.suffix) is not None else files


def _is_aside(path: str) -> bool:
    """Whether the name is one of those that other systems give to what is not rows: `_SUCCESS`, `.part.crc`."""
    return path.rstrip("/").rpartition("/")[2].startswith((".", "_"))


def row_file(file: InputFile) -> RowFile:
    """What the name of a file says.

    Raises:
        InputError: its ending means nothing.
    """
    name = PurePosixPath(file.name)
    compression = COMPRESSIONS.get(name.suffix.lower())
    if compression is not None:
        name = name.with_suffix("")
    format_ = _format(name.suffix)
    if format_ is None or (compression is not None and not format_.packed):
        raise InputError(f"{file} cannot be loaded", hint=_hint())
    return RowFile(file, format_, name.stem, compression)


def _format(ending: str) -> Format | None:
    return next((format_ for format_ in FORMATS if ending.lower() in format_.endings), None)


def _hint() -> str:
    endings = ", ".join(ending for format_ in FORMATS for ending in format_.endings)
    return f"the endings are {endings}; texts may be compressed ({', '.join(COMPRESSIONS)})"


def _known(file: InputFile) -> RowFile | None:
    """A file in a directory; what is not for loading is passed over."""
    try:
        return row_file(file)
    except InputError:
        return None
