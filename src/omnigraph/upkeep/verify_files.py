"""Verifies files: all files of a state exist, match their checksums, and can be read."""

from __future__ import annotations

from omnigraph.commit.manifest import Manifest, TablePin
from omnigraph.commit.store import Store
from omnigraph.errors import DamagedFileError, StorageError, StorageErrorKind, VersionReclaimedError
from omnigraph.storage.file_checks import FileDamage, FileReport
from omnigraph.storage.table_ref import table_directory
from omnigraph.storage.uri import Scheme
from omnigraph.upkeep.verify_control import verify_control


def verify_files(store: Store, view: Manifest) -> FileReport:
    """Verify all files of a state of the graph.

    On a local disk, the sizes and checksums of all files are compared with the recorded ones. On all stores, all rows
    are read and counted. The history of the state and all objects outside of the tables are verified, too.

    Raises:
        StorageError: the store cannot be reached.
    """
    checked = size = unsummed = 0
    damages: dict[str, FileDamage] = {}
    for pin in view.tables.values():
        try:
            if store.objects.uri.scheme is Scheme.LOCAL:
                looked = store.tables.at(pin.ref).verify_files()
                checked, size, unsummed = checked + looked.files, size + looked.size, unsummed + looked.unsummed
                damages |= {damage.path: damage for damage in looked.damages}
                if any(damage.index is None for damage in looked.damages):
                    continue
            else:
                parts = store.tables.at(pin.ref).fragments()
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
    control = verify_control(store, view)
    damages = control.damages | damages
    checked, size, unsummed = checked + control.files, size + control.size, unsummed + control.unsummed
    return FileReport(checked, size, unsummed, tuple(damages.values()))


def _read_back(store: Store, pin: TablePin) -> None:
    """Read and count all rows of a table."""
    rows = sum(batch.num_rows for batch in store.tables.at(pin.ref).batches())
    if rows != pin.row_count:
        directory = table_directory(pin.ref.path, pin.ref.branch)
        reason = f"it has {rows} rows, and the manifest has {pin.row_count}"
        raise DamagedFileError(str(store.objects.uri), directory, reason)
