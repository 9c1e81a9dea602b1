-- value_examples: each scored attempt with what its search knew by then, and what came of it as the label.
-- kind: view
-- grain: node_id
-- maintained by: session_seq
-- inputs: attempts, nodes, ancestors, artifact_lengths, earlier_siblings, known_rewards, known_statistics, best_descendants, node_sources
-- parameters: view_digest
with ancestor_counts as (
    select
        ancestors.node_id,
        count(*) as num_ancestors,
        count(case when attempts.is_live and attempts.is_buggy then 1 end) as num_buggy_ancestors
    from ancestors
    inner join attempts on ancestors.ancestor_id = attempts.node_id
    group by ancestors.node_id
),

ancestor_failures as (
    select distinct
        ancestors.node_id,
        nodes.failure_class
    from ancestors
    inner join attempts on ancestors.ancestor_id = attempts.node_id
    inner join nodes on ancestors.ancestor_id = nodes.node_id
    where attempts.is_live and nodes.failure_class is not null
),

failure_lists as (
    select
        node_id,
        ordered_list(failure_class, failure_class) as failure_classes,
        array_to_string(ordered_list(failure_class, failure_class), chr(30)) as failure_keys
    from ancestor_failures
    group by node_id
),

parent_lengths as (
    select
        ancestors.node_id,
        artifact_lengths.artifact_length
    from ancestors
    inner join artifact_lengths on ancestors.ancestor_id = artifact_lengths.node_id
    where ancestors.distance = 1
),

examples as (
    select
        attempts.node_id,
        concat('value_examples/', attempts.node_id) as example_id,
        attempts.session_id,
        attempts.session_seq,
        attempts.task_id,
        attempts.parent_id,
        attempts.step,
        attempts.depth,
        nodes.operator,
        coalesce(ancestor_counts.num_ancestors, 0) as num_ancestors,
        coalesce(ancestor_counts.num_buggy_ancestors, 0) as num_buggy_ancestors,
        coalesce(failure_lists.failure_classes, cast([] as varchar[])) as ancestor_failure_classes,
        failure_lists.failure_keys,
        known_rewards.parent_reward,
        known_rewards.best_ancestor_reward,
        known_statistics.parent_visits,
        known_statistics.parent_total_reward,
        earlier_siblings.num_siblings_before,
        earlier_siblings.num_buggy_siblings,
        earlier_siblings.num_distinct_sibling_artifacts,
        artifact_lengths.artifact_length,
        artifact_lengths.artifact_length - parent_lengths.artifact_length as artifact_length_change,
        known_statistics.best_so_far,
        known_statistics.budget_left,
        attempts.is_buggy,
        nodes.failure_class,
        case when not attempts.is_buggy then attempts.fitness end as fitness,
        case when not attempts.is_buggy then attempts.fitness_text end as fitness_text,
        attempts.reward,
        attempts.reward_text,
        attempts.fitness_basis,
        attempts.environment_digest,
        attempts.verifier,
        coalesce(best_descendants.num_descendants, 0) as num_descendants,
        best_descendants.best_descendant_id,
        best_descendants.best_descendant_fitness,
        best_descendants.best_descendant_fitness_text,
        node_sources.source_node_ids,
        node_sources.source_keys,
        node_sources.tags,
        node_sources.tag_keys
    from attempts
    inner join nodes on attempts.node_id = nodes.node_id
    inner join earlier_siblings on attempts.node_id = earlier_siblings.node_id
    inner join artifact_lengths on attempts.node_id = artifact_lengths.node_id
    inner join node_sources on attempts.node_id = node_sources.node_id
    left join ancestor_counts on attempts.node_id = ancestor_counts.node_id
    left join failure_lists on attempts.node_id = failure_lists.node_id
    left join parent_lengths on attempts.node_id = parent_lengths.node_id
    left join known_rewards on attempts.node_id = known_rewards.node_id
    left join known_statistics on attempts.node_id = known_statistics.node_id
    left join best_descendants on attempts.node_id = best_descendants.node_id
    where attempts.is_live and attempts.is_buggy is not null and attempts.step is not null
)

select
    node_id,
    example_id,
    session_id,
    session_seq,
    task_id,
    parent_id,
    step,
    depth,
    operator,
    num_ancestors,
    num_buggy_ancestors,
    ancestor_failure_classes,
    parent_reward,
    best_ancestor_reward,
    parent_visits,
    parent_total_reward,
    num_siblings_before,
    num_buggy_siblings,
    num_distinct_sibling_artifacts,
    artifact_length,
    artifact_length_change,
    best_so_far,
    budget_left,
    is_buggy,
    failure_class,
    fitness,
    fitness_text,
    reward,
    reward_text,
    fitness_basis,
    environment_digest,
    verifier,
    best_descendant_fitness - fitness as gain,
    best_descendant_id,
    best_descendant_fitness,
    best_descendant_fitness_text,
    num_descendants,
    source_node_ids,
    case when best_descendant_id is null then cast([] as varchar[]) else [concat('nodes/', best_descendant_id)] end
        as score_refs,
    tags,
    md5(
        concat_ws(
            chr(31),
            $view_digest,
            node_id,
            digest_part(session_id),
            digest_part(task_id),
            digest_part(parent_id),
            digest_part(step),
            digest_part(depth),
            digest_part(operator),
            digest_part(num_ancestors),
            digest_part(num_buggy_ancestors),
            digest_part(failure_keys),
            number_part(parent_reward),
            number_part(best_ancestor_reward),
            digest_part(parent_visits),
            number_part(parent_total_reward),
            digest_part(num_siblings_before),
            digest_part(num_buggy_siblings),
            digest_part(num_distinct_sibling_artifacts),
            digest_part(artifact_length),
            digest_part(artifact_length_change),
            number_part(best_so_far),
            number_part(budget_left),
            digest_part(is_buggy),
            digest_part(failure_class),
            digest_part(fitness_text),
            digest_part(reward_text),
            digest_part(fitness_basis),
            digest_part(environment_digest),
            digest_part(verifier),
            digest_part(best_descendant_id),
            digest_part(best_descendant_fitness_text),
            digest_part(num_descendants),
            digest_part(source_keys),
            digest_part(tag_keys)
        )
    ) as row_digest
from examples
