"""Run the checks of a load on Spark, in as few jobs as possible."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.errors import KeyConflictError
from omnigraph.pipeline.load.rules import FoundViolations, SparkValidator, ViolationSearch
from omnigraph.pipeline.spark.shuffle import Relation, combine_first, total_rows
from omnigraph.storage.staging import SHOWN_IDS
from omnigraph.write.rules.violations import SHOWN, Violations


def validate_load(rules: SparkValidator, *, all_new: bool) -> KeyConflictError | None:
    """Check all constraints, in as few jobs as possible.

    Args:
        rules: the constraints of the load.
        all_new: whether all loaded ids have to be new.

    Returns:
        The error about the first type with ids that must be new but already exist; None if there are no such ids.

    Raises:
        ConstraintError: a constraint is broken.
    """
    found = list(rules.check())
    searches = {i: rows for i, (rows, _) in enumerate(found) if isinstance(rows, ViolationSearch)}
    shared = _distinct([rows.candidates for rows in searches.values() if rows.candidates is not None])
    direct = [i for i, rows in searches.items() if rows.candidates is None]
    keys = list(rules.changes) if all_new else []
    answers = rules.shuffle.collect(
        [searches[i].rows().first(searches[i].order, SHOWN) for i in direct]
        + [candidates.block_counts() for candidates in shared]
        + [rules.existing_ids(rules.changes[key]).first("id", SHOWN_IDS) for key in keys]
    )
    tables = dict(zip(direct, answers, strict=False))
    counts = answers[len(direct) : len(direct) + len(shared)]
    not_empty = [candidates for candidates, count in zip(shared, counts, strict=True) if total_rows(count)]
    later = [i for i, rows in searches.items() if any(rows.candidates is each for each in not_empty)]
    answers_later = rules.shuffle.collect([searches[i].rows().first(searches[i].order, SHOWN) for i in later])
    tables |= dict(zip(later, answers_later, strict=True))
    violations = Violations()
    for i, (rows, describe) in enumerate(found):
        if isinstance(rows, FoundViolations):
            violations.add(rows.first, describe, rows.total)
        elif i in tables:
            first, total = combine_first(tables[i], rows.order, SHOWN)
            violations.add(first, describe, total)
    violations.refuse()
    for key, answer in zip(keys, answers[len(direct) + len(shared) :], strict=True):
        existing, total = combine_first(answer, "id", SHOWN_IDS)
        if total:
            ids = tuple(existing["id"].to_pylist())
            return KeyConflictError(key, ids[0], ids=ids, total=total)
    return None


def _distinct(relations: Sequence[Relation]) -> list[Relation]:
    """The relations without duplicates: several searches may have the same candidates."""
    found: list[Relation] = []
    for relation in relations:
        if not any(relation is each for each in found):
            found.append(relation)
    return found
