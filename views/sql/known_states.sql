-- known_states: what the search knew of a node's parent when it was chosen, value(S, S) at S = selected_step.
-- kind: staging
-- grain: node_id
-- inputs: trajectory_nodes, attempts, assignments, sessions
with visited_nodes as (
    select
        attempts.node_id,
        attempts.parent_id,
        attempts.session_id,
        attempts.selected_step
    from attempts
    where attempts.node_id in (select trajectory_nodes.node_id from trajectory_nodes)
),

asked_fields as (
    select
        visited_nodes.node_id,
        visited_nodes.session_id,
        visited_nodes.parent_id as holder_id,
        asked.field,
        'parent' as holder,
        visited_nodes.selected_step
    from visited_nodes
    cross join unnest(['visits', 'total_reward', 'island']) as asked (field)
    where visited_nodes.parent_id is not null
    union all
    select
        visited_nodes.node_id,
        visited_nodes.session_id,
        cast(null as varchar) as holder_id,
        asked.field,
        'session' as holder,
        visited_nodes.selected_step
    from visited_nodes
    cross join unnest(['best_so_far', 'budget_left']) as asked (field)
    union all
    select
        visited_nodes.node_id,
        visited_nodes.session_id,
        parents.parent_id as holder_id,
        'visits' as field,
        'grandparent' as holder,
        visited_nodes.selected_step
    from visited_nodes
    inner join attempts as parents on visited_nodes.parent_id = parents.node_id
    where parents.parent_id is not null
),

-- Assignments and questions on one line of time, so that the cost is a sort and not every pair of the two. Of the
-- rows known by S the one with the highest place is value(S, S).
moments as (
    select
        session_id,
        holder_id,
        field,
        known_from as known_at,
        0 as is_question,
        place,
        cast(null as varchar) as node_id,
        cast(null as varchar) as holder
    from assignments
    union all
    select
        session_id,
        holder_id,
        field,
        selected_step as known_at,
        1 as is_question,
        cast(null as bigint) as place,
        node_id,
        holder
    from asked_fields
    where selected_step is not null
),

answers as (
    select
        node_id,
        holder,
        session_id,
        holder_id,
        field,
        is_question,
        max(place) over (
            partition by session_id, holder_id, field
            order by known_at, is_question
        ) as known_place
    from moments
),

known_values as (
    select
        answers.node_id,
        answers.holder,
        answers.field,
        assignments.known_text as known_value
    from answers
    inner join assignments
        on answers.session_id = assignments.session_id
        and answers.holder_id is not distinct from assignments.holder_id
        and answers.field = assignments.field
        and answers.known_place = assignments.place
    where answers.is_question = 1
),

known_texts as (
    select
        node_id,
        max(case when holder = 'parent' and field = 'visits' then known_value end) as visits_text,
        max(case when holder = 'parent' and field = 'total_reward' then known_value end) as total_reward_text,
        max(case when holder = 'parent' and field = 'island' then known_value end) as island,
        max(case when holder = 'session' and field = 'best_so_far' then known_value end) as best_so_far_text,
        max(case when holder = 'session' and field = 'budget_left' then known_value end) as budget_left_text,
        max(case when holder = 'grandparent' then known_value end) as grandparent_visits_text
    from known_values
    group by node_id
),

states_as_of_then as (
    select
        visited_nodes.node_id,
        visited_nodes.parent_id,
        visited_nodes.selected_step,
        known_texts.island,
        sessions.ucb_constant,
        try_cast(known_texts.visits_text as bigint) as visits,
        try_cast(known_texts.total_reward_text as double) as total_reward,
        try_cast(known_texts.best_so_far_text as double) as best_so_far,
        try_cast(known_texts.budget_left_text as double) as budget_left,
        try_cast(known_texts.grandparent_visits_text as bigint) as grandparent_visits
    from visited_nodes
    left join known_texts on visited_nodes.node_id = known_texts.node_id
    left join sessions on visited_nodes.session_id = sessions.session_id
)

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
        digest_part(visits),
        number_part(total_reward),
        digest_part(grandparent_visits),
        number_part(ucb_constant),
        digest_part(island),
        number_part(best_so_far),
        number_part(budget_left)
    ) as state_key
from states_as_of_then
