"""Torn version files, left incomplete by a power failure. They are renamed if their write was never acknowledged.

An empty, truncated or zeroed file with the name of the newest version blocks its dataset. If a sidecar names that
version as a result of its write, the write was never acknowledged: the file is renamed, and recovery continues as if
the version did not exist. A version that no sidecar names was acknowledged, and is left to `omnigraph repair`.
"""

# See docs/decisions/0138-what-was-acknowledged-is-not-passed-over.md

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from omnigraph.commit import audit
from omnigraph.commit.audit import RecoveryKind, RecoveryRecord, TableOutcome
from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.manifest import Manifest
from omnigraph.commit.sidecar import Sidecar, TableIntent
from omnigraph.commit.store import Store, now_micros
from omnigraph.errors import DamagedFileError, ObjectChangedError, ObjectExistsError, ObjectNotFoundError
from omnigraph.storage.lance_manifest import version_of
from omnigraph.storage.latest_version import HINT, TORN, VERSIONS, TornVersion, dump_hint, read_hint, torn_version
from omnigraph.storage.table_ref import table_directory
from omnigraph.storage.uri import Scheme

_BY_HAND = (
    "an object store never writes partial objects, so another program wrote this one: "
    "stop all writers of the graph, then run 'omnigraph repair'"
)


def quarantine_path(store: Store, path: str, number: int = 1) -> str:
    """Path of a quarantined file: beside the original, or in S3 in the directory `_torn`.

    In an object store, Lance reads the first file in `_versions` as the newest version, whatever its suffix is.

    Args:
        store: the graph.
        path: the original path.
        number: distinguishes files that were quarantined from the same path.
    """
    if store.objects.uri.scheme is Scheme.S3:
        path = path.replace(f"/{VERSIONS}/", "/_torn/")
    return f"{path}{TORN}" if number == 1 else f"{path}.{number}{TORN}"


def quarantine(store: Store, path: str, etag: str) -> str:
    """Quarantine a file that blocks a dataset: rename it. Returns its new path.

    The file is copied first, and removed only if it is unchanged: another process may have quarantined it, and a good
    file may have its name now. An object store has no conditional removal, so there only `repair` quarantines files,
    while no other process writes.

    Args:
        store: the graph.
        path: the file.
        etag: etag of the file that was read.

    Raises:
        ObjectChangedError: the file has changed.
        ObjectNotFoundError: the file is missing.
    """
    found = store.objects.get(path)
    if found.etag != etag:
        raise ObjectChangedError(str(store.objects.uri), path)
    copy = _copied(store, path, found.data)
    reach(Failpoint.TORN_COPIED)
    if store.objects.uri.scheme is Scheme.S3:
        # Lance would read a tombstone as a version, and nothing could remove it.
        store.objects.delete(path)
    else:
        store.objects.delete_if(path, found.etag)
    return copy


def is_quarantined(store: Store, path: str) -> bool:
    """Whether a file was quarantined from a path."""
    first = quarantine_path(store, path)
    directory, _, name = first.removesuffix(TORN).rpartition("/")
    names = [info.path.rpartition("/")[2] for info in store.objects.list(directory)]
    return any(each.startswith(name) and each.endswith(TORN) for each in names)


def _copied(store: Store, path: str, data: bytes) -> str:
    """Copy a file to a free quarantine path. Returns that path."""
    for number in count(1):
        copy = quarantine_path(store, path, number)
        try:
            store.objects.create(copy, data)
        except ObjectExistsError:
            if store.objects.get(copy).data != data:
                continue
        return copy
    raise AssertionError("the loop has no end")


def quarantine_torn(store: Store, branch: str, sidecars: Sequence[Sidecar], *, alone: bool = False) -> None:
    """Quarantine torn newest versions that interrupted writes have created. The caller holds the branch's lease.

    Args:
        store: the graph.
        branch: the branch.
        sidecars: its sidecars.
        alone: whether the user has confirmed that no other process writes.

    Raises:
        DamagedFileError: a version in an object store is torn, and other processes may write.
    """
    if not sidecars or store.objects.uri.scheme is Scheme.MEMORY:
        return
    for sidecar in sidecars:
        if store.branch_identifier(branch) != sidecar.branch_identifier:
            continue
        directory = table_directory(store.manifest.path, store.ledger_of(branch))
        torn = torn_version(store.objects, directory)
        if torn is not None and torn.version == sidecar.commit.manifest_version:
            _quarantine_recorded(store, sidecar, store.manifest.path, torn, alone=alone)
            store.forget(branch)
        correct_hint(store, directory)
        view = store.capture(branch)
        for table in sidecar.tables:
            while (torn := _torn_table(store, view, table)) is not None:
                _quarantine_recorded(store, sidecar, table.key, torn, alone=alone)


def intends_torn(store: Store, sidecar: Sidecar) -> bool:
    """Whether a write left a torn newest version of the manifest or of a table. Recovery quarantines such a file."""
    if store.objects.uri.scheme is Scheme.MEMORY:
        return False
    directory = table_directory(store.manifest.path, store.ledger_of(sidecar.branch))
    torn = torn_version(store.objects, directory)
    if torn is not None:
        return torn.version == sidecar.commit.manifest_version
    view = store.capture(sidecar.branch)
    return any(_torn_table(store, view, table) is not None for table in sidecar.tables)


def _torn_table(store: Store, view: Manifest, table: TableIntent) -> TornVersion | None:
    """The newest version of a table, if it is torn and the graph does not point at it."""
    pin = next((pin for pin in view.tables.values() if pin.id == table.id), None)
    own = pin is not None and pin.ref.branch == table.base.branch
    floor = pin.ref.version if pin is not None and own else table.base.version
    torn = torn_version(store.objects, table_directory(table.base.path, table.base.branch))
    return torn if torn is not None and torn.version > floor else None


def correct_hint(store: Store, directory: str) -> None:
    """Correct Lance's hint file of a dataset if it names a quarantined version, which readers would search for."""
    path = f"{directory}/{VERSIONS}/{HINT}"
    try:
        # Read the hint before listing the versions: a version is created before the hint names it.
        found = store.objects.get(path)
        listed = store.objects.list(f"{directory}/{VERSIONS}")
        newest = max((v for info in listed if (v := version_of(info.path.rpartition("/")[2])) is not None), default=0)
        if (read_hint(found.data) or 0) > newest > 0:
            store.objects.replace(path, dump_hint(newest), found.etag)
    except (ObjectNotFoundError, ObjectChangedError):
        return


def _quarantine_recorded(store: Store, sidecar: Sidecar, key: str, torn: TornVersion, *, alone: bool) -> None:
    if store.objects.uri.scheme is Scheme.S3 and not alone:
        raise DamagedFileError(str(store.objects.uri), torn.path, torn.reason, hint=_BY_HAND)
    try:
        quarantine(store, torn.path, torn.etag)
    except (ObjectChangedError, ObjectNotFoundError):
        return  # another process has quarantined it
    audit.append(
        store.audit,
        RecoveryRecord(
            f"{sidecar.operation_id}-{key}-{torn.version}",
            None,
            RecoveryKind.TORN_FILE_SET_ASIDE,
            sidecar.commit.recorded_actor,
            sidecar.kind.value,
            sidecar.branch,
            (TableOutcome(key, f"{torn.path}: {torn.reason}", torn.version, torn.version - 1),),
            now_micros(),
        ),
    )
