"""The drafters: one line a drafter, loaded when chosen.

Listed means tested: every drafter here passes the conformance suite of the protocol.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from forerun.drafters.first import First
from forerun.drafters.mix import Mix
from forerun.drafters.online import Online
from forerun.drafters.protocol import Drafter, Guesser
from forerun.drafters.retold import Border
from forerun.drafters.store import Store
from forerun.errors import OptionError
from forerun.models.head_shapes import EAGLE, EXIT, MEDUSA
from forerun.targets.head import Head
from forerun.targets.protocol import Target
from forerun.targets.readout import Readout

__all__ = ["AUTO", "DRAFTERS", "OF_HEAD", "DrafterKit", "drafter_names", "make_drafter"]

DRAFTERS: dict[str, str] = {
    "suffix": "forerun.drafters.suffix:Suffix",
    "lookup": "forerun.drafters.lookup:Lookup",
    "recycle": "forerun.drafters.recycle:Recycle",
    "prediction": "forerun.drafters.prediction:Prediction",
    "bigram": "forerun.drafters.bigram:Bigram",
    "model": "forerun.drafters.model:open_model",
    "early_exit": "forerun.drafters.early_exit:EarlyExit",
    "eagle": "forerun.drafters.eagle:Eagle",
    "medusa": "forerun.drafters.medusa:Medusa",
    "exit": "forerun.drafters.exit:Exit",
    "scripted": "forerun.drafters.scripted:Scripted",
    "random": "forerun.drafters.random:Random",
}

AUTO = "prediction,suffix"
OF_HEAD = {EAGLE: "eagle", MEDUSA: "medusa", EXIT: "exit"}
"""The drafter of each kind of learned head; `auto` asks it, too, where there is such a head."""


def _no_head() -> Head:
    raise _headless("eagle")


def _no_readout(kind: str) -> Readout:
    raise _headless(OF_HEAD[kind])


def _headless(drafter: str) -> OptionError:
    what = f"Drafter {drafter!r} needs a head, which runs beside Forerun's own engines only."
    way_out = "Choose suffix, lookup, recycle, early_exit or model; or open the model's files by "
    return OptionError(what, f"{way_out}forerun.load, where an engine of Forerun's runs it.")


@dataclass(frozen=True, slots=True)
class DrafterKit:
    """What drafters are made from; each takes what it needs.

    Attributes:
        vocab_size: Tokens the target knows.
        open_draft_model: Returns the second target behind drafter `model`; may raise.
        script: What drafter `scripted` guesses; None is each text's own prompt.
        threads: How many may look at the rows of a pass.
        target: The one that drafters `early_exit` and `exit` run the first layers of.
        draft_layers: So many of them; None is a quarter.
        head_kind: Of the learned head that there is, or empty; `auto` asks it, too.
        open_head: Returns the head behind drafter `eagle`; may raise.
        open_readout: Returns the one of a kind, `medusa` or `exit`; may raise.
        store: Where drafters keep what outlives a text; None keeps nothing.
        online: What drafter `eagle` goes on learning into; None learns nothing.
        border: Where the draft model has a tokenizer of its own: both, once it is open.
    """

    vocab_size: int
    open_draft_model: Callable[[], Target]
    script: tuple[int, ...] | None = None
    threads: int = 1
    target: Target | None = None
    draft_layers: int | None = None
    head_kind: str = ""
    open_head: Callable[[], Head] = _no_head
    open_readout: Callable[[str], Readout] = _no_readout
    store: Store | None = None
    online: Online | None = None
    border: Callable[[], Border | None] = lambda: None


def make_drafter(
    spec: str, kit: DrafterKit, own: Mapping[str, Drafter] = MappingProxyType({})
) -> Drafter | None:
    """Return the drafter that `spec` names; None for "none".

    Args:
        spec: A name, several joined by commas (their guesses are merged; if one of them can't be
            asked place by place, the first that has a guess drafts), "auto" or "none".
        kit: What drafters are made from.
        own: The user's, by name.

    Raises:
        OptionError: A name is unknown, empty or repeated, or the script is out of the vocabulary.
        VocabularyError: The draft model has another vocabulary than the target.
        CapabilityError: The target can't do what the drafter needs.
    """
    names = drafter_names(spec, own, head_kind=kit.head_kind)
    drafters = [own[name] if name in own else _load(name)(kit) for name in names]
    if len(drafters) < 2:
        return next(iter(drafters), None)
    guessers = [drafter for drafter in drafters if isinstance(drafter, Guesser)]
    return Mix(guessers) if len(guessers) == len(drafters) else First(drafters)


def drafter_names(spec: str, own: Collection[str] = (), *, head_kind: str = "") -> tuple[str, ...]:
    """Return the names in `spec`, "auto" resolved; equal for two spellings of the same drafter.

    Args:
        spec: As for `make_drafter`.
        own: Names of the user's drafters.
        head_kind: Of the head learned from the target, for "auto" to ask; empty if there is none.

    Raises:
        OptionError: A name is unknown, empty or repeated.
    """
    if spec.strip() == "none":
        return ()
    auto = f"{AUTO},{OF_HEAD[head_kind]}" if head_kind else AUTO
    named = auto if spec.strip() == "auto" else spec
    names = [name.strip() for name in named.split(",")]
    for name in names:
        _check(name, names, own)
    return tuple(names)


def _check(name: str, names: list[str], own: Collection[str]) -> None:
    if name in ("auto", "none"):
        raise OptionError(f"Drafter {name!r} stands alone.", f"Leave the others or {name!r} out.")
    if name not in DRAFTERS and name not in own:
        near = difflib.get_close_matches(name, [*own, *DRAFTERS], n=2)
        hint = f"Did you mean {' or '.join(map(repr, near))}? " if near else ""
        known = ", ".join([*sorted(own), *sorted(DRAFTERS)])
        raise OptionError(
            f"There is no drafter {name!r}.", f"{hint}There are {known}; and 'auto' and 'none'."
        )
    if names.count(name) > 1:
        raise OptionError(f"Drafter {name!r} is named {names.count(name)} times.", "Once is all.")


def _load(name: str) -> Callable[[DrafterKit], Drafter]:
    module, attribute = DRAFTERS[name].split(":")
    drafter: Callable[[DrafterKit], Drafter] = getattr(importlib.import_module(module), attribute)
    return drafter
