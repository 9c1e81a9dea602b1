"""`query`: what it answers, and what it refuses, whichever way it is asked."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lineage.query import run_query
from store.delta import Tables
from store.errors import PipelineError, RefusedByPolicy, UnknownName, VersionGone, WrongUse
from store.home import Home


def put_tasks(home: Home, **baselines: float) -> None:
    """Write tasks with their baseline fitness; one commit."""
    tables = Tables(home)
    rows = [{"task_id": task, "domain": "kernel", "baseline_fitness": fitness} for task, fitness in baselines.items()]
    tables.upsert("tasks", pa.Table.from_pylist(rows, schema=tables.schema("tasks").columns))


def put_rows(home: Home, name: str, *rows: dict[str, object]) -> None:
    from lineage.query import registered_tables

    tables = registered_tables(home)
    tables.upsert(name, pa.Table.from_pylist(list(rows), schema=tables.schema(name).columns))


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A Parquet file outside the home that nobody may read through a query."""
    path = tmp_path / "secret.parquet"
    pq.write_table(pa.table({"word": ["swordfish"]}), path)
    return path


def test_a_select_over_a_table_gives_its_rows(home: Home) -> None:
    put_tasks(home, softmax=1.0, matmul=2.0)
    rows = run_query(home, "select task_id, baseline_fitness from tasks order by task_id").to_pylist()
    assert rows == [{"task_id": "matmul", "baseline_fitness": 2.0}, {"task_id": "softmax", "baseline_fitness": 1.0}]


@pytest.mark.parametrize(
    "sql",
    [
        "with good as (select task_id from tasks where baseline_fitness > 1) select count(*) as n from good",
        "select count(*) as n from (select 1 union select 2 except select 2) as numbers",
        "from TASKS select count(*) as n where baseline_fitness > 1;",
        "select count(*) as n from tasks as t join tasks as other using (task_id) where t.baseline_fitness > 1",
        "select count(*) as n from (select unnest([7]) as seven) -- a comment; with a semicolon",
        "with tasks as (select 5 as five) select count(*) as n from tasks",
        "with tasks as (select * from tasks where baseline_fitness > 1) select count(*) as n from tasks",
        "with one as (select 1 as n), two as (select n from one union select n from one) select n from two",
        "with recursive up as (select 1 as n union select n + 1 from up where n < 3) select min(n) as n from up",
    ],
)
def test_ctes_set_operations_joins_and_comments_are_fine(home: Home, sql: str) -> None:
    put_tasks(home, softmax=1.0, matmul=2.0)
    assert run_query(home, sql).to_pylist() == [{"n": 1}]


def test_a_table_or_view_that_nothing_was_written_to_is_empty(home: Home) -> None:
    assert run_query(home, "select node_id from nodes").num_rows == 0
    assert run_query(home, "select count(*) as n from dpo_pairs").to_pylist() == [{"n": 0}]


def test_a_version_reads_the_table_as_it_was(home: Home) -> None:
    put_tasks(home, softmax=1.0)
    before = Tables(home).version("tasks")
    put_tasks(home, softmax=3.0, matmul=2.0)
    assert before is not None
    sql = "select task_id, baseline_fitness from tasks order by task_id"
    assert run_query(home, sql, as_of_versions={"tasks": before}).to_pylist() == [
        {"task_id": "softmax", "baseline_fitness": 1.0}
    ]
    assert run_query(home, sql).num_rows == 2


def test_a_version_that_is_not_there_is_named_with_those_that_are(home: Home) -> None:
    put_tasks(home, softmax=1.0)
    with pytest.raises(VersionGone, match=r"tasks@99 cannot be read; versions that can be read: 0 to 1"):
        run_query(home, "select * from tasks", as_of_versions={"tasks": 99})
    with pytest.raises(VersionGone, match="nodes has no version yet"):
        run_query(home, "select * from nodes", as_of_versions={"nodes": 0})


def test_a_version_whose_files_were_removed_is_gone(home: Home) -> None:
    put_tasks(home, softmax=1.0)
    put_tasks(home, softmax=2.0)
    Tables(home).open("tasks").vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(VersionGone, match="tasks@1 lost 1 of its 1 files"):
        run_query(home, "select * from tasks", as_of_versions={"tasks": 1})


def test_a_pinned_table_must_be_one_that_the_query_reads(home: Home) -> None:
    with pytest.raises(UnknownName, match="no table or view 'nodez'"):
        run_query(home, "select * from tasks", as_of_versions={"nodez": 1})
    with pytest.raises(WrongUse, match="pins a table that the query does not read"):
        run_query(home, "select * from tasks", as_of_versions={"nodes": 1})


def test_unknown_names_are_answered_with_those_that_exist(home: Home) -> None:
    put_tasks(home, softmax=1.0)
    with pytest.raises(UnknownName, match=r"no table or view 'task'; there are .*tasks"):
        run_query(home, "select * from task")
    with pytest.raises(UnknownName, match=r"fitnes.*The columns are tasks: task_id, domain"):
        run_query(home, "select fitnes from tasks")
    with pytest.raises(UnknownName, match="medianoid"):
        run_query(home, "select medianoid(baseline_fitness) from tasks")


def test_what_does_not_compute_is_one_line(home: Home) -> None:
    for sql in ("selec 1", "select 'x'::int", "select 1 +", ""):
        with pytest.raises(WrongUse) as refused:
            run_query(home, sql)
        assert "\n" not in str(refused.value)


ATTEMPTS = [
    "select * from read_parquet('{secret}')",
    "select * from '{secret}'",
    'select * from "{secret}"',
    "from '{secret}'",
    "select * from parquet_scan('{secret}')",
    "select * from read_text('/etc/passwd')",
    "select * from read_csv('/etc/passwd')",
    "select * from read_blob('{secret}')",
    "select * from glob('{folder}/*')",
    "select * from parquet_metadata('{secret}')",
    "select * from tasks, lateral read_text('/etc/passwd')",
    "select * from tasks where task_id in (select content from read_text('/etc/passwd'))",
    "with stolen as (select * from read_parquet('{secret}')) select * from stolen",
    "select (select word from read_parquet('{secret}')) as word",
    "select 1 union all select word from '{secret}'",
    'select * from (with "{secret}" as (select 1 as x) select * from "{secret}") as a, \'{secret}\'',
    "select /* harmless */ * from /* really */ read_parquet('{secret}')",
    "select * from query('select * from tasks')",
    "select * from query_table('tasks')",
    "select * from duckdb_settings()",
    "select * from range(3)",
    "select current_setting('allowed_paths')",
    "select getenv('HOME')",
    "select * from information_schema.tables",
    "select * from main.tasks",
    "select * from sqlite_master",
    "copy tasks to '{folder}/out.csv'",
    "copy (select 1) to '{folder}/out.csv'",
    "attach '{folder}/other.db'",
    "install httpfs",
    "load httpfs",
    "pragma version",
    "set enable_external_access = true",
    "reset enable_external_access",
    "select 1; copy tasks to '{folder}/out.csv'",
    "select 1; select 2",
    "create table stolen as select 1",
    "insert into tasks select * from tasks",
    "delete from tasks",
    "drop view tasks",
    "update tasks set domain = 'x'",
    "export database '{folder}/out.csv'",
    "call pragma_version()",
    "explain analyze select * from read_parquet('{secret}')",
    "describe tasks",
    "use memory",
    "prepare p as select 1",
]


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_no_way_around_one_select_over_registered_names(home: Home, secret: Path, attempt: str) -> None:
    put_tasks(home, softmax=1.0)
    before = sorted(secret.parent.iterdir())
    with pytest.raises(PipelineError) as refused:
        run_query(home, attempt.format(secret=secret, folder=secret.parent))
    assert "swordfish" not in str(refused.value)
    assert sorted(secret.parent.iterdir()) == before
    assert Tables(home).version("tasks") == 1


def test_duckdb_itself_refuses_what_the_syntax_tree_would_let_through(
    home: Home, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_tasks(home, softmax=1.0)
    monkeypatch.setattr("lineage.query.referenced_names", lambda sql, registered: ["tasks"])
    for attempt in (
        f"select * from read_parquet('{secret}')",
        f"select * from '{secret}'",
        f"copy tasks to '{secret.parent}/out.csv'",
        "set enable_external_access = true",
        "select * from tasks; select 1",
    ):
        with pytest.raises(WrongUse):
            run_query(home, attempt)
    assert not (secret.parent / "out.csv").exists()


def test_rows_under_a_tag_that_the_principal_may_not_audit_are_not_there(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "governance.yaml").write_text("tags: {pii: {}}\nprincipals: {guest: {audit: []}, owner: {audit: [pii]}}\n")
    put_rows(home, "nodes", {"node_id": "n1", "session_seq": 1}, {"node_id": "n2", "session_seq": 1})
    put_rows(home, "node_tags", {"node_id": "n2", "session_seq": 1, "tag": "pii"})
    put_rows(
        home,
        "dpo_pairs",
        {"chosen_id": "n1", "example_id": "e1", "session_seq": 1, "tags": ["pii"]},
        {"chosen_id": "n2", "example_id": "e2", "session_seq": 1, "tags": []},
    )
    monkeypatch.setenv("ESPALIER_CONF", str(conf))
    seen = {
        principal: [
            run_query(home, f"select {key} from {name} order by 1", principal=principal)[key].to_pylist()
            for name, key in (("nodes", "node_id"), ("dpo_pairs", "example_id"))
        ]
        for principal in ("guest", "owner")
    }
    assert seen == {"guest": [["n1"], ["e2"]], "owner": [["n1", "n2"], ["e1", "e2"]]}
    with pytest.raises(RefusedByPolicy, match="unknown principal nobody"):
        run_query(home, "select 1", principal="nobody")
