"""A bell over Redis: it may have something new for somebody who waits. A ring that is lost costs its hearer seconds.

Nothing is said with it. Who hears it looks at the rows, and looks at them now and then without it.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import structlog
from django.conf import settings
from redis import Redis, RedisError
from redis.asyncio import Redis as AsyncRedis
from redis.backoff import NoBackoff
from redis.retry import Retry

log = structlog.get_logger(__name__)

# Ringing holds a worker up for so long at most; a Redis that has fallen silent is then left alone for a while.
_RING_SECONDS = 0.5
_LEFT_ALONE_SECONDS = 10.0
# Between two tries to hear again, and how often a connection is asked whether it lives.
_AGAIN_SECONDS = 2.0
_ALIVE_SECONDS = 15.0


class Bell:
    """One bell, by its name; a process that rings keeps its connection."""

    def __init__(self, name: str) -> None:
        self._channel = f"{settings.CELERY_BROKER_TRANSPORT_OPTIONS['global_keyprefix']}bell:{name}"
        self._redis: Redis | None = None
        self._silent_until = 0.0

    def ring(self) -> bool:
        """Whether Redis took it."""
        if time.monotonic() < self._silent_until:
            return False
        try:
            if self._redis is None:
                self._redis = Redis.from_url(_address(), **_patience(_RING_SECONDS))
            self._redis.publish(self._channel, b"")
        except (RedisError, OSError) as error:
            self._silent_until = time.monotonic() + _LEFT_ALONE_SECONDS
            log.warning("bell_not_rung", reason=str(error))
            return False
        return True

    async def heed(self, heard: Callable[[], object]) -> None:
        """Call `heard` at each ring, and whenever hearing begins, for rings may have been missed. It never ends."""
        while True:
            try:
                await self._heed(heard)
            except (RedisError, OSError, TimeoutError) as error:
                log.warning("bell_not_heard", reason=str(error))
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _heed(self, heard: Callable[[], object]) -> None:
        redis = AsyncRedis.from_url(_address(), socket_connect_timeout=_AGAIN_SECONDS)
        async with redis, redis.pubsub() as hearing:
            await hearing.subscribe(self._channel)
            heard()
            while True:
                message = await hearing.get_message(ignore_subscribe_messages=True, timeout=_ALIVE_SECONDS)
                if message is not None:
                    heard()
                else:
                    await hearing.ping()


def _patience(seconds: float) -> dict[str, Any]:
    return {"socket_timeout": seconds, "socket_connect_timeout": seconds, "retry": Retry(NoBackoff(), 0)}


def _address() -> str:
    """As redis-py writes it; Celery has another word for a socket's path."""
    return str(settings.CELERY_BROKER_URL).replace("redis+socket://", "unix://", 1).replace("virtual_host=", "db=")
