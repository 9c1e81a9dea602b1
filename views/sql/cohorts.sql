-- cohorts: nodes whose rewards may be compared; a node with an unknown reward is no member.
-- kind: relation
-- grain: cohort_id, node_id
-- maintained by: session_seq
-- inputs: attempts
-- parameters: view_digest, cohort_kinds
with candidates as (
    select
        'parent' as kind,
        node_id,
        concat_ws(chr(31), digest_part(parent_id), digest_part(prompt_digest)) as shared_place
    from attempts
    where prompt_digest is not null and list_contains($cohort_kinds, 'parent')
    union all
    select
        'depth' as kind,
        node_id,
        digest_part(depth) as shared_place
    from attempts
    where depth is not null and list_contains($cohort_kinds, 'depth')
    union all
    select
        'generation' as kind,
        node_id,
        digest_part(generation) as shared_place
    from attempts
    where generation is not null and list_contains($cohort_kinds, 'generation')
),

members as (
    select
        concat(
            'c_',
            md5(
                concat_ws(
                    chr(31),
                    candidates.kind,
                    candidates.shared_place,
                    digest_part(attempts.session_id),
                    digest_part(attempts.fitness_basis),
                    digest_part(attempts.environment_digest),
                    digest_part(attempts.verifier)
                )
            )
        ) as cohort_id,
        attempts.node_id,
        attempts.session_id,
        attempts.session_seq,
        attempts.task_id,
        candidates.kind,
        attempts.parent_id,
        attempts.prompt_digest,
        attempts.fitness_basis,
        attempts.environment_digest,
        attempts.verifier,
        attempts.reward,
        attempts.reward_text
    from candidates
    inner join attempts on candidates.node_id = attempts.node_id
    where attempts.is_live and attempts.is_buggy is not null and attempts.reward is not null
),

counted_members as (
    select
        cohort_id,
        node_id,
        session_id,
        session_seq,
        task_id,
        kind,
        parent_id,
        prompt_digest,
        fitness_basis,
        environment_digest,
        verifier,
        reward,
        reward_text,
        count(*) over (partition by cohort_id) as num_members,
        count(prompt_digest) over (partition by cohort_id) = count(*) over (partition by cohort_id)
        and min(prompt_digest) over (partition by cohort_id) = max(prompt_digest) over (partition by cohort_id)
            as same_prompt
    from members
)

select
    cohort_id,
    node_id,
    session_id,
    session_seq,
    task_id,
    kind,
    parent_id,
    prompt_digest,
    fitness_basis,
    environment_digest,
    verifier,
    coalesce(same_prompt, false) as same_prompt,
    num_members,
    reward,
    reward_text,
    md5(
        concat_ws(
            chr(31),
            $view_digest,
            cohort_id,
            node_id,
            digest_part(session_id),
            digest_part(task_id),
            digest_part(parent_id),
            digest_part(prompt_digest),
            digest_part(coalesce(same_prompt, false)),
            digest_part(num_members),
            digest_part(reward_text)
        )
    ) as row_digest
from counted_members
where num_members >= 2
