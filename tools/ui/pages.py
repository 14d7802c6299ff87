"""The page's addresses, and what each answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ...core.errors import EoKafkaError
from ..control.words import Do
from ..jobs.standing import Standing, State
from ..shared.command_line import duration
from . import views
from .actions import Action, Actions
from .cluster import Cluster
from .doings import Doings
from .gate import CSRF, Gate, Refused, form_of, local_path
from .looks import Look, Seen, all_of

HERE = Path(__file__).parent
EVERY_S = 3
WRONG_TOKEN_S = 0.5  # after a wrong token
ASKING = {do.value: do for do in (Do.SUSPEND, Do.RESUME)}


class Pages:
    """Of one cluster. `actions` None: nothing can be done, only seen."""

    def __init__(self, cluster: Cluster, actions: Actions | None) -> None:
        self._cluster, self._actions = cluster, actions
        self._doings = Doings(cluster.looks.forget)
        self._pages = jinja2.Environment(
            loader=jinja2.FileSystemLoader(HERE / "html"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._pages.filters["clock"] = _clock
        self._pages.filters["path"] = lambda text: quote(text, safe="")

    def app(self) -> Starlette:
        """Without the gate."""
        routes = [
            Route("/", self._overview),
            Route("/jobs/{job}", self._job),
            Route("/topics/{topic}", self._topic),
            Route("/login", self._login, methods=["GET", "POST"]),
            Route("/logout", self._logout, methods=["POST"]),
            Mount("/static", StaticFiles(directory=HERE / "static")),
        ]
        if self._actions is not None:
            both = ["GET", "POST"]
            routes += [
                Route("/jobs/{job}/export", self._export, methods=both),
                Route("/jobs/{job}/{do}", self._ask, methods=both),
                Route("/transactions/{name}/abort", self._abort, methods=both),
                Route("/doings/{id}", self._doing),
            ]
        handlers: dict[Any, Any] = {HTTPException: self._http_error, Refused: self._refused}
        return Starlette(routes=routes, exception_handlers=handlers)

    def _overview(self, request: Request) -> Response:
        (jobs,) = all_of([self._cluster.jobs()])
        query, state = request.query_params.get("q", ""), request.query_params.get("state", "")
        sort = request.query_params.get("sort", "job")
        now_ms = _now_ms()
        found = jobs.value or []
        rows = views.overview(found, now_ms, query, state, sort)
        topics = sorted({topic for one in found for topic in views.topics_of(one)})
        return self._page(
            request,
            "overview.html",
            [jobs],
            rows=rows,
            known=jobs.value is not None,
            counts=views.counts(found),
            query=query,
            state=state,
            states=[one.value for one in State],
            sort=sort,
            sorts=views.SORTS,
            topics=topics,
            topic=query if query in topics else "",
        )

    def _job(self, request: Request) -> Response:
        name = request.path_params["job"]
        cluster = self._cluster
        (jobs,) = all_of([cluster.jobs()])
        one = self._standing(jobs, name)
        if one is None and jobs.value is None:  # nobody knows whether there is one
            return self._page(request, "job.html", [jobs], title=name, job=None)
        assert one is not None
        decisions = list(one.tail.ledger.decisions.values()) if one.tail else []
        outputs, inputs = views.outputs_of(decisions), views.inputs_of(decisions)
        looks: list[Look[Any]] = [
            cluster.snapshots(name),
            cluster.topics(name, outputs, inputs),
        ]
        has_none = not one.open_count and one.state in (State.QUIET, State.NEW)
        if not has_none:
            looks.append(cluster.transactions(name))
        snapshots, topics, *asked = all_of(looks)
        # What was seen of all jobs has none of this one: that is not asked again.
        transactions: Seen[Any] = asked[0] if asked else Seen([], jobs.at_s)
        now_ms = _now_ms()
        return self._page(
            request,
            "job.html",
            [jobs, transactions],
            title=name,
            job=views.row(one, now_ms),
            standing=one,
            batches=views.batches(one, now_ms),
            lag=views.lag_chart(cluster.lags_of(name)),
            happened=views.happened(one, now_ms),
            transactions=transactions,
            transaction_rows=views.transactions(transactions.value or [], now_ms),
            snapshots=snapshots,
            snapshot_rows=views.snapshots(snapshots.value) if snapshots.value else [],
            topics=topics,
            uses=views.topics_of(one),
        )

    def _topic(self, request: Request) -> Response:
        topic = request.path_params["topic"]
        jobs, found = all_of([self._cluster.jobs(), self._cluster.on_topic(topic)])
        now_ms = _now_ms()
        uses = {one.job: views.topics_of(one).get(topic) for one in jobs.value or ()}
        return self._page(
            request,
            "topic.html",
            [jobs, found],
            topic=topic,
            uses={job: use for job, use in uses.items() if use},
            transactions=found,
            transaction_rows=views.transactions(found.value or [], now_ms),
        )

    def _standing(self, jobs: Seen[list[Standing]], name: str) -> Standing | None:
        """Raises HTTPException: there is none of this name."""
        if jobs.value is None:
            return None
        found = next((one for one in jobs.value if one.job == name), None)
        if found is None or found.state is State.NO_LEDGER:
            raise HTTPException(404, f"No ledger of job '{name}' is seen here.")
        return found

    async def _ask(self, request: Request) -> Response:
        if request.path_params["do"] not in ASKING:
            raise HTTPException(404)
        do = ASKING[request.path_params["do"]]
        return await self._act(request, lambda actions: actions.asking(self._known(request), do))

    async def _export(self, request: Request) -> Response:
        return await self._act(request, lambda actions: actions.export(self._known(request)))

    async def _abort(self, request: Request) -> Response:
        name, job = request.path_params["name"], request.query_params.get("job", "")
        return await self._act(request, lambda actions: actions.abort(name, job))

    def _known(self, request: Request) -> str:
        """The job's name, if there is such a job. Raises HTTPException."""
        (jobs,) = all_of([self._cluster.jobs()])
        name: str = request.path_params["job"]
        self._standing(jobs, name)
        return name

    async def _act(self, request: Request, make: Callable[[Actions], Action]) -> Response:
        """Say what will be done; do it when that was confirmed."""
        assert self._actions is not None
        fields = await form_of(request) if request.method == "POST" else None
        try:
            action = await run_in_threadpool(make, self._actions)
        except EoKafkaError as error:
            raise HTTPException(409, str(error)) from None
        if fields is None:
            return self._page(
                request, "confirm.html", [], action=action, once=self._doings.new_id()
            )
        made = self._doings.start(fields.get("once", ""), action, fields)
        if made is None:
            raise Refused
        return RedirectResponse(f"/doings/{quote(made.id, safe='')}", 303)

    def _doing(self, request: Request) -> Response:
        until = time.monotonic() + 1.0
        found = self._doings.of(request.path_params["id"])
        if found is None:
            raise HTTPException(404, "This action is not known any more.")
        while found.ok is None and time.monotonic() < until:
            time.sleep(0.05)
        every = 1 if found.ok is None else 0
        return self._page(request, "doing.html", [], doing=found, every=every)

    async def _login(self, request: Request) -> Response:
        gate: Gate = request.scope["eo_kafka.gate"]
        to = local_path(request.query_params.get("to", "/"))
        if not gate.needs_token:
            return RedirectResponse("/", 303)
        if request.method == "GET":
            return self._page(request, "login.html", [], to=to, wrong=False, every=0)
        fields = await form_of(request)
        if not gate.is_token(fields.get("token", "")):
            await asyncio.sleep(WRONG_TOKEN_S)
            return self._page(request, "login.html", [], 403, to=to, wrong=True, every=0)
        answer = RedirectResponse(to, 303)
        gate.log_in(answer)
        return answer

    async def _logout(self, request: Request) -> Response:
        await form_of(request)
        request.scope["eo_kafka.gate"].log_out(request.scope["eo_kafka.session"])
        return RedirectResponse("/login", 303)

    def _http_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        headers = dict(error.headers or {})
        return self._page(
            request,
            "error.html",
            [],
            error.status_code,
            headers=headers,
            head="That is not here" if error.status_code == 404 else "That cannot be done",
            said=error.detail,
            every=0,
        )

    def _refused(self, _request: Request, _error: Exception) -> Response:
        return PlainTextResponse(
            "This form was not sent from a page of this server, or that is too old: open the page "
            "again. Nothing was done now.\n",
            403,
        )

    def _page(
        self,
        request: Request,
        name: str,
        seen: list[Seen[Any]],
        status: int = 200,
        headers: dict[str, str] | None = None,
        **shown: Any,
    ) -> Response:
        """`seen`: what the page says is so now: it is as old as the oldest of it."""
        gate, session = request.scope["eo_kafka.gate"], request.scope["eo_kafka.session"]
        now_s = time.time()
        known = [one.at_s for one in seen if one.at_s is not None]
        told = {
            "every": EVERY_S if seen else 0,
            "servers": self._cluster.servers,
            "csrf": gate.word_of(session),
            "csrf_field": CSRF,
            "may_act": self._actions is not None,
            "may_see": gate.may_see(session),
            "logged_in": gate.needs_token and gate.is_known(session),
            "as_of": _clock(min(known)) if known else "",
            "age": duration(now_s - min(known)) if known else "",
            "late": any(one.is_late(now_s) for one in seen),
            "troubles": list(dict.fromkeys(one.problem for one in seen if one.problem)),
            "nothing": bool(seen) and not known,
            **shown,
        }
        text = self._pages.get_template(name).render(told)
        return HTMLResponse(text, status, headers)


def _now_ms() -> int:
    return int(time.time() * 1000)


def _clock(at_s: float) -> str:
    with suppress(ValueError, OverflowError):
        return time.strftime("%H:%M:%S UTC", time.gmtime(at_s))
    return "?"
