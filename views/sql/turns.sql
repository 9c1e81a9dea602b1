-- turns: every chat turn, and a node's artifact as its answer where no assistant turn was recorded.
-- kind: staging
-- grain: node_id, turn
-- inputs: nodes, prompt_history, long_artifacts
with turn_spans as (
    select
        node_id,
        max(turn) as last_turn,
        max(case when role = 'assistant' then turn end) as answer_turn
    from prompt_history
    group by node_id
),

all_turns as (
    select
        prompt_history.node_id,
        prompt_history.turn,
        prompt_history.role,
        prompt_history.content,
        prompt_history.tool_calls,
        prompt_history.tool_call_id,
        true as is_recorded,
        coalesce(prompt_history.turn = turn_spans.answer_turn, false) as is_answer,
        coalesce(prompt_history.turn < turn_spans.answer_turn, true) as is_prompt
    from prompt_history
    inner join turn_spans on prompt_history.node_id = turn_spans.node_id
    union all
    select
        nodes.node_id,
        coalesce(turn_spans.last_turn + 1, 0) as turn,
        'assistant' as role,
        coalesce(nodes.artifact, long_artifacts.artifact) as content,
        cast(null as varchar) as tool_calls,
        cast(null as varchar) as tool_call_id,
        false as is_recorded,
        true as is_answer,
        false as is_prompt
    from nodes
    left join turn_spans on nodes.node_id = turn_spans.node_id
    left join long_artifacts on nodes.artifact_digest = long_artifacts.artifact_digest
    where turn_spans.answer_turn is null and coalesce(nodes.artifact, long_artifacts.artifact) is not null
)

select
    node_id,
    turn,
    role,
    content,
    tool_calls,
    is_recorded,
    is_answer,
    is_prompt,
    struct_pack(role := role, content := content, tool_calls := tool_calls, tool_call_id := tool_call_id) as message,
    concat(
        case when role = 'system' then 's' else 'm' end,
        md5(
            concat_ws(
                chr(31),
                digest_part(role),
                digest_part(content),
                digest_part(tool_calls),
                digest_part(tool_call_id)
            )
        )
    ) as message_key
from all_turns
