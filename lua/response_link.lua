-- response_link: which conversation a response belongs to, so that a request that names only that response finds it.
--
-- KEYS[1] -> limpet:{<ns>:<p>}:resp:<digest> (string: the conversation key)
-- --
-- ARGV[1] -> conversation key
-- ARGV[2] -> ttl_ms (int)
-- --
-- Returns -> 1
-- Complexity -> O(1), 1 redis.call (SET).
local response_key = KEYS[1]
local conversation, ttl_ms = ARGV[1], ARGV[2]
redis.call('SET', response_key, conversation, 'PX', ttl_ms)
return 1
