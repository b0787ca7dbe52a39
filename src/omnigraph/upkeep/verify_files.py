"""Verifying files: everything that a state of the graph needs is there, is what was written, and reads back."""

from __future__ import annotations

from omnigraph.commit.manifest import Manifest, TablePin
from omnigraph.commit.store import Store
from omnigraph.errors import DamagedFileError, StorageError, StorageErrorKind, VersionReclaimedError
from omnigraph.storage.checksums import read_records, record_names
from omnigraph.storage.file_checks import FileDamage, FileReport
from omnigraph.storage.tables import table_directory
from omnigraph.storage.uri import Scheme


def verify_files(store: Store, view: Manifest) -> FileReport:
    """Look at all files of a state of the graph.

    On a local disk, files are compared with their lengths and checksums, however large they are. Everywhere, all rows
    are read, and counted.

    Raises:
        StorageError: the store cannot be reached.
    """
    checked = size = unsummed = 0
    damages: dict[str, FileDamage] = {}
    for pin in view.tables.values():
        try:
            if store.objects.uri.scheme is Scheme.LOCAL:
                looked = store.tables.look(pin.ref)
                checked, size, unsummed = checked + looked.files, size + looked.size, unsummed + looked.unsummed
                damages |= {damage.path: damage for damage in looked.damages}
                if any(damage.index is None for damage in looked.damages):
                    continue
            else:
                parts = store.tables.fragments(pin.ref)
                checked, size = checked + len(parts), size + sum(part.size for part in parts)
                unsummed += len(parts)
            _read_back(store, pin)
        except DamagedFileError as error:
            damages[error.path] = FileDamage(error.path, error.reason)
        except VersionReclaimedError as error:
            damages[pin.ref.path] = FileDamage(table_directory(pin.ref.path, pin.ref.branch), error.message)
        except StorageError as error:
            if error.kind in (StorageErrorKind.TRANSIENT, StorageErrorKind.CONFIGURATION):
                raise
            damages[pin.ref.path] = FileDamage(table_directory(pin.ref.path, pin.ref.branch), str(error))
    for path, sums in read_records(store.objects, record_names(store.objects)).items():
        if sums is None:
            damages[path] = FileDamage(path, "it cannot be read: the files of its write have no checksums", "")
    return FileReport(checked, size, unsummed, tuple(damages.values()))


def _read_back(store: Store, pin: TablePin) -> None:
    """Read all rows of a table, and count them."""
    rows = sum(batch.num_rows for batch in store.tables.batches(pin.ref))
    if rows != pin.row_count:
        directory = table_directory(pin.ref.path, pin.ref.branch)
        reason = f"it has {rows} rows, and the graph points at {pin.row_count}"
        raise DamagedFileError(str(store.objects.uri), directory, reason)
