"""`forerun bench generate`, from opening the sides to the report."""

from __future__ import annotations

import secrets
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from forerun.api import LanguageModel
from forerun.bench.end import NEVER, End
from forerun.bench.machine import Gauge, LoadMeter, describe, load_average
from forerun.bench.options import Racing
from forerun.bench.prompts import Prompt, choose, read_prompts, shipped_prompts
from forerun.bench.race.keep import Keeper
from forerun.bench.race.ours import OurSide, SideSpec, our_spec, swept
from forerun.bench.race.peers import RACE_PEERS, PeerError, PeerKit, PeerSide
from forerun.bench.race.protocol import Side
from forerun.bench.race.report import RaceReport
from forerun.bench.race.run import Plan, Race, conversation
from forerun.bench.report import Load
from forerun.config import Generation
from forerun.control.cost import CostCurve, measure
from forerun.drafters.table import OF_HEAD
from forerun.errors import DownloadError, OptionError
from forerun.models.pull import cache_folder

__all__ = ["bench_generate", "check_head", "prompts_of", "side_names"]

Progress = Callable[[str, float], None]

_CURVE_SECONDS = 0.8


def side_names(options: Racing) -> list[SideSpec | str]:
    """Return what the sides are: ours as their specs, peers by their names.

    A sweep adds its own, and `plain` and `auto`, without which it would say nothing.

    Raises:
        OptionError: A side is unknown or named twice, or none is ours.
    """
    names = [name.strip() for each in options.sides for name in each.split(",") if name.strip()]
    if options.sweep:
        names = [name for name in ("plain", "auto") if name not in names] + names
        names += swept(options.sweep, options.lengths)
    for name in names:
        if names.count(name) > 1:
            raise OptionError(f"Side {name[:80]!r} is named twice.", "Once is all.")
    sides = [name if name in RACE_PEERS else _ours(name) for name in names]
    if all(isinstance(side, str) for side in sides):
        raise OptionError("None of the sides is Forerun.", "Add plain or auto.")
    return sides


def check_head(options: Racing, specs: Sequence[SideSpec | str]) -> None:
    """Check that a head that is named is one that some side reads.

    Raises:
        OptionError: None of them asks a head.
    """
    if options.head is None:
        return
    ours = [spec.speculation.drafter for spec in specs if not isinstance(spec, str)]
    if not any({"auto", *OF_HEAD.values()}.intersection(each.split(",")) for each in ours):
        what = f"head = {options.head!r} is asked by none of the sides."
        raise OptionError(what, "Add side eagle, medusa or exit, by the head's kind, or auto.")


def prompts_of(options: Racing) -> list[Prompt]:
    """Return the prompts that are asked for.

    Raises:
        OptionError: The file can't be read or is no such file, or there is no such task.
    """
    given = shipped_prompts() if options.prompts is None else read_prompts(options.prompts)
    return choose(given, options.tasks, options.limit)


def bench_generate(
    lm: LanguageModel,
    options: Racing,
    generation: Generation,
    *,
    end: End = NEVER,
    progress: Progress = lambda part, share: None,
    keeps: Callable[[str], None] = lambda path: None,
) -> RaceReport:
    """Let all sides write all prompts in turns.

    Args:
        lm: The model, opened with the options' head.
        options: Who writes what.
        generation: Of it, `max_tokens`, `temperature` and `seed`.
        end: Once it has come, the report is of what was written so far.
        progress: Told what is being done, and the share that is.
        keeps: Told the file that samples are written into, before the first is.

    Raises:
        OptionError: Prompts, sides, the head or the folder for samples are not as they should be,
            or no prompt has room in the context.
    """
    prompts, specs, plan = _asked(lm, options, generation)
    with ExitStack() as opened:
        keeper = opened.enter_context(Keeper(options.keep))
        keeps(str(keeper.path))
        kit = _kit(lm, options, plan, prompts)
        sides, errors = opened.enter_context(_opened(specs, lm, kit, progress))
        details = {side.name: side.describe() for side in sides}
        machine = describe(_threads(lm))
        about = {"model": lm.model.name, "machine": machine, "sides": details, "errors": errors}
        keeper.add({"event": "run", **plan._asdict(), **about, "prompts": options.prompts})
        race = Race(lm, sides, plan, lambda sample: keeper.add(sample.as_json()), end)
        race.errors.update(errors)
        at_hand = _AtHand(lm)
        before, meter = load_average(), LoadMeter(lambda: sum(each.cpu_seconds() for each in sides))
        race.run(prompts, at_repeat=at_hand.read, progress=progress)
        at_hand.gauge.read()
        report = RaceReport(
            model=lm.model.name,
            plan=plan,
            prompts=dict(Counter(prompt.task for prompt in prompts)),
            reference=race.reference,
            ours=tuple(side.name for side in sides if side.is_ours),
            details={_name(spec): details.get(_name(spec), {}) for spec in specs},
            errors=race.errors,
            samples=race.samples,
            differences=race.differences,
            left_out=race.left_out,
            machine=machine,
            readings=at_hand.gauge.readings,
            load=Load(before, load_average(), meter.others(), meter.stolen()),
            kept=str(keeper.path),
            is_interrupted=end.came(),
            not_kept=keeper.problem,
            curve=at_hand.curve(),
        )
        keeper.add(report.as_json())
    return report


def _asked(
    lm: LanguageModel, options: Racing, generation: Generation
) -> tuple[list[Prompt], list[SideSpec | str], Plan]:
    """Return prompts, sides and plan, each checked."""
    prompts, specs = prompts_of(options), side_names(options)
    check_head(options, specs)
    plan = _plan(options, generation)
    _check_room(lm, prompts, plan.max_tokens)
    return prompts, specs, plan


class _AtHand:
    """What the machine gave before each repeat: memory, barrier, and passes of several rows."""

    def __init__(self, lm: LanguageModel) -> None:
        self.gauge = Gauge(_threads(lm))
        self._target = lm.target
        self._curves: list[CostCurve] = []

    def read(self) -> None:
        self.gauge.read()
        self._curves.append(measure(self._target, _CURVE_SECONDS))

    def curve(self) -> dict[int, float]:
        """Return v by rows: the median over repeats, of the rows that all of them timed."""
        curves = [each.measured for each in self._curves]
        rows = set.intersection(*map(set, curves)) if curves else set()
        return {
            each: statistics.median(one[each] / one[1] for one in curves) for each in sorted(rows)
        }


def _plan(options: Racing, generation: Generation) -> Plan:
    seed = secrets.randbits(32) if generation.seed is None else generation.seed
    return Plan(generation.max_tokens, generation.temperature, seed, options.repeats, options.turns)


def _ours(name: str) -> SideSpec:
    try:
        return our_spec(name)
    except OptionError as error:
        way_out = f"{error.way_out} Peers: {', '.join(RACE_PEERS)}."
        raise OptionError(error.what, way_out.strip()) from None


def _name(spec: SideSpec | str) -> str:
    return spec if isinstance(spec, str) else spec.name


@contextmanager
def _opened(
    specs: Sequence[SideSpec | str], lm: LanguageModel, kit: PeerKit, progress: Progress
) -> Iterator[tuple[list[Side], dict[str, str]]]:
    """Open all sides, and close them; a peer that can't be opened is told by its error."""
    sides: list[Side] = []
    errors: dict[str, str] = {}
    with ExitStack() as at_end:
        for spec in specs:
            if not isinstance(spec, str):
                own = LanguageModel(lm.model, lm.loading) if spec.is_warm else lm
                sides.append(OurSide(spec, own))
                at_end.callback(sides[-1].close)
                continue
            progress(f"opening {spec}", 0)
            try:
                peer = PeerSide(spec, kit)
            except PeerError as error:
                errors[spec] = str(error)
                continue
            at_end.callback(peer.close)
            sides.append(peer)
        yield sides, errors


def _kit(lm: LanguageModel, options: Racing, plan: Plan, prompts: Sequence[Prompt]) -> PeerKit:
    """What peers are opened with: room for the longest conversation, as the context allows."""
    needed = 0
    for prompt in prompts:
        turns = prompt.turns[: plan.turns]
        said = sum(len(lm.model.tokenizer.encode(turn)) for turn in turns)
        # A chat template writes a few dozen tokens around each message.
        needed = max(needed, said + len(turns) * (plan.max_tokens + 64))
    context = min(needed, lm.target.context_length)
    try:
        cache = str(cache_folder() / "peers")
    except DownloadError:  # told to whoever needs it
        cache = ""
    ends = tuple(sorted(lm.model.tokenizer.eos_ids))
    return PeerKit(str(lm.model.path), _threads(lm), context, ends, cache, options.q4_0)


def _check_room(lm: LanguageModel, prompts: Sequence[Prompt], max_tokens: int) -> None:
    """Refuse a race in which no text would be written: none has room in the context."""
    context = lm.target.context_length
    way_out = "Lower max_tokens, or take shorter prompts."
    if max_tokens >= context:
        what = f"max_tokens = {max_tokens} leaves no room for a prompt: the context is {context}."
        raise OptionError(what, way_out)
    shortest = context
    for prompt in prompts:
        shortest = min(shortest, len(conversation(lm, prompt.turns[:1])))
        if shortest + max_tokens <= context:
            return
    raise OptionError(
        f"No prompt has room: with max_tokens = {max_tokens} the shortest needs "
        f"{shortest + max_tokens} tokens, and the context is {context}.",
        way_out,
    )


def _threads(lm: LanguageModel) -> int:
    return lm.target.capabilities.threads
