"""Creating a graph: everything is written first, and the manifest makes it a graph."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict

import orjson
import pyarrow as pa
from ulid_transform import ulid_now

from omnigraph.commit.copy_record import refuse_half_copy
from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.lease import Owner
from omnigraph.commit.manifest import MAIN, SCHEMA, STAMP, Commit, TablePin, state_rows
from omnigraph.commit.place import STAMP_PATH, stamp_place
from omnigraph.commit.registry import create_table, table_keys
from omnigraph.commit.schema_files import CONTRACT, archive_contract, contract_of
from omnigraph.commit.stamp import CURRENT
from omnigraph.commit.store import Store, now_micros
from omnigraph.errors import (
    AlreadyInitializedError,
    InitializationClaimedError,
    InitializationCommittedError,
    InitializationIndeterminateError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    OmnigraphError,
)
from omnigraph.lang.schema import AcceptedSchema, ir_hash
from omnigraph.storage.objects import probe_create_if_absent

CLAIM_PATH = "__init_claim.json"


def create_graph(store: Store, source: str, *, force: bool = False) -> AcceptedSchema:
    """Create a graph at the store's address.

    Args:
        store: where.
        source: the schema.
        force: replace schema files that an earlier, failed creation left. Never touches a graph.

    Raises:
        CompileError: the schema does not compile.
        AlreadyInitializedError: there is a graph, or what is left of one.
        InitializationClaimedError: another process is creating one.
        InitializationCommittedError: the graph exists, and something failed afterwards.
        InitializationIndeterminateError: nobody can say whether it exists.
    """
    accepted, files = contract_of(source, ulid_now())
    probe_create_if_absent(store.objects)
    _refuse_existing(store, force=force)
    _claim(store)
    try:
        # Another process may have created the graph, and given its claim back, since the first look.
        _refuse_existing(store, force=force)
    except AlreadyInitializedError:
        store.objects.delete(CLAIM_PATH)
        raise
    reach(Failpoint.INIT_CLAIMED)
    try:
        for path, data in files.items():
            store.objects.put(path, data)
        archive_contract(store.objects, source, accepted)
        stamp_place(store)
        reach(Failpoint.INIT_SCHEMA_WRITTEN)
        pins = [create_table(store, accepted, key, table) for key, table in table_keys(accepted).items()]
        reach(Failpoint.INIT_TABLES_CREATED)
        _create_manifest(store, accepted, pins)
    except Exception as error:
        _give_up(store, error)
        raise
    try:
        reach(Failpoint.INIT_COMMITTED)
        store.capture(MAIN)
        store.objects.delete(CLAIM_PATH)
    except Exception as error:
        raise InitializationCommittedError(
            f"the graph at {store.objects.uri} was created, but then: {error}",
            hint="keep the files; open the graph, and look at the reason",
        ) from error
    return accepted


def _refuse_existing(store: Store, *, force: bool) -> None:
    if store.manifest.open() is not None:
        raise AlreadyInitializedError(f"there is a graph at {store.objects.uri}", hint="choose another place")
    refuse_half_copy(store.objects)
    left = [path for path in CONTRACT if store.objects.exists(path)]
    if left and not force:
        raise AlreadyInitializedError(
            f"{store.objects.uri} holds {', '.join(left)}, but no graph",
            hint="choose another place, or use --force if these files are left from a creation that failed",
        )


def _claim(store: Store) -> None:
    """Exactly one process creates the graph. The claim of a process that is seen to be dead is taken over."""
    claim = orjson.dumps({"version": 1, "attempt_id": ulid_now(), "owner": asdict(Owner.here())})
    try:
        try:
            store.objects.create(CLAIM_PATH, claim)
        except ObjectExistsError:
            left = store.objects.get(CLAIM_PATH)
            if not _claimed_by_the_dead(left.data):
                raise
            store.objects.replace(CLAIM_PATH, claim, left.etag)
    except (ObjectExistsError, ObjectNotFoundError, ObjectChangedError):
        raise InitializationClaimedError(
            f"another process is creating a graph at {store.objects.uri}, or died while it did",
            hint=f"if none is running, remove {CLAIM_PATH} there and try again with --force",
        ) from None


def _claimed_by_the_dead(claim: bytes) -> bool:
    try:
        return Owner(**orjson.loads(claim)["owner"]).is_dead()
    except (KeyError, TypeError, ValueError):
        return False


def _create_manifest(store: Store, accepted: AcceptedSchema, pins: list[TablePin]) -> None:
    genesis = Commit(ulid_now(), MAIN, 1, None, None, None, now_micros(), "create the graph")
    rows: pa.Table = state_rows(MAIN, ir_hash(accepted), pins, (), [genesis], genesis, 0)
    store.manifest.create(SCHEMA.with_metadata({STAMP: str(CURRENT)}), rows)


def _give_up(store: Store, error: Exception) -> None:
    """After a failure: remove what is ours when there is certainly no graph, otherwise leave everything."""
    try:
        exists = store.manifest.open() is not None
    except Exception as probe:
        raise InitializationIndeterminateError(
            f"creating the graph at {store.objects.uri} failed ({error}); nobody can tell whether it exists ({probe})",
            hint="look at the place; nothing was removed",
        ) from error
    if exists:
        raise InitializationCommittedError(
            f"the graph at {store.objects.uri} was created, but then: {error}", hint="open it, and look at the reason"
        ) from error
    with suppress(OmnigraphError):
        for path in (*CONTRACT, STAMP_PATH, CLAIM_PATH):
            store.objects.delete(path)
