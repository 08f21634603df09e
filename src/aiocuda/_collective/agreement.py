"""Whether ranks do the same: what each of them has said about each call. Pure.

Always true: calls of this rank are agreed on in their order. A call is agreed on when all who take part have said the
same about it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

__all__ = ["Agreement"]


@dataclass(slots=True)
class _Waiting:
    key: str
    number: int
    ranks: frozenset[int]


@dataclass(slots=True)
class Agreement:
    """Of one rank.

    Attributes
    ----------
    rank
        This one.
    agreed
        How many calls of this rank all have agreed on.
    """

    rank: int
    agreed: int = 0
    _said: dict[str, dict[int, str]] = field(default_factory=dict)
    _waiting: deque[_Waiting] = field(default_factory=deque)
    _number: int = 0

    def call(self, key: str, ranks: frozenset[int], words: str) -> int:
        """Note a call of this rank's; return its number. `ranks`: who takes part."""
        self._number += 1
        self._said.setdefault(key, {})[self.rank] = words
        self._waiting.append(_Waiting(key, self._number, ranks))
        return self._number

    def hear(self, rank: int, key: str, words: str) -> None:
        """Note what another rank said."""
        self._said.setdefault(key, {})[rank] = words

    def disagreement(self) -> str | None:
        """Return what two ranks say that is not the same, in words; first settle what can be."""
        while self._waiting:
            first = self._waiting[0]
            said = self._said[first.key]
            own = said[self.rank]
            for rank, words in sorted(said.items()):
                if words != own:
                    return (
                        f"the ranks of the group do not call the same: as {first.key}, rank {self.rank} calls {own}, "
                        f"rank {rank} calls {words}"
                    )
            if not first.ranks <= said.keys():
                return None
            self.agreed = first.number
            self._waiting.popleft()
            del self._said[first.key]
        return None

    def waits_for(self) -> str | None:
        """Return for whom the first call waits that is not agreed on; None if there is none."""
        if not self._waiting:
            return None
        first = self._waiting[0]
        said = self._said[first.key]
        missing = ", ".join(str(each) for each in sorted(first.ranks - said.keys()))
        return f"{first.key}, {said[self.rank]}: rank {missing} has not called it"
