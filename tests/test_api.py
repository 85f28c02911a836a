"""The public face, over a tiny model of random weights."""

from __future__ import annotations

import copy
import pickle
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun
from forerun import native
from forerun.api import LanguageModel
from forerun.core.tree import Draft
from forerun.drafters import table
from forerun.drafters.draft_model import DraftModelAtHand
from forerun.drafters.memory import Memoryless
from forerun.drafters.protocol import Drafter, DraftRequest
from forerun.errors import (
    DownloadError,
    EngineError,
    OptionError,
    PromptError,
    StoreFileError,
    TemplateError,
    UsageError,
)
from forerun.events import RoundEvent
from forerun.targets.protocol import Scores
from models.tiny_gguf import Tiny

PROMPT = [5, 6, 7, 5, 6, 7, 5, 6]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("api")


@pytest.fixture(scope="module")
def lm(folder: Path) -> LanguageModel:
    return forerun.load(str(Tiny(layers=4).write(folder / "tiny.gguf")))


def with_template(folder: Path, template: str) -> LanguageModel:
    metadata = {"tokenizer.chat_template": template}
    return forerun.load(str(Tiny(metadata=metadata).write(folder / "templated.gguf")))


@pytest.mark.parametrize("drafter", ["suffix", "lookup", "bigram", "model", "scripted", "random"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_any_drafter_leaves_the_text_as_it_is(
    lm: LanguageModel, drafter: str, temperature: float
) -> None:
    """Tokens and log-probabilities are plain decoding's, bit for bit, and something was drafted."""
    asked = {"temperature": temperature, "seed": 3, "max_tokens": 24, "ignore_eos": True}
    plain = lm.generate(PROMPT, drafter="none", **asked)
    result = lm.generate(PROMPT, drafter=drafter, draft_length=4, **asked)
    assert result.token_ids == plain.token_ids
    assert [t.logprob for t in result.tokens] == [t.logprob for t in plain.tokens]
    assert result.stats.drafted > 0


def test_a_batch_writes_what_each_prompt_gets_alone(lm: LanguageModel) -> None:
    """Prompts of different lengths in the same passes do not see each other."""
    prompts = [PROMPT, [9], [1, 2, 3] * 9]
    asked = {"temperature": 0.9, "seed": 11, "max_tokens": 17, "ignore_eos": True}
    batch = lm.generate_batch(prompts, **asked)
    alone = [lm.generate(prompt, **asked) for prompt in prompts]
    assert [r.token_ids for r in batch] == [r.token_ids for r in alone]


def test_streams_in_several_threads_write_what_they_would_alone(lm: LanguageModel) -> None:
    """Threads that stream from one model share passes, not texts."""
    asked = {"temperature": 1.0, "max_tokens": 20, "ignore_eos": True}
    alone = [lm.generate(PROMPT, seed=seed, **asked).token_ids for seed in range(4)]
    found: dict[int, tuple[int, ...]] = {}

    def write(seed: int) -> None:
        found[seed] = tuple(t.token for t in lm.stream(PROMPT, seed=seed, **asked))

    threads = [threading.Thread(target=write, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[seed] for seed in range(4)] == alone


def test_a_stream_left_early_keeps_its_text_and_gives_everything_back(lm: LanguageModel) -> None:
    """Breaking out of a stream interrupts it; the model goes on working, and so does `result`."""
    stream = lm.stream(PROMPT, max_tokens=50, ignore_eos=True)
    for token in stream:
        if token.index == 4:
            break
    assert stream.result.finish_reason == "interrupted"
    written = stream.result.token_ids
    rest = [token.token for token in stream]  # what its last round had brought besides
    assert written[5:] == tuple(rest)
    assert list(stream) == []
    assert lm.generate(PROMPT, max_tokens=3, ignore_eos=True).stats.tokens == 3


def test_a_stream_read_again_ends_at_once(lm: LanguageModel) -> None:
    """A stream that was read to its end has nothing more to tell, and its result stays."""
    stream = lm.stream(PROMPT, max_tokens=5, ignore_eos=True)
    assert len(list(stream)) == 5
    assert list(stream) == []
    assert stream.result.stats.tokens == 5


def test_two_streams_read_in_turns_share_passes(lm: LanguageModel) -> None:
    """Reading one stream advances the other; neither text changes by it."""
    asked = {"temperature": 1.0, "max_tokens": 12, "ignore_eos": True}
    alone = [lm.generate(PROMPT, seed=seed, **asked).token_ids for seed in (1, 2)]
    streams = [lm.stream(PROMPT, seed=seed, **asked) for seed in (1, 2)]
    pairs = list(zip(*(iter(stream) for stream in streams), strict=True))
    assert [tuple(t.token for t in tokens) for tokens in zip(*pairs, strict=True)] == alone


def test_without_a_seed_texts_differ_and_the_seed_is_reported(lm: LanguageModel) -> None:
    """A fresh seed is drawn each time; given back, it gives the same text again."""
    asked = {"temperature": 1.0, "max_tokens": 30, "ignore_eos": True}
    first, second = lm.generate(PROMPT, **asked), lm.generate(PROMPT, **asked)
    assert first.seed != second.seed  # equal once in 2^64
    assert lm.generate(PROMPT, seed=first.seed, **asked).token_ids == first.token_ids


def test_lenience_is_marked_as_not_exact(lm: LanguageModel) -> None:
    """Only rule lenient says so, in `exact` and in `guarantee`."""
    lenient = lm.generate(PROMPT, rule="lenient", lenience=0.3, temperature=1.0, max_tokens=5)
    assert (lenient.exact, lenient.guarantee) == (False, "lenient")
    exact = lm.generate(PROMPT, rule="block", temperature=1.0, max_tokens=5)
    assert (exact.exact, exact.guarantee) == (True, "same law")
    default = lm.generate(PROMPT, temperature=1.0, max_tokens=5)
    assert (default.exact, default.guarantee) == (True, "bitwise")


def test_stats_are_the_sum_of_all_texts(folder: Path) -> None:
    """`lm.stats` counts every finished text once."""
    lm = forerun.load(str(folder / "tiny.gguf")) if (folder / "tiny.gguf").exists() else None
    lm = lm or forerun.load(str(Tiny(layers=4).write(folder / "tiny.gguf")))
    results = lm.generate_batch([PROMPT, [4]], max_tokens=6, ignore_eos=True)
    assert lm.stats.tokens == sum(r.stats.tokens for r in results) == 12
    assert lm.stats.drafted == sum(r.stats.drafted for r in results)


def test_what_was_read_of_a_text_does_not_change(lm: LanguageModel) -> None:
    """Statistics and a result are as they were when they were asked for."""
    stream = lm.stream(PROMPT, max_tokens=12, ignore_eos=True, drafter="none")
    tokens = iter(stream)
    next(tokens)
    before, sums = stream.result, lm.stats
    for _ in tokens:
        pass
    assert (before.stats.tokens, len(before.token_ids)) == (1, 1)
    assert lm.stats.tokens == sums.tokens + 12


def test_a_result_is_never_read_in_mid_round(lm: LanguageModel) -> None:
    """Another thread that asks for the text so far gets that of a whole round."""
    stream = lm.stream(PROMPT, drafter="none", max_tokens=6, ignore_eos=True)
    seen: list[int] = []
    reader = threading.Thread(target=lambda: seen.append(len(stream.result.token_ids)))
    score = lm.target.score

    def score_while_read(*args: Any, **options: Any) -> Scores:
        if reader.ident is None and stream.result.token_ids:
            reader.start()
            reader.join(0.05)
            assert reader.is_alive()  # waits for this round
        return score(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lm.target, "score", score_while_read)
        rounds = [event.emitted for event in stream.events() if isinstance(event, RoundEvent)]
    reader.join()
    assert seen[0] in np.cumsum(rounds)


@pytest.mark.parametrize("prompt", ["", "  \n", [], None, 7, [1.5], [True], [{"role": "user"}, 3]])
def test_what_is_no_prompt_is_refused(lm: LanguageModel, prompt: object) -> None:
    """Empty and mixed prompts raise a PromptError that shows them."""
    with pytest.raises(PromptError):
        lm.generate(prompt)  # type: ignore[arg-type]


@pytest.mark.parametrize("prompt", [[300], [-1], [0] * 128])
def test_prompts_outside_of_vocabulary_or_context_are_refused(
    lm: LanguageModel, prompt: list[int]
) -> None:
    """The tiny model has 300 tokens and a context of 128, of which one must stay free."""
    with pytest.raises(PromptError):
        lm.generate(prompt)


def test_one_text_is_no_batch(lm: LanguageModel) -> None:
    """A string is a sequence of letters, and surely not meant as one prompt a letter."""
    with pytest.raises(PromptError, match="one text"):
        lm.generate_batch("hi")


def test_two_spellings_of_a_drafter_are_one(lm: LanguageModel) -> None:
    """A drafter, and the model it may hold, is opened once, however it is spelt."""
    for spec in ("suffix", "auto", " suffix "):
        lm.generate(PROMPT, drafter=spec, max_tokens=2)
    assert len([d for d in lm._drafters.values() if d is not None and d.name == "suffix"]) == 1


def test_what_belongs_to_a_loaded_model_says_so() -> None:
    """`forerun.generate` is a natural mistake; the error shows the way."""
    with pytest.raises(AttributeError, match=r"forerun\.load\(\.\.\.\)\.generate"):
        forerun.generate  # type: ignore[attr-defined]  # noqa: B018


class Echo(Memoryless):
    """Guesses that the last token comes again."""

    name = "echo"

    def guess(self, request: DraftRequest) -> Draft:
        """Return a chain."""
        return Draft.chain([request.tokens[-1]] * request.length, self.name)


def test_a_drafter_of_ones_own_drafts_and_changes_nothing(folder: Path) -> None:
    """Added by name, it is asked, counted, and cannot change the text."""
    lm = forerun.load(str(Tiny().write(folder / "own.gguf")))
    lm.add_drafter(Echo())
    asked = {"temperature": 1.0, "seed": 5, "max_tokens": 9, "ignore_eos": True}
    result = lm.generate(PROMPT, drafter="echo", **asked)
    assert result.token_ids == lm.generate(PROMPT, drafter="none", **asked).token_ids
    assert list(result.stats.by_drafter) == ["echo"]


@pytest.mark.parametrize("name", ["suffix", "auto", "none", "", " x", "a,b", "echo"])
def test_a_drafter_needs_a_name_of_its_own(folder: Path, name: str) -> None:
    """A name that is taken or can't be asked for is refused; so is what is no drafter."""
    lm = forerun.load(str(Tiny().write(folder / "own.gguf")))
    lm.add_drafter(Echo())
    again = Echo()
    again.name = name
    with pytest.raises(OptionError, match="called"):
        lm.add_drafter(again)
    with pytest.raises(OptionError, match="no drafter"):
        lm.add_drafter(object())  # type: ignore[arg-type]


@pytest.mark.parametrize("drafter", ["sufix", "none,suffix", "", ",", "suffix,suffix"])
def test_what_is_no_drafter_is_refused(lm: LanguageModel, drafter: str) -> None:
    """A wrong drafter is refused before any token is written."""
    with pytest.raises(OptionError):
        lm.stream(PROMPT, drafter=drafter)


@pytest.mark.filterwarnings("default:Draft model")
def test_a_draft_model_of_another_tokenizer_drafts_text(folder: Path) -> None:
    """The text is plain decoding's, some of its drafts hold, and it is said once."""
    path = str(Tiny(layers=1).write(folder / "target.gguf"))
    other = str(Tiny(layers=1, vocab_size=280).write(folder / "other.gguf"))
    plain = forerun.load(path).generate(PROMPT, drafter="none", max_tokens=12, ignore_eos=True)
    lm = forerun.load(path, draft_model=other)
    how = {"drafter": "model", "draft_length": 3, "max_tokens": 12, "ignore_eos": True}
    with pytest.warns(UserWarning, match="another tokenizer"):
        assert lm.generate(PROMPT, **how).token_ids == plain.token_ids
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        results = lm.generate_batch([PROMPT, "Another one."], **how)
    assert results[0].token_ids == plain.token_ids
    assert results[0].stats.drafted > 0


def test_a_draft_model_can_be_named_and_cut(folder: Path) -> None:
    """A second file with the same tokenizer drafts; cut, it has its first layers only."""
    path = str(Tiny(layers=3).write(folder / "deep.gguf"))
    lm = forerun.load(path, draft_model=path, draft_layers=3)
    result = lm.generate(PROMPT, drafter="model", max_tokens=13, ignore_eos=True, draft_length=3)
    assert result.stats.acceptance == 1.0, "the target itself drafts"
    with pytest.raises(OptionError, match="layers"):
        forerun.load(path, draft_model=path, draft_layers=4).generate(PROMPT, drafter="model")


def test_messages_go_through_the_template_and_raw_text_does_not(folder: Path) -> None:
    """A template shapes text and messages; `raw` leaves text alone."""
    lm = with_template(folder, "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}")
    plain = lm.model.tokenizer.encode("<user>ab", special=True, bos=False)
    assert list(lm.tokens_of("ab")) == plain
    assert lm.tokens_of([{"role": "user", "content": "ab"}]) == lm.tokens_of("ab")
    assert list(lm.tokens_of("ab", raw=True)) == lm.model.tokenizer.encode("ab")
    with pytest.raises(OptionError, match="raw = True leaves out the chat template"):
        lm.generate([{"role": "user", "content": "ab"}], raw=True)


def test_a_broken_template_leaves_raw_prompts_usable(folder: Path) -> None:
    """The template's own error comes when it is needed, not when the model is loaded."""
    lm = with_template(folder, "{% for %}")
    assert lm.generate("ab", raw=True, max_tokens=2, ignore_eos=True).stats.tokens == 2
    with pytest.raises(TemplateError):
        lm.generate("ab")


def test_messages_without_a_template_are_refused(lm: LanguageModel) -> None:
    """A model without a template takes text, and says so."""
    with pytest.raises(TemplateError, match="no chat template"):
        lm.generate([{"role": "user", "content": "ab"}])
    assert lm.generate("ab", max_tokens=2, ignore_eos=True).stats.tokens == 2


@pytest.mark.parametrize("prompt", [b"ab", bytearray(b"ab"), memoryview(b"ab")])
def test_bytes_are_no_prompt(lm: LanguageModel, prompt: bytes) -> None:
    """Bytes are a sequence of whole numbers, but nobody who gives them means token ids."""
    with pytest.raises(PromptError, match="not text"):
        lm.generate(prompt)


def test_token_ids_may_be_numpys(lm: LanguageModel) -> None:
    """An array of ids, or a list of its items, is the list of plain numbers."""
    for prompt in (np.array(PROMPT), list(np.array(PROMPT, dtype=np.uint32)), range(5, 8)):
        tokens = lm.tokens_of(prompt)
        assert tokens == tuple(int(token) for token in prompt)
        assert {type(token) for token in tokens} == {int}
    for wrong in (np.array([0.5]), np.array([[1, 2]]), np.array([True])):
        with pytest.raises(PromptError):
            lm.tokens_of(wrong)


def test_a_wrong_prompt_is_shown_in_part(lm: LanguageModel) -> None:
    """The first wrong item is named, and no error is longer than a line or two."""
    with pytest.raises(PromptError, match="holds 'b'"):
        lm.tokens_of([1, "b"])  # type: ignore[arg-type]
    wrongs: list[Any] = [{"x" * 10_000}, [1, "x" * 10_000]]
    for wrong in wrongs:
        with pytest.raises(PromptError) as refused:
            lm.tokens_of(wrong)
        assert len(str(refused.value)) < 300


def test_a_model_may_be_named_by_a_path(folder: Path) -> None:
    """A `Path` is as good as its text, for the target and for the draft model."""
    path = Tiny(layers=2).write(folder / "by_path.gguf")
    lm = forerun.load(path, draft_model=path)
    assert lm.generate(PROMPT, drafter="model", max_tokens=4, ignore_eos=True).stats.drafted > 0


@pytest.mark.parametrize("context", [None, 50])
def test_a_draft_model_of_a_shorter_context_stops_drafting(
    folder: Path, context: int | None
) -> None:
    """Where its context ends so do its drafts; the text goes on to the end of the target's."""
    target = Tiny(context=64).write(folder / "long.gguf")
    short = Tiny(context=16, seed=1).write(folder / "short.gguf")
    lm = forerun.load(target, draft_model=short, context=context)
    asked = {"max_tokens": 99, "ignore_eos": True}
    result = lm.generate(PROMPT, drafter="model", **asked)
    assert result.token_ids == lm.generate(PROMPT, drafter="none", **asked).token_ids
    assert len(result.token_ids) == (context or 64) - len(PROMPT)
    assert result.stats.drafted > 0


def test_a_text_nobody_can_read_is_not_written(lm: LanguageModel) -> None:
    """A stream let go unread costs the others no pass and stays in no queue."""
    tokens = lm.stats.tokens
    lm.stream(PROMPT, max_tokens=100, ignore_eos=True)
    lm.generate(PROMPT, max_tokens=10, ignore_eos=True)
    assert lm.stats.tokens == tokens + 10
    assert not lm._scheduler.requests


def test_a_broken_template_is_told_anew_each_time(folder: Path) -> None:
    """Each refusal is an error of its own, which keeps nothing of earlier ones alive."""
    lm = with_template(folder, "{% for %}")
    errors = []
    for _ in range(2):
        with pytest.raises(TemplateError) as refused:
            lm.generate("ab")
        errors.append(refused.value)
    assert errors[0] is not errors[1]
    assert str(errors[0]) == str(errors[1])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["output_norm.weight", "blk.0.ffn_norm.weight"])
@pytest.mark.parametrize("drafter", ["none", "model"])
def test_weights_that_overflow_are_one_clear_error(folder: Path, name: str, drafter: str) -> None:
    """Finite but far too large: no warning of a lower library, and nothing written."""
    huge = np.full(32, 3e38, dtype=np.float32)
    lm = forerun.load(Tiny(tensors={name: huge}).write(folder / "huge.gguf"))
    # A draft model of these weights is the first to find out, and has no position to tell.
    place = f"At position {len(PROMPT)}: " if drafter == "none" else ""
    with pytest.raises(EngineError, match=f"{place}The target's logits hold NaN or infinity"):
        lm.generate(PROMPT, drafter=drafter)
    assert not lm._scheduler.requests


def test_models_of_a_process_share_its_instructions(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chosen at load; another model may leave it open, and may not ask for another one."""
    module = native.load()
    monkeypatch.setattr(native, "_chosen", [])
    own, path = module.instruction_set(), Tiny().write(folder / "t.gguf")
    expected = forerun.load(path).generate(PROMPT).token_ids
    try:
        first = forerun.load(path, instruction_set="portable")
        assert module.instruction_set() == "portable"
        assert forerun.load(path).generate(PROMPT).token_ids == expected
        with pytest.raises(OptionError, match="instruction_set = 'avx2'"):
            forerun.load(path, instruction_set="avx2")
        assert first.generate(PROMPT).token_ids == expected
    finally:
        module.use_instruction_set(own)


@pytest.mark.parametrize("take", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_model_is_not_copied(lm: LanguageModel, take: Callable[[object], object]) -> None:
    """Its threads and sequences can't be; that is said at once, and what to do instead."""
    with pytest.raises(TypeError, match="load one in each process"):
        take(lm)


def test_public_names_are_these() -> None:
    """What `import forerun` offers is a decision, not an accident."""
    assert forerun.__all__ == [
        "BeamResult",
        "ForerunError",
        "Generation",
        "LanguageModel",
        "Loading",
        "Result",
        "RoundEvent",
        "Stats",
        "Stream",
        "TokenEvent",
        "__version__",
        "load",
    ]
    assert all(getattr(forerun, name) is not None for name in forerun.__all__)


def test_forgetting_drops_what_drafters_learned(lm: LanguageModel) -> None:
    """The next text gets a drafter that has seen nothing; the draft model stays open."""
    made: list[str] = []
    before = table.make_drafter

    def noted(spec: str, kit: table.DrafterKit, own: Any) -> Drafter | None:
        made.append(spec)
        return before(spec, kit, own)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forerun.api, "make_drafter", noted)
        patch.setattr(DraftModelAtHand, "_open", lambda self: opened.append(1) or lm.target)
        opened: list[int] = []
        lm._draft_model._opened = None
        for _ in range(2):
            lm.forget()
            for _ in range(2):
                lm.generate(PROMPT, drafter="model", max_tokens=3)
        lm._draft_model._opened = None
        lm.forget()
    assert made == ["model", "model"]
    assert opened == [1]


def test_forgetting_waits_for_no_text(lm: LanguageModel) -> None:
    """A text under way refuses it and goes on; one that nobody holds is no hindrance."""
    lm.stream(PROMPT, max_tokens=9)
    stream = lm.stream(PROMPT, drafter="suffix", max_tokens=9, ignore_eos=True)
    next(iter(stream))
    held = lm.stream(PROMPT, drafter="suffix", max_tokens=9, ignore_eos=True)
    with pytest.raises(UsageError, match="1 text is being written"):
        lm.forget()
    assert len(held.finished().token_ids) == 9
    lm.forget()


def warm(lm: LanguageModel, **options: Any) -> list[int]:
    """Return how many passes the same text takes, the first and the second time."""
    asked = {"drafter": "suffix,recycle", "max_tokens": 30, "ignore_eos": True, **options}
    asked.setdefault("draft_length", 4)  # what pays is measured, and differs from run to run
    results = [lm.generate(PROMPT, seed=5, **asked) for _ in range(2)]
    assert results[0].token_ids == results[1].token_ids
    return [result.stats.passes for result in results]


def test_texts_help_later_ones_of_the_same_tenant_until_forgotten(lm: LanguageModel) -> None:
    """At any temperature, never the text itself; another tenant starts from nothing."""
    for temperature in (0.0, 1.0):
        lm.forget()
        cold, warmed = warm(lm, temperature=temperature, tenant="A")
        assert warmed < cold
        assert warm(lm, temperature=temperature, tenant="B") == [cold, warmed]
        lm.forget()
        assert warm(lm, temperature=temperature, tenant="A") == [cold, warmed]


@pytest.mark.parametrize("rule", ["speculative", "block", "tree"])
def test_a_seed_means_the_same_text_after_other_texts(lm: LanguageModel, rule: str) -> None:
    """Under rules that draw coins, too: what earlier texts left is not asked."""
    lm.forget()
    cold, warmed = warm(lm, temperature=1.0, rule=rule)
    assert cold == warmed
    lm.forget()


def test_a_store_outlives_its_process(lm: LanguageModel, folder: Path) -> None:
    """Saved and loaded, the first text is guessed as the second was; other tokenizers refuse it."""
    path, model = folder / "store", folder / "tiny.gguf"
    lm.forget()
    asked = {"drafter": "suffix", "max_tokens": 30, "ignore_eos": True, "draft_length": 4}
    runs = [lm.generate(PROMPT, **asked) for _ in range(2)]
    with pytest.raises(OptionError, match="no file for the store"):
        lm.save_store()
    lm.forget()
    lm.generate(PROMPT, **asked)
    lm.save_store(path)
    again = forerun.load(model, store=path)
    assert again.generate(PROMPT, **asked).token_ids == runs[0].token_ids
    assert again.stats.passes == runs[1].stats.passes < runs[0].stats.passes
    again.save_store()
    other = Tiny(vocab_size=400).write(folder / "other.gguf")
    with pytest.raises(StoreFileError, match="another tokenizer"):
        forerun.load(other, store=path)
    with pytest.raises(StoreFileError, match="no folder"):
        forerun.load(model, store=folder / "none" / "store")


def test_a_corpus_is_guessed_from(lm: LanguageModel, folder: Path) -> None:
    """What stands in a file is drafted; what was read and skipped is told."""
    lm.forget()
    asked = {"drafter": "suffix", "max_tokens": 40, "ignore_eos": True}
    text = lm.generate(PROMPT, **asked)
    (folder / "corpus").mkdir()
    (folder / "corpus" / "a.txt").write_text(text.text, "utf-8")
    (folder / "corpus" / "b.txt").write_bytes(b"\0")
    read = forerun.load(folder / "tiny.gguf", corpus=folder / "corpus")
    assert read.corpus.tokens > 0
    assert [skipped.reason for skipped in read.corpus.skipped] == ["it is binary"]
    assert read.generate(PROMPT, **asked).token_ids == text.token_ids


def test_a_prediction_is_followed_and_changes_nothing(lm: LanguageModel) -> None:
    """Right or wrong: the same text, and in fewer passes if it is right."""
    asked = {"max_tokens": 30, "ignore_eos": True, "draft_length": 8}
    plain = lm.generate(PROMPT, drafter="none", **asked)
    passes = {}
    for name, prediction in {"right": plain.text, "wrong": "zzz", "none": None}.items():
        result = lm.generate(PROMPT, drafter="prediction", prediction=prediction, **asked)
        assert result.token_ids == plain.token_ids
        passes[name] = result.stats.passes
    assert passes["right"] < passes["none"] == 30


def test_what_passes_cost_needs_no_file_and_no_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model whose file is gone, or a user without a home, drafts all the same."""

    def nowhere() -> Path:
        raise DownloadError("The cache folder is not known.", "Name one.")

    path = Tiny(layers=1).write(tmp_path / "tiny.gguf")
    gone, homeless = forerun.load(str(path)), forerun.load(str(path))
    plain = gone.generate(PROMPT, drafter="none", max_tokens=9).token_ids
    with monkeypatch.context() as patch:
        patch.setattr("forerun.api.cache_folder", nowhere)
        assert homeless.generate(PROMPT, drafter="suffix", max_tokens=9).token_ids == plain
    path.unlink()
    assert gone.generate(PROMPT, drafter="suffix", max_tokens=9).token_ids == plain
    assert gone.pass_cost()[1] == 1.0
