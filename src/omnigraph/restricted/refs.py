"""Names of restricted table versions: a version, and the rows and columns of it that an actor sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from omnigraph.commit.manifest import Models, TablePin
from omnigraph.dataclass import dataclass
from omnigraph.evaluate import Request
from omnigraph.lang.query import ir
from omnigraph.storage.table_ref import TableRef


@dataclass(frozen=True, slots=True)
class Visible:
    """The rows and columns of a table version that an actor sees.

    Attributes:
        digest: identifies the condition with its parameters, and the hidden columns.
        type_name: the name of the type.
        condition: the condition on a row; None for all rows.
        request: the parameters of the condition.
        hidden: the columns that are left out.
        ends: for edges, the columns of restricted ends, and the restricted versions of their node tables. An edge is
            visible only if its ends are.
    """

    digest: str
    type_name: str = field(compare=False)
    condition: ir.Expr | None = field(compare=False)
    request: Request = field(compare=False, repr=False)
    hidden: frozenset[str] = field(compare=False)
    ends: tuple[tuple[str, RestrictedRef], ...] = ()

    @property
    def filters(self) -> bool:
        """Whether some rows may be hidden."""
        return self.condition is not None or bool(self.ends)


@dataclass(frozen=True, slots=True)
class RestrictedRef(TableRef):
    """A table version as an actor sees it. Only `RestrictedTables` reads it.

    Attributes:
        visible: its rows and columns.
    """

    visible: Visible = field(kw_only=True)

    @property
    def base(self) -> TableRef:
        """The stored version."""
        return TableRef(self.path, self.branch, self.version, self.seal)

    @property
    def place(self) -> str:
        """As for a stored version, with the rules: those for the rows, and for edges those for their ends."""
        ends = "".join(f"&{column}={ref.place}" for column, ref in self.visible.ends)
        return f"{self.path}?{self.visible.digest}{ends}"

    @property
    def is_whole(self) -> bool:
        return False

    def at(self, version: int) -> TableRef:
        raise AssertionError("another version has other visible rows")


class RestrictedPin(TablePin):
    """The pin of a restricted version. Its rows are counted when the count is needed.

    Args:
        base: the pin of the stored version.
        ref: the restricted version.
        models: the embedding models of visible vectors.
        count: counts the visible rows.
        graph_version: the manifest version of the state.
    """

    __slots__ = ("_count", "_graph_version", "base")

    base: TablePin
    _count: Callable[[], int]
    _graph_version: int

    def __init__(
        self, base: TablePin, ref: RestrictedRef, models: Models, count: Callable[[], int], graph_version: int
    ) -> None:
        for name, value in (
            ("key", base.key),
            ("id", base.id),
            ("ref", ref),
            ("models", models),
            ("base", base),
            ("_count", count),
            ("_graph_version", graph_version),
        ):
            object.__setattr__(self, name, value)

    @property
    def row_count(self) -> int:
        return self._count()

    @property
    def published_version(self) -> int:
        """The version of the graph. That of the table would tell of writes to hidden rows."""
        return self._graph_version

    @property
    def is_empty(self) -> bool:
        """Whether the stored version has no rows. Then nothing has to be counted."""
        return self.base.row_count == 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RestrictedPin) and (self.key, self.id, self.ref) == (other.key, other.id, other.ref)

    def __hash__(self) -> int:
        return hash((self.key, self.id, self.ref))

    def __repr__(self) -> str:
        return f"RestrictedPin({self.ref!r})"
