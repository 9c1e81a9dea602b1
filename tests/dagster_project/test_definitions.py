"""The asset graph: what is in it, that it has no cycle, and that looking at it is cheap."""

import subprocess
import sys

import dagster as dg
import pytest

from dagster_project.definitions import defs

LOOP_ORDER = ("logs", "tables", "views", "datasets", "models", "search", "maintenance")


@pytest.fixture(scope="module")
def graph():
    return defs.resolve_asset_graph()


def test_everything_resolves():
    dg.Definitions.validate_loadable(defs)


def test_the_groups_are_those_of_the_loop(graph):
    groups = {}
    for key in graph.get_all_asset_keys():
        groups.setdefault(graph.get(key).group_name, set()).add(key.to_user_string())
    assert set(groups) == set(LOOP_ORDER)
    assert groups["logs"] == {"search_ledger", "agent_logs"}
    assert groups["datasets"] == {"sft_dataset", "dpo_dataset", "grpo_dataset", "value_dataset"}
    assert groups["models"] == {"sft_model"}
    assert groups["search"] == {"rule_search", "model_search"}
    assert groups["maintenance"] == {"compaction"}
    assert {"tasks", "sessions", "nodes", "prompt_history", "change_log", "node_edges"} <= groups["tables"]
    assert groups["views"] == {
        "crossing_edges",
        "node_reach",
        "node_tags",
        "task_scores",
        "task_bars",
        "cohorts",
        "sft_trajectories",
        "dpo_pairs",
        "grpo_cohorts",
        "value_examples",
    }


def test_data_flows_one_way_so_the_graph_is_acyclic(graph):
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        for parent in node.parent_keys:
            assert LOOP_ORDER.index(graph.get(parent).group_name) <= LOOP_ORDER.index(node.group_name)
    assert len(graph.toposorted_asset_keys) == len(graph.get_all_asset_keys())


def test_the_loop_closes_outside_the_graph(graph):
    ledger = graph.get(dg.AssetKey("search_ledger"))
    assert ledger.is_external
    assert not ledger.parent_keys
    assert dg.AssetKey("nodes") in ledger.child_keys


def test_the_model_is_downstream_of_the_ledger(graph):
    above, waiting = set(), [dg.AssetKey("sft_model")]
    while waiting:
        parents = graph.get(waiting.pop()).parent_keys
        waiting += parents
        above |= {key.to_user_string() for key in parents}
    assert {"sft_dataset", "sft_trajectories", "task_bars", "nodes", "search_ledger", "agent_logs"} <= above


def test_every_check_blocks_but_the_one_on_the_order_of_foreign_logs(graph):
    assert {key.asset_key.to_user_string() for key in graph.asset_check_keys} == {
        "nodes",
        "sft_trajectories",
        "dpo_pairs",
        "grpo_cohorts",
        "value_examples",
    }
    assert {key.name for key in graph.asset_check_keys if not graph.get(key).blocking} == {"parents_come_first"}


def test_jobs_run_in_one_process():
    job = defs.resolve_job_def("refresh")
    assert job.executor_def.name == "in_process"


def test_importing_the_definitions_loads_no_heavy_library():
    heavy = ("torch", "pyspark", "pandas", "transformers", "trl", "datasets", "great_expectations", "triton")
    program = f"import sys, dagster_project.definitions; print([name for name in {heavy} if name in sys.modules])"
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "[]"
