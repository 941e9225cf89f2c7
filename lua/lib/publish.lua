-- Tells every replica. Payload: MessagePack {kind, conv|sess, digest, epoch, fence, worker, reason}; never a raw key.
local function publish(channel, kind, record_key, record, reason)
  redis.call('PUBLISH', channel, cmsgpack.pack({
    kind, string.sub(record_key, -37, -34), string.sub(record_key, -32), record.epoch, record.fence, record.worker, reason,
  }))
end
