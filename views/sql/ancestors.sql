-- ancestors: the way up from each attempt inside its session; every step up is a step back, so a circle has an end.
-- kind: staging
-- grain: node_id, ancestor_id
-- inputs: attempts
with recursive earlier_parents as (
    select
        children.node_id,
        parents.node_id as parent_id
    from attempts as children
    inner join attempts as parents
        on children.parent_id = parents.node_id
        and children.session_id = parents.session_id
        and parents.step < children.step
),

paths_up as (
    select
        node_id,
        parent_id as ancestor_id,
        1 as distance
    from earlier_parents
    union all
    select
        paths_up.node_id,
        earlier_parents.parent_id as ancestor_id,
        paths_up.distance + 1 as distance
    from paths_up
    inner join earlier_parents on paths_up.ancestor_id = earlier_parents.node_id
)

select
    node_id,
    ancestor_id,
    distance
from paths_up
