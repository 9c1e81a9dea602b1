-- attempts: every node that is no copy, under the original of its parent; a copy's children are its original's.
-- kind: staging
-- grain: node_id
-- inputs: node_facts, originals
select
    node_facts.node_id,
    node_facts.session_id,
    node_facts.session_seq,
    node_facts.task_id,
    coalesce(originals.original_id, node_facts.parent_id) as parent_id,
    node_facts.step,
    node_facts.selected_step,
    node_facts.depth,
    node_facts.generation,
    node_facts.prompt_digest,
    node_facts.fitness_basis,
    node_facts.environment_digest,
    node_facts.verifier,
    node_facts.fitness,
    node_facts.fitness_text,
    node_facts.reward,
    node_facts.reward_text,
    node_facts.is_buggy,
    node_facts.is_live,
    node_facts.is_live and node_facts.is_buggy is not null and not node_facts.is_buggy as is_sound
from node_facts
left join originals on node_facts.parent_id = originals.node_id
where not node_facts.is_copy
