-- known_rewards: rewards of a node's ancestors as they were known when it was scored, value(S, S) at its own step S.
-- kind: staging
-- grain: node_id
-- inputs: attempts, ancestors, assignments
with reward_spans as (
    -- A row is the answer from when both its clocks have come until one that stands after it is known.
    select
        session_id,
        holder_id as node_id,
        try_cast(known_text as double) as reward,
        known_from,
        min(known_from) over (
            partition by session_id, holder_id
            order by place
            rows between 1 following and unbounded following
        ) as known_until
    from assignments
    where field = 'reward'
)

select
    attempts.node_id,
    max(case when ancestors.distance = 1 then reward_spans.reward end) as parent_reward,
    max(reward_spans.reward) as best_ancestor_reward
from attempts
inner join ancestors on attempts.node_id = ancestors.node_id
inner join reward_spans
    on ancestors.ancestor_id = reward_spans.node_id
    and attempts.session_id = reward_spans.session_id
    and attempts.step >= reward_spans.known_from
    and (reward_spans.known_until is null or attempts.step < reward_spans.known_until)
where attempts.is_live
group by attempts.node_id
