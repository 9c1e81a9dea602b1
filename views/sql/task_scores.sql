-- task_scores: the fitness of every node that counts for its task's bar.
-- kind: relation
-- grain: node_id
-- maintained by: session_seq
-- inputs: node_facts
-- parameters: view_digest
select
    node_id,
    session_seq,
    task_id,
    fitness_basis,
    environment_digest,
    fitness,
    md5(
        concat_ws(
            chr(31),
            $view_digest,
            node_id,
            digest_part(task_id),
            digest_part(fitness_basis),
            digest_part(environment_digest),
            number_part(fitness)
        )
    ) as row_digest
from node_facts
where is_live and not is_buggy and not is_copy and fitness is not null
