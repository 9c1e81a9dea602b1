-- Pairs of whole sessions: every session with a row that is newer than the last interval is computed again.
MODEL (
    name marts.dpo_pairs,
    kind INCREMENTAL_BY_PARTITION,
    partitioned_by session_id,
    start '2026-01-01',
    cron '@daily'
);

with touched as (
    select distinct session_id
    from raw.nodes
    where updated_at between @start_dt and @end_dt
),

answered as (
    select nodes.*
    from raw.nodes as nodes
    inner join touched on nodes.session_id = touched.session_id
    where not nodes.is_deleted and nodes.copy_of is null and not nodes.is_buggy and nodes.fitness is not null
),

prompts as (
    select
        turns.node_id,
        list({'role': turns.role, 'content': turns.content} order by turns.turn) as prompt
    from raw.turns as turns
    inner join answered on turns.node_id = answered.node_id
    group by turns.node_id
),

session_times as (
    select
        nodes.session_id,
        max(nodes.updated_at) as updated_at
    from raw.nodes as nodes
    inner join touched on nodes.session_id = touched.session_id
    group by nodes.session_id
),

placed as (
    select
        chosen.node_id as chosen_id,
        rejected.node_id as rejected_id,
        chosen.session_id,
        chosen.task_id,
        chosen.parent_id,
        chosen.prompt_digest,
        chosen.artifact as chosen,
        rejected.artifact as rejected,
        chosen.fitness as chosen_fitness,
        rejected.fitness as rejected_fitness,
        row_number() over (
            partition by chosen.session_id, chosen.parent_id
            order by chosen.fitness - rejected.fitness desc, chosen.node_id, rejected.node_id
        ) as place
    from answered as chosen
    inner join answered as rejected
        on chosen.session_id = rejected.session_id
        and chosen.parent_id is not distinct from rejected.parent_id
        and chosen.prompt_digest = rejected.prompt_digest
        and chosen.fitness_basis is not distinct from rejected.fitness_basis
        and chosen.environment_digest is not distinct from rejected.environment_digest
    where chosen.fitness > rejected.fitness and chosen.artifact <> rejected.artifact
),

pairs as (
    select
        placed.chosen_id,
        placed.rejected_id,
        placed.session_id,
        placed.task_id,
        placed.parent_id,
        prompts.prompt,
        placed.chosen,
        placed.rejected,
        placed.chosen_fitness,
        placed.rejected_fitness,
        session_times.updated_at
    from placed
    inner join prompts on placed.chosen_id = prompts.node_id
    inner join session_times on placed.session_id = session_times.session_id
    where placed.place <= 16
)

select
    chosen_id,
    rejected_id,
    session_id,
    task_id,
    parent_id,
    prompt,
    chosen,
    rejected,
    chosen_fitness,
    rejected_fitness,
    updated_at
from pairs
