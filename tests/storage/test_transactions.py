"""Transactions of table versions are read while other threads use the same handle."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph.storage.transactions import read_transaction

ROUNDS = 300


@pytest.fixture
def dataset(tmp_path: Path) -> lance.LanceDataset:
    lance.write_dataset(pa.table({"id": ["a"]}), tmp_path / "table", enable_stable_row_ids=True)
    return lance.write_dataset(pa.table({"id": ["b"]}), tmp_path / "table", mode="append")


@pytest.mark.parametrize("fork", [False, True])
def test_other_threads_use_the_handle_while_transactions_are_read(dataset: lance.LanceDataset, *, fork: bool) -> None:
    if fork:
        made = dataset.create_branch("dev", 1)
        dataset = lance.write_dataset(pa.table({"id": ["c"]}), made, mode="append")
    version = dataset.version

    def transactions() -> set[type | None]:
        found = [read_transaction(dataset, version) for _ in range(ROUNDS)]
        return {None if one is None else type(one.operation) for one in found}

    def schemas() -> set[str]:
        return {name for _ in range(ROUNDS * 100) for name in dataset.schema.names}

    with ThreadPoolExecutor(4) as pool:
        reads = [pool.submit(transactions) for _ in range(2)]
        others = [pool.submit(schemas) for _ in range(2)]
        assert [read.result() for read in reads] == [{lance.LanceOperation.Append}] * 2
        assert [other.result() for other in others] == [{"id"}] * 2
