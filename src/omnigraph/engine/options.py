"""Keyword options: a TypedDict that is cheap to create, and its check at run time. `Unpack` is only a type hint."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

if TYPE_CHECKING:
    from typing import TypedDict as TypedDict
else:

    class TypedDict:
        """The names of options. `typing.TypedDict` compiles every annotation, and every process would wait for it."""

        __required_keys__ = frozenset()

        def __init_subclass__(cls, *, total):
            parts = [*map(inspect.get_annotations, cls.__bases__), inspect.get_annotations(cls)]
            cls.__annotations__ = {name: kind for part in parts for name, kind in part.items()}


P = ParamSpec("P")
T = TypeVar("T")


def takes(options: type) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a method with `**options: Unpack[…]`: it rejects other keyword arguments, as a plain signature does.

    >>> from typing import TypedDict
    >>> class Size(TypedDict, total=False):
    ...     rows: int
    >>> @takes(Size)
    ... def resize(table, **options):
    ...     return options
    >>> resize("t", rows=3)
    {'rows': 3}
    >>> resize("t", row=3)
    Traceback (most recent call last):
    TypeError: resize() got an unexpected keyword argument 'row'

    Args:
        options: the TypedDict.
    """
    # With postponed annotations, a TypedDict does not know which of its keys are required.
    required = {name for name, kind in options.__annotations__.items() if "Required[" in str(kind)}

    def decorate(method: Callable[P, T]) -> Callable[P, T]:
        code = cast(Any, method).__code__
        named = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        allowed = {*options.__annotations__, *named}

        def check(given: Collection[str]) -> None:
            for name in given:
                if name not in allowed:
                    raise TypeError(f"{method.__qualname__}() got an unexpected keyword argument '{name}'")
            for name in sorted(required - set(given)):
                raise TypeError(f"{method.__qualname__}() missing a required keyword argument: '{name}'")

        if inspect.iscoroutinefunction(method):

            @wraps(method)
            async def checked_async(*args: P.args, **kwargs: P.kwargs) -> Any:
                check(kwargs)
                return await cast(Any, method)(*args, **kwargs)

            return cast("Callable[P, T]", checked_async)

        @wraps(method)
        def checked(*args: P.args, **kwargs: P.kwargs) -> T:
            check(kwargs)
            return method(*args, **kwargs)

        return checked

    return decorate
