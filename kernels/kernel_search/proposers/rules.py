"""The hand-written proposer: one or two edits that a kernel engineer might try next, and now and then a risky one.

It reads the prompt and its seed, and nothing else: a model has the same to go by.
"""

from random import Random

from kernel_search.grammar import FORM, OFFERS, Offer
from kernel_search.proposers.protocol import Answer, PromptView, Request, read_prompt
from kernel_search.search_settings import RulesSettings

# How often a place is tried, against 1 for the least: what moves traffic and occupancy first, spelling last.
WEIGHTS = {
    FORM: 6.0,
    "block": 5.0,
    "bm": 5.0,
    "bn": 5.0,
    "bk": 4.0,
    "unroll": 3.0,
    "warps": 4.0,
    "stages": 3.0,
    "order": 3.0,
    "evict": 1.5,
}
KEEPS_ONE_PASS_RIGHT = ("block", "full")  # a row that is read once must fit into one block


class RulesProposer:
    """Weighted random edits with a preference for neighbouring, larger sizes."""

    name = "rules"
    run_id = None

    def __init__(self, settings: RulesSettings) -> None:
        self._settings = settings

    def propose(self, requests: list[Request]) -> list[Answer]:
        """One answer per request, from its own seed."""
        return [self._answer(read_prompt(request.prompt), Random(request.seed)) for request in requests]

    def _answer(self, view: PromptView, rng: Random) -> Answer:
        edits = [self._edit(view, rng, taken=())]
        if edits[0] == (FORM, "one") and view.values.get("block") != "full":
            if rng.random() < 1 - self._settings.risky:
                edits.append(KEEPS_ONE_PASS_RIGHT)
        elif rng.random() < self._settings.two_edits:
            edits.append(self._edit(view, rng, taken=(edits[0][0],)))
        content = "\n".join(f"{name} {value}" for name, value in edits)
        return Answer({"role": "assistant", "content": content})

    def _edit(self, view: PromptView, rng: Random, *, taken: tuple[str, ...]) -> tuple[str, str]:
        offers = {
            name: offer for name, offer in OFFERS[view.task_name].items() if name in view.values and name not in taken
        }
        if rng.random() < self._settings.risky or not offers:  # without edit points any answer is a risk
            risks = [
                (name, value)
                for name, offer in (offers or OFFERS[view.task_name]).items()
                for value in offer.risky
                if name not in taken and view.values.get(name) != value
            ]
            return rng.choice(risks)
        moves = {name: _usual_moves(view, name, offer) for name, offer in offers.items()}
        names = [name for name, values in moves.items() if values]
        name = rng.choices(names, [WEIGHTS.get(each, 1.0) for each in names])[0]
        return name, self._value(offers[name], view.values[name], moves[name], rng)

    def _value(self, offer: Offer, current: str, values: list[str], rng: Random) -> str:
        """A neighbour among numbers, more often the larger one; anything else by chance."""
        if current in offer.usual and all(value.isdigit() for value in offer.usual):
            position = offer.usual.index(current)
            step = 1 if rng.random() < self._settings.upward else -1
            if rng.random() < 0.7 and 0 <= position + step < len(offer.usual):
                return offer.usual[position + step]
        return rng.choice(values)


def _usual_moves(view: PromptView, name: str, offer: Offer) -> list[str]:
    """Usual values that differ from what is there; a one-pass kernel keeps its full block."""
    if name == "block" and view.values.get(FORM) == "one":
        return [value for value in ("full",) if view.values[name] != value]
    return [value for value in offer.usual if value != view.values[name]]
