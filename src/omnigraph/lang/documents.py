"""Parse small YAML or JSON documents. Every value has its line number, for error messages.

Unquoted scalars follow the rules of JSON: only `true`, `false`, `null` and JSON numbers are special, all others are
texts. So `no`, `2024-01-31` and `007` are texts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

import yaml

from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, cut
from omnigraph.lang.names import did_you_mean

_DEEPEST = 50
_MOST = 100_000
_BOOL, _NULL, _INT, _FLOAT, _STR = (f"tag:yaml.org,2002:{name}" for name in ("bool", "null", "int", "float", "str"))

Content = str | int | float | bool | None | list["Value"] | dict[str, "Value"]


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a document with its location.

    Attributes:
        content: the value: an object, a list or a scalar.
        document: the name of the document.
        line: the first line of the value; None for a document that a program built.
        path: the path of the value, as in `sources[0].node`.
    """

    content: Content
    document: str
    line: int | None
    path: str

    def error(self, message: str, hint: str | None = None) -> InputError:
        """An error about this value, with its location."""
        where = [self.document] + ([f"line {self.line}"] if self.line is not None else [])
        return InputError(": ".join([", ".join(where), *([self.path] if self.path else []), message]), hint=hint)

    def members(self, known: Collection[str] | None = None) -> dict[str, Value]:
        """The members of an object.

        Args:
            known: the allowed names; None allows all.

        Raises:
            InputError: the value is not an object, or has an unknown name.
        """
        if not isinstance(self.content, dict):
            raise self.error(f"expected names with values, found {self.kind}")
        for name, value in self.content.items():
            if known is not None and name not in known:
                raise value.error("unknown name", did_you_mean(name, known))
        return self.content

    def items(self) -> list[Value]:
        """The items of the list.

        Raises:
            InputError: the value is not a list.
        """
        if not isinstance(self.content, list):
            raise self.error(f"expected a list, found {self.kind}")
        return self.content

    def text(self) -> str:
        """The text of the value.

        Raises:
            InputError: the value is not a text, or is empty.
        """
        if not isinstance(self.content, str):
            raise self.error(f"expected a text, found {self.kind}", "put a text in quotes")
        if not self.content:
            raise self.error("the text is empty")
        return self.content

    def texts(self) -> list[Value]:
        """The texts of a list. A single text counts as a list of one."""
        each = self.content if isinstance(self.content, list) else [self]
        for value in each:
            value.text()
        return each

    def plain(self) -> Any:
        """The value as plain Python objects, without locations."""
        if isinstance(self.content, dict):
            return {name: value.plain() for name, value in self.content.items()}
        if isinstance(self.content, list):
            return [value.plain() for value in self.content]
        return self.content

    @property
    def kind(self) -> str:
        """The kind of the value, for error messages."""
        if self.content is None:
            return "nothing"
        kinds = {dict: "names with values", list: "a list", str: "a text", bool: "true or false"}
        return kinds.get(type(self.content), "a number")


def read_document(data: bytes, name: str) -> Value:
    """Parse a document.

    Args:
        data: YAML or JSON, in UTF-8.
        name: the name of the document in error messages.

    Raises:
        InputError: the document is not valid.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{name}, line {line}: the text is not UTF-8") from None
    if text.lstrip().startswith(("{", "[")):
        text = text.replace("\t", " ")  # the YAML parser rejects tabs between values; JSON texts contain no raw tabs
    try:
        top = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        where = name if mark is None else f"{name}, line {mark.line + 1}, column {mark.column + 1}"
        raise InputError(f"{where}: not YAML: {cut(str(problem or error))}") from None
    except RecursionError:
        raise InputError(f"{name}: the document is nested too deeply") from None
    if top is None:
        raise InputError(f"{name} is empty")
    return _Reader(name).value(top, "", 0)


def as_document(content: object, name: str) -> Value:
    """Convert Python mappings, lists, texts and numbers to a document.

    Raises:
        InputError: the content has a value of another type.
    """
    return _made(content, name, "")


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012


for _tag, _pattern, _first in (
    (_BOOL, r"^(?:true|false)$", "tf"),
    (_NULL, r"^(?:null|~|)$", ["n", "~", ""]),
    (_INT, r"^-?(?:0|[1-9][0-9]*)$", "-0123456789"),
    (_FLOAT, r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$", "-0123456789"),
):
    _Loader.add_implicit_resolver(_tag, re.compile(_pattern), list(_first))


class _Reader:
    def __init__(self, document: str) -> None:
        self._document = document
        self._room = _MOST

    def value(self, node: yaml.Node, path: str, depth: int) -> Value:
        line = node.start_mark.line + 1
        self._room -= 1
        if depth > _DEEPEST or self._room < 0:
            raise InputError(f"{self._document}, line {line}: the document is too large or nested too deeply")
        return Value(self._content(node, path, line, depth), self._document, line, path)

    def _content(self, node: yaml.Node, path: str, line: int, depth: int) -> Content:
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            members: dict[str, Value] = {}
            for key, value in node.value:
                at = key.start_mark.line + 1
                if not isinstance(key, yaml.ScalarNode):
                    raise InputError(f"{self._document}, line {at}: a name must be a text")
                name = _text(key.value)
                if name in members:
                    raise InputError(f"{self._document}, line {at}: duplicate name '{cut(name)}'")
                members[name] = self.value(value, f"{path}.{name}" if path else name, depth + 1)
            return members
        return self._scalar(node, line)

    def _scalar(self, node: yaml.Node, line: int) -> Content:
        text = _text(node.value)
        match node.tag:
            case str(tag) if tag == _BOOL:
                return text == "true"
            case str(tag) if tag == _NULL:
                return None
            case str(tag) if tag == _INT:
                return int(text)
            case str(tag) if tag == _FLOAT:
                return float(text)
            case str(tag) if tag == _STR:
                return text
        raise InputError(f"{self._document}, line {line}: unknown tag {cut(str(node.tag))}")


def _text(text: str) -> str:
    r"""Combine surrogate pairs into characters. JSON writes some characters as pairs: `\ud83d\ude00`."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _made(content: object, document: str, path: str) -> Value:
    if isinstance(content, Mapping):
        members = {
            str(name): _made(value, document, f"{path}.{name}" if path else str(name))
            for name, value in content.items()
        }
        return Value(members, document, None, path)
    if isinstance(content, list | tuple):
        items = [_made(item, document, f"{path}[{i}]") for i, item in enumerate(content)]
        return Value(items, document, None, path)
    if content is None or isinstance(content, str | int | float | bool):
        return Value(content, document, None, path)
    raise InputError(
        f"{document}: {path}: a value of type {type(content).__name__} is not allowed",
        hint="use texts, numbers, booleans, None, lists and mappings",
    )
