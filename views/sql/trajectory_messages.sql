-- trajectory_messages: each path as one conversation; a prompt that begins with what was said adds only the rest.
-- kind: staging
-- grain: leaf_id
-- inputs: trajectory_nodes, attempts, exchanges, turns
with recursive visited_nodes as (
    select
        attempts.node_id,
        attempts.parent_id,
        exchanges.turn_keys,
        coalesce(exchanges.num_prompt_turns, 0) as num_prompt_turns
    from attempts
    left join exchanges on attempts.node_id = exchanges.node_id
    where attempts.node_id in (select trajectory_nodes.node_id from trajectory_nodes)
),

path_starts as (
    select visited_nodes.node_id
    from visited_nodes
    left join visited_nodes as parents on visited_nodes.parent_id = parents.node_id
    where parents.node_id is null
),

-- A prompt that begins with the whole conversation, or with the parent's own turns, adds the rest of its turns.
conversations as (
    select
        visited_nodes.node_id,
        coalesce(visited_nodes.turn_keys, cast([] as varchar[])) as conversation,
        coalesce(visited_nodes.turn_keys, cast([] as varchar[])) as own_turns
    from visited_nodes
    inner join path_starts on visited_nodes.node_id = path_starts.node_id
    union all
    select
        visited_nodes.node_id,
        case
            when visited_nodes.turn_keys is null then conversations.conversation
            when
                visited_nodes.num_prompt_turns >= array_length(conversations.conversation)
                and list_slice(visited_nodes.turn_keys, 1, array_length(conversations.conversation))
                = conversations.conversation
                then visited_nodes.turn_keys
            when
                array_length(conversations.own_turns) > 0
                and visited_nodes.num_prompt_turns >= array_length(conversations.own_turns)
                and list_slice(visited_nodes.turn_keys, 1, array_length(conversations.own_turns)) = conversations.own_turns
                then list_concat(
                    conversations.conversation,
                    list_slice(
                        visited_nodes.turn_keys,
                        array_length(conversations.own_turns) + 1,
                        array_length(visited_nodes.turn_keys)
                    )
                )
            else list_concat(
                conversations.conversation,
                list_filter(
                    visited_nodes.turn_keys,
                    lambda turn_key: not (turn_key like 's%' and list_contains(conversations.conversation, turn_key))
                )
            )
        end as conversation,
        coalesce(visited_nodes.turn_keys, cast([] as varchar[])) as own_turns
    from conversations
    inner join visited_nodes on conversations.node_id = visited_nodes.parent_id
),

leaf_turns as (
    select
        trajectory_nodes.leaf_id,
        spoken.turn_key,
        spoken.place
    from trajectory_nodes
    inner join conversations on trajectory_nodes.leaf_id = conversations.node_id
    cross join unnest(conversations.conversation) with ordinality as spoken (turn_key, place)
    where trajectory_nodes.height = 0
),

distinct_messages as (
    select
        message_key,
        any_value(message) as message,
        any_value(role) as role
    from turns
    group by message_key
)

select
    leaf_turns.leaf_id,
    ordered_list(distinct_messages.message, leaf_turns.place) as messages,
    array_to_string(ordered_list(leaf_turns.turn_key, leaf_turns.place), ',') as message_keys
from leaf_turns
inner join distinct_messages on leaf_turns.turn_key = distinct_messages.message_key
group by leaf_turns.leaf_id
having bool_or(distinct_messages.role = 'assistant')
