"""A channel whose calls carry a token, and whose new connections use the current certificates."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from specpair.security.credentials import grpc_channel_credentials
from specpair.security.settings import ChannelSecurity
from specpair.security.tokens import AUTHORIZATION, bearer, token_of
from specpair.security.watched_files import WatchedFiles

MakeChannel = Callable[[grpc.ChannelCredentials | None], grpc.aio.Channel]
Metadata = tuple[tuple[str, str], ...]


class SecuredChannel(grpc.aio.Channel):
    """Forwards calls to a channel, and replaces the channel if certificates changed and it has no connection.

    Interceptors could add the token as well, but they put a queue before every message of a stream.
    """

    def __init__(self, make_channel: MakeChannel, security: ChannelSecurity):
        """`make_channel` gets None for plain text. Raises InvalidFieldError for unusable files."""
        self._make_channel = make_channel
        self._credentials = _watched_credentials(security)
        self._metadata = _watched_metadata(security)
        self._used = self._credentials()
        self._channel = make_channel(self._used)
        self._closing: set[asyncio.Task[None]] = set()

    def current(self) -> grpc.aio.Channel:
        """The channel to call on. A connected channel is kept: certificates matter only for new connections."""
        credentials = self._credentials()
        if credentials is not self._used and self._channel.get_state() is not grpc.ChannelConnectivity.READY:
            closing = asyncio.create_task(self._channel.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            self._used, self._channel = credentials, self._make_channel(credentials)
        return self._channel

    def metadata(self, given: Any) -> Metadata:
        """The given metadata plus the token."""
        return (*(given or ()), *self._metadata())

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self.current().get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self.current().wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self.current().channel_ready()

    async def close(self, grace: float | None = None) -> None:
        await self._channel.close(grace)
        await asyncio.gather(*self._closing)

    async def __aenter__(self) -> "SecuredChannel":
        return self

    async def __aexit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        await self.close()

    def unary_unary(self, *args: Any, **kwargs: Any) -> Any:
        return SecuredCallable(self, lambda channel: channel.unary_unary(*args, **kwargs))

    def unary_stream(self, *args: Any, **kwargs: Any) -> Any:
        return SecuredCallable(self, lambda channel: channel.unary_stream(*args, **kwargs))

    def stream_unary(self, *args: Any, **kwargs: Any) -> Any:
        return SecuredCallable(self, lambda channel: channel.stream_unary(*args, **kwargs))

    def stream_stream(self, *args: Any, **kwargs: Any) -> Any:
        return SecuredCallable(self, lambda channel: channel.stream_stream(*args, **kwargs))


class SecuredCallable:
    """One method of a secured channel."""

    def __init__(self, channel: SecuredChannel, make_callable: Callable[[grpc.aio.Channel], Any]):
        self._channel = channel
        self._make_callable = make_callable
        self._made_for: grpc.aio.Channel | None = None
        self._callable: Any = None

    def __call__(self, *args: Any, metadata: Any = None, **kwargs: Any) -> Any:
        current = self._channel.current()
        if current is not self._made_for:
            self._made_for, self._callable = current, self._make_callable(current)
        return self._callable(*args, metadata=self._channel.metadata(metadata), **kwargs)


def check_channel_security(security: ChannelSecurity) -> None:
    """Raises InvalidFieldError for unusable files, before anything is connected."""
    _watched_credentials(security)
    _watched_metadata(security)


def _watched_credentials(security: ChannelSecurity) -> Callable[[], grpc.ChannelCredentials | None]:
    tls = security.tls
    if tls is None:
        return lambda: None
    return WatchedFiles(tls.paths, lambda: grpc_channel_credentials(tls)).current


def _watched_metadata(security: ChannelSecurity) -> Callable[[], Metadata]:
    if security.token_file is not None:
        return WatchedFiles([security.token_file], lambda: _metadata(security)).current
    metadata = _metadata(security)
    return lambda: metadata


def _metadata(security: ChannelSecurity) -> Metadata:
    token = token_of(security)
    return () if token is None else ((AUTHORIZATION, bearer(token)),)
