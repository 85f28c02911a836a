"""A transformers model as a target runs it: how it is called, and what is seen on the way.

Nothing of the model that the user holds is changed. Where it has to be told positions, to turn
products round or to end early, it is run as a shallow copy that shares every weight; to show hidden
states its layers are watched for the time of the pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from forerun.targets.transformers_copies import Structure, replaced
from forerun.targets.transformers_fixed import FixedBatch
from forerun.targets.transformers_flat import Spans, flattened
from forerun.targets.transformers_pass import Batch, Way
from forerun.targets.transformers_positions import Positions, told_positions
from forerun.targets.transformers_products import turned
from forerun.targets.transformers_release import (
    cache_parameter,
    cache_to,
    crossed_cache,
    decoder_config,
    decoder_layers,
    parameters_of,
    positions_parameter,
)
from forerun.targets.transformers_source import SourceReader

__all__ = ["LayerKind", "Network", "bytes_read", "kinds_of"]

_PLAIN = {"full_attention", "dummy"}


class LayerKind(NamedTuple):
    """How far a layer attends.

    Attributes:
        name: As the configuration calls it.
        window: Positions a row sees, its own included; 0 is all.
        chunk: Positions of a chunk that sees itself alone; 0 is all.
    """

    name: str
    window: int = 0
    chunk: int = 0


def kinds_of(config: Any) -> list[LayerKind]:
    """Return each layer's kind, as the decoder's configuration tells it."""
    window = getattr(config, "sliding_window", None) or 0
    chunk = getattr(config, "attention_chunk_size", None) or 0
    names = getattr(config, "layer_types", None)
    if names is None:
        one = "sliding_attention" if window else "chunked_attention" if chunk else "full_attention"
        names = [one] * config.num_hidden_layers
    kinds = {
        "sliding_attention": LayerKind("sliding_attention", window=window),
        "chunked_attention": LayerKind("chunked_attention", chunk=chunk),
    }
    plain = dict.fromkeys(_PLAIN, LayerKind("full_attention"))
    return [(kinds | plain).get(name, LayerKind(name)) for name in names]


class Network:
    """Runs a model over batches.

    Args:
        model: A causal language model of transformers, or one with an encoder, in evaluation mode.

    Attributes:
        layers: How many there are, of the decoder.
        is_turned: Whether products of few rows are computed the other way round.
        is_flat: Whether rows of several texts may lie one behind another.
        path: Where their list stands in the model; empty if it was not found.
        kinds: Of each layer.
        reader: Runs the encoder, if there is one.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        config = decoder_config(model.config)
        self.layers: int = decoder_layers(model.config)
        self.kinds = kinds_of(config)
        self._cache_name = cache_parameter(model) or "cache"
        self._parameters = parameters_of(model)
        self._implementation = getattr(config, "_attn_implementation", None)
        self.reader: SourceReader | None = None
        self._decoder: tuple[str, ...] = ()
        self._by_name = positions_parameter(model)
        if model.config.is_encoder_decoder:
            self.reader = SourceReader(model, self._cache_name, self.layers)
            self._decoder = _path_to(model, model.get_decoder())
        self.path = _path_to_layers(model, self._decoder, self.layers)
        self.is_turned = self.is_flat = False
        self._spans = Spans()
        self._copy()

    def _copy(self) -> None:
        """Make what runs: the user's model or, where it takes one, a copy of it as it is now."""
        self._run = self.model
        self._positions: Positions | None = None
        if self.reader is not None and self._by_name is None:
            told = told_positions(self.model, self._decoder)
            if told is not None:
                self._run, self._positions = told
        if self.is_turned:
            self._run = turned(self._run)
        if self.is_flat:
            self._run = flattened(self._run, self._spans)
        self._cut: dict[int, Any] = {}
        self._structure: Structure | None = None
        if self._run is not self.model:
            self._structure = Structure(self.model)

    @property
    def takes_positions(self) -> bool:
        """Whether the positions of rows can be told."""
        return self._positions is not None or self._by_name is not None

    @property
    def ways(self) -> tuple[Way, ...]:
        """How passes may be laid out, the best way first."""
        knows_masks = getattr(self.model, "_supports_attention_backend", False) or self.reader
        if self.takes_positions and knows_masks and self._implementation in ("sdpa", "eager"):
            return ("in place", "aligned")
        return ("aligned",)

    @property
    def may_be_fixed(self) -> bool:
        """Whether passes of one shape can be expected to have the same bits."""
        devices = {each.device.type for each in self.model.parameters()}
        return self.ways[0] == "in place" and self._implementation == "sdpa" and devices == {"cpu"}

    @property
    def may_be_flat(self) -> bool:
        """Whether rows can be expected to find their own text's keys where they lie flat."""
        return self.reader is None and self._implementation in ("sdpa", "eager")

    @property
    def width(self) -> int:
        """Floats of a hidden state."""
        return int(decoder_config(self.model.config).hidden_size)

    def plain(
        self, tokens: Sequence[int], source: Sequence[int] | None = None
    ) -> NDArray[np.float32]:
        """Return the logits after a text, float32 [vocabulary], without a cache."""
        inputs = {"input_ids": tokens}
        if source is not None:
            inputs = {"input_ids": source, "decoder_input_ids": tokens}
        with torch.no_grad():
            given = {k: torch.tensor([list(v)], device=self.device) for k, v in inputs.items()}
            logits = self.model(**given, use_cache=False).logits
        last: NDArray[np.float32] = logits[0, -1].float().cpu().numpy()
        return last

    @property
    def device(self) -> torch.device:
        """Where tokens go in."""
        weight = self.model.get_input_embeddings().weight
        return torch.device(weight.device)

    def __call__(
        self,
        batch: Batch | FixedBatch,
        way: Way,
        *,
        columns: Sequence[int],
        watched: Sequence[int] = (),
        until: int | None = None,
    ) -> tuple[torch.Tensor, Mapping[int, torch.Tensor]]:
        """Run one pass.

        Args:
            batch: What to run.
            way: How it is laid out.
            columns: Whose logits are wanted; at least one.
            watched: Layers whose hidden states are wanted.
            until: Run so many layers alone; None is all.

        Returns:
            Logits [sequences, columns, vocabulary], and of each layer [sequences, rows, width];
            where rows lie flat, as of one sequence.
        """
        inputs = self._inputs(batch, way)
        wanted = torch.as_tensor(columns, device=self.device)
        if "logits_to_keep" in self._parameters:
            inputs["logits_to_keep"] = wanted
        self._spans.texts = batch.spans
        depth = self.layers if until is None else until
        model = self.running if until is None else self.cut(until)
        with torch.no_grad(), self._watching(watched, depth) as seen:
            logits = model(**inputs).logits
        if "logits_to_keep" not in self._parameters:
            logits = logits[:, wanted.to(logits.device)]
        return logits, seen

    def turn(self) -> None:
        """Compute products of few rows the other way round from now on."""
        self.is_turned = True
        self._copy()

    def flatten(self, is_flat: bool) -> None:
        """Let rows of several texts lie one behind another from now on, or no longer."""
        self.is_flat = is_flat
        self._copy()

    @property
    def running(self) -> Any:
        """The user's model, or a copy of it: told positions, turned round or flat."""
        if self._structure is not None and not self._structure.is_current:
            self._copy()
        return self._run

    def cut(self, layers: int) -> Any:
        """Return the model with its first layers alone; it shares every weight."""
        whole = self.running
        if self._structure is None:  # from now on there is a copy
            self._structure = Structure(self.model)
        if layers not in self._cut:

            def shorter(full: Any) -> Any:
                return torch.nn.ModuleList(list(full)[:layers])

            self._cut[layers] = replaced(whole, self.path, shorter)
        return self._cut[layers]

    def _inputs(self, batch: Batch | FixedBatch, way: Way) -> dict[str, Any]:
        """Return what the model's forward is given, but which logits are wanted."""
        device = self.device
        tokens, masks = torch.from_numpy(batch.tokens).to(device), self._masks(batch, way, device)
        cache = cache_to(batch, self.layers)
        inputs: dict[str, Any] = {"use_cache": True, self._cache_name: cache}
        positions = torch.from_numpy(batch.positions).to(device)
        if self._by_name is not None:
            inputs[self._by_name] = positions
        if self.reader is None:
            return inputs | {"input_ids": tokens, "attention_mask": masks}
        if self._positions is not None:
            keys = None if way == "aligned" else torch.from_numpy(batch.key_positions()).to(device)
            self._positions.rows, self._positions.keys = positions, keys
        crossed = self.reader.together(batch.sources)
        inputs |= {"decoder_input_ids": tokens, "decoder_attention_mask": masks}
        inputs |= {"encoder_outputs": (crossed.states,), "attention_mask": crossed.mask}
        inputs[self._cache_name] = crossed_cache(cache, crossed.layers)
        return inputs

    def _masks(self, batch: Batch | FixedBatch, way: Way, device: torch.device) -> Any:
        if way == "aligned":
            return batch.padding().to(device)
        kinds = {kind.name: kind for kind in self.kinds}
        is_one_row = batch.tokens.size == 1 and self.reader is None
        if is_one_row and all(kind.name == "full_attention" for kind in self.kinds):
            return None  # one row of one sequence sees all that is there
        made = {name: self._mask(batch, kind, device) for name, kind in kinds.items()}
        return made if len(made) > 1 else next(iter(made.values()))

    def _mask(
        self, batch: Batch | FixedBatch, kind: LayerKind, device: torch.device
    ) -> torch.Tensor:
        mask = batch.mask(kind.window, kind.chunk).to(device)
        if self._implementation != "eager":
            return mask
        least = torch.finfo(self.model.dtype).min
        return torch.zeros(mask.shape, dtype=self.model.dtype, device=device).masked_fill(
            ~mask, least
        )

    @contextmanager
    def _watching(self, watched: Sequence[int], depth: int) -> Iterator[Mapping[int, torch.Tensor]]:
        """Keep what enters the layers asked for; what leaves the last one enters the norm."""
        seen: dict[int, torch.Tensor] = {}
        layers = _at(self.model, self.path) if watched else []
        with ExitStack() as hooks:
            for index in set(watched):
                if index < depth:
                    handle = layers[index].register_forward_pre_hook(
                        _keep_input(seen, index), with_kwargs=True
                    )
                else:
                    handle = layers[depth - 1].register_forward_hook(_keep_output(seen, index))
                hooks.callback(handle.remove)
            yield seen


def bytes_read(model: Any) -> int:
    """Return bytes of weights one pass reads: all but embeddings looked up row by row."""
    has_encoder = model.config.is_encoder_decoder
    looked_up = (model.get_decoder() if has_encoder else model).get_input_embeddings().weight
    head = model.get_output_embeddings()
    is_tied = head is not None and getattr(head, "weight", None) is looked_up
    parts = [model.get_decoder(), head] if has_encoder else [model]
    weights = {id(each): each.nbytes for part in parts for each in part.parameters()}
    if not is_tied:
        weights.pop(id(looked_up), None)
    return sum(weights.values())


def _keep_input(seen: dict[int, torch.Tensor], index: int) -> Any:
    def keep(_: Any, given: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        seen[index] = given[0] if given else named["hidden_states"]

    return keep


def _keep_output(seen: dict[int, torch.Tensor], index: int) -> Any:
    def keep(_: Any, __: Any, output: Any) -> None:
        seen[index] = output[0] if isinstance(output, tuple) else output

    return keep


def _path_to_layers(model: Any, below: tuple[str, ...], count: int) -> tuple[str, ...]:
    """Return where the list of so many layers stands, the outermost if there are several."""
    found = [
        (*below, *name.split("."))
        for name, module in _at(model, below).named_modules()
        if isinstance(module, torch.nn.ModuleList) and len(module) == count
    ]
    return min(found, key=len, default=())


def _path_to(model: Any, part: Any) -> tuple[str, ...]:
    """Return where a part of the model stands in it."""
    return next(tuple(name.split(".")) for name, each in model.named_modules() if each is part)


def _at(model: Any, path: Sequence[str]) -> Any:
    for name in path:
        model = model._modules[name]
    return model
