"""The only functions of our own that a view's SQL may use, as DuckDB's macros.

Another engine renders them its own way and gives the same rows (views/spark_sql.py). They are part of every view's
digest: a row that one of them made is another row once it is changed.
"""

MACROS = (
    "create macro ordered_list(item, place) as list(item order by place)",
    "create macro digest_part(item) as coalesce('=' || cast(item as varchar), '-')",
    # Engines print floats differently, so a digest holds the whole part and 104 bits of the fraction, each exact.
    """
    create macro number_part(item) as case
        when item is null then '-'
        when abs(item) < 9007199254740992.0 then concat(
            case when item < 0 then '=-' else '=' end,
            cast(cast(floor(abs(item)) as bigint) as varchar),
            '.',
            cast(cast(floor((abs(item) - floor(abs(item))) * 4503599627370496.0) as bigint) as varchar),
            '.',
            cast(
                cast(
                    floor(
                        (
                            (abs(item) - floor(abs(item))) * 4503599627370496.0
                            - floor((abs(item) - floor(abs(item))) * 4503599627370496.0)
                        ) * 4503599627370496.0
                    ) as bigint
                ) as varchar
            )
        )
        else concat('=', cast(item as varchar))
    end
    """,
)
