"""Named edits: places in a kernel's text that have a name, and the words for what can stand there.

A place is found by the text around it, in any source, whoever wrote it; nothing is parsed and nothing is kept beside
the text. An edit `warps 8` means: find the one place called `warps`, put the text for `8` there. `form` is the one
edit that is not a single place: it rewrites the whole kernel (see `edits.py`).

Values that cannot work (three warps, a mask left out, sums in half precision) are values like any other: what a
candidate is worth is for the judge to say.
"""

import re
from dataclasses import dataclass
from functools import cached_property

NUMBER = r"[1-9][0-9]{0,6}"

# The first load of each task: the one that `mask`, `other` and `evict` speak of.
FIRST_LOADS = (
    "x = tl.load(x_ptr + offsets",
    "x = tl.load(x_row + cols",
    "a = tl.load(a_ptr + rows[:, None] * K + ks[None, :]",
)
FIRST_LOAD = "(?:" + "|".join(re.escape(text) for text in FIRST_LOADS) + ")"
MASK = r"(?:, mask=\w+)?"
OTHER = r'(?:, other=(?:0\.0|float\("-inf"\)))?'

ORDER_ROW = """    tile_m = pid // tl.cdiv(N, BN)
    tile_n = pid % tl.cdiv(N, BN)
"""
ORDER_COLUMN = """    tile_m = pid % tl.cdiv(M, BM)
    tile_n = pid // tl.cdiv(M, BM)
"""
ORDER_SWAPPED = """    tile_m = pid % tl.cdiv(N, BN)
    tile_n = pid // tl.cdiv(N, BN)
"""
ORDER_GROUP = """    band = pid // ({rows} * tl.cdiv(N, BN))
    height = tl.minimum(tl.cdiv(M, BM) - band * {rows}, {rows})
    tile_m = band * {rows} + pid % ({rows} * tl.cdiv(N, BN)) % height
    tile_n = pid % ({rows} * tl.cdiv(N, BN)) // height
"""


@dataclass(frozen=True)
class Place:
    """One named place: the pattern before and after it, and the text that each value is spelled with.

    `takes_numbers` places hold any whole number from 1 to 9,999,999 as well.
    """

    name: str
    about: str
    before: str
    after: str
    spellings: tuple[tuple[str, str], ...] = ()
    takes_numbers: bool = False

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches the place with what stands in it as the group `text`."""
        texts = sorted((text for _, text in self.spellings), key=len, reverse=True)
        choices = [re.escape(text) for text in texts]
        if self.takes_numbers:
            choices.insert(0, NUMBER)
        return re.compile(f"{self.before}(?P<text>{'|'.join(choices)}){self.after}")

    def text_of(self, value: str) -> str | None:
        """The text that says this value; None where the place has no such value."""
        if self.takes_numbers and re.fullmatch(NUMBER, value):
            return value
        return dict(self.spellings).get(value)

    def value_of(self, text: str) -> str:
        """The value that this text says."""
        return next((value for value, spelled in self.spellings if spelled == text), text)


def _number(name: str, about: str, before: str, after: str, *spellings: tuple[str, str]) -> Place:
    return Place(name, about, before, after, spellings, takes_numbers=True)


PLACES: dict[str, Place] = {
    place.name: place
    for place in (
        _number(
            "block", "elements of one program's block", r"\n    BLOCK = ", r"\n", ("full", "triton.next_power_of_2(N)")
        ),
        _number("bm", "rows of a tile", r"\n    BM = ", r"\n"),
        _number("bn", "columns of a tile", r"\n    BN = ", r"\n"),
        _number("bk", "depth of one step along K", r"\n    BK = ", r"\n"),
        _number("unroll", "blocks per program, unrolled", r"\n    UNROLL = ", r"\n"),
        _number("warps", "warps per program", r"\bnum_warps=", r"\b"),
        _number("stages", "stages of the software pipeline", r"\bnum_stages=", r"\b"),
        Place(
            "mask",
            "whether the first load is masked",
            FIRST_LOAD,
            r"(?=[,)])",
            (("on", ", mask=inside"), ("tile", ", mask=inside_a"), ("off", "")),
        ),
        Place(
            "other",
            "what the first load puts into masked lanes",
            FIRST_LOAD + MASK,
            r"(?=[,)])",
            (("zero", ", other=0.0"), ("neg_inf", ', other=float("-inf")'), ("none", "")),
        ),
        Place(
            "evict",
            "how long the cache keeps what the first load read",
            FIRST_LOAD + MASK + OTHER,
            r"(?=\))",
            (
                ("first", ', eviction_policy="evict_first"'),
                ("last", ', eviction_policy="evict_last"'),
                ("stream", ', eviction_policy="stream"'),
                ("none", ""),
            ),
        ),
        Place(
            "store_mask",
            "whether the store is masked",
            r"\btl\.store\([^\n]*?",
            r"(?=\)\n)",
            (("on", ", mask=inside"), ("off", "")),
        ),
        Place(
            "acc",
            "type that is computed and summed in",
            r"\bACC=",
            r"(?=,)",
            (("fp32", "tl.float32"), ("fp16", "tl.float16"), ("fp64", "tl.float64")),
        ),
        Place(
            "exp",
            "how the exponential is taken",
            r"\n    return ",
            r"(?=\n)",
            (
                ("natural", "tl.exp(x)"),
                ("base2", "tl.exp2(x * 1.4426950408889634)"),
                ("unscaled", "tl.exp2(x)"),
            ),
        ),
        Place(
            "shift",
            "whether the row's maximum is subtracted first",
            r'keeps it finite\."""\n',
            r"(?=    return )",
            (("max", "    x = x - shift\n"), ("none", "")),
        ),
        Place(
            "divide",
            "how the row's sum is divided by",
            r"\btl\.store\(out_row \+ cols, (?:powers|exponential\(last, row_max\))",
            r"(?=[,)])",
            (("each", " / row_sum"), ("once", " * (1.0 / row_sum)"), ("never", "")),
        ),
        Place(
            "root",
            "how the reciprocal root is taken",
            r"\n    scale = ",
            r"(?=\n)",
            (
                ("sqrt", "1.0 / tl.sqrt(mean + eps)"),
                ("rsqrt", "tl.rsqrt(mean + eps)"),
                ("inv_sqrt", "tl.inv_sqrt(mean + eps)"),
            ),
        ),
        Place(
            "order",
            "in which order programs walk the tiles",
            r"\n    pid = tl\.program_id\(0\)\n",
            r"(?=    rows = )",
            (
                ("row", ORDER_ROW),
                ("column", ORDER_COLUMN),
                ("group4", ORDER_GROUP.format(rows=4)),
                ("group8", ORDER_GROUP.format(rows=8)),
                ("swapped", ORDER_SWAPPED),
            ),
        ),
        Place(
            "dot",
            "how a tile's product is added up",
            r"\n        ",
            r"(?=\n)",
            (
                ("fused", "acc = tl.dot(a, b, acc, out_dtype=ACC)"),
                ("added", "acc += tl.dot(a, b, out_dtype=ACC)"),
                ("fresh", "acc = tl.dot(a, b, out_dtype=ACC)"),
            ),
        ),
    )
}

FORM = "form"
KINDS = (FORM, *PLACES)


@dataclass(frozen=True)
class Offer:
    """What a proposer may try at one place of one task: values that often work, and values that mostly fail."""

    usual: tuple[str, ...]
    risky: tuple[str, ...] = ()

    @property
    def values(self) -> tuple[str, ...]:
        """All of them, the usual ones first."""
        return self.usual + self.risky


_WARPS = Offer(("1", "2", "4", "8", "16"), ("3", "32", "64"))
_STAGES = Offer(("1", "2", "3", "4"), ("8",))
_EVICT = Offer(("none", "first", "last"), ("stream",))
_ACC = Offer(("fp32", "fp64"), ("fp16",))
_MASK, _STORE_MASK = Offer(("on",), ("off",)), Offer(("on",), ("off",))
_ROW_BLOCK = Offer(("256", "512", "1024", "2048", "4096", "full"), ("128", "768", "1000", "16384"))
_TILE = Offer(("16", "32", "64", "128"), ("8", "48", "256"))

# In the order in which a prompt lists them.
OFFERS: dict[str, dict[str, Offer]] = {
    "vector_add": {
        "block": Offer(("128", "256", "512", "1024", "2048", "4096"), ("96", "1000", "16384")),
        "unroll": Offer(("1", "2", "4"), ("3",)),
        "warps": _WARPS,
        "stages": _STAGES,
        "mask": _MASK,
        "other": Offer(("zero", "none"), ("neg_inf",)),
        "evict": _EVICT,
        "store_mask": _STORE_MASK,
        "acc": _ACC,
    },
    "softmax": {
        FORM: Offer(("three", "two", "one")),
        "block": _ROW_BLOCK,
        "warps": _WARPS,
        "stages": _STAGES,
        "mask": _MASK,
        "other": Offer(("neg_inf",), ("zero", "none")),
        "evict": _EVICT,
        "store_mask": _STORE_MASK,
        "acc": _ACC,
        "exp": Offer(("natural", "base2"), ("unscaled",)),
        "shift": Offer(("max",), ("none",)),
        "divide": Offer(("each", "once"), ("never",)),
    },
    "rms_norm": {
        FORM: Offer(("two", "one")),
        "block": _ROW_BLOCK,
        "warps": _WARPS,
        "stages": _STAGES,
        "mask": _MASK,
        "other": Offer(("zero",), ("neg_inf", "none")),
        "evict": _EVICT,
        "store_mask": _STORE_MASK,
        "acc": _ACC,
        "root": Offer(("sqrt", "rsqrt"), ("inv_sqrt",)),
    },
    "matmul": {
        "bm": _TILE,
        "bn": _TILE,
        "bk": Offer(("16", "32", "64", "128"), ("8", "48")),
        "warps": Offer(("2", "4", "8"), ("1", "3", "64")),
        "stages": Offer(("2", "3", "4"), ("1", "8")),
        "order": Offer(("row", "column", "group4", "group8"), ("swapped",)),
        "dot": Offer(("fused", "added"), ("fresh",)),
        "mask": Offer(("tile",), ("off",)),
        "other": Offer(("zero",), ("neg_inf", "none")),
        "evict": _EVICT,
        "store_mask": _STORE_MASK,
        "acc": Offer(("fp32",), ("fp16", "fp64")),
    },
}
