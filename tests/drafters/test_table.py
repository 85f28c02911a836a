"""Names become drafters, or an error that helps; several in order are one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from drafters.loop import Text, make
from forerun.drafters.protocol import Drafter
from forerun.drafters.table import AUTO, DRAFTERS, DrafterKit, make_drafter
from forerun.errors import OptionError
from forerun.targets.protocol import Target
from forerun.targets.toy import ToyTarget
from forerun.targets.toy_head import ToyHead
from forerun.targets.toy_readout import ToyReadout

TARGET = ToyTarget.random(6, 1, 1)


def no_model() -> Target:
    raise AssertionError("only drafter model opens the draft model")


KIT = DrafterKit(
    6,
    no_model,
    target=ToyTarget.random(6, 2, 1),
    open_head=lambda: ToyHead(TARGET),
    open_readout=lambda _: ToyReadout(TARGET),
)


@pytest.mark.parametrize("name", [name for name in DRAFTERS if name != "model"])
def test_a_name_is_its_drafter(name: str) -> None:
    """Each loads, and opens nothing it doesn't need."""
    drafter = make_drafter(f" {name} ", KIT)
    assert isinstance(drafter, Drafter)
    assert drafter.name == name


def test_none_is_none_and_auto_is_a_drafter() -> None:
    """The two words that stand for a choice."""
    assert make_drafter("none", KIT) is None
    auto = make_drafter("auto", KIT)
    assert auto is not None
    assert auto.name == AUTO
    for kind, drafter in (("eagle3", "eagle"), ("medusa", "medusa"), ("exit", "exit")):
        learned = make_drafter("auto", replace(KIT, head_kind=kind))
        assert learned is not None
        assert learned.name == f"{AUTO},{drafter}"


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("sufix", "Did you mean 'suffix'"),
        ("zebra9000", "There are bigram, eagle, early_exit, exit, lookup, medusa"),
        ("", "no drafter ''"),
        ("lookup,,suffix", "no drafter ''"),
        ("lookup,bigram,lookup", "'lookup' is named 2 times"),
        ("lookup,none", "'none' stands alone"),
        ("auto,lookup", "'auto' stands alone"),
        ("Suffix", "no drafter 'Suffix'"),
    ],
)
def test_a_wrong_name_is_an_error_that_helps(spec: str, says: str) -> None:
    """Unknown, empty, repeated, contradictory: said so, with the known ones."""
    with pytest.raises(OptionError, match=says):
        make_drafter(spec, KIT)


def test_the_first_with_a_guess_drafts() -> None:
    """In order, text by text; who drafted stands at every node."""
    drafter = make("lookup,bigram,scripted", 6)
    prompts = {1: [3, 4, 3], 2: [0, 1, 2], 3: []}
    for sequence, prompt in prompts.items():
        drafter.open(sequence, prompt)
    texts = [Text(sequence, prompt, TARGET) for sequence, prompt in prompts.items()]
    drafts = drafter.draft([text.request() for text in texts])
    writers = [{node.drafter for node in draft.nodes} for draft in drafts]
    assert writers == [{"lookup"}, {"scripted"}, set()]


def test_all_of_them_follow_whoever_drafts() -> None:
    """What the first ones drafted and what came of it is known to the last, as if it were alone."""
    together: Any = make("random,bigram", 6)
    alone: Any = make("bigram", 6)
    for drafter in (together, alone):
        drafter.open(1, [0, 1, 2, 0])
        text = Text(1, [0, 1, 2, 0], TARGET)
        drafter.observe([text.take(drafter.draft([text.request()])[0], 1)])
        drafter.fork(1, 2)
        drafter.rollback(2, 2)
    seen = [one._memories for one in (together._drafters[1], alone)]
    counts = [{s: (m._tokens, m._counts) for s, m in one.items()} for one in seen]
    assert counts[0] == counts[1]
    together.free(1)
    assert set(seen[0]) == {2}
