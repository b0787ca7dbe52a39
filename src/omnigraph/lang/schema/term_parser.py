"""Parser of annotations with their arguments, literals, numbers and names."""

from __future__ import annotations

from omnigraph.errors import ParseError
from omnigraph.lang.cursor import Cursor
from omnigraph.lang.schema import ast
from omnigraph.lang.schema.annotations import similar_annotation
from omnigraph.lang.schema.ast import LiteralKind

MAX_DIGITS = 400
"""Maximum number of digits of a number literal. No type can hold more, and longer ones would be slow to convert."""

CONSTRAINT_HEADS = frozenset({"key", "unique", "index", "range", "check"})
CARDINALITY_HEADS = frozenset({"card", "card_in"})

_VALUE_HINTS = {
    "allow": 'write the code and the reason: @allow(L211, "why this is fine here")',
    "default": 'write @default("text"), @default(3) or @default(now())',
}


class TermParser(Cursor):
    """The base class of the schema parser."""

    __slots__ = ()

    # ---- annotations ----

    def _annotations(self) -> tuple[ast.Annotation, ...]:
        annotations: list[ast.Annotation] = []
        while self.kinds[self.i] in ("at", "@") and not self._at_constraint():
            annotations.append(self._annotation())
        return tuple(annotations)

    def _spaced_name(self) -> str:
        """Parse the name of an annotation after `@` and a space, or a name that does not begin like one."""
        text = self.texts[self.i]
        if self.kinds[self.i] == "type":
            near = similar_annotation(text[0].lower() + text[1:]) or text[0].lower() + text[1:]
            hint = f"annotations begin with a lower-case letter: did you mean '@{near}'?"
            raise self.unexpected("the name of an annotation", hint=hint)
        return self.expect("name", "the name of an annotation")

    def _annotation(self) -> ast.Annotation:
        start = self.i
        name = self._spaced_name() if self.accept("@") else self.expect("at")
        if name in CARDINALITY_HEADS:
            raise self._misplaced_cardinality(name, start)
        values: tuple[ast.Literal, ...] = ()
        arguments: list[ast.Argument] = []
        if self.accept("("):
            values = self._values(name)
            while self.accept(","):
                arguments.append(self._argument())
            self.expect(")", "',' or ')'")
        return ast.Annotation(name, values, tuple(arguments), self.span_from(start))

    def _misplaced_cardinality(self, name: str, start: int) -> ParseError:
        if self.kinds[self.i] != "(":
            message, hint = f"@{name} needs bounds", f"write @{name}(0..1), or @{name}(1..) for no upper bound"
        else:
            message = f"@{name} is not allowed here"
            hint = (
                "@card and then @card_in come directly after the end types of an edge, "
                "once each and before every other annotation"
            )
        return self.error(message, span=self.span_from(start), hint=hint)

    def _values(self, name: str) -> tuple[ast.Literal, ...]:
        if self.kinds[self.i] == ")":
            hint = _VALUE_HINTS.get(name, f"without a value write @{name}")
            raise self.unexpected("a value", hint=hint)
        if self._at_argument():
            raise self.unexpected("a value", hint=f"the first argument has no name: @{name}(value, key=value)")
        if name != "allow":
            return (self._value(name),)
        code = self._code()
        if self.kinds[self.i] != ",":
            return (code,)
        self.i += 1
        if self._at_argument():
            self.i -= 1
            return (code,)
        if self.kinds[self.i] != "string":
            raise self.unexpected("the reason, a string", hint=_VALUE_HINTS["allow"])
        return code, self._literal()

    def _value(self, annotation: str) -> ast.Literal:
        start = self.i
        if self.kinds[start] == "name" and self.texts[start] not in ("true", "false"):
            self.i += 1
            if annotation == "default" and self.texts[start] == "now" and self.accept("("):
                self.expect(")")
                return ast.Literal(LiteralKind.NOW, "now", self.span_from(start))
            return ast.Literal(LiteralKind.WORD, self.texts[start], self.span_from(start))
        if self.kinds[start] == "-" and annotation == "default":
            return self._number()
        return self._literal()

    def _code(self) -> ast.Literal:
        start = self.i
        if self.kinds[start] == "string":
            return self._literal()
        text = self._word("a diagnostic code (OG-MF-103, L210)")
        return ast.Literal(LiteralKind.WORD, text, self.span_from(start))

    def _at_argument(self) -> bool:
        return self.kinds[self.i] == "name" and self.kinds[self.i + 1] == "="

    def _argument(self) -> ast.Argument:
        start = self.i
        name = self.expect("name", "name=value")
        if self.kinds[self.i] != "=":
            raise self.unexpected(f"'=' and the value of '{name}'", hint="named arguments come last")
        self.i += 1
        return ast.Argument(name, self._literal(), self.span_from(start))

    def _literal(self) -> ast.Literal:
        start = self.i
        kind, text = self.kinds[start], self.texts[start]
        if kind == "string":
            return ast.Literal(LiteralKind.STRING, self.expect_string(), self.span_from(start))
        if kind in ("int", "float"):
            return self._number()
        if kind == "name" and text in ("true", "false"):
            self.i += 1
            return ast.Literal(LiteralKind.BOOL, text, self.span_from(start))
        hint = None
        if kind == "-":
            hint = "only @default and @range take negative numbers"
        elif text.lower() in ("true", "false"):
            hint = f"write {text.lower()}"
        elif kind in ("name", "type"):
            hint = f'quote a text: "{text}"'
        raise self.unexpected("a string, a number, true or false", hint=hint)

    # ---- numbers and names ----

    def _number(self) -> ast.Literal:
        start = self.i
        sign = "-" if self.accept("-") else ""
        i = self.i
        if self.kinds[i] not in ("int", "float"):
            raise self.unexpected("a number")
        if sign and self.starts[i] != self.ends[i - 1]:
            raise self.error("a minus sign and its number are written without a gap", span=self.tokens.span(start))
        self._check_digits()
        self.i += 1
        self._check_number_ends()
        kind = LiteralKind.INT if self.kinds[i] == "int" else LiteralKind.FLOAT
        return ast.Literal(kind, sign + self.texts[i], self.span_from(start))

    def _integer(self, purpose: str) -> int:
        if self.kinds[self.i] == "int":
            self._check_digits()
        number = int(self.expect("int", purpose))
        self._check_number_ends()
        return number

    def _check_digits(self) -> None:
        if len(self.texts[self.i]) > MAX_DIGITS:
            raise self.error(f"a number has at most {MAX_DIGITS} digits")

    def _check_number_ends(self) -> None:
        i = self.i
        if self.kinds[i] in ("name", "type") and self.starts[i] == self.ends[i - 1]:
            raise self.error(
                f"a number cannot continue with '{self.texts[i]}'", hint="numbers have no exponents, no '_' and no unit"
            )

    def _type_name(self, purpose: str) -> ast.Name:
        index = self.i
        if self.kinds[index] == "name":
            text = self.texts[index]
            capital = text.lstrip("_")
            hint = "type names begin with an upper-case letter"
            if capital:
                hint += f": {capital[0].upper()}{capital[1:]}"
            raise self.unexpected(purpose, hint=hint)
        return ast.Name(self.expect("type", purpose), self.tokens.span(index))

    def _word(self, purpose: str) -> str:
        """Parse a word of letters, digits, underscores and hyphens. It can consist of several adjacent tokens."""
        start = self.i
        while self.kinds[self.i] in ("name", "type", "int", "-"):
            if self.i > start and self.starts[self.i] != self.ends[self.i - 1]:
                break
            self.i += 1
        if self.i == start:
            raise self.unexpected(purpose)
        return "".join(self.texts[start : self.i])

    def _at_constraint(self) -> bool:
        i = self.i
        return self.kinds[i] == "at" and self.texts[i] in CONSTRAINT_HEADS and self.kinds[i + 1] == "("
