-- sft_trajectories: the longest run of live, non-buggy nodes down to each leaf that reaches its task's bar.
-- kind: view
-- grain: leaf_id
-- maintained by: session_seq
-- inputs: attempts, exchanges, turns, content_sources, change_log, sessions, task_bars, node_tags
-- parameters: view_digest, buggy_ancestors
with recursive sound_nodes as (
    select
        node_id,
        session_id,
        session_seq,
        task_id,
        parent_id,
        step,
        selected_step,
        prompt_digest,
        fitness,
        fitness_text,
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
        rooted_nodes.first_node_id,
        concat_ws(
            '/',
            'task_bars',
            sound_nodes.task_id,
            coalesce(sound_nodes.fitness_basis, '?'),
            coalesce(sound_nodes.environment_digest, '?')
        ) as bar_key
    from sound_nodes
    inner join rooted_nodes on sound_nodes.node_id = rooted_nodes.node_id
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
),

visited_nodes as (
    select
        sound_nodes.node_id,
        sound_nodes.parent_id,
        sound_nodes.session_id,
        sound_nodes.step,
        sound_nodes.selected_step,
        sound_nodes.prompt_digest,
        sound_nodes.fitness,
        sound_nodes.fitness_text,
        exchanges.turn_keys,
        coalesce(exchanges.num_prompt_turns, 0) as num_prompt_turns
    from sound_nodes
    left join exchanges on sound_nodes.node_id = exchanges.node_id
    where sound_nodes.node_id in (select path_nodes.node_id from path_nodes)
),

-- The conversation so far at each node. A prompt that begins with it, or with the parent's own turns, adds the rest.
conversations as (
    select
        visited_nodes.node_id,
        coalesce(visited_nodes.turn_keys, cast([] as varchar[])) as conversation,
        coalesce(visited_nodes.turn_keys, cast([] as varchar[])) as own_turns
    from visited_nodes
    inner join first_nodes on visited_nodes.node_id = first_nodes.node_id
    union all
    select
        visited_nodes.node_id,
        case
            when visited_nodes.turn_keys is null then conversations.conversation
            when
                visited_nodes.num_prompt_turns >= len(conversations.conversation)
                and list_slice(visited_nodes.turn_keys, 1, len(conversations.conversation))
                = conversations.conversation
                then visited_nodes.turn_keys
            when
                len(conversations.own_turns) > 0
                and visited_nodes.num_prompt_turns >= len(conversations.own_turns)
                and list_slice(visited_nodes.turn_keys, 1, len(conversations.own_turns)) = conversations.own_turns
                then list_concat(
                    conversations.conversation,
                    list_slice(
                        visited_nodes.turn_keys,
                        len(conversations.own_turns) + 1,
                        len(visited_nodes.turn_keys)
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
        leaves.leaf_id,
        spoken.turn_key,
        spoken.place
    from leaves
    inner join conversations on leaves.leaf_id = conversations.node_id
    cross join unnest(conversations.conversation) with ordinality as spoken (turn_key, place)
),

distinct_messages as (
    select
        message_key,
        any_value(message) as message,
        any_value(role) as role
    from turns
    group by message_key
),

message_lists as (
    select
        leaf_turns.leaf_id,
        ordered_list(distinct_messages.message, leaf_turns.place) as messages,
        array_to_string(ordered_list(leaf_turns.turn_key, leaf_turns.place), ',') as message_keys
    from leaf_turns
    inner join distinct_messages on leaf_turns.turn_key = distinct_messages.message_key
    group by leaf_turns.leaf_id
    having bool_or(distinct_messages.role = 'assistant')
),

-- What the search knew: value(S, S) at S = selected_step, in the session's own clock.
known_values as (
    select
        visited_nodes.node_id,
        change_log.field,
        case when change_log.node_id is null then 'session' else 'parent' end as holder,
        json_extract_string(change_log.new_value, '$') as known_value,
        row_number() over (
            partition by visited_nodes.node_id, change_log.node_id, change_log.field
            order by change_log.step desc, change_log.recorded_step desc, change_log.n desc
        ) as age
    from visited_nodes
    inner join change_log
        on visited_nodes.session_id = change_log.session_id
        and (
            change_log.node_id = visited_nodes.parent_id
            or (change_log.node_id is null and change_log.field in ('best_so_far', 'budget_left'))
        )
        and change_log.step <= visited_nodes.selected_step
        and change_log.recorded_step <= visited_nodes.selected_step
),

known_grandparent_visits as (
    select
        visited_nodes.node_id,
        json_extract_string(change_log.new_value, '$') as known_value,
        row_number() over (
            partition by visited_nodes.node_id
            order by change_log.step desc, change_log.recorded_step desc, change_log.n desc
        ) as age
    from visited_nodes
    inner join attempts as parents on visited_nodes.parent_id = parents.node_id
    inner join change_log
        on visited_nodes.session_id = change_log.session_id
        and parents.parent_id = change_log.node_id
        and change_log.field = 'visits'
        and change_log.step <= visited_nodes.selected_step
        and change_log.recorded_step <= visited_nodes.selected_step
),

known_texts as (
    select
        node_id,
        max(case when holder = 'parent' and field = 'visits' then known_value end) as visits_text,
        max(case when holder = 'parent' and field = 'total_reward' then known_value end) as total_reward_text,
        max(case when holder = 'parent' and field = 'island' then known_value end) as island,
        max(case when holder = 'session' and field = 'best_so_far' then known_value end) as best_so_far_text,
        max(case when holder = 'session' and field = 'budget_left' then known_value end) as budget_left_text
    from known_values
    where age = 1
    group by node_id
),

known_states as (
    select
        visited_nodes.node_id,
        visited_nodes.parent_id,
        visited_nodes.selected_step,
        known_texts.island,
        known_texts.visits_text,
        known_texts.total_reward_text,
        known_texts.best_so_far_text,
        known_texts.budget_left_text,
        known_grandparent_visits.known_value as grandparent_visits_text,
        sessions.ucb_constant,
        try_cast(known_texts.visits_text as bigint) as visits,
        try_cast(known_texts.total_reward_text as double) as total_reward,
        try_cast(known_texts.best_so_far_text as double) as best_so_far,
        try_cast(known_texts.budget_left_text as bigint) as budget_left,
        try_cast(known_grandparent_visits.known_value as bigint) as grandparent_visits
    from visited_nodes
    left join known_texts on visited_nodes.node_id = known_texts.node_id
    left join known_grandparent_visits
        on visited_nodes.node_id = known_grandparent_visits.node_id
        and known_grandparent_visits.age = 1
    left join sessions on visited_nodes.session_id = sessions.session_id
),

node_states as (
    select
        node_id,
        struct_pack(
            node_id := node_id,
            parent_id := parent_id,
            selected_step := selected_step,
            visits := visits,
            total_reward := total_reward,
            ucb := case
                when visits > 0 and grandparent_visits > 0
                    then total_reward / visits + ucb_constant * sqrt(ln(grandparent_visits) / visits)
            end,
            island := island,
            best_so_far := best_so_far,
            budget_left := budget_left
        ) as state,
        concat_ws(
            chr(30),
            digest_part(node_id),
            digest_part(parent_id),
            digest_part(selected_step),
            digest_part(visits_text),
            digest_part(total_reward_text),
            digest_part(grandparent_visits_text),
            digest_part(ucb_constant),
            digest_part(island),
            digest_part(best_so_far_text),
            digest_part(budget_left_text)
        ) as state_key
    from known_states
),

node_source_lists as (
    select
        content_sources.node_id,
        ordered_list(content_sources.source_node_id, content_sources.source_node_id) as source_node_ids,
        array_to_string(
            ordered_list(content_sources.source_node_id, content_sources.source_node_id),
            ','
        ) as source_keys
    from content_sources
    inner join visited_nodes on content_sources.node_id = visited_nodes.node_id
    group by content_sources.node_id
),

distinct_node_tags as (
    select distinct
        content_sources.node_id,
        node_tags.tag
    from content_sources
    inner join visited_nodes on content_sources.node_id = visited_nodes.node_id
    inner join node_tags on content_sources.source_node_id = node_tags.node_id
),

node_tag_lists as (
    select
        node_id,
        ordered_list(tag, tag) as tags,
        array_to_string(ordered_list(tag, tag), ',') as tag_keys
    from distinct_node_tags
    group by node_id
),

node_steps as (
    select
        visited_nodes.node_id,
        struct_pack(
            node_id := visited_nodes.node_id,
            parent_id := visited_nodes.parent_id,
            step := visited_nodes.step,
            prompt := exchanges.prompt,
            answer := exchanges.answer_text,
            tool_calls := exchanges.answer_tool_calls,
            prompt_digest := visited_nodes.prompt_digest,
            fitness := visited_nodes.fitness,
            fitness_text := visited_nodes.fitness_text,
            source_node_ids := node_source_lists.source_node_ids,
            tags := coalesce(node_tag_lists.tags, cast([] as varchar[]))
        ) as exchange,
        concat_ws(
            chr(30),
            digest_part(visited_nodes.node_id),
            digest_part(visited_nodes.parent_id),
            digest_part(visited_nodes.step),
            digest_part(exchanges.prompt_keys),
            digest_part(exchanges.answer_key),
            digest_part(visited_nodes.prompt_digest),
            digest_part(visited_nodes.fitness_text),
            digest_part(node_source_lists.source_keys),
            digest_part(node_tag_lists.tag_keys)
        ) as exchange_key
    from visited_nodes
    inner join exchanges on visited_nodes.node_id = exchanges.node_id
    left join node_source_lists on visited_nodes.node_id = node_source_lists.node_id
    left join node_tag_lists on visited_nodes.node_id = node_tag_lists.node_id
    where visited_nodes.num_prompt_turns > 0 and exchanges.has_visible_answer
),

path_lists as (
    select
        path_nodes.leaf_id,
        ordered_list(path_nodes.node_id, -path_nodes.height) as node_ids,
        ordered_list(node_states.state, -path_nodes.height) as states,
        array_to_string(ordered_list(node_states.state_key, -path_nodes.height), chr(29)) as state_keys
    from path_nodes
    inner join node_states on path_nodes.node_id = node_states.node_id
    group by path_nodes.leaf_id
),

step_lists as (
    select
        path_nodes.leaf_id,
        ordered_list(node_steps.exchange, -path_nodes.height) as steps,
        array_to_string(ordered_list(node_steps.exchange_key, -path_nodes.height), chr(29)) as step_keys
    from path_nodes
    inner join node_steps on path_nodes.node_id = node_steps.node_id
    group by path_nodes.leaf_id
),

distinct_sources as (
    select distinct
        path_nodes.leaf_id,
        content_sources.source_node_id
    from path_nodes
    inner join content_sources on path_nodes.node_id = content_sources.node_id
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
        array_to_string(ordered_list(tag, tag), ',') as tag_keys
    from distinct_tags
    group by leaf_id
),

trajectories as (
    select
        leaves.leaf_id,
        concat('sft_trajectories/', leaves.leaf_id) as example_id,
        sound_nodes.session_id,
        sound_nodes.session_seq,
        sound_nodes.task_id,
        path_lists.node_ids,
        message_lists.messages,
        message_lists.message_keys,
        coalesce(step_lists.steps, []) as steps,
        step_lists.step_keys,
        path_lists.states,
        path_lists.state_keys,
        sound_nodes.fitness,
        sound_nodes.fitness_text,
        sound_nodes.fitness_basis,
        sound_nodes.environment_digest,
        first_nodes.cut_after_id,
        source_lists.source_node_ids,
        source_lists.source_keys,
        leaves.bar_key,
        tag_lists.tags,
        tag_lists.tag_keys
    from leaves
    inner join sound_nodes on leaves.leaf_id = sound_nodes.node_id
    inner join first_nodes on leaves.first_node_id = first_nodes.node_id
    inner join message_lists on leaves.leaf_id = message_lists.leaf_id
    inner join path_lists on leaves.leaf_id = path_lists.leaf_id
    inner join source_lists on leaves.leaf_id = source_lists.leaf_id
    left join step_lists on leaves.leaf_id = step_lists.leaf_id
    left join tag_lists on leaves.leaf_id = tag_lists.leaf_id
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
