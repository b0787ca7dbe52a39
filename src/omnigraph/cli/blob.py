"""Commands about blobs: `blob get`, `blob stat`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

import click

from omnigraph.cli.export import one_view, to_stdout
from omnigraph.cli.output import JSON, print_json, print_members
from omnigraph.cli.scope import address, addressed, open_to_read
from omnigraph.errors import BlobRangeError, InputError

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


def _find(graph: Graph, entity: str, type_name: str, entity_id: str, property_: str, where: dict[str, str]) -> Blob:
    return graph.blob(
        f"{entity}:{type_name}", entity_id, property_, branch=where.get("branch"), at=where.get("snapshot")
    )


@blob.command()
@_selected
@click.option("--offset", type=click.IntRange(min=0), metavar="N", help="The first byte.  [default: 0]")
@click.option("--length", type=click.IntRange(min=0), metavar="N", help="How many bytes at most.  [default: the rest]")
@click.option("--out", metavar="PATH", help="A file instead of stdout.")
def get(
    entity: str,
    type_name: str,
    entity_id: str,
    property_: str,
    uri_option: str | None,
    store: str | None,
    branch: str | None,
    at: str | None,
    offset: int | None,
    length: int | None,
    out: str | None,
) -> None:
    """Print the bytes of a blob.

    ENTITY is `node` or `edge`. A blob that is a reference is never followed: `blob stat` shows where it leads.
    """
    one_view(branch, at)
    start = offset or 0
    if length == 0:
        raise InputError("--length 0 asks for nothing", hint="leave --length out for all the rest")
    if start + (length or 0) >= 2**64:
        raise InputError("--offset and --length together lie beyond any blob")
    with open_to_read(address(uri_option, store)) as graph:
        found = _find(graph, entity, type_name, entity_id, property_, _target(branch, at))
        if found.size is None:
            raise InputError(
                f"{type_name}.{property_} of '{entity_id}' is a reference to {found.uri}, which is never followed",
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
        to_stdout(chain([first], pieces))
        return
    try:
        with open(out, "wb") as file:
            file.write(first)
            file.writelines(pieces)
    except OSError as error:
        raise InputError(f"cannot write {os.fspath(out)}: {error.strerror}") from error


@blob.command()
@_selected
@JSON
def stat(
    entity: str,
    type_name: str,
    entity_id: str,
    property_: str,
    uri_option: str | None,
    store: str | None,
    branch: str | None,
    at: str | None,
    as_json: bool,
) -> None:
    """Show what a blob is, without reading it.

    ENTITY is `node` or `edge`.
    """
    one_view(branch, at)
    target = _target(branch, at)
    with open_to_read(address(uri_option, store)) as graph:
        found = _find(graph, entity, type_name, entity_id, property_, target)
    facts = {
        "kind": "managed" if found.uri is None else "external",
        "size": found.size,
        "etag": found.etag,
        "uri": found.uri,
    }
    facts = {name: value for name, value in facts.items() if value is not None}
    view = {**target, "resolved_snapshot": found.snapshot_id}
    if as_json:
        selector = {"entity": entity, "type": type_name, "id": entity_id, "property": property_}
        print_json({"selector": selector, **facts, "target": view})
    else:
        print_members({"entity": f"{entity}:{type_name}", "id": entity_id, "property": property_, **facts, **view})


def _target(branch: str | None, at: str | None) -> dict[str, str]:
    """What was asked for."""
    return {"snapshot": at} if at is not None else {"branch": branch or "main"}
