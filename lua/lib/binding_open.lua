-- What every binding call starts with: the record, whether it had to be settled, the ring's entry of the same request,
-- and whether `fence` holds the binding now. A fence holds its claim or binding until another claim, a release or an
-- advance, even past the deadline: nobody has claimed since. A request is the same only with the same fence, else a caller
-- that uses an id twice would take the first result for that of its second claim (a rebind's entry holds the fence that it
-- made, which the rebind itself compares). Returns nil and an error reply when the record cannot be read.
-- @include record_unpack
-- @include record_settle
-- @include ring_find
local function binding_open(raw, now, granularity, request_id, operation, fence)
  local REBIND = 8
  local record, refusal = record_unpack(raw, granularity)
  if refusal then
    return nil, refusal
  end
  if not record then
    return { holds = false, behind = false }
  end
  local again = ring_find(record.ring, request_id, operation)
  if again and operation ~= REBIND and again[8] ~= fence then
    again = nil
  end
  return {
    record = record,
    behind = record_settle(record, now),
    again = again,
    holds = not record.forgotten and record.state > 0 and record.fence == fence,
  }
end
