-- trajectory_nodes: the nodes of every path to a leaf that reaches its bar; height 0 is the leaf.
-- kind: staging
-- grain: leaf_id, node_id
-- inputs: attempts, task_bars
-- parameters: buggy_ancestors
with recursive sound_nodes as (
    select
        node_id,
        task_id,
        parent_id,
        fitness,
        fitness_basis,
        environment_digest
    from attempts
    where is_sound
),

first_nodes as (
    select
        sound_nodes.node_id,
        cut_nodes.node_id as cut_after_id,
        cut_nodes.is_live as is_cut_live
    from sound_nodes
    left join sound_nodes as parents on sound_nodes.parent_id = parents.node_id
    left join attempts as cut_nodes on sound_nodes.parent_id = cut_nodes.node_id
    where parents.node_id is null
),

rooted_nodes as (
    select
        node_id,
        node_id as first_node_id
    from first_nodes
    where $buggy_ancestors = 'cut' or cut_after_id is null or not is_cut_live
    union all
    select
        sound_nodes.node_id,
        rooted_nodes.first_node_id
    from rooted_nodes
    inner join sound_nodes on rooted_nodes.node_id = sound_nodes.parent_id
),

leaves as (
    select
        sound_nodes.node_id as leaf_id,
        first_nodes.cut_after_id,
        concat_ws(
            '/',
            'task_bars',
            sound_nodes.task_id,
            coalesce(sound_nodes.fitness_basis, '?'),
            coalesce(sound_nodes.environment_digest, '?')
        ) as bar_key
    from sound_nodes
    inner join rooted_nodes on sound_nodes.node_id = rooted_nodes.node_id
    inner join first_nodes on rooted_nodes.first_node_id = first_nodes.node_id
    inner join task_bars
        on sound_nodes.task_id = task_bars.task_id
        and sound_nodes.fitness_basis is not distinct from task_bars.fitness_basis
        and sound_nodes.environment_digest is not distinct from task_bars.environment_digest
    left join sound_nodes as children on sound_nodes.node_id = children.parent_id
    where children.node_id is null and sound_nodes.fitness >= task_bars.bar
),

path_nodes as (
    select
        leaf_id,
        leaf_id as node_id,
        0 as height
    from leaves
    union all
    select
        path_nodes.leaf_id,
        parents.node_id,
        path_nodes.height + 1 as height
    from path_nodes
    inner join sound_nodes on path_nodes.node_id = sound_nodes.node_id
    inner join sound_nodes as parents on sound_nodes.parent_id = parents.node_id
)

select
    path_nodes.leaf_id,
    path_nodes.node_id,
    path_nodes.height,
    leaves.cut_after_id,
    leaves.bar_key
from path_nodes
inner join leaves on path_nodes.leaf_id = leaves.leaf_id
