"""Instances that come, go, and change behind their names."""

import asyncio
import socket

import pytest

from coordinator.peers import link, pool
from coordinator.peers.discovery import resolve
from coordinator.peers.own_order import NO_ORDER, OwnOrder
from specpair.errors import PeerUnavailableError
from specpair.model_info import TokenizerFiles
from specpair.options import Drafter
from specpair.rpc.retry import RetryPolicy
from tests.unit.coordinator.fake_peers import FakeTarget
from tests.unit.coordinator.fake_sequences import model_info
from tests.unit.coordinator.pair_bench import bench, targets_of, until
from tests.unit.coordinator.requests.tokenizers import odd_tokenizer


async def test_an_address_is_itself_and_a_name_all_that_it_stands_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await resolve("host:1") == {"host:1"}
    answers = [(socket.AF_INET, 1, 6, "", ("10.0.0.1", 7)), (socket.AF_INET6, 1, 6, "", ("fd00::1", 7, 0, 0))]

    async def getaddrinfo(host: str, port: int, **_: object) -> object:
        assert (host, port) == ("targets.example", 7)
        return answers

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    assert await resolve("dns:targets.example:7") == {"10.0.0.1:7", "[fd00::1]:7"}


async def test_hosts_are_taken_up_and_let_go_as_the_name_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "DISCOVERY_INTERVAL", 0.005)
    found = {"a:1"}

    async def resolve_name(address: str) -> frozenset[str]:
        if not found:
            raise OSError("no answer")
        return frozenset(found)

    monkeypatch.setattr(pool, "resolve", resolve_name)
    fakes = [FakeTarget(model_info(name), f"{name}:1") for name in "ab"]
    closed: list[str] = []

    async def close(self: FakeTarget) -> None:
        closed.append(self.address)

    monkeypatch.setattr(FakeTarget, "close", close)
    async with targets_of(*fakes).watched() as targets:
        await targets.wait_until_there(1.0)
        assert set(targets.links) == {"a:1"}
        found.add("b:1")
        await until(lambda: len(targets.links) == 2 and all(link.is_there for link in targets.links.values()))
        found.clear()
        await asyncio.sleep(0.02)
        assert len(targets.links) == 2, "a name server that is away takes nobody away"
        found.add("b:1")
        await until(lambda: closed == ["a:1"])
        assert set(targets.links) == {"b:1"}
    assert closed == ["a:1", "b:1"]


async def test_a_host_that_one_answer_leaves_out_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    both = frozenset({"a:1", "b:1"})
    found = both

    async def resolve_name(address: str) -> frozenset[str]:
        return found

    monkeypatch.setattr(pool, "resolve", resolve_name)
    monkeypatch.setattr(pool, "DISCOVERY_INTERVAL", 60.0)
    async with targets_of(*(FakeTarget(model_info(name), f"{name}:1") for name in "ab")).watched() as targets:
        await until(lambda: set(targets.links) == both)
        for answer in ({"a:1"}, {"b:1"}, both, {"a:1"}):
            found = frozenset(answer)
            await targets.discover()
            assert set(targets.links) == both
        await targets.discover()
        assert set(targets.links) == {"a:1"}


async def test_limits_are_those_that_every_target_keeps_and_places_add_up() -> None:
    fakes = [
        FakeTarget(model_info("a", max_model_len=100, max_num_seqs=4, runs_trees=True), "a:1"),
        FakeTarget(model_info("b", max_model_len=120, max_num_seqs=8), "b:1"),
    ]
    async with targets_of(*fakes).watched() as targets:
        await until(lambda: all(link.is_there for link in targets.links.values()) and len(targets.links) == 2)
        assert (targets.info.max_model_len, targets.info.max_num_seqs) == (100, 12)
        assert not targets.info.runs_trees


async def test_a_target_is_asked_for_no_more_of_its_own_tokens_than_it_proposes() -> None:
    headed = FakeTarget(model_info("a", drafters=(Drafter.EAGLE,), max_num_speculative_tokens=3), "a:1")
    async with targets_of(headed, FakeTarget(model_info("b"), "b:1")).watched() as targets:
        await until(lambda: all(link.is_there for link in targets.links.values()) and len(targets.links) == 2)
        orders = [OwnOrder(count, 0.25) for count in (0, 2, 5)]
        found = {address: [link.order_of(order) for order in orders] for address, link in targets.links.items()}
        assert found == {"a:1": [NO_ORDER, OwnOrder(2, 0.25), OwnOrder(3, 0.25)], "b:1": [NO_ORDER] * 3}


async def test_another_model_is_not_used_beside_the_first() -> None:
    fakes = [FakeTarget(model_info("a"), "a:1"), FakeTarget(model_info("b", parameter_count=2), "b:1")]
    fakes[1].is_serving = False
    async with targets_of(*fakes).watched() as targets:
        await targets.wait_until_there(1.0)
        fakes[1].say_health(is_serving=True)
        await until(lambda: targets.links["b:1"].refusal is not None)
        assert {targets.choose([i]) for i in range(20)} == {targets.links["a:1"]}


async def test_a_process_that_says_it_is_not_serving_is_not_chosen_and_taken_back_when_it_does() -> None:
    async with bench(target_count=2) as b:
        first = b.pair.target.links["target:1"]
        b.targets[0].say_health(is_serving=False)
        await until(lambda: not first.is_there)
        assert {b.pair.target.choose([i]) for i in range(20)} == {b.pair.target.links["target:2"]}
        b.targets[0].say_health(is_serving=True)
        await until(lambda: first.is_there)
        assert first in {b.pair.target.choose([i]) for i in range(20)}


async def test_places_of_a_target_that_is_away_are_not_counted() -> None:
    async with bench(target_count=2) as b:
        assert b.pair.target.info.max_num_seqs == 8
        b.targets[0].say_health(is_serving=False)
        await until(lambda: b.pair.target.info.max_num_seqs == 4)
        b.targets[1].say_health(is_serving=False)
        await until(lambda: not b.pair.target.is_there)
        assert b.pair.target.info.max_num_seqs == 8, "what there was, while nobody knows more"


async def test_of_two_models_that_come_together_one_is_used() -> None:
    fakes = [FakeTarget(model_info("a"), "a:1"), FakeTarget(model_info("b", parameter_count=2), "b:1")]
    async with targets_of(*fakes).watched() as targets:
        await until(lambda: any(link.refusal for link in targets.links.values()))
        assert sum(link.is_there for link in targets.links.values()) == 1


async def test_a_sequence_does_not_go_where_it_may_not_fit() -> None:
    fakes = [
        FakeTarget(model_info("a", max_model_len=100), "a:1"),
        FakeTarget(model_info("b", max_model_len=80), "b:1"),
    ]
    async with targets_of(*fakes).watched() as targets:
        await until(lambda: all(link.is_there for link in targets.links.values()) and len(targets.links) == 2)
        longer, shorter = targets.links["a:1"], targets.links["b:1"]
        assert {targets.choose([i], length=81) for i in range(20)} == {longer}
        assert {targets.choose([i], length=80) for i in range(20)} == {longer, shorter}
        assert targets.has_better(longer, 80) and not targets.has_better(longer, 81)


async def test_a_name_that_is_not_known_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved = pool.resolve

    async def resolve_all_but_one(address: str) -> frozenset[str]:
        if address == "dns:..:1":
            raise UnicodeError("label empty")
        return await resolved(address)

    monkeypatch.setattr(pool, "resolve", resolve_all_but_one)
    fake = FakeTarget(model_info("a"), "a:1")
    targets = targets_of(fake)
    targets._addresses = ("dns:..:1", "a:1")
    async with targets.watched():
        await targets.wait_until_there(1.0)


async def test_a_draft_whose_files_are_odd_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "REFUSED", RetryPolicy(first=0.05, most_doublings=0))
    async with bench() as b:
        assert b.pair.draft is not None
        drafts = b.pair.draft
        b.draft.say_health(is_serving=False)
        await until(lambda: not drafts.is_there)
        looks = 0

        async def odd(within: float) -> TokenizerFiles:
            nonlocal looks
            looks += 1
            return odd_tokenizer()

        with monkeypatch.context() as patch:
            patch.setattr(b.draft, "tokenizer_files", odd)
            b.draft.restart()
            b.draft.say_health(is_serving=True)
            await until(lambda: looks > 2)
            assert not drafts.is_there
        await until(lambda: drafts.is_there)


async def test_a_watcher_that_fails_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "REFUSED", RetryPolicy(first=0.05, most_doublings=0))
    async with bench() as b:
        target = b.pair.target.links["target:1"]

        async def fail(sequence_id: str, within: float) -> None:
            raise RuntimeError("nobody foresaw that")

        with monkeypatch.context() as patch:
            patch.setattr(b.target, "close_sequence", fail)
            await target._closes.close("s", is_serving=False)
            await asyncio.sleep(0.2)
        b.target.say_health(is_serving=False)
        await until(lambda: not target.is_there)
        b.target.say_health(is_serving=True)
        await until(lambda: target.is_there)


async def test_who_waits_long_says_for_whom(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(pool, "QUIET_SECONDS", 0.05)
    fake = FakeTarget(model_info("a"), "a:1")
    fake.is_serving = False
    caplog.set_level("INFO")
    async with targets_of(fake).watched() as targets:
        with pytest.raises(PeerUnavailableError, match=r"a:1 could be reached within 0\.3 s"):
            await targets.wait_until_there(0.3)
    assert [record.message for record in caplog.records if "waiting" in record.message] == [
        "waiting for a:1, for at most 0.3 s"
    ]


async def test_the_limits_follow_targets_that_come_back_changed_and_that_go() -> None:
    fakes = [FakeTarget(model_info(name, max_num_seqs=4), f"{name}:1") for name in "ab"]
    async with targets_of(*fakes).watched() as targets:
        await until(lambda: all(each.is_there for each in targets.links.values()) and len(targets.links) == 2)
        assert targets.info.max_num_seqs == 8
        assert targets.info is targets.info, "made once, since every round reads it"
        first = targets.links["a:1"]
        first.want_check()
        assert targets.info.max_num_seqs == 4
        await until(lambda: first.is_there)
        assert targets.info.max_num_seqs == 8
        first.release()
        assert targets.info.max_num_seqs == 4
