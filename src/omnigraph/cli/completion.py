"""Tab completion in the shell: keywords of the query language and names of the schema."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from omnigraph.cli.shell_input import QUERY_COMMANDS
from omnigraph.lang.functions import FUNCTIONS
from omnigraph.lang.query.expressions import OPERATOR_WORDS
from omnigraph.lang.schema import Catalog

DELIMITERS = " \t\n{}(),<>=|"
"""Characters that end a word."""

_KEYWORDS = (
    "query", "match", "return", "distinct", "order", "limit", "offset", "having", "not", "optional", "as", "asc",
    "desc", "null", "shortest", "true", "false", "insert", "update", "delete", "set", "where",
)  # fmt: skip
_WORDS = (*_KEYWORDS, *OPERATOR_WORDS, *FUNCTIONS)

_WORD = re.compile(f"[^{re.escape(DELIMITERS)}]*$")
_ACCESS = re.compile(r"\$(\w+)\.\w*$")
_PATTERN = re.compile(r"\$(\w+)\s*:\s*([A-Z]\w*)")
_CHANGED_TYPE_WANTED = re.compile(r"\b(?:insert|update|delete)\s+[A-Z]?\w*$")
_VALUES = re.compile(r"(?:\binsert\s+|\$\w+\s*:\s*)([A-Z]\w*)\s*\{[^{}]*$|\bupdate\s+([A-Z]\w*)\s+set\s*\{[^{}]*$")
_CONDITION = re.compile(r"\b(?:update|delete)\s+([A-Z]\w*)\b[^;]*\bwhere\b[^;]*$")
_TYPE_WANTED = re.compile(r"(?:^|[^\w$.])\$\w+\s*:\s*[A-Z]?\w*$")
_NAMED_EDGE_WANTED = re.compile(r"\$\w+\s+(\$\w+:)\s*<?[a-z]?\w*$")
_EDGE_WANTED = re.compile(r"\$\w+\s+(?:\$\w+:)?<?\(?\w*$")
_EDGE_VAR = re.compile(r"\$(\w+):\s*<?([a-z]\w*)")
_TRAVERSAL = re.compile(r"\$(\w+)\s+(?:\$\w+:\s*)?<?([a-z]\w*)>?\s*(?:\{[^}]*\}\s*)?\$(\w+)")


class Completer:
    """Completes keywords, variables, and names of the schema.

    Args:
        catalog: the schema.
        commands: the commands of the shell. Each has a function from the last word to the words that may follow it.
    """

    def __init__(self, catalog: Catalog, commands: Mapping[str, Callable[[str], Sequence[str]]]) -> None:
        self._catalog = catalog
        self._commands = commands

    def complete(self, before: str) -> list[str]:
        """The completions of the last word of a text, sorted.

        Args:
            before: the statement up to the cursor.
        """
        found = _WORD.search(before)
        word = "" if found is None else found[0]
        return sorted({choice for choice in self._choices(before, word) if choice.startswith(word)})

    def _choices(self, before: str, word: str) -> Iterable[str]:
        line = before.lstrip()
        if line.startswith(":"):
            command, space, _ = line.partition(" ")
            if not space:
                return self._commands
            if command not in QUERY_COMMANDS:
                return self._commands[command](word) if command in self._commands else ()
        if access := _ACCESS.search(before):
            return [f"${access[1]}.{name}" for name in self._properties(before, access[1])]
        if named := _NAMED_EDGE_WANTED.search(before):
            head = named[1] if word.startswith("$") else ""
            return [head + edge for edge in self._catalog.edge_words()]
        if _CHANGED_TYPE_WANTED.search(before):
            return [*self._catalog.nodes, *self._catalog.edges]
        if values := _VALUES.search(before):
            return self._names_of(values[1] or values[2])
        if condition := _CONDITION.search(before):
            return [*self._names_of(condition[1]), *_WORDS]
        if _TYPE_WANTED.search(before):
            return [*self._catalog.nodes, *self._catalog.interfaces]
        if word.startswith("$"):
            return [f"${name}" for name in re.findall(r"\$(\w+)", before[: len(before) - len(word)])]
        if _EDGE_WANTED.search(before):
            return [*self._catalog.edge_words(), *_WORDS]
        return _WORDS

    def _names_of(self, type_name: str) -> Iterable[str]:
        """The properties of a type, and the ends of an edge type."""
        catalog = self._catalog
        node = catalog.nodes.get(type_name) or catalog.interfaces.get(type_name)
        if node is not None:
            return list(node.properties)
        edge = catalog.edges.get(type_name)
        return [] if edge is None else ["from", "to", *edge.properties]

    def _properties(self, text: str, var: str) -> Iterable[str]:
        """The properties of a variable; those of all node types if its type is unknown."""
        catalog = self._catalog
        edge_vars = dict(_EDGE_VAR.findall(text))
        edge = catalog.edge_by_word(edge_vars[var]) if var in edge_vars else None
        if edge is not None:
            return ["id", "from", "to", *edge.properties]
        name = self._types(text).get(var)
        found = None if name is None else catalog.nodes.get(name) or catalog.interfaces.get(name)
        if found is not None:
            return ["id", *found.properties]
        return ["id", *(name for node in catalog.nodes.values() for name in node.properties)]

    def _types(self, text: str) -> dict[str, str]:
        """The types of variables, as far as patterns and traversals determine them."""
        types = dict(_PATTERN.findall(text))
        for left, word, right in _TRAVERSAL.findall(text):
            edge = self._catalog.edge_by_word(word)
            if edge is None:
                continue
            source, target = edge.from_type, edge.to_type
            if types.get(left) == target != source or types.get(right) == source != target:
                source, target = target, source
            types.setdefault(left, source)
            types.setdefault(right, target)
        return types
