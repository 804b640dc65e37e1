"""The device thread: it loads the model and runs its passes."""

import asyncio
import queue
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

SWITCH_SECONDS = 0.0002
"""For how long a thread of the process keeps the interpreter while another one waits for it. A pass lets go of it with
each large operation; by Python's own 5 ms it would wait that long for the event loop, again and again."""


class DeviceThread:
    """Runs functions one after the other. All methods are called on the event loop."""

    def __init__(self) -> None:
        sys.setswitchinterval(min(SWITCH_SECONDS, sys.getswitchinterval()))
        self._functions: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="device", daemon=True)
        self._thread.start()

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What the function returns; raises what it raises."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def settle(setter: Callable[[], object]) -> None:
            if not answer.done():  # cancelled meanwhile
                setter()

        def run() -> None:
            try:
                result = function(*args, **kwargs)
            except BaseException as error:
                failure = error
                tell(lambda: settle(lambda: answer.set_exception(failure)))
            else:
                tell(lambda: settle(lambda: answer.set_result(result)))

        def tell(callback: Callable[[], object]) -> None:
            with suppress(RuntimeError):  # the loop is closed, so no caller waits
                loop.call_soon_threadsafe(callback)

        self._functions.put(run)
        return await answer

    def run_last(self, function: Callable[[], object]) -> None:
        """Runs the function after all others, then ends the thread."""
        self._functions.put(function)
        self.end()

    def end(self) -> None:
        """Ends the thread after what it was given."""
        self._functions.put(None)

    async def join(self) -> None:
        """Waits until the thread has ended."""
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while (function := self._functions.get()) is not None:
            function()
