"""Check under the lease that staged files still exist.

A cleanup that does not spare recent files (`orphans_older_than=0`) removes files that a write has staged but not
committed. Lance commits such a write anyway, and its rows are lost. So the files are checked under the lease, before
any table changes. On S3 this runs in parallel with the other checks, and takes no extra time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from omnigraph.commit.sidecar import TableIntent
from omnigraph.commit.store import Store
from omnigraph.errors import StagedFilesRemovedError
from omnigraph.storage.staged import Staged
from omnigraph.storage.uri import Scheme
from omnigraph.worker_pool import WorkerPool

_AT_ONCE = 16
_ASKED_ONE_BY_ONE = 64
"""Maximum number of files of one directory that are looked up one by one. For more files, the directory is listed."""


@contextmanager
def check_staged(store: Store, intents: Sequence[TableIntent], staged: Sequence[Staged]) -> Iterator[None]:
    """Check that staged files exist. On S3, this happens while the block of the `with` statement runs.

    Raises:
        StagedFilesRemovedError: a file is missing. No table was changed, and the write may be staged again.
    """
    files = {
        intent.key: [file for step in each.steps for file in step.files]
        for intent, each in zip(intents, staged, strict=True)
    }
    scheme = store.objects.uri.scheme
    if scheme is Scheme.S3 and any(files.values()):
        with WorkerPool(_AT_ONCE) as workers:
            groups = [(key, group) for key, names in files.items() for group in _groups(names)]
            checks = [(key, workers.submit(_missing, store, group)) for key, group in groups]
            yield
            for key, check in checks:
                for path in check.result():
                    raise StagedFilesRemovedError(key, path)
        return
    yield
    if scheme is Scheme.LOCAL:
        for key, names in files.items():
            for path in names:
                if not os.path.exists(store.objects.uri.key(path)):
                    raise StagedFilesRemovedError(key, path)


def _groups(files: Sequence[str]) -> list[list[str]]:
    """Group files for lookup: all files of a directory if there are many, otherwise one by one."""
    directories: dict[str, list[str]] = {}
    for file in files:
        directories.setdefault(file.rpartition("/")[0], []).append(file)
    return [
        part
        for names in directories.values()
        for part in ([names] if len(names) > _ASKED_ONE_BY_ONE else [[name] for name in names])
    ]


def _missing(store: Store, files: Sequence[str]) -> list[str]:
    """The files that are missing."""
    if len(files) > 1:
        existing = {info.path for info in store.objects.list(files[0].rpartition("/")[0])}
        return [file for file in files if file not in existing]
    (file,) = files
    exists = store.objects.list(file) if _is_directory(file) else store.objects.exists(file)
    return [] if exists else [file]


def _is_directory(file: str) -> bool:
    """Whether a path is a directory: an index, or the blobs beside a data file."""
    return "." not in file.rpartition("/")[2]
