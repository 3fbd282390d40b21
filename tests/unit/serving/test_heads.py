"""Unfinished request heads, counted."""

from hypothesis import given
from hypothesis import strategies as st

from devicemanager.serving.heads import HEAD_END, IN_ALL, PER_PEER, PIECE_BYTES, Head, UnfinishedHeads
from devicemanager.serving.limits import Limits, VerifiedLimits

LIMITS = Limits(heads_cost=100, heads_cost_per_peer=40, verified=VerifiedLimits(1, 1, 1, heads_cost=50))

PARTS = st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", HEAD_END, b"a: b", b"x" * 40]), max_size=40)


def parsed(chunks: list[bytes], limit: int) -> list[bytes]:
    """Heads, the last of them perhaps unfinished, of chunks as they come."""
    head = Head()
    heads = [b""]
    for chunk in chunks:
        while piece := head.next_piece(chunk, limit):
            chunk = chunk[len(piece) :]
            head.grow(piece)
            heads[-1] += piece
            if heads[-1].endswith(HEAD_END):
                head.clear()
                heads.append(b"")
    return heads


@given(PARTS, st.integers(1, 20))
def test_however_it_is_cut_no_piece_goes_beyond_the_end_of_a_head(parts: list[bytes], size: int) -> None:
    """One request is parsed at a time."""
    sent = b"".join(parts)
    heads = parsed([sent[at : at + size] for at in range(0, len(sent), size)], 10**6)

    assert b"".join(heads) == sent
    assert all(head.find(HEAD_END) == len(head) - len(HEAD_END) for head in heads[:-1])
    assert HEAD_END not in heads[-1]


@given(st.binary(max_size=200).filter(lambda sent: HEAD_END not in sent), st.integers(1, 50))
def test_no_more_than_a_heads_limit_is_parsed(sent: bytes, limit: int) -> None:
    """Also when all of it comes at once."""
    assert parsed([sent], limit) == [sent[:limit]]


def test_no_more_is_parsed_at_once_than_a_piece() -> None:
    assert len(Head().next_piece(bytes(10 * PIECE_BYTES), 10**9)) == PIECE_BYTES


class TestBudget:
    def test_an_address_has_a_share(self) -> None:
        """And what exceeds it is its own."""
        heads: UnfinishedHeads[str] = UnfinishedHeads(LIMITS)
        heads.set("1", 30, "a", verified=False)
        heads.set("2", 10, "b", verified=False)
        assert heads.exceeded("1") is None
        heads.set("3", 11, "a", verified=False)

        assert heads.exceeded("3") == (PER_PEER, ["1", "3"])
        assert heads.exceeded("2") is None
        heads.set("1", 0, "a", verified=False)
        assert heads.exceeded("3") is None

    def test_all_unverified_heads_have_a_budget(self) -> None:
        heads: UnfinishedHeads[str] = UnfinishedHeads(LIMITS)
        for name in "abc":
            heads.set(name, 35, name, verified=False)

        assert heads.exceeded("c") == (IN_ALL, ["a", "b", "c"])

    def test_unverified_heads_do_not_use_the_budget_of_the_verified(self) -> None:
        heads: UnfinishedHeads[str] = UnfinishedHeads(LIMITS)
        for name in "abc":
            heads.set(name, 35, name, verified=False)
        heads.set("proxy", 50, "p", verified=True)
        assert heads.exceeded("proxy") is None
        heads.set("proxy", 51, "p", verified=True)

        assert heads.exceeded("proxy") == (IN_ALL, ["proxy"])
        heads.set("proxy", 0, "p", verified=True)
        assert heads.exceeded("proxy") is None
