"""A suffix automaton of a growing text: every substring, where it goes on, and how often.

Blumer et al. (1985), "The smallest automaton recognizing the subwords of a text". A state is a
class of substrings that end at the same places; its link leads to the longest suffix of them that
ends at more places. So the link of the whole text's state is the longest suffix that has stood in
the text before: the match, at no cost at all.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["CEILING", "CONTEXTS", "ROOT", "SuffixAutomaton", "discount"]

ROOT = 0  # the empty string's state
CEILING = 16  # occurrences are counted up to here
CONTEXTS = 3  # the longest suffix, and shorter ones that add to its continuations
_LEAST = 0.02  # what is left to shorter contexts, if they are asked at all
_DISCOUNTS = [max(0.08, 0.8 * 0.85**length) for length in range(CEILING + 1)]


def discount(length: int) -> float:
    """Return the chance that what once followed a context of some length won't follow it again.

    Fitted to texts that the default model wrote after the prompts that are shipped: behind one
    token that matched, the first guess held in a quarter of all places, behind two in half, behind
    four in seven of ten, behind twelve and more in all but one of twenty-five.
    """
    return _DISCOUNTS[length] if length < CEILING else _DISCOUNTS[CEILING]


class SuffixAutomaton:
    """Grows by a token in amortised constant time, counting included.

    Occurrences saturate at CEILING. A class whose link is saturated need not go further to count:
    suffixes occur at least as often. So each state is counted CEILING times at most in its life.

    Another text may stand before it, with a border between them: what both hold is found in both.

    Attributes:
        before: Tokens of the other text, the border included.
        tokens: Both, one after the other.
    """

    def __init__(self) -> None:
        self.before = 0
        self.tokens: list[int] = []
        self._next: list[dict[int, int]] = [{}]
        self._length = [0]
        self._link = [-1]
        self._count = [CEILING]
        self._last = ROOT

    def __len__(self) -> int:
        return len(self.tokens) - self.before

    @property
    def text(self) -> list[int]:
        """The text's own tokens."""
        return self.tokens[self.before :]

    def read(self, source: Sequence[int], border: int) -> None:
        """Put another text before this one, if there is none yet."""
        if source and not self.before:
            text = self.tokens
            SuffixAutomaton.__init__(self)
            for token in (*source, border, *text):
                self.push(token)
            self.before = len(source) + 1

    def push(self, token: int) -> None:
        """Add the text's next token."""
        self.tokens.append(token)
        new = self._add(len(self.tokens), {}, 0)
        at = self._last
        while at != -1 and token not in self._next[at]:
            self._next[at][token] = new
            at = self._link[at]
        self._link[new] = ROOT if at == -1 else self._suffix(at, token)
        self._last = at = new
        while self._count[at] < CEILING:
            self._count[at] += 1
            at = self._link[at]

    def cut(self, length: int) -> None:
        """Forget all but the first `length` tokens: build anew, for what is rare may be slow."""
        kept, before = self.tokens[: self.before + length], self.before
        SuffixAutomaton.__init__(self)
        for token in kept:
            self.push(token)
        self.before = before

    def copy(self) -> SuffixAutomaton:
        """Return an automaton of the same text; neither sees the other's future."""
        twin = SuffixAutomaton()
        twin.tokens, twin.before = self.tokens.copy(), self.before
        twin._next = [transitions.copy() for transitions in self._next]
        twin._length = self._length.copy()
        twin._link = self._link.copy()
        twin._count = self._count.copy()
        twin._last = self._last
        return twin

    @property
    def match(self) -> int:
        """The state of the longest suffix of the text that occurs in it earlier, or ROOT."""
        return max(self._link[self._last], ROOT)

    def length(self, state: int) -> int:
        """Return the length of the state's longest substring."""
        return self._length[state]

    def continuations(self, state: int, most: int) -> list[tuple[int, float]]:
        """Return tokens that have followed the state's substrings, each with its confidence.

            P(x | context) = (count(x) - d) / total + d * distinct / total * P(x | shorter context)

        d = `discount(length)` is what the context's length takes off each count, and what the
        shorter contexts, CONTEXTS of them at most, share out (absolute discounting: Ney, Essen,
        Kneser, 1994). The best guess comes first; of equals the one that a longer context knows,
        then the one that last began to follow it.
        """
        found: dict[int, float] = {}
        left = 1.0
        for _ in range(CONTEXTS):
            if state <= ROOT or left < _LEAST:
                break
            then, count = self._next[state], self._count
            if then:
                off = discount(self._length[state])
                if len(then) == 1:
                    (token,) = then
                    total = count[then[token]]
                    found[token] = found.get(token, 0.0) + left * (total - off) / total
                else:
                    counts = [(token, count[end]) for token, end in then.items()]
                    total = sum([times for _, times in counts])
                    for token, times in reversed(counts):  # they stand in the order they came about
                        found[token] = found.get(token, 0.0) + left * (times - off) / total
                left *= off * len(then) / total
            state = self._link[state]
        if len(found) == 1:
            return list(found.items())
        return sorted(found.items(), key=_by_confidence)[:most]

    def follow(self, state: int, token: int) -> int:
        """Return the state of the longest suffix of the state's substrings, then `token`."""
        while state != -1 and token not in self._next[state]:
            state = self._link[state]
        return ROOT if state == -1 else self._next[state][token]

    def _add(self, length: int, transitions: dict[int, int], count: int) -> int:
        self._next.append(transitions)
        self._length.append(length)
        self._link.append(ROOT)
        self._count.append(count)
        return len(self._length) - 1

    def _suffix(self, at: int, token: int) -> int:
        """Return the state of `at`'s longest substring, then `token`, alone if need be."""
        state = self._next[at][token]
        length = self._length[at] + 1
        if self._length[state] == length:
            return state
        # Its shorter substrings now end where its longer ones don't: they become a state.
        shorter = self._add(length, self._next[state].copy(), self._count[state])
        self._link[shorter] = self._link[state]
        self._link[state] = shorter
        while at != -1 and self._next[at].get(token) == state:
            self._next[at][token] = shorter
            at = self._link[at]
        return shorter


def _by_confidence(pair: tuple[int, float]) -> float:
    return -pair[1]
