"""The study in DataFusion: tables in memory, read from Parquet files."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pyarrow as pa
import pyarrow.parquet as pq
from datafusion import SessionConfig, SessionContext

from harness import available_cores
from study.serve import Answers, main
from study.sql import texts


def store(files: Path, place: Path) -> None:
    place.symlink_to(files, target_is_directory=True)


def answers(place: Path, persons: int) -> Answers:
    context = new_context()
    cores = available_cores()
    for file in sorted(place.iterdir()):
        batches = pq.read_table(file).combine_chunks().to_batches(max_chunksize=8192)
        parts = [batches[part::cores] for part in range(cores)]
        context.register_record_batches(file.stem.lower(), [part for part in parts if part])
    return asked(context, persons)


def on_disk(place: Path, persons: int) -> Answers:
    context = new_context()
    for file in sorted(place.iterdir()):
        context.register_parquet(file.stem.lower(), str(file))
    return asked(context, persons)


def new_context() -> SessionContext:
    return SessionContext(SessionConfig().with_target_partitions(available_cores()))


def asked(context: SessionContext, persons: int) -> Answers:
    return {name: partial(ask, context, text) for name, text in texts(persons).items()}


def ask(context: SessionContext, text: str) -> pa.Table:
    """Run a text. All but its last statement make tables that the next ones use."""
    return context.sql(text).to_arrow_table()


if __name__ == "__main__":
    main(store, answers, on_disk)
