-- content_sources: whose content an attempt holds: itself, its parent and its pinned context, originals that exist.
-- kind: staging
-- grain: node_id, source_node_id
-- inputs: nodes, attempts, originals
with shown_nodes as (
    select
        nodes.node_id,
        shown.item.node_id as source_node_id
    from nodes
    cross join unnest(nodes.context) as shown (item)
),

named_nodes as (
    select
        node_id,
        node_id as source_node_id
    from attempts
    union all
    select
        node_id,
        parent_id as source_node_id
    from attempts
    union all
    select
        shown_nodes.node_id,
        coalesce(originals.original_id, shown_nodes.source_node_id) as source_node_id
    from shown_nodes
    left join originals on shown_nodes.source_node_id = originals.node_id
)

select distinct
    named_nodes.node_id,
    named_nodes.source_node_id
from named_nodes
inner join attempts as holders on named_nodes.node_id = holders.node_id
inner join attempts as sources on named_nodes.source_node_id = sources.node_id
