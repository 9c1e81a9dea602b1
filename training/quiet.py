"""How torch and the Hugging Face libraries are set up here: offline, one thread, no telemetry, few words."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}


def quiet_environment() -> None:
    """Set what must be in the environment before torch is imported; a value that is set already stays.

    One thread, since with two a second busy process makes OpenMP spin and training ten times slower.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def quiet_libraries() -> None:
    """Import torch, transformers and datasets with one thread and without progress bars of their own."""
    quiet_environment()
    import datasets
    import torch
    import transformers

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    datasets.disable_progress_bars()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()


@contextmanager
def expected_warnings_hidden() -> Iterator[None]:
    """Hide the warnings that the pinned libraries give about their own defaults."""
    import warnings

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*gradient_checkpointing.*deprecated.*", category=FutureWarning)
        warnings.filterwarnings("ignore", message=".*pin_memory.*")
        yield
