"""A `dataclass` decorator that is cheap to apply. The package has hundreds of dataclasses, and a process uses few.

It takes the options of `dataclasses.dataclass` that the package uses, and its classes behave the same: `fields`,
`replace`, `asdict`, pickling, pattern matching, equality, hashes and inheritance work, also together with classes of
the standard library. That one compiles up to ten methods when a class is created. This one builds a method at its
first use.
"""

# See docs/decisions/0225-methods-of-dataclasses-are-built-at-first-use.md

from __future__ import annotations

import dataclasses
import inspect
import operator
import sys
from collections.abc import Callable, Sequence
from reprlib import recursive_repr
from types import MemberDescriptorType, SimpleNamespace
from typing import TYPE_CHECKING, Any

Method = Callable[..., Any]


class _Factory:
    """The default of a parameter whose value a factory makes."""

    def __repr__(self) -> str:
        return "<factory>"


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
            added["__hash__"] = plan.placeholder("__hash__") if frozen else None
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
        added: dict[str, Any] = {name: self.placeholder(name) for name in methods if name not in own}
        if self.frozen:
            added["__setattr__"], added["__delattr__"] = self._refuse_changes()
        for name in ("__dataclass_fields__", "__match_args__"):
            added[name] = _Attribute(self, name)
        added["__signature__"] = _Signature(self)
        added["__dataclass_params__"] = SimpleNamespace(frozen=self.frozen)
        return added

    def placeholder(self, name: str) -> Method:
        """A method that replaces itself at its first call."""

        def first(self: object, *args: Any, **kwargs: Any) -> Any:
            return plan.build(name)(self, *args, **kwargs)

        plan = self
        return first

    def build(self, name: str) -> Method:
        """Build a method, and put it in the place of its placeholder."""
        fields = dataclasses.fields(self.cls)
        if name == "__init__":
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
        # A text as an annotation would be searched for class variables again, which takes most of the time.
        body = {"__module__": self.cls.__module__, "__annotations__": dict.fromkeys(self.names, object)}
        own: Any = type(self.cls.__name__, (), {**body, **self._defaults, "__doc__": "Fields."})
        dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False, kw_only=self.kw_only)(own)
        for one in dataclasses.fields(own):
            one.type = self._annotations[one.name]
        found |= own.__dataclass_fields__
        return found

    def _refuse_changes(self) -> tuple[Method, Method]:
        def refused(instance: object, name: str) -> bool:
            return type(instance) is self.cls or name in self.cls.__dataclass_fields__

        def __setattr__(instance: Any, name: str, value: object) -> None:  # noqa: N807
            if refused(instance, name):
                raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
            super(self.cls, instance).__setattr__(name, value)

        def __delattr__(instance: Any, name: str) -> None:  # noqa: N807
            if refused(instance, name):
                raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
            super(self.cls, instance).__delattr__(name)

        return __setattr__, __delattr__


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
        init: Any = owner.__init__
        if init.__name__ == "first":
            init = self.plan.build("__init__")
        signature = inspect.signature(init)
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
    """Compile `__init__`."""
    given: dict[str, Any] = {"__set": object.__setattr__, "__missing": _Factory()}
    me = "self" if all(one.name != "self" for one in fields) else "__self"
    body = [line for one in fields if (line := _assign(cls, one, given, me, frozen=frozen))]
    if hasattr(cls, "__post_init__"):
        body.append(f"{me}.__post_init__()")
    parameters = [me, *(_parameter(one, given) for one in fields if one.init and not one.kw_only)]
    named = [_parameter(one, given) for one in fields if one.init and one.kw_only]
    text = (
        f"def __make({', '.join(given)}):\n def __init__({', '.join([*parameters, *['*'] * bool(named), *named])}):\n  "
    )
    made: dict[str, Any] = {}
    module = sys.modules.get(cls.__module__)
    exec(text + "\n  ".join(body or ["pass"]) + "\n return __init__", vars(module) if module else {}, made)
    init: Method = made["__make"](**given)
    init.__annotations__ = {one.name: one.type for one in fields if one.init} | {"return": None}
    return init


def _parameter(one: dataclasses.Field[Any], given: dict[str, Any]) -> str:
    if one.default is not dataclasses.MISSING:
        given[f"__default_{one.name}"] = one.default
        return f"{one.name}=__default_{one.name}"
    return one.name if one.default_factory is dataclasses.MISSING else f"{one.name}=__missing"


def _assign(cls: type, one: dataclasses.Field[Any], given: dict[str, Any], me: str, *, frozen: bool) -> str | None:
    """The statement that sets a field; None if nothing sets it."""
    name, value, slot = one.name, one.name, getattr(cls, one.name, None)
    if one.default_factory is not dataclasses.MISSING:
        given[f"__factory_{name}"] = one.default_factory
        value = f"__factory_{name}()" + (f" if {name} is __missing else {name}" if one.init else "")
    elif not one.init:
        if one.default is dataclasses.MISSING or not isinstance(slot, MemberDescriptorType):
            return None
        given[f"__default_{name}"], value = one.default, f"__default_{name}"
    if not frozen:
        return f"{me}.{name} = {value}"
    if isinstance(slot, MemberDescriptorType):
        given[f"__set_{name}"] = slot.__set__  # half the time of object.__setattr__
        return f"__set_{name}({me}, {value})"
    return f"__set({me}, {name!r}, {value})"


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
