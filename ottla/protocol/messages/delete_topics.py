"""DeleteTopics: delete topics.

By version:
- 4 is flexible.
- 5 returns errors in words.
- 6 can name topics by id.
"""

from ottla.protocol.schema import define

TABLE = """
DeleteTopicsRequest  key 20  versions 1-6  flexible 4+
  topics       []DeleteTopicState  6+
    name       string              6+   null = null
    topic_id   uuid                6+
  topic_names  []string            1-5
  timeout_ms   int32               1+

DeleteTopicsResponse  key 20  versions 1-6  flexible 4+
  throttle_time_ms  int32                   1+
  responses         []DeletableTopicResult  1+
    name            string                  1+  null 6+
    topic_id        uuid                    6+
    error_code      int16                   1+
    error_message   string                  5+  null = null
"""

DeleteTopicsRequest, DeleteTopicState, DeleteTopicsResponse, DeletableTopicResult = define(TABLE, __name__)
