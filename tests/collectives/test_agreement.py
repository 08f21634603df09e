"""The words of ranks are compared: without devices and channels."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aiocuda._collective.agreement import Agreement

BOTH = frozenset({0, 1})


def test_a_call_is_agreed_on_when_all_have_said_it():
    agreement = Agreement(0)
    assert agreement.call("call 1", BOTH, "x") == 1
    assert agreement.disagreement() is None
    assert agreement.agreed == 0
    assert agreement.waits_for() == "call 1, x: rank 1 has not called it"
    agreement.hear(1, "call 1", "x")
    assert agreement.disagreement() is None
    assert agreement.agreed == 1
    assert agreement.waits_for() is None


def test_what_was_said_before_counts():
    agreement = Agreement(1)
    agreement.hear(0, "call 1", "x")
    agreement.call("call 1", BOTH, "x")
    assert agreement.disagreement() is None
    assert agreement.agreed == 1


def test_a_disagreement_names_both():
    agreement = Agreement(0)
    agreement.call("call 1", BOTH, "all_reduce")
    agreement.hear(1, "call 1", "barrier")
    said = agreement.disagreement()
    assert said is not None
    assert "rank 0 calls all_reduce, rank 1 calls barrier" in said
    assert agreement.agreed == 0


def test_a_disagreement_is_found_before_all_have_said_it():
    agreement = Agreement(0)
    agreement.call("call 1", frozenset({0, 1, 2}), "x")
    agreement.hear(2, "call 1", "y")
    assert "rank 2 calls y" in str(agreement.disagreement())


def test_messages_concern_their_ends_alone():
    agreement = Agreement(0)
    agreement.call("message 1 from rank 0 to rank 2", frozenset({0, 2}), "x")
    agreement.hear(2, "message 1 from rank 0 to rank 2", "x")
    assert agreement.disagreement() is None
    assert agreement.agreed == 1


@given(st.permutations(range(6)))
def test_calls_are_agreed_on_in_order_whenever_they_are_heard(order):
    agreement = Agreement(0)
    for each in range(6):
        agreement.call(f"call {each}", BOTH, "x")
    heard: set[int] = set()
    for each in order:
        agreement.hear(1, f"call {each}", "x")
        heard.add(each)
        assert agreement.disagreement() is None
        assert agreement.agreed == next((n for n in range(6) if n not in heard), 6)
