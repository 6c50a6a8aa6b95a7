"""CreateTopics: create topics, or check that they could be created.

By version:
- 4 takes -1 for the broker's default of partitions and replicas (KIP-464).
- 5 is flexible and answers with the configuration (KIP-525).
- 7 answers with topic ids.
"""

from ottla.protocol.schema import define

TABLE = """
CreateTopicsRequest  key 19  versions 2-7  flexible 5+
  topics                []CreatableTopic              2+
    name                string                        2+
    num_partitions      int32                         2+
    replication_factor  int16                         2+
    assignments         []CreatableReplicaAssignment  2+
      partition_index   int32                         2+
      broker_ids        []int32                       2+
    configs             []CreatableTopicConfig        2+
      name              string                        2+
      value             string                        2+  null
  timeout_ms            int32                         2+  = 60000
  validate_only         bool                          2+

CreateTopicsResponse  key 19  versions 2-7  flexible 5+
  throttle_time_ms           int32                    2+
  topics                     []CreatableTopicResult   2+
    name                     string                   2+
    topic_id                 uuid                     7+
    error_code               int16                    2+
    error_message            string                   2+  null
    topic_config_error_code  int16                    5+  tag 0
    num_partitions           int32                    5+  = -1
    replication_factor       int16                    5+  = -1
    configs                  []CreatableTopicConfigs  5+  null
      name                   string                   5+
      value                  string                   5+  null
      read_only              bool                     5+
      config_source          int8                     5+  = -1
      is_sensitive           bool                     5+
"""

(
    CreateTopicsRequest,
    CreatableTopic,
    CreatableReplicaAssignment,
    CreatableTopicConfig,
    CreateTopicsResponse,
    CreatableTopicResult,
    CreatableTopicConfigs,
) = define(TABLE, __name__)
