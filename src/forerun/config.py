"""Every option, declared once; flags, environment, help and reference derive from it.

An option is a field: its type, bounds, default and one sentence of help. `Generation` is what one
request may ask for, `Loading` what a model is opened with. Both refuse what they do not know.
"""

from __future__ import annotations

import difflib
import os
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from forerun.errors import OptionError

__all__ = [
    "LARGEST_DRAFT",
    "LEAST_STORE",
    "DraftLength",
    "Ending",
    "Generation",
    "InstructionSetName",
    "Loading",
    "Options",
    "RuleName",
    "Sampling",
    "Speculation",
    "TargetName",
    "WeightsName",
    "check_together",
]

TargetName = Literal["auto", "native", "reference", "transformers"]
KVBits = Literal["16", "32"]
InstructionSetName = Literal["auto", "avx512", "avx2", "portable"]
DtypeName = Literal["auto", "float32", "bfloat16", "float16"]
WeightsName = Literal["auto", "bf16", "int8", "int4"]
RuleName = Literal["match", "speculative", "block", "tree", "lenient"]

LEAST_STORE = 128
"""Tokens that a batch of kept texts counts as at least, for what it takes besides its tokens."""

LARGEST_DRAFT = 1024
"""Most tokens of one draft: each has a row of logits, 200 kB at 49,152 tokens."""


def _number(value: object) -> object:
    # True would pass as 1; `top_k=True` is a mistake, not a one.
    if isinstance(value, bool | np.bool_):
        raise ValueError("true and false are not numbers")
    return value.item() if isinstance(value, np.number) else value


def _several(value: object) -> object:
    # As a sequence, "END" would be three stop strings.
    return (value,) if isinstance(value, str) else value


def _one_path(value: object) -> object:
    return (value,) if isinstance(value, str | os.PathLike) else value


def _digits(value: object) -> object:
    return str(value) if isinstance(value, int) else value


def _path(value: object) -> object:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


Whole = Annotated[int, BeforeValidator(_number)]
Real = Annotated[float, BeforeValidator(_number)]
PathText = Annotated[str, BeforeValidator(_path), Field(min_length=1)]
Bias = Annotated[Real, Field(ge=-1e10, le=1e10)]
DraftLength = Annotated[Whole, Field(ge=0, le=256)] | Literal["auto"]
DraftWidth = Annotated[Whole, Field(ge=1, le=64)] | Literal["auto"]


class Options(BaseModel):
    """A frozen group of options; a value out of range or an unknown name is an `OptionError`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise self._translated(error) from None

    @classmethod
    def make(cls, **values: Any) -> Self:
        """Build the options from keyword arguments.

        Raises:
            OptionError: A name is unknown, or a value is ill-typed, out of range or contradictory.
        """
        return cls(**values)

    def replace(self, **values: Any) -> Self:
        """Return a copy with some options changed, checked like new ones."""
        return self.make(**{**dict(self), **values})

    @classmethod
    def _translated(cls, error: ValidationError) -> OptionError:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        if first["type"] == "extra_forbidden":
            near = difflib.get_close_matches(name, cls.model_fields, n=1)
            way_out = f"Did you mean {near[0]!r}?" if near else "See the reference of options."
            for place, group in (("load", Loading), ("generate and stream", Generation)):
                if name in group.model_fields:
                    way_out = f"It is an option of {place}."
            return OptionError(f"There is no option {_shown(name)}.", way_out)
        message = first["msg"].removeprefix("Value error, ")
        if first["type"] == "less_than":  # its own message shows the bound as a float
            message = f"Input should be less than {first['ctx']['lt']}"
        if not name:
            return OptionError(message)
        field = cls.model_fields[name]
        default = field.get_default(call_default_factory=True)
        shown = "" if default is None else f" (default: {default!r})"
        way_out = f"{field.description}{shown}"
        return OptionError(f"{name} = {_shown(first['input'])}: {message}.", way_out)


def _shown(value: object) -> str:
    """Return a value as an error shows it: what a stranger sends may be of any length."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no whole number of more than 4,300 digits
        return "a number of thousands of digits"
    return text if len(text) <= 80 else f"{text[:77]}..."


class Sampling(Options):
    """How the target's logits become a law, and the law a token. The order is that of the warp."""

    allowed_tokens: tuple[Whole, ...] | None = Field(
        None, description="Only these token ids may be written."
    )
    banned_tokens: tuple[Whole, ...] = Field((), description="These token ids are never written.")
    logit_bias: dict[Whole, Bias] = Field(
        default_factory=dict,
        description="Added to the logits of these token ids, {id: bias}, each up to 1e10.",
    )
    repetition_penalty: Real = Field(
        1.0,
        # With all bounds together no logit can become infinite: one text's options would end all
        # texts that share its passes.
        ge=0.01,
        le=100,
        description="Divides positive and multiplies negative logits of tokens already in the "
        "prompt or the output; 1 is off.",
    )
    presence_penalty: Real = Field(
        0.0,
        ge=-100,
        le=100,
        description="Subtracted from the logits of tokens already in the output.",
    )
    frequency_penalty: Real = Field(
        0.0,
        ge=-100,
        le=100,
        description="Subtracted from a token's logit once for each time it stands in the output.",
    )
    temperature: Real = Field(
        0.0, ge=0, le=1000, description="Divides the logits; 0 always takes the likeliest token."
    )
    top_k: Whole = Field(0, ge=0, description="Keep the k likeliest tokens; 0 is off.")
    top_p: Real = Field(
        1.0,
        gt=0,
        le=1,
        description="Keep the likeliest tokens that together reach this probability; 1 is off.",
    )
    min_p: Real = Field(
        0.0,
        ge=0,
        le=1,
        description="Keep tokens at least this probable relative to the likeliest; 0 is off.",
    )
    seed: Whole | None = Field(
        None,
        ge=0,
        lt=2**64,
        description="The noise's seed, 64 bits: the same seed gives the same text, under rule "
        "match with any drafter or none. Drawn freshly if not given, and reported.",
    )

    @property
    def has_penalties(self) -> bool:
        """Whether the warp depends on the text so far."""
        return (
            self.repetition_penalty != 1
            or self.presence_penalty != 0
            or self.frequency_penalty != 0
        )


class Speculation(Options):
    """Who drafts, how far ahead, and by which rule a draft is kept."""

    drafter: str = Field(
        "auto",
        min_length=1,
        description="Who drafts: suffix, lookup, recycle, prediction, bigram, model, early_exit, "
        "eagle, medusa, exit, scripted or random; several joined by commas draft together; 'auto' "
        "or 'none'.",
    )
    draft_length: DraftLength = Field(
        "auto",
        description="Most tokens drafted one after the other before each pass; 0 is off, 'auto' "
        "chooses each time what pays, by the measured cost of a pass and the guesses' worth; under "
        "a rule that draws coins it is 5.",
    )
    draft_width: DraftWidth = Field(
        "auto",
        description="Most children tried at each node of the draft: 1 makes chains, more makes "
        "trees; 'auto' is what pays where the length is 'auto', and 1 else.",
    )
    prediction: str | None = Field(
        None,
        max_length=16_000_000,
        description="The output that is expected, such as a file before a small edit, for drafter "
        "'prediction' to follow; on the command line the text, or a file's name: what has no "
        "blank, but a / or an ending, is one. A hint: it changes the time a text takes, never the "
        "text.",
    )
    tenant: str = Field(
        "",
        max_length=256,
        description="Whose text it is: what is learned from it helps this tenant's texts alone.",
    )
    rule: RuleName = Field(
        "match", description="The rule that keeps or corrects a draft; all but lenient are exact."
    )
    lenience: Real | None = Field(
        None,
        gt=0,
        le=1,
        description="Only with rule lenient: l in (0, 1], the smaller the further from exact.",
    )

    @model_validator(mode="after")
    def _no_contradiction(self) -> Self:
        if self.lenience is not None and self.rule != "lenient":
            raise ValueError(
                f"lenience = {self.lenience} works with rule 'lenient' only, not {self.rule!r}; "
                "choose that rule or leave lenience out."
            )
        width = 1 if self.draft_width == "auto" else self.draft_width
        if width > 1 and self.rule not in ("match", "tree"):
            raise ValueError(
                f"draft_width = {self.draft_width} makes trees, and rule {self.rule!r} keeps "
                "chains only; use rule match or tree, or width 1."
            )
        if self.draft_length != "auto" and self.draft_length * width > LARGEST_DRAFT:
            raise ValueError(
                f"draft_length = {self.draft_length} by draft_width = {self.draft_width} are "
                f"{self.draft_length * width} tokens, and {LARGEST_DRAFT} is the most; "
                "lower one of them."
            )
        return self


class Ending(Options):
    """Where the text ends."""

    max_tokens: Whole = Field(256, ge=0, description="At most this many tokens are written.")
    min_tokens: Whole = Field(
        0, ge=0, description="No stop token and no stop string before this many tokens."
    )
    stop: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_several)] = (
        Field((), description="The text ends before the first of these strings.")
    )
    ignore_eos: bool = Field(False, description="Write on past the model's end-of-text tokens.")

    @model_validator(mode="after")
    def _least_below_most(self) -> Self:
        if self.min_tokens > self.max_tokens:
            raise ValueError(
                f"min_tokens = {self.min_tokens} is more than max_tokens = {self.max_tokens}; "
                "lower the one or raise the other."
            )
        return self


class Generation(Sampling, Speculation, Ending):
    """All that one request may ask for."""

    top_logprobs: Whole = Field(
        0, ge=0, le=100, description="Report this many likeliest alternatives to each token."
    )
    begin: str = Field(
        "",
        max_length=100_000,
        description="What the output begins with, for a model whose encoder reads the prompt: a "
        "language's code, say, instead of the model's own. Not written again.",
    )
    raw: bool = Field(
        False,
        description="Continue the prompt as it is, without the model's chat template; "
        "the texts of special tokens count as those tokens.",
    )


# What only the transformers target is told, and what stands for nothing being told.
_PLACING: dict[str, object] = {
    "device": None,
    "dtype": "auto",
    "bitwise": False,
    "remote_code": False,
}


class Loading(Options):
    """What a model is opened with."""

    model: PathText = Field(
        "smollm2",
        description="A model's name, a GGUF file, or a Hugging Face folder or id.",
    )
    weights: WeightsName = Field(
        "auto",
        description="How the matrices of a Hugging Face folder are kept: auto (as stored), or "
        "rounded at load to bf16, int8 or int4. A GGUF file has its own types.",
    )
    target: TargetName = Field(
        "auto",
        description="What computes the model's passes: native (compiled), reference (numpy, slow), "
        "transformers (a folder's network on any device, with the extra hf), or auto: native where "
        "it is compiled and runs the model, else transformers or reference, which is said.",
    )
    threads: Whole | None = Field(
        None,
        ge=1,
        le=256,
        description="Threads of the native target's passes; by default one for each usable core.",
    )
    instruction_set: InstructionSetName = Field(
        "auto",
        description="Instructions that the compiled module uses, in the whole process: the first "
        "choice stands. The bits are the same with each; auto is the fastest this machine has.",
    )
    kv_bits: Annotated[KVBits, BeforeValidator(_digits)] | None = Field(
        None,
        description="Bits of each number in the native target's keys and values: 16, or 32 for "
        "twice the memory and a slower pass; by default 16.",
    )
    device: PathText | None = Field(
        None,
        description="Where the transformers target runs: cpu, cuda, cuda:1, mps, ...; by default "
        "the first accelerator, else the processor.",
    )
    dtype: DtypeName = Field(
        "auto",
        description="Type of the transformers target's weights: auto (as stored), float32, "
        "bfloat16 or float16.",
    )
    bitwise: bool = Field(
        False,
        description="Let the transformers target promise the same bits with any drafter, as the "
        "native one does: on a processor, in chains, at the price of 8 rows a call.",
    )
    remote_code: bool = Field(
        False,
        description="Let the transformers target run code that a folder brings. It can do whatever "
        "you can.",
    )
    draft_model: PathText | None = Field(
        None,
        description="The model behind drafter 'model'; by default the target's own first layers.",
    )
    draft_layers: Whole | None = Field(
        None,
        ge=1,
        description="Cut the draft model to this many first layers; or those after which drafter "
        "'early_exit' leaves the target, by default a quarter.",
    )
    head: PathText | None = Field(
        None,
        description="The file of a head that was learned from this model, for the drafter of its "
        "kind ('eagle', 'medusa' or 'exit') and for 'auto'; by default the one that comes with "
        "Forerun for the model, where there is one.",
    )
    force_head: bool = Field(
        False,
        description="Take the head though it was learned from another model, if its sizes fit: it "
        "guesses worse, and changes no text.",
    )
    script: str | None = Field(
        None,
        description="The text that drafter 'scripted' guesses, from the output's beginning; by "
        "default the prompt itself.",
    )
    corpus: Annotated[tuple[PathText, ...], BeforeValidator(_one_path)] = Field(
        (),
        description="A file or folder with texts to guess from, for drafter 'suffix'; may be given "
        "several times.",
    )
    store: PathText | None = Field(
        None,
        description="A file that keeps what drafter 'suffix' learned from texts: read at the "
        "start if it is there, and written by `save_store`, on the command line at the end.",
    )
    store_tokens: Whole = Field(
        2_000_000,
        ge=0,
        le=200_000_000,
        description="Tokens of earlier texts that are kept to guess from, 8 bytes each, and of the "
        "corpus as many; 128 or more, or 0 to keep none.",
    )
    online: bool = Field(
        False,
        description="Let drafter 'eagle', where it drafts by itself, go on learning between texts: "
        "which of its guesses a tenant's texts say again. It changes no text under rule match, and "
        "no text's law under the others.",
    )
    online_rows: Whole = Field(
        256,
        ge=1,
        le=100_000,
        description="Tokens of each text that are learned from, at most; each takes some 40 "
        "microseconds.",
    )
    online_reach: Real = Field(
        6.0,
        gt=0,
        le=20,
        description="How far learning may move a token's logit.",
    )
    online_tenants: Whole = Field(
        1000,
        ge=1,
        le=1_000_000,
        description="Tenants for whom what was learned is kept, a kilobyte each: those that wrote "
        "last.",
    )
    online_store: PathText | None = Field(
        None,
        description="A file that keeps what was learned online: read at the start if it is there, "
        "and written by `save_online`, on the command line at the end.",
    )
    context: Whole | None = Field(
        None, ge=2, description="Tokens of context; by default what the model was trained for."
    )

    @model_validator(mode="after")
    def _room_for_what_is_kept(self) -> Self:
        for name in ("corpus", "store"):
            if getattr(self, name) and self.store_tokens == 0:
                raise ValueError(f"{name} needs room, and store_tokens is 0; leave one out.")
        if 0 < self.store_tokens < LEAST_STORE:
            raise ValueError(
                f"store_tokens = {self.store_tokens} has room for no text; give {LEAST_STORE} or "
                "more, or 0 to keep none."
            )
        return self

    @model_validator(mode="after")
    def _a_head_to_force(self) -> Self:
        if self.force_head and self.head is None:
            raise ValueError("force_head needs a head; give its file as head, or leave it out.")
        return self

    @model_validator(mode="after")
    def _online_is_on(self) -> Self:
        for name in ("online_rows", "online_reach", "online_tenants", "online_store"):
            value = getattr(self, name)
            if not self.online and value != type(self).model_fields[name].default:
                raise ValueError(
                    f"{name} = {value} is for learning online, which is off; give online, or leave "
                    f"{name} out."
                )
        return self

    @model_validator(mode="after")
    def _of_the_target(self) -> Self:
        wanted = {"native": ("threads", "kv_bits"), "transformers": tuple(_PLACING)}
        for owner, names in wanted.items():
            for name in names:
                value = getattr(self, name)
                is_given = value != _PLACING.get(name)
                if is_given and self.target not in (owner, "auto"):
                    raise ValueError(
                        f"{name} = {value} is for the {owner} target, and target is "
                        f"{self.target!r}; leave {name} out or choose another target."
                    )
        if self.weights != "auto" and self.target == "transformers":
            raise ValueError(
                f"weights = {self.weights} is for Forerun's own targets; use dtype instead."
            )
        return self


_READ_BY = {
    "draft_model": ("model",),
    "draft_layers": ("model", "early_exit"),
    "head": ("eagle", "medusa", "exit"),
    "script": ("scripted",),
    "corpus": ("suffix",),
    "store": ("suffix",),
    "prediction": ("prediction",),
}
_IN_AUTO = {"suffix", "prediction", "eagle", "medusa", "exit"}


def check_together(loading: Loading, generation: Generation) -> None:
    """Check options that were given in one breath, as on the command line.

    Raises:
        OptionError: An option is for a drafter that `generation` does not name, or for drafts
            where there are none.
    """
    _check_drafts(generation)
    if loading.online and generation.drafter.strip() != "eagle":
        raise OptionError(
            f"online is for drafter 'eagle' by itself, and the drafter is {generation.drafter!r}.",
            "Choose drafter 'eagle', or leave online out.",
        )
    named = [name.strip() for name in generation.drafter.split(",")]
    asked = {*named, *_IN_AUTO} if named == ["auto"] else {*named}
    for option, drafters in _READ_BY.items():
        value = getattr(loading if option in Loading.model_fields else generation, option)
        if value not in (None, ()) and not asked.intersection(drafters):
            readers = " or ".join(map(repr, drafters))
            raise OptionError(
                f"{option} = {_shown(value)} is for drafter {readers}, and the drafter is "
                f"{generation.drafter!r}.",
                f"Choose drafter {readers}, or leave {option} out.",
            )


def _check_drafts(asked: Speculation) -> None:
    """Refuse a draft's length or width where nothing is drafted."""
    nothing = "drafter 'none'" if asked.drafter.strip() == "none" else ""
    if not nothing and asked.draft_length == 0:
        nothing = "draft_length 0"
    is_wide = asked.draft_width not in ("auto", 1)
    is_long = asked.draft_length not in ("auto", 0)
    for name, is_asked in (("draft_length", is_long), ("draft_width", is_wide)):
        if nothing and is_asked:
            what = f"{name} = {getattr(asked, name)}, and {nothing} drafts nothing."
            raise OptionError(what, f"Leave {name} out, or let something be drafted.")
