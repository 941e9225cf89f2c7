-- binding_drain: takes up to 64 bindings off a worker, each atomically: their next turn is told to bind, elsewhere, with a larger
-- fence. Claims are left: they become bindings, and are taken in the next pass, or run out. A record that cannot be read
-- (SCHEMA_TOO_NEW, CORRUPT) is left alone and counts as left.
--
-- KEYS[1] -> limpet:{<ns>:<p>}:bound (sorted set: bindings by deadline)
-- KEYS[2..65] -> limpet:{<ns>:<p>}:<conv|sess>:<digest> (string: the record of each member, in the order of ARGV)
-- --
-- ARGV[1] -> struct '>I8I8': now_us (0 but in tests), granularity_us; then MessagePack {channel, worker, reason}
-- ARGV[2..65] -> the members, `<conv|sess>:<digest>:<worker>`
-- --
-- Returns -> {moved, left: claims in flight, and records that cannot be read}
-- Errors -> SCHEMA_TOO_NEW, CORRUPT, CLOCK_BEFORE_2026
-- Complexity -> O(M log(N)) for M <= 64 members of a set of N; at most 1 + 4 M redis.calls (TIME; GET, ZREM, SET, PUBLISH each).
local bound_key = KEYS[1]
-- @include read_time
-- @include record_unpack
-- @include record_settle
-- @include record_write
-- @include binding_release
-- @include publish
local CLAIMED, MOVED = 1, 2

local override, granularity = struct.unpack('>I8I8', ARGV[1])
local args = cmsgpack.unpack(string.sub(ARGV[1], 17))
local channel, worker, reason = args[1], args[2], args[3]
local now, early = read_time(override)
if early then
  return early
end
local moved, left = 0, 0
for i = 2, math.min(#ARGV, 65) do
  local record_key = KEYS[i]
  local record, refusal = record_unpack(redis.call('GET', record_key), granularity)
  local behind = record ~= nil and record_settle(record, now)
  if refusal then
    left = left + 1 -- newer, or damaged: it does not hold up the others, but nobody can say that it has moved
  elseif not record or record.forgotten or record.state == 0 or record.worker ~= worker then
    redis.call('ZREM', bound_key, ARGV[i])
  elseif record.state == CLAIMED and now <= record.deadline then
    left = left + 1
    if behind then
      record_write(record_key, record, granularity)
    end
  else
    binding_release(bound_key, record_key, record)
    record.rebound = MOVED
    record_write(record_key, record, granularity)
    publish(channel, 'release', record_key, record, reason)
    moved = moved + 1
  end
end
return { moved, left }
