"""`Valkey` and `Postgres` as objects: what survives a kill, where they listen, who is let in."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
import redis

from embedded import EmbeddedError, Postgres, Valkey


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with Postgres(fsync=False) as server:
        yield server


def test_valkey_keeps_port_and_appended_data_over_a_kill() -> None:
    with Valkey({"appendonly": "yes", "appendfsync": "always"}) as server:
        url = server.url
        redis.Redis.from_url(url).set("seen", "yes")
        server.kill()
        assert not server.running
        server.start()
        assert (server.url, redis.Redis.from_url(url).get("seen")) == (url, b"yes")


def test_valkey_without_a_file_forgets_everything_at_a_kill() -> None:
    with Valkey() as server:
        redis.Redis.from_url(server.url).set("seen", "yes")
        server.kill()
        server.start()
        assert redis.Redis.from_url(server.url).get("seen") is None


def test_valkey_takes_lines_of_its_configuration() -> None:
    with Valkey({"maxmemory": "8mb", "maxmemory-policy": "allkeys-lru"}) as server:
        client = redis.Redis.from_url(server.url)
        assert client.config_get("maxmemory*")["maxmemory-policy"] == "allkeys-lru"


def test_valkey_asks_for_its_password() -> None:
    with Valkey() as server, pytest.raises(redis.AuthenticationError):
        redis.Redis(port=server.port, retry=None).ping()


def test_postgres_keeps_committed_rows_over_a_kill(postgres: Postgres) -> None:
    with psycopg.connect(postgres.url) as app:
        app.execute("CREATE TABLE kept (n int)")
        app.execute("INSERT INTO kept VALUES (1)")
    url = postgres.url
    postgres.kill()
    postgres.start()
    assert postgres.url == url
    with psycopg.connect(url) as app:
        assert app.execute("SELECT n FROM kept").fetchall() == [(1,)]


def test_postgres_lets_nobody_in_without_the_password(postgres: Postgres) -> None:
    for role in ("postgres", "shop_app"):
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(host="127.0.0.1", port=postgres.port, user=role, password="guessed", dbname="shop")


def test_postgres_has_no_socket_file_and_listens_on_loopback_only(postgres: Postgres) -> None:
    with psycopg.connect(postgres.admin_url) as admin:
        asked = admin.execute("SELECT current_setting('listen_addresses'), current_setting('unix_socket_directories')").fetchone()
    assert asked == ("127.0.0.1", "")


def test_postgres_waits_for_the_disk_unless_told_otherwise() -> None:
    with Postgres() as server, psycopg.connect(server.url) as app:
        assert app.execute("SELECT current_setting('fsync'), current_setting('synchronous_commit')").fetchone() == ("on", "on")


def test_lower_case_knows_more_than_ascii(postgres: Postgres) -> None:
    with psycopg.connect(postgres.url) as app:
        assert app.execute("SELECT lower('ÄÉŽ')").fetchone() == ("äéž",)


def test_a_server_that_does_not_start_shows_its_last_log_lines() -> None:
    with pytest.raises(EmbeddedError, match=r"(?s)Postgres did not start; its last log lines:.*shared_buffers"):
        Postgres({"shared_buffers": "nonsense"}, fsync=False).start()


def test_a_closed_server_leaves_no_directory() -> None:
    with Valkey() as server:
        directory = server.directory
        assert directory.is_dir()
    assert not directory.exists()
