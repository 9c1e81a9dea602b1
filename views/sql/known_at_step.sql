-- known_at_step: what the search knew when a node was scored: value(S, S) at S = the node's own step.
-- kind: staging
-- grain: node_id, holder_id, field
-- inputs: attempts, ancestors, change_log
with asked_fields as (
    select
        attempts.node_id,
        attempts.session_id,
        ancestors.ancestor_id as holder_id,
        asked.field,
        attempts.step
    from attempts
    inner join ancestors on attempts.node_id = ancestors.node_id
    cross join unnest(['reward', 'visits', 'total_reward']) as asked (field)
    where attempts.is_live and (asked.field = 'reward' or ancestors.distance = 1)
    union all
    select
        attempts.node_id,
        attempts.session_id,
        cast(null as varchar) as holder_id,
        asked.field,
        attempts.step
    from attempts
    cross join unnest(['best_so_far', 'budget_left']) as asked (field)
    where attempts.is_live
),

-- A row with the highest place among those known by S is value(S, S); it is known once both its clocks have come.
assignments as (
    select
        session_id,
        node_id as holder_id,
        field,
        json_extract_string(new_value, '$') as known_text,
        case when step > recorded_step then step else recorded_step end as known_from,
        row_number() over (
            partition by session_id, node_id, field
            order by step, recorded_step, n
        ) as place
    from change_log
    where (node_id is not null and field in ('reward', 'visits', 'total_reward'))
        or (node_id is null and field in ('best_so_far', 'budget_left'))
),

-- Assignments and questions on one line of time, so that the cost is a sort and not every pair of the two.
moments as (
    select
        session_id,
        holder_id,
        field,
        known_from as step,
        0 as is_question,
        place,
        cast(null as varchar) as node_id
    from assignments
    union all
    select
        session_id,
        holder_id,
        field,
        step,
        1 as is_question,
        cast(null as bigint) as place,
        node_id
    from asked_fields
),

answers as (
    select
        node_id,
        session_id,
        holder_id,
        field,
        is_question,
        max(place) over (
            partition by session_id, holder_id, field
            order by step, is_question
        ) as known_place
    from moments
)

select
    answers.node_id,
    answers.holder_id,
    answers.field,
    assignments.known_text
from answers
inner join assignments
    on answers.session_id = assignments.session_id
    and answers.holder_id is not distinct from assignments.holder_id
    and answers.field = assignments.field
    and answers.known_place = assignments.place
where answers.is_question = 1
