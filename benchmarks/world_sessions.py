"""One search session of the generated world: its tree, scores, texts and change log, from its key alone.

A session's content follows from (seed, key) and nothing else, so any range of sessions can be generated again, in any
order, and is the same. What the numbers imitate: sessions of 100 nodes in the mean and skewed sizes (lognormal);
siblings in groups of about 4 that answer one prompt; parents chosen with a preference for good nodes, down to depth
10; a child that scores a little above its parent, with noise; 30 % failures; a child's text that keeps about 70 % of
its parent's lines. A node has a prompt of 1 KiB (after a short system turn) and an artifact of 2 KiB in the mean; the
artifact is its answer, as the views take it where no assistant turn was recorded, so no text is stored twice.
"""

import functools
import hashlib
from dataclasses import dataclass

import numpy as np

from store.ids import message_digest

MEAN_NODES = 100
SIZE_SIGMA = 0.8  # of the lognormal of session sizes: a tenth of the sessions has over 200 nodes
SMALLEST, LARGEST = 5, 1500
SIBLINGS = (1, 2, 3, 4, 4, 4, 5, 6, 8)
DEEPEST = 10
BUGGY_SHARE = 0.3
FAILURE_REWARD = -1.0  # of every task; a failure of the infrastructure has no reward
ELSEWHERE = 1 << 30  # original of a copy whose original is in another session
FAILURE_CLASSES = ("compile_error", "wrong_answer", "timeout", "runtime_error", "harness.lost_worker")
FAILURE_SHARES = (0.3, 0.4, 0.1, 0.18, 0.02)
REWRITTEN_SHARE = 0.3  # of the parent's lines
LINES_MEAN = 39  # of 52 characters
POOL_LINES = 1 << 17
SYSTEM_TURN = "You improve programs. Answer with the whole program and nothing else; it is run as it stands."
MARGIN_LINES, EXCERPT_LINES = 5, 10  # of a prompt: notes, and lines of the parent
WORDS = """
block tile row column index offset stride mask load store value total partial scale weight bias score limit count
step size width height left right buffer cache queue state node edge parent child depth level first last next best
gain loss rate mean spread low high start stop chunk lane warp group order key table result left_sum right_sum
""".split()
SHAPES = (
    "    {a}_{b} = {c}_{d}[{n}] * {e}_{f} + {g}",
    "    for {a} in range({n}, {c}_{d}, {g}):",
    "        if {a}_{b} > {c}_{d} * 0.{n}:",
    "        {a}_{b} += max({c}_{d} - {g}, {e}_{f})",
    "    return {a}_{b}, {c}_{d}",
    "def {a}_{b}_{n}({c}, {d}, *, {e}_{f}={g}):",
    "    assert {a}_{b} <= {n}, '{c} {d} over {e}'",
    "    # {a} the {b} before the {c}, since {d} needs {n} of {e}",
)


@dataclass
class Session:
    """One session, a list per column; nodes are named by their step."""

    key: int
    session_id: str
    node_ids: list[str]
    parents: list[int]  # step of the parent; -1 for roots
    first_of_group: list[int]  # first step of the sibling group
    depths: list[int]
    fitness: list[float | None]
    is_buggy: list[bool]
    failure_class: list[str | None]
    rewards: list[float | None]
    copy_of: list[int]  # step of the original, or ELSEWHERE; -1: no copy
    island: list[str | None]
    artifacts: list[str]
    prompts: list[str]
    prompt_digests: list[str]

    def __len__(self) -> int:
        return len(self.node_ids)

    def paths(self) -> list[list[int]]:
        """Per node the steps from its root down to itself."""
        found: list[list[int]] = []
        for step, parent in enumerate(self.parents):
            found.append([*found[parent], step] if parent >= 0 else [step])
        return found


def hashed(prefix: str, *parts: int | str) -> str:
    """An id without order: 24 hex digits of a SHA-256 after the prefix, as ingest gives them."""
    return f"{prefix}_{hashlib.sha256('/'.join(map(str, parts)).encode()).hexdigest()[:24]}"


def session_rng(seed: int, key: int) -> np.random.Generator:
    """The random numbers of one session; the first draw is its size."""
    return np.random.Generator(np.random.PCG64([seed, key]))


def session_size(seed: int, key: int) -> int:
    """Nodes of a session."""
    return _size(session_rng(seed, key))


def _size(rng: np.random.Generator) -> int:
    drawn = rng.lognormal(np.log(MEAN_NODES) - SIZE_SIGMA**2 / 2, SIZE_SIGMA)
    return int(np.clip(round(drawn), SMALLEST, LARGEST))


def node_id(seed: int, key: int, step: int) -> str:
    """The id of a session's node."""
    return hashed("n", seed, key, step)


def source_id(session: Session) -> str:
    """The id of the log that a session came from."""
    return hashed("src", session.session_id)


@functools.cache
def line_pool(seed: int) -> list[str]:
    """Lines of code that texts are put together from: too many for a compressor's window, so that new lines cost."""
    rng = np.random.Generator(np.random.PCG64([seed, 2**40]))
    words = rng.integers(0, len(WORDS), (POOL_LINES, 6)).tolist()
    numbers = rng.integers(2, 4096, (POOL_LINES, 2)).tolist()
    shapes = rng.integers(0, len(SHAPES), POOL_LINES).tolist()
    return [
        SHAPES[shape].format(**dict(zip("abcdef", (WORDS[word] for word in chosen), strict=True)), n=n, g=g)
        for shape, chosen, (n, g) in zip(shapes, words, numbers, strict=True)
    ]


def make_session(seed: int, key: int, *, with_texts: bool = True) -> Session:
    """Generate one session.

    Args:
        seed: Of the world.
        key: Of the session; its place in the table is another number.
        with_texts: Whether artifacts and prompts are wanted; all else is the same without.
    """
    rng = session_rng(seed, key)
    size = _size(rng)
    session = _tree(seed, key, rng, size)
    _score_failures(session, rng)
    _copy_one(session, rng)
    if with_texts:
        _write_texts(session, rng, line_pool(seed))
    return session


def _tree(seed: int, key: int, rng: np.random.Generator, size: int) -> Session:
    buggy = (rng.random(size) < BUGGY_SHARE).tolist()
    noise = rng.normal(size=size).tolist()
    picks = rng.random((size, 5)).tolist()
    parents: list[int] = []
    first_of_group: list[int] = []
    depths: list[int] = []
    levels: list[float] = []
    sound: list[int] = []
    failed: list[int] = []
    root_level = 0.3 * rng.normal()
    while len(parents) < size:
        begin = len(parents)
        parent, members = _chosen_parent(picks[begin], sound, failed, levels)
        for step in range(begin, min(begin + members, size)):
            base = levels[parent] + 0.02 if parent >= 0 else root_level
            parents.append(parent)
            first_of_group.append(begin)
            depths.append(depths[parent] + 1 if parent >= 0 else 0)
            levels.append(base + 0.25 * 0.85 ** depths[step] * noise[step])
        for step in range(begin, len(parents)):
            if depths[step] < DEEPEST:
                (failed if buggy[step] else sound).append(step)
    return Session(
        key=key,
        session_id=hashed("s", seed, key),
        node_ids=[node_id(seed, key, step) for step in range(size)],
        parents=parents,
        first_of_group=first_of_group,
        depths=depths,
        fitness=[None if buggy[step] else round(levels[step], 6) for step in range(size)],
        is_buggy=buggy,
        failure_class=[None] * size,
        rewards=[],
        copy_of=[-1] * size,
        island=[None if key % 2 else str(first % 4) for first in first_of_group],
        artifacts=[],
        prompts=[],
        prompt_digests=[],
    )


def _chosen_parent(picks: list[float], sound: list[int], failed: list[int], levels: list[float]) -> tuple[int, int]:
    """A parent and how many siblings it gets: the best of four drawn nodes; one time in twenty a failed one."""
    members = SIBLINGS[int(picks[0] * len(SIBLINGS))]
    if failed and (not sound or picks[1] < 0.05):
        return failed[int(picks[2] * len(failed))], members
    if not sound:
        return -1, members
    drawn = [sound[int(pick * len(sound))] for pick in picks[1:5]]
    return max(drawn, key=levels.__getitem__), members


def _score_failures(session: Session, rng: np.random.Generator) -> None:
    classes = rng.choice(len(FAILURE_CLASSES), size=len(session), p=FAILURE_SHARES).tolist()
    for step, failed in enumerate(session.is_buggy):
        session.failure_class[step] = FAILURE_CLASSES[classes[step]] if failed else None
    session.rewards = [
        (None if (why or "").startswith("harness.") else FAILURE_REWARD) if failed else score
        for failed, score, why in zip(session.is_buggy, session.fitness, session.failure_class, strict=True)
    ]


def _copy_one(session: Session, rng: np.random.Generator) -> None:
    """In one session of a hundred, its last node is a copy of its best one, as a migrant is."""
    last = len(session) - 1
    sound = [step for step in range(last) if not session.is_buggy[step]]
    if rng.random() >= 0.01 or not sound:
        return
    best = max(sound, key=lambda step: session.fitness[step] or 0.0)
    for column in (session.fitness, session.is_buggy, session.failure_class, session.rewards, session.depths,
                   session.parents, session.first_of_group):  # fmt: skip
        column[last] = column[best]  # type: ignore[call-overload]
    session.copy_of[last] = best


def _write_texts(session: Session, rng: np.random.Generator, pool: list[str]) -> None:
    size = len(session)
    num_lines = int(np.clip(round(LINES_MEAN * rng.lognormal(-0.08, 0.4)), 12, 200))
    lines = np.empty((size, num_lines), np.int32)
    step = 0
    while step < size:
        end, parent = step + 1, session.parents[step]
        while end < size and session.first_of_group[end] == session.first_of_group[step]:
            end += 1
        shape = (end - step, num_lines)
        fresh = rng.integers(0, len(pool), shape, np.int32)
        lines[step:end] = fresh if parent < 0 else np.where(rng.random(shape) < REWRITTEN_SHARE, fresh, lines[parent])
        notes = rng.integers(0, len(pool), MARGIN_LINES + EXCERPT_LINES)
        prompt = _prompt(session, parent, lines, [pool[place] for place in notes], pool)
        digest = message_digest([{"role": "system", "content": SYSTEM_TURN}, {"role": "user", "content": prompt}])
        session.prompts += [prompt] * (end - step)
        session.prompt_digests += [digest] * (end - step)
        step = end
    session.artifacts = ["\n".join([pool[place] for place in row]) for row in lines.tolist()]
    for step, original in enumerate(session.copy_of):
        if original >= 0:
            session.artifacts[step] = session.artifacts[original]
            session.prompts[step] = session.prompts[original]
            session.prompt_digests[step] = session.prompt_digests[original]


def _prompt(session: Session, parent: int, lines: np.ndarray, notes: list[str], pool: list[str]) -> str:
    """About 1 KiB: the parent's score, some notes, and the beginning of the parent, or of nothing at a root."""
    if parent < 0:
        said = "There is no program yet. Write one that passes the checks, in this style:"
        excerpt = notes[MARGIN_LINES:]
    else:
        score = session.fitness[parent]
        said = (
            f"failed ({session.failure_class[parent]}). Repair it" if score is None else f"scored {score!r}. Improve it"
        )
        said = f"The program below was tried at step {parent} and {said}."
        excerpt = [pool[place] for place in lines[parent][:EXCERPT_LINES].tolist()]
    head = f"{said}\nKeep the signature. Every answer is checked on unseen inputs before it is timed, and counts once."
    return "\n".join([head, "Notes of earlier attempts:", *notes[:MARGIN_LINES], "The program begins:", *excerpt])
