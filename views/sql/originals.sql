-- originals: for each copy the node at the end of its chain of copies, which may not exist; none in a circle of copies.
-- kind: staging
-- grain: node_id
-- inputs: node_facts
with recursive resolved_copies as (
    select distinct
        copies.copy_of as node_id,
        copies.copy_of as original_id
    from node_facts as copies
    left join node_facts as targets on copies.copy_of = targets.node_id
    where copies.is_copy and coalesce(targets.is_copy, false) = false
    union all
    select
        copies.node_id,
        resolved_copies.original_id
    from resolved_copies
    inner join node_facts as copies on resolved_copies.node_id = copies.copy_of
    where copies.is_copy
)

select
    resolved_copies.node_id,
    resolved_copies.original_id
from resolved_copies
inner join node_facts on resolved_copies.node_id = node_facts.node_id
where node_facts.is_copy
