"""The options of `forerun bench`, declared as all others are: flags and help derive from them."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from forerun.config import LARGEST_DRAFT, Options, PathText, Whole

__all__ = ["Racing", "Timing"]


class Timing(Options):
    """What `bench pass` times."""

    rows: tuple[Annotated[Whole, Field(ge=1, le=LARGEST_DRAFT)], ...] = Field(
        (1, 2, 3, 4, 6, 8, 12, 16, 24, 32),
        min_length=1,
        description="Rows of the passes, each a number from 1 to 1024.",
    )
    context: Whole = Field(
        256, ge=1, description="Tokens the sequence holds already, which every row attends to."
    )
    prefill: Whole = Field(
        512, ge=0, description="Time reading a prompt of this many tokens, too; 0 leaves it out."
    )
    decode: Whole = Field(
        64, ge=0, description="Time writing this many tokens plainly, too; 0 leaves it out."
    )
    repeats: Whole = Field(
        10, ge=1, le=10_000, description="How often all of it is done, in an order of its own."
    )
    peers: tuple[str, ...] = Field(
        (), description="Other engines to time beside it on the same file: llama.cpp."
    )
    shape: Literal["1b", "3b", "8b"] | None = Field(
        None,
        description="Instead of a model, random 4-bit weights in the shape of Llama 3.2 1B or 3B "
        "or Llama 3.1 8B, to see how cost grows.",
    )
    plot: PathText | None = Field(
        None, description="Draw the curves into this file, such as pass.svg or pass.png."
    )

    @model_validator(mode="after")
    def _no_peers_without_file(self) -> Self:
        if self.shape is not None and self.peers:
            raise ValueError(
                f"shape = {self.shape!r} has no file that a peer could open; leave peers or shape "
                "out."
            )
        return self


class Racing(Options):
    """What `bench generate` lets write, and how often."""

    prompts: PathText | None = Field(
        None,
        description="Prompts in Spec-Bench's format, a JSON object a line; by default those that "
        "Forerun ships.",
    )
    tasks: tuple[str, ...] = Field(
        (), description="Only prompts of these tasks, such as summarization; by default all."
    )
    limit: Whole | None = Field(
        None, ge=1, description="At most this many prompts of each task, the first ones."
    )
    turns: Whole | None = Field(
        None, ge=1, description="At most this many turns of each prompt; by default all."
    )
    sides: tuple[str, ...] = Field(
        ("plain", "auto"),
        description="Who writes, joined by commas: plain, auto, a drafter or several as "
        "suffix+bigram, with a fixed draft length as suffix:5 and width as suffix:5x2, with what "
        "it learned before as auto:warm; and peers: llama.cpp, transformers, openvino, each also "
        "with its prompt lookup as llama.cpp:lookup, and llama.cpp:q4_0.",
    )
    sweep: tuple[str, ...] = Field(
        (),
        description="Besides, each of these drafters or mixes at every length of lengths, such as "
        "suffix,recycle,suffix+recycle,auto; the report says whether auto keeps up with the best.",
    )
    lengths: tuple[Annotated[Whole, Field(ge=0, le=256)], ...] = Field(
        (1, 2, 3, 5, 7, 11, 15),
        min_length=1,
        description="Fixed draft lengths of a sweep; the length 0 of all of them is plain.",
    )
    repeats: Whole = Field(
        5, ge=1, le=10_000, description="How often all of it is written, in an order of its own."
    )
    head: PathText | None = Field(
        None,
        description="The file of a head, for each side that drafts with one of its kind (eagle, "
        "medusa or exit) and for auto; by default the one that comes with the model.",
    )
    q4_0: PathText | None = Field(
        None,
        description="The model as a Q4_0 file, for side llama.cpp:q4_0; by default it is made "
        "from the model's own file and kept in the cache.",
    )
    keep: PathText = Field(
        "benchmarks/runs",
        description="Folder where each run leaves a file with every sample, written as they come.",
    )
    report: PathText | None = Field(
        None, description="Write the report into this file, in Markdown."
    )
    plot: PathText | None = Field(
        None, description="Draw the figures into this file, such as race.svg or race.png."
    )

    @model_validator(mode="after")
    def _nothing_for_nobody(self) -> Self:
        if not self.sweep and self.lengths != type(self).model_fields["lengths"].default:
            raise ValueError(
                f"lengths = {','.join(map(str, self.lengths))} are of a sweep, and there is none; "
                "give sweep, or write a side's length behind it, as suffix:5."
            )
        named = [name.strip() for each in self.sides for name in each.split(",")]
        if self.q4_0 is not None and not any(name.startswith("llama.cpp:q4_0") for name in named):
            raise ValueError(
                f"q4_0 = {self.q4_0!r} is for side llama.cpp:q4_0, which is none of "
                f"{', '.join(self.sides)}; add it, or leave q4_0 out."
            )
        return self
