"""Reads the transactions that Lance records with the versions of a table."""

from __future__ import annotations

from lance import LanceDataset, Transaction


def read_transaction(dataset: LanceDataset, version: int) -> Transaction | None:
    """The transaction that made a version; None if Lance has no record of it.

    Threads share the handle of a dataset. Lance locks a handle while it reads a transaction, and all other calls on the
    handle fail. So the transaction is read with another handle of the same version, which costs some microseconds.
    """
    return dataset.checkout_version(dataset.version).read_transaction(version)
