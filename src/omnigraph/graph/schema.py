"""The handle of a graph's schema."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Unpack

from omnigraph.amounts import counted
from omnigraph.engine.options import takes
from omnigraph.engine.request_options import SchemaApplyOptions
from omnigraph.engine.session import At, Session
from omnigraph.lang.schema import AcceptedSchema, Catalog
from omnigraph.migrate.allow import Allow

if TYPE_CHECKING:
    from omnigraph.migrate.receipt import SchemaPlan, SchemaReceipt


class Schema:
    """The schema of a graph: its text, and its changes.

    Schemas change on `main`. Other branches keep the schema that they were created with until `branches.update` brings
    them the schema of their parent. Old commits are read with the schema that they had.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def __repr__(self) -> str:
        catalog = self.catalog
        return f"<Schema: {counted(len(catalog.nodes), 'node type')}, {counted(len(catalog.edges), 'edge type')}>"

    def __str__(self) -> str:
        """The source text."""
        return self.source

    def _repr_html_(self) -> str:
        from omnigraph.html_text import html_code

        return html_code(self.source)

    @property
    def source(self) -> str:
        """The source text of the accepted schema of the handle's branch."""
        from omnigraph.engine.schema import known_schema

        return known_schema(self._session)[0]

    @property
    def catalog(self) -> Catalog:
        """The types of the accepted schema of the handle's branch."""
        return self.accepted.catalog

    @property
    def accepted(self) -> AcceptedSchema:
        """The accepted schema of the handle's branch, with its stable identities."""
        from omnigraph.engine.schema import known_schema

        return known_schema(self._session)[1]

    def show(self, *, branch: str | None = None, at: At | None = None) -> str:
        """The source text of the schema of a state.

        Args:
            branch: the newest state of this branch; by default the handle's branch.
            at: another state: a snapshot, commit id or tag; or a time or manifest version of the branch.

        Raises:
            NotFoundError: there is no such branch or commit.
        """
        from omnigraph.engine.schema import schema_source

        return schema_source(self._session, branch, at)

    def plan(self, schema: str | os.PathLike[str], *, allow: Allow | str = Allow.DROPS) -> SchemaPlan:
        """Plan a change of the schema of `main`, with the estimated cost of each step. Changes nothing.

        Args:
            schema: the new schema: its text, or the path of a `.pg` file.
            allow: with `data_loss`, drops are planned as hard drops.

        Example:
            >>> import omnigraph, tempfile
            >>> with omnigraph.init(tempfile.mkdtemp() + "/g", "node Ship { name: String @key }") as graph:
            ...     graph.schema.plan("node Ship { name: String @key  built: I32? }").lines()[0]
            "add node property 'Ship.built': I32? [safe] — metadata only"

        Raises:
            CompileError: the new schema does not compile.
        """
        from omnigraph.engine.schema import plan_schema

        return plan_schema(self._session, schema, allow=allow)

    @takes(SchemaApplyOptions)
    def apply(self, schema: str | os.PathLike[str], **options: Unpack[SchemaApplyOptions]) -> SchemaReceipt:
        """Change the schema of `main` and its stored rows, as one commit.

        Stored rows are checked and new columns are written without the lease of `main`, so other writers go on. If they
        change the same tables, the work is done again. A write that was prepared with the old schema is prepared again,
        or refused. If the graph already has this schema, nothing happens.

        Args:
            schema: the new schema: its text, or the path of a `.pg` file.
            branch: by default the handle's branch. It has to be `main`: other branches get the schema by
                `branches.update`.
            allow: the most severe effect on data that is allowed: `safe`; `validated`, steps that check stored rows
                first; `drops` (the default), drops of data that earlier commits keep; `data_loss`, drops that
                also remove the data from earlier commits.
            memory_budget: the memory for checks of stored rows: bytes, or a text such as `2 GiB`.
            expect_head: apply only if this commit is the head of `main`.
            timeout: seconds to wait for other writers.
            message: the commit message.
            labels: the labels of the commit.
            engine: `auto`, `local` or `spark`. New columns are computed in this process or by Spark tasks.
            spark: the settings of Spark.
            cancel: stops the work from another thread.
            chosen: called with the chosen engine.

        Example:
            >>> import omnigraph, tempfile
            >>> with omnigraph.init(tempfile.mkdtemp() + "/g", "node Ship { name: String @key }") as graph:
            ...     done = graph.schema.apply("node Ship { name: String @key  built: I32? }")
            ...     done.applied, graph.schema.apply(graph.schema.source).applied
            (True, False)

        Raises:
            InputError: the branch is not `main`.
            CompileError: the new schema does not compile.
            PlanError: a step is refused, or more severe than `allow` permits.
            SchemaDataError: stored rows do not fit the new schema. It has the first ids and the number of all rows.
            ReadSetChangedError: another process has changed the schema meanwhile.
            WriteTimeoutError: other writers delayed the commit past its timeout.
        """
        from omnigraph.engine.requests import SchemaApplyRequest
        from omnigraph.engine.schema import apply_schema

        return apply_schema(self._session, SchemaApplyRequest(schema, **options))
