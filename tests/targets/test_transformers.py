"""Networks that transformers runs: the plain text under every drafter, and what is refused."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

from forerun.config import Generation
from forerun.core.noise import Noise
from forerun.core.proposal import Point
from forerun.core.tree import ROOT, Draft, Node
from forerun.drafters.memory import Memoryless
from forerun.drafters.protocol import Drafter, DraftRequest
from forerun.drafters.table import DrafterKit, make_drafter
from forerun.engine.request import Ask
from forerun.engine.scheduler import Scheduler
from forerun.errors import (
    CapabilityError,
    ModelFileError,
    NotEnoughMemoryError,
    OptionError,
    UnsupportedModelError,
)
from forerun.events import Result
from forerun.targets.protocol import Row, Target
from targets.tiny_networks import tiny_network

pytestmark = pytest.mark.judge

TREES = ("llama", "qwen2", "qwen3", "mistral", "gemma2", "gemma3", "gpt2", "gpt_neox", "opt", "phi")
CHAINS = ("falcon", "bloom", "gpt_neo")
PROMPTS = ((5, 6, 7, 5, 6, 7, 5, 6), (9,), (3, 4, 3, 4, 3, 4, 3), (11, 12, 13, 14))
LENGTH = 10
NEAR = 1e-3


class Silent:
    """Texts are compared by their tokens."""

    def push(self, token: int) -> str:
        """Return nothing."""
        return ""

    def flush(self) -> str:
        """Return nothing."""
        return ""


class Told(Memoryless):
    """Knows what will be written; each guess comes after a wrong one, and each third is wrong."""

    name = "told"

    def __init__(self, texts: Mapping[tuple[int, ...], Sequence[int]]) -> None:
        self._texts = texts

    def guess(self, request: DraftRequest) -> Draft:
        """Return the next tokens, each behind a wrong one where there is room for two."""
        prompt = tuple(request.tokens[: request.prompt_length])
        at = len(request.tokens) - request.prompt_length
        nodes: list[Node] = []
        parent = ROOT
        for i, token in enumerate(self._texts[prompt][at : at + request.length]):
            for guess in ((token + 1) % 61, token)[request.width < 2 :]:
                guess = guess if (at + i) % 3 else (guess + 2) % 61
                nodes.append(Node(guess, parent, Point(guess), self.name))
            parent = len(nodes) - 1
        return Draft(tuple(nodes))


@cache
def target_of(family: str, **changes: Any) -> Any:
    from forerun.targets.transformers import TransformersTarget

    return TransformersTarget(tiny_network(family, **changes))


def run(
    target: Target, prompts: Sequence[Sequence[int]], drafter: Drafter | None = None, **options: Any
) -> list[Result]:
    """Write on from each prompt, all at once."""
    scheduler = Scheduler(target, lambda _: drafter)
    given = Generation(max_tokens=LENGTH, drafter="none" if drafter is None else "own", **options)
    asks = [Ask(tuple(prompt), given, 7, (), Silent()) for prompt in prompts]
    results = [event for event in scheduler.run(asks) if isinstance(event, Result)]
    return sorted(results, key=lambda result: result.request)


def written(
    target: Target, prompts: Sequence[Sequence[int]], drafter: Drafter | None = None, **options: Any
) -> dict[tuple[int, ...], list[int]]:
    """Write on from each prompt, all at once, and return the tokens."""
    results = run(target, prompts, drafter, **options)
    pairs = zip(prompts, results, strict=True)
    return {tuple(prompt): list(result.token_ids) for prompt, result in pairs}


def gap_at(target: Target, text: Sequence[int], temperature: float) -> float:
    """Return by how much the token after a text wins."""
    sequence = target.open(text[:-1])
    logits = target.score([Row(sequence, text[-1], len(text) - 1, -1)]).logits[0].astype(float)
    target.free(sequence)
    if temperature:
        logits = logits / temperature + Noise(7).gumbel(len(text), target.vocab_size)
    second, first = np.sort(logits)[-2:]
    return float(first - second)


def assert_same_texts(
    target: Target,
    found: Mapping[tuple[int, ...], list[int]],
    plain: Mapping[tuple[int, ...], list[int]],
    temperature: float,
) -> None:
    """Assert that texts are equal, or part where the two best tokens are within rounding."""
    for prompt, text in found.items():
        assert len(text) == LENGTH
        parts = [i for i in range(LENGTH) if text[i] != plain[prompt][i]]
        if parts:
            assert gap_at(target, [*prompt, *text[: parts[0]]], temperature) < NEAR


def drafters_for(target: Target, plain: Mapping[tuple[int, ...], list[int]]) -> list[Drafter]:
    def nobody() -> Target:
        raise AssertionError

    kit = DrafterKit(vocab_size=target.vocab_size, open_draft_model=nobody, target=target)
    names = ["lookup", "random", *(["early_exit"] if target.capabilities.layers else [])]
    made = [make_drafter(name, kit) for name in names]
    return [Told(plain), *(drafter for drafter in made if drafter is not None)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("family", [*TREES, *CHAINS])
def test_a_draft_changes_no_text(family: str, temperature: float) -> None:
    """One by one and four at once, in chains and in trees, past the window of those that slide."""
    target = target_of(family)
    plain = plain_texts(target, temperature)
    told, lookup, *_ = drafters_for(target, plain)
    for drafter, width in ((lookup, 1), (told, 2 if target.capabilities.trees else 1)):
        how = {"temperature": temperature, "draft_length": 3, "draft_width": width}
        assert_same_texts(target, written(target, PROMPTS, drafter, **how), plain, temperature)


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("family", [*TREES, *CHAINS])
def test_no_drafter_changes_a_text(family: str, temperature: float) -> None:
    """Every drafter, alone and four texts at once, chains and trees."""
    target = target_of(family)
    plain = plain_texts(target, temperature)
    for drafter in drafters_for(target, plain):
        for width in (1, 2)[: 1 + target.capabilities.trees]:
            how = {"temperature": temperature, "draft_length": 3, "draft_width": width}
            found = written(target, PROMPTS, drafter, **how)
            found |= written(target, PROMPTS[:1], drafter, **how)
            assert_same_texts(target, found, plain, temperature)


def plain_texts(target: Target, temperature: float) -> dict[tuple[int, ...], list[int]]:
    """Write each text alone, without drafts."""
    plain: dict[tuple[int, ...], list[int]] = {}
    for prompt in PROMPTS:
        plain |= written(target, [prompt], temperature=temperature)
    assert len({tuple(text) for text in plain.values()}) == len(PROMPTS)
    return plain


@pytest.mark.parametrize("family", [*TREES, *CHAINS])
def test_what_a_family_can_do_is_found_out(family: str) -> None:
    """Trees where masks and positions are heeded, chains elsewhere; layers wherever they are."""
    capabilities = target_of(family).capabilities
    assert capabilities.trees == (family in TREES)
    assert capabilities.exactness == "same law"
    assert capabilities.layers == 2
    assert capabilities.devices == ("cpu",)


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3", "bloom", "opt"])
def test_texts_are_those_of_generate(family: str) -> None:
    """With transformers' own cache, its own masks and its own loop."""
    import torch

    target = target_of(family)
    plain = written(target, PROMPTS)
    for prompt in plain:
        ids = target.model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=LENGTH,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        assert_same_texts(target, {prompt: ids[0, len(prompt) :].tolist()}, plain, 0.0)


def test_half_precision_goes_the_same_way() -> None:
    """A network in bfloat16 is probed, scored and told in float32."""
    import torch

    from forerun.targets.transformers import TransformersTarget

    target = TransformersTarget(tiny_network("llama").to(torch.bfloat16))
    assert target.capabilities.trees
    sequence = target.open([1, 2])
    logits = target.score([Row(sequence, 3, 2, -1)]).logits
    exact = target_of("llama")
    other = exact.open([1, 2])
    expected = exact.score([Row(other, 3, 2, -1)]).logits
    exact.free(other)
    assert logits.dtype == np.float32
    assert 0 < np.abs(logits - expected).mean() < 0.05 * np.abs(expected).mean()


@contextmanager
def refused(kind: type[Exception], match: str) -> Iterator[None]:
    with pytest.raises(kind, match=match):
        yield


@pytest.mark.parametrize(
    ("family", "kept"),
    [
        ("mamba", "recurrent"),
        ("jamba", "recurrent"),
        ("bamba", "linear_attention"),
        ("falcon_h1", "hybrid"),
        ("lfm2", "conv"),
        ("qwen3_next", "linear_attention"),
    ],
)
def test_state_that_cannot_be_rolled_back_is_refused(family: str, kept: str) -> None:
    """Recurrent and hybrid networks, with what they keep."""
    with refused(UnsupportedModelError, f"{kept}.* can't be rolled back to a token"):
        target_of(family)


def test_networks_that_cannot_be_targets_are_refused() -> None:
    """Without a cache, with an encoder, being trained, without weights, or none at all."""
    import torch

    from forerun.targets.transformers import TransformersTarget

    with refused(UnsupportedModelError, "takes no cache"):
        target_of("openai_gpt")
    with refused(OptionError, "training mode"):
        TransformersTarget(tiny_network("llama").train())
    with refused(OptionError, "no model"):
        TransformersTarget(torch.nn.Linear(2, 2))
    with refused(ModelFileError, "not loaded"):
        TransformersTarget(tiny_network("llama").to("meta"))
    with refused(OptionError, "positions for 64"):
        TransformersTarget(tiny_network("llama"), context=65)


def test_a_network_that_is_not_what_it_says_is_refused() -> None:
    """Passes that differ from the plain forward: here, a layer that looks at the cache's length."""
    from forerun.targets.transformers import TransformersTarget

    network = tiny_network("llama")
    norm = network.model.norm

    def shift(_: Any, __: Any, output: Any) -> Any:
        return output + (output.roll(1, -1) if output.shape[1] == 1 else 0)

    norm.register_forward_hook(shift)
    with refused(UnsupportedModelError, "not what its plain forward says"):
        TransformersTarget(network)


def test_rope_that_changes_with_the_length_ends_before_it_changes() -> None:
    """Stored keys would no longer fit, and the longest text would decide for the others."""
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    rope["original_max_position_embeddings"] = 24
    assert target_of("llama").context_length == 64
    network = tiny_network("llama", rope_parameters=rope)
    from forerun.targets.transformers import TransformersTarget

    assert TransformersTarget(network).context_length == 24


def test_branches_are_refused_where_chains_are_all() -> None:
    """By the capabilities and by the pass; the sequence goes on."""
    target = target_of("bloom")
    sequence = target.open([1, 2])
    with refused(CapabilityError, "chains"):
        target.score([Row(sequence, 3, 2, -1), Row(sequence, 4, 2, -1)])
    assert target.score([Row(sequence, 3, 2, -1)]).logits.shape == (1, 61)
    target.free(sequence)


def test_the_users_model_is_left_as_it_was() -> None:
    """Whatever is asked: its modules, its configuration, its weights, its hooks."""
    from forerun.targets.transformers import TransformersTarget

    network = tiny_network("llama")
    config = copy.deepcopy(network.config.to_dict())
    modules = dict(network.named_modules())
    weights = {name: each.clone() for name, each in network.named_parameters()}
    target = TransformersTarget(network)
    sequence = target.open([1, 2, 3])
    target.score([Row(sequence, 4, 3, -1)], layers=[0, 1], until=1)
    target.score([Row(sequence, 4, 3, -1)], layers=[0, 1, 2])
    assert network.config.to_dict() == config
    assert dict(network.named_modules()) == modules
    assert all((weights[name] == each).all() for name, each in network.named_parameters())
    hooks = [(m._forward_hooks, m._forward_pre_hooks) for m in modules.values()]
    assert not any(after or before for after, before in hooks)


def test_hidden_states_are_what_enters_a_layer() -> None:
    """As transformers itself tells them; the last is what the final norm makes its own of."""
    import torch

    target = target_of("llama")
    text = [3, 1, 4, 1, 5]
    with torch.no_grad():
        told = target.model(torch.tensor([text]), output_hidden_states=True).hidden_states
    sequence = target.open(text[:-1])
    hidden = target.score([Row(sequence, text[-1], 4, -1)], layers=[0, 1, 2]).hidden
    target.free(sequence)
    for layer in (0, 1):
        np.testing.assert_allclose(hidden[layer][0], told[layer][0, -1], atol=1e-5)
    with torch.no_grad():
        normed = target.model.model.norm(torch.from_numpy(hidden[2]))
    np.testing.assert_allclose(normed[0], told[2][0, -1], atol=1e-4)


def test_a_pass_that_is_too_large_is_run_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the device has no room for all at once; and a single one that fails holds nothing."""
    import torch

    target = target_of("llama")
    plain = written(target, PROMPTS)
    network, most = target._network, 2
    sizes: list[int] = []

    def small(batch: Any, *given: Any, **how: Any) -> Any:
        sizes.append(len(batch.tokens))
        if sizes[-1] > most:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return network(batch, *given, **how)

    monkeypatch.setattr(target, "_network", _Replaced(network, small))
    assert written(target, PROMPTS) == plain
    assert {4, 2} <= set(sizes)
    most = 0
    sequence = target._sequences.open()
    with refused(NotEnoughMemoryError, "1 rows? need"):
        target.score([Row(sequence, 1, 0, -1)])
    most = 2
    assert target.score([Row(sequence, 1, 0, -1)]).logits.shape == (1, 61)
    target.free(sequence)


def test_a_prompt_that_is_too_long_for_one_pass_is_read_in_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the device has no room for so many rows; what can't go on is given back."""
    import torch

    target = target_of("llama")
    prompt = [*range(2, 32)]
    plain = logits_after(target, prompt)
    network, most = target._network, 4
    sizes: list[int] = []

    def small(batch: Any, *given: Any, **how: Any) -> Any:
        if batch.tokens.size > most:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        sizes.append(batch.tokens.size)
        return network(batch, *given, **how)

    monkeypatch.setattr(target, "_network", _Replaced(network, small))
    np.testing.assert_allclose(logits_after(target, prompt), plain, atol=1e-4)
    assert max(sizes) <= 4
    most = 0
    with refused(NotEnoughMemoryError, "1 rows? need"):
        target.open(prompt)
    assert len(target._sequences) == 0


def logits_after(target: Any, prompt: Sequence[int]) -> Any:
    """What is said of the token after a prompt."""
    sequence = target.open(prompt[:-1])
    found = target.score([Row(sequence, prompt[-1], len(prompt) - 1, -1)]).logits[0]
    target.free(sequence)
    return found


def test_keys_that_find_no_room_end_one_text_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Growing ends in an error of ours and harms nothing; the others are written to their ends."""
    import torch

    from forerun.targets import transformers_slots
    from forerun.targets.transformers import TransformersTarget

    target = TransformersTarget(tiny_network("llama"))
    plain = written(target, PROMPTS)
    target = TransformersTarget(tiny_network("llama"))
    scheduler = Scheduler(target, lambda _: None)
    enlarged, room = transformers_slots._enlarged, 3
    asked: list[int] = []

    def small(old: Any, slots: int, capacity: int) -> Any:
        asked.append(slots)
        if slots > room:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return enlarged(old, slots, capacity)

    monkeypatch.setattr(transformers_slots, "_enlarged", small)
    for prompt in PROMPTS:
        given = Generation(max_tokens=LENGTH, drafter="none")
        scheduler.submit(Ask(prompt, given, 7, (), Silent()))
    with refused(NotEnoughMemoryError, "4 texts of 64 tokens"):
        scheduler.step()
    assert 4 in asked  # twice as many at first, then as many as are needed
    results = []
    while not scheduler.is_idle:
        results += [event for event in scheduler.step() if isinstance(event, Result)]
    results.sort(key=lambda result: result.request)
    assert [list(each.token_ids) for each in results] == [plain[p] for p in PROMPTS[:3]]


class _Replaced(NamedTuple):
    """A network that is called otherwise."""

    network: Any
    call: Any

    def __call__(self, *given: Any, **how: Any) -> Any:
        return self.call(*given, **how)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.network, name)


def test_slots_are_used_again() -> None:
    """Opened and freed in any order, sequences lie side by side from the first slot on."""
    target = target_of("qwen2")
    names = [target.open([1, 2, n]) for n in range(5)]
    for name in (names[1], names[3], names[0]):
        target.free(name)
    kept = [target._sequences._known(name).slots.slot for name in (names[2], names[4])]
    assert sorted(kept) == [0, 1]
    for n in (2, 4):
        sequence = target.open([1, 2, n])
        rows = [Row(names[n], 9, 3, -1), Row(sequence, 9, 3, -1)]
        first, second = target.score(rows).logits
        np.testing.assert_allclose(first, second, atol=1e-4)
        target.free(sequence)
        target.free(names[n])


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_the_same_bits_at_a_price(family: str) -> None:
    """Tokens and log-probabilities are equal, whoever drafts, alone or beside other texts."""
    from forerun.targets.transformers import TransformersTarget

    target = TransformersTarget(tiny_network(family), bitwise=True)
    assert target.capabilities.exactness == "bitwise"
    assert not target.capabilities.trees
    plain: dict[tuple[int, ...], list[Any]] = {}
    for prompt in PROMPTS:
        plain |= told(target, [prompt])
    texts = {prompt: [token for token, _ in text] for prompt, text in plain.items()}
    for drafter in (Told(texts), None):
        assert told(target, PROMPTS, drafter) == plain


def told(
    target: Target, prompts: Sequence[tuple[int, ...]], drafter: Drafter | None = None
) -> dict[tuple[int, ...], list[Any]]:
    """Write on from each prompt at temperature 1, and return tokens and log-probabilities."""
    results = run(target, prompts, drafter, temperature=1.0, draft_length=5)
    return {
        prompt: [(token.token, token.logprob) for token in result.tokens]
        for prompt, result in zip(prompts, results, strict=True)
    }


def test_the_same_bits_where_they_cannot_be_had() -> None:
    """A network that takes no masks, or whose attention is not torch's own."""
    from forerun.targets.transformers import TransformersTarget

    for network in (tiny_network("bloom"), tiny_network("llama", attn_implementation="eager")):
        with refused(CapabilityError, "same bits"):
            TransformersTarget(network, bitwise=True)


def test_rows_stand_in_the_column_of_their_position() -> None:
    """Cut where a call ends; every row once, in order."""
    from forerun.targets.transformers_fixed import ROWS, parts_of

    for position in range(20):
        for count in range(1, 30):
            at = 0
            for part in parts_of(position, count):
                assert part.first == at
                assert part.column == (position + at) % ROWS
                assert 0 < part.rows <= ROWS - part.column
                at += part.rows
            assert at == count
