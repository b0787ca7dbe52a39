"""Choose the variables of a match that are only counted, so that no rows are produced for them (see `Count`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from omnigraph.lang.query import ir
from omnigraph.read.budget.budget import checkpoint
from omnigraph.read.context.context import Context
from omnigraph.read.match.candidates import Candidates
from omnigraph.read.match.fold import Fold, can_fold, folded_values
from omnigraph.read.match.node_weights import Leaf
from omnigraph.read.plan.collect_statistics import cardinality
from omnigraph.read.query.block import QueryBlock
from omnigraph.read.query.read_query import FoldableProperties


def count_leaves(
    block: QueryBlock, required: frozenset[str], candidates: Candidates, context: Context
) -> tuple[Leaf, ...]:
    """Variables to count, in the order in which they are eliminated.

    When a variable is eliminated, it is joined with at most one variable that is not eliminated yet. Cheap variables
    come first.

    Args:
        block: the `match` block.
        required: variables that have to be in the rows, so that they cannot be counted.
        candidates: candidates of the variables of the block.
        context: the state of the running read: snapshot, parameters and budget.
    """
    return tuple(_leaves(block, required, candidates, context))


def folded_leaves(
    block: QueryBlock,
    needed: frozenset[str],
    properties: FoldableProperties,
    candidates: Candidates,
    context: Context,
) -> tuple[tuple[Leaf, ...], tuple[Fold, ...]]:
    """Like `count_leaves`. Variables that are only arguments of aggregates are counted, too, if these can be folded.

    Args:
        block: the `match` block.
        needed: variables that the result needs.
        properties: variables that the result needs only for aggregates that can be folded, with the properties and
            aggregates of each.
        candidates: candidates of the variables of the block.
        context: the state of the running read: snapshot, parameters and budget.

    Returns:
        The variables to count, and the properties to fold. Both are empty if nothing can be folded.
    """
    folds = {name: _folds(name, properties[name], candidates) for name in properties if name in block.nodes}
    chosen = {name: found for name, found in folds.items() if found}
    while chosen:
        leaves = count_leaves(block, block.joined_variables | (needed - chosen.keys()), candidates, context)
        by_name = {leaf.name: leaf for leaf in leaves}
        refused = {name for name in chosen if not _arrives(name, by_name)}
        if not refused:
            return leaves, tuple(fold for found in chosen.values() for fold in found)
        chosen = {name: found for name, found in chosen.items() if name not in refused}
    return (), ()


def inner_folds(
    leaves: tuple[Leaf, ...], properties: FoldableProperties, candidates: Candidates
) -> tuple[Fold, ...] | None:
    """The folds of an optional block whose variables are all counted but one; None if a property cannot be folded."""
    by_name = {leaf.name: leaf for leaf in leaves}
    found: list[Fold] = []
    for name, own in properties.items():
        folds = _folds(name, own, candidates) if _arrives(name, by_name) else ()
        if not folds:
            return None
        found += folds
    return tuple(found)


def _folds(
    name: str, properties: Mapping[str, tuple[ir.AggregateFunction, ...]], candidates: Candidates
) -> tuple[Fold, ...]:
    """The folds of a variable; empty if a property cannot be folded."""
    tables = candidates.tables(name)
    if len(tables) != 1 or tables[0].count == 0:
        return ()
    found = []
    for prop, functions in properties.items():
        values = dict.fromkeys(value for function in functions for value in folded_values(function))
        found.append(Fold(name, prop, tuple(values)))
    return tuple(found) if all(can_fold(tables[0], fold) for fold in found) else ()


def ends_of_folds(leaves: Sequence[Leaf], names: Iterable[str]) -> frozenset[str]:
    """Counted variables that have to be in the rows, because folded values that arrive at them go no further.

    Args:
        leaves: the counted variables.
        names: variables at which folded values of optional blocks arrive.
    """
    by_name, found = {leaf.name: leaf for leaf in leaves}, set[str]()
    for name in names:
        while (leaf := by_name.get(name)) is not None:
            if leaf.onto is None or leaf.expand is None or leaf.expand.hops is not None:
                found.add(name)
                break
            name = leaf.onto
    return frozenset(found)


def _arrives(name: str, leaves: Mapping[str, Leaf]) -> bool:
    """Whether the values of a variable reach a variable of the rows along edges of one hop each."""
    while name in leaves:
        leaf = leaves[name]
        if leaf.onto is None or leaf.expand is None or leaf.expand.hops is not None:
            return False
        name = leaf.onto
        if name not in leaves:
            return True
    return False


def without_leaves(block: QueryBlock, leaves: tuple[Leaf, ...]) -> QueryBlock:
    """The block without the counted variables and their edges."""
    return block.without([leaf.name for leaf in leaves], [leaf.expand for leaf in leaves if leaf.expand is not None])


def _leaves(block: QueryBlock, required: frozenset[str], candidates: Candidates, context: Context) -> Iterator[Leaf]:
    left = {name: node for name, node in block.nodes.items() if name not in required}
    if not left:
        return
    single = {name for name, node in block.nodes.items() if len(node.types) == 1}
    expands = list(block.block.expands)
    weighted: set[str] = set()
    fractions: dict[str, float] = {}

    def leaf(name: str) -> Leaf | None:
        checkpoint()  # with hundreds of variables, this takes long
        mine = [expand for expand in expands if name in (expand.left, expand.right)]
        if not mine:
            return Leaf(name)
        expand = mine[0]
        onto = expand.right if expand.left == name else expand.left
        alone = len(mine) == 1 and onto != name and onto in single
        return Leaf(name, onto, expand) if alone and _can_eliminate(expand, name, required, left[name]) else None

    def reads_edges(found: Leaf) -> bool:
        """Whether counting has to read the edges of a variable. If not, degrees are enough, or there are no edges."""
        if found.expand is None:
            return False
        return found.expand.hops is not None or found.name in weighted or candidates.restricts(found.name)

    def cost(found: Leaf) -> tuple[float, str]:
        """Estimated number of edges to read."""
        assert found.expand is not None
        assert found.onto is not None
        fraction = fractions[found.onto]
        if found.expand.hops is None:
            fraction = min(fraction, fractions[found.name])
        edges = context.tables.edges(found.expand.steps[0].edge).count
        return fraction * (2 * edges if found.name in weighted else edges), found.name

    while found := [leaf_ for name in left if (leaf_ := leaf(name)) is not None]:
        cheapest = min(found, key=lambda each: (reads_edges(each), each.expand is not None, each.name))
        if len(found) > 1 and reads_edges(cheapest):
            fractions = fractions or _remaining_fractions(block, candidates, context)
            cheapest = min(found, key=cost)
        yield cheapest
        del left[cheapest.name]
        if cheapest.expand is not None:
            expands.remove(cheapest.expand)
            assert cheapest.onto is not None
            weighted.add(cheapest.onto)


def _remaining_fractions(block: QueryBlock, candidates: Candidates, context: Context) -> dict[str, float]:
    """For each variable, the estimated fraction of its nodes that have edges to candidates of the other variables."""
    known = {name: cardinality(candidates, name, context) for name in block.nodes}
    sizes = {name: found.size for name, found in known.items()}
    walks: list[tuple[str, str, float]] = []
    for expand in block.block.expands:
        left, right = expand.left, expand.right
        if expand.hops is None and left in known and right in known:
            edges = sum(context.tables.edges(step.edge).count for step in expand.steps)
            walks.append((left, right, edges / max(known[left].total, 1)))
            walks.append((right, left, edges / max(known[right].total, 1)))
    for _ in block.block.expands:
        changed = False
        for near, far, degree in walks:
            reached = sizes[near] * degree
            if reached < sizes[far]:
                sizes[far], changed = reached, True
        if not changed:
            break
    return {name: sizes[name] / max(found.total, 1) for name, found in known.items()}


def _can_eliminate(expand: ir.Expand, name: str, required: frozenset[str], node: ir.NodeVar) -> bool:
    """Whether a variable can be eliminated: its matches can be counted for each node at the other end of the edges."""
    edge = None if expand.edge_var is None else expand.edge_var.name
    if edge in required or expand.path_var in required:
        return False
    if expand.hops is not None:
        # Distances are counted from the left variable, so only the right variable can be eliminated.
        return name == expand.right
    return len(expand.steps) == 1 and len(node.types) == 1 and expand.steps[0].direction is not ir.Direction.BOTH
