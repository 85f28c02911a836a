from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from forerun.errors import TrainingError
from forerun.targets.native import NativeTarget
from forerun.targets.protocol import Capabilities, Row, Target
from forerun.train import draft_evaluation, own_drafts
from forerun.train.draft_evaluation import measure_drafts
from forerun.train.examples import TextExamples
from forerun.train.network import Frozen
from forerun.train.own_drafts import OwnDrafts
from forerun.train.shards import Conversation, Shards
from forerun.train.student import Student, frozen_for, initial_student
from train.made_text import captured, tiny_model

pytestmark = pytest.mark.judge
torch.set_num_threads(1)  # so little work is done sooner by one


def made(folder: Path, layers: tuple[int, ...]) -> tuple[Student, NativeTarget, list[Conversation]]:
    """A student of a tiny target, and captured text."""
    model = tiny_model(folder, quantisation="Q8_0")
    target = NativeTarget(model, threads=1)
    captured(model, folder / "text", target, tokens=400, top=300)
    frozen = Frozen.of(model, np.arange(300))
    student = Student(initial_student(model, layers), frozen_for(frozen, len(layers)))
    return student, target, list(Shards(folder / "text").conversations())


def law_behind(target: Target, tokens: list[int]) -> torch.Tensor:
    """The target's law of what follows a text, read by itself."""
    name = target.open(tokens[:-1])
    logits = target.score([Row(name, tokens[-1], len(tokens) - 1, -1)]).logits[0]
    target.free(name)
    return torch.softmax(torch.from_numpy(logits.copy()), -1)


def test_a_draft_is_learned_as_the_text_that_it_would_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row of a draft has the target's law of the text before it, alone.

    So does the student read it; text keeps its own laws. Passes end amid the text as well.
    """
    monkeypatch.setattr(own_drafts, "_MOST_ROWS", 16)
    monkeypatch.setattr(own_drafts, "_EVERY", 5)
    student, target, texts = made(tmp_path, (0, 2))
    length, chosen = 3, texts[:4]
    drafts = OwnDrafts(target, length=length, top=300, seed=3)
    task = drafts.task(student, student.frozen.head, chosen, 7)
    plain = TextExamples(chosen, np.arange(300)).task(range(4))
    outputs = student.levels(task.batch, 1)[0]
    at = begin = 0
    for each, line, rows, count in zip(
        chosen, task.batch.lines, plain.lengths, task.lengths, strict=True
    ):
        kept = slice(at, at + rows)
        assert torch.equal(task.laws.p[kept], plain.laws.rows(begin, begin + rows).p)
        drafted = (count - rows) // length
        own = task.batch.tokens[line.rows][-length * drafted :].reshape(length, drafted)
        where = task.batch.positions[line.rows][-length * drafted :].reshape(length, drafted)
        for draft in range(drafted):
            place = int(where[0, draft]) - 1
            text = each.tokens[: place + 1].tolist()
            for level in range(length):
                row = at + rows + level * drafted + draft
                text.append(int(own[level, draft]))
                law = torch.zeros(300).scatter(0, task.laws.ids[row], task.laws.p[row])
                assert torch.allclose(law, law_behind(target, text), atol=2e-3)
                alone = student.read(
                    torch.tensor(text),
                    torch.arange(len(text)),
                    [slice(0, len(text))],
                    [torch.ones(len(text), len(text)).bool().tril()],
                )[-1]
                assert torch.allclose(outputs[row], alone, atol=1e-4)
                if each.temperature == 0 and level + 1 < length:
                    best = int((alone @ student.frozen.head.T).argmax())
                    assert best == int(own[level + 1, draft])
        at, begin = at + count, begin + rows
    assert at == len(outputs) == len(task.laws.p)


def test_drafts_follow_from_seed_and_step(tmp_path: Path) -> None:
    """The same for the same, others for another step; drawn tokens are not always the likeliest."""
    student, target, texts = made(tmp_path, (0,))

    def drawn(seed: int, step: int) -> list[int]:
        drafts = OwnDrafts(target, length=2, top=300, seed=seed)
        task = drafts.task(student, student.frozen.head, texts[:4], step)
        return [*task.batch.tokens.tolist(), *task.batch.positions.tolist()]

    assert drawn(1, 5) == drawn(1, 5)
    assert drawn(1, 5) != drawn(1, 6)
    assert drawn(1, 5) != drawn(2, 5)


def test_a_target_of_chains_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is drafted."""
    _, target, _ = made(tmp_path, (0,))
    chains = Capabilities(trees=False, exactness="bitwise")
    monkeypatch.setattr(NativeTarget, "capabilities", chains)
    with pytest.raises(TrainingError, match="chains only"):
        OwnDrafts(target, length=2, top=20, seed=0)


def test_acceptance_by_position_is_that_of_drafts(tmp_path: Path) -> None:
    """On many texts' first answers, drafts that are drawn and accepted for real come as far."""
    student, target, texts = made(tmp_path, (0, 2))
    warm = [each for each in texts if each.temperature == 1.0]
    whole = Student(initial_student(target.model, (0, 1, 2)), frozen_for(student.frozen, 3))
    fair, full = measure_drafts([student, whole], target, texts, 3)
    assert all(each > 0.97 for each in full.alpha + full.agreement[:1])
    simulated = np.mean([_accepted(student, target, each, 3) for each in warm], axis=0)
    through = np.cumprod(fair.alpha)
    assert np.allclose(simulated, through, atol=0.05)


def test_a_draft_comes_along_by_what_was_written() -> None:
    """Whether a text is followed is told by its own token, not by how often a guess would be."""
    taken, came = (torch.tensor(each).double() for each in ([0.5, 0.4, 0.3], [0.9, 0.1, 0.7]))
    runs = draft_evaluation._runs(taken, came, 2)
    assert torch.allclose(runs, torch.tensor([[0.5, 0.9 * 0.4], [0.4, 0.1 * 0.3]]).double())
    alpha = draft_evaluation._by_position([runs])
    assert alpha == pytest.approx([0.45, (0.36 + 0.03) / 0.9])
    assert draft_evaluation._by_position([]) == []


def _accepted(student: Student, target: Target, text: Conversation, length: int) -> np.ndarray:
    """Leviathan's rule, by drawing: how many drafts behind an answer's places come so far."""
    random = np.random.default_rng(text.number)
    came = np.zeros(length)
    places = range(max(text.answer - 1, 1), len(text.tokens) - length)
    for place in places:
        tokens = text.tokens[: place + 1].tolist()
        for level in range(length):
            q = torch.softmax(_along(student, tokens), -1)
            token = int(np.searchsorted(np.cumsum(q.numpy()), random.random() * float(q.sum())))
            p = law_behind(target, tokens)
            if random.random() * float(q[token]) >= float(p[token]):
                break
            came[level] += 1
            tokens.append(token)
    return came / max(len(places), 1)


def _along(student: Student, tokens: list[int]) -> torch.Tensor:
    count = len(tokens)
    seen = [torch.ones(count, count).bool().tril()]
    x = student.read(torch.tensor(tokens), torch.arange(count), [slice(0, count)], seen)
    return x[-1] @ student.frozen.head.T
