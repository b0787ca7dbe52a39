"""An executor that dies takes nothing with it: the load goes on, and brings exactly the rows of the input."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.deadly import DeadlyComparison, DeadlyReading
from tests.pipeline.worlds import graph_at, outcome, rows, write

from omnigraph.pipeline.load import driver
from omnigraph.pipeline.load.exchange import Exchange
from omnigraph.pipeline.pipeline import Pipeline
from omnigraph.pipeline.session import Session, SparkSettings

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster(session: Session) -> Iterator[Session]:
    """Two executors in processes of their own. There is one session in a process, so the other one ends."""
    session.stop()
    made = Session(
        SparkSettings(
            master="local-cluster[2,1,1024]",
            memory="1g",
            options={"spark.executorEnv.PYTHONPATH": f"{_ROOT}:{_ROOT / 'src'}", "spark.speculation": "true"},
            archive=False,
        )
    )
    yield made
    made.stop()


@pytest.mark.parametrize("moment", ["reading", "written", "comparing"])
def test_a_killed_executor(cluster: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    source = write(tmp_path / "input", rows(3, first=100), "ndjson")
    here, there = graph_at(tmp_path / "here"), graph_at(tmp_path / "there")
    expected = outcome(here, lambda: here.load(source, mode="append"))
    marker = tmp_path / "died"
    if moment == "comparing":
        together = Exchange.together

        def deadly(self: Exchange, sides: Any, compare: Any) -> Any:
            return together(self, sides, DeadlyComparison(compare, marker, os.getpid()))

        monkeypatch.setattr(Exchange, "together", deadly)
    else:
        monkeypatch.setattr(driver, "run", DeadlyReading(marker, after=moment == "written"))
    found = outcome(there, lambda: Pipeline(there, cluster).load(source, mode="append", split_bytes=6_000))
    assert marker.exists(), "nobody died"
    assert found == expected
    assert there.verify().ok
    assert there.load([{"type": "Person", "data": {"name": "afterwards"}}], mode="append").total == 1
