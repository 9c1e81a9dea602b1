-- node_sources: content_sources as lists: what an attempt holds content of, and the tags that come with it.
-- kind: staging
-- grain: node_id
-- inputs: content_sources, node_tags
with source_lists as (
    select
        node_id,
        ordered_list(source_node_id, source_node_id) as source_node_ids,
        array_to_string(ordered_list(source_node_id, source_node_id), ',') as source_keys
    from content_sources
    group by node_id
),

distinct_tags as (
    select distinct
        content_sources.node_id,
        node_tags.tag
    from content_sources
    inner join node_tags on content_sources.source_node_id = node_tags.node_id
),

tag_lists as (
    select
        node_id,
        ordered_list(tag, tag) as tags,
        array_to_string(ordered_list(md5(tag), tag), ',') as tag_keys
    from distinct_tags
    group by node_id
)

select
    source_lists.node_id,
    source_lists.source_node_ids,
    source_lists.source_keys,
    coalesce(tag_lists.tags, cast([] as varchar[])) as tags,
    tag_lists.tag_keys
from source_lists
left join tag_lists on source_lists.node_id = tag_lists.node_id
