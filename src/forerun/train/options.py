"""The options of `forerun train`, declared as all others are: flags and help derive from them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from forerun.config import Options, PathText, Real, Whole

__all__ = [
    "Capturing",
    "ExitLearning",
    "HeadLearning",
    "Hours",
    "Learning",
    "LevelLearning",
    "MedusaLearning",
    "ModelLearning",
]


class Capturing(Options):
    """What `train capture` lets the target write, and what it keeps of it."""

    tokens: Whole = Field(
        700_000,
        ge=1,
        le=1_000_000_000,
        description="Tokens to capture at least, prompts included, in shards of 32 conversations; "
        "about 4 kB each for the default model.",
    )
    prompts: PathText | None = Field(
        None,
        description="A file of prompts, one a line, or JSON objects with `prompt` or `turns` in a "
        ".jsonl file; by default the target writes them itself.",
    )
    temperatures: tuple[Annotated[Real, Field(ge=0, le=2)], ...] = Field(
        (1.0, 1.0, 1.0, 1.0, 0.7, 0.0, 0.0, 0.0),
        min_length=1,
        description="The answers' temperatures, each conversation's drawn from them; one that "
        "stands there twice is drawn twice as often.",
    )
    prompt_tokens: Whole = Field(
        192, ge=1, le=100_000, description="Most tokens of a prompt; a longer one is cut."
    )
    long_prompts: Real = Field(
        0.15,
        ge=0,
        le=1,
        description="The share of conversations whose prompts may be longer than that: texts to "
        "summarize, translate or answer from, passage after passage.",
    )
    long_prompt_tokens: Whole = Field(
        768,
        ge=1,
        le=100_000,
        description="Most tokens of a long prompt, as far as the model's context has room for it "
        "and an answer.",
    )
    answer_tokens: Whole = Field(256, ge=16, le=100_000, description="Most tokens of an answer.")
    layers: tuple[Annotated[Whole, Field(ge=0)], ...] = Field(
        (),
        description="Layers whose inputs are the features; by default a low, a middle and the "
        "last one.",
    )
    top: Whole = Field(
        64, ge=1, le=1024, description="How many of the likeliest tokens are kept at each position."
    )
    sequences: Whole = Field(
        32, ge=1, le=256, description="Conversations that are written at once; changes no text."
    )
    seed: Whole = Field(0, ge=0, lt=2**64, description="Of all choices and draws.")
    folder: PathText = Field(
        "forerun-train", description="Where captured text, weights in the making and results are."
    )

    @model_validator(mode="after")
    def _long_ones_are_longer(self) -> Self:
        default = type(self).model_fields["long_prompt_tokens"].default
        if self.long_prompt_tokens != default:
            if self.long_prompts == 0:
                raise ValueError(
                    f"long_prompt_tokens = {self.long_prompt_tokens}, and long_prompts = 0 has "
                    "none; leave one of them out."
                )
            if self.long_prompt_tokens <= self.prompt_tokens:
                raise ValueError(
                    f"long_prompt_tokens = {self.long_prompt_tokens} is no more than "
                    f"prompt_tokens = {self.prompt_tokens}; raise it, or give long_prompts = 0."
                )
        return self


class Learning(Options):
    """How a drafter of any kind learns from captured text."""

    FREE: ClassVar[frozenset[str]] = frozenset({"folder", "budget", "patience", "plot", "threads"})
    """What may change between two runs of one training: a larger budget goes on."""

    folder: PathText = Field("forerun-train", description="Where `train capture` wrote.")
    budget: Whole = Field(
        2_000_000, ge=1, description="Tokens of answers to learn from, repeats counted."
    )
    loss: Literal["ce", "kl", "rkl", "lk", "log-alpha", "tv"] = Field(
        "lk", description="The loss after the first part, which is soft cross-entropy."
    )
    cross_entropy: Real = Field(
        0.35, ge=0, le=1, description="The share of the budget that begins with cross-entropy."
    )
    rate: Real = Field(
        2e-3, gt=0, le=1, description="The highest learning rate; it falls to a fiftieth."
    )
    rows: Whole = Field(512, ge=16, le=1 << 20, description="Tokens of a step, about.")
    patience: Whole = Field(
        20, ge=1, description="Looks at held-out text without a better one before it ends early."
    )
    plot: PathText | None = Field(
        None, description="Draw held-out acceptance into this file, such as head.svg or head.png."
    )
    fp32: bool = Field(
        False, description="Multiply in float32; else in bfloat16, while weights stay in float32."
    )
    seed: Whole = Field(0, ge=0, lt=2**63, description="Of the beginning and the order.")
    threads: Whole | None = Field(
        None, ge=1, le=256, description="Threads to compute with; by default what torch takes."
    )

    def kept(self) -> dict[str, object]:
        """Return what must not change between two runs of one training."""
        return self.model_dump(exclude=set(self.FREE))


class LevelLearning(Learning):
    """How a drafter learns that guesses over a vocabulary of its own."""

    FREE: ClassVar[frozenset[str]] = Learning.FREE | {"weights"}

    vocabulary: Whole = Field(
        8192, ge=2, description="The draft's vocabulary: so many of the target's most used tokens."
    )
    levels: Whole = Field(3, ge=1, le=8, description="Guesses in a row that it learns to make.")
    weights: Literal["Q4_1", "Q8_0"] = Field(
        "Q4_1",
        description="Type of the matrices in its file. In Q4_1 it has the vocabulary's rows "
        "of the target's head as well, and a pass of it reads little more than half as much.",
    )


class HeadLearning(LevelLearning):
    """How `train head` learns: from its own outputs as well, level by level."""


class MedusaLearning(LevelLearning):
    """How `train medusa` learns: as many heads as `levels`, side by side."""


class ExitLearning(LevelLearning):
    """How `train exit` learns: what it learns of one guess it knows of all."""

    layer: Whole | None = Field(
        None,
        ge=0,
        description="Which captured layer's input the adapter reads: the target runs so many "
        "layers before it; by default the lowest.",
    )


class ModelLearning(Learning):
    """How `train model` learns: from captured text, then from its own drafts as well."""

    FREE: ClassVar[frozenset[str]] = Learning.FREE | {"weights"}

    layers: tuple[Annotated[Whole, Field(ge=0)], ...] = Field(
        (),
        description="The target's layers that it begins with; by default the first and the last.",
    )
    own_drafts: Real = Field(
        0.4,
        ge=0,
        le=1,
        description="The share of the budget, its last one, in which it learns from its own drafts "
        "as well, which the target scores.",
    )
    draft_tokens: Whole = Field(6, ge=1, le=64, description="Tokens of such a draft.")
    weights: Literal["Q8_0", "Q4_1", "Q4_0", "F16"] = Field(
        "Q8_0", description="Type of the matrices in its file, the embedding's among them."
    )

    @model_validator(mode="after")
    def _drafts_to_learn_from(self) -> Self:
        default = type(self).model_fields["draft_tokens"].default
        if self.own_drafts == 0 and self.draft_tokens != default:
            raise ValueError(
                f"draft_tokens = {self.draft_tokens}, and own_drafts = 0 has no drafts; leave one "
                "of them out."
            )
        return self


class Hours(Options):
    """What `train --hours` may take, and where it works."""

    hours: Real = Field(
        1.0, ge=0.01, le=10_000, description="Hours from the first token captured to the drafter."
    )
    folder: PathText = Field(
        "forerun-train", description="Where captured text, weights in the making and results are."
    )
    seed: Whole = Field(0, ge=0, lt=2**63, description="Of all choices and draws.")
    threads: Whole | None = Field(
        None, ge=1, le=256, description="Threads to compute with; by default all."
    )
