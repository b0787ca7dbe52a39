"""The results of planning and applying a schema change."""

# See docs/decisions/0194-soft-drops-need-no-permission.md

from __future__ import annotations

from dataclasses import field
from typing import Any

from omnigraph.commit.manifest import Commit, commit_json
from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, shown
from omnigraph.lang.schema.migrate import Plan
from omnigraph.lang.schema.migrate.steps import UnsupportedChange
from omnigraph.migrate.allow import Allow
from omnigraph.migrate.costs import StepCost


def parse_allow(allow: Allow | str) -> Allow:
    """Parse a permission.

    Raises:
        InputError: there is no such permission.
    """
    try:
        return Allow(allow)
    except ValueError:
        names = ", ".join(each.value for each in Allow)
        raise InputError(f"allow: {shown(allow)} is not a permission", hint=f"give one of {names}") from None


@dataclass(frozen=True, slots=True)
class SchemaPlan:
    """A planned schema change, with the cost of each step.

    Attributes:
        plan: the steps.
        costs: the estimated cost of each step, in the same order. A refused plan has none.
        schema_hash: hash of the schema that the plan starts from.
    """

    plan: Plan
    costs: tuple[StepCost, ...]
    schema_hash: str

    @property
    def supported(self) -> bool:
        """Whether the change is possible."""
        return self.plan.supported

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.plan.steps

    @property
    def cost(self) -> StepCost:
        """The cost of all steps."""
        return sum(self.costs, StepCost())

    def lines(self) -> list[str]:
        """The plan as text: one line per step, with its cost, and a hint below each refused step."""
        lines = [] if self.plan.steps else ["no schema changes"]
        costs = self.costs or (None,) * len(self.plan.steps)
        for step, cost in zip(self.plan.steps, costs, strict=True):
            lines.append(step.line() if cost is None else f"{step.line()} — {cost}")
            if isinstance(step, UnsupportedChange):
                lines.append(f"  help: {step.hint}")
        return lines + [f"note: {note}" for note in self.plan.notes]

    def to_json(self) -> dict[str, Any]:
        """The plan as the JSON object that all user interfaces return."""
        members = self.plan.to_json()
        steps: list[dict[str, Any]] = [step.to_json() for step in self.plan.steps]
        if self.costs:
            steps = [step | {"cost": cost.to_json()} for step, cost in zip(steps, self.costs, strict=True)]
        return {"supported": members["supported"], "step_count": len(steps)} | members | {"steps": steps}


@dataclass(frozen=True, slots=True)
class HardDrop:
    """The removal of old versions of one table after a hard drop.

    Attributes:
        type_key: the type, by its name before the change.
        versions_removed: number of removed versions.
        versions_kept: number of older versions that still exist, because a branch, tag, merge or running job needs
            them. These versions still contain the dropped data.
        error: why the removal failed; None if it succeeded. If it failed, `upkeep` removes the remaining versions.
        kept_for: the branches, tags and running jobs that need the kept versions, each with its kind and name.
    """

    type_key: str
    versions_removed: int
    versions_kept: int
    error: str | None = None
    kept_for: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__} | {"kept_for": list(self.kept_for)}


_MOST_NAMED = 8


def _listed(names: tuple[str, ...]) -> str:
    """Names in a sentence, the first few only."""
    named = list(names[:_MOST_NAMED])
    if len(names) > _MOST_NAMED:
        named.append(f"{len(names) - _MOST_NAMED:,} more")
    return ", ".join(named[:-1]) + " and " * (len(named) > 1) + "".join(named[-1:])


@dataclass(frozen=True, slots=True)
class SchemaReceipt:
    """The result of applying a schema.

    Attributes:
        planned: the steps with their costs.
        applied: whether the schema changed. False if there was nothing to do.
        graph_manifest_version: manifest version of `main` after the change.
        commit: the commit; None if there was nothing to do.
        hard_drops: results of the removal of dropped data, also of earlier schema changes whose data still existed.
        engine: where rows were checked and new columns were computed: `local` or `spark`. A change of metadata alone is
            `local`.
    """

    planned: SchemaPlan
    applied: bool
    graph_manifest_version: int
    commit: Commit | None = None
    hard_drops: tuple[HardDrop, ...] = ()
    engine: str = field(default="local", compare=False)

    @property
    def warnings(self) -> list[str]:
        """Warnings about dropped data that still exists in earlier commits, although its removal was requested."""
        found = [f"{each.type_key}: {each.error}" for each in self.hard_drops if each.error is not None]
        found += [
            f"{each.type_key}: {each.versions_kept} older versions still have the dropped data, because "
            f"{_listed(each.kept_for) or 'later merges or running jobs'} need{'s' * (len(each.kept_for) == 1)} them"
            for each in self.hard_drops
            if each.error is None and each.versions_kept
        ]
        return found

    def lines(self) -> list[str]:
        """The steps as text, one line each."""
        return self.planned.lines()

    def to_json(self) -> dict[str, Any]:
        """The receipt as the JSON object that all user interfaces return."""
        members = self.planned.to_json()
        members |= {
            "applied": self.applied,
            "graph_manifest_version": self.graph_manifest_version,
            "commit": None if self.commit is None else commit_json(self.commit),
            "engine": self.engine,
        }
        if self.hard_drops:
            members["hard_drops"] = [each.to_json() for each in self.hard_drops]
        return members
