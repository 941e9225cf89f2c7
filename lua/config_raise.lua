-- config_raise: permits a newer schema to be written. Never takes one back, so that two who raise it at once do no harm.
--
-- KEYS[1] -> limpet:{<ns>}:config (hash: schema, partitions, touch granularity)
-- --
-- ARGV[1] -> schema version (int)
-- --
-- Returns -> schema, as stored | nil: the namespace was never set up
-- Complexity -> O(1), at most 2 redis.calls (HGET, HSET).
local config_key = KEYS[1]
local wanted = tonumber(ARGV[1])
local stored = tonumber(redis.call('HGET', config_key, 'schema') or '')
if not stored then
  return nil
end
if stored > wanted then
  return stored
end
redis.call('HSET', config_key, 'schema', wanted) -- also where it is there already, so that a WAIT covers it
return wanted
