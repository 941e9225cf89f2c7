-- Packs and stores the record; returns the bytes stored. One SET.
-- `due` in the prefix is the instant until which a binding certainly holds: a bound one gets one granularity of grace,
-- because its last activity may have been written that late; a claim is written exactly and gets none.
-- The record outlives everything it has to remember: its keep (retention, or the idle policy if that is longer), the
-- binding's deadline, the resume window. A forgotten one stays an hour, for its ring.
local function record_write(key, record, granularity)
  local mark, due = record.state, 0
  if record.state == 2 then
    due = record.deadline + granularity
  elseif record.state == 1 then
    due = record.deadline
  end
  if record.suspend > 0 then
    mark = mark + 8
  end
  local keep_ms = record.keep_ms
  if record.forgotten then
    mark, keep_ms = mark + 16, 3600000
  else
    keep_ms = math.max(keep_ms, (due - record.last) / 1000, (record.suspend - record.last) / 1000)
  end
  local raw = struct.pack('>BBBI8BI8BI8BI8BI2', 1, mark, 0xcf, record.last, 0xcf, due, 0xcf, record.epoch,
      0xcf, record.keep_ms, 0xda, #record.worker)
    .. record.worker
    .. cmsgpack.pack({
      record.ordinal, record.reason, record.previous,
      record.dp_rank, record.incarnation, record.holder, record.fence, record.rebound,
      record.suspend, record.ring,
    })
  redis.call('SET', key, raw, 'PX', string.format('%.0f', math.ceil(keep_ms)))
  return raw
end
