"""Who asks, as JupyterHub says: the token of a user's server, of a service, or one made on the Hub's page.

Law: the Hub is asked about every token, its answer is kept for CACHE_S and no longer, so a token that was
revoked is refused from then on; a Hub that does not answer makes nobody known. The one module that imports
`jupyterhub`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from jupyterhub.services.auth import HubAuth
from jupyterhub.utils import make_ssl_context
from replkernel_scheduler.types import UserName
from tornado.httpclient import AsyncHTTPClient, HTTPError
from tornado.web import HTTPError as WebError

from replkernel.errors import UNREADABLE
from replkernel_server.scheduling.access import ADMIN_SCOPE, HOST_SCOPE, LEASE_SCOPE, SEE_SCOPE
from replkernel_server.scheduling.identity import Identity, IdentityUnknown, NotYours
from replkernel_server.scheduling.quotas import owned_by, quota_of

CACHE_S = 15.0
FAILURE_KEPT_S = 1.0
KEPT_MAX = 10_000
UNKNOWN_MAX = 1_000
"""So many answers that a token is nobody's are kept: a flood of them displaces only its own."""
ASKING_MAX = 16
ASKING_AGAIN_MAX = 8
"""Questions about tokens that were somebody's a moment ago, beside those about all others."""
WAITING_MAX = 200
"""More questions than these about unknown tokens do not wait for their turn."""
ANSWER_S = 10.0
HUB_ADMIN_SCOPE = "admin:servers"
"""A Hub administrator's token without this one is a narrow one, such as that of his own server."""
GROUPS_MAX = 100
"""More groups of one user than this are not looked at."""

Value = TypeVar("Value")


class HubIdentify:
    """Asks a JupyterHub whom a token stands for, and reads the properties of his groups."""

    def __init__(self, auth: HubAuth | None = None, cache_s: float = CACHE_S) -> None:
        """Ask the Hub that `auth` knows; without one it is the Hub that runs this service."""
        self._auth = auth or HubAuth()
        self._tokens: Kept[Identity | None] = Kept(cache_s)
        self._groups: Kept[dict[str, object]] = Kept(cache_s / 3)
        self._asking = asyncio.Semaphore(ASKING_MAX)
        self._asking_again = asyncio.Semaphore(ASKING_AGAIN_MAX)
        self._waiting = 0

    async def __call__(self, token: str) -> Identity | None:
        """Return whom `token` stands for; raises IdentityUnknown, and NotYours if he may not come here."""
        if not token:
            return None
        key = hashlib.sha256(token.encode()).hexdigest()
        known = self._tokens.knew(key)
        return await self._tokens.get(key, lambda: self._identity(token, known))

    async def _identity(self, token: str, known: bool) -> Identity | None:
        model = await (self._model(token, self._asking_again) if known else self._unknown(token))
        if model is None:
            return None
        name, service = str(model["name"]), model.get("kind") == "service"
        scopes = model.get("scopes", ())
        if not self._auth.check_scopes(self._auth.access_scopes, model):
            needed = ", ".join(sorted(self._auth.access_scopes))
            raise NotYours(
                f"The token of {name} lacks the scope {needed}: start the server anew from the Hub; "
                "if that does not help, ask the Hub's administrator for a group that may lease GPUs."
            )
        groups = tuple(sorted(str(group) for group in model.get("groups", ())))[:GROUPS_MAX]
        properties = {} if service else {group: await self._properties(group) for group in groups}
        return Identity(
            UserName(f"service/{name}" if service else name),
            admin=ADMIN_SCOPE in scopes or (bool(model.get("admin")) and HUB_ADMIN_SCOPE in scopes),
            may_host=_has(HOST_SCOPE, scopes),
            may_lease=_has(LEASE_SCOPE, scopes),
            groups=groups,
            sees_all=_has(SEE_SCOPE, scopes),
            quota=None if service else quota_of(properties),
            owns=owned_by(name, properties),
        )

    async def _unknown(self, token: str) -> dict[str, Any] | None:
        """Return the model of who has a token that nobody had a moment ago, unless too many wait for that."""
        if self._waiting >= WAITING_MAX:
            raise IdentityUnknown("The Hub is asked about too many unknown tokens: try again in a moment.")
        self._waiting += 1
        try:
            return await self._model(token, self._asking)
        finally:
            self._waiting -= 1

    async def _model(self, token: str, asking: asyncio.Semaphore) -> dict[str, Any] | None:
        """Return the Hub's model of who has this token, None if nobody has."""
        try:
            async with asking, asyncio.timeout(ANSWER_S):
                asked = self._auth.user_for_token(token, use_cache=False, sync=False)
                found: dict[str, Any] | None = await asked
        except (WebError, TimeoutError, *UNREADABLE) as error:
            raise _unknown(error) from error
        return found

    async def _properties(self, group: str) -> dict[str, object]:
        return await self._groups.get(group, lambda: self._ask_properties(group))

    async def _ask_properties(self, group: str) -> dict[str, object]:
        """Return the properties of a group, none if it is gone by now."""
        auth = self._auth
        tls = make_ssl_context(auth.keyfile, auth.certfile, cafile=auth.client_ca) if auth.keyfile else None
        address = f"{auth.api_url.rstrip('/')}/groups/{quote(group, safe='')}"
        try:
            async with self._asking_again:
                answer = await AsyncHTTPClient().fetch(
                    address,
                    headers={"Authorization": f"token {auth.api_token}"},
                    request_timeout=ANSWER_S,
                    ssl_options=tls,
                )
            properties = json.loads(answer.body)["properties"]
        except HTTPError as error:
            if error.code == 404:
                return {}
            raise _unknown(error) from error
        except (OSError, *UNREADABLE, KeyError, TypeError) as error:
            raise _unknown(error) from error
        return properties if isinstance(properties, dict) else {}


class Kept(Generic[Value]):
    """Answers that are kept for a moment; whoever asks the same meanwhile waits for the same answer.

    Those that say something and those that say nothing (None, or an error) do not displace each other.
    """

    def __init__(self, keep_s: float) -> None:
        """Start with none."""
        self._keep_s = keep_s
        self._answers: dict[str, tuple[asyncio.Task[Value], float]] = {}
        self._nothing: dict[str, tuple[asyncio.Task[Value], float]] = {}

    def knew(self, key: str) -> bool:
        """Tell whether the last answer that is remembered said something."""
        return key in self._answers

    async def get(self, key: str, ask: Callable[[], Awaitable[Value]]) -> Value:
        """Return the answer that is kept, or ask."""
        now = asyncio.get_running_loop().time()
        kept = self._answers.get(key) or self._nothing.get(key)
        if kept is not None:
            task, at = kept
            failed = task.done() and (task.cancelled() or task.exception() is not None)
            if now - at < (min(FAILURE_KEPT_S, self._keep_s) if failed else self._keep_s):
                return await asyncio.shield(task)
        task = asyncio.ensure_future(_awaited(ask))
        self._keep(self._answers if key in self._answers else self._nothing, key, task, now)
        task.add_done_callback(lambda done: self._answered(key, done, now))
        return await asyncio.shield(task)

    def _answered(self, key: str, done: asyncio.Task[Value], at: float) -> None:
        """Put an answer to those of its kind, unless there is a newer one; an error says nothing new."""
        if done.cancelled() or done.exception() is not None:
            return
        nothing = done.result() is None
        if (self._answers.get(key) or self._nothing.get(key) or (None,))[0] is done:
            self._keep(self._nothing if nothing else self._answers, key, done, at)

    def _keep(
        self,
        place: dict[str, tuple[asyncio.Task[Value], float]],
        key: str,
        task: asyncio.Task[Value],
        at: float,
    ) -> None:
        self._answers.pop(key, None)
        self._nothing.pop(key, None)
        most = KEPT_MAX if place is self._answers else UNKNOWN_MAX
        while len(place) >= most:
            del place[next(iter(place))]
        place[key] = task, at


async def _awaited(ask: Callable[[], Awaitable[Value]]) -> Value:
    return await ask()


def _has(scope: str, scopes: Iterable[str]) -> bool:
    """Return whether a custom scope is among the scopes of a token, in full or for some things only."""
    return any(str(one).partition("!")[0] == scope for one in scopes)


def _unknown(error: Exception) -> IdentityUnknown:
    return IdentityUnknown(
        f"The Hub cannot be asked who you are ({type(error).__name__}: {str(error)[:200]}): try again in a "
        "moment, or ask its administrator."
    )
