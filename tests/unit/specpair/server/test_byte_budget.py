"""How many bytes a stream may hold."""

import asyncio

from specpair.server.streams import ByteBudget


async def test_what_does_not_fit_waits_until_there_is_room() -> None:
    budget = ByteBudget(100)
    await budget.take(60)
    await budget.take(40)
    waiting = asyncio.create_task(budget.take(50))
    for size in (30, 15):
        budget.give_back(size)
        await asyncio.sleep(0.01)
        assert not waiting.done()
    budget.give_back(5)
    await asyncio.wait_for(waiting, 1)


async def test_what_is_larger_than_the_budget_goes_alone() -> None:
    budget = ByteBudget(100)
    await asyncio.wait_for(budget.take(1000), 1)
    waiting = asyncio.create_task(budget.take(1))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    budget.give_back(1000)
    await asyncio.wait_for(waiting, 1)


async def test_what_is_there_already_makes_others_wait() -> None:
    budget = ByteBudget(100)
    budget.add(101)
    waiting = asyncio.create_task(budget.take(1))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    budget.give_back(101)
    await asyncio.wait_for(waiting, 1)
