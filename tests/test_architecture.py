"""The shape of the repository: import order, the name `kernels`, the README's tree, sizes, start-up."""

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LONGEST_FILE = 400  # lines; about 250 is what a reader finishes comfortably
HELP_SECONDS = 0.6
SOURCES = ("cli", "dagster_project", "kernels", "training", "lineage", "views", "transforms", "store", "benchmarks")
TREE_LINE = re.compile(r"^((?:│   |    )*)[├└]── (\S+)")


def run_python(code: str, **variables: str) -> str:
    """Run code in a new Python started at the repository's root, bytecode cache on; return what it printed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    answer = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.strip()


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def test_a_folder_imports_only_what_stands_to_its_right() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    answer = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "0 broken" in answer.stdout


def test_the_folder_kernels_does_not_shadow_hugging_faces_package() -> None:
    assert not (ROOT / "kernels" / "__init__.py").exists()
    code = "from transformers.utils.import_utils import is_kernels_available; print(is_kernels_available())"
    assert run_python(code) == "False"


@pytest.mark.parametrize("module", ["torch", "pyspark"])
def test_the_asset_graph_loads_without(module: str) -> None:
    code = f"import sys, dagster_project.definitions; print({module!r} in sys.modules)"
    assert run_python(code) == "False"


def test_help_imports_none_of_the_heavy_libraries() -> None:
    heavy = ["torch", "transformers", "trl", "datasets", "dagster", "deltalake", "duckdb", "pyarrow", "sqlalchemy"]
    code = (
        "import sys, contextlib, io, cli.main\n"
        "with contextlib.redirect_stdout(io.StringIO()): cli.main.run(['--help'])\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    assert run_python(code) == "[]"


def test_help_is_on_the_screen_in_time() -> None:
    """Processor seconds: the wall clock, which `make bench-startup` shows, also counts what else the machine does."""
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run_python("from cli.main import main; import sys; sys.argv = ['espalier', '--help']; main()")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < HELP_SECONDS, f"the fastest of three took {min(seconds):.2f} s"


def test_no_source_file_is_longer_than_a_reader_finishes() -> None:
    lengths = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in python_files(*SOURCES)}
    assert {str(path): length for path, length in lengths.items() if length > LONGEST_FILE} == {}


def test_every_source_file_says_what_it_is() -> None:
    silent = [path for path in python_files(*SOURCES) if not path.read_text().lstrip().startswith(('"""', "#!"))]
    assert [str(path.relative_to(ROOT)) for path in silent] == []


def tracked_top_folders() -> set[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("no git checkout, so nothing says which folders belong to the repository")
    folders = {path.split("/")[0] for path in listed.stdout.splitlines() if "/" in path}
    return {folder for folder in folders if not folder.startswith(".")}


def readme_tree() -> list[str]:
    """Paths of the README's tree, parents put before their children's names."""
    paths: list[str] = []
    parents: list[str] = []
    for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines():
        found = TREE_LINE.match(line)
        if found:
            depth = len(found[1]) // 4
            parents = [*parents[:depth], found[2].rstrip("/")]
            paths.append("/".join(parents))
    return paths


def test_the_readmes_tree_is_the_real_tree() -> None:
    tree = readme_tree()
    assert [path for path in tree if not (ROOT / path).exists()] == []
    in_tree = {path for path in tree if "/" not in path and (ROOT / path).is_dir()}
    assert in_tree == tracked_top_folders()
