"""Mutants of the native target: each makes a row depend on something that it must not depend on."""

from __future__ import annotations

from forerun.audit.mutant import Mutant

__all__ = ["ROW_MUTANTS"]

_NATIVE = "forerun.targets.native:NativeTarget."


def _mutant(
    name: str, happened: str, method: str, old: str, new: str, instruction_sets: int = 1
) -> Mutant:
    return Mutant(name, happened, _NATIVE + method, old, new, "rows", instruction_sets)


def _off_by(name: str, happened: str, bits: str, instruction_sets: int = 1) -> Mutant:
    """One whose logits are off in their last bits by what `bits` says."""
    old, new = "Scores(scored, hidden)", f"Scores(scored + np.float32(1e-6) * ({bits}), hidden)"
    return _mutant(name, happened, "score", old, new, instruction_sets)


_LAST_BITS = (
    _off_by(
        "a row's bits depend on how many there are",
        "matrix libraries choose their method by the shape of the call",
        "len(rows)",
    ),
    _off_by(
        "a row's bits depend on its place in the pass",
        "the rows left over behind full tiles are summed in another order",
        "np.arange(asked)[:, None] % 4 == 3",
    ),
    _off_by(
        "a row's bits depend on the number of threads",
        "a sum split over threads",
        "self.threads",
    ),
    _off_by(
        "a row's bits depend on the pages of its context",
        "llama.cpp: one row splits a long context over threads, two rows do not",
        "sum(self._sequences[name].length // 16 for name in {row.sequence for row in rows})",
    ),
    _off_by(
        "a row's bits depend on the instructions",
        "one kernel rounds twice where another fuses multiplication and addition",
        'load().instruction_set() == "portable"',
        2,
    ),
    _mutant(
        "hidden states depend on the sequences beside",
        "batched and lonely norms by different kernels",
        "score",
        "Scores(scored, hidden)",
        "Scores(scored, {i: x * np.float32(1 + 1e-6 * len({row.sequence for row in rows}))"
        " for i, x in hidden.items()})",
    ),
)

_ANCESTORS = (
    _mutant(
        "a row sees its siblings' branches",
        "a causal mask where a tree mask belongs, and positions that count rows",
        "score",
        "rows=rows",
        "rows=[row._replace("
        "parent=max((j for j in range(i) if rows[j].sequence == row.sequence), default=-1),"
        " position=self._sequences[row.sequence].length"
        " + sum(other.sequence == row.sequence for other in rows[:i]))"
        " for i, row in enumerate(rows)]",
    ),
    _mutant(
        "a row does not see its ancestors in the pass",
        "pending keys are written after attention",
        "score",
        "rows=rows",
        "rows=[row._replace(parent=-1, position=self._sequences[row.sequence].length)"
        " for row in rows]",
    ),
    _mutant(
        "a batch is sorted, its rows are not",
        "keys of another sequence, of the same length",
        "score",
        "sequences=self._sequences",
        "sequences=dict(zip("
        "sorted(self._sequences, key=lambda n: self._sequences[n].length),"
        " [self._sequences[n] for n in sorted("
        "self._sequences, key=lambda n: (self._sequences[n].length, -n))]))",
    ),
    _mutant(
        "a prompt of the same length passes for the same prompt",
        "a prefix cache whose key is too short",
        "open",
        "read_prompt(self, name, prompt, PREFILL_ROWS)",
        "others = [s for s in self._sequences.values() if s.length >= len(prompt)]; "
        "self._sequences[name] = others[0].fork() if others else self._pass.open(); "
        "self._sequences[name].rollback(len(prompt)) if others else "
        "read_prompt(self, name, prompt, PREFILL_ROWS)",
    ),
)

_KEEPING = (
    _mutant(
        "a fork is no copy",
        "two texts write into one cache",
        "fork",
        ".fork()",
        "",
    ),
    _mutant(
        "a rollback forgets nothing",
        "rejected drafts stay in the cache",
        "rollback",
        "known.rollback(length)",
        "pass",
    ),
    _mutant(
        "the pass's first rows are committed",
        "right for chains, wrong for trees",
        "commit",
        "known.commit(path)",
        "known.commit(range(len(path)))",
    ),
    _mutant(
        "logits in the pass's order",
        "not in the order in which they were asked for",
        "score",
        "asked=logits",
        "asked=logits and sorted(logits)",
    ),
    _mutant(
        "hidden states under another layer's name",
        "layers computed in order, asked for in another",
        "score",
        "list(hidden.values())",
        "[hidden[layer] for layer in sorted(hidden)]",
    ),
)

ROW_MUTANTS: tuple[Mutant, ...] = _LAST_BITS + _ANCESTORS + _KEEPING
