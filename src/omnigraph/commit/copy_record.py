"""The copy record: `__copy.json` in a backup, or at the target of a restore.

It is the first object that is written to the target, so an incomplete copy is recognised. A backup keeps it after the
copy, as a record of the branch heads that were copied last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import orjson

from omnigraph.dataclass import dataclass
from omnigraph.errors import CorruptionError, IncompleteCopyError, ObjectNotFoundError
from omnigraph.storage.objects import ObjectStore

RECORD_PATH = "__copy.json"
BACKUP, RESTORE = "backup", "restore"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class BranchState:
    """The head of a branch."""

    incarnation: str
    version: int
    head: str


States = Mapping[str, BranchState]


@dataclass(frozen=True, slots=True)
class CopyRecord:
    """The last and the current copy to a target.

    Attributes:
        kind: `backup` or `restore`.
        source: address of the graph that was copied.
        done: branch states of the last complete copy; None before the first one.
        going: branch states of the copy in progress; None if there is none.
        keep: number of readable commits per branch in the last copy; None for all.
    """

    kind: str
    source: str
    done: States | None
    going: States | None
    keep: int | None = None

    def dump(self) -> bytes:
        states = {
            name: None if each is None else {branch: asdict(state) for branch, state in each.items()}
            for name, each in (("done", self.done), ("going", self.going))
        }
        members = {"version": _VERSION, "kind": self.kind, "source": self.source, "keep": self.keep}
        return orjson.dumps(members | states)


def read_record(objects: ObjectStore) -> CopyRecord | None:
    """Read the copy record of a target; None if it has none.

    Raises:
        CorruptionError: it cannot be read.
    """
    try:
        members = orjson.loads(objects.get(RECORD_PATH).data)
        if members["version"] != _VERSION:
            raise ValueError(f"version {members['version']} is not known to this release")
        done, going = _states(members["done"]), _states(members["going"])
        return CopyRecord(str(members["kind"]), str(members["source"]), done, going, members["keep"])
    except ObjectNotFoundError:
        return None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptionError(
            f"{RECORD_PATH} at {objects.uri} cannot be read: {error}", hint="copy the graph to an empty location"
        ) from error


def _states(members: Mapping[str, Mapping[str, object]] | None) -> States | None:
    if members is None:
        return None
    return {
        name: BranchState(str(each["incarnation"]), int(str(each["version"])), str(each["head"]))
        for name, each in members.items()
    }


def refuse_incomplete_copy(objects: ObjectStore) -> None:
    """Refuse a target with a copy in progress, or an interrupted one.

    Raises:
        IncompleteCopyError: the copy is incomplete.
    """
    record = read_record(objects)
    if record is not None and record.going is not None:
        raise IncompleteCopyError(
            f"{objects.uri} holds an unfinished {record.kind} of {record.source}",
            hint=f"run 'omnigraph {record.kind} {record.source} {objects.uri}' again: it continues where it stopped"
            + ("; reads still work" if record.done is not None else ""),
        )
