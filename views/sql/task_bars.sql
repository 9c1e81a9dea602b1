-- task_bars: the baseline, else the ceil(n/4)-th best of the n live, non-buggy nodes that are no copies.
-- kind: relation
-- grain: task_id, fitness_basis, environment_digest
-- maintained by: task_id
-- inputs: task_scores, tasks
-- parameters: view_digest
with counted_nodes as (
    select
        task_id,
        fitness_basis,
        environment_digest,
        fitness,
        row_number() over (
            partition by task_id, fitness_basis, environment_digest
            order by fitness desc
        ) as place,
        count(*) over (partition by task_id, fitness_basis, environment_digest) as num_nodes
    from task_scores
),

top_quarters as (
    select
        task_id,
        fitness_basis,
        environment_digest,
        fitness,
        num_nodes
    from counted_nodes
    where 4 * place between num_nodes and num_nodes + 3
),

bars as (
    select
        top_quarters.task_id,
        top_quarters.fitness_basis,
        top_quarters.environment_digest,
        coalesce(tasks.baseline_fitness, top_quarters.fitness) as bar,
        case when tasks.baseline_fitness is null then 'top_quarter' else 'baseline' end as origin,
        top_quarters.num_nodes
    from top_quarters
    left join tasks
        on top_quarters.task_id = tasks.task_id
        and top_quarters.fitness_basis is not distinct from tasks.baseline_basis
        and (
            tasks.baseline_environment_digest is null
            or tasks.baseline_environment_digest = top_quarters.environment_digest
        )
)

select
    task_id,
    fitness_basis,
    environment_digest,
    bar,
    origin,
    num_nodes,
    md5(
        concat_ws(
            chr(31),
            $view_digest,
            digest_part(task_id),
            digest_part(fitness_basis),
            digest_part(environment_digest),
            number_part(bar),
            digest_part(origin),
            digest_part(num_nodes)
        )
    ) as row_digest
from bars
