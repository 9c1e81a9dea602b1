-- node_facts: one row per node with what the views ask of it; is_buggy is NULL where the node is in no view.
-- kind: staging
-- grain: node_id
-- inputs: nodes, node_reach
with reached_nodes as (
    select distinct node_id
    from node_reach
),

finite_nodes as (
    select
        node_id,
        session_id,
        session_seq,
        task_id,
        parent_id,
        copy_of,
        step,
        selected_step,
        depth,
        generation,
        prompt_digest,
        fitness_basis,
        environment_digest,
        verifier,
        is_buggy,
        case when fitness between -1.7e308 and 1.7e308 then fitness end as fitness,
        fitness_text,
        case when reward between -1.7e308 and 1.7e308 then reward end as reward,
        reward_text
    from nodes
)

select
    finite_nodes.node_id,
    finite_nodes.session_id,
    finite_nodes.session_seq,
    finite_nodes.task_id,
    finite_nodes.parent_id,
    finite_nodes.copy_of,
    finite_nodes.step,
    finite_nodes.selected_step,
    finite_nodes.depth,
    finite_nodes.generation,
    finite_nodes.prompt_digest,
    finite_nodes.fitness_basis,
    finite_nodes.environment_digest,
    finite_nodes.verifier,
    finite_nodes.fitness,
    case
        when finite_nodes.fitness is not null
            then coalesce(finite_nodes.fitness_text, number_part(finite_nodes.fitness))
    end as fitness_text,
    finite_nodes.reward,
    case
        when finite_nodes.reward is not null
            then coalesce(finite_nodes.reward_text, number_part(finite_nodes.reward))
    end as reward_text,
    case
        when finite_nodes.is_buggy is not null then finite_nodes.is_buggy
        when finite_nodes.fitness is not null then false
    end as is_buggy,
    finite_nodes.copy_of is not null as is_copy,
    reached_nodes.node_id is null as is_live
from finite_nodes
left join reached_nodes on finite_nodes.node_id = reached_nodes.node_id
