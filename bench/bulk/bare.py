"""The same files into bare Lance tables, without any check: `python bench/bulk/bare.py FILES PLACE`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import lance
import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq

from bulk.measure import report


def read(file: Path) -> pa.Table:
    if file.suffix == ".parquet":
        return pq.read_table(file)
    table = pj.read_json(file, read_options=pj.ReadOptions(block_size=16 << 20)).flatten()
    table = table.rename_columns([name.rpartition(".")[2] for name in table.column_names])
    return table.drop_columns([name for name in ("type", "edge") if name in table.column_names])


def copy(files: Path, place: str) -> None:
    for file in sorted(files.iterdir()):
        lance.write_dataset(read(file), f"{place}/{file.stem}")


report(lambda: copy(Path(sys.argv[1]), sys.argv[2]))
