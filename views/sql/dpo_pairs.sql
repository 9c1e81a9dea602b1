-- dpo_pairs: siblings of one prompt, basis and environment of which one is better by more than the margin.
-- kind: view
-- grain: chosen_id, rejected_id
-- maintained by: session_seq
-- inputs: attempts, exchanges, content_sources, nodes, long_artifacts, tasks, node_tags, pair_margins
-- parameters: view_digest, pair_margin, max_pairs_per_parent, buggy_rejected, pair_across_prompts
with answered_attempts as (
    select
        attempts.node_id,
        attempts.session_id,
        attempts.session_seq,
        attempts.task_id,
        attempts.parent_id,
        attempts.prompt_digest,
        attempts.fitness,
        attempts.fitness_text,
        attempts.fitness_basis,
        attempts.environment_digest,
        attempts.is_buggy,
        exchanges.prompt,
        exchanges.prompt_keys,
        exchanges.answer,
        exchanges.answer_key,
        coalesce(pair_margins.margin, $pair_margin) as margin
    from attempts
    inner join exchanges on attempts.node_id = exchanges.node_id
    left join tasks on attempts.task_id = tasks.task_id
    left join pair_margins on tasks.domain = pair_margins.domain
    where attempts.is_live and attempts.is_buggy is not null and exchanges.has_visible_answer
),

parent_texts as (
    select
        nodes.node_id,
        tasks.specification,
        coalesce(nodes.artifact, long_artifacts.artifact) as artifact
    from nodes
    left join tasks on nodes.task_id = tasks.task_id
    left join long_artifacts on nodes.artifact_digest = long_artifacts.artifact_digest
    where $pair_across_prompts
),

compared_siblings as (
    select
        chosen.node_id as chosen_id,
        rejected.node_id as rejected_id,
        chosen.session_id,
        chosen.session_seq,
        chosen.task_id,
        chosen.parent_id,
        chosen.prompt_digest,
        chosen.prompt,
        chosen.prompt_keys,
        coalesce(chosen.prompt_digest = rejected.prompt_digest, false) as is_same_prompt,
        chosen.answer as chosen_answer,
        chosen.answer_key as chosen_key,
        rejected.answer as rejected_answer,
        rejected.answer_key as rejected_key,
        chosen.fitness as chosen_fitness,
        chosen.fitness_text as chosen_fitness_text,
        case when not rejected.is_buggy then rejected.fitness end as rejected_fitness,
        case when not rejected.is_buggy then rejected.fitness_text end as rejected_fitness_text,
        case when not rejected.is_buggy then chosen.fitness - rejected.fitness end as gap,
        chosen.fitness_basis,
        chosen.environment_digest
    from answered_attempts as chosen
    inner join answered_attempts as rejected
        on chosen.session_id = rejected.session_id
        and chosen.parent_id is not distinct from rejected.parent_id
        and chosen.fitness_basis is not distinct from rejected.fitness_basis
        and chosen.environment_digest is not distinct from rejected.environment_digest
        and chosen.node_id <> rejected.node_id
    where not chosen.is_buggy
        and chosen.fitness is not null
        and chosen.answer_key <> rejected.answer_key
        and case
            when rejected.is_buggy then $buggy_rejected
            else coalesce(chosen.fitness > rejected.fitness + chosen.margin, false)
        end
),

prompted_pairs as (
    select
        chosen_id,
        rejected_id,
        session_id,
        session_seq,
        task_id,
        parent_id,
        prompt_digest,
        prompt,
        prompt_keys,
        'recorded' as prompt_origin,
        chosen_answer,
        chosen_key,
        rejected_answer,
        rejected_key,
        chosen_fitness,
        chosen_fitness_text,
        rejected_fitness,
        rejected_fitness_text,
        gap,
        fitness_basis,
        environment_digest
    from compared_siblings
    where is_same_prompt and prompt is not null
    union all
    select
        compared_siblings.chosen_id,
        compared_siblings.rejected_id,
        compared_siblings.session_id,
        compared_siblings.session_seq,
        compared_siblings.task_id,
        compared_siblings.parent_id,
        cast(null as varchar) as prompt_digest,
        [
            struct_pack(
                role := 'user',
                content := concat_ws(chr(10), parent_texts.specification, parent_texts.artifact),
                tool_calls := cast(null as varchar),
                tool_call_id := cast(null as varchar)
            )
        ] as prompt,
        md5(concat_ws(chr(10), parent_texts.specification, parent_texts.artifact)) as prompt_keys,
        'rebuilt' as prompt_origin,
        compared_siblings.chosen_answer,
        compared_siblings.chosen_key,
        compared_siblings.rejected_answer,
        compared_siblings.rejected_key,
        compared_siblings.chosen_fitness,
        compared_siblings.chosen_fitness_text,
        compared_siblings.rejected_fitness,
        compared_siblings.rejected_fitness_text,
        compared_siblings.gap,
        compared_siblings.fitness_basis,
        compared_siblings.environment_digest
    from compared_siblings
    inner join parent_texts on compared_siblings.parent_id = parent_texts.node_id
    where $pair_across_prompts
        and not compared_siblings.is_same_prompt
        and parent_texts.artifact is not null
),

placed_pairs as (
    select
        chosen_id,
        rejected_id,
        session_id,
        session_seq,
        task_id,
        parent_id,
        prompt_digest,
        prompt,
        prompt_keys,
        prompt_origin,
        chosen_answer,
        chosen_key,
        rejected_answer,
        rejected_key,
        chosen_fitness,
        chosen_fitness_text,
        rejected_fitness,
        rejected_fitness_text,
        gap,
        fitness_basis,
        environment_digest,
        row_number() over (
            partition by session_id, parent_id
            order by gap desc nulls last, chosen_id, rejected_id
        ) as place
    from prompted_pairs
),

kept_pairs as (
    select
        chosen_id,
        rejected_id,
        place
    from placed_pairs
    where place <= $max_pairs_per_parent
),

distinct_sources as (
    select
        kept_pairs.chosen_id,
        kept_pairs.rejected_id,
        content_sources.source_node_id
    from kept_pairs
    inner join content_sources on kept_pairs.chosen_id = content_sources.node_id
    union
    select
        kept_pairs.chosen_id,
        kept_pairs.rejected_id,
        content_sources.source_node_id
    from kept_pairs
    inner join content_sources on kept_pairs.rejected_id = content_sources.node_id
),

sources as (
    select
        chosen_id,
        rejected_id,
        ordered_list(source_node_id, source_node_id) as source_node_ids,
        array_to_string(ordered_list(source_node_id, source_node_id), ',') as source_keys
    from distinct_sources
    group by chosen_id, rejected_id
),

distinct_tags as (
    select distinct
        distinct_sources.chosen_id,
        distinct_sources.rejected_id,
        node_tags.tag
    from distinct_sources
    inner join node_tags on distinct_sources.source_node_id = node_tags.node_id
),

tag_lists as (
    select
        chosen_id,
        rejected_id,
        ordered_list(tag, tag) as tags,
        array_to_string(ordered_list(md5(tag), tag), ',') as tag_keys
    from distinct_tags
    group by chosen_id, rejected_id
)

select
    placed_pairs.chosen_id,
    placed_pairs.rejected_id,
    concat('dpo_pairs/', placed_pairs.chosen_id, '/', placed_pairs.rejected_id) as example_id,
    placed_pairs.session_id,
    placed_pairs.session_seq,
    placed_pairs.task_id,
    placed_pairs.parent_id,
    placed_pairs.prompt,
    [placed_pairs.chosen_answer] as chosen,
    [placed_pairs.rejected_answer] as rejected,
    placed_pairs.prompt_digest,
    placed_pairs.prompt_origin,
    placed_pairs.chosen_fitness,
    placed_pairs.chosen_fitness_text,
    placed_pairs.rejected_fitness,
    placed_pairs.rejected_fitness_text,
    placed_pairs.gap,
    placed_pairs.fitness_basis,
    placed_pairs.environment_digest,
    sources.source_node_ids,
    cast([] as varchar[]) as score_refs,
    coalesce(tag_lists.tags, cast([] as varchar[])) as tags,
    md5(
        concat_ws(
            chr(31),
            $view_digest,
            placed_pairs.chosen_id,
            placed_pairs.rejected_id,
            digest_part(placed_pairs.session_id),
            digest_part(placed_pairs.task_id),
            digest_part(placed_pairs.parent_id),
            digest_part(placed_pairs.prompt_keys),
            digest_part(placed_pairs.chosen_key),
            digest_part(placed_pairs.rejected_key),
            digest_part(placed_pairs.prompt_digest),
            digest_part(placed_pairs.prompt_origin),
            digest_part(placed_pairs.chosen_fitness_text),
            digest_part(placed_pairs.rejected_fitness_text),
            digest_part(placed_pairs.fitness_basis),
            digest_part(placed_pairs.environment_digest),
            digest_part(sources.source_keys),
            digest_part(tag_lists.tag_keys)
        )
    ) as row_digest
from placed_pairs
inner join kept_pairs
    on placed_pairs.chosen_id = kept_pairs.chosen_id
    and placed_pairs.rejected_id = kept_pairs.rejected_id
inner join sources
    on placed_pairs.chosen_id = sources.chosen_id
    and placed_pairs.rejected_id = sources.rejected_id
left join tag_lists
    on placed_pairs.chosen_id = tag_lists.chosen_id
    and placed_pairs.rejected_id = tag_lists.rejected_id
