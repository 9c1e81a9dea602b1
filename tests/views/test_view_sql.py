"""View SQL is one select per file, over an allow-list of functions, with every column written out."""

import re
from pathlib import Path
from typing import Any

import pytest
import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel

from store.schema import TABLES
from views.definition import MADE_BY_ENGINE, SQL_FOLDER, WALKED, load_definition, staging_order, table_inputs
from views.macros import MACROS
from views.registry import SCHEMAS, VIEW_ORDER

FILES = sorted(path.stem for path in SQL_FOLDER.glob("*.sql"))
ADDING_A_VIEW = Path(__file__).resolve().parents[2] / "docs" / "views" / "adding_a_view.md"
OWN_MACROS = {macro.split()[2].split("(")[0] for macro in MACROS}

# Functions whose meaning was checked on both engines, NULLs and empty lists included. `list_slice` is used with a
# start and an end that lies at or past the last item: Spark's `slice` takes a length there, which gives the same.
FUNCTIONS = {
    *OWN_MACROS,
    "array_to_string",
    "avg",
    "bool_or",
    "any_value",
    "cast",
    "chr",
    "coalesce",
    "concat",
    "concat_ws",
    "count",
    "json_extract_string",
    "array_length",
    "length",
    "list_concat",
    "list_contains",
    "list_filter",
    "list_slice",
    "list_transform",
    "ln",
    "max",
    "md5",
    "min",
    "regexp_matches",
    "row_number",
    "sqrt",
    "stddev_samp",
    "struct_pack",
    "try_cast",
    "unnest",
}
SAME_FUNCTION = {  # what sqlglot calls them once parsed
    "array_concat": "list_concat",
    "array_contains": "list_contains",
    "array_filter": "list_filter",
    "array_size": "array_length",
    "case": "coalesce",
    "filter": "list_filter",
    "json_extract_scalar": "json_extract_string",
    "logical_or": "bool_or",
    "regexp_like": "regexp_matches",
    "struct": "struct_pack",
    "transform": "list_transform",
    "md5": "md5",
}


def parsed(name: str) -> exp.Expression:
    (statement,) = sqlglot.parse(load_definition(name).text, read="duckdb")
    assert statement is not None
    return statement


def function_name(function: exp.Func) -> str:
    name = function.name if isinstance(function, exp.Anonymous) else function.sql_name()
    return SAME_FUNCTION.get(name.lower(), name.lower())


def forbidden_functions(statement: exp.Expression) -> set[str]:
    constructs = (exp.Case, exp.If, exp.And, exp.Or, exp.Array, exp.Exists)
    functions = [found for found in statement.find_all(exp.Func) if not isinstance(found, constructs)]
    return {function_name(function) for function in functions} - FUNCTIONS


@pytest.mark.parametrize("name", FILES)
def test_a_view_file_is_one_select_over_allowed_functions(name: str) -> None:
    statement = parsed(name)
    assert isinstance(statement, exp.Select)
    assert forbidden_functions(statement) == set()


@pytest.mark.parametrize("name", FILES)
def test_no_star_but_in_count_and_no_aggregate_orders_by_itself(name: str) -> None:
    for star in parsed(name).find_all(exp.Star):
        assert isinstance(star.parent, exp.Count), f"{name} selects a star"
    for aggregate in parsed(name).find_all(exp.ArrayAgg, exp.GroupConcat, exp.List):
        pytest.fail(f"{name}: {aggregate.sql()}; ordered aggregation goes through ordered_list")


@pytest.mark.parametrize("name", sorted(set(VIEW_ORDER) - set(WALKED)))
def test_the_final_select_writes_out_every_declared_column_in_order(name: str) -> None:
    statement = parsed(name)
    assert isinstance(statement, exp.Select)
    assert statement.named_selects == SCHEMAS[name].columns.names
    assert load_definition(name).grain == SCHEMAS[name].key


@pytest.mark.parametrize("name", FILES)
def test_a_header_names_exactly_the_inputs_and_parameters_that_the_select_reads(name: str) -> None:
    statement, definition = parsed(name), load_definition(name)
    own = {cte.alias for cte in statement.find_all(exp.CTE)}
    read = {table.name for table in statement.find_all(exp.Table)} - own
    assert read == set(definition.inputs)
    assert {parameter.name for parameter in statement.find_all(exp.Placeholder)} == set(definition.parameters)
    known = {*TABLES, *VIEW_ORDER, *MADE_BY_ENGINE, *FILES}
    assert read <= known


@pytest.mark.parametrize("name", FILES)
def test_a_view_can_be_rendered_for_spark(name: str) -> None:
    rendered = parsed(name).sql(dialect="spark", unsupported_level=ErrorLevel.RAISE)
    assert sqlglot.parse_one(rendered, read="spark").find(exp.Select)


def test_the_lint_finds_what_it_forbids() -> None:
    for text, found in (
        ("select arg_max(a, b) from t", {"arg_max"}),
        ("select epoch_ms(a) from t", {"unix_to_time"}),
        ("select now() from t", {"now"}),
        ("select random() from t", {"rand"}),
    ):
        assert forbidden_functions(sqlglot.parse_one(text, read="duckdb")) == found
    assert sqlglot.parse_one("select list(a order by b) from t", read="duckdb").find(exp.ArrayAgg, exp.List)


def test_views_stand_after_their_inputs() -> None:
    for place, name in enumerate(VIEW_ORDER):
        assert {source for source in table_inputs(name) if source in VIEW_ORDER} <= set(VIEW_ORDER[:place])
    assert staging_order("cohorts") == ("node_facts", "originals", "attempts")


def test_the_view_that_the_page_adds_would_pass_the_lint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = ADDING_A_VIEW.read_text(encoding="utf-8")
    (text,), (schema,) = (re.findall(rf"^```{kind}\n(.*?)^```$", page, re.M | re.S) for kind in ("sql", "python"))
    (tmp_path / "failed_attempts.sql").write_text(text, encoding="utf-8")
    monkeypatch.setattr("views.definition.SQL_FOLDER", tmp_path)
    definition = load_definition("failed_attempts")
    select = sqlglot.parse_one(definition.text, read="duckdb")
    known: dict[str, Any] = {}
    exec("from views.registry import *\nfrom views.registry import _relation\n" + schema, known)
    declared = known["FAILED_ATTEMPTS"]
    assert forbidden_functions(select) == set()
    assert select.named_selects == declared.columns.names
    assert (definition.kind, definition.grain) == ("view", declared.key)
    own = {cte.alias for cte in select.find_all(exp.CTE)}
    assert {table.name for table in select.find_all(exp.Table)} - own == set(definition.inputs)
