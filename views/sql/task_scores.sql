-- task_scores: the fitness of every node that counts for its task's bar, and whether a path could end at it.
-- kind: relation
-- grain: node_id
-- maintained by: session_seq
-- inputs: attempts
-- parameters: view_digest
with sound_parents as (
    select distinct parent_id
    from attempts
    where is_sound and parent_id is not null
),

scores as (
    select
        attempts.node_id,
        attempts.session_seq,
        attempts.task_id,
        attempts.fitness_basis,
        attempts.environment_digest,
        attempts.fitness,
        sound_parents.parent_id is null as is_leaf
    from attempts
    left join sound_parents on attempts.node_id = sound_parents.parent_id
    where attempts.is_sound and attempts.fitness is not null
)

select
    node_id,
    session_seq,
    task_id,
    fitness_basis,
    environment_digest,
    fitness,
    is_leaf,
    md5(
        concat_ws(
            chr(31),
            $view_digest,
            node_id,
            digest_part(task_id),
            digest_part(fitness_basis),
            digest_part(environment_digest),
            number_part(fitness),
            digest_part(is_leaf)
        )
    ) as row_digest
from scores
