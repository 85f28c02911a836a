"""Every error Forerun raises on purpose.

    ForerunError
    ├── UsageError                 what was asked for cannot be (exit code 2)
    │   ├── OptionError            an option's value is out of range, unknown or contradictory
    │   ├── PromptError            the prompt is empty, too long, or not text
    │   └── CapabilityError        the target, drafter or rule cannot do this
    ├── StartError                 nothing could start (exit code 3)
    │   ├── ModelNotFoundError     no such model name or file
    │   ├── ModelFileError         the file is truncated, corrupt or not a model
    │   ├── UnsupportedModelError  a sound file of a kind this engine does not run
    │   ├── TokenizerError         the tokenizer cannot be built from the file
    │   ├── TemplateError          the chat template is missing, unsafe or wrong
    │   ├── VocabularyError        drafter and target do not share a vocabulary
    │   ├── OtherTargetError       the drafter was learned from another target than this
    │   ├── StoreFileError         the store file is damaged, or of another version or tokenizer
    │   ├── NotEnoughMemoryError   the model needs more memory than there is
    │   ├── NativeModuleError      the compiled module is missing or can't be loaded
    │   └── DownloadError          no network, no space, or a wrong checksum on `pull`
    ├── TrainingError              a capture or a training can't begin or go on
    └── EngineError                a broken promise inside Forerun: a bug worth reporting

Each says what is wrong, with the value, and the way out. A lower library's error never escapes
untranslated. `exit_code` is what the command line ends with.
"""

from __future__ import annotations

__all__ = [
    "CapabilityError",
    "DownloadError",
    "EngineError",
    "ForerunError",
    "ModelFileError",
    "ModelNotFoundError",
    "NativeModuleError",
    "NotEnoughMemoryError",
    "OptionError",
    "OtherTargetError",
    "PromptError",
    "StartError",
    "StoreFileError",
    "TemplateError",
    "TokenizerError",
    "TrainingError",
    "UnsupportedModelError",
    "UsageError",
    "VocabularyError",
]


class ForerunError(Exception):
    """The base of all of Forerun's errors.

    Args:
        what: What is wrong, with the offending value.
        way_out: What the reader can do about it.
    """

    exit_code = 1

    def __init__(self, what: str, way_out: str = "") -> None:
        super().__init__(f"{what} {way_out}".strip())
        self.what = what
        self.way_out = way_out


class UsageError(ForerunError):
    """What was asked for cannot be."""

    exit_code = 2


class OptionError(UsageError):
    """An option's value is out of range, unknown, or contradicts another."""


class PromptError(UsageError):
    """The prompt is empty, longer than the context, or not valid text."""


class CapabilityError(UsageError):
    """The chosen target, drafter or rule cannot do what the others ask of it."""


class StartError(ForerunError):
    """Nothing could start: no model, no tokenizer, no network."""

    exit_code = 3


class ModelNotFoundError(StartError):
    """No model of that name, and no file at that path."""


class ModelFileError(StartError):
    """The file is truncated, corrupt, or not a model file at all."""


class UnsupportedModelError(StartError):
    """A sound file of an architecture or tensor type this engine does not run."""


class TokenizerError(StartError):
    """The tokenizer described by the file cannot be built."""


class TemplateError(StartError):
    """The chat template is missing, unsafe, or fails on these messages."""


class VocabularyError(StartError):
    """Drafter and target do not share a vocabulary."""


class OtherTargetError(StartError):
    """The drafter was learned from another target, whose features and tokens are not these."""


class StoreFileError(StartError):
    """The store file can't be read or written, is damaged, or of another version or tokenizer."""


class NotEnoughMemoryError(StartError):
    """The model needs more memory than there is."""


class NativeModuleError(StartError):
    """The compiled module is not there, or was not made for this Python or machine."""


class DownloadError(StartError):
    """`pull` could not fetch, check or store the model."""


class TrainingError(ForerunError):
    """A capture or a training can't begin or go on; what it made before is kept."""


class EngineError(ForerunError):
    """An invariant of Forerun itself is broken; please report it."""
