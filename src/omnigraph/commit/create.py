"""Creation of a graph: all other objects are written first. The graph exists when its manifest is written."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict

import orjson
import pyarrow as pa
from ulid_transform import ulid_now

from omnigraph.commit.copy_record import refuse_incomplete_copy
from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.format_version import CURRENT
from omnigraph.commit.location import STAMP_PATH, location_stamp
from omnigraph.commit.manifest import MAIN, SCHEMA, STAMP, Commit, TablePin
from omnigraph.commit.manifest_rows import state_rows
from omnigraph.commit.owner import Owner
from omnigraph.commit.schema_files import CONTRACT, archive_contract, contract_of
from omnigraph.commit.schema_tables import create_table, table_keys
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
from omnigraph.storage.objects.disk_space import keep_reserve

CLAIM_PATH = "__init_claim.json"


def create_graph(store: Store, source: str, *, force: bool = False) -> AcceptedSchema:
    """Create a graph at the store's address.

    Args:
        store: the store.
        source: the schema.
        force: replace schema files of an earlier, failed creation. An existing graph is never changed.

    Raises:
        CompileError: the schema does not compile.
        AlreadyInitializedError: the location has a graph, or files of a failed creation.
        InitializationClaimedError: another process is creating one.
        InitializationCommittedError: the graph was created, but a later step failed.
        InitializationIndeterminateError: it is unknown whether the graph exists.
    """
    accepted, files = contract_of(source, ulid_now())
    probe_create_if_absent(store.objects)
    _refuse_existing(store, force=force)
    claim = _claim(store)
    try:
        # Another process may have created the graph, and released its claim, since the first check.
        _refuse_existing(store, force=force)
    except AlreadyInitializedError:
        _release(store, {CLAIM_PATH: claim})
        raise
    # A user can remove a claim while its owner is paused. So files are created only where none exist, and only files
    # that this process wrote are removed again.
    made = {CLAIM_PATH: claim}
    orphans = {path: found for path in files if force and (found := _etag(store, path)) is not None}
    reach(Failpoint.INIT_CLAIMED)
    try:
        for path, data in files.items():
            made[path] = _place(store, path, data, orphans.get(path))
        archive_contract(store.objects, source, accepted)
        with suppress(ObjectExistsError):  # a failed creation left this file, or another process has just created it
            made[STAMP_PATH] = store.objects.create(STAMP_PATH, location_stamp(store))
        reach(Failpoint.INIT_SCHEMA_WRITTEN)
        pins = [create_table(store, accepted, key, table) for key, table in table_keys(accepted).items()]
        reach(Failpoint.INIT_TABLES_CREATED)
        _create_manifest(store, accepted, pins)
    except Exception as error:
        _roll_back(store, error, made)
        raise
    try:
        reach(Failpoint.INIT_COMMITTED)
        store.capture(MAIN)
        _release(store, {CLAIM_PATH: claim})
        keep_reserve(store.objects)
    except Exception as error:
        raise InitializationCommittedError(
            f"the graph at {store.objects.uri} was created, but a later step failed: {error}",
            hint="keep the files, solve the problem, and open the graph",
        ) from error
    return accepted


def _refuse_existing(store: Store, *, force: bool) -> None:
    if store.manifest.open() is not None:
        raise AlreadyInitializedError(f"there is a graph at {store.objects.uri}", hint="choose another location")
    refuse_incomplete_copy(store.objects)
    left = [path for path in CONTRACT if store.objects.exists(path)]
    if left and not force:
        raise AlreadyInitializedError(
            f"{store.objects.uri} holds {', '.join(left)}, but no graph",
            hint="choose another location, or use --force if a failed creation left these files",
        )


def _claim(store: Store) -> str:
    """Claim the creation, so that exactly one process creates the graph. Takes over the claim of a dead process.

    Returns:
        The etag of the claim.
    """
    claim = orjson.dumps({"version": 1, "attempt_id": ulid_now(), "owner": asdict(Owner.here())})
    try:
        try:
            return store.objects.create(CLAIM_PATH, claim)
        except ObjectExistsError:
            left = store.objects.get(CLAIM_PATH)
            if not _is_claim_of_dead_process(left.data):
                raise
            return store.objects.replace(CLAIM_PATH, claim, left.etag)
    except (ObjectExistsError, ObjectNotFoundError, ObjectChangedError):
        raise InitializationClaimedError(
            f"another process is creating a graph at {store.objects.uri}, or died before it was done",
            hint=f"if none is running, remove {CLAIM_PATH} there and try again with --force",
        ) from None


def _is_claim_of_dead_process(claim: bytes) -> bool:
    try:
        return Owner(**orjson.loads(claim)["owner"]).is_dead()
    except (KeyError, TypeError, ValueError):
        return False


def _create_manifest(store: Store, accepted: AcceptedSchema, pins: list[TablePin]) -> None:
    genesis = Commit(ulid_now(), MAIN, 1, None, None, None, now_micros(), "create the graph", generation=1)
    rows: pa.Table = state_rows(MAIN, ir_hash(accepted), pins, (), [genesis], genesis, 0, genesis=genesis.id)
    store.manifest.create(SCHEMA.with_metadata({STAMP: str(CURRENT)}), rows)


def _etag(store: Store, path: str) -> str | None:
    try:
        return store.objects.get(path).etag
    except ObjectNotFoundError:
        return None


def _place(store: Store, path: str, data: bytes, orphan: str | None) -> str:
    """Create a schema file. With `orphan`, the etag of a file of a failed creation, replace this file if unchanged.

    Raises:
        AlreadyInitializedError: another process has written it.
    """
    try:
        return store.objects.create(path, data) if orphan is None else store.objects.replace(path, data, orphan)
    except (ObjectExistsError, ObjectChangedError):
        raise AlreadyInitializedError(
            f"another process has created a graph at {store.objects.uri}",
            hint="open it, or choose another location",
        ) from None


def _release(store: Store, made: dict[str, str]) -> None:
    """Remove the unchanged objects of this process. The claim, which was written first, is removed last."""
    for path, etag in reversed(made.items()):
        with suppress(ObjectChangedError):
            store.objects.delete_if(path, etag)


def _roll_back(store: Store, error: Exception, made: dict[str, str]) -> None:
    """After a failure: remove the objects of this process if no graph exists. If that is unknown, keep all objects."""
    try:
        exists = store.manifest.open() is not None
    except Exception as probe:
        raise InitializationIndeterminateError(
            f"creating the graph at {store.objects.uri} failed ({error}); it is unknown whether it exists ({probe})",
            hint="look at the location; nothing was removed",
        ) from error
    if isinstance(error, AlreadyInitializedError):
        return
    if exists:
        raise InitializationCommittedError(
            f"the graph at {store.objects.uri} was created, but a later step failed: {error}",
            hint="solve the problem, and open the graph",
        ) from error
    with suppress(OmnigraphError):
        _release(store, made)
