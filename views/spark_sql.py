"""View SQL, which is written in DuckDB's dialect, rendered for Spark so that it means the same.

sqlglot renders what the dialects share. What it would turn into something else, or not at all, has a template
here, in Spark's own SQL. tests/views/test_sql_parity.py runs every construct on both engines. Left to the view:
a divisor is never 0, and only positive numbers have a logarithm or a root.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, UnsupportedError

from store.errors import WrongUse
from views.definition import load_definition

# DuckDB puts a NULL place last and has no list where there is no row; Spark's collect_list leaves NULL items out.
ORDERED_LIST = """CASE WHEN COUNT(*) > 0 THEN TRANSFORM(ARRAY_SORT(COLLECT_LIST(STRUCT(
    {place} IS NULL AS has_no_place, {place} AS place, {item} AS item))), entry -> entry.item) END"""
DIGEST_PART = "COALESCE(CONCAT('=', CAST({item} AS STRING)), '-')"
# As in views.macros: whole part and fraction, each exact; a double that has no fraction as DuckDB prints it. Of one
# item a list is made, so that a lambda can name it.
NUMBER_PART = """TRANSFORM(ARRAY(STRUCT(CAST({item} AS DOUBLE) AS number, ABS(CAST({item} AS DOUBLE)) AS size,
    (ABS(CAST({item} AS DOUBLE)) - FLOOR(ABS(CAST({item} AS DOUBLE)))) * 4503599627370496D AS fraction,
    CAST({item} AS STRING) AS text)), it -> CASE
        WHEN it.number IS NULL THEN '-'
        WHEN it.size < 9007199254740992D THEN CONCAT(
            CASE WHEN it.number < 0 THEN '=-' ELSE '=' END, CAST(FLOOR(it.size) AS STRING), '.',
            CAST(FLOOR(it.fraction) AS STRING), '.',
            CAST(FLOOR((it.fraction - FLOOR(it.fraction)) * 4503599627370496D) AS STRING))
        WHEN ISNAN(it.number) THEN '=nan'
        WHEN it.size = CAST('Infinity' AS DOUBLE) THEN CASE WHEN it.number < 0 THEN '=-inf' ELSE '=inf' END
        WHEN it.size < 1E16D THEN CONCAT('=', CAST(CAST(it.number AS BIGINT) AS STRING), '.0')
        ELSE CONCAT('=', REPLACE(REPLACE(it.text, '.0E', 'E'), 'E', 'e+'))
    END)[0]"""
ARRAY_TO_STRING = """TRANSFORM(ARRAY({items}), items -> CASE WHEN ARRAY_SIZE(items) = 0
    OR EXISTS(items, item -> item IS NOT NULL) THEN ARRAY_JOIN(items, {separator}) END)[0]"""
LIST_CONTAINS = """CASE WHEN {items} IS NOT NULL AND {item} IS NOT NULL
    THEN COALESCE(ARRAY_CONTAINS({items}, {item}), FALSE) END"""
LIST_SLICE = (
    "SLICE({items}, {first}, CASE WHEN {last} >= {first} THEN {last} - {first} + 1 WHEN {last} < {first} THEN 0 END)"
)
# Texts may hold escapes; what is no text is taken as it stands.
JSON_EXTRACT_STRING = """CASE WHEN LTRIM({json}) LIKE '"%' THEN GET_JSON_OBJECT({json}, '$')
    WHEN TRIM({json}) <> 'null' THEN TRIM({json}) END"""
# Spark reads more texts as numbers than DuckDB (1.0f), and fewer as whole ones (1.5, 1e3, which DuckDB rounds).
NUMBER_SHAPE = r"(?i)^\\s*[+-]?(inf|infinity|nan|(\\d+\\.?\\d*|\\.\\d+)(e[+-]?\\d+)?)\\s*$"
TRY_DOUBLE = f"CASE WHEN {{text}} RLIKE '{NUMBER_SHAPE}' THEN TRY_CAST(TRIM({{text}}) AS DOUBLE) END"
TRY_BIGINT = f"""COALESCE(TRY_CAST(TRIM({{text}}) AS BIGINT),
    CASE WHEN {{text}} RLIKE '{NUMBER_SHAPE}' AND ABS(TRY_CAST(TRIM({{text}}) AS DOUBLE)) < 9223372036854774784D
    THEN CAST(ROUND(TRY_CAST(TRIM({{text}}) AS DOUBLE)) AS BIGINT) END)"""


def spark_select(name: str, parameters: Mapping[str, Any]) -> str:
    """The select of a view, relation or staging relation as Spark's SQL.

    Args:
        name: Name of the SQL file.
        parameters: A value for each of its parameters.

    Raises:
        UnknownName: There is no such file.
        WrongUse: The file uses something that has no rendering, or a parameter has no value.
    """
    return render(load_definition(name).text, parameters)


def render(text: str, parameters: Mapping[str, Any] | None = None) -> str:
    """One DuckDB select as Spark's SQL, with `$name` parameters written in as literals.

    Raises:
        WrongUse: Something in it has no rendering, or a parameter has no value.
    """
    return render_tree(sqlglot.parse_one(text, read="duckdb"), parameters or {})


def render_tree(tree: exp.Expr, values: Mapping[str, Any]) -> str:
    """One parsed DuckDB select as Spark's SQL; the tree is used up.

    Raises:
        WrongUse: Something in it has no rendering, or a parameter has no value.
    """
    _count_from_one(tree)
    tree = tree.transform(lambda node: _value_of(node, values) if isinstance(node, exp.Placeholder) else node)
    try:
        return SparkForViews().generate(tree, unsupported_level=ErrorLevel.RAISE)
    except UnsupportedError as error:
        raise WrongUse(f"Spark cannot say this: {error}") from error


def literal(value: Any) -> exp.Expr:
    """A parameter's value as a literal: a text, number, truth value, NULL, or a list of texts.

    Raises:
        WrongUse: It is something else.
    """
    match value:
        case None:
            return exp.null()
        case bool():
            return exp.true() if value else exp.false()
        case int():
            return exp.Literal.number(value)
        case float():
            return exp.cast(exp.Literal.string(repr(value)), "double")
        case str():
            return exp.Literal.string(value)
        case list() if value:
            return exp.Array(expressions=[literal(item) for item in value])
        case list():
            return exp.cast(exp.Array(expressions=[]), exp.DataType.build("varchar[]", dialect="duckdb"))
    raise WrongUse(f"a view's parameter is a text, number, truth value or list of texts, not {value!r}.")


def spark_text(text: str) -> str:
    """A text as a literal of Spark's SQL, where a backslash would begin an escape."""
    return SparkForViews().generate(literal(text))


def _value_of(parameter: exp.Placeholder, values: Mapping[str, Any]) -> exp.Expr:
    if parameter.name not in values:
        raise WrongUse(f"parameter ${parameter.name} has no value; there are {', '.join(sorted(values)) or 'none'}.")
    return literal(values[parameter.name])


def _count_from_one(tree: exp.Expr) -> None:
    """Ordinals begin at 1, and what Spark unnests to begins at 0."""
    for unnest in tree.find_all(exp.Unnest):
        offset, alias, select = unnest.args.get("offset"), unnest.args.get("alias"), unnest.find_ancestor(exp.Select)
        if not isinstance(offset, exp.Identifier) or alias is None or select is None:
            continue
        for column in list(select.find_all(exp.Column)):
            if (column.table, column.name) == (alias.name, offset.name):
                counted: exp.Expr = exp.paren(exp.Add(this=column.copy(), expression=exp.Literal.number(1)))
                if column.parent is select and column.arg_key == "expressions":
                    counted = exp.alias_(counted, offset.name)
                column.replace(counted)


CLOSED = (exp.Column, exp.Identifier, exp.Literal, exp.Func, exp.Paren, exp.Dot)


def _filled(template: str, generator: Any, **parts: exp.Expr) -> str:
    """A template with expressions written into it, in parentheses where they need them."""
    written = {}
    for name, part in parts.items():
        text = generator.sql(part)
        is_closed = isinstance(part, CLOSED) and not isinstance(part, exp.Connector)
        written[name] = text if is_closed else f"({text})"
    return template.format(**written)


def _ordered_list(generator: Any, call: exp.Anonymous) -> str:
    item, place = call.expressions
    return _filled(ORDERED_LIST, generator, item=item, place=place)


def _digest_part(generator: Any, call: exp.Anonymous) -> str:
    return _filled(DIGEST_PART, generator, item=call.expressions[0])


def _number_part(generator: Any, call: exp.Anonymous) -> str:
    return _filled(NUMBER_PART, generator, item=call.expressions[0])


def _list_slice(generator: Any, call: exp.Anonymous) -> str:
    items, first, last = call.expressions
    return _filled(LIST_SLICE, generator, items=items, first=first, last=last)


def _list_contains(generator: Any, call: exp.ArrayContains) -> str:
    return _filled(LIST_CONTAINS, generator, items=call.this, item=call.expression)


def _list_concat(generator: Any, call: exp.ArrayConcat) -> str:
    parts = ", ".join(f"COALESCE({generator.sql(part)}, ARRAY())" for part in (call.this, *call.expressions))
    return f"CONCAT({parts})"


def _array_to_string(generator: Any, call: exp.ArrayToString) -> str:
    return _filled(ARRAY_TO_STRING, generator, items=call.this, separator=call.expression)


def _concat(generator: Any, call: exp.Concat) -> str:
    return f"CONCAT_WS('', {', '.join(map(generator.sql, call.expressions))})"


def _json_extract_string(generator: Any, call: exp.JSONExtractScalar) -> str:
    if call.expression.sql(dialect="duckdb") != "'$'":
        raise WrongUse(f"json_extract_string of {call.expression.sql(dialect='duckdb')} has no rendering; '$' has.")
    return _filled(JSON_EXTRACT_STRING, generator, json=call.this)


def _try_cast(generator: Any, cast: exp.TryCast) -> str:
    templates = {exp.DataType.Type.BIGINT: TRY_BIGINT, exp.DataType.Type.DOUBLE: TRY_DOUBLE}
    if cast.to.this not in templates:
        raise WrongUse(f"try_cast to {cast.to.sql(dialect='duckdb')} has no rendering; bigint and double have.")
    return _filled(templates[cast.to.this], generator, text=cast.this)


CALLS: dict[str, Callable[[Any, exp.Anonymous], str]] = {
    "ordered_list": _ordered_list,
    "digest_part": _digest_part,
    "number_part": _number_part,
    "list_slice": _list_slice,
}


class SparkForViews(Spark):
    """Spark's dialect, with the meaning that DuckDB gives to what views use."""

    class Generator(Spark.Generator):  # type: ignore[misc, valid-type]
        """Writes what the views use."""

        TRANSFORMS: ClassVar[dict[Any, Any]] = {
            **Spark.Generator.TRANSFORMS,
            exp.AnyValue: lambda self, node: f"ANY_VALUE({self.sql(node.this)}, TRUE)",
            exp.ArrayConcat: _list_concat,
            exp.ArrayContains: _list_contains,
            exp.ArraySize: lambda self, node: f"ARRAY_SIZE({self.sql(node.this)})",
            exp.ArrayToString: _array_to_string,
            exp.Concat: _concat,
            exp.IgnoreNulls: lambda self, node: self.sql(node.this),
            exp.JSONExtractScalar: _json_extract_string,
            exp.TryCast: _try_cast,
        }

        def anonymous_sql(self, expression: exp.Anonymous) -> str:
            """A function that sqlglot does not know: one of ours, or none."""
            name = expression.name.lower()
            if name not in CALLS:
                raise WrongUse(f"function {name} has no rendering for Spark; views/spark_sql.py holds those that have.")
            return CALLS[name](self, expression)
