-- conversation_resolve: one turn. Decides the epoch (reset policy, suspension, healing), and claims or continues its binding.
--
-- KEYS[1] -> limpet:{<ns>:<p>}:<conv|sess>:<digest> (string: the record)
-- KEYS[2] -> limpet:{<ns>:<p>}:clock (string: the last tick)
-- KEYS[3] -> limpet:{<ns>:<p>}:bound (sorted set: bindings by deadline)
-- --
-- ARGV[1] -> struct '>BI8I8I8I8': flags (1 bind, 2 look the request id up, 4 make the answer durable, 8 only where nothing
--            is to be decided, 16 take now_us for the time: tests), granularity_us, bind_ttl_us (0 without bind), seen_epoch
--            (stated or remembered, the larger), keep_ms; then struct '>I8': now_us or 0; then
--            struct '>I8I8I8I8': idle_us or 0, three daily boundaries in us or 0 (all 0 for an exempt turn); then MessagePack
--            {seen_epoch stated, channel, claim_ttl_us, holder, worker or '', dp_rank or -1, incarnation or '', commit}, then
--            MessagePack request id or ''
-- --
-- Returns -> record: nothing was due; at most the activity was written
-- Returns -> '' with flag 8: something is to be decided, and nothing was done
-- Returns -> now, length, record, {action (0 none, 1 bind, 2 continue, 3 wait), reset reason or '', previous epoch or 0,
--            new conversation, created, epoch, ordinal, epoch reason, decided, clock behind, replayed, lapsed}; lapsed: a claim that
--            ran out unconfirmed made way for this bind
-- Errors -> IMPLAUSIBLE_EPOCH, SCHEMA_TOO_NEW, CORRUPT, CLOCK_BEFORE_2026
-- Complexity -> O(1). An unchanged record: 2 redis.calls (TIME, GET). A touch: 3, of a bound one 4. A first turn with bind: 6
--               (TIME, GET, GET and SET of the clock, ZADD, SET). At most 10 (a heal that resets, claims and commits).
local record_key = KEYS[1]
local clock_key = KEYS[2]
local bound_key = KEYS[3]

local flags, granularity, bind_ttl, seen, keep_ms = struct.unpack('>BI8I8I8I8', ARGV[1])
local now
if flags < 16 then
  local time = redis.call('TIME')
  now = (time[1] - 1767225600) * 1000000 + time[2]
else
  local stated = struct.unpack('>I8', ARGV[1], 34)
  flags, now = flags - 16, stated
end
local glance = flags >= 8
if glance then
  flags = flags - 8
end
if now < 0 then
  return redis.error_reply('CLOCK_BEFORE_2026 the clock of the store is set before 2026; set it right, ticks count from then')
end

-- The fast path: most turns of a busy conversation. Within one granularity of the last written activity neither idle nor
-- daily can fire (both need more than that), so the policy is not even looked at; a binding must hold for its whole ttl.
-- The record goes out as it is, without the time: less than a granularity has passed since its last activity, and a binding
-- is kept that much beyond its deadline, so what the reader takes for the rest of its life is never too much.
local raw = redis.call('GET', record_key)
if raw and flags < 2 and #raw > 41 then
  local schema, mark, last, due, epoch, kept_ms = struct.unpack('>BBxI8xI8xI8xI8', raw)
  if schema == 1 and now >= last and seen <= epoch then
    if now - last < granularity then
      if keep_ms <= kept_ms and ((mark == 2 and due >= now + bind_ttl) or (flags == 0 and mark == 0)) then
        return raw
      end
    elseif (mark == 2 and due >= now) or (flags == 0 and mark < 2) then
      -- The touch: a plain record whose policy is not due, or has none. Only the prefix changes, so nothing is unpacked.
      local idle, day_before, day_last, day_next = struct.unpack('>I8I8I8I8', ARGV[1], 42)
      local boundary = (day_next <= now and day_next) or (day_last <= now and day_last) or (day_before <= now and day_before) or 0
      if (idle == 0 or now <= last + granularity + idle) and last + granularity >= boundary then
        if flags == 1 and due < now + bind_ttl + granularity then
          due = now + bind_ttl + granularity
          local size = struct.unpack('>I2', raw, 40)
          redis.call('ZADD', bound_key, string.format('%.0f', due - granularity),
            string.sub(record_key, -37) .. ':' .. string.sub(raw, 42, 41 + size))
        end
        keep_ms = math.max(keep_ms, kept_ms)
        raw = struct.pack('>BBBI8BI8BI8BI8', schema, mark, 0xcf, now, 0xcf, due, 0xcf, epoch, 0xcf, keep_ms) .. string.sub(raw, 39)
        redis.call('SET', record_key, raw, 'PX', string.format('%.0f', math.ceil(math.max(keep_ms, (due - now) / 1000))))
        return raw
      end
    end
  end
end
if glance then
  return ''
end

-- @include record_unpack
-- @include record_settle
-- @include record_write
-- @include record_begin
-- @include seen_target
-- @include ring_find
-- @include ring_add
-- @include publish
-- @include reply
local UNBOUND, CLAIMED, BOUND = 0, 1, 2
local BIND, CONTINUE, WAIT = 1, 2, 3
local RESOLVE = 1
local CREATED, RESET, NEW_CONVERSATION, COMMITTED = 1, 2, 4, 8

local idle, day_before, day_last, day_next = struct.unpack('>I8I8I8I8', ARGV[1], 42)
local args, request_id = cmsgpack.unpack(string.sub(ARGV[1], 74))
local stated, channel, claim_ttl, holder = args[1], args[2], args[3], args[4]
local worker, dp_rank, incarnation, commit = args[5], args[6], args[7], args[8]
local wants_bind = flags % 2 == 1
local durable = flags >= 4

local record, refusal = record_unpack(raw, granularity)
if refusal then
  return refusal
end
local behind = record ~= nil and record_settle(record, now)
local changed = behind or (record ~= nil and keep_ms > record.keep_ms)

local function outcome(action, epoch, ordinal, reason, bits, previous, decided, replayed, lapsed)
  local reset = math.floor(bits / RESET) % 2 == 1
  return {
    action, reset and reason or '', previous, math.floor(bits / NEW_CONVERSATION) % 2, bits % 2,
    epoch, ordinal, reason, decided and 1 or 0, behind and 1 or 0, replayed and 1 or 0, lapsed and 1 or 0,
  }
end

-- 1. The same request again: its first result, as long as that still means anything. A claim in it counts only while it lives.
local again = record and ring_find(record.ring, request_id, RESOLVE)
if again then
  local live = again[8] == 0
  if again[8] > 0 and again[8] == record.fence and again[3] == record.epoch then
    live = (record.state == CLAIMED and now <= record.deadline)
      or (again[7] >= COMMITTED and record.state == BOUND and now <= record.deadline + granularity)
  end
  if live then
    if behind then
      raw = record_write(record_key, record, granularity)
    elseif durable then
      redis.call('SET', record_key, raw, 'KEEPTTL')
    end
    local action = again[8] > 0 and BIND or 0
    return reply(now, raw, outcome(action, again[3], again[4], again[5], again[7], again[6], true, true, false))
  end
  if again[3] ~= record.epoch then
    again = nil
  end
end

-- 2. Is an epoch due? Lost advances first, then the suspension, then idle before daily.
local known = record ~= nil and not record.forgotten
local target, implausible = seen_target(clock_key, now, record and record.epoch or 0, stated, seen)
if implausible then
  return implausible
end
local reason
if target > 0 then
  reason = 'rollback'
elseif not known then
  reason = 'new'
elseif record.suspend == 1 then
  reason = 'suspended'
elseif record.suspend > 1 then
  if now > record.suspend then
    reason = 'resume_expired'
  else
    record.suspend, changed = 0, true
  end
else
  local boundary = (day_next <= now and day_next) or (day_last <= now and day_last) or (day_before <= now and day_before) or 0
  if idle > 0 and now > record.last + granularity + idle then
    reason = 'idle'
  elseif record.last + granularity < boundary then
    reason = 'daily'
  end
end

local bits, decided, advanced = 0, false, false
if reason then
  local replaced_tombstone = record ~= nil and record.forgotten
  record, refusal = record_begin({ record = record_key, clock = clock_key, bound = bound_key }, now, record, reason, target, keep_ms)
  if refusal then
    return refusal
  end
  if not known then
    bits = bits + CREATED
  end
  if known or target > 0 then
    bits = bits + RESET
    if target == 0 then
      bits = bits + NEW_CONVERSATION
    end
  end
  changed, decided = true, true
  advanced = bits > CREATED or replaced_tombstone
elseif again then
  bits = again[7] % COMMITTED -- reported again to its own request, though the claim that came with it is over
end
local previous = bits >= RESET and record.previous or 0

-- 3. The binding of the epoch: exactly one caller is told to bind.
local action, committed, lapsed = 0, false, false
if wants_bind then
  if record.state == BOUND and now <= record.deadline + granularity then
    action = CONTINUE
    if now + bind_ttl > record.deadline and (now - record.last >= granularity or now + bind_ttl > record.deadline + granularity) then
      record.deadline, changed = now + bind_ttl, true
      redis.call('ZADD', bound_key, string.format('%.0f', record.deadline), bound_member(record_key, record.worker))
    end
  elseif record.state == CLAIMED and now <= record.deadline then
    action = WAIT
  else
    local fence = decided and record.epoch or nil -- a claim made with a new epoch shares its tick
    if not fence then
      fence, refusal = tick(clock_key, now, math.max(record.epoch, record.fence))
      if refusal then
        return refusal
      end
    end
    if record.state > UNBOUND and record.worker ~= worker then
      redis.call('ZREM', bound_key, bound_member(record_key, record.worker))
    end
    action, committed, lapsed = BIND, commit, record.state == CLAIMED
    record.state, record.fence, record.holder = commit and BOUND or CLAIMED, fence, holder
    record.worker, record.dp_rank, record.incarnation = worker, dp_rank, incarnation
    record.rebound = record.rebound == 2 and 1 or 0 -- a drain took it off its worker: this is the rebind
    record.deadline = now + (commit and bind_ttl or claim_ttl)
    redis.call('ZADD', bound_key, '+inf', '', string.format('%.0f', record.deadline), bound_member(record_key, worker))
    changed, decided = true, true
  end
end

-- 4. Remember what was decided, and the activity.
if decided then
  ring_add(record.ring, {
    request_id, RESOLVE, record.epoch, record.ordinal, record.reason, previous, bits + (committed and COMMITTED or 0),
    action == BIND and record.fence or 0,
  })
end
if changed or now - record.last >= granularity then
  record.last = now
  record.keep_ms = math.max(record.keep_ms, keep_ms)
  raw = record_write(record_key, record, granularity)
elseif durable and bits > 0 then
  redis.call('SET', record_key, raw, 'KEEPTTL')
end
if advanced then
  publish(channel, 'advance', record_key, record, record.reason)
end
if committed then
  publish(channel, 'bind', record_key, record, '')
end
return reply(now, raw, outcome(action, record.epoch, record.ordinal, record.reason, bits, previous, decided or bits > 0, false, lapsed))
