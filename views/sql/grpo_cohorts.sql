-- grpo_cohorts: every cohort member with its prompt, answer and advantage, as TRL computes it.
-- kind: view
-- grain: cohort_id, node_id
-- maintained by: session_seq
-- inputs: cohorts, exchanges, node_sources, prompt_history
-- parameters: view_digest
with cohort_rewards as (
    select
        cohort_id,
        array_to_string(ordered_list(concat(node_id, '=', reward_text), node_id), ',') as member_rewards
    from cohorts
    group by cohort_id
),

measured_members as (
    select
        cohort_id,
        node_id,
        min(reward) over (partition by cohort_id) = max(reward) over (partition by cohort_id) as is_level,
        reward - avg(reward) over (partition by cohort_id) as reward_gap,
        stddev_samp(reward) over (partition by cohort_id) as reward_sd
    from cohorts
),

members as (
    select
        cohorts.cohort_id,
        cohorts.node_id,
        concat('grpo_cohorts/', cohorts.cohort_id, '/', cohorts.node_id) as example_id,
        cohorts.session_id,
        cohorts.session_seq,
        cohorts.task_id,
        cohorts.kind,
        cohorts.same_prompt,
        cohorts.parent_id,
        cohorts.prompt_digest,
        exchanges.prompt,
        exchanges.prompt_keys,
        case when exchanges.answer is not null then [exchanges.answer] end as completion,
        exchanges.answer_key,
        cohorts.reward,
        cohorts.reward_text,
        cohort_rewards.member_rewards,
        case
            when measured_members.is_level then 0.0
            else measured_members.reward_gap / (measured_members.reward_sd + 1e-4)
        end as advantage,
        case when measured_members.is_level then 0.0 else measured_members.reward_gap end as advantage_unscaled,
        cohorts.num_members,
        cohorts.fitness_basis,
        cohorts.environment_digest,
        cohorts.verifier,
        answer_turns.token_ids,
        answer_turns.logprobs,
        answer_turns.temperature,
        answer_turns.top_p,
        answer_turns.top_k,
        answer_turns.model_id,
        answer_turns.tokenizer_digest,
        answer_turns.finish_reason,
        node_sources.source_node_ids,
        node_sources.source_keys,
        [cohorts.cohort_id] as score_refs,
        node_sources.tags,
        node_sources.tag_keys
    from cohorts
    inner join cohort_rewards on cohorts.cohort_id = cohort_rewards.cohort_id
    inner join measured_members
        on cohorts.cohort_id = measured_members.cohort_id
        and cohorts.node_id = measured_members.node_id
    left join exchanges on cohorts.node_id = exchanges.node_id
    left join prompt_history as answer_turns
        on exchanges.node_id = answer_turns.node_id
        and exchanges.answer_turn = answer_turns.turn
    inner join node_sources on cohorts.node_id = node_sources.node_id
)

select
    cohort_id,
    node_id,
    example_id,
    session_id,
    session_seq,
    task_id,
    kind,
    same_prompt,
    parent_id,
    prompt_digest,
    prompt,
    completion,
    reward,
    reward_text,
    advantage,
    advantage_unscaled,
    num_members,
    fitness_basis,
    environment_digest,
    verifier,
    token_ids,
    logprobs,
    temperature,
    top_p,
    top_k,
    model_id,
    tokenizer_digest,
    finish_reason,
    source_node_ids,
    score_refs,
    tags,
    md5(
        concat_ws(
            chr(31),
            $view_digest,
            cohort_id,
            node_id,
            digest_part(session_id),
            digest_part(task_id),
            digest_part(same_prompt),
            digest_part(parent_id),
            digest_part(prompt_digest),
            digest_part(prompt_keys),
            digest_part(answer_key),
            digest_part(member_rewards),
            digest_part(array_to_string(list_transform(token_ids, lambda token_id: digest_part(token_id)), ',')),
            digest_part(array_to_string(list_transform(logprobs, lambda logprob: number_part(logprob)), ',')),
            number_part(temperature),
            number_part(top_p),
            digest_part(top_k),
            digest_part(model_id),
            digest_part(tokenizer_digest),
            digest_part(finish_reason),
            digest_part(source_keys),
            digest_part(tag_keys)
        )
    ) as row_digest
from members
