"""Row-exactness: a row's bits follow from its token, position and ancestors, and nothing else.

Thousands of small random cases on the native target, each on every instruction set that the
machine has, on one to three threads, with keys and values in 16 or in 32 bits. A case is a subject
and a seed; `check_rows_of` with the same two replays it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

from forerun.audit.row_cases import Difference, History, read_plainly
from forerun.audit.row_models import SHAPES, RandomShape, random_model
from forerun.audit.row_texts import random_texts
from forerun.errors import ForerunError
from forerun.models.model import Model
from forerun.native import load
from forerun.targets.native import NativeTarget
from forerun.targets.protocol import Target

__all__ = [
    "Mismatch",
    "RowsReport",
    "Subject",
    "check_rows_of",
    "random_subjects",
    "subject_of",
]

_KV_BITS = (16, 32)
_THREADS = (1, 2, 3)
_SHORT = 40  # nodes that are read one by one, now and then
_OFTEN = (1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3)  # more threads than cores wait for each other


@dataclass(frozen=True, slots=True)
class Subject:
    """What is asked: one model on several targets that must agree.

    Attributes:
        name: Of the model.
        num_layers: Of the model.
        targets: By bits of keys and values, which may change a row's bits, and by number of
            threads, which may not.
        longest: Most tokens of a text.
        steps: Passes of a history.
    """

    name: str
    num_layers: int
    targets: Mapping[int, Mapping[int, Target]]
    longest: int = 330
    steps: int = 3


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Two ways that differ.

    Attributes:
        subject: Which model.
        seed: Of the case.
        instruction_set: On which the other way ran.
        threads: On how many.
        kv_bits: Of keys and values, in both ways.
        what: Where, with both numbers.
    """

    subject: str
    seed: int
    instruction_set: str
    threads: int
    kv_bits: int
    what: str

    def __str__(self) -> str:
        where = f"{self.instruction_set}, {self.threads} threads, {self.kv_bits}-bit keys"
        return f"rows of {self.subject}, seed {self.seed}, {where}: {self.what}"

    def as_json(self) -> dict[str, object]:
        """Return the record as one JSON object."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class RowsReport:
    """What the cases showed.

    Attributes:
        cases: How many ran.
        instruction_sets: Each case ran on all of them.
        subjects: Names of the models.
        passes: Passes of histories.
        rows: Rows compared with their plain reading.
        mismatches: One a case at most.
    """

    cases: int = 0
    instruction_sets: tuple[str, ...] = ()
    subjects: list[str] = field(default_factory=list)
    passes: int = 0
    rows: int = 0
    mismatches: list[Mismatch] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        """All that is wrong."""
        return [str(mismatch) for mismatch in self.mismatches]

    def add(self, other: RowsReport) -> None:
        """Add another's findings to these."""
        self.cases += other.cases
        self.instruction_sets = other.instruction_sets
        self.subjects += other.subjects
        self.passes += other.passes
        self.rows += other.rows
        self.mismatches += other.mismatches

    def as_json(self) -> dict[str, object]:
        """Return the report as one JSON object."""
        first = self.mismatches[0].as_json() if self.mismatches else None
        return {
            "cases": self.cases,
            "mismatches": len(self.mismatches),
            "first_mismatch": first,
            "instruction_sets": list(self.instruction_sets),
            "models": len(self.subjects),
            "passes": self.passes,
            "rows": self.rows,
        }


def subject_of(model: Model, *, longest: int = 330, steps: int = 3) -> Subject:
    """Open a model on targets of one to three threads and both kinds of keys, which share weights.

    Args:
        model: Whose; its file is not needed afterwards.
        longest: Most tokens of a text.
        steps: Passes of a history.
    """
    targets = {
        bits: {n: NativeTarget(model, threads=n, kv_bits=bits) for n in _THREADS}
        for bits in _KV_BITS
    }
    return Subject(model.name, model.architecture.num_layers, targets, longest, steps)


def random_subjects(shapes: Sequence[RandomShape] = SHAPES) -> list[Subject]:
    """Open a random model of each shape."""
    subjects = []
    for shape in shapes:
        with random_model(shape) as model:
            subjects.append(subject_of(model))
    return subjects


def check_rows_of(
    subject: Subject, seeds: Sequence[int], tick: Callable[[float], None] | None = None
) -> RowsReport:
    """Run cases on one subject.

    Args:
        subject: The model.
        seeds: One a case.
        tick: Called with the finished share after each case.
    """
    sets = tuple(load().instruction_sets())
    report = RowsReport(instruction_sets=sets, subjects=[subject.name])
    for done, seed in enumerate(seeds, 1):
        report.cases += 1
        mismatch = _run_case(subject, seed, report)
        if mismatch is not None:
            report.mismatches.append(mismatch)
        if tick is not None:
            tick(done / len(seeds))
    return report


def _run_case(subject: Subject, seed: int, report: RowsReport) -> Mismatch | None:
    """Read some texts plainly, and on every instruction set through a history of its own."""
    random = Random(seed)
    bits = random.choice(list(subject.targets))
    targets = subject.targets[bits]
    texts = random_texts(random, targets[1].vocab_size, subject.longest)
    name, threads = random.choice(report.instruction_sets), 1
    by_token = len(texts.tokens) < _SHORT and random.random() < 0.4
    try:
        with _using(name):
            expected = read_plainly(targets[1], texts, subject.num_layers, by_token=by_token)
        for name in report.instruction_sets:
            own = Random(f"{seed} {name}")
            threads = own.choice(_OFTEN)
            history = History(own, targets[threads], texts, expected)
            with _using(name):
                history.run(subject.steps)
            report.passes += history.passes
            report.rows += history.rows
    except (Difference, ForerunError) as error:
        return Mismatch(subject.name, seed, name, threads, bits, str(error))
    return None


@contextmanager
def _using(name: str) -> Iterator[None]:
    """Make the passes of this process run on an instruction set until the context ends."""
    module = load()
    before = module.instruction_set()
    module.use_instruction_set(name)
    try:
        yield
    finally:
        module.use_instruction_set(before)
