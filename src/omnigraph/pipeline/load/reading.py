"""The parts of a load's input, as tasks read them: which there are, how each went, and where it lies in the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from omnigraph.errors import BadRowsError, Problem, SparkError
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.lang.schema.type_key import type_key
from omnigraph.pipeline.load.aliases import FoundAliases, find_aliases, told_by
from omnigraph.pipeline.load.partition_task import PartDone, PartReader, Work, run
from omnigraph.pipeline.spark.shuffle import TASKS
from omnigraph.pipeline.spark.tasks import SparkWork
from omnigraph.write.input.splits import End, Split, Start
from omnigraph.write.request_digest import RowsDigest
from omnigraph.write.rows.problems import SHOWN, Coercion, Coercions, Problems

R = TypeVar("R")


class Parts:
    """The parts of the input.

    Args:
        splits: what they are, in input order.
        spark: the context of the work on Spark.

    Attributes:
        done: how each part went, by its number.
        starts: where each part begins, known once all were read.
        coerced: what the lenient reader changed, known then as well.
    """

    def __init__(self, splits: Sequence[Split], spark: SparkWork) -> None:
        self.splits = dict(enumerate(splits))
        self.done: dict[int, PartDone] = {}
        self.starts: dict[int, Start] = {}
        self.coerced: tuple[Coercion, ...] = ()
        self._spark = spark

    def may_have(self, key: str) -> bool:
        """Whether the input can have rows of a type."""
        each = [split.types for split in self.splits.values()]
        return any(types is None or any(type_key(kind, name) == key for kind, name in types) for types in each)

    def read(self, work: Work) -> None:
        """Let tasks read all parts.

        Raises:
            BadRowsError: some records cannot become rows.
            EmbeddingError: vectors could not be computed.
        """
        self._run(work, list(self.splits))
        self._check_vectors()
        again = self._unclean()
        if again:
            self._run(work, again)
            self._check_vectors()
        self._number()
        refused = min((number for number, done in self.done.items() if done.refused is not None), default=None)
        if refused is not None:
            # The same reader, told where its part begins, says it with the right numbers.
            PartReader(work, refused).read(self.splits[refused], self.starts[refused])
            raise SparkError(str(self.done[refused].refused))
        aliases = find_aliases(self.done, work.place) if work.lenient else FoundAliases({}, {})
        wrong = {number: done.problems for number, done in sorted(self.done.items()) if done.problems}
        if wrong or aliases.wrong:
            raise BadRowsError(self._problems(work, wrong, aliases), sum(wrong.values()) + aliases.total)
        if aliases.known:
            # Now that every node is known, the ends of edges can be rewritten that go by other spellings.
            aside = {name: work.place.put(f"aliases/{name}", rows) for name, rows in aliases.known.items()}
            work = replace(work, aliases=aside)
            self._run(work, list(self.splits))
            self._check_vectors()
        self.coerced = self._coercions(work)

    def _check_vectors(self) -> None:
        """Fail as the first part did whose vectors could not be computed, unless something is wrong before it.

        Then that is told, and nothing about the parts that come later: nobody has counted their records.
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
        self.done |= self.each(numbers, lambda number: run(work, number, *parts[number]), "reading")

    def each(self, numbers: Sequence[int], do: Callable[[int], R], what: str) -> dict[int, R]:
        """Call a function in a task for each of some numbers."""
        listed = list(numbers)
        tasks = self._spark.session.parallelism * TASKS
        return dict(zip(listed, self._spark.map(what, listed, do, tasks=tasks), strict=True))

    def _groups(self) -> Iterator[list[int]]:
        """The parts of each file, in order."""
        group: list[int] = []
        for number, split in sorted(self.splits.items()):
            if group and split.begins:
                yield group
                group = []
            group.append(number)
        if group:
            yield group

    def _unclean(self) -> list[int]:
        """Files in which records stretch over parts: each becomes one part."""
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

    def _number(self) -> None:
        """Say where each part begins, now that everything before it was counted."""
        first = 1
        for group in self._groups():
            before = records = 0
            for number in group:
                self.starts[number] = Start(first, before, records)
                end: End = self.done[number].end
                before += end.lines
                records += end.records
            first += before

    def _problems(self, work: Work, wrong: Mapping[int, int], aliases: FoundAliases) -> tuple[Problem, ...]:
        """The first problems, with the places they have in the whole input: their parts are read again."""
        chosen: list[int] = []
        found = 0
        for number, total in wrong.items():
            if found < SHOWN:
                chosen.append(number)
                found += total
        ids = {number: aliases.in_part(number) for number in self.splits}
        chosen = sorted({*chosen, *(number for number, each in ids.items() if each)})
        picked = {number: (self.splits[number], self.starts[number]) for number in chosen}

        def again(number: int) -> tuple[Problem, ...]:
            reader = PartReader(work, number)
            reader.read(*picked[number])
            return (*reader.problems.first, *told_by(reader, ids[number]))

        told = Problems()
        for _, problems in sorted(self.each(chosen, again, "finding the first problems").items()):
            told.add_all(problems, len(problems))
        return told.first

    def _coercions(self, work: Work) -> tuple[Coercion, ...]:
        """What was changed, over all parts. Parts that did not know where they begin are read again for that."""
        counted = Coercions()
        first: dict[tuple[str, str], int] = {}
        for number, done in sorted(self.done.items()):
            for each in done.coerced:
                first.setdefault((each.kind, each.subject), number)
        unsure = {number for number in first.values() if self.starts[number].before} if not work.aliases else set()
        picked = {number: (self.splits[number], self.starts[number]) for number in unsure}

        def again(number: int) -> tuple[Coercion, ...]:
            reader = PartReader(work, number)
            reader.read(*picked[number])
            return () if reader.problems.coerced is None else reader.problems.coerced.all()

        sure = self.each(sorted(unsure), again, "finding the first changes")
        for number, done in sorted(self.done.items()):
            for each in sure.get(number, done.coerced):
                counted.add(each.kind, each.subject, each.example, each.count, found=each.found)
        return counted.all()

    def digest(self, accepted: AcceptedSchema, embed: bool) -> str:
        """What tells the input from others."""
        digest = RowsDigest(accepted, Problems())
        for _, done in sorted(self.done.items()):
            digest.add(done.digests)
        return digest.value(embed)
