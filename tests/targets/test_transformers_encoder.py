"""Networks with an encoder: the plain text under every drafter, and transformers' own text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from forerun.config import Generation
from forerun.core.noise import Noise
from forerun.drafters.protocol import Drafter
from forerun.drafters.table import DrafterKit, make_drafter
from forerun.engine.request import Ask
from forerun.engine.scheduler import Scheduler
from forerun.errors import CapabilityError, PromptError, UnsupportedModelError
from forerun.events import Result
from forerun.targets.protocol import Row, Target
from targets.test_transformers import LENGTH, NEAR, Silent, Told
from targets.tiny_networks import tiny_network, tiny_pair

pytestmark = pytest.mark.judge

FAMILIES = ("t5", "bart", "marian")
OTHERS = ("mbart", "pegasus", "m2m_100")
SOURCES = ((5, 6, 7, 5, 6, 7, 5, 6), (9,), (3, 4, 3, 4, 3, 4, 3), (11, 12, 13, 14))
Texts = Mapping[tuple[int, ...], list[int]]


@cache
def target_of(family: str, **changes: Any) -> Any:
    from forerun.targets.transformers import TransformersTarget

    bitwise = changes.pop("bitwise", False)
    return TransformersTarget(tiny_network(family, **changes), bitwise=bitwise)


@cache
def pair_of(decoder: str, width: int = 32) -> Any:
    from forerun.targets.transformers import TransformersTarget

    return TransformersTarget(tiny_pair(decoder, width=width))


def run(
    target: Target,
    sources: Sequence[tuple[int, ...]],
    drafter: Drafter | None = None,
    **options: Any,
) -> list[Result]:
    """Answer each source, all at once."""
    encoder = target.capabilities.encoder
    assert encoder is not None
    scheduler = Scheduler(target, lambda _: drafter)
    given = Generation(max_tokens=LENGTH, drafter="none" if drafter is None else "own", **options)
    asks = [Ask(encoder.start, given, 7, (), Silent(), source=source) for source in sources]
    results = [event for event in scheduler.run(asks) if isinstance(event, Result)]
    return sorted(results, key=lambda result: result.request)


def written(target: Target, sources: Sequence[tuple[int, ...]], *given: Any, **how: Any) -> Texts:
    """Answer each source, all at once, and return the tokens."""
    results = run(target, sources, *given, **how)
    return {s: list(result.token_ids) for s, result in zip(sources, results, strict=True)}


def plain_texts(target: Target, temperature: float) -> Texts:
    """Write each text alone, without drafts."""
    texts: dict[tuple[int, ...], list[int]] = {}
    for source in SOURCES:
        texts.update(written(target, [source], temperature=temperature))
    assert len({tuple(text) for text in texts.values()}) == len(SOURCES)
    return texts


class Knowing(Told):
    """Knows each source's answer; each third of its guesses is wrong."""

    def __init__(self, texts: Texts) -> None:
        super().__init__(texts)

    def guess(self, request: Any) -> Any:
        """As if the source were the prompt."""
        tokens = (*request.source, *request.tokens[request.prompt_length :])
        return super().guess(_Asked(tokens, len(request.source), request.length, request.width))


class _Asked:
    def __init__(self, tokens: tuple[int, ...], prompt_length: int, length: int, width: int):
        self.tokens, self.prompt_length = tokens, prompt_length
        self.length, self.width = length, width


def gap_at(target: Target, source: Sequence[int], text: Sequence[int], temperature: float) -> float:
    """Return by how much the token after a text wins."""
    sequence = target.open(text[:-1], source)
    logits = target.score([Row(sequence, text[-1], len(text) - 1, -1)]).logits[0].astype(float)
    target.free(sequence)
    if temperature:
        logits = logits / temperature + Noise(7).gumbel(len(text), target.vocab_size)
    second, first = np.sort(logits)[-2:]
    return float(first - second)


def assert_same_texts(target: Target, found: Texts, plain: Texts, temperature: float) -> None:
    """Assert that texts are equal, or part where the two best tokens are within rounding."""
    encoder = target.capabilities.encoder
    assert encoder is not None
    for source, text in found.items():
        assert len(text) == LENGTH
        parts = [i for i in range(LENGTH) if text[i] != plain[source][i]]
        if parts:
            whole = [*encoder.start, *text[: parts[0]]]
            assert gap_at(target, source, whole, temperature) < NEAR


def drafters_for(target: Target, plain: Texts, draft_model: Any = None) -> list[Drafter]:
    def opened() -> Target:
        assert draft_model is not None
        kept: Target = draft_model
        return kept

    kit = DrafterKit(vocab_size=target.vocab_size, open_draft_model=opened, target=target)
    names = ["lookup", "suffix", "early_exit", *(["model"] if draft_model else [])]
    made = [make_drafter(name, kit) for name in names]
    return [Knowing(plain), *(drafter for drafter in made if drafter is not None)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("family", FAMILIES)
def test_no_drafter_changes_a_text(family: str, temperature: float) -> None:
    """Every drafter, alone and four texts of different sources at once, in chains and in trees."""
    target = target_of(family)
    plain = plain_texts(target, temperature)
    model = target_of(family, seed=1)
    for drafter in drafters_for(target, plain, model):
        for width in (1, 2):
            how = {"temperature": temperature, "draft_length": 3, "draft_width": width}
            found = written(target, SOURCES, drafter, **how)
            assert_same_texts(target, found, plain, temperature)
    how = {"temperature": temperature, "draft_length": 3, "draft_width": 2}
    alone = written(target, SOURCES[:1], Knowing(plain), **how)
    assert_same_texts(target, alone, plain, temperature)


@pytest.mark.parametrize("family", [*FAMILIES, *OTHERS])
def test_texts_are_those_of_generate(family: str) -> None:
    """With transformers' own cache and its own loop; and drafts in trees are kept by the way."""
    assert_as_generated(target_of(family))


@pytest.mark.parametrize(("decoder", "width"), [("bert", 32), ("gpt2", 32), ("bert", 24)])
def test_an_encoder_and_a_decoder_of_other_families(decoder: str, width: int) -> None:
    """They write as by `generate`, also where states are made as wide as the decoder first."""
    target = pair_of(decoder, width)
    assert target.capabilities.encoder.context_length == 64
    assert_as_generated(target)


def assert_as_generated(target: Any) -> None:
    """Assert that texts are `generate`'s, with drafts in trees that are kept in part."""
    import torch

    assert target.capabilities.trees
    plain = written(target, SOURCES)
    drafted = run(target, SOURCES, Knowing(plain), draft_length=3, draft_width=2)
    assert sum(result.stats.accepted for result in drafted) > LENGTH
    for source in plain:
        ids = target.model.generate(
            torch.tensor([source]),
            attention_mask=torch.ones(1, len(source), dtype=torch.long),
            max_new_tokens=LENGTH,
            do_sample=False,
            eos_token_id=None,
        )
        begun = len(target.capabilities.encoder.start)
        assert_same_texts(target, {source: ids[0, begun:].tolist()}, plain, 0.0)


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_the_same_bits_at_a_price(family: str) -> None:
    """Tokens and log-probabilities are equal, whoever drafts, alone or beside other texts."""
    target = target_of(family, bitwise=True)
    assert target.capabilities.exactness == "bitwise"

    def told(sources: Sequence[tuple[int, ...]], drafter: Drafter | None = None) -> list[Any]:
        results = run(target, sources, drafter, temperature=1.0, draft_length=5)
        return [[(token.token, token.logprob) for token in each.tokens] for each in results]

    plain = [told([source])[0] for source in SOURCES]
    texts = {s: [token for token, _ in text] for s, text in zip(SOURCES, plain, strict=True)}
    for drafter in (Knowing(texts), None):
        assert told(SOURCES, drafter) == plain


def test_positions_that_are_not_heeded_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them a tree's rows come out wrong, and so do a shorter text's beside a longer."""
    from forerun.targets import transformers_network
    from forerun.targets.transformers import TransformersTarget

    monkeypatch.setattr(transformers_network, "told_positions", lambda *_: None)
    with pytest.raises(UnsupportedModelError, match="not what its plain forward says"):
        TransformersTarget(tiny_network("bart"))
    chains = TransformersTarget(tiny_network("t5"))  # by distance alone: aligned they are right
    assert not chains.capabilities.trees
    plain = plain_texts(target_of("t5"), 0.0)
    found = written(chains, SOURCES, Knowing(plain), draft_length=3)
    assert_same_texts(chains, found, plain, 0.0)


def test_a_source_is_read_once() -> None:
    """For all texts that have it, at the same time, and for forks; then it is let go."""
    target = target_of("bart")
    reads: list[int] = []
    handle = target.model.get_encoder().register_forward_pre_hook(
        lambda *_, **__: reads.append(1), with_kwargs=True
    )
    try:
        first, second = target.open([2], [5, 6]), target.open([2, 4], [5, 6])
        fork = target.fork(second)
        assert len(reads) == 1
        rows = [Row(first, 4, 1, -1), Row(fork, 8, 2, -1), Row(second, 8, 2, -1)]
        one, two, three = target.score(rows).logits
        np.testing.assert_allclose(two, three, atol=1e-4)
        assert np.abs(one - two).max() > 0.1
        for name in (first, second, fork):
            target.free(name)
        target.free(target.open([2], [5, 6]))
        assert len(reads) == 2
    finally:
        handle.remove()


def test_what_an_encoder_cannot_read_is_refused() -> None:
    """Nothing, too much, a token that it does not know; and a source for no encoder."""
    target = target_of("bart")
    for source, match in (((), "empty"), ((1,) * 65, "65 tokens"), ((1, 61), "token 61")):
        with pytest.raises(PromptError, match=match):
            target.open([2], source)
        with pytest.raises(PromptError, match=match):
            run(target, [source])
    scheduler = Scheduler(target, lambda _: None)
    ask = Ask((2,), Generation(drafter="none"), 7, (), Silent())
    with pytest.raises(PromptError, match="nothing to read"):
        scheduler.submit(ask)
    with pytest.raises(CapabilityError, match="no encoder"):
        target_of("gpt2").open([2], [5])


def test_settings_of_a_model_are_heeded_or_refused() -> None:
    """What begins a text, what it never holds; what is not done here is said."""
    from forerun.targets.transformers import TransformersTarget

    network = tiny_network("mbart")
    network.generation_config.forced_bos_token_id = 9
    network.generation_config.suppress_tokens = [4]
    network.generation_config.bad_words_ids = [[0]]
    encoder = TransformersTarget(network).capabilities.encoder
    assert encoder is not None
    assert (encoder.start, encoder.banned, encoder.context_length) == ((2, 9), (4, 0), 64)
    for name, value in (("bad_words_ids", [[3, 4]]), ("begin_suppress_tokens", [3])):
        network = tiny_network("mbart")
        setattr(network.generation_config, name, value)
        with pytest.raises(UnsupportedModelError, match=name):
            TransformersTarget(network)
    wrongs = ("x", [3], -1, 10**9, 1.5)
    damaged = [("forced_bos_token_id", wrong) for wrong in wrongs]
    damaged += [
        ("decoder_start_token_id", -1),
        ("suppress_tokens", "x"),
        ("bad_words_ids", [["x"]]),
    ]
    for name, value in damaged:
        network = tiny_network("mbart")
        setattr(network.generation_config, name, value)
        with pytest.raises(UnsupportedModelError, match="begin with"):
            TransformersTarget(network)
    network = tiny_network("mbart", decoder_start_token_id=None, bos_token_id=None)
    with pytest.raises(UnsupportedModelError, match="begin with"):
        TransformersTarget(network)


def test_the_users_model_is_left_as_it_was() -> None:
    """Whatever is asked: its modules, its weights, its hooks, its methods."""
    from forerun.targets.transformers import TransformersTarget

    network = tiny_network("t5")
    modules = dict(network.named_modules())
    known = {name: set(vars(module)) for name, module in modules.items()}
    weights = {name: each.clone() for name, each in network.named_parameters()}
    target = TransformersTarget(network)
    sequence = target.open([0], [5, 6])
    target.score([Row(sequence, 4, 1, -1)], layers=[0, 1], until=1)
    assert dict(network.named_modules()) == modules
    assert {name: set(vars(module)) for name, module in modules.items()} == known
    assert all((weights[name] == each).all() for name, each in network.named_parameters())
