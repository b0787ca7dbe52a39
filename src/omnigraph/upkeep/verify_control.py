"""Verifies the objects outside of the tables: history, references, audit, sidecars, schemas, and the removal list.

Each damaged object becomes a finding with its path. The cost mainly depends on the number of commits of the verified
branch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np
import pyarrow.compute as pc

from omnigraph.commit import audit, removal_list, sidecar, work_records
from omnigraph.commit.ancestor_files import read_ancestors
from omnigraph.commit.ancestors import lineage_of
from omnigraph.commit.manifest import MANIFEST_PATH, Manifest
from omnigraph.commit.refs import (
    branch_ref_names,
    branch_ref_path,
    find_branch,
    find_tag,
    tag_ref_names,
    tag_ref_path,
)
from omnigraph.commit.schema_files import ARCHIVE, CONTRACT, IR_PATH, archived_contract, past_contract, read_contract
from omnigraph.commit.store import Store
from omnigraph.errors import (
    BranchNotFoundError,
    CatalogError,
    CorruptionError,
    DamagedFileError,
    NotFoundError,
    StorageError,
    StorageErrorKind,
    VersionReclaimedError,
)
from omnigraph.storage.checksums import read_records, record_names
from omnigraph.storage.file_checks import FileDamage
from omnigraph.storage.latest_version import VERSIONS
from omnigraph.storage.ledger_files import VerifiedLedger, verify_ledger
from omnigraph.storage.table_ref import TableRef, manifest_name, table_directory
from omnigraph.storage.uri import Scheme
from omnigraph.upkeep.manifest_sweep import transaction_base

HARMLESS = ""
"""Marks damage that changes no query result, because queries do not need the object."""


def verify_control(store: Store, view: Manifest) -> VerifiedLedger:
    """Verify all objects outside of the tables that a state of the graph needs.

    Raises:
        StorageError: the store cannot be reached.
    """
    report = _history(store, view)
    if store.objects.uri.scheme is not Scheme.MEMORY:
        found = verify_ledger(store.objects, audit.AUDIT_PATH, {None: None})
        report.damages |= found.damages
        report.files, report.size = report.files + found.files, report.size + found.size
        report.unsummed += found.unsummed
    for check in (_audit, _references, _sidecars, _archived, _optional_objects):
        _add(report, check(store))
    _add(report, _schema(store, view))
    return report


def _add(report: VerifiedLedger, found: Iterable[FileDamage]) -> None:
    for each in found:
        report.damages.setdefault(each.path, each)


def _damages_of(path: str, check: Callable[[], object]) -> Iterator[FileDamage]:
    """Run a check. Damage becomes a finding; an unreachable store is an error."""
    try:
        check()
    except DamagedFileError as error:
        yield FileDamage(error.path, error.reason)
    except VersionReclaimedError as error:
        yield FileDamage(path, error.message)
    except (CatalogError, CorruptionError, NotFoundError) as error:
        yield FileDamage(path, error.message)
    except StorageError as error:
        if error.kind in (StorageErrorKind.TRANSIENT, StorageErrorKind.CONFIGURATION):
            raise
        yield FileDamage(error.path or path, error.message)


def _history(store: Store, view: Manifest) -> VerifiedLedger:
    """Verify the version files of all commits that lead to a state, as far as they exist, and their parts."""
    wanted: dict[str | None, set[int]] = {view.ledger.branch: set(range(1, view.version + 1))}

    def decode() -> None:
        # The manifest is opened again, to bypass the cache.
        again = store.manifest_in(view.ledger.branch, view.branch, view.version)
        rows = lineage_of(again or view)
        ledgers = pc.fill_null(rows["ledger"], "").combine_chunks()
        versions = rows["version"].to_numpy()
        for name in pc.unique(ledgers).to_pylist():
            chosen = versions[pc.equal(ledgers, name).to_numpy(zero_copy_only=False)]
            wanted.setdefault(name or None, set()).update(np.unique(chosen).tolist())

    undecoded = list(_damages_of(view.ledger.path, decode))
    if store.objects.uri.scheme is Scheme.MEMORY:
        report = VerifiedLedger()
    else:
        report = verify_ledger(store.objects, MANIFEST_PATH, wanted)
        _add(report, _gaps(store, view))
    _add(report, undecoded)
    return report


def _gaps(store: Store, view: Manifest) -> Iterator[FileDamage]:
    """Missing version files of the manifest.

    Cleanup removes a version file first, and then its transaction file. So if only the transaction file exists, and no
    cleanup is removing this version, the version file was lost.
    """
    branch = view.ledger.branch
    directory = table_directory(MANIFEST_PATH, branch)
    listed = store.objects.list(f"{directory}/_transactions")
    made = Counter(base + 1 for info in listed if (base := transaction_base(info.path)) is not None)
    # An interrupted publish also leaves a transaction file. Only versions before the newest were published.
    there = set(store.manifest.versions(branch))
    lost = sorted(version for version in made if version not in there and version < view.version)
    if branch is not None and lost:
        # The creation of a Lance branch has a transaction file, too, with the number of the first version.
        start = store.manifest.branches().get(branch)
        lost = [
            version for version in lost if start is None or version != start.parent_version + 1 or made[version] > 1
        ]
    if not lost:
        return
    removals = removal_list.read(store.objects)
    oldest = min(there, default=view.version)
    for version in lost:
        path = f"{directory}/{VERSIONS}/{manifest_name(version)}"
        if version > oldest and not removals.removes(TableRef(MANIFEST_PATH, branch, version)):
            yield FileDamage(path, "it is missing: the commit of that version cannot be read")


def _audit(store: Store) -> Iterator[FileDamage]:
    yield from _damages_of(audit.AUDIT_PATH, partial(audit.records, store.audit))


def _references(store: Store) -> Iterator[FileDamage]:
    for name in branch_ref_names(store.objects):
        yield from _damages_of(branch_ref_path(name), partial(find_branch, store.objects, name))
        yield from _damages_of(branch_ref_path(name), partial(_check_start, store, name))
    for name in tag_ref_names(store.objects):
        yield from _damages_of(tag_ref_path(name), partial(find_tag, store.objects, name))
        yield from _damages_of(tag_ref_path(name), partial(_check_tagged, store, name))


def _check_start(store: Store, name: str) -> None:
    """Check that the manifest version at which a branch was created exists. A later merge may need it as a base."""
    ref = find_branch(store.objects, name)
    if ref is None or store.has_version(ref.parent_ledger, ref.parent_version):
        return
    current = store.current(ref)  # an interrupted reset has not replaced the reference
    if current != ref and store.has_version(current.parent_ledger, current.parent_version):
        return
    if find_branch(store.objects, name) != ref:
        return  # it was deleted meanwhile
    try:
        store.capture(name)
    except BranchNotFoundError:
        return  # an interrupted delete has closed the branch, but has not removed its reference
    raise _missing(store, current.parent_ledger, current.parent_version, f"branch '{name}' was created at this version")


def _check_tagged(store: Store, name: str) -> None:
    """Check that the manifest version of a tag exists."""
    tag = find_tag(store.objects, name)
    if tag is None or store.has_version(tag.ledger, tag.manifest_version):
        return
    if find_tag(store.objects, name) == tag:  # if not, it was deleted meanwhile
        raise _missing(store, tag.ledger, tag.manifest_version, f"tag '{name}' cannot be read")


def _missing(store: Store, ledger: str | None, version: int, why: str) -> DamagedFileError:
    path = f"{table_directory(MANIFEST_PATH, ledger)}/{VERSIONS}/{manifest_name(version)}"
    return DamagedFileError(str(store.objects.uri), path, f"it is missing: {why}")


def _sidecars(store: Store) -> Iterator[FileDamage]:
    found, unreadable = sidecar.read_sidecars(store.objects)
    yield from (FileDamage(each.path, each.reason) for each in unreadable)
    for each in found:
        if each.ancestors is None or read_ancestors(store.objects, each.ancestors) is not None:
            continue
        if store.objects.exists(each.path):  # otherwise its write has completed
            yield FileDamage(each.ancestors, "it cannot be read: recovery needs it to complete an interrupted merge")


def _schema(store: Store, view: Manifest) -> Iterator[FileDamage]:
    """Verify the schema of a state."""
    try:
        newest = store.capture(view.branch).schema_hash == view.schema_hash
    except BranchNotFoundError:
        newest = False

    def read() -> None:
        if newest or past_contract(store.objects, view.schema_hash) is None:
            read_contract(store.objects, view)

    found = list(_damages_of(IR_PATH, read))
    for each in found:
        named = next((path for path in CONTRACT if path in each.reason), each.path)
        yield FileDamage(named if each.path in CONTRACT else each.path, each.reason)


def _archived(store: Store) -> Iterator[FileDamage]:
    """Verify the schemas of older states."""
    names = {info.path.rpartition("/")[2].partition(".")[0] for info in store.objects.list(ARCHIVE)}
    for name in sorted(names):
        yield from _damages_of(f"{ARCHIVE}/{name}", partial(archived_contract, store.objects, name))


def _optional_objects(store: Store) -> Iterator[FileDamage]:
    """Verify checksum records, the removal list and work records. Their damage changes no result."""
    for path, sums in read_records(store.objects, record_names(store.objects)).items():
        if sums is None:
            yield FileDamage(path, "it cannot be read: the files that it lists have no recorded checksums", HARMLESS)
    if not removal_list.read(store.objects).readable:
        yield FileDamage(removal_list.PATH, "it cannot be read: the next write or cleanup creates it again", HARMLESS)
    for record in work_records.read_records(store.objects):
        if record.kind is None:
            yield FileDamage(record.path, "it cannot be read: its job writes it again, or cleanup removes it", HARMLESS)
