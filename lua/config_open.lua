-- config_open: what the namespace was set up with; written where it is missing, by whoever comes first.
--
-- KEYS[1] -> limpet:{<ns>}:config (hash: schema, partitions, touch granularity)
-- --
-- ARGV[1] -> schema version (int)
-- ARGV[2] -> partitions (int)
-- ARGV[3] -> touch_granularity_ms (int)
-- --
-- Returns -> {schema, partitions, touch_granularity_ms}, as stored
-- Complexity -> O(1), 1 redis.call where all is there, 4 where it is written.
local config_key = KEYS[1]
local schema, partitions, granularity = ARGV[1], ARGV[2], ARGV[3]
local stored = redis.call('HMGET', config_key, 'schema', 'partitions', 'touch_granularity_ms')
local wanted = { 'schema', schema, 'partitions', partitions, 'touch_granularity_ms', granularity }
for i = 1, 3 do
  if not stored[i] then
    redis.call('HSET', config_key, wanted[2 * i - 1], wanted[2 * i])
    stored[i] = wanted[2 * i]
  end
end
return stored
