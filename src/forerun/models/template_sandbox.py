"""A jinja2 sandbox in which a hostile template can neither escape, nor hang, nor fill the memory.

jinja2's immutable sandbox keeps a template from Python's internals and from changing what it is
given. It does not bound time or memory, and a thread that renders cannot be killed. So every
render has a *budget* of steps, and whatever can repeat, grow or look through values pays first:

- loop bodies, macros and blocks pay their size at each turn (inserted into the syntax tree),
- operators, calls, filters, tests and slices pay for what they read and for what they make,
- printing, comparing and sorting pay for the whole of a value, shared parts as often as they occur,
  since a list that holds one list ten times, ten levels deep, is small until it is printed.

What cannot be bounded is not there: functions, methods and filters are allowed by name. The budget
counts and no clock is read, so a render that passes passes everywhere.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import BuiltinMethodType, MethodType
from typing import Any

import jinja2
from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import BlockReference, Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Cycler, Joiner, Namespace
from jinja2.visitor import NodeTransformer

from forerun.models.template_costs import (
    CALL,
    CHARS,
    GROWTH,
    Budget,
    operation_steps,
    refuse,
)

__all__ = ["TemplateSandbox"]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


METHODS: dict[type, frozenset[str]] = {
    str: _names(
        "strip lstrip rstrip split rsplit splitlines partition rpartition startswith endswith find "
        "rfind index rindex count lower upper title capitalize swapcase casefold removeprefix "
        "removesuffix replace join ljust rjust center zfill isalnum isalpha isascii isdecimal "
        "isdigit isidentifier islower isnumeric isprintable isspace istitle isupper"
    ),
    dict: frozenset(("items", "keys", "values", "get", "copy")),
    list: frozenset(("index", "count", "copy")),
    tuple: frozenset(("index", "count")),
    LoopContext: frozenset(("cycle", "changed")),
    Cycler: frozenset(("next", "reset")),
}
"""Methods a template may call, by the type of their object."""

SHALLOW = _names(
    "abs attr batch count d default first float int items last length list map reject rejectattr "
    "reverse round safe select selectattr slice"
)
"""Filters that hand values on without looking into them."""

DEEP = _names(
    "capitalize center dictsort e escape forceescape format groupby indent join lower max min "
    "replace sort string sum title tojson trim truncate unique upper urlencode wordcount"
)
"""Filters that read the whole of their values."""

COMPARING = _names("== eq equalto != ne > gt greaterthan >= ge < lt lessthan <= le in lower upper")
"""Tests that do so."""


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """The environment chat templates are written for, under a budget.

    Whitespace control, loop controls, `raise_exception`, `strftime_now` and `tojson` are as in
    transformers. `budget` is set anew by whoever compiles or renders; one render at a time.
    """

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # or constants would be folded before there is anyone to pay
            extensions=[loopcontrols, GenerationTag],
            finalize=_printed,
        )
        self.budget = Budget(0)
        provided = {name: self.globals[name] for name in ("range", "cycler", "joiner")}
        self.globals.clear()
        self.globals.update(provided, dict=_make_dict, namespace=_PlainNamespace, **functions)
        self._functions = {id(function) for function in self.globals.values()}
        filters = {name: self.filters[name] for name in SHALLOW | DEEP}
        self.filters = {name: self._metered(filters[name], name) for name in filters}
        self.tests = {name: self._metered(test, name) for name, test in self.tests.items()}
        # What the syntax tree calls.
        self.tick = _Hook(lambda steps: self.budget.charge(steps))
        self.weighed = _Hook(self._weighed)
        self.searched = _Hook(lambda x: x if isinstance(x, Mapping) else self._weighed(x))
        self.drawn = _Hook(lambda values, steps: self.budget.counted(values, steps))

    def compile_metered(self, source: str) -> jinja2.Template:
        """Compile `source` with its loops, macros, blocks and operands made to pay."""
        tree = _Meter().visit(self.parse(source))
        tree.set_environment(self)
        return jinja2.Template.from_code(self, self.compile(tree), self.make_globals(None))

    def install(self, name: str, function: Callable[..., Any]) -> None:
        """Put a filter of our own in the place of jinja2's."""
        self.filters[name] = self._metered(function, name)

    def _weighed(self, value: Any) -> Any:
        self.budget.weigh(value)
        return value

    def _metered(self, function: Any, name: str) -> Callable[..., Any]:
        skip = 1 if hasattr(function, "jinja_pass_arg") else 0  # the context comes first
        is_deep = name in DEEP or name in COMPARING

        @functools.wraps(function)
        def metered(*args: Any, **kwargs: Any) -> Any:
            budget = self.budget
            budget.charge(CALL)
            if is_deep:
                if len(args) > skip and isinstance(args[skip], Iterator):
                    args = (*args[:skip], list(args[skip]), *args[skip + 1 :])
                budget.weigh(args[skip:])
                budget.weigh(kwargs)
            if name in GROWTH:
                budget.charge(GROWTH[name](budget, *args[skip:], **kwargs))
            return budget.copied(function(*args, **kwargs))

        return metered

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call what may be called, at its price."""
        if type(__obj) is _Hook:
            return __obj(*args)
        budget = __self.budget
        budget.charge(CALL)
        if not isinstance(__obj, (Macro, LoopContext, BlockReference)):
            args = tuple(list(arg) if isinstance(arg, Iterator) else arg for arg in args)
            budget.weigh(args)
            budget.weigh(kwargs)
            __self._require_callable(__obj)
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str):
            budget.weigh(owner)
            grows = GROWTH.get("str." + __obj.__name__)
            if grows is not None:
                budget.charge(grows(budget, owner, *args, **kwargs))
        return budget.copied(super().call(__context, __obj, *args, **kwargs))

    def _require_callable(self, function: Any) -> None:
        if isinstance(function, (Joiner, _Format)) or id(function) in self._functions:
            return
        if isinstance(function, (MethodType, BuiltinMethodType)):
            for kind, names in METHODS.items():
                if isinstance(function.__self__, kind) and function.__name__ in names:
                    return
        if isinstance(function, jinja2.Undefined):
            function()  # raises what jinja2 says about it
        name = getattr(function, "__name__", type(function).__name__)
        raise SecurityError(f"{name!r} may not be called from a template")

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return a bounded `str.format`, if `value` is that method."""
        bounded = super().wrap_str_format(value)
        return None if bounded is None else _Format(self, value.__self__, bounded)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Look up an item, having paid for hashing the key."""
        self.budget.charge(2)  # filters come here for every part of `attribute="a.b.c"`
        if not isinstance(argument, (str, int)):
            self.budget.weigh(argument)
        return super().getitem(obj, argument)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Apply an operator, having paid for the result."""
        self.budget.charge(CALL // 2 + operation_steps(self.budget, operator, left, right))
        return super().call_binop(context, operator, left, right)


class GenerationTag(Extension):
    """`{% generation %}`, by which training marks the model's own text; here its body alone."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        """Return the body in a scope of its own."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class _Hook:
    """A function that only the instrumented syntax tree can name."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *args: Any) -> Any:
        return self._function(*args)


class _Format:
    """`str.format` of one string, with widths bounded."""

    def __init__(self, sandbox: TemplateSandbox, text: str, function: Callable[..., str]) -> None:
        self._sandbox, self._text, self._function = sandbox, text, function

    def __call__(self, *args: Any, **kwargs: Any) -> str:
        if re.search(r"\d{4}|\{[^{}]*\{", self._text):
            refuse("a format with a width of thousands")
        budget = self._sandbox.budget
        budget.charge(self._text.count("{") * (budget.weigh(args) + budget.weigh(kwargs)))
        return self._function(*args, **kwargs)


class _PlainNamespace(Namespace):
    """`namespace()`, without names that begin with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *rest = args
        attributes = dict(*rest, **kwargs)
        for name in attributes:
            _require_public(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _require_public(name)
        super().__setitem__(name, value)


class _Meter(NodeTransformer):
    """Inserts the calls that make a template pay."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        """Pay for each item drawn and for each turn."""
        drawing = 2 + (_size([node.test]) if node.test else 0)
        node = self._repeated(node)
        node.iter = _hook("drawn", node.iter, nodes.Const(drawing))
        return node

    def _repeated(self, node: Any) -> Any:
        steps = CALL + _size(node.body)
        self.generic_visit(node)
        tick = nodes.ExprStmt(_hook("tick", nodes.Const(steps)))
        node.body.insert(0, tick.set_lineno(node.lineno))
        return node

    visit_Macro = visit_CallBlock = visit_Block = _repeated

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        """Pay for the text that `~` makes."""
        self.generic_visit(node)
        node.nodes = [_hook("weighed", item) for item in node.nodes]
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        """Pay for both sides of a comparison."""
        self.generic_visit(node)
        node.expr = _hook("weighed", node.expr)
        for operand in node.ops:
            name = "searched" if operand.op in ("in", "notin") else "weighed"
            operand.expr = _hook(name, operand.expr)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        """Pay for the copy a slice makes."""
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            node.node = _hook("weighed", node.node)
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:
        """Pay for hashing a key."""
        self.generic_visit(node)
        node.key = _hook("weighed", node.key)
        return node


def _hook(name: str, *args: Any) -> nodes.Call:
    call = nodes.Call(nodes.EnvironmentAttribute(name), list(args), [], None, None)
    call.set_lineno(args[0].lineno or 1)
    return call


def _size(body: Iterable[nodes.Node]) -> int:
    """Return what running through these nodes once may cost, all branches counted."""
    total, stack = 0, list(body)
    while stack:
        node = stack.pop()
        total += 1 + (len(node.data) // CHARS if isinstance(node, nodes.TemplateData) else 0)
        stack.extend(node.iter_child_nodes())
    return total


@pass_context  # which also keeps jinja2 from printing constants at compile time
def _printed(context: Context, value: Any) -> Any:
    """Pay for the text of a value about to be printed."""
    budget = context.environment.budget  # type: ignore[attr-defined]
    budget.charge(CALL // 2)
    budget.weigh(value)
    return value


def _make_dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


def _require_public(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot hold {name!r}")
