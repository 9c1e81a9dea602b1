"""Folders that a sandboxed child may read or run programs from."""

import sysconfig
from pathlib import Path

LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")
SYSTEM_LIBRARIES = ("/usr/lib", "/usr/lib64", "/lib", "/lib64")


def readable_paths() -> list[str]:
    """The Python installation, system libraries and the judge's own code; nothing of the project or its data."""
    paths = [sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_config_var("LIBDIR")]
    resolved = {str(Path(path).resolve()) for path in [*paths, *SYSTEM_LIBRARIES] if path}
    return sorted(resolved | {str(Path(__file__).resolve().parent), "/etc/ld.so.cache", "/dev/urandom"})


def compiler_tools() -> list[str]:
    """The target's assembler and object tools, and the dynamic loader that starts them: nothing else may be run."""
    tools = Path(sysconfig.get_path("purelib")) / "triton" / "backends" / "nvidia" / "bin"
    return [str(tools.resolve()), *(str(Path(path).resolve()) for path in LOADERS if Path(path).exists())]
