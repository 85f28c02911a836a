"""Our own sides: their names, and what they measure of a text."""

from __future__ import annotations

from typing import Any

import pytest

from forerun.api import LanguageModel, load
from forerun.bench.race.ours import OurSide, SideSpec, acceptance_of, our_spec, swept
from forerun.bench.race.protocol import Job, Side
from forerun.config import Generation, Speculation
from forerun.drafters.scripted import Scripted
from forerun.drafters.table import DrafterKit
from forerun.errors import OptionError
from forerun.events import Drafted, RoundEvent
from models.tiny_gguf import Tiny

PROMPT = (5, 6, 7, 5, 6, 7, 5, 6)


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return load(Tiny().write(tmp_path_factory.mktemp("race") / "tiny.gguf"))


@pytest.mark.parametrize(
    ("name", "drafter", "length", "width", "is_warm"),
    [
        ("plain", "none", "auto", "auto", False),
        ("auto", "auto", "auto", "auto", False),
        ("auto:warm", "auto", "auto", "auto", True),
        ("suffix:5", "suffix", 5, 1, False),
        ("suffix+bigram:0", "suffix,bigram", 0, 1, False),
        ("suffix:5x2", "suffix", 5, 2, False),
        ("lookup:15x3:warm", "lookup", 15, 3, True),
    ],
)
def test_a_name_says_what_a_side_is(
    name: str, drafter: str, length: int | str, width: int | str, is_warm: bool
) -> None:
    """Drafters joined by a plus, draft length and width, and whether it stays warm."""
    spec = our_spec(name)
    asked = spec.speculation
    assert (asked.drafter, asked.draft_length, asked.draft_width) == (drafter, length, width)
    assert (spec.name, spec.is_warm) == (name, is_warm)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("sufix", "There is no drafter 'sufix'"),
        ("suffix+suffix", "named 2 times"),
        ("suffix+auto", "stands alone"),
        ("suffix:x", "'x' is no draft length"),
        ("suffix:5:6", "'5:6' is no draft length"),
        ("suffix:-1", "'-1' is no draft length"),
        ("suffix:", "'' is no draft length"),
        ("suffix:٣", "no draft length"),
        ("suffix:5x٣", "no draft length"),
        ("suffix:257", "draft_length = 257"),
        ("suffix:5x0", "draft_width = 0"),
        ("plain:5", "drafts nothing"),
        ("plain:warm", "drafts nothing"),
        ("", "drafter"),
    ],
)
def test_a_wrong_name_is_refused(name: str, said: str) -> None:
    """With what is wrong about it."""
    with pytest.raises(OptionError) as error:
        our_spec(name)
    assert said in str(error.value)


def test_a_sweep_is_every_drafter_at_every_length() -> None:
    """Mixes, too; what has a length already is refused."""
    names = swept(["suffix,suffix+bigram", "auto"], [0, 3])
    assert names == [f"{d}:{n}" for d in ("suffix", "suffix+bigram", "auto") for n in (0, 3)]
    assert all(our_spec(name).name == name for name in names)
    for wrong in ("plain", "none", "suffix:3", "auto:warm"):
        with pytest.raises(OptionError, match="no drafter to be tried"):
            swept([wrong], [1])


@pytest.mark.parametrize("name", ["plain", "suffix:3", "suffix:3:warm"])
def test_a_text_is_measured(lm: LanguageModel, name: str) -> None:
    """All tokens, times of its parts, and what became of drafts."""
    side = OurSide(our_spec(name), lm)
    assert isinstance(side, Side)
    written = side.write(Job(PROMPT, 20, 0.0, 1))
    expected = lm.generate(PROMPT, max_tokens=20, drafter="none").token_ids
    assert written.token_ids == expected
    assert written.first_seconds > 0
    assert written.seconds > 0
    assert written.stats is not None
    assert written.passes == written.stats.passes
    assert written.acceptance is not None
    drafted, accepted = (
        sum(c) for c in zip([0, 0], *written.acceptance.by_rank.values(), strict=True)
    )
    assert (drafted, accepted) == (written.stats.drafted, written.stats.accepted)


def test_tokens_that_came_with_the_first_are_not_after_it(lm: LanguageModel) -> None:
    """A first round that brings four tokens leaves the others to be counted."""
    script = lm.generate(PROMPT, max_tokens=12, drafter="none").token_ids
    kit = DrafterKit(vocab_size=300, open_draft_model=lambda: lm.target, script=script)
    oracle = Scripted(kit)
    oracle.name = "oracle"
    lm.add_drafter(oracle)
    side = OurSide(SideSpec("oracle", Speculation(drafter="oracle", draft_length=3), False), lm)
    written = side.write(Job(PROMPT, 12, 0.0, 1))
    assert written.token_ids == script
    assert (written.passes, written.later) == (3, 8)
    assert OurSide(our_spec("plain"), lm).write(Job(PROMPT, 12, 0.0, 1)).later == 11


def test_only_a_warm_side_remembers(lm: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others forget before each text."""
    forgot: list[str] = []
    monkeypatch.setattr(LanguageModel, "forget", lambda self: forgot.append("yes"))
    for name in ("suffix", "suffix:warm", "plain"):
        OurSide(our_spec(name), lm).write(Job(PROMPT, 2, 0.0, 1))
        forgot.append(name)
    assert forgot == ["yes", "suffix", "suffix:warm", "yes", "plain"]


def test_sampling_is_passed_on(lm: LanguageModel) -> None:
    """Temperature and seed are the job's."""
    side = OurSide(our_spec("suffix"), lm)
    asked: dict[str, Any] = {"max_tokens": 20, "temperature": 1.0, "drafter": "none"}
    for seed in (1, 2):
        expected = lm.generate(PROMPT, seed=seed, **asked).token_ids
        assert side.write(Job(PROMPT, 20, 1.0, seed)).token_ids == expected


def test_a_prediction_is_passed_on_and_changes_no_text(
    lm: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is such an option; a text without one gets none."""
    asked: list[Any] = []
    honest = LanguageModel.stream

    def watched(self: LanguageModel, prompt: Any, **options: Any) -> Any:
        asked.append(options.get("prediction"))
        return honest(self, prompt, **options)

    monkeypatch.setattr(LanguageModel, "stream", watched)
    side = OurSide(our_spec("auto"), lm)
    texts = [side.write(Job(PROMPT, 9, 0.0, 1, hint)).token_ids for hint in ("abc abc", None)]
    assert texts[0] == texts[1]
    assert asked == (["abc abc", None] if "prediction" in Generation.model_fields else [None, None])


def test_acceptance_knows_position_and_rank() -> None:
    """In a tree: two guesses below the root, of which the second held, and one below it."""
    nodes = [(1, -1, False), (2, -1, True), (3, 1, False), (4, 0, False)]
    drafted = tuple(Drafted(token, parent, "d", held) for token, parent, held in nodes)
    counted = acceptance_of(RoundEvent(0, 0, drafted, 2))
    assert counted.as_json() == {"by_position": [[2, 1], [2, 0]], "by_rank": [[3, 0], [1, 1]]}
