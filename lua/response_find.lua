-- response_find: the conversation key of a response, or an empty string. Reads only.
--
-- KEYS[1] -> limpet:{<ns>:<p>}:resp:<digest> (string: the conversation key)
-- --
-- Returns -> the conversation key | ''
-- Flags -> no-writes
-- Complexity -> O(1), 1 redis.call (GET).
local response_key = KEYS[1]
return redis.call('GET', response_key) or ''
