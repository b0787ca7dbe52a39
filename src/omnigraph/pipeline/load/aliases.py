"""Aliases of node ids in a lenient load, collected from all parts of the input.

The id of a node with a key is the canonical text of the key value. A record may give another text for the same value,
such as `007` for the number 7. That text is an alias of the id.
"""

# See docs/decisions/0112-what-needs-the-whole-input-is-read-twice.md

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.errors import Problem
from omnigraph.pipeline.load.partition_task import PartReader, PartResult
from omnigraph.pipeline.spark.staging import Staging
from omnigraph.write.input.lenient import ambiguous
from omnigraph.write.rows.problems import SHOWN


@dataclass(frozen=True, slots=True)
class FoundAliases:
    """The aliases of all parts of the input.

    Attributes:
        known: aliases and the ids that they stand for, by node type.
        wrong: by node type, the first aliases that stand for several nodes, each with the number of its first part.
    """

    known: Mapping[str, pa.Table]
    wrong: Mapping[str, pa.Table]

    @property
    def total(self) -> int:
        """The number of reported ambiguous aliases."""
        return sum(rows.num_rows for rows in self.wrong.values())

    def in_part(self, number: int) -> dict[str, pa.Table]:
        """The ambiguous aliases whose first occurrence is in a part."""
        each = {name: rows.filter(pc.equal(rows["number"], number)) for name, rows in self.wrong.items()}
        return {name: rows for name, rows in each.items() if rows.num_rows}


def find_aliases(done: Mapping[int, PartResult], staging: Staging) -> FoundAliases:
    """Combine the aliases of all parts."""
    known, wrong = {}, {}
    for name in sorted({name for part in done.values() for name in part.aliases}):
        pairs = _pairs(name, done, staging)
        if pairs is None:
            continue
        known[name] = pairs.select(["old", "new"])
        more = ambiguous(pairs, _used_as_ids(name, pairs["old"].combine_chunks(), done, staging))
        if more.num_rows:
            wrong[name] = more.sort_by([("number", "ascending"), ("at", "ascending")]).slice(0, SHOWN)
    return FoundAliases(known, wrong)


def _pairs(name: str, done: Mapping[int, PartResult], staging: Staging) -> pa.Table | None:
    """The aliases of a type, each with the part and position of its first occurrence."""
    found = []
    for number, part in sorted(done.items()):
        aliases = part.aliases.get(name)
        if aliases is not None and aliases.pairs is not None:
            rows = staging.table(aliases.pairs, ["old", "new", "at"]).sort_by("at")
            found.append(rows.append_column("number", pa.array(np.full(rows.num_rows, number))))
    if not found:
        return None
    groups = pa.concat_tables(found).group_by(["old", "new"], use_threads=False)
    first = groups.aggregate([("at", "first"), ("number", "first")])
    return first.rename_columns({"at_first": "at", "number_first": "number"}).combine_chunks()


def _used_as_ids(name: str, aliases: pa.Array, done: Mapping[int, PartResult], staging: Staging) -> pa.Array:
    """Which aliases are also ids of nodes. Reads the ids of one part at a time."""
    used = np.zeros(len(aliases), bool)
    for part in done.values():
        if name in part.aliases:
            ids = staging.table(part.aliases[name].ids)["id"]
            used |= pc.is_in(aliases, value_set=ids).to_numpy(zero_copy_only=False)
    return pa.array(used)


def alias_problems(reader: PartReader, wrong: Mapping[str, pa.Table]) -> list[Problem]:
    """The problems that `reader` reports for the ambiguous aliases of its part."""
    problems = []
    for name, pairs in reader.aliases.pairs().items():
        if name not in wrong:
            continue
        named = set(zip(wrong[name]["old"].to_pylist(), wrong[name]["new"].to_pylist(), strict=True))
        found = zip(pairs["old"].to_pylist(), pairs["new"].to_pylist(), strict=True)
        problems += reader.aliases.ambiguity_problems(name, pairs.filter(pa.array([pair in named for pair in found])))
    return problems
