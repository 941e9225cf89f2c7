-- The record as a table, or nil where there is none; second result: an error reply when it cannot be read.
-- A newer schema is refused, never taken for missing (design, section 4). Layout: lua/README.md.
local function record_unpack(raw)
  if not raw then
    return nil
  end
  if #raw < 30 then
    return nil, redis.error_reply('CORRUPT a record is shorter than its own prefix; delete that key or restore it from a backup')
  end
  local schema, mark, _, last, _, _, _, epoch = struct.unpack('>BBBI8BI8BI8', raw)
  if schema > 1 then
    return nil, redis.error_reply('SCHEMA_TOO_NEW a record has schema ' .. schema .. ' and this release reads up to 1; upgrade this replica')
  end
  local read, body = pcall(cmsgpack.unpack, string.sub(raw, 30))
  if not read or type(body) ~= 'table' or type(body[12]) ~= 'table' then
    return nil, redis.error_reply('CORRUPT a record cannot be decoded; delete that key or restore it from a backup')
  end
  return {
    last = last, epoch = epoch, state = mark % 8, forgotten = mark >= 16,
    ordinal = body[1], reason = body[2], previous = body[3],
    worker = body[4], dp_rank = body[5], incarnation = body[6], holder = body[7], fence = body[8], deadline = body[9],
    suspend = body[10], keep_ms = body[11], ring = body[12],
  }
end
