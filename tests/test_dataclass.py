"""Our `dataclass` makes the same classes as the one of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import re
import threading
from collections.abc import Callable
from dataclasses import field
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from omnigraph import dataclass as ours

T = TypeVar("T")
OPTIONS = [
    dict(zip(("frozen", "slots", "order", "eq", "kw_only", "repr"), given, strict=True))
    for given in product((False, True), repeat=6)
    if not (given[2] and not given[3])
]


def classes(decorator: Callable[..., Any], **options: bool) -> tuple[type, type]:
    """A dataclass with all kinds of fields, and one that derives from it."""

    @decorator(**options)
    class Base:
        kind: ClassVar[str] = "base"
        name: str
        size: int = 3
        tags: list[str] = field(default_factory=list)
        hidden: int = field(default=0, repr=False, compare=False)
        total: int = field(init=False, default=7)

        def __post_init__(self) -> None:
            if not self.name:
                raise ValueError("no name")

    @decorator(**options)
    class Derived(Base):
        size: int = 5
        extra: tuple[int, ...] = field(default=(), kw_only=True)

    return Base, Derived


@pytest.mark.parametrize("options", OPTIONS, ids=lambda given: "-".join(name for name, on in given.items() if on))
def test_classes_behave_as_those_of_the_standard_library(options: dict[str, bool]) -> None:
    assert observed(*classes(ours.dataclass, **options)) == observed(*classes(dataclasses.dataclass, **options))


def observed(*kinds: type) -> list[object]:
    """Everything that callers can see of some dataclasses."""
    seen: list[object] = []
    for cls in kinds:
        for look in looks(cls):
            try:
                seen.append(look())
            except Exception as error:
                seen.append((type(error), str(error)))
    return seen


def looks(cls: Any) -> list[Callable[[], object]]:
    one, same, other = cls(name="a"), cls(name="a", hidden=9), cls(name="b")
    return [
        lambda: shown(cls(name="a")),
        lambda: shown(cls(name="a", size=1, tags=["x"], hidden=2)),
        lambda: shown(cls(name="")),
        lambda: shown(cls()),
        lambda: shown(cls("a", 1)),
        lambda: str(inspect.signature(cls)),
        lambda: [(each.name, each.type, each.init, each.kw_only) for each in dataclasses.fields(cls)],
        lambda: cls.__match_args__,
        lambda: cls.__dict__.get("__slots__"),
        lambda: (one == same, one != other, one == "a"),
        lambda: (one < other, one >= other),
        lambda: cls.__hash__ == object.__hash__ or hash(dataclasses.replace(one, tags=())),
        lambda: shown(dataclasses.replace(one, size=8)),
        lambda: dataclasses.asdict(one),
        lambda: setattr(one, "size", 4),
        lambda: shown(one),
        lambda: delattr(one, "hidden"),
        lambda: shown(copy.deepcopy(other)),
        lambda: cls.__hash__ is None,
        lambda: (cls.__name__, cls.__qualname__, cls.__module__, cls.kind, dataclasses.is_dataclass(cls)),
    ]


def shown(value: Any) -> tuple[str, list[object]]:
    text = repr(value) if any("__repr__" in vars(cls) for cls in type(value).__mro__[:-1]) else ""
    return text, [getattr(value, one.name) for one in dataclasses.fields(value)]


@ours.dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0


@dataclasses.dataclass(frozen=True)
class Named(Point):
    name: str = ""


@ours.dataclass(frozen=True, slots=True)
class Box(Generic[T]):
    content: T

    def __eq__(self, other: object) -> bool:
        return True


@pytest.mark.parametrize("value", [Point(1, 2), Named(1, 2, "a"), Box([1])], ids=repr)
def test_values_survive_pickling(value: object) -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(value, protocol)) == value


def test_both_kinds_inherit_from_each_other() -> None:
    named = Named(1, name="a")
    assert repr(named) == "Named(x=1, y=0, name='a')"
    assert str(inspect.signature(Named)) == "(x: 'int', y: 'int' = 0, name: 'str' = '') -> None"

    @ours.dataclass(frozen=True)
    class Deep(Named):
        z: int = 3

    assert Deep(1, 2, "b", 4) == Deep(1, 2, name="b", z=4)
    assert [one.name for one in dataclasses.fields(Deep)] == ["x", "y", "name", "z"]


def test_constructors_that_differ_only_in_names_share_their_code() -> None:
    @ours.dataclass(frozen=True, slots=True)
    class Size:
        width: int
        height: int = 0

    Point(1), Size(1)
    assert Size.__init__.__code__.co_code == Point.__init__.__code__.co_code
    assert (Size(2, height=3).height, Point(2, y=3).y) == (3, 3)
    with pytest.raises(TypeError, match=r"Size.__init__\(\) missing 1 required positional argument: 'width'"):
        Size()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"Size.__init__\(\) got an unexpected keyword argument 'x'"):
        Size(x=1)  # type: ignore[call-arg]


def test_a_default_comes_after_the_fields_without_one() -> None:
    @ours.dataclass
    class Wrong:
        one: int = 1
        two: int  # type: ignore[misc]

    with pytest.raises(TypeError, match="non-default argument 'two' follows default argument"):
        Wrong(1, 2)


def test_a_mutable_default_is_refused() -> None:
    @ours.dataclass
    class Wrong:
        one: list[int] = []  # noqa: RUF012

    with pytest.raises(ValueError, match="mutable default"):
        Wrong()


def test_patterns_match() -> None:
    match Point(1, 2):
        case Point(x, y):
            assert (x, y) == (1, 2)


def test_own_methods_stay() -> None:
    assert Box(1) == Box(2)
    assert hash(Box(1)) == hash(Box(1)) != hash(Box(2))


def test_a_frozen_value_accepts_no_new_attribute() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'z'"):
        Point(1).z = 3  # type: ignore[attr-defined]


def test_a_recursive_value_is_shown() -> None:
    box: Box[list[object]] = Box([])
    box.content.append(box)
    assert repr(box) == "Box(content=[...])"


def test_threads_may_create_the_first_value_together() -> None:
    for _ in range(50):
        base, _derived = classes(ours.dataclass, frozen=True, slots=True)
        barrier, made = threading.Barrier(4), list[object]()

        def create(base: Any = base, barrier: threading.Barrier = barrier, made: list[object] = made) -> None:
            barrier.wait()
            made.append(base(name="a"))

        threads = [threading.Thread(target=create) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [base(name="a")] * 4


def test_the_package_uses_it_everywhere() -> None:
    """A dataclass of the standard library costs as much as ten of ours when a process starts."""
    package = Path(ours.__file__).parent
    found = [
        path.name
        for path in package.rglob("*.py")
        if path.name != "dataclass.py"
        and re.search(r"from dataclasses import .*\bdataclass\b", path.read_text("utf-8"))
    ]
    assert found == []
