"""The schema contract: three files that must agree with each other and with the tables."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.commit.manifest import MAIN, Manifest
from omnigraph.errors import CatalogError, DamagedFileError, NotFoundError, ObjectNotFoundError
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
    found = _look(objects, CONTRACT, view.schema_hash) or staged_contract(objects, view.schema_hash)
    if found is None and view.branch != MAIN:
        found = _archived(objects, view.schema_hash)
    # If they are nowhere, they may have taken their places between the looks.
    return found or _read(objects, CONTRACT)


def past_contract(objects: ObjectStore, schema_hash: str) -> tuple[str, AcceptedSchema] | None:
    """The schema of a past state, which another may have replaced since. None when it was not kept."""
    return _look(objects, CONTRACT, schema_hash) or _archived(objects, schema_hash)


def archive_contract(objects: ObjectStore, source: str, accepted: AcceptedSchema) -> None:
    """Keep a schema for the branches that follow it after another has taken its place."""
    name = _archive_name(ir_hash(accepted))
    objects.put(f"{name}.pg", source.encode())
    objects.put(f"{name}.ir.json", dump_ir(accepted).encode())


def _archived(objects: ObjectStore, schema_hash: str) -> tuple[str, AcceptedSchema] | None:
    name = _archive_name(schema_hash)
    try:
        source, ir = objects.get(f"{name}.pg").data, objects.get(f"{name}.ir.json").data
    except ObjectNotFoundError:
        return None
    try:
        return source.decode(), load_ir(ir)
    except UnicodeDecodeError:
        raise DamagedFileError(str(objects.uri), f"{name}.pg", "it is no text") from None
    except CatalogError as error:
        raise DamagedFileError(str(objects.uri), f"{name}.ir.json", error.message) from error


def _archive_name(schema_hash: str) -> str:
    return f"{ARCHIVE}/{schema_hash.rpartition(':')[2]}"


def _look(objects: ObjectStore, paths: Sequence[str], schema_hash: str) -> tuple[str, AcceptedSchema] | None:
    """The contract in three files, if they are whole and those of a schema."""
    try:
        source, accepted = _read(objects, paths)
    except (NotFoundError, CatalogError):
        return None
    return (source, accepted) if ir_hash(accepted) == schema_hash else None


def _read(objects: ObjectStore, paths: Sequence[str]) -> tuple[str, AcceptedSchema]:
    contents = []
    for path in paths:
        try:
            contents.append(objects.get(path).data)
        except ObjectNotFoundError:
            raise NotFoundError(
                f"the graph has no {path}",
                hint="restore the three schema files from a backup, or rebuild the graph from an export",
            ) from None
    source, ir, state = contents
    accepted = check_contract(source, ir, state)  # first: what was not accepted need not even be a text
    return source.decode(), accepted


# The successors during a change of schema. Their names hold the hash of their schema, so that a writer that was
# overtaken while it slept cannot touch those of another.


def staged_paths(schema_hash: str) -> list[str]:
    """Where the successors of the three files lie, in the same order."""
    return [f"{path}.{schema_hash.rpartition(':')[2][:16]}{STAGED}" for path in CONTRACT]


def stage_contract(objects: ObjectStore, source: str, accepted: AcceptedSchema) -> None:
    """Write the successors of the three files beside them."""
    archive_contract(objects, source, accepted)
    for path, data in zip(staged_paths(ir_hash(accepted)), contract_files(source, accepted).values(), strict=True):
        objects.put(path, data)


def staged_contract(objects: ObjectStore, schema_hash: str) -> tuple[str, AcceptedSchema] | None:
    """The staged successors, if they are complete and are those of a schema."""
    return _look(objects, staged_paths(schema_hash), schema_hash)


def promote_contract(objects: ObjectStore, schema_hash: str) -> None:
    """Put the staged successors in their places. May be interrupted and run again.

    Raises:
        StorageError: among others when somebody else has put files in their places meanwhile.
    """
    # Looked at before the successors, so that what a later change of schema put there is never replaced.
    etags = [_etag(objects, path) for path in CONTRACT]
    if staged_contract(objects, schema_hash) is not None:
        for path, staged, etag in zip(CONTRACT, staged_paths(schema_hash), etags, strict=True):
            data = objects.get(staged).data
            if etag is None:
                objects.create(path, data)
            else:
                objects.replace(path, data, etag)
    discard_staged(objects, schema_hash)


def _etag(objects: ObjectStore, path: str) -> str | None:
    try:
        return objects.get(path).etag
    except ObjectNotFoundError:
        return None


def discard_staged(objects: ObjectStore, schema_hash: str) -> None:
    """Remove staged successors that nothing will need."""
    for path in staged_paths(schema_hash):
        objects.delete(path)
