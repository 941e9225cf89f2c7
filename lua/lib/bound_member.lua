-- The member of `bound` for a record's binding: `<conv|sess>:<digest>:<worker>` (the key's own tail, then the worker).
local function bound_member(record_key, worker)
  return string.sub(record_key, -37) .. ':' .. worker
end
