-- assignments: what the change log gave a field, from when on that was known, and its place in the order that decides.
-- kind: staging
-- grain: session_id, holder_id, field, place
-- inputs: change_log
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
where (node_id is not null and field in ('reward', 'visits', 'total_reward', 'island'))
    or (node_id is null and field in ('best_so_far', 'budget_left'))
