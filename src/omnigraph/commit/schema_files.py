"""The schema contract: three files that must agree with each other and with the tables."""

from __future__ import annotations

from omnigraph.commit.manifest import MAIN, Manifest
from omnigraph.errors import CatalogError, NotFoundError, ObjectNotFoundError
from omnigraph.lang.schema import (
    AcceptedSchema,
    accept,
    check_contract,
    compile_schema,
    dump_ir,
    dump_state,
    ir_hash,
    load_ir,
    schema_state,
)
from omnigraph.storage.objects import ObjectStore

SOURCE_PATH = "_schema.pg"
IR_PATH = "_schema.ir.json"
STATE_PATH = "__schema_state.json"
CONTRACT = (SOURCE_PATH, IR_PATH, STATE_PATH)
STAGED = ".staging"
ARCHIVE = "__schemas"


def contract_of(source: str, domain: str) -> tuple[AcceptedSchema, dict[str, bytes]]:
    """A new graph's schema, and the files that record it."""
    accepted = accept(compile_schema(source, SOURCE_PATH), domain)
    return accepted, contract_files(source, accepted)


def contract_files(source: str, accepted: AcceptedSchema) -> dict[str, bytes]:
    """The contents of the three files."""
    return {
        SOURCE_PATH: source.encode(),
        IR_PATH: dump_ir(accepted).encode(),
        STATE_PATH: dump_state(schema_state(accepted)).encode(),
    }


def read_contract(objects: ObjectStore, view: Manifest) -> tuple[str, AcceptedSchema]:
    """The schema that a branch follows.

    Between the commit of a schema change and the moment when its files take their places, the staged files count. A
    branch that was made before the change keeps the schema that it began with.

    Args:
        objects: the graph's objects.
        view: the newest state of the branch.

    Raises:
        NotFoundError: a file is missing. Nothing is ever made again silently.
        CatalogError: the files contradict each other.
    """
    try:
        source, accepted = _read(objects, "")
    except (NotFoundError, CatalogError):
        staged = staged_contract(objects, view.schema_hash)
        if staged is None:
            raise
        return staged
    if ir_hash(accepted) == view.schema_hash:
        return source, accepted
    earlier = None if view.branch == MAIN else _archived(objects, view.schema_hash)
    return staged_contract(objects, view.schema_hash) or earlier or (source, accepted)


def archive_contract(objects: ObjectStore, source: str, accepted: AcceptedSchema) -> None:
    """Keep a schema for the branches that follow it after another has taken its place."""
    name = _archive_name(ir_hash(accepted))
    objects.put(f"{name}.pg", source.encode())
    objects.put(f"{name}.ir.json", dump_ir(accepted).encode())


def _archived(objects: ObjectStore, schema_hash: str) -> tuple[str, AcceptedSchema] | None:
    name = _archive_name(schema_hash)
    try:
        return objects.get(f"{name}.pg").data.decode(), load_ir(objects.get(f"{name}.ir.json").data)
    except ObjectNotFoundError:
        return None


def _archive_name(schema_hash: str) -> str:
    return f"{ARCHIVE}/{schema_hash.rpartition(':')[2]}"


def _read(objects: ObjectStore, suffix: str) -> tuple[str, AcceptedSchema]:
    contents = {}
    for path in CONTRACT:
        try:
            contents[path] = objects.get(path + suffix).data
        except ObjectNotFoundError:
            raise NotFoundError(
                f"the graph has no {path}",
                hint="restore the three schema files from a backup, or rebuild the graph from an export",
            ) from None
    accepted = check_contract(contents[SOURCE_PATH], contents[IR_PATH], contents[STATE_PATH])
    return contents[SOURCE_PATH].decode(), accepted


def stage_contract(objects: ObjectStore, source: str, accepted: AcceptedSchema) -> None:
    """Write the successors of the three files beside them."""
    archive_contract(objects, source, accepted)
    for path, data in contract_files(source, accepted).items():
        objects.put(path + STAGED, data)


def staged_contract(objects: ObjectStore, schema_hash: str) -> tuple[str, AcceptedSchema] | None:
    """The staged successors, if they are complete and are those of a schema."""
    try:
        source, accepted = _read(objects, STAGED)
    except (NotFoundError, CatalogError):
        return None
    return (source, accepted) if ir_hash(accepted) == schema_hash else None


def promote_contract(objects: ObjectStore, schema_hash: str) -> None:
    """Put the staged successors in their places. May be interrupted and run again."""
    if staged_contract(objects, schema_hash) is not None:
        for path in CONTRACT:
            objects.put(path, objects.get(path + STAGED).data)
    discard_staged(objects)


def discard_staged(objects: ObjectStore) -> None:
    """Remove staged successors that nothing will need."""
    for path in CONTRACT:
        objects.delete(path + STAGED)
