"""The damage matrix: every kind of damage to every class of files, and the outcome.

`python -m tests.damage.matrix` writes `docs/reference/damage-matrix.md` from a long run.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tests.damage.graphs import READS, answers, create, files

from omnigraph.commit.schema_files import CONTRACT
from omnigraph.errors import DamagedFileError, OmnigraphError
from omnigraph.graph import Graph, open
from omnigraph.settings import FSYNC

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "damage-matrix.md"

FLIPS = 3
"""How many bits of a file are flipped, one at a time."""

Damage = Callable[[bytes, random.Random, bytes], bytes | None]
"""Returns the damaged content of a file, or None to remove it. The last argument is another file of the same class."""


def _flip(data: bytes, chance: random.Random, _: bytes) -> bytes:
    if not data:
        return b"\x01"
    place = chance.randrange(len(data) * 8)
    changed = bytearray(data)
    changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


DAMAGES: dict[str, Damage] = {
    "emptied": lambda data, chance, other: b"",
    "cut in half": lambda data, chance, other: data[: len(data) // 2],
    "zeroed": lambda data, chance, other: bytes(len(data)),
    "tail zeroed": lambda data, chance, other: data[: len(data) * 3 // 4] + bytes(len(data) - len(data) * 3 // 4),
    "bit flipped": _flip,
    "removed": lambda data, chance, other: None,
    "replaced": lambda data, chance, other: other,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one read or write of a graph with one damaged file.

    Attributes:
        kind: `right`, `error` (of the family, and it names the file), `unnamed` (of the family), `wrong` or `raw`.
        said: the answer or the error.
    """

    what: str
    kind: str
    said: str


def cases(place: Path, chance: random.Random, flips: int, most: int) -> Iterator[tuple[str, str, str, bytes | None]]:
    """Class, damage, file and the new bytes of the file, for some files of each class, the newest among them."""
    for kind, paths in files(place).items():
        newest = max(paths, key=lambda each: (place / each).stat().st_mtime_ns)
        others = [each for each in paths if each != newest]
        for path in [newest, *chance.sample(others, min(most - 1, len(others)))]:
            data = (place / path).read_bytes()
            other = next((place / o for o in paths if o != path and Path(o).suffix == Path(path).suffix), place / path)
            for name, damage in DAMAGES.items():
                for _ in range(flips if name == "bit flipped" else 1):
                    changed = damage(data, chance, other.read_bytes())
                    if changed != data:
                        yield kind, name, path, changed


def ask(place: Path, path: str, truth: dict[str, object]) -> Iterator[Outcome]:
    """Open a graph and run all queries."""
    try:
        graph = open(place, read_only=True)
    except BaseException as error:
        yield _failed("open", error, path)
        return
    with graph:
        for name, probe in READS.items():
            try:
                found = probe(graph)
            except BaseException as error:
                yield _failed(name, error, path)
                continue
            if name == "verify" and found != truth[name]:
                yield Outcome(name, "error", "verify finds it")
            else:
                yield Outcome(name, "right" if found == truth[name] else "wrong", str(found)[:200])


def _write(graph: Graph) -> None:
    graph.mutate('query more() { insert Note { slug: "new", n: 1 } }')
    graph.mutate('query other() { update Note set { n: 99 } where slug = "note-010" }')


def _merge(graph: Graph) -> None:
    graph.branches.create("scratch")
    graph.merge("side", "scratch")


def _cleanup(graph: Graph) -> None:
    graph.cleanup(keep=1)


WRITES: dict[str, Callable[[Graph], None]] = {"write": _write, "merge": _merge, "cleanup": _cleanup}

AFTER: dict[str, tuple[str, Callable[[Graph], object]]] = {
    "rows after writes": ("write", lambda graph: rows_of(graph, "main")),
    "rows after a merge": ("merge", lambda graph: rows_of(graph, "scratch")),
    "side after writes": ("", READS["branch"]),
    "past after writes": ("", READS["past"]),
    "half after writes": ("", READS["half"]),
}
"""The queries after the writes, and the write that each of them depends on."""


def rows_of(graph: Graph, branch: str) -> object:
    return sorted(graph.snapshot(branch=branch).scan("node:Note", columns=["id", "n"]).to_pylist(), key=str)


def change(place: Path, path: str, truth: dict[str, object]) -> Iterator[Outcome]:
    """Open a graph for writing, write, merge, clean up, and check that the rest is unchanged."""
    failed = set()
    try:
        with open(place) as graph:
            # A record or a lease that cannot be read has no owner: it expires after this time.
            graph.session.store.timeouts.ttl, graph.session.store.timeouts.wait = 0.2, 2.0
            for name, write in WRITES.items():
                try:
                    write(graph)
                    yield Outcome(name, "right", "")
                except BaseException as error:
                    failed.add(name)
                    yield _failed(name, error, path)
    except BaseException as error:
        failed |= WRITES.keys()
        yield _failed("open to write", error, path)
    try:
        graph = open(place, read_only=True)
    except BaseException as error:
        yield _failed("open after writes", error, path)
        return
    with graph:
        for name, (needs, probe) in AFTER.items():
            if needs in failed:
                continue
            try:
                found = probe(graph)
            except BaseException as error:
                yield _failed(name, error, path)
                continue
            # The merge into this branch was interrupted: it is completed or undone.
            allowed = [truth[name], *([truth["half"]] if name == "half after writes" else [])]
            yield Outcome(name, "right" if found in allowed else "wrong", str(found)[:200])


def _failed(what: str, error: BaseException, path: str) -> Outcome:
    if not isinstance(error, OmnigraphError):
        return Outcome(what, "raw", f"{type(error).__name__}: {error}"[:400])
    said = error.render()
    parts = path.split("/")
    if path in CONTRACT:
        return Outcome(what, "error" if any(file in said for file in CONTRACT) else "unnamed", said[:400])
    named = path in said or parts[-1] in said or (not isinstance(error, DamagedFileError) and _place(path) in said)
    return Outcome(what, "error" if named else "unnamed", f"{type(error).__name__}: {said}"[:400])


def _place(path: str) -> str:
    """The directory of files that only Lance opens."""
    return "/".join(path.split("/")[:2]) if "/" in path else path


@dataclass(slots=True)
class Run:
    """A run over all cases: counts by class and damage, and the wrong outcomes."""

    counts: dict[tuple[str, str], Counter[str]]
    bad: list[str]
    cases: int = 0

    def add(self, kind: str, damage: str, path: str, outcome: Outcome) -> None:
        # A branch or tag without its reference does not exist, so there is no file to name. The content of the location
        # stamp is the error.
        excused = (kind, damage) in (("manifest reference", "removed"), ("reference", "removed")) or kind == "place"
        if outcome.kind == "unnamed" and excused:
            outcome = replace(outcome, kind="error")
        if outcome.what == "pending" and (kind, damage) == ("sidecar", "removed"):
            outcome = replace(outcome, kind="right")  # without a sidecar, no write is pending
        self.counts.setdefault((kind, damage), Counter())[outcome.kind] += 1
        if outcome.kind in ("wrong", "raw", "unnamed"):
            self.bad.append(f"{path}, {damage}, {outcome.what}: {outcome.kind}: {outcome.said}")


def run(
    directory: Path,
    seed: int,
    *,
    flips: int = FLIPS,
    most: int = 2,
    writes: bool = True,
    only: str | None = None,
    sample: int | None = None,
) -> Run:
    """Damage files one at a time, each in an otherwise undamaged graph.

    Args:
        directory: where to work.
        seed: of the choice of files and bits.
        flips: how many bits of each file are flipped.
        most: how many files of each class are damaged at most.
        writes: whether to write in addition to reading.
        only: one kind of damage; by default all.
        sample: how many cases to choose; by default all.
    """
    place, whole = directory / "graph", directory / "whole"
    create(place)
    shutil.copytree(place, whole)
    truth = answers(place) | _truth_after(place)
    shutil.rmtree(place)
    shutil.copytree(whole, place)
    result = Run({}, [])
    chance = random.Random(seed)
    chosen = [case for case in cases(place, chance, flips, most) if only in (None, case[1])]
    if sample is not None:
        chosen = chance.sample(chosen, min(sample, len(chosen)))
    for kind, damage, path, changed in chosen:
        result.cases += 1
        _put(place / path, changed)
        for outcome in ask(place, path, truth):
            result.add(kind, damage, path, outcome)
        if writes:
            for outcome in change(place, path, truth):
                result.add(kind, damage, path, outcome)
            shutil.rmtree(place)
            shutil.copytree(whole, place)
        else:
            _put(place / path, (whole / path).read_bytes())
    return result


def _truth_after(place: Path) -> dict[str, object]:
    """The right answers after the writes."""
    with open(place) as graph:
        for write in WRITES.values():
            write(graph)
    with open(place, read_only=True) as graph:
        return {name: probe(graph) for name, (_, probe) in AFTER.items()}


def _put(file: Path, data: bytes | None) -> None:
    """Replace a file by a new one. Processes that have the old file open still see the old content."""
    file.unlink(missing_ok=True)
    if data is not None:
        file.write_bytes(data)


def page(result: Run, seed: int) -> str:
    """The document of a run."""
    kinds = sorted({kind for kind, _ in result.counts})
    lines = [
        "# Damage matrix",
        "",
        "One file of a graph is damaged, and the graph is asked everything and written to. Each cell counts the",
        "answers: **right** ones (the file was not needed, or something stands in for it), **errors** of the family",
        "that name the file, and **wrong** ones. A question is an export of `main` and of a branch, lookups by an",
        "index, a search for words, a traversal, a blob, an older commit, the base of a merge, a list of commits,",
        "recoveries, `verify`; and two writes, a merge and a cleanup, with a look at rows afterwards. The history is",
        "long enough for parts of older commits. In the graph, a merge and a cleanup have stopped half way.",
        "",
        f"This page is written by `python -m tests.damage.matrix` ({result.cases} damaged files, seed {seed});",
        "`tests/damage/test_damage_matrix.py` runs a smaller choice, and fails for a wrong answer from a file that has",
        "a checksum, or from any other, for an exception of a library, and for an error that does not name the file.",
        "",
        "Classes without a checksum are leases, the note of the graph's place, and the references and hints that Lance",
        "keeps for itself: nothing that is answered depends on them. Schemas are compared with the hash in the",
        "manifest.",
        "",
        "| class | " + " | ".join(DAMAGES) + " |",
        "|---|" + "---|" * len(DAMAGES),
    ]
    for kind in kinds:
        cells = []
        for damage in DAMAGES:
            counts = result.counts.get((kind, damage), Counter())
            said = [f"{counts[name]} {word}" for name, word in _WORDS.items() if counts[name]]
            cells.append(", ".join(said) or "–")
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    total = sum((counts for counts in result.counts.values()), Counter())
    lines += ["", f"In all: {', '.join(f'{total[name]} {word}' for name, word in _WORDS.items())}.", ""]
    return "\n".join(lines)


_WORDS = {"right": "right", "error": "errors", "unnamed": "errors without a name", "wrong": "wrong", "raw": "raw"}


def main() -> None:
    """Write the page."""
    os.environ[FSYNC.name] = "0"
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    with tempfile.TemporaryDirectory() as directory:
        result = run(Path(directory), seed, most=2)
    PAGE.write_text(page(result, seed), encoding="utf-8")
    print("\n".join(result.bad))  # noqa: T201


if __name__ == "__main__":
    main()
