"""Runs the whole audit, part by part."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from forerun.audit.beams import beam_cases, check_beams
from forerun.audit.certificate import Certificate
from forerun.audit.checks import first_problem
from forerun.audit.coins import coin_problems, twin_problems
from forerun.audit.grid import law_cases
from forerun.audit.identity import Cell, Stage, compare, exact_cells, half_of
from forerun.audit.mutant_table import MUTANTS
from forerun.audit.mutants import can_show, try_mutant
from forerun.audit.paths import match_cases
from forerun.audit.row_models import SHAPES, random_model
from forerun.audit.rows import check_rows_of, random_subjects, subject_of
from forerun.audit.sampler import sampler_tests
from forerun.audit.stages import (
    PROMPTS,
    chosen_cells,
    ending_cells,
    ending_stage,
    model_cells,
    model_stage,
    random_stage,
    toy_cells,
    toy_stage,
)
from forerun.audit.warps import warp_problems
from forerun.drafters.table import DRAFTERS
from forerun.errors import UnsupportedModelError
from forerun.models.model import Model
from forerun.native import is_there
from forerun.targets.protocol import Target

__all__ = ["Progress", "run_audit"]

Progress = Callable[[str, float], None]
"""Told what is being tested, and which share of the audit is done, from 0 to 1."""

_ROW_CASES, _MODEL_ROW_CASES = 300, 8  # of each random model, of the given one
_ROW_LAYERS, _ROW_LENGTH = 2, 18  # of the given one: just past a page

Tick = Callable[[float], None]
Part = Callable[[Certificate, Tick], None]


class _OverError(Exception):
    """Nobody waits for the rest."""


def run_audit(
    *,
    model: Model | None = None,
    target: Target | None = None,
    thorough: bool = False,
    progress: Progress | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> Certificate:
    """Test the promises on this machine and return what was found.

    Args:
        model: Whose texts are compared, too; None tests toys only.
        target: What runs the model; None is the native target, where that does.
        thorough: Goes on: more worlds, longer texts, smaller errors noticed; several times longer.
        progress: Called every few seconds.
        is_over: Asked as often; once true, the certificate is of what was tested so far.
    """
    begun = time.perf_counter()
    certificate = Certificate(model=None if model is None else model.name, thorough=thorough)
    parts = list(_parts(model, target, thorough))
    certificate.left = [name for name, _, _ in parts]
    whole = sum(weight for _, weight, _ in parts)
    done = 0.0
    for name, weight, part in parts:

        def tick(
            share: float, name: str = name, done: float = done, weight: float = weight
        ) -> None:
            if progress is not None:
                progress(name, min(1.0, (done + share * weight) / whole))
            if is_over():
                raise _OverError

        try:
            tick(0.0)
            part(certificate, tick)
        except _OverError:
            break
        certificate.left.remove(name)
        done += weight
        if progress is not None:
            progress(name, done / whole)
    certificate.seconds = time.perf_counter() - begun
    return certificate


def _parts(
    model: Model | None, target: Target | None, thorough: bool
) -> Iterator[tuple[str, float, Part]]:
    """Yield each part's name, its share of the time, and what runs it."""
    yield "coins and warp", 1, _basics
    yield "laws of the rules", 60 if thorough else 13, partial(_laws, thorough)
    yield "match over all noise", 20 if thorough else 5, partial(_match, thorough)
    yield "the plain sampler", 30 if thorough else 10, partial(_sampler, 0.02 if thorough else 0.04)
    yield "identity on toys", 60 if thorough else 8, partial(_toys, thorough)
    yield "beams", 20 if thorough else 2, partial(_beams, thorough)
    if is_there():
        yield "identity on random models", 80 if thorough else 8, partial(_random_models, thorough)
    if model is not None:
        weight = 350 if thorough else 20
        yield f"identity on {model.name}", weight, partial(_model, model, target, thorough)
    if is_there():
        native = model if target is None else None  # rows are the native target's
        yield "rows", 20.0 * (10 if thorough else 1), partial(_rows, native, thorough)
    yield "mutants", 14, _mutants


def _basics(certificate: Certificate, tick: Tick) -> None:
    certificate.basics += coin_problems()
    tick(0.1)
    certificate.basics += twin_problems()
    certificate.basics += warp_problems()


def _laws(thorough: bool, certificate: Certificate, tick: Tick) -> None:
    cases = list(law_cases(thorough))
    for i, case in enumerate(cases):
        tick(i / len(cases))
        certificate.laws.append(case.check())


def _match(thorough: bool, certificate: Certificate, tick: Tick) -> None:
    cases = list(match_cases(thorough))
    for i, case in enumerate(cases):
        tick(i / len(cases))
        paths, problems = case.check()
        certificate.match_cases += 1
        certificate.match_paths += paths
        certificate.match_problems += [f"{case.name}: {problem}" for problem in problems]


def _sampler(smallest_error: float, certificate: Certificate, tick: Tick) -> None:
    tests = list(sampler_tests(smallest_error))
    for i, test in enumerate(tests):

        def inner(share: float, i: int = i) -> None:
            tick((i + share) / len(tests))

        certificate.sampler.append(test(inner))


def _toys(thorough: bool, certificate: Certificate, tick: Tick) -> None:
    stages: list[tuple[Stage, Sequence[Cell]]] = []
    for seed in range(4 if thorough else 1):
        stages += [
            (toy_stage(seed, max_tokens=90 if thorough else 40), toy_cells()),
            (ending_stage(seed), list(ending_cells())),
            (ending_stage(seed, context=16), list(ending_cells(("model", "lookup")))),
        ]
    for i, (stage, cells) in enumerate(stages):

        def inner(share: float, i: int = i) -> None:
            tick((i + share) / len(stages))

        certificate.toys.add(compare(stage, cells if thorough else half_of(cells), inner))


def _beams(thorough: bool, certificate: Certificate, tick: Tick) -> None:
    cases = beam_cases(range(20 if thorough else 2))
    for i, case in enumerate(cases):
        tick(i / len(cases))
        check_beams(case, certificate.beams)


def _random_models(thorough: bool, certificate: Certificate, tick: Tick) -> None:
    cells = [*exact_cells(tuple(DRAFTERS), (1, 3)), *chosen_cells()]
    if not thorough:
        cells = half_of(cells)
    shapes = SHAPES if thorough else SHAPES[:1]
    for i, shape in enumerate(shapes):

        def inner(share: float, i: int = i) -> None:
            tick((i + share) / len(shapes))

        with random_model(shape) as model:
            stage = random_stage(model, 60 if thorough else 30)
            certificate.random.add(compare(stage, cells, inner))


def _model(
    model: Model, target: Target | None, thorough: bool, certificate: Certificate, tick: Tick
) -> None:
    length, prompts = (40, len(PROMPTS)) if thorough else (10, 1)
    stage = model_stage(model, length, prompts=prompts, target=target)
    tick(0.05)
    cells = model_cells(stage.target)
    if not thorough:
        cells = half_of(cells)
    certificate.real.add(compare(stage, cells, lambda share: tick(0.05 + 0.95 * share)))


def _rows(model: Model | None, thorough: bool, certificate: Certificate, tick: Tick) -> None:
    times = 10 if thorough else 1
    batches = [(subject, _ROW_CASES * times) for subject in random_subjects()]
    if model is not None:
        # Its first layers: the shapes are the model's, and without vector instructions it is slow.
        layers = min(_ROW_LAYERS, model.architecture.num_layers)
        with suppress(UnsupportedModelError):  # then its target is not the native one
            cut = subject_of(model.cut(layers), longest=_ROW_LENGTH, steps=2)
            batches.append((cut, _MODEL_ROW_CASES * times))
    for i, (subject, cases) in enumerate(batches):

        def inner(share: float, i: int = i) -> None:
            tick((i + share) / len(batches))

        certificate.rows.add(check_rows_of(subject, range(cases), inner))


def _mutants(certificate: Certificate, tick: Tick) -> None:
    certificate.control = ": ".join(first_problem() or ())
    mutants = [mutant for mutant in MUTANTS if can_show(mutant)]
    for i, mutant in enumerate(mutants):
        tick(i / len(mutants))
        certificate.mutants.append(try_mutant(mutant))
