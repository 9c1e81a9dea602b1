-- earlier_siblings: what was tried from the same parent before; a retracted sibling does not count.
-- kind: staging
-- grain: node_id
-- inputs: attempts, artifact_lengths
with shown_siblings as (
    select
        attempts.node_id,
        attempts.session_id,
        attempts.parent_id,
        attempts.step,
        attempts.is_buggy,
        artifact_lengths.artifact_key,
        row_number() over (
            partition by attempts.session_id, attempts.parent_id, artifact_lengths.artifact_key
            order by attempts.step, attempts.node_id
        ) as showing
    from attempts
    inner join artifact_lengths on attempts.node_id = artifact_lengths.node_id
    where attempts.is_live and attempts.step is not null
)

select
    node_id,
    count(*) over siblings_before as num_siblings_before,
    count(case when is_buggy then 1 end) over siblings_before as num_buggy_siblings,
    count(case when artifact_key is not null and showing = 1 then 1 end) over siblings_before
        as num_distinct_sibling_artifacts
from shown_siblings
window siblings_before as (
    partition by session_id, parent_id order by step range between unbounded preceding and 1 preceding
)
