"""Commands about blobs: `blob get`, `blob stat`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import click

from omnigraph.cli.export import one_view
from omnigraph.cli.output import JSON, print_json, print_members
from omnigraph.cli.scope import address, addressed, open_to_read
from omnigraph.cli.streams import write_stdout
from omnigraph.errors import BlobRangeError, InputError, cut

if TYPE_CHECKING:
    from omnigraph.graph import Graph
    from omnigraph.read.blobs import Blob

F = TypeVar("F", bound=Callable[..., object])


@click.group()
def blob() -> None:
    """Read blobs."""


def _selected(command: F) -> F:
    """The cell that a command is about, and the state of the graph."""
    for option in (
        click.option("--snapshot", "at", metavar="ID", help="The state that a commit left: its id, or a tag."),
        click.option("--branch", metavar="BRANCH", help="The newest state of a branch.  [default: main]"),
        addressed(positional=False),
        click.argument("property_", metavar="PROPERTY"),
        click.argument("entity_id", metavar="ID"),
        click.argument("type_name", metavar="TYPE"),
        click.argument("entity", metavar="ENTITY", type=click.Choice(("node", "edge"))),
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Selected:
    """What a command was asked for: a cell, and the state of the graph."""

    entity: str
    type_name: str
    entity_id: str
    property_: str
    uri_option: str | None
    store: str | None
    branch: str | None
    at: str | None

    @property
    def target(self) -> dict[str, str]:
        return {"snapshot": self.at} if self.at is not None else {"branch": self.branch or "main"}

    def open(self) -> Graph:
        one_view(self.branch, self.at)
        return open_to_read(address(self.uri_option, self.store))

    def find(self, graph: Graph) -> Blob:
        where = self.target
        return graph.blob(
            f"{self.entity}:{self.type_name}",
            self.entity_id,
            self.property_,
            branch=where.get("branch"),
            at=where.get("snapshot"),
        )


@blob.command()
@_selected
@click.option("--offset", type=click.IntRange(min=0), metavar="N", help="The first byte.  [default: 0]")
@click.option("--length", type=click.IntRange(min=0), metavar="N", help="How many bytes at most.  [default: the rest]")
@click.option("--out", metavar="PATH", help="A file instead of stdout.")
def get(offset: int | None, length: int | None, out: str | None, **selected: Any) -> None:
    """Print the bytes of a blob.

    ENTITY is `node` or `edge`. A blob that is a reference is never followed: `blob stat` shows where it leads.
    """
    asked = Selected(**selected)
    start = offset or 0
    if length == 0:
        raise InputError("--length 0 asks for nothing", hint="leave --length out for all the rest")
    if start + (length or 0) >= 2**64:
        raise InputError("--offset and --length together lie beyond any blob")
    with asked.open() as graph:
        found = asked.find(graph)
        if found.size is None:
            raise InputError(
                f"{asked.type_name}.{asked.property_} of '{cut(asked.entity_id)}' is a reference to {found.uri}, "
                "which is never followed",
                hint="'omnigraph blob stat' shows it",
            )
        if start >= found.size and (offset, length) != (None, None):
            raise BlobRangeError(start, None if length is None else start + length, found.size)
        end = found.size if length is None else min(start + length, found.size)
        _write(found.iter(start, end), out)


def _write(pieces: Iterator[bytes], out: str | None) -> None:
    """Write bytes out. Nothing is opened before the first are there, so that an early failure touches no file."""
    first = next(pieces, b"")
    if out is None:
        write_stdout(chain([first], pieces))
        return
    from omnigraph.storage.files.local_output import output_file

    with output_file(out) as file:
        file.write(first)
        file.writelines(pieces)


@blob.command()
@_selected
@JSON
def stat(as_json: bool, **selected: Any) -> None:
    """Show what a blob is, without reading it.

    ENTITY is `node` or `edge`.
    """
    asked = Selected(**selected)
    with asked.open() as graph:
        found = asked.find(graph)
    facts = {
        "kind": "managed" if found.uri is None else "external",
        "size": found.size,
        "etag": found.etag,
        "uri": found.uri,
    }
    facts = {name: value for name, value in facts.items() if value is not None}
    view = {**asked.target, "resolved_snapshot": found.snapshot_id}
    if as_json:
        selector = {
            "entity": asked.entity,
            "type": asked.type_name,
            "id": asked.entity_id,
            "property": asked.property_,
        }
        print_json({"selector": selector, **facts, "target": view})
    else:
        cell = {"entity": f"{asked.entity}:{asked.type_name}", "id": asked.entity_id, "property": asked.property_}
        print_members({**cell, **facts, **view})
