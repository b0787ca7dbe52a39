"""The damage matrix: the results of reads and writes after each kind of damage to each class of files.

`python -m tests.damage.matrix` runs all cases, which takes long, and writes `docs/reference/damage-matrix.md`.
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
"""Number of cases with a flipped bit per file."""

Damage = Callable[[bytes, random.Random, bytes], bytes | None]
"""Returns the damaged content of a file; None removes it. The last argument is another file of the same class."""


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
        what: the read or write.
        kind: `right`; `error`, an error of the family that names the file; `unnamed`, an error of the family that does
            not; `wrong`, a wrong result; or `raw`, an exception of a library.
        said: the result or the error.
    """

    what: str
    kind: str
    said: str


def cases(place: Path, chance: random.Random, flips: int, most: int) -> Iterator[tuple[str, str, str, bytes | None]]:
    """Class, damage, path and new content of a file, for some files of each class, including the newest."""
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
    """Open a graph, and run all reads."""
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
"""Reads after the writes, each with the write that has to succeed first."""


def rows_of(graph: Graph, branch: str) -> object:
    return sorted(graph.snapshot(branch=branch).scan("node:Note", columns=["id", "n"]).to_pylist(), key=str)


def change(place: Path, path: str, truth: dict[str, object]) -> Iterator[Outcome]:
    """Open a graph for writing, write, merge and clean up, and check the rows afterwards."""
    failed = set()
    try:
        with open(place) as graph:
            # An unreadable record or lease expires after this time.
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
            # The merge into this branch was interrupted: it is rolled forward or back, as a whole.
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
    """The directory that an error names if a library opens the file."""
    return "/".join(path.split("/")[:2]) if "/" in path else path


@dataclass(slots=True)
class Run:
    """The results of all cases: counts by class and damage, and the unexpected outcomes."""

    counts: dict[tuple[str, str], Counter[str]]
    bad: list[str]
    cases: int = 0

    def add(self, kind: str, damage: str, path: str, outcome: Outcome) -> None:
        # Without its reference, a branch or tag does not exist, and the error names no file. A damaged location
        # stamp is reported by its content, not by its path.
        excused = (kind, damage) in (("manifest reference", "removed"), ("reference", "removed")) or kind == "location"
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
    """Damage files one after the other, each in an otherwise intact graph.

    Args:
        directory: the working directory.
        seed: seed of the random choice of files and bits.
        flips: the number of cases with a flipped bit per file.
        most: the number of files of each class to damage.
        writes: whether to write as well as to read.
        only: one kind of damage; by default all.
        sample: the number of cases to run; by default all.
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
    """The right results after the writes."""
    with open(place) as graph:
        for write in WRITES.values():
            write(graph)
    with open(place, read_only=True) as graph:
        return {name: probe(graph) for name, (_, probe) in AFTER.items()}


def _put(file: Path, data: bytes | None) -> None:
    """Replace a file by a new one with other content. Open files keep theirs."""
    file.unlink(missing_ok=True)
    if data is not None:
        file.write_bytes(data)


def page(result: Run, seed: int) -> str:
    """The reference page with the results of a run."""
    kinds = sorted({kind for kind, _ in result.counts})
    lines = [
        "# Damage matrix",
        "",
        "The tests damage one file of a graph, then read the graph and write to it. Each row of the table is a class",
        "of files, and each column is a kind of damage. *Replaced* means that the file has the content of another",
        "file of its class. A cell contains the number of reads and writes with each outcome:",
        "",
        "- **right**: the result is correct, because the file was not needed, or because other files replace it;",
        "- **errors**: the operation fails with an error that names the damaged file;",
        "- **errors without a name**: the operation fails with an error of OmniGraph that does not name the file;",
        "- **wrong**: the result is not correct;",
        "- **raw**: the operation fails with an exception of a library instead of an error of OmniGraph.",
        "",
        "The reads are an export of `main` and of a branch, index lookups, a full-text search, a traversal and a",
        "blob. Further reads are an older commit, the base of a merge, the list of commits, the list of recoveries,",
        "and `verify`. The writes are two mutations, a merge and a cleanup; after them, the stored rows are compared",
        "with the expected rows. The graph has so many commits that the older ones are in separate files. It also has",
        "a merge and a cleanup that were interrupted.",
        "",
        f"`python -m tests.damage.matrix` wrote this page ({result.cases} damaged files, seed {seed}).",
        "`tests/damage/test_damage_matrix.py` runs some of the cases. It fails on a wrong result, on an exception of a",
        "library, and on an error that does not name the file.",
        "",
        "Some names of classes: `audit` files contain the records of recovered writes. An `ancestors` file contains",
        "the commits that a merge adds to the history of its target. The `removal list` names the files that a",
        "cleanup removes.",
        "",
        "Some files have no checksums, because no result depends on them: leases, the file with the location of the",
        "graph (`location`), and Lance's own files with references and version hints. Schemas are compared with the",
        "hash in the manifest.",
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
