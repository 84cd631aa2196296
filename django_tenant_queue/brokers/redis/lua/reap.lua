-- reap: take expired leases, oldest first; they end here, settled as held until their expiry.
-- KEYS[1] meta; ARGV[1..7] see lib/context; ARGV[8] limit, at most 500
-- Returns 'lost' | 'moved' | {{samples of dropped entries}, {token, lease, token, lease, ...}}
-- Keeps: as ack. A lease that cannot be read is dropped.
--- include drain
--- include context
--- include queue
--- include lane
--- include ring
--- include corrupt
--- include wake
--- include lease
--- include settle
local over = call('ZRANGEBYSCORE', root .. 'expiry', '-inf', now, 'WITHSCORES', 'LIMIT', 0, tonumber(ARGV[8]))
local tokens, expiry = {}, {}
for i = 1, #over, 2 do
  tokens[#tokens + 1] = over[i]
  expiry[over[i]] = tonumber(over[i + 1])
end
local held, reply = leased(tokens), {}
for _, lease in ipairs(held) do
  lease.refund = owed(lease, expiry[lease.token])
  expiry[lease.token] = nil
  reply[#reply + 1] = lease.token
  reply[#reply + 1] = lease.record
end
for token in pairs(expiry) do -- no lease any more (a script that died ended it), or one that cannot be read
  local record = call('HGET', root .. 'lease', token)
  if record then drop('lease', record) end
  call('HDEL', root .. 'lease', token)
  call('ZREM', root .. 'expiry', token)
end
count_dropped()
end_leases(held)
return { corrupt, reply }
