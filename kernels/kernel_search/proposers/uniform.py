"""The control: every place and every value of the task's grammar is equally likely, the current value included."""

from random import Random

from kernel_search.grammar import OFFERS
from kernel_search.proposers.protocol import Answer, Request, read_prompt
from kernel_search.search_settings import UniformSettings


class UniformProposer:
    """Uniform over the (name, value) pairs that the grammar offers; it does not look at the parent."""

    name = "uniform"
    run_id = None

    def __init__(self, settings: UniformSettings) -> None:
        self._settings = settings

    def propose(self, requests: list[Request]) -> list[Answer]:
        """One answer per request, from its own seed."""
        return [self._answer(read_prompt(request.prompt).task_name, Random(request.seed)) for request in requests]

    def _answer(self, task_name: str, rng: Random) -> Answer:
        pairs = [(name, value) for name, offer in OFFERS[task_name].items() for value in offer.values]
        first = rng.choice(pairs)
        edits = [first]
        if rng.random() < self._settings.two_edits:
            edits.append(rng.choice([pair for pair in pairs if pair[0] != first[0]]))
        return Answer({"role": "assistant", "content": "\n".join(f"{name} {value}" for name, value in edits)})
