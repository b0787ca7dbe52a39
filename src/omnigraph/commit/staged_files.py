"""The check at the gate that staged files are still there.

A cleanup that spares no young file (`orphans_older_than=0`) removes what a write has staged and not committed. Lance
commits such a write all the same, and its rows are lost. So the files are looked at under the lease, before anything
moves. On S3 this happens beside the other checks at the gate, and takes no extra time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from omnigraph.commit.sidecar import TableIntent
from omnigraph.commit.store import Store
from omnigraph.errors import StagedFilesRemovedError
from omnigraph.storage.staged import Staged
from omnigraph.storage.uri import Scheme

_AT_ONCE = 16
_ASKED_ONE_BY_ONE = 64
"""More files than this in one directory are looked up in a listing of it."""


@contextmanager
def check_staged(store: Store, intents: Sequence[TableIntent], staged: Sequence[Staged]) -> Iterator[None]:
    """Check that staged files are there, while the block does its own checks.

    Raises:
        StagedFilesRemovedError: one is gone. Nothing has happened; the write may be staged again.
    """
    files = {
        intent.key: [file for step in each.steps for file in step.files]
        for intent, each in zip(intents, staged, strict=True)
    }
    scheme = store.objects.uri.scheme
    if scheme is Scheme.S3 and any(files.values()):
        with ThreadPoolExecutor(_AT_ONCE) as workers:
            groups = [(key, group) for key, names in files.items() for group in _groups(names)]
            looks = [(key, workers.submit(_gone, store, group)) for key, group in groups]
            yield
            for key, look in looks:
                for path in look.result():
                    raise StagedFilesRemovedError(key, path)
        return
    yield
    if scheme is Scheme.LOCAL:
        for key, names in files.items():
            for path in names:
                if not os.path.exists(store.objects.uri.key(path)):
                    raise StagedFilesRemovedError(key, path)


def _groups(files: Sequence[str]) -> list[list[str]]:
    """Files that are looked up together: all of a directory if there are many in it, otherwise each by itself."""
    directories: dict[str, list[str]] = {}
    for file in files:
        directories.setdefault(file.rpartition("/")[0], []).append(file)
    return [
        part
        for names in directories.values()
        for part in ([names] if len(names) > _ASKED_ONE_BY_ONE else [[name] for name in names])
    ]


def _gone(store: Store, files: Sequence[str]) -> list[str]:
    """Those of some files that are not there."""
    if len(files) > 1:
        there = {info.path for info in store.objects.list(files[0].rpartition("/")[0])}
        return [file for file in files if file not in there]
    (file,) = files
    there_is = store.objects.list(file) if _is_directory(file) else store.objects.exists(file)
    return [] if there_is else [file]


def _is_directory(file: str) -> bool:
    """Whether it stands for all files in it: an index, or the blobs beside a data file."""
    return "." not in file.rpartition("/")[2]
