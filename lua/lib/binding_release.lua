-- Unbinds. The fence stays in the record, so that a repeated release knows its own work; nothing else is held by it.
-- 1 ZREM; the caller stores the record.
-- @include bound_member
local function binding_release(bound_key, record_key, record)
  redis.call('ZREM', bound_key, bound_member(record_key, record.worker))
  record.state, record.deadline, record.rebound = 0, 0, 0
  record.worker, record.dp_rank, record.incarnation, record.holder = '', -1, '', ''
end
