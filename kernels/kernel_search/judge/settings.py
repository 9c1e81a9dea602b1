"""Settings of the judge (conf/judge.yaml) and the reward rule for kernels (conf/rewards.yaml)."""

import math

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


class KernelRewards(Settings):
    """The rule that turns a verdict on a kernel into fitness and reward."""

    version: int
    bucket: float = Field(gt=0)
    failure_reward: float
    floor: float = Field(ge=0, le=1)
    lowest_fitness: float
    highest_fitness: float

    def fitness(self, baseline_us: float, estimate_us: float) -> float:
        """ln(baseline / estimate), floored to buckets; 0.0 for the baseline itself."""
        steps = math.floor(math.log(baseline_us / estimate_us) / self.bucket + 1e-9)
        return round(steps * self.bucket, 6) + 0.0

    def reward(self, fitness: float) -> float:
        """What a working kernel of this fitness earns, from `floor` to 1."""
        span = self.highest_fitness - self.lowest_fitness
        share = min(1.0, max(0.0, (fitness - self.lowest_fitness) / span))
        return round(self.floor + (1.0 - self.floor) * share, 6)


class Rewards(Settings):
    """conf/rewards.yaml: one rule per domain."""

    kernels: KernelRewards


def judge_settings() -> JudgeSettings:
    """Read conf/judge.yaml."""
    return read_settings(JudgeSettings, "judge.yaml")


def kernel_rewards() -> KernelRewards:
    """Read the kernels' rule in conf/rewards.yaml."""
    return read_settings(Rewards, "rewards.yaml").kernels
