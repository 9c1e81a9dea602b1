"""What `query` lets through: one SELECT over registered names, decided on the syntax tree before anything runs."""

from collections.abc import Collection

import sqlglot
from sqlglot import exp

from store.errors import UnknownName, WrongUse

ONLY_SELECT = "a query is exactly one SELECT (WITH, UNION, INTERSECT and EXCEPT included) over tables and views"

# Scalar functions that look at the machine or run text as SQL instead of computing on rows.
REFUSED_FUNCTIONS = frozenset({"current_setting", "getenv", "getvariable", "json_execute_serialized_sql", "read_blob"})

# Parts of a statement that change something, or that name more than a table.
REFUSED_NODES = (
    exp.Command,
    exp.Copy,
    exp.Create,
    exp.Delete,
    exp.Drop,
    exp.Insert,
    exp.Into,
    exp.Merge,
    exp.Pragma,
    exp.Set,
    exp.Update,
)


def referenced_names(sql: str, registered: Collection[str]) -> list[str]:
    """The registered tables and views that a query reads, sorted; everything else about it is refused.

    Args:
        sql: What the person typed.
        registered: Names that may be read.

    Raises:
        WrongUse: It is no single SELECT, or uses a table function, a path, a schema or a machine function.
        UnknownName: It names a table or view that is not registered.
    """
    tree = _parse(sql)
    for node in tree.walk():
        if isinstance(node, REFUSED_NODES):
            raise WrongUse(f"{_shown(node)} is refused: {ONLY_SELECT}.")
        if isinstance(node, exp.Func) and _function_name(node) in REFUSED_FUNCTIONS:
            raise WrongUse(f"the function {_function_name(node)} is refused: it looks at the machine, not at rows.")
        if isinstance(node, exp.Lateral) and not isinstance(node.this, exp.Subquery | exp.Unnest):
            raise WrongUse(f"the table function {_shown(node.this)} is refused: {ONLY_SELECT}.")
    names: set[str] = set()
    for table in tree.find_all(exp.Table):
        name = _plain_name(table)
        if name not in _visible_ctes(table):
            names.add(_registered(name, registered))
    return sorted(names)


def _parse(sql: str) -> exp.Query:
    try:
        statements = [statement for statement in sqlglot.parse(sql, read="duckdb") if statement is not None]
    except sqlglot.errors.SqlglotError as error:
        raise WrongUse(f"this is no SQL: {_first_parse_error(error)}; {ONLY_SELECT}.") from error
    if len(statements) != 1:
        raise WrongUse(f"{len(statements)} statements were given; {ONLY_SELECT}.")
    (statement,) = statements
    if not isinstance(statement, exp.Select | exp.SetOperation | exp.Subquery):
        raise WrongUse(f"{_shown(statement)} is refused: {ONLY_SELECT}.")
    return statement


def _plain_name(table: exp.Table) -> str:
    """The table's lower-case name; refuses functions, paths, schemas and anything hung on the name."""
    if not isinstance(table.this, exp.Identifier):
        raise WrongUse(f"the table function {_shown(table.this)} is refused: {ONLY_SELECT}.")
    if table.args.get("db") or table.args.get("catalog"):
        raise WrongUse(f"{_shown(table)} names a schema; tables and views are named by themselves, such as nodes.")
    if table.args.get("version"):
        raise WrongUse("versions are not named in the SQL; use --as-of-version TABLE=V.")
    return str(table.name).lower()


def _visible_ctes(table: exp.Table) -> set[str]:
    """WITH names that this table can mean: all of the queries around it; inside a WITH those before, and with
    RECURSIVE its own, so that `with nodes as (select … from nodes)` reads the table.
    """
    names: set[str] = set()
    within: exp.Expression = table
    while (around := within.parent) is not None:
        if isinstance(around, exp.With):
            is_recursive = bool(around.args.get("recursive"))
            place = next(number for number, cte in enumerate(around.expressions) if cte is within)
            names.update(cte.alias.lower() for cte in around.expressions[: place + is_recursive])
        elif isinstance(around, exp.Query) and not isinstance(within, exp.With):
            names.update(cte.alias.lower() for cte in around.ctes)
        within = around
    return names


def _registered(name: str, registered: Collection[str]) -> str:
    if name in registered:
        return name
    if any(character in name for character in "/\\.*:"):
        raise WrongUse(f"the path {name!r} is refused: {ONLY_SELECT}.")
    raise UnknownName(f"no table or view {name!r}; there are {', '.join(sorted(registered))}.")


def _function_name(function: exp.Func) -> str:
    return (function.name if isinstance(function, exp.Anonymous) else function.sql_name()).lower()


def _shown(node: exp.Expression | None, characters: int = 60) -> str:
    text = " ".join(node.sql(dialect="duckdb").split()) if node is not None else ""
    return text if len(text) <= characters else text[: characters - 1] + "…"


def _first_parse_error(error: Exception) -> str:
    details = getattr(error, "errors", None)
    if not details:
        return " ".join(str(error).split())
    first = details[0]
    return f"{first.get('description')} at line {first.get('line')}, column {first.get('col')}"
