"""One schema change: the plan, and the table writes that apply it to a state of `main`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from omnigraph.commit.manifest import Manifest, Models, models_of
from omnigraph.commit.read_set import pins
from omnigraph.commit.store import Store
from omnigraph.commit.table_writes import ChangeColumns, WriteColumns
from omnigraph.commit.write_request import Prepared, SchemaChange
from omnigraph.dataclass import dataclass
from omnigraph.embed import Embedder
from omnigraph.errors import PlanError, ReadSetChangedError
from omnigraph.lang.schema import AcceptedSchema, TypeKind, compile_schema, evolve, ir_hash, resolve
from omnigraph.lang.schema.migrate import Plan, Tier, check_has_types, plan
from omnigraph.lang.schema.migrate.steps import DropProperty, DropType
from omnigraph.lang.schema.type_key import type_key
from omnigraph.migrate.allow import Allow
from omnigraph.migrate.checks import MigratedRows, check_rows
from omnigraph.migrate.columns import TypeColumns, Values, columns_after
from omnigraph.migrate.costs import Costs
from omnigraph.migrate.receipt import SchemaPlan
from omnigraph.write.rules.constraints import MemoryLimit
from omnigraph.write.rules.search import LocalSearch, Search

MakeSearch = Callable[[MigratedRows, MemoryLimit], Search]
"""Makes a search for stored rows that do not fit a new schema."""

_LEVELS = list(Allow)
_NEEDED = {Tier.SAFE: Allow.SAFE, Tier.VALIDATED: Allow.VALIDATED, Tier.DESTRUCTIVE: Allow.DROPS}
_SOURCE = "the new schema"


@dataclass(frozen=True, slots=True)
class Migration:
    """The change from one schema to another.

    Attributes:
        source: the text of the new schema.
        before: the accepted schema.
        after: the new schema; None if the plan is refused.
        plan: the steps.
        names: the former name of each type that already existed.
    """

    source: str
    before: AcceptedSchema
    after: AcceptedSchema | None
    plan: Plan
    names: dict[tuple[TypeKind, str], str]

    @classmethod
    def of(cls, before: AcceptedSchema, source: str, *, hard: bool = False) -> Migration:
        """Plan a change.

        Args:
            before: the accepted schema.
            source: the text of the new schema.
            hard: whether drops also remove the data from earlier commits.

        Raises:
            CompileError: the new schema does not compile.
            InputError: the new schema has no types, but the accepted schema has some.
        """
        desired = compile_schema(source, _SOURCE)
        check_has_types(before.catalog, desired)
        made = plan(before, desired, allow_data_loss=hard)
        after = evolve(before, desired) if made.supported else None
        return cls(source, before, after, made, dict(resolve(before.catalog, desired).types))

    def check_allowed(self, allow: Allow) -> None:
        """Check that the change is possible, and that the caller allows its effect on data.

        Raises:
            PlanError: a step is refused, or has a more severe effect than allowed.
        """
        self.plan.raise_refusal()
        for step in self.plan.steps:
            if _LEVELS.index(_NEEDED[step.tier]) > _LEVELS.index(allow):
                needed = _NEEDED[step.tier].value
                raise PlanError(
                    f"{step.describe()}: this step is {step.tier.value}, and only '{allow.value}' is allowed",
                    diagnostic=step.code,
                    hint=f"nothing has changed; to apply it, allow '{needed}' (--allow {needed.replace('_', '-')})",
                )

    def schema_change(self, *, hard: bool = False) -> SchemaChange:
        """The schema change of the commit. With `hard`, it removes dropped data from earlier commits, too."""
        assert self.after is not None
        return SchemaChange(self.source, self.after, ir_hash(self.before), self._types_with_drops() if hard else ())

    def planned(self, store: Store, view: Manifest) -> SchemaPlan:
        """The plan, with the cost of each step on a given state of the graph."""
        if self.after is None:
            return SchemaPlan(self.plan, (), view.schema_hash)
        costs = Costs(store.tables, view.tables, self.names, self.before, self.after)
        return SchemaPlan(self.plan, costs.of(self.plan), view.schema_hash)

    def _types_with_drops(self) -> tuple[str, ...]:
        """The types whose earlier versions contain data that the change drops, by type key before the change."""
        found: set[str] = set()
        for step in self.plan.steps:
            if isinstance(step, DropType) and step.type_kind is not TypeKind.INTERFACE:
                key = type_key(step.type_kind, step.name)
            elif isinstance(step, DropProperty) and step.type_kind is not TypeKind.INTERFACE:
                key = type_key(step.type_kind, self.names[step.type_kind, step.type_name])
            else:
                continue
            found.add(key)
        return tuple(sorted(found))


@dataclass(frozen=True, slots=True)
class PrepareMigration:
    """Check the stored rows, and create the table writes of a schema change.

    Attributes:
        store: the graph.
        migration: the change.
        now: the time of the change in milliseconds, for `now()`.
        embedder: returns the client of the embedding model. Called only if vectors have to be computed.
        memory: the memory limit of each check.
        write: writes new columns, for example on Spark; None to write them in this process.
        search: makes the search for stored rows that do not fit the new schema, for example on Spark.
        checkpoint: called for each batch of rows to check. It raises an error to stop the work.
    """

    store: Store
    migration: Migration
    now: int
    embedder: Callable[[], Embedder]
    memory: MemoryLimit = field(default_factory=MemoryLimit)
    write: WriteColumns | None = None
    search: MakeSearch = LocalSearch
    checkpoint: Callable[[], None] = lambda: None

    def __call__(self, view: Manifest) -> Prepared:
        migration = self.migration
        assert migration.after is not None
        if view.schema_hash != ir_hash(migration.before):
            raise ReadSetChangedError("schema", ir_hash(migration.before), view.schema_hash)
        # Tables that the change neither checks nor writes are not in the read set.
        stored = pins(view)
        rows_by_key = {key: pin.row_count for key, pin in stored.items()}
        values = Values(self.now, self.embedder, rows_by_key)
        columns = columns_after(migration.before, migration.after, migration.names, migration.plan, values)
        rows = MigratedRows(self.store.tables, view.tables, {each.key: each for each in columns}, self.checkpoint)
        check_rows(migration.after, migration.plan, self.search(rows, self.memory))
        writes = []
        for each in columns:
            pin = stored[each.former_key]
            if each.changes(self.store.tables.at(pin.ref).schema()):
                new, updates = each.new_values(), each.count_updates()
                models = _models(pin.models, each)
                writes.append(ChangeColumns(pin.key, each.schema, new, self.write, updates, models=models))
        return Prepared(writes)


def _models(before: Models, columns: TypeColumns) -> Models:
    """The embedding models of a table after the change, by new property names. Dropped properties are left out."""
    current = {old: new for new, old in columns.former_names.items()}
    found: dict[str, list[tuple[str, str]]] = {}
    for name, pairs in before:
        if name in current:
            found[current[name]] = [(model, current.get(source, f"{source} (dropped)")) for model, source in pairs]
    for name, pair in columns.embedded.items():
        found[name] = [pair]
    return models_of(found)
