"""The named edits: places in source text that are read, changed, and read back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_search.edits import FORM_FILES, apply_edits, edit_points, names_of, parse_answer, render_prompt
from kernel_search.grammar import FORM, KINDS, OFFERS, PLACES
from kernel_search.tasks import SEEDS, TASKS
from store.errors import UnknownName

TASK_NAMES = sorted(OFFERS)


def changed(source: str, answer: str) -> str:
    applied = apply_edits(source, answer)
    assert applied.failure_class is None, applied
    return applied.source


@st.composite
def walks(draw):
    """A task and a list of edits, each one a value that the grammar offers."""
    task_name = draw(st.sampled_from(TASK_NAMES))
    pairs = [(name, value) for name, offer in OFFERS[task_name].items() for value in offer.values]
    return task_name, draw(st.lists(st.sampled_from(pairs), max_size=12))


def test_the_grammar_has_at_least_twelve_kinds_and_every_task_has_its_own_offers():
    assert len(KINDS) >= 12
    assert set(OFFERS) == set(TASKS)
    assert {name for offers in OFFERS.values() for name in offers} == set(KINDS)


@given(walks())
@settings(max_examples=150, deadline=None)
def test_whatever_edits_were_made_their_last_values_are_read_back_from_the_text_alone(walk):
    task_name, edits = walk
    source = TASKS[task_name].seed_source
    expected = edit_points(source, TASKS[task_name])
    assert tuple(expected) == names_of(task_name)
    for name, value in edits:
        applied = apply_edits(source, f"{name} {value}")
        assert applied.failure_class == ("no_op" if expected[name] == value else None)
        source = applied.source or source
        expected[name] = value
    assert edit_points(source, TASKS[task_name]) == expected


@given(walks())
@settings(max_examples=60, deadline=None)
def test_two_walks_that_end_in_the_same_values_end_in_the_same_text(walk):
    task_name, edits = walk
    source = TASKS[task_name].seed_source
    forward, straight = source, source
    for name, value in edits:
        forward = apply_edits(forward, f"{name} {value}").source or forward
    for name, value in edit_points(forward, TASKS[task_name]).items():
        straight = apply_edits(straight, f"{name} {value}").source or straight
    assert straight == forward


@pytest.mark.parametrize("task_name", TASK_NAMES)
def test_every_offered_value_can_be_put_into_the_seed(task_name):
    source = TASKS[task_name].seed_source
    for name, offer in OFFERS[task_name].items():
        for value in offer.values:
            assert apply_edits(source, f"{name} {value}").failure_class in (None, "no_op"), (name, value)


def test_an_edit_changes_its_own_place_and_nothing_else():
    source = TASKS["vector_add"].seed_source
    assert changed(source, "warps 8") == source.replace("num_warps=1", "num_warps=8")
    assert changed(source, "mask off") == source.replace("x_ptr + offsets, mask=inside,", "x_ptr + offsets,")
    assert changed(source, "evict last").count('other=0.0, eviction_policy="evict_last")') == 1


def test_a_form_edit_rewrites_the_kernel_and_carries_every_other_value_over():
    task = TASKS["softmax"]
    source = changed(changed(task.seed_source, "block 512\nwarps 8"), "exp base2\nevict first")
    one = changed(source, "form one")
    assert edit_points(one, task) == edit_points(source, task) | {"form": "one"}
    assert one.count("tl.load") == 1
    assert changed(one, "form three") == source


@pytest.mark.parametrize(("task_name", "form"), [(task, form) for task, forms in FORM_FILES.items() for form in forms])
def test_a_form_that_was_changed_by_another_hand_is_not_rewritten(task_name, form):
    source = (SEEDS / FORM_FILES[task_name][form]).read_text()
    edited = source.replace("    out = torch.empty_like(x)\n", "    out = torch.empty_like(x)  # by hand\n")
    assert FORM not in edit_points(edited, TASKS[task_name])
    assert apply_edits(edited, "form one").failure_class == "inapplicable"
    assert edit_points(edited, TASKS[task_name])["warps"] == "1"


def test_an_edit_that_fits_two_places_or_none_is_inapplicable():
    source = TASKS["vector_add"].seed_source
    twice = source.replace("num_stages=2)", "num_stages=2, num_warps=4)")
    assert apply_edits(twice, "warps 8").failure_class == "inapplicable"
    assert "warps" not in edit_points(twice, TASKS["vector_add"])
    for answer in ("root rsqrt", "bm 64", "form one", "colour red", "mask maybe", "warps many", "block 0"):
        assert apply_edits(source, answer).failure_class == "inapplicable", answer


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "\n",
        "warps",
        "warps 8 16",
        "Warps 8",
        "warps 8\nwarps 4",
        "a 1\nb 2\nc 3",
        "warps: 8",
        "warps 8\n\nstages 2",
    ],
)
def test_what_is_not_one_or_two_edits_is_unparsable(answer):
    assert parse_answer(answer) is None
    assert apply_edits(TASKS["vector_add"].seed_source, answer).failure_class == "unparsable"


def test_space_around_an_answer_does_not_count():
    source = TASKS["vector_add"].seed_source
    assert apply_edits(source, " warps 8 \n").source == apply_edits(source, "warps 8").source


def test_an_edit_that_says_what_is_there_already_is_a_no_op_also_beside_another():
    source = TASKS["vector_add"].seed_source
    assert apply_edits(source, "warps 1").failure_class == "no_op"
    assert apply_edits(source, "warps 1\nstages 2").failure_class == "no_op"
    assert apply_edits(source, "warps 1\nstages 3").failure_class is None


def test_a_prompt_is_the_head_and_one_line_per_edit_point():
    task = TASKS["vector_add"]
    assert render_prompt(task, task.seed_source) == [
        {
            "role": "user",
            "content": f"{task.head}\nblock 4096\nunroll 1\nwarps 1\nstages 2\nmask on\nother zero\nevict none\n"
            "store_mask on\nacc fp32",
        }
    ]


def test_every_place_says_what_it_is():
    assert all(place.about and place.name == name for name, place in PLACES.items())


def test_a_task_without_named_edits_is_named_with_those_that_have_some():
    with pytest.raises(UnknownName, match="'sort'; there are some for vector_add"):
        names_of("sort")
