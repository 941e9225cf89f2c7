-- worker_mark: a worker is to be drained, or no longer, or is taken out. Idempotent. `draining` is the time since which it is
-- drained, so that whoever drains knows when no replica proposes it any more.
--
-- KEYS[1] -> limpet:{<ns>}:workers (hash: worker -> state)
-- --
-- ARGV[1] -> struct '>I8': now_us (0 but in tests); then MessagePack {worker, 'drain' | 'undrain' | 'remove', channel}
-- --
-- Returns -> now, MessagePack {pool, address, capacity, incarnation, labels, ttl_us, draining, since, heartbeat}: as it is now, or
--            as it was when it was removed
-- Errors -> UNKNOWN_WORKER, CORRUPT, CLOCK_BEFORE_2026
-- Complexity -> O(1), 4 redis.calls (TIME, HGET, HSET or HDEL, PUBLISH).
local workers_key = KEYS[1]
-- @include read_time
-- @include worker_unpack
local override = struct.unpack('>I8', ARGV[1])
local args = cmsgpack.unpack(string.sub(ARGV[1], 9))
local worker, verb, channel = args[1], args[2], args[3]
local now, early = read_time(override)
if early then
  return early
end

local stored = redis.call('HGET', workers_key, worker)
if not stored then
  return redis.error_reply('UNKNOWN_WORKER no worker of that name is registered; it registers itself with PUT /v1/workers/{id}, or `register` in Python')
end
local state = worker_unpack(stored)
if verb == 'remove' then
  redis.call('HDEL', workers_key, worker)
elseif not state then
  return redis.error_reply('CORRUPT the entry of that worker cannot be decoded; register it anew, or remove it')
else
  state[7] = verb ~= 'drain' and 0 or state[7] ~= 0 and state[7] or now
  stored = cmsgpack.pack(state)
  redis.call('HSET', workers_key, worker, stored)
end
redis.call('PUBLISH', channel, cmsgpack.pack({ 'worker', 'work', '', 0, now, worker, verb }))
return struct.pack('>BI8', 0xcf, now) .. stored
