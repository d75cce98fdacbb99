"""Signature headers, arbitrary and nearly right: what is accepted is signed, and nothing else is ever raised."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given, settings, strategies as st

from payments_integration.exceptions import SignatureError
from payments_integration.signatures import sign, verify
from tests.fuzz import mutations, oracles, targets

SEEDS = targets.TARGETS["signature"].seeds()
#: Pieces of the grammar, right and wrong, in any number and order.
grammar = st.lists(
    st.tuples(
        st.sampled_from(["t=", "v1=", "v0=", "T=", "", " t=", "v1 ="]),
        st.sampled_from(["<t>", "<v1>", "<w1>", "<old>", "<v1 of old>", "<other>", "<V1>", "<T>", "0<t>", "", "x"]),
        st.sampled_from([",", ",", ", ", ";", ""]),
    ).map("".join),
    max_size=6,
).map("".join)


@settings(max_examples=150, deadline=None)
@given(header=st.binary(max_size=200) | grammar.map(str.encode))
@example(header=b"")
@example(header=b"\xff" * 5000)
def test_any_header_is_judged_as_the_oracle_does(header: bytes) -> None:
    targets.signature(header)


@settings(max_examples=200, deadline=None)
@given(header=st.builds(mutations.mutated_header, st.sampled_from(SEEDS), st.integers(0, 2**32).map(Random)))
def test_a_changed_valid_header_is_judged_as_the_oracle_does(header: bytes) -> None:
    targets.signature(header)


@settings(max_examples=100, deadline=None)
@given(
    body=st.binary(max_size=80),
    known=st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=80), max_size=4),
    signers=st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=80), min_size=1, max_size=2),
    shared=st.integers(0, 3),
    off=st.integers(-400, 400),
)
def test_several_secrets_and_signatures_are_judged_as_the_oracle_does(
    body: bytes, known: list[str], signers: list[str], shared: int, off: int
) -> None:
    """As after rotations: we know some secrets, the provider signs with one or two, perhaps with one of ours."""
    signers = [*signers[1:], known[shared]] if shared < len(known) else signers
    at = targets.NOW + off
    header = ",".join([f"t={at}", *(f"v1={oracles.digest(secret, str(at), body)}" for secret in signers)])
    expected = bool(set(signers) & set(known)) and abs(off) <= 300
    assert oracles.must_accept(body, header, known, targets.NOW) is expected
    if expected:
        verify(body, header, secrets=known, now=targets.NOW)
        return
    with pytest.raises(SignatureError):
        verify(body, header, secrets=known, now=targets.NOW)


@pytest.mark.parametrize("seed", SEEDS)
def test_valid_seeds_are_accepted_and_others_refused(seed: bytes) -> None:
    """The targets would notice nothing if everything were refused."""
    assert targets.signature(seed) == (b"<t>" in seed and b"v1=<v1>" in seed)


def test_the_oracle_makes_the_same_signature() -> None:
    for secret in ("s", "x" * 64, "y" * 65, "é" * 100):
        header = sign(b"{}", secret, now=targets.NOW)
        assert header == f"t={targets.NOW},v1={oracles.digest(secret, str(targets.NOW), b'{}')}"
