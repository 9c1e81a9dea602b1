-- artifact_lengths: characters of each attempt's artifact; a long one is at hand where it is the node's answer.
-- kind: staging
-- grain: node_id
-- inputs: nodes, attempts, prompt_history, long_artifacts
-- parameters: pair_across_prompts
with answered_nodes as (
    select distinct node_id
    from prompt_history
    where role = 'assistant'
)

select
    attempts.node_id,
    coalesce(nodes.artifact_digest, nodes.artifact) as artifact_key,
    case
        when nodes.artifact is not null then length(nodes.artifact)
        when answered_nodes.node_id is null or $pair_across_prompts then length(long_artifacts.artifact)
    end as artifact_length
from attempts
inner join nodes on attempts.node_id = nodes.node_id
left join answered_nodes on attempts.node_id = answered_nodes.node_id
left join long_artifacts on nodes.artifact_digest = long_artifacts.artifact_digest
