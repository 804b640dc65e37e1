"""What is pushed goes with the answers or alone, and never waits for a client that does not read."""

from specpair.server.pushes import Pushes
from specpair.v1 import draft_service_pb2 as pb


def block(step: int) -> pb.AheadBlock:
    return pb.AheadBlock(sequence_id="s" * 100, step=step)


SIZE = block(1).ByteSize()


def always() -> bool:
    return True


def never() -> bool:
    return False


def opened(limit: int = 10 * SIZE) -> tuple[Pushes, list[None]]:
    """What is pushed, and one entry for each time that it asked to be written."""
    begun: list[None] = []
    pushes = Pushes("ahead_blocks", limit)
    pushes.open(lambda: begun.append(None))
    return pushes, begun


def filled(pushes: Pushes, room: int = 1000 * SIZE, *, is_alone: bool = False) -> list[int]:
    message = pb.StreamProposalsResponse()
    moved = pushes.fill(message, room, is_alone=is_alone)
    assert moved == bool(message.ahead_blocks)
    return [one.step for one in message.ahead_blocks]


def test_what_is_pushed_is_written_once_in_order() -> None:
    pushes, begun = opened()
    assert not pushes
    assert pushes.push(block(1), always) and pushes.push(block(2), always)
    assert pushes and begun
    assert filled(pushes) == [1, 2]
    assert not pushes and filled(pushes) == []


def test_a_message_takes_what_it_has_room_for() -> None:
    pushes, _ = opened()
    for step in (1, 2, 3):
        pushes.push(block(step), always)
    assert filled(pushes, 2 * SIZE) == [1, 2]
    assert filled(pushes, SIZE - 1) == []
    assert filled(pushes) == [3]


def test_what_nobody_needs_any_more_is_not_written() -> None:
    pushes, _ = opened()
    for step in (1, 2, 3):
        pushes.push(block(step), never if step == 2 else always)
    assert filled(pushes) == [1, 3]


def test_a_client_that_does_not_read_costs_no_more_than_the_limit() -> None:
    pushes, _ = opened(3 * SIZE)
    for has_room in (True, True, True, False, False):
        assert pushes.has_room(SIZE) is has_room
        assert pushes.push(block(1), always) is has_room
    assert filled(pushes) == [1, 1, 1]
    assert pushes.push(block(2), always), "there is room again"


def test_a_stream_takes_nothing_before_it_begins_and_after_it_ended() -> None:
    pushes = Pushes("ahead_blocks")
    assert not pushes.push(block(1), always)
    pushes, _ = opened()
    pushes.push(block(1), always)
    pushes.close()
    assert not pushes and not pushes.has_room(0) and not pushes.push(block(2), always)


def test_a_message_with_nothing_else_takes_one_however_large() -> None:
    """Answers wait only for that one, not for all that is pushed."""
    pushes, _ = opened()
    for step in (1, 2, 3, 4):
        pushes.push(block(step), never if step == 1 else always)
    assert filled(pushes, SIZE - 1, is_alone=True) == [2]
    assert filled(pushes, SIZE, is_alone=True) == [3]
    assert filled(pushes, 0) == []
    assert filled(pushes, 0, is_alone=True) == [4]
