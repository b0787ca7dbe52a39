"""The ids of a lenient load, over all parts of its input: which are other spellings of which, and what that means."""

# See docs/decisions/0112-what-needs-the-whole-input-is-read-twice.md

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import Problem
from omnigraph.pipeline.load.partition_task import PartDone, PartReader
from omnigraph.pipeline.spark.staging import Place
from omnigraph.write.input.lenient import ambiguous
from omnigraph.write.rows.problems import SHOWN


@dataclass(frozen=True, slots=True)
class FoundAliases:
    """What is known about ids once all parts were read.

    Attributes:
        known: other spellings and what they mean, by node type.
        wrong: the first that mean more than one entity, by node type, with the part in which each stands first.
    """

    known: Mapping[str, pa.Table]
    wrong: Mapping[str, pa.Table]

    @property
    def total(self) -> int:
        """How many spellings are reported."""
        return sum(rows.num_rows for rows in self.wrong.values())

    def in_part(self, number: int) -> dict[str, pa.Table]:
        """The wrong ones that stand first in a part."""
        each = {name: rows.filter(pc.equal(rows["number"], number)) for name, rows in self.wrong.items()}
        return {name: rows for name, rows in each.items() if rows.num_rows}


def find_aliases(done: Mapping[int, PartDone], place: Place) -> FoundAliases:
    """Put together what the parts found about ids."""
    known, wrong = {}, {}
    for name in sorted({name for part in done.values() for name in part.aliases}):
        pairs = _pairs(name, done, place)
        if pairs is None:
            continue
        known[name] = pairs.select(["old", "new"])
        more = ambiguous(pairs, _taken(name, pairs["old"].combine_chunks(), done, place))
        if more.num_rows:
            wrong[name] = more.sort_by([("number", "ascending"), ("at", "ascending")]).slice(0, SHOWN)
    return FoundAliases(known, wrong)


def _pairs(name: str, done: Mapping[int, PartDone], place: Place) -> pa.Table | None:
    """The other spellings of a type, each with the place where it stands first."""
    found = []
    for number, part in sorted(done.items()):
        aliases = part.aliases.get(name)
        if aliases is not None and aliases.pairs is not None:
            rows = place.table(aliases.pairs, ["old", "new", "at"]).sort_by("at")
            found.append(rows.append_column("number", pa.array(np.full(rows.num_rows, number))))
    if not found:
        return None
    groups = pa.concat_tables(found).group_by(["old", "new"], use_threads=False)
    first = groups.aggregate([("at", "first"), ("number", "first")])
    return first.rename_columns({"at_first": "at", "number_first": "number"}).combine_chunks()


def _taken(name: str, spellings: pa.Array, done: Mapping[int, PartDone], place: Place) -> pa.Array:
    """Which spellings are ids of nodes as well. The ids of one part are in memory at a time."""
    taken = np.zeros(len(spellings), bool)
    for part in done.values():
        if name in part.aliases:
            ids = place.table(part.aliases[name].ids)["id"]
            taken |= pc.is_in(spellings, value_set=ids).to_numpy(zero_copy_only=False)
    return pa.array(taken)


def told_by(reader: PartReader, wrong: Mapping[str, pa.Table]) -> list[Problem]:
    """What to say about spellings that mean more than one entity, by the reader of the part that they stand in."""
    said = []
    for name, pairs in reader.aliases.pairs().items():
        if name not in wrong:
            continue
        named = set(zip(wrong[name]["old"].to_pylist(), wrong[name]["new"].to_pylist(), strict=True))
        own = zip(pairs["old"].to_pylist(), pairs["new"].to_pylist(), strict=True)
        said += reader.aliases.ambiguity_problems(name, pairs.filter(pa.array([pair in named for pair in own])))
    return said
