"""`python -m forerun.cli.reference` writes `docs/reference/` from what the code declares.

The page on Python comes from public names and their docstrings, options from the fields of
`forerun.config`, commands from the app, events from their dataclasses, drafters and rules from
their tables, errors from their tree. A test compares the files with what would be written, so
that they cannot drift.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import typer.main
from pydantic.fields import FieldInfo

from forerun import errors, events
from forerun.beam.options import Beaming
from forerun.bench.options import Racing, Timing
from forerun.cli.main import app
from forerun.cli.options import default_of, flag_of, group_of, metavar_of, variable_of
from forerun.cli.python_reference import python_page
from forerun.config import Generation, Loading, Options
from forerun.core.rules import RULES
from forerun.drafters.table import AUTO, DRAFTERS
from forerun.train.options import Capturing, HeadLearning, Hours, ModelLearning

__all__ = ["FOLDER", "pages", "write"]

FOLDER = Path("docs/reference")
_GENERATED = "<!-- Written by `make docs` from the code; change it there. -->"
_LEARNING = (Hours, Capturing, HeadLearning, ModelLearning)
_GROUPS = (Loading, Generation, Beaming, Timing, Racing, *_LEARNING)
_BOUNDS = {"ge": "from", "gt": "above", "le": "to", "lt": "below"}


def pages() -> dict[str, str]:
    """Return each page's file name and text."""
    makers = {
        "python.md": python_page,
        "options.md": _options,
        "cli.md": _commands,
        "events.md": _events,
        "drafters-and-rules.md": _drafters_and_rules,
        "errors.md": _errors,
    }
    return {name: "\n".join([_GENERATED, "", *maker()]) + "\n" for name, maker in makers.items()}


def write(folder: Path = FOLDER) -> None:
    """Write all pages into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, "utf-8")


def _options() -> Iterator[str]:
    yield "# Options"
    yield ""
    yield "The same everywhere: a keyword in Python, a flag on the command line, an environment"
    yield "variable. A flag wins over its variable. A list is its flag given several times, or its"
    yield "numbers joined by commas; a variable holds what one flag would."
    uses: tuple[tuple[type[Options], str], ...] = ((Loading, "In Python: `forerun.load(...)`."),)
    uses += ((Generation, "In Python: `generate`, `stream`."),)
    uses += ((Beaming, "In Python: `beam_search`, beside most of those above."),)
    uses += tuple((options, "") for options in (Timing, Racing, *_LEARNING))
    shown: set[str] = set()  # what several have in common is shown once
    for options, use in uses:
        groups: dict[str, list[str]] = {}
        for name in options.model_fields:
            groups.setdefault(group_of(options, name), []).append(name)
        for group, names in groups.items():
            if group in shown:
                continue
            shown.add(group)
            owner = next(each for each in options.__mro__ if each.__name__ == group)
            yield from ("", f"## {group}", "", f"{_summary(owner)} {use}".strip(), "")
            yield from _table(
                ("option", "flag", "value", "default", "meaning"),
                (_option_row(options, name) for name in names),
            )


def _option_row(options: type[Options], name: str) -> tuple[str, ...]:
    field = options.model_fields[name]
    flag = f"`{flag_of(name)}`<br>`{variable_of(name)}`"
    value = " ".join(filter(None, [f"`{metavar_of(field) or 'switch'}`", _bounds(field)]))
    default = f"`{default_of(field)}`" if default_of(field) else ""
    return f"`{name}`", flag, value, default, field.description or ""


def _bounds(field: FieldInfo) -> str:
    return " ".join(
        f"{word} {getattr(bound, name)}"
        for bound in field.metadata
        for name, word in _BOUNDS.items()
        if hasattr(bound, name)
    )


def _commands() -> Iterator[str]:
    group: Any = typer.main.get_command(app)
    yield from ("# Commands", "", group.help, "")
    yield "Text and JSON go to standard output, everything else to standard error. Exit codes: 0"
    yield "fine, 1 a check failed, 2 wrong use, 3 could not start, 130 interrupted by Ctrl-C, 141"
    yield "the reader of the output went away, 143 told to end (SIGTERM). `FORERUN_CACHE` names"
    yield "another folder for models, `FORERUN_DEBUG=1` adds a traceback to errors."
    for name, command in _leaves(group):
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        usage = "".join(
            f" {p.name.upper()}" if p.required else f" [{p.name.upper()}]" for p in arguments
        )
        yield from ("", f"## forerun {name}{usage}", "", inspect.cleandoc(command.help), "")
        derived = _of_whole_groups([p for p in command.params if p.envvar])
        own = [p for p in command.params if p not in derived]
        if own:
            yield from _table(("", "default", "meaning"), (_parameter_row(p) for p in own))
            yield from ("",) if derived else ()
        if derived:
            yield f"{'And' if own else 'It takes'} {_named(derived)}."


def _leaves(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Every command with its name, those of a group behind the group's own."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _leaves(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def _of_whole_groups(parameters: list[Any]) -> list[Any]:
    """Those whose group of options the command takes as a whole: a link to it says enough."""
    declared = {(group_of(options, name), name) for options in _GROUPS
                for name in options.model_fields}  # fmt: skip
    sizes = Counter(group for group, _ in declared)
    taken = Counter(p.rich_help_panel for p in parameters)
    return [p for p in parameters if taken[p.rich_help_panel] == sizes[p.rich_help_panel]]


def _named(parameters: list[Any]) -> str:
    """The groups of options a command takes, rather than all of their flags once more."""
    groups = list(dict.fromkeys(p.rich_help_panel for p in parameters))
    links = [f"[{group}](options.md#{group.lower()})" for group in groups]
    return "the options of " + ", ".join(links)


def _parameter_row(parameter: Any) -> tuple[str, str, str]:
    is_argument = parameter.param_type_name == "argument"
    name = parameter.name.upper() if is_argument else ", ".join(parameter.opts)
    return f"`{name}`", _default(parameter), parameter.help or ""


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    told = parameter.show_default if isinstance(parameter.show_default, str) else parameter.default
    return "" if told in (None, False, (), []) else f"`{told}`"


def _events() -> Iterator[str]:
    yield "# Events"
    yield ""
    yield _summary(events)
    yield ""
    yield "`--json` prints them one object a line, with their kind under `event`; the last line is"
    yield "the result."
    for record in (
        events.RoundEvent,
        events.Drafted,
        events.TokenEvent,
        events.Result,
        events.Stats,
        events.BeamResult,
        events.Beam,
        events.BeamStats,
    ):
        said = _attributes(record)
        yield from ("", f"## {record.__name__}", "", _summary(record), "")
        rows = []
        for name, kind in record.__annotations__.items():
            kind = getattr(kind, "__forward_arg__", kind)  # as named tuples keep them
            rows.append((f"`{name}`", f"`{kind}`", said.get(name, "")))
        for name, value in vars(record).items():
            if isinstance(value, property):
                rows.append(
                    (f"`{name}`", f"`{value.fget.__annotations__['return']}`", _summary(value))
                )
        yield from _table(("field", "type", "meaning"), rows)


def _drafters_and_rules() -> Iterator[str]:
    yield from ("# Drafters and rules", "", "## Drafters", "")
    yield f"`auto` is `{AUTO}`, and where there is a head, the drafter of its kind as well; `none`"
    yield "writes plainly. Several names joined by commas draft together: at each place all are"
    yield "asked, and the draft is grown from all that they guess. If one of them can't be asked"
    yield "place by place (`model`, `random`, `scripted`), the first that has a guess drafts."
    for name, home in DRAFTERS.items():
        module = importlib.import_module(home.partition(":")[0])
        yield from ("", f"### {name}", "", inspect.getdoc(module) or "")
    yield from ("", "## Rules", "")
    yield from _table(
        ("rule", "exact", "trees", "drafters look at"),
        ((f"`{n}`", _yes(r.exact), _yes(r.keeps_trees), r.draws_from) for n, r in _rules()),
    )
    for name, rule in _rules():
        module = importlib.import_module(type(rule).__module__)
        yield from ("", f"### Rule {name}", "", inspect.getdoc(module) or "")


def _rules() -> list[tuple[str, Any]]:
    return [(name, rule()) for name, rule in RULES.items()]


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _errors() -> Iterator[str]:
    yield from ("# Errors", "")
    yield "Each says what is wrong, with the value (`error.what`), and the way out"
    yield "(`error.way_out`). On the command line it is one line, and the exit code below."
    yield ""
    yield from _table(("error", "exit code", "meaning"), _error_rows(errors.ForerunError, 0))


def _error_rows(error: type[errors.ForerunError], depth: int) -> Iterator[tuple[str, str, str]]:
    yield f"{'&emsp;' * depth}`{error.__name__}`", str(error.exit_code), _summary(error)
    for child in error.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from _error_rows(child, depth + 1)


def _summary(documented: object) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(documented) or "").partition("\n\n")[0].split())


def _attributes(documented: object) -> dict[str, str]:
    """What a docstring says under `Attributes:`, by name."""
    section = (inspect.getdoc(documented) or "").partition("Attributes:\n")[2]
    said: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        start = re.match(r"    (\w+): (.+)", line)
        if start:
            name = start[1]
            said[name] = start[2]
        elif name and line.startswith("        "):
            said[name] += " " + line.strip()
    return said


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    head = list(head)
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
