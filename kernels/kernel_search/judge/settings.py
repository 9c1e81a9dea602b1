"""Settings of the judge (conf/judge.yaml)."""

from pydantic import Field

from store.settings import Settings, read_settings


class JudgeSettings(Settings):
    """conf/judge.yaml; the file gives each value's reason."""

    target: str
    compile_cpu_seconds: int = Field(gt=0)
    interpret_cpu_seconds: int = Field(gt=0)
    accesses_per_thread: int = Field(gt=0)
    wall_seconds: int = Field(gt=0)
    memory_mib: int = Field(gt=0)
    file_mib: int = Field(gt=0)
    result_mib: int = Field(gt=0)
    sampled_programs: int = Field(gt=0)
    memory_operations_per_program: int = Field(gt=0)
    cached_verdicts: int = Field(ge=0)
    cached_compiles: int = Field(ge=0)
    required_layers: int = Field(ge=0)


def judge_settings() -> JudgeSettings:
    """Read conf/judge.yaml."""
    return read_settings(JudgeSettings, "judge.yaml")
