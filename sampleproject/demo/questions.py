"""The SQL of the checks: each question counts what is not as it should be. Temporary tables are made by checks.py.

asked (correlation_id, tenant_id, task), run_job, run_effect; good_row, bad_row: what the file holds; written, reported: what came of it.
"""

from __future__ import annotations

from dataclasses import dataclass

LOST, DUPLICATED, WRONG_TENANT = "lost", "duplicated", "wrong_tenant"


@dataclass(frozen=True, slots=True)
class Question:
    """`kind`: lost, duplicated or wrong_tenant. `sentence` goes after the number."""

    kind: str
    sentence: str
    sql: str


# An effect that was moved to another workspace, or to another job, must still be found.
MAKE_RUN_TABLES = (
    """
    CREATE TEMPORARY TABLE asked ON COMMIT DROP AS
    SELECT * FROM unnest(%(correlation)s::text[], %(asked_by)s::text[], %(task)s::text[]) AS a(correlation_id, tenant_id, task)""",
    """
    CREATE TEMPORARY TABLE run_job ON COMMIT DROP AS
    SELECT id, tenant_id, task, status, fence, correlation_id, finished_at FROM tenant_queue_job
    WHERE tenant_id = ANY(%(tenants)s) OR correlation_id = ANY(%(correlation)s)""",
    """
    CREATE TEMPORARY TABLE run_effect ON COMMIT DROP AS
    SELECT e.* FROM shop_jobeffect e
    WHERE e.tenant_id = ANY(%(tenants)s) OR e.tenant_seen = ANY(%(tenants)s) OR e.job_id IN (SELECT id FROM run_job)""",
    "ANALYZE run_job",
    "ANALYZE run_effect",
)
OF_JOBS = (
    Question(
        LOST,
        "requests that were committed have no job",
        """
        SELECT count(*) FROM asked a
        WHERE NOT EXISTS (SELECT FROM run_job j WHERE j.correlation_id = a.correlation_id AND j.task = a.task)""",
    ),
    Question(LOST, "jobs have not come to an end", "SELECT count(*) FROM run_job j WHERE j.finished_at IS NULL"),
    Question(
        LOST,
        "jobs with nothing wrong about them did not succeed",
        "SELECT count(*) FROM run_job j WHERE j.finished_at IS NOT NULL AND j.status <> 'succeeded' AND j.task <> ALL(%(poison)s)",
    ),
    Question(
        LOST,
        "poison jobs did not end as dead letters",
        """
        SELECT count(*) FROM run_job j LEFT JOIN tenant_queue_deadletter d ON d.job_id = j.id
        WHERE j.task = ANY(%(poison)s) AND (j.status <> 'dead' OR d.id IS NULL)""",
    ),
    Question(
        LOST,
        "jobs succeeded and left no effect",
        """
        SELECT count(*) FROM run_job j
        WHERE j.status = 'succeeded' AND NOT EXISTS (SELECT FROM run_effect e WHERE e.job_id = j.id)""",
    ),
    Question(
        LOST,
        "messages of password resets were not sent",
        "SELECT count(*) FROM run_job j WHERE j.task = %(reset)s AND j.status = 'succeeded' AND j.id <> ALL(%(mailed)s::uuid[])",
    ),
    Question(
        LOST,
        "webhooks were not received",
        "SELECT count(*) FROM run_job j WHERE j.task = %(webhook)s AND j.status = 'succeeded' AND j.id <> ALL(%(received)s::uuid[])",
    ),
    Question(
        DUPLICATED,
        "effects are more than the one of their job",
        "SELECT coalesce(sum(n - 1), 0) FROM (SELECT count(*) AS n FROM run_effect GROUP BY job_id) counted",
    ),
    Question(
        DUPLICATED,
        "effects are of a run that did not succeed",
        "SELECT count(*) FROM run_effect e JOIN run_job j ON j.id = e.job_id WHERE j.status <> 'succeeded' OR e.fence <> j.fence",
    ),
    Question(
        DUPLICATED,
        "effects are of no job of this run",
        "SELECT count(*) FROM run_effect e WHERE NOT EXISTS (SELECT FROM run_job j WHERE j.id = e.job_id)",
    ),
    Question(
        DUPLICATED,
        "jobs are more than the one of their request",
        """
        SELECT coalesce(sum(n - 1), 0)
        FROM (SELECT count(*) AS n FROM asked JOIN run_job USING (correlation_id, task) GROUP BY correlation_id) counted""",
    ),
    Question(
        WRONG_TENANT,
        "jobs are of another workspace than the one that asked",
        "SELECT count(*) FROM asked a JOIN run_job j USING (correlation_id) WHERE j.tenant_id IS DISTINCT FROM a.tenant_id",
    ),
    Question(
        WRONG_TENANT,
        "effects are another workspace's than their job's, or the database saw another one",
        """
        SELECT count(*) FROM run_effect e JOIN run_job j ON j.id = e.job_id
        WHERE e.tenant_id <> j.tenant_id OR e.tenant_seen <> j.tenant_id""",
    ),
    Question(
        WRONG_TENANT,
        "webhooks were received for another workspace",
        """
        SELECT count(*) FROM unnest(%(received)s::uuid[], %(received_for)s::text[]) AS r(job_id, tenant_id)
        LEFT JOIN run_job j ON j.id = r.job_id WHERE j.tenant_id IS DISTINCT FROM r.tenant_id""",
    ),
)

# -- the file: orders hold exactly its good rows. Asked as the workspace that uploaded it.

COLUMNS = "line, number, customer_email, placed_on, amount, currency"
MAKE_FILE_TABLES = (
    """
    CREATE TEMPORARY TABLE good_row (line int, number text, customer_email text, placed_on date, amount numeric, currency text)
    ON COMMIT DROP""",
    "CREATE TEMPORARY TABLE bad_row (line int) ON COMMIT DROP",
    "CREATE TEMPORARY TABLE written ON COMMIT DROP AS SELECT * FROM shop_order WHERE upload_id = %(upload)s",
    "CREATE TEMPORARY TABLE reported ON COMMIT DROP AS SELECT * FROM shop_rejectedrow WHERE upload_id = %(upload)s",
)
OF_FILE = tuple(
    Question(kind, sentence, f"SELECT count(*) FROM (SELECT {columns} FROM {these} EXCEPT ALL SELECT {columns} FROM {those}) left_over")
    for kind, sentence, these, those, columns in (
        (LOST, "good rows of the file are not orders", "good_row", "written", COLUMNS),
        (DUPLICATED, "orders are no good rows of the file, or are there twice", "written", "good_row", COLUMNS),
        (LOST, "bad rows of the file were not reported", "bad_row", "reported", "line"),
        (DUPLICATED, "rows were reported as bad that are not, or twice", "reported", "bad_row", "line"),
    )
)

# -- tenant tables: asked as each workspace in turn

WRITTEN_BY_JOBS = ("shop_order", "shop_monthlyreport", "shop_passwordreset", "shop_webhookdelivery")
TENANT_TABLES = (*WRITTEN_BY_JOBS, "shop_orderupload", "shop_rejectedrow", "shop_webhookendpoint")
_ALL_ROWS = " UNION ALL ".join(f"SELECT tenant_id FROM {table}" for table in TENANT_TABLES)
OF_TENANT_TABLES = (
    *(
        Question(
            WRONG_TENANT,
            f"rows of {table} were written by another workspace's job",
            f"""
            SELECT count(*) FROM {table} t JOIN tenant_queue_job j ON j.id = t.job_id
            WHERE j.tenant_id IS DISTINCT FROM t.tenant_id""",
        )
        for table in WRITTEN_BY_JOBS
    ),
    Question(
        WRONG_TENANT,
        "rows of another workspace are visible",
        f"SELECT count(*) FROM ({_ALL_ROWS}) seen WHERE tenant_id IS DISTINCT FROM %(tenant)s",
    ),
    Question(
        LOST,
        "report jobs succeeded without a report",
        """
        SELECT count(*) FROM run_job j WHERE j.tenant_id = %(tenant)s AND j.task = %(report)s AND j.status = 'succeeded'
        AND NOT EXISTS (SELECT FROM shop_monthlyreport r WHERE r.job_id = j.id)""",
    ),
    Question(
        DUPLICATED,
        "reports are more than the one of their job",
        "SELECT coalesce(sum(n - 1), 0) FROM (SELECT count(*) AS n FROM shop_monthlyreport GROUP BY job_id) counted",
    ),
    Question(LOST, "password resets have no message", "SELECT count(*) FROM shop_passwordreset WHERE sent_at IS NULL"),
    Question(LOST, "webhooks are not delivered", "SELECT count(*) FROM shop_webhookdelivery WHERE delivered_at IS NULL"),
)
OF_NOBODY = Question(WRONG_TENANT, "rows of tenant tables are visible without a tenant", f"SELECT count(*) FROM ({_ALL_ROWS}) seen")
