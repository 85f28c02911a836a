"""The public face: load a model, write text, stream it, see who wrote each token.

Example:
    lm = forerun.load("smollm2")
    print(lm.generate("Write a haiku about the sea.", max_tokens=40).text)
    for token in lm.stream("And one about the moon.", temperature=0.8, seed=7):
        print(token.text, end="", flush=True)
"""

from __future__ import annotations

import os
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Integral
from typing import Any, Never
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from forerun.beam.options import BeamGeneration
from forerun.beam.searches import Searches
from forerun.config import Generation, Loading
from forerun.control.control import Control
from forerun.control.cost import CostCurve, measure
from forerun.control.cost_cache import cost_key, remembered_costs
from forerun.drafters.corpus import Corpus, read_corpus
from forerun.drafters.draft_model import DraftModelAtHand
from forerun.drafters.online import Limits, Online
from forerun.drafters.online_file import Origin, open_online, save_online
from forerun.drafters.own import checked, checked_name
from forerun.drafters.protocol import Drafter
from forerun.drafters.store import Store
from forerun.drafters.store_file import check_place, load_store, save_store
from forerun.drafters.table import DRAFTERS, OF_HEAD, DrafterKit, drafter_names, make_drafter
from forerun.engine.request import Ask, Request
from forerun.engine.scheduler import Scheduler
from forerun.errors import (
    DownloadError,
    OptionError,
    PromptError,
    TemplateError,
    UsageError,
)
from forerun.events import BeamResult, Event, LoadProgress, Result, Stats, TokenEvent
from forerun.fork_lock import fork_lock
from forerun.models.chat_prompt import chat_tokens
from forerun.models.model import Model, load_model
from forerun.models.pull import cache_folder
from forerun.native import use_instructions
from forerun.printable import shown
from forerun.targets.heads_at_hand import HeadsAtHand
from forerun.targets.table import OpenedTarget, check_placed, open_target, target_on

__all__ = ["LanguageModel", "Prompt", "Stream", "load"]

Prompt = str | Sequence[int] | NDArray[np.integer[Any]] | Sequence[Mapping[str, object]]
"""A text, token ids, or chat messages such as {"role": "user", "content": "Hello"}."""


def load(
    model: str | os.PathLike[str] = "smollm2",
    *,
    network: Any = None,
    progress: Callable[[LoadProgress], None] | None = None,
    **options: Any,
) -> LanguageModel:
    """Open a model: by name (pulled at first use), a GGUF file or a Hugging Face folder.

    Args:
        model: A name such as "smollm2", a path, or an id of the Hugging Face hub.
        network: A language model of transformers that is in memory already: it runs, as it
            is, on its device, and `model` says whose tokenizer and templates it has.
        progress: Called while a named model is being pulled, and as the weights are packed.
        options: The rest of `forerun.config.Loading`: weights, target, device, draft_model, ...

    Raises:
        OptionError: An option is unknown, ill-typed, out of range or contradictory.
        StartError: No such model, or it cannot be fetched, read or run; the subclass says which.
    """
    loading = Loading.make(model=model, **options)
    foreign = loading.target in ("auto", "transformers")
    read = load_model(loading.model, weights=loading.weights, foreign=foreign, progress=progress)
    return LanguageModel(read, loading, network=network, progress=progress)


class LanguageModel:
    """A model that writes text; built by `load`.

    Safe to use from several threads: texts that grow at the same time share the target's passes.
    Safe to use in a process that is forked: the fork waits for a round under way, and texts that
    were growing then go on in the parent alone; the child's copies of them are interrupted.

    Args:
        model: The target's model.
        loading: What it is opened with.
        network: Of transformers, to run instead of the model's own weights.
        progress: Called as the weights are packed.

    Attributes:
        target: What computes the passes; `target.capabilities.name` says which.
        target_reason: Why it is not the native one though `auto` was asked for; else empty.
        corpus: What was read of the corpus, and what was skipped.
    """

    def __init__(
        self,
        model: Model,
        loading: Loading | None = None,
        *,
        network: Any = None,
        progress: Callable[[LoadProgress], None] | None = None,
    ) -> None:
        self.model = model
        self.loading = loading or Loading()
        if self.loading.instruction_set != "auto":
            use_instructions(self.loading.instruction_set)
        self.target, self.target_reason = (
            self._open_target(model, self.loading.context, progress)
            if network is None
            else self._target_on(network)
        )
        check_placed(self.target.capabilities.name, self.loading)
        self._store = Store(self.loading.store_tokens)
        self.corpus = self._fill_store(progress)
        self._draft_model = DraftModelAtHand(
            model, self.target, self.loading, lambda of, room: self._open_target(of, room).target
        )
        kv_bits = self.loading.kv_bits
        self._heads = HeadsAtHand(
            model,
            self.target,
            self.loading.head,
            force=self.loading.force_head,
            kv_bits=None if kv_bits is None else int(kv_bits),
        )
        self._online = self._open_online() if self.loading.online else None
        self._own_drafters: dict[str, Drafter] = {}
        self._drafters: dict[tuple[str, ...], Drafter | None] = {}
        control = Control(self.target, self._pass_costs)
        self._scheduler = Scheduler(self.target, self._drafter, control=control)
        # Weak, so that a stream nobody holds any more costs nothing to keep hearing.
        self._listeners: WeakValueDictionary[int, Stream] = WeakValueDictionary()
        self._lock = fork_lock(0)
        self._searches = Searches(self.target, self._drafter, lambda: control.curve, self._lock)
        self._process = os.getpid()

    @property
    def stats(self) -> Stats:
        """The sum over all texts finished so far, as it is now."""
        with self._lock:
            return self._scheduler.stats.copy()

    def pass_cost(self) -> dict[int, float]:
        """Return v(M): rows of a pass to its time over a one-row pass, as it is believed now.

        Measured in less than a second if it never was; see `forerun.control.cost`.
        """
        with self._lock:
            return self._scheduler.control.curve.curve()

    def tokens_of(self, prompt: Prompt, *, raw: bool = False) -> tuple[int, ...]:
        """Return the tokens a prompt becomes: templated if the model has a chat template.

        For a model with an encoder they are what that reads, its own marks around them.

        Args:
            prompt: Text or messages; token ids are returned as they are.
            raw: Leave text as it is, without the chat template; special tokens in it count.

        Raises:
            PromptError: The prompt is empty or no valid text.
            OptionError: Messages are to be left as they are.
            TemplateError: Messages for a model without a chat template, or one that fails on them.
        """
        if isinstance(prompt, str):
            return self._tokens_of_text(prompt, raw)
        if isinstance(prompt, np.ndarray) and prompt.ndim == 1:
            prompt = prompt.tolist()
        if not isinstance(prompt, Sequence) or len(prompt) == 0:
            raise PromptError(f"The prompt is {shown(prompt)}.", "Give text, ids or messages.")
        if isinstance(prompt, bytes | bytearray | memoryview):
            kind = type(prompt).__name__
            raise PromptError(f"The prompt is {kind}, not text.", "Decode it: prompt.decode().")
        if all(isinstance(item, Mapping) for item in prompt):
            if raw:
                what = "raw = True leaves out the chat template, which chat messages go through."
                raise OptionError(what, "Give the text itself, or leave raw out.")
            return self._templated([item for item in prompt if isinstance(item, Mapping)])
        wrong = [
            item for item in prompt if isinstance(item, bool) or not isinstance(item, Integral)
        ]
        if wrong:
            raise PromptError(
                f"The prompt is a list that holds {shown(wrong[0])}.",
                "Give text, token ids, or messages with role and content; several prompts go to "
                "generate_batch.",
            )
        return tuple(int(item) for item in prompt if isinstance(item, Integral))

    def add_drafter(self, drafter: Drafter) -> None:
        """Make a drafter of your own known by its name, for option `drafter`.

        What it gives is checked: an answer that is no draft, or no guess, is an `EngineError` with
        its name. It can be joined with others by commas, as every drafter can.

        Args:
            drafter: Anything with the methods of `forerun.drafters.protocol.Drafter`.

        Raises:
            OptionError: It lacks a method, or its name is taken or no name.
        """
        name = checked_name(drafter, {*DRAFTERS, *self._own_drafters})
        self._own_drafters[name] = checked(drafter)

    def forget(self) -> None:
        """Drop what was learned from texts: the next one is drafted as the first was.

        Drafters that were added by `add_drafter` are their owners' to empty.

        Raises:
            UsageError: A text is being written.
        """
        with self._lock:
            self._leave_to_parent()
            self._cancel_unheard()
            growing = len(self._scheduler.requests)
            if growing:
                what = f"{growing} {'text is' if growing == 1 else 'texts are'} being written."
                raise UsageError(what, "Read to the end, or close, what still grows; then forget.")
            self._drafters.clear()
            self._scheduler.control.forget()
            self._store.forget()
            if self._online is not None:
                self._online.forget()

    def save_store(self, path: str | os.PathLike[str] | None = None) -> None:
        """Write what was learned from texts into a file that option `store` reads.

        The file holds prompts and texts of every tenant; only its owner may read it.

        Args:
            path: The file; by default the one of option `store`.

        Raises:
            OptionError: There is no path.
            StoreFileError: The file can't be written.
        """
        named = self.loading.store if path is None else os.fspath(path)
        if not named:
            raise OptionError("There is no file for the store.", "Give a path, or option store.")
        with self._lock:
            save_store(self._store, named, self.model.tokenizer.fingerprint)

    def save_online(self, path: str | os.PathLike[str] | None = None) -> None:
        """Write what was learned online into a file that option `online_store` reads.

        Args:
            path: The file; by default the one of option `online_store`.

        Raises:
            OptionError: There is no path, or nothing is learned online.
            StoreFileError: The file can't be written.
        """
        named = self.loading.online_store if path is None else os.fspath(path)
        if self._online is None:
            raise OptionError("Nothing is learned online here.", "Load with online=True.")
        if not named:
            what = "There is no file for what was learned online."
            raise OptionError(what, "Give a path, or option online_store.")
        with self._lock:
            save_online(self._online, named, Origin(*self._heads.checksums()))

    def generate(self, prompt: Prompt, **options: Any) -> Result:
        """Write a text and return it with each token's provenance.

        Args:
            prompt: Text, token ids or chat messages.
            options: Of `forerun.config.Generation`: max_tokens, temperature, drafter, ...

        Raises:
            ForerunError: As `stream`.
        """
        return self.stream(prompt, **options).finished()

    def generate_batch(self, prompts: Sequence[Prompt], **options: Any) -> list[Result]:
        """Write a text for each prompt, all in the same passes; each is what it would be alone.

        Args:
            prompts: Each text, token ids or chat messages.
            options: Of `forerun.config.Generation`, for all of them.

        Raises:
            ForerunError: As `stream`, for the first prompt that is refused; none is written then.
        """
        if isinstance(prompts, str):
            raise PromptError(
                f"The prompts are one text, {shown(prompts)}.", "Give a list, or use generate."
            )
        streams: list[Stream] = []
        try:
            streams += (self.stream(prompt, **options) for prompt in prompts)
            return [stream.finished() for stream in streams]
        finally:
            for stream in streams:
                stream.close()

    def stream(self, prompt: Prompt, **options: Any) -> Stream:
        """Begin a text and return it as it grows: an iterable of `TokenEvent`.

        Args:
            prompt: Text, token ids or chat messages.
            options: Of `forerun.config.Generation`.

        Raises:
            UsageError: Prompt and options do not go together, or are out of range.
            TemplateError: The chat template is missing or fails on the messages.
            StartError: Drafter `model` is asked for and its model cannot be opened.
        """
        generation = Generation.make(**options)
        tokens = self.tokens_of(prompt, raw=generation.raw)
        ask = self._ask(tokens, generation)
        with self._lock:
            self._leave_to_parent()
            self._cancel_unheard()
            request = self._scheduler.submit(ask)
            stream = Stream(self, request)
            self._listeners[request.name] = stream
        return stream

    def beam_search(self, prompt: Prompt, *, beams: int = 4, **options: Any) -> BeamResult:
        """Search for likely texts; a drafter changes what that costs, not what is found.

        Args:
            prompt: Text, token ids or chat messages.
            beams: How many texts go on after each token.
            options: The rest of `forerun.beam.options.BeamGeneration`; errors as of `stream`.
        """
        asked = BeamGeneration.make(beams=beams, **options)
        tokens = self.tokens_of(prompt, raw=asked.raw)
        return self._searches.run(lambda: self._ask(tokens, asked))

    def __reduce_ex__(self, protocol: object) -> Never:
        raise TypeError("A LanguageModel can't be copied or pickled: load one in each process.")

    def _fill_store(self, progress: Callable[[LoadProgress], None] | None) -> Corpus:
        """Read the store's file, if there is one, and the corpus."""
        tokenizer, loading = self.model.tokenizer, self.loading
        if loading.store is not None:
            try:
                fingerprint, size = tokenizer.fingerprint, self.target.vocab_size
                load_store(self._store, loading.store, fingerprint, size)
            except FileNotFoundError:  # the first time there is none
                check_place(loading.store)
        if not loading.corpus:
            return Corpus()

        def encode(text: str) -> Sequence[int]:
            return tokenizer.encode(text, bos=False)

        corpus = read_corpus(loading.corpus, encode, loading.store_tokens, progress)
        self._store.corpus.add(corpus.texts)
        return corpus

    def _open_online(self) -> Online:
        """Return what there is to learn into: of the file that is kept, if it is there."""
        loading = self.loading
        limits = Limits(loading.online_rows, loading.online_reach, loading.online_tenants)
        return open_online(limits, loading.online_store, Origin(*self._heads.checksums()))

    def _ask(self, tokens: tuple[int, ...], generation: Generation) -> Ask:
        """Return what the engine is asked for: to go on from the tokens, or to answer them."""
        tokenizer, encoder = self.model.tokenizer, self.target.capabilities.encoder
        opening, after, source = tokens, tokens, None
        if encoder is not None:
            after = tuple(tokenizer.encode(generation.begin, special=True, bos=False))
            # A language's code stands where the model's own would.
            own = encoder.start[:1] if after else encoder.start
            opening, source = (*own, *after), tokens
            banned = (*generation.banned_tokens, *encoder.banned)
            generation = generation.replace(banned_tokens=banned)
        elif generation.begin:
            what = f"begin = {shown(generation.begin)}: {self.model.name} has no encoder."
            raise OptionError(what, "Put it at the end of the prompt, and ask for `raw`.")
        return Ask(
            prompt=opening,
            options=generation,
            seed=secrets.randbits(64) if generation.seed is None else generation.seed,
            eos_ids=tokenizer.eos_ids,
            decoder=tokenizer.detokenizer(after=after),
            prediction=self._expected(generation.prediction),
            source=source,
        )

    def _expected(self, prediction: str | None) -> tuple[int, ...]:
        """Return the tokens of an expected output, which begins no text of its own."""
        if not prediction:
            return ()
        return tuple(self.model.tokenizer.encode(prediction, bos=False))

    def _tokens_of_text(self, prompt: str, raw: bool) -> tuple[int, ...]:
        if not prompt.strip():
            raise PromptError(f"The prompt is {prompt!r}.", "Give some text to go on from.")
        has_template = self.model.chat_template or self.model.template_error
        if self.target.capabilities.encoder is not None:
            return tuple(self.model.tokenizer.source(prompt, special=raw))
        if raw or not has_template:
            return tuple(self.model.tokenizer.encode(prompt, special=raw))
        return self._templated([{"role": "user", "content": prompt}])

    def _templated(self, messages: Sequence[Mapping[str, object]]) -> tuple[int, ...]:
        template = self.model.chat_template
        if template is None:
            broken = self.model.template_error
            if broken is not None:
                raise TemplateError(broken.what, broken.way_out)
            way_out = "Give the prompt as text instead."
            raise TemplateError(f"{self.model.name} has no chat template.", way_out)
        tokens = chat_tokens(self.model.tokenizer, template, messages)
        if not tokens:
            what = f"The chat template of {self.model.name} makes nothing of these messages."
            raise TemplateError(what, "Give the prompt as raw text (`--raw`).")
        return tokens

    def _drafter(self, spec: str) -> Drafter | None:
        head_kind = self._heads.kind if spec.strip() == "auto" else ""
        names = drafter_names(spec, self._own_drafters, head_kind=head_kind)
        self._check_head_is_read(names)
        if names not in self._drafters:
            script = self.loading.script
            kit = DrafterKit(
                vocab_size=self.target.vocab_size,
                open_draft_model=self._draft_model.target,
                script=None if script is None else tuple(self.model.tokenizer.encode(script)),
                threads=self.target.capabilities.threads,
                target=self.target,
                draft_layers=self.loading.draft_layers,
                store=self._store if self.loading.store_tokens else None,
                border=lambda: self._draft_model.border,
                head_kind=head_kind,
                open_head=self._heads.head,
                open_readout=self._heads.readout,
                # Beside a drafter that copies, what is learned has been said already.
                online=self._online if names == ("eagle",) else None,
            )
            self._drafters[names] = make_drafter(spec, kit, self._own_drafters)
        return self._drafters[names]

    def _check_head_is_read(self, names: Sequence[str]) -> None:
        """Refuse drafters of learned heads that would leave aside the head that was named."""
        asked = [name for name in names if name in OF_HEAD.values()]
        if self.loading.head is None or not asked:
            return
        reader = OF_HEAD[self._heads.kind]
        if reader not in asked:
            raise OptionError(
                f"Drafter {asked[0]!r} does not read a head of kind {self._heads.kind!r}, which "
                f"{self.loading.head} holds.",
                f"Choose drafter {reader!r}, join both by a comma, or leave the head out.",
            )

    def _pass_costs(self, again: bool) -> CostCurve:
        """Return what this target's passes cost on this machine, measured if they never were."""
        try:
            key = cost_key(self.model, self.target, self.loading)
            folder = cache_folder() / "costs"
        except (
            OSError,
            DownloadError,
        ):  # the model's file is gone, or there is no place to keep it
            return measure(self.target)
        return remembered_costs(self.target, key, folder, again=again)

    def _target_on(self, network: Any) -> OpenedTarget:
        """Return a target of the user's own network; what would place another one is refused."""
        loading = self.loading
        for name in ("threads", "kv_bits", "device", "dtype", "weights"):
            if getattr(loading, name) not in (None, "auto"):
                raise OptionError(f"{name} says nothing to a network in memory.", "Leave it out.")
        context, bitwise = loading.context, loading.bitwise
        return OpenedTarget(target_on(network, self.model, context=context, bitwise=bitwise))

    def _open_target(
        self,
        model: Model,
        context: int | None,
        progress: Callable[[LoadProgress], None] | None = None,
    ) -> OpenedTarget:
        loading = self.loading
        return open_target(
            loading.target,
            model,
            context=context,
            threads=loading.threads,
            kv_bits=None if loading.kv_bits is None else int(loading.kv_bits),
            placing=(loading.device, loading.dtype, loading.remote_code, loading.bitwise),
            progress=progress,
        )

    def _advance(self, stream: Stream, request: Request) -> bool:
        """Run one round for all texts that grow; return False if `stream` will hear no more."""
        with self._lock:
            self._leave_to_parent()
            if stream.has_news:
                return True
            # Read to its end before, closed, or cut short with others by a round that failed.
            interrupted = request.finish is not None and request.finish[0] == "interrupted"
            if interrupted or request.name not in self._listeners:
                return False
            self._cancel_unheard()
            for event in self._scheduler.step():
                listener = self._listeners.get(event.request)
                if listener is not None:
                    listener.hear(event)
                if isinstance(event, Result):
                    self._listeners.pop(event.request, None)
            return True

    def _leave_to_parent(self) -> None:
        """In a forked process, end what grew before: the threads that read it are the parent's."""
        if self._process != os.getpid():
            self._process = os.getpid()
            for request in self._scheduler.requests:
                self._cancel(request)

    def _cancel_unheard(self) -> None:
        """Interrupt texts whose stream nobody holds any more: nobody could read them."""
        for request in self._scheduler.requests:
            if request.name not in self._listeners:
                self._scheduler.cancel(request)

    def _cancel(self, request: Request) -> None:
        with self._lock:
            self._scheduler.cancel(request)
            self._listeners.pop(request.name, None)


class Stream:
    """One text as it grows; iterate for its tokens, or ask for the result.

    A stream that is left early is interrupted: its text so far stays in `result`.
    """

    def __init__(self, lm: LanguageModel, request: Request) -> None:
        self._lm = lm
        self._request = request
        self._news: deque[Event] = deque()

    def __iter__(self) -> Iterator[TokenEvent]:
        for event in self.events():
            if isinstance(event, TokenEvent):
                yield event

    def events(self) -> Iterator[Event]:
        """Yield everything that happens to this text: rounds, tokens, and at last the result."""
        try:
            while True:
                while self._news:
                    event = self._news.popleft()
                    yield event
                    if isinstance(event, Result):
                        return
                if not self._lm._advance(self, self._request):
                    return
        finally:
            self.close()

    @property
    def result(self) -> Result:
        """The text as far as it is; a round under way in another thread is waited for."""
        with self._lm._lock:
            return self._request.result()

    @property
    def has_news(self) -> bool:
        """Whether something happened that nobody has read."""
        return bool(self._news)

    def hear(self, event: Event) -> None:
        """Take note of what happened to this text."""
        self._news.append(event)

    def finished(self) -> Result:
        """Read on to the end and return the result."""
        for _ in self.events():
            pass
        return self.result

    def close(self) -> None:
        """Interrupt the text, if it is still growing."""
        self._lm._cancel(self._request)
