"""The program as a script sees it: arguments in, exit code, stdout and stderr out."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cli.main import run
from store.home import Home


@dataclass(frozen=True)
class Ran:
    """One call of the program."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What stdout holds, which must be one JSON object and nothing else."""
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value

    @property
    def error_line(self) -> str:
        """What stderr holds, which must be one line."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        return lines[0]


Espalier = Callable[..., Ran]


@pytest.fixture
def espalier(home: Home, capsys: pytest.CaptureFixture[str]) -> Espalier:
    """Runs the program in this process on the test's home."""

    def call(*arguments: str | Path) -> Ran:
        capsys.readouterr()
        code = run([*map(str, arguments), "--home", str(home.path)])
        seen = capsys.readouterr()
        return Ran(code, seen.out, seen.err)

    return call


@pytest.fixture
def espalier_process(tmp_path: Path) -> Espalier:
    """Runs the installed program as a process of its own, in an empty folder; `home` is given by the test."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()

    def call(*arguments: str | Path, **variables: str) -> Ran:
        program = Path(sys.executable).with_name("espalier")
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        answer = subprocess.run(
            [program, *map(str, arguments)],
            cwd=folder,
            env={**environment, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        return Ran(answer.returncode, answer.stdout, answer.stderr)

    return call
