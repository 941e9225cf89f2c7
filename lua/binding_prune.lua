-- binding_prune: takes members of `bound` out whose binding is over, and corrects the deadline of those that live on.
-- It looks at each record first: the set is an index, the record decides. One that cannot be read (SCHEMA_TOO_NEW, CORRUPT) is
-- left alone, so that it does not hold up the others.
--
-- KEYS[1] -> limpet:{<ns>:<p>}:bound (sorted set: bindings by deadline)
-- KEYS[2..65] -> limpet:{<ns>:<p>}:<conv|sess>:<digest> (string: the record of each member, in the order of ARGV)
-- --
-- ARGV[1] -> struct '>I8I8': now_us (0 but in tests), granularity_us
-- ARGV[2..65] -> the members, `<conv|sess>:<digest>:<worker>`
-- --
-- Returns -> the number of members taken out
-- Errors -> SCHEMA_TOO_NEW, CORRUPT, CLOCK_BEFORE_2026
-- Complexity -> O(M log(N)) for M <= 64 members of a set of N; at most 1 + 2 M redis.calls (TIME; GET, ZREM or ZADD each).
local bound_key = KEYS[1]
-- @include read_time
-- @include record_unpack
-- @include bound_member
local override, granularity = struct.unpack('>I8I8', ARGV[1])
local now, early = read_time(override)
if early then
  return early
end
local removed = 0
for i = 2, math.min(#ARGV, 65) do
  local record_key, member = KEYS[i], ARGV[i]
  local record, refusal = record_unpack(redis.call('GET', record_key), granularity)
  local ours = record and not record.forgotten and record.state > 0 and bound_member(record_key, record.worker) == member
  local grace = ours and record.state == 2 and granularity or 0
  local unreadable = refusal ~= nil -- newer, or damaged: left alone, so that it does not hold up the others
  if not unreadable and ours and now <= record.deadline + grace - math.max(record.last - now, 0) then
    redis.call('ZADD', bound_key, 'XX', string.format('%.0f', record.deadline), member)
  elseif not unreadable then
    removed = removed + redis.call('ZREM', bound_key, member)
  end
end
return removed
