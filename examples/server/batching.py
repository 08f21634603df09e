"""Which texts a step works on: pages, slots, and rows. Pure: it knows no device, no clock and no event loop.

Always true: a page and a slot belong to one text at most. A text has all the pages that it can need before its first
row runs, so nothing that was let in is ever put back. All ways to run the server plan their steps here.

A text gives its pages back as soon as no later step has a row of it, though one may still run: whoever gets them
writes them in a later step, and steps run in order.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from sizes import PAGE, Sizes

PLAN = np.dtype(np.int32)


class RefusedError(Exception):
    """A text was not let in."""


class LateError(RefusedError):
    """A text waited longer than it may."""


@dataclass(eq=False)
class Text:
    """A prompt, and the answer on its way.

    Attributes
    ----------
    limit
        The most tokens of the answer.
    temperature, seed
        Of the choice of tokens; a temperature of 0 takes the likeliest.
    stop
        The token that ends the answer; None: only the limit ends it.
    due
        When it gives up to wait for its first token, on the caller's clock.
    is_over
        No more of its tokens are wanted: all are there, or nobody listens. It may be set at any time.
    planned
        Positions that were given to steps.
    """

    prompt: Sequence[int]
    limit: int
    give: Callable[[int | Exception | None], None]  # a token; None is the end
    temperature: float = 0
    seed: int = 0
    stop: int | None = None
    due: float = float("inf")
    is_over: bool = False
    planned: int = 0
    answered: int = 0
    slot: int = -1
    pages: list[int] = field(default_factory=list)

    @property
    def positions(self) -> int:
        """That have a key and a value in the end: the last token of the answer has none."""
        return len(self.prompt) + self.limit - 1

    @property
    def is_planned(self) -> bool:
        """Whether no later step has a row of it."""
        return self.is_over or self.planned == self.positions


@dataclass(frozen=True)
class Step:
    """One step: its plan, as the kernels read it, and whose token each pick is."""

    plan: NDArray[np.int32]
    takers: Sequence[Text]


class Batch:
    """The texts of a server: those that wait, and those that have a slot."""

    def __init__(self, sizes: Sizes, max_waiting: int) -> None:
        self._sizes, self._max_waiting = sizes, max_waiting
        self._waiting: deque[Text] = deque()
        self._running: list[Text] = []
        self._open: set[Text] = set()  # those that were told no end yet
        self._failed: Exception | None = None
        self._free_slots = list(range(sizes.slots))
        self._free_pages = list(range(sizes.pages))
        self._tables = np.zeros((sizes.slots, sizes.pages_each), PLAN)

    def add(self, text: Text) -> None:
        """Let a text wait for a slot.

        Raises
        ------
        RefusedError
            As many wait as may, or the server has failed.
        ValueError
            The text can never run.
        """
        sizes = self._sizes
        if not text.prompt or text.limit < 1 or not 0 <= min(text.prompt) <= max(text.prompt) < sizes.vocabulary:
            raise ValueError(f"a prompt has tokens from 0 to {sizes.vocabulary - 1}, and an answer 1 token or more")
        if text.positions > min(sizes.positions, sizes.pages * PAGE):
            raise ValueError(
                f"a prompt and its answer have {min(sizes.positions, sizes.pages * PAGE) + 1} tokens at most; "
                f"{len(text.prompt)} and {text.limit} were asked for"
            )
        if self._failed is not None:
            raise RefusedError(f"no text is answered any more: {self._failed}")
        if len(self._waiting) >= self._max_waiting:
            raise RefusedError(f"{len(self._waiting)} texts wait already; try again later")
        self._waiting.append(text)
        self._open.add(text)

    def plan(self, now: float = 0) -> Step | None:
        """Give rows to texts, and return them as a step; None if there is nothing to do.

        First come the texts that have begun to answer, a row each, then prompts, as many of their tokens as there is
        room for.
        """
        for text in [text for text in self._running if text.is_planned]:
            self._release(text)
        self._admit(now)
        room = self._sizes.buckets[-1]
        rows: list[tuple[int, int, int]] = []
        picks: list[tuple[int, int, int, float]] = []
        takers = []
        for text in sorted(self._running, key=lambda text: text.planned < len(text.prompt)):
            begin = len(rows)
            rows += itertools.islice(self._rows_of(text), room - begin)
            text.planned += len(rows) - begin
            if len(rows) > begin and text.planned >= len(text.prompt):
                picks.append((len(rows) - 1, text.slot, text.seed, text.temperature))
                takers.append(text)
        return Step(self._packed(rows, picks), takers) if rows else None

    def take(self, step: Step, chosen: NDArray[np.int32]) -> None:
        """Give each text the token that a step has chosen for it."""
        for text, token in zip(step.takers, chosen.tolist(), strict=False):
            if not text.is_over:
                text.answered += 1
                text.give(token)
                if token == text.stop or text.answered == text.limit:
                    text.is_over = True
                    text.give(None)
            if text.is_over:
                self._open.discard(text)

    def fail(self, error: Exception) -> None:
        """Tell all texts that there will be no more tokens, and take no other text."""
        self._failed = error
        for text in self._open:
            text.give(error)
        self._open.clear()

    @property
    def counts(self) -> dict[str, int]:
        """Texts and pages, in numbers."""
        used = self._sizes.pages - len(self._free_pages)
        return {"waiting": len(self._waiting), "running": len(self._running), "pages": used}

    def _admit(self, now: float) -> None:
        self._waiting = deque(text for text in self._waiting if not self._is_gone(text, now))
        while self._waiting and self._free_slots:
            count = -(-self._waiting[0].positions // PAGE)
            if count > len(self._free_pages):
                return
            text = self._waiting.popleft()
            text.slot = self._free_slots.pop()
            text.pages = [self._free_pages.pop() for _ in range(count)]
            self._tables[text.slot, :count] = text.pages
            self._running.append(text)

    def _is_gone(self, text: Text, now: float) -> bool:
        if now > text.due and not text.is_over:
            text.is_over = True
            text.give(LateError("the first step for the text did not come in time"))
        if text.is_over:
            self._open.discard(text)
        return text.is_over

    def _release(self, text: Text) -> None:
        self._running.remove(text)
        if text.is_over:
            self._open.discard(text)
        self._free_slots.append(text.slot)
        self._free_pages += text.pages
        text.pages = []

    @staticmethod
    def _rows_of(text: Text) -> Iterator[tuple[int, int, int]]:
        if text.planned >= len(text.prompt):
            yield text.slot, text.planned, -1
        for position in range(text.planned, len(text.prompt)):
            yield text.slot, position, text.prompt[position]

    def _packed(
        self, rows: Sequence[tuple[int, int, int]], picks: Sequence[tuple[int, int, int, float]]
    ) -> NDArray[np.int32]:
        """Lay out what kernels.cu describes: tables, picks, rows; what is not used is -1."""
        sizes = self._sizes
        bucket = next(bucket for bucket in sizes.buckets if bucket >= len(rows))
        packed_picks = np.full((sizes.slots, 4), -1, PLAN)
        if picks:
            packed_picks[: len(picks), :3] = [pick[:3] for pick in picks]
            packed_picks[: len(picks), 3] = np.array([pick[3] for pick in picks], np.float32).view(PLAN)
        packed_rows = np.full((bucket, 3), -1, PLAN)
        packed_rows[: len(rows)] = rows
        return np.concatenate([self._tables.ravel(), packed_picks.ravel(), packed_rows.ravel()])


def empty_plan(sizes: Sizes, bucket: int) -> NDArray[np.int32]:
    """Return the plan of a step that does nothing: kernels are loaded and graphs made by it, before the first text."""
    return np.full(sizes.slots * (sizes.pages_each + 4) + 3 * bucket, -1, PLAN)


def times_of(chosen: NDArray[np.int32]) -> tuple[int, int]:
    """Return when a step began and ended, in nanoseconds of the device's clock, from what it has sent to the host."""
    began, ended = chosen[-4:].copy().view(np.uint64).tolist()
    return began, ended
