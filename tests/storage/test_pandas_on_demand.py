"""A graph is opened without pandas. A program that imports pandas gets the pandas support of pyarrow."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pandas")

LATER = """
import sys
import omnigraph.storage.tables
import pyarrow as pa
assert pa.array([1, None]).null_count == 1 and "pandas" not in sys.modules
import pandas
assert pandas.__spec__.loader is pandas.__loader__ and type(pandas.__loader__).__module__.startswith("_frozen")
"""

IN_ARROW = """
import sys
import omnigraph.storage.tables
import pyarrow as pa
assert "pandas" not in sys.modules
frame = pa.table({"a": [1, None]}).to_pandas()
import pandas
assert isinstance(frame, pandas.DataFrame)
"""

BEFORE = """
import pandas
import omnigraph.storage.tables
import pyarrow as pa
"""

ELSEWHERE = """
import importlib.util, threading
import omnigraph.storage.tables
import pyarrow as pa
assert importlib.util.find_spec("pandas").origin.endswith("__init__.py")
thread = threading.Thread(target=lambda: __import__("pandas"))
thread.start()
thread.join()
import pandas
"""


@pytest.mark.parametrize("program", [LATER, IN_ARROW, BEFORE, ELSEWHERE], ids=["later", "in-arrow", "before", "thread"])
def test_pyarrow_knows_pandas_as_soon_as_it_is_imported(program: str) -> None:
    check = """
assert pa.array(pandas.Series([1.0, float("nan")])).null_count == 1, "pyarrow took the series for a plain sequence"
assert pa.Table.from_pandas(pandas.DataFrame({"a": [1]})).num_rows == 1
"""
    done = subprocess.run([sys.executable, "-c", program + check], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
