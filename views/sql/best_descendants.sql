-- best_descendants: what came of each attempt, as scored now; only equal basis, environment and verifier compare.
-- kind: staging
-- grain: node_id
-- inputs: attempts, ancestors
with live_descendants as (
    select
        forebears.node_id,
        descendants.node_id as descendant_id,
        descendants.fitness,
        descendants.fitness_text,
        descendants.is_sound
        and descendants.fitness is not null
        and forebears.fitness_basis is not distinct from descendants.fitness_basis
        and forebears.environment_digest is not distinct from descendants.environment_digest
        and forebears.verifier is not distinct from descendants.verifier as is_comparable
    from ancestors
    inner join attempts as descendants on ancestors.node_id = descendants.node_id
    inner join attempts as forebears on ancestors.ancestor_id = forebears.node_id
    where descendants.is_live
),

descendant_counts as (
    select
        node_id,
        count(*) as num_descendants
    from live_descendants
    group by node_id
),

placed_descendants as (
    select
        node_id,
        descendant_id,
        fitness,
        fitness_text,
        row_number() over (partition by node_id order by fitness desc, descendant_id) as place
    from live_descendants
    where is_comparable
)

select
    descendant_counts.node_id,
    descendant_counts.num_descendants,
    placed_descendants.descendant_id as best_descendant_id,
    placed_descendants.fitness as best_descendant_fitness,
    placed_descendants.fitness_text as best_descendant_fitness_text
from descendant_counts
left join placed_descendants on descendant_counts.node_id = placed_descendants.node_id and placed_descendants.place = 1
