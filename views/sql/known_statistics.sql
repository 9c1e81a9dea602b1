-- known_statistics: what the search had counted when a node was scored, value(S, S) at its own step S.
-- kind: staging
-- grain: node_id
-- inputs: attempts, ancestors, assignments
with asked_fields as (
    select
        attempts.node_id,
        attempts.session_id,
        ancestors.ancestor_id as holder_id,
        asked.field,
        attempts.step
    from attempts
    inner join ancestors on attempts.node_id = ancestors.node_id and ancestors.distance = 1
    cross join unnest(['visits', 'total_reward']) as asked (field)
    where attempts.is_live
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

-- Assignments and questions on one line of time: a root's thousand children ask for its thousand visits by one sort.
moments as (
    select
        session_id,
        holder_id,
        field,
        known_from as step,
        place,
        cast(null as varchar) as node_id
    from assignments
    union all
    select
        session_id,
        holder_id,
        field,
        step,
        cast(null as bigint) as place,
        node_id
    from asked_fields
),

-- Of the rows known by S the one with the highest place is value(S, S); rows of equal S see each other.
answers as (
    select
        node_id,
        session_id,
        holder_id,
        field,
        max(place) over (
            partition by session_id, holder_id, field
            order by step
        ) as known_place
    from moments
)

select
    answers.node_id,
    max(case when answers.field = 'visits' then try_cast(assignments.known_text as bigint) end) as parent_visits,
    max(case when answers.field = 'total_reward' then try_cast(assignments.known_text as double) end)
        as parent_total_reward,
    max(case when answers.field = 'best_so_far' then try_cast(assignments.known_text as double) end) as best_so_far,
    max(case when answers.field = 'budget_left' then try_cast(assignments.known_text as double) end) as budget_left
from answers
inner join assignments
    on answers.session_id = assignments.session_id
    and answers.holder_id is not distinct from assignments.holder_id
    and answers.field = assignments.field
    and answers.known_place = assignments.place
where answers.node_id is not null
group by answers.node_id
