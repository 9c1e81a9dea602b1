"""Proposers by name; the model's module, and torch with it, is loaded only when a model is asked for."""

from kernel_search.proposers.protocol import Answer, Proposer, Request
from kernel_search.search_settings import SearchSettings
from store.errors import UnknownName, WrongUse

PROPOSERS = ("rules", "uniform", "model")

__all__ = ["PROPOSERS", "Answer", "Proposer", "Request", "make_proposer"]


def make_proposer(name: str, settings: SearchSettings, *, model_dir: str | None = None) -> Proposer:
    """The proposer of that name.

    Raises:
        UnknownName: There is none; the message lists those there are.
        WrongUse: A model without its folder, or a folder without a model.
        BadInput: The folder holds no usable model.
    """
    if name not in PROPOSERS:
        raise UnknownName(f"no proposer is named {name!r}; there are {', '.join(PROPOSERS)}.")
    if (name == "model") != (model_dir is not None):
        raise WrongUse(
            f"proposer {name!r} with model folder {model_dir}; `model`, and only it, needs one (--model DIR)."
        )
    if name == "rules":
        from kernel_search.proposers.rules import RulesProposer

        return RulesProposer(settings.rules)
    if name == "uniform":
        from kernel_search.proposers.uniform import UniformProposer

        return UniformProposer(settings.uniform)
    from kernel_search.proposers.model import load_model_proposer

    assert model_dir is not None
    return load_model_proposer(model_dir, settings.model)
