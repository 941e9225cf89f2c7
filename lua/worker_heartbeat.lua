-- worker_heartbeat: a worker is alive. Only its own incarnation may say so.
--
-- KEYS[1] -> limpet:{<ns>}:workers (hash: worker -> state)
-- --
-- ARGV[1] -> struct '>I8': now_us (0 but in tests); then MessagePack {worker, incarnation or '' (not checked)}
-- --
-- Returns -> now, MessagePack {pool, address, capacity, incarnation, labels, ttl_us, draining, since, heartbeat}
-- Errors -> UNKNOWN_WORKER, OTHER_INCARNATION, CORRUPT, CLOCK_BEFORE_2026
-- Complexity -> O(1), 3 redis.calls (TIME, HGET, HSET).
local workers_key = KEYS[1]
-- @include read_time
-- @include worker_unpack
local override = struct.unpack('>I8', ARGV[1])
local args = cmsgpack.unpack(string.sub(ARGV[1], 9))
local worker, incarnation = args[1], args[2]
local now, early = read_time(override)
if early then
  return early
end

local stored = redis.call('HGET', workers_key, worker)
if not stored then
  return redis.error_reply('UNKNOWN_WORKER no worker of that name is registered; it registers itself with PUT /v1/workers/{id}, or `register` in Python')
end
local state = worker_unpack(stored)
if not state then
  return redis.error_reply('CORRUPT the entry of that worker cannot be decoded; register it anew, or remove it')
end
if incarnation ~= '' and state[4] ~= incarnation then
  return redis.error_reply('OTHER_INCARNATION the worker has been registered anew under another incarnation; this one is over')
end
state[9] = now
local packed = cmsgpack.pack(state)
redis.call('HSET', workers_key, worker, packed)
return struct.pack('>BI8', 0xcf, now) .. packed
