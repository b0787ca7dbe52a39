"""The commands `blob get` and `blob stat`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import click

from omnigraph.cli.output import JSON, print_json, print_members
from omnigraph.cli.scope import address_options, connect_to_read, state_options
from omnigraph.cli.streams import write_stdout
from omnigraph.cli.target import Target
from omnigraph.dataclass import dataclass
from omnigraph.errors import BlobRangeError, InputError, cut

if TYPE_CHECKING:
    from omnigraph.cli.served import ServedBlob, ServedGraph
    from omnigraph.graph import Graph
    from omnigraph.read.blobs import Blob

F = TypeVar("F", bound=Callable[..., object])


@click.group()
def blob() -> None:
    """Read blobs."""


def _selector_options(command: F) -> F:
    """Add the arguments that select a blob, and the options that select a snapshot."""
    for option in (
        state_options(),
        address_options(positional=False, served=True),
        click.argument("property_", metavar="PROPERTY"),
        click.argument("entity_id", metavar="ID"),
        click.argument("type_name", metavar="TYPE"),
        click.argument("entity", metavar="ENTITY", type=click.Choice(("node", "edge"))),
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class BlobSelector:
    """A selected blob: entity, property and snapshot."""

    entity: str
    type_name: str
    entity_id: str
    property_: str
    target: Target
    branch: str | None
    at: str | datetime | None

    @property
    def state(self) -> dict[str, str]:
        """The selected state, for the output."""
        if isinstance(self.at, str):
            return {"snapshot": self.at}
        branch = {"branch": self.branch or "main"}
        return branch if self.at is None else branch | {"at": self.at.isoformat()}

    def open(self) -> Graph | ServedGraph:
        return connect_to_read(self.target.place())

    def find(self, graph: Graph | ServedGraph) -> Blob | ServedBlob:
        key = f"{self.entity}:{self.type_name}"
        return graph.blob(key, self.entity_id, self.property_, branch=self.branch, at=self.at)


@blob.command()
@_selector_options
@click.option("--offset", type=click.IntRange(min=0), metavar="N", help="First byte to read.  [default: 0]")
@click.option("--length", type=click.IntRange(min=0), metavar="N", help="Maximum number of bytes.  [default: all]")
@click.option("--out", metavar="PATH", help="Write to a file instead of stdout.")
def get(offset: int | None, length: int | None, out: str | None, **selected: Any) -> None:
    """Print the bytes of a blob.

    ENTITY is `node` or `edge`. External references are not followed: `blob stat` shows their URI.
    """
    selector = BlobSelector(**selected)
    start = offset or 0
    if length == 0:
        raise InputError("--length is 0", hint="omit --length to read to the end")
    if start + (length or 0) >= 2**64:
        raise InputError("--offset plus --length exceeds the size of any blob")
    with selector.open() as graph:
        found = selector.find(graph)
        if found.size is None:
            name = f"{selector.type_name}.{selector.property_}"
            raise InputError(
                f"{name} of '{cut(selector.entity_id)}' is a reference to {found.uri}, and references are not followed",
                hint="'omnigraph blob stat' shows the reference",
            )
        if start >= found.size and (offset, length) != (None, None):
            raise BlobRangeError(start, None if length is None else start + length, found.size)
        end = found.size if length is None else min(start + length, found.size)
        _write(found.iter(start, end), out)


def _write(chunks: Iterator[bytes], out: str | None) -> None:
    """Write a blob to a file or to stdout. Opens the file after the first read, so a failed read creates no file."""
    first = next(chunks, b"")
    if out is None:
        write_stdout(chain([first], chunks))
        return
    from omnigraph.storage.files.local_output import output_file

    with output_file(out) as file:
        file.write(first)
        file.writelines(chunks)


@blob.command()
@_selector_options
@JSON
def stat(as_json: bool, **selected: Any) -> None:
    """Show the kind, size, etag and URI of a blob without reading it.

    ENTITY is `node` or `edge`.
    """
    selector = BlobSelector(**selected)
    with selector.open() as graph:
        found = selector.find(graph)
    facts = {
        "kind": "managed" if found.uri is None else "external",
        "size": found.size,
        "etag": found.etag,
        "uri": found.uri,
    }
    facts = {name: value for name, value in facts.items() if value is not None}
    view = {**selector.state, "resolved_snapshot": found.snapshot_id}
    if as_json:
        members = {
            "entity": selector.entity,
            "type": selector.type_name,
            "id": selector.entity_id,
            "property": selector.property_,
        }
        print_json({"selector": members, **facts, "target": view})
    else:
        cell = {
            "entity": f"{selector.entity}:{selector.type_name}",
            "id": selector.entity_id,
            "property": selector.property_,
        }
        print_members({**cell, **facts, **view})
