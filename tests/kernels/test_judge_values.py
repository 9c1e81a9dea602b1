"""What counts as right, what an estimate is made of, and what a verdict earns: plain functions, checkable by hand."""

import contextlib
import math

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from kernel_search.judge import compare, estimate, inputs, plan, wire
from kernel_search.judge.compile_side import count_accesses, count_instructions
from kernel_search.judge.settings import judge_settings
from kernel_search.judge.target import H100
from kernel_search.rewards import kernel_rewards
from kernel_search.tasks import MATMUL, RMS_NORM, SOFTMAX, TASKS, VECTOR_ADD, kernel_task
from store.errors import BadSetting, UnknownName

REWARDS = kernel_rewards()


def cheap_answers(arrays: list[np.ndarray], reference: np.ndarray) -> dict[str, np.ndarray]:
    """Answers that no kernel has to compute: zeros, the mean, a constant, each input where its shape fits."""
    answers = {
        "zeros": np.zeros_like(reference),
        "mean": np.full_like(reference, reference.mean()),
        "ones": np.ones_like(reference),
    }
    for number, array in enumerate(arrays):
        if array.shape == reference.shape:
            answers[f"input {number}"] = array.astype(np.float64)
    return answers


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_no_task_accepts_zeros_the_mean_a_constant_or_an_input(task):
    for case in task.cases:
        if math.prod(task.output_shape(case.shape)) < 16:
            continue  # a softmax over one column is 1, whoever computes it
        specs = compare.case_specs(task, case, 5)
        made = [
            inputs.make_input(inputs.InputSpec(tuple(s["shape"]), s["dtype"], s["regime"], s["seed"])) for s in specs
        ]
        reference, allowed = compare.reference_and_tolerance(task, made)
        for name, answer in cheap_answers(made, reference).items():
            if case.regime == "constant" and name == "mean":
                continue  # the answer to constant inputs is near its own mean
            assert not compare.compare(answer, reference, allowed).is_right, (case, name)


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_the_reference_in_the_tasks_own_precision_is_right(task):
    for case in task.cases:
        reference, allowed = compare.reference_for_case(task, compare.case_specs(task, case, 6))
        assert compare.compare(reference.astype(task.dtype), reference, allowed).is_right, case


def test_half_precision_is_wrong_for_a_float32_task_and_a_half_precision_sum_for_a_float16_one():
    specs = compare.case_specs(SOFTMAX, SOFTMAX.cases[0], 7)
    reference, allowed = compare.reference_for_case(SOFTMAX, specs)
    assert not compare.compare(reference.astype(np.float16), reference, allowed).is_right
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in [(16, 1024), (1024, 16)])
    reference, allowed = compare.reference_and_tolerance(MATMUL, [a, b])
    total = np.zeros((16, 16), np.float16)
    for start in range(0, 1024, 32):
        part = a[:, start : start + 32].astype(np.float32) @ b[start : start + 32].astype(np.float32)
        total = total + part.astype(np.float16)
    assert not compare.compare(total, reference, allowed).is_right
    exact = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)
    assert compare.compare(exact, reference, allowed).is_right


def test_what_is_not_finite_is_wrong():
    reference, allowed = np.ones(3), np.full(3, 1e9)
    for bad in (np.nan, np.inf, -np.inf):
        found = compare.compare(np.array([1.0, bad, 1.0]), reference, allowed)
        assert (found.is_right, found.wrong_elements, found.worst_ratio) == (False, 1, math.inf)


@pytest.mark.parametrize(
    ("task", "shape"),
    [(VECTOR_ADD, (50,)), (SOFTMAX, (6, 7)), (RMS_NORM, (6, 7)), (MATMUL, (5, 6, 7))],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_restricted_problem_gives_the_same_elements_as_the_whole_one(task, shape):
    import torch

    rng = np.random.default_rng(1)
    whole = [rng.standard_normal(part) for part in task.input_shapes(shape)]
    expected = task.reference([torch.from_numpy(array) for array in whole]).numpy().ravel()
    positions = np.array([1, 3, 4, 29, 20])
    needed, where = task.restrict(shape, positions)
    parts = [torch.from_numpy(array.ravel()[flat]) for array, flat in zip(whole, needed, strict=True)]
    np.testing.assert_allclose(task.reference(parts).numpy().ravel()[where], expected[positions], rtol=1e-12)


@pytest.mark.parametrize("regime", ["normal", "large", "very_negative", "near_zero", "rescaled", "constant", "mixed"])
def test_inputs_are_a_function_of_their_spec(regime):
    spec = inputs.InputSpec((5, 64), "float32", regime, 3)
    first, again = inputs.make_input(spec), inputs.make_input(spec)
    assert first.tobytes() == again.tobytes() and first.dtype == np.float32 and np.isfinite(first).all()
    other = inputs.make_input(inputs.InputSpec((5, 64), "float32", regime, 4))
    assert first.tobytes() != other.tobytes()


def test_every_regime_that_breaks_a_careless_kernel_is_in_the_scored_inputs():
    pattern = inputs.pattern("mixed", "float32")
    assert pattern.shape == (inputs.PERIOD,)
    assert pattern.max() > 100 and pattern.min() < -400
    segments = pattern[: inputs.SEGMENT * 5].reshape(5, -1)
    assert sorted(np.abs(segments).mean(axis=1) < 0.01) == [False] * 4 + [True]


def test_the_seed_of_a_candidate_depends_on_source_task_and_seed():
    seeds = {
        plan.candidate_seed(source, task, seed)
        for source, task, seed in [("a", SOFTMAX, 0), ("b", SOFTMAX, 0), ("a", SOFTMAX, 1), ("a", RMS_NORM, 0)]
    }
    assert len(seeds) == 4


def test_what_a_child_gets_holds_no_reference_and_no_expected_value():
    body = plan.interpret_body(SOFTMAX.seed_source, SOFTMAX, 1, judge_settings())
    assert not any(isinstance(value, np.ndarray) for value in wire.decode(wire.encode(body)).values())
    assert set(body["cases"][0]) == {"inputs", "output_shape"}


def test_heads_and_ids_of_tasks_are_stable():
    assert SOFTMAX.head == "task softmax shape 8192x4096 sm90"
    assert len({task.task_id for task in TASKS.values()}) == 4
    assert kernel_task("softmax") is SOFTMAX
    with pytest.raises(UnknownName, match="matmul"):
        kernel_task("sofmax")


# ---- rewards: fitness = ln(baseline / estimate) in buckets of 0.10, reward = 0.2 + 0.8 * (fitness + 1) / 3


@pytest.mark.parametrize(
    ("baseline", "estimate_us", "fitness", "reward"),
    [
        (100.0, 100.0, 0.0, 0.466667),
        (100.0, 99.0, 0.0, 0.466667),
        (100.0, 100.001, -0.1, 0.44),
        (100.0, 100 / math.e, 1.0, 0.733333),
        (100.0, 100 * math.e, -1.0, 0.2),
        (100.0, 1e6, -9.3, 0.2),
        (100.0, 1.0, 4.6, 1.0),
    ],
)
def test_fitness_and_reward_by_hand(baseline, estimate_us, fitness, reward):
    found = REWARDS.fitness(baseline, estimate_us)
    assert found == pytest.approx(fitness, abs=1e-12)
    assert REWARDS.reward(found) == pytest.approx(reward, abs=1e-6)


@given(st.floats(-3, 3))
def test_fitness_is_a_multiple_of_the_bucket_without_float_dust(log_ratio):
    fitness = REWARDS.fitness(math.exp(log_ratio), 1.0)
    assert repr(fitness) == repr(round(fitness, 1)) and -1e-6 < log_ratio - fitness < 0.1 + 1e-6
    assert REWARDS.failure_reward < REWARDS.floor <= REWARDS.reward(fitness) <= 1.0


def rewards_file(folder, **changes):
    rule = {**REWARDS.model_dump(), **changes}
    (folder / "rewards.yaml").write_text(yaml.safe_dump({"kernel": rule}))


def test_a_task_takes_its_failure_reward_from_the_rule(tmp_path, monkeypatch):
    assert SOFTMAX.failure_reward == 0.0
    monkeypatch.setenv("ESPALIER_CONF", str(tmp_path))
    rewards_file(tmp_path, failure_reward=0.1)
    assert SOFTMAX.failure_reward == 0.1


@pytest.mark.parametrize("changes", [{"failure_reward": 0.2}, {"highest_fitness": -1.0}])
def test_a_rule_under_which_failing_outranks_working_is_refused(tmp_path, monkeypatch, changes):
    monkeypatch.setenv("ESPALIER_CONF", str(tmp_path))
    rewards_file(tmp_path, **changes)
    with pytest.raises(BadSetting, match="must lie below"):
        kernel_rewards()


# ---- the estimate: a model, monotone in what was counted

MEASURED = {
    **{"registers": 32, "spill_bytes": 0, "shared_bytes": 0, "num_warps": 4, "num_stages": 2},
    **{"access_widths": {"ld16": 2, "st16": 1}, "async_copies": 0, "tensor_copies": 0},
    **{"wgmma": 0, "mma_sync": 0, "atomics": 0, "barriers": 0},
}
WORK = {
    **{"programs": 16384, "load_bytes": 1.3e8, "store_bytes": 6.7e7, "load_sectors": 4.2e6, "store_sectors": 2.1e6},
    **{"atomics": 0.0, "flops": 0.0, "vector_flops": 0.0, "memory_operations": 49152.0, "tensor_bytes": 201_326_592},
}


def seconds(*, work=(), measured=()) -> float:
    found = estimate.estimate_seconds(estimate.LaunchWork(**WORK | dict(work)), MEASURED | dict(measured), H100)
    return found["seconds"]


@pytest.mark.parametrize(
    ("work", "measured"),
    [
        ({"load_bytes": 2e8, "tensor_bytes": 300_000_000}, {}),
        ({"load_sectors": 2e7}, {}),
        ({"atomics": 1e8}, {}),
        ({"flops": 1e12}, {}),
        ({"flops": 1e12, "vector_flops": 1e12}, {"wgmma": 4}),
        ({}, {"spill_bytes": 512}),
        ({}, {"registers": 255, "num_warps": 1, "access_widths": {"ld4": 2, "st4": 1}}),
        ({}, {"access_widths": {"ld1": 2, "st1": 1}}),
    ],
)
def test_more_work_or_fewer_resources_never_estimate_as_faster(work, measured):
    assert seconds(work=work, measured=measured) > seconds()


def test_an_estimate_lies_above_the_roofline():
    floor = estimate.roofline_seconds(VECTOR_ADD.input_bytes, VECTOR_ADD.output_bytes, 0, H100)
    assert floor == pytest.approx(201_326_592 / 3.35e12)
    assert seconds() > floor


def test_occupancy_by_hand():
    # 32 registers * 32 lanes = 1024 a warp, 64 warps fit, blocks of 4 warps: 16; by shared memory 233472 // 101024 = 2
    assert estimate.blocks_per_multiprocessor(MEASURED, H100) == 16
    assert estimate.blocks_per_multiprocessor(MEASURED | {"shared_bytes": 100_000}, H100) == 2
    assert estimate.blocks_per_multiprocessor(MEASURED | {"registers": 255, "num_warps": 32}, H100) == 1


def test_instructions_are_counted_by_width():
    ptx = """
        ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];
        st.global.b16 [ %rd2 + 0 ], %rs1;
        cp.async.cg.shared.global [ %r5 + 0 ], [ %rd3 + 0 ], 0x10, %r6;
        mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 { %f1 };
        atom.global.gpu.acq_rel.add.f32 %f2, [ %rd4 + 0 ], %f3;
        bar.sync 0;
    """
    found = count_instructions(ptx)
    assert found["access_widths"] == {"cp16": 1, "ld16": 1, "st2": 1}
    assert (found["mma_sync"], found["wgmma"], found["async_copies"], found["atomics"], found["barriers"]) == (
        1,
        0,
        1,
        1,
        1,
    )


def test_accesses_of_straight_line_code_are_counted_in_elements():
    text = """
      %1 = tt.load %0, %m : tensor<1024x!tt.ptr<f32>, #blocked> loc(#loc)
      %2 = tt.load %0 : tensor<32x64x!tt.ptr<f16>, #blocked>
      tt.store %p, %v : !tt.ptr<f32>
      %3 = arith.addf %1, %1 : tensor<1024xf32, #blocked>
    """
    assert count_accesses(text) == 1024 + 2048 + 1


# ---- messages


@settings(max_examples=40, deadline=None)
@given(arrays.arrays(np.float32, arrays.array_shapes(max_side=4)), st.text())
def test_messages_come_back_as_they_were_sent(array, text):
    value = {"a": [array, {"b": text}], "n": None, "t": [1, 2.5, True]}
    found = wire.decode(wire.encode(value))
    assert found["a"][0].tobytes() == array.tobytes() and found["a"][0].shape == array.shape
    assert found["a"][1] == {"b": text} and found["n"] is None and found["t"] == [1, 2.5, True]


@given(st.binary(max_size=80))
def test_any_bytes_are_a_message_or_a_value_error(data):
    with contextlib.suppress(ValueError):
        wire.decode(data)


def test_an_array_that_lies_about_its_size_or_type_is_refused():
    for described in ('["float32",[9],0,4]', '["object",[1],0,8]', '["float32",[-1],0,-4]', '["float32",[1],-4,4]'):
        header = f'{{"x": {{"__array__": {described}}}}}'.encode()
        with pytest.raises(ValueError, match="malformed"):
            wire.decode(wire.HEADER.pack(len(header)) + header + b"\0" * 8)
