-- The record as a table, or nil where there is none; second result: an error reply when it cannot be read.
-- A newer schema is refused, never taken for missing (design, section 4). Layout: lua/README.md.
local function record_unpack(raw, granularity)
  if not raw then
    return nil
  end
  if #raw < 42 then
    return nil, redis.error_reply('CORRUPT a record is shorter than its own prefix; delete that key or restore it from a backup')
  end
  local schema, mark, last, due, epoch, keep_ms, size = struct.unpack('>BBxI8xI8xI8xI8xI2', raw)
  if schema > 1 then
    return nil, redis.error_reply('SCHEMA_TOO_NEW a record has schema ' .. schema .. ' and this release reads up to 1; upgrade this replica')
  end
  local read, body = pcall(cmsgpack.unpack, string.sub(raw, 42 + size))
  if mark % 8 > 2 or not read or type(body) ~= 'table' or type(body[10]) ~= 'table' then
    return nil, redis.error_reply('CORRUPT a record cannot be decoded; delete that key or restore it from a backup')
  end
  local state = mark % 8
  return {
    last = last, epoch = epoch, state = state, forgotten = mark >= 16, keep_ms = keep_ms,
    deadline = state == 2 and due - granularity or due, worker = string.sub(raw, 42, 41 + size),
    ordinal = body[1], reason = body[2], previous = body[3],
    dp_rank = body[4], incarnation = body[5], holder = body[6], fence = body[7], rebound = body[8],
    suspend = body[9], ring = body[10],
  }
end
