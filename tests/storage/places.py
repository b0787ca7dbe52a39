"""Store locations that can be passed to other processes."""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.storage.objects import ObjectStore, open_store


@dataclass(frozen=True, slots=True)
class Place:
    uri: str
    options: dict[str, str]
    fsync: bool

    def open(self) -> ObjectStore:
        return open_store(self.uri, self.options, fsync=self.fsync)
