"""Tenant tables show and take rows of their tenant only, also for raw SQL."""

from __future__ import annotations

from importlib import import_module

import pytest
from django.apps import apps
from django.db import DatabaseError, connection, transaction
from django.db.migrations.executor import MigrationExecutor

from sampleproject.shop.models import Order, OrderUpload, TenantRow
from sampleproject.shop.row_security import TENANT_SETTING

from .conftest import tenant
from .factories import OrderFactory, UploadFactory

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("plain_role")]
TENANT_TABLES = sorted(model._meta.db_table for model in apps.get_app_config("shop").get_models() if issubclass(model, TenantRow))


def rows(sql: str, *params: object) -> list[tuple]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchall()


def orders_seen() -> list[tuple]:
    return rows("SELECT DISTINCT tenant_id FROM shop_order")


@pytest.fixture
def two_tenants() -> None:
    for tenant_id in ("acme", "umbra"):
        with tenant(tenant_id):
            OrderFactory(tenant_id=tenant_id)


@pytest.mark.parametrize("table", TENANT_TABLES)
def test_every_tenant_table_forces_row_security(table: str) -> None:
    assert rows("SELECT relrowsecurity, relforcerowsecurity FROM pg_class WHERE oid = %s::regclass", table) == [(True, True)]
    assert len(rows("SELECT 1 FROM pg_policies WHERE tablename = %s AND qual = with_check", table)) == 1


@pytest.mark.usefixtures("two_tenants")
def test_raw_sql_sees_its_own_tenant_only() -> None:
    """I05"""
    for tenant_id in ("acme", "umbra", "acme"):
        with tenant(tenant_id):
            assert orders_seen() == [(tenant_id,)]
    with tenant("nobody"):
        assert orders_seen() == []


@pytest.mark.usefixtures("two_tenants")
def test_without_a_tenant_nothing_is_seen() -> None:
    """I07"""
    assert orders_seen() == []
    assert not Order.objects.exists()


@pytest.mark.usefixtures("two_tenants")
def test_policy_fails_this_test_when_force_is_removed() -> None:
    """I06: the owner of the table is exempt without FORCE, so that the other tests here would see."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # checks that wait for the end of the transaction forbid ALTER TABLE
        cursor.execute("ALTER TABLE shop_order NO FORCE ROW LEVEL SECURITY")
    with tenant("acme"):
        assert len(orders_seen()) == 2


@pytest.mark.parametrize("statement", ["UPDATE shop_order SET tenant_id = 'umbra'", "UPDATE shop_orderupload SET tenant_id = ''"])
@pytest.mark.usefixtures("two_tenants")
def test_row_cannot_be_given_to_another_tenant(statement: str) -> None:
    with tenant("acme"), pytest.raises(DatabaseError, match="row-level security"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)


@pytest.mark.usefixtures("two_tenants")
def test_row_of_another_tenant_cannot_be_written_changed_or_deleted() -> None:
    with tenant("acme"):
        with pytest.raises(DatabaseError, match="row-level security"), transaction.atomic():
            UploadFactory(tenant_id="umbra")
        assert Order.objects.filter(tenant_id="umbra").update(number="stolen") == 0
        assert OrderUpload.objects.filter(tenant_id="umbra").delete()[0] == 0
    with tenant("umbra"):
        assert Order.objects.exclude(number="stolen").count() == 1


def test_no_row_can_be_written_without_a_tenant() -> None:
    with pytest.raises(DatabaseError, match="row-level security"), transaction.atomic():
        UploadFactory(tenant_id="acme")


@pytest.mark.usefixtures("two_tenants")
def test_one_plan_serves_both_tenants() -> None:
    """I15: the setting is read when a prepared plan runs, not when it is made."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        cursor.execute("PREPARE seen AS SELECT DISTINCT tenant_id FROM shop_order")
        for tenant_id in ("acme", "umbra") * 5:
            cursor.execute("SELECT set_config(%s, %s, true)", [TENANT_SETTING, tenant_id])
            cursor.execute("EXECUTE seen")
            assert cursor.fetchall() == [(tenant_id,)]
        cursor.execute("DEALLOCATE seen")


def test_policy_can_be_taken_back_and_made_again() -> None:
    operation = import_module("sampleproject.shop.migrations.0002_row_level_security").Migration.operations[0]
    state = MigrationExecutor(connection).loader.project_state()
    with connection.schema_editor(atomic=False) as editor:
        operation.database_backwards("shop", editor, state, state)
        assert rows("SELECT count(*) FROM pg_policies WHERE tablename LIKE 'shop_%%'") == [(0,)]
        operation.database_forwards("shop", editor, state, state)
    assert rows("SELECT count(*) FROM pg_policies WHERE tablename LIKE 'shop_%%'") == [(len(TENANT_TABLES),)]
