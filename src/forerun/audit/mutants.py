"""Wrong versions of production functions, each of them one line, each of them once real.

A mutant takes a function's source, changes one line, compiles it under the same name, and gives
the function the new code for as long as a context lasts; so whoever imported it meets the mutant.
The ordinary checks must catch every one; unmutated, they must find nothing.
"""

from __future__ import annotations
import __future__

import functools
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType

from forerun.audit.checks import first_problem
from forerun.audit.mutant import Mutant
from forerun.errors import EngineError
from forerun.native import is_there, load

__all__ = ["MutantFinding", "can_show", "living", "try_mutant"]


@dataclass(frozen=True, slots=True)
class MutantFinding:
    """What became of a mutant.

    Attributes:
        mutant: Which.
        caught_by: The check that noticed, or None.
        problem: What it noticed.
    """

    mutant: Mutant
    caught_by: str | None
    problem: str

    def as_json(self) -> dict[str, object]:
        """Return the record as one JSON object."""
        mutant = self.mutant
        return {
            "name": mutant.name,
            "happened": mutant.happened,
            "function": mutant.function,
            "caught_by": self.caught_by,
            "problem": self.problem,
        }


@contextmanager
def living(mutant: Mutant) -> Iterator[None]:
    """Make production run the mutant's line until the context ends."""
    function = _function(mutant.function)
    own = function.__code__
    function.__code__ = _mutated(mutant, function)
    try:
        yield
    finally:
        function.__code__ = own


def try_mutant(mutant: Mutant) -> MutantFinding:
    """Return which check catches the mutant; one that can't be made counts as not caught."""
    try:
        with living(mutant):
            name, problem = first_problem(mutant.caught_first) or (None, "no check noticed")
    except EngineError as error:
        name, problem = None, str(error)
    return MutantFinding(mutant, name, problem)


def can_show(mutant: Mutant) -> bool:
    """Whether this machine runs the line at all, and on as many instruction sets as it takes."""
    if mutant.caught_first != "rows":
        return True
    return is_there() and len(load().instruction_sets()) >= mutant.instruction_sets


def _function(path: str) -> FunctionType:
    """Return the plain function behind "module:qualified name"."""
    module, _, name = path.partition(":")
    *owners, last = name.split(".")
    owner = functools.reduce(getattr, owners, importlib.import_module(module))
    found = inspect.getattr_static(owner, last)
    if isinstance(found, property):
        found = found.fget
    found = getattr(found, "__func__", found)
    if not isinstance(found, FunctionType) or found.__closure__:
        raise EngineError(f"{path} is no plain function, so it can't be mutated.")
    return found


def _mutated(mutant: Mutant, function: FunctionType) -> CodeType:
    """Return the function's code with the one line changed."""
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(mutant.old) != 1:
        raise EngineError(
            f"Mutant {mutant.name!r}: {mutant.old!r} stands {source.count(mutant.old)} times in "
            f"{mutant.function}, not once.",
            "The function has changed; change the mutant with it.",
        )
    changed = source.replace(mutant.old, mutant.new)
    flags = __future__.annotations.compiler_flag
    module = compile(changed, f"<mutant: {mutant.name}>", "exec", flags, dont_inherit=True)
    codes = [c for c in module.co_consts if isinstance(c, CodeType)]
    return next(code for code in codes if code.co_name == function.__name__)
