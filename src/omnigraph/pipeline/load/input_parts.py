"""The parts of the input of a load: runs the tasks that read the parts, and computes where each part starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from omnigraph.errors import Problem, SparkError
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.lang.schema.type_key import type_key
from omnigraph.pipeline.load.aliases import FoundAliases, alias_problems, find_aliases
from omnigraph.pipeline.load.partition_task import PartReader, PartResult, Work, run
from omnigraph.pipeline.spark.shuffle import TASKS_PER_SLOT
from omnigraph.pipeline.spark.tasks import SparkWork
from omnigraph.write.input.splits import End, Split, Start
from omnigraph.write.request_digest import RowsDigest
from omnigraph.write.rows.problems import SHOWN, Coercion, Coercions, Problems

R = TypeVar("R")


class InputParts:
    """The parts of the input.

    Args:
        splits: the parts, in input order.
        spark: the context of the work on Spark.

    Attributes:
        done: the result of each part, by its number.
        starts: the position of each part in the input. Set when all parts are read.
        coerced: the changes that the lenient reader made to wrong values. Set when all parts are read.
    """

    def __init__(self, splits: Sequence[Split], spark: SparkWork) -> None:
        self.splits = dict(enumerate(splits))
        self.done: dict[int, PartResult] = {}
        self.starts: dict[int, Start] = {}
        self.coerced: tuple[Coercion, ...] = ()
        self._spark = spark

    def may_have(self, key: str) -> bool:
        """Whether the input can contain rows of a type."""
        each = [split.types for split in self.splits.values()]
        return any(types is None or any(type_key(kind, name) == key for kind, name in types) for types in each)

    def read(self, work: Work) -> None:
        """Read all parts by tasks.

        Raises:
            BadRowsError: some records cannot become rows.
            EmbeddingError: vectors could not be computed.
        """
        self._run(work, list(self.splits))
        self._check_vectors()
        again = self._join_unclean()
        if again:
            self._run(work, again)
            self._check_vectors()
        self._locate_parts()
        refused = min((number for number, done in self.done.items() if done.refused is not None), default=None)
        if refused is not None:
            # Read the part again from its known position, so that the error has the right line numbers.
            PartReader(work, refused).read(self.splits[refused], self.starts[refused])
            raise SparkError(str(self.done[refused].refused))
        aliases = find_aliases(self.done, work.staging) if work.lenient else FoundAliases({}, {})
        wrong = {number: done.problems for number, done in sorted(self.done.items()) if done.problems}
        if wrong or aliases.wrong:
            self._problems(work, wrong, aliases).check()
        if aliases.known:
            # All aliases are known now: read all parts again, and replace the aliases in the ends of edges by the ids.
            staged = {name: work.staging.put(f"aliases/{name}", rows) for name, rows in aliases.known.items()}
            work = replace(work, aliases=staged)
            self._run(work, list(self.splits))
            self._check_vectors()
        self.coerced = self._coercions(work)

    def _check_vectors(self) -> None:
        """Raise the embedding error of the first part that has one, unless an earlier part has invalid records.

        If an earlier part has invalid records, the caller reports them. The part with the embedding error and all later
        parts are dropped, so their records are not counted in this report.
        """
        failed = min((number for number, done in self.done.items() if done.failed is not None), default=None)
        if failed is None:
            return
        before = [done for number, done in self.done.items() if number < failed]
        if not any(done.problems or done.refused is not None for done in before):
            error = self.done[failed].failed
            assert error is not None
            raise error
        for number in [number for number in self.splits if number >= failed]:
            del self.splits[number]
            self.done.pop(number, None)

    def _run(self, work: Work, numbers: Sequence[int]) -> None:
        parts = {number: (self.splits[number], self.starts.get(number, Start())) for number in numbers}
        self.done |= self.map(numbers, lambda number: run(work, number, *parts[number]), "reading")

    def map(self, numbers: Sequence[int], do: Callable[[int], R], what: str) -> dict[int, R]:
        """Call a function in a task for each of the given numbers. Returns the results by number."""
        listed = list(numbers)
        tasks = self._spark.session.parallelism * TASKS_PER_SLOT
        return dict(zip(listed, self._spark.map(what, listed, do, tasks=tasks), strict=True))

    def _groups(self) -> Iterator[list[int]]:
        """The numbers of the parts of each file, in order."""
        group: list[int] = []
        for number, split in sorted(self.splits.items()):
            if group and split.begins:
                yield group
                group = []
            group.append(number)
        if group:
            yield group

    def _join_unclean(self) -> list[int]:
        """Join the parts of files in which a record spans two parts. Returns the joined parts, to be read again."""
        again = []
        for group in list(self._groups()):
            if any(not self.done[number].end.clean for number in group[:-1]):
                first = group[0]
                self.splits[first] = self.splits[first].whole()
                again.append(first)
                for number in group:
                    del self.done[number]
                for number in group[1:]:
                    del self.splits[number]
        return again

    def _locate_parts(self) -> None:
        """Compute the position of each part from the numbers of lines and records in the parts before it."""
        first = 1
        for group in self._groups():
            before = records = 0
            for number in group:
                self.starts[number] = Start(first, before, records)
                end: End = self.done[number].end
                before += end.lines
                records += end.records
            first += before

    def _problems(self, work: Work, wrong: Mapping[int, int], aliases: FoundAliases) -> Problems:
        """All invalid records, the first with their positions in the whole input. Reads the affected parts again."""
        chosen: list[int] = []
        found = 0
        for number, total in wrong.items():
            if found < SHOWN:
                chosen.append(number)
                found += total
        ids = {number: aliases.in_part(number) for number in self.splits}
        chosen = sorted({*chosen, *(number for number, each in ids.items() if each)})
        picked = {number: (self.splits[number], self.starts[number]) for number in chosen}

        def again(number: int) -> tuple[tuple[Problem, ...], list[Problem]]:
            reader = PartReader(work, number)
            reader.read(*picked[number])
            return reader.problems.first, alias_problems(reader, ids[number])

        first = self.map(chosen, again, "finding the first problems")
        collected = Problems()
        for number in wrong:
            records, _ = first.get(number, ((), []))
            collected.merge(records, self.done[number].kinds, self.done[number].problems)
        for _, ambiguous in first.values():
            for problem in ambiguous:
                collected.add(problem)
        return collected

    def _coercions(self, work: Work) -> tuple[Coercion, ...]:
        """The corrections of all parts. Reads a part again if the line numbers of its examples are not known yet."""
        counted = Coercions()
        first: dict[tuple[str, str], int] = {}
        for number, done in sorted(self.done.items()):
            for each in done.coerced:
                first.setdefault((each.kind, each.subject), number)
        unplaced = {number for number in first.values() if self.starts[number].before} if not work.aliases else set()
        picked = {number: (self.splits[number], self.starts[number]) for number in unplaced}

        def again(number: int) -> tuple[Coercion, ...]:
            reader = PartReader(work, number)
            reader.read(*picked[number])
            return () if reader.problems.coerced is None else reader.problems.coerced.all()

        placed = self.map(sorted(unplaced), again, "finding the first corrections")
        for number, done in sorted(self.done.items()):
            for each in placed.get(number, done.coerced):
                counted.add(each.kind, each.subject, each.example, each.count, found=each.found)
        return counted.all()

    def digest(self, accepted: AcceptedSchema, embed: bool) -> str:
        """A digest of the input."""
        digest = RowsDigest(accepted, Problems())
        for _, done in sorted(self.done.items()):
            digest.add(done.digests)
        return digest.value(embed)
