-- sft_trajectories: the longest run of live, non-buggy nodes down to each leaf that reaches its task's bar.
-- kind: view
-- grain: leaf_id
-- maintained by: session_seq
-- inputs: trajectory_nodes, trajectory_messages, known_states, attempts, exchanges, content_sources, node_sources, node_tags
-- parameters: view_digest
with visited_nodes as (
    select distinct node_id
    from trajectory_nodes
),

node_steps as (
    select
        visited_nodes.node_id,
        struct_pack(
            node_id := visited_nodes.node_id,
            parent_id := attempts.parent_id,
            step := attempts.step,
            prompt := exchanges.prompt,
            answer := exchanges.answer_text,
            tool_calls := exchanges.answer_tool_calls,
            prompt_digest := attempts.prompt_digest,
            fitness := attempts.fitness,
            fitness_text := attempts.fitness_text,
            fitness_basis := attempts.fitness_basis,
            source_node_ids := node_sources.source_node_ids,
            tags := node_sources.tags
        ) as exchange,
        concat_ws(
            chr(30),
            digest_part(visited_nodes.node_id),
            digest_part(attempts.parent_id),
            digest_part(attempts.step),
            digest_part(exchanges.prompt_keys),
            digest_part(exchanges.answer_key),
            digest_part(attempts.prompt_digest),
            digest_part(attempts.fitness_text),
            digest_part(attempts.fitness_basis),
            digest_part(node_sources.source_keys),
            digest_part(node_sources.tag_keys)
        ) as exchange_key
    from visited_nodes
    inner join attempts on visited_nodes.node_id = attempts.node_id
    inner join exchanges on visited_nodes.node_id = exchanges.node_id
    left join node_sources on visited_nodes.node_id = node_sources.node_id
    where exchanges.num_prompt_turns > 0 and exchanges.has_visible_answer
),

path_lists as (
    select
        trajectory_nodes.leaf_id,
        ordered_list(trajectory_nodes.node_id, -trajectory_nodes.height) as node_ids,
        ordered_list(known_states.state, -trajectory_nodes.height) as states,
        array_to_string(ordered_list(known_states.state_key, -trajectory_nodes.height), chr(29)) as state_keys
    from trajectory_nodes
    inner join known_states on trajectory_nodes.node_id = known_states.node_id
    group by trajectory_nodes.leaf_id
),

step_lists as (
    select
        trajectory_nodes.leaf_id,
        ordered_list(node_steps.exchange, -trajectory_nodes.height) as steps,
        array_to_string(ordered_list(node_steps.exchange_key, -trajectory_nodes.height), chr(29)) as step_keys
    from trajectory_nodes
    inner join node_steps on trajectory_nodes.node_id = node_steps.node_id
    group by trajectory_nodes.leaf_id
),

distinct_sources as (
    select distinct
        trajectory_nodes.leaf_id,
        content_sources.source_node_id
    from trajectory_nodes
    inner join content_sources on trajectory_nodes.node_id = content_sources.node_id
),

source_lists as (
    select
        leaf_id,
        ordered_list(source_node_id, source_node_id) as source_node_ids,
        array_to_string(ordered_list(source_node_id, source_node_id), ',') as source_keys
    from distinct_sources
    group by leaf_id
),

distinct_tags as (
    select distinct
        distinct_sources.leaf_id,
        node_tags.tag
    from distinct_sources
    inner join node_tags on distinct_sources.source_node_id = node_tags.node_id
),

tag_lists as (
    select
        leaf_id,
        ordered_list(tag, tag) as tags,
        array_to_string(ordered_list(md5(tag), tag), ',') as tag_keys
    from distinct_tags
    group by leaf_id
),

trajectories as (
    select
        leaves.leaf_id,
        concat('sft_trajectories/', leaves.leaf_id) as example_id,
        attempts.session_id,
        attempts.session_seq,
        attempts.task_id,
        path_lists.node_ids,
        trajectory_messages.messages,
        trajectory_messages.message_keys,
        coalesce(step_lists.steps, []) as steps,
        step_lists.step_keys,
        path_lists.states,
        path_lists.state_keys,
        attempts.fitness,
        attempts.fitness_text,
        attempts.fitness_basis,
        attempts.environment_digest,
        leaves.cut_after_id,
        source_lists.source_node_ids,
        source_lists.source_keys,
        leaves.bar_key,
        tag_lists.tags,
        tag_lists.tag_keys
    from trajectory_nodes as leaves
    inner join attempts on leaves.leaf_id = attempts.node_id
    inner join trajectory_messages on leaves.leaf_id = trajectory_messages.leaf_id
    inner join path_lists on leaves.leaf_id = path_lists.leaf_id
    inner join source_lists on leaves.leaf_id = source_lists.leaf_id
    left join step_lists on leaves.leaf_id = step_lists.leaf_id
    left join tag_lists on leaves.leaf_id = tag_lists.leaf_id
    where leaves.height = 0
)

select
    leaf_id,
    example_id,
    session_id,
    session_seq,
    task_id,
    node_ids,
    messages,
    steps,
    states,
    fitness,
    fitness_text,
    fitness_basis,
    environment_digest,
    cut_after_id,
    source_node_ids,
    [bar_key] as score_refs,
    coalesce(tags, cast([] as varchar[])) as tags,
    md5(
        concat_ws(
            chr(31),
            $view_digest,
            leaf_id,
            digest_part(session_id),
            digest_part(task_id),
            digest_part(message_keys),
            digest_part(step_keys),
            digest_part(state_keys),
            digest_part(fitness_text),
            digest_part(fitness_basis),
            digest_part(environment_digest),
            digest_part(cut_after_id),
            digest_part(source_keys),
            digest_part(bar_key),
            digest_part(tag_keys)
        )
    ) as row_digest
from trajectories
