"""The schema contract: three files that must agree with each other and with the tables."""

from __future__ import annotations

from omnigraph.commit.manifest import Manifest, TableId
from omnigraph.errors import CorruptionError, NotFoundError, ObjectNotFoundError
from omnigraph.lang.schema import (
    AcceptedSchema,
    TypeKind,
    accept,
    check_contract,
    compile_schema,
    dump_ir,
    dump_state,
    ir_hash,
    schema_state,
)
from omnigraph.storage.objects import ObjectStore

SOURCE_PATH = "_schema.pg"
IR_PATH = "_schema.ir.json"
STATE_PATH = "__schema_state.json"
CONTRACT = (SOURCE_PATH, IR_PATH, STATE_PATH)


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


def read_contract(objects: ObjectStore) -> tuple[str, AcceptedSchema]:
    """The accepted schema of a graph.

    Raises:
        NotFoundError: a file is missing. Nothing is ever made again silently.
        CatalogError: the files contradict each other.
    """
    contents = {}
    for path in CONTRACT:
        try:
            contents[path] = objects.get(path).data
        except ObjectNotFoundError:
            raise NotFoundError(
                f"the graph has no {path}",
                hint="restore the three schema files from a backup, or rebuild the graph from an export",
            ) from None
    accepted = check_contract(contents[SOURCE_PATH], contents[IR_PATH], contents[STATE_PATH])
    return contents[SOURCE_PATH].decode(), accepted


def table_keys(accepted: AcceptedSchema) -> dict[str, TableId]:
    """The tables that a schema has, by type key."""
    keys = {}
    for kind, names in ((TypeKind.NODE, accepted.catalog.nodes), (TypeKind.EDGE, accepted.catalog.edges)):
        for name in names:
            identity = accepted.identity(kind, name)
            assert identity.incarnation is not None
            keys[f"{kind.value}:{name}"] = TableId(identity.type_id, identity.incarnation)
    return keys


def check_tables(accepted: AcceptedSchema, view: Manifest) -> None:
    """The tables of the manifest are those of the schema.

    Raises:
        CorruptionError: they are not.
    """
    if ir_hash(accepted) != view.schema_hash:
        raise CorruptionError(
            "the schema files are not those that the graph was written with",
            hint="restore the three schema files from a backup",
        )
    wanted = table_keys(accepted)
    found = {key: pin.id for key, pin in view.tables.items()}
    if wanted != found:
        differ = sorted(key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key))
        raise CorruptionError(
            f"the schema and the tables do not agree about {', '.join(differ)}",
            hint="restore the schema files from a backup",
        )
