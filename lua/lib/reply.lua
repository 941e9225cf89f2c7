-- The reply of every script that reports a record: a MessagePack stream of the time, the record's length, the record as
-- it is stored, and the outcome (an array). One string costs less than an array reply, and epochs pass without rounding.
local function reply(now, raw, outcome)
  return struct.pack('>BI8BI2', 0xcf, now, 0xcd, #raw) .. raw .. cmsgpack.pack(outcome)
end
