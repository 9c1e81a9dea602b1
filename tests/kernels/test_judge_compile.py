"""Compiling: what stops it tells whose fault it is."""

import pytest
import triton
import triton.language as tl

from kernel_search.judge import compile_side
from kernel_search.judge.candidate import CandidateFault

NOTHING_SPECIAL = {"specialisation": {"signature": {}, "constexprs": [], "attributes": []}, "options": {}}


@triton.jit
def idle_kernel():
    tl.program_id(0)


def compile_with(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def stop(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(compile_side.triton, "compile", stop)
    monkeypatch.setattr(triton.knobs.runtime, "add_stages_inspection_hook", None)
    compile_side._compile(idle_kernel, NOTHING_SPECIAL, "sm90", 1024)


def test_a_compiler_that_cannot_be_started_is_not_the_candidates_fault(monkeypatch):
    with pytest.raises(BlockingIOError):
        compile_with(monkeypatch, BlockingIOError("no process can be made"))


def test_what_the_compiler_says_of_the_text_is(monkeypatch):
    with pytest.raises(CandidateFault) as raised:
        compile_with(monkeypatch, TypeError("cannot add a pointer"))
    assert (raised.value.failure_class, str(raised.value)) == ("language", "TypeError: cannot add a pointer")
