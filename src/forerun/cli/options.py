"""Flags derived from the option groups of `forerun.config`; nothing is declared here twice.

A command's function takes an option group as a parameter; `with_options` turns that parameter
into one flag for each of the group's fields (`max_tokens` -> `--max-tokens`, and the variable
`FORERUN_MAX_TOKENS`) and hands the function the group, built and checked by `Options.make`.
A variable holds what one flag would: all of `FORERUN_STOP` is one stop string.
"""

from __future__ import annotations

import inspect
import os
import types
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from pydantic.fields import FieldInfo

from forerun.config import Options
from forerun.errors import OptionError

__all__ = ["SHORT_FLAGS", "default_of", "flag_of", "group_of", "variable_of", "with_options"]
__all__ += ["metavar_of", "option_of"]

SHORT_FLAGS = {"model": "-m"}

_METAVARS = {int: "N", float: "X", str: "TEXT"}
_CALL = "call"  # the parameter that tells which values came from variables


def flag_of(name: str) -> str:
    """The flag of an option: `top_k` -> `--top-k`."""
    return "--" + name.replace("_", "-")


def variable_of(name: str) -> str:
    """The environment variable of an option: `top_k` -> `FORERUN_TOP_K`."""
    return "FORERUN_" + name.upper()


def group_of(options: type[Options], name: str) -> str:
    """The class that declares an option: `Generation`, or one of the groups it is made of."""
    owners = [each for each in options.__mro__ if name in inspect.get_annotations(each)]
    return owners[0].__name__


def default_of(field: FieldInfo) -> str:
    """The default as a reader writes it; empty if there is none."""
    default = field.get_default(call_default_factory=True)
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    return "" if default in (None, {}) else str(default)


def metavar_of(field: FieldInfo) -> str:
    """What stands behind the flag in help: `N`, `match|tree`, `N,...` or `N=X,...`."""
    return _metavar(field.annotation)


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with a flag for each field of the option groups it takes.

    Args:
        command: A function for typer; parameters annotated with a class of `Options` are expanded.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, type[Options]] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        hint = hints[name]
        if isinstance(hint, type) and issubclass(hint, Options):
            groups[name] = hint
            parameters += [_flag(hint, field) for field in hint.model_fields]
        else:
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters.append(parameter.replace(annotation=hint, kind=kind))

    parameters.append(inspect.Parameter(_CALL, inspect.Parameter.KEYWORD_ONLY))
    parameters[-1] = parameters[-1].replace(annotation=typer.Context)

    def run(**given: Any) -> None:
        call = given.pop(_CALL)
        for name, options in groups.items():
            raw = {field: _given(call, options, field, given) for field in options.model_fields}
            given[name] = options.make(**_parsed(options, raw))
        command(**given)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _flag(options: type[Options], name: str) -> inspect.Parameter:
    """One field as a parameter of a command."""
    field = options.model_fields[name]
    kind = _without_none(field.annotation)
    is_switch, is_many = kind is bool, get_origin(kind) in (tuple, dict)
    hint = bool if is_switch else list[str] | None if is_many else str | None
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=False if is_switch else None if is_many else default_of(field) or None,
        annotation=Annotated[hint, option_of(options, name)],
    )


def option_of(options: type[Options], name: str) -> Any:
    """One field as a typer option. All but switches arrive as text: pydantic reads and checks."""
    field = options.model_fields[name]
    is_switch = _without_none(field.annotation) is bool
    is_many = get_origin(_without_none(field.annotation)) in (tuple, dict)
    return typer.Option(
        *(short for short in [SHORT_FLAGS.get(name)] if short),
        flag_of(name),
        help=field.description,
        metavar=None if is_switch else metavar_of(field),
        envvar=variable_of(name),
        show_envvar=False,
        show_default=default_of(field) or True if is_many else True,
        rich_help_panel=group_of(options, name),
    )


def _given(call: typer.Context, options: type[Options], name: str, given: dict[str, Any]) -> Any:
    """Take an option's value out of `given`; the parser would split a list's variable at blanks."""
    value, variable = given.pop(name), os.environ.get(variable_of(name))
    kind = get_origin(_without_none(options.model_fields[name].annotation))
    source = call.get_parameter_source(name)
    is_typed = source is not None and source.name == "COMMANDLINE"
    return [variable] if kind in (tuple, dict) and variable and not is_typed else value


def _parsed(options: type[Options], raw: dict[str, Any]) -> dict[str, Any]:
    """Keep what has a value, with lists and maps taken apart."""
    parsed: dict[str, Any] = {}
    for name, value in raw.items():
        kind = _without_none(options.model_fields[name].annotation)
        if value is None or value == []:
            continue
        if get_origin(kind) is dict:
            parsed[name] = _paired(name, _split(value))
        elif get_origin(kind) is tuple and _without_none(get_args(kind)[0]) is not str:
            parsed[name] = _split(value)
        else:
            parsed[name] = value
    return parsed


def _split(values: Iterable[str]) -> list[str]:
    return [item.strip() for value in values for item in value.split(",")]


def _paired(name: str, items: Iterable[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for item in items:
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals:
            raise OptionError(f"{name} = {item!r} is no pair.", f"Write {flag_of(name)} 12=-100.")
        if pairs.setdefault(key, value) != value:
            raise OptionError(f"{name} gives {key} both {pairs[key]} and {value}.", "Choose one.")
    return pairs


def _without_none(kind: Any) -> Any:
    """Strip `Annotated` and `| None` from a type."""
    if get_origin(kind) is Annotated:
        return _without_none(get_args(kind)[0])
    if get_origin(kind) in (Union, types.UnionType):
        rest = [each for each in get_args(kind) if each is not type(None)]
        return _without_none(rest[0]) if len(rest) == 1 else kind
    return kind


def _metavar(kind: Any) -> str:
    kind = _without_none(kind)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return "|".join(map(str, inner))
    if origin is tuple:
        item = _metavar(inner[0])
        return item if item == "TEXT" else f"{item},..."
    if origin is dict:
        return "=".join(map(_metavar, inner)) + ",..."
    if origin in (Union, types.UnionType):
        return "|".join(map(_metavar, inner))
    return _METAVARS.get(kind, "")
