-- known_states: what the search knew of a node's parent when it was chosen, value(S, S) at S = selected_step.
-- kind: staging
-- grain: node_id
-- inputs: trajectory_nodes, attempts, change_log, sessions
with visited_nodes as (
    select
        attempts.node_id,
        attempts.parent_id,
        attempts.session_id,
        attempts.selected_step
    from attempts
    where attempts.node_id in (select trajectory_nodes.node_id from trajectory_nodes)
),

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
        try_cast(known_grandparent_visits.known_value as bigint) as grandparent_visits
    from visited_nodes
    left join known_texts on visited_nodes.node_id = known_texts.node_id
    left join known_grandparent_visits
        on visited_nodes.node_id = known_grandparent_visits.node_id
        and known_grandparent_visits.age = 1
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
