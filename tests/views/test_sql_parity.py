"""Every function and construct that view SQL may use means the same on both engines.

Each case is one expression over `samples`, whose rows hold NULL, empty, odd and large values; `samples` is shuffled
over several partitions on Spark, and every aggregate is also asked for groups that have no rows.
"""

import math
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from store.duckdb_connection import quiet_connection
from store.errors import WrongUse
from views.macros import MACROS
from views.spark_sql import literal, render

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FUNCTIONS: set[str] = runpy.run_path(str(Path(__file__).with_name("test_view_sql.py")))["FUNCTIONS"]
LARGE = [1e15 + 0.5, 9007199254740991.0, 9007199254740992.0, 9007199254740994.0, 1e16, 1.5e16, 123456789e12, -1.5e300]
NUMBERS = [None, 0.0, -0.0, 1.0, -1.5, 0.1, 1 / 3, 2.5e-7, 5e-324, 1e-300, *LARGE, math.inf, -math.inf, math.nan]
TEXTS = [None, "", " ", "a", "B", "é", "\N{GRINNING FACE}", 'it\'s \\ "quoted"', "line\nline", "s%_", "\u00a0\u200b"]
TEXTS += ["\U0001fae0", "\u0378", "\x0b\t", "\ue000", "z" * 300]
LISTS: list[list[str | None] | None] = [
    None,
    [],
    [None],
    [None, None],
    ["a"],
    ["a", None, "b"],
    ["", ""],
    ["b", "a", "s"],
]
JSON = [
    None,
    "null",
    "0",
    "-3",
    "12",
    "1.5",
    "0.1",
    "true",
    '""',
    '"a"',
    '"it\'s \\"\\u00e9\\n"',
    "12345678901234567890",
]
NUMBER_TEXTS = [None, "", "0", " 7 ", "+5", "-2.5", "2.5", "1e3", "1.", ".5", "x", "1.0f", "nan", "-Infinity"]
NUMBER_TEXTS += ["9223372036854775807", "9223372036854775808", "1e400", "true", "--1"]


def samples() -> pa.Table:
    """Forty rows in five groups, one of which has a single row; `seq` is the key."""
    rows = []
    for row in range(40):
        text, letters = TEXTS[row % len(TEXTS)], LISTS[row % len(LISTS)]
        rows.append(
            {
                "seq": row,
                "part": "alone" if row == 39 else ["a", "b", "c", None][row % 4],
                "place": [3, -2, None, 0, 7, 1][row % 6],
                "letter": text,
                "number": NUMBERS[row % len(NUMBERS)],
                "plain": None if row % 7 == 0 else row / 4 - 3,
                "small": None if row % 5 == 0 else (-1) ** row * row / 3,
                "whole": None if row % 4 == 0 else row * (-1) ** row * 10**9,
                "truth": [True, False, None][row % 3],
                "letters": letters,
                "others": LISTS[(row * 3 + 1) % len(LISTS)],
                "json": JSON[row % len(JSON)],
                "digits": NUMBER_TEXTS[row % len(NUMBER_TEXTS)],
                "nodes": None if row % 6 == 0 else [{"node_id": f"n{item}", "step": item} for item in range(row % 4)],
            }
        )
    text, list_of = pa.string(), pa.list_
    shape = {"seq": pa.int64(), "part": text, "place": pa.int64(), "letter": text, "number": pa.float64()}
    shape |= {"plain": pa.float64(), "small": pa.float32(), "whole": pa.int64(), "truth": pa.bool_()}
    shape |= {"letters": list_of(text), "others": list_of(text), "json": text, "digits": text}
    shape["nodes"] = list_of(pa.struct([("node_id", text), ("step", pa.int64())]))
    return pa.Table.from_pylist(rows, schema=pa.schema(list(shape.items())))


SCALARS = {  # asked of every row
    "digest_part": ["digest_part(letter)", "digest_part(whole)", "digest_part(truth)", "digest_part(place)"],
    "number_part": ["number_part(number)", "number_part(small)", "number_part(plain)", "number_part(whole)"],
    "array_to_string": [
        "array_to_string(letters, ',')",
        "array_to_string(letters, chr(29))",
        "array_to_string(list_transform(letters, lambda letter: digest_part(letter)), ',')",
    ],
    "cast": [
        "cast(whole as varchar)",
        "cast(truth as varchar)",
        "cast(null as varchar)",
        "cast(place as double)",
        "cast([] as varchar[])",
    ],
    "chr": ["chr(31)", "chr(10)"],
    "coalesce": ["coalesce(letter, part, '?')", "coalesce(letters, [])", "coalesce(truth, false)"],
    "concat": ["concat('c_', letter)", "concat(part, '/', whole, '/', letter)", "concat(letter, letter)"],
    "concat_ws": ["concat_ws(chr(31), part, letter)", "concat_ws('/', letter, cast(null as varchar))"],
    "json_extract_string": ["json_extract_string(json, '$')"],
    "array_length": ["array_length(letters)", "array_length(nodes)"],
    "length": ["length(letter)"],
    "list_concat": [
        "list_concat(letters, others)",
        "list_concat(others, list_slice(letters, 2, array_length(letters)))",
    ],
    "list_contains": [
        "list_contains(letters, 'a')",
        "list_contains(letters, letter)",
        "list_contains($kinds, letter)",
        "list_contains($none, 'a')",
    ],
    "list_filter": [
        "list_filter(letters, lambda item: item like 's%')",
        "list_filter(letters, lambda item: not (item like 's%' and list_contains(others, item)))",
    ],
    "list_slice": [
        "list_slice(letters, 1, 2)",
        "list_slice(letters, 1, array_length(others))",
        "list_slice(letters, array_length(others) + 1, array_length(letters))",
        "list_slice(letters, 1, array_length(others)) = others",
    ],
    "list_transform": ["list_transform(letters, lambda item: concat(item, part))"],
    "ln": ["ln(abs(plain) + 1)"],
    "sqrt": ["sqrt(ln(abs(plain) + 2) / 3)"],
    "md5": ["md5(letter)", "md5(concat_ws(chr(31), $text, digest_part(letter)))"],
    "regexp_matches": [
        r"regexp_matches(letter, '[^\s\p{Z}\p{Cc}\p{Cf}\p{Co}\p{Cs}]')",
        r"regexp_matches(letter, '\\')",
    ],
    "struct_pack": ["struct_pack(role := 'user', content := letter, calls := cast(null as varchar))"],
    "try_cast": ["try_cast(digits as bigint)", "try_cast(digits as double)"],
    "case": [
        "case when truth then letter end",
        "case when not truth then 1 when truth is null then 2 else 3 end",
        "case when number between -1.7e308 and 1.7e308 then number end",
    ],
    "operators": [
        "letter is not distinct from part",
        "letter is distinct from part",
        "truth and plain > 0",
        "truth or plain > 0",
        "number > 1",
        "4 * place between whole and whole + 3",
        "letter like 's%'",
        "letter in ('a', 'B')",
        "letter < part",
        "plain / 4",
        "seq / 3",
        "-place",
        "plain - small",
        "[letter, part]",
        "case when letter is not null then [letter] end",
    ],
    "parameters": ["$text", "$margin", "$count", "$truth", "$margin > plain", "$text = letter"],
}
AGGREGATES = {  # asked of every group, and of no rows at all
    "any_value": ["any_value(part)", "any_value(cast(null as varchar))"],
    "avg": ["avg(plain)"],
    "bool_or": ["bool_or(truth)"],
    "count": ["count(*)", "count(letter)"],
    "max": ["max(letter)", "max(whole)", "max(case when truth then letter end)", "max(number)"],
    "min": ["min(letter)", "min(plain)"],
    "ordered_list": [
        "ordered_list(letter, seq)",
        "ordered_list(letter, -seq)",
        "ordered_list(seq, coalesce(place, 9) * 100 + seq)",
        "ordered_list(struct_pack(letter := letter, letters := letters), seq)",
        "array_to_string(ordered_list(letter, seq), ',')",
        "ordered_list(letter, letter)",
    ],
    "stddev_samp": ["stddev_samp(plain)"],
}
SELECTS = {  # each with the columns to sort by
    "row_number": """
        select seq, row_number() over (partition by part order by plain desc nulls last, seq) as first,
            row_number() over (partition by part order by letter, seq desc) as second,
            row_number() over (partition by part order by place desc, seq) as third
        from samples
    """,
    "windows": """
        select seq, count(*) over (partition by part) as num, count(letter) over (partition by part) as num_letters,
            min(letter) over (partition by part) = max(letter) over (partition by part) as same,
            avg(plain) over (partition by part) as mean, stddev_samp(plain) over (partition by part) as sd
        from samples
    """,
    "unnest": "select samples.seq, shown.item.node_id from samples cross join unnest(samples.nodes) as shown (item)",
    "unnest with ordinality": """
        select samples.seq, said.letter, said.place from samples
        inner join samples as others on samples.seq = others.seq
        cross join unnest(samples.letters) with ordinality as said (letter, place) where said.place < 3
    """,
    "grouped ordinals": """
        select samples.seq, ordered_list(said.letter, -said.place) as backwards from samples
        cross join unnest(samples.letters) with ordinality as said (letter, place) group by samples.seq
    """,
    "joins": """
        select samples.seq, others.seq as other from samples
        inner join samples as others on samples.letter is not distinct from others.letter
            and samples.part is not distinct from others.part and samples.seq <> others.seq
    """,
    "left join": """
        select samples.seq, others.seq as other from samples
        left join samples as others on samples.place = others.whole where others.seq is null
    """,
    "in": "select seq from samples where letter in (select part from samples) and seq not in (select 3)",
    "distinct": "select distinct part, truth from samples",
    "union": "select part from samples union select letter from samples",
    "having": "select part from samples group by part having bool_or(truth) and count(*) > 1",
    "recursion": """
        with recursive longer as (
            select seq, cast([] as varchar[]) as said, 0 as height from samples where seq < 5
            union all
            select samples.seq, list_concat(longer.said, [samples.letter]) as said, longer.height + 1 as height
            from longer inner join samples on longer.seq + 5 = samples.seq
        ),
        highest as (select max(height) as top from longer)
        select longer.seq, longer.said, longer.height from longer inner join highest on longer.height <= highest.top
    """,
    "deep recursion": """
        with recursive chain as (
            select cast(0 as bigint) as seq
            union all
            select samples.seq from chain inner join samples on chain.seq + 1 = samples.seq
        )
        select count(*) as num from chain
    """,
}
PARAMETERS = {
    "kinds": ["a", "B"],
    "none": [],
    "text": 'it\'s \\ $5 "x"\n',
    "margin": 0.15,
    "count": 16,
    "truth": True,
}
ROUNDED = ("avg", "stddev_samp", "windows", "ln", "sqrt")  # sums depend on the order of their rows
CASES = {name: [f"select seq, {item} as value from samples" for item in items] for name, items in SCALARS.items()}
for name, items in AGGREGATES.items():
    CASES[name] = [f"select part, {item} as value from samples group by part" for item in items]
    CASES[name] += [f"select {item} as value from samples where seq < 0" for item in items]
    CASES[name] += [f"select part, {item} as value from samples where seq < 0 group by part" for item in items[:1]]
CASES |= {name: [select] for name, select in SELECTS.items()}


@pytest.fixture(scope="module")
def engines(spark: "SparkSession") -> "Engines":
    return Engines(spark)


class Engines:
    """Both engines over the same samples."""

    def __init__(self, spark: "SparkSession") -> None:
        self.spark = spark
        self.duckdb = quiet_connection()
        rows = samples()
        self.duckdb.register("samples", rows)
        for macro in MACROS:
            self.duckdb.execute(macro)
        spark.createDataFrame(rows).repartition(3, "place").createOrReplaceTempView("samples")

    def from_duckdb(self, select: str) -> list[dict[str, Any]]:
        used = {name: value for name, value in PARAMETERS.items() if f"${name}" in select}
        return self.duckdb.sql(select, params=used).to_arrow_table().to_pylist()

    def from_spark(self, select: str) -> list[dict[str, Any]]:
        return self.spark.sql(render(select, PARAMETERS)).toArrow().to_pylist()


@pytest.mark.parametrize("name", sorted(CASES))
def test_both_engines_say_the_same(engines: Engines, name: str) -> None:
    for select in CASES[name]:
        expected, found = (
            sorted(engines.from_duckdb(select), key=repr_of),
            sorted(engines.from_spark(select), key=repr_of),
        )
        assert expected or "where seq < 0" in select
        digits = 12 if name in ROUNDED else 17
        assert [repr_of(row, digits) for row in found] == [repr_of(row, digits) for row in expected], select


def repr_of(value: Any, digits: int = 17) -> str:
    """Equal for equal values: NaN is itself, the two zeros are not each other, a float counts by its first digits."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {repr_of(item, digits)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(repr_of(item, digits) for item in value) + "]"
    return f"{value:.{digits}g}" if isinstance(value, float) else repr(value)


def test_every_allowed_function_has_a_case() -> None:
    assert sorted(FUNCTIONS - CASES.keys()) == []


def test_what_has_no_rendering_is_named_and_not_guessed() -> None:
    for select, said in (
        ("select strange(a) from t", "function strange has no rendering"),
        ("select json_extract_string(a, '$.b') from t", "json_extract_string of"),
        ("select try_cast(a as date) from t", "try_cast to DATE"),
        ("select $gone", r"parameter \$gone has no value; there are text"),
    ):
        with pytest.raises(WrongUse, match=said):
            render(select, {"text": "a"})
    with pytest.raises(WrongUse, match="list of texts, not"):
        literal({1: 2})
