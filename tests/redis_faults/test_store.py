"""The store's promises: one budget over all of a call, no blind retries, failures said in our words, no secrets in any of them."""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from django_tenant_queue.brokers.redis import clients, scripts
from django_tenant_queue.brokers.redis.store import RedisStore
from django_tenant_queue.exceptions import BrokerMisconfigured, ScheduleUnavailable, VerbFailed
from embedded import Valkey
from tests.proxy import Proxy
from tests.redis_faults.answering import AnsweringServer
from tests.redis_faults.conftest import HASTY, KEY, url_through
from tests.waiting import eventually

StoreAt = Callable[..., RedisStore]
COUNT = scripts.Script.of("count", "return redis.call('INCR', KEYS[1])")
MARGIN_SECONDS = 0.3
SECRET = "hunter2"


def count(store: RedisStore, **options: Any) -> int:
    return store.call("count", lambda client: scripts.evaluate(client, COUNT, KEY, ()), **options)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun <= seconds + MARGIN_SECONDS


class TestScripts:
    def test_a_server_without_the_script_gets_its_text_once(self, store_at: StoreAt, valkey: Valkey, admin: Any) -> None:
        store = store_at(valkey.url)
        assert [count(store) for _ in range(3)] == [1, 2, 3]

    def test_flushed_scripts_are_sent_again_and_run_once(self, store_at: StoreAt, valkey: Valkey, admin: Any) -> None:
        """C08: SCRIPT FLUSH all the time: every call counts once, whether it met NOSCRIPT or not."""
        store, flushed = store_at(valkey.url), 0
        for n in range(1, 201):
            if n % 3 == 0:
                flushed += admin.script_flush()
            assert count(store) == n
        assert flushed > 50
        assert admin.info("commandstats")["cmdstat_evalsha"]["failed_calls"] >= flushed

    def test_flushed_scripts_in_a_pipeline_run_once(self, store_at: StoreAt, valkey: Valkey, admin: Any) -> None:
        """C08: SCRIPT FLUSH every few milliseconds beside pipelines of 50 calls: each call has its effect once."""
        store, stop, flushes = store_at(valkey.url), threading.Event(), []

        def flush() -> None:
            while not stop.wait(0.002):
                flushes.append(admin.script_flush())

        flusher = threading.Thread(target=flush)
        flusher.start()
        try:
            replies = [
                reply
                for _ in range(20)
                for reply in store.call("count", lambda client: scripts.evaluate_many(client, COUNT, KEY, [()] * 50))
            ]
        finally:
            stop.set()
            flusher.join()
        assert sorted(replies) == list(range(1, 1001))
        assert flushes

    def test_a_restart_without_persistence_is_survived(self, store_at: StoreAt, valkey: Valkey, admin: Any) -> None:
        """C02: the server comes back empty: connections are made anew, scripts sent again."""
        store = store_at(valkey.url)
        assert count(store) == 1
        valkey.kill()
        valkey.start()
        assert count(store) == 1


@pytest.mark.parametrize(
    "error",
    [
        "LOADING Redis is loading the dataset in memory",
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "CLUSTERDOWN The cluster is down",
        "READONLY You can't write against a read only replica.",
        "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
    ],
)
class TestPassingErrors:
    def test_it_is_asked_again_until_it_passes(self, store_at: StoreAt, error: str) -> None:
        """C07"""
        with AnsweringServer(error, recovers_after=2) as server:
            assert count(store_at(f"redis://127.0.0.1:{server.port}/0", patience=clients.WORKER)) == 1
            assert server.seen["EVALSHA"] == 3

    def test_it_ends_as_unavailable_within_the_budget(self, store_at: StoreAt, error: str) -> None:
        """C07"""
        with AnsweringServer(error) as server, within(HASTY.total_seconds), pytest.raises(ScheduleUnavailable) as caught:
            count(store_at(f"redis://127.0.0.1:{server.port}/0"))
        assert caught.value.kind == error.split()[0].lower()
        assert 2 <= server.seen["EVALSHA"] <= 8  # with pauses between them

    def test_a_call_that_must_not_be_repeated_is_not(self, store_at: StoreAt, error: str) -> None:
        """C07: claim."""
        with AnsweringServer(error) as server, pytest.raises(ScheduleUnavailable):
            count(store_at(f"redis://127.0.0.1:{server.port}/0"), retry=False)
        assert server.seen["EVALSHA"] == 1


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", "oom"),
        ("ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -OOM command not allowed when used memory", "oom"),
        ("NOREPLICAS Not enough good replicas to write.", "noreplicas"),
        ("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", "misconf"),
    ],
)
def test_what_does_not_pass_in_a_moment_is_said_at_once(store_at: StoreAt, error: str, kind: str) -> None:
    """C07, C09, C12: as Redis 6.2 and later word it."""
    with AnsweringServer(error) as server, pytest.raises(ScheduleUnavailable) as caught:
        count(store_at(f"redis://127.0.0.1:{server.port}/0"))
    assert (caught.value.kind, server.seen["EVALSHA"]) == (kind, 1)


def test_a_fault_in_a_script_names_the_verb(store_at: StoreAt, valkey: Valkey, admin: Any) -> None:
    broken = scripts.Script.of("broken", "return nothing.here")
    store = store_at(valkey.url)
    with pytest.raises(VerbFailed, match=r"'broken' failed: .*nothing") as caught:
        store.call("broken", lambda client: scripts.evaluate(client, broken, KEY, ()))
    assert caught.value.verb == "broken"


def test_a_cluster_node_asks_for_a_cluster_client(store_at: StoreAt) -> None:
    with AnsweringServer("MOVED 3999 127.0.0.1:6381") as server, pytest.raises(BrokerMisconfigured, match="CLIENT_FACTORY"):
        count(store_at(f"redis://127.0.0.1:{server.port}/0"))


class TestServersThatChange:
    def test_a_demoted_server_is_left_and_found_again(self, store_at: StoreAt, valkey: Valkey, admin: Any) -> None:
        """C06: REPLICAOF under the connection: READONLY, the pool is dropped, and after promotion all is well."""
        store = store_at(valkey.url)
        count(store)
        admin.replicaof("127.0.0.1", 1)
        try:
            with pytest.raises(ScheduleUnavailable) as caught:
                count(store)
        finally:
            admin.replicaof("NO", "ONE")
        assert caught.value.kind == "readonly"
        assert count(store) == 2

    def test_missing_replicas_are_a_passing_matter(self, store_at: StoreAt, valkey: Valkey, admin: Any) -> None:
        """C12: min-replicas-to-write unmet."""
        store = store_at(valkey.url)
        admin.config_set("min-replicas-to-write", 1)
        try:
            with pytest.raises(ScheduleUnavailable) as caught:
                count(store)
        finally:
            admin.config_set("min-replicas-to-write", 0)
        assert caught.value.kind == "noreplicas"
        assert count(store) == 1

    def test_a_full_server_says_so(self, store_at: StoreAt, valkey: Valkey, admin: Any) -> None:
        """C26: maxclients reached."""
        store = store_at(valkey.url)
        before = admin.config_get("maxclients")["maxclients"]
        admin.config_set("maxclients", 1)
        try:
            with pytest.raises(ScheduleUnavailable) as caught:
                count(store)
        finally:
            admin.config_set("maxclients", before)
        assert caught.value.kind == "maxclients"
        assert count(store) == 1


class TestBudget:
    def test_a_black_hole_costs_the_budget_and_no_more(self, store_at: StoreAt, valkey: Valkey, proxy: Proxy, admin: Any) -> None:
        """C15: accepted connections that never answer."""
        proxy.black_hole()
        store = store_at(url_through(proxy, valkey), patience=clients.REQUEST)
        with within(clients.REQUEST.total_seconds), pytest.raises(ScheduleUnavailable) as caught:
            count(store)
        assert caught.value.kind == "timeout"
        assert proxy.fired["black hole"] >= 2

    def test_a_connection_that_turns_into_a_black_hole_costs_no_more(
        self, store_at: StoreAt, valkey: Valkey, proxy: Proxy, admin: Any
    ) -> None:
        """C15: also when it was in use before, and with settings in the URL and the alias that would wait longer."""
        store = store_at(
            url_through(proxy, valkey) + "?socket_timeout=60&retry_on_timeout=yes&health_check_interval=1",
            SOCKET_TIMEOUT=60,
            SOCKET_CONNECT_TIMEOUT=60,
            CONNECTION_POOL_KWARGS={"retry_on_timeout": True},
        )
        assert count(store) == 1
        proxy.black_hole()
        with within(HASTY.total_seconds), pytest.raises(ScheduleUnavailable):
            count(store)
        assert proxy.fired["black hole"] >= 1

    def test_slow_steps_add_up_to_the_budget(self, store_at: StoreAt, valkey: Valkey, proxy: Proxy, admin: Any) -> None:
        """C15: connecting takes several round trips, each shorter than any timeout."""
        proxy.latency_seconds = 0.15
        with within(HASTY.total_seconds), pytest.raises(ScheduleUnavailable):
            count(store_at(url_through(proxy, valkey)))
        assert proxy.fired["delayed"] >= 3

    def test_lost_replies_are_asked_for_within_the_budget(self, store_at: StoreAt, valkey: Valkey, proxy: Proxy, admin: Any) -> None:
        """C16: requests arrive, replies are dropped: no client repeats by itself, only as often as the budget lets us."""
        store = store_at(url_through(proxy, valkey))
        count(store)
        proxy.swallow_replies(to=b"EVALSHA")
        with pytest.raises(ScheduleUnavailable):
            count(store, retry=False)
        assert (admin.get(KEY), proxy.fired["swallowed reply"]) == (b"2", 1)
        with within(HASTY.total_seconds), pytest.raises(ScheduleUnavailable):
            count(store)
        assert 3 <= int(admin.get(KEY)) <= 6

    def test_a_reply_that_comes_late_is_never_the_next_calls(self, store_at: StoreAt, valkey: Valkey, proxy: Proxy, admin: Any) -> None:
        store = store_at(url_through(proxy, valkey))
        proxy.latency_seconds = 0.01
        assert count(store) == 1
        proxy.latency_seconds = HASTY.attempt_seconds
        with pytest.raises(ScheduleUnavailable):
            count(store, retry=False)
        proxy.heal()
        eventually(lambda: admin.get(KEY) == b"2")
        assert count(store) == 3

    def test_a_reset_connection_is_made_anew(self, store_at: StoreAt, valkey: Valkey, proxy: Proxy, admin: Any) -> None:
        store = store_at(url_through(proxy, valkey))
        assert count(store) == 1
        proxy.reset_all()
        eventually(lambda: proxy.fired["reset"])
        assert count(store) == 2

    def test_more_threads_than_connections_wait_their_turn(
        self, store_at: StoreAt, valkey: Valkey, admin: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """C26: the pool is bounded, and an exhausted one does not raise at once."""
        monkeypatch.setattr("django_tenant_queue.brokers.redis.store.MAX_CONNECTIONS", 2)
        store = store_at(valkey.url, patience=clients.WORKER)
        threads = [threading.Thread(target=lambda: [count(store) for _ in range(20)]) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert admin.get(KEY) == b"320"
        assert store.client.connection_pool._created_connections <= 2


class TestSecrets:
    def test_a_wrong_password_is_said_clearly_and_not_repeated(self, store_at: StoreAt, valkey: Valkey, admin: Any) -> None:
        """C19, J16: a fatal message, no secret in it, nor in what a crash report shows of the frames."""
        store = store_at(f"redis://:{SECRET}@127.0.0.1:{valkey.port}/0")
        with pytest.raises(BrokerMisconfigured, match="check the user, the password") as caught:
            count(store)
        shown = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
        assert SECRET not in shown + repr(store) + repr(store.client)
        assert caught.value.__context__ is None

    @pytest.mark.parametrize("failure", ["stopped", "black hole"])
    def test_a_lost_server_does_not_tell_the_password(
        self, store_at: StoreAt, valkey: Valkey, proxy: Proxy, admin: Any, failure: str
    ) -> None:
        """J16"""
        store = store_at(url_through(proxy, valkey))
        if failure == "black hole":
            proxy.black_hole()
        else:
            proxy.refuse()
        with pytest.raises(ScheduleUnavailable) as caught:
            count(store)
        shown = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
        assert valkey.password not in shown
        assert proxy.fired["black hole"] or proxy.fired["refused"]

    def test_an_unreadable_url_is_not_quoted(self, store_at: StoreAt) -> None:
        """J16: a password with a slash in it shifts the port."""
        with pytest.raises(BrokerMisconfigured, match="'under_test' cannot be read") as caught:
            count(store_at(f"redis://:{SECRET}/3@127.0.0.1:6379/0"))
        shown = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
        assert SECRET not in shown
        assert caught.value.__context__ is None


class TestConfiguration:
    def test_an_alias_that_is_not_there(self) -> None:
        with pytest.raises(BrokerMisconfigured, match="no cache alias 'nowhere'"):
            clients.connect("nowhere", None, HASTY)

    def test_an_alias_that_is_not_redis(self) -> None:
        with pytest.raises(BrokerMisconfigured, match="'default' is not a django-redis cache"):
            clients.connect("default", None, HASTY)

    def test_a_client_factory_gets_our_waits(self, valkey: Valkey, admin: Any) -> None:
        seen: dict[str, Any] = {}
        clients_made = RedisStore(lambda: clients.connect("default", f"{__name__}.make_client", HASTY), KEY)
        make_client.seen, make_client.url = seen, valkey.url  # type: ignore[attr-defined]
        assert count(clients_made) == 1
        assert seen["socket_timeout"] == HASTY.attempt_seconds
        assert seen["retry"]._retries == 0
        clients_made.close()

    def test_aliases_with_one_url_do_not_share_our_pool(self, store_at: StoreAt, valkey: Valkey, admin: Any) -> None:
        from django_redis import get_redis_connection

        store = store_at(valkey.url)
        assert store.client.connection_pool is not get_redis_connection("under_test").connection_pool


def make_client(**options: Any) -> Any:
    import redis

    make_client.seen.update(options)  # type: ignore[attr-defined]
    return redis.Redis.from_url(make_client.url, **options)  # type: ignore[attr-defined]


def test_a_forked_child_has_connections_of_its_own(store_at: StoreAt, valkey: Valkey, admin: Any) -> None:
    store = store_at(valkey.url)
    assert count(store) == 1
    pid = os.fork()
    if pid == 0:
        os._exit(0 if count(store) == 2 else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert count(store) == 3
