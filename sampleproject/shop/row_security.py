"""Row-level security of tenant tables: the policy, as a migration operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db.migrations.operations.base import Operation

if TYPE_CHECKING:
    from django.db.backends.base.schema import BaseDatabaseSchemaEditor
    from django.db.migrations.state import ProjectState

TENANT_SETTING = "app.current_tenant_id"
# After a transaction the setting reads '' and not NULL; the sub-select is evaluated once per statement and not once per row.
CURRENT_TENANT = f"nullif((SELECT current_setting('{TENANT_SETTING}', true)), '')"


class ForceTenantPolicy(Operation):
    """Rows of these models are visible to, and may be written by, their tenant only. FORCE: the owner of the table is not exempt.

    Postgres only; on other databases it does nothing. Each model needs a column `tenant_id`.
    """

    reversible = True
    atomic = True

    def __init__(self, *models: str) -> None:
        self.models = models

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """The policy is not part of the models' state."""

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        self._execute(
            app_label,
            schema_editor,
            to_state,
            (
                "ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
                "ALTER TABLE {table} FORCE ROW LEVEL SECURITY",
                "CREATE POLICY {policy} ON {table} USING (tenant_id = {tenant}) WITH CHECK (tenant_id = {tenant})",
            ),
        )

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        self._execute(
            app_label,
            schema_editor,
            from_state,
            (
                "DROP POLICY {policy} ON {table}",
                "ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY",
                "ALTER TABLE {table} DISABLE ROW LEVEL SECURITY",
            ),
        )

    def describe(self) -> str:
        return f"Force row-level security by tenant on {', '.join(self.models)}"

    def _execute(self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, state: ProjectState, statements: tuple[str, ...]) -> None:
        if schema_editor.connection.vendor != "postgresql":
            return
        for name in self.models:
            table = state.apps.get_model(app_label, name)._meta.db_table
            names = {
                "table": schema_editor.quote_name(table),
                "policy": schema_editor.quote_name(f"{table}_tenant"),
                "tenant": CURRENT_TENANT,
            }
            for statement in statements:
                schema_editor.execute(statement.format(**names), params=None)
