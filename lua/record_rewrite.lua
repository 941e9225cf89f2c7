-- record_rewrite: stores the record again as it is, if it still is the one that was decided on, so that a WAIT on this
-- connection covers it. (WAIT counts its own connection's writes, and the decision travelled on another.)
--
-- KEYS[1] -> limpet:{<ns>:<p>}:<conv|sess>:<digest> (string: the record)
-- --
-- ARGV[1] -> epoch (int)
-- ARGV[2] -> fence (int)
-- --
-- Returns -> 1 | 0: the record has moved on
-- Errors -> SCHEMA_TOO_NEW, CORRUPT
-- Complexity -> O(1), at most 2 redis.calls (GET, SET).
local record_key = KEYS[1]
local epoch, fence = tonumber(ARGV[1]), tonumber(ARGV[2])
-- @include record_unpack
local raw = redis.call('GET', record_key)
local record, refusal = record_unpack(raw, 0)
if refusal then
  return refusal
end
if not record or record.epoch ~= epoch or record.fence ~= fence then
  return 0
end
redis.call('SET', record_key, raw, 'KEEPTTL')
return 1
