"""`forerun bench`: measure what things cost on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from forerun.bench.options import Racing, Timing
from forerun.cli.consoles import print_json, stderr, stdout
from forerun.cli.guard import INTERRUPTED
from forerun.cli.interrupt import patient
from forerun.cli.options import option_of, with_options
from forerun.cli.waiting import counting, open_model, spinner
from forerun.config import Generation, Loading
from forerun.errors import OptionError
from forerun.printable import printable

if TYPE_CHECKING:
    from forerun.api import LanguageModel
    from forerun.bench.race.report import RaceReport

__all__ = ["bench"]

_DEFAULT = Loading().model

bench = typer.Typer(
    name="bench", no_args_is_help=True, help="Measure what things cost on this machine."
)


@bench.command("pass")
@with_options
def bench_pass(
    options: Timing,
    model: Annotated[str, option_of(Loading, "model")] = _DEFAULT,
    weights: Annotated[str, option_of(Loading, "weights")] = "auto",
    threads: Annotated[str | None, option_of(Loading, "threads")] = None,
    instruction_set: Annotated[str, option_of(Loading, "instruction_set")] = "auto",
    kv_bits: Annotated[str | None, option_of(Loading, "kv_bits")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines; the last has all.")] = False,
) -> None:
    """Time passes of few and many rows, beside other engines and the machine's memory limit.

    With them, reading a prompt and writing plainly. The sides take turns within one run; medians
    are printed, the machine's load beside them. Ctrl-C ends it and prints what there is.
    """
    from forerun.bench.end import End
    from forerun.bench.pass_bench import bench_pass as run
    from forerun.bench.peers import peer_names
    from forerun.bench.plot import check_plot, draw_passes

    peer_names(options.peers)
    if options.plot is not None:
        check_plot(options.plot)
    _check_shape(options.shape, model, weights)
    loading = Loading.make(
        model=model,
        weights=weights,
        target="native",
        threads=threads,
        instruction_set=instruction_set,
        kv_bits=kv_bits,
    )
    lm = _open(loading, options.shape)
    with patient() as interruption, counting("Bench") as progress:
        end = End(lambda: interruption.came, interruption.impatient)
        report = run(lm, options, end=end, progress=progress)
    if as_json:
        for samples in report.samples_as_json():
            print_json(samples)
        print_json(report.as_json())
    else:
        stdout().print(report.as_text())
    if options.plot is not None:
        draw_passes(report, options.plot)
    if interruption.came:
        raise SystemExit(INTERRUPTED)


@bench.command("generate")
@with_options
def bench_generate(
    options: Racing,
    max_tokens: Annotated[str, option_of(Generation, "max_tokens")] = "128",
    temperature: Annotated[str, option_of(Generation, "temperature")] = "0",
    seed: Annotated[str | None, option_of(Generation, "seed")] = None,
    model: Annotated[str, option_of(Loading, "model")] = _DEFAULT,
    threads: Annotated[str | None, option_of(Loading, "threads")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line with all of it.")] = False,
) -> None:
    """Let sides write the same prompts in turns: plain, auto, drafters, and other engines.

    Speeds, tokens per pass and ratios with their intervals are printed; every sample is kept in a
    file. Sides that draft with a head, auto among them, take the one of --head. It ends with exit
    code 1 if our sides did not all write the same. Ctrl-C ends it and prints what there is.
    """
    from forerun.bench.end import End
    from forerun.bench.race.bench import bench_generate as run

    _check_race(options)
    generation = Generation.make(
        max_tokens=max_tokens,
        temperature=temperature,
        **({} if seed is None else {"seed": seed}),
    )
    lm = open_model(Loading.make(model=model, threads=threads, head=options.head))
    with patient() as interruption, counting("Race") as progress:
        end = End(lambda: interruption.came, interruption.impatient)
        report = run(lm, options, generation, end=end, progress=progress, keeps=_tell_kept)
    _show_race(report, options, as_json=as_json)
    if interruption.came:
        raise SystemExit(INTERRUPTED)
    if not report.identical:
        for line in report.told_differences():
            stderr().print(Text(printable(line), "bold red"), soft_wrap=True)
        raise SystemExit(1)


def _check_race(options: Racing) -> None:
    """Refuse, before anything is opened, what would be in vain."""
    from forerun.bench.plot import check_plot
    from forerun.bench.race.bench import check_head, prompts_of, side_names
    from forerun.bench.race.markdown import check_report

    check_head(options, side_names(options))
    prompts_of(options)
    if options.plot is not None:
        check_plot(options.plot)
    if options.report is not None:
        check_report(options.report)


def _show_race(report: RaceReport, options: Racing, *, as_json: bool) -> None:
    """Print the report, and write the files that were asked for."""
    from forerun.bench.race.markdown import write_report
    from forerun.bench.race.plot import draw_race

    if as_json:
        print_json(report.as_json())
    else:
        stdout().print(report.as_text())
    if options.report is not None:
        write_report(report, options.report)
    if options.plot is not None:
        draw_race(report, options.plot)


def _tell_kept(path: str) -> None:
    told = f"Every sample is kept in {path} (--keep names another folder)."
    stderr().print(Text(printable(told)), soft_wrap=True)


def _check_shape(shape: str | None, model: str, weights: str) -> None:
    if shape is not None and weights != "auto":
        raise OptionError(f"Shape {shape} has 4-bit weights.", "Leave weights out.")
    if shape is not None and model != _DEFAULT:
        raise OptionError(f"Shape {shape} and model {model!r} contradict each other.")


def _open(loading: Loading, shape: str | None) -> LanguageModel:
    """Open the model, or make one of that shape."""
    if shape is None:
        return open_model(loading)
    from forerun.api import LanguageModel
    from forerun.bench.shapes import make_model

    with spinner(f"Making a random model of shape {shape}"):
        return LanguageModel(make_model(shape), loading)
