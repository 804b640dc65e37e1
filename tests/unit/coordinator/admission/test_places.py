"""Places and the line before them: never more than there are, nobody forgotten, fair to every client."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from coordinator.admission.places import Offer, Places, QueueLimits, Refusal
from coordinator.admission.waiting_line import Ticket, WaitingLine

CLIENTS = st.sampled_from(["ann", "bob", "cid", ""])
COUNTS = st.integers(1, 8)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), CLIENTS, COUNTS, st.integers(0, 60)),
        st.tuples(st.just("leave"), st.integers(0, 1000)),
        st.tuples(st.just("resize"), st.integers(1, 12)),
    ),
    max_size=80,
)


def ticket(client: str = "", output_count: int = 1, byte_count: int = 0) -> Ticket:
    return Ticket(client=client, output_count=output_count, byte_count=byte_count)


def places(count: int = 4, **limits: int) -> Places:
    return Places(lambda: count, QueueLimits(**{"max_requests": 10, "max_bytes": 1000, **limits}))  # type: ignore[arg-type]


@given(ACTIONS, st.integers(0, 5), st.integers(0, 200), st.none() | st.integers(1, 12))
def test_no_more_than_the_places_and_nobody_waits_beside_free_ones(
    actions: list[tuple], max_requests: int, max_bytes: int, per_client: int | None
) -> None:
    size = 8
    limits = QueueLimits(max_requests=max_requests, max_bytes=max_bytes, max_outputs_per_client=per_client)
    subject = Places(lambda: size, limits)
    known: list[Ticket] = []
    for action in actions:
        taken_before = subject.taken
        if action[0] == "resize":
            size = action[1]
        elif action[0] == "leave" and known:
            subject.leave(known.pop(action[1] % len(known)))
        elif action[0] == "offer":
            newcomer = ticket(*action[1:])
            offer = subject.offer(newcomer)
            if offer.refusal is None:
                known.append(newcomer)
            if offer.pushed_out is not None:
                known.remove(offer.pushed_out)
        subject.advance()

        running = [t for t in known if subject.has(t)]
        waiting = [t for t in known if not subject.has(t)]
        assert subject.taken == sum(t.output_count for t in running)
        assert subject.taken <= max(size, taken_before) or len(running) == 1
        assert Counter(map(id, waiting)) == Counter(map(id, subject.line))
        assert subject.line.count == len(waiting) <= max_requests
        assert subject.line.byte_count == sum(t.byte_count for t in waiting) <= max_bytes
        assert subject.line.output_count == sum(t.output_count for t in waiting)
        if per_client is not None:
            assert (
                max(Counter(t.client for t in known for _ in range(t.output_count)).values(), default=0) <= per_client
            )
        first = subject.line.first()
        assert (first is None) == (not waiting)
        if first is not None:
            assert subject.taken and subject.taken + first.output_count > size, "somebody waits beside free places"
        for client in {t.client for t in waiting}:
            own = [t for t in waiting if t.client == client]
            assert [t for t in subject.line if t.client == client] == own, "a client's own requests keep their order"


@given(st.lists(st.tuples(CLIENTS, COUNTS), min_size=1, max_size=60), st.data())
def test_two_clients_that_wait_are_served_alike(requests: list[tuple[str, int]], data: st.DataObject) -> None:
    line = WaitingLine()
    for client, count in requests[: len(requests) // 2]:
        line.push(ticket(client, count))
    rest = requests[len(requests) // 2 :]
    largest: Counter[str] = Counter()
    served: Counter[tuple[str, str]] = Counter()
    """Outputs of the first, while the second of the pair waited as well, since both last began to."""
    while line.count or rest:
        if rest and (not line.count or data.draw(st.booleans())):
            line.push(ticket(*rest.pop()))
            continue
        waiting = {t.client for t in line}
        for a, b in [pair for pair in served if not waiting.issuperset(pair)]:
            del served[a, b]
        for t in line:
            largest[t.client] = max(largest[t.client], t.output_count)
        first = line.first()
        popped = line.pop()
        assert popped is first
        for other in waiting - {popped.client}:
            served[popped.client, other] += popped.output_count
            ahead = served[popped.client, other] - served[other, popped.client]
            assert ahead <= largest[popped.client] + largest[other]


def test_equal_requests_are_taken_in_turn_whoever_came_first() -> None:
    line = WaitingLine()
    for client in "aaaabbc":
        line.push(ticket(client))
    assert [line.pop().client for _ in range(7)] == list("abcabaa")


def test_who_was_away_has_no_turns_saved_up() -> None:
    line = WaitingLine()
    for client in "aaaaaa":
        line.push(ticket(client))
    for _ in range(3):
        line.pop()
    for client in "bbb":
        line.push(ticket(client))
    assert "".join(line.pop().client for _ in range(6)) in ("ababab", "bababa")


def test_who_asks_for_more_waits_for_more_turns() -> None:
    line = WaitingLine()
    for _ in range(3):
        line.push(ticket("large", 4))
    for _ in range(8):
        line.push(ticket("small", 1))
    assert "".join(line.pop().client[0] for _ in range(11)) == "lsssslsssslls"[:11]


def test_nobody_overtakes_a_large_request() -> None:
    subject = places(count=4)
    running = [ticket() for _ in range(4)]
    for one in running:
        subject.offer(one)
    large, small = ticket("large", 4), ticket("small", 1)
    subject.offer(large)
    for one in running[:3]:
        subject.leave(one)
        assert subject.advance() == []
    subject.offer(small)
    assert subject.advance() == [] and not subject.has(small)
    subject.leave(running[3])
    assert subject.advance() == [large]
    subject.leave(large)
    assert subject.advance() == [small]


def test_a_full_line_lets_a_client_in_that_has_less_in_it() -> None:
    subject = places(count=1, max_requests=4)
    subject.offer(ticket("ann"))
    waiting = [ticket("ann") for _ in range(4)]
    for one in waiting:
        subject.offer(one)
    assert subject.offer(ticket("ann")) == Offer(Refusal.QUEUE_FULL)
    assert subject.offer(ticket("bob")) == Offer(pushed_out=waiting[3])
    assert subject.offer(ticket("bob")) == Offer(pushed_out=waiting[2])
    assert subject.offer(ticket("bob")) == Offer(Refusal.QUEUE_FULL), "ann and bob have as many"
    assert subject.offer(ticket("cid")).refusal is None


def test_bytes_are_a_limit_of_their_own() -> None:
    subject = places(count=1, max_bytes=100)
    subject.offer(ticket(byte_count=1000))
    assert subject.offer(ticket(byte_count=60)) == Offer()
    assert subject.offer(ticket(byte_count=50)) == Offer(Refusal.QUEUE_FULL)
    assert subject.offer(ticket(byte_count=40)) == Offer()


def test_what_a_client_may_have_covers_what_waits() -> None:
    subject = places(count=2, max_outputs_per_client=3)
    first = ticket("ann", 2)
    assert subject.offer(first) == Offer()
    assert subject.offer(ticket("ann", 1)) == Offer()
    assert subject.offer(ticket("ann", 1)) == Offer(Refusal.CLIENT_LIMIT)
    assert subject.offer(ticket("bob", 1)) == Offer()
    subject.leave(first)
    subject.advance()
    assert subject.offer(ticket("ann", 2)) == Offer()


def test_what_is_only_kept_makes_others_wait_a_moment_but_refuses_nobody() -> None:
    subject = places(count=2, max_requests=0)
    running, kept = ticket(), ticket()
    subject.offer(running)
    subject.keep(kept)
    next_one = ticket()
    assert subject.offer(next_one) == Offer()
    assert not subject.has(next_one)
    assert subject.offer(ticket()) == Offer(Refusal.QUEUE_FULL)
    subject.leave(kept)
    assert subject.advance() == [next_one]


def test_what_never_fits_is_refused() -> None:
    assert places(count=2).offer(ticket(output_count=3)) == Offer(Refusal.TOO_LARGE)
