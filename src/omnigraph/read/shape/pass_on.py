"""PassOn: convert the result of a stage to the rows that the next stage starts with."""

from __future__ import annotations

from omnigraph.dataclass import dataclass
from omnigraph.lang.arrow import arrow_type
from omnigraph.read.context.operator_name import OperatorName
from omnigraph.read.query.read_query import named_columns
from omnigraph.read.rows.frame import Frame
from omnigraph.read.rows.result_rows import ColumnSource
from omnigraph.read.shape.operator import MatchRows, SelectedRows, ShapeRows, ShapeRun
from omnigraph.read.shape.result_columns import ResultColumns, cast_to, compute_columns


@dataclass(frozen=True, slots=True)
class PassOn:
    """Keep the variables and values of `with`. All other variables end.

    Attributes:
        columns: names of the variables and values.
    """

    columns: tuple[str, ...]

    @property
    def name(self) -> OperatorName:
        return OperatorName.PASS_ON

    @property
    def text(self) -> str:
        return ", ".join(self.columns)

    def execute(self, rows: ShapeRows, run: ShapeRun) -> MatchRows:
        query, found = run.query, rows.rows if isinstance(rows, SelectedRows) else rows
        assert query.carried is not None, "only a stage passes rows on"
        if isinstance(found, ResultColumns):
            groups = found.take(rows.chosen) if isinstance(rows, SelectedRows) else found
            entities = groups.representatives if query.carried else Frame(groups.count)
            return MatchRows(_passed_on(run, entities, groups))
        assert isinstance(found, MatchRows)
        frame = run.context.search.fuse(query, found.frame)
        frame = frame.take(rows.chosen) if isinstance(rows, SelectedRows) else frame
        values = {name: column for name, column in query.columns.items() if name not in query.carried}
        named = named_columns([column.expr for column in values.values()], query.columns)
        computed = {name: column for name, column in query.columns.items() if name in values or name in named}
        return MatchRows(_passed_on(run, frame, compute_columns(computed, frame, run.context)))


def _passed_on(run: ShapeRun, entities: Frame, columns: ColumnSource) -> Frame:
    """The rows with only the variables and values that go on.

    Args:
        run: the stage, and the state of the running read.
        entities: rows with the variables.
        columns: the values of the same rows.
    """
    carried = run.query.carried or ()
    return Frame(
        entities.count,
        {name: entities.bindings[name] for name in carried},
        searching=run.context.search,
        values={
            column.name: cast_to(columns[column.name], arrow_type(column.expr.type))
            for column in run.query.read.columns
            if column.name not in carried
        },
    )
