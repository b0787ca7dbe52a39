"""A `dataclass` decorator that is cheap to apply. The package has hundreds of dataclasses, and a process uses few.

It takes the options of `dataclasses.dataclass` that the package uses, and its classes behave the same: `fields`,
`replace`, `asdict`, pickling, pattern matching, equality, hashes and inheritance work, also together with classes of
the standard library. That one compiles up to ten methods when a class is created. This one builds a method at its
first use, and compiles only constructors, those that differ only in names once.
"""

# See docs/decisions/0225-methods-of-dataclasses-are-built-at-first-use.md

from __future__ import annotations

import dataclasses
import inspect
import operator
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from reprlib import recursive_repr
from types import CellType, CodeType, FunctionType, MemberDescriptorType, SimpleNamespace
from typing import TYPE_CHECKING, Any

Method = Callable[..., Any]


class _Factory:
    """The default of a parameter whose value a factory makes."""

    def __repr__(self) -> str:
        return "<factory>"


_MADE = _Factory()
_FROZEN, _NOT_FROZEN = SimpleNamespace(frozen=True), SimpleNamespace(frozen=False)
_FIELD: Any = dataclasses._FIELD  # type: ignore[attr-defined]  # marks fields; others mark class variables
_ORDERS = {"__lt__": operator.lt, "__le__": operator.le, "__gt__": operator.gt, "__ge__": operator.ge}


def _dataclass(
    cls: type | None = None,
    /,
    *,
    repr: bool = True,
    eq: bool = True,
    order: bool = False,
    frozen: bool = False,
    kw_only: bool = False,
    slots: bool = False,
) -> Any:
    """Decorate a class. The options are those of `dataclasses.dataclass`."""

    def decorate(cls: type) -> type:
        methods = ["__init__", *["__repr__"] * repr, *["__eq__"] * eq, *(_ORDERS if order else ())]
        plan = _Plan(cls, frozen=frozen, kw_only=kw_only)
        added = plan.placeholders(methods)
        if eq and _has_no_hash(cls):
            added["__hash__"] = _Method(plan, "__hash__") if frozen else None
        made = _slotted(cls, plan.names, added, frozen=frozen) if slots else _extended(cls, plan.names, added)
        plan.cls = made
        return made

    return decorate if cls is None else decorate(cls)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _dataclass


class _Plan:
    """The fields and options of a dataclass. It builds methods and attributes at their first use.

    Attributes:
        cls: the dataclass.
        names: the fields that the class itself declares.
    """

    def __init__(self, cls: type, *, frozen: bool, kw_only: bool) -> None:
        self.cls: Any = cls
        self.frozen = frozen
        self.kw_only = kw_only
        self._annotations: dict[str, Any] = inspect.get_annotations(cls)
        self.names = [name for name, kind in self._annotations.items() if "ClassVar" not in str(kind)[:15]]
        self._defaults = {name: cls.__dict__[name] for name in self.names if name in cls.__dict__}

    def placeholders(self, methods: Sequence[str]) -> dict[str, Any]:
        """Placeholders to add to the class: for its attributes, and for the methods that it does not define."""
        own = self.cls.__dict__
        added: dict[str, Any] = {name: _Method(self, name) for name in methods if name not in own}
        if self.frozen:
            added["__setattr__"], added["__delattr__"] = _Method(self, "__setattr__"), _Method(self, "__delattr__")
        for name in ("__dataclass_fields__", "__match_args__"):
            added[name] = _Attribute(self, name)
        added["__signature__"] = _Signature(self)
        added["__dataclass_params__"] = _FROZEN if self.frozen else _NOT_FROZEN
        return added

    def build(self, name: str) -> Method:
        """Build a method, and put it in the place of its placeholder."""
        fields = dataclasses.fields(self.cls)
        if name in ("__setattr__", "__delattr__"):
            made = self._refusal(name)
        elif name == "__init__":
            made = _init(self.cls, fields, frozen=self.frozen)
        elif name == "__repr__":
            made = _repr([one.name for one in fields if one.repr])
        elif name == "__hash__":
            made = _hash(_key([one.name for one in fields if (one.compare if one.hash is None else one.hash)]))
        else:
            made = _compare(_ORDERS.get(name, operator.eq), _key([one.name for one in fields if one.compare]))
        made.__name__, made.__module__ = name, self.cls.__module__
        made.__qualname__ = f"{self.cls.__qualname__}.{name}"
        setattr(self.cls, name, made)
        return made

    def fields(self) -> dict[str, Any]:
        """The fields by name, those of base classes first. The standard library makes the ones of the class itself."""
        found: dict[str, Any] = {}
        for base in reversed(self.cls.__mro__[1:]):
            if "__dataclass_fields__" in base.__dict__:
                found |= base.__dataclass_fields__
        return found | {name: self._field(name) for name in self.names}

    def _field(self, name: str) -> dataclasses.Field[Any]:
        """A field that the class itself declares, as `dataclasses.dataclass` makes it."""
        given = self._defaults.get(name, dataclasses.MISSING)
        one: Any = given if isinstance(given, dataclasses.Field) else dataclasses.field(default=given)
        one.name, one.type, one._field_type = name, self._annotations[name], _FIELD
        if one.kw_only is dataclasses.MISSING:
            one.kw_only = self.kw_only
        if one.default.__class__.__hash__ is None:
            raise ValueError(f"mutable default {type(one.default)} of field {name}: use default_factory")
        found: dataclasses.Field[Any] = one
        return found

    def _refusal(self, method: str) -> Method:
        """A method of a frozen class that does not set or delete a field."""
        verb = "assign to" if method == "__setattr__" else "delete"

        def refuse(instance: Any, name: str, *value: object) -> None:
            if type(instance) is self.cls or name in self.cls.__dataclass_fields__:
                raise dataclasses.FrozenInstanceError(f"cannot {verb} field {name!r}")
            getattr(super(self.cls, instance), method)(name, *value)

        return refuse


class _Method:
    """A method that is built at its first use, and then replaces this object."""

    __slots__ = "name", "plan"

    def __init__(self, plan: _Plan, name: str) -> None:
        self.plan, self.name = plan, name

    def __get__(self, instance: object, owner: type) -> Any:
        return self.plan.build(self.name).__get__(instance, owner)


class _Attribute:
    """A class attribute that replaces itself at its first use."""

    __slots__ = "name", "plan"

    def __init__(self, plan: _Plan, name: str) -> None:
        self.plan, self.name = plan, name

    def __get__(self, instance: object, owner: type) -> Any:
        cls = self.plan.cls
        if self.name == "__match_args__":
            value: Any = tuple(one.name for one in dataclasses.fields(cls) if one.init and not one.kw_only)
        else:
            value = self.plan.fields()
        setattr(cls, self.name, value)
        return value


class _Signature:
    """The signature of a class, for `inspect.signature`: a placeholder has none."""

    __slots__ = ("plan",)

    def __init__(self, plan: _Plan) -> None:
        self.plan = plan

    def __get__(self, instance: object, owner: Any) -> inspect.Signature:
        if instance is not None:
            raise AttributeError("__signature__")
        signature = inspect.signature(owner.__init__)
        return signature.replace(parameters=list(signature.parameters.values())[1:])


def _has_no_hash(cls: type) -> bool:
    own = cls.__dict__
    return "__hash__" not in own or (own["__hash__"] is None and "__eq__" in own)


def _extended(cls: type, names: Sequence[str], added: dict[str, Any]) -> type:
    """The same class, with what a dataclass needs. A field with a factory leaves no default behind."""
    for name in names:
        if isinstance(given := cls.__dict__.get(name), dataclasses.Field):
            if given.default is dataclasses.MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, given.default)
    for name, value in added.items():
        setattr(cls, name, value)
    return cls


def _slotted(cls: type, names: Sequence[str], added: dict[str, Any], *, frozen: bool) -> type:
    """A new class with slots. Slots cannot be added to a class that exists."""
    inherited = {slot for base in cls.__mro__[1:-1] for slot in _slots(base)}
    body = {name: value for name, value in cls.__dict__.items() if name not in ("__dict__", "__weakref__")}
    for name in names:
        body.pop(name, None)
    body.update(added)
    body["__slots__"] = tuple(name for name in names if name not in inherited)
    if frozen:
        body.setdefault("__getstate__", _state)
        body.setdefault("__setstate__", _set_state)
    made: type = type(cls)(cls.__name__, cls.__bases__, body)
    made.__qualname__ = cls.__qualname__
    return made


def _slots(cls: type) -> Sequence[str]:
    slots: str | Sequence[str] = cls.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else slots


def _state(self: Any) -> list[object]:
    return [getattr(self, one.name) for one in dataclasses.fields(self)]


def _set_state(self: Any, state: Sequence[object]) -> None:
    for one, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


def _init(cls: type, fields: Sequence[dataclasses.Field[Any]], *, frozen: bool) -> Method:
    """Build `__init__`. Constructors that differ only in names are compiled once.

    Raises:
        TypeError: a field without a default follows one with a default.
    """
    names = {f"f{number}": one.name for number, one in enumerate(fields)}
    positional = {f"f{number}": one for number, one in enumerate(fields) if one.init and not one.kw_only}
    named = {f"f{number}": one for number, one in enumerate(fields) if one.init and one.kw_only}
    given: list[Any] = []
    lines = [_assign(cls, one, f"f{number}", given, frozen=frozen) for number, one in enumerate(fields)]
    lines += ["me.__post_init__()"] * hasattr(cls, "__post_init__")
    parameters = ", ".join(["me", *positional, *["*"] * bool(named), *named])
    template = _template(parameters, tuple(line for line in lines if line), len(given))
    me = "self" if all(one.name != "self" for one in fields) else "__self"
    code = template.replace(
        co_varnames=(me, *(names[name] for name in template.co_varnames[1:])),
        co_names=tuple(names.get(name, name) for name in template.co_names),
    )
    module = sys.modules.get(cls.__module__)
    cells = tuple(CellType(given[int(name[1:])]) for name in code.co_freevars)
    init = FunctionType(code, vars(module) if module else {}, "__init__", _defaults(positional.values()), cells)
    init.__kwdefaults__ = {one.name: _default(one) for one in named.values() if _has_default(one)}
    init.__annotations__ = {one.name: one.type for one in fields if one.init} | {"return": None}
    return init


def _defaults(fields: Iterable[dataclasses.Field[Any]]) -> tuple[Any, ...]:
    """The defaults of positional parameters."""
    found: list[Any] = []
    for one in fields:
        if _has_default(one):
            found.append(_default(one))
        elif found:
            raise TypeError(f"non-default argument {one.name!r} follows default argument")
    return tuple(found)


def _has_default(one: dataclasses.Field[Any]) -> bool:
    return one.default is not dataclasses.MISSING or one.default_factory is not dataclasses.MISSING


def _default(one: dataclasses.Field[Any]) -> Any:
    return one.default if one.default_factory is dataclasses.MISSING else _MADE


@cache
def _template(parameters: str, lines: tuple[str, ...], given: int) -> CodeType:
    """The code of a constructor. Its fields are named f0, f1 and so on, its other values g0, g1 and so on."""
    text = f"def make({', '.join(f'g{number}' for number in range(given))}):\n def __init__({parameters}):\n  "
    made: dict[str, Any] = {}
    exec(text + "\n  ".join(lines or ["pass"]) + "\n return __init__", made)
    code: CodeType = made["make"](*[None] * given).__code__
    return code


def _assign(cls: type, one: dataclasses.Field[Any], name: str, given: list[Any], *, frozen: bool) -> str | None:
    """The statement that sets a field; None if nothing sets it. Adds the values that it needs to `given`."""

    def needed(value: object) -> str:
        given.append(value)
        return f"g{len(given) - 1}"

    value, slot = name, getattr(cls, one.name, None)
    if one.default_factory is not dataclasses.MISSING:
        made = f"{needed(one.default_factory)}()"
        value = f"{made} if {name} is {needed(_MADE)} else {name}" if one.init else made
    elif not one.init:
        if one.default is dataclasses.MISSING or not isinstance(slot, MemberDescriptorType):
            return None
        value = needed(one.default)
    if not frozen:
        return f"me.{name} = {value}"
    if isinstance(slot, MemberDescriptorType):
        return f"{needed(slot.__set__)}(me, {value})"  # half the time of object.__setattr__
    return f"{needed(object.__setattr__)}(me, {needed(one.name)}, {value})"


def _repr(names: Sequence[str]) -> Method:
    @recursive_repr()
    def __repr__(self: object) -> str:  # noqa: N807
        return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _key(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that returns the values of some fields."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _hash(key: Callable[[Any], tuple[Any, ...]]) -> Method:
    def __hash__(self: object) -> int:  # noqa: N807
        return hash(key(self))

    return __hash__


def _compare(operation: Callable[[Any, Any], Any], key: Callable[[Any], tuple[Any, ...]]) -> Method:
    def compare(self: object, other: object) -> Any:
        return operation(key(self), key(other)) if other.__class__ is self.__class__ else NotImplemented

    return compare
