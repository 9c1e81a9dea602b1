import pytest

from judging import warm_judge


@pytest.fixture(scope="module", params=["compile", "interpret"])
def server(request):
    """A warm server and an operation of it that runs what it is sent."""
    pipeline = warm_judge()._pipeline
    return (pipeline.compiler, "record") if request.param == "compile" else (pipeline.interpreter, "interpret")
