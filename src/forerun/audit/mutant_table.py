"""The mutants: one entry a mistake, with the place where it really happened."""

from __future__ import annotations

from forerun.audit.mutant import Mutant
from forerun.audit.row_mutant_table import ROW_MUTANTS

__all__ = ["MUTANTS"]

_COINS = "forerun.core.coins:"
_NOISE = "forerun.core.noise:"
_WARP = "forerun.core.warp:"
_RULES = "forerun.core.rules."
_ROUND = "forerun.engine.round:"
_CHOOSE = "forerun.drafters.choose:"
_BEAM_RULE = "forerun.core.beams:BeamRule."

_CHANCE = (
    Mutant(
        "the coin is fixed at 0",
        "vllm-ascend 13766: a port accepted every draft",
        _COINS + "AddressedCoins.accept",
        "self.uniform(address) < probability",
        "0.0 < probability",
    ),
    Mutant(
        "a coin at its threshold accepts",
        "vLLM's coins became float64 because a coin of 0 accepted probability 0",
        _COINS + "AddressedCoins.accept",
        "self.uniform(address) < probability",
        "self.uniform(address) <= probability",
    ),
    Mutant(
        "a uniform number may be 0",
        "float32 uniforms in several engines",
        _NOISE + "uniform",
        " + 0.5",
        "",
    ),
    Mutant(
        "half of the seed is ignored",
        "32-bit seeds behind a 64-bit option",
        _NOISE + "key_of",
        "seed >> 32",
        "0",
    ),
    Mutant(
        "noise without its position",
        "one noise for all places repeats tokens",
        _NOISE + "Noise._make",
        "np.array([position], np.uint64)",
        "np.array([0], np.uint64)",
    ),
    Mutant(
        "noise with the wrong sign",
        "the minimum's law in the place of the maximum's",
        _NOISE + "Noise.draw",
        "scores + self",
        "scores - self",
    ),
    Mutant(
        "one position's noise for a whole draft",
        "a round's number in the place of the token's",
        _RULES + "match:Match.verify",
        "scored.position + len(path)",
        "scored.position",
    ),
    Mutant(
        "an address without its round",
        "reusing a round's coins biases block and tree rules",
        "forerun.engine.request:Request.chance",
        "self.coins, self.round",
        "self.coins, 0",
    ),
    Mutant(
        "drafting and residual share a number",
        "vLLM 47386: draft and recovery draws shared their noise",
        _RULES + "speculative:Speculative.verify",
        "node.parent + 1, Domain.RESIDUAL",
        "child + 1, Domain.DRAFT",
    ),
    Mutant(
        "drafting and accepting share a number",
        "one generator seeded alike on both sides",
        _CHOOSE + "choose",
        "Domain.DRAFT",
        "Domain.ACCEPT",
    ),
)

_PROPOSALS = (
    Mutant(
        "argmax drafts with a softmax proposal",
        "transformers 32867, again 47932",
        _CHOOSE + "_drawn",
        "coins.draw(address, probabilities)",
        "int(np.argmax(probabilities))",
    ),
    Mutant(
        "a drawn token passes for a certain one",
        "EAGLE 183: q forced to 1",
        "forerun.core.scored:ScoredDraft.q",
        "self.draft.nodes[node].proposal.dense(self.warp.vocab_size)",
        "np.eye(self.warp.vocab_size)[self.draft.nodes[node].token]",
    ),
    Mutant(
        "unlikely drafts are dropped after they were drawn",
        "confidence thresholds on the sampled token itself",
        _CHOOSE + "_drawn",
        "children.append(",
        "if probabilities[index] > 0.3: children.append(",
    ),
)

_VERDICTS = (
    Mutant(
        "a residual without the clamp",
        "negative masses in a normalised difference",
        _RULES + "residual:residual",
        "np.maximum(p - q, 0.0)",
        "p - q",
    ),
    Mutant(
        "p for the residual",
        "OpenVINO GenAI's sampler: a correction drawn from the target's own law",
        _RULES + "residual:residual",
        "return left / total if total > 0 else p",
        "return p",
    ),
    Mutant(
        "the ratio upside down",
        "OpenVINO GenAI's sampler: the draft's probability over the target's",
        _RULES + "speculative:Speculative.verify",
        "p[node.token] / q[node.token]",
        "q[node.token] / max(p[node.token], 1e-300)",
    ),
    Mutant(
        "the residual of the next position",
        "an index off by one in the target's rows",
        _RULES + "speculative:Speculative.verify",
        "residual(p, q)",
        "residual(scored.law(child), q)",
    ),
    Mutant(
        "the bonus from the row before",
        "the last row of a pass forgotten",
        _RULES + "speculative:Speculative.verify",
        "scored.law(end))",
        "scored.law(max(end - 1, -1)))",
    ),
    Mutant(
        "the bonus from the proposal",
        "the drafter's last token kept as the target's",
        _RULES + "speculative:Speculative.verify",
        "scored.law(end))",
        "scored.q(end) if path else scored.law(end))",
    ),
    Mutant(
        "block stops at the first failure",
        "vllm-ascend 7807: token-wise acceptance under the name of block",
        _RULES + "block:Block.verify",
        "if chance.coins",
        "if survivor == i - 1 and chance.coins",
    ),
    Mutant(
        "block accepts with its reach",
        "a_i in the place of h_i",
        _RULES + "block:Block._odds",
        "return odds(float(self._left(scored, i, reach).sum()), reach)",
        "return reach",
    ),
    Mutant(
        "tree's odds by 1 - Q",
        "a public implementation of traversal verification: min(S / (1 - Q), 1)",
        _RULES + "tree:Tree._visit",
        "reach = odds(total, reach)",
        "reach = min(total / max(1.0 - float(q[token]), 1e-300), 1.0)",
    ),
    Mutant(
        "a sibling forgets what is left",
        "each child judged against the whole target law",
        _RULES + "tree:Tree._visit",
        "p = left / total if total > 0 else p",
        "p = scored.law(node)",
    ),
    Mutant(
        "lenience without effect",
        "an option taken and ignored",
        _RULES + "lenient:Lenient._ratio",
        "self.lenience * q[node.token]",
        "q[node.token]",
    ),
)

_WARPS = (
    Mutant(
        "penalties that do not see the draft",
        "vLLM 18902, sglang 28200: counts from before the round",
        "forerun.core.scored:ScoredDraft.state",
        "self.state(parent).advance(token)",
        "self.state(parent)",
    ),
    Mutant(
        "one count a round",
        "sglang 33643: penalties and minimum length count rounds, not tokens",
        _ROUND + "_cut",
        "request.state.after(tokens[: len(happened)])",
        "request.state.after(tokens[-1:])",
    ),
    Mutant(
        "forks share their counts",
        "vmlx-swift 357: penalty state shared by draft and verification",
        _WARP + "State.advance",
        "counts = {**counts, token: counts.get(token, 0) + 1}",
        "counts[token] = counts.get(token, 0) + 1",
    ),
    Mutant(
        "top-k keeps the last of equals",
        "ties left to the sorting algorithm",
        _WARP + "keep_top_k",
        "equal[: k - len(above)]",
        "equal[::-1][: k - len(above)]",
    ),
    Mutant(
        "temperature after top-p",
        "the order of filters differs between draft and target",
        _WARP + "Warp.scores",
        "keep_top_p(scores, self.sampling.top_p)",
        "keep_top_p(scores * self.sampling.temperature, self.sampling.top_p)"
        " / self.sampling.temperature",
    ),
    Mutant(
        "min-p is ignored",
        "sglang 10617: min_p and logit_bias dropped with speculation",
        _WARP + "Warp.scores",
        "return keep_min_p(scores, self.sampling.min_p)",
        "return scores",
    ),
    Mutant(
        "an end token one too early",
        "vLLM 26317: minimum length not respected by the verifier",
        _WARP + "Warp.weigh",
        "state.generated < self.min_tokens",
        "state.generated + 1 < self.min_tokens",
    ),
)

_ROUNDS = (
    Mutant(
        "text past an end token in mid-draft",
        "transformers 47912; EAGLE",
        _ROUND + "_cut",
        "if finished is not None:",
        'if finished and (node is None or detail != "end of text"):',
    ),
    Mutant(
        "stop strings looked for at the round's end",
        "sglang 31599, 33758: a stop string inside an accepted run is missed",
        _ROUND + "_cut",
        "if finished is not None:",
        'if finished and (node is None or detail == "end of text"):',
    ),
    Mutant(
        "one row too few is kept",
        "rollback off by one, as in caches that drop one token after a full accept",
        _ROUND + "run_round",
        "kept[: emitted - 1]",
        "kept[: max(emitted - 2, 0)]",
    ),
    Mutant(
        "the first rows are kept, not the accepted ones",
        "right for chains, wrong for trees",
        _ROUND + "_commit",
        "[start, *[start + 1 + node for node in kept]]",
        "list(range(start, start + 1 + len(kept)))",
    ),
    Mutant(
        "a row sees its siblings",
        "a causal mask where a tree mask belongs",
        "forerun.targets.toy:ToyTarget._text",
        "at = rows[at].parent",
        "at = at - 1",
    ),
    Mutant(
        "log-probabilities of the round's first row",
        "vLLM 34497: wrong log-probabilities with speculation",
        _ROUND + "_cut",
        "log_probabilities(before, tokens)",
        "log_probabilities([ROOT] * len(before), tokens)",
    ),
)

_BEAMS = (
    Mutant(
        "a step without a row that it needs",
        "a beam that nobody scored has no candidates, and drops out unseen",
        _BEAM_RULE + "step_if_known",
        "return step if is_settled else None",
        "return step",
        "beams",
    ),
    Mutant(
        "equal scores in the order of tokens",
        "a top-k over beams and vocabulary promises no order among equals",
        _BEAM_RULE + "step",
        "-each.score)",
        "(-each.score, each.token))",
        "beams",
    ),
    Mutant(
        "a finished text runs on",
        "an end token that takes a running beam's place",
        _BEAM_RULE + "step",
        "if each.token not in self.ends]",
        "]",
        "beams",
    ),
    Mutant(
        "a beam's keys and values end one row early",
        "a sequence that is one token behind its beam",
        "forerun.beam.stems:Stems._commit",
        "commit(stem.name, rows)",
        "commit(stem.name, rows[:-1])",
        "beams",
    ),
)

MUTANTS: tuple[Mutant, ...] = (
    _CHANCE + _PROPOSALS + _VERDICTS + _WARPS + _ROUNDS + _BEAMS + ROW_MUTANTS
)
