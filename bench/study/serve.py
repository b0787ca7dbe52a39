"""The side of a contender: it stores the data once, and then answers orders that come as lines of JSON.

    python bench/study/NAME.py store FILES PLACE     puts the data where it wants them
    python bench/study/NAME.py warm PLACE PERSONS    reads orders until the pipe is closed; opening may take a while
    python bench/study/NAME.py cold PLACE PERSONS    the same, but the first answer is what counts

An order is `["answer", question, file]`, `["warm", question]` or `["sample", question, repeats]`. The reply is a line
as well: nothing, how many repeats make a sample, or the seconds of each call.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

_OFTEN = 100
_LONG = 2.0
"""A question that takes long is not asked that often: so many seconds are enough."""

Answers: TypeAlias = "Mapping[str, Callable[[], pa.Table]]"
Open: TypeAlias = Callable[[Path, int], Answers]


def main(store: Callable[[Path, Path], object], warm: Open, cold: Open | None = None) -> None:
    """Run a contender.

    Args:
        store: puts the files of a folder into a place.
        warm: opens that place, with so many persons, and says how each question is answered.
        cold: the same for somebody who asks only one; by default there is no difference.
    """
    task, first, second = sys.argv[1:]
    if task == "store":
        store(Path(first), Path(second))
        return
    replies, sys.stdout = sys.stdout, sys.stderr
    known = (cold if cold is not None and task == "cold" else warm)(Path(first), int(second))
    for line in sys.stdin:
        print(json.dumps(_reply(known, *json.loads(line))), file=replies, flush=True)


def _reply(known: Answers, order: str, question: str, *rest: str | int) -> object:
    if order == "answer":
        _save(known[question](), str(rest[0]))
        return None
    import harness

    if order == "warm":
        _warm(known[question])
        return harness.warm_up(known[question])
    return harness.sample(known[question], int(rest[0]))


def _warm(call: Callable[[], object]) -> None:
    """Ask so often that whoever prepares something for questions that come again has done so."""
    start = time.perf_counter()
    for _ in range(_OFTEN):
        call()
        if time.perf_counter() - start > _LONG:
            return


def _save(answer: pa.Table, file: str) -> None:
    import pyarrow as pa

    with pa.ipc.new_file(file, answer.schema) as sink:
        sink.write_table(answer)
