-- exchanges: what a node was asked and what it answered; columns of a side that is unknown are NULL.
-- kind: staging
-- grain: node_id
-- inputs: turns
with prompts as (
    select
        node_id,
        ordered_list(message, turn) as prompt,
        array_to_string(ordered_list(message_key, turn), ',') as prompt_keys,
        count(*) as num_prompt_turns
    from turns
    where is_prompt
    group by node_id
),

conversations as (
    select
        node_id,
        ordered_list(message_key, turn) as turn_keys
    from turns
    group by node_id
    having bool_or(is_recorded)
),

answers as (
    select
        node_id,
        turn as answer_turn,
        message as answer,
        content as answer_text,
        tool_calls as answer_tool_calls,
        message_key as answer_key,
        coalesce(regexp_matches(content, '[^\s\p{Z}\p{Cc}\p{Cf}\p{Co}\p{Cs}]'), false) as has_visible_answer
    from turns
    where is_answer
),

spoken_nodes as (
    select distinct node_id
    from turns
)

select
    spoken_nodes.node_id,
    prompts.prompt,
    prompts.prompt_keys,
    coalesce(prompts.num_prompt_turns, 0) as num_prompt_turns,
    conversations.turn_keys,
    answers.answer_turn,
    answers.answer,
    answers.answer_text,
    answers.answer_tool_calls,
    answers.answer_key,
    coalesce(answers.has_visible_answer, false) as has_visible_answer
from spoken_nodes
left join prompts on spoken_nodes.node_id = prompts.node_id
left join conversations on spoken_nodes.node_id = conversations.node_id
left join answers on spoken_nodes.node_id = answers.node_id
