"""What the compiled module has (src/native/bind_*.cpp)."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

# ---- bind_noise.cpp: the noise, the draw, and the choice of instructions

def make_noise(seed: int, sample: int, position: int, vocab_size: int) -> NDArray[np.float64]: ...
def noise_at(seed: int, sample: int, position: int, tokens: Sequence[int]) -> list[float]: ...
def noise_among(
    seed: int, sample: int, position: int, tokens: NDArray[np.uint32]
) -> NDArray[np.float64]: ...
def rank_tokens(
    seed: int,
    sample: int,
    position: int,
    logits: NDArray[np.float32],
    tokens: NDArray[np.uint32],
    temperature: float,
    most: int,
) -> list[tuple[int, float]]: ...
def draw_token(scores: NDArray[np.float64], seed: int, sample: int, position: int) -> int: ...
def noise_of_words(high: NDArray[np.uint32], low: NDArray[np.uint32]) -> NDArray[np.float64]: ...
def noise_bound(high: int) -> float: ...
def instruction_sets() -> list[str]: ...
def instruction_set() -> str: ...
def use_instruction_set(name: str) -> None: ...

# ---- bind_warp.cpp: the warp and what it chooses (twins: core/warp.py, core/softmax.py)

class Warp:
    def __init__(
        self,
        *,
        vocab_size: int,
        temperature: float,
        top_k: int,
        top_p: float,
        least_score: float,
        penalties: Sequence[float],
        shift: NDArray[np.float64] | None,
        stops: Sequence[int],
    ) -> None: ...
    def choose(
        self,
        logits: NDArray[np.float32],
        places: Sequence[tuple[int, dict[int, int], bool, int, int]],
        prompt: NDArray[np.uint32],
        seed: int,
        sample: int,
        normalises: bool,
        threads: int,
    ) -> tuple[list[int | None], list[tuple[float, float]]]: ...
    def scores(
        self,
        logits: NDArray[np.float32],
        prompt: NDArray[np.uint32],
        counts: dict[int, int],
        bans_stops: bool,
    ) -> NDArray[np.float64] | None: ...

def softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]: ...
def exponentials(x: NDArray[np.float64]) -> NDArray[np.float64]: ...
def log_normalisers(
    logits: NDArray[np.float32], asked: Sequence[int], threads: int
) -> list[tuple[float, float]]: ...

# ---- bind_likeliest.cpp: the likeliest tokens of rows (twin: core/likeliest.py)

def likeliest(
    logits: NDArray[np.float32], most: int, threads: int
) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float64]]: ...

# ---- bind_matrix.cpp: packed weights and their products (twin: targets/quantised_product.py)

class Matrix:
    def __init__(
        self, type_name: str, data: NDArray[np.uint8], outputs: int, inputs: int
    ) -> None: ...
    @property
    def outputs(self) -> int: ...
    @property
    def inputs(self) -> int: ...
    @property
    def panels(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    def dequantise_row(self, output: int) -> NDArray[np.float32]: ...

def multiply(
    matrix: Matrix,
    x: NDArray[np.float32],
    first_panel: int = 0,
    last_panel: int | None = None,
    factors: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]: ...

# ---- bind_attention.cpp: attention alone (twin: targets/word_attention.py)

def attend(
    queries: NDArray[np.float32],
    keys: NDArray[np.float32],
    values: NDArray[np.float32],
    parents: Sequence[int],
    kv_bits: int = 16,
    threads: int = 1,
) -> NDArray[np.float32]: ...

# ---- bind_pass.cpp: weights, sequences and the pass

class Shape:
    def __init__(
        self,
        *,
        vocab: int,
        width: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        inner: int,
        pairs: int,
        is_interleaved: bool,
        epsilon: float,
    ) -> None: ...

_Vectors = Mapping[str, NDArray[np.float32]]
_Products = Mapping[str, Sequence[tuple[str, NDArray[np.uint8], int, int]]]

class LayerWeights:
    def __init__(self, vectors: _Vectors, products: _Products, turns: bool = True) -> None: ...
    @property
    def nbytes(self) -> int: ...

class EndWeights:
    def __init__(
        self, vectors: _Vectors, products: _Products, shared: EndWeights | None = None
    ) -> None: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def row_nbytes(self) -> int: ...

class EntryWeights:
    def __init__(self, vectors: _Vectors, products: _Products) -> None: ...
    @property
    def nbytes(self) -> int: ...

class Head:
    def __init__(self, parts: Sequence[tuple[str, NDArray[np.uint8], int, int]]) -> None: ...
    @property
    def nbytes(self) -> int: ...

class KVSequence:
    @property
    def length(self) -> int: ...
    def commit(self, path: Sequence[int]) -> None: ...
    def rollback(self, length: int) -> None: ...
    def fork(self) -> KVSequence: ...

class Pass:
    def __init__(
        self,
        shape: Shape,
        layers: Sequence[LayerWeights],
        ends: EndWeights,
        kv_bits: int,
        threads: int,
        entry: EntryWeights | None = None,
    ) -> None: ...
    @property
    def threads(self) -> int: ...
    @property
    def kv_bytes_per_token(self) -> int: ...
    def open(self) -> KVSequence: ...
    def score(
        self,
        rows: Sequence[tuple[int, int, int, int]],
        sequences: dict[int, KVSequence],
        context: int,
        turns: Callable[[int], tuple[NDArray[np.float32], NDArray[np.float32]]],
        asked: Sequence[int] | None,
        room: NDArray[np.float32],
        layers: Sequence[int],
        hidden: Sequence[NDArray[np.float32]],
        head: Head | None = None,
        until: int | None = None,
        features: NDArray[np.float32] | None = None,
        given: NDArray[np.float32] | None = None,
    ) -> int | None: ...

# ---- bind_machine.cpp: what the machine gives a pass

class MemoryReader:
    def __init__(self, bytes: int, threads: int) -> None: ...
    def read(self) -> float: ...

def barrier_seconds(threads: int, batches: int = 50) -> float: ...
