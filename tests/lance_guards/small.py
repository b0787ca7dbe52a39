"""A small plain Lance table."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
from lance import LanceDataset, LanceOperation, Transaction
from lance.fragment import write_fragments

SCHEMA = pa.schema([pa.field("id", pa.utf8(), nullable=False), pa.field("n", pa.int64())])


def rows(*ids: str, n: int = 0) -> pa.Table:
    return pa.table({"id": list(ids), "n": [n] * len(ids)}, schema=SCHEMA)


def create(place: Path) -> LanceDataset:
    """A table as the store creates it."""
    return LanceDataset.commit(str(place), LanceOperation.Overwrite(SCHEMA, []), enable_stable_row_ids=True)


def staged_append(dataset: LanceDataset, *ids: str) -> Transaction:
    transaction = write_fragments(rows(*ids), dataset, return_transaction=True)
    assert isinstance(transaction, Transaction)
    return transaction


def staged_overwrite(dataset: LanceDataset, *ids: str, keep: bool = False) -> Transaction:
    """Stage an overwrite with new rows, after the existing fragments if they are kept."""
    kept = [fragment.metadata for fragment in dataset.get_fragments()] if keep else []
    added = write_fragments(rows(*ids), dataset, mode="append") if ids else []
    return Transaction(dataset.version, LanceOperation.Overwrite(dataset.schema, [*kept, *added]))


def commit(dataset: LanceDataset, transaction: Transaction) -> LanceDataset:
    """Commit without retries."""
    return LanceDataset.commit(dataset, transaction, max_retries=0)


def append(dataset: LanceDataset, *ids: str) -> LanceDataset:
    return commit(dataset, staged_append(dataset, *ids))


def ids(dataset: LanceDataset) -> list[str]:
    return sorted(dataset.to_table(columns=["id"])["id"].to_pylist())


def newest(place: Path, branch: str | None = None) -> LanceDataset:
    return lance.dataset(str(place if branch is None else place / "tree" / branch))
