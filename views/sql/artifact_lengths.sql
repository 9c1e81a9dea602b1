-- artifact_lengths: characters of each attempt's artifact, and what tells it from another one.
-- kind: staging
-- grain: node_id
-- inputs: nodes, attempts, long_artifacts
select
    attempts.node_id,
    coalesce(nodes.artifact_digest, nodes.artifact) as artifact_key,
    length(coalesce(nodes.artifact, long_artifacts.artifact)) as artifact_length
from attempts
inner join nodes on attempts.node_id = nodes.node_id
left join long_artifacts on nodes.artifact_digest = long_artifacts.artifact_digest
