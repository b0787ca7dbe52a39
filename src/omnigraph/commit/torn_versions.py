"""Version files that a power failure tore: set aside if nobody was ever told of them.

A file that is empty, cut or zeroed under the name of the newest version blocks its dataset. If a sidecar intends that
version, its write was never acknowledged: the file is renamed, and recovery goes on as if the version had never been
made. A version that no sidecar intends was acknowledged, and is left for `omnigraph repair` and a person.
"""

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
    "an object store does not tear objects, so something else has written it: "
    "let nobody write to the graph, then run 'omnigraph repair'"
)


def quarantine_path(store: Store, path: str, number: int = 1) -> str:
    """Where a file lies that was set aside: beside its old place.

    In an object store Lance takes the first name in `_versions` for the newest version, whatever it ends with.

    Args:
        store: the graph.
        path: the old place.
        number: tells it from other files that were set aside from the same place.
    """
    if store.objects.uri.scheme is Scheme.S3:
        path = path.replace(f"/{VERSIONS}/", "/_torn/")
    return f"{path}{TORN}" if number == 1 else f"{path}.{number}{TORN}"


def quarantine(store: Store, path: str, etag: str) -> str:
    """Rename a file that blocks others, and keep it. Returns its new name.

    The copy comes first, and the file goes only if it still is what was looked at: somebody else may have set it aside
    meanwhile, and a good file may have its name. An object store has no such removal, so there nobody but `repair` sets
    files aside, and only while nobody else writes.

    Args:
        store: the graph.
        path: the file.
        etag: names the state of the file that was looked at.

    Raises:
        ObjectChangedError: it is not what was looked at.
        ObjectNotFoundError: it is gone.
    """
    found = store.objects.get(path)
    if found.etag != etag:
        raise ObjectChangedError(str(store.objects.uri), path)
    kept = _copied(store, path, found.data)
    reach(Failpoint.TORN_COPIED)
    if store.objects.uri.scheme is Scheme.S3:
        # A tombstone would be taken for a version by Lance, and nobody could ever remove it without a condition.
        store.objects.delete(path)
    else:
        store.objects.delete_if(path, found.etag)
    return kept


def is_quarantined(store: Store, path: str) -> bool:
    """Whether a file was set aside from a place."""
    first = quarantine_path(store, path)
    directory, _, name = first.removesuffix(TORN).rpartition("/")
    names = [info.path.rpartition("/")[2] for info in store.objects.list(directory)]
    return any(each.startswith(name) and each.endswith(TORN) for each in names)


def _copied(store: Store, path: str, data: bytes) -> str:
    """Keep a copy of a file that is set aside, beside those that were set aside before. Returns its name."""
    for number in count(1):
        kept = quarantine_path(store, path, number)
        try:
            store.objects.create(kept, data)
        except ObjectExistsError:
            if store.objects.get(kept).data != data:
                continue
        return kept
    raise AssertionError("there is always another number")


def quarantine_torn(store: Store, branch: str, sidecars: Sequence[Sidecar], *, alone: bool = False) -> None:
    """Set aside the torn newest versions that sidecars of a branch intend. To be called with the branch's lease.

    Args:
        store: the graph.
        branch: the branch.
        sidecars: its sidecars.
        alone: a person has said that nobody else writes.

    Raises:
        DamagedFileError: one is torn, in an object store, and others may write.
    """
    if not sidecars or store.objects.uri.scheme is Scheme.MEMORY:
        return
    for sidecar in sidecars:
        if store.branch_identifier(branch) != sidecar.branch_identifier:
            continue
        directory = table_directory(store.manifest.path, store.ledger_of(branch))
        torn = torn_version(store.objects, directory)
        if torn is not None and torn.version == sidecar.commit.manifest_version:
            _set_aside(store, sidecar, store.manifest.path, torn, alone=alone)
            store.forget(branch)
        correct_hint(store, directory)
        view = store.capture(branch)
        for table in sidecar.tables:
            while (torn := _torn_table(store, view, table)) is not None:
                _set_aside(store, sidecar, table.key, torn, alone=alone)


def intends_torn(store: Store, sidecar: Sidecar) -> bool:
    """Whether a newest version is torn that a sidecar intends. Recovery sets it aside."""
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
    """See that the hint of a dataset names no version that was set aside: readers would miss it."""
    path = f"{directory}/{VERSIONS}/{HINT}"
    try:
        # Read before the versions are listed: a version is made before a hint names it.
        found = store.objects.get(path)
        listed = store.objects.list(f"{directory}/{VERSIONS}")
        newest = max((v for info in listed if (v := version_of(info.path.rpartition("/")[2])) is not None), default=0)
        if (read_hint(found.data) or 0) > newest > 0:
            store.objects.replace(path, dump_hint(newest), found.etag)
    except (ObjectNotFoundError, ObjectChangedError):
        return


def _set_aside(store: Store, sidecar: Sidecar, key: str, torn: TornVersion, *, alone: bool) -> None:
    if store.objects.uri.scheme is Scheme.S3 and not alone:
        raise DamagedFileError(str(store.objects.uri), torn.path, torn.reason, hint=_BY_HAND)
    try:
        quarantine(store, torn.path, torn.etag)
    except (ObjectChangedError, ObjectNotFoundError):
        return  # somebody else has done it
    audit.append(
        store.audit,
        RecoveryRecord(
            f"{sidecar.operation_id}-{key}-{torn.version}",
            None,
            RecoveryKind.TORN_FILE_SET_ASIDE,
            sidecar.commit.actor,
            sidecar.kind.value,
            sidecar.branch,
            (TableOutcome(key, f"{torn.path}: {torn.reason}", torn.version, torn.version - 1),),
            now_micros(),
        ),
    )
