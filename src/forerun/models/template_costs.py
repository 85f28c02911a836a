"""What the operations of a chat template cost, in steps, and the budget they are paid from.

A step is about a third of a microsecond, or sixteen characters. Costs are charged before the work
is done, so that what does not fit in the budget is never begun.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn

from jinja2.utils import Namespace

from forerun.errors import TemplateError

__all__ = ["CALL", "CHARS", "GROWTH", "Budget", "operation_steps", "refuse"]

CHARS = 16
"""Characters a step."""
CALL = 12
"""Steps of any call, whatever it does."""
MAX_BITS = 1 << 16  # of an integer
_MAPPING: dict[str, int] = {}
VIEWS = (type(_MAPPING.keys()), type(_MAPPING.values()), type(_MAPPING.items()))
LISTS: tuple[type[Any], ...] = (list, tuple, *VIEWS)
SIZED: tuple[type[Any], ...] = (dict, range, *LISTS)


class Budget:
    """The steps one render may still take."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def charge(self, steps: int) -> None:
        """Pay for work about to be done.

        Raises:
            TemplateError: The budget is spent.
        """
        self._left -= steps
        if self._left < 0:
            raise TemplateError(
                "The chat template takes more steps or memory than any sound one needs.",
                "Use another template, or give the prompt as raw text (`--raw`).",
            )

    def weigh(self, value: object) -> int:
        """Pay for reading the whole of `value`, its shared parts each time; return the steps."""
        total = 0
        stack: list[Any] = [value]
        while stack:
            item: Any = stack.pop()
            steps = 1
            if isinstance(item, str):
                steps += len(item) // CHARS
            elif isinstance(item, int):
                steps += item.bit_length() // 64
            elif isinstance(item, SIZED):
                steps += 1 + len(item)
            elif isinstance(item, Namespace):
                steps = CALL
            self.charge(steps)
            total += steps
            if isinstance(item, Mapping):
                stack.extend(item.keys())
                stack.extend(item.values())
            elif isinstance(item, LISTS):
                stack.extend(item)
            elif isinstance(item, Namespace):
                stack.append(item._Namespace__attrs)
        return total

    def copied(self, value: Any) -> Any:
        """Pay for a value just made, or for each item of an iterator when it is drawn."""
        if isinstance(value, str):
            self.charge(len(value) // CHARS)
        elif isinstance(value, (list, tuple, dict)):
            self.charge(len(value))
        elif isinstance(value, Iterator):
            return self.counted(value, 1)
        return value

    def counted(self, values: Iterable[Any], steps: int) -> Iterator[Any]:
        """Pay `steps` for each item as it is drawn."""
        for value in values:
            self.charge(steps)
            yield value


def refuse(what: str) -> NoReturn:
    """Raise the TemplateError for a template that uses `what`."""
    raise TemplateError(f"The chat template uses {what}.", "No sound template needs that.")


def operation_steps(budget: Budget, operator: str, left: Any, right: Any) -> int:
    """Return the steps of `left operator right`; refuse what gets out of hand."""
    if operator == "%" and isinstance(left, str):
        if re.search(r"%[^%a-zA-Z]*(\*|\d{4})", left):
            refuse("a format with a width of thousands")
        places: int = left.count("%")
        return places * budget.weigh(right) + len(left) // CHARS
    if operator == "+":
        if isinstance(left, str) and isinstance(right, str):
            return (len(left) + len(right)) // CHARS
        if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
            return len(left) + len(right)
    if operator == "*":
        for values, times in ((left, right), (right, left)):
            if isinstance(values, (str, list, tuple)) and isinstance(times, int):
                size = len(values) * max(times, 0)
                return size // CHARS if isinstance(values, str) else size
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() + right.bit_length()
        if operator == "**":
            bits = left.bit_length() * max(right, 1) if abs(left) > 1 else 1
        if bits > MAX_BITS:
            refuse("an integer of tens of thousands of digits")
    return 0


def _padding(_: Budget, text: Any, width: Any = 80, *__: Any) -> int:
    return width // CHARS if isinstance(width, int) else 0


def _joining(budget: Budget, items: Any = (), d: Any = "", *_: Any, **__: Any) -> int:
    return _listing(budget, items) * len(str(d)) // CHARS


def _replacing(_: Budget, s: Any, old: Any = "", new: Any = "", *__: Any, **___: Any) -> int:
    return str(s).count(str(old)) * len(str(new)) // CHARS


def _searching(_: Budget, text: Any, part: Any = "", *__: Any) -> int:
    """Return the steps of a search whose worst case is the product of the lengths."""
    return len(str(text)) * len(str(part)) // 64


def _splitting(_: Budget, text: str, sep: Any = None, *__: Any, **___: Any) -> int:
    """Return the number of parts, and the steps to find them from the right."""
    if not isinstance(sep, str) or not sep:
        return len(text) // 2
    return text.count(sep) + len(text) * len(sep) // 64


def _indenting(_: Budget, text: Any, width: Any = 4, *__: Any, **___: Any) -> int:
    size = width if isinstance(width, int) else len(str(width))
    return (str(text).count("\n") + 1) * size // CHARS


def _cutting(
    _: Budget, values: Any, linecount: Any = 0, *__: Any, slices: Any = 0, **___: Any
) -> int:
    return max(n for n in (0, linecount, slices) if isinstance(n, int))


def _listing(_: Budget, values: Any) -> int:
    return len(values) if hasattr(values, "__len__") else 0


def _grouping(
    budget: Budget, values: Any, attribute: Any = None, default: Any = None, *_: Any, **__: Any
) -> int:
    return _listing(budget, values) * budget.weigh(default)  # each key is a copy in small letters


def _rounding(_: Budget, value: Any, precision: Any = 0, *__: Any, **___: Any) -> int:
    if not isinstance(precision, int) or abs(precision) > 100:
        refuse("rounding to more than a hundred digits")
    return 0


def _summing(_: Budget, values: Any, attribute: Any = None, start: Any = 0) -> int:
    if not isinstance(start, (int, float)):
        refuse("a sum of something other than numbers")
    return 0


def _formatting(budget: Budget, text: Any, *args: Any, **kwargs: Any) -> int:
    return operation_steps(budget, "%", str(text), kwargs or args)


def _writing(
    budget: Budget,
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> int:
    if isinstance(indent, (int, str)):
        width = indent if isinstance(indent, int) else len(indent)
        if width > 16:
            refuse("JSON indented by more than 16")
        return budget.weigh(value) * 16  # a line may be indented by its depth, to a limit
    if separators is not None and sum(len(str(part)) for part in separators) > 16:
        refuse("JSON with long separators")
    return 0


GROWTH: dict[str, Callable[..., int]] = {
    "center": _padding,
    "join": _joining,
    "list": _listing,
    "replace": _replacing,
    "trim": lambda budget, value, chars=None: _searching(budget, value, chars or ""),
    "indent": _indenting,
    "batch": _cutting,
    "groupby": _grouping,
    "slice": _cutting,
    "round": _rounding,
    "sum": _summing,
    "format": _formatting,
    "tojson": _writing,
    "str.center": _padding,
    "str.ljust": _padding,
    "str.rjust": _padding,
    "str.zfill": _padding,
    "str.join": lambda budget, separator, items=(): _joining(budget, items, separator),
    "str.replace": _replacing,
    **{f"str.{name}": _searching for name in ("strip", "lstrip", "rstrip")},
    **{f"str.{name}": _searching for name in ("rfind", "rindex", "rpartition")},
    **{f"str.{name}": _splitting for name in ("split", "rsplit", "splitlines")},
}
"""What filters and string methods make beyond what they are given, in steps."""
