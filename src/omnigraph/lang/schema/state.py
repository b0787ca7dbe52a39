"""The schema files of a graph (`_schema.pg`, `_schema.ir.json`, `__schema_state.json`): check that they match."""

from __future__ import annotations

import json

from omnigraph.dataclass import dataclass
from omnigraph.errors import CatalogError, CompileError
from omnigraph.lang.schema.accepted import AcceptedSchema
from omnigraph.lang.schema.build import compile_schema
from omnigraph.lang.schema.ir import ir_hash
from omnigraph.lang.schema.ir_reader import load_ir
from omnigraph.lang.schema.shape import shape_hash

FORMAT_VERSION = 2
IDENTITY_VERSION = 2

SOURCE_FILE = "_schema.pg"
IR_FILE = "_schema.ir.json"
STATE_FILE = "__schema_state.json"


@dataclass(frozen=True, slots=True)
class SchemaState:
    """The content of `__schema_state.json`: the hashes of the other two files."""

    shape_hash: str
    ir_hash: str
    domain: str

    def to_json(self) -> dict[str, int | str]:
        return {
            "format_version": FORMAT_VERSION,
            "schema_shape_hash": self.shape_hash,
            "schema_ir_hash": self.ir_hash,
            "schema_identity_version": IDENTITY_VERSION,
            "schema_identity_domain": self.domain,
        }


def schema_state(accepted: AcceptedSchema) -> SchemaState:
    return SchemaState(shape_hash(accepted.catalog), ir_hash(accepted), accepted.domain)


def dump_state(state: SchemaState) -> str:
    """The content of `__schema_state.json`."""
    return json.dumps(state.to_json(), indent=2) + "\n"


def load_state(text: str | bytes) -> SchemaState:
    """Read `__schema_state.json`.

    Raises:
        CatalogError: the content is not a schema state of this version.
    """
    try:
        raw = json.loads(text)
        state = SchemaState(raw["schema_shape_hash"], raw["schema_ir_hash"], raw["schema_identity_domain"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _mismatch(f"{STATE_FILE} is not a valid schema state") from None
    if raw != state.to_json():
        raise _mismatch(f"{STATE_FILE} has another version")
    return state


def check_contract(source: str | bytes, ir: str | bytes, state: str | bytes) -> AcceptedSchema:
    """Check that the contents of the three schema files match, and return the accepted schema.

    Raises:
        CatalogError: the files do not match, or one of them is damaged.
    """
    expected = load_state(state)
    accepted = load_ir(ir)
    if ir_hash(accepted) != expected.ir_hash or accepted.domain != expected.domain:
        raise _mismatch(f"the hash of {IR_FILE} does not match {STATE_FILE}")
    if shape_hash(accepted.catalog) != expected.shape_hash:
        raise _mismatch(f"{IR_FILE} and {STATE_FILE} describe different schemas")
    try:
        written = shape_hash(compile_schema(source, SOURCE_FILE, accepted=True))
    except CompileError as error:
        raise _mismatch(f"{SOURCE_FILE} does not compile: {error.message}") from error
    if written != expected.shape_hash:
        raise _mismatch(f"{SOURCE_FILE} {'was changed by hand' if source.strip() else 'is empty'}")
    return accepted


def _mismatch(reason: str) -> CatalogError:
    return CatalogError(
        f"the schema files of this graph do not match: {reason}",
        diagnostic="OG-SC-041",
        hint="do not edit these files; restore them from a backup or from __schemas",
    )
