"""Speculative beam search: the beams of plain beam search, often several steps a pass.

A pass scores the running beams and the texts that are guessed to run next. Then the plain rule is
applied, step by step, for as long as what follows every running beam is known; it stops at the
first step that would need a row which nobody scored. So no guess can change what is found. What
was scored and is not needed yet stays known: a beam whose draft was right waits for the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from forerun.beam.ask import BeamAsk
from forerun.beam.drafts import Extent
from forerun.beam.plain import Found
from forerun.beam.rows import ranked_rows
from forerun.beam.shape import Shape, ShapeChoice
from forerun.beam.stems import Stems
from forerun.beam.texts import DraftedTexts
from forerun.beam.tree import TextNode, path
from forerun.config import LARGEST_DRAFT
from forerun.core.beams import Candidate, Finished, Pool, only_falls
from forerun.drafters.protocol import Drafter
from forerun.errors import NotEnoughMemoryError
from forerun.events import BeamStats
from forerun.targets.checks import PREFILL_ROWS, Watch, read_prompt
from forerun.targets.protocol import Target

__all__ = ["BeamSearch"]


class _Running(NamedTuple):
    """A running beam."""

    node: TextNode
    score: float


class BeamSearch:
    """One search; `advance` runs a pass and all steps that it brings, until `is_over`.

    Args:
        target: Whose beams are searched for.
        ask: What is asked for.
        drafter: Guesses; None is plain beam search.
        names: Gives the drafter's names for texts, each once.
        seconds: Returns what passes take by rows, given the context.
        ahead: Whether drafts that may come true stay in the target's sequences. Not with a drafter
            that runs the target itself, which must find all of a text but its last token there.
    """

    def __init__(
        self,
        target: Target,
        ask: BeamAsk,
        drafter: Drafter | None = None,
        *,
        names: Callable[[], int],
        seconds: Callable[[int], Sequence[float]],
        ahead: bool = True,
    ) -> None:
        self._target, self._ask, self._rule = target, ask, ask.rule
        self._pool: Pool[Found] = Pool(ask.rule)
        self._shapes = ShapeChoice(ask.rule.beams, ask.depth, ask.width, seconds)
        self.stats = BeamStats(prompt_tokens=len(ask.prompt) + len(ask.source or ()))
        base = TextNode(-1, None, -1)
        root = TextNode(ask.prompt[-1], base, 0, ask.warp.start(ask.prompt))
        base.children[root.token] = root
        self._running = [_Running(root, 0.0)]
        self._texts = (
            None
            if drafter is None
            else DraftedTexts(drafter, ask, names, root, in_target=not ahead)
        )
        self._layers = () if self._texts is None else self._texts.layers
        begun = time.perf_counter()
        try:
            sequence = self._read()
        except BaseException:
            self._let_drafter_go()
            raise
        self.stats.prompt_seconds = time.perf_counter() - begun
        self._stems = Stems(target, sequence, root, len(ask.prompt) - 1, ahead=ahead)
        self._falls = only_falls(ask.warp.sampling)
        self.is_over = False

    @property
    def best(self) -> Sequence[Finished[Found]]:
        """The best finished texts so far, best first."""
        return self._pool.best

    def advance(self) -> None:
        """Run one pass, and the steps that it makes known."""
        begun = time.perf_counter()
        shape, levels = self._guess()
        guessed = time.perf_counter()
        self._score(shape, levels)
        scored = time.perf_counter()
        before = self._running
        kept = self._replay()
        self._shapes.learn(levels, [[each.node for each in beams] for beams in kept])
        if not self.is_over:
            self._follow(before)
        self._shapes.clock(len(levels), guessed - begun)
        self.stats.draft_seconds += guessed - begun
        self.stats.pass_seconds += scored - guessed
        self.stats.seconds += time.perf_counter() - begun

    def close(self) -> None:
        """Give all back that the search holds."""
        self.is_over = True
        try:
            self._let_drafter_go()
        finally:
            self._stems.free()

    def _read(self) -> int:
        """Open the target's sequence with all of the prompt but its last token."""
        prompt, texts = self._ask.prompt[:-1], self._texts
        if texts is None or not self._layers:
            return self._target.open(prompt, self._ask.source)
        sequence = self._target.open(source=self._ask.source)
        read_prompt(self._target, sequence, prompt, PREFILL_ROWS, Watch(self._layers, texts.see))
        return sequence

    def _guess(self) -> tuple[Shape, list[list[TextNode]]]:
        """Return how much is guessed in this round, and the texts, level by level."""
        length = self._running[0].node.depth
        room = self._rule.limit - length - 1  # behind the last step nothing is asked
        if self._texts is None or room < 1:
            return Shape(0, 0, 0), []
        context = len(self._ask.prompt) + length
        shape = self._shapes.choose(room, len(self._running), context)
        if not shape.looks:
            return shape, []
        extent = Extent(shape.looks, self._shapes.widest, self._target.vocab_size)
        return shape, self._texts.guess(self._running, extent, self._stems.sequence)

    def _score(self, shape: Shape, levels: Sequence[Sequence[TextNode]]) -> None:
        """Have the target score the running beams and the drafted texts; note what it says."""
        depth = self._running[0].node.depth
        wanted = {each.node: [each.node] if each.node.row is None else [] for each in self._running}
        drafted = [node for node in self._drafted(shape, levels) if node.row is None]
        for node in drafted:
            wanted[node.at(depth)].append(node)
        try:
            done = self._stems.score(wanted, self._layers)
        except NotEnoughMemoryError as error:
            way_out = "Search with fewer beams, or lower draft_length or draft_width."
            raise NotEnoughMemoryError(error.what, way_out) from error
        self.stats.drafted += len(drafted)
        self.stats.passes += 1
        self.stats.weight_bytes += self._target.weight_bytes
        self.stats.rows += done.rows
        self.stats.rows_again += done.rows - len(done.new)
        states = [node.state for node in done.new]
        threads = self._target.capabilities.threads
        rows = ranked_rows(self._ask.warp, done.logits, states, self._rule.reach, threads)
        for at, (node, row) in enumerate(zip(done.new, rows, strict=True)):
            node.row = row
            if self._texts is not None:  # what drafters learn from
                node.logits = done.logits[at]
                node.hidden = {layer: states[at] for layer, states in done.hidden.items()}

    def _drafted(self, shape: Shape, levels: Sequence[Sequence[TextNode]]) -> list[TextNode]:
        """Return the guessed texts that are scored, parents before their children.

        Where the target scores chains only, each running beam has at most one draft, the likeliest.
        """
        above = {each.node for each in self._running}
        has_trees = self._target.capabilities.trees
        drafted: list[TextNode] = []
        for level in levels[: shape.depth]:
            kept: list[TextNode] = []
            for node in level:
                if len(kept) < shape.width and node.above in above:
                    kept.append(node)
                    if not has_trees:
                        above.remove(node.above)
            drafted += kept
            above = set(kept)
        return drafted[: max(0, LARGEST_DRAFT - len(self._running))]

    def _replay(self) -> list[list[_Running]]:
        """Take all steps that are known, and return what ran after each."""
        kept: list[list[_Running]] = []
        while not self.is_over:
            rows = [each.node.row for each in self._running]
            scores = [each.score for each in self._running]
            length = self._running[0].node.depth + 1
            step = self._rule.step_if_known(scores, rows, length, falls=self._falls)
            if step is None:
                break
            self._pool.add([(each.score, self._found(each)) for each in step.ended], length)
            self.stats.steps += 1
            self.stats.plain_rows += len(rows)
            self._running = [_Running(self._longer(each), each.score) for each in step.running]
            self.stats.kept += sum(each.node.row is not None for each in self._running)
            kept.append(self._running)
            self.is_over = self._pool.is_over([each.score for each in self._running], length)
        return kept

    def _longer(self, candidate: Candidate) -> TextNode:
        node = self._running[candidate.beam].node.child(candidate.token)
        node.log_p = candidate.log_p
        return node

    def _found(self, candidate: Candidate) -> Found:
        before = self._running[candidate.beam].node
        nodes = path(before, before.at(0))
        tokens = [node.token for node in nodes]
        log_p = [node.log_p for node in nodes]
        return Found((*tokens, candidate.token), (*log_p, candidate.log_p))

    def _follow(self, before: Sequence[_Running]) -> None:
        """Bring the target's sequences and the drafter to the new running beams."""
        depth = before[0].node.depth
        pairs = [(each.node, each.node.at(depth)) for each in self._running]
        self._stems.follow(pairs)
        self.stats.forks = self._stems.forks
        if self._texts is not None:
            begun = time.perf_counter()
            self._texts.follow(pairs)
            self.stats.draft_seconds += time.perf_counter() - begun
        kept = {node for beam, old in pairs for node in path(beam, old)}
        running = {each.node for each in self._running}
        for node in [*(each.node for each in before), *(kept - running)]:
            node.forget(kept)

    def _let_drafter_go(self) -> None:
        texts, self._texts = self._texts, None
        if texts is not None:
            texts.free()
